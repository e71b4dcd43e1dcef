//! Brevo contacts: one call per lead, created or updated by e-mail, which Brevo keeps unique.
//!
//! An update by e-mail is answered with nothing, so the contact's id is asked for once; from then on the lead follows the
//! contact, whatever becomes of its address. Brevo drops values of the wrong type without a word: they are sent in the
//! types of the account's attributes, which are read once an hour.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Map, Value, json};

use super::cached::Cached;
use super::client::{Answer, Call, Client, segment};
use super::{
    Built, CallError, Destination, DestinationError, Kind, Mapped, Outcome, Page, Record, Remote,
    Reply, Setup,
};
use crate::config;

mod attributes;
mod said;

use attributes::{Attribute, Attributes};

pub(super) const KIND: Kind = Kind {
    name: "brevo",
    summary: "Brevo contacts, keyed by e-mail",
    keys: &["token", "key_property"],
    reads: true,
    build,
};

const CONTACTS: &str = "/v3/contacts";
const ATTRIBUTES: &str = "/v3/contacts/attributes";
/// Contacts in one page: of Brevo's 1000, so many that the answer stays small.
const PAGE: usize = 500;
/// How old our knowledge of the account's attributes may be.
const ATTRIBUTES_AGE: Duration = Duration::from_secs(3600);
/// The only property that can be a key of our own.
const EXT_ID: &str = "ext_id";

struct Brevo {
    client: Client,
    key: HeaderValue,
    /// The lead id is kept in `ext_id`.
    keeps_lead_id: bool,
    attributes: Cached<Attributes>,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let invalid =
        |key, why: &str| DestinationError::Invalid { name: name(), key, why: why.to_owned() };
    let Some(token) = &config.token else {
        return Err(DestinationError::Missing {
            name: name(),
            key: "token",
            why: "make an API key in Brevo (Settings, SMTP & API, API keys)",
        });
    };
    let mut key = HeaderValue::try_from(token.expose().trim())
        .map_err(|_| invalid("token", "has characters that cannot stand in a header"))?;
    key.set_sensitive(true);
    let keyed = |(value, to): (&String, &config::Property)| {
        to.to().eq_ignore_ascii_case("email") && value != "email"
    };
    if config.fields.iter().any(keyed) {
        return Err(invalid("fields", "maps something else to EMAIL, which is the key"));
    }
    let keeps_lead_id = match config.key_property.as_deref() {
        None => false,
        Some(property) if property.eq_ignore_ascii_case(EXT_ID) => true,
        Some(_) => return Err(invalid("key_property", "can only be \"ext_id\" at Brevo")),
    };
    if keeps_lead_id && config.fields.values().any(|to| to.to().eq_ignore_ascii_case(EXT_ID)) {
        return Err(invalid(
            "fields",
            "maps to EXT_ID, which `key_property` keeps for the lead id",
        ));
    }
    let client = Client::new(config, Some("https://api.brevo.com"), setup.call_timeout)?;
    Ok(Arc::new(Brevo { client, key, keeps_lead_id, attributes: Cached::default() }))
}

#[async_trait]
impl Destination for Brevo {
    fn batch_size(&self) -> usize {
        1
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[("first_name", "FIRSTNAME"), ("last_name", "LASTNAME"), ("phone", "SMS")]
    }

    fn default_rate(&self) -> Option<config::Rate> {
        // The smallest of Brevo's plans.
        Some(config::Rate { calls: 10, per: Duration::from_secs(1) })
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        match records {
            [] => Ok(Vec::new().into()),
            [record] => Ok(self.write(record).await?.map(|outcome| vec![outcome])),
            _ => Err(CallError::Refused {
                code: "BATCH".to_owned(),
                field: None,
                message: format!("{} records in a call of at most one", records.len()),
            }),
        }
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        let mapped = self.mapped(properties).await?;
        let mut reply = Reply::from(Vec::new());
        for record in records {
            let mut found = None;
            for (identifier, kind) in self.identifiers(record) {
                let answer = self.one(&identifier, kind).await?;
                reply.limits = said::limits(&answer);
                found = match answer.status {
                    404 => None,
                    _ => remote(&said::read(&answer)?, &mapped),
                };
                if found.is_some() {
                    break;
                }
            }
            reply.value.push(found.into_iter().collect());
        }
        Ok(reply)
    }

    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let mapped = self.mapped(properties).await?;
        // Ours from the last page; anything else begins anew.
        let offset = cursor.and_then(|cursor| cursor.parse::<usize>().ok()).unwrap_or(0);
        let call = Call::get(CONTACTS)
            .query("limit", PAGE.to_string())
            .query("offset", offset.to_string())
            .query("sort", "asc");
        let answer = self.call(call).await?;
        let body = said::read(&answer)?;
        let contacts = body["contacts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let next = (contacts.len() == PAGE).then(|| offset.saturating_add(PAGE).to_string());
        let contacts = contacts.iter().filter_map(|contact| remote(contact, &mapped)).collect();
        Ok(Reply { value: Page { contacts, next }, limits: said::limits(&answer) })
    }

    async fn check(&self, mapped: &[Mapped]) -> Result<Vec<String>, CallError> {
        let attributes = self.account(Duration::ZERO).await?;
        for mapped in mapped.iter().filter(|m| !m.property.eq_ignore_ascii_case("email")) {
            attributes.fits(mapped)?;
        }
        // A key sees everything or nothing, but a plan or a closed account says so only where it matters.
        said::read(&self.call(Call::get(CONTACTS).query("limit", "1")).await?)?;
        let mut found = vec![
            format!("{} knows the key and lets it read contacts", self.client.shown()),
            "contacts are keyed by e-mail, which Brevo keeps unique".to_owned(),
        ];
        if self.keeps_lead_id {
            found.push("the lead id is kept in ext_id, which Brevo keeps unique, too".to_owned());
        }
        if !mapped.is_empty() {
            found.push(format!("all {} mapped attributes exist and can be written", mapped.len()));
        }
        Ok(found)
    }
}

