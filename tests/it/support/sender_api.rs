//! Stand-ins for the APIs of senders that deliver only ids: Graph, LinkedIn's Lead Sync, HubSpot's CRM. One server
//! over a real socket, with faults for the next calls and calls that wait until the test lets them go on.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to a call instead of a true answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Status, headers and body.
    Status(u16, Vec<(&'static str, String)>, Value),
    /// No answer for so long, then the true one.
    Delay(Duration),
    /// The true answer when the test releases it.
    Hold,
    /// An answer that is no JSON.
    Garbage,
}

/// A call as it came in.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

#[derive(Default)]
struct State {
    token: String,
    /// Graph: leads by id; LinkedIn: responses; HubSpot: contacts.
    things: BTreeMap<String, Value>,
    /// LinkedIn: forms by id.
    forms: BTreeMap<String, Value>,
    faults: VecDeque<(String, Fault)>,
    calls: Vec<Call>,
    /// Things in a page of a listing.
    page: usize,
}

/// A running stand-in. Dropped, it stops.
pub struct SenderApi {
    url: String,
    state: Arc<Mutex<State>>,
    arrived: watch::Sender<usize>,
    released: watch::Sender<u64>,
    server: JoinHandle<()>,
}

impl SenderApi {
    /// On a free loopback port; it believes that token.
    pub async fn start(token: &str) -> SenderApi {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let state = State { token: token.to_owned(), page: 2, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let (arrived, released) = (watch::Sender::new(0), watch::Sender::new(0));
        let shared = (state.clone(), arrived.clone(), released.clone());
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                let service = service_fn(move |request| {
                    let (state, arrived, released) = shared.clone();
                    async move {
                        Ok::<_, Infallible>(answer(&state, &arrived, &released, request).await)
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        SenderApi { url, state, arrived, released, server }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the state")
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Keeps a thing under its `id`.
    pub fn put(&self, thing: Value) {
        let id = thing["id"].as_str().expect("an id").to_owned();
        self.state().things.insert(id, thing);
    }

    pub fn remove(&self, id: &str) {
        self.state().things.remove(id);
    }

    pub fn put_form(&self, id: &str, form: Value) {
        self.state().forms.insert(id.to_owned(), form);
    }

    /// Another token from now on.
    pub fn set_token(&self, token: &str) {
        self.state().token = token.to_owned();
    }

    /// For the next call whose path contains this.
    pub fn fault(&self, path: &str, fault: Fault) {
        self.state().faults.push_back((path.to_owned(), fault));
    }

    /// Lets every held call go on.
    pub fn release(&self) {
        self.released.send_modify(|n| *n += 1);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// Calls whose path contains this.
    pub fn count(&self, path: &str) -> usize {
        self.state().calls.iter().filter(|call| call.path.contains(path)).count()
    }

    /// Waits until so many calls have come in.
    pub async fn arrived(&self, n: usize) {
        let mut arrived = self.arrived.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(30), arrived.wait_for(|a| *a >= n));
        waited
            .await
            .unwrap_or_else(|_| panic!("{} calls, not {n}", self.calls().len()))
            .expect("lives");
    }
}

impl Drop for SenderApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Reply = Response<Full<Bytes>>;

fn reply(status: u16, body: &Value) -> Reply {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::from(body.to_string()))
        .expect("an answer")
}

async fn answer(
    state: &Mutex<State>,
    arrived: &watch::Sender<usize>,
    released: &watch::Sender<u64>,
    request: Request<Incoming>,
) -> Reply {
    let (head, body) = request.into_parts();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter();
    let headers: BTreeMap<String, String> =
        headers.map(|(name, value)| (name.to_string(), text(value))).collect();
    let body = body.collect().await.expect("a body").to_bytes();
    let call = Call {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let mut go_on = released.subscribe();
    go_on.mark_unchanged();
    let fault = {
        let mut state = state.lock().expect("the state");
        let at = state.faults.iter().position(|(path, _)| call.path.contains(path));
        state.calls.push(call.clone());
        at.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault)
    };
    arrived.send_modify(|n| *n += 1);
    match fault {
        Some(Fault::Status(status, headers, body)) => {
            let mut reply = reply(status, &body);
            for (name, value) in headers {
                reply.headers_mut().insert(name, value.parse().expect("a value"));
            }
            return reply;
        }
        Some(Fault::Garbage) => return Response::new(Full::from("<html>")),
        Some(Fault::Delay(length)) => tokio::time::sleep(length).await,
        Some(Fault::Hold) => drop(go_on.changed().await),
        None => {}
    }
    let state = state.lock().expect("the state");
    route(&state, &call)
}

fn param(query: &str, name: &str) -> Option<String> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.into_owned().find(|(key, _)| key == name).map(|(_, value)| value)
}

fn route(state: &State, call: &Call) -> Reply {
    let token = call.headers.get("authorization").cloned().unwrap_or_default();
    let believed = token == format!("Bearer {}", state.token);
    let parts: Vec<&str> = call.path.split('/').filter(|part| !part.is_empty()).collect();
    match (call.method.as_str(), parts.as_slice()) {
        ("GET", ["v24.0", ..]) if !believed => reply(
            400,
            &json!({"error": {"message": "Invalid OAuth access token.", "type": "OAuthException", "code": 190}}),
        ),
        _ if !believed => reply(
            401,
            &json!({"message": "The token used is invalid", "category": "INVALID_AUTHENTICATION", "status": 401}),
        ),
        ("GET", ["v24.0", rest @ ..]) => graph(state, rest, &call.query),
        ("GET", ["rest", rest @ ..]) => linkedin(state, rest, call),
        (method, ["crm", "v3", "objects", "contacts", rest @ ..]) => {
            hubspot(state, method, rest, &call.body)
        }
        _ => reply(404, &json!({"message": "no such resource"})),
    }
}

fn graph(state: &State, path: &[&str], query: &str) -> Reply {
    match path {
        ["me"] => reply(200, &json!({"id": "153125381133", "name": "Oficina"})),
        ["me", "leadgen_forms"] => {
            let forms: std::collections::BTreeSet<&str> =
                state.things.values().filter_map(|lead| lead["form_id"].as_str()).collect();
            let all: Vec<Value> = forms.into_iter().map(|id| json!({ "id": id })).collect();
            pages(&all, state.page, query)
        }
        [form, "leads"] => {
            let filter: Value =
                serde_json::from_str(&param(query, "filtering").unwrap_or_default())
                    .expect("a filter");
            let since = filter[0]["value"].as_i64().expect("a time");
            let new = |lead: &&Value| {
                let at = lead["created_time"].as_str().and_then(leadsync::mapping::time::rfc3339);
                lead["form_id"] == *form && at.is_some_and(|at| at > since * 1_000_000)
            };
            let all: Vec<Value> = state.things.values().filter(new).cloned().collect();
            pages(&all, state.page, query)
        }
        [id] => match state.things.get(*id) {
            Some(lead) => reply(200, lead),
            None => reply(
                400,
                &json!({"error": {"message": format!("Unsupported get request. Object with ID '{id}' does not exist"),
                    "type": "GraphMethodException", "code": 100, "error_subcode": 33}}),
            ),
        },
        _ => reply(404, &json!({})),
    }
}

/// A page as Graph cuts it; the cursor is a position.
fn pages(all: &[Value], size: usize, query: &str) -> Reply {
    let start: usize = param(query, "after").and_then(|a| a.parse().ok()).unwrap_or(0);
    let end = (start + size).min(all.len());
    let mut body = json!({"data": all[start.min(end)..end], "paging": {"cursors": {"after": end.to_string()}}});
    if end < all.len() {
        body["paging"]["next"] = json!("https://graph.facebook.com/next");
    }
    reply(200, &body)
}

fn linkedin(state: &State, path: &[&str], call: &Call) -> Reply {
    assert_eq!(call.headers["linkedin-version"].len(), 6);
    match path {
        ["leadFormResponses"] => {
            let range = param(&call.query, "submittedAtTimeRange").expect("a range");
            let range = range.trim_start_matches("(start:").trim_end_matches(')');
            let (since, end) = range.split_once(",end:").expect("an end");
            assert!(end.parse::<i64>().expect("a time") > 0);
            let since: i64 = since.parse().expect("a time");
            let start: usize =
                param(&call.query, "start").expect("a start").parse().expect("a number");
            let of_type = param(&call.query, "leadType").expect("a type");
            let new = |r: &&Value| {
                let lead_type = r["leadType"].as_str().unwrap_or_default();
                r["submittedAt"].as_i64().is_some_and(|at| at >= since)
                    && of_type == format!("(leadType:{lead_type})")
            };
            let all: Vec<&Value> =
                state.things.values().filter(new).skip(start).take(100).collect();
            reply(200, &json!({"paging": {"start": start, "count": 100}, "elements": all}))
        }
        ["leadFormResponses", id] => match state.things.get(*id) {
            Some(response) => reply(200, response),
            None => {
                reply(404, &json!({"code": "NOT_FOUND", "message": "not found", "status": 404}))
            }
        },
        ["leadForms"] => reply(200, &json!({"elements": []})),
        ["leadForms", id] => match state.forms.get(*id) {
            Some(form) => reply(200, form),
            None => reply(404, &json!({"code": "NOT_FOUND", "message": "no form", "status": 404})),
        },
        _ => reply(404, &json!({})),
    }
}

fn hubspot(state: &State, method: &str, path: &[&str], body: &Value) -> Reply {
    // As HubSpot gives only what was asked for.
    let shown = |contact: &Value| {
        let mut shown = contact.clone();
        if let (Some(given), Some(wanted)) =
            (shown["properties"].as_object_mut(), body["properties"].as_array())
        {
            given.retain(|name, _| wanted.iter().any(|wanted| wanted == name));
        }
        shown
    };
    match (method, path) {
        ("GET", []) => reply(200, &json!({"results": []})),
        ("POST", ["batch", "read"]) => {
            let ids: Vec<&str> = body["inputs"]
                .as_array()
                .expect("inputs")
                .iter()
                .map(|input| input["id"].as_str().expect("an id"))
                .collect();
            assert!(ids.len() <= 100);
            // In another order than asked for.
            let found: Vec<Value> =
                ids.iter().rev().filter_map(|id| state.things.get(*id)).map(shown).collect();
            let gone: Vec<&&str> =
                ids.iter().filter(|id| !state.things.contains_key(**id)).collect();
            if gone.is_empty() {
                return reply(200, &json!({"status": "COMPLETE", "results": found}));
            }
            reply(
                207,
                &json!({"status": "COMPLETE", "results": found, "numErrors": 1, "errors": [{
                    "status": "error", "category": "OBJECT_NOT_FOUND", "message": "Could not get some CONTACT objects",
                    "context": {"ids": gone}}]}),
            )
        }
        ("POST", ["search"]) => {
            let since = body["filterGroups"][0]["filters"][0]["value"].as_str().expect("a time");
            let since: i64 = since.parse().expect("milliseconds");
            let changed = |contact: &Value| {
                let at = contact["properties"]["lastmodifieddate"].as_str();
                at.and_then(leadsync::mapping::time::rfc3339).map(|at| at / 1_000)
            };
            let new = |contact: &&Value| changed(contact).is_some_and(|at| at >= since);
            let mut new: Vec<&Value> = state.things.values().filter(new).collect();
            new.sort_by_key(|contact| changed(contact));
            let start: usize = body["after"].as_str().and_then(|a| a.parse().ok()).unwrap_or(0);
            let end = (start + state.page).min(new.len());
            let results: Vec<Value> = new[start.min(end)..end].iter().map(|c| shown(c)).collect();
            let mut answer = json!({"total": new.len(), "results": results});
            if end < new.len() {
                answer["paging"] = json!({"next": {"after": end.to_string()}});
            }
            reply(200, &answer)
        }
        _ => reply(404, &json!({})),
    }
}
