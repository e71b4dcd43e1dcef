//! Brevo's contacts (API v3): one contact per call, unique by e-mail, by `ext_id` and by phone number; attributes whose
//! values are dropped in silence when they do not fit; the limits of its plans.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Contact;
use super::exchange::{Answer, Request};
use super::fault::Tweak;
use super::hubspot::millis;

mod attributes;
pub(super) mod errors;
mod read;
mod write;

pub use attributes::{Attribute, Category};

/// How the account behaves. Where Brevo's behaviour is not documented, both ways are offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Valid API keys; empty: any.
    pub keys: Vec<String>,
    /// The account lets in listed addresses only, and the caller's is none of them: 401.
    pub address_refused: bool,
    /// The account may not do this: 403.
    pub permission_denied: bool,
    /// The attributes of contacts.
    pub attributes: Vec<Attribute>,
    /// Code of a 400 about a key that another contact has: `duplicate_parameter`, newer `invalid_parameter`.
    pub duplicate_code: String,
    /// Calls about contacts per second.
    pub per_second: u32,
    /// Calls about contacts per hour.
    pub per_hour: u32,
    /// Length of that second, so that a test need not hurry.
    #[serde(rename = "second_ms", with = "millis")]
    pub second: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keys: Vec::new(),
            address_refused: false,
            permission_denied: false,
            attributes: attributes::registry(),
            duplicate_code: "duplicate_parameter".to_owned(),
            // High enough never to be met by chance; the tests of limits set their own.
            per_second: 1_000_000,
            per_hour: 1_000_000_000,
            second: Duration::from_secs(1),
        }
    }
}

/// The account's contacts.
#[derive(Default)]
pub(super) struct Account {
    /// By id; ids grow from 21.
    contacts: BTreeMap<u64, Stored>,
    made: u64,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
    window: VecDeque<Instant>,
    this_hour: u32,
}

#[derive(Clone, Debug)]
struct Stored {
    /// Lower case, where it has one.
    email: Option<String>,
    ext_id: Option<String>,
    /// By name in upper case; nothing that is blank.
    attributes: BTreeMap<String, Value>,
    lists: Vec<u64>,
    /// Unsubscribed: writes are accepted without a word.
    blocked: bool,
    created: Timestamp,
    modified: Timestamp,
    /// Deleted; kept to be looked at.
    gone: bool,
}

impl Stored {
    fn new() -> Stored {
        let now = Timestamp::now();
        Stored {
            email: None,
            ext_id: None,
            attributes: BTreeMap::new(),
            lists: Vec::new(),
            blocked: false,
            created: now,
            modified: now,
            gone: false,
        }
    }

    /// The contact object of the API.
    fn object(&self, id: u64) -> Value {
        let mut attributes: Map<String, Value> = self.attributes.clone().into_iter().collect();
        if let Some(ext_id) = &self.ext_id {
            attributes.insert("EXT_ID".to_owned(), json!(ext_id));
        }
        let mut object = json!({
            "id": id, "emailBlacklisted": self.blocked, "smsBlacklisted": false, "createdAt": time(self.created),
            "modifiedAt": time(self.modified), "listIds": self.lists, "listUnsubscribed": null,
            "attributes": attributes,
        });
        if let Some(email) = &self.email {
            object["email"] = json!(email);
        }
        object
    }
}

/// Brevo's way of writing a time.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Attributes that no two contacts share, beside e-mail and `ext_id`.
const UNIQUE: [&str; 3] = ["SMS", "WHATSAPP", "LANDLINE_NUMBER"];

