//! From bytes to one JSON value, by content type: JSON, form, multipart.

use std::convert::Infallible;

use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Map, Value};

use super::Request;

const FORM: &str = "application/x-www-form-urlencoded";

/// Most fields of a form.
const MAX_FIELDS: usize = 1000;
/// Most levels of brackets in the name of a form's field.
const MAX_DEPTH: usize = 16;

/// A body that no sender of any kind can have meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not what its content type says. Never echoes the body.
    #[error("{message}")]
    Malformed {
        /// 400, or 415 for a content type or charset that is not understood.
        status: u16,
        /// What is wrong, for people.
        message: String,
    },
}

impl DecodeError {
    /// The HTTP status to answer with.
    pub fn status(&self) -> u16 {
        let DecodeError::Malformed { status, .. } = self;
        *status
    }
}

fn malformed(message: impl Into<String>) -> DecodeError {
    DecodeError::Malformed { status: 400, message: message.into() }
}

fn unsupported(message: &str) -> DecodeError {
    DecodeError::Malformed { status: 415, message: message.to_owned() }
}

/// The body as a value. Forms become objects: `a[b]` is a member of `a`, `a[]` and a name given twice a list.
pub(super) fn decode(request: &Request) -> Result<Value, DecodeError> {
    let content_type = request.header("content-type").unwrap_or_default();
    if content_type.is_empty() && request.headers.iter().any(|(name, _)| name == "content-type") {
        return Err(unsupported("more than one content type"));
    }
    let (essence, charset) = parts_of(content_type);
    let utf8 = matches!(charset.as_str(), "" | "utf-8" | "utf8" | "us-ascii" | "ascii");
    if !utf8 && !is_plain_ascii(&request.body) {
        return Err(unsupported("the only charset understood is UTF-8"));
    }
    match essence.as_str() {
        "" | "application/json" | "text/json" => json(&request.body),
        other if other.starts_with("application/") && other.ends_with("+json") => {
            json(&request.body)
        }
        FORM => form(&request.body),
        "multipart/form-data" => multipart(request, content_type),
        _ => Err(unsupported(
            "the content type is not application/json, application/x-www-form-urlencoded or multipart/form-data",
        )),
    }
}

/// Means the same in UTF-8 and in every charset a sender can mean, wide ones aside (they have NULs).
fn is_plain_ascii(body: &[u8]) -> bool {
    body.is_ascii() && !body.contains(&0)
}

/// Whether the body is a URL-encoded form.
pub(super) fn is_form(request: &Request) -> bool {
    essence(request) == FORM
}

/// The media type in lower case, without parameters; empty where there is none.
pub(super) fn essence(request: &Request) -> String {
    parts_of(request.header("content-type").unwrap_or_default()).0
}

/// Media type and charset, in lower case.
fn parts_of(content_type: &str) -> (String, String) {
    let mut parts = content_type.split(';').map(|part| part.trim().to_ascii_lowercase());
    let essence = parts.next().unwrap_or_default();
    let charset = parts
        .find_map(|part| part.strip_prefix("charset=").map(|c| c.trim_matches('"').to_owned()));
    (essence, charset.unwrap_or_default())
}

fn json(body: &[u8]) -> Result<Value, DecodeError> {
    // Some Windows senders begin with a byte order mark, which JSON does not allow.
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(malformed("the body is empty"));
    }
    // serde_json stops at 127 levels and refuses invalid UTF-8, lone surrogates and trailing bytes;
    // its words name a place, never a value.
    serde_json::from_slice(body).map_err(|error| {
        malformed(format!(
            "the body is not JSON (line {}, column {})",
            error.line(),
            error.column()
        ))
    })
}

fn form(body: &[u8]) -> Result<Value, DecodeError> {
    let text = std::str::from_utf8(body).map_err(|_| malformed("the body is not UTF-8"))?;
    if text.trim().is_empty() {
        return Err(malformed("the body is empty"));
    }
    // Decoding puts replacement characters where escapes are not UTF-8: Latin-1 senders would get
    // their names mangled for ever, so they are told instead.
    let mut tree = Tree::default();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        tree.add(&unescape(name)?, unescape(value)?)?;
    }
    Ok(tree.value())
}

fn unescape(text: &str) -> Result<String, DecodeError> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|hex| {
            let mut out = [0];
            hex::decode_to_slice(hex, &mut out).ok().map(|()| out[0])
        });
        match (byte, escaped) {
            (_, Some(escaped)) => {
                decoded.push(escaped);
                at += 3;
                continue;
            }
            (b'+', None) => decoded.push(b' '),
            (other, None) => decoded.push(*other),
        }
        at += 1;
    }
    String::from_utf8(decoded).map_err(|_| malformed("a form field is not UTF-8"))
}

