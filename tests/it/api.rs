//! `/v1`: leads from people's own code, what is known about one lead, and a database that goes away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use leadsync::app::Roles;
use leadsync::fake_crm::Fault;
use serde_json::{Value, json};

use crate::support::app::{TestApp, until};
use crate::support::db::TestDb;
use crate::support::log::Log;
use crate::support::wire::bounded;

const RECEIVE: Roles = Roles { receive: true, sync: false };
const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

async fn send(app: &TestApp, lead: &Value) -> (u16, Value) {
    app.post("/v1/leads", &[], lead.to_string()).await
}

/// Field and code of each error of a problem.
fn errors(problem: &Value) -> Vec<(u64, &str, &str)> {
    let errors = problem["errors"].as_array().unwrap_or_else(|| panic!("{problem}"));
    errors
        .iter()
        .map(|e| {
            assert!(e["message"].is_string(), "{e}");
            (e["item"].as_u64().unwrap(), e["field"].as_str().unwrap(), e["code"].as_str().unwrap())
        })
        .collect()
}

fn members(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

#[tokio::test]
async fn one_lead_an_array_and_lines() {
    let app = TestApp::receiving().await;
    let email = |name: &str| json!({"email": format!("{name}@example.com")});
    let (status, one) = send(&app, &email("one")).await;
    assert_eq!((status, members(&one)), (200, BTreeSet::from(["lead_id", "outcome"])));
    assert_eq!(one["outcome"], "created");
    let (status, again) = send(&app, &email("one")).await;
    assert_eq!((status, again), (200, json!({"outcome": "unchanged", "lead_id": one["lead_id"]})));

    let (status, array) = send(&app, &json!([email("two"), email("one"), email("two")])).await;
    assert_eq!((status, members(&array)), (200, BTreeSet::from(["outcomes"])));
    let words = |answer: &Value| -> Vec<String> {
        let outcomes = answer["outcomes"].as_array().unwrap();
        outcomes.iter().map(|o| o["outcome"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(words(&array), ["created", "unchanged", "unchanged"]);
    assert_eq!(array["outcomes"][0]["lead_id"], array["outcomes"][2]["lead_id"]);
    assert_eq!(array["outcomes"][1]["lead_id"], one["lead_id"]);

    let lines = format!("\u{feff}{}\r\n\n{}\n", email("three"), email("one"));
    let (status, lines) = app.post("/v1/leads", &[LINES], lines).await;
    assert_eq!((status, words(&lines)), (200, vec!["created".to_owned(), "unchanged".to_owned()]));
    assert_eq!(send(&app, &json!([])).await, (200, json!({"outcomes": []})));
    assert_eq!(app.value::<i64>("select count(*) from leadsync.leads").await, 3);
    assert_eq!(
        app.value::<i64>("select count(*) from leadsync.deliveries where source = 'api'").await,
        3
    );
}

#[tokio::test]
async fn each_bad_field_is_named_and_the_good_items_are_stored() {
    let app = TestApp::receiving().await;
    let log = Log::record();
    let batch = json!([
        {"email": "good@example.com", "company": "Aurora"},
        {"email": "bad@example.com", "comapny": "secretperson", "phone": "call me", "tags": "x", "marketing_consent": "yes",
            "occurred_at": "01/02/2024", "lifecycle_stage": "king", "attributes": {"a": {}}, "city": "x".repeat(600)},
        {"email": "secretperson"},
        {"first_name": "secretperson"},
        5,
        {"email": "also@example.com", "clear": ["phone", "nothing"], "phone": "+5511912345678"},
        {"email": "good2@example.com"},
    ]);
    let (status, problem) = send(&app, &batch).await;
    assert_eq!((status, &problem["code"]), (422, &json!("invalid_leads")), "{problem}");
    let found = errors(&problem);
    for expected in [
        (1, "comapny", "unknown_member"),
        (1, "phone", "invalid_phone"),
        (1, "tags", "wrong_type"),
        (1, "marketing_consent", "wrong_type"),
        (1, "occurred_at", "invalid_time"),
        (1, "lifecycle_stage", "unknown_stage"),
        (1, "attributes", "wrong_type"),
        (1, "city", "too_long"),
        (2, "email", "invalid_email"),
        (3, "email", "no_email"),
        (4, "", "wrong_type"),
        (5, "phone", "contradiction"),
        (5, "clear", "not_clearable"),
    ] {
        assert!(found.contains(&expected), "{expected:?} not in {found:?}");
    }
    assert_eq!(found.len(), 13, "{found:?}");
    let message =
        problem["errors"].as_array().unwrap().iter().find(|e| e["field"] == "comapny").unwrap();
    assert!(
        message["message"].as_str().unwrap().contains("did you mean \"company\"?"),
        "{message}"
    );
    let outcomes = problem["outcomes"].as_array().unwrap();
    let created: Vec<usize> = (0..7).filter(|n| outcomes[*n]["outcome"] == "created").collect();
    assert_eq!(created, [0, 6]);
    assert!(
        outcomes.iter().filter(|o| o["outcome"] == "rejected").all(|o| o["reason"].is_string())
    );
    assert!(!problem.to_string().contains("secretperson"), "input is echoed: {problem}");
    assert_eq!(app.value::<i64>("select count(*) from leadsync.leads").await, 2);
    let reason = "select items -> 2 ->> 'reason' from leadsync.deliveries where source = 'api'";
    assert_eq!(app.value::<String>(reason).await, "invalid_email");

    // Alone it is the same, and the whole delivery is a rejected one.
    let (status, problem) = send(&app, &json!({"email": "a@example.com", "e_mail": "x"})).await;
    assert_eq!((status, errors(&problem)), (422, vec![(0, "e_mail", "unknown_member")]));
    let stored = "select outcome || ' ' || reason from leadsync.deliveries order by received_at desc limit 1";
    assert_eq!(app.value::<String>(stored).await, "rejected unknown_member");
    // A hundred thousand strange members are not answered with as many errors.
    let many: Vec<String> = (0..90_000).map(|n| format!("\"{n}\":1")).collect();
    let (status, problem) = app.post("/v1/leads", &[], format!("{{{}}}", many.join(","))).await;
    assert_eq!(status, 422);
    assert!(errors(&problem).len() < 100);
    log.has_no_error();
    assert!(!log.text().contains("secretperson") && !log.text().contains("@example"));
}

#[tokio::test]
async fn bad_bodies_are_told_what_they_are() {
    let app = TestApp::receiving().await;
    let log = Log::record();
    let json = ("content-type", "application/json");
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(127), "]".repeat(127));
    let cases: [(&[(&str, &str)], &[u8], u16, &str); 24] = [
        (&[json], b"", 400, "empty_body"),
        (&[json], b"{\"email\":", 400, "malformed_json"),
        (&[json], b"{\"email\":\"a@example.com\"}{}", 400, "malformed_json"),
        (&[json], b"{\"email\":\"\xff@example.com\"}", 400, "malformed_json"),
        (&[json], br#"{"email":"a@example.com","city":"\ud800"}"#, 400, "malformed_json"),
        (&[json], br#"{"email":"a@example.com","attributes":{"n":1e400}}"#, 400, "malformed_json"),
        (&[json], b"{\0\"\0}\0", 400, "malformed_json"),
        (&[json], deep.as_bytes(), 400, "malformed_json"),
        (&[json], b"null", 422, "not_a_lead"),
        (&[json], b"\"x\"", 422, "not_a_lead"),
        (&[json], br#"{"email":"a\u0000@example.com"}"#, 422, "invalid_leads"),
        (
            &[json],
            br#"{"email":"a@example.com","phone":123456789012345678901234567890}"#,
            422,
            "invalid_leads",
        ),
        (&[json], br#"{"email":"a@example.com; b@example.com"}"#, 422, "invalid_leads"),
        (&[LINES], b"not json\nnor this", 422, "invalid_leads"),
        (&[("content-type", "text/plain")], b"{}", 415, "unsupported_media_type"),
        (
            &[("content-type", "application/x-www-form-urlencoded")],
            b"email=a",
            415,
            "unsupported_media_type",
        ),
        (
            &[("content-type", "application/json; charset=utf-16")],
            b"{}",
            415,
            "unsupported_media_type",
        ),
        (&[json, ("content-encoding", "br")], b"{}", 415, "unsupported_encoding"),
        (&[json, ("content-encoding", "gzip")], b"{}", 400, "bad_gzip"),
        (&[json, ("idempotency-key", "two words")], b"{}", 422, "invalid_idempotency_key"),
        (
            &[json, ("idempotency-key", "a"), ("idempotency-key", "b")],
            b"{}",
            422,
            "invalid_idempotency_key",
        ),
        (&[json, ("x-forwarded-for", "203.0.113.9")], b"{}", 403, "loopback_only"),
        (&[json], &[b' '; (1 << 20) + 1], 413, "body_too_large"),
        (&[json], &[b'['; 1 << 20], 400, "malformed_json"),
    ];
    for (headers, body, status, code) in cases {
        let (got, answer) = app.post("/v1/leads", headers, body.to_vec()).await;
        assert_eq!((got, &answer["code"]), (status, &json!(code)), "{headers:?} {answer}");
    }
    assert_eq!(app.value::<i64>("select count(*) from leadsync.leads").await, 0);
    // What is good JSON: the last of a key counts, NULs go, odd texts stay.
    let odd = r#"{"email":"x","email":"odd@example.com","city":"a\u0000\u202eb","attributes":{"__proto__":"'; --"}}"#;
    let (status, answer) = app.post("/v1/leads", &[json], odd).await;
    assert_eq!((status, &answer["outcome"]), (200, &json!("created")), "{answer}");
    let (_, view) = app.get("/v1/leads/odd@example.com").await;
    assert_eq!(view["lead"]["city"], "a\u{202e}b");
    assert_eq!(view["lead"]["attributes"]["__proto__"], "'; --");
    log.has_no_error();
}

#[tokio::test]
async fn a_key_belongs_to_one_body() {
    let app = TestApp::receiving().await;
    let post = async |key: &str, lead: &Value| {
        let request = app.http.post(format!("{}/v1/leads", app.url)).json(lead);
        let answer = request.header("idempotency-key", key).send().await.unwrap();
        let echo = answer.headers().get("idempotency-key").map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(echo.as_deref(), Some(key));
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (one, other) = (json!({"email": "a@example.com"}), json!({"email": "b@example.com"}));
    let (status, created) = post("k-1", &one).await;
    assert_eq!((status, &created["outcome"]), (200, &json!("created")));
    let (status, again) = post("k-1", &one).await;
    assert_eq!(
        (status, again),
        (200, json!({"outcome": "unchanged", "lead_id": created["lead_id"]}))
    );
    let (status, problem) = post("k-1", &other).await;
    assert_eq!((status, &problem["code"]), (422, &json!("idempotency_key_reused")));
    assert_eq!(app.get("/v1/leads/b@example.com").await.0, 404, "nothing of it was stored");
    assert_eq!(post("k-2", &other).await.0, 200);
    // Without a key a repeat is as safe, and refused bodies have their key too.
    assert_eq!(send(&app, &other).await.1["outcome"], "unchanged");
    assert_eq!(post("k-3", &json!({"email": "nobody"})).await.0, 422);
    assert_eq!(post("k-3", &other).await.1["code"], "idempotency_key_reused");
    // Another instance knows them.
    let second = app.another("").await;
    let key = [("idempotency-key", "k-1")];
    let (status, problem) = second.post("/v1/leads", &key, other.to_string()).await;
    assert_eq!((status, &problem["code"]), (422, &json!("idempotency_key_reused")));
    let kept = "select idempotency_key from leadsync.deliveries where outcome = 'rejected'";
    assert_eq!(app.value::<String>(kept).await, "k-3");
}

#[tokio::test]
async fn the_token_and_only_the_token_opens() {
    let app = TestApp::spawn_with("[http]\nadmin_token = \"right-token\"", RECEIVE).await;
    let log = Log::record();
    let lead = json!({"email": "a@example.com"}).to_string();
    for headers in
        [&[][..], &[("authorization", "Bearer wrong")], &[("authorization", "Basic right-token")]]
    {
        let (status, problem) = app.post("/v1/leads", headers, lead.clone()).await;
        assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")), "{headers:?}");
    }
    assert_eq!(app.get("/v1/leads/a@example.com").await.0, 401);
    assert_eq!(app.value::<i64>("select count(*) from leadsync.deliveries").await, 0);
    // With it, from anywhere.
    let right = [("authorization", "Bearer right-token"), ("x-forwarded-for", "203.0.113.9")];
    assert_eq!(app.post("/v1/leads", &right, lead).await.0, 200);
    // Hooks have their own proofs, and health is everybody's.
    assert_eq!(app.deliver(&json!({"email": "b@example.com"})).await.0, 200);
    assert_eq!(app.get("/readyz").await.0, 200);
    assert!(!log.text().contains("right-token"));
}

#[tokio::test]
async fn a_lead_shows_where_everything_came_from() {
    let app = TestApp::receiving().await;
    let full = json!({
        "email": "Ana@Example.com", "occurred_at": "2026-03-05T14:22:10.123456Z", "source": "fair",
        "first_name": "Ana", "last_name": "Luz", "full_name": "Ana Luz", "phone": "+5511912345678",
        "company": "Aurora", "job_title": "CTO", "website": "https://example.com", "city": "Recife",
        "region": "PE", "country": "BR", "language": "pt", "message": "Oi\ntudo", "lifecycle_stage": "lead",
        "marketing_consent": true, "tags": ["b", "a"], "attributes": {"budget": 10}, "utm_source": "news",
        "utm_medium": "mail", "utm_campaign": "spring", "utm_term": "crm", "utm_content": "top",
        "landing_page": "https://example.com/l",
    });
    assert_eq!(send(&app, &full).await.0, 200);
    let (status, view) = app.get("/v1/leads/%20ana%40EXAMPLE.com").await;
    assert_eq!(status, 200);
    let shape = ["lead_id", "email", "version", "lead", "origin", "destinations"];
    assert_eq!(members(&view), BTreeSet::from(shape));
    assert_eq!((&view["email"], &view["version"]), (&json!("ana@example.com"), &json!(1)));
    for (column, value) in full.as_object().unwrap() {
        let lead = &view["lead"];
        match column.as_str() {
            "email" => assert_eq!(lead["email_as_typed"], *value),
            "occurred_at" => {
                assert_eq!((&lead["first_seen_at"], &lead["last_seen_at"]), (value, value));
            }
            "source" => assert_eq!((&lead["first_source"], &lead["last_source"]), (value, value)),
            "tags" => assert_eq!(lead["tags"], json!(["a", "b"])),
            "attributes" => assert_eq!(lead["attributes"], json!({"budget": "10"})),
            _ => assert_eq!(lead[column], *value, "{column}"),
        }
    }
    // Columns of the table, and nothing else.
    let columns = "select array_agg(attname::text) from pg_attribute where attrelid = 'leadsync.leads'::regclass and attnum > 0";
    let columns: Vec<String> = app.value(columns).await;
    for name in members(&view["lead"]) {
        assert!(columns.iter().any(|column| column == name), "{name} is no column");
    }
    let names = [
        "first_name",
        "last_name",
        "full_name",
        "phone",
        "company",
        "job_title",
        "website",
        "city",
        "region",
        "country",
        "language",
        "message",
        "lifecycle_stage",
        "marketing_consent",
        "attributes.budget",
    ];
    assert_eq!(members(&view["origin"]), BTreeSet::from(names));
    for name in names {
        let origin = &view["origin"][name];
        assert_eq!(
            members(origin),
            BTreeSet::from(["value", "occurred_at", "source", "trust"]),
            "{name}"
        );
        assert_eq!(
            (&origin["occurred_at"], &origin["source"]),
            (&full["occurred_at"], &json!("api")),
            "{name}"
        );
        let trusted = !["lifecycle_stage", "marketing_consent"].contains(&name);
        assert_eq!(origin["trust"], if trusted { json!(50) } else { Value::Null }, "{name}");
    }
    assert_eq!(view["origin"]["attributes.budget"]["value"], "10");
    assert_eq!(view["origin"]["marketing_consent"]["value"], true);

    let members_of = [
        "name",
        "state",
        "wanted_version",
        "confirmed_version",
        "remote_id",
        "attempts",
        "next_attempt_at",
        "last_error",
    ];
    let destination = view["destinations"][0].clone();
    assert_eq!(members(&destination), BTreeSet::from(members_of));
    assert_eq!((&destination["name"], &destination["state"]), (&json!("hubspot"), &json!("due")));
    assert_eq!(
        (&destination["wanted_version"], &destination["confirmed_version"]),
        (&json!(1), &Value::Null)
    );
    assert!(destination["next_attempt_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    assert_eq!((&destination["last_error"], &destination["attempts"]), (&Value::Null, &json!(0)));

    // A refusal of the CRM, and its consent once the lead has changed.
    let (body, apply) = Default::default();
    app.crm.script(Fault::Status { status: 400, body, apply, retry_after: None });
    assert_eq!(app.drain().await.parked, 1);
    let (_, view) = app.get("/v1/leads/ana@example.com").await;
    assert_eq!(view["destinations"][0]["state"], "parked");
    let error = &view["destinations"][0]["last_error"];
    assert_eq!(members(error), BTreeSet::from(["kind", "code", "message"]), "{view}");
    assert_eq!(error["kind"], "record");
    let news = json!({"email": "ana@example.com", "city": "Olinda", "occurred_at": "2026-03-06T00:00:00Z"});
    assert_eq!(send(&app, &news).await.1["outcome"], "updated");
    app.drain().await;
    let (_, view) = app.get("/v1/leads/ana@example.com").await;
    let destination = &view["destinations"][0];
    assert_eq!(
        (&destination["state"], &destination["confirmed_version"]),
        (&json!("synced"), &json!(2))
    );
    assert!(destination["remote_id"].is_string());

    assert_eq!(app.get("/v1/leads/nobody@example.com").await.0, 404);
    let (status, problem) = app.get("/v1/leads/nobody").await;
    assert_eq!((status, &problem["code"]), (422, &json!("invalid_email")));
}

// While the database is away

/// Ends all connections to a database and refuses new ones, or lets them in again: what a restart, a
/// failover or a full connection table looks like from here.
async fn reachable(db: &TestDb, admin: &tokio_postgres::Client, reachable: bool) {
    let name = db.name();
    let allow = format!("alter database {name} allow_connections {reachable}");
    admin.batch_execute(&allow).await.unwrap();
    if !reachable {
        let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1";
        admin.execute(end, &[&name]).await.unwrap();
    }
}

#[tokio::test]
async fn an_outage_is_told_and_passes_without_a_restart() {
    let app = TestApp::receiving().await;
    let admin = app.db.admin().await;
    let lead = |name: &str| json!({"email": format!("{name}@example.com")});
    assert_eq!(app.deliver(&lead("before")).await.0, 200);
    reachable(&app.db, &admin, false).await;
    for _ in 0..2 {
        let answer = app.http.get(format!("{}/readyz", app.url)).send().await.unwrap();
        assert_eq!(answer.status(), 503);
        assert!(answer.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "database_unavailable");
        assert!(!problem.to_string().contains(app.db.name()), "internals: {problem}");
    }
    assert_eq!(app.get("/healthz").await.0, 200, "restarting this process would mend nothing");
    for (path, body) in [("/hooks/site", lead("hook")), ("/v1/leads", lead("own"))] {
        let request = app.http.post(format!("{}{path}", app.url)).json(&body);
        let request = request.header("x-api-key", "site-key").header("idempotency-key", "k");
        let answer = bounded("an answer in the outage", request.send()).await.unwrap();
        assert_eq!(answer.status(), 503, "{path}");
        assert!(answer.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "storage_unavailable", "{path}");
    }
    // What does not need the database is told as ever.
    assert_eq!(app.post("/hooks/site", &[], "{}").await.0, 401);
    assert_eq!(app.post("/v1/leads", &[], "").await.0, 400);

    reachable(&app.db, &admin, true).await;
    until("readiness", async || app.get("/readyz").await.0 == 200).await;
    assert_eq!(app.deliver(&lead("hook")).await.1["outcome"], "created");
    assert_eq!(send(&app, &lead("own")).await.1["outcome"], "created");
    assert_eq!(app.value::<i64>("select count(*) from leadsync.leads").await, 3);
}

#[tokio::test]
async fn nothing_that_was_acknowledged_is_lost() {
    let app = Arc::new(TestApp::receiving().await);
    let admin = app.db.admin().await;
    let over = Arc::new(AtomicBool::new(false));
    // Senders that do as senders do: the same again until it is taken.
    let senders: Vec<_> = (0..8)
        .map(|sender| {
            let (app, over) = (app.clone(), over.clone());
            tokio::spawn(async move {
                let (mut acknowledged, mut refused) = (Vec::new(), 0);
                for n in 0.. {
                    let email = format!("s{sender}n{n}@example.com");
                    let lead = json!({"email": email, "first_name": "Ana"});
                    loop {
                        let (status, answer) = app.deliver(&lead).await;
                        match status {
                            200 => break,
                            503 => refused += 1,
                            _ => panic!("{status} {answer}"),
                        }
                    }
                    acknowledged.push(email);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
                (acknowledged, refused)
            })
        })
        .collect();
    let leads = "select count(*) from leadsync.leads";
    for _ in 0..3 {
        let so_far: i64 = app.value(leads).await;
        until("leads to flow", async || app.value::<i64>(leads).await > so_far + 20).await;
        reachable(&app.db, &admin, false).await;
        until("the outage to be felt", async || app.get("/readyz").await.0 == 503).await;
        let (status, problem) = app.deliver(&json!({"email": "meanwhile@example.com"})).await;
        assert_eq!((status, &problem["code"]), (503, &json!("storage_unavailable")));
        reachable(&app.db, &admin, true).await;
    }
    over.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeSet::new();
    let mut refused = 0;
    for done in bounded("the senders", join_all(senders)).await {
        let (emails, times) = done.unwrap();
        acknowledged.extend(emails);
        refused += times;
    }
    assert!(refused > 0, "nobody noticed the outages");
    let stored: Vec<String> = app.value("select array_agg(email) from leadsync.leads").await;
    assert_eq!(acknowledged, stored.into_iter().collect(), "acknowledged is stored, and each once");
    let moved: i64 = app.value("select count(*) from leadsync.leads where version > 1").await;
    assert_eq!(moved, 0, "a retry of what was stored and not answered changes nothing");
}
