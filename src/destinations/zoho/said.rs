//! What Zoho's answers mean. A batch is answered with one item per record in the order of the records, under `data`,
//! whatever the status; a refused call with one error of the same shape.

use std::time::Duration;

use serde_json::Value;

use super::super::client::{Answer, redacted, sent};
use super::super::{CallError, Limit, Outcome, Record};
use super::SCOPES;
use super::fields::property;

/// Credits come back in the course of a day and nobody tells when: look again every hour.
const DAY_PAUSE: Duration = Duration::from_secs(3600);
/// Too many calls at once: they end by themselves.
const BUSY_PAUSE: Duration = Duration::from_secs(10);

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Written {
        id: Option<String>,
        created: Option<bool>,
    },
    Failed(Fault),
    /// It says neither.
    Silent,
}

/// Why a record was not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fault {
    /// `INVALID_DATA` and the like.
    pub code: String,
    pub field: Option<String>,
    /// Zoho's words as they came, with what was expected.
    words: String,
    /// The record that has the value already.
    duplicate: Option<String>,
}

/// What a fault comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Is(Outcome),
    /// Not known by its id: whether it was converted or is gone has to be looked up.
    Moved,
    /// The rights of the user on this record, or on all of them.
    Rights,
    /// Every record would fail in the same way.
    Stop(CallError),
}

impl Fault {
    fn new(error: &Value) -> Fault {
        let details = &error["details"];
        let mut words = error["message"].as_str().unwrap_or_default().to_owned();
        for (name, what) in
            [("expected_data_type", "expected"), ("maximum_length", "at most, in characters")]
        {
            if let Some(text) = id(&details[name]) {
                words = format!("{words}; {what}: {text}");
            }
        }
        let duplicate = &details["duplicate_record"]["id"];
        Fault {
            code: redacted(error["code"].as_str().unwrap_or("UNKNOWN"), []),
            field: details["api_name"].as_str().map(|field| redacted(field, [])),
            words,
            duplicate: id(duplicate).or_else(|| id(&details["id"])),
        }
    }

    /// Zoho's words without what was sent.
    fn message(&self, record: &Record) -> String {
        redacted(&self.words, sent(std::slice::from_ref(record)))
    }

    pub fn rejected(&self, record: &Record) -> Outcome {
        let mut message = self.message(record);
        if let (Some(id), "DUPLICATE_DATA") = (&self.duplicate, self.code.as_str()) {
            message = format!("{message}: the record {id} has this value");
        }
        let field = self.field.as_deref().map(|field| property(field, record));
        Outcome::Rejected { code: self.code.clone(), field, message }
    }

    /// Where every record fails: the error that stops the destination.
    pub fn stop(&self, record: &Record) -> CallError {
        let message = self.message(record);
        CallError::Credentials {
            code: self.code.clone(),
            message: format!(
                "{message}; give the user of the token the right to create and edit records"
            ),
        }
    }

    /// `key`: the field that records are told apart by.
    pub fn verdict(&self, record: &Record, key: &str) -> Verdict {
        let retry = || Outcome::Retry { code: self.code.clone(), message: self.message(record) };
        let by_id = record.remote_id.is_some();
        let field = self.field.as_deref().unwrap_or_default();
        match self.code.as_str() {
            "RECORD_LOCKED" | "TOO_MANY_REQUESTS" => Verdict::Is(retry()),
            "INTERNAL_ERROR" => Verdict::Is(Outcome::Unknown { message: self.message(record) }),
            "INVALID_DATA" if by_id && field == "id" => Verdict::Moved,
            "CONVERTED_RECORD" | "RECORD_CONVERTED" | "ID_ALREADY_CONVERTED" if by_id => {
                Verdict::Moved
            }
            // Somebody else was first. The same about another unique field is a fault of the record.
            "DUPLICATE_DATA" if !by_id && (field == key || field == "Email") => {
                Verdict::Is(match &self.duplicate {
                    Some(id) => Outcome::Exists { remote_id: id.clone() },
                    None => retry(),
                })
            }
            "NO_PERMISSION" | "AUTHORIZATION_FAILED" | "PERMISSION_DENIED" => Verdict::Rights,
            "INVALID_MODULE" => Verdict::Stop(CallError::Misconfigured {
                code: self.code.clone(),
                message: self.message(record),
            }),
            _ => Verdict::Is(self.rejected(record)),
        }
    }
}

