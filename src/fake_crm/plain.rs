//! A CRM without any unique key, as Pipedrive's persons, Odoo's partners or Intercom's leads behave: every create
//! creates, and the search that should prevent doubles lags behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Contact;
use super::exchange::{Answer, Request};

/// How the plain CRM behaves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Time a request takes; it is done in the middle of it.
    #[serde(rename = "latency_ms", with = "super::hubspot::millis")]
    pub latency: Duration,
    /// How long a new contact is not found by the search.
    #[serde(rename = "search_lag_ms", with = "super::hubspot::millis")]
    pub search_lag: Duration,
}

/// The contacts; the id is the index + 1.
#[derive(Default)]
pub(super) struct Contacts {
    all: Vec<Stored>,
    /// Indices by lower-case e-mail.
    by_email: BTreeMap<String, Vec<usize>>,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
}

struct Stored {
    email: String,
    properties: BTreeMap<String, String>,
    at: Instant,
}

impl Contacts {
    pub fn contacts(&self) -> Vec<Contact> {
        let contact = |(at, stored): (usize, &Stored)| Contact {
            id: (at + 1).to_string(),
            email: stored.email.to_lowercase(),
            properties: stored.properties.clone(),
            archived: false,
        };
        self.all.iter().enumerate().map(contact).collect()
    }
}

pub(super) fn route(contacts: &mut Contacts, options: &Options, request: &Request) -> Answer {
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/plain/contacts") => match parse(request) {
            Some((Some(email), properties)) => create(contacts, email, properties),
            _ => refused(),
        },
        ("GET", "/plain/contacts/search") => search(contacts, options, request),
        ("PATCH", path) => {
            let at = path.strip_prefix("/plain/contacts/").and_then(|id| id.parse::<usize>().ok());
            let stored = at.and_then(|id| contacts.all.get_mut(id.checked_sub(1)?));
            match (stored, parse(request)) {
                (None, _) => Answer::json(404, &json!({"error": "no such contact"})),
                (_, None) => refused(),
                (Some(stored), Some((_, properties))) => {
                    stored.properties.extend(properties);
                    contacts.updates += 1;
                    Answer::json(200, &json!({"id": at})).written()
                }
            }
        }
        _ => Answer::not_found(),
    }
}

fn create(contacts: &mut Contacts, email: String, properties: BTreeMap<String, String>) -> Answer {
    let key = email.to_lowercase();
    let at = contacts.all.len();
    contacts.all.push(Stored { email, properties, at: Instant::now() });
    contacts.by_email.entry(key.clone()).or_default().push(at);
    *contacts.creates.entry(key).or_default() += 1;
    Answer::json(201, &json!({"id": at + 1})).written()
}

fn search(contacts: &Contacts, options: &Options, request: &Request) -> Answer {
    let Some(email) = request.param("email") else {
        return Answer::json(400, &json!({"error": "search wants ?email="}));
    };
    let ids: Vec<Value> = contacts
        .by_email
        .get(&email.to_lowercase())
        .into_iter()
        .flatten()
        .filter(|at| contacts.all.get(**at).is_some_and(|s| s.at.elapsed() >= options.search_lag))
        .map(|at| json!({"id": at + 1, "email": contacts.all.get(*at).map(|s| &s.email)}))
        .collect();
    Answer::json(200, &json!({"results": ids}))
}

/// E-mail and the other members as text.
fn parse(request: &Request) -> Option<(Option<String>, BTreeMap<String, String>)> {
    let Ok(Value::Object(mut members)) = serde_json::from_slice(&request.body) else { return None };
    let email = match members.remove("email") {
        Some(Value::String(email)) if email.contains('@') => Some(email),
        None => None,
        Some(_) => return None,
    };
    Some((email, members.into_iter().map(|(k, v)| (k, as_text(&v))).collect()))
}

/// A JSON value as text; strings without their quotes.
pub(super) fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn refused() -> Answer {
    Answer::json(400, &json!({"error": "a contact is an object with an e-mail"}))
}
