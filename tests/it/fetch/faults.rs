//! What goes wrong between an event and its lead.

use std::time::Duration;

use leadsync::app::Roles;
use leadsync::fake_crm::Crm;
use serde_json::{Value, json};

use super::{RECEIVE, Rig, TOKEN, contact, contact_event, deliver, graph_lead, leadgen};
use crate::support::app::{TestApp, until};
use crate::support::log::Log;
use crate::support::process::{Program, eventually};
use crate::support::sender_api::Fault;

/// Pause of an API: kind, code, and whether it lasts.
async fn paused(rig: &Rig, source: &str) -> Option<(String, String, f64)> {
    let sql = "select pause_kind, coalesce(pause_code, ''),
            extract(epoch from paused_until - clock_timestamp())::float8
        from leadsync.source_apis where name = $1 and paused_until > clock_timestamp()";
    let row = rig.sql.query_opt(sql, &[&source]).await.expect("a look at pauses");
    row.map(|row| (row.get(0), row.get(1), row.get(2)))
}

fn graph_error(code: i64) -> Value {
    json!({"error": {"message": "words of the API about ana@example.com", "code": code}})
}

#[tokio::test]
async fn a_change_during_a_reading_is_read_afterwards() {
    let rig = Rig::new().await;
    rig.api.put(contact(7, "greta@example.com", "Old", 0));
    rig.api.fault("batch/read", Fault::Hold);
    rig.deliver("hubspot-app", &json!([contact_event("contact.creation", 7, 0)])).await;
    rig.api.arrived(1).await;
    // The stand-in answers with what it holds when it is released: the event is not lost, nor is it answered twice.
    rig.deliver("hubspot-app", &json!([contact_event("contact.propertyChange", 7, 5_000)])).await;
    assert_eq!(rig.fetch("7", "state || wanted").await, "due2");
    rig.api.release();
    rig.api.arrived(2).await;
    rig.state("7", "done").await;
    assert_eq!(rig.api.calls().len(), 2);
    rig.api.put(contact(7, "greta@example.com", "New", 6_000));
    rig.deliver("hubspot-app", &json!([contact_event("contact.propertyChange", 7, 6_000)])).await;
    until("it is new", async || rig.lead("greta@example.com").await["lead"]["company"] == "New")
        .await;

    // Gone during a reading stays gone.
    rig.api.fault("batch/read", Fault::Hold);
    rig.deliver("hubspot-app", &json!([contact_event("contact.propertyChange", 7, 8_000)])).await;
    rig.api.arrived(4).await;
    rig.deliver("hubspot-app", &json!([contact_event("contact.deletion", 7, 9_000)])).await;
    rig.api.release();
    until("it is settled", async || rig.fetch("7", "lease_holder").await.is_empty()).await;
    assert_eq!(rig.fetch("7", "state").await, "deleted");
}

#[tokio::test]
async fn slow_down_is_obeyed_and_nobody_is_blamed() {
    let rig = Rig::new().await;
    rig.api.put(graph_lead("1", "ana@example.com"));
    let retry_after = vec![("retry-after", "1".to_owned())];
    rig.api.fault("/1", Fault::Status(429, retry_after, json!({})));
    rig.deliver("meta", &leadgen(&["1"])).await;
    rig.api.arrived(1).await;
    let began = std::time::Instant::now();
    until("it is paused", async || paused(&rig, "meta").await.is_some()).await;
    assert_eq!(paused(&rig, "meta").await.map(|p| p.0).as_deref(), Some("slow_down"));
    assert_eq!(rig.fetch("1", "attempts").await, "0");
    rig.state("1", "done").await;
    assert!(began.elapsed() > Duration::from_millis(800), "{:?}", began.elapsed());
    assert_eq!(rig.api.calls().len(), 2);
    assert_eq!(rig.fetch("1", "last_error_message").await, "");

    // Meta says it with a 400 and a header in minutes.
    rig.api.put(graph_lead("2", "bo@example.com"));
    let usage = r#"{"1":[{"type":"leadgen","estimated_time_to_regain_access":3}]}"#;
    let headers = vec![("x-business-use-case-usage", usage.to_owned())];
    rig.api.fault("/2", Fault::Status(400, headers, graph_error(80_005)));
    rig.deliver("meta", &leadgen(&["2"])).await;
    until("it is paused", async || paused(&rig, "meta").await.is_some()).await;
    let (kind, _, seconds) = paused(&rig, "meta").await.expect("paused");
    assert!(kind == "slow_down" && (170.0..=180.0).contains(&seconds), "{kind} {seconds}");
}

