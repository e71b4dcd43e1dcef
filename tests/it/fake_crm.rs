//! The stand-in CRM against the cases of HubSpot's contract, with a client that is nothing but a socket.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use leadsync::fake_crm::hubspot::{Token, TokenState};
use leadsync::fake_crm::{Apply, Body, Crm, FakeCrm, Fault, FaultRates, Options, Order, Scripted};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const UPSERT: &str = "/crm/v3/objects/contacts/batch/upsert";
const CONTACTS: &str = "/crm/v3/objects/contacts";

/// An answer, read to the end of the connection.
pub struct Reply {
    pub status: u16,
    headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// As long as its Content-Length says.
    complete: bool,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// One request, answered within 20 s.
pub async fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<Reply> {
    let exchange = async {
        let mut socket = TcpStream::connect(to).await?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).await?;
        let mut read = Vec::new();
        let ended = socket.read_to_end(&mut read).await;
        let end = read.windows(4).position(|w| w == b"\r\n\r\n");
        let Some(end) = end else {
            ended?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let body = read[end + 4..].to_vec();
        let headers: BTreeMap<String, String> = head
            .lines()
            .skip(1)
            .filter_map(|l| l.split_once(": "))
            .map(|(n, v)| (n.to_lowercase(), v.to_owned()))
            .collect();
        let length = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
        let status = head[9..12].parse().unwrap();
        Ok(Reply { status, headers, complete: body.len() == length, body })
    };
    tokio::time::timeout(Duration::from_secs(20), exchange).await.expect("an answer in 20 s")
}

const BEARER: &str = "Authorization: Bearer t\r\n";

async fn post(crm: &FakeCrm, path: &str, body: &Value) -> Reply {
    send(crm.addr(), "POST", path, BEARER, &body.to_string()).await.unwrap()
}

async fn get(crm: &FakeCrm, path: &str) -> Reply {
    send(crm.addr(), "GET", path, BEARER, "").await.unwrap()
}

async fn start(change: impl FnOnce(&mut Options)) -> FakeCrm {
    let mut options = Options::default();
    options.hubspot.search_lag = Duration::ZERO;
    change(&mut options);
    FakeCrm::on_free_port(options).await.unwrap()
}

async fn crm() -> FakeCrm {
    start(|_| {}).await
}

fn input(row: usize, email: &str, more: Value) -> Value {
    let mut properties = json!({"email": email});
    for (name, value) in more.as_object().unwrap() {
        properties[name] = value.clone();
    }
    json!({
        "id": email, "idProperty": "email", "objectWriteTraceId": format!("row-{row}"),
        "properties": properties,
    })
}

fn batch(emails: &[&str]) -> Value {
    let inputs: Vec<Value> = emails
        .iter()
        .enumerate()
        .map(|(at, e)| input(at, e, json!({"firstname": "Ana"})))
        .collect();
    json!({ "inputs": inputs })
}

fn without_traces(mut batch: Value) -> Value {
    for input in batch["inputs"].as_array_mut().unwrap() {
        input.as_object_mut().unwrap().remove("objectWriteTraceId");
    }
    batch
}

const THREE: [&str; 3] = ["ana@example.com", "bo@example.com", "cy@example.com"];

fn emails(reply: &Reply) -> Vec<String> {
    let json = reply.json();
    let results = json["results"].as_array().cloned().unwrap_or_default();
    results.iter().map(|r| r["properties"]["email"].as_str().unwrap().to_owned()).collect()
}

fn creates_are_one_each(crm: &FakeCrm, n: usize) {
    let creates = crm.creates_per_email(Crm::Hubspot);
    assert_eq!(creates.len(), n, "{creates:?}");
    assert!(creates.values().all(|c| *c == 1), "{creates:?}");
    assert_eq!(crm.doubles(Crm::Hubspot), 0);
}

#[tokio::test]
async fn cases_1_to_4_create_update_order_repeat() {
    let crm = crm().await;
    let first = post(&crm, UPSERT, &batch(&THREE)).await;
    assert_eq!(first.status, 200);
    let json = first.json();
    assert_eq!(json["status"], "COMPLETE");
    assert!(json["results"].as_array().unwrap().iter().all(|r| r["new"] == true));
    assert!(json["results"][0]["objectWriteTraceId"].is_string());
    assert_eq!(emails(&first), ["cy@example.com", "bo@example.com", "ana@example.com"], "reversed");
    let again = post(&crm, UPSERT, &batch(&THREE)).await;
    assert!(again.json()["results"].as_array().unwrap().iter().all(|r| r["new"] == false));
    let dated = "/crm/objects/2026-03/contacts/batch/upsert";
    let mixed = post(&crm, dated, &batch(&["BO@example.com", "dee@example.com"])).await;
    assert_eq!(
        emails(&mixed),
        ["dee@example.com", "bo@example.com"],
        "lower case, both path forms"
    );
    creates_are_one_each(&crm, 4);
    crm.script(Fault::Reorder { order: Order::AsSent });
    assert_eq!(emails(&post(&crm, UPSERT, &batch(&THREE)).await), THREE);
    let mut options = crm.options();
    options.hubspot.order = Order::Shuffled;
    options.hubspot.echo_trace_ids = false;
    crm.set_options(options);
    let many: Vec<String> = (0..50).map(|n| format!("n{n}@example.com")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let shuffled = post(&crm, UPSERT, &batch(&many)).await;
    let (mut got, mut reversed) = (emails(&shuffled), many.clone());
    reversed.reverse();
    assert!(got != many && got != reversed);
    assert!(shuffled.json()["results"][0]["objectWriteTraceId"].is_null());
    got.sort();
    reversed.sort_unstable();
    assert_eq!(got, reversed);
}

#[tokio::test]
async fn cases_5_6_9_one_bad_record() {
    let crm = crm().await;
    let bad = batch(&["ana@example.com", "nope", "cy@example.com"]);
    let refused = post(&crm, UPSERT, &without_traces(bad.clone())).await;
    assert_eq!(refused.status, 400);
    let json = refused.json();
    assert_eq!(json["category"], "VALIDATION_ERROR");
    assert_eq!(json["errors"][0]["code"], "INVALID_EMAIL");
    assert_eq!(json["errors"][0]["context"]["propertyName"][0], "email");
    let inner = json["message"].as_str().unwrap().split_once(": ").unwrap().1;
    let inner: Value = serde_json::from_str(inner).unwrap();
    assert_eq!(inner[0]["error"], "INVALID_EMAIL");
    assert!(crm.contacts(Crm::Hubspot).is_empty(), "nothing is written");
    let partial = post(&crm, UPSERT, &bad).await;
    assert_eq!(partial.status, 207);
    let json = partial.json();
    assert_eq!(json["numErrors"], 1);
    assert_eq!(json["errors"][0]["context"]["objectWriteTraceId"], json!(["row-1"]));
    assert_eq!(emails(&partial), ["cy@example.com", "ana@example.com"]);
    creates_are_one_each(&crm, 2);
    let values = json!({"inputs": [
        input(0, "d@example.com", json!({"annualrevenue": "abc"})),
        input(1, "e@example.com", json!({"tier": "Gold"})),
        input(2, "f@example.com", json!({"tier": "gold;silver", "first_seen_on": "2026-11-30"})),
        input(3, "g@example.com", json!({"first_seen_on": "30/11/2026"})),
        input(4, "h@example.com", json!({"hs_object_id": "5"})),
    ]});
    let partial = post(&crm, UPSERT, &values).await;
    let text = partial.json()["errors"].to_string();
    for code in ["INVALID_INTEGER", "INVALID_OPTION", "INVALID_DATE", "READ_ONLY_VALUE"] {
        assert!(text.contains(code), "{code} in {text}");
    }
    assert_eq!(emails(&partial), ["f@example.com"]);
    let mut options = crm.options();
    options.hubspot.honour_trace_ids = false;
    crm.set_options(options);
    assert_eq!(post(&crm, UPSERT, &bad).await.status, 400, "as if trace ids were not honoured");
}

#[tokio::test]
async fn cases_7_8_10_11_26_refused_as_a_whole() {
    let crm = crm().await;
    let same = batch(&["A@example.com", "a@example.com"]);
    let refused = post(&crm, UPSERT, &same).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["context"]["ids"], json!(["a@example.com"]));
    let unknown = |row| input(row, &format!("u{row}@example.com"), json!({"nosuch": "x"}));
    let unknown = json!({"inputs": [unknown(0), unknown(1)]});
    let refused = post(&crm, UPSERT, &without_traces(unknown.clone())).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["errors"][0]["code"], "PROPERTY_DOESNT_EXIST");
    let partial = post(&crm, UPSERT, &unknown).await;
    assert_eq!(partial.status, 207);
    assert_eq!(partial.json()["results"], json!([]));
    let traces = partial.json()["errors"][0]["context"]["objectWriteTraceId"].clone();
    assert_eq!(traces, json!(["row-0", "row-1"]), "equal errors are one item");
    let many: Vec<String> = (0..101).map(|n| format!("n{n}@example.com")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(post(&crm, UPSERT, &batch(&many)).await.status, 400);
    let mut phone = batch(&["a@example.com"]);
    phone["inputs"][0]["idProperty"] = json!("phone");
    let refused = post(&crm, UPSERT, &phone).await;
    assert!(refused.json()["message"].as_str().unwrap().contains("non-unique 0-1 property phone"));
    let null = json!({"inputs": [input(0, "a@example.com", json!({"phone": null}))]});
    assert_eq!(post(&crm, UPSERT, &null).await.status, 400);
    assert_eq!(send(crm.addr(), "POST", UPSERT, BEARER, "{").await.unwrap().status, 400);
    assert!(crm.contacts(Crm::Hubspot).is_empty());
    let mut options = crm.options();
    options.hubspot.accept_null = true;
    options.hubspot.same_key_ignores_case = false;
    options.hubspot.unknown_property_refuses_all = true;
    crm.set_options(options);
    assert_eq!(post(&crm, UPSERT, &null).await.status, 200);
    assert_eq!(post(&crm, UPSERT, &unknown).await.status, 400);
    assert_eq!(post(&crm, UPSERT, &same).await.status, 200);
    creates_are_one_each(&crm, 1);
    let by_key = json!({"inputs": [{
        "id": "k1", "idProperty": "lead_key", "properties": {"email": "k@example.com"},
    }]});
    for new in [true, false] {
        assert_eq!(post(&crm, UPSERT, &by_key).await.json()["results"][0]["new"], new);
    }
}

#[tokio::test]
async fn cases_12_13_tokens_and_scopes() {
    let token = |name: &str, state| Token { state, ..Token::good(name) };
    let crm = start(|o| {
        let mut reader = Token::good("reader");
        reader.scopes.remove("crm.objects.contacts.write");
        let (old, gone) = (token("old", TokenState::Expired), token("gone", TokenState::Revoked));
        o.hubspot.tokens = vec![Token::good("t"), old, gone, reader];
    })
    .await;
    let body = batch(&THREE).to_string();
    for (header, status, category) in [
        ("", 401, "INVALID_AUTHENTICATION"),
        ("Authorization: Bearer nobody\r\n", 401, "INVALID_AUTHENTICATION"),
        ("Authorization: Bearer old\r\n", 401, "EXPIRED_AUTHENTICATION"),
        ("Authorization: Bearer gone\r\n", 401, "INVALID_AUTHENTICATION"),
        ("Authorization: Bearer reader\r\n", 403, "MISSING_SCOPES"),
    ] {
        let refused = send(crm.addr(), "POST", UPSERT, header, &body).await.unwrap();
        assert_eq!((refused.status, &refused.json()["category"]), (status, &json!(category)));
    }
    let reader = "Authorization: Bearer reader\r\n";
    let refused = send(crm.addr(), "POST", UPSERT, reader, &body).await.unwrap();
    let scopes = &refused.json()["errors"][0]["context"]["requiredGranularScopes"];
    assert_eq!(scopes, &json!(["crm.objects.contacts.write"]));
    let search = "/crm/v3/objects/contacts/search";
    assert_eq!(send(crm.addr(), "POST", search, reader, "{}").await.unwrap().status, 200);
    assert!(crm.contacts(Crm::Hubspot).is_empty());
    assert_eq!(post(&crm, UPSERT, &batch(&THREE)).await.status, 200);
    assert!(crm.calls().iter().all(|c| c.headers.iter().all(|(name, _)| name != "authorization")));
}

#[tokio::test]
async fn cases_14_15_limits() {
    let crm = start(|o| {
        o.hubspot.rolling_limit = 2;
        o.hubspot.rolling_window = Duration::from_secs(600);
    })
    .await;
    let first = post(&crm, UPSERT, &batch(&THREE)).await;
    assert_eq!(first.header("x-hubspot-ratelimit-max"), Some("2"));
    assert_eq!(first.header("x-hubspot-ratelimit-remaining"), Some("1"));
    assert_eq!(first.header("x-hubspot-ratelimit-interval-milliseconds"), Some("600000"));
    assert!(first.header("x-hubspot-ratelimit-daily-remaining").is_some());
    get(&crm, "/crm/v3/properties/contacts").await;
    let refused = post(&crm, UPSERT, &batch(&["x@example.com"])).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["policyName"], "TEN_SECONDLY_ROLLING");
    assert_eq!(refused.json()["errorType"], "RATE_LIMIT");
    assert_eq!(refused.header("x-hubspot-ratelimit-remaining"), Some("0"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((500..=600).contains(&wait), "{wait}");
    let mut options = crm.options();
    options.hubspot.send_retry_after = false;
    crm.set_options(options.clone());
    let refused = post(&crm, UPSERT, &batch(&["x@example.com"])).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, None));
    options.hubspot.rolling_limit = 1000;
    options.hubspot.daily_limit = 1;
    crm.set_options(options);
    let refused = post(&crm, UPSERT, &batch(&["x@example.com"])).await;
    assert_eq!(refused.json()["policyName"], "DAILY");
    creates_are_one_each(&crm, 3);
}