/// Whether a path is one of Brevo's.
pub(super) fn owns(path: &str) -> bool {
    path == "/v3/account"
        || path
            .strip_prefix("/v3/contacts")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Account {
    pub(super) fn contacts(&self) -> Vec<Contact> {
        let contact = |(id, stored): (&u64, &Stored)| Contact {
            id: id.to_string(),
            email: stored.email.clone().unwrap_or_default(),
            properties: stored
                .attributes
                .iter()
                .map(|(name, value)| (name.clone(), attributes::as_text(value)))
                .chain(stored.ext_id.iter().map(|id| ("ext_id".to_owned(), id.clone())))
                .collect(),
            archived: stored.gone,
        };
        self.contacts.iter().map(contact).collect()
    }

    /// Answers one request; every request counts against the limits.
    pub(super) fn route(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        let over = self.spend(options);
        let key = request.header("api-key").filter(|key| !key.is_empty());
        let known = key.is_some_and(|key| {
            options.keys.is_empty() || options.keys.iter().any(|known| known == key)
        });
        let mut answer = if over {
            errors::too_many()
        } else if !known {
            errors::unauthorized("Key not found")
        } else if options.address_refused {
            errors::unauthorized(
                "We have detected you are using an unrecognised IP address 203.0.113.7. If you performed this action make \
                 sure to add the new IP address in this link: https://app.brevo.com/security/authorised_ips",
            )
        } else if options.permission_denied {
            errors::denied()
        } else if tweak.empty_results {
            Answer::json(200, &json!({}))
        } else {
            self.routed(options, request, tweak)
        };
        answer.headers.extend(self.limits(options));
        answer
    }

    fn routed(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/v3/account") => {
                Answer::json(200, &json!({"email": "owner@example.com", "companyName": "Example"}))
            }
            ("GET", "/v3/contacts/attributes") => read::attributes(options),
            ("GET", "/v3/contacts") => read::list(self, request),
            ("POST", "/v3/contacts") => write::create(self, options, request, tweak),
            (method, path) => match (method, path.strip_prefix("/v3/contacts/")) {
                ("GET", Some(one)) => read::one(self, request, one),
                ("PUT", Some(one)) => write::update(self, options, request, one),
                ("DELETE", Some(one)) => write::delete(self, request, one),
                _ => Answer::not_found(),
            },
        }
    }

    /// Counts a request. Whether it is one too many.
    fn spend(&mut self, options: &Options) -> bool {
        let now = Instant::now();
        while self.window.front().is_some_and(|at| now - *at >= options.second) {
            self.window.pop_front();
        }
        if self.window.len() >= options.per_second as usize || self.this_hour >= options.per_hour {
            return true;
        }
        self.window.push_back(now);
        self.this_hour += 1;
        false
    }

    /// The headers of every answer: those of the limit that is met first.
    fn limits(&self, options: &Options) -> Vec<(&'static str, String)> {
        let used = u32::try_from(self.window.len()).unwrap_or(u32::MAX);
        let oldest = self.window.front().map(Instant::elapsed).unwrap_or_default();
        let wait = options.second.saturating_sub(oldest).as_millis().div_ceil(1000);
        let (limit, left, reset) = match options.per_hour.saturating_sub(self.this_hour) {
            0 => (options.per_hour, 0, 1800),
            _ => (options.per_second, options.per_second.saturating_sub(used), wait),
        };
        vec![
            ("x-sib-ratelimit-limit", limit.to_string()),
            ("x-sib-ratelimit-remaining", left.to_string()),
            ("x-sib-ratelimit-reset", reset.to_string()),
        ]
    }

    /// Id of the contact that has this value in a key (`email`, `ext_id`, or one of [`UNIQUE`]).
    fn holder(&self, key: &str, value: &str) -> Option<u64> {
        let has = |stored: &Stored| match key {
            "email" => stored.email.as_deref() == Some(value.to_lowercase().as_str()),
            "ext_id" => stored.ext_id.as_deref() == Some(value),
            other => stored.attributes.get(other).is_some_and(|v| v == value),
        };
        self.contacts.iter().find(|(_, stored)| !stored.gone && has(stored)).map(|(id, _)| *id)
    }

    /// Makes a contact; ids are never given twice.
    fn make(&mut self, stored: Stored) -> u64 {
        self.made += 1;
        let id = 20 + self.made;
        *self.creates.entry(stored.email.clone().unwrap_or_default()).or_default() += 1;
        self.contacts.insert(id, stored);
        id
    }

    /// Somebody makes a contact by hand, with attributes of type text.
    pub(super) fn made_by_hand(&mut self, email: &str, texts: &BTreeMap<String, String>) -> u64 {
        let mut stored = Stored { email: Some(email.to_lowercase()), ..Stored::new() };
        stored.written_by_hand(texts);
        self.make(stored)
    }

    /// Somebody changes a contact by hand; `email` is its address. Whether it is there.
    pub(super) fn changed_by_hand(&mut self, id: &str, texts: &BTreeMap<String, String>) -> bool {
        let Some(stored) = self.live(id) else { return false };
        stored.written_by_hand(texts);
        true
    }

    /// Somebody deletes a contact. Whether it was there.
    pub(super) fn deleted_by_hand(&mut self, id: &str) -> bool {
        let Some(stored) = self.live(id) else { return false };
        stored.gone = true;
        true
    }

    /// Somebody merges a contact into another one, which keeps its own address. Whether both were there.
    pub(super) fn merged_by_hand(&mut self, id: &str, into: &str) -> bool {
        let Some(lost) = self.live(id).map(|stored| stored.clone()) else { return false };
        let Some(winner) = self.live(into).filter(|_| id != into) else { return false };
        for (name, value) in lost.attributes {
            winner.attributes.entry(name).or_insert(value);
        }
        self.deleted_by_hand(id)
    }

    fn live(&mut self, id: &str) -> Option<&mut Stored> {
        self.contacts.get_mut(&id.parse().ok()?).filter(|c| !c.gone)
    }
}

impl Stored {
    fn written_by_hand(&mut self, texts: &BTreeMap<String, String>) {
        self.modified = Timestamp::now();
        for (name, text) in texts {
            match name.as_str() {
                "email" => self.email = Some(text.to_lowercase()),
                "blocked" => self.blocked = text == "true",
                name if text.is_empty() => drop(self.attributes.remove(name)),
                name => drop(self.attributes.insert(name.to_owned(), json!(text))),
            }
        }
    }
}
