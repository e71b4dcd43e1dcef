//! RD Station's errors: one object, a list, or lists by field, all below `errors`.

use serde_json::{Map, Value, json};

use super::super::exchange::Answer;

/// What is wrong with one field: its name, the type of the error, the words.
pub(super) type Invalid = (String, &'static str, String);

fn one(kind: &str, message: &str) -> Value {
    json!({"error_type": kind, "error_message": message})
}

/// One object.
pub(super) fn single(status: u16, kind: &str, message: &str) -> Answer {
    Answer::json(status, &json!({"errors": one(kind, message)}))
}

/// Lists by field.
pub(super) fn invalid(list: &[Invalid]) -> Answer {
    let mut fields = Map::new();
    for (field, kind, message) in list {
        let entry = fields.entry(field.clone()).or_insert_with(|| json!([]));
        if let Some(errors) = entry.as_array_mut() {
            errors.push(one(kind, message));
        }
    }
    Answer::json(400, &json!({"errors": fields}))
}

/// A list, with the path of the member.
pub(super) fn list(status: u16, kind: &str, message: &str, path: &str) -> Answer {
    let mut error = one(kind, message);
    error["path"] = json!(path);
    Answer::json(status, &json!({"errors": [error]}))
}

/// 401; `expired` tells it in a header only.
pub(super) fn unauthorized(expired: bool) -> Answer {
    let mut answer = single(401, "UNAUTHORIZED", "Invalid token.");
    if expired {
        answer.headers.push((
            "www-authenticate",
            "Bearer realm=\"https://api.rd.services/\", error=\"expired_token\", \
             error_description=\"The access token expired\""
                .to_owned(),
        ));
    }
    answer
}

/// 429.
pub(in super::super) fn too_many(retry_after: Option<u64>) -> Answer {
    let mut answer = single(429, "TOO_MANY_REQUESTS", "API usage limit exceeded");
    if let Some(seconds) = retry_after {
        answer.headers.push(("retry-after", seconds.to_string()));
    }
    answer
}

/// The envelope RD Station would send with a status that a fault asks for.
pub(in super::super) fn of_status(status: u16) -> Value {
    let (kind, message) = match status {
        400 | 422 => ("INVALID", "It is not valid"),
        401 => ("UNAUTHORIZED", "Invalid token."),
        403 => ("FORBIDDEN", "Forbidden request"),
        404 => ("RESOURCE_NOT_FOUND", "The resource couldn't be found."),
        415 => ("UNSUPPORTED_MEDIA_TYPE", "The payload is in a format not supported."),
        429 => ("TOO_MANY_REQUESTS", "API usage limit exceeded"),
        _ => ("INTERNAL_ERROR", "Service temporarily unavailable"),
    };
    json!({"errors": one(kind, message)})
}
