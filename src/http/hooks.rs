//! `/hooks/{source}`: where lead sources deliver.
//!
//! A stored delivery is answered with a plain 200, whatever became of it, never with a redirect, 410
//! or another 2xx: several senders retry, give up or delete the hook on anything else.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use serde::Serialize;
use serde_json::json;
use tracing::{Instrument, Span, info_span};
use uuid::Uuid;
use warp::reply::Response;

use super::body::Arrived;
use super::{Context, HttpError};
use crate::error::Chain;
use crate::lead::Outcome;
use crate::receive::{ItemOutcome, ReceiveError};
use crate::sources::{AuthError, ConfiguredSource, Request};

const ALLOW: &str = "HEAD, POST";

pub(super) async fn answer(source: String, context: Arc<Context>, arrived: Arrived) -> Response {
    let id = arrived.id;
    super::finish(handle(&source, &context, arrived).await, id)
}

async fn handle(source: &str, context: &Context, arrived: Arrived) -> Result<Response, HttpError> {
    // First of all, so that nothing is read for names that are only guessed.
    let source = context.receiver.source(source).ok_or_else(HttpError::not_found)?;
    match arrived.method {
        Method::POST => deliver(source, context, arrived).await,
        // Some senders look whether anybody is there before they save the address.
        Method::HEAD => Ok(Response::new(Bytes::new().into())),
        Method::GET => handshake(&source, &arrived.query),
        _ => Err(HttpError::method_not_allowed(ALLOW)),
    }
}

async fn deliver(
    source: Arc<ConfiguredSource>,
    context: &Context,
    mut arrived: Arrived,
) -> Result<Response, HttpError> {
    let mut request = Request {
        method: arrived.method.as_str().to_owned(),
        query: std::mem::take(&mut arrived.query),
        headers: as_text(&arrived.headers),
        body: Bytes::new(),
    };
    // There is room for so many bodies only, and who has a wrong token shall not fill it.
    source.verify_head(&request).map_err(|error| not_believed(&source, error))?;
    request.body = arrived.read_body(context.max_body).await?;
    // Decompressing takes away what no longer holds.
    request.headers.retain(|(name, _)| arrived.headers.contains_key(name));
    let verified =
        source.verify(request, (context.now)()).map_err(|error| not_believed(&source, error))?;
    let receiver = context.receiver.clone();
    let span = info_span!("delivery", request.id = %arrived.id, source = source.name);
    let outcomes = detached(span, async move { receiver.deliver(source, verified).await }).await?;
    match outcomes.as_slice() {
        [one] => super::json(&Answer::from(one)),
        // One word for a delivery that says only ids, however many.
        [one, rest @ ..] if one.outcome == Outcome::Queued && rest.iter().all(|i| i == one) => {
            super::json(&Answer::from(one))
        }
        several => super::json(&json!({ "outcomes": answers(several) })),
    }
}

fn not_believed(source: &ConfiguredSource, error: AuthError) -> HttpError {
    let detail = "the sender did not prove who it is";
    HttpError::new(StatusCode::UNAUTHORIZED, "bad_signature", detail).because(format!(
        "source {}: {}",
        source.name,
        Chain(&error)
    ))
}

fn handshake(source: &ConfiguredSource, query: &str) -> Result<Response, HttpError> {
    let handshake = source.handshake(query).ok_or_else(|| match source.has_handshake() {
        true => {
            let detail = "that is not what the sender of this hook sends to check its address";
            HttpError::new(StatusCode::FORBIDDEN, "bad_challenge", detail)
        }
        false => HttpError::method_not_allowed(ALLOW),
    })?;
    let status = StatusCode::from_u16(handshake.status).map_err(HttpError::internal)?;
    let mut response = Response::new(Bytes::from(handshake.body).into());
    *response.status_mut() = status;
    let content_type =
        HeaderValue::from_str(handshake.content_type).map_err(HttpError::internal)?;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

/// Runs the write in a task of its own: a sender that hangs up drops the request's future, and a
/// write that is cut off between being sent and being committed is the one nobody could tell about.
pub(super) async fn detached<T: Send + 'static>(
    span: Span,
    write: impl Future<Output = Result<T, ReceiveError>> + Send + 'static,
) -> Result<T, HttpError> {
    match tokio::spawn(write.instrument(span)).await {
        Ok(result) => result.map_err(HttpError::from),
        // Its message may hold personal data, so it stays out of the log.
        Err(_) => Err(HttpError::internal("the task that stores the delivery died")),
    }
}

/// What became of one lead, as answers show it.
#[derive(Serialize)]
pub(super) struct Answer {
    pub(super) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lead_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl From<&ItemOutcome> for Answer {
    fn from(item: &ItemOutcome) -> Answer {
        Answer { outcome: item.outcome.name(), lead_id: item.lead_id, reason: item.reason.clone() }
    }
}

pub(super) fn answers(items: &[ItemOutcome]) -> Vec<Answer> {
    items.iter().map(Answer::from).collect()
}

/// Names in lower case (hyper keeps them so), values as text, in order.
fn as_text(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_write_goes_on_when_the_sender_hangs_up() {
        let (started, has_started) = oneshot::channel();
        let (go_on, may_go_on) = oneshot::channel::<()>();
        let (committed, has_committed) = oneshot::channel();
        let write = detached(Span::none(), async move {
            started.send(()).unwrap();
            may_go_on.await.unwrap();
            committed.send(()).unwrap();
            Ok(())
        });
        tokio::select! {
            _ = write => panic!("it waits for the sender to hang up"),
            _ = has_started => (),
        }
        // The select has dropped the request's future by now.
        go_on.send(()).unwrap();
        has_committed.await.unwrap();
    }

    #[tokio::test]
    async fn a_write_that_panics_is_a_500() {
        let dead = detached::<()>(Span::none(), async { panic!("on purpose") }).await;
        let response: http::Response<Bytes> =
            dead.unwrap_err().into_response(crate::http::RequestId::new());
        assert_eq!(response.status(), 500);
        assert!(!response.body().windows(10).any(|w| w == b"on purpose"));
    }
}
