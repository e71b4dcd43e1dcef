//! Odoo: contacts (`res.partner`) or leads (`crm.lead`), up to 50 in a call.
//!
//! Everything is written with `load`, the method behind Odoo's import: all or nothing in one transaction, columns that are
//! not named are left alone, "" clears. A contact that we know is named by Odoo's own id; a new one gets an external id
//! made of its e-mail, which Odoo keeps unique, so that the same again updates instead of making a second one. Odoo has
//! no rule against two contacts of one e-mail: those that people made are found by it first.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::HeaderValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::cached::before_writing;
use super::client::Client;
use super::{
    Built, CallError, Destination, DestinationError, Key, Kind, Mapped, Outcome, Page, Record,
    Remote, Reply, Setup,
};
use crate::config;

mod check;
mod found;
mod rows;
mod rpc;
mod said;

use rpc::{Failure, Method, Way};
use said::{About, Loaded};

pub(super) const KIND: Kind = Kind {
    name: "odoo",
    summary: "Odoo contacts or leads, kept apart by an external id",
    keys: &["token", "user", "database", "object"],
    reads: true,
    build,
};

/// A call of so many rows takes a third of a second, and a page of so many contacts no longer.
const BATCH: usize = 50;
/// Contacts in one page of a list.
const PAGE: usize = 200;

/// What leads become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Partner,
    Lead,
}

impl Object {
    fn model(self) -> &'static str {
        match self {
            Object::Partner => "res.partner",
            Object::Lead => "crm.lead",
        }
    }

    /// The field with the e-mail.
    fn email(self) -> &'static str {
        match self {
            Object::Partner => "email",
            Object::Lead => "email_from",
        }
    }

    /// What stands before the digest in an external id. One for two models would point at the wrong record.
    fn prefix(self) -> &'static str {
        match self {
            Object::Partner => "partner_",
            Object::Lead => "lead_",
        }
    }
}

/// Module of our external ids.
const MODULE: &str = "leadsync";

/// Name of the external id of a lead. It tells the address to nobody, and is the same for every leadsync that is
/// connected to the same Odoo.
fn external(object: Object, record: &Record) -> String {
    let digest = Sha256::digest(record.lead.email.as_bytes());
    format!("{}{}", object.prefix(), hex::encode(&digest[..16]))
}

struct Odoo {
    client: Client,
    way: Way,
    database: Option<String>,
    object: Object,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let missing = |key, why| DestinationError::Missing { name: config.name.clone(), key, why };
    let invalid = |key, why: &str| DestinationError::Invalid {
        name: config.name.clone(),
        key,
        why: why.to_owned(),
    };
    let object = match config.object.as_deref() {
        None | Some("res.partner") => Object::Partner,
        Some("crm.lead") => Object::Lead,
        Some(_) => {
            return Err(invalid(
                "object",
                "is not one of res.partner (contacts) and crm.lead (leads)",
            ));
        }
    };
    for (value, property) in &config.fields {
        let to = property.to();
        if to == object.email() && value != "email" {
            return Err(invalid(
                "fields",
                "maps something else to the e-mail, which tells contacts apart",
            ));
        }
        if ["id", ".id", "email_normalized"].contains(&to) {
            return Err(invalid(
                "fields",
                "maps to an id or to email_normalized, which Odoo keeps itself",
            ));
        }
    }
    let Some(key) = &config.token else {
        return Err(missing(
            "token",
            "make an API key in Odoo (My Profile, Account Security, New API Key), best of a user of its own",
        ));
    };
    let in_header = |key, text: &str| {
        HeaderValue::try_from(text)
            .map_err(|_| invalid(key, "has characters that cannot stand in a header"))
    };
    let way = match (&config.user, &config.database) {
        (Some(login), Some(database)) => Way::JsonRpc {
            database: database.clone(),
            login: login.clone(),
            key: key.clone(),
            uid: Mutex::new(None),
        },
        (Some(_), None) => {
            return Err(missing(
                "database",
                "it is the name of Odoo's database, which its login page may show",
            ));
        }
        (None, database) => {
            let mut authorization = in_header("token", &format!("Bearer {}", key.expose().trim()))?;
            authorization.set_sensitive(true);
            let database =
                database.as_deref().map(|name| in_header("database", name)).transpose()?;
            Way::Json2 { database, authorization }
        }
    };
    let client = Client::new(config, None, setup.call_timeout)?;
    Ok(Arc::new(Odoo { client, way, database: config.database.clone(), object }))
}

#[async_trait]
impl Destination for Odoo {
    fn batch_size(&self) -> usize {
        BATCH
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        match self.object {
            Object::Partner => &[
                ("name", "name"),
                ("phone", "phone"),
                ("company", "company_name"),
                ("job_title", "function"),
                ("website", "website"),
                ("city", "city"),
            ],
            Object::Lead => &[
                ("name", "contact_name"),
                ("phone", "phone"),
                ("company", "partner_name"),
                ("job_title", "function"),
                ("website", "website"),
                ("city", "city"),
            ],
        }
    }

