//! `/healthz` and `/readyz`.

use std::sync::Arc;

use http::Method;
use serde_json::json;
use warp::reply::Response;

use super::body::Arrived;
use super::{Context, HttpError};

const READ_ONLY: &str = "GET, HEAD";

/// The process runs and answers. Says nothing about the database: restarting a healthy process does
/// not mend one.
pub(super) async fn alive(arrived: Arrived) -> Response {
    let answer = read_only(&arrived.method).and_then(|()| super::json(&json!({"status": "ok"})));
    super::finish(answer, arrived.id)
}

/// 200 when deliveries can be stored here.
pub(super) async fn ready(context: Arc<Context>, arrived: Arrived) -> Response {
    let answer = match read_only(&arrived.method) {
        Ok(()) => match context.store.ready().await {
            Ok(()) => super::json(&json!({"status": "ready"})),
            Err(error) => Err(HttpError::from(error)),
        },
        Err(error) => Err(error),
    };
    super::finish(answer, arrived.id)
}

/// GET, and HEAD, whose body the server leaves out.
pub(super) fn read_only(method: &Method) -> Result<(), HttpError> {
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(HttpError::method_not_allowed(READ_ONLY)),
    }
}
