//! What Salesforce's answers mean. A batch is answered 200 with one item per record in the order of the records, also
//! where every one of them failed; a refused call with a list of errors of another shape.

use std::time::Duration;

use serde_json::Value;

use super::super::client::{Answer, redacted, sent};
use super::super::{CallError, Limit, Outcome, Record};
use super::fields::property;

/// The day's limit is a rolling one and nobody tells when it has room: look again every hour.
const DAY_PAUSE: Duration = Duration::from_secs(3600);
/// Too many long calls at once: they end by themselves.
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
    /// `UNABLE_TO_LOCK_ROW` and the like.
    pub code: String,
    pub field: Option<String>,
    /// Salesforce's words as they came.
    pub words: String,
    /// Ids of the records that a duplicate rule found.
    pub matches: Vec<String>,
}

/// What a fault comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Is(Outcome),
    /// Converted, deleted or merged: where the record is now has to be looked up.
    Moved,
    /// The rights of the user on this record, or on all of them.
    Rights,
    /// Every record would fail in the same way.
    Stop(CallError),
}

impl Fault {
    fn new(error: &Value) -> Fault {
        let field = error["fields"].as_array().and_then(|fields| fields.first()?.as_str());
        Fault {
            code: redacted(error["statusCode"].as_str().unwrap_or("UNKNOWN"), []),
            field: field.map(|f| redacted(f, [])),
            words: error["message"].as_str().unwrap_or_default().to_owned(),
            matches: matches(error),
        }
    }

    /// Salesforce's words without what was sent.
    fn message(&self, record: &Record) -> String {
        redacted(&self.words, sent(std::slice::from_ref(record)))
    }

    pub fn rejected(&self, record: &Record) -> Outcome {
        let mut message = self.message(record);
        if !self.matches.is_empty() {
            message = format!("{message} ({})", self.matches.join(", "));
        }
        let field = self.field.as_deref().map(|field| property(field, record));
        Outcome::Rejected { code: self.code.clone(), field, message }
    }

    /// Where every record fails: the error that stops the destination.
    pub fn stop(&self, record: &Record) -> CallError {
        let (code, message) = (self.code.clone(), self.message(record));
        match self.code.starts_with("INSUFFICIENT_ACCESS") {
            true => CallError::Credentials {
                code,
                message: format!("{message}; give the app's user the right to create and edit it"),
            },
            false => CallError::Misconfigured { code, message },
        }
    }

    /// `key`: the field that records are told apart by.
    pub fn verdict(&self, record: &Record, key: &str) -> Verdict {
        let retry = || Outcome::Retry { code: self.code.clone(), message: self.message(record) };
        let by_id = record.remote_id.is_some();
        match self.code.as_str() {
            "UNABLE_TO_LOCK_ROW"
            | "QUERY_TIMEOUT"
            | "REQUEST_LIMIT_EXCEEDED"
            | "SERVER_UNAVAILABLE"
            | "ALL_OR_NONE_OPERATION_ROLLED_BACK" => Verdict::Is(retry()),
            "UNKNOWN_EXCEPTION" => Verdict::Is(Outcome::Unknown { message: self.message(record) }),
            "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY" if self.is_passing() => Verdict::Is(retry()),
            "CANNOT_UPDATE_CONVERTED_LEAD" | "ENTITY_IS_DELETED" => Verdict::Moved,
            // Of an update it is the record, or a reference in one of its fields.
            "INVALID_CROSS_REFERENCE_KEY" | "MALFORMED_ID" if by_id && self.is_about_id() => {
                Verdict::Moved
            }
            "DUPLICATE_VALUE" if !by_id => Verdict::Is(self.taken(record, key, retry)),
            "DUPLICATE_EXTERNAL_ID" => match ids(&self.words) {
                ids if ids.len() > 1 => Verdict::Is(Outcome::Ambiguous { remote_ids: ids }),
                _ => Verdict::Is(self.rejected(record)),
            },
            code if code.starts_with("INSUFFICIENT_ACCESS") => Verdict::Rights,
            "INVALID_FIELD" | "INVALID_FIELD_FOR_INSERT_UPDATE" | "INVALID_TYPE" => {
                Verdict::Stop(self.stop(record))
            }
            _ => Verdict::Is(self.rejected(record)),
        }
    }