#[tokio::test]
async fn cases_16_to_18_scripted_statuses() {
    let crm = crm().await;
    for (status, body, apply, written) in [
        (423, Body::Json, Apply::None, 0),
        (477, Body::Json, Apply::None, 0),
        (500, Body::Json, Apply::None, 0),
        (502, Body::Html, Apply::Half, 2),
        (524, Body::Empty, Apply::All, 3),
    ] {
        crm.script(Fault::Status { status, body, apply, retry_after: Some(7) });
        let reply = post(&crm, UPSERT, &batch(&THREE)).await;
        assert_eq!((reply.status, reply.header("retry-after")), (status, Some("7")));
        match body {
            Body::Json => assert_eq!(reply.json()["status"], "error"),
            Body::Html => assert!(reply.body.starts_with(b"<html>")),
            Body::Empty => assert!(reply.body.is_empty()),
        }
        assert_eq!(crm.contacts(Crm::Hubspot).len(), written);
    }
    creates_are_one_each(&crm, 3);
}

#[tokio::test]
async fn cases_19_to_21_written_but_not_told() {
    let crm = crm().await;
    let text = batch(&THREE).to_string();
    // The client gives up while the stand-in waits: the write is done all the same.
    crm.script(Fault::HoldAfter);
    let mut socket = TcpStream::connect(crm.addr()).await.unwrap();
    let head = format!(
        "POST {UPSERT} HTTP/1.1\r\nHost: x\r\n{BEARER}Content-Length: {}\r\n\r\n",
        text.len()
    );
    socket.write_all(format!("{head}{text}").as_bytes()).await.unwrap();
    limited(crm.wait_for_applied(1)).await;
    drop(socket);
    crm.release();
    creates_are_one_each(&crm, 3);
    // Held before it is done, and released while the client has long gone.
    crm.script(Fault::HoldBefore);
    let mut socket = TcpStream::connect(crm.addr()).await.unwrap();
    socket.write_all(format!("{head}{text}").as_bytes()).await.unwrap();
    limited(crm.wait_for_calls(2)).await;
    drop(socket);
    assert_eq!(crm.summary().by_crm[&Crm::Hubspot].updates, 0);
    crm.release();
    limited(crm.wait_for_applied(2)).await;
    assert_eq!(crm.summary().by_crm[&Crm::Hubspot].updates, 3);
    crm.script(Fault::ResetAfter);
    let reset =
        send(crm.addr(), "POST", UPSERT, BEARER, &batch(&["r@example.com"]).to_string()).await;
    assert_eq!(reset.err().unwrap().kind(), io::ErrorKind::ConnectionReset);
    crm.script(Fault::ResetBefore);
    let reset =
        send(crm.addr(), "POST", UPSERT, BEARER, &batch(&["s@example.com"]).to_string()).await;
    assert!(reset.is_err());
    creates_are_one_each(&crm, 4);
    crm.script(Fault::Truncated);
    let cut = post(&crm, UPSERT, &batch(&["t@example.com"])).await;
    assert_eq!((cut.status, cut.complete, cut.body.is_empty()), (200, false, false));
    crm.script(Fault::CutJson);
    let cut = post(&crm, UPSERT, &batch(&["t@example.com"])).await;
    assert_eq!((cut.status, cut.complete, cut.json()), (200, true, Value::Null));
    crm.script(Fault::EmptyBody { status: 200 });
    let empty = post(&crm, UPSERT, &batch(&["u@example.com"])).await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    crm.script(Fault::DelayBefore { ms: 1 });
    crm.script(Fault::DelayAfter { ms: 1 });
    for _ in 0..2 {
        assert_eq!(post(&crm, UPSERT, &batch(&["v@example.com"])).await.status, 200);
    }
    creates_are_one_each(&crm, 7);
    let calls = crm.calls();
    let told: Vec<(bool, Option<u16>)> = calls.iter().map(|c| (c.applied, c.status)).collect();
    assert_eq!(told[2..4], [(true, None), (false, None)], "{told:?}");
    assert_eq!(crm.summary().calls_by_status["none"], 2);
}

