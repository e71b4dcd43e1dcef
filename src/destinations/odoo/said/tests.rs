use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::super::super::client::Answer;
use super::super::rpc::{read_json2, read_rpc};
use super::*;
use crate::lead::Lead;

fn records(n: u128) -> Vec<Record> {
    let record = |at| Record {
        lead: Arc::new(Lead {
            lead_id: uuid::Uuid::from_u128(at),
            email: format!("n{at}@example.com"),
            ..Lead::default()
        }),
        remote_id: (at % 2 == 0).then(|| (at + 1).to_string()),
        creating_for: None,
        properties: vec![("name".to_owned(), Some("Anastasia".to_owned()))],
    };
    (0..n).map(record).collect()
}

const MODEL: &str = "res.partner";

fn read(result: &Value, n: u128) -> Loaded {
    loaded(result, &records(n), MODEL)
}

fn message(record: usize, field: Option<&str>, text: &str) -> Value {
    let mut message = json!({"type": "error", "record": record, "message": text});
    if let Some(field) = field {
        message["field"] = json!(field);
    }
    message
}

fn undone(messages: &[Value], n: u128) -> Vec<Outcome> {
    match read(&json!({"ids": false, "messages": messages}), n) {
        Loaded::Outcomes(outcomes) => outcomes,
        failed => panic!("{failed:?}"),
    }
}

#[test]
fn ids_are_lined_up_by_position() {
    let id = |id: &str, created| Outcome::Written { remote_id: Some(id.to_owned()), created };
    let good = json!({"ids": [1, 9], "messages": []});
    assert_eq!(read(&good, 2), Loaded::Outcomes(vec![id("1", Some(false)), id("9", None)]));
    for odd in
        [json!([1]), json!([1, 2, 3]), json!([1, "2"]), json!([1, null]), json!([1, -4]), json!([])]
    {
        let Loaded::Outcomes(outcomes) = read(&json!({ "ids": odd }), 2) else { panic!("{odd}") };
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Unknown { .. })), "{odd}");
    }
    let Loaded::Outcomes(outcomes) = read(&json!({}), 2) else { panic!() };
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Unknown { .. })));
}

#[test]
fn a_word_that_odoo_only_guessed_is_refused() {
    let warning = json!({
        "type": "warning", "record": 1, "field": "is_company",
        "message": "Unknown value 'maybe' for boolean field 'Is a Company', assuming 'yes'",
    });
    let Loaded::Outcomes(outcomes) = read(&json!({"ids": [1, 2], "messages": [warning]}), 2) else {
        panic!()
    };
    assert!(matches!(outcomes[0], Outcome::Written { .. }));
    let Outcome::Rejected { code, field, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!((code.as_str(), field.as_deref()), ("WARNING", Some("is_company")));
}

#[test]
fn the_culprits_are_named_and_the_others_try_again() {
    let outcomes = undone(
        &[
            message(0, Some(".id"), "Unknown database identifier '1'"),
            message(0, None, "'Contacts require a name'"),
            message(
                3,
                Some("type"),
                "Value 'Anastasia' not found in selection field 'Address Type'",
            ),
        ],
        4,
    );
    assert_eq!(outcomes[0], Outcome::Gone);
    assert!(matches!(&outcomes[1], Outcome::Retry { code, .. } if code == "ROLLED_BACK"));
    let Outcome::Rejected { field, message, .. } = &outcomes[3] else { panic!("{outcomes:?}") };
    assert_eq!(field.as_deref(), Some("type"));
    assert_eq!(message, "Value '[value]' not found in selection field 'Address Type'");
}

#[test]
fn a_lost_race_is_nobodys_fault_in_any_language() {
    for text in [
        "could not serialize access due to concurrent update\n",
        "não pôde serializar acesso devido a atualização concorrente",
        "konnte Zugriff nicht serialisieren wegen gleichzeitiger Aktualisierung",
        "n'a pas pu sérialiser un accès à cause d'une mise à jour en parallèle",
        "deadlock detected\nDETAIL: …",
        "Unknown error during import: <class 'psycopg2.errors.LockNotAvailable'>: x",
    ] {
        let outcomes = undone(&[message(0, None, text)], 2);
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Retry { .. })), "{text}");
    }
}

