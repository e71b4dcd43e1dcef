//! What RD Station's answers mean. Pure.

use serde_json::Value;

use super::super::client::{Answer, redacted, sent};
use super::super::{CallError, Outcome, Record};
use super::fields::DataType;

/// What an answer to a push says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Outcome(Outcome),
    /// The uuid is not known (any more).
    NotThere,
    /// Too many calls, of the account or for this contact.
    TooMany(CallError),
}

/// One error, whichever of their three shapes the errors have.
struct Error<'a> {
    kind: &'a str,
    words: &'a str,
    field: Option<&'a str>,
}

/// All errors of a body: one object, a list, or lists by field, mostly below `errors`.
fn errors(body: &Value) -> Vec<Error<'_>> {
    fn add<'a>(into: &mut Vec<Error<'a>>, value: &'a Value, field: Option<&'a str>) {
        match value {
            Value::Array(list) => list.iter().for_each(|one| add(into, one, field)),
            Value::Object(members) => match value["error_type"].as_str() {
                Some(kind) => {
                    let path = value["path"].as_str().and_then(|path| path.rsplit('.').next());
                    let words = value["error_message"].as_str().unwrap_or_default();
                    into.push(Error { kind, words, field: path.or(field) });
                }
                // Lists by field; deeper than that there is nothing of theirs.
                None if field.is_none() => {
                    members.iter().for_each(|(name, list)| add(into, list, Some(name)));
                }
                None => {}
            },
            _ => {}
        }
    }
    let mut all = Vec::new();
    let inner = body.get("errors").unwrap_or(body);
    add(&mut all, inner, None);
    all
}

/// What an answer to the push of that record says.
pub(super) fn read(answer: &Answer, record: &Record) -> Result<Said, CallError> {
    let body = answer.json()?;
    if (200..300).contains(&answer.status) {
        return Ok(Said::Outcome(match body["uuid"].as_str() {
            Some(uuid) => Outcome::Written { remote_id: Some(uuid.to_owned()), created: None },
            None => Outcome::Unknown { message: format!("{} without a contact", answer.words()) },
        }));
    }
    if record.remote_id.is_some() && is_not_there(answer) {
        return Ok(Said::NotThere);
    }
    let records = std::slice::from_ref(record);
    let errors = errors(&body);
    if matches!(answer.status, 400 | 409 | 422)
        && let Some(error) = errors.first()
    {
        let code = redacted(error.kind, []);
        let message = words(answer, &errors, records);
        // Somebody else made it in this instant: the next try is an update.
        if answer.status == 409
            || error.kind == "EMAIL_ALREADY_IN_USE" && record.remote_id.is_none()
        {
            return Ok(Said::Outcome(Outcome::Retry { code, message }));
        }
        let field = error.field.map(|field| redacted(field, []));
        return Err(CallError::Refused { code, field, message });
    }
    match refusal(answer, &body, records) {
        slow_down @ CallError::SlowDown { .. } if answer.status == 429 => {
            Ok(Said::TooMany(slow_down))
        }
        error => Err(error),
    }
}

/// RD Station itself says that there is no such contact; a wrong address would be answered by somebody else.
pub(super) fn is_not_there(answer: &Answer) -> bool {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    answer.status == 404 && errors(&body).iter().any(|error| error.kind == "RESOURCE_NOT_FOUND")
}

/// The body of an answer to a call that reads.
pub(super) fn whole(answer: &Answer) -> Result<Value, CallError> {
    let body = answer.json()?;
    match answer.status {
        200..300 => Ok(body),
        _ => Err(refusal(answer, &body, &[])),
    }
}

pub(super) fn items<'a>(body: &'a Value, list: &str) -> &'a [Value] {
    body[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn words(answer: &Answer, errors: &[Error<'_>], records: &[Record]) -> String {
    let said = errors.iter().map(|error| error.words).find(|words| !words.is_empty());
    match said {
        Some(said) => redacted(said, sent(records)),
        None => answer.words(),
    }
}

/// What an answer means that is not about the one contact.
fn refusal(answer: &Answer, body: &Value, records: &[Record]) -> CallError {
    let errors = errors(body);
    let code = errors.first().map_or_else(|| answer.status.to_string(), |e| redacted(e.kind, []));
    let message = words(answer, &errors, records);
    let after = answer.retry_after();
    match answer.status {
        401 => CallError::Credentials {
            code,
            message: format!(
                "{message}; was the app disconnected in RD Station? Then authorize it again"
            ),
        },
        402 | 403 => CallError::Credentials { code, message },
        423 | 425 | 429 => CallError::SlowDown { after, message },
        408 | 421 | 499 => CallError::Unknown { after, message },
        300..400 | 404 | 405 | 410 | 415 => {
            CallError::Misconfigured { code, message: format!("{message}; is `base_url` right?") }
        }
        400..500 => CallError::Refused { code, field: None, message },
        _ => CallError::Unknown { after, message },
    }
}

/// A value that its field cannot take.
pub(super) fn unfit(code: &str, field: &str, kind: DataType) -> Outcome {
    Outcome::Rejected {
        code: code.to_owned(),
        field: Some(field.to_owned()),
        message: format!("the value is not {}", kind.name()),
    }
}

/// What becomes of a record whose call failed after others of the same push were written.
pub(super) fn after_others(error: CallError) -> Outcome {
    match error {
        CallError::Unknown { message, .. } => Outcome::Unknown { message },
        other => Outcome::Retry { code: "NOT_SENT".to_owned(), message: other.to_string() },
    }
}

#[cfg(test)]
#[path = "said/tests.rs"]
mod tests;
