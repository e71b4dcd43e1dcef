//! Pipedrive's persons (API v2), which have no unique key: every create creates, also a second person with the same
//! e-mail, and the search that should prevent it is behind the writes. With tokens, OAuth, the burst limit and the daily
//! budget of tokens, custom fields with strict types, deletion and merge.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Contact;
use super::exchange::{Answer, Request};
use super::fault::Tweak;
use super::hubspot::millis;

pub(super) mod errors;
mod fields;
mod limits;
mod read;
mod tokens;
mod write;

pub use fields::{FieldType, PersonField};
pub use limits::Limits;
pub use tokens::{OauthApp, Token};

/// How the account behaves. Where Pipedrive's behaviour is not documented, both ways are offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Valid API tokens; empty, and no `oauth`: any token with all scopes.
    pub tokens: Vec<Token>,
    /// The account's app: then access tokens are those it was given at `POST /oauth/token`.
    pub oauth: Option<OauthApp>,
    /// Standard and custom fields of persons.
    pub fields: Vec<PersonField>,
    /// `job_title`, `birthday` and the like may be written; off: 403.
    pub contact_sync: bool,
    /// A custom field that the account does not have refuses the write; off: it is ignored.
    pub unknown_field_refuses: bool,
    /// An e-mail that is none is refused; off: it is taken as it is.
    pub checks_emails: bool,
    /// Status of a create: 200 or 201.
    pub created_status: u16,
    /// Status of a write to a person that was deleted or merged away: 404 or 410.
    pub gone_status: u16,
    /// A person that was deleted can still be written, and stays deleted.
    pub deleted_are_written: bool,
    /// The search also finds persons that only contain the term.
    pub loose_search: bool,
    /// How far the search is behind the writes.
    #[serde(rename = "search_lag_ms", with = "millis")]
    pub search_lag: Duration,
    /// The search never learns of a write.
    pub never_indexed: bool,
    /// The account is closed: 402.
    pub closed: bool,
    /// The plan's number of persons is reached: creates get 403 `feature_capping_persons_limit`.
    pub capped: bool,
    /// Burst limits and the daily budget.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tokens: Vec::new(),
            oauth: None,
            fields: fields::registry(),
            contact_sync: false,
            unknown_field_refuses: true,
            checks_emails: false,
            created_status: 200,
            gone_status: 404,
            deleted_are_written: false,
            loose_search: false,
            search_lag: Duration::from_secs(5),
            never_indexed: false,
            closed: false,
            capped: false,
            limits: Limits::default(),
        }
    }
}

/// The account's persons.
#[derive(Default)]
pub(super) struct Account {
    /// By id; ids grow from 501.
    persons: BTreeMap<u64, Person>,
    made: u64,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
    meter: limits::Meter,
    grants: tokens::Grants,
}

/// An e-mail address or a phone number of a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    value: String,
    #[serde(default)]
    primary: bool,
    #[serde(default = "Entry::work")]
    label: String,
}

impl Entry {
    fn work() -> String {
        "work".to_owned()
    }
}

#[derive(Clone, Debug)]
struct Person {
    name: String,
    emails: Vec<Entry>,
    phones: Vec<Entry>,
    /// `owner_id`, `job_title` and the like, as written.
    standard: BTreeMap<String, Value>,
    /// By code; nothing that is null.
    custom: BTreeMap<String, Value>,
    added: Timestamp,
    updated: Timestamp,
    /// Marked as deleted, or merged into another.
    gone: bool,
    /// What the search may know, oldest first.
    versions: VecDeque<(Instant, Indexed)>,
}

/// A person as the search index has it.
#[derive(Clone, Debug)]
struct Indexed {
    name: String,
    emails: Vec<String>,
    phones: Vec<String>,
    custom: Vec<String>,
    gone: bool,
}

/// Versions kept for the lagging search.
const VERSIONS: usize = 16;

impl Person {
    /// The lower-case primary address; empty where there is none.
    fn email(&self) -> String {
        primary(&self.emails).unwrap_or_default().to_lowercase()
    }

    /// Tells the search index of a write.
    fn touch(&mut self) {
        self.updated = Timestamp::now();
        if self.versions.len() == VERSIONS {
            self.versions.pop_front();
        }
        let values = |list: &[Entry]| list.iter().map(|e| e.value.clone()).collect();
        let indexed = Indexed {
            name: self.name.clone(),
            emails: values(&self.emails),
            phones: values(&self.phones),
            custom: self.custom.values().map(fields::as_text).collect(),
            gone: self.gone,
        };
        self.versions.push_back((Instant::now(), indexed));
    }

    /// The person object of the API; `codes`: the custom fields wanted, all where it is `None`.
    fn object(&self, id: u64, codes: Option<&[&str]>, fields: &[PersonField]) -> Value {
        let custom: Map<String, Value> = fields
            .iter()
            .filter(|f| f.custom && codes.is_none_or(|c| c.contains(&f.code.as_str())))
            .map(|f| (f.code.clone(), json!(self.custom.get(&f.code))))
            .collect();
        let mut object = json!({
            "id": id, "name": self.name, "first_name": null, "last_name": null, "owner_id": 1, "org_id": null,
            "add_time": time(self.added), "update_time": time(self.updated), "emails": self.emails,
            "phones": self.phones, "is_deleted": self.gone, "visible_to": 3, "label_ids": [],
            "picture_id": null, "custom_fields": custom,
        });
        for (name, value) in &self.standard {
            object[name] = value.clone();
        }
        object
    }
}

/// The primary value of a list, else its first.
fn primary(list: &[Entry]) -> Option<&str> {
    list.iter().find(|e| e.primary).or(list.first()).map(|e| e.value.as_str())
}