/// An id, which Zoho writes as text and some of its clients as a number.
pub(super) fn id(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(redacted(text, [])),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// One item per record sent, or why there is none.
pub(super) fn items(answer: &Answer, records: &[(usize, &Record)]) -> Result<Vec<Item>, CallError> {
    let body = answer.json()?;
    let listed = body["data"].as_array().map(Vec::as_slice);
    let list = match (answer.status, listed) {
        (200..300, None) => &[],
        // All of them failed; or the call did, and then the list has no place for every record.
        (400 | 403 | 409 | 412, Some(list)) if list.len() == records.len() => list,
        (200..300, Some(list)) => list,
        _ => return Err(refusal(answer, &body, records)),
    };
    // An item does not name its record: where one is missing nobody can tell which.
    if list.len() != records.len() {
        let message = format!("{} items for {} records", list.len(), records.len());
        return Err(CallError::Unknown { after: None, message });
    }
    Ok(list.iter().map(item).collect())
}

fn item(item: &Value) -> Item {
    match (item["status"].as_str(), item["code"].as_str()) {
        (Some("success"), Some("SUCCESS")) => Item::Written {
            id: id(&item["details"]["id"]),
            created: item["action"].as_str().map(|action| action == "insert"),
        },
        (Some("error"), Some(_)) => Item::Failed(Fault::new(item)),
        _ => Item::Silent,
    }
}

/// What an answer means that has no items.
pub(super) fn refusal(answer: &Answer, body: &Value, records: &[(usize, &Record)]) -> CallError {
    // One error, or the first of a list.
    let error = body["data"].as_array().and_then(|list| list.first()).unwrap_or(body);
    let said = Fault::new(error);
    let code = match error["code"].as_str() {
        Some(_) => said.code,
        None => answer.status.to_string(),
    };
    let message = match error["message"].as_str() {
        None | Some("") => answer.words(),
        Some(_) => {
            let values = records.iter().flat_map(|(_, r)| sent(std::slice::from_ref(*r)));
            redacted(&said.words, values)
        }
    };
    let after = answer.retry_after();
    match answer.status {
        401 if code == "OAUTH_SCOPE_MISMATCH" => CallError::Credentials {
            code,
            message: format!("{message}; make a new refresh token with the scopes {SCOPES}"),
        },
        401 => CallError::Credentials {
            code,
            message: format!("{message}; is `base_url` that of the data centre of your account?"),
        },
        402 | 403 => CallError::Credentials { code, message },
        423 | 425 => CallError::SlowDown { after, message },
        429 => {
            let spent = answer.header("x-api-credits-remaining") == Some("0");
            let pause = if spent { DAY_PAUSE } else { BUSY_PAUSE };
            CallError::SlowDown { after: Some(after.unwrap_or(pause)), message }
        }
        408 | 421 | 499 => CallError::Unknown { after, message },
        400 if said.field.as_deref() == Some("duplicate_check_fields") => {
            CallError::Misconfigured {
                code,
                message: format!(
                    "{message}; set \"Do not allow duplicate values\" for the field of `key_property`"
                ),
            }
        }
        400 if matches!(
            code.as_str(),
            "INVALID_MODULE" | "INVALID_QUERY" | "INVALID_REQUEST_METHOD"
        ) =>
        {
            CallError::Misconfigured { code, message }
        }
        400 | 409 | 412 | 413 | 414 | 422 | 431 => {
            CallError::Refused { code, field: said.field, message }
        }
        404 | 405 | 410 | 415 => {
            CallError::Misconfigured { code, message: format!("{message}; is `base_url` right?") }
        }
        300..400 => CallError::Misconfigured {
            code,
            message: format!("{message}; `base_url` leads to a redirect"),
        },
        400..500 => CallError::Refused { code, field: said.field, message },
        _ => CallError::Unknown { after, message },
    }
}

/// The day's credits; told only when half of them are gone.
pub(super) fn limits(answer: &Answer) -> Vec<Limit> {
    let left = answer.number("x-api-credits-remaining");
    let limit = |remaining| Limit {
        window: Duration::from_secs(86_400),
        allowed: None,
        remaining,
        resets_in: None,
    };
    left.map(limit).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::lead::Lead;

    fn record(remote_id: Option<&str>) -> Record {
        let lead = Lead { email: "ana@example.com".to_owned(), ..Lead::default() };
        let properties = vec![("Last_Name".to_owned(), Some("Anastasia".to_owned()))];
        Record {
            lead: Arc::new(lead),
            remote_id: remote_id.map(str::to_owned),
            creating_for: None,
            properties,
        }
    }

    fn answer(status: u16, body: &Value) -> Answer {
        let body = Bytes::from(body.to_string());
        Answer { status, headers: http::HeaderMap::new(), body, broken: None }
    }

    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..6_u64).prop_map(Value::from),
            prop::sample::select(vec![
                "success",
                "error",
                "SUCCESS",
                "INVALID_DATA",
                "DUPLICATE_DATA",
                "id",
                "Email",
                "ü",
                "",
            ])
            .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "id",
            "status",
            "code",
            "action",
            "details",
            "message",
            "data",
            "api_name",
            "duplicate_record",
            "expected_data_type",
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
        fn any_answer_gives_one_item_per_record(
            status in prop::sample::select(vec![200_u16, 201, 202, 204, 207, 302, 400, 401, 403, 404, 429, 500, 599]),
            data in odd(),
            whole in any::<bool>(),
            n in 1..5_usize,
            known in prop::option::of("55440000[0-9]{5}"),
        ) {
            let records = vec![record(known.as_deref()); n];
            let records: Vec<(usize, &Record)> = records.iter().enumerate().collect();
            let body = if whole { data } else { json!({ "data": data }) };
            if let Ok(items) = items(&answer(status, &body), &records) {
                prop_assert_eq!(items.len(), n);
                for (item, (_, record)) in items.iter().zip(records) {
                    if let Item::Failed(fault) = item {
                        let _ = fault.verdict(record, "Email");
                    }
                }
            }
        }
    }

    fn fault(code: &str, message: &str, details: Value) -> Fault {
        Fault::new(
            &json!({"code": code, "message": message, "details": details, "status": "error"}),
        )
    }

    #[test]
    fn faults_are_sorted() {
        let (new, known) = (record(None), record(Some("5544000000000001000")));
        let of = |fault: Fault, record: &Record| fault.verdict(record, "Lead_Key");
        let details = json!({"api_name": "Lead_Key", "duplicate_record": {"id": "77"}});
        let exists = Outcome::Exists { remote_id: "77".to_owned() };
        assert_eq!(
            of(fault("DUPLICATE_DATA", "duplicate data", details.clone()), &new),
            Verdict::Is(exists)
        );
        let older = json!({"api_name": "Email", "id": 77});
        let exists = Outcome::Exists { remote_id: "77".to_owned() };
        assert_eq!(of(fault("DUPLICATE_DATA", "duplicate data", older), &new), Verdict::Is(exists));
        for (code, details, record) in [
            ("DUPLICATE_DATA", details, &known),
            ("DUPLICATE_DATA", json!({"api_name": "Phone", "id": "77"}), &new),
            ("INVALID_DATA", json!({"api_name": "id"}), &new),
            ("INVALID_DATA", json!({"api_name": "Last_Name"}), &known),
            ("MANDATORY_NOT_FOUND", json!({"api_name": "Company"}), &new),
            ("SOMETHING_NEW", json!(null), &new),
        ] {
            let verdict = of(fault(code, "Anastasia", details), record);
            let Verdict::Is(Outcome::Rejected { message, .. }) = verdict else { panic!("{code}") };
            assert!(!message.contains("Anastasia"), "{message}");
        }
        assert_eq!(
            of(fault("INVALID_DATA", "", json!({"api_name": "id"})), &known),
            Verdict::Moved
        );
        assert_eq!(of(fault("CONVERTED_RECORD", "", json!({})), &known), Verdict::Moved);
        let locked = of(fault("RECORD_LOCKED", "", json!({})), &known);
        assert!(matches!(locked, Verdict::Is(Outcome::Retry { .. })));
        assert_eq!(of(fault("NO_PERMISSION", "", json!({})), &known), Verdict::Rights);
    }
}
