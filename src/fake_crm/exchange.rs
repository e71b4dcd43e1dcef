//! One exchange over a real socket: connection, fault, answer, log.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fault::{Body, Fault, Wait};
use super::socket::Socket;
use super::{
    CALLS_KEPT, Call, Shared, State, brevo, control, hubspot, odoo, pipedrive, plain, rdstation,
    salesforce, webhook, zoho,
};

/// Largest request body; HubSpot's own limit is near this.
const MAX_BODY: usize = 16 << 20;

/// A request, read completely.
pub(super) struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Request {
    /// The values of a query parameter.
    pub fn param(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.query.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    /// The value of a header, where it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }
}

/// What a CRM answers.
pub(super) struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    pub html: bool,
    /// Something was written.
    pub wrote: bool,
}

impl Answer {
    pub fn json(status: u16, body: &Value) -> Answer {
        let body = Bytes::from(body.to_string());
        Answer { status, headers: Vec::new(), body, html: false, wrote: false }
    }

    pub fn empty(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Bytes::new(), html: false, wrote: false }
    }

    pub fn html(status: u16, body: String) -> Answer {
        Answer { status, headers: Vec::new(), body: body.into(), html: true, wrote: false }
    }

    pub fn written(mut self) -> Answer {
        self.wrote = true;
        self
    }

    pub fn not_found() -> Answer {
        Answer::json(404, &json!({"status": "error", "message": "no such route"}))
    }
}

/// How an exchange ends.
enum End {
    Answered(Answer),
    /// The body stops in the middle and the connection with it.
    Cut(Answer),
    /// No answer at all.
    Reset,
}

/// Accepts until stopped; stopping cuts every connection.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&shared), stop.clone()));
                }
                // Out of file descriptors, most likely: let some connections end first.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, shared: Arc<Shared>, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let abort = Arc::new(AtomicBool::new(false));
    let io = TokioIo::new(Socket { stream, abort: Arc::clone(&abort) });
    let service = hyper::service::service_fn(move |request| {
        exchange(Arc::clone(&shared), stop.clone(), Arc::clone(&abort), request)
    });
    // An error here is a client that went away, or a reset that was asked for.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(io, service)
        .await;
}

type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

async fn exchange(
    shared: Arc<Shared>,
    stop: CancellationToken,
    abort: Arc<AtomicBool>,
    request: hyper::Request<Incoming>,
) -> io::Result<hyper::Response<ResponseBody>> {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Ok(response(Answer::empty(413), false)),
    };
    let request = Request {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body,
    };
    // In a task of its own: a client that hangs up does not keep the CRM from doing what it was asked.
    let end = tokio::spawn(async move {
        if request.path == "/" || request.path.starts_with("/_fake") {
            return End::Answered(control::route(&shared, &request));
        }
        tokio::select! {
            end = handle(&shared, &request) => end,
            () = stop.cancelled() => End::Reset,
        }
    })
    .await;
    match end {
        Ok(End::Answered(answer)) => Ok(response(answer, false)),
        Ok(End::Cut(answer)) => Ok(response(answer, true)),
        Ok(End::Reset) => {
            abort.store(true, Ordering::Release);
            Err(io::Error::other("reset on purpose"))
        }
        Err(_) => Ok(response(Answer::empty(500), false)),
    }
}