async fn limited(wait: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("within 20 s");
}

#[tokio::test]
async fn cases_22_23_28_odd_answers() {
    let crm = crm().await;
    crm.script(Fault::EmptyResults);
    let empty = post(&crm, UPSERT, &batch(&THREE)).await;
    assert_eq!((empty.status, &empty.json()["results"]), (200, &json!([])));
    assert!(crm.contacts(Crm::Hubspot).is_empty());
    crm.script(Fault::Omit { input: 1, written: false });
    let omitted = post(&crm, UPSERT, &batch(&THREE)).await;
    assert_eq!(omitted.status, 207);
    assert_eq!(emails(&omitted), ["cy@example.com", "ana@example.com"]);
    assert_eq!(omitted.json()["errors"], json!([]));
    creates_are_one_each(&crm, 2);
    crm.script(Fault::Omit { input: 1, written: true });
    assert_eq!(emails(&post(&crm, UPSERT, &batch(&THREE)).await).len(), 2);
    creates_are_one_each(&crm, 3);
    crm.script(Fault::Conflict);
    let conflict = post(&crm, UPSERT, &batch(&["dee@example.com"])).await;
    assert_eq!((conflict.status, &conflict.json()["category"]), (409, &json!("CONFLICT")));
    assert!(conflict.json()["message"].as_str().unwrap().contains("Existing ID: 1004"));
    let retry = post(&crm, UPSERT, &batch(&["dee@example.com"])).await;
    assert_eq!(retry.json()["results"][0]["new"], false);
    creates_are_one_each(&crm, 4);
}