    /// A trigger or flow that failed over what will pass.
    fn is_passing(&self) -> bool {
        ["UNABLE_TO_LOCK_ROW", "Too many SOQL queries", "Apex CPU time limit", "QUERY_TIMEOUT"]
            .iter()
            .any(|cause| self.words.contains(cause))
    }

    fn is_about_id(&self) -> bool {
        self.field.as_deref().is_none_or(|field| field.eq_ignore_ascii_case("id"))
    }

    /// "duplicate value found: Lead_Email_Key__c duplicates value on record with id: 00Q…": somebody else was first.
    /// The same about another unique field is a fault of the record.
    fn taken(&self, record: &Record, key: &str, retry: impl FnOnce() -> Outcome) -> Outcome {
        let words = self.words.to_lowercase();
        if words.contains("duplicate external id specified") {
            return retry();
        }
        let named = words.split_whitespace().any(|word| word == key.to_lowercase())
            || self.field.as_deref().is_some_and(|field| field.eq_ignore_ascii_case(key));
        match (named, ids(&self.words).pop()) {
            (true, Some(remote_id)) => Outcome::Exists { remote_id },
            (true, None) => retry(),
            (false, _) => self.rejected(record),
        }
    }
}

/// The ids of records that a text names.
fn ids(words: &str) -> Vec<String> {
    let mut ids: Vec<String> = words
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| matches!(word.len(), 15 | 18))
        .filter(|word| word.starts_with("00Q") || word.starts_with("003"))
        .map(str::to_owned)
        .collect();
    ids.dedup();
    ids
}

/// The ids under `duplicateResult`, also in the spelling without its third-last letter, which is seen too.
fn matches(error: &Value) -> Vec<String> {
    let found = [&error["duplicateResult"], &error["duplicateResut"]];
    let results = found.iter().filter_map(|f| f["matchResults"].as_array()).flatten();
    let records = results.filter_map(|r| r["matchRecords"].as_array()).flatten();
    records.filter_map(|r| r["record"]["Id"].as_str()).map(|id| redacted(id, [])).collect()
}

/// One item per record sent, or why there is none.
pub(super) fn items(answer: &Answer, records: &[(usize, &Record)]) -> Result<Vec<Item>, CallError> {
    let body = answer.json()?;
    if answer.status != 200 {
        return Err(refusal(answer, &body, records));
    }
    let list = body.as_array().map(Vec::as_slice).unwrap_or_default();
    // An item does not name its record: where one is missing nobody can tell which.
    if list.len() != records.len() {
        let message = format!("{} items for {} records", list.len(), records.len());
        return Err(CallError::Unknown { after: None, message });
    }
    Ok(list.iter().map(item).collect())
}

