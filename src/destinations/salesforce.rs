//! Salesforce leads or contacts: up to 200 in a call, told apart by an external id of ours that Salesforce keeps unique.
//!
//! A lead that was never pushed is looked for first: one that somebody else made has no key of ours, and an upsert by key
//! alone would make a second one beside it. It is also how blanks that Salesforce does not take ("Company") are filled
//! for new records only. A lead that was pushed is updated by its id; of one that is not there any more a second question
//! tells whether it was merged, converted or deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::batch::Batch;
use super::cached::{Cached, before_writing};
use super::client::{Answer, Call, Client};
use super::oauth::{self, OAuth};
use super::typed::Type;
use super::{
    Built, CallError, Destination, DestinationError, Kind, Mapped, Outcome, Page, Record, Remote,
    Reply, Setup,
};
use crate::config;

mod fields;
mod reads;
mod rows;
mod said;

use fields::Fields;
use reads::Place;
use rows::{Standing, short};
use said::{Item, Verdict};

pub(super) const KIND: Kind = Kind {
    name: "salesforce",
    summary: "Salesforce leads or contacts, keyed by a unique external id",
    keys: &[
        "client_id",
        "client_secret",
        "refresh_token",
        "token_url",
        "object",
        "key_property",
        "converted",
    ],
    reads: true,
    build,
};

const API: &str = "/services/data/v67.0";
/// Salesforce's limit.
const BATCH: usize = 200;
/// Field that a blank organisation gets by default, and as which one is known that was not told.
const KEY: &str = "Lead_Email_Key__c";
/// Stands in a field that no record may lack and of which the lead says nothing; Salesforce's own forms write it too.
const NOT_PROVIDED: &str = "[not provided]";
/// The fields that get it.
const FILLED: [&str; 2] = ["LastName", "Company"];
/// How long a description is good for.
const KEEP: Duration = Duration::from_secs(3600);
/// How old it may be when it lacks a field.
const STALE: Duration = Duration::from_secs(60);

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    Lead,
    Contact,
}

impl Object {
    fn name(self) -> &'static str {
        match self {
            Object::Lead => "Lead",
            Object::Contact => "Contact",
        }
    }

    /// What a record with this id is.
    fn of(id: &str) -> Option<Object> {
        match id.get(..3)? {
            "00Q" => Some(Object::Lead),
            "003" => Some(Object::Contact),
            _ => None,
        }
    }
}

struct Salesforce {
    client: Client,
    oauth: OAuth,
    /// What new leads become.
    object: Object,
    key: String,
    /// Whether a converted lead's contact is updated.
    follow: bool,
    leads: Cached<Fields>,
    contacts: Cached<Fields>,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let missing = |key, why| DestinationError::Missing { name: name(), key, why };
    let invalid = |key, why: String| DestinationError::Invalid { name: name(), key, why };
    let base = config.base_url.as_deref().ok_or_else(|| {
        missing("base_url", "the address of your org, like \"https://example.my.salesforce.com\"")
    })?;
    let app = "make an External Client App in Salesforce (Setup, External Client App Manager) with the OAuth flow \
               \"client credentials\"";
    let client_id = config.client_id.clone().ok_or_else(|| missing("client_id", app))?;
    let client_secret =
        config.client_secret.clone().ok_or_else(|| missing("client_secret", app))?;
    let object = match config.object.as_deref() {
        None | Some("Lead") => Object::Lead,
        Some("Contact") => Object::Contact,
        Some(_) => return Err(invalid("object", "must be \"Lead\" or \"Contact\"".to_owned())),
    };
    let key = config.key_property.clone().unwrap_or_else(|| KEY.to_owned());
    if !is_name(&key) {
        return Err(invalid(
            "key_property",
            "is no name of a field, like \"Lead_Email_Key__c\"".into(),
        ));
    }
    for (value, to) in &config.fields {
        let to = to.to();
        let own = to.eq_ignore_ascii_case("Email") || to.eq_ignore_ascii_case(&key);
        if own && value != "email" {
            let why =
                format!("maps something else to the field {to}, which is how leads are told apart");
            return Err(invalid("fields", why));
        }
        if !is_name(to) {
            return Err(invalid(
                "fields",
                format!("maps {value} to something that is no name of a field"),
            ));
        }
    }
    let client = Client::new(config, None, setup.call_timeout)?;
    let token_url = config.token_url.clone().unwrap_or_else(|| {
        let base = base.split(['?', '#']).next().unwrap_or_default();
        format!("{}/services/oauth2/token", base.trim_end_matches('/'))
    });
    let why = "it says where access tokens are made";
    let token_client = Client::to(config, "token_url", Some(&token_url), why, setup.call_timeout)?;
    let oauth = OAuth::new(oauth::Settings {
        destination: name(),
        token_client,
        client_id,
        client_secret,
        refresh_token: config.refresh_token.clone(),
        encoding: oauth::Encoding::Form,
        scheme: "Bearer",
        // The answer names the same org as `base_url`, which may be a proxy.
        base_member: None,
        tokens: setup.tokens.clone(),
    });
    let follow = config.converted.unwrap_or_default() == config::Converted::Follow;
    Ok(Arc::new(Salesforce {
        client,
        oauth,
        object,
        key,
        follow,
        leads: Cached::default(),
        contacts: Cached::default(),
    }))
}