#[tokio::test]
async fn cases_24_25_31_values() {
    let crm = start(|o| {
        o.hubspot.required.insert("lastname".into());
    })
    .await;
    let write = |more: Value| json!({"inputs": [input(0, "ana@example.com", more)]});
    let missing = post(&crm, UPSERT, &write(json!({}))).await;
    assert_eq!(missing.status, 207);
    assert!(missing.json()["errors"].to_string().contains("MISSING_REQUIRED_PROPERTY"));
    let all = json!({"lastname": "Silva", "phone": "+5511", "lifecyclestage": "customer"});
    post(&crm, UPSERT, &write(all)).await;
    let back = post(&crm, UPSERT, &write(json!({"lifecyclestage": "lead", "phone": ""}))).await;
    let result = back.json()["results"][0].clone();
    assert_eq!(result["properties"]["lifecyclestage"], "customer", "the stage stays");
    assert_eq!(result["properties"]["phone"], Value::Null, "cleared");
    post(&crm, UPSERT, &write(json!({"lifecyclestage": ""}))).await;
    post(&crm, UPSERT, &write(json!({"lifecyclestage": "lead", "tier": "gold"}))).await;
    post(&crm, UPSERT, &write(json!({"tier": ";silver"}))).await;
    let contact = &crm.contacts(Crm::Hubspot)[0];
    assert_eq!(contact.properties["lifecyclestage"], "lead");
    assert_eq!(contact.properties["tier"], "gold;silver");
    assert_eq!(contact.properties["lastname"], "Silva", "absent leaves alone");
}

