//! The server: connections in, requests to the routes, limits on everything. Beside the stand-in CRM
//! the only place that names hyper; the only one that names tower.
//!
//! An accept loop of our own, because warp's has none of these limits. HTTP/1 only: webhook senders
//! need no cleartext HTTP/2, and while a server tries to tell the two apart no timer runs.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{
    CACHE_CONTROL, CONNECTION, HeaderName, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};
use tracing::{debug, warn};

use crate::error::Chain;
use crate::http::{HttpError, Peer, RequestId};
use crate::stop::Stop;
use socket::{Socket, Unread};

mod socket;

/// Request line and headers together; more is answered with 431.
const MAX_HEAD: usize = 64 * 1024;

/// Longest path and query, in bytes; more is answered with 414.
const MAX_TARGET: usize = 8 * 1024;

/// Pause after the listener itself failed. Out of file descriptors is the usual reason, and trying
/// again at once would spin until a connection ends.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections at once; further ones wait in the kernel's queue. Keep it below the limit of
    /// open files.
    pub max_connections: usize,
    /// Time for the request line and headers; also how long a kept-alive connection may be idle.
    pub header_timeout: Duration,
    /// Time for the body, from the end of the headers on; 408 after it.
    pub body_timeout: Duration,
    /// Time for a whole request, from the end of the headers on, and longest time that a client takes
    /// no byte of an answer; 503 after it, where nothing was answered yet.
    pub request_timeout: Duration,
    /// Time that requests under way have to finish once the server stops.
    pub drain_timeout: Duration,
}

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were open when the stop came.
    pub open: usize,
    /// Those of them that were cut off because the time to drain was over.
    pub cut_off: usize,
}

/// Serves `routes` on `listener` until `stop` is cancelled, then takes no more connections, lets
/// requests under way finish and returns. Never fails: a connection's trouble is its own, and trouble
/// of the listener is logged and tried again.
///
/// Each request is given a [`Peer`] and a [`RequestId`] as extensions, and each answer of the routes
/// the id in `x-request-id`. A panic in the routes is answered with 500. The body ends with an
/// [`io::Error`] of kind `TimedOut` when it takes too long; its size is for the routes to limit.
pub async fn serve<S, B>(
    listener: TcpListener,
    routes: S,
    limits: Limits,
    stop: Stop,
) -> DrainReport
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        // A sender that hangs up at once, or closes its half after sending, has sent a whole request. Else
        // the end of its stream would end the request before the routes have seen the body.
        .half_close(true)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_HEAD);
    let slots = Arc::new(Semaphore::new(limits.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let connections = TaskTracker::new();
    let cut = Stop::new();
    let mut stopped = pin!(stop.cancelled());
    loop {
        // The slot comes before the connection, so that one too many is never accepted.
        let slot = tokio::select! {
            biased;
            () = &mut stopped => break,
            slot = Arc::clone(&slots).acquire_owned() => match slot {
                Ok(slot) => slot,
                Err(_) => break, // only a closed semaphore, and nobody closes it
            },
        };
        let accepted = tokio::select! {
            biased;
            () = &mut stopped => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                let pause_ms = ACCEPT_PAUSE.as_millis();
                warn!(%error, "cannot accept connections, trying again in {pause_ms} ms: {error}");
                tokio::select! {
                    biased;
                    () = &mut stopped => break,
                    () = sleep(ACCEPT_PAUSE) => continue,
                }
            }
        };
        let connection = connection(
            stream,
            Peer(peer),
            routes.clone(),
            http.clone(),
            limits,
            stop.clone(),
            cut.clone(),
        );
        connections.spawn(async move {
            let _slot = slot;
            connection.await;
        });
    }
    drop(listener);
    connections.close();
    let open = connections.len();
    let drained = timeout(limits.drain_timeout, connections.wait()).await.is_ok();
    let cut_off = if drained { 0 } else { connections.len() };
    cut.cancel();
    // They end at their next turn; without this wait their sockets would outlive the answer here.
    connections.wait().await;
    DrainReport { open, cut_off }
}

