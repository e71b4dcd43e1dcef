use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use super::*;
use crate::config;
use crate::lead::{Change, Field, LeadPatch};
use crate::secret::Secret;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

fn leads() -> config::Leads {
    config::Leads {
        default_region: None,
        email_folding: config::EmailFolding::None,
        future_tolerance: Duration::from_secs(300),
        history: true,
        keep_history: std::time::Duration::from_secs(86_400),
    }
}

fn written(source: Value) -> config::Source {
    serde_json::from_value(source).unwrap()
}

fn compile(source: Value) -> ConfiguredSource {
    ConfiguredSource::compile(&written(source), &leads()).unwrap()
}

fn refusal(source: Value) -> String {
    ConfiguredSource::compile(&written(source), &leads()).unwrap_err().to_string()
}

fn request(query: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request {
    let headers = headers.iter().map(|(name, value)| (name.to_lowercase(), value.to_string()));
    Request {
        method: "POST".into(),
        query: query.into(),
        headers: headers.collect(),
        body: body.into(),
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sources")
}

/// A payload as it arrived, and what must become of it.
#[derive(Clone, Deserialize)]
struct Case {
    source: Value,
    query: String,
    now: i64,
    expect: Vec<Outcome>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
enum Outcome {
    Ignored {
        ignored: String,
    },
    Rejected {
        rejected: String,
    },
    /// Object and id; gone ones with "gone " before.
    Notice {
        notice: String,
    },
    Lead(Box<Expected>),
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Expected {
    email: String,
    first_name: Option<String>,
    last_name: Option<String>,
    full_name: Option<String>,
    phone: Option<String>,
    company: Option<String>,
    job_title: Option<String>,
    consent: Option<bool>,
    utm: BTreeMap<String, String>,
    event_id: Option<String>,
    event_type: Option<String>,
    event_time_utc: Option<jiff::Timestamp>,
    /// Some of what else the lead has: fields, `landing_page`, `tags`, `attributes.NAME`.
    #[serde(default)]
    also: BTreeMap<String, String>,
    /// Fields that had a value which could not be used.
    #[serde(default)]
    errors: Vec<String>,
}

/// What became of an item, in the words of a case.
fn outcome(item: &Item, expected: Option<&Outcome>) -> Outcome {
    match item {
        Item::Ignored(reason) => Outcome::Ignored { ignored: reason.clone() },
        Item::Rejected { reason, .. } => Outcome::Rejected { rejected: reason.clone() },
        Item::Notice(notice) => Outcome::Notice { notice: told(notice) },
        Item::Lead(patch) => {
            assert!(patch.touch.source.is_some());
            let asked = match expected {
                Some(Outcome::Lead(lead)) => lead.also.keys().cloned().collect(),
                _ => Vec::new(),
            };
            Outcome::Lead(Box::new(seen(patch, &asked)))
        }
    }
}

fn told(Notice { object, remote_id, deleted, .. }: &Notice) -> String {
    format!("{}{object} {remote_id}", if *deleted { "gone " } else { "" })
}

fn other(patch: &LeadPatch, name: &str) -> Option<String> {
    if let Some(attribute) = name.strip_prefix("attributes.") {
        return patch.attributes.get(attribute)?.value().map(str::to_owned);
    }
    match name {
        "landing_page" => patch.touch.landing_page.clone(),
        "tags" => Some(patch.tags.iter().cloned().collect::<Vec<_>>().join(",")),
        field => patch.fields.get(&Field::parse(field)?)?.value().map(str::to_owned),
    }
}

fn seen(patch: &LeadPatch, asked: &[String]) -> Expected {
    let field = |field| patch.fields.get(&field).and_then(Change::value).map(str::to_owned);
    let touch = &patch.touch;
    let utm = [
        ("utm_source", &touch.utm_source),
        ("utm_medium", &touch.utm_medium),
        ("utm_campaign", &touch.utm_campaign),
        ("utm_term", &touch.utm_term),
        ("utm_content", &touch.utm_content),
    ];
    Expected {
        email: patch.email.to_string(),
        first_name: field(Field::FirstName),
        last_name: field(Field::LastName),
        full_name: field(Field::FullName),
        phone: field(Field::Phone),
        company: field(Field::Company),
        job_title: field(Field::JobTitle),
        consent: patch.consent.map(|consent| consent.granted),
        utm: utm.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v.clone()?))).collect(),
        event_id: patch.event_id.clone(),
        event_type: patch.event_type.clone(),
        event_time_utc: patch.occurred_at.map(|t| jiff::Timestamp::from_microsecond(t).unwrap()),
        also: asked.iter().filter_map(|name| Some((name.clone(), other(patch, name)?))).collect(),
        errors: patch.field_errors.keys().cloned().collect(),
    }
}

/// The cases of a kind: name, what is expected, the request.
fn cases(kind: &str) -> Vec<(String, Case, Request)> {
    let folder = fixtures().join(kind);
    let Ok(files) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut cases = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".lead.json") else { continue };
        let case: Case = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let read = |ext: &str| std::fs::read(folder.join(format!("{name}.{ext}")));
        let headers = String::from_utf8(read("headers").unwrap()).unwrap();
        let headers: Vec<_> = headers.lines().filter_map(|line| line.split_once(": ")).collect();
        let body = read("json").or_else(|_| read("body")).unwrap();
        let request = request(&case.query, &headers, body);
        cases.push((name.to_owned(), case, request));
    }
    cases
}

