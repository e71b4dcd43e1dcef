//! Secrets that are sent as they are: in the address, in a header, in the body.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leadsync::config::EmailFolding;
use leadsync::sources::{AuthError, ConfiguredSource, Request};
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::{Value, json};

use super::message::{message, possible, posted, request, rules, source};
use super::proof::{Damage, damaged, read, refusal, signed};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

fn proven_by(name: &str, proof: Value) -> Option<ConfiguredSource> {
    let mut written = json!({"name": "s", "kind": "json"});
    written[name] = proof;
    possible(written)
}

#[derive(Arbitrary, Debug)]
struct Token<'a> {
    damage: Damage,
    token: &'a str,
    query: &'a str,
    body: &'a [u8],
}

/// `?token=`: there once and the same, and never kept.
pub fn url_token(data: &[u8]) {
    let Some(input) = read::<Token>(data) else { return };
    // Asterisks stand where a token was; one that begins with them could not be told from that.
    if input.token.starts_with('*') {
        return;
    }
    let Some(source) = proven_by("url_token", json!([input.token, "old"])) else { return };
    let mut bare = posted(JSON, input.body);
    bare.query = input.query.to_owned();
    let signed = signed(&source, &bare, 0).expect("any query");
    let tokens = |query: &str| -> Vec<String> {
        let pairs = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "token");
        pairs.map(|(_, value)| value.into_owned()).collect()
    };
    let ours = |token: &String| token == input.token || token == "old";
    let mut requests = vec![bare.clone(), signed.clone()];
    requests.extend(damaged(&signed, &bare, &input.damage));
    for request in requests {
        let expected = match tokens(&request.query).as_slice() {
            [one] if ours(one) => None,
            [_] => Some(AuthError::Mismatch),
            _ => Some(AuthError::Missing),
        };
        assert_eq!(refusal(&source, &request, 0), expected, "{}", request.query);
        let kept = source.delivery_query(&request.query);
        assert_eq!(source.delivery_query(&kept), kept);
        assert!(tokens(&kept).is_empty(), "{kept}");
        let others: Vec<_> = form_urlencoded::parse(request.query.as_bytes())
            .filter(|(name, _)| name != "token")
            .collect();
        assert_eq!(form_urlencoded::parse(kept.as_bytes()).collect::<Vec<_>>(), others);
    }
    // Senders repeat the address they call in the body.
    let address = format!("https://leads.example.com/hooks/s?{}", signed.query);
    let escaped: String = form_urlencoded::byte_serialize(address.as_bytes()).collect();
    for body in [
        input.body.to_vec(),
        [input.body, b" ", address.as_bytes(), b" ", input.body].concat(),
        [b"url=", escaped.as_bytes(), b"&", input.body].concat(),
    ] {
        let told = posted(JSON, &body);
        let kept = source.kept_body(&told);
        let again = source.kept_body(&Request { body: kept.clone(), ..told });
        assert_eq!(again, kept, "twice is once");
        let text = String::from_utf8_lossy(&kept).into_owned();
        for spelling in [signed.query.rsplit('&').next().unwrap_or_default(), &escaped] {
            let longer = |rest: &str| {
                rest.starts_with(|c: char| c.is_ascii_alphanumeric() || "-_.~*%".contains(c))
            };
            let found =
                text.match_indices(spelling).any(|(at, _)| !longer(&text[at + spelling.len()..]));
            assert!(!found, "{text} has {spelling}");
        }
    }
}

#[derive(Arbitrary, Debug)]
struct BodyKey<'a> {
    form: bool,
    damage: Damage,
    name: &'a str,
    key: &'a str,
    body: &'a [u8],
}

