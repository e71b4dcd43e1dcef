//! Jotform: a multipart form whose part `rawRequest` holds the answers as JSON text, under keys like
//! `q4_email`, with HTML entities in the values.

use serde_json::Value;

use crate::mapping::{Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Source, Split};

/// The kind. A submission from the form builder (`preview`) is somebody's real answer all the same.
pub const SOURCE: Source = Source {
    kind: "jotform",
    title: "Jotform",
    auth: Auth::Unsigned,
    split: Split::Whole,
    rules: &[
        &[
            rule_via(Target::OccurredAt, &["$.rawRequest.submitDate"], Via::EpochMs),
            rule(Target::EventId, &["$.submissionID"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

fn prepare(part: &mut Value) {
    let raw = part["rawRequest"].as_str().and_then(|raw| serde_json::from_str::<Value>(raw).ok());
    if let Some(mut raw) = raw {
        decode_entities(&mut raw);
        part["rawRequest"] = raw;
    }
    let mut found = Found::default();
    for (key, value) in part["rawRequest"].as_object().into_iter().flatten() {
        if value["city"].is_string() {
            put_address(&mut found, value);
        }
        if let Some(target) = question_name(key).and_then(labels::recognise) {
            put(&mut found, target, value);
        }
    }
    // Hidden fields and those with a unique name of their own stand without a number.
    found.put_members(&part["rawRequest"]);
    found.leave_in(part);
}

/// `q4_email` is `email`; bookkeeping members have no number.
fn question_name(key: &str) -> Option<&str> {
    let (number, name) = key.strip_prefix('q')?.split_once('_')?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}

/// Names, phones and addresses come in pieces.
fn put(found: &mut Found, target: &'static str, value: &Value) {
    let joined = |names: &[&str]| {
        let pieces = names.iter().filter_map(|name| value[*name].as_str()).map(str::trim);
        Value::String(pieces.filter(|piece| !piece.is_empty()).collect::<Vec<_>>().join(" "))
    };
    match (target, value) {
        ("full_name", Value::Object(_)) => {
            found.put("first_name", &joined(&["first", "middle"]));
            found.put("last_name", &joined(&["last", "suffix"]));
        }
        ("phone", Value::Object(members)) if members.contains_key("full") => {
            found.put(target, &value["full"])
        }
        ("phone", Value::Object(_)) => found.put(target, &joined(&["country", "area", "phone"])),
        _ => found.put(target, value),
    }
}

fn put_address(found: &mut Found, address: &Value) {
    found.put("city", &address["city"]);
    found.put("region", &address["state"]);
    found.put("country", &address["country"]);
}

fn decode_entities(value: &mut Value) {
    match value {
        Value::String(text) => *text = html_escape::decode_html_entities(text).into_owned(),
        Value::Array(list) => list.iter_mut().for_each(decode_entities),
        Value::Object(members) => members.values_mut().for_each(decode_entities),
        _ => {}
    }
}
