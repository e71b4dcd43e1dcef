//! Pipedrive's error envelopes.

use serde_json::{Value, json};

use super::super::exchange::Answer;

const INFO: &str = "Please check developers.pipedrive.com";

/// An envelope.
pub(super) fn envelope(status: u16, error: &str) -> Value {
    json!({
        "success": false, "error": error, "errorCode": status, "error_info": INFO, "data": null,
        "additional_data": null,
    })
}

fn refused(status: u16, error: &str) -> Answer {
    Answer::json(status, &envelope(status, error))
}

/// 400 about a value or the shape of a request.
pub(super) fn invalid(error: &str) -> Answer {
    let mut body = envelope(400, error);
    body["code"] = json!("ERR_SCHEMA_VALIDATION_FAILED");
    Answer::json(400, &body)
}

/// 401.
pub(super) fn unauthorized() -> Answer {
    refused(401, "unauthorized access")
}

/// 402.
pub(super) fn closed() -> Answer {
    refused(402, "Company account is not open")
}

/// 403 for want of a scope.
pub(super) fn scope() -> Answer {
    refused(403, "Scope and URL mismatch")
}

/// 403 for want of a feature.
pub(super) fn contact_sync(field: &str) -> Answer {
    refused(403, &format!("{field} can only be set with the contact sync feature"))
}

/// 403 of the plan.
pub(super) fn capped() -> Answer {
    let mut body = envelope(403, "Limit of persons is reached");
    body["code"] = json!("feature_capping_persons_limit");
    Answer::json(403, &body)
}

/// 404 or 410.
pub(super) fn no_person(status: u16) -> Answer {
    refused(status, if status == 410 { "Person is deleted" } else { "Person not found" })
}

/// 429.
pub(in super::super) fn too_many() -> Answer {
    refused(429, "Rate limit exceeded")
}

/// 403 of the edge, for whoever goes on after a 429.
pub(super) fn blocked() -> Answer {
    let page = "<!DOCTYPE html><html><head><title>Access denied</title></head><body>Error 1015</body></html>";
    Answer::html(403, page.to_owned())
}

/// The envelope Pipedrive would send with a status that a fault asks for.
pub(in super::super) fn of_status(status: u16) -> Value {
    let error = match status {
        400 => "Bad request",
        401 => "unauthorized access",
        402 => "Company account is not open",
        403 => "Scope and URL mismatch",
        404 => "Person not found",
        410 => "Person is deleted",
        422 => "Validation failed",
        429 => "Rate limit exceeded",
        503 => "Service unavailable",
        _ => "Internal server error",
    };
    envelope(status, error)
}
