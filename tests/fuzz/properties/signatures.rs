//! Signatures over what is sent.

use arbitrary::Arbitrary;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use leadsync::config::{Config, EmailFolding};
use leadsync::sources::{AuthError, ConfiguredSource, Request};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::message::{possible, posted, request, rules, source};
use super::proof::{Damage, believed, damaged, meaning, moment, read, refusal, signed};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// A source as the configuration takes it, or nothing where it does not.
fn configured(written: Value) -> Option<ConfiguredSource> {
    let text = toml::to_string(&json!({"source": [written]})).ok()?;
    let loaded = Config::parse(&text).ok()?;
    let source = loaded.config.sources.first().expect("one was written");
    ConfiguredSource::compile(source, &loaded.config.leads).ok()
}

#[derive(Arbitrary, Debug)]
struct Written<'a> {
    sha1: bool,
    base64: bool,
    millis: bool,
    header: u8,
    time_header: Option<u8>,
    tolerance: u8,
    now: u32,
    damage: Damage,
    prefix: Text<'a>,
    tag: Option<Text<'a>>,
    time_tag: Option<Text<'a>>,
    signed: Option<Text<'a>>,
    key: Text<'a>,
    body: &'a [u8],
}

/// One of some that are usual, or anything.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Text<'a> {
    Usual(u8),
    Any(&'a str),
}

