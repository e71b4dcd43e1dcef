//! HubSpot's error envelopes.

use serde_json::{Value, json};

use super::super::exchange::Answer;

/// What is wrong with one property of one record.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Invalid {
    pub code: &'static str,
    pub property: String,
    pub message: String,
}

impl Invalid {
    pub fn new(code: &'static str, property: &str, message: String) -> Invalid {
        Invalid { code, property: property.to_owned(), message }
    }

    fn text(list: &[Invalid]) -> String {
        let inner: Vec<Value> = list
            .iter()
            .map(|i| {
                json!({
                    "isValid": false, "message": i.message, "error": i.code, "name": i.property,
                })
            })
            .collect();
        format!("Property values were not valid: {}", Value::from(inner))
    }
}

/// An envelope with a category.
pub(super) fn envelope(category: &str, message: &str) -> Value {
    json!({
        "status": "error", "message": message, "correlationId": uuid::Uuid::new_v4(), "category": category,
    })
}

/// 400 about the shape of a request.
pub(super) fn malformed(why: &str) -> Answer {
    Answer::json(400, &envelope("VALIDATION_ERROR", &format!("Invalid input JSON: {why}")))
}

/// 400 with a message of its own.
pub(super) fn refused(message: &str) -> Answer {
    Answer::json(400, &envelope("VALIDATION_ERROR", message))
}

/// 400 about values (bodies E1 and E3 of the contract).
pub(super) fn invalid(list: &[Invalid]) -> Answer {
    let mut body = envelope("VALIDATION_ERROR", &Invalid::text(list));
    body["errors"] = list
        .iter()
        .map(|i| json!({"message": i.message, "code": i.code, "context": {"propertyName": [i.property]}}))
        .collect();
    Answer::json(400, &body)
}

/// One item of a 207's `errors` (body P).
pub(super) fn item(category: &str, message: String, traces: &[&str]) -> Value {
    json!({
        "status": "error", "category": category, "message": message,
        "context": {"objectWriteTraceId": traces},
    })
}

/// The message of an item about values.
pub(super) fn invalid_text(list: &[Invalid]) -> String {
    Invalid::text(list)
}

/// 400 with the doubled ids (body E2).
pub(super) fn same_ids(ids: &[String]) -> Answer {
    let message =
        format!("Duplicate IDs found in batch input: [{}]. IDs must be unique", ids.join(", "));
    let mut body = envelope("VALIDATION_ERROR", &message);
    body["context"] = json!({"ids": ids});
    Answer::json(400, &body)
}

/// 401 (body E4).
pub(super) fn unauthorized(category: &str) -> Answer {
    Answer::json(401, &envelope(category, "Authentication credentials not found or not valid."))
}

/// 403 (body E5).
pub(super) fn missing_scope(scope: &str) -> Answer {
    let mut body = envelope("MISSING_SCOPES", "This app lacks the required scopes.");
    body["errors"] = json!([{
        "message": "one or more scopes are required", "context": {"requiredGranularScopes": [scope]},
    }]);
    Answer::json(403, &body)
}

/// 404.
pub(super) fn no_contact() -> Answer {
    Answer::json(404, &envelope("OBJECT_NOT_FOUND", "resource not found"))
}

/// 409 with the id of the contact that is there.
pub(super) fn exists(id: u64) -> Answer {
    let message = format!("Contact already exists. Existing ID: {id}");
    Answer::json(409, &envelope("CONFLICT", &message))
}

/// 429 (body E6). `limits`: per window, remaining, window in milliseconds.
pub(in super::super) fn too_many(
    daily: bool,
    retry_after: Option<u64>,
    limits: (u32, u32, u128),
) -> Answer {
    let policy = if daily { "DAILY" } else { "TEN_SECONDLY_ROLLING" };
    let id = uuid::Uuid::new_v4();
    let mut answer = Answer::json(
        429,
        &json!({
            "status": "error", "message": format!("You have reached your {} limit.", policy.to_lowercase()),
            "errorType": "RATE_LIMIT", "correlationId": id, "policyName": policy, "requestId": id,
        }),
    );
    answer.headers = limit_headers(limits);
    if let Some(seconds) = retry_after {
        answer.headers.push(("retry-after", seconds.to_string()));
    }
    answer
}

pub(super) fn limit_headers(
    (max, remaining, window): (u32, u32, u128),
) -> Vec<(&'static str, String)> {
    vec![
        ("x-hubspot-ratelimit-max", max.to_string()),
        ("x-hubspot-ratelimit-remaining", remaining.to_string()),
        ("x-hubspot-ratelimit-interval-milliseconds", window.to_string()),
    ]
}

/// The envelope HubSpot would send with a status that a fault asks for.
pub(in super::super) fn of_status(status: u16) -> Value {
    let (category, message) = match status {
        400 | 422 => ("VALIDATION_ERROR", "The request was not valid."),
        401 => ("INVALID_AUTHENTICATION", "Authentication credentials not found."),
        403 => ("MISSING_SCOPES", "This app lacks the required scopes."),
        404 => ("OBJECT_NOT_FOUND", "resource not found"),
        409 => ("CONFLICT", "The record was changed at the same time."),
        423 => ("LOCKED", "The record is locked by another process."),
        429 => ("RATE_LIMITS", "You have reached your limit."),
        477 => ("MIGRATION_IN_PROGRESS", "The account is being moved."),
        _ => {
            return json!({
                "status": "error", "message": "internal error", "correlationId": uuid::Uuid::new_v4(),
            });
        }
    };
    envelope(category, message)
}