    fn default_rate(&self) -> Option<config::Rate> {
        // Odoo tells no limit; a small one does some 50 short calls per second and has people to serve.
        Some(config::Rate { calls: 5, per: Duration::from_secs(1) })
    }

    fn key(&self) -> Key {
        match self.object {
            Object::Partner => Key::Ours,
            // A person may have several leads, so that those of others are not ours to update.
            Object::Lead => Key::Enforced,
        }
    }

    fn group(&self, record: &Record) -> &'static str {
        if record.remote_id.is_some() { "by_id" } else { "by_key" }
    }

    fn alike(&self, record: &Record) -> bool {
        record.remote_id.is_some()
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; records.len()];
        let mut wrote = false;
        for rows in rows::rows(self.object, records) {
            let own: Vec<Record> =
                rows.at.iter().filter_map(|at| records.get(*at).cloned()).collect();
            let result = match self.load(&rows, &own).await {
                Loaded::Outcomes(said) => said,
                Loaded::Failed(error) if wrote => vec![after_others(error); own.len()],
                Loaded::Failed(error) => return Err(error),
            };
            wrote |= result.iter().any(|said| matches!(said, Outcome::Written { .. }));
            for (at, said) in rows.at.iter().zip(result) {
                if let Some(slot) = outcomes.get_mut(*at) {
                    *slot = Some(said);
                }
            }
        }
        let unknown = || Outcome::Unknown { message: "it was not sent".to_owned() };
        Ok(outcomes.into_iter().map(|said| said.unwrap_or_else(unknown)).collect::<Vec<_>>().into())
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        if records.is_empty() {
            return Ok(Vec::new().into());
        }
        Ok(self.find(records, properties).await?.into())
    }

    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let after = cursor.and_then(|cursor| cursor.parse::<i64>().ok()).unwrap_or(0);
        Ok(self.page(after, properties).await?.into())
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        self.check_all(fields).await
    }
}

/// What becomes of records whose call failed after others of the same push were written.
fn after_others(error: CallError) -> Outcome {
    match error {
        CallError::Unknown { message, .. } => Outcome::Unknown { message },
        other => Outcome::Retry { code: "NOT_SENT".to_owned(), message: other.to_string() },
    }
}

impl Odoo {
    fn about<'a>(&'a self, records: &'a [Record]) -> About<'a> {
        About { model: self.object.model(), database: self.database.as_deref(), records }
    }

    /// What every call says of itself: messages in English, which are read here, archived records as well, nobody
    /// subscribed or made the salesperson only because the call came under that name.
    fn context(&self) -> Value {
        let mut context =
            json!({"lang": "en_US", "active_test": false, "mail_create_nosubscribe": true});
        if self.object == Object::Lead {
            context["default_user_id"] = json!(false);
        }
        context
    }

    async fn load(&self, rows: &rows::Rows, records: &[Record]) -> Loaded {
        let method = Method {
            model: self.object.model(),
            name: "load",
            args: vec![("fields", json!(rows.columns)), ("data", json!(rows.cells))],
            context: self.context(),
        };
        let result = match self.way.call(&self.client, method).await {
            Ok(result) => result,
            Err(failure) => return said::failed(failure, &rows.columns, &self.about(records)),
        };
        let mut loaded = said::loaded(&result, records, self.object.model());
        if let Loaded::Outcomes(outcomes) = &mut loaded
            && outcomes.contains(&Outcome::Gone)
        {
            self.follow(records, outcomes).await;
        }
        loaded
    }

    /// Of records that are gone finds those that were merged into another one: Odoo points their external id at it.
    async fn follow(&self, records: &[Record], outcomes: &mut [Outcome]) {
        let gone: Vec<&Record> = records
            .iter()
            .zip(outcomes.iter())
            .filter(|(_, outcome)| **outcome == Outcome::Gone)
            .map(|(record, _)| record)
            .collect();
        let points_at = match self.external_ids(&gone).await {
            Ok(points_at) => points_at,
            // Not knowing better, nothing is made anew.
            Err(error) => {
                let retry = after_others(before_writing(error));
                outcomes
                    .iter_mut()
                    .filter(|o| **o == Outcome::Gone)
                    .for_each(|o| *o = retry.clone());
                return;
            }
        };
        for (record, outcome) in records.iter().zip(outcomes) {
            if *outcome == Outcome::Gone
                && let Some(id) = points_at.get(&external(self.object, record))
                && record.remote_id.as_deref() != Some(id.to_string().as_str())
            {
                *outcome = Outcome::Exists { remote_id: id.to_string() };
            }
        }
    }

    /// Calls a method that only reads.
    async fn ask(
        &self,
        model: &str,
        name: &str,
        args: Vec<(&'static str, Value)>,
    ) -> Result<Value, CallError> {
        let method = Method { model, name, args, context: self.context() };
        self.way.call(&self.client, method).await.map_err(|failure| match failure {
            Failure::Call(error) => error,
            Failure::Raised(raised) => {
                let about = About { model, ..self.about(&[]) };
                said::error(&raised, &[], &about)
            }
        })
    }
}
