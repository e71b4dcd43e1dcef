//! HubSpot's contacts API, both path forms (`/crm/v3/objects/contacts`, `/crm/objects/2026-03/contacts`): keyed
//! batch upsert with its 207s, single calls, search with a lag, properties, tokens and limits.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Contact;
use super::exchange::{Answer, Request};
use super::fault::{Order, Tweak};

pub(super) mod errors;
mod read;
mod tokens;
mod upsert;
mod values;
mod write;

pub use tokens::{Token, TokenState};
pub use values::{Property, PropertyType};

/// How the account behaves. Where HubSpot's behaviour is not documented, both ways are offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Valid tokens; empty: any bearer token with all scopes.
    pub tokens: Vec<Token>,
    /// The property registry.
    pub properties: Vec<Property>,
    /// Properties that a contact cannot be created without.
    pub required: BTreeSet<String>,
    /// Results carry `objectWriteTraceId`.
    pub echo_trace_ids: bool,
    /// One bad record of a batch with trace ids is a 207; off: it refuses the batch, as without trace ids.
    pub honour_trace_ids: bool,
    /// Order of the results.
    pub order: Order,
    /// `A@x.com` and `a@x.com` in one batch are the same id.
    pub same_key_ignores_case: bool,
    /// An unknown property refuses the batch even with trace ids.
    pub unknown_property_refuses_all: bool,
    /// `null` is taken as "leave alone" instead of refused.
    pub accept_null: bool,
    /// An id that is a contact's secondary e-mail is a conflict instead of a write to that contact.
    pub secondary_conflicts: bool,
    /// A merge gives the survivor a new id.
    pub merge_renumbers: bool,
    /// Requests per rolling window.
    pub rolling_limit: u32,
    /// The window.
    #[serde(rename = "rolling_window_ms", with = "millis")]
    pub rolling_window: Duration,
    /// Requests per day.
    pub daily_limit: u64,
    /// 429 answers carry `Retry-After`.
    pub send_retry_after: bool,
    /// How far the search is behind the writes.
    #[serde(rename = "search_lag_ms", with = "millis")]
    pub search_lag: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tokens: Vec::new(),
            properties: values::registry(),
            required: BTreeSet::new(),
            echo_trace_ids: true,
            honour_trace_ids: true,
            order: Order::default(),
            same_key_ignores_case: true,
            unknown_property_refuses_all: false,
            accept_null: false,
            secondary_conflicts: false,
            merge_renumbers: true,
            // High enough never to be met by chance; the tests of limits set their own.
            rolling_limit: 1_000_000,
            rolling_window: Duration::from_secs(10),
            daily_limit: 1_000_000_000,
            send_retry_after: true,
            search_lag: Duration::from_secs(3),
        }
    }
}

/// The account's contacts.
#[derive(Default)]
pub(super) struct Account {
    /// By id; ids grow from 1001.
    contacts: BTreeMap<u64, Stored>,
    made: u64,
    /// Primary and secondary e-mails of contacts that are not in the bin.
    by_email: HashMap<String, u64>,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
    window: VecDeque<Instant>,
    today: u64,
}

struct Stored {
    /// Lower case, where it has one.
    email: Option<String>,
    /// Without `email`.
    properties: BTreeMap<String, String>,
    secondary: BTreeSet<String>,
    created: Timestamp,
    updated: Timestamp,
    archived: bool,
    /// What the search index saw, newest last.
    versions: VecDeque<(Instant, BTreeMap<String, String>)>,
}

/// Versions kept per contact for the search index.
const VERSIONS: usize = 8;

impl Stored {
    /// Every property with a value, the key and HubSpot's own ones included.
    fn all(&self, id: u64) -> BTreeMap<String, String> {
        let mut all = self.properties.clone();
        if let Some(email) = &self.email {
            all.insert("email".into(), email.clone());
        }
        if !self.secondary.is_empty() {
            let list: Vec<&str> = self.secondary.iter().map(String::as_str).collect();
            all.insert("hs_additional_emails".into(), list.join(";"));
        }
        all.insert("hs_object_id".into(), id.to_string());
        all.insert("createdate".into(), time(self.created));
        all.insert("lastmodifieddate".into(), time(self.updated));
        all
    }

    /// The contact object of the API with the named properties; the unset ones are null.
    fn object<'a>(&self, id: u64, wanted: impl IntoIterator<Item = &'a str>) -> Value {
        let all = self.all(id);
        let mut properties = serde_json::Map::new();
        for name in ["createdate", "hs_object_id", "lastmodifieddate"].into_iter().chain(wanted) {
            properties.insert(name.to_owned(), json!(all.get(name)));
        }
        json!({
            "id": id.to_string(), "properties": properties, "createdAt": time(self.created),
            "updatedAt": time(self.updated), "archived": self.archived,
        })
    }
}

impl Account {
    pub(super) fn contacts(&self) -> Vec<Contact> {
        self.contacts
            .iter()
            .map(|(id, stored)| Contact {
                id: id.to_string(),
                email: stored.email.clone().unwrap_or_default(),
                properties: stored.properties.clone(),
                archived: stored.archived,
            })
            .collect()
    }

