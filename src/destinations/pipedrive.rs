//! Pipedrive persons, which have no unique key: two calls that create at once make two persons.
//!
//! So a person is looked up before one is made: by our own key in a custom field where one is configured, then by
//! e-mail, and after an unknown outcome also among the persons made since, because the search is behind the writes.
//! Values are sent in the types of the account's fields, which are read once an hour.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};

use super::cached::Cached;
use super::client::{Answer, Call, Client};
use super::oauth::{Encoding, OAuth, Settings};
use super::{
    Built, CallError, Destination, DestinationError, Key, Kind, Mapped, Outcome, Page, Record,
    Remote, Reply, Setup,
};
use crate::config;

mod fields;
mod find;
mod person;
mod said;

use fields::{Field, Fields};

pub(super) const KIND: Kind = Kind {
    name: "pipedrive",
    summary: "Pipedrive persons, looked up by an own key and by e-mail",
    keys: &["token", "client_id", "client_secret", "refresh_token", "token_url", "key_property"],
    reads: true,
    build,
};

const PERSONS: &str = "/api/v2/persons";
const SEARCH: &str = "/api/v2/persons/search";
const FIELDS: &str = "/api/v2/personFields";
/// Persons in one page: of Pipedrive's 500, so many that the answer stays small with a hundred custom fields.
const PAGE: &str = "250";
/// Fields in one page, which is Pipedrive's largest.
const FIELD_PAGE: &str = "500";
/// Most custom fields that a read can name.
const NAMED: usize = 15;
/// How old our knowledge of the account's fields may be.
const FIELDS_AGE: Duration = Duration::from_secs(3600);
/// How old it may be once Pipedrive has refused a value.
const FIELDS_DOUBTED: Duration = Duration::from_secs(60);
/// Longest list of pages that is read of the fields.
const FIELD_PAGES: usize = 20;

struct Pipedrive {
    client: Client,
    auth: Auth,
    /// Custom field that holds the lead id.
    key_property: Option<String>,
    fields: Cached<Fields>,
}

/// How we show who we are.
enum Auth {
    /// A user's API token.
    Token(HeaderValue),
    /// An app that a user let in.
    App(OAuth),
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let invalid = |key, why: &str| {
        let why = why.to_owned();
        DestinationError::Invalid { name: name(), key, why }
    };
    let keyed = |(value, to): (&String, &config::Property)| to.to() == "emails" && value != "email";
    if config.fields.iter().any(keyed) {
        return Err(invalid("fields", "maps something else to emails, which is the key"));
    }
    if config.key_property.as_deref().is_some_and(|key| key.trim().is_empty()) {
        return Err(invalid("key_property", "is blank; leave it out, or name a custom text field"));
    }
    let client = Client::new(config, Some("https://api.pipedrive.com"), setup.call_timeout)?;
    let auth = match (&config.token, &config.client_id, &config.refresh_token) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            return Err(invalid("token", "stands beside `client_id`; use one or the other"));
        }
        (Some(token), None, None) => {
            let mut token = HeaderValue::try_from(token.expose().trim())
                .map_err(|_| invalid("token", "has characters that cannot stand in a header"))?;
            token.set_sensitive(true);
            Auth::Token(token)
        }
        (None, None, None) => {
            return Err(DestinationError::Missing {
                name: name(),
                key: "token",
                why: "copy the API token of a user in Pipedrive (Personal preferences, API), or give \
                      `client_id`, `client_secret` and `refresh_token` of an app",
            });
        }
        (None, ..) => Auth::App(app(config, setup)?),
    };
    let key_property = config.key_property.clone();
    Ok(Arc::new(Pipedrive { client, auth, key_property, fields: Cached::default() }))
}

fn app(config: &config::Destination, setup: &Setup) -> Result<OAuth, DestinationError> {
    let missing = |key, why| DestinationError::Missing { name: config.name.clone(), key, why };
    let settings = Settings {
        destination: config.name.clone(),
        token_client: Client::to(
            config,
            "token_url",
            Some(config.token_url.as_deref().unwrap_or("https://oauth.pipedrive.com/oauth/token")),
            "it says where access tokens are made",
            setup.call_timeout,
        )?,
        client_id: config.client_id.clone().ok_or_else(|| {
            missing("client_id", "it is shown with the app in Pipedrive's Developer Hub")
        })?,
        client_secret: config.client_secret.clone().ok_or_else(|| {
            missing("client_secret", "it is shown with the app in Pipedrive's Developer Hub")
        })?,
        refresh_token: Some(config.refresh_token.clone().ok_or_else(|| {
            missing("refresh_token", "Pipedrive gives it once, when a user lets the app in")
        })?),
        encoding: Encoding::FormBasic,
        scheme: "Bearer",
        base_member: Some("api_domain"),
        tokens: Arc::clone(&setup.tokens),
    };
    Ok(OAuth::new(settings))
}

