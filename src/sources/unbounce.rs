//! Unbounce: a form whose field `data.json` is JSON text, or that JSON alone. Every value is a list, and
//! the time is two texts.

use jiff::civil::DateTime;
use serde_json::{Map, Value};

use crate::mapping::{Target, rule};

use super::labels::{self, Found};
use super::{Auth, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "unbounce",
    title: "Unbounce",
    auth: Auth::Unsigned,
    split: Split::Whole,
    rules: &[&[rule(Target::OccurredAt, &["$['@found'].occurred_at"])], labels::RULES],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

fn prepare(part: &mut Value) {
    let inner = part["data.json"].as_str().and_then(|text| serde_json::from_str(text).ok());
    if let Some(inner @ Value::Object(_)) = inner {
        part["data.json"] = inner;
    }
    let fields = if part["data.json"].is_object() { &part["data.json"] } else { &*part };
    let single: Map<String, Value> = fields
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), first(value).clone()))
        .collect();
    let single = Value::Object(single);
    let mut found = Found::default();
    let text = |name: &str| single[name].as_str().unwrap_or_default();
    if let Some(time) = time(text("date_submitted"), text("time_submitted")) {
        found.put("occurred_at", &Value::String(time));
    }
    found.put_members(&single);
    found.leave_in(part);
}

/// The first of a list that has any text.
fn first(value: &Value) -> &Value {
    let blank = |value: &&Value| value.as_str().is_some_and(crate::lead::text::is_blank);
    match value {
        Value::Array(list) => list.iter().find(|v| !blank(v)).unwrap_or(&Value::Null),
        value => value,
    }
}

/// `2026-03-05` and `02:22 PM UTC`, always UTC, in RFC 3339.
fn time(date: &str, time: &str) -> Option<String> {
    let time = time.trim().strip_suffix("UTC")?.trim_end();
    let text = format!("{} {time}", date.trim());
    let at = DateTime::strptime("%Y-%m-%d %I:%M %p", text).ok()?;
    Some(format!("{at}Z"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_texts_are_a_time() {
        for (date, time, at) in [
            ("2026-03-05", "02:22 PM UTC", Some("2026-03-05T14:22:00Z")),
            ("2026-03-05", "12:00 AM UTC", Some("2026-03-05T00:00:00Z")),
            ("2026-03-05", "12:59 PM UTC", Some("2026-03-05T12:59:00Z")),
            ("2026-03-05", "2:22 PM UTC", Some("2026-03-05T14:22:00Z")),
            ("2026-03-05", "02:22 PM", None),
            ("2026-03-05", "02:22 PM EST", None),
            ("2026-02-30", "02:22 PM UTC", None),
            ("2026-03-05", "13:22 PM UTC", None),
            ("", "", None),
        ] {
            assert_eq!(super::time(date, time).as_deref(), at, "{date} {time}");
        }
    }
}
