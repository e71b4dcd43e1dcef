use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::lead::Lead;

fn record(known: bool) -> Record {
    let lead = Lead { email: "ana@example.com".to_owned(), ..Lead::default() };
    let properties = vec![("name".to_owned(), Some("Anastasia".to_owned()))];
    Record {
        lead: Arc::new(lead),
        remote_id: known.then(|| "u-1".to_owned()),
        creating_for: None,
        properties,
    }
}

fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    Answer { status, headers: http::HeaderMap::new(), body: body.into(), broken: None }
}

fn said(status: u16, body: &Value, known: bool) -> Result<Said, CallError> {
    read(&answer(status, body.to_string()), &record(known))
}

fn refused(result: Result<Said, CallError>) -> (String, Option<String>, String) {
    match result {
        Err(CallError::Refused { code, field, message }) => (code, field, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_contact_is_written_when_the_answer_names_it() {
    let written = Outcome::Written { remote_id: Some("u-1".to_owned()), created: None };
    assert_eq!(said(200, &json!({"uuid": "u-1"}), false), Ok(Said::Outcome(written)));
    for odd in [json!({}), json!({"uuid": 5}), json!([])] {
        let unknown = said(200, &odd, false);
        assert!(matches!(unknown, Ok(Said::Outcome(Outcome::Unknown { .. }))), "{unknown:?}");
    }
    assert!(matches!(read(&answer(200, "{\"uu"), &record(false)), Err(CallError::Unknown { .. })));
}

#[test]
fn errors_of_three_shapes() {
    let one = json!({"error_type": "TOO_LONG", "error_message": "Anastasia is too long"});
    let named = |field: Option<&str>| {
        let field = field.map(str::to_owned);
        ("TOO_LONG".to_owned(), field, "[value] is too long".to_owned())
    };
    assert_eq!(refused(said(400, &json!({ "errors": one }), false)), named(None));
    assert_eq!(refused(said(422, &json!({"errors": [one]}), true)), named(None));
    assert_eq!(refused(said(400, &json!({"errors": {"name": [one]}}), false)), named(Some("name")));
    let mut with_path = one.clone();
    with_path["path"] = json!("body.name");
    assert_eq!(refused(said(400, &json!({"errors": [with_path]}), false)), named(Some("name")));
    assert_eq!(refused(said(400, &one, false)), named(None), "without `errors`");
}

#[test]
fn races_and_our_own_mistakes() {
    let error = |kind: &str| json!({"errors": {"error_type": kind, "error_message": "x"}});
    let taken = error("EMAIL_ALREADY_IN_USE");
    assert!(matches!(said(400, &taken, false), Ok(Said::Outcome(Outcome::Retry { .. }))));
    assert!(matches!(said(409, &error("X"), true), Ok(Said::Outcome(Outcome::Retry { .. }))));
    assert!(matches!(said(400, &error("CONFLICTING_FIELD"), true), Err(CallError::Refused { .. })));
    assert_eq!(said(404, &error("RESOURCE_NOT_FOUND"), true), Ok(Said::NotThere));
    let misconfigured = said(404, &error("RESOURCE_NOT_FOUND"), false);
    assert!(matches!(misconfigured, Err(CallError::Misconfigured { .. })), "{misconfigured:?}");
    let page = read(&answer(404, "<html>"), &record(true));
    assert!(matches!(page, Err(CallError::Misconfigured { .. })), "not a word of RD Station's");
    let slow = said(429, &error("TOO_MANY_REQUESTS"), true);
    assert!(matches!(slow, Ok(Said::TooMany(CallError::SlowDown { .. }))), "{slow:?}");
}

#[test]
fn the_rest_is_sorted_by_status() {
    for (status, kind) in [
        (301, "misconfigured"),
        (400, "refused"),
        (401, "credentials"),
        (403, "credentials"),
        (413, "refused"),
        (415, "misconfigured"),
        (423, "slow down"),
        (500, "unknown"),
        (502, "unknown"),
    ] {
        let got = match read(&answer(status, "<html>"), &record(true)) {
            Err(CallError::Credentials { .. }) => "credentials",
            Err(CallError::Misconfigured { .. }) => "misconfigured",
            Err(CallError::Refused { .. }) => "refused",
            Err(CallError::SlowDown { .. }) => "slow down",
            Err(CallError::Unknown { .. }) => "unknown",
            other => panic!("{status}: {other:?}"),
        };
        assert_eq!(got, kind, "{status}");
    }
}

/// Values of every shape where the answers have one, some of them true.
fn odd() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec!["RESOURCE_NOT_FOUND", "TAKEN", "body.name", "u-1", "ü"]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..6_u64).prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    let names =
        prop::sample::select(vec!["errors", "error_type", "error_message", "path", "uuid", "name"]);
    leaf.prop_recursive(5, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6).prop_map(|members| {
                Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_answer_is_survived(status in 100..600_u16, body in odd(), cut in 0..200_usize, known in any::<bool>()) {
        let text: String = body.to_string().chars().take(cut).collect();
        for text in [body.to_string(), text] {
            let answer = answer(status, text);
            let said = read(&answer, &record(known));
            let written = matches!(said, Ok(Said::Outcome(Outcome::Written { .. })));
            prop_assert!(!written || (200..300).contains(&status));
            let _ = whole(&answer);
            let _ = super::super::fields::remote(&body, &["name".to_owned()]);
            let _ = super::super::fields::listed(&body);
        }
    }
}
