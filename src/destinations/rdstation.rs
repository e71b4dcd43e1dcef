//! RD Station Marketing: one contact per call, by its uuid where we know it, else created or updated by e-mail, which
//! RD Station keeps unique.
//!
//! A contact takes at most 24 updates in 24 hours, whoever makes them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::cached::{Cached, before_writing};
use super::client::{Answer, Call, Client, segment};
use super::oauth::{Encoding, OAuth, Settings};
use super::{
    Built, CallError, Destination, DestinationError, Kind, Mapped, Outcome, Page, Record, Remote,
    Reply, Setup,
};
use crate::config;

mod check;
mod fields;
mod said;

use fields::{DataType, Field};
use said::Said;

pub(super) const KIND: Kind = Kind {
    name: "rdstation",
    summary: "RD Station Marketing contacts, keyed by e-mail",
    keys: &["client_id", "client_secret", "refresh_token", "token_url"],
    reads: true,
    build,
};

const API: &str = "https://api.rd.services";
const FIELDS: &str = "/platform/contacts/fields";
/// Most contacts in a page of a segmentation.
const PAGE: usize = 125;
/// Calls of an account are counted by the minute.
const ACCOUNT_WINDOW: Duration = Duration::from_secs(60);
/// How long the account's fields are believed to be as they were.
const FIELDS_OLD: Duration = Duration::from_secs(3600);

struct RdStation {
    client: Client,
    oauth: OAuth,
    fields: Cached<HashMap<String, Field>>,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let missing = |key| DestinationError::Missing {
        name: config.name.clone(),
        key,
        why: "make an app in the RD Station App Store, let your account authorize it, and put the three texts \
              that come of it into client_id, client_secret and refresh_token; the README shows how",
    };
    let (Some(client_id), Some(client_secret), Some(refresh_token)) =
        (&config.client_id, &config.client_secret, &config.refresh_token)
    else {
        return Err(missing(match (&config.client_id, &config.client_secret) {
            (None, _) => "client_id",
            (_, None) => "client_secret",
            _ => "refresh_token",
        }));
    };
    for (value, property) in &config.fields {
        let why = match property.to() {
            "email" if value != "email" => {
                "maps something else to the property email, which is the key"
            }
            "uuid" => "maps to uuid, which RD Station keeps itself",
            "legal_bases" if value != "marketing_consent" => {
                "maps to legal_bases, which only takes marketing_consent"
            }
            _ => continue,
        };
        let (name, why) = (config.name.clone(), why.to_owned());
        return Err(DestinationError::Invalid { name, key: "fields", why });
    }
    let client = Client::new(config, Some(API), setup.call_timeout)?;
    let base = config.base_url.as_deref().unwrap_or(API);
    let base = base.split(['?', '#']).next().unwrap_or(base).trim_end_matches('/');
    let token_url = config.token_url.clone().unwrap_or_else(|| format!("{base}/auth/token"));
    let why = "it says where access tokens are made";
    let token_client = Client::to(config, "token_url", Some(&token_url), why, setup.call_timeout)?;
    let oauth = OAuth::new(Settings {
        destination: config.name.clone(),
        token_client,
        client_id: client_id.clone(),
        client_secret: client_secret.clone(),
        refresh_token: Some(refresh_token.clone()),
        encoding: Encoding::Json,
        scheme: "Bearer",
        base_member: None,
        tokens: setup.tokens.clone(),
    });
    Ok(Arc::new(RdStation { client, oauth, fields: Cached::default() }))
}

/// The path of a contact.
fn path(identifier: &str, value: &str) -> String {
    format!("/platform/contacts/{identifier}:{}", segment(value))
}

#[async_trait]
impl Destination for RdStation {
    fn batch_size(&self) -> usize {
        1
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("name", "name"),
            ("phone", "personal_phone"),
            ("job_title", "job_title"),
            ("website", "website"),
            ("city", "city"),
        ]
    }

    fn default_rate(&self) -> Option<config::Rate> {
        // The smallest of RD Station's plans.
        Some(config::Rate { calls: 120, per: Duration::from_secs(60) })
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        // One in a call; more than one would only be a caller that does not look.
        let mut outcomes = Vec::new();
        for record in records {
            let outcome = match self.push_one(record).await {
                Ok(outcome) => outcome,
                Err(error) if outcomes.is_empty() => return Err(error),
                Err(error) => said::after_others(error),
            };
            outcomes.push(outcome);
        }
        Ok(outcomes.into())
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        let mut all = Vec::new();
        for record in records {
            let found = match &record.remote_id {
                Some(uuid) => self.get(&path("uuid", uuid), properties).await?,
                None => None,
            };
            let found = match found {
                Some(contact) => Some(contact),
                // Not known, or merged into another one, which then has the address as well.
                None => self.get(&path("email", &record.lead.email), properties).await?,
            };
            all.push(found.into_iter().collect());
        }
        Ok(all.into())
    }

    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let begun = cursor.and_then(|cursor| cursor.split_once(':'));
        let begun = begun.and_then(|(id, page)| Some((id.to_owned(), page.parse::<u32>().ok()?)));
        let (segmentation, page) = match begun {
            Some(begun) => begun,
            None => (self.everybody().await?, 1),
        };
        let path = format!("/platform/segmentations/{}/contacts", segment(&segmentation));
        let call =
            Call::get(path).query("page", page.to_string()).query("page_size", PAGE.to_string());
        let answer = self.call(call).await?;
        let body = said::whole(&answer)?;
        let contacts: Vec<Remote> = said::items(&body, "contacts")
            .iter()
            .filter_map(|contact| fields::remote(contact, properties))
            .collect();
        let pages = answer.number("pagination-total-pages");
        let more = pages.map_or(contacts.len() == PAGE, |pages| page < pages);
        let next = page.checked_add(1).filter(|_| more && !contacts.is_empty());
        Ok(Page { contacts, next: next.map(|page| format!("{segmentation}:{page}")) }.into())
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        self.check_all(fields).await
    }
}

