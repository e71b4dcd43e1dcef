//! The body of `POST /v1/leads`: one canonical lead, an array, or one per line.

use serde_json::Value;

use super::Item;
use super::json::{Problem, canonical};
use crate::config;
use crate::lead::LeadPatch;

/// Most leads in one request.
pub const MAX_LEADS: usize = 10_000;

const MALFORMED: &str = "malformed_json";

/// How the leads of a body are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One object or an array of them.
    Json,
    /// One object per line.
    Lines,
}

impl Form {
    /// By media type, in lower case and without parameters.
    pub fn of(media_type: &str) -> Option<Form> {
        match media_type {
            "application/json" => Some(Form::Json),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => {
                Some(Form::Lines)
            }
            other if other.starts_with("application/") && other.ends_with("+json") => {
                Some(Form::Json)
            }
            _ => None,
        }
    }
}

impl Form {
    /// The media type to archive a body with.
    pub fn media_type(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::Lines => "application/x-ndjson",
        }
    }
}

/// Why a body is no list of leads at all. Never quotes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Nothing there.
    #[error("the body is empty")]
    Empty,
    /// Not JSON.
    #[error("not JSON, see line {line} column {column}")]
    Malformed {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// JSON, but neither an object nor an array.
    #[error("the body is neither an object nor an array of objects")]
    NotLeads,
    /// Too many at once.
    #[error("one request may carry {MAX_LEADS} leads; nothing of it was stored")]
    TooMany,
}

/// What a body says, lead by lead.
#[derive(Debug)]
pub struct Leads {
    /// In the order of the body; the bad ones say what is wrong with them.
    pub leads: Vec<Result<LeadPatch, Vec<Problem>>>,
    /// One object that was not in an array: answered without one too.
    pub single: bool,
}

impl Leads {
    /// As items of a delivery.
    pub fn items(&self) -> Vec<Item> {
        let item = |lead: &Result<LeadPatch, Vec<Problem>>| match lead {
            Ok(patch) => Item::Lead(Box::new(patch.clone())),
            Err(problems) => Item::Rejected {
                reason: problems.first().map_or("invalid", |p| p.code).to_owned(),
                detail: problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; "),
            },
        };
        self.leads.iter().map(item).collect()
    }
}

/// Splits, parses and reads. A bad lead harms only itself.
pub fn read(form: Form, body: &[u8], rules: &config::Leads) -> Result<Leads, BodyError> {
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if text.trim_ascii().is_empty() {
        return Err(BodyError::Empty);
    }
    let (values, single) = match form {
        Form::Json => {
            let malformed =
                |e: serde_json::Error| BodyError::Malformed { line: e.line(), column: e.column() };
            match parse(text).map_err(malformed)? {
                Value::Array(values) => (values.into_iter().map(Ok).collect::<Vec<_>>(), false),
                value @ Value::Object(_) => (vec![Ok(value)], true),
                _ => return Err(BodyError::NotLeads),
            }
        }
        Form::Lines => {
            let lines = text.split(|byte| *byte == b'\n').filter(|l| !l.trim_ascii().is_empty());
            (lines.take(MAX_LEADS + 1).map(parse).collect(), false)
        }
    };
    if values.len() > MAX_LEADS {
        return Err(BodyError::TooMany);
    }
    let lead = |value: serde_json::Result<Value>| match value {
        Ok(value) => canonical(&value, rules),
        Err(error) => {
            let message = format!("not JSON, see column {}", error.column());
            Err(vec![Problem { field: String::new(), code: MALFORMED, message }])
        }
    };
    Ok(Leads { leads: values.into_iter().map(lead).collect(), single })
}

/// Strict JSON: nothing after it, valid UTF-8, at most 127 levels deep. Of a key written twice the
/// last counts.
fn parse(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> config::Leads {
        crate::config::Config::parse("").unwrap().config.leads
    }

    fn of(form: Form, text: &[u8]) -> Result<Leads, BodyError> {
        read(form, text, &rules())
    }

    #[test]
    fn bodies_that_are_not_json() {
        for text in [
            &b"{\"email\":\"a@b.c\""[..],
            b"{\"email\":\"a@b.c\",}",
            b"{'email':'a@b.c'}",
            b"{\"email\":NaN}",
            b"{} {}",
            b"{}x",
            b"// c\n{}",
            b"{\"email\":\"\xff\"}",
            b"{\"email\":\"\\ud800\"}",
            b"{\"a\":1e400}",
            b"{\"a\":\"\n\"}",
            b"\xff\xfe{\0}\0",
            "[".repeat(1000).as_bytes(),
            ("[".repeat(128) + &"]".repeat(128)).as_bytes(),
        ] {
            let error = of(Form::Json, text).unwrap_err();
            assert!(matches!(error, BodyError::Malformed { .. }), "{error:?}");
        }
        for text in [&b""[..], b" \n ", b"\xef\xbb\xbf"] {
            assert_eq!(of(Form::Json, text).unwrap_err(), BodyError::Empty);
        }
        for text in ["null", "\"x\"", "1", "true"] {
            assert_eq!(of(Form::Json, text.as_bytes()).unwrap_err(), BodyError::NotLeads);
        }
    }

    #[test]
    fn one_object_is_single_and_an_array_is_not() {
        assert!(of(Form::Json, b"{}").unwrap().single);
        assert!(of(Form::Json, "\u{feff} {} ".as_bytes()).unwrap().single);
        let array = of(Form::Json, b"[{}, 1]").unwrap();
        assert_eq!((array.leads.len(), array.single), (2, false));
    }

    #[test]
    fn a_bad_line_harms_only_itself() {
        let text =
            "\u{feff}{\"email\":\"a@b.example\"}\r\n\n  \n{\"n\":\n{\"email\":\"c@b.example\"}";
        let leads = of(Form::Lines, text.as_bytes()).unwrap();
        let good: Vec<bool> = leads.leads.iter().map(Result::is_ok).collect();
        assert_eq!(good, [true, false, true]);
    }

    #[test]
    fn endless_lines_stop_at_the_limit() {
        let text = "1\n".repeat(MAX_LEADS * 2);
        assert_eq!(of(Form::Lines, text.as_bytes()).unwrap_err(), BodyError::TooMany);
    }
}