#[test]
fn a_lacking_right_is_told_from_a_record_of_another_model() {
    let denied = |model: &str| {
        let text = format!(
            "Unknown error during import: <class 'odoo.exceptions.AccessError'>: You are not allowed to modify \
             'X' ({model}) records.\n\nThis operation is allowed for the following groups:"
        );
        json!({"ids": false, "messages": [message(0, None, &text)]})
    };
    let failed = read(&denied(MODEL), 1);
    assert!(matches!(failed, Loaded::Failed(CallError::Credentials { .. })), "{failed:?}");
    let Loaded::Outcomes(outcomes) = read(&denied("res.users"), 1) else { panic!() };
    let Outcome::Rejected { code, message, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(code, "AccessError");
    assert_eq!(message, "You are not allowed to modify 'X' (res.users) records.");
}

#[test]
fn without_a_culprit_the_call_is_halved() {
    for messages in [
        json!([]),
        json!([{"type": "error", "message": "x"}]),
        json!([message(9, None, "x")]),
        json!(5),
    ] {
        let failed = read(&json!({"ids": false, "messages": messages}), 2);
        assert!(matches!(failed, Loaded::Failed(CallError::Refused { .. })), "{failed:?}");
    }
}

#[test]
fn exceptions_are_sorted() {
    let records = records(2);
    let sort = |name: &str, message: &str| {
        let raised = Raised { name: name.to_owned(), message: message.to_owned() };
        let about = About { model: MODEL, database: Some("crm"), records: &records };
        let columns = ["id".to_owned(), "country_id/code".to_owned(), "nosuch".to_owned()];
        match failed(Failure::Raised(raised), &columns, &about) {
            Loaded::Failed(CallError::Credentials { .. }) => "credentials",
            Loaded::Failed(CallError::Misconfigured { .. }) => "misconfigured",
            Loaded::Failed(CallError::Refused { .. }) => "refused",
            Loaded::Failed(CallError::Unknown { .. }) => "unknown",
            Loaded::Failed(other) => panic!("{other:?}"),
            Loaded::Outcomes(all) => {
                assert!(all.iter().all(|o| matches!(o, Outcome::Retry { .. })));
                "retry"
            }
        }
    };
    for (name, message, kind) in [
        ("odoo.exceptions.AccessDenied", "Access Denied", "credentials"),
        ("odoo.exceptions.AccessError", "You are not allowed", "credentials"),
        ("odoo.exceptions.MissingError", "gone (Record: res.users(9,), User: 9)", "credentials"),
        ("odoo.exceptions.MissingError", "gone (Record: res.partner(9,), User: 6)", "refused"),
        ("werkzeug.exceptions.Unauthorized", "Invalid apikey", "credentials"),
        ("psycopg2.OperationalError", "FATAL:  database \"crm\" does not exist", "misconfigured"),
        ("psycopg2.OperationalError", "server closed the connection unexpectedly", "unknown"),
        ("psycopg2.InterfaceError", "connection already closed", "unknown"),
        ("psycopg2.errors.SerializationFailure", "could not", "retry"),
        ("psycopg2.extensions.TransactionRollbackError", "x", "retry"),
        ("psycopg2.errors.InvalidDatetimeFormat", "invalid input syntax", "refused"),
        ("builtins.KeyError", "nosuch", "misconfigured"),
        ("builtins.KeyError", "code", "misconfigured"),
        ("builtins.KeyError", "of somebody's own module", "refused"),
        ("builtins.ValueError", "Invalid field 'x' on model 'res.partner'", "misconfigured"),
        ("builtins.ValueError", "could not convert", "refused"),
        ("odoo.exceptions.UserError", "Object res.partner doesn't exist", "misconfigured"),
        ("odoo.exceptions.UserError", "Fill in the tax id", "refused"),
        ("odoo.exceptions.ValidationError", "no", "refused"),
    ] {
        assert_eq!(sort(name, message), kind, "{name}: {message}");
    }
}

fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    Answer { status, headers: http::HeaderMap::new(), body: body.into(), broken: None }
}

