//! Zoho's error envelopes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::exchange::Answer;

/// An error of one record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemError {
    /// `INVALID_DATA` and the like.
    pub code: String,
    /// Zoho's words.
    #[serde(default)]
    pub message: String,
    /// `api_name`, `expected_data_type` and the like.
    #[serde(default)]
    pub details: BTreeMap<String, Value>,
}

impl ItemError {
    pub(super) fn new(code: &str, message: &str, details: &[(&str, Value)]) -> ItemError {
        let details = details.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        ItemError { code: code.to_owned(), message: message.to_owned(), details }
    }

    pub(super) fn value(&self) -> Value {
        json!({
            "code": self.code, "details": self.details, "message": self.message, "status": "error",
        })
    }
}

/// The envelope of a refused call.
pub(super) fn refused(status: u16, code: &str, message: &str, details: &Value) -> Answer {
    let body = json!({"code": code, "details": details, "message": message, "status": "error"});
    Answer::json(status, &body)
}

pub(super) fn no_url() -> Answer {
    let message = "Please check if the URL trying to access is a correct one";
    refused(404, "INVALID_URL_PATTERN", message, &json!({}))
}

pub(super) fn no_module() -> Answer {
    refused(400, "INVALID_MODULE", "the module name given seems to be invalid", &json!({}))
}

pub(super) fn no_permission() -> Answer {
    let details = json!({"permissions": ["Crm_Implied_Api_Access"]});
    refused(403, "NO_PERMISSION", "permission denied", &details)
}

pub(super) fn token() -> Answer {
    refused(401, "INVALID_TOKEN", "invalid oauth token", &json!({}))
}

pub(super) fn scope() -> Answer {
    refused(401, "OAUTH_SCOPE_MISMATCH", "invalid oauth scope to access this URL", &json!({}))
}

pub(super) fn bad_id() -> ItemError {
    let details = [("api_name", json!("id"))];
    ItemError::new("INVALID_DATA", "the id given seems to be invalid", &details)
}

/// One code for both limits, and nobody says for how long.
pub(in super::super) fn too_many(daily: bool) -> Answer {
    let message = match daily {
        true => "Exceeded the number of API credits available for 24 hours",
        false => "Too many requests fired in concurrent",
    };
    let mut answer = refused(429, "TOO_MANY_REQUESTS", message, &json!({}));
    if daily {
        answer.headers.push(("x-api-credits-remaining", "0".to_owned()));
    }
    answer
}

/// The body Zoho would send with a status that a fault asks for.
pub(in super::super) fn of_status(status: u16) -> Value {
    let (code, message) = match status {
        400 | 413 | 422 => ("INVALID_DATA", "body"),
        401 => ("INVALID_TOKEN", "invalid oauth token"),
        403 => ("NO_PERMISSION", "permission denied"),
        404 => ("INVALID_URL_PATTERN", "Please check if the URL trying to access is a correct one"),
        429 => ("TOO_MANY_REQUESTS", "Too many requests fired in concurrent"),
        _ => ("INTERNAL_ERROR", "Internal Server Error"),
    };
    json!({"code": code, "details": {}, "message": message, "status": "error"})
}