#[async_trait]
impl Destination for Pipedrive {
    fn batch_size(&self) -> usize {
        1
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[("full_name", "name"), ("phone", "phones")]
    }

    fn default_rate(&self) -> Option<config::Rate> {
        // The smallest plan: 20 requests in 2 s, of which 10 may be searches. A call is up to two requests.
        Some(config::Rate { calls: 10, per: Duration::from_secs(2) })
    }

    fn default_daily(&self) -> Option<u32> {
        // Tokens of the smallest plan with one seat.
        Some(30_000)
    }

    fn cost(&self, records: usize) -> u32 {
        // Tokens of a read (1) and a write (5).
        u32::try_from(records).unwrap_or(u32::MAX).saturating_mul(6)
    }

    fn look_up_cost(&self, records: usize) -> u32 {
        // Tokens of two searches (20 each) and a read.
        u32::try_from(records).unwrap_or(u32::MAX).saturating_mul(41)
    }

    fn key(&self) -> Key {
        Key::None
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
        let mut reply = Reply::from(Vec::new());
        for record in records {
            let found = self.found(record, properties).await?;
            reply.value.push(found.value);
            reply.limits = found.limits;
        }
        Ok(reply)
    }

    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let mapped = self.mapped(properties).await?;
        let mut call = Call::get(PERSONS)
            .query("limit", PAGE)
            .query("sort_by", "id")
            .query("sort_direction", "asc");
        if let Some(cursor) = cursor {
            call = call.query("cursor", cursor);
        }
        let answer = self.call(person::naming(call, &mapped)).await?;
        let body = said::read(&answer)?;
        let people = person::items(&body["data"]);
        let page = Page {
            contacts: people.iter().filter_map(|p| person::remote(p, &mapped)).collect(),
            next: body["additional_data"]["next_cursor"].as_str().map(str::to_owned),
        };
        Ok(Reply { value: page, limits: said::limits(&answer) })
    }

    async fn check(&self, mapped: &[Mapped]) -> Result<Vec<String>, CallError> {
        let fields = self.account(Duration::ZERO).await?;
        for mapped in mapped {
            person::fits(&fields, mapped)?;
        }
        let mut found =
            vec![format!("{} knows the token and lets it read persons", self.client.shown())];
        found.push(match &self.key_property {
            Some(key) => {
                let field = person::key(&fields, key)?;
                format!(
                    "persons are recognised by the lead id in \"{}\", then by e-mail; Pipedrive keeps neither unique",
                    field.name
                )
            }
            None => "persons are recognised by e-mail, which Pipedrive does not keep unique".to_owned(),
        });
        self.may_search_and_write().await?;
        found.push("the token may search and write persons".to_owned());
        if !mapped.is_empty() {
            found.push(format!("all {} mapped fields exist and can be written", mapped.len()));
        }
        Ok(found)
    }
}

impl Pipedrive {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        match &self.auth {
            Auth::App(app) => app.call(&self.client, call).await,
            Auth::Token(token) => {
                let name = HeaderName::from_static("x-api-token");
                self.client.call(call.header(name, token.clone())).await
            }
        }
    }

    /// The account's fields, not older than `most`.
    async fn account(&self, most: Duration) -> Result<Arc<Fields>, CallError> {
        self.fields.get(most, async || self.read_fields().await).await
    }

    async fn read_fields(&self) -> Result<Fields, CallError> {
        let mut fields = Fields::default();
        let mut cursor: Option<String> = None;
        for _ in 0..FIELD_PAGES {
            let mut call = Call::get(FIELDS).query("limit", FIELD_PAGE);
            if let Some(cursor) = cursor {
                call = call.query("cursor", cursor);
            }
            let body = said::read(&self.call(call).await?)?;
            fields.extend(person::items(&body["data"]));
            cursor = body["additional_data"]["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(fields)
    }

    /// Properties and the fields they are.
    async fn mapped(&self, properties: &[String]) -> Result<Vec<(String, Field)>, CallError> {
        let fields = self.account(FIELDS_AGE).await?;
        let field = |property: &String| Ok((property.clone(), fields.mapped(property)?));
        properties.iter().map(field).collect()
    }

    /// Asks for nothing and changes nobody: scopes are looked at before the person, and there is no person 0.
    async fn may_search_and_write(&self) -> Result<(), CallError> {
        let search = Call::get(SEARCH)
            .query("term", "leadsync@example.com")
            .query("fields", "email")
            .query("exact_match", "true")
            .query("limit", "1");
        said::read(&self.call(search).await?)?;
        let nobody = Call::patch(format!("{PERSONS}/0")).json(&serde_json::json!({}));
        let answer = self.call(nobody).await?;
        match answer.status {
            401..=403 | 429 => Err(said::refusal(&answer, None)),
            _ => Ok(()),
        }
    }
}