#[test]
fn answers_without_a_word_of_odoos() {
    let kind = |failure: Failure| match failure {
        Failure::Call(CallError::Credentials { .. }) => "credentials",
        Failure::Call(CallError::Misconfigured { .. }) => "misconfigured",
        Failure::Call(CallError::Refused { .. }) => "refused",
        Failure::Call(CallError::SlowDown { .. }) => "slow down",
        Failure::Call(CallError::Unknown { .. }) => "unknown",
        other => panic!("{other:?}"),
    };
    for (status, expected) in [
        (200, "unknown"),
        (301, "misconfigured"),
        (400, "refused"),
        (401, "credentials"),
        (403, "credentials"),
        (404, "misconfigured"),
        (413, "refused"),
        (429, "slow down"),
        (500, "unknown"),
        (502, "unknown"),
        (504, "unknown"),
    ] {
        for read in [read_rpc, read_json2] {
            let page = answer(status, "<html>Bad Gateway</html>");
            assert_eq!(kind(read(&page).unwrap_err()), expected, "{status}");
        }
    }
    let nothing = answer(200, "{\"jsonrpc\":\"2.0\",\"id\":1}");
    assert_eq!(kind(read_rpc(&nothing).unwrap_err()), "unknown");
    let raised = json!({"name": "odoo.exceptions.AccessError", "message": "no", "debug": "secret"});
    let inside = answer(200, json!({"error": {"data": raised}}).to_string());
    assert!(matches!(read_rpc(&inside), Err(Failure::Raised(r)) if r.short() == "AccessError"));
    let outside = answer(403, raised.to_string());
    assert!(matches!(read_json2(&outside), Err(Failure::Raised(r)) if r.short() == "AccessError"));
}

/// Values of every shape where the answers have one, some of them true.
fn odd() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "error",
        "warning",
        ".id",
        "name",
        "could not serialize access",
        "Unknown error during import: <class 'odoo.exceptions.AccessError'>: no (res.partner)",
        "<class '",
        "<class 'ü'>: ",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1..6_i64).prop_map(Value::from),
        words.prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "ids", "messages", "message", "record", "field", "type", "rows", "error", "data", "name",
        "result",
    ]);
    leaf.prop_recursive(4, 24, 6, move |inner| {
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
    fn any_result_gives_one_outcome_per_record(ids in odd(), messages in odd(), n in 1..5_u128) {
        let result = json!({"ids": ids, "messages": messages});
        if let Loaded::Outcomes(outcomes) = read(&result, n) {
            prop_assert_eq!(outcomes.len(), records(n).len());
            let all = result["ids"].as_array().map_or(0, Vec::len);
            let written = outcomes.iter().any(|o| matches!(o, Outcome::Written { .. }));
            prop_assert!(!written || all == outcomes.len());
        }
    }

    #[test]
    fn any_body_is_survived(status in 100..600_u16, body in odd(), cut in 0..200_usize) {
        let text = body.to_string();
        let text: String = text.chars().take(cut).collect();
        for text in [body.to_string(), text] {
            let answer = answer(status, text);
            for read in [read_rpc, read_json2] {
                let records = records(2);
                let about = About { model: MODEL, database: None, records: &records };
                match read(&answer) {
                    Ok(result) => { let _ = loaded(&result, &records, MODEL); }
                    Err(failure) => { let _ = failed(failure, &["id".to_owned()], &about); }
                }
            }
        }
    }
}
