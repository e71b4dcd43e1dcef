//! A key that the sender writes into the body: found where it stands, so that it can also be taken
//! out before the body is archived.

use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::secret::Secret;
use crate::sources::{Request, decode};

use super::{AuthError, SignError, any, equal};

/// Most members of a body that are looked at.
const MAX_MEMBERS: usize = 1000;

/// The member must be there once and be the key.
pub(super) fn check(request: &Request, name: &str, keys: &[Secret]) -> Result<(), AuthError> {
    match places(request, name).as_slice() {
        [(Some(given), _)] => any(keys, |key| equal(key.expose(), given)),
        [(None, _)] => Err(AuthError::Malformed),
        _ => Err(AuthError::Missing),
    }
}

/// The body with asterisks for the member's value. Done twice it is the same.
pub(in crate::sources) fn without(request: &Request, name: &str) -> Bytes {
    let mask: &[u8] = if decode::is_form(request) { b"***" } else { b"\"***\"" };
    with(request, name, mask).unwrap_or_else(|| request.body.clone())
}

/// The body with this for the value of every such member; `None`: it has none.
fn with(request: &Request, name: &str, value: &[u8]) -> Option<Bytes> {
    let mut kept = Vec::new();
    let mut from = 0;
    for (_, span) in places(request, name) {
        kept.extend_from_slice(request.body.get(from..span.start).unwrap_or_default());
        kept.extend_from_slice(value);
        from = span.end;
    }
    kept.extend_from_slice(request.body.get(from..).unwrap_or_default());
    (from > 0).then(|| kept.into())
}

/// Puts the key where [`check`] looks for it.
pub(super) fn put(request: &mut Request, name: &str, keys: &[Secret]) -> Result<(), SignError> {
    let Some(key) = keys.first() else { return Ok(()) };
    let form = decode::is_form(request);
    let escaped = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let value = if form { escaped(key.expose()) } else { quoted(key.expose()) };
    if let Some(body) = with(request, name, value.as_bytes()) {
        request.body = body;
        return Ok(());
    }
    let body = &request.body;
    let whole = if form {
        let and = if body.is_empty() { "" } else { "&" };
        [body, and.as_bytes(), escaped(name).as_bytes(), b"=", value.as_bytes()].concat()
    } else {
        let at = inside(body).ok_or_else(|| SignError::NoPlaceForKey(name.to_owned()))?;
        let (before, after) = body.split_at(at);
        let comma = if after.trim_ascii_start().starts_with(b"}") { "" } else { "," };
        let member = format!("{}:{value}{comma}", quoted(name));
        [before, member.as_bytes(), after].concat()
    };
    request.body = whole.into();
    Ok(())
}

/// Where members of that name (letter case ignored) have their values, and those that are texts.
fn places(request: &Request, name: &str) -> Vec<(Option<String>, Range<usize>)> {
    let body = &request.body;
    let asked = |given: &str| given.eq_ignore_ascii_case(name);
    if decode::is_form(request) {
        let members = form_members(body).into_iter().filter(|(given, ..)| asked(given));
        return members.map(|(_, text, span)| (Some(text), span)).collect();
    }
    let members = json_members(body).unwrap_or_default().into_iter();
    let text = |span: &Range<usize>| serde_json::from_slice(body.get(span.clone())?).ok();
    members.filter(|(given, _)| asked(given)).map(|(_, span)| (text(&span), span)).collect()
}

/// Names and where their values are; `None`: no JSON object.
fn json_members(body: &[u8]) -> Option<Vec<(String, Range<usize>)>> {
    let mut members = Vec::new();
    let mut at = inside(body)?;
    while members.len() < MAX_MEMBERS {
        let (name, span) = value_at::<String>(body, at)?;
        let colon = next(body, span.end)?;
        let (IgnoredAny, span) = value_at(body, colon + 1)?;
        let end = next(body, span.end)?;
        members.push((name, span));
        match body.get(end) {
            Some(b',') => at = end + 1,
            Some(b'}') => return Some(members),
            _ => return None,
        }
    }
    Some(members)
}

/// Where the members of a JSON object begin.
fn inside(body: &[u8]) -> Option<usize> {
    let open = body.iter().position(|byte| *byte == b'{')?;
    // Only blanks and a byte order mark may stand before it.
    let before = body.get(..open)?.trim_ascii();
    (before.is_empty() || before == b"\xef\xbb\xbf").then_some(open + 1)
}

