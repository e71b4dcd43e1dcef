//! What Pipedrive's answers mean. The status says most; of a 403 the body says whether it is a scope, the plan, or the
//! edge that blocks whoever went on after a 429.

use std::time::Duration;

use serde_json::Value;

use super::super::client::{Answer, redacted, sent};
use super::super::{CallError, Limit, Outcome, Record};
use super::fields::CONTACT_SYNC;

/// The day's tokens come back at midnight of a zone that nobody tells: look again every hour.
const DAY_PAUSE: Duration = Duration::from_secs(3600);
/// The burst window.
const BURST: Duration = Duration::from_secs(2);
/// How long to leave the edge alone once it blocks.
const BLOCK_PAUSE: Duration = Duration::from_secs(300);

/// The outcome of a write. `asked`: the id in its path, where there is one.
pub(super) fn written(
    answer: &Answer,
    asked: Option<&str>,
    record: &Record,
) -> Result<Outcome, CallError> {
    match (answer.status, asked) {
        (200..300, _) => {}
        (404 | 410, Some(_)) => return Ok(Outcome::Gone),
        (409, _) => {
            let body = answer.json()?;
            let (code, message) = (code(answer, &body), words(answer, &body, record));
            return Ok(Outcome::Retry { code, message });
        }
        _ => return Err(refusal(answer, Some(record))),
    }
    let body = answer.json()?;
    if asked.is_some() && body["data"]["is_deleted"] == true {
        // It took the write, but nobody sees the person any more.
        return Ok(Outcome::Gone);
    }
    match id(&body["data"]["id"]).filter(|_| body["success"] != false) {
        Some(id) => Ok(Outcome::Written { remote_id: Some(id), created: Some(asked.is_none()) }),
        None => Err(CallError::Unknown {
            after: None,
            message: format!("{} but the answer names no person", answer.words()),
        }),
    }
}

/// An id as Pipedrive writes it.
pub(super) fn id(value: &Value) -> Option<String> {
    value.as_u64().map(|id| id.to_string())
}

/// The body of an answer to a read, or why there is none.
pub(super) fn read(answer: &Answer) -> Result<Value, CallError> {
    match answer.status {
        200..300 => answer.json(),
        _ => Err(refusal(answer, None)),
    }
}

/// What an answer means that is neither a success nor about one person that is gone.
pub(super) fn refusal(answer: &Answer, record: Option<&Record>) -> CallError {
    // Of an answer that promises no success this cannot fail.
    let body = answer.json().unwrap_or(Value::Null);
    let nobody = Vec::new();
    let properties = record.map_or(&nobody, |r| &r.properties);
    let message = match record {
        Some(record) => words(answer, &body, record),
        None => redacted(&raw(answer, &body), []),
    };
    let code = code(answer, &body);
    let after = answer.retry_after();
    match answer.status {
        401 => CallError::Credentials {
            code,
            message: format!(
                "{message}; is the token that of a user who is still there? Pipedrive shows it under Personal \
                 preferences, API"
            ),
        },
        402 => CallError::Credentials { code, message },
        403 if !body.is_object() => CallError::SlowDown {
            after: Some(after.unwrap_or(BLOCK_PAUSE)),
            message: "Pipedrive's edge blocks our calls, as it does after too many of them"
                .to_owned(),
        },
        403 if properties.iter().any(|(p, _)| CONTACT_SYNC.contains(&p.as_str())) => {
            CallError::Misconfigured {
                code,
                message: format!(
                    "{message}; {} need Pipedrive's contact sync to be on",
                    CONTACT_SYNC.join(", ")
                ),
            }
        }
        403 if message.contains("Scope") => CallError::Credentials {
            code,
            message: format!("{message}; the app needs the scopes contacts:full and search:read"),
        },
        403 => CallError::Credentials { code, message },
        423 | 425 => CallError::SlowDown { after, message },
        429 => CallError::SlowDown { after: Some(after.unwrap_or_else(|| pause(answer))), message },
        400 | 409 | 413 | 414 | 422 | 431 => {
            let named = properties.iter().map(|(property, _)| property).find(|p| named(&body, p));
            CallError::Refused { code, field: named.cloned(), message }
        }
        404 | 405 | 410 | 415 => {
            CallError::Misconfigured { code, message: format!("{message}; is `base_url` right?") }
        }
        300..400 => CallError::Misconfigured {
            code,
            message: format!("{message}; `base_url` leads to a redirect"),
        },
        // The request took too long to arrive, or not all of it did.
        408 | 421 | 499 => CallError::Unknown { after, message },
        400..500 => CallError::Refused { code, field: None, message },
        _ => CallError::Unknown { after, message },
    }
}

/// Whether the error's text names a field, by its name or its code.
fn named(body: &Value, property: &str) -> bool {
    let text = body["error"].as_str().unwrap_or_default();
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(property).any(|(at, _)| {
        let before = text.get(..at).is_some_and(|t| t.ends_with(inside));
        let after = text.get(at + property.len()..).is_some_and(|t| t.starts_with(inside));
        !before && !after
    })
}

/// How long to wait after a 429 without `Retry-After`.
fn pause(answer: &Answer) -> Duration {
    if answer.number("x-daily-ratelimit-token-remaining") == Some(0) {
        return DAY_PAUSE;
    }
    let reset =
        answer.number("x-ratelimit-reset").map(|seconds| Duration::from_secs(seconds.into()));
    // Its unit is not documented: something in milliseconds must not stop us for half an hour.
    reset.filter(|reset| *reset <= DAY_PAUSE).unwrap_or(BURST).max(BURST)
}