/// Errors of `accept` that belong to the connection that would have been accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// One connection from its first byte to its last.
async fn connection<S, B>(
    stream: TcpStream,
    peer: Peer,
    routes: S,
    http: http1::Builder,
    limits: Limits,
    stop: Stop,
    cut: Stop,
) where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send,
    S::Future: Send,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Only a socket that is gone already refuses it, and then the first read says so.
    let _ = stream.set_nodelay(true);
    let unread = Unread::default();
    let socket = Socket::new(stream, limits.request_timeout, unread.clone());
    let answer = service_fn(move |request| {
        answer(request, peer, routes.clone(), limits, unread.clone()).map(Ok::<_, Infallible>)
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), answer));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = cut.cancelled() => return,
            }
        }
    };
    // Scanners, half requests and clients that hang up: nothing anybody here can mend.
    if let Err(error) = ended {
        debug!("connection ended: {}", Chain(&error));
    }
}

/// One request: whatever happens in the routes, the answer is an answer.
async fn answer<S, B>(
    mut request: Request<Incoming>,
    peer: Peer,
    routes: S,
    limits: Limits,
    unread: Unread,
) -> Response<B>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
    B: From<Bytes>,
{
    let id = RequestId::new();
    let now = Instant::now();
    request.extensions_mut().insert(peer);
    request.extensions_mut().insert(id);
    let chunked = request.headers().contains_key(TRANSFER_ENCODING);
    let refused = refusal(&request);
    let request = request.map(|body| RequestBody {
        body,
        deadline: now.checked_add(limits.body_timeout),
        timer: None,
        unread,
    });
    let mut response = match refused {
        Some(error) => error.into_response(id),
        None => {
            let answered = AssertUnwindSafe(routes.oneshot(request)).catch_unwind();
            match timeout(limits.request_timeout, answered).await {
                Ok(Ok(Ok(response))) => response,
                Ok(Ok(Err(never))) => match never {},
                // The panic's own message is on stderr already and may hold anything.
                Ok(Err(_)) => HttpError::internal("the handler panicked").into_response(id),
                Err(_) => HttpError::deadline().into_response(id),
            }
        }
    };
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        headers.insert(X_REQUEST_ID, id);
    }
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    // A chunked request may have had a content length beside it, which hyper drops without a word.
    // Read by chunks and closed after the answer, as RFC 9112 section 6.1 wants it, it can smuggle
    // nothing past a proxy that believed the length.
    if chunked {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Requests that no route is asked about.
fn refusal(request: &Request<Incoming>) -> Option<HttpError> {
    if request.method() == Method::CONNECT {
        let detail = "this is not a proxy";
        return Some(HttpError::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", detail));
    }
    let uri = request.uri();
    let path = uri.path();
    if !path.starts_with('/') {
        // `OPTIONS *` and bare host names: the filters would panic on some of them.
        return Some(HttpError::bad_request("bad_target", "the request names no path"));
    }
    if path.len() + uri.query().map_or(0, str::len) > MAX_TARGET {
        let detail = format!("path and query may have {MAX_TARGET} bytes");
        return Some(HttpError::new(StatusCode::URI_TOO_LONG, "uri_too_long", detail));
    }
    // No resource has a slash at its end, and the filters do not tell `/hooks/site/` from `/hooks/site`.
    (path.len() > 1 && path.ends_with('/')).then(HttpError::not_found)
}

/// The body of a request, with a deadline.
pub struct RequestBody {
    body: Incoming,
    /// `None`: further away than the clock can say.
    deadline: Option<Instant>,
    /// Made when there is something to wait for: most bodies are there with their headers.
    timer: Option<Pin<Box<Sleep>>>,
    unread: Unread,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        timer.as_mut().poll(cx).map(|()| {
            let error = io::Error::new(io::ErrorKind::TimedOut, "the body took too long");
            Some(Err(error.into()))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.unread.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trouble_of_the_listener_pauses_it() {
        use nix::errno::Errno::{ECONNABORTED, EMFILE, ENFILE, ENOBUFS};
        let error = |errno| io::Error::from_raw_os_error(errno as i32);
        assert!(is_of_one_connection(&error(ECONNABORTED)));
        for errno in [ENFILE, EMFILE, ENOBUFS] {
            assert!(!is_of_one_connection(&error(errno)));
        }
    }
}
