//! What Brevo's answers mean. An error has a code; which key or attribute is at fault stands in `metadata`, or only in
//! the message.

use std::time::Duration;

use serde_json::Value;

use super::super::client::{Answer, redacted, sent};
use super::super::{CallError, Limit, Outcome, Record};

/// A reset later than this is the hour's.
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// How long to wait for an account that is still being set up.
const PROCESS_PAUSE: Duration = Duration::from_secs(60);

/// The outcome of a write that made a contact.
pub(super) fn created(answer: &Answer) -> Result<Outcome, CallError> {
    let body = answer.json()?;
    match id(&body["id"]) {
        Some(id) => {
            Ok(Outcome::Written { remote_id: Some(id), created: Some(answer.status == 201) })
        }
        None => Err(CallError::Unknown {
            after: None,
            message: format!("{} but the answer names no contact", answer.words()),
        }),
    }
}

/// An id as Brevo writes it.
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

/// The keys that another contact has, in lower case.
fn duplicates(answer: &Answer, body: &Value) -> Vec<String> {
    if answer.status != 400 {
        return Vec::new();
    }
    let listed = body["metadata"]["duplicate_identifiers"].as_array();
    let listed: Vec<String> =
        listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_lowercase).collect();
    let message = body["message"].as_str().unwrap_or_default().to_lowercase();
    match listed.is_empty() {
        false => listed,
        // As older answers have it.
        true if message.contains("contact already exist") => vec!["email".to_owned()],
        true => match message.split_once(" is already associated") {
            Some((before, _)) => {
                let key = before.rsplit([' ', ',']).next().unwrap_or_default();
                vec![key.to_owned()]
            }
            None => Vec::new(),
        },
    }
}

/// Whether another contact has our `key`.
pub(super) fn is_duplicate(answer: &Answer, key: &str) -> bool {
    let body = answer.json().unwrap_or(Value::Null);
    duplicates(answer, &body).iter().any(|k| k == key)
}

/// What a refused write means for its record.
pub(super) fn refused(answer: &Answer, record: &Record) -> Result<Outcome, CallError> {
    let body = answer.json().unwrap_or(Value::Null);
    let duplicates = duplicates(answer, &body);
    if duplicates.is_empty() {
        return match answer.status {
            409 => Ok(Outcome::Retry {
                code: code(answer, &body),
                message: words(answer, &body, record),
            }),
            _ => Err(refusal(answer, Some(record))),
        };
    }
    let (code, message) = (code(answer, &body), words(answer, &body, record));
    let field = record.properties.iter().map(|(property, _)| property);
    let field = field.into_iter().find(|p| duplicates.contains(&p.to_lowercase()));
    match field {
        None if duplicates.iter().all(|key| key == "email") => {
            // Somebody else made the contact in this instant: the next try is an update.
            Ok(Outcome::Retry { code, message })
        }
        field => Ok(Outcome::Rejected { code, field: field.cloned(), message }),
    }
}

/// What an answer means that is neither a success nor about one contact.
pub(super) fn refusal(answer: &Answer, record: Option<&Record>) -> CallError {
    // Of an answer that promises no success this cannot fail.
    let body = answer.json().unwrap_or(Value::Null);
    let message = match record {
        Some(record) => words(answer, &body, record),
        None => redacted(&raw(answer, &body), []),
    };
    let code = code(answer, &body);
    let after = answer.retry_after();
    match (answer.status, code.as_str()) {
        (425, _) | (_, "account_in_process") => {
            CallError::SlowDown { after: Some(after.unwrap_or(PROCESS_PAUSE)), message }
        }
        (401, _) if message.contains("IP address") => CallError::Credentials {
            code,
            message: "Brevo lets in listed addresses only, and this machine's is none of them; add it at Brevo \
                      (Settings, Security, Authorised IPs)"
                .to_owned(),
        },
        (401, _) => CallError::Credentials {
            code,
            message: format!("{message}; make a new API key in Brevo and put it into `token`"),
        },
        (402 | 403, _) => CallError::Credentials { code, message },
        (400, "unauthorized" | "permission_denied" | "account_under_validation") => {
            CallError::Credentials { code, message }
        }
        (423, _) => CallError::SlowDown { after, message },
        (429, _) => CallError::SlowDown { after: after.or_else(|| reset(answer)), message },
        (400 | 409 | 413 | 414 | 422 | 431, _) => {
            let field = record.and_then(|record| field(&body, record));
            CallError::Refused { code, field, message }
        }
        (404 | 405 | 406 | 410 | 415, _) => {
            CallError::Misconfigured { code, message: format!("{message}; is `base_url` right?") }
        }
        (300..400, _) => CallError::Misconfigured {
            code,
            message: format!("{message}; `base_url` leads to a redirect"),
        },
        // The request took too long to arrive, or not all of it did.
        (408 | 421 | 499, _) => CallError::Unknown { after, message },
        (400..500, _) => CallError::Refused { code, field: None, message },
        _ => CallError::Unknown { after, message },
    }
}

