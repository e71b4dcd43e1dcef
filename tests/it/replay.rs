//! Stored deliveries through today's mapping again.

use std::collections::BTreeMap;

use leadsync::app::Roles;
use leadsync::lead::Outcome;
use leadsync::store::deliveries::ReplayFilter;
use serde_json::{Value, json};

use crate::support::app::TestApp;

const RECEIVE: Roles = Roles { receive: true, sync: false };

/// A form whose fields nobody could guess, and what its owner says about them.
fn form(fields: Value) -> String {
    let auth = json!({"name": "X-Form-Key", "value": "form-key"});
    let source = json!({"name": "form", "kind": "json", "header": auth, "fields": fields});
    toml::to_string(&json!({ "source": [source] })).unwrap()
}

async fn fill_in(app: &TestApp, form: &Value) -> Value {
    let (status, answer) =
        app.post("/hooks/form", &[("x-form-key", "form-key")], form.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Everything about every lead that others see, as text, by address; ids and bookkeeping times aside.
async fn table(app: &TestApp) -> BTreeMap<String, String> {
    let sql = "select email, (to_jsonb(l) - '{lead_id,created_at,updated_at,version,moved}'::text[])::text from leadsync.leads as l";
    let rows = app.db.client().await.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

fn all() -> ReplayFilter {
    ReplayFilter::default()
}

#[tokio::test]
async fn rejected_deliveries_become_leads_once_the_mapping_is_mended() {
    let app = TestApp::spawn_with(&form(json!({})), RECEIVE).await;
    let filled = |n: u32| json!({"x17": format!("a{n}@example.com"), "x18": "Aurora"});
    for n in 0..3 {
        assert_eq!(fill_in(&app, &filled(n)).await["reason"], "no_email");
    }
    assert_eq!(
        fill_in(&app, &json!({"x17": "nobody", "x18": "Aurora"})).await["reason"],
        "no_email"
    );
    assert_eq!(fill_in(&app, &json!({"email": "early@example.com"})).await["outcome"], "created");
    assert_eq!(app.deliver(&json!({"first_name": "no address"})).await.0, 200);
    let (status, _) = app.post("/hooks/form", &[("x-form-key", "form-key")], "{").await;
    assert_eq!(status, 400);
    let rejected =
        ReplayFilter { outcome: Some(Outcome::Rejected), source: Some("form".into()), since: None };
    let replayed = app.receiver.replay(&rejected, |_| {}).await.unwrap();
    assert_eq!(
        replayed.outcomes,
        BTreeMap::from([(Outcome::Rejected, 5)]),
        "nothing is mended yet"
    );

    let app =
        app.restarted(&form(json!({"email": ["$.email", "$.x17"], "company": "$.x18"}))).await;
    let replayed = app.receiver.replay(&rejected, |_| {}).await.unwrap();
    let became = BTreeMap::from([(Outcome::Created, 3), (Outcome::Rejected, 2)]);
    assert_eq!((replayed.outcomes, replayed.failed, replayed.without_body), (became, 0, 0));
    for n in 0..3 {
        let (status, view) = app.get(&format!("/v1/leads/a{n}@example.com")).await;
        assert_eq!((status, &view["lead"]["company"]), (200, &json!("Aurora")));
        // It counts with its receipt, not with the replay.
        let receipt = format!(
            "select received_at = (select last_seen_at from leadsync.leads where email = 'a{n}@example.com')
                and outcome = 'created' and reason is null and items is null and copies = 1 and last_received_at = received_at
                and lead_ids = array['{}'::uuid]
            from leadsync.deliveries where convert_from(body, 'UTF8') like '%\"a{n}@%'",
            view["lead_id"].as_str().unwrap()
        );
        assert!(app.value::<bool>(&receipt).await, "{receipt}");
    }
    let left = "select array_agg(source || ' ' || reason order by source, reason) from leadsync.deliveries where outcome = 'rejected'";
    let left: Vec<String> = app.value(left).await;
    assert_eq!(left, ["form malformed", "form no_email", "site no_email"]);
    let again = app.receiver.replay(&all(), |_| {}).await.unwrap();
    assert_eq!(again.outcomes, BTreeMap::from([(Outcome::Unchanged, 4), (Outcome::Rejected, 3)]));
    // The sender's own redelivery finds its lead, too.
    assert_eq!(fill_in(&app, &filled(0)).await["outcome"], "unchanged");
    assert_eq!(app.drain().await.pushed, 4);
}

#[tokio::test]
async fn a_delivery_of_which_a_part_was_rejected_is_found_and_mended() {
    let app = TestApp::spawn_with(&form(json!({})), RECEIVE).await;
    let two = json!([{"email": "good@example.com"}, {"x17": "late@example.com"}]);
    let answer = fill_in(&app, &two).await;
    assert_eq!(answer["outcomes"][1]["reason"], "no_email", "{answer}");
    let status = app.store.status().await.unwrap();
    assert_eq!(
        status.rejected.iter().map(|r| (r.source.as_str(), r.deliveries)).collect::<Vec<_>>(),
        [("form", 1)]
    );

    let app = app.restarted(&form(json!({"email": ["$.email", "$.x17"]}))).await;
    let rejected = ReplayFilter { outcome: Some(Outcome::Rejected), ..all() };
    let replayed = app.receiver.replay(&rejected, |_| {}).await.unwrap();
    assert_eq!(replayed.outcomes, BTreeMap::from([(Outcome::Created, 1), (Outcome::Unchanged, 1)]));
    // The archive knows both leads now, and that nothing is rejected any more.
    let known = "select (select array_agg(lead_id order by lead_id) from leadsync.leads) = lead_ids
        and items #>> '{1,outcome}' = 'created' from leadsync.deliveries";
    assert!(app.value::<bool>(known).await);
    assert!(app.store.status().await.unwrap().rejected.is_empty());
}

#[tokio::test]
async fn replaying_everything_changes_nothing() {
    let app = TestApp::spawn_with(&form(json!({})), RECEIVE).await;
    for n in 0..20 {
        let name = format!("a{}@example.com", n % 5);
        let timed = json!({"email": name, "company": format!("C{n}"), "occurred_at": format!("2026-01-{:02}T00:00:00Z", 28 - n)});
        let untimed = json!({"email": name, "city": format!("City{n}"), "tags": [format!("t{n}")], "attributes": {"n": n}});
        assert_eq!(app.deliver(&timed).await.0, 200);
        fill_in(&app, &untimed).await;
        fill_in(&app, &untimed).await;
    }
    let own = json!([{"email": "own@example.com", "phone": "+5511912345678"}, {"email": "nobody"}]);
    assert_eq!(app.post("/v1/leads", &[("idempotency-key", "k")], own.to_string()).await.0, 422);
    let lines = "{\"email\":\"line@example.com\",\"marketing_consent\":true}\n{\"email\":\"a1@example.com\",\"clear\":[\"city\"]}\n";
    assert_eq!(
        app.post("/v1/leads", &[("content-type", "application/x-ndjson")], lines).await.0,
        200
    );
    app.drain().await;
    app.receiver.flush_counts().await;
    let calls = app.crm.calls().len();
    let rows = "select string_agg(l::text, E'\\n' order by email) || (select string_agg(s::text, E'\\n' order by lead_id) from leadsync.lead_sync as s)
        || (select string_agg(d::text, E'\\n' order by delivery_id) from leadsync.deliveries as d) from leadsync.leads as l";
    let before: String = app.value(rows).await;
    assert!(before.contains("line@example.com"));
    for instance in [&app, &app.another(&form(json!({}))).await] {
        let mut told = 0;
        let replayed = instance.receiver.replay(&all(), |done| told = done).await.unwrap();
        // 40 of hooks with one lead each, and two of /v1 with two.
        assert_eq!(
            replayed.outcomes,
            BTreeMap::from([(Outcome::Unchanged, 43), (Outcome::Rejected, 1)])
        );
        assert_eq!(
            (told, replayed.failed, replayed.without_body, replayed.without_source),
            (42, 0, 0, 0)
        );
        let after: String = instance.value(rows).await;
        assert_eq!(before, after, "byte for byte, the archive too");
    }
    assert_eq!((app.drain().await.calls, app.crm.calls().len()), (0, calls));
    // A source that is not configured any more is passed over.
    let app = app.restarted("").await;
    let replayed = app.receiver.replay(&all(), |_| {}).await.unwrap();
    assert_eq!(replayed.without_source, 20);
}

#[tokio::test]
async fn the_archive_alone_makes_the_table_again() {
    let app = TestApp::spawn_with(&form(json!({"email": "$.x17"})), RECEIVE).await;
    for n in 0..10 {
        let name = format!("a{}@example.com", n % 3);
        fill_in(
            &app,
            &json!({"x17": name, "company": format!("C{n}"), "utm_source": format!("u{n}")}),
        )
        .await;
        let own = json!({"email": name, "occurred_at": format!("2026-01-{:02}T00:00:00Z", n + 1), "city": format!("City{n}"), "source": "own"});
        assert_eq!(app.post("/v1/leads", &[], own.to_string()).await.0, 200);
    }
    let lines = "{\"email\":\"line@example.com\",\"first_name\":\"Ana\"}\nnot json\n";
    assert_eq!(
        app.post("/v1/leads", &[("content-type", "application/x-ndjson")], lines).await.0,
        422
    );
    let multipart =
        "--x\r\nContent-Disposition: form-data; name=\"x17\"\r\n\r\nmulti@example.com\r\n--x--\r\n";
    let headers = [("x-form-key", "form-key"), ("content-type", "multipart/form-data; boundary=x")];
    assert_eq!(app.post("/hooks/form?x=1", &headers, multipart).await.0, 200);
    let before = table(&app).await;
    assert_eq!(before.len(), 5);
    app.db
        .client()
        .await
        .batch_execute("truncate leadsync.leads, leadsync.lead_sync")
        .await
        .unwrap();
    let replayed = app.receiver.replay(&all(), |_| {}).await.unwrap();
    assert_eq!(replayed.outcomes[&Outcome::Created], 5);
    assert_eq!(table(&app).await, before);
    // And what is made again is due again.
    assert_eq!(app.drain().await.pushed, 5);
}

#[tokio::test]
async fn the_command_replays_what_it_is_told_to() {
    let app = TestApp::spawn_with(&form(json!({})), RECEIVE).await;
    fill_in(&app, &json!({"x17": "a@example.com"})).await;
    app.deliver(&json!({"x17": "b@example.com"})).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("leadsync.toml");
    let config =
        format!("[database]\nurl = '{}'\n{}", app.db.url(), form(json!({"email": "$.x17"})));
    std::fs::write(&file, config).unwrap();
    let replay = async |arguments: &[&str]| {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_leadsync"))
            .arg("--config")
            .arg(&file)
            .arg("replay")
            .args(arguments)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let later = replay(&["--source", "form", "--since", "2999-01-01T00:00:00Z"]).await;
    assert_eq!(later, "nothing to replay\n");
    assert_eq!(
        replay(&["--outcome", "rejected"]).await,
        "1 created\n1 of sources that are not configured any more, passed over\n"
    );
    assert_eq!(app.get("/v1/leads/a@example.com").await.0, 200);
    assert_eq!(replay(&["--source", "form"]).await, "1 unchanged\n");
    assert_eq!(
        replay(&["--outcome", "created"]).await,
        "1 unchanged\n",
        "the archive knows what became of it"
    );
}
