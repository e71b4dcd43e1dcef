//! Salesforce leads or contacts: up to 200 in a call, told apart by an external id of ours that Salesforce keeps unique.
//!
//! A lead that somebody else entered has no key of ours, and an upsert by key alone would make a second one beside it:
//! hence [`Key::Ours`]. What comes to be pushed by key is new, and only then blanks are filled that Salesforce does not
//! take ("Company"). A lead that was pushed is updated by its id; of one that is not there any more a second question tells
//! whether it was merged, converted or deleted.

use std::time::Duration;

use async_trait::async_trait;

use super::cached::{Cached, before_writing};
use super::client::{Answer, Call, Client};
use super::oauth::OAuth;
use super::{CallError, Destination, Key, Kind, Mapped, Outcome, Page, Record, Remote, Reply};

mod configured;
mod fields;
mod push;
mod reads;
mod rows;
mod said;

use fields::Fields;

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
    build: configured::build,
};

const API: &str = "/services/data/v67.0";
/// Salesforce's limit.
const BATCH: usize = 200;
/// The key field where configuration names none.
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

    fn key(&self) -> Key {
        Key::Ours
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
}
