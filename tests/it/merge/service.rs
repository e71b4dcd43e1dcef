//! The merge over the real service.

use leadsync::app::{self, Roles};
use leadsync::fake_crm::Crm;
use leadsync::lead::Outcome;
use leadsync::stop::Stop;
use leadsync::store::deliveries::ReplayFilter;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::rows::{Stored, stored};
use crate::support::app::TestApp;

/// A source that is trusted more, and one without times that may only fill.
const SOURCES: &str = r#"
[[source]]
name = "billing"
kind = "json"
trust = 90
header = { name = "X-Api-Key", value = "site-key" }

[[source]]
name = "list"
kind = "json"
untimed = "fill_only"
header = { name = "X-Api-Key", value = "site-key" }
"#;

/// Four partial events, of three sources, two at one time, one without.
fn events(email: &str) -> [(&'static str, Value); 4] {
    [
        (
            "site",
            json!({
                "email": format!(" {}", email.to_uppercase()), "occurred_at": "2026-03-05T10:00:00Z",
                "first_name": "Ana", "last_name": "Sousa", "phone": "+5511912345678", "city": "Santos",
                "tags": ["vip"],
                "attributes": {"budget": "10k", "size": "3"}, "utm_source": "newsletter",
                "marketing_consent": true
            }),
        ),
        (
            "site",
            json!({
                "email": email, "occurred_at": "2026-03-05T10:00:00Z", "first_name": "Anabela",
                "last_name": "Souza", "city": "", "company": null, "tags": ["expo"],
                "attributes": {"budget": "20k"}, "utm_source": "fair"
            }),
        ),
        (
            "billing",
            json!({
                "email": email, "occurred_at": "2026-01-01T00:00:00.000001Z", "company": "Souza Ltda",
                "first_name": "ANABELA", "lifecycle_stage": "customer", "marketing_consent": false,
                "clear": ["phone"]
            }),
        ),
        (
            "list",
            json!({
                "email": email, "company": "souza", "region": "SP", "tags": ["vip", "list"],
                "lifecycle_stage": "lead", "utm_campaign": "cold"
            }),
        ),
    ]
}

fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for n in 0..256 {
        let order = [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6 & 3];
        if (0..4).all(|event| order.contains(&event)) {
            orders.push(order);
        }
    }
    orders
}

#[tokio::test]
async fn all_orders_of_four_events_give_one_row_and_a_replay_changes_nothing() {
    let app = TestApp::spawn_with(SOURCES, Roles { receive: true, sync: false }).await;
    let client = app.db.client().await;
    let orders = orders();
    assert_eq!(orders.len(), 24);
    for (number, order) in orders.iter().enumerate() {
        let events = events(&format!("p{number:02}@example.com"));
        for (at, event) in order.iter().enumerate() {
            let (source, body) = &events[*event];
            let path = format!("/hooks/{source}");
            let (status, answer) =
                app.post(&path, &[("x-api-key", "site-key")], body.to_string()).await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer["outcome"] == "created", at == 0, "{order:?}: {answer}");
        }
    }
    let leads = stored(&client).await;
    assert_eq!(leads.len(), 24);
    let typed = |lead: &Stored| {
        let mut row = lead.row.clone();
        let typed = row["email_as_typed"].as_str().expect("text").to_lowercase();
        assert_eq!(typed.trim(), lead.email);
        row.remove("email_as_typed");
        row
    };
    for (lead, order) in leads.iter().zip(&orders) {
        assert_eq!(super::difference(&typed(lead), &typed(&leads[0])), None, "{order:?}");
    }
    let row = &leads[0].row;
    for (column, value) in [
        ("first_name", json!("ANABELA")),
        ("last_name", json!("Souza")),
        ("phone", Value::Null),
        ("city", json!("Santos")),
        ("company", json!("Souza Ltda")),
        ("region", json!("SP")),
        ("lifecycle_stage", json!("customer")),
        ("marketing_consent", json!(false)),
        ("tags", json!({"vip": true, "expo": true, "list": true})),
        ("first_source", json!("billing")),
        ("utm_source", Value::Null),
        ("last_source", json!("site")),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    assert_eq!(row["attributes"]["budget"][2], "20k");
    assert!(!row["phone_stamp"].is_null(), "cleared on purpose");

    let done = app.drain().await;
    assert_eq!(done.pushed, 24);
    let contacts = |app: &TestApp| {
        let all = app.crm.contacts(Crm::Hubspot);
        all.into_iter().map(|c| (c.email, c.properties)).collect::<Vec<_>>()
    };
    let (calls, pushed) = (app.crm.calls().len(), contacts(&app));
    let writing = |leads: Vec<Stored>| leads.into_iter().map(|l| l.writing).collect::<Vec<_>>();
    let before = writing(stored(&client).await);

    // As `leadsync replay` does it.
    let (changed, _) = watch::channel(0);
    let receiver = app::receiver(&app.config, app.store.clone(), changed, Stop::new()).await;
    let receiver = receiver.expect("receiver");
    let mut seen = 0;
    let replayed = receiver.replay(&ReplayFilter::default(), |n| seen = n).await.expect("replay");
    assert_eq!(seen, 96);
    assert_eq!(replayed.outcomes.into_iter().collect::<Vec<_>>(), [(Outcome::Unchanged, 96)]);
    assert_eq!((replayed.without_body, replayed.without_source, replayed.failed), (0, 0, 0));
    assert_eq!(before, writing(stored(&client).await), "no lead, no sync row was written");
    let done = app.drain().await;
    assert_eq!((done.calls, done.pushed, done.skipped), (0, 0, 0), "nothing is due");
    assert_eq!((app.crm.calls().len(), contacts(&app)), (calls, pushed), "the CRM heard nothing");
    app.stop().await;
}
