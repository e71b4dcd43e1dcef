//! What the views say of leads that went through the real service.

use leadsync::fake_crm::{Apply, Body, Crm, Fault};
use serde_json::{Value, json};

use super::{a_year, texts};
use crate::support::app::TestApp;

async fn rows(app: &TestApp, sql: &str) -> Vec<Value> {
    let texts = texts(&app.db.client().await, sql).await;
    texts.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect()
}

fn ana(day: u8) -> Value {
    json!({
        "email": "Ana@Example.com", "occurred_at": format!("2026-03-{day:02}T09:00:00Z"), "first_name": "Ana", "phone": "+5511912345678",
        "company": "Lima", "tags": ["vip", "a"], "attributes": {"budget": "10k"}, "utm_campaign": "spring", "marketing_consent": true
    })
}

#[tokio::test]
async fn a_lead_reads_well_and_every_value_has_its_origin() {
    let app = TestApp::receiving().await;
    let (_, created) = app.deliver(&ana(5)).await;
    let mut update = ana(6);
    update["company"] = json!("Rocha");
    update["phone"] = json!("none at all");
    app.deliver(&update).await;
    let leads = rows(&app, "select * from analytics.leads").await;
    let lead = &leads[0];
    assert_eq!(lead["lead_id"], created["lead_id"]);
    assert_eq!(lead["email_as_typed"], "Ana@Example.com");
    assert_eq!(lead["tags"], json!(["a", "vip"]));
    assert_eq!(lead["attributes"], json!({"budget": "10k"}));
    assert_eq!(lead["version"], 2);
    assert_eq!(lead["company"], "Rocha");

    let deliveries = rows(&app, "select * from analytics.deliveries order by received_at").await;
    assert_eq!(deliveries[0]["lead_ids"], json!([created["lead_id"]]));
    assert_eq!(deliveries[1]["problems"], "phone: not a valid phone number");
    assert_eq!(deliveries[1]["outcome"], "updated");
    let fields =
        rows(&app, "select * from analytics.lead_fields where email = 'ana@example.com'").await;
    let field = |name: &str| fields.iter().find(|row| row["field"] == name).expect(name).clone();
    assert_eq!(field("company")["value"], "Rocha");
    assert_eq!(field("company")["occurred_at"], "2026-03-06T09:00:00+00:00");
    assert_eq!(field("company")["delivery_id"], deliveries[1]["delivery_id"]);
    for name in ["phone", "attributes.budget", "utm_campaign", "marketing_consent"] {
        assert_eq!(field(name)["source"], "site", "{name}");
        assert_eq!(field(name)["delivery_id"], deliveries[0]["delivery_id"], "{name}");
    }
    assert_eq!(field("phone")["trust"], 50);
    assert_eq!(field("marketing_consent")["trust"], Value::Null);
    assert_eq!(field("tags")["value"], "a;vip");
    let invalid =
        rows(&app, "select source, field, problem, deliveries from analytics.invalid_values").await;
    assert_eq!(
        invalid,
        [
            json!({"source": "site", "field": "phone", "problem": "not a valid phone number", "deliveries": 1})
        ]
    );
}

#[tokio::test]
async fn a_refused_lead_can_be_followed_and_requeued() {
    let app = TestApp::receiving().await;
    app.deliver(&ana(5)).await;
    assert_eq!(app.drain().await.pushed, 1);
    let states = rows(&app, "select * from analytics.sync_state").await;
    assert_eq!((&states[0]["state"], &states[0]["lag"]), (&json!("synced"), &Value::Null));
    assert_eq!(states[0]["remote_id"], app.crm.contacts(Crm::Hubspot)[0].id);
    let lag = "select leads, p50_seconds <= max_seconds as ordered, p50_seconds >= 0 as forward from analytics.sync_lag";
    assert_eq!(rows(&app, lag).await, [json!({"leads": 1, "ordered": true, "forward": true})]);

    app.deliver(&json!({"email": "ana@example.com", "occurred_at": "2026-03-09T09:00:00Z", "company": "Rocha"})).await;
    let backlog = rows(&app, "select * from analytics.sync_backlog").await;
    assert_eq!((&backlog[0]["due"], &backlog[0]["parked"]), (&json!(1), &json!(0)));
    assert_ne!(backlog[0]["oldest_change_at"], Value::Null);
    let refused = Fault::Status {
        status: 400,
        body: Body::default(),
        apply: Apply::default(),
        retry_after: None,
    };
    app.crm.script(refused);
    assert_eq!(app.drain().await.parked, 1);

    let states =
        rows(&app, "select *, lag > interval '0' as waits from analytics.sync_state").await;
    let state = &states[0];
    assert_eq!((&state["state"], &state["waits"]), (&json!("parked"), &json!(true)));
    assert_eq!((&state["wanted_version"], &state["confirmed_version"]), (&json!(2), &json!(1)));
    let failures = rows(&app, "select * from analytics.sync_failures").await;
    assert_eq!(failures[0]["leads"], 1);
    assert_eq!(failures[0]["code"], state["last_error_code"]);
    assert_eq!(failures[0]["example_email"], "ana@example.com");
    let events = rows(&app, "select event from analytics.lead_timeline where email = 'ana@example.com' order by at, event").await;
    let mut events: Vec<&str> = events.iter().filter_map(|row| row["event"].as_str()).collect();
    // The push and its error are written by one statement, in no order.
    events[5..].sort_unstable();
    assert_eq!(events, ["delivery", "created", "synced", "delivery", "change", "error", "push"]);

    let account: Vec<String> =
        rows(&app, "select e as line from analytics.explain(' ANA@example.com') as e")
            .await
            .iter()
            .map(|row| row["line"].as_str().expect("text").to_owned())
            .collect();
    let account = account.join("\n");
    for part in [
        "ana@example.com is lead ",
        ", version 2",
        "  company: Rocha, from site at 2026-03-09 09:00:00, trust 50, delivery ",
        "  attributes.budget: 10k, from site",
        " change: company (company: Lima -> Rocha)",
        "  hubspot: refused version 2; waits until the lead changes or is requeued, after 1 failed attempts; last error record ",
    ] {
        assert!(account.contains(part), "{part:?} is not in\n{account}");
    }
    let nobody = rows(&app, "select e as line from analytics.explain('x@example.com') as e").await;
    assert_eq!(nobody, [json!({"line": "there is no such lead"})]);

    let client = app.db.client().await;
    let error = client.query("select analytics.requeue()", &[]).await.expect_err("which?");
    assert!(error.as_db_error().expect("said").message().contains("say which leads"));
    for (call, requeued) in [
        ("destination => 'other'", 0),
        ("code => 'X'", 0),
        ("email => 'Ana@example.com ', destination => 'hubspot'", 1),
    ] {
        assert_eq!(
            app.value::<i64>(&format!("select analytics.requeue({call})")).await,
            requeued,
            "{call}"
        );
    }
    assert_eq!(app.drain().await.pushed, 1);
    assert_eq!(rows(&app, "select * from analytics.sync_failures").await, Vec::<Value>::new());
}