/// The life of one request to a CRM.
async fn handle(shared: &Shared, request: &Request) -> End {
    // Before the arrival is told, so that a release after it cannot be missed.
    let mut released = shared.released.subscribe();
    let (seq, fault) = arrive(shared, request);
    pause(&mut released, fault.before()).await;
    let latency = match request.path.starts_with("/plain") {
        true => shared.state().options.plain.latency / 2,
        false => std::time::Duration::ZERO,
    };
    pause(&mut released, Wait::For(latency)).await;
    let mut answer = match fault.applies() {
        true => apply(shared, seq, request, &fault),
        false => Answer::empty(200),
    };
    pause(&mut released, Wait::For(latency)).await;
    pause(&mut released, fault.after()).await;
    answer = match &fault {
        Fault::ResetBefore | Fault::ResetAfter => {
            return end(shared, seq, None, End::Reset);
        }
        Fault::Status { status, body, retry_after, .. } => {
            let mut answer = refusal(&request.path, *status, *body);
            if let Some(seconds) = retry_after {
                answer.headers.push(("retry-after", seconds.to_string()));
            }
            answer
        }
        Fault::RateLimited { retry_after, daily } => {
            rate_limited(&request.path, *retry_after, *daily)
        }
        Fault::EmptyBody { status } => Answer::empty(*status),
        Fault::CutJson => {
            answer.body.truncate(answer.body.len() / 2);
            answer
        }
        _ => answer,
    };
    let status = answer.status;
    match fault {
        Fault::Truncated => end(shared, seq, Some(status), End::Cut(answer)),
        _ => end(shared, seq, Some(status), End::Answered(answer)),
    }
}

/// Logs the request and takes its fault.
fn arrive(shared: &Shared, request: &Request) -> (u64, Fault) {
    let mut state = shared.state();
    let fault = state.take_fault(&request.method, &request.path);
    state.arrived += 1;
    let seq = state.arrived;
    if state.calls.len() == CALLS_KEPT {
        state.calls.pop_front();
    }
    let secret = ["api-key", "authorization", "cookie", "proxy-authorization", "x-api-token"];
    let path = match request.query.is_empty() || request.path.ends_with("/token") {
        true => request.path.clone(),
        false => format!("{}?{}", request.path, request.query),
    };
    state.calls.push_back(Call {
        seq,
        method: request.method.clone(),
        path,
        headers: request
            .headers
            .iter()
            .filter(|(name, _)| !secret.contains(&name.as_str()))
            .map(|(n, v)| (n.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned()))
            .collect(),
        body: logged(request),
        at: jiff::Timestamp::now(),
        fault: fault.clone(),
        applied: false,
        status: None,
    });
    drop(state);
    shared.progress.send_modify(|p| p.arrived = p.arrived.max(seq));
    (seq, fault.unwrap_or(Fault::Pass))
}

/// The body as it is kept: what a token is asked for with is as secret as the token.
fn logged(request: &Request) -> Bytes {
    let places: &[&str] = match request.path.as_str() {
        "/auth/token" => &["/client_secret", "/refresh_token"],
        "/jsonrpc" => &["/params/args/2"],
        path if path.ends_with("/token") => return logged_form(&request.body),
        _ => return request.body.clone(),
    };
    let Ok(mut body) = serde_json::from_slice::<Value>(&request.body) else {
        return request.body.clone();
    };
    for secret in places {
        if let Some(secret) = body.pointer_mut(secret) {
            *secret = Value::from("[secret]");
        }
    }
    body.to_string().into()
}

fn logged_form(body: &[u8]) -> Bytes {
    let open = ["grant_type", "client_id", "scope"];
    let mut form = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(body) {
        let shown = if open.contains(&name.as_ref()) { value } else { "[secret]".into() };
        form.append_pair(&name, &shown);
    }
    form.finish().into()
}

/// Does what the request asks, under the lock: requests to one CRM happen one after the other.
fn apply(shared: &Shared, seq: u64, request: &Request, fault: &Fault) -> Answer {
    let mut guard = shared.state();
    let state: &mut State = &mut guard;
    let tweak = fault.tweak();
    let answer = if zoho::owns(&request.path) {
        state.zoho.route(&state.options.zoho, request, &tweak)
    } else if request.path.starts_with("/crm/") {
        state.hubspot.route(&state.options.hubspot, request, &tweak, &mut state.rng)
    } else if salesforce::owns(&request.path) {
        state.salesforce.route(&state.options.salesforce, request, &tweak)
    } else if brevo::owns(&request.path) {
        state.brevo.route(&state.options.brevo, request, &tweak)
    } else if pipedrive::owns(&request.path) {
        state.pipedrive.route(&state.options.pipedrive, request, &tweak)
    } else if odoo::Account::owns(&request.path) {
        state.odoo.route(&state.options.odoo, request, &tweak)
    } else if rdstation::Account::owns(&request.path) {
        state.rdstation.route(&state.options.rdstation, request)
    } else if request.path.starts_with("/plain/") {
        plain::route(&mut state.plain, &state.options.plain, request)
    } else if request.path == "/webhook" {
        webhook::route(&mut state.webhook, &state.options.webhook, request)
    } else {
        Answer::not_found()
    };
    if answer.wrote {
        state.applied += 1;
        let applied = state.applied;
        if let Some(call) = state.calls.iter_mut().rev().find(|c| c.seq == seq) {
            call.applied = true;
        }
        drop(guard);
        shared.progress.send_modify(|p| p.applied = p.applied.max(applied));
    }
    answer
}