impl Brevo {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        self.client.call(call.header(HeaderName::from_static("api-key"), self.key.clone())).await
    }

    /// One contact.
    async fn one(&self, identifier: &str, kind: &'static str) -> Result<Answer, CallError> {
        let call = Call::get(format!("{CONTACTS}/{}", segment(identifier)));
        self.call(call.query("identifierType", kind)).await
    }

    /// By what a lead's contact is found, the surest first.
    fn identifiers(&self, record: &Record) -> Vec<(String, &'static str)> {
        let id = record.remote_id.clone().map(|id| (id, "contact_id"));
        let own = self.keeps_lead_id.then(|| (record.lead.lead_id.to_string(), "ext_id"));
        let email = (record.lead.email.clone(), "email_id");
        id.into_iter().chain(own).chain([email]).collect()
    }

    /// The account's attributes, not older than `most`.
    async fn account(&self, most: Duration) -> Result<Arc<Attributes>, CallError> {
        let read = async || {
            let answer = self.call(Call::get(ATTRIBUTES)).await?;
            Ok(Attributes::new(&said::read(&answer)?["attributes"]))
        };
        self.attributes.get(most, read).await
    }

    /// Properties and the attributes they are.
    async fn mapped(&self, properties: &[String]) -> Result<Vec<(String, Attribute)>, CallError> {
        let attributes = self.account(ATTRIBUTES_AGE).await?;
        let attribute = |p: &String| Ok((p.clone(), attributes.mapped(p)?));
        properties.iter().map(attribute).collect()
    }

    /// Makes or changes one contact.
    async fn write(&self, record: &Record) -> Result<Reply<Outcome>, CallError> {
        let attributes = self.account(ATTRIBUTES_AGE).await?;
        let attributes = match values(record, &attributes)? {
            Ok(attributes) => attributes,
            Err(rejected) => return Ok(rejected.into()),
        };
        let Some(id) = &record.remote_id else {
            return self.upsert(record, attributes).await;
        };
        let call = Call::new(Method::PUT, format!("{CONTACTS}/{}", segment(id)))
            .query("identifierType", "contact_id")
            .json(&json!({"attributes": attributes}));
        let answer = self.call(call).await?;
        let outcome = match answer.status {
            404 => Outcome::Gone,
            200..300 => Outcome::Written { remote_id: Some(id.clone()), created: Some(false) },
            _ => said::refused(&answer, record)?,
        };
        Ok(Reply { value: outcome, limits: said::limits(&answer) })
    }

    /// By e-mail. `forceMerge` is never asked for: it takes the other contact away.
    async fn upsert(
        &self,
        record: &Record,
        attributes: Map<String, Value>,
    ) -> Result<Reply<Outcome>, CallError> {
        let mut body = json!({
            "email": record.lead.email, "attributes": attributes, "updateEnabled": true,
        });
        if self.keeps_lead_id {
            body[EXT_ID] = json!(record.lead.lead_id.to_string());
        }
        let answer = self.call(Call::post(CONTACTS).json(&body)).await?;
        let outcome = match answer.status {
            // An update is answered with nothing; a create names its id.
            204 => {
                let remote_id = self.id_of(&record.lead.email, "email_id").await;
                Outcome::Written { remote_id, created: Some(false) }
            }
            200..300 => said::created(&answer)?,
            _ if self.keeps_lead_id && said::is_duplicate(&answer, EXT_ID) => {
                match self.id_of(&record.lead.lead_id.to_string(), EXT_ID).await {
                    Some(remote_id) => Outcome::Exists { remote_id },
                    None => said::refused(&answer, record)?,
                }
            }
            _ => said::refused(&answer, record)?,
        };
        Ok(Reply { value: outcome, limits: said::limits(&answer) })
    }

    /// The id of a contact; `None` also where Brevo did not say, which the next push makes good.
    async fn id_of(&self, identifier: &str, kind: &'static str) -> Option<String> {
        let answer = self.one(identifier, kind).await.ok().filter(|answer| answer.status == 200)?;
        said::id(&answer.json().ok()?["id"])
    }
}

/// The attributes of a write, or the outcome where a value of the lead cannot be one of its attribute.
fn values(
    record: &Record,
    attributes: &Attributes,
) -> Result<Result<Map<String, Value>, Outcome>, CallError> {
    let mut values = Map::new();
    for (property, text) in &record.properties {
        if property.eq_ignore_ascii_case("email") {
            continue;
        }
        let attribute = attributes.mapped(property)?;
        match attribute.value(text.as_deref()) {
            Ok(value) => drop(values.insert(attribute.name, value)),
            Err(why) => {
                return Ok(Err(Outcome::Rejected {
                    code: "INVALID_VALUE".to_owned(),
                    field: Some(property.clone()),
                    message: format!("the lead's value {why}"),
                }));
            }
        }
    }
    Ok(Ok(values))
}

/// A contact of an answer; `None` where it is none.
fn remote(contact: &Value, mapped: &[(String, Attribute)]) -> Option<Remote> {
    let email = contact["email"].as_str().map(str::to_lowercase);
    let value = |attribute: &Attribute| match attribute.name.as_str() {
        "EMAIL" => email.clone(),
        name => attribute.text(&contact["attributes"][name]),
    };
    Some(Remote {
        id: said::id(&contact["id"])?,
        email: email.clone(),
        properties: mapped.iter().map(|(property, a)| (property.clone(), value(a))).collect(),
        archived: false,
    })
}