fn code(answer: &Answer, body: &Value) -> String {
    let code = body["code"].as_str().filter(|code| !code.is_empty());
    code.map_or_else(|| answer.status.to_string(), |code| redacted(code, []))
}

fn raw(answer: &Answer, body: &Value) -> String {
    let said = body["error"].as_str().filter(|text| !text.is_empty());
    said.map_or_else(|| answer.words(), str::to_owned)
}

/// Pipedrive's words without what was sent.
fn words(answer: &Answer, body: &Value, record: &Record) -> String {
    redacted(&raw(answer, body), sent(std::slice::from_ref(record)))
}

/// The burst window and the day's tokens, as the headers tell them. A push takes up to two requests, so half of the
/// requests are so many calls.
pub(super) fn limits(answer: &Answer) -> Vec<Limit> {
    let burst = || {
        Some(Limit {
            window: BURST,
            allowed: answer.number("x-ratelimit-limit").map(|limit| limit / 2),
            remaining: answer.number("x-ratelimit-remaining")? / 2,
            resets_in: answer
                .number("x-ratelimit-reset")
                .filter(|seconds| *seconds <= 60)
                .map(|seconds| Duration::from_secs(seconds.into())),
        })
    };
    let day = || {
        Some(Limit {
            window: Duration::from_secs(86_400),
            allowed: answer.number("x-daily-ratelimit-token-limit"),
            remaining: answer.number("x-daily-ratelimit-token-remaining")?,
            resets_in: None,
        })
    };
    burst().into_iter().chain(day()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::lead::Lead;

    fn record() -> Record {
        let lead = Lead { email: "ana@example.com".to_owned(), ..Lead::default() };
        let property = |name: &str| (name.to_owned(), Some("Padaria".to_owned()));
        Record {
            lead: Arc::new(lead),
            remote_id: None,
            properties: vec![property("company"), property("job_title")],
            creating_for: None,
        }
    }

    fn answer(status: u16, headers: &[(&'static str, &str)], body: Vec<u8>) -> Answer {
        let header = |(name, value): &(&'static str, &str)| {
            Some((http::HeaderName::from_static(name), value.parse().ok()?))
        };
        let headers = headers.iter().filter_map(header).collect();
        Answer { status, headers, body: Bytes::from(body), broken: None }
    }

    /// Values of every shape where the API has one, some of them true.
    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..600_u64).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop::sample::select(vec![
                "501",
                "company",
                "x of company",
                "ü",
                "Scope",
                "feature_capping_x",
                ""
            ])
            .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "success",
            "data",
            "id",
            "error",
            "errorCode",
            "code",
            "emails",
            "phones",
            "value",
            "primary",
            "custom_fields",
            "items",
            "item",
            "is_deleted",
        ]);
        leaf.prop_recursive(4, 24, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((names.clone(), inner), 0..6).prop_map(|members| {
                    Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_answer_is_one_outcome(
            status in prop_oneof![
                100..600_u16,
                prop::sample::select(vec![200_u16, 201, 204, 400, 401, 403, 404, 409, 410, 429, 500])
            ],
            body in odd(),
            asked in any::<bool>(),
            header in "[ -~]{0,12}",
        ) {
            let names = ["x-ratelimit-reset", "x-ratelimit-remaining", "x-daily-ratelimit-token-remaining", "retry-after"];
            let headers = names.map(|name| (name, header.as_str()));
            let answer = answer(status, &headers, body.to_string().into_bytes());
            let outcome = written(&answer, asked.then_some("501"), &record());
            if let Ok(Outcome::Written { remote_id, .. }) = outcome {
                prop_assert!((200..300).contains(&status));
                prop_assert!(body["data"]["id"].is_u64() && remote_id.is_some());
            }
            let _ = (read(&answer), refusal(&answer, None), limits(&answer));
            let _ = super::super::person::remote(&body, &[]);
        }

        #[test]
        fn any_body_is_survived(status in 100..600_u16, body in prop::collection::vec(any::<u8>(), 0..60)) {
            let answer = answer(status, &[], body);
            let _ = (written(&answer, None, &record()), read(&answer));
        }
    }

    #[test]
    fn a_field_is_named_by_whole_words() {
        for (text, field) in [
            ("Parameter 'company' is odd", Some("company")),
            ("custom_fields.company: too long", Some("company")),
            ("mycompany and companyx", None),
            ("", None),
        ] {
            let body = json!({"error": text}).to_string().into_bytes();
            let refused = refusal(&answer(400, &[], body), Some(&record()));
            let CallError::Refused { field: named, .. } = refused else { panic!("{refused:?}") };
            assert_eq!(named.as_deref(), field, "{text}");
        }
    }

    #[test]
    fn pauses_of_limits() {
        let pause = |headers: &[(&'static str, &str)]| match refusal(
            &answer(429, headers, Vec::new()),
            None,
        ) {
            CallError::SlowDown { after: Some(after), .. } => after.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(pause(&[]), 2);
        assert_eq!(pause(&[("x-ratelimit-reset", "1")]), 2, "the window is two seconds long");
        assert_eq!(pause(&[("x-ratelimit-reset", "5")]), 5);
        assert_eq!(pause(&[("x-ratelimit-reset", "1784000000")]), 2, "not seconds");
        assert_eq!(pause(&[("x-daily-ratelimit-token-remaining", "0")]), 3600);
        assert_eq!(pause(&[("retry-after", "9"), ("x-daily-ratelimit-token-remaining", "0")]), 9);
    }
}