/// A member of the body: there once, a text and the same, and never kept.
pub fn body_key(data: &[u8]) {
    let Some(input) = read::<BodyKey>(data) else { return };
    let Some(source) = proven_by("body_key", json!({"name": input.name, "value": input.key}))
    else {
        return;
    };
    let content_type = if input.form { FORM } else { JSON };
    let bare = posted(content_type, input.body);
    // The configuration takes no name that is empty. Only the first thousand members are looked at; and what is no object has no place for a key.
    if input.name.is_empty() {
        return;
    }
    let Some(members) = members(&bare, input.form) else { return };
    if members.iter().filter(|(name, _)| name.eq_ignore_ascii_case(input.name)).count() > 1 {
        return;
    }
    let Some(signed) = signed(&source, &bare, 0) else { return };
    let mut requests = vec![bare.clone(), signed.clone()];
    requests.extend(damaged(&signed, &bare, &input.damage));
    for request in requests {
        let Some(members) = self::members(&request, input.form) else { continue };
        let given: Vec<_> =
            members.iter().filter(|(name, _)| name.eq_ignore_ascii_case(input.name)).collect();
        let expected = match given.as_slice() {
            [(_, Value::String(key))] if key == input.key => None,
            [(_, Value::String(_))] => Some(AuthError::Mismatch),
            [_] => Some(AuthError::Malformed),
            _ => Some(AuthError::Missing),
        };
        assert_eq!(refusal(&source, &request, 0), expected, "{:?}", request.body);
        if expected.is_some() {
            continue;
        }
        let body = source.kept_body(&request);
        let kept = Request { body, ..request.clone() };
        assert_eq!(source.kept_body(&kept), kept.body, "twice is once");
        let masked: Vec<_> = members
            .iter()
            .map(|(name, value)| match name.eq_ignore_ascii_case(input.name) {
                true => (name.clone(), json!("***")),
                false => (name.clone(), value.clone()),
            })
            .collect();
        assert_eq!(self::members(&kept, input.form), Some(masked), "{:?}", kept.body);
    }
}

/// Names and values of a body, in order and as often as they are there; `None`: it has none or is not read.
fn members(request: &Request, form: bool) -> Option<Vec<(String, Value)>> {
    let members: Vec<(String, Value)> = if form {
        let pairs = form_urlencoded::parse(&request.body);
        pairs.map(|(name, value)| (name.into_owned(), json!(value))).collect()
    } else {
        let body = request.body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&request.body);
        let mut reader = serde_json::Deserializer::from_slice(body);
        let members = reader.deserialize_map(Members).ok()?;
        reader.end().ok()?;
        members
    };
    (members.len() < 1000).then_some(members)
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

static CREDENTIALS: LazyLock<[ConfiguredSource; 2]> = LazyLock::new(|| {
    let rules = rules(None, EmailFolding::None);
    let header = json!({"name": "s", "kind": "json", "header": {"name": "X-Key", "value": ["a key", "ol\u{e9}"]}});
    let basic = json!({"name": "s", "kind": "json", "basic": {"user": "zap", "password": ["pass:word", "\u{e9}"]}});
    [source(header, &rules), source(basic, &rules)]
});

/// A header's value, and HTTP basic authentication, with any headers.
pub fn credentials(data: &[u8]) {
    let message = message(data);
    let [header, basic] = &*CREDENTIALS;
    let mut request = request(message.headers, message.body);
    let given = |request: &Request, name: &str| {
        let headers = request.headers.iter().filter(|(given, _)| given == name);
        headers.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let keys = given(&request, "x-key");
    let expected = match keys.as_slice() {
        [key] if ["a key", "ol\u{e9}"].contains(&key.as_str()) => None,
        [_] => Some(AuthError::Mismatch),
        _ => Some(AuthError::Missing),
    };
    assert_eq!(refusal(header, &request, 0), expected);
    let right = |password: &str| STANDARD.encode(format!("zap:{password}"));
    let is_right = |value: &String| {
        let (scheme, credentials) = value.split_once(' ').unwrap_or_default();
        let given = credentials.trim();
        scheme.eq_ignore_ascii_case("basic")
            && [right("pass:word"), right("\u{e9}")].iter().any(|r| r == given)
    };
    let basics = given(&request, "authorization");
    let believed = matches!(basics.as_slice(), [one] if is_right(one));
    assert_eq!(refusal(basic, &request, 0).is_none(), believed, "{basics:?}");
    // With any other headers around them.
    for source in [header, basic] {
        let ours = signed(source, &request, 0).expect("headers take anything");
        assert!(
            !source.kept_headers().iter().any(|name| ["x-key", "authorization"].contains(name))
        );
        request = ours;
    }
}
