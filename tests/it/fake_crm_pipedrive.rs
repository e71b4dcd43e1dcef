//! The stand-in's Pipedrive against the cases of its contract.

use std::time::Duration;

use leadsync::fake_crm::pipedrive::{OauthApp, Token};
use leadsync::fake_crm::{Act, Apply, Body, Crm, FakeCrm, Fault, Options, Scripted};
use serde_json::{Value, json};

use super::fake_crm::{Reply, send};

const PERSONS: &str = "/api/v2/persons";
const TOKEN: &str = "x-api-token: t\r\n";
const NOBODY: [u64; 0] = [];

async fn start(change: impl FnOnce(&mut Options)) -> FakeCrm {
    let mut options = Options::default();
    options.pipedrive.search_lag = Duration::ZERO;
    change(&mut options);
    FakeCrm::on_free_port(options).await.unwrap()
}

async fn call(crm: &FakeCrm, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(crm.addr(), method, path, TOKEN, &body).await.unwrap()
}

async fn get(crm: &FakeCrm, path: &str) -> Reply {
    call(crm, "GET", path, &Value::Null).await
}

fn person(email: &str) -> Value {
    json!({"name": "Ana Silva", "emails": [{"value": email, "primary": true, "label": "work"}]})
}

/// Creates one and gives its id.
async fn create(crm: &FakeCrm, body: &Value) -> u64 {
    let reply = call(crm, "POST", PERSONS, body).await;
    assert!(matches!(reply.status, 200 | 201), "{}", reply.json());
    reply.json()["data"]["id"].as_u64().unwrap()
}

/// Ids that a search by e-mail finds, in the order given.
async fn found(crm: &FakeCrm, email: &str) -> Vec<u64> {
    let path = format!("{PERSONS}/search?term={email}&fields=email&exact_match=true&limit=10");
    let reply = get(crm, &path).await;
    assert_eq!(reply.status, 200);
    let items = reply.json()["data"]["items"].as_array().unwrap().clone();
    items.iter().map(|i| i["item"]["id"].as_u64().unwrap()).collect()
}

fn code(crm: &FakeCrm, name: &str) -> String {
    let fields = crm.options().pipedrive.fields;
    fields.iter().find(|f| f.name == name).unwrap().code.clone()
}

#[tokio::test]
async fn cases_1_to_6_and_28_search_create_update_doubles() {
    let crm = start(|_| {}).await;
    assert_eq!(found(&crm, "ana%40example.com").await, NOBODY);
    let ana = create(&crm, &person("Ana@example.com")).await;
    assert_eq!(found(&crm, "ANA%40example.com").await, [ana], "letter case is ignored");
    let update = call(&crm, "PATCH", &format!("{PERSONS}/{ana}"), &json!({"name": "Ana"})).await;
    assert_eq!((update.status, &update.json()["data"]["name"]), (200, &json!("Ana")));
    let emails = &update.json()["data"]["emails"];
    assert_eq!(emails[0], json!({"value": "Ana@example.com", "primary": true, "label": "work"}));
    // The failure that everybody has to look for: nobody refuses a second one.
    let double = create(&crm, &person("ana@example.com")).await;
    assert_eq!(found(&crm, "ana%40example.com").await, [double, ana], "the newest first");
    assert_eq!(crm.doubles(Crm::Pipedrive), 1);
    assert_eq!(crm.creates_per_email(Crm::Pipedrive)["ana@example.com"], 2);
    let mut options = crm.options();
    options.pipedrive.loose_search = true;
    options.pipedrive.created_status = 201;
    crm.set_options(options);
    let near = create(&crm, &person("mariana@example.com")).await;
    assert_eq!(found(&crm, "ana%40example.com").await, [near, double, ana], "also near matches");
    let summary = crm.summary().by_crm[&Crm::Pipedrive].clone();
    assert_eq!((summary.contacts, summary.creates, summary.updates), (3, 3, 1));
}