#[tokio::test]
async fn cases_27_29_secondary_and_merged() {
    let crm = crm().await;
    post(&crm, UPSERT, &batch(&["ana@example.com", "old@example.com"])).await;
    let merged = json!({"primaryObjectId": "1001", "objectIdToMerge": "1002"});
    let merged = post(&crm, "/crm/v3/objects/contacts/merge", &merged).await;
    assert_eq!((merged.status, &merged.json()["id"]), (200, &json!("1003")));
    let secondary = post(&crm, UPSERT, &batch(&["old@example.com"])).await;
    assert_eq!(secondary.json()["results"][0]["id"], "1003");
    assert_eq!(emails(&secondary), ["ana@example.com"], "the owner's primary e-mail comes back");
    assert_eq!(get(&crm, &format!("{CONTACTS}/1001")).await.status, 404);
    crm.renumber("ana@example.com");
    assert_eq!(
        post(&crm, UPSERT, &batch(&["ana@example.com"])).await.json()["results"][0]["id"],
        "1004"
    );
    let mut options = crm.options();
    options.hubspot.secondary_conflicts = true;
    crm.set_options(options);
    let conflict = post(&crm, UPSERT, &batch(&["old@example.com"])).await;
    assert_eq!(
        (conflict.status, &conflict.json()["errors"][0]["category"]),
        (207, &json!("CONFLICT"))
    );
    assert_eq!(crm.contacts(Crm::Hubspot).len(), 1);
}