fn end(shared: &Shared, seq: u64, status: Option<u16>, end: End) -> End {
    let mut state = shared.state();
    let word = status.map_or_else(|| "none".to_owned(), |s| s.to_string());
    *state.statuses.entry(word).or_default() += 1;
    if let Some(call) = state.calls.iter_mut().rev().find(|c| c.seq == seq) {
        call.status = status;
    }
    end
}

async fn pause(released: &mut watch::Receiver<u64>, wait: Wait) {
    match wait {
        Wait::No => {}
        Wait::For(time) if time.is_zero() => {}
        Wait::For(time) => tokio::time::sleep(time).await,
        Wait::Release => {
            // Fails only when the sender is gone, and the server's state holds it.
            let _ = released.changed().await;
        }
    }
}

/// The limit is reached, as the CRM of that path words it.
fn rate_limited(path: &str, retry_after: Option<u64>, daily: bool) -> Answer {
    let mut answer = match path {
        path if rdstation::Account::owns(path) => return rdstation::errors::too_many(retry_after),
        path if salesforce::owns(path) => return salesforce::errors::too_many(daily, 100_000),
        path if zoho::owns(path) => return zoho::errors::too_many(daily),
        path if brevo::owns(path) => brevo::errors::hourly(daily),
        path if pipedrive::owns(path) => pipedrive::errors::too_many(),
        _ => return hubspot::errors::too_many(daily, retry_after, (190, 0, 10_000)),
    };
    if daily && pipedrive::owns(path) {
        answer.headers.push(("x-daily-ratelimit-token-remaining", "0".to_owned()));
    }
    answer.headers.extend(retry_after.map(|seconds| ("retry-after", seconds.to_string())));
    answer
}

fn refusal(path: &str, status: u16, body: Body) -> Answer {
    let envelope = match path {
        path if rdstation::Account::owns(path) => rdstation::errors::of_status(status),
        path if salesforce::owns(path) => salesforce::errors::of_status(status),
        path if zoho::owns(path) => zoho::errors::of_status(status),
        path if brevo::owns(path) => brevo::errors::of_status(status),
        path if pipedrive::owns(path) => pipedrive::errors::of_status(status),
        _ => hubspot::errors::of_status(status),
    };
    let mut answer = match body {
        Body::Json => Answer::json(status, &envelope),
        Body::Html => Answer::html(
            status,
            format!(
                "<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>"
            ),
        ),
        Body::Empty => Answer::empty(status),
    };
    if (300..400).contains(&status) {
        answer.headers.push(("location", "/".to_owned()));
    }
    answer
}

fn response(answer: Answer, cut: bool) -> hyper::Response<ResponseBody> {
    let length = answer.body.len();
    let body = match cut {
        false => Full::new(answer.body).map_err(|never: Infallible| match never {}).boxed_unsync(),
        true => {
            let half = answer.body.slice(..length / 2);
            let parts = stream::unfold(Some(Some(half)), |step| async {
                match step? {
                    Some(half) => Some((Ok(Frame::data(half)), Some(None))),
                    None => {
                        // Gives the connection a turn to send what it has before it is cut.
                        tokio::task::yield_now().await;
                        Some((Err(io::Error::other("cut on purpose")), None))
                    }
                }
            });
            StreamBody::new(parts).boxed_unsync()
        }
    };
    let mut response = hyper::Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if cut {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if length > 0 {
        let kind = if answer.html { "text/html; charset=utf-8" } else { "application/json" };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}
