//! What the answer to a batch write says about each of its records.

use std::collections::HashMap;

use serde_json::Value;

use super::super::client::{Answer, redacted};
use super::super::{CallError, Outcome, Record};
use super::said::{self, Blame, Said};
use super::{id, items, texts};

/// Records of one call are all known by id, or all by e-mail.
fn by_id(records: &[Record]) -> bool {
    records.iter().all(|record| record.remote_id.is_some())
}

/// One outcome per record, or why there is none.
pub(super) fn read(answer: &Answer, records: &[Record]) -> Result<Vec<Outcome>, CallError> {
    let body = answer.json()?;
    if answer.status == 409 {
        // Somebody else created one of them in this instant: nothing was written, the next try is an update.
        let said = Said::new(&body, answer);
        let message = said.message(records);
        let outcome = match (records.len(), said.existing()) {
            (1, Some(remote_id)) => Outcome::Exists { remote_id },
            _ => Outcome::Retry { code: said.code, message },
        };
        return Ok(vec![outcome; records.len()]);
    }
    if answer.status == 404 && by_id(records) && Said::new(&body, answer).is_missing() {
        return match records.len() {
            1 => Ok(vec![Outcome::Gone]),
            // Halved, until each one tells.
            _ => Err(CallError::Refused {
                code: "OBJECT_NOT_FOUND".to_owned(),
                field: None,
                message: "some of the contacts are not there any more".to_owned(),
            }),
        };
    }
    if !(200..300).contains(&answer.status) {
        return Err(said::refusal(answer, &body, records));
    }
    if let Some(status) = body["status"].as_str().filter(|s| *s != "COMPLETE") {
        let message = format!("the batch is {}", redacted(status, []));
        return Err(CallError::Unknown { after: None, message });
    }
    line_up(&body, answer, records)
}