fn multipart(request: &Request, content_type: &str) -> Result<Value, DecodeError> {
    let boundary = multer::parse_boundary(content_type)
        .map_err(|_| malformed("the multipart content type has no boundary"))?;
    let chunk = Ok::<_, Infallible>(request.body.clone());
    let parts = multer::Multipart::new(stream::iter([chunk]), boundary);
    // The whole body is here already, so nothing in this future ever waits.
    read_parts(parts)
        .now_or_never()
        .unwrap_or_else(|| Err(malformed("the multipart body ends too early")))
}

async fn read_parts(parts: multer::Multipart<'_>) -> Result<Value, DecodeError> {
    let broken = |_| malformed("the multipart body is broken");
    let mut tree = Tree::default();
    let mut parts = std::pin::pin!(stream::unfold(parts, |mut parts| async {
        parts.next_field().await.transpose().map(|field| (field, parts))
    }));
    while let Some(field) = parts.next().await {
        let field = field.map_err(broken)?;
        let file = field.file_name().map(str::to_owned);
        let name = field.name().unwrap_or_default().to_owned();
        let value = field.bytes().await.map_err(broken)?;
        match file {
            // What a browser sends for a file field that was left alone.
            Some(file) if file.is_empty() && value.is_empty() => continue,
            Some(_) => return Err(malformed("the multipart body has a file; files are not taken")),
            None => {}
        }
        let value = String::from_utf8(value.to_vec())
            .map_err(|_| malformed("a form field is not UTF-8"))?;
        tree.add(&name, value)?;
    }
    Ok(tree.value())
}

/// A form, its bracketed names opened as PHP does.
#[derive(Default)]
struct Tree {
    root: Map<String, Value>,
    fields: usize,
}

impl Tree {
    fn add(&mut self, name: &str, value: String) -> Result<(), DecodeError> {
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            return Err(malformed(format!("the form has more than {MAX_FIELDS} fields")));
        }
        let (first, path) = brackets(name);
        if path.len() >= MAX_DEPTH {
            return Err(malformed(format!("a form field is more than {MAX_DEPTH} levels deep")));
        }
        if path.is_empty() {
            match self.root.get_mut(first) {
                // A plain name given twice is a list, where PHP would keep the last.
                Some(Value::Array(list)) => list.push(Value::String(value)),
                Some(Value::Object(_)) => {
                    _ = self.root.insert(first.to_owned(), Value::String(value))
                }
                Some(single) => *single = Value::Array(vec![single.take(), Value::String(value)]),
                None => _ = self.root.insert(first.to_owned(), Value::String(value)),
            }
            return Ok(());
        }
        let mut slot = self.root.entry(first.to_owned()).or_insert(Value::Null);
        for key in path {
            if !slot.is_object() {
                *slot = Value::Object(Map::new());
            }
            let Value::Object(members) = slot else { return Ok(()) };
            let key = if key.is_empty() { next_index(members) } else { key.to_owned() };
            slot = members.entry(key).or_insert(Value::Null);
        }
        *slot = Value::String(value);
        Ok(())
    }

    fn value(self) -> Value {
        Value::Object(self.root.into_iter().map(|(name, value)| (name, lists(value))).collect())
    }
}

/// `a[b][]` is `a` and `["b", ""]`; a name whose brackets do not pair is a plain name.
fn brackets(name: &str) -> (&str, Vec<&str>) {
    let Some((first, rest)) = name.split_once('[').filter(|(first, _)| !first.is_empty()) else {
        return (name, Vec::new());
    };
    match rest.strip_suffix(']') {
        Some(inner) if !inner.split("][").any(|key| key.contains(['[', ']'])) => {
            (first, inner.split("][").collect())
        }
        _ => (name, Vec::new()),
    }
}

fn next_index(members: &Map<String, Value>) -> String {
    let largest = members.keys().filter_map(|key| key.parse::<usize>().ok()).max();
    largest.map_or(0, |n| n.saturating_add(1)).to_string()
}

