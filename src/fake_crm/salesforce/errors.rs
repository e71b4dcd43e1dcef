//! Salesforce's two error shapes: a list with `errorCode` for a refused call, `statusCode` inside an item.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::exchange::Answer;

/// An error of one record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemError {
    /// `UNABLE_TO_LOCK_ROW` and the like.
    pub code: String,
    /// Salesforce's words.
    #[serde(default)]
    pub message: String,
    /// Fields at fault.
    #[serde(default)]
    pub fields: Vec<String>,
    /// Ids of the records that a duplicate rule found.
    #[serde(default)]
    pub matches: Vec<String>,
}

impl ItemError {
    pub(super) fn new(code: &str, message: impl Into<String>, fields: &[&str]) -> ItemError {
        let fields = fields.iter().map(|f| (*f).to_owned()).collect();
        ItemError { code: code.to_owned(), message: message.into(), fields, matches: Vec::new() }
    }

    /// As it stands in the `errors` of an item.
    fn value(&self, misspelt: bool) -> Value {
        let mut error =
            json!({"statusCode": self.code, "message": self.message, "fields": self.fields});
        if !self.matches.is_empty() {
            let records: Vec<Value> =
                self.matches.iter().map(|id| json!({"record": {"Id": id}})).collect();
            let name = if misspelt { "duplicateResut" } else { "duplicateResult" };
            error[name] = json!({
                "allowSave": false,
                "duplicateRule": "Standard_Rule",
                "matchResults": [{"matchRecords": records, "size": records.len()}],
            });
        }
        error
    }

    /// A failed item: it has neither `id` nor `created`.
    pub(super) fn item(&self, misspelt: bool) -> Value {
        json!({"success": false, "errors": [self.value(misspelt)]})
    }

    /// The same as the answer to a call about one record.
    pub(super) fn answer(&self, status: u16) -> Answer {
        Answer::json(
            status,
            &json!([{"message": self.message, "errorCode": self.code, "fields": self.fields}]),
        )
    }
}

/// A refused call.
pub(super) fn refused(status: u16, code: &str, message: &str) -> Answer {
    Answer::json(status, &json!([{"message": message, "errorCode": code}]))
}

pub(super) fn not_found() -> Answer {
    refused(404, "NOT_FOUND", "The requested resource does not exist")
}

pub(super) fn session() -> Answer {
    refused(401, "INVALID_SESSION_ID", "Session expired or invalid")
}

pub(super) fn no_column(field: &str, object: &str) -> Answer {
    let message = format!("No such column '{field}' on sobject of type {object}");
    refused(400, "INVALID_FIELD", &message)
}

/// Over a limit: 403, never 429, and nobody says for how long.
pub(in super::super) fn too_many(daily: bool, allowed: u64) -> Answer {
    let message = match daily {
        true => "TotalRequests Limit exceeded.",
        false => "ConcurrentRequests (Concurrent API Requests) Limit exceeded.",
    };
    let mut answer = refused(403, "REQUEST_LIMIT_EXCEEDED", message);
    let used = if daily { allowed } else { 0 };
    answer.headers.push(("sforce-limit-info", format!("api-usage={used}/{allowed}")));
    answer
}

/// The body Salesforce would send with a status that a fault asks for.
pub(in super::super) fn of_status(status: u16) -> Value {
    let (code, message) = match status {
        400 | 413 | 422 => ("JSON_PARSER_ERROR", "Unexpected character"),
        401 => ("INVALID_SESSION_ID", "Session expired or invalid"),
        403 => ("INSUFFICIENT_ACCESS", "insufficient access rights on cross-reference id"),
        404 => ("NOT_FOUND", "The requested resource does not exist"),
        410 => ("UNSUPPORTED_API_VERSION", "The requested API version is retired"),
        503 => ("SERVER_UNAVAILABLE", "server unavailable"),
        _ => ("UNKNOWN_EXCEPTION", "An unexpected error occurred."),
    };
    json!([{"message": message, "errorCode": code}])
}
