//! The stand-in's own routes: look at it, script it, reset it.
//!
//! `GET /` a page; `GET /_fake/summary`, `/_fake/contacts?crm=hubspot`, `/_fake/calls`, `/_fake/options`;
//! `POST /_fake/faults` one fault or a list, `/_fake/options` the members to change, `/_fake/release`, `/_fake/reset`,
//! `/_fake/behind` what people do in a CRM behind everybody's back ([`Behind`]);
//! `POST /_fake/salesforce`, `/_fake/zoho`, `/_fake/odoo/merge` and the like something that people do there by hand.

use serde_json::{Value, json};

use super::behind::{self, Behind};
use super::exchange::{Answer, Request};
use super::fault::Scripted;
use super::{Crm, Options, Progress, Shared, State, page};

/// Most contacts or calls in one answer.
const SHOWN: usize = 5_000;

pub(super) fn route(shared: &Shared, request: &Request) -> Answer {
    let mut state = shared.state();
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/") => Answer::html(200, page::render(&state)),
        ("GET", "/_fake/summary") => shown(&state.summary()),
        ("GET", "/_fake/contacts") => contacts(&state, request),
        ("GET", "/_fake/calls") => calls(&state),
        ("GET", "/_fake/options") => shown(&state.options),
        ("POST", "/_fake/options") => match changed(&state.options, &request.body) {
            Ok(options) => {
                state.set_options(options);
                shown(&state.options)
            }
            Err(refused) => bad(&refused),
        },
        ("POST", "/_fake/faults") => match faults(&request.body) {
            Ok(faults) => {
                state.script.extend(faults);
                Answer::json(200, &json!({"faults_waiting": state.script.len()}))
            }
            Err(refused) => bad(&refused),
        },
        ("POST", "/_fake/salesforce") => acted(&request.body, |act| state.salesforce(act)),
        ("POST", "/_fake/zoho") => acted(&request.body, |act| state.zoho(act)),
        ("POST", "/_fake/behind") => match serde_json::from_slice::<Behind>(&request.body) {
            Ok(act) => match behind::act(&mut state, act) {
                Some(id) => Answer::json(200, &json!({"id": id})),
                None => {
                    Answer::json(404, &json!({"status": "error", "message": "no such contact"}))
                }
            },
            Err(refused) => bad(&refused),
        },
        ("POST", path) if path.starts_with("/_fake/odoo/") => {
            act(path, request, |action, body| state.odoo.act(action, body))
        }
        ("POST", path) if path.starts_with("/_fake/rdstation/") => {
            act(path, request, |action, body| state.rdstation.act(action, body))
        }
        ("POST", "/_fake/release") => {
            shared.released.send_modify(|n| *n += 1);
            Answer::empty(204)
        }
        ("POST", "/_fake/reset") => {
            drop(state);
            reset(shared);
            Answer::empty(204)
        }
        _ => Answer::not_found(),
    }
}

/// Does at a CRM what people do there in its own screens.
fn act(path: &str, request: &Request, act: impl FnOnce(&str, &Value) -> Option<Value>) -> Answer {
    let action = path.rsplit('/').next().unwrap_or_default();
    // An action without a body is one.
    let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    match act(action, &body) {
        Some(id) => Answer::json(200, &json!({ "id": id })),
        None => Answer::not_found(),
    }
}

/// Forgets everything but the options.
pub(super) fn reset(shared: &Shared) {
    let mut state = shared.state();
    let options = state.options.clone();
    *state = State::new(options);
    drop(state);
    shared.progress.send_replace(Progress::default());
}

fn contacts(state: &State, request: &Request) -> Answer {
    let wanted = request.param("crm");
    let mut list = Vec::new();
    for crm in Crm::ALL {
        let name = json!(crm);
        if wanted.as_deref().is_some_and(|w| name != w) {
            continue;
        }
        for contact in state.contacts(crm) {
            let creates = state.creates_per_email(crm).get(&contact.email);
            list.push(json!({
                "crm": name, "id": contact.id, "email": contact.email, "archived": contact.archived,
                "creates": creates, "properties": contact.properties,
            }));
        }
    }
    list.truncate(SHOWN);
    shown(&list)
}

fn calls(state: &State) -> Answer {
    let from = state.calls.len().saturating_sub(SHOWN);
    let list: Vec<Value> = state
        .calls
        .iter()
        .skip(from)
        .map(|c| {
            json!({
                "seq": c.seq, "at": c.at.to_string(), "method": c.method, "path": c.path,
                "status": c.status, "applied": c.applied, "fault": c.fault, "body": c.json(),
            })
        })
        .collect();
    shown(&list)
}

/// The options with the given members changed.
fn changed(options: &Options, body: &[u8]) -> Result<Options, serde_json::Error> {
    let mut whole = serde_json::to_value(options)?;
    merge(&mut whole, serde_json::from_slice(body)?);
    serde_json::from_value(whole)
}

/// Objects are joined, everything else is replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn faults(body: &[u8]) -> Result<Vec<Scripted>, serde_json::Error> {
    match serde_json::from_slice(body)? {
        list @ Value::Array(_) => serde_json::from_value(list),
        one => Ok(vec![serde_json::from_value(one)?]),
    }
}

/// Does what the body asks for; the answer names the record.
fn acted<A: serde::de::DeserializeOwned>(
    body: &[u8],
    act: impl FnOnce(&A) -> Result<String, String>,
) -> Answer {
    match serde_json::from_slice(body).map_err(|e| e.to_string()).and_then(|asked| act(&asked)) {
        Ok(id) => Answer::json(200, &json!({ "id": id })),
        Err(why) => Answer::json(400, &json!({"status": "error", "message": why})),
    }
}

fn shown(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_value(value) {
        Ok(value) => Answer::json(200, &value),
        Err(_) => Answer::empty(500),
    }
}

fn bad(refused: &serde_json::Error) -> Answer {
    Answer::json(400, &json!({"status": "error", "message": refused.to_string()}))
}
