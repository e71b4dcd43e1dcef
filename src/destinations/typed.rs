//! Texts of a lead in the JSON type that a CRM's field wants, for CRMs that refuse a number as text.

use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::{Number, Value, json};

/// What a field of a CRM holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Flag,
    Number,
    Whole,
    /// `YYYY-MM-DD`
    Day,
    /// ISO 8601 with an offset in digits and without fractions, which all of them understand.
    Time,
    /// A list of texts; ours are joined by `;`.
    List,
    /// A reference to another record, a file, what the CRM works out itself: nothing that a lead can fill.
    Other,
}

impl Type {
    /// The value in this type, or what it should have been.
    pub fn json(self, text: &str) -> Result<Value, &'static str> {
        let text = text.trim();
        match self {
            Type::Text => Ok(json!(text)),
            Type::Flag => match text {
                "true" | "1" => Ok(json!(true)),
                "false" | "0" => Ok(json!(false)),
                _ => Err("true or false"),
            },
            Type::Number => {
                serde_json::from_str::<Number>(text).map(Value::Number).map_err(|_| "a number")
            }
            Type::Whole => text.parse::<i64>().map(Value::from).map_err(|_| "a whole number"),
            Type::Day => day(text).map(|day| json!(day.to_string())).ok_or("a date"),
            Type::Time => {
                let midnight = || format!("{}T00:00:00Z", day(text)?).parse().ok();
                let at = text.parse::<Timestamp>().ok().or_else(midnight);
                let at = at.ok_or("a time")?;
                Ok(json!(at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()))
            }
            Type::List => {
                let texts = text.split(';').map(str::trim).filter(|t| !t.is_empty());
                Ok(texts.collect())
            }
            Type::Other => Err("nothing that a text can fill"),
        }
    }
}

/// A date, also the one that a time begins with.
fn day(text: &str) -> Option<Date> {
    match text.parse::<Timestamp>() {
        Ok(_) => text.get(..10)?.parse().ok(),
        Err(_) => text.parse().ok().filter(|_| text.len() == 10),
    }
}

/// A CRM's value as the text that a push would send; `None`: blank.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Array(list) => {
            let texts: Vec<String> = list.iter().filter_map(text).collect();
            Some(texts.join(";")).filter(|text| !text.is_empty())
        }
        // A reference: what it is called, else its id.
        Value::Object(members) => members.get("name").or(members.get("id")).and_then(text),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_what_the_field_wants() {
        for (kind, written, wanted) in [
            (Type::Text, " ü ", json!("ü")),
            (Type::Flag, "true", json!(true)),
            (Type::Flag, "0", json!(false)),
            (Type::Number, "10.50", json!(10.5)),
            (Type::Whole, "-3", json!(-3)),
            (Type::Day, "2026-11-30", json!("2026-11-30")),
            (Type::Day, "2026-11-30T23:30:00-03:00", json!("2026-11-30")),
            (Type::Time, "2026-11-30T12:00:00.123456Z", json!("2026-11-30T12:00:00+00:00")),
            (Type::Time, "2026-11-30T12:00:00-03:00", json!("2026-11-30T15:00:00+00:00")),
            (Type::Time, "2026-11-30", json!("2026-11-30T00:00:00+00:00")),
            (Type::List, "a; b;;c", json!(["a", "b", "c"])),
        ] {
            assert_eq!(kind.json(written), Ok(wanted), "{kind:?} {written}");
        }
        for (kind, written) in [
            (Type::Flag, "yes please"),
            (Type::Number, "10,5"),
            (Type::Number, "NaN"),
            (Type::Whole, "1.5"),
            (Type::Whole, "99999999999999999999"),
            (Type::Day, "30/11/2026"),
            (Type::Time, "tomorrow"),
            (Type::Other, "x"),
        ] {
            assert!(kind.json(written).is_err(), "{kind:?} {written}");
        }
    }

    #[test]
    fn values_of_a_crm_are_read_as_they_would_be_sent() {
        for (there, wanted) in [
            (json!(null), None),
            (json!(""), None),
            (json!([]), None),
            (json!("x"), Some("x")),
            (json!(true), Some("true")),
            (json!(10.5), Some("10.5")),
            (json!(["a", "b"]), Some("a;b")),
            (json!({"id": "1", "name": "Acme"}), Some("Acme")),
        ] {
            assert_eq!(text(&there).as_deref(), wanted, "{there}");
        }
    }
}