/// Pipedrive's way of writing a time: whole seconds.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a path is one of Pipedrive's.
pub(super) fn owns(path: &str) -> bool {
    ["/api/v2/persons", "/api/v2/personFields", "/v1/persons", "/oauth/token"].iter().any(|own| {
        path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

impl Account {
    pub(super) fn contacts(&self) -> Vec<Contact> {
        let contact = |(id, person): (&u64, &Person)| {
            let mut properties = BTreeMap::from([("name".to_owned(), person.name.clone())]);
            if !person.phones.is_empty() {
                let phones: Vec<&str> = person.phones.iter().map(|e| e.value.as_str()).collect();
                properties.insert("phones".to_owned(), phones.join(", "));
            }
            let other = person.standard.iter().chain(&person.custom);
            properties.extend(other.map(|(code, value)| (code.clone(), fields::as_text(value))));
            Contact { id: id.to_string(), email: person.email(), properties, archived: person.gone }
        };
        self.persons.iter().map(contact).collect()
    }

    /// Answers one request.
    pub(super) fn route(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        if request.path == "/oauth/token" {
            return tokens::grant(&mut self.grants, options, request);
        }
        if let Some(refused) = tokens::gate(&self.grants, options, request) {
            return refused;
        }
        let cost = limits::cost(request);
        let over = self.meter.spend(&options.limits, cost, request);
        let mut answer = match over {
            Some(refused) => refused,
            None if options.closed => errors::closed(),
            None if tweak.empty_results => {
                Answer::json(200, &json!({"success": true, "data": null}))
            }
            None => self.routed(options, request, tweak),
        };
        answer.headers.extend(self.meter.headers(&options.limits, request));
        answer
    }

    fn routed(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        let path = request.path.as_str();
        let id = |rest: &str| rest.parse::<u64>().ok();
        if let Some(merged) =
            path.strip_prefix("/v1/persons/").and_then(|p| p.strip_suffix("/merge"))
        {
            return match (request.method.as_str(), id(merged)) {
                ("PUT", Some(id)) => write::merge(self, options, request, id),
                _ => Answer::not_found(),
            };
        }
        match (request.method.as_str(), path) {
            ("GET", "/api/v2/personFields") => read::person_fields(options, request),
            ("GET", "/api/v2/persons/search") => read::search(self, options, request),
            ("GET", "/api/v2/persons") => read::list(self, options, request),
            ("POST", "/api/v2/persons") => write::create(self, options, request, tweak),
            (method, path) => match (method, path.strip_prefix("/api/v2/persons/").and_then(id)) {
                ("GET", Some(id)) => read::one(self, options, request, id),
                ("PATCH", Some(id)) => write::update(self, options, request, id),
                ("DELETE", Some(id)) => write::delete(self, options, id),
                _ => Answer::not_found(),
            },
        }
    }

    /// Makes a person; ids are never given twice.
    fn make(&mut self, mut person: Person) -> u64 {
        self.made += 1;
        let id = 500 + self.made;
        *self.creates.entry(person.email()).or_default() += 1;
        person.touch();
        self.persons.insert(id, person);
        id
    }

    /// Somebody makes a person by hand.
    pub(super) fn made_by_hand(
        &mut self,
        email: &str,
        properties: &BTreeMap<String, String>,
    ) -> u64 {
        let mut person = Person::named(email);
        person.emails.push(Entry { value: email.to_owned(), primary: true, label: Entry::work() });
        person.written_by_hand(properties);
        self.make(person)
    }

    /// Somebody changes a person by hand. Whether it is there.
    pub(super) fn changed_by_hand(
        &mut self,
        id: &str,
        properties: &BTreeMap<String, String>,
    ) -> bool {
        let Some(person) = self.live(id) else { return false };
        person.written_by_hand(properties);
        person.touch();
        true
    }

    /// Somebody deletes a person. Whether it was there.
    pub(super) fn deleted_by_hand(&mut self, id: &str) -> bool {
        let Some(person) = self.live(id) else { return false };
        person.gone = true;
        person.touch();
        true
    }

    /// Somebody merges a person into another one. Whether both were there.
    pub(super) fn merged_by_hand(&mut self, id: &str, into: &str) -> bool {
        match (id.parse(), into.parse()) {
            (Ok(id), Ok(into)) => write::join(self, id, into),
            _ => false,
        }
    }

    /// No access token that was given is valid any more.
    pub(super) fn expire_tokens(&mut self) {
        self.grants.expire();
    }

    fn live(&mut self, id: &str) -> Option<&mut Person> {
        self.persons.get_mut(&id.parse().ok()?).filter(|p| !p.gone)
    }
}

impl Person {
    fn named(name: &str) -> Person {
        let now = Timestamp::now();
        Person {
            name: name.to_owned(),
            emails: Vec::new(),
            phones: Vec::new(),
            standard: BTreeMap::new(),
            custom: BTreeMap::new(),
            added: now,
            updated: now,
            gone: false,
            versions: VecDeque::new(),
        }
    }

    /// `name`, `email` (the primary address), `phones` (one more number), else a custom text field; "" clears.
    fn written_by_hand(&mut self, properties: &BTreeMap<String, String>) {
        for (name, value) in properties {
            match name.as_str() {
                "name" => self.name.clone_from(value),
                "email" => {
                    self.emails.retain(|e| !e.primary);
                    let primary =
                        Entry { value: value.clone(), primary: true, label: Entry::work() };
                    self.emails.insert(0, primary);
                }
                "phones" => {
                    let primary = self.phones.is_empty();
                    self.phones.push(Entry { value: value.clone(), primary, label: Entry::work() });
                }
                code if value.is_empty() => drop(self.custom.remove(code)),
                code => drop(self.custom.insert(code.to_owned(), json!(value))),
            }
        }
    }
}