/// Gives every record what the answer says about it; never by position.
fn line_up(body: &Value, answer: &Answer, records: &[Record]) -> Result<Vec<Outcome>, CallError> {
    let mut by_trace = HashMap::new();
    // What the call named the record by: a contact known by its id may have any e-mail by now.
    let mut by_key = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        by_trace.insert(record.lead.lead_id.to_string(), at);
        let email = || record.lead.email.to_lowercase();
        by_key.insert(record.remote_id.clone().unwrap_or_else(email), at);
    }
    let (results, errors) = (items(body, "results"), items(body, "errors"));
    let mut outcomes: Vec<Option<Outcome>> = vec![None; records.len()];
    let mut name = |at: Option<usize>, outcome: Outcome| {
        let Some(slot) = at.and_then(|at| outcomes.get_mut(at)) else { return };
        *slot = Some(match slot.take() {
            None => outcome,
            Some(_) => Outcome::Unknown { message: "the answer names the record twice".to_owned() },
        });
    };
    for result in results {
        let trace = texts(&result["objectWriteTraceId"]).find_map(|t| by_trace.get(t));
        let remote_id = id(result);
        let email = || result["properties"]["email"].as_str().map(str::to_lowercase);
        let key = if by_id(records) { remote_id.clone() } else { email() };
        // An answer with another e-mail is about a contact that has ours as a secondary one, or a merged contact has
        // a new id: then there was only one to ask about, or nobody can tell.
        let at = trace
            .or_else(|| by_key.get(&key?))
            .copied()
            .or((records.len() == 1 && results.len() == 1 && errors.is_empty()).then_some(0));
        name(at, Outcome::Written { remote_id, created: result["new"].as_bool() });
    }
    let mut unnamed = String::new();
    for error in errors {
        let said = Said::new(error, answer);
        let outcome = match said.blame() {
            _ if by_id(records) && said.is_missing() => Outcome::Gone,
            Blame::Nobody if said.existing().is_some() => {
                Outcome::Exists { remote_id: said.existing().unwrap_or_default() }
            }
            Blame::Record => said.rejected(records),
            Blame::Nobody => {
                Outcome::Retry { code: said.code.clone(), message: said.message(records) }
            }
            // The next call would fail in the same way. What was written is only written again.
            Blame::Everybody => return Err(said.stop(records)),
        };
        let context = &error["context"];
        let mut named: Vec<usize> = texts(&context["objectWriteTraceId"])
            .filter_map(|trace| by_trace.get(trace))
            .chain(texts(&context["ids"]).filter_map(|id| by_key.get(&id.to_lowercase())))
            .copied()
            .collect();
        if named.is_empty() && records.len() == 1 {
            named.push(0);
        } else if named.is_empty() {
            unnamed = format!("; an error names no record: {}", said.message(records));
        }
        named.sort_unstable();
        named.dedup();
        for at in named {
            name(Some(at), outcome.clone());
        }
    }
    let unknown = || Outcome::Unknown { message: format!("the answer does not name it{unnamed}") };
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unknown)).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::lead::Lead;

    fn records(n: u128, by_id: bool) -> Vec<Record> {
        let record = |at| Record {
            lead: Arc::new(Lead {
                lead_id: uuid::Uuid::from_u128(at),
                email: format!("n{at}@example.com"),
                ..Lead::default()
            }),
            remote_id: by_id.then(|| at.to_string()),
            properties: Vec::new(),
            creating_for: None,
        };
        (0..n).map(record).collect()
    }

    fn answer(status: u16, body: &Value) -> Answer {
        let body = Bytes::from(body.to_string());
        Answer { status, headers: http::HeaderMap::new(), body, broken: None }
    }

    /// Values of every shape where the API has one, some of them true.
    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..6_u64).prop_map(Value::from),
            (0..6_u128).prop_map(|n| json!(uuid::Uuid::from_u128(n))),
            (0..6_u64).prop_map(|n| json!(format!("N{n}@Example.com"))),
            prop::sample::select(vec![
                "COMPLETE",
                "CONFLICT",
                "INVALID_EMAIL",
                "x: [{\"error\":1}]",
                "[ü"
            ])
            .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "id",
            "new",
            "properties",
            "email",
            "objectWriteTraceId",
            "context",
            "ids",
            "message",
            "category",
            "errors",
            "code",
            "status",
            "results",
            "propertyName",
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
        fn any_answer_gives_one_outcome_per_record(
            status in prop::sample::select(vec![200_u16, 207, 299, 302, 400, 403, 409, 429, 477, 500, 599]),
            results in prop::collection::vec(odd(), 0..5),
            errors in odd(),
            n in 1..5_u128,
            by_id: bool,
        ) {
            let records = records(n, by_id);
            let body = json!({"results": results, "errors": errors, "message": "m"});
            if let Ok(outcomes) = read(&answer(status, &body), &records) {
                prop_assert_eq!(outcomes.len(), records.len());
                let said = body["results"].to_string().to_lowercase();
                for (record, outcome) in records.iter().zip(outcomes).filter(|_| n > 1) {
                    let named = said.contains(&record.lead.email)
                        || said.contains(&record.lead.lead_id.to_string())
                        || record.remote_id.as_ref().is_some_and(|id| said.contains(id.as_str()));
                    let written = matches!(outcome, Outcome::Written { .. });
                    prop_assert!(named || !written);
                }
            }
        }

        #[test]
        fn any_whole_body_is_survived(status in 100..600_u16, body in odd(), by_id: bool) {
            let _ = read(&answer(status, &body), &records(3, by_id));
        }
    }

    #[test]
    fn a_batch_that_is_not_complete_is_unknown() {
        let body = json!({"status": "PROCESSING", "results": [{"id": "1"}]});
        let read = read(&answer(200, &body), &records(1, false));
        assert!(matches!(read, Err(CallError::Unknown { .. })));
    }

    #[test]
    fn a_record_in_both_lists_is_unknown() {
        let trace = records(1, false)[0].lead.lead_id;
        let body = json!({
            "results": [{"id": "1", "objectWriteTraceId": trace}],
            "errors": [{"category": "VALIDATION_ERROR", "context": {"objectWriteTraceId": [trace]}}],
        });
        let outcomes = read(&answer(207, &body), &records(2, false)).unwrap();
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Unknown { .. })), "{outcomes:?}");
    }
}
