//! What senders sign instead of the bytes they send.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::sources::{Request, decode};

use super::AuthError;
use super::body_key::value_at;
use super::scheme::Content;

/// The signed bytes. `alone`: nothing else vouches for the request.
pub(super) fn of(
    request: &Request,
    content: Content,
    alone: bool,
) -> Result<Cow<'_, [u8]>, AuthError> {
    let body = &request.body;
    match content {
        Content::PhpFields if decode::is_form(request) => {
            let fields = decode::decode(request).map_err(|_| AuthError::Malformed)?;
            php_json(&integers(fields)).map(Cow::Owned).ok_or(AuthError::Malformed)
        }
        Content::FirstElement if body.trim_ascii_start().starts_with(b"[") => {
            first_element(body, alone).map(Cow::Borrowed)
        }
        _ => Ok(Cow::Borrowed(body)),
    }
}

/// The bytes of an array's first element, which must be all that is in it where nothing else vouches
/// for the others.
fn first_element(body: &[u8], alone: bool) -> Result<&[u8], AuthError> {
    let open = body.iter().position(|byte| *byte == b'[').ok_or(AuthError::Malformed)?;
    let (IgnoredAny, span) = value_at(body, open + 1).ok_or(AuthError::Malformed)?;
    let rest = body.get(span.end..).unwrap_or_default().trim_ascii_start();
    if alone && !rest.starts_with(b"]") {
        return Err(AuthError::Partial);
    }
    body.get(span).ok_or(AuthError::Malformed)
}

/// A form has only texts; the `unix` beside a date's `value` was a number when it was signed.
fn integers(value: Value) -> Value {
    let Value::Object(members) = value else { return value };
    let dated = members.contains_key("value");
    let number = |text: &str| text.parse::<u64>().ok().filter(|n| n.to_string() == text);
    let member = |(name, value): (String, Value)| match value.as_str().and_then(number) {
        Some(unix) if dated && name == "unix" => (name, Value::from(unix)),
        _ => (name, integers(value)),
    };
    Value::Object(members.into_iter().map(member).collect::<Map<_, _>>())
}

/// What PHP's `json_encode` writes by default.
fn php_json(value: &Value) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, Php);
    value.serialize(&mut writer).ok().map(|()| bytes)
}

struct Php;

impl serde_json::ser::Formatter for Php {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        for c in text.chars() {
            match c {
                '/' => to.write_all(b"\\/")?,
                c if c.is_ascii() => write!(to, "{c}")?,
                c => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(to, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_as_php_writes_it() {
        let fields = json!({"a/b": "ç 😀 \"\\\u{8}\u{1f}\u{7f}\n", "l": ["1", {"x": ""}], "d": {"value": "03/12", "unix": "17"}, "unix": "18"});
        let written = php_json(&integers(fields)).unwrap();
        assert_eq!(
            String::from_utf8(written).unwrap(),
            r#"{"a\/b":"\u00e7 \ud83d\ude00 \"\\\b\u001f"#.to_owned()
                + "\u{7f}"
                + r#"\n","l":["1",{"x":""}],"d":{"value":"03\/12","unix":17},"unix":"18"}"#
        );
    }

    #[test]
    fn the_first_element_is_all_that_is_signed() {
        let first = |body: &'static str, alone| first_element(body.as_bytes(), alone);
        assert_eq!(first(" [ {\"a\":[1]} ] ", true), Ok(&b"{\"a\":[1]}"[..]));
        assert_eq!(first("[{\"a\":1},{}]", false), Ok(&b"{\"a\":1}"[..]));
        assert_eq!(first("[{\"a\":1},{}]", true), Err(AuthError::Partial));
        for body in ["[", "[]", "[,]", "[{\"a\"]", "[nul"] {
            assert_eq!(first(body, false), Err(AuthError::Malformed), "{body}");
        }
    }
}