#[tokio::test]
async fn case_8_the_search_lags_and_may_never_learn() {
    let crm = start(|o| o.pipedrive.search_lag = Duration::from_secs(3600)).await;
    let ana = create(&crm, &person("ana@example.com")).await;
    assert_eq!(found(&crm, "ana%40example.com").await, NOBODY);
    let list = get(&crm, &format!("{PERSONS}?updated_since=2026-01-01T00:00:00Z")).await.json();
    assert_eq!(list["data"][0]["id"], ana, "the list does not lag");
    let one = get(&crm, &format!("{PERSONS}/{ana}")).await.json();
    assert_eq!(one["data"]["emails"][0]["value"], "ana@example.com");
    let mut options = crm.options();
    options.pipedrive.search_lag = Duration::ZERO;
    crm.set_options(options.clone());
    assert_eq!(found(&crm, "ana%40example.com").await, [ana]);
    options.pipedrive.never_indexed = true;
    crm.set_options(options);
    assert_eq!(found(&crm, "ana%40example.com").await, NOBODY);
}

#[tokio::test]
async fn cases_9_to_11_and_30_applied_but_not_told() {
    let crm = start(|_| {}).await;
    let post = |fault: Fault| {
        crm.script(Scripted { path: Some(format!("POST {PERSONS}")), fault });
    };
    for (n, fault) in [
        Fault::ResetAfter,
        Fault::Truncated,
        Fault::CutJson,
        Fault::EmptyBody { status: 200 },
        Fault::Status { status: 500, body: Body::Json, apply: Apply::All, retry_after: None },
        Fault::Status { status: 503, body: Body::Html, apply: Apply::All, retry_after: None },
    ]
    .into_iter()
    .enumerate()
    {
        post(fault);
        let email = format!("n{n}@example.com");
        assert_eq!(
            found(&crm, &email).await,
            NOBODY,
            "a search does not take the fault of a create"
        );
        let _ = send(crm.addr(), "POST", PERSONS, TOKEN, &person(&email).to_string()).await;
        assert_eq!(found(&crm, &email).await.len(), 1, "{n}");
    }
    post(Fault::Status { status: 500, body: Body::Json, apply: Apply::None, retry_after: None });
    let refused = call(&crm, "POST", PERSONS, &person("x@example.com")).await;
    assert_eq!((refused.status, &refused.json()["success"]), (500, &json!(false)));
    assert_eq!(refused.json()["error"], "Internal server error");
    assert_eq!(found(&crm, "x@example.com").await, NOBODY);
    post(Fault::EmptyResults);
    let hollow = call(&crm, "POST", PERSONS, &person("x@example.com")).await;
    assert_eq!(hollow.json(), json!({"success": true, "data": null}));
    post(Fault::Conflict);
    create(&crm, &person("y@example.com")).await;
    assert_eq!(found(&crm, "y@example.com").await.len(), 2, "nothing keeps two writers apart");
}