#[tokio::test]
async fn case_30_erased_archived_and_single_calls() {
    let crm = crm().await;
    let ana = json!({"properties": {"email": "Ana@example.com", "firstname": "Ana"}});
    assert_eq!(post(&crm, CONTACTS, &ana).await.status, 201);
    let again = post(&crm, CONTACTS, &ana).await;
    assert_eq!(again.status, 409);
    assert_eq!(again.json()["message"], "Contact already exists. Existing ID: 1001");
    let by_email =
        format!("{CONTACTS}/ana%40example.com?idProperty=email&properties=firstname,phone");
    let one = get(&crm, &by_email).await.json();
    assert_eq!(
        (&one["properties"]["firstname"], &one["properties"]["phone"]),
        (&json!("Ana"), &Value::Null)
    );
    let patch = |path: String| {
        let to = crm.addr();
        async move {
            let body = r#"{"properties":{"phone":"+55"}}"#;
            send(to, "PATCH", &path, BEARER, body).await.unwrap().status
        }
    };
    assert_eq!(patch(by_email.clone()).await, 200);
    assert_eq!(patch(format!("{CONTACTS}/no%40example.com?idProperty=email")).await, 404);
    let read = json!({
        "idProperty": "email", "properties": ["phone"],
        "inputs": [{"id": "ANA@example.com"}, {"id": "no@example.com"}],
    });
    let read = post(&crm, &format!("{CONTACTS}/batch/read"), &read).await;
    assert_eq!(read.status, 207);
    assert_eq!(read.json()["results"][0]["properties"]["phone"], "+55");
    assert_eq!(read.json()["errors"][0]["context"]["ids"], json!(["no@example.com"]));
    let erase = json!({"objectId": "a@example.com", "idProperty": "email"});
    assert_eq!(post(&crm, &format!("{CONTACTS}/gdpr-delete"), &erase).await.status, 204);
    let erase = json!({"objectId": "ana@example.com", "idProperty": "email"});
    assert_eq!(post(&crm, &format!("{CONTACTS}/gdpr-delete"), &erase).await.status, 204);
    assert!(crm.contacts(Crm::Hubspot).is_empty());
    assert_eq!(
        post(&crm, UPSERT, &batch(&["ana@example.com"])).await.json()["results"][0]["new"],
        true
    );
    let delete = send(crm.addr(), "DELETE", &by_email, BEARER, "").await.unwrap();
    assert_eq!(delete.status, 204);
    assert!(crm.contacts(Crm::Hubspot)[0].archived);
    assert_eq!(get(&crm, &by_email).await.status, 404);
}

