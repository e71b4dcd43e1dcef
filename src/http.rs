//! What is asked over HTTP and who answers. The only room that names warp.
//!
//! Filters pick a route by its path; everything after that is a plain function that returns a
//! response or an [`HttpError`]. So no rejection ever reaches a client: warp would show the `Debug`
//! of one. Each route looks at the method itself, because only it knows what to put into `Allow`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use uuid::Uuid;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use crate::config;
use crate::receive::Receiver;
use crate::secret::Secret;
use crate::store::Store;

mod auth;
mod deliveries;
mod hooks;
mod leads;
mod ops;

pub mod body;
pub mod error;

pub use error::HttpError;
/// Turns the filter of [`routes`] into the service that the server runs.
pub use warp::service;

/// The other end of the connection; the server puts it into a request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Names one request in the log, in `x-request-id` and in problems. Always made here: one that a
/// client may choose could be repeated or made to look like something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(Uuid);

impl RequestId {
    /// A new one.
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> RequestId {
        RequestId(Uuid::new_v4())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Tells the time that signatures are checked against, in seconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What the routes need.
#[derive(Clone)]
pub struct Context {
    /// Takes deliveries.
    pub receiver: Receiver,
    /// Reads of leads, and readiness.
    pub store: Store,
    /// Whether this instance takes deliveries. Without that role (`serve --only sync`) it answers `/healthz`
    /// and `/readyz`; everything else is not found there, hooks and `/v1` too, so that a load balancer
    /// which sends deliveries to the wrong instance is seen at once.
    pub receives: bool,
    /// Bearer token of `/v1`; `None`: only this machine may ask.
    pub admin_token: Option<Secret>,
    /// Largest request body in bytes, before and after decompression.
    pub max_body: usize,
    /// Rules for every lead.
    pub leads: config::Leads,
    /// The clock that signatures are checked against.
    pub now: Clock,
}

/// All routes.
pub fn routes(context: Context) -> BoxedFilter<(Response,)> {
    let receives = context.receives;
    let context = Arc::new(context);
    let context = warp::any().map(move || Arc::clone(&context));
    let hooks = warp::path!("hooks" / String)
        .and(context.clone())
        .and(body::arrived())
        .then(hooks::answer)
        .boxed();
    let batch = warp::path!("v1" / "leads")
        .and(context.clone())
        .and(body::arrived())
        .then(leads::take)
        .boxed();
    let lead = warp::path!("v1" / "leads" / String)
        .and(context.clone())
        .and(body::arrived())
        .then(leads::show)
        .boxed();
    let deliveries = warp::path!("v1" / "deliveries")
        .and(context.clone())
        .and(body::arrived())
        .then(deliveries::list)
        .boxed();
    let delivery = warp::path!("v1" / "deliveries" / String)
        .and(context.clone())
        .and(body::arrived())
        .then(deliveries::show)
        .boxed();
    let alive = warp::path!("healthz").and(body::arrived()).then(ops::alive).boxed();
    let ready = warp::path!("readyz").and(context).and(body::arrived()).then(ops::ready).boxed();
    // Matches whatever nothing before it has matched, so no rejection is left over.
    let nothing = body::arrived()
        .then(async |arrived: body::Arrived| HttpError::not_found().into_response(arrived.id))
        .boxed();
    let health = alive.or(ready).unify().boxed();
    if !receives {
        return health.or(nothing).unify().boxed();
    }
    let leads = batch.or(lead).unify().boxed();
    let archive = deliveries.or(delivery).unify().boxed();
    let v1 = leads.or(archive).unify().boxed();
    hooks.or(v1).unify().or(health).unify().or(nothing).unify().boxed()
}

/// The end of every handler.
fn finish(result: Result<Response, HttpError>, id: RequestId) -> Response {
    result.unwrap_or_else(|error| error.into_response(id))
}

/// A plain 200 with JSON.
fn json(value: &impl Serialize) -> Result<Response, HttpError> {
    let text = serde_json::to_vec(value).map_err(HttpError::internal)?;
    let mut response = Response::new(Bytes::from(text).into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