#[tokio::test]
async fn cases_14_to_18_values() {
    let crm = start(|_| {}).await;
    let post = async |body: Value| call(&crm, "POST", PERSONS, &body).await;
    let field = |name: &str, value: Value| {
        let mut body = person("v@example.com");
        body["custom_fields"] = json!({code(&crm, name): value});
        body
    };
    assert_eq!(post(person("nope")).await.status, 200, "not checked unless told so");
    let mut options = crm.options();
    options.pipedrive.checks_emails = true;
    crm.set_options(options.clone());
    let refused = post(person("nope")).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["code"], "ERR_SCHEMA_VALIDATION_FAILED");
    let nameless = json!({"emails": [{"value": "a@example.com"}]});
    let refused = post(nameless).await;
    assert_eq!((refused.status, &refused.json()["errorCode"]), (400, &json!(400)));
    for (name, good, bad) in [
        ("Company", json!("Padaria"), json!(7)),
        ("Company", json!("x".repeat(255)), json!("x".repeat(256))),
        ("Budget", json!(10.5), json!("10.5")),
        ("Employees", json!(10), json!(10.5)),
        ("Tier", json!(1), json!("Gold")),
        ("Lead tags", json!([1, 3]), json!([])),
        ("Lead tags", Value::Null, json!([9])),
        ("First seen", json!("2026-11-30"), json!("30.11.2026")),
        ("Deal size", json!({"value": 5, "currency": "EUR"}), json!(5)),
        ("Home address", json!({"value": "Rua A, 1"}), json!("Rua A, 1")),
    ] {
        assert_eq!(post(field(name, good)).await.status, 200, "{name}");
        let refused = post(field(name, bad.clone())).await;
        assert_eq!(refused.status, 400, "{name} {bad}");
        assert!(refused.json()["error"].as_str().unwrap().contains(&code(&crm, name)));
    }
    let mut unknown = person("u@example.com");
    unknown["custom_fields"] = json!({"0".repeat(40): "x"});
    assert_eq!(post(unknown.clone()).await.status, 400);
    options.pipedrive.unknown_field_refuses = false;
    crm.set_options(options);
    let ignored = post(unknown).await;
    assert_eq!(ignored.status, 200);
    assert!(ignored.json()["data"]["custom_fields"]["0".repeat(40)].is_null());
    let mut titled = person("t@example.com");
    titled["job_title"] = json!("CEO");
    assert_eq!(post(titled).await.status, 403, "without contact sync");
    let cleared = create(&crm, &field("Company", json!("Padaria"))).await;
    let null = json!({"custom_fields": {code(&crm, "Company"): null}, "phones": []});
    let cleared = call(&crm, "PATCH", &format!("{PERSONS}/{cleared}"), &null).await.json();
    assert!(cleared["data"]["custom_fields"][code(&crm, "Company")].is_null());
}

#[tokio::test]
async fn cases_19_to_22_who_may() {
    let crm = start(|o| {
        let mut reader = Token::good("reader");
        reader.scopes.remove("contacts:full");
        o.pipedrive.tokens = vec![Token::good("t"), reader];
    })
    .await;
    let body = person("ana@example.com").to_string();
    for (header, status, error) in [
        ("", 401, "unauthorized access"),
        ("x-api-token: nobody\r\n", 401, "unauthorized access"),
        ("Authorization: Bearer t\r\n", 401, "unauthorized access"),
        ("x-api-token: reader\r\n", 403, "Scope and URL mismatch"),
    ] {
        let refused = send(crm.addr(), "POST", PERSONS, header, &body).await.unwrap();
        assert_eq!((refused.status, &refused.json()["error"]), (status, &json!(error)), "{header}");
    }
    let mut options = crm.options();
    options.pipedrive.capped = true;
    crm.set_options(options.clone());
    let capped = call(&crm, "POST", PERSONS, &person("ana@example.com")).await;
    assert_eq!(capped.status, 403);
    assert!(capped.json()["code"].as_str().unwrap().starts_with("feature_capping_"));
    options.pipedrive.closed = true;
    crm.set_options(options);
    assert_eq!(get(&crm, PERSONS).await.status, 402);
    assert!(crm.contacts(Crm::Pipedrive).is_empty());
    let secrets = ["x-api-token", "authorization"];
    assert!(crm.calls().iter().flat_map(|c| &c.headers).all(|(n, _)| !secrets.contains(&&**n)));
}