/// Objects whose keys count from 0 become lists.
fn lists(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let counts = !members.is_empty()
                && members.keys().enumerate().all(|(n, key)| *key == n.to_string());
            match counts {
                true => Value::Array(members.into_iter().map(|(_, value)| lists(value)).collect()),
                false => {
                    Value::Object(members.into_iter().map(|(k, value)| (k, lists(value))).collect())
                }
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn request(content_type: Option<&str>, body: impl Into<bytes::Bytes>) -> Request {
        let headers = content_type.map(|c| ("content-type".to_owned(), c.to_owned()));
        Request {
            method: "POST".into(),
            query: String::new(),
            headers: headers.into_iter().collect(),
            body: body.into(),
        }
    }

    fn read(content_type: &str, body: &str) -> Result<Value, u16> {
        decode(&request(Some(content_type), body.to_owned())).map_err(|error| error.status())
    }

    #[test]
    fn json_bodies() {
        for content_type in [
            "application/json",
            "Application/JSON; charset=\"UTF-8\"",
            "application/vnd.api+json",
            "text/json",
        ] {
            assert_eq!(
                read(content_type, "\u{FEFF}{\"a\":1}"),
                Ok(json!({"a": 1})),
                "{content_type}"
            );
        }
        assert_eq!(decode(&request(None, "[1]")), Ok(json!([1])));
        for (content_type, status) in [
            ("text/plain", 415),
            ("application/json; charset=utf-16", 415),
            ("application/xml", 415),
        ] {
            assert_eq!(read(content_type, "{\"a\":\"\u{e9}\"}"), Err(status));
        }
        assert_eq!(read("application/json; charset=iso-8859-1", "[1]"), Ok(json!([1])));
        assert_eq!(read("application/json; charset=utf-16", "{\0}\0"), Err(415));
        let deep = "[".repeat(200) + &"]".repeat(200);
        for body in [
            "",
            " \n",
            "{",
            "{}{}",
            "{'a':1}",
            "NaN",
            "[1,]",
            r#""\ud800""#,
            "\"a\nb\"",
            "1e400",
            "\u{FEFF}\u{FEFF}{}",
            &deep,
        ] {
            assert_eq!(read("application/json", body), Err(400), "{body:?}");
        }
        assert_eq!(decode(&request(None, &b"\"\xff\""[..])).unwrap_err().status(), 400);
        let secret = decode(&request(None, "{\"email\": ana@example.com}")).unwrap_err();
        assert!(!secret.to_string().contains("ana"));
    }

    #[test]
    fn form_bodies() {
        let form = |body: &str| read("application/x-www-form-urlencoded; charset=utf-8", body);
        assert_eq!(
            form(
                "a=1&a=2&a=3&b%5Bc%5D%5Bd%5D=x+y&b[c][e]=%C3%A7&t[]=1&t[]=2&i[0]=p&i[1]=q&n[5]=x&odd[=1&[x]=2&empty"
            ),
            Ok(
                json!({"a": ["1", "2", "3"], "b": {"c": {"d": "x y", "e": "ç"}}, "t": ["1", "2"], "i": ["p", "q"],
                      "n": {"5": "x"}, "odd[": "1", "[x]": "2", "empty": ""})
            )
        );
        assert_eq!(form("a=1&a[b]=2"), Ok(json!({"a": {"b": "2"}})));
        assert_eq!(form("a=100%&b=%zz"), Ok(json!({"a": "100%", "b": "%zz"})));
        assert_eq!(form(""), Err(400));
        assert_eq!(form("n=Jos%E9"), Err(400), "Latin-1 is not guessed");
        assert_eq!(form(&"a=1&".repeat(MAX_FIELDS + 1)), Err(400));
        assert_eq!(form(&format!("a{}=1", "[b]".repeat(MAX_DEPTH))), Err(400));
    }

    #[test]
    fn multipart_bodies() {
        let part = |head: &str, value: &str| {
            format!("--x\r\nContent-Disposition: form-data; name={head}\r\n\r\n{value}\r\n")
        };
        let multipart = |body: String| read("multipart/form-data; boundary=x", &body);
        assert_eq!(
            multipart(part("\"a[b]\"", "1\r\n2") + &part("c", "ç") + "--x--\r\n"),
            Ok(json!({"a": {"b": "1\r\n2"}, "c": "ç"}))
        );
        assert_eq!(multipart(part("\"f\"; filename=\"f.txt\"", "x") + "--x--\r\n"), Err(400));
        assert_eq!(multipart(part("a", "1")), Err(400), "no end");
        assert_eq!(multipart(String::new()), Err(400));
        assert_eq!(read("multipart/form-data", "x"), Err(400));
    }

    proptest! {
        #[test]
        fn nothing_panics(body in any::<Vec<u8>>(), text in "[a-c&=\\[\\]%+0-9]{0,60}") {
            for content_type in ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "é;;="] {
                let _ = decode(&request(Some(content_type), body.clone()));
                let _ = decode(&request(Some(content_type), text.clone()));
                let _ = decode(&request(Some(content_type), format!("--x\r\n{text}\r\n\r\n{text}\r\n--x--")));
            }
        }
    }
}