impl<'a> Text<'a> {
    fn or(self, usual: &[&'a str]) -> &'a str {
        match self {
            Text::Usual(at) => usual[usize::from(at) % usual.len()],
            Text::Any(text) => text,
        }
    }
}

/// HMACs of kind `custom`, however they are written.
pub fn hmac(data: &[u8]) {
    let Some(input) = read::<Written>(data) else { return };
    let headers = ["x-signature", "x-time", "X-Signature"];
    let name = |at: u8| headers[usize::from(at) % headers.len()];
    let algorithm = if input.sha1 { "hmac-sha1" } else { "hmac-sha256" };
    let prefix = input.prefix.or(&["", "sha256=", "HMAC "]);
    let pattern = input.signed.map(|text| {
        text.or(&["{body}", "{time}.{body}", "{body}{time}", "v0:{time}:{body}", "a={body}"])
    });
    let key = input.key.or(&["key", "another key", "\u{e9}"]);
    let tags = ["v1", "t", "s"];
    let mut signature = json!({"header": name(input.header), "algorithm": algorithm,
        "encoding": if input.base64 { "base64" } else { "hex" }, "prefix": prefix,
        "timestamp_unit": if input.millis { "ms" } else { "s" }, "tolerance": format!("{}s", input.tolerance)});
    for (key, value) in [
        ("tag", input.tag.map(|text| text.or(&tags))),
        ("timestamp_header", input.time_header.map(name)),
        ("timestamp_tag", input.time_tag.map(|text| text.or(&tags))),
        ("signed", pattern),
    ] {
        if let Some(value) = value {
            signature[key] = json!(value);
        }
    }
    let custom = |key: &str| {
        configured(
            json!({"name": "s", "kind": "custom", "secret": key, "fields": {"email": "$.email"}, "signature": signature}),
        )
    };
    let Some(source) = custom(key) else { return };
    let now = moment(input.now);
    let bare = posted(JSON, input.body);
    let signed = signed(&source, &bare, now).expect("a body can be signed whatever it is");
    // Its sender would have made the same of the documented construction.
    let timed = input.time_header.is_some() || input.time_tag.is_some();
    let time =
        if timed { (now * if input.millis { 1000 } else { 1 }).to_string() } else { String::new() };
    let usual = if timed { "{time}.{body}" } else { "{body}" };
    let content = content_of(pattern.unwrap_or(usual), &time, input.body);
    let digest = digest(input.sha1, key.as_bytes(), &content);
    let digest = if input.base64 { STANDARD.encode(digest) } else { hex::encode(digest) };
    let value = signed.header(name(input.header)).expect("a signature");
    assert!(value.ends_with(&digest), "{value}");
    let other = custom(&format!("{key}x")).expect("as good a key");
    strict(&source, &other, &bare, &signed, &input.damage, now);
    if timed {
        let tolerance = i64::from(input.tolerance);
        for at in [now - tolerance, now + tolerance] {
            believed(&source, &signed, at);
        }
        for at in [now - tolerance - 1, now + tolerance + 1] {
            assert_eq!(refusal(&source, &signed, at), Some(AuthError::Stale));
        }
    }
}

fn content_of(pattern: &str, time: &str, body: &[u8]) -> Vec<u8> {
    let (before, after) = pattern.split_once("{body}").expect("a body in it");
    let [before, after] = [before, after].map(|text| text.replace("{time}", time).into_bytes());
    [&before, body, &after].concat()
}

fn digest(sha1: bool, key: &[u8], content: &[u8]) -> Vec<u8> {
    fn mac<M: Mac + KeyInit>(key: &[u8], content: &[u8]) -> Vec<u8> {
        let mut mac = <M as KeyInit>::new_from_slice(key).expect("any length");
        mac.update(content);
        mac.finalize().into_bytes().to_vec()
    }
    if sha1 { mac::<Hmac<Sha1>>(key, content) } else { mac::<Hmac<Sha256>>(key, content) }
}

/// No bit of it may be another, and nobody else can have made it.
fn strict(
    source: &ConfiguredSource,
    other: &ConfiguredSource,
    bare: &Request,
    signed: &Request,
    damage: &Damage,
    now: i64,
) {
    let forged = other.sign(bare.clone(), now).expect("as well as with the key");
    assert_eq!(refusal(source, &forged, now), Some(AuthError::Mismatch));
    if let Some(damaged) = damaged(signed, bare, damage) {
        // Method and query are not signed by everybody.
        let covered = damaged.body != signed.body || damaged.headers != signed.headers;
        assert!(!covered || refusal(source, &damaged, now).is_some(), "{:?}", damaged.headers);
    }
}

#[derive(Arbitrary, Debug)]
struct Standard<'a> {
    svix: bool,
    padded: bool,
    key: [u8; 24],
    now: u32,
    offset: i16,
    damage: Damage,
    id: &'a str,
    body: &'a [u8],
}

/// The Standard Webhooks specification.
pub fn standard_webhooks(data: &[u8]) {
    let Some(input) = read::<Standard>(data) else { return };
    let compile = |key: &[u8]| {
        let key = STANDARD.encode(key);
        let key = if input.padded { key } else { format!("whsec_{}", key.trim_end_matches('=')) };
        let written = json!({"name": "s", "kind": "standard-webhooks", "secret": key});
        source(written, &rules(None, EmailFolding::None))
    };
    let source = compile(&input.key);
    let now = moment(input.now);
    let mut bare = posted(JSON, input.body);
    if !input.id.is_empty() {
        bare.headers.push(("webhook-id".to_owned(), input.id.to_owned()));
    }
    let mut signed = signed(&source, &bare, now).expect("any body");
    if input.svix {
        for (name, _) in &mut signed.headers {
            *name = name.replace("webhook-", "svix-");
        }
        believed(&source, &signed, now);
    }
    let header = |name: &str| {
        signed.header(&format!("webhook-{name}")).or(signed.header(&format!("svix-{name}")))
    };
    let (id, time) = (header("id").expect("an id"), header("timestamp").expect("a time"));
    let content = [id.as_bytes(), b".", time.as_bytes(), b".", input.body].concat();
    let tag = format!("v1,{}", STANDARD.encode(digest(false, &input.key, &content)));
    assert_eq!(header("signature"), Some(tag.as_str()));
    let mut key = input.key;
    key[0] ^= 1;
    // The name of a header is no part of what is signed.
    if !input.svix {
        strict(&source, &compile(&key), &bare, &signed, &input.damage, now);
    }
    let at = now + i64::from(input.offset);
    let stale = (input.offset.unsigned_abs() > 300).then_some(AuthError::Stale);
    assert_eq!(refusal(&source, &signed, at), stale);
}

#[derive(Arbitrary, Debug)]
struct HubSpot<'a> {
    version: u8,
    now: u32,
    offset: i16,
    damage: Damage,
    method: &'a str,
    key: &'a str,
    query: &'a str,
    body: &'a [u8],
}

