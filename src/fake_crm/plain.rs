//! A CRM without any unique key, as Pipedrive's persons, Odoo's partners or Intercom's leads behave: every create
//! creates, and the search that should prevent doubles lags behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Contact;
use super::exchange::{Answer, Request};

/// Contacts on one page of the list.
const PAGE: usize = 50;

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
    deleted: bool,
}

impl Contacts {
    pub fn contacts(&self) -> Vec<Contact> {
        let contact = |(at, stored): (usize, &Stored)| Contact {
            id: (at + 1).to_string(),
            email: stored.email.to_lowercase(),
            properties: stored.properties.clone(),
            archived: stored.deleted,
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
        ("GET", "/plain/contacts") => list(contacts, request),
        (method, path) => {
            let at = path.strip_prefix("/plain/contacts/").and_then(|id| id.parse::<usize>().ok());
            let stored = at.and_then(|id| contacts.all.get_mut(id.checked_sub(1)?));
            let (Some(at), Some(stored)) = (at, stored.filter(|stored| !stored.deleted)) else {
                return Answer::json(404, &json!({"error": "no such contact"}));
            };
            match (method, parse(request)) {
                ("GET", _) => Answer::json(200, &shown(at - 1, stored)),
                ("DELETE", _) => {
                    stored.deleted = true;
                    Answer::empty(204).written()
                }
                ("PATCH", Some((email, properties))) => {
                    stored.email = email.unwrap_or_else(|| stored.email.clone());
                    stored.properties.extend(properties);
                    contacts.updates += 1;
                    Answer::json(200, &json!({"id": at})).written()
                }
                ("PATCH", None) => refused(),
                _ => Answer::not_found(),
            }
        }
    }
}

fn create(contacts: &mut Contacts, email: String, properties: BTreeMap<String, String>) -> Answer {
    let key = email.to_lowercase();
    let at = contacts.all.len();
    contacts.all.push(Stored { email, properties, at: Instant::now(), deleted: false });
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
        .filter_map(|at| Some((*at, contacts.all.get(*at)?)))
        .filter(|(_, s)| !s.deleted && s.at.elapsed() >= options.search_lag)
        .map(|(at, stored)| shown(at, stored))
        .collect();
    Answer::json(200, &json!({"results": ids}))
}

/// A page of all contacts: `?after=` the last id of the page before.
fn list(contacts: &Contacts, request: &Request) -> Answer {
    let after = request.param("after").and_then(|after| after.parse::<usize>().ok()).unwrap_or(0);
    let there = contacts.all.iter().enumerate().skip(after).filter(|(_, stored)| !stored.deleted);
    let page: Vec<Value> = there.take(PAGE).map(|(at, stored)| shown(at, stored)).collect();
    Answer::json(200, &json!({"results": page}))
}

fn shown(at: usize, stored: &Stored) -> Value {
    json!({"id": at + 1, "email": stored.email, "properties": stored.properties})
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