/// Names, values and where these are.
fn form_members(body: &[u8]) -> Vec<(String, String, Range<usize>)> {
    let mut at = 0;
    let mut members = Vec::new();
    for pair in body.split(|byte| *byte == b'&').take(MAX_MEMBERS) {
        let end = at + pair.len();
        let value =
            pair.iter().position(|byte| *byte == b'=').map_or(end, |equals| at + equals + 1);
        if let Some((name, text)) = form_urlencoded::parse(pair).next() {
            members.push((name.into_owned(), text.into_owned(), value..end));
        }
        at = end + 1;
    }
    members
}

/// The next byte that is no blank.
fn next(body: &[u8], at: usize) -> Option<usize> {
    let blanks = body.get(at..)?.iter().position(|byte| !b" \t\r\n".contains(byte))?;
    Some(at + blanks)
}

/// The JSON value that stands next, and where.
pub(super) fn value_at<'a, T: Deserialize<'a>>(
    body: &'a [u8],
    at: usize,
) -> Option<(T, Range<usize>)> {
    let start = next(body, at)?;
    let mut values = serde_json::Deserializer::from_slice(body.get(start..)?).into_iter::<T>();
    let value = values.next()?.ok()?;
    Some((value, start..start + values.byte_offset()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORM: &str = "application/x-www-form-urlencoded";

    fn request(content_type: &str, body: impl Into<Bytes>) -> Request {
        Request {
            method: "POST".into(),
            query: String::new(),
            headers: vec![("content-type".into(), content_type.into())],
            body: body.into(),
        }
    }

    #[test]
    fn the_key_is_believed_and_not_kept() {
        let keys = [Secret::new("k&1 ç")];
        for (content_type, body, kept) in [
            (
                "application/json",
                "\u{FEFF} {\"a\" : [{\"Key\":1}] , \"Key\" : \"k&1 \\u00e7\" , \"n\":1.50}",
                "\u{FEFF} {\"a\" : [{\"Key\":1}] , \"Key\" : \"***\" , \"n\":1.50}",
            ),
            ("application/json", "{\"key\":\"k&1 ç\"}", "{\"key\":\"***\"}"),
            (FORM, "a=1&kEy=k%261+%C3%A7&b=%20", "a=1&kEy=***&b=%20"),
        ] {
            let request = request(content_type, body);
            assert_eq!(check(&request, "key", &keys), Ok(()), "{body}");
            assert_eq!(without(&request, "key"), kept);
            let again = self::request(content_type, kept);
            assert_eq!(without(&again, "key"), kept);
            assert_eq!(check(&again, "key", &keys), Err(AuthError::Mismatch));
        }
    }

    #[test]
    fn one_key_and_a_text() {
        let keys = [Secret::new("k")];
        for (body, error) in [
            ("{\"key\":\"k\",\"KEY\":\"k\"}", AuthError::Missing),
            ("{\"key\":\"x\",\"key\":\"k\"}", AuthError::Missing),
            ("{\"a\":{\"key\":\"k\"}}", AuthError::Missing),
            ("[{\"key\":\"k\"}]", AuthError::Missing),
            ("{\"key\":\"k\"", AuthError::Missing),
            ("{\"key\":[\"k\"]}", AuthError::Malformed),
            ("{\"key\":\"\"}", AuthError::Mismatch),
        ] {
            assert_eq!(check(&request("", body), "key", &keys), Err(error), "{body}");
        }
        assert_eq!(check(&request(FORM, "key"), "key", &keys), Err(AuthError::Mismatch));
        assert_eq!(check(&request(FORM, "key=k&key=k"), "key", &keys), Err(AuthError::Missing));
    }

    proptest! {
        #[test]
        fn nothing_panics_and_twice_is_once(body in "[{}\\[\\]\",:ak=&%+1 é\\\\]{0,40}|\\PC*") {
            for content_type in ["application/json", FORM] {
                let request = request(content_type, body.clone());
                let once = without(&request, "k");
                let again = self::request(content_type, once.clone());
                prop_assert_eq!(without(&again, "k"), once);
            }
        }
    }
}