#[tokio::test]
async fn cases_23_to_25_limits() {
    let crm = start(|o| {
        o.pipedrive.limits.burst = 3;
        o.pipedrive.limits.searches = 1;
        o.pipedrive.limits.window = Duration::from_secs(600);
    })
    .await;
    let search = format!("{PERSONS}/search?term=ana%40example.com&exact_match=1");
    let first = get(&crm, &search).await;
    assert_eq!(first.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("2"));
    let reset: u64 = first.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((595..=600).contains(&reset), "{reset}");
    assert!(first.header("x-daily-requests-left").is_none(), "of writes only");
    assert_eq!(get(&crm, &search).await.status, 429, "searches have a limit of their own");
    let write = call(&crm, "POST", PERSONS, &person("ana@example.com")).await;
    assert_eq!(write.status, 200);
    assert!(write.header("x-daily-requests-left").is_some());
    let spent: u64 = 1_000_000_000 - 20 - 5;
    let left = write.header("x-daily-ratelimit-token-remaining").map(str::to_owned);
    assert_eq!(left, Some(spent.to_string()));
    assert_eq!(get(&crm, PERSONS).await.status, 200);
    let refused = get(&crm, PERSONS).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(refused.header("retry-after"), None);
    let mut options = crm.options();
    options.pipedrive.limits.blocks_after = 2;
    crm.set_options(options.clone());
    let blocked = get(&crm, PERSONS).await;
    assert_eq!(blocked.status, 403);
    assert!(blocked.body.starts_with(b"<!DOCTYPE html>"));
    options.pipedrive.limits = Default::default();
    options.pipedrive.limits.daily_tokens = 40;
    crm.set_options(options);
    let refused = get(&crm, PERSONS).await;
    assert_eq!(refused.status, 429, "the day's tokens are used up");
    assert_eq!(refused.header("x-daily-ratelimit-token-limit"), Some("40"));
    crm.script(Fault::RateLimited { retry_after: None, daily: true });
    let refused = get(&crm, PERSONS).await;
    assert_eq!(refused.header("x-daily-ratelimit-token-remaining"), Some("0"));
    assert_eq!(refused.json()["errorCode"], 429);
}

#[tokio::test]
async fn cases_26_and_27_deleted_and_merged() {
    let crm = start(|_| {}).await;
    let ids = [
        create(&crm, &person("ana@example.com")).await,
        create(&crm, &person("bo@example.com")).await,
        create(&crm, &person("cy@example.com")).await,
    ];
    let rename = json!({"name": "New"});
    let path = |id: u64| format!("{PERSONS}/{id}");
    assert_eq!(call(&crm, "DELETE", &path(ids[0]), &Value::Null).await.status, 200);
    assert_eq!(call(&crm, "PATCH", &path(ids[0]), &rename).await.status, 404);
    let mut options = crm.options();
    options.pipedrive.gone_status = 410;
    crm.set_options(options);
    assert_eq!(call(&crm, "PATCH", &path(ids[0]), &rename).await.status, 410);
    let mut options = crm.options();
    options.pipedrive.deleted_are_written = true;
    crm.set_options(options.clone());
    let written = call(&crm, "PATCH", &path(ids[0]), &rename).await;
    assert_eq!((written.status, &written.json()["data"]["is_deleted"]), (200, &json!(true)));
    options.pipedrive.deleted_are_written = false;
    crm.set_options(options);
    assert_eq!(get(&crm, &path(ids[0])).await.status, 404);
    assert_eq!(found(&crm, "ana%40example.com").await, NOBODY);
    let merge = format!("/v1/persons/{}/merge", ids[1]);
    let merged = call(&crm, "PUT", &merge, &json!({"merge_with_id": ids[2]})).await;
    assert_eq!(merged.status, 200);
    assert_eq!(call(&crm, "PATCH", &path(ids[1]), &rename).await.status, 410);
    assert_eq!(found(&crm, "bo%40example.com").await, [ids[2]], "the survivor has both addresses");
    let archived: Vec<bool> = crm.contacts(Crm::Pipedrive).iter().map(|c| c.archived).collect();
    assert_eq!(archived, [true, true, false]);
}

