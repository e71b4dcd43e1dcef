//! The one place where an error becomes an answer, and the one place that logs it.
//!
//! Every error answer is `application/problem+json` (RFC 9457) with a stable `code` and the request
//! id. It never holds internals or anything the client sent. The log line has the whole chain of
//! causes, and no path, query, body or header.

use std::borrow::Cow;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use serde_json::{Map, Value};
use tracing::{debug, error, info, warn};

use super::RequestId;
use crate::error::Chain;
use crate::receive::ReceiveError;
use crate::sources::api::BodyError;
use crate::store::migrate::MigrateError;
use crate::store::{NotReady, StoreError};

/// What to wait before a retry where nobody knows better.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// An answer that is not a success.
#[derive(Debug)]
pub struct HttpError(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    code: &'static str,
    detail: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    members: Map<String, Value>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl HttpError {
    /// An error with a stable `snake_case` code and one sentence for people that echoes no input.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> HttpError {
        HttpError(Box::new(Parts {
            status,
            code,
            detail: detail.into(),
            headers: Vec::new(),
            members: Map::new(),
            cause: None,
        }))
    }

    /// 400.
    pub fn bad_request(code: &'static str, detail: impl Into<Cow<'static, str>>) -> HttpError {
        HttpError::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// 401 of `/v1`: no token, or not the right one.
    pub fn bad_token() -> HttpError {
        let detail = "send the admin token as \"Authorization: Bearer TOKEN\"";
        HttpError::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
            .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    /// 404 for whatever is not there. One sentence for all, so that nobody learns which part was wrong.
    pub fn not_found() -> HttpError {
        HttpError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here")
    }

    /// 405; `allow` lists what the resource does understand.
    pub fn method_not_allowed(allow: &'static str) -> HttpError {
        let detail = "this resource does not understand that method";
        HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
            .with_header(ALLOW, HeaderValue::from_static(allow))
    }

    /// 413; `max` in bytes.
    pub fn too_large(max: usize) -> HttpError {
        let detail = format!("a body may have {max} bytes, before and after decompression");
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    }

    /// 415 for a content encoding; names the one understood.
    pub fn unsupported_encoding() -> HttpError {
        let detail = "the only content encoding understood is gzip";
        HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", detail)
            .with_header(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
    }

    /// 415 for a content type or charset.
    pub fn unsupported_media_type(detail: impl Into<Cow<'static, str>>) -> HttpError {
        HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
    }

    /// 422.
    pub fn unprocessable(code: &'static str, detail: impl Into<Cow<'static, str>>) -> HttpError {
        HttpError::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    /// 500: a fault of ours. Everything worth knowing is in the cause, which only the log shows.
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> HttpError {
        let detail = "the fault is ours; the log has it under this request id";
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).because(cause)
    }

    /// 503: come back later. `after` is rounded up to whole seconds, at least one.
    pub fn unavailable(code: &'static str, detail: &'static str, after: Duration) -> HttpError {
        let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)).max(1);
        HttpError::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
            .with_header(RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// 503 because the request took longer than a request may take.
    pub fn deadline() -> HttpError {
        let detail = "the request took too long; what was stored stays stored, a repeat is safe";
        HttpError::unavailable("deadline_exceeded", detail, RETRY_SOON)
    }

    /// Adds the cause for the log.
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> HttpError {
        self.0.cause = Some(cause.into());
        self
    }

    /// Adds a header to the answer.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> HttpError {
        self.0.headers.push((name, value));
        self
    }

    /// Adds an extension member to the problem object.
    pub fn with_member(mut self, name: &str, value: Value) -> HttpError {
        self.0.members.insert(name.to_owned(), value);
        self
    }

    /// Logs it, once, and makes the answer. Generic in the body so that the server can use it below the filters.
    pub fn into_response<B: From<Bytes>>(self, id: RequestId) -> Response<B> {
        self.log(id);
        let Parts { status, code, detail, headers, members, .. } = *self.0;
        let mut problem = Map::new();
        problem.insert("type".into(), "about:blank".into());
        problem.insert("title".into(), status.canonical_reason().unwrap_or("Error").into());
        problem.insert("status".into(), status.as_u16().into());
        problem.insert("detail".into(), detail.into());
        problem.insert("code".into(), code.into());
        problem.insert("request_id".into(), id.to_string().into());
        problem.extend(members);
        let mut response = Response::new(B::from(Bytes::from(Value::Object(problem).to_string())));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        for (name, value) in headers {
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// Our faults and our trouble are seen by default; refused callers too, but quieter. What clients
    /// do wrong otherwise is theirs to see, in the answer.
    fn log(&self, id: RequestId) {
        let Parts { status, code, cause, .. } = &*self.0;
        let status = status.as_u16();
        let error = cause.as_deref().map(|c| Chain(c).to_string()).unwrap_or_default();
        match status {
            503 => {
                warn!(request.id = %id, http.status = status, code, error, "request {id}: {code}")
            }
            500.. => {
                error!(request.id = %id, http.status = status, code, error, "request {id}: {code}")
            }
            401 | 403 => {
                info!(request.id = %id, http.status = status, code, error, "request {id}: {code}");
            }
            _ => {
                debug!(request.id = %id, http.status = status, code, error, "request {id}: {code}")
            }
        }
    }
}

impl From<ReceiveError> for HttpError {
    fn from(error: ReceiveError) -> HttpError {
        let mapped = match &error {
            ReceiveError::Malformed(what) => match what.status() {
                415 => HttpError::unsupported_media_type(what.to_string()),
                _ => HttpError::bad_request("malformed_body", what.to_string()),
            },
            ReceiveError::Busy(after) => {
                HttpError::unavailable("busy", "more work is waiting than can be held", *after)
            }
            ReceiveError::Unavailable(after) => HttpError::unavailable(
                "storage_unavailable",
                "nothing can be stored at the moment",
                *after,
            ),
            ReceiveError::KeyReused => HttpError::unprocessable(
                "idempotency_key_reused",
                "this Idempotency-Key came with another body before",
            ),
        };
        mapped.because(error)
    }
}

impl From<BodyError> for HttpError {
    fn from(error: BodyError) -> HttpError {
        let detail = error.to_string();
        match error {
            BodyError::Empty => HttpError::bad_request("empty_body", detail),
            BodyError::Malformed { .. } => HttpError::bad_request("malformed_json", detail),
            BodyError::NotLeads => HttpError::unprocessable("not_a_lead", detail),
            BodyError::TooMany => HttpError::unprocessable("too_many_items", detail),
        }
    }
}

impl From<NotReady> for HttpError {
    fn from(error: NotReady) -> HttpError {
        match error {
            NotReady::Store(error) | NotReady::Migrate(MigrateError::Store(error)) => error.into(),
            NotReady::NotMigrated | NotReady::Migrate(_) => HttpError::unavailable(
                "not_migrated",
                "the database does not have the migrations of this version",
                RETRY_SOON,
            )
            .because(error),
        }
    }
}

impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> HttpError {
        match error {
            StoreError::Unavailable(_) | StoreError::TimedOut(_) | StoreError::Retry(_) => {
                HttpError::unavailable(
                    "database_unavailable",
                    "the database does not answer at the moment",
                    RETRY_SOON,
                )
                .because(error)
            }
            StoreError::Refused(_) => HttpError::internal(error),
        }
    }
}