#[tokio::test]
async fn doubtful_leads_are_shown() {
    let app = TestApp::receiving().await;
    for (email, phone, name) in [
        ("ana@example.com", Some("+5511912345678"), "Ana Lima"),
        ("ana.lima@example.org", Some("+5511912345678"), "Ana L."),
        ("a@example.net", None, "ana LIMA"),
        ("info@example.com", None, "Bo"),
        ("x@tempmailbox.net", None, "Cleo"),
    ] {
        let mut lead = json!({"email": email, "full_name": name, "company": "Lima"});
        if let Some(phone) = phone {
            lead["phone"] = json!(phone);
        }
        app.deliver(&lead).await;
    }
    let duplicates = rows(
        &app,
        "select reason, key, leads, emails from analytics.possible_duplicates order by reason",
    )
    .await;
    assert_eq!(
        duplicates[0],
        json!({"reason": "name_company", "key": "ana lima, lima", "leads": 2, "emails": ["ana@example.com", "a@example.net"]})
    );
    assert_eq!(
        duplicates[1],
        json!({"reason": "phone", "key": "+5511912345678", "leads": 2, "emails": ["ana@example.com", "ana.lima@example.org"]})
    );
    let quality =
        rows(&app, "select problem, found, checked from analytics.data_quality order by problem")
            .await;
    let found: Vec<(&str, i64)> = quality
        .iter()
        .map(|row| {
            (row["problem"].as_str().expect("text"), row["found"].as_i64().expect("a number"))
        })
        .collect();
    let expected = [
        ("disposable_address", 1),
        ("missing_country", 5),
        ("missing_phone", 3),
        ("role_address", 1),
        ("shared_phone", 2),
        ("unknown_consent", 5),
    ];
    assert_eq!(found, expected);
    assert!(quality.iter().all(|row| row["checked"] == 5));
}

#[tokio::test]
async fn aggregates_agree_with_the_leads() {
    let db = a_year(1500, 3000).await;
    let client = db.client().await;
    let disagree = texts(
        &client,
        "select 'attribution' as view where (select sum(leads) from analytics.attribution) <> 1500
            or (select sum(customers) from analytics.attribution) <> (select count(*) from analytics.leads where lifecycle_stage = 'customer')
            or (select sum(consented) from analytics.attribution) <> (select count(*) from analytics.leads where marketing_consent)
         union all
         select 'funnel' where (select sum(leads) from analytics.funnel) <> 1500
            or exists (
                select from analytics.funnel as f
                where f.reached <> (
                    select sum(g.leads) from analytics.funnel as g
                    where g.day = f.day and g.first_source = f.first_source and g.stage_rank >= f.stage_rank
                )
            )
         union all
         select 'data_quality'
         where (select sum(found) from analytics.data_quality where problem = 'missing_phone') <> (select count(*) from analytics.leads where phone is null)
         union all
         select 'lead_fields'
         where (select count(*) from analytics.lead_fields where field = 'company') <> (select count(*) from analytics.leads where company is not null)
         union all
         select 'sync_state' where (select count(*) from analytics.sync_state) <> 3000
         union all
         select 'rejected_deliveries'
         where (select sum(deliveries) from analytics.rejected_deliveries) <> (select count(*) from analytics.deliveries where outcome = 'rejected')
         union all
         select 'sync_failures'
         where (select sum(leads) from analytics.sync_failures) <> (select count(*) from analytics.sync_state where last_error_at is not null)",
    )
    .await;
    assert_eq!(disagree, Vec::<String>::new());
}
