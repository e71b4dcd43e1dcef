//! Tally: typed fields under the author's labels; a choice is the id of an option, whose text stands
//! beside it.

use std::collections::HashMap;

use serde_json::Value;

use crate::config::SignatureEncoding;
use crate::mapping::{Document, Target, rule};

use super::labels::{self, Found};
use super::{Auth, Scheme, Signing, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "tally",
    title: "Tally",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "tally-signature",
        encoding: SignatureEncoding::Base64,
        ..Signing::BODY
    })),
    split: Split::Whole,
    rules: &[
        &[
            rule(Target::Email, &["$.data.fields[?@.type=='INPUT_EMAIL'].value"]),
            rule(Target::OccurredAt, &["$.data.createdAt", "$.createdAt"]),
            rule(Target::EventId, &["$.eventId"]),
            rule(Target::EventType, &["$.eventType"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let event = doc.part.get("eventType").and_then(Value::as_str);
    event.filter(|event| *event != "FORM_RESPONSE").map(|_| "event_type")
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    for field in part["data"]["fields"].as_array().into_iter().flatten() {
        let target = match field["type"].as_str() {
            Some("INPUT_PHONE_NUMBER") => Some("phone"),
            Some("INPUT_LINK") => Some("website"),
            // Every option of a group comes once more on its own. One that was left is no refusal: the
            // group says "nothing chosen".
            Some("CHECKBOXES") if field["value"] == Value::Bool(false) => None,
            Some("FILE_UPLOAD") => None,
            _ => field["label"].as_str().and_then(labels::recognise),
        };
        if let Some(target) = target {
            found.put(target, &texts(field));
        }
    }
    found.leave_in(part);
}

/// The value, with ids of options replaced by their texts.
fn texts(field: &Value) -> Value {
    // A map, because a search for each of many ids among many options would take minutes.
    let mut options = HashMap::new();
    for option in field["options"].as_array().into_iter().flatten() {
        if let Some(id) = option["id"].as_str() {
            options.entry(id).or_insert(&option["text"]);
        }
    }
    let text = |id: &Value| {
        let option = id.as_str().and_then(|id| options.get(id).copied());
        option.unwrap_or(id).clone()
    };
    match &field["value"] {
        Value::Array(ids) => {
            let texts: Vec<Value> = ids.iter().map(text).collect();
            match texts.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
                Some(texts) => Value::String(texts.join(", ")),
                None => Value::Array(texts),
            }
        }
        id => text(id),
    }
}
