//! Bodies of every content type, as one value.

use std::sync::LazyLock;

use leadsync::config::EmailFolding;
use leadsync::sources::{ConfiguredSource, DecodeError, Request, Verified};
use serde_json::{Map, Value, json};

use super::leads;
use super::message::{message, posted, request, rules, shown, source};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const BOUNDARY: &str = "a-boundary-of-the-test";

/// Reads every member, so that nothing of a body stays unseen.
static ALL: LazyLock<ConfiguredSource> = LazyLock::new(|| {
    let fields = json!({"email": "$.email", "tags": "$.tags", "attributes": {"all": "$.all"}});
    let written = json!({"name": "s", "kind": "custom", "url_token": "t", "fields": fields});
    source(written, &rules(None, EmailFolding::None))
});

/// Any bytes under any content type; and what is written as JSON, form and multipart reads the same.
pub fn holds(data: &[u8]) {
    let message = message(data);
    let mut headers = message.headers;
    if !message.line.is_empty() {
        headers.push(("content-type".to_owned(), message.line));
    }
    let first = request(headers, message.body);
    match read(first.clone()) {
        Ok(seen) => assert_eq!(read(first), Ok(seen), "read twice"),
        Err(error) => {
            assert!(matches!(error.status(), 400 | 415), "{error:?}");
            assert!(error.to_string().len() < 160, "{error}");
        }
    }
    flat(message.body);
    nested(message.body);
}

/// What was read: the item, and every leaf that no rule looks at.
fn read(request: Request) -> Result<String, DecodeError> {
    let delivery = Verified::stored(request);
    let items = ALL.read(&delivery)?;
    let explained = ALL.explain(&delivery)?;
    let [item] = items.as_slice() else { panic!("{items:?}") };
    let [part] = explained.parts.as_slice() else { panic!("{explained:?}") };
    assert_eq!(shown(item), shown(&part.item));
    leads::item(item);
    Ok(shown(&explained))
}

/// Names and values, one pair per line.
fn flat(body: &[u8]) {
    let text = String::from_utf8_lossy(body);
    let mut members = Map::new();
    for pair in text.lines().take(1000) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // Brackets mean more, and a header has no way to say the others.
        if name.is_empty() || name.contains(|c: char| "[]\"\\".contains(c) || c.is_control()) {
            continue;
        }
        members.insert(name.to_owned(), json!(value));
    }
    if members.is_empty() {
        return;
    }
    let form = form(members.iter().map(|(name, value)| (name.clone(), value.as_str())));
    let multipart = multipart(&members);
    let as_json = read(posted(JSON, Value::Object(members).to_string().as_bytes()));
    assert!(as_json.is_ok(), "{as_json:?}");
    assert_eq!(read(posted(FORM, form.as_bytes())), as_json, "{form}");
    let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
    if !text.contains(BOUNDARY) {
        assert_eq!(read(posted(&content_type, multipart.as_bytes())), as_json, "{multipart}");
    }
}

fn form<'a>(pairs: impl Iterator<Item = (String, Option<&'a str>)>) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    pairs.for_each(|(name, value)| _ = form.append_pair(&name, value.unwrap_or_default()));
    form.finish()
}

fn multipart(members: &Map<String, Value>) -> String {
    let part = |(name, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default();
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        )
    };
    members.iter().map(part).collect::<String>() + &format!("--{BOUNDARY}--\r\n")
}

/// A JSON object as PHP writes it into a form: `a[b][c]`.
fn nested(body: &[u8]) {
    let Ok(Value::Object(members)) = serde_json::from_slice(body) else { return };
    let plain = |name: &String| !name.is_empty() && !name.contains(['[', ']']);
    let members = members.into_iter().filter(|(name, _)| plain(name));
    let members: Map<String, Value> =
        members.filter_map(|(name, value)| Some((name, texts(value, 1)?))).collect();
    let mut pairs = Vec::new();
    for (name, value) in &members {
        leaves(value, name, &mut pairs);
    }
    if pairs.is_empty() || pairs.len() > 1000 {
        return;
    }
    let form = form(pairs.iter().map(|(name, value)| (name.clone(), Some(*value))));
    let whole = members.iter().map(|(name, value)| (name.clone(), counted(value))).collect();
    let as_json = read(posted(JSON, Value::Object(whole).to_string().as_bytes()));
    assert_eq!(read(posted(FORM, form.as_bytes())), as_json, "{form}");
}

/// Leaves as texts; what a form cannot carry is left out.
fn texts(value: Value, depth: usize) -> Option<Value> {
    match value {
        _ if depth > 15 => None,
        Value::Object(members) => {
            let plain = |name: &String| !name.is_empty() && !name.contains(['[', ']']);
            let members = members.into_iter().filter(|(name, _)| plain(name));
            let members: Map<String, Value> = members
                .filter_map(|(name, value)| Some((name, texts(value, depth + 1)?)))
                .collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        Value::Array(list) => {
            let list: Vec<Value> =
                list.into_iter().filter_map(|value| texts(value, depth + 1)).collect();
            (!list.is_empty()).then_some(Value::Array(list))
        }
        Value::String(text) => Some(Value::String(text)),
        other => Some(Value::String(other.to_string())),
    }
}

fn leaves<'a>(value: &'a Value, name: &str, pairs: &mut Vec<(String, &'a str)>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| leaves(value, &format!("{name}[{key}]"), pairs));
        }
        Value::Array(list) => {
            let entries = list.iter().enumerate();
            entries.for_each(|(at, value)| leaves(value, &format!("{name}[{at}]"), pairs));
        }
        value => pairs.push((name.to_owned(), value.as_str().unwrap_or_default())),
    }
}

/// Whatever is counted from 0 is a list.
fn counted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let counts = members.keys().enumerate().all(|(at, key)| *key == at.to_string());
            match counts {
                true => members.values().map(counted).collect(),
                false => Value::Object(
                    members.iter().map(|(key, value)| (key.clone(), counted(value))).collect(),
                ),
            }
        }
        Value::Array(list) => list.iter().map(counted).collect(),
        other => other.clone(),
    }
}