/// The property that a message speaks of.
fn field(body: &Value, record: &Record) -> Option<String> {
    let message = body["message"].as_str().unwrap_or_default().to_lowercase();
    let words: Vec<&str> = message
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|w| !w.is_empty())
        .collect();
    let properties = || record.properties.iter().map(|(property, _)| property);
    let named = properties().find(|p| words.contains(&p.to_lowercase().as_str()));
    // "Invalid phone number" names none.
    let phone = || {
        let phones = ["SMS", "WHATSAPP", "LANDLINE_NUMBER"];
        let mut sent = properties().filter(|p| phones.contains(&p.to_uppercase().as_str()));
        sent.next().filter(|_| message.contains("phone"))
    };
    named.or_else(phone).cloned()
}

/// Time until the limit that was met is over.
fn reset(answer: &Answer) -> Option<Duration> {
    let seconds = answer.number("x-sib-ratelimit-reset")?;
    Some(Duration::from_secs(seconds.into()).clamp(SECOND, HOUR))
}

fn code(answer: &Answer, body: &Value) -> String {
    let code = body["code"].as_str().filter(|code| !code.is_empty());
    code.map_or_else(|| answer.status.to_string(), |code| redacted(code, []))
}

fn raw(answer: &Answer, body: &Value) -> String {
    let said = body["message"].as_str().filter(|text| !text.is_empty());
    said.map_or_else(|| answer.words(), str::to_owned)
}

/// Brevo's words without what was sent.
fn words(answer: &Answer, body: &Value, record: &Record) -> String {
    redacted(&raw(answer, body), sent(std::slice::from_ref(record)))
}

/// The limit that the headers speak of: the second's, or near its end the hour's.
pub(super) fn limits(answer: &Answer) -> Vec<Limit> {
    let limit = || {
        let resets_in = Duration::from_secs(answer.number("x-sib-ratelimit-reset")?.into());
        Some(Limit {
            window: if resets_in <= SECOND { SECOND } else { HOUR },
            allowed: answer.number("x-sib-ratelimit-limit"),
            remaining: answer.number("x-sib-ratelimit-remaining")?,
            resets_in: Some(resets_in.min(HOUR)),
        })
    };
    limit().into_iter().collect()
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
            properties: vec![property("FIRSTNAME"), property("sms")],
            creating_for: None,
        }
    }

    fn answer(status: u16, body: Vec<u8>) -> Answer {
        Answer { status, headers: http::HeaderMap::new(), body: Bytes::from(body), broken: None }
    }

    /// Values of every shape where the API has one, some of them true.
    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..60_u64).prop_map(Value::from),
            prop::sample::select(vec![
                "email",
                "SMS",
                "ext_id",
                "Contact already exist",
                "x is already associated with another Contact",
                "duplicate_parameter",
                "account_in_process",
                "Invalid phone number",
                "ü",
                "",
            ])
            .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "id",
            "code",
            "message",
            "metadata",
            "duplicate_identifiers",
            "contacts",
            "attributes",
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
        fn any_answer_is_one_outcome(status in prop_oneof![Just(400_u16), 100..600_u16], body in odd()) {
            let answer = answer(status, body.to_string().into_bytes());
            if let Ok(Outcome::Written { remote_id, .. }) = created(&answer) {
                prop_assert!(remote_id.is_some());
            }
            let outcome = refused(&answer, &record());
            prop_assert!(!matches!(outcome, Ok(Outcome::Written { .. })), "a refusal writes nothing");
            let _ = (read(&answer), refusal(&answer, None), limits(&answer), is_duplicate(&answer, "ext_id"));
        }

        #[test]
        fn any_body_is_survived(status in 100..600_u16, body in prop::collection::vec(any::<u8>(), 0..60)) {
            let answer = answer(status, body);
            let _ = (created(&answer), refused(&answer, &record()), read(&answer));
        }
    }

    #[test]
    fn duplicates_are_read_from_everything_that_tells_them() {
        let told = |body: Value| refused(&answer(400, body.to_string().into_bytes()), &record());
        let of = "is already associated with another Contact";
        let sms = "Unable to create contact, SMS is already associated with another Contact";
        for body in [
            json!({"code": "duplicate_parameter", "message": "Contact already exist"}),
            json!({"code": "invalid_parameter", "message": format!("Unable to update contact, email {of}")}),
            json!({"code": "x", "message": "", "metadata": {"duplicate_identifiers": ["email"]}}),
        ] {
            assert!(matches!(told(body.clone()), Ok(Outcome::Retry { .. })), "{body}");
        }
        for body in [
            json!({"code": "duplicate_parameter", "message": sms}),
            json!({"code": "x", "message": sms, "metadata": {"duplicate_identifiers": ["email", "SMS"]}}),
        ] {
            let Ok(Outcome::Rejected { field, .. }) = told(body.clone()) else { panic!("{body}") };
            assert_eq!(field.as_deref(), Some("sms"));
        }
        let other = json!({"code": "x", "metadata": {"duplicate_identifiers": ["WHATSAPP"]}});
        assert!(matches!(told(other), Ok(Outcome::Rejected { field: None, .. })));
    }
}