/// Whether it can be a field's name; it goes into queries and paths as it is.
fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= 128
}

#[async_trait]
impl Destination for Salesforce {
    fn batch_size(&self) -> usize {
        BATCH
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        // Without states and countries: in many orgs they are lists that take few spellings.
        match self.object {
            Object::Lead => &[
                ("first_name", "FirstName"),
                ("last_name", "LastName"),
                ("phone", "Phone"),
                ("company", "Company"),
                ("job_title", "Title"),
                ("website", "Website"),
                ("city", "City"),
            ],
            Object::Contact => &[
                ("first_name", "FirstName"),
                ("last_name", "LastName"),
                ("phone", "Phone"),
                ("job_title", "Title"),
                ("city", "MailingCity"),
            ],
        }
    }

    fn default_daily(&self) -> Option<u32> {
        // What every paid edition has, the licences' own not counted.
        Some(100_000)
    }

    fn cost(&self, records: usize) -> u32 {
        // Looking for a new one is a call of its own, and so is what became of an old one.
        if records == 0 { 0 } else { 2 }
    }

    fn group(&self, record: &Record) -> &'static str {
        match record.remote_id.as_deref().map(Object::of) {
            None => "by_key",
            Some(Some(Object::Contact)) => "contact_by_id",
            Some(_) => "lead_by_id",
        }
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let records: Vec<&Record> = records.iter().collect();
        match records.first().map(|record| record.remote_id.as_deref()) {
            None => Ok(Vec::new().into()),
            Some(None) => self.by_key(&records).await,
            Some(Some(id)) => self.by_id(Object::of(id).unwrap_or(self.object), &records).await,
        }
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        self.found(&records.iter().collect::<Vec<_>>(), properties).await.map_err(before_writing)
    }

    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        self.listed(cursor, properties).await.map_err(before_writing)
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        let (answer, described) = self.describe(self.object).await?;
        described.check_key(self.object, &self.key)?;
        described.check(self.object, fields)?;
        let object = self.object.name();
        let mut found = vec![
            format!("{} knows the app and lets it write {object} records", self.client.shown()),
            format!("{object}.{} is a unique external id", self.key),
        ];
        if !fields.is_empty() {
            found.push(format!("all {} mapped fields exist and can be written", fields.len()));
        }
        for filled in FILLED.iter().filter(|f| described.get(f).is_some_and(|f| f.required)) {
            if !fields.iter().any(|f| f.property.eq_ignore_ascii_case(filled)) {
                found.push(format!(
                    "{object}.{filled} is not mapped: new records get \"{NOT_PROVIDED}\""
                ));
            }
        }
        if self.object == Object::Lead && self.follow {
            let (_, contact) = self.describe(Object::Contact).await?;
            contact.check(Object::Contact, &[])?;
            found.push("the contacts of converted leads can be written".to_owned());
        }
        if let Some(limit) = said::limits(&answer).first() {
            let allowed = limit.allowed.unwrap_or_default();
            found
                .push(format!("{} of {allowed} calls a day are left to all apps", limit.remaining));
        }
        Ok(found)
    }
}