/// HubSpot's three versions.
pub fn hubspot(data: &[u8]) {
    let Some(input) = read::<HubSpot>(data) else { return };
    let url = "https://leads.example.com/hooks/s";
    let compile = |key: &str| {
        possible(json!({"name": "s", "kind": "hubspot-workflow", "secret": key, "public_url": url}))
    };
    let Some(source) = compile(input.key) else { return };
    let other = compile(&format!("{}x", input.key)).expect("as good a key");
    let now = moment(input.now);
    let mut bare = posted(JSON, input.body);
    (bare.method, bare.query) = (input.method.to_owned(), input.query.to_owned());
    let question = if input.query.is_empty() { "" } else { "?" };
    let (key, address) = (input.key.as_bytes(), format!("{url}{question}{}", input.query));
    let content = [input.method.as_bytes(), address.as_bytes(), input.body].concat();
    if input.version % 3 == 0 {
        let signed = signed(&source, &bare, now).expect("any body");
        let time = (now * 1000).to_string();
        let tag = STANDARD.encode(digest(false, key, &[&content, time.as_bytes()].concat()));
        assert_eq!(signed.header("x-hubspot-signature-v3"), Some(tag.as_str()));
        let stale = (input.offset.unsigned_abs() > 300).then_some(AuthError::Stale);
        assert_eq!(refusal(&source, &signed, now + i64::from(input.offset)), stale);
        strict(&source, &other, &bare, &signed, &input.damage, now);
        if let Some(damaged) = damaged(&signed, &bare, &input.damage) {
            assert!(refusal(&source, &damaged, now).is_some(), "all of it is signed");
        }
        return;
    }
    let (version, hashed) = match input.version % 3 {
        1 => ("v1", [key, input.body].concat()),
        _ => ("v2", [key, &content].concat()),
    };
    let mut signed = bare.clone();
    for (name, value) in [
        ("x-hubspot-signature-version", version.to_owned()),
        ("x-hubspot-signature", hex::encode(Sha256::digest(hashed))),
    ] {
        signed.headers.push((name.to_owned(), value));
    }
    believed(&source, &signed, now);
    assert_eq!(refusal(&other, &signed, now), Some(AuthError::Mismatch));
    if let Some(damaged) = damaged(&signed, &bare, &input.damage) {
        let covered =
            version == "v2" || damaged.body != signed.body || damaged.headers != signed.headers;
        assert!(!covered || refusal(&source, &damaged, now).is_some(), "{:?}", damaged.headers);
    }
}

#[derive(Arbitrary, Debug)]
struct Content<'a> {
    segment: bool,
    vouched: bool,
    form: bool,
    now: u32,
    damage: Damage,
    body: &'a [u8],
}

/// Where not the bytes are signed but something made of them: what is believed says what was signed.
pub fn content(data: &[u8]) {
    let Some(input) = read::<Content>(data) else { return };
    let kind = if input.segment { "segment" } else { "wpforms" };
    let mut written = json!({"name": "s", "kind": kind, "secret": "a key"});
    if input.vouched {
        written["url_token"] = json!("a token");
    }
    let source = source(written, &rules(Some("BR"), EmailFolding::None));
    let now = moment(input.now);
    let bare = posted(if input.form { FORM } else { JSON }, input.body);
    let Ok(signed) = source.sign(bare.clone(), now) else { return };
    match refusal(&source, &signed, now) {
        None => {}
        // The rest of a batch, which only something else can vouch for.
        Some(AuthError::Partial) if input.segment && !input.vouched => return,
        Some(error) => panic!("{error}"),
    }
    let Some(damaged) = damaged(&signed, &bare, &input.damage) else { return };
    if refusal(&source, &damaged, now).is_none() && !input.vouched {
        assert_eq!(meaning(&source, &damaged), meaning(&source, &signed));
    }
    let headers = signed.headers.clone();
    let stranger = request(headers, b"{\"email\":\"stranger@example.com\"}");
    assert!(refusal(&source, &stranger, now).is_some() || stranger.body == signed.body);
}