#[tokio::test]
async fn case_29_pages() {
    let crm = start(|_| {}).await;
    for n in 0..5 {
        create(&crm, &person(&format!("n{n}@example.com"))).await;
    }
    for (order, first) in [("", 501), ("&sort_by=add_time&sort_direction=desc", 505)] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = get(&crm, &format!("{PERSONS}?limit=2{order}{cursor}")).await.json();
            let people = page["data"].as_array().unwrap();
            seen.extend(people.iter().map(|p| p["id"].as_u64().unwrap()));
            match page["additional_data"]["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!((seen.len(), seen[0]), (5, first), "{order}");
    }
    for bad in ["limit=501", "limit=0", "updated_since=2026-11-30T06:00:00.123Z", "cursor=zz"] {
        assert_eq!(get(&crm, &format!("{PERSONS}?{bad}")).await.status, 400, "{bad}");
    }
    let codes = vec!["0".repeat(40); 16].join(",");
    assert_eq!(get(&crm, &format!("{PERSONS}?custom_fields={codes}")).await.status, 400);
    let fields = get(&crm, "/api/v2/personFields?limit=500").await.json();
    let tier = fields["data"].as_array().unwrap().iter().find(|f| f["field_name"] == "Tier");
    assert_eq!(tier.unwrap()["options"][0], json!({"id": 1, "label": "Gold"}));
    let page = get(&crm, "/api/v2/personFields?limit=3").await.json();
    assert!(page["additional_data"]["next_cursor"].is_string());
}

#[tokio::test]
async fn an_app_refreshes_its_access_tokens() {
    let crm = start(|o| o.pipedrive.oauth = Some(OauthApp::good("id", "pw", "refresh"))).await;
    // "id:pw" in base64.
    let basic =
        "Authorization: Basic aWQ6cHc=\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let ask = async |headers: &str, form: &str| {
        send(crm.addr(), "POST", "/oauth/token", headers, form).await.unwrap()
    };
    assert_eq!(ask("", "grant_type=refresh_token&refresh_token=refresh").await.status, 401);
    let refused = ask(basic, "grant_type=refresh_token&refresh_token=old").await;
    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("invalid_grant")));
    let given = ask(basic, "grant_type=refresh_token&refresh_token=refresh").await.json();
    assert_eq!(given["expires_in"], 3600);
    assert_eq!(given["api_domain"], crm.url());
    let bearer = format!("Authorization: Bearer {}\r\n", given["access_token"].as_str().unwrap());
    let read = async || send(crm.addr(), "GET", PERSONS, &bearer, "").await.unwrap().status;
    assert_eq!(read().await, 200);
    crm.behind(Crm::Pipedrive, Act::ExpireTokens).unwrap();
    assert_eq!(read().await, 401);
    let log = format!("{:?}", crm.calls());
    assert!(!log.contains("refresh_token=refresh"), "no token is logged");
}

#[tokio::test]
async fn people_do_things_behind_our_back() {
    let crm = start(|_| {}).await;
    let behind = async |body: Value| {
        let body = body.to_string();
        send(crm.addr(), "POST", "/_fake/behind", "", &body).await.unwrap()
    };
    let make = |email: &str| json!({"crm": "pipedrive", "act": "create", "email": email, "properties": {"phones": "+1"}});
    let made = behind(make("ana@example.com")).await.json();
    assert_eq!(made, json!({"id": "501"}));
    behind(make("ana@example.com")).await;
    assert_eq!(crm.doubles(Crm::Pipedrive), 1);
    let properties = json!({"name": "Changed", "email": "new@example.com"});
    let change =
        json!({"crm": "pipedrive", "act": "change", "id": "501", "properties": properties});
    assert_eq!(behind(change).await.status, 200);
    assert_eq!(crm.contacts(Crm::Pipedrive)[0].email, "new@example.com");
    let merge = json!({"crm": "pipedrive", "act": "merge", "id": "501", "into": "502"});
    assert_eq!(behind(merge.clone()).await.json(), json!({"id": "502"}));
    assert_eq!(behind(merge).await.status, 404, "it is gone");
    assert_eq!(behind(json!({"crm": "pipedrive", "act": "delete", "id": "502"})).await.status, 200);
    assert_eq!(behind(json!({"crm": "webhook", "act": "delete", "id": "1"})).await.status, 404);
    assert_eq!(behind(json!({"crm": "pipedrive", "act": "fly"})).await.status, 400);
    let shown = send(crm.addr(), "GET", "/_fake/contacts?crm=pipedrive", "", "").await.unwrap();
    assert_eq!(shown.json()[1]["properties"]["phones"], "+1");
    assert_eq!(shown.json()[1]["archived"], true);
}