#[tokio::test]
async fn trouble_of_the_api_is_waited_out() {
    let rig = Rig::new().await;
    let log = Log::record();
    rig.api.put(graph_lead("1", "ana@example.com"));
    for fault in [
        Fault::Status(503, Vec::new(), json!({})),
        Fault::Status(500, Vec::new(), graph_error(2)),
        Fault::Garbage,
        Fault::Status(200, Vec::new(), json!({"hello": "world"})),
        // Longer than sync.call_timeout.
        Fault::Delay(Duration::from_millis(1_300)),
        Fault::Status(200, Vec::new(), json!([1])),
    ] {
        rig.api.fault("/1", fault);
    }
    rig.deliver("meta", &leadgen(&["1"])).await;
    rig.state("1", "done").await;
    assert_eq!(rig.api.calls().len(), 7);
    assert_eq!(rig.fetch("1", "attempts").await, "0");
    assert_eq!(
        rig.app.value::<i32>("select failures from leadsync.source_apis where name = 'meta'").await,
        0
    );
    log.has_no_error();
    let text = log.text();
    assert!(!text.contains("ana@example.com") && !text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn one_lead_that_the_api_refuses_is_parked_and_requeued() {
    let rig = Rig::new().await;
    for id in ["1", "2", "3"] {
        rig.api.put(graph_lead(id, &format!("n{id}@example.com")));
    }
    // A permission that this lead's page did not give.
    rig.api.fault("/2", Fault::Status(403, Vec::new(), graph_error(200)));
    rig.deliver("meta", &leadgen(&["1", "2", "3"])).await;
    rig.state("2", "parked").await;
    rig.state("1", "done").await;
    rig.state("3", "done").await;
    let error = rig
        .fetch("2", "last_error_kind || ' ' || last_error_code || ' ' || last_error_message")
        .await;
    assert_eq!(error, "record 200 403 words of the API about [address]");
    // A redelivery does not try again what is known to fail.
    rig.deliver("meta", &leadgen(&["2"])).await;
    assert_eq!(rig.fetch("2", "state").await, "parked");
    let status = rig.app.store.status().await.expect("status");
    let fetches = &status.fetches.iter().find(|f| f.source == "meta").expect("its row");
    assert_eq!((fetches.done, fetches.due, fetches.parked), (2, 0, 1));
    assert_eq!(fetches.last_error.as_ref().expect("an error")["remote_id"], "2");
    assert_eq!(rig.app.store.requeue_fetches(Some("linkedin"), None).await.unwrap(), 0);
    assert_eq!(rig.app.store.requeue_fetches(Some("meta"), Some("100")).await.unwrap(), 0);
    assert_eq!(rig.app.store.requeue_fetches(Some("meta"), None).await.unwrap(), 1);
    rig.state("2", "done").await;
    assert_eq!(rig.leads().await, 3);
}

#[tokio::test]
async fn a_token_that_is_refused_pauses_loudly_until_it_is_mended() {
    let rig = Rig::new().await;
    let log = Log::record();
    rig.api.put(graph_lead("1", "ana@example.com"));
    rig.api.put(graph_lead("2", "bo@example.com"));
    rig.api.set_token("new-token-example");
    rig.deliver("meta", &leadgen(&["1"])).await;
    until("it is paused", async || paused(&rig, "meta").await.is_some()).await;
    assert_eq!(
        paused(&rig, "meta").await.map(|p| (p.0, p.1)),
        Some(("credentials".into(), "190".into()))
    );
    // Nothing is lost, nobody is asked, and nothing is counted against a lead.
    assert_eq!(rig.deliver("meta", &leadgen(&["2"])).await, json!({"outcome": "queued"}));
    assert_eq!(rig.fetch("1", "state || attempts").await, "due0");
    let status = rig.app.store.status().await.expect("status");
    let fetches = status.fetches.iter().find(|f| f.source == "meta").expect("its row");
    assert_eq!(fetches.paused.as_ref().and_then(|p| p.kind.as_deref()), Some("credentials"));
    assert_eq!(fetches.due, 2);
    let text = log.text();
    assert!(
        text.contains("reading leads of meta is paused until somebody acts: credentials"),
        "{text}"
    );
    assert!(!text.contains(TOKEN));
    // With the new token in its configuration it goes on at once.
    let Rig { app, api, sql, text } = rig;
    let app = app.restarted(&text.replace(TOKEN, "new-token-example")).await;
    let rig = Rig { app, api, sql, text };
    rig.state("1", "done").await;
    rig.state("2", "done").await;
}

#[tokio::test]
async fn several_instances_read_each_lead_once() {
    let rig = Rig::with(|sources| sources[0]["rate"] = json!("10000/1s")).await;
    let second = rig.app.another(&rig.text).await;
    let third = rig.app.another(&rig.text).await;
    let ids: Vec<String> = (1..=60).map(|n| n.to_string()).collect();
    for id in &ids {
        rig.api.put(graph_lead(id, &format!("n{id}@example.com")));
    }
    // Copies at once, to all of them.
    let apps = [&rig.app, &second, &third];
    let deliveries = (0..90).map(|n| {
        let body = leadgen(&[ids[n % 60].as_str(), ids[(n * 7) % 60].as_str()]);
        async move { deliver(apps[n % 3], "meta", &body).await }
    });
    futures_util::future::join_all(deliveries).await;
    until("all are read", async || {
        let done = "select count(*) from leadsync.fetches where state = 'done'";
        rig.app.value::<i64>(done).await == 60
    })
    .await;
    assert_eq!(rig.api.calls().len(), 60);
    assert_eq!(rig.leads().await, 60);
    assert_eq!(rig.app.value::<i64>("select sum(version)::bigint from leadsync.leads").await, 60);
    // Everybody had a part of it, or the leases did nothing here.
    let (_, _) = (second.stop().await, third.stop().await);
}

#[tokio::test]
async fn the_budget_is_shared() {
    let rig = Rig::with(|sources| sources[0]["rate"] = json!("10/1s")).await;
    let second = rig.app.another(&rig.text).await;
    let ids: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for id in &ids {
        rig.api.put(graph_lead(id, &format!("n{id}@example.com")));
    }
    let began = std::time::Instant::now();
    rig.deliver("meta", &leadgen(&ids)).await;
    until("all are read", async || {
        let done = "select count(*) from leadsync.fetches where state = 'done'";
        rig.app.value::<i64>(done).await == 12
    })
    .await;
    // Twelve calls are eleven distances of 110 ms.
    assert!(began.elapsed() > Duration::from_millis(1_100), "{:?}", began.elapsed());
    second.stop().await;
}

#[tokio::test]
async fn an_instance_that_stalls_is_overtaken_and_changes_nothing() {
    let rig = Rig::new().await;
    let log = Log::record();
    rig.api.put(graph_lead("1", "ana@example.com"));
    rig.api.fault("/1", Fault::Hold);
    rig.deliver("meta", &leadgen(&["1"])).await;
    rig.api.arrived(1).await;
    let second = rig.app.another(&rig.text).await;
    rig.end_leases().await;
    rig.api.arrived(2).await;
    rig.state("1", "done").await;
    let token = rig.fetch("1", "lease_token").await;
    rig.api.release();
    // The first one's answer is delivered too, which changes nothing; it may not settle.
    until("the first one is fenced off", async || log.text().contains("lease lost")).await;
    assert_eq!(rig.api.calls().len(), 2);
    assert_eq!(rig.fetch("1", "lease_token").await, token);
    assert_eq!(rig.app.value::<i64>("select sum(version)::bigint from leadsync.leads").await, 1);
    second.stop().await;
}

#[tokio::test]
async fn only_who_receives_reads() {
    let rig = Rig::new().await;
    let syncing = TestApp::start_on(
        rig.app.db.clone(),
        rig.app.crm.clone(),
        &rig.text,
        Roles { receive: false, sync: true },
    )
    .await;
    let text = rig.text.clone();
    rig.deliver("meta", &leadgen(&["2"])).await;
    rig.state("2", "parked").await;
    until("what is there is synced", async || {
        let due = "select count(*) from leadsync.lead_sync where state = 'due'";
        rig.app.value::<i64>(due).await == 0
    })
    .await;
    rig.app.deliver(&json!({"email": "cleo@example.com"})).await;
    let Rig { app, api, sql, .. } = rig;
    let (crm, db) = app.stop().await;
    let made_due = syncing.store.requeue_fetches(None, None).await.unwrap();
    assert_eq!(made_due, 1);
    api.put(graph_lead("2", "bo@example.com"));
    let calls = api.calls().len();
    // It syncs what there is, and never reads.
    until("it has synced", async || crm.contacts(Crm::Hubspot).len() == 1).await;
    assert_eq!(api.calls().len(), calls);
    let app = TestApp::start_on(db, crm, &text, RECEIVE).await;
    let rig = Rig { app, api, sql, text };
    rig.state("2", "done").await;
    syncing.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_the_call_under_way_and_gives_the_rest_back() {
    let rig = Rig::new().await;
    for n in 1..=20 {
        rig.api.put(graph_lead(&n.to_string(), &format!("n{n}@example.com")));
        rig.api.fault("/v24.0/", Fault::Delay(Duration::from_millis(300)));
    }
    let ids: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    rig.deliver("meta", &leadgen(&ids)).await;
    rig.api.arrived(1).await;
    let Rig { app, api, sql, .. } = rig;
    let (_crm, _db) = app.stop().await;
    let calls = api.calls().len();
    assert!(calls < 20, "{calls}");
    let row = "select count(*) filter (where state = 'done'), count(*) filter (where lease_holder is not null)
        from leadsync.fetches";
    let row = sql.query_one(row, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (calls as i64, 0));
}

/// Killed after the lead is stored and before that is noted: the lead is read again, and nothing changes.
#[tokio::test]
async fn a_crash_between_reading_and_settling_reads_again() {
    let rig = Rig::new().await;
    let (api, text) = (rig.api.clone(), rig.text.clone());
    let (_, db) = rig.app.stop().await;
    let config = format!(
        "[database]\nurl = \"{}\"\n[http]\nadmin_token = \"t\"\n[sync]\npoll = \"50ms\"\nlease = \"2500ms\"\n\
         call_timeout = \"1s\"\nconfirm_after = \"1500ms\"\nbackoff_base = \"20ms\"\nbackoff_max = \"200ms\"\n{text}",
        db.url()
    );
    let program = Program::new(&config);
    let first = program.serve(&[]).await;
    api.put(graph_lead("1", "ana@example.com"));
    api.fault("/1", Fault::Hold);
    std::fs::write(program.folder.path().join("meta.json"), leadgen(&["1"]).to_string()).unwrap();
    let to = first.url.clone();
    let sent = program.run(&["send", "--source", "meta", "--to", &to, "meta.json"]).await.with(0);
    assert_eq!(sent.stdout.trim(), "200 {\"outcome\":\"queued\"}");
    api.arrived(1).await;
    // Nobody can settle while somebody else has the row.
    let mut other = db.client().await;
    let blocking = other.transaction().await.unwrap();
    blocking
        .query_one("select 1 from leadsync.fetches where remote_id = '1' for update", &[])
        .await
        .unwrap();
    api.release();
    let sql = db.client().await;
    let lead = async || {
        let row = sql
            .query_opt("select version, updated_at::text from leadsync.leads", &[])
            .await
            .unwrap();
        row.map(|row| (row.get::<_, i64>(0), row.get::<_, String>(1)))
            .ok_or("no lead yet".to_owned())
    };
    let stored = eventually("the lead is stored", Duration::from_secs(30), lead).await;
    first.process.kill_9().await;
    // The server would finish what its dead client has sent.
    let ended = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    sql.query_one(ended, &[]).await.unwrap();
    blocking.rollback().await.unwrap();
    let row = sql
        .query_one("select state, lease_holder is not null from leadsync.fetches", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, bool>(1)), ("due", true));

    let second = program.serve(&[]).await;
    api.arrived(2).await;
    let settled = async || {
        let row = sql.query_one("select state, outcome from leadsync.fetches", &[]).await.unwrap();
        let is = (row.get::<_, String>(0), row.get::<_, Option<String>>(1));
        if is == ("done".to_owned(), Some("unchanged".to_owned())) {
            Ok(())
        } else {
            Err(format!("{is:?}"))
        }
    };
    eventually("it is settled", Duration::from_secs(30), settled).await;
    assert_eq!(lead().await, Ok(stored));
    let status = program.run(&["status"]).await.with(0).stdout;
    assert!(status.contains("source meta: 1 leads read, 0 to be read, 0 parked"), "{status}");
    let requeued = program.run(&["requeue", "--source", "meta"]).await.with(0).stdout;
    assert_eq!(requeued.trim(), "0 leads to be read at their source made due");
    let unknown = program.run(&["requeue", "--source", "mate"]).await.with(2).stderr;
    assert!(unknown.contains("no source \"mate\" is configured"), "{unknown}");
    second.process.terminate().await.with(0);
}
