//! Brevo's error envelopes.

use serde_json::{Value, json};

use super::super::exchange::Answer;

fn envelope(code: &str, message: &str) -> Value {
    json!({"code": code, "message": message})
}

/// 400 about a parameter.
pub(super) fn invalid(code: &str, message: &str) -> Answer {
    Answer::json(400, &envelope(code, message))
}

/// 400: other contacts have these keys. `doing`: "create" or "update".
pub(super) fn duplicate(code: &str, doing: &str, keys: &[String]) -> Answer {
    let named = keys.join(", ");
    let message =
        format!("Unable to {doing} contact, {named} is already associated with another Contact");
    let mut body = envelope(code, &message);
    body["metadata"] = json!({"duplicate_identifiers": keys});
    Answer::json(400, &body)
}

/// 401.
pub(super) fn unauthorized(message: &str) -> Answer {
    Answer::json(401, &envelope("unauthorized", message))
}

/// 403.
pub(super) fn denied() -> Answer {
    Answer::json(403, &envelope("permission_denied", "You are not allowed to do this"))
}

/// 404.
pub(super) fn no_contact() -> Answer {
    Answer::json(404, &envelope("document_not_found", "Contact does not exist"))
}

/// 429 of the hour's limit, which is over in half a minute, or in half an hour.
pub(in super::super) fn hourly(long: bool) -> Answer {
    let mut answer = too_many();
    answer.headers = vec![
        ("x-sib-ratelimit-limit", "36000".to_owned()),
        ("x-sib-ratelimit-remaining", "0".to_owned()),
        ("x-sib-ratelimit-reset", if long { "1800" } else { "30" }.to_owned()),
    ];
    answer
}

/// 429.
pub(super) fn too_many() -> Answer {
    Answer::json(429, &envelope("too_many_requests", "The expected rate limit is exceeded."))
}

/// The envelope Brevo would send with a status that a fault asks for.
pub(in super::super) fn of_status(status: u16) -> Value {
    let (code, message) = match status {
        400 | 422 => ("invalid_parameter", "The request was not valid"),
        401 => ("unauthorized", "Key not found"),
        402 => ("not_enough_credits", "You do not have enough credits"),
        403 => ("permission_denied", "You are not allowed to do this"),
        404 => ("document_not_found", "Contact does not exist"),
        405 => ("method_not_allowed", "Method not allowed"),
        425 => ("account_in_process", "The account is still in process"),
        429 => ("too_many_requests", "The expected rate limit is exceeded."),
        _ => ("internal_error", "Internal server error"),
    };
    envelope(code, message)
}