impl RdStation {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        self.oauth.call(&self.client, call).await
    }

    async fn push_one(&self, record: &Record) -> Result<Outcome, CallError> {
        let own = || record.properties.iter().filter(|(to, _)| to != "email");
        let mut known = Arc::default();
        let custom = || own().filter(|(to, _)| to.starts_with("cf_"));
        if custom().next().is_some() {
            known = self.fields(FIELDS_OLD).await?;
            // It may have been made meanwhile.
            if custom().any(|(to, _)| !known.contains_key(to)) {
                known = self.fields(Duration::ZERO).await?;
            }
        }
        let mut body = Map::new();
        for (to, value) in own() {
            let field = known.get(to);
            if field.is_none() && to.starts_with("cf_") {
                return Err(fields::unknown(to, known.keys()));
            }
            let kind = field.map_or(DataType::of(to), |field| field.kind);
            match fields::value(kind, value.as_deref()) {
                Ok(Some(value)) => drop(body.insert(to.clone(), value)),
                Ok(None) => {}
                Err(code) => return Ok(said::unfit(code, to, kind)),
            }
        }
        let path = match &record.remote_id {
            Some(uuid) => path("uuid", uuid),
            None => path("email", &record.lead.email),
        };
        let answer = self.call(Call::patch(path).json(&Value::Object(body))).await?;
        match said::read(&answer, record)? {
            Said::Outcome(outcome) => Ok(outcome),
            Said::NotThere => self.elsewhere(record).await,
            Said::TooMany(slow_down) => self.whose_limit(slow_down).await,
        }
    }

    /// Where the contact went that its uuid does not name any more.
    async fn elsewhere(&self, record: &Record) -> Result<Outcome, CallError> {
        let found = self.get(&path("email", &record.lead.email), &[]).await;
        Ok(match found.map_err(before_writing)? {
            Some(remote) if Some(&remote.id) != record.remote_id.as_ref() => {
                Outcome::Exists { remote_id: remote.id }
            }
            Some(_) => Outcome::Retry {
                code: "RESOURCE_NOT_FOUND".to_owned(),
                message: "RD Station finds the contact by its e-mail and not by its uuid"
                    .to_owned(),
            },
            None => Outcome::Gone,
        })
    }

    /// Whether it is the contact or the account that has had too many calls: RD Station does not say it. A short pause
    /// is the account's, and what another call is answered tells as well.
    async fn whose_limit(&self, slow_down: CallError) -> Result<Outcome, CallError> {
        if let CallError::SlowDown { after: Some(after), .. } = &slow_down
            && *after <= ACCOUNT_WINDOW
        {
            return Err(slow_down);
        }
        match self.call(Call::get(FIELDS)).await {
            Ok(answer) if answer.status == 200 => Ok(Outcome::Retry {
                code: "CONTACT_LIMIT".to_owned(),
                message: "RD Station takes 24 updates of a contact in 24 hours".to_owned(),
            }),
            _ => Err(slow_down),
        }
    }

    async fn get(&self, path: &str, properties: &[String]) -> Result<Option<Remote>, CallError> {
        let answer = self.call(Call::get(path)).await?;
        if said::is_not_there(&answer) {
            return Ok(None);
        }
        let body = said::whole(&answer)?;
        fields::remote(&body, properties).map(Some).ok_or_else(|| CallError::Unknown {
            after: None,
            message: "the answer is no contact".to_owned(),
        })
    }

    /// Fields of the account by their names, not older than that.
    async fn fields(&self, most: Duration) -> Result<Arc<HashMap<String, Field>>, CallError> {
        let read = async || {
            let answer = self.call(Call::get(FIELDS)).await?;
            Ok(fields::listed(&said::whole(&answer)?))
        };
        self.fields.get(most, read).await
    }

    /// The segmentation with all contacts in it, which every account has.
    async fn everybody(&self) -> Result<String, CallError> {
        let answer = self.call(Call::get("/platform/segmentations")).await?;
        let body = said::whole(&answer)?;
        let standard = said::items(&body, "segmentations").iter().filter(|s| s["standard"] == true);
        let names_all = |segmentation: &&Value| {
            let name = segmentation["name"].as_str().unwrap_or_default().to_lowercase();
            ["todos os contatos", "all contacts", "todos los contactos"]
                .iter()
                .any(|all| name.contains(all))
        };
        let found = standard.clone().find(names_all).or(standard.clone().next());
        match found.map(|segmentation| &segmentation["id"]) {
            Some(Value::Number(id)) => Ok(id.to_string()),
            Some(Value::String(id)) => Ok(id.clone()),
            _ => Err(CallError::Misconfigured {
                code: "NO_SEGMENTATION".to_owned(),
                message:
                    "RD Station has no standard segmentation, so that its contacts cannot be listed"
                        .to_owned(),
            }),
        }
    }
}
