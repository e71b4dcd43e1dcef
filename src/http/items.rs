//! The body of `POST /v1/leads`: one lead, an array, or one per line.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::HttpError;
use super::body::{Arrived, is_utf8};

/// Most leads in one request.
pub(super) const MAX_ITEMS: usize = 10_000;

const MALFORMED: &str = "malformed_json";

/// One thing that is wrong with one lead.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    /// The member; empty where it is the lead as a whole.
    pub(super) field: String,
    /// Stable word.
    pub(super) code: &'static str,
    /// For people.
    pub(super) message: String,
}

/// How the leads of a body are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One object or an array of them.
    Json,
    /// One object per line.
    Lines,
}

/// What a body says, item by item.
pub(super) struct Items {
    pub(super) leads: Vec<Result<Value, Vec<Problem>>>,
    /// One object that was not in an array: answered without one too.
    pub(super) single: bool,
}

impl Form {
    /// By content type, which must be there: a browser can be made to send a request without one,
    /// or as text or form, to this machine from any page.
    pub(super) fn of(arrived: &Arrived) -> Result<Form, HttpError> {
        let detail = "send application/json or application/x-ndjson, in UTF-8";
        let refused = || HttpError::unsupported_media_type(detail);
        let (media_type, charset) = arrived.content_type().ok_or_else(refused)?;
        if charset.is_some_and(|charset| !is_utf8(&charset)) {
            return Err(refused());
        }
        match media_type.as_str() {
            "application/json" => Ok(Form::Json),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Form::Lines),
            other if other.starts_with("application/") && other.ends_with("+json") => {
                Ok(Form::Json)
            }
            _ => Err(refused()),
        }
    }

    /// Splits and parses. One item more than [`MAX_ITEMS`] may come back: that one is too many.
    pub(super) fn items(self, body: &Bytes) -> Result<Items, HttpError> {
        let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        if text.trim_ascii().is_empty() {
            return Err(HttpError::bad_request("empty_body", "the body is empty"));
        }
        match self {
            Form::Json => {
                let value = parse(text).map_err(|error| {
                    let (line, column) = (error.line(), error.column());
                    let detail = format!("not JSON, see line {line} column {column}");
                    HttpError::bad_request(MALFORMED, detail)
                })?;
                match value {
                    Value::Array(values) => {
                        Ok(Items { leads: values.into_iter().map(Ok).collect(), single: false })
                    }
                    Value::Object(_) => Ok(Items { leads: vec![Ok(value)], single: true }),
                    _ => Err(HttpError::unprocessable(
                        "not_a_lead",
                        "the body is neither an object nor an array of objects",
                    )),
                }
            }
            // A line that is no JSON harms only itself.
            Form::Lines => {
                let lines =
                    text.split(|byte| *byte == b'\n').filter(|l| !l.trim_ascii().is_empty());
                let lead = |line| {
                    parse(line).map_err(|error| {
                        let message = format!("not JSON, see column {}", error.column());
                        vec![Problem { field: String::new(), code: MALFORMED, message }]
                    })
                };
                Ok(Items { leads: lines.take(MAX_ITEMS + 1).map(lead).collect(), single: false })
            }
        }
    }
}

/// Strict JSON: nothing after it, valid UTF-8, at most 127 levels deep. Of a key written twice the
/// last counts. Of the error only the position is shown: its text may quote the input.
fn parse(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text)
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use serde_json::json;

    use super::*;
    use crate::http::RequestId;

    /// Status and body.
    fn shown(error: HttpError) -> (u16, String) {
        let response = error.into_response::<Full<Bytes>>(RequestId::new());
        let status = response.status().as_u16();
        let body = futures_util::FutureExt::now_or_never(response.into_body().collect());
        (status, String::from_utf8(body.unwrap().unwrap().to_bytes().to_vec()).unwrap())
    }

    fn lines(text: &str) -> Items {
        Form::Lines.items(&Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn json_error(text: &[u8]) -> (u16, String) {
        match Form::Json.items(&Bytes::copy_from_slice(text)) {
            Ok(items) => panic!("{} items", items.leads.len()),
            Err(error) => shown(error),
        }
    }

    #[test]
    fn bodies_that_are_not_json() {
        for text in [
            &b""[..],
            b" \n ",
            b"\xef\xbb\xbf",
            b"{\"email\":\"a@b.c\"",
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
            let (status, body) = json_error(text);
            assert_eq!(status, 400, "{} {body}", String::from_utf8_lossy(text));
            assert!(!body.contains("a@b.c"), "echoes input: {body}");
        }
    }

    #[test]
    fn json_that_is_no_lead() {
        for text in ["null", "\"x\"", "1", "true"] {
            assert_eq!(json_error(text.as_bytes()).0, 422, "{text}");
        }
    }

    #[test]
    fn one_object_is_single_and_an_array_is_not() {
        let of =
            |text: &'static str| Form::Json.items(&Bytes::from_static(text.as_bytes())).unwrap();
        assert!(of("{}").single);
        assert!(of("\u{feff} {} ").single);
        let array = of("[{}, 1]");
        assert_eq!((array.leads.len(), array.single), (2, false));
        assert_eq!(of("[]").leads.len(), 0);
        let twice = of(r#"{"a":1,"a":2}"#).leads.remove(0).unwrap();
        assert_eq!(twice, json!({"a": 2}), "the last of a repeated key counts");
    }

    #[test]
    fn a_bad_line_harms_only_itself() {
        let items = lines("\u{feff}{\"n\":1}\r\n\n  \n{\"n\":\n{\"n\":3}");
        let good: Vec<bool> = items.leads.iter().map(Result::is_ok).collect();
        assert_eq!(good, [true, false, true]);
        assert!(!items.single);
    }

    #[test]
    fn endless_lines_stop_at_the_limit() {
        assert_eq!(lines(&"1\n".repeat(MAX_ITEMS * 2)).leads.len(), MAX_ITEMS + 1);
    }
}