fn outcomes_of(source: &ConfiguredSource, delivery: &Verified, case: &Case) -> Vec<Outcome> {
    let items = source.read(delivery).unwrap();
    items.iter().enumerate().map(|(n, item)| outcome(item, case.expect.get(n))).collect()
}

#[test]
fn every_kind_reads_its_fixtures() {
    assert!(cases("a kind that nobody gave a payload").is_empty());
    for source in SOURCES {
        let cases = cases(source.kind);
        assert!(
            !cases.is_empty(),
            "kind {} has no payload: put NAME.json (or NAME.body), NAME.headers and NAME.lead.json into tests/fixtures/sources/{}/",
            source.kind,
            source.kind
        );
        for (name, case, request) in cases {
            let configured = compile(case.source.clone());
            let verified =
                configured.verify(request, case.now).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(outcomes_of(&configured, &verified, &case), case.expect, "{name}");
        }
    }
}

/// What the archive keeps is enough to read a delivery again.
#[test]
fn a_stored_delivery_reads_the_same() {
    for (name, case, mut request) in SOURCES.iter().flat_map(|source| cases(source.kind)) {
        let source = compile(case.source.clone());
        let kept = source.kept_headers();
        request.headers.retain(|(name, _)| name == "content-type" || kept.contains(&name.as_str()));
        request.query = source.delivery_query(&request.query);
        request.body = source.kept_body(&request);
        assert!(
            !format!("{request:?}{source:?}").contains("example"),
            "{name}: Debug shows what it must not"
        );
        assert!(
            source.verify(request.clone(), case.now).is_err(),
            "{name}: credentials were archived"
        );
        assert_eq!(source.kept_body(&request), request.body, "{name}");
        let stored = Verified::stored(request);
        assert_eq!(outcomes_of(&source, &stored, &case), case.expect, "{name}");
    }
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    source: Value,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    query: String,
    #[serde(default)]
    now: i64,
    headers: BTreeMap<String, String>,
    body: String,
    valid: bool,
}

