//! Deliveries of several leads.

use std::sync::LazyLock;

use leadsync::config::EmailFolding;
use leadsync::sources::{ConfiguredSource, Item, Verified};
use serde_json::{Value, json};

use super::leads;
use super::message::{message, posted, rules, shown, source};

/// How a batch of a source is written.
type Wrap = fn(Vec<Value>) -> Value;

static BATCHES: LazyLock<Vec<(ConfiguredSource, Wrap)>> = LazyLock::new(|| {
    let rules = rules(Some("BR"), EmailFolding::None);
    let kind = |kind: &str| source(json!({"name": "s", "kind": kind, "url_token": "t"}), &rules);
    let custom = |split: &str, email: &str| {
        let fields = json!({"email": email, "full_name": "$..name", "attributes.note": "$..note",
            "event_type": "$['@body'].type"});
        let written = json!({"name": "s", "kind": "custom", "url_token": "t", "split": split, "fields": fields});
        source(written, &rules)
    };
    vec![
        (kind("json"), |parts| Value::Array(parts)),
        (kind("segment"), |parts| Value::Array(parts)),
        (kind("rdstation"), |parts| json!({"leads": parts})),
        (kind("tiktok"), |parts| json!({"entry": parts, "object": 1})),
        (custom("$[*]", "$.email"), |parts| Value::Array(parts)),
        (custom("$.leads[*]", "$..email"), |parts| json!({"type": "lead", "leads": parts})),
    ]
});

fn read(source: &ConfiguredSource, body: &[u8]) -> Option<Vec<Item>> {
    let items = source.read(&Verified::stored(posted("application/json", body))).ok()?;
    assert!(!items.is_empty(), "a delivery is at least one item");
    items.iter().for_each(leads::item);
    Some(items)
}

/// Each part is judged as if it had come alone, in the order of the batch.
pub fn holds(data: &[u8]) {
    let message = message(data);
    for (source, wrap) in BATCHES.iter() {
        let Some(items) = read(source, message.body) else { return };
        let Ok(value) = serde_json::from_slice::<Value>(message.body) else { return };
        let parts = match value {
            Value::Array(parts) => parts,
            Value::Object(mut members) => match members.remove("leads") {
                Some(Value::Array(parts)) => parts,
                _ => vec![Value::Object(members)],
            },
            _ => return,
        };
        // More would only be slow.
        let parts: Vec<Value> = parts.into_iter().take(30).collect();
        let body = |parts: Vec<Value>| wrap(parts).to_string();
        if parts.is_empty() {
            assert_eq!(shown(&items), shown(&read(source, message.body)));
            continue;
        }
        let together = read(source, body(parts.clone()).as_bytes()).expect("JSON");
        let mut alone: Vec<Item> = Vec::new();
        for part in &parts {
            let one = read(source, body(vec![part.clone()]).as_bytes()).expect("JSON");
            assert_eq!(one.len(), 1, "{part}");
            alone.extend(one);
        }
        assert_eq!(shown(&together), shown(&alone));
        let backwards = parts.into_iter().rev().collect();
        alone.reverse();
        assert_eq!(shown(&read(source, body(backwards).as_bytes()).expect("JSON")), shown(&alone));
    }
}