fn item(item: &Value) -> Item {
    let error = item["errors"].as_array().and_then(|errors| errors.first());
    match (item["success"].as_bool(), error) {
        (Some(true), None) => Item::Written {
            id: item["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned),
            created: item["created"].as_bool(),
        },
        (Some(false), Some(error)) => Item::Failed(Fault::new(error)),
        _ => Item::Silent,
    }
}

/// What an answer means that is no 200.
pub(super) fn refusal(answer: &Answer, body: &Value, records: &[(usize, &Record)]) -> CallError {
    // A list of errors; from the token endpoint and some edges one object.
    let error = body.as_array().and_then(|list| list.first()).unwrap_or(body);
    let code = error["errorCode"].as_str().or(error["error"].as_str());
    let code = code.map_or_else(|| answer.status.to_string(), |code| redacted(code, []));
    let words = error["message"].as_str().or(error["error_description"].as_str());
    let values = records.iter().flat_map(|(_, r)| sent(std::slice::from_ref(*r)));
    let message = match words {
        None | Some("") => answer.words(),
        Some(words) => redacted(words, values),
    };
    let field = error["fields"].as_array().and_then(|fields| fields.first()?.as_str());
    let after = answer.retry_after();
    match answer.status {
        401 => CallError::Credentials {
            code,
            message: format!("{message}; look at the app's policies in Salesforce"),
        },
        403 if code == "REQUEST_LIMIT_EXCEEDED" => {
            let pause = if message.starts_with("Concurrent") { BUSY_PAUSE } else { DAY_PAUSE };
            CallError::SlowDown { after: Some(after.unwrap_or(pause)), message }
        }
        402 | 403 => CallError::Credentials { code, message },
        423 | 425 | 429 => CallError::SlowDown { after, message },
        408 | 421 | 499 => CallError::Unknown { after, message },
        400 if matches!(code.as_str(), "INVALID_FIELD" | "INVALID_TYPE") => {
            CallError::Misconfigured {
                code,
                message: format!("{message}; is it there, and may the app's user see and edit it?"),
            }
        }
        400 | 409 | 413 | 414 | 422 | 431 => {
            CallError::Refused { code, field: field.map(|f| redacted(f, [])), message }
        }
        404 | 405 | 410 | 415 => CallError::Misconfigured {
            code,
            message: format!("{message}; are `base_url`, `object` and `key_property` right?"),
        },
        300..400 => CallError::Misconfigured {
            code,
            message: format!("{message}; `base_url` leads to a redirect"),
        },
        400..500 => CallError::Refused { code, field: field.map(|f| redacted(f, [])), message },
        _ => CallError::Unknown { after, message },
    }
}

/// The day's limit: "api-usage=1200/100000".
pub(super) fn limits(answer: &Answer) -> Vec<Limit> {
    let usage = || {
        let header = answer.header("sforce-limit-info")?;
        let usage = header.split([',', ';']).find_map(|p| p.trim().strip_prefix("api-usage="))?;
        let (used, allowed) = usage.trim().split_once('/')?;
        let (used, allowed): (u32, u32) = (used.parse().ok()?, allowed.parse().ok()?);
        Some(Limit {
            window: Duration::from_secs(86_400),
            allowed: Some(allowed),
            remaining: allowed.saturating_sub(used),
            resets_in: None,
        })
    };
    usage().into_iter().collect()
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
        let properties = vec![("LastName".to_owned(), Some("Anastasia".to_owned()))];
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
                "00Q000000000001EAA",
                "UNABLE_TO_LOCK_ROW",
                "DUPLICATE_VALUE",
                "duplicates value on record with id: 00Q000000000001",
                "INVALID_FIELD",
                "ü",
                "",
            ])
            .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "id",
            "success",
            "created",
            "errors",
            "statusCode",
            "message",
            "fields",
            "errorCode",
            "duplicateResult",
            "matchResults",
            "matchRecords",
            "record",
            "Id",
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
            status in prop::sample::select(vec![200_u16, 201, 204, 300, 302, 400, 401, 403, 404, 410, 429, 500, 599]),
            body in odd(),
            n in 1..5_usize,
            key in prop::option::of("003000000000001AAA"),
        ) {
            let records = vec![record(key.as_deref()); n];
            let records: Vec<(usize, &Record)> = records.iter().enumerate().collect();
            if let Ok(items) = items(&answer(status, &body), &records) {
                prop_assert_eq!((status, items.len()), (200, n));
                for (item, (_, record)) in items.iter().zip(records) {
                    if let Item::Failed(fault) = item {
                        let _ = fault.verdict(record, "Lead_Email_Key__c");
                    }
                }
            }
        }

        #[test]
        fn any_usage_is_survived(text in "\\PC*", used in any::<u64>(), allowed in any::<u64>()) {
            for header in [text, format!("api-usage={used}/{allowed}")] {
                let mut answer = answer(200, &json!([]));
                if let Ok(value) = http::HeaderValue::try_from(header) {
                    answer.headers.insert("sforce-limit-info", value);
                }
                let _ = limits(&answer);
            }
        }
    }

    fn fault(code: &str, message: &str, fields: &[&str]) -> Fault {
        Fault::new(&json!({"statusCode": code, "message": message, "fields": fields}))
    }

    #[test]
    fn faults_are_sorted() {
        let new = record(None);
        let known = record(Some("00Q000000000001EAA"));
        let of = |fault: Fault, record: &Record| fault.verdict(record, "Lead_Email_Key__c");
        let taken = "duplicate value found: Lead_Email_Key__c duplicates value on record with id: 00Q000000000007";
        let exists = Outcome::Exists { remote_id: "00Q000000000007".to_owned() };
        assert_eq!(of(fault("DUPLICATE_VALUE", taken, &[]), &new), Verdict::Is(exists));
        for (code, message, record) in [
            ("UNABLE_TO_LOCK_ROW", "", &known),
            ("DUPLICATE_VALUE", "Duplicate external id specified: x", &new),
            ("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "T: UNABLE_TO_LOCK_ROW", &known),
        ] {
            let verdict = of(fault(code, message, &[]), record);
            assert!(matches!(verdict, Verdict::Is(Outcome::Retry { .. })), "{code}: {verdict:?}");
        }
        let other = taken.replace("Lead_Email_Key__c", "Passport__c");
        for (code, message, record) in [
            ("DUPLICATE_VALUE", other.as_str(), &new),
            ("DUPLICATE_VALUE", taken, &known),
            ("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", "T: a rule of ours", &known),
            ("STRING_TOO_LONG", "Last Name: data value too large: Anastasia (max length=5)", &new),
            ("SOMETHING_NEW", "x", &new),
        ] {
            let verdict = of(fault(code, message, &["LastName"]), record);
            let Verdict::Is(Outcome::Rejected { message, .. }) = verdict else { panic!("{code}") };
            assert!(!message.contains("Anastasia"), "{message}");
        }
        for (code, fields) in [
            ("ENTITY_IS_DELETED", &[][..]),
            ("CANNOT_UPDATE_CONVERTED_LEAD", &[]),
            ("MALFORMED_ID", &["Id"]),
            ("INVALID_CROSS_REFERENCE_KEY", &[]),
        ] {
            assert_eq!(of(fault(code, "", fields), &known), Verdict::Moved, "{code}");
        }
        let owner = of(fault("INVALID_CROSS_REFERENCE_KEY", "", &["OwnerId"]), &known);
        assert!(matches!(owner, Verdict::Is(Outcome::Rejected { .. })));
        let rights = of(fault("INSUFFICIENT_ACCESS_OR_READONLY", "", &[]), &known);
        assert_eq!(rights, Verdict::Rights);
        let stop = of(fault("INVALID_FIELD_FOR_INSERT_UPDATE", "", &["X"]), &known);
        assert!(matches!(stop, Verdict::Stop(CallError::Misconfigured { .. })));
        let several =
            of(fault("DUPLICATE_EXTERNAL_ID", "[00Q000000000001, 00Q000000000002]", &[]), &new);
        assert!(
            matches!(several, Verdict::Is(Outcome::Ambiguous { remote_ids }) if remote_ids.len() == 2)
        );
    }

    #[test]
    fn usage_is_the_day_s_limit() {
        let mut answer = answer(200, &json!([]));
        let header = "api-usage=18/5000; per-app-api-usage=17/250(appName=sample)";
        answer.headers.insert("sforce-limit-info", http::HeaderValue::from_static(header));
        let limit = limits(&answer)[0];
        assert_eq!((limit.allowed, limit.remaining), (Some(5000), 4982));
    }
}