#[tokio::test]
async fn search_lags_behind_the_writes() {
    let crm = start(|o| o.hubspot.search_lag = Duration::from_secs(3600)).await;
    post(&crm, UPSERT, &batch(&THREE)).await;
    let filter = json!({"propertyName": "email", "operator": "EQ", "value": "BO@example.com"});
    let search = json!({"filterGroups": [{"filters": [filter]}], "properties": ["firstname"]});
    let path = format!("{CONTACTS}/search");
    assert_eq!(post(&crm, &path, &search).await.json()["total"], 0);
    assert_eq!(
        post(&crm, CONTACTS, &json!({"properties": {"email": "bo@example.com"}})).await.status,
        409
    );
    let mut options = crm.options();
    options.hubspot.search_lag = Duration::ZERO;
    crm.set_options(options);
    let found = post(&crm, &path, &search).await.json();
    assert_eq!(
        (&found["total"], &found["results"][0]["properties"]["firstname"]),
        (&json!(1), &json!("Ana"))
    );
    let paged = post(&crm, &path, &json!({"limit": 2})).await.json();
    assert_eq!((&paged["total"], &paged["paging"]["next"]["after"]), (&json!(3), &json!("2")));
    let rest = post(&crm, &path, &json!({"limit": 2, "after": "2"})).await.json();
    assert_eq!(rest["results"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn properties_are_listed() {
    let crm = crm().await;
    let list = get(&crm, "/crm/v3/properties/contacts").await.json();
    let find = |name: &str| {
        let list = list["results"].as_array().unwrap();
        list.iter().find(|p| p["name"] == name).cloned().unwrap()
    };
    assert_eq!(find("email")["hasUniqueValue"], true);
    assert_eq!(find("hs_object_id")["modificationMetadata"]["readOnlyValue"], true);
    assert_eq!(find("lifecyclestage")["options"][2]["value"], "marketingqualifiedlead");
}

#[tokio::test]
async fn a_plain_crm_doubles_and_its_search_lags() {
    let crm = start(|o| o.plain.search_lag = Duration::from_secs(3600)).await;
    let found = async |email: &str| {
        let path = format!("/plain/contacts/search?email={email}");
        get(&crm, &path).await.json()["results"].as_array().unwrap().len()
    };
    // The textbook: look, then create; twice at once or soon after each other.
    for email in ["ana@example.com", "Ana@Example.com"] {
        assert_eq!(found(email).await, 0);
        assert_eq!(post(&crm, "/plain/contacts", &json!({"email": email})).await.status, 201);
    }
    assert_eq!(crm.doubles(Crm::Plain), 1);
    assert_eq!(crm.creates_per_email(Crm::Plain)["ana@example.com"], 2);
    let mut options = crm.options();
    options.plain.search_lag = Duration::ZERO;
    crm.set_options(options);
    assert_eq!(found("ANA%40example.com").await, 2);
    let patch =
        send(crm.addr(), "PATCH", "/plain/contacts/1", "", r#"{"phone":"1"}"#).await.unwrap();
    assert_eq!(patch.status, 200);
    assert_eq!(crm.contacts(Crm::Plain)[0].properties["phone"], "1");
    for bad in ["/plain/contacts/0", "/plain/contacts/99", "/plain/contacts/x"] {
        assert_eq!(send(crm.addr(), "PATCH", bad, "", "{}").await.unwrap().status, 404);
    }
}

#[tokio::test]
async fn the_webhook_receiver_wants_a_signature() {
    let crm =
        start(|o| o.webhook.secret = Some("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".into())).await;
    let body = json!({"data": {"lead_id": "l1", "email": "Ana@example.com"}});
    assert_eq!(post(&crm, "/webhook", &body).await.status, 401);
    let mut options = crm.options();
    options.webhook.secret = None;
    crm.set_options(options);
    for _ in 0..2 {
        assert_eq!(post(&crm, "/webhook", &body).await.status, 200);
    }
    assert_eq!(crm.creates_per_email(Crm::Webhook)["ana@example.com"], 1);
    assert_eq!(crm.summary().by_crm[&Crm::Webhook].updates, 1);
    assert_eq!(post(&crm, "/webhook", &json!({})).await.status, 422);
}

#[tokio::test]
async fn the_controls_work_over_http() {
    let crm = crm().await;
    let faults = json!([
        {"fault": "pass"},
        {"fault": "status", "status": 503, "apply": "all", "path": "/crm/"},
    ]);
    assert_eq!(post(&crm, "/_fake/faults", &faults).await.json()["faults_waiting"], 2);
    assert_eq!(post(&crm, "/_fake/faults", &json!({"fault": "no_such"})).await.status, 400);
    assert_eq!(post(&crm, UPSERT, &batch(&["<b>@example.com"])).await.status, 207);
    assert_eq!(
        post(&crm, "/plain/contacts", &json!({"email": "<b>@example.com"})).await.status,
        201
    );
    assert_eq!(
        post(&crm, UPSERT, &batch(&THREE)).await.status,
        503,
        "the fault waited for its path"
    );
    let changed =
        post(&crm, "/_fake/options", &json!({"hubspot": {"daily_limit": 5}})).await.json();
    assert_eq!((&changed["hubspot"]["daily_limit"], &changed["seed"]), (&json!(5), &json!(0)));
    assert_eq!(post(&crm, "/_fake/options", &json!({"hubspot": {"no_such": 5}})).await.status, 400);
    let summary = get(&crm, "/_fake/summary").await.json();
    assert_eq!(
        (&summary["contacts"], &summary["by_crm"]["plain"]["creates"]),
        (&json!(4), &json!(1))
    );
    assert_eq!(summary["calls_by_status"], json!({"201": 1, "207": 1, "503": 1}));
    let contacts = get(&crm, "/_fake/contacts?crm=hubspot").await.json();
    assert_eq!((contacts.as_array().unwrap().len(), &contacts[0]["creates"]), (3, &json!(1)));
    assert_eq!(get(&crm, "/_fake/calls").await.json().as_array().unwrap().len(), 3);
    let page = String::from_utf8(get(&crm, "/").await.body).unwrap();
    assert!(
        page.contains("ana@example.com") && page.contains("&lt;b&gt;") && !page.contains("<b>")
    );
    assert_eq!(post(&crm, "/_fake/reset", &json!({})).await.status, 204);
    assert_eq!(crm.summary().total.contacts, 0);
    assert_eq!(crm.options().hubspot.daily_limit, 5);
    assert_eq!(get(&crm, "/nowhere").await.status, 404);
}

#[tokio::test]
async fn random_faults_follow_from_the_seed() {
    let rates = FaultRates {
        reset_before_apply: 0.2,
        reset_after_apply: 0.2,
        error_5xx: 0.2,
        rate_limited: 0.1,
        truncated: 0.1,
        ..FaultRates::default()
    };
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let crm = start(|o| (o.rates, o.seed) = (rates.clone(), seed)).await;
        for n in 0..40 {
            let body = batch(&[&format!("n{n}@example.com")]).to_string();
            let _ = send(crm.addr(), "POST", UPSERT, BEARER, &body).await;
        }
        let faults: Vec<Option<Fault>> = crm.calls().into_iter().map(|c| c.fault).collect();
        assert!(faults.iter().any(Option::is_none) && faults.iter().any(Option::is_some));
        runs.push(faults);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn it_stops_and_comes_back_with_its_state() {
    let crm = crm().await;
    post(&crm, UPSERT, &batch(&THREE)).await;
    crm.script(Scripted { path: Some("/plain".into()), fault: Fault::Pass });
    crm.stop().await;
    assert!(TcpStream::connect(crm.addr()).await.is_err());
    crm.resume().await.unwrap();
    let again = post(&crm, UPSERT, &batch(&THREE)).await;
    assert_eq!(again.json()["results"][0]["new"], false);
    assert_eq!(crm.summary().faults_waiting, 1);
    crm.clear_script();
    creates_are_one_each(&crm, 3);
}