impl Salesforce {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        self.oauth.call(&self.client, call).await
    }

    /// Leads that were never pushed: looks for what is there, then upserts by key.
    async fn by_key(&self, records: &[&Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(self.object, records).await?;
        fields.check_key(self.object, &self.key)?;
        let mut batch = Batch::new(records.len());
        let standings = self.standings(records).await.map_err(before_writing)?;
        for (at, (record, standing)) in records.iter().zip(&standings).enumerate() {
            let settled = match standing {
                Standing::New | Standing::Ours => None,
                Standing::Theirs(id) => Some(Outcome::Exists { remote_id: id.clone() }),
                Standing::Several(ids) => Some(Outcome::Ambiguous { remote_ids: ids.clone() }),
                Standing::Converted(_) => continue,
            };
            let body = match settled {
                Some(outcome) => Err(outcome),
                None => self.body(record, &fields, self.object, *standing == Standing::New),
            };
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("Email".to_owned(), json!(record.lead.email));
                    body.insert(self.key.clone(), json!(record.lead.email));
                    body
                }),
            );
        }
        self.converted(records, &standings, &mut batch).await.map_err(before_writing)?;
        let path = format!("{API}/composite/sobjects/{}/{}", self.object.name(), self.key);
        let is_new = |at: usize| standings.get(at) == Some(&Standing::New);
        self.send(self.object, path, records, batch, is_new).await
    }

    /// Leads that were pushed before. The e-mail is not sent.
    async fn by_id(
        &self,
        object: Object,
        records: &[&Record],
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(object, records).await?;
        let mut batch = Batch::new(records.len());
        let mut seen = HashMap::new();
        for (at, record) in records.iter().enumerate() {
            let id = record.remote_id.as_deref().unwrap_or_default();
            let body = match seen.insert(short(id).to_owned(), at) {
                // Two of our leads were merged there, and a call may name a record once.
                Some(_) => Err(Outcome::Retry {
                    code: "SAME_RECORD".to_owned(),
                    message: "another lead of the same call is the same record there".to_owned(),
                }),
                None => self.body(record, &fields, object, false),
            };
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("id".to_owned(), json!(id));
                    body
                }),
            );
        }
        self.send(object, format!("{API}/composite/sobjects"), records, batch, |_| false).await
    }

    /// Sends what is in the batch and sorts what the answer says; `is_new`: nothing was there.
    async fn send(
        &self,
        object: Object,
        path: String,
        records: &[&Record],
        mut batch: Batch,
        is_new: impl Fn(usize) -> bool + Send,
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        if batch.len() == 0 {
            return Ok(batch.outcomes().into());
        }
        let typed = |mut body: Map<String, Value>| {
            body.insert("attributes".to_owned(), json!({"type": object.name()}));
            Value::Object(body)
        };
        let list: Vec<Value> = batch.take_bodies().into_iter().map(typed).collect();
        let call = Call::patch(path).json(&json!({"allOrNone": false, "records": list}));
        let answer = self.call(call).await?;
        let sent = batch.sent(records);
        let items = said::items(&answer, &sent)?;
        let mut moved = Vec::new();
        let mut rights = 0;
        for ((at, record), item) in sent.into_iter().zip(items) {
            let outcome = match item {
                Item::Written { id, created } => {
                    let created = created.or(record.remote_id.is_some().then_some(false));
                    Outcome::Written { remote_id: id, created }
                }
                Item::Silent => Outcome::Unknown { message: "the item says nothing".to_owned() },
                Item::Failed(fault) => match fault.verdict(record, &self.key) {
                    Verdict::Is(outcome) => outcome,
                    Verdict::Stop(error) => return Err(error),
                    Verdict::Moved => {
                        moved.push((at, record, fault));
                        continue;
                    }
                    Verdict::Rights => {
                        rights += 1;
                        // The right to make records is that of all of them; the right to one record may be its own.
                        if is_new(at) || rights > 1 && rights == batch.len() {
                            return Err(fault.stop(record));
                        }
                        fault.rejected(record)
                    }
                },
            };
            batch.settle(at, outcome);
        }
        self.moved(moved, &mut batch).await.map_err(before_writing)?;
        Ok(Reply { value: batch.outcomes(), limits: said::limits(&answer) })
    }

    /// The fields of a record in the types that they want, without e-mail and key. Where the org does not take a value, the
    /// outcome that says so.
    fn body(
        &self,
        record: &Record,
        fields: &Fields,
        object: Object,
        is_new: bool,
    ) -> Result<Map<String, Value>, Outcome> {
        let mut body = Map::new();
        for (property, value) in &record.properties {
            if property.eq_ignore_ascii_case("Email") || property.eq_ignore_ascii_case(&self.key) {
                continue;
            }
            let field = match object == self.object {
                true => fields.get(property),
                // What a contact has no field for stays at the lead.
                false => fields.moved(property),
            };
            let Some(field) = field else { continue };
            let json = match value {
                None if field.kind == Type::Flag => json!(false),
                None if field.required && FILLED.contains(&field.name.as_str()) => {
                    json!(NOT_PROVIDED)
                }
                None => Value::Null,
                Some(text) => field.kind.json(text).map_err(|wanted| Outcome::Rejected {
                    code: "INVALID_VALUE".to_owned(),
                    field: Some(property.clone()),
                    message: format!("should be {wanted}"),
                })?,
            };
            body.insert(field.name.clone(), json);
        }
        for name in FILLED.iter().filter(|_| is_new) {
            if fields.get(name).is_some_and(|field| field.required) {
                body.entry(*name).or_insert_with(|| json!(NOT_PROVIDED));
            }
        }
        Ok(body)
    }

    /// Says where the records are now that could not be written because they are not what they were.
    async fn moved(
        &self,
        moved: Vec<(usize, &Record, said::Fault)>,
        batch: &mut Batch,
    ) -> Result<(), CallError> {
        let ids: Vec<String> =
            moved.iter().filter_map(|(_, record, _)| record.remote_id.clone()).collect();
        let places = self.places(&ids).await?;
        for (at, record, fault) in moved {
            let outcome = match (record.remote_id.as_deref(), fault.code.as_str()) {
                // Converted between the look and the push: the next look finds it so.
                (None, _) => {
                    Outcome::Retry { code: fault.code, message: "it has just changed".to_owned() }
                }
                (Some(id), _) => match places.get(short(id)) {
                    None | Some(Place::Gone) => Outcome::Gone,
                    Some(Place::Converted) => converted(),
                    Some(Place::At(now)) if short(now) == short(id) => fault.rejected(record),
                    Some(Place::At(now)) => Outcome::Exists { remote_id: now.clone() },
                },
            };
            batch.settle(at, outcome);
        }
        Ok(())
    }

    /// Settles the leads of which only converted ones are there.
    async fn converted(
        &self,
        records: &[&Record],
        standings: &[Standing],
        batch: &mut Batch,
    ) -> Result<(), CallError> {
        let of = |standing: &Standing| match standing {
            Standing::Converted(ids) => ids.clone(),
            _ => Vec::new(),
        };
        let ids: Vec<String> = standings.iter().flat_map(of).collect();
        let places = self.places(&ids).await?;
        for at in 0..records.len() {
            let Some(Standing::Converted(ids)) = standings.get(at) else { continue };
            let mut now: Vec<String> = ids
                .iter()
                .filter_map(|id| match places.get(short(id)) {
                    Some(Place::At(now)) => Some(now.clone()),
                    _ => None,
                })
                .collect();
            now.sort();
            now.dedup();
            batch.settle(
                at,
                match now.as_slice() {
                    [] => converted(),
                    [one] => Outcome::Exists { remote_id: one.clone() },
                    _ => Outcome::Ambiguous { remote_ids: now },
                },
            );
        }
        Ok(())
    }
}

fn converted() -> Outcome {
    Outcome::Rejected {
        code: "CONVERTED".to_owned(),
        field: None,
        message: "the lead was converted, and there is no contact to follow it to, or it is not to be followed".to_owned(),
    }
}