    /// Answers one request; every request counts against the limits.
    pub(super) fn route(
        &mut self,
        options: &Options,
        request: &Request,
        tweak: &Tweak,
        rng: &mut StdRng,
    ) -> Answer {
        let (remaining, wait) = self.spend(options);
        let limits = (options.rolling_limit, remaining, options.rolling_window.as_millis());
        let mut answer = if let Some(wait) = wait {
            let retry = wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX);
            let daily = self.today > options.daily_limit;
            errors::too_many(daily, options.send_retry_after.then_some(retry), limits)
        } else {
            match tokens::gate(options, request) {
                Some(refused) => refused,
                None => self.routed(options, request, tweak, rng),
            }
        };
        if answer.headers.is_empty() {
            answer.headers = errors::limit_headers(limits);
        }
        answer.headers.extend([
            ("x-hubspot-ratelimit-daily", options.daily_limit.to_string()),
            (
                "x-hubspot-ratelimit-daily-remaining",
                options.daily_limit.saturating_sub(self.today).to_string(),
            ),
        ]);
        answer
    }

    fn routed(
        &mut self,
        options: &Options,
        request: &Request,
        tweak: &Tweak,
        rng: &mut StdRng,
    ) -> Answer {
        let path = request.path.as_str();
        let Some(rest) = ["/crm/v3/objects/contacts", "/crm/objects/2026-03/contacts"]
            .iter()
            .find_map(|form| path.strip_prefix(form))
        else {
            return match (request.method.as_str(), path) {
                ("GET", "/crm/v3/properties/contacts" | "/crm/properties/2026-03/contacts") => {
                    read::properties(options)
                }
                _ => Answer::not_found(),
            };
        };
        match (request.method.as_str(), rest) {
            ("POST", "/batch/upsert") => upsert::upsert(self, options, request, tweak, rng, false),
            ("POST", "/batch/update") => upsert::upsert(self, options, request, tweak, rng, true),
            ("POST", "/batch/read") => read::batch(self, options, request),
            ("POST", "/search") => read::search(self, options, request),
            ("POST", "/gdpr-delete") => write::gdpr_delete(self, request),
            ("POST", "/merge") => write::merge(self, options, request),
            ("POST", "") => write::create(self, options, request),
            ("GET", "") => read::list(self, request),
            ("GET", one) => read::one(self, request, one),
            ("PATCH", one) => write::update(self, options, request, one),
            ("DELETE", one) => write::archive(self, request, one),
            _ => Answer::not_found(),
        }
    }

    /// Counts a request. Gives what remains in the window, and how long to wait where nothing did.
    fn spend(&mut self, options: &Options) -> (u32, Option<Duration>) {
        let now = Instant::now();
        while self.window.front().is_some_and(|at| now - *at >= options.rolling_window) {
            self.window.pop_front();
        }
        self.today += 1;
        let used = u32::try_from(self.window.len()).unwrap_or(u32::MAX);
        if used >= options.rolling_limit {
            let oldest = self.window.front().copied().unwrap_or(now);
            return (0, Some(options.rolling_window.saturating_sub(now - oldest)));
        }
        if self.today > options.daily_limit {
            return (options.rolling_limit - used, Some(Duration::from_secs(3600)));
        }
        self.window.push_back(now);
        (options.rolling_limit - used - 1, None)
    }

    /// Id of the live contact a path or input names.
    fn find(&self, id: &str, id_property: Option<&str>) -> Option<u64> {
        match id_property {
            Some("email") => self.by_email.get(&id.to_lowercase()).copied(),
            None | Some("hs_object_id") => {
                let id = id.parse().ok()?;
                self.contacts.get(&id).filter(|c| !c.archived).map(|_| id)
            }
            Some(unique) => self
                .contacts
                .iter()
                .find(|(_, c)| {
                    !c.archived && c.properties.get(unique).map(String::as_str) == Some(id)
                })
                .map(|(id, _)| *id),
        }
    }

    /// Makes a contact without properties.
    fn make(&mut self, email: Option<String>) -> u64 {
        let id = self.next_id();
        if let Some(email) = &email {
            self.by_email.insert(email.clone(), id);
        }
        *self.creates.entry(email.clone().unwrap_or_default()).or_default() += 1;
        let now = Timestamp::now();
        let stored = Stored {
            email,
            properties: BTreeMap::new(),
            secondary: BTreeSet::new(),
            created: now,
            updated: now,
            archived: false,
            versions: VecDeque::new(),
        };
        self.contacts.insert(id, stored);
        id
    }

    /// Ids are never given twice.
    fn next_id(&mut self) -> u64 {
        self.made += 1;
        1000 + self.made
    }

    /// Tells the search index of a write.
    fn touch(&mut self, id: u64) {
        if let Some(stored) = self.contacts.get_mut(&id) {
            stored.updated = Timestamp::now();
            if stored.versions.len() == VERSIONS {
                stored.versions.pop_front();
            }
            let all = stored.all(id);
            stored.versions.push_back((Instant::now(), all));
        }
    }

    /// Gives a contact a new id, as a merge does.
    pub(super) fn renumber(&mut self, email: &str) -> Option<u64> {
        let old = self.find(email, Some("email"))?;
        let new = self.next_id();
        let stored = self.contacts.remove(&old)?;
        for address in stored.email.iter().chain(&stored.secondary) {
            self.by_email.insert(address.clone(), new);
        }
        self.contacts.insert(new, stored);
        self.touch(new);
        Some(new)
    }
}

/// HubSpot's way of writing a time.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// The members of a JSON object in the body.
fn body(request: &Request) -> Result<serde_json::Map<String, Value>, Answer> {
    match serde_json::from_slice(&request.body) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err(errors::malformed("expected an object")),
    }
}

/// `Duration` as whole milliseconds.
pub(super) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(time.as_millis().try_into().unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
