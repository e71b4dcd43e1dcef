//! HubSpot contacts: batch upsert by e-mail, and batch update by id where one is known, up to 100 leads in a call.
//!
//! Every input carries a trace id, because without one a single bad record refuses the whole batch. The
//! results come in another order than the inputs and are lined up by trace id, else by id or e-mail.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderValue, header};
use serde_json::{Value, json};

use super::client::{Answer, Call, Client};
use super::{
    Built, CallError, Destination, DestinationError, Kind, Limit, Mapped, Outcome, Page, Record,
    Remote, Reply, Setup,
};
use crate::config;

mod contacts;
mod said;
mod written;

pub(super) const KIND: Kind = Kind {
    name: "hubspot",
    summary: "HubSpot contacts, keyed by e-mail",
    keys: &["token"],
    reads: true,
    build,
};

const UPSERT: &str = "/crm/v3/objects/contacts/batch/upsert";
const UPDATE: &str = "/crm/v3/objects/contacts/batch/update";
const PROPERTIES: &str = "/crm/v3/properties/contacts";
/// HubSpot's limit.
const BATCH: usize = 100;

struct Hubspot {
    client: Client,
    authorization: HeaderValue,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let Some(token) = &config.token else {
        return Err(DestinationError::Missing {
            name: name(),
            key: "token",
            why: "make a service key or private app in HubSpot (Settings, Integrations) with the scopes \
                  crm.objects.contacts.read, crm.objects.contacts.write and crm.schemas.contacts.read",
        });
    };
    let keyed = |(value, to): (&String, &config::Property)| to.to() == "email" && value != "email";
    if config.fields.iter().any(keyed) {
        let why = "maps something else to the property email, which is the key".to_owned();
        return Err(DestinationError::Invalid { name: name(), key: "fields", why });
    }
    let invalid = |_| DestinationError::Invalid {
        name: name(),
        key: "token",
        why: "has characters that cannot stand in a header".to_owned(),
    };
    let mut authorization =
        HeaderValue::try_from(format!("Bearer {}", token.expose().trim())).map_err(invalid)?;
    authorization.set_sensitive(true);
    let client = Client::new(config, Some("https://api.hubapi.com"), setup.call_timeout)?;
    Ok(Arc::new(Hubspot { client, authorization }))
}

#[async_trait]
impl Destination for Hubspot {
    fn batch_size(&self) -> usize {
        BATCH
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("first_name", "firstname"),
            ("last_name", "lastname"),
            ("phone", "phone"),
            ("company", "company"),
            ("job_title", "jobtitle"),
            ("website", "website"),
            ("city", "city"),
            ("country", "country"),
            ("region", "state"),
            ("lifecycle_stage", "lifecyclestage"),
        ]
    }

    fn default_rate(&self) -> Option<config::Rate> {
        // The smallest of HubSpot's plans.
        Some(config::Rate { calls: 100, per: Duration::from_secs(10) })
    }

    fn default_daily(&self) -> Option<u32> {
        Some(250_000)
    }

    fn group(&self, record: &Record) -> &'static str {
        match record.remote_id {
            Some(_) => "by_id",
            None => "by_email",
        }
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let Some(first) = records.first() else { return Ok(Vec::new().into()) };
        let by_id = first.remote_id.is_some();
        let path = if by_id { UPDATE } else { UPSERT };
        let answer = self.call(Call::post(path).json(&request(records))).await?;
        Ok(Reply { value: written::read(&answer, records)?, limits: limits(&answer) })
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        if records.is_empty() {
            return Ok(Vec::new().into());
        }
        let answer = self.call(contacts::asked(records, properties)).await?;
        Ok(Reply { value: contacts::found(&answer, records)?, limits: limits(&answer) })
    }

    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let answer = self.call(contacts::page_asked(cursor, properties)).await?;
        Ok(Reply { value: contacts::page(&answer)?, limits: limits(&answer) })
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        let answer = self.call(Call::get(PROPERTIES)).await?;
        let body = answer.json()?;
        if answer.status != 200 {
            return Err(said::refusal(&answer, &body, &[]));
        }
        contacts::check(&body, fields)?;
        // Scopes are looked at before the content, and an empty batch writes nothing.
        let answer = self.call(Call::post(UPSERT).json(&json!({"inputs": []}))).await?;
        if matches!(answer.status, 401 | 403) {
            return Err(said::refusal(&answer, &answer.json()?, &[]));
        }
        let mut found = vec![
            format!("{} knows the token and lets it write contacts", self.client.shown()),
            "contacts are keyed by e-mail, which HubSpot keeps unique".to_owned(),
        ];
        if !fields.is_empty() {
            found.push(format!("all {} mapped properties exist and can be written", fields.len()));
        }
        Ok(found)
    }
}

impl Hubspot {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let call = call.header(header::AUTHORIZATION, self.authorization.clone());
        self.client.call(call).await
    }
}

/// The rolling window and the day, as the headers tell them.
fn limits(answer: &Answer) -> Vec<Limit> {
    let rolling = || {
        let window = answer.number("x-hubspot-ratelimit-interval-milliseconds")?;
        Some(Limit {
            window: Duration::from_millis(window.into()),
            allowed: answer.number("x-hubspot-ratelimit-max"),
            remaining: answer.number("x-hubspot-ratelimit-remaining")?,
            resets_in: None,
        })
    };
    let day = || {
        Some(Limit {
            window: Duration::from_secs(86_400),
            allowed: answer.number("x-hubspot-ratelimit-daily"),
            remaining: answer.number("x-hubspot-ratelimit-daily-remaining")?,
            resets_in: None,
        })
    };
    rolling().into_iter().chain(day()).collect()
}

/// The body of a batch upsert, or of a batch update where ids are known: then the e-mail, which people may have changed
/// at HubSpot, is not sent. "" clears a property, which null does not.
fn request(records: &[Record]) -> Value {
    let input = |record: &Record| {
        let mut properties: serde_json::Map<String, Value> = record
            .properties
            .iter()
            .filter(|(to, _)| to != "email")
            .map(|(to, value)| {
                let value = value.as_deref().unwrap_or_default();
                (to.clone(), json!(if to == "lifecyclestage" { stage(value) } else { value }))
            })
            .collect();
        let email = record.lead.email.as_str();
        match &record.remote_id {
            Some(id) => {
                json!({"id": id, "objectWriteTraceId": record.lead.lead_id, "properties": properties})
            }
            None => {
                properties.insert("email".to_owned(), json!(email));
                json!({
                    "id": email, "idProperty": "email", "objectWriteTraceId": record.lead.lead_id,
                    "properties": properties,
                })
            }
        }
    };
    json!({"inputs": records.iter().map(input).collect::<Vec<_>>()})
}

/// Lifecycle stages whose internal name at HubSpot is another than ours: ours, HubSpot's.
const STAGES: [(&str, &str); 2] = [
    ("marketing_qualified_lead", "marketingqualifiedlead"),
    ("sales_qualified_lead", "salesqualifiedlead"),
];

/// HubSpot's internal name of a lifecycle stage.
fn stage(ours: &str) -> &str {
    STAGES.iter().find(|(name, _)| *name == ours).map_or(ours, |(_, theirs)| theirs)
}

fn items<'a>(body: &'a Value, list: &str) -> &'a [Value] {
    body[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text, or each text of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(value));
    list.iter().filter_map(Value::as_str)
}

/// The id of a contact, which HubSpot writes as text.
fn id(contact: &Value) -> Option<String> {
    match &contact["id"] {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}
