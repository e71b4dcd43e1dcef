//! RD Station Marketing: contacts by e-mail or uuid, at most 24 updates of a contact in a day, OAuth with a token that
//! lives a day, and errors in three shapes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Contact;
use super::exchange::{Answer, Request};
use super::hubspot::millis;

mod act;
mod contacts;
pub(super) mod errors;
mod fields;
mod oauth;

pub use fields::{ContactField, DataType};
pub use oauth::App;

/// How the account behaves. Where RD Station's behaviour is not documented, both ways are offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The apps that may ask for tokens; empty: any bearer token is good.
    pub apps: Vec<App>,
    /// How long an access token lives.
    #[serde(rename = "token_life_ms", with = "millis")]
    pub token_life: Duration,
    /// Fields of a contact.
    pub fields: Vec<ContactField>,
    /// A field that does not exist is refused instead of ignored.
    pub refuse_unknown: bool,
    /// `null` is refused with CANNOT_BE_NULL instead of taken as "clear".
    pub refuse_null: bool,
    /// An address that a merge made an extra one finds the survivor.
    pub find_extra_emails: bool,
    /// Requests per window and account.
    pub account_limit: u32,
    /// The window of the account.
    #[serde(rename = "account_window_ms", with = "millis")]
    pub account_window: Duration,
    /// PATCHes per contact and window.
    pub contact_limit: u32,
    /// The window of a contact.
    #[serde(rename = "contact_window_ms", with = "millis")]
    pub contact_window: Duration,
    /// 429 answers carry `Retry-After`.
    pub send_retry_after: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            apps: Vec::new(),
            token_life: Duration::from_secs(86_400),
            fields: fields::registry(),
            refuse_unknown: true,
            refuse_null: false,
            find_extra_emails: true,
            // High enough never to be met by chance; the tests of limits set their own.
            account_limit: 1_000_000,
            account_window: Duration::from_secs(60),
            contact_limit: 1_000_000,
            contact_window: Duration::from_secs(86_400),
            send_retry_after: false,
        }
    }
}

/// The account's contacts.
#[derive(Default)]
pub(super) struct Account {
    contacts: BTreeMap<Uuid, Stored>,
    /// In the order of their creation.
    order: Vec<Uuid>,
    by_email: HashMap<String, Uuid>,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
    tokens: oauth::Tokens,
    window: VecDeque<Instant>,
}

struct Stored {
    /// Lower case.
    email: String,
    extra_emails: BTreeSet<String>,
    /// Without `email`.
    values: Map<String, Value>,
    created: Timestamp,
    /// When it was updated, for the limit of the contact.
    patches: VecDeque<Instant>,
}

impl Stored {
    /// The contact as the API shows it: what is empty is left out, lists excepted.
    fn shown(&self, uuid: Uuid) -> Value {
        let mut all = Map::new();
        all.insert("uuid".to_owned(), json!(uuid));
        all.insert("email".to_owned(), json!(self.email));
        for list in ["tags", "legal_bases"] {
            all.insert(list.to_owned(), json!([]));
        }
        all.extend(self.values.clone());
        all.insert("extra_emails".to_owned(), json!(self.extra_emails));
        let href = format!("https://api.rd.services/platform/contacts/{uuid}");
        all.insert("links".to_owned(), json!([{"rel": "SELF", "href": href, "type": "GET"}]));
        Value::Object(all)
    }
}

impl Account {
    pub(super) fn contacts(&self) -> Vec<Contact> {
        let shown = |uuid: &Uuid| {
            let stored = self.contacts.get(uuid)?;
            let text = |value: &Value| match value {
                Value::String(text) => text.clone(),
                Value::Array(list) if list.iter().all(Value::is_string) => {
                    list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
                }
                other => other.to_string(),
            };
            Some(Contact {
                id: uuid.to_string(),
                email: stored.email.clone(),
                properties: stored.values.iter().map(|(n, v)| (n.clone(), text(v))).collect(),
                archived: false,
            })
        };
        self.order.iter().filter_map(shown).collect()
    }

    /// Whether a path is RD Station's.
    pub(super) fn owns(path: &str) -> bool {
        path.starts_with("/platform/") || path == "/auth/token"
    }

    /// Answers one request; every request but those for tokens counts against the account's limit.
    pub(super) fn route(&mut self, options: &Options, request: &Request) -> Answer {
        if request.path == "/auth/token" {
            return oauth::token(&mut self.tokens, options, request);
        }
        if let Some(refused) = oauth::gate(&self.tokens, options, request) {
            return refused;
        }
        if let Some(wait) = spend(&mut self.window, options.account_limit, options.account_window) {
            return errors::too_many(options.send_retry_after.then_some(wait.as_secs()));
        }
        let path = request.path.strip_prefix("/platform/").unwrap_or_default();
        match (request.method.as_str(), path.trim_end_matches('/')) {
            ("GET", "contacts/fields") => fields::list(options),
            ("POST", "contacts") => contacts::create(self, options, request),
            ("GET", "segmentations") => contacts::segmentations(),
            ("GET", path) if path.starts_with("segmentations/") => {
                contacts::segment(self, request, path)
            }
            (method, path) => match path.strip_prefix("contacts/").filter(|id| !id.contains('/')) {
                Some(identifier) => contacts::one(self, options, request, method, identifier),
                None => Answer::not_found(),
            },
        }
    }

    fn make(&mut self, email: &str) -> Uuid {
        let uuid = Uuid::new_v4();
        let stored = Stored {
            email: email.to_owned(),
            extra_emails: BTreeSet::new(),
            values: Map::new(),
            created: Timestamp::now(),
            patches: VecDeque::new(),
        };
        self.contacts.insert(uuid, stored);
        self.order.push(uuid);
        self.by_email.insert(email.to_owned(), uuid);
        *self.creates.entry(email.to_owned()).or_default() += 1;
        uuid
    }

    fn remove(&mut self, uuid: Uuid) -> Option<Stored> {
        self.by_email.retain(|_, owner| *owner != uuid);
        self.order.retain(|known| *known != uuid);
        self.contacts.remove(&uuid)
    }
}

/// Counts one in a rolling window, or says how long to wait where it is full.
fn spend(window: &mut VecDeque<Instant>, limit: u32, length: Duration) -> Option<Duration> {
    let now = Instant::now();
    while window.front().is_some_and(|at| now - *at >= length) {
        window.pop_front();
    }
    if window.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
        let oldest = window.front().copied().unwrap_or(now);
        return Some(length.saturating_sub(now - oldest));
    }
    window.push_back(now);
    None
}