/// A GET that checks the address.
#[derive(Deserialize)]
struct Challenge {
    id: String,
    handshake: String,
    secret: String,
    query: String,
    answer: Option<String>,
    valid: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyVector {
    Challenge(Challenge),
    Delivery(Vector),
}

#[test]
fn every_vector_gets_its_verdict() {
    let vectors: Vec<AnyVector> =
        serde_json::from_slice(&std::fs::read(fixtures().join("vectors.json")).unwrap()).unwrap();
    assert!(vectors.len() > 100);
    for vector in vectors {
        let vector = match vector {
            AnyVector::Challenge(challenge) => {
                let answer: HandshakeFn = match challenge.handshake.as_str() {
                    "linkedin-challenge" => handshake::linkedin_challenge,
                    _ => handshake::hub_challenge,
                };
                let given = answer(&challenge.query, &[Secret::new(challenge.secret)]);
                assert_eq!(given.is_some(), challenge.valid, "{}", challenge.id);
                assert_eq!(given.map(|given| given.body), challenge.answer, "{}", challenge.id);
                continue;
            }
            AnyVector::Delivery(vector) => vector,
        };
        let headers: Vec<_> =
            vector.headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let mut request = request(&vector.query, &headers, vector.body.clone());
        request.method = vector.method.unwrap_or(request.method);
        let verdict = compile(vector.source).verify(request, vector.now);
        assert_eq!(verdict.is_ok(), vector.valid, "{}: {verdict:?}", vector.id);
    }
}

#[test]
fn standard_webhooks_agrees_with_the_crate_of_that_name() {
    let secret = "whsec_c3RhbmRhcmQtd2ViaG9va3MtZXhtcGwh";
    let source = compile(json!({"name": "s", "kind": "standard-webhooks", "secret": secret}));
    let theirs = standardwebhooks::Webhook::new(secret).unwrap();
    for prefix in ["webhook", "svix"] {
        let signature = theirs.sign("msg_1", 1000, "é{}".as_bytes()).unwrap();
        let names = ["id", "timestamp", "signature"].map(|name| format!("{prefix}-{name}"));
        let headers = [(&*names[0], "msg_1"), (&*names[1], "1000"), (&*names[2], &*signature)];
        assert!(source.verify(request("", &headers, "é{}"), 1000).is_ok());
        let bad = source.verify(request("", &headers, "é{} "), 1000);
        assert_eq!(bad.unwrap_err(), AuthError::Mismatch);
        let late = source.verify(request("", &headers, "é{}"), 1301);
        assert_eq!(late.unwrap_err(), AuthError::Stale);
    }
}

#[test]
fn signatures_are_read_strictly() {
    let calendly = compile(
        json!({"name": "s", "kind": "calendly", "secret": ["new", "calendly-signing-key-example"]}),
    );
    let tag = "a887663e90b483f37421acd0735b67fc697fc263f7331329a21837dea25bfac8";
    let body = "{\"event\":\"invitee.created\"}";
    let verdict = |value: &str, now| {
        calendly
            .verify(request("", &[("Calendly-Webhook-Signature", value)], body), now)
            .map(|_| ())
    };
    let now = 1_772_720_531;
    assert_eq!(
        verdict(&format!("t={now},v1={tag}"), now),
        Ok(()),
        "the old secret during a rotation"
    );
    assert_eq!(
        verdict(&format!("t={now},v1={},v1={tag}", "0".repeat(64)), now),
        Ok(()),
        "any of several"
    );
    assert_eq!(
        verdict(&format!("t={now},v1={}", tag.to_uppercase()), now),
        Err(AuthError::Malformed)
    );
    assert_eq!(verdict(&format!("t={now}, v1={tag}"), now), Err(AuthError::Malformed));
    assert_eq!(verdict(&format!("t=+{now},v1={tag}"), now), Err(AuthError::Malformed));
    assert_eq!(verdict(&format!("t={now}000,v1={tag}"), now), Err(AuthError::Stale));
    assert_eq!(verdict(&format!("t={now},v1={tag}"), now - 181), Err(AuthError::Stale));
    assert_eq!(verdict(&format!("t={now},t={now},v1={tag}"), now), Err(AuthError::Malformed));
    let flood = format!("t={now},{}v1={tag}", "v1=00,".repeat(10));
    assert!(verdict(&flood, now).is_err(), "only so many are looked at");

    let twice = [("X-Key", "k"), ("x-key", "other")];
    let source =
        compile(json!({"name": "s", "kind": "json", "header": {"name": "X-Key", "value": "k"}}));
    assert_eq!(source.verify(request("", &twice, "{}"), 0).unwrap_err(), AuthError::Missing);
    assert!(source.verify(request("", &twice[..1], "{}"), 0).is_ok());
}

#[test]
fn every_configured_proof_must_hold() {
    let source = compile(
        json!({"name": "s", "kind": "json", "url_token": ["a", "b"], "header": {"name": "X-Key", "value": "k"}}),
    );
    let verdict = |query, headers: &[(&str, &str)]| {
        source.verify(request(query, headers, "{}"), 0).map(|_| ())
    };
    assert_eq!(verdict("token=b", &[("X-Key", "k")]), Ok(()));
    assert_eq!(verdict("token=b", &[]), Err(AuthError::Missing));
    assert_eq!(verdict("", &[("X-Key", "k")]), Err(AuthError::Missing));
    assert_eq!(verdict("token=c", &[("X-Key", "k")]), Err(AuthError::Mismatch));
}

#[test]
fn a_signed_time_in_a_header_of_its_own() {
    let source = compile(
        json!({"name": "s", "kind": "custom", "secret": "k", "fields": {"email": "$.email"},
        "signature": {"header": "X-Sig", "timestamp_header": "X-Time", "tolerance": "60s"}}),
    );
    let tag = "0".repeat(64);
    let verdict = |time: &str, tag: &str, now| {
        source.verify(request("", &[("X-Sig", tag), ("X-Time", time)], "{}"), now).map(|_| ())
    };
    let right = hex::encode({
        use hmac::{KeyInit, Mac};
        let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(b"k").unwrap();
        mac.update(b"1000.{}");
        mac.finalize().into_bytes()
    });
    assert_eq!(verdict("1000", &right, 1060), Ok(()));
    assert_eq!(verdict("1000", &right, 1061), Err(AuthError::Stale));
    assert_eq!(verdict("1001", &right, 1060), Err(AuthError::Mismatch));
    assert_eq!(verdict("1000", &tag, 1000), Err(AuthError::Mismatch));
    assert_eq!(verdict("soon", &right, 1000), Err(AuthError::Malformed));
}

#[test]
fn mistakes_in_the_configuration_say_what_to_do() {
    for (source, words) in [
        (
            json!({"name": "site", "kind": "typefrom"}),
            "source \"site\": unknown kind \"typefrom\", did you mean \"typeform\"?; kinds are calendly, ",
        ),
        (json!({"name": "site", "kind": "typeform"}), "set `secret`"),
        (json!({"name": "site", "kind": "jotform"}), "set `url_token`"),
        (
            json!({"name": "site", "kind": "jotform", "secret": "x"}),
            "`secret` is not for kind \"jotform\"; its senders do not sign: use `url_token`",
        ),
        (
            json!({"name": "site", "kind": "custom", "secret": "x", "fields": {"email": "$.e"}}),
            "`secret` is set but `signature` is not",
        ),
        (
            json!({"name": "site", "kind": "custom", "signature": {"header": "x"}, "fields": {"email": "$.e"}}),
            "`signature` is set but `secret` is not",
        ),
        (json!({"name": "site", "kind": "custom", "url_token": "x"}), "`fields` has no `email`"),
        (
            json!({"name": "site", "kind": "json", "url_token": "x", "signature": {"header": "x"}}),
            "`signature` is not for kind \"json\"",
        ),
        (
            json!({"name": "site", "kind": "json", "url_token": "x", "split": "$[*]"}),
            "`split` is not for kind \"json\"",
        ),
        (
            json!({"name": "site", "kind": "custom", "url_token": "x", "split": "leads", "fields": {"email": "$.e"}}),
            "\"leads\" is not a JSONPath",
        ),
        (
            json!({"name": "site", "kind": "json", "url_token": "x", "fields": {"comapny": "$.e"}}),
            "did you mean \"company\"?",
        ),
        (
            json!({"name": "site", "kind": "json", "url_token": "x", "default_region": "Brasil"}),
            "write two letters",
        ),
        (json!({"name": "site", "kind": "json", "url_token": "x", "trust": 101}), "`trust` is 101"),
        (json!({"name": "site", "kind": "standard-webhooks", "secret": "whsec_%%"}), "base64"),
        (json!({"name": "site", "kind": "google-ads"}), "set `secret` to the key"),
        (
            json!({"name": "site", "kind": "meta", "token": "t", "url_token": "x"}),
            "`secret` is not set",
        ),
        (json!({"name": "site", "kind": "linkedin", "secret": "s"}), "`token` is not set"),
        (
            json!({"name": "site", "kind": "meta", "secret": "s", "token": "t"}),
            "`verify_token` is not set: choose a text",
        ),
        (
            json!({"name": "site", "kind": "meta", "secret": ["a", "s"], "token": "t", "verify_token": "s"}),
            "`verify_token` must not be the app secret",
        ),
        (
            json!({"name": "site", "kind": "json", "url_token": "x", "token": "t"}),
            "`token` is not for kind \"json\"; remove it",
        ),
        (
            json!({"name": "site", "kind": "linkedin", "secret": "s", "token": "t", "forms": ["1"]}),
            "`forms` is not for kind \"linkedin\"; remove it; only kind \"meta\"",
        ),
        (
            json!({"name": "site", "kind": "linkedin", "secret": "s", "token": "t", "signed": false}),
            "set `url_token` (sent as ?token=), as `signed` is false",
        ),
        (
            json!({"name": "site", "kind": "hubspot-workflow", "secret": "x"}),
            "`public_url` is not set; HubSpot signs the address",
        ),
        (
            json!({"name": "site", "kind": "json", "url_token": "x", "public_url": "https://a.example"}),
            "`public_url` is not for kind \"json\"; remove it",
        ),
        (
            json!({"name": "site", "kind": "json", "header": {"name": "X-Key", "value": "k"}, "fields": {"event_id": "$['@headers']['x-key']"}}),
            "carries a credential",
        ),
    ] {
        let refusal = refusal(source);
        assert!(refusal.contains(words), "{refusal}");
    }
}

fn outcomes(source: Value, headers: &[(&str, &str)], body: &str) -> Vec<String> {
    let source = compile(source);
    let items = source.read(&Verified::stored(request("", headers, body.to_owned()))).unwrap();
    let word = |item| match item {
        Item::Lead(patch) => format!("lead {}", patch.email),
        Item::Ignored(reason) => format!("ignored {reason}"),
        Item::Notice(notice) => told(&notice),
        Item::Rejected { reason, .. } => format!("rejected {reason}"),
    };
    items.into_iter().map(word).collect()
}

#[test]
fn what_is_not_about_a_lead() {
    let calendly = json!({"name": "s", "kind": "calendly", "secret": "x"});
    let body =
        r#"{"event":"invitee.canceled","payload":{"email":"a@example.com","rescheduled":true}}"#;
    assert_eq!(outcomes(calendly, &[], body), ["ignored event_type"]);
    let shopify = json!({"name": "s", "kind": "shopify", "secret": "x"});
    let body = r#"{"email":"a@example.com"}"#;
    assert_eq!(outcomes(shopify.clone(), &[("X-Shopify-Test", "true")], body), ["ignored test"]);
    assert_eq!(
        outcomes(shopify.clone(), &[("X-Shopify-Topic", "orders/create")], body),
        ["ignored event_type"]
    );
    assert_eq!(
        outcomes(shopify, &[("X-Shopify-Topic", "customers/update")], body),
        ["lead a@example.com"]
    );
    let typeform = json!({"name": "s", "kind": "typeform", "secret": "x"});
    assert_eq!(
        outcomes(typeform, &[], r#"{"event_type":"form_abandoned"}"#),
        ["ignored event_type"]
    );
}

#[test]
fn unusable_bodies_are_rejected_items() {
    for source in SOURCES {
        let fields = if source.kind == "custom" { json!({"email": "$.email"}) } else { json!({}) };
        let mut written =
            json!({"name": "s", "kind": source.kind, "fields": fields, "url_token": "x"});
        if matches!(source.auth, Auth::Signed(_)) {
            written["secret"] = json!("c2VjcmV0");
        }
        if matches!(source.auth, Auth::Signed(Scheme::HubSpot)) {
            written["public_url"] = json!("https://leads.example.com/hooks/s");
        }
        let thin = matches!(source.split, Split::Notices(_));
        if thin {
            written["token"] = json!("t");
        }
        if source.kind == "meta" {
            written["verify_token"] = json!("v");
        }
        for body in [
            "null",
            "1",
            "\"x\"",
            "{}",
            "{\"data\":5,\"payload\":[1],\"form_response\":\"x\",\"rawRequest\":\"{\",\"fields\":[1]}",
        ] {
            assert_eq!(
                outcomes(written.clone(), &[], body),
                [if thin { "rejected no_leads" } else { "rejected no_email" }],
                "{} {body}",
                source.kind
            );
        }
    }
    let list = json!({"name": "s", "kind": "json", "url_token": "x"});
    assert_eq!(outcomes(list.clone(), &[], "[]"), ["rejected no_leads"]);
    assert_eq!(
        outcomes(list.clone(), &[], r#"[{"email":"a@example.com"},5,{"email":"b"},{"e":1}]"#),
        ["lead a@example.com", "rejected no_email", "rejected invalid_email", "rejected no_email"]
    );
    let many = format!("[{}0]", "0,".repeat(10_000));
    assert_eq!(outcomes(list, &[], &many), ["rejected too_many_leads"]);
    let split = json!({"name": "s", "kind": "custom", "url_token": "x", "split": "$.leads[*]",
        "fields": {"email": "$.email", "event_type": "$['@body'].type"}});
    assert_eq!(
        outcomes(split.clone(), &[], r#"{"type":"t","leads":[{"email":"a@example.com"}]}"#),
        ["lead a@example.com"]
    );
    assert_eq!(outcomes(split, &[], "{}"), ["rejected no_leads"]);
}

#[test]
fn events_of_other_types_are_ignored() {
    let mut source = json!({"name": "s", "kind": "custom", "url_token": "x", "event_types": ["made", "moved"],
        "fields": {"email": "$.mail", "event_type": "$.kind"}});
    for (body, outcome) in [
        (r#"{"kind":"made","mail":"a@example.com"}"#, "lead a@example.com"),
        (r#"{"kind":"moved"}"#, "rejected no_email"),
        (r#"{"kind":"cancelled","mail":"a@example.com"}"#, "ignored event_type"),
        (r#"{"kind":"cancelled"}"#, "ignored event_type"),
        (r#"{"mail":"a@example.com"}"#, "ignored event_type"),
    ] {
        assert_eq!(outcomes(source.clone(), &[], body), [outcome], "{body}");
    }
    source["fields"] = json!({"email": "$.mail"});
    let written: config::Source = serde_json::from_value(source).unwrap();
    let refused = ConfiguredSource::compile(&written, &leads()).err().unwrap().to_string();
    assert!(refused.contains("fields.event_type"), "{refused}");
}

#[test]
fn of_a_segment_batch_only_the_first_is_signed() {
    let signed = "{\"type\":\"identify\",\"traits\":{\"email\":\"a@example.com\"}}";
    let header = [("X-Signature", "1c1b0cbeda29888f8a9f34a75a5a1c5ca53b7562")];
    let secret = "segment-shared-secret-example";
    let alone = compile(json!({"name": "s", "kind": "segment", "secret": secret}));
    let verdict = |source: &ConfiguredSource, query, body: String| {
        source.verify(request(query, &header, body), 0).map(|_| ())
    };
    assert_eq!(verdict(&alone, "", format!(" [ {signed} ] ")), Ok(()));
    assert_eq!(verdict(&alone, "", format!("[{signed},{signed}]")), Err(AuthError::Partial));
    let more = json!({"name": "s", "kind": "segment", "secret": secret, "url_token": "t"});
    let more = compile(more);
    assert_eq!(verdict(&more, "token=t", format!("[{signed},{{}}]")), Ok(()));
    assert_eq!(verdict(&more, "token=x", format!("[{signed},{{}}]")), Err(AuthError::Mismatch));
    assert_eq!(verdict(&more, "", signed.to_owned()), Err(AuthError::Missing));
}

/// A v3 signature that does not hold is not saved by an older one.
#[test]
fn hubspot_never_falls_back() {
    let (_, case, mut request) =
        cases("hubspot-workflow").into_iter().find(|(name, ..)| name.ends_with("-1")).unwrap();
    let source = compile(case.source);
    assert!(source.verify(request.clone(), case.now).is_ok());
    assert_eq!(source.verify(request.clone(), case.now + 301).unwrap_err(), AuthError::Stale);
    for (name, value) in &mut request.headers {
        if name == "x-hubspot-signature-v3" {
            *value = "AAAA".to_owned();
        }
    }
    assert_eq!(source.verify(request.clone(), case.now).unwrap_err(), AuthError::Mismatch);
    request.headers.retain(|(name, _)| name != "x-hubspot-signature-v3");
    assert!(source.verify(request, case.now).is_ok(), "v2 alone");
}

#[test]
fn challenges_are_answered_only_when_they_are_whole() {
    let secrets = [Secret::new("t")];
    for query in ["", "hub.mode=subscribe&hub.verify_token=t", "hub.verify_token=t&hub.challenge=1"]
    {
        assert_eq!(handshake::hub_challenge(query, &secrets), None, "{query}");
    }
    let twice = "hub.mode=subscribe&hub.challenge=1&hub.verify_token=t&hub.verify_token=t";
    assert_eq!(handshake::hub_challenge(twice, &secrets), None);
    let long = format!("challengeCode={}", "x".repeat(513));
    assert_eq!(handshake::linkedin_challenge(&long, &secrets), None);
    assert_eq!(handshake::linkedin_challenge("challengeCode=1", &[]), None);
}

/// Not all that is known of LinkedIn says that it signs what it sends.
#[test]
fn linkedin_without_a_signature() {
    let source = compile(
        json!({"name": "s", "kind": "linkedin", "secret": "s", "token": "t", "url_token": "x", "signed": false}),
    );
    assert!(source.verify(request("token=x", &[], "{}"), 0).is_ok());
    assert_eq!(source.verify(request("", &[], "{}"), 0).unwrap_err(), AuthError::Missing);
    let answer = source.handshake("token=x&challengeCode=1").unwrap();
    assert!(answer.body.contains("challengeResponse"));
}

#[test]
fn only_the_token_leaves_the_query() {
    let source = compile(json!({"name": "s", "kind": "json", "url_token": "x"}));
    assert_eq!(source.delivery_query("a=1&token=x&b=%20&%74oken=y"), "a=1&b=%20");
    assert_eq!(source.delivery_query(""), "");
}

#[test]
fn blanks_and_consent_words_of_real_forms() {
    let source = compile(json!({"name": "s", "kind": "elementor", "url_token": "x"}));
    let read = |body: &str| {
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let items = source.read(&Verified::stored(request("", &form, body.to_owned()))).unwrap();
        let [Item::Lead(patch)] = items.as_slice() else { panic!("{items:?}") };
        (**patch).clone()
    };
    let patch =
        read("E-mail=a%40example.com&I+agree=I+agree+to+be+contacted&Message=a%0D%0Ab%00&Phone=+");
    assert_eq!(patch.consent.map(|c| c.granted), Some(true));
    assert_eq!(patch.fields[&Field::Message].value(), Some("a\nb"));
    assert!(!patch.fields.contains_key(&Field::Phone));
    let patch = read("E-mail=a%40example.com&Consent=&Website=x");
    assert_eq!(patch.consent, None);
}

proptest! {
    #[test]
    fn nothing_panics(kind in 0..SOURCES.len(), name in "\\PC{0,12}", value in "\\PC{0,12}", deep in any::<bool>()) {
        let inner = json!({name.clone(): value, "q1_name": {name.clone(): [1, null]}, "type": "text", "text": {"labels": [name]}});
        let body = json!({"email": "a@example.com", "payload": {"questions_and_answers": [inner, 1]}, "data": inner,
            "fields": {"a": inner}, "rawRequest": inner.to_string(),
            "form_response": {"answers": [inner, {"field": {"ref": "name"}, "type": "x"}], "definition": {"fields": [inner]}}});
        let body = if deep { json!([body, inner]) } else { body };
        prop_assert!(ONE_OF_EACH[kind].read(&Verified::stored(request("", &[], body.to_string()))).is_ok());
    }
}

#[test]
fn a_source_is_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<ConfiguredSource>();
}

#[test]
fn jotform_addresses_and_hidden_fields() {
    let source = compile(json!({"name": "s", "kind": "jotform", "url_token": "x"}));
    let raw = json!({"q1_email": "a@example.com", "q2_endereco": {"city": "Recife", "state": "PE", "country": "Brasil"},
        "q3_nome": {"first": "Ana", "middle": "M", "last": "Luz"}, "utm_source": "news", "submitDate": ""});
    let body = json!({"rawRequest": raw.to_string(), "submissionID": "1"}).to_string();
    let items = source.read(&Verified::stored(request("", &[], body))).unwrap();
    let [Item::Lead(patch)] = items.as_slice() else { panic!("{items:?}") };
    let field = |field: Field| patch.fields.get(&field).and_then(Change::value);
    assert_eq!((field(Field::City), field(Field::Region)), (Some("Recife"), Some("PE")));
    assert_eq!((field(Field::FirstName), field(Field::LastName)), (Some("Ana M"), Some("Luz")));
    assert_eq!(patch.touch.utm_source.as_deref(), Some("news"));
    assert!(patch.field_errors.is_empty() && patch.occurred_at.is_none());
}

#[test]
fn plain_names_of_a_form() {
    let source =
        compile(json!({"name": "expo", "kind": "json", "url_token": "x", "double_opt_in": true}));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = "E-mail=a%40example.com&tags%5B%5D=a&tags%5B%5D=b&attributes%5Bbudget%5D=5&opt_in=yes&state=active&Company=";
    let items = source.read(&Verified::stored(request("", &form, body))).unwrap();
    let [Item::Lead(patch)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(patch.tags.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(patch.attributes["budget"].value(), Some("5"));
    assert_eq!(patch.consent.map(|c| (c.granted, c.proven)), Some((true, true)));
    assert_eq!(patch.touch.source.as_deref(), Some("expo"));
    assert!(patch.fields.is_empty() && patch.field_errors.is_empty(), "{patch:?}");
}

/// Values that senders of other things than forms might put anywhere.
fn any_json() -> impl Strategy<Value = Value> {
    let names = "(field_data|values|leadgen_id|leadgen|field|value|objectId|subscriptionType|leadGenFormResponse|formResponse|questionId|form|content|questions|data|payload|traits|contact|leads|entry|changes|fields|form_response|answers|user_column_data|properties|form-submissions|timestamp|created_at|email|value|type|options|data\\.json|[a-z0-9._]{0,6})";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        Just(json!("a@example.com")),
        Just(json!("CHECKBOXES")),
    ];
    leaf.prop_recursive(6, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A source of every kind.
static ONE_OF_EACH: LazyLock<Vec<ConfiguredSource>> = LazyLock::new(|| {
    let written = |kind: &str| {
        let fields = if kind == "custom" {
            json!({"email": "$..email", "phone": "$..value", "occurred_at": {"from": "$..timestamp", "via": "epoch_ms"}})
        } else {
            json!({})
        };
        let mut source = json!({"name": "s", "kind": kind, "url_token": "x", "default_region": "BR", "fields": fields});
        if ["hubspot-app", "linkedin", "meta"].contains(&kind) {
            source["secret"] = json!("s");
            source["token"] = json!("t");
        }
        match kind {
            "meta" => source["verify_token"] = json!("v"),
            "hubspot-app" => source["public_url"] = json!("https://leads.example.com/hooks/s"),
            _ => {}
        }
        compile(source)
    };
    SOURCES.iter().map(|source| written(source.kind)).collect()
});

static ALL_CASES: LazyLock<Vec<(String, Case, Request)>> =
    LazyLock::new(|| SOURCES.iter().flat_map(|source| cases(source.kind)).collect());

fn read_by_all(content_type: &str, body: Bytes) {
    for source in ONE_OF_EACH.iter() {
        let request = request("", &[("content-type", content_type)], body.clone());
        // A body that is no JSON or form is an error; all else gives at least one item.
        if let Ok(items) = source.read(&Verified::stored(request)) {
            assert!(!items.is_empty());
        }
    }
}

const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=x";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_value_makes_a_kind_panic(value in any_json(), text in "\\PC{0,60}") {
        let json = value.to_string();
        read_by_all("application/json", json.clone().into());
        read_by_all("application/json", text.clone().into());
        read_by_all(FETCHED, json.clone().into());
        let escaped: String = form_urlencoded::byte_serialize(json.as_bytes()).collect();
        for form in [format!("data.json={escaped}&rawRequest={escaped}&email=a%40b.co&1.3={escaped}"), text.clone()] {
            read_by_all(FORM, form.into());
        }
        let part = |name: &str, value: &str| {
            format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let multipart = part("rawRequest", &json) + &part("fields[a][value]", &text) + "--x--\r\n";
        read_by_all(MULTIPART, multipart.into());
    }

    #[test]
    fn no_damage_to_a_payload_makes_a_kind_panic(
        at in any::<prop::sample::Index>(),
        piece in prop_oneof!["[\\[\\]{}\",:0-9a-z]{0,4}", "\\PC{0,3}"],
        cut in 0..40_usize,
        which in any::<prop::sample::Index>(),
        now in any::<i64>(),
    ) {
        let (_, case, mut request) = ALL_CASES[which.index(ALL_CASES.len())].clone();
        let mut body = request.body.to_vec();
        let start = at.index(body.len() + 1);
        let end = (start + cut).min(body.len());
        body.splice(start..end, piece.bytes());
        request.body = body.into();
        let source = compile(case.source);
        _ = source.verify(request.clone(), now);
        request.body = source.kept_body(&request);
        _ = source.read(&Verified::stored(request.clone()));
        for (name, value) in &mut request.headers {
            if name != "content-type" {
                value.insert_str(0, &piece);
            }
        }
        _ = source.verify(request, now);
    }
}

/// The same source with another secret everywhere.
fn with_other_secrets(mut source: Value) -> Value {
    let other = json!("b3RoZXItc2VjcmV0LW9mLW5vYm9keQ==");
    for key in ["secret", "url_token"] {
        if !source[key].is_null() {
            source[key] = other.clone();
        }
    }
    for (key, value) in [("header", "value"), ("body_key", "value"), ("basic", "password")] {
        if !source[key].is_null() {
            source[key][value] = other.clone();
        }
    }
    source
}

/// The request without anything that proves its sender.
fn unproven(source: &ConfiguredSource, mut request: Request) -> Request {
    let kept = source.kept_headers();
    request.headers.retain(|(name, _)| name == "content-type" || kept.contains(&name.as_str()));
    request.query = source.delivery_query(&request.query);
    request.body = source.kept_body(&request);
    request
}

#[test]
fn what_is_signed_is_believed() {
    for (name, case, request) in SOURCES.iter().flat_map(|source| cases(source.kind)) {
        let source = compile(case.source.clone());
        let bare = unproven(&source, request.clone());
        let now = case.now + 1_000_000;
        let signed = source.sign(bare.clone(), now).unwrap();
        let told = outcomes_of(&source, &source.verify(signed.clone(), now).unwrap(), &case);
        assert_eq!(told, case.expect, "{name}");
        // Signing again, also what came signed, is no harm.
        assert!(source.verify(source.sign(signed, now).unwrap(), now).is_ok(), "{name}");
        assert!(source.verify(source.sign(request, now).unwrap(), now).is_ok(), "{name}");
        let other = compile(with_other_secrets(case.source));
        let forged = other.sign(bare, now).unwrap();
        assert_eq!(source.verify(forged, now).unwrap_err(), AuthError::Mismatch, "{name}");
    }
}

#[test]
fn every_way_of_signing_is_believed() {
    let custom = |signature: Value| json!({"name": "s", "kind": "custom", "secret": "k", "fields": {"email": "$.email"}, "signature": signature});
    let json = |proof: Value| {
        let mut source = json!({"name": "s", "kind": "json"});
        source.as_object_mut().unwrap().extend(proof.as_object().unwrap().clone());
        source
    };
    let form = "application/x-www-form-urlencoded";
    for (source, content_type, body) in [
        (custom(json!({"header": "X-S", "prefix": "sha1=", "algorithm": "hmac-sha1"})), "", "{}"),
        (
            custom(
                json!({"header": "X-S", "encoding": "base64", "timestamp_header": "X-T", "timestamp_unit": "ms"}),
            ),
            "",
            "{}",
        ),
        (
            custom(
                json!({"header": "X-S", "tag": "v1", "timestamp_tag": "t", "signed": "{body}:{time}"}),
            ),
            "",
            "{}",
        ),
        (
            custom(json!({"header": "X-S", "timestamp_header": "x-T", "timestamp_tag": "t"})),
            "",
            "{}",
        ),
        (json(json!({"url_token": ["k&1 =", "old"]})), "", "{}"),
        (
            json(
                json!({"basic": {"user": "u", "password": "p:ç"}, "header": {"name": "X-K", "value": "k"}}),
            ),
            "",
            "{}",
        ),
        (json(json!({"body_key": {"name": "key", "value": "k\"&ç"}})), "", " { } "),
        (json(json!({"body_key": {"name": "key", "value": "k\"&ç"}})), "", "{\"a\":1}"),
        (json(json!({"body_key": {"name": "key", "value": "k\"&ç"}})), form, ""),
        (json(json!({"body_key": {"name": "key", "value": "k\"&ç"}})), form, "a=1"),
    ] {
        let compiled = compile(source.clone());
        let bare = request("a=1&token=wrong", &[("content-type", content_type)], body);
        let signed = compiled.sign(bare, 1_000_000).unwrap();
        assert!(compiled.verify(signed, 1_000_000).is_ok(), "{source} {body}");
    }
    let keyed = compile(json(json!({"body_key": {"name": "key", "value": "k"}})));
    let refused = keyed.sign(request("", &[], "[{}]"), 0).unwrap_err();
    assert_eq!(refused, SignError::NoPlaceForKey("key".to_owned()));
}

#[test]
fn explaining_is_reading() {
    for (name, case, request) in SOURCES.iter().flat_map(|source| cases(source.kind)) {
        let source = compile(case.source.clone());
        let delivery = Verified::stored(request);
        let explained = source.explain(&delivery).unwrap();
        let items: Vec<Item> = explained.parts.iter().map(|part| part.item.clone()).collect();
        assert_eq!(
            format!("{items:?}"),
            format!("{:?}", source.read(&delivery).unwrap()),
            "{name}"
        );
        for part in &explained.parts {
            let used = |step: &crate::mapping::Step| {
                step.target == "email" && step.fate == crate::mapping::Fate::Used
            };
            let is_lead = matches!(part.item, Item::Lead(_));
            assert_eq!(
                part.steps.iter().filter(|step| used(step)).count(),
                usize::from(is_lead),
                "{name}"
            );
        }
    }
}
