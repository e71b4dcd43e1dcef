//! The README's SQL runs on a database with leads in it, and what it says about destinations that come and go holds.

use leadsync::stop::Stop;
use serde_json::json;
use tokio_postgres::SimpleQueryMessage;

use crate::support::app::TestApp;

const README: &str = include_str!("../../README.md");

fn statements() -> Vec<&'static str> {
    let blocks = README.split("```sql\n").skip(1);
    blocks.filter_map(|block| block.split("```").next()).collect()
}

#[tokio::test]
async fn every_statement_runs() {
    let app = TestApp::receiving().await;
    let ana = json!({
        "email": "ana@example.com", "phone": "+5511912345678", "tags": ["vip"], "attributes": {"budget": "10k"},
        "marketing_consent": true, "utm_campaign": "spring"
    });
    assert_eq!(app.deliver(&ana).await.0, 200);
    let moved = json!({
        "email": "ana@example.com", "company": "Lima", "lifecycle_stage": "customer"
    });
    assert_eq!(app.deliver(&moved).await.0, 200);
    assert_eq!(app.deliver(&json!({"email": "bo@example.com", "phone": "none"})).await.0, 200);
    let twin = json!({"email": "ana@example.org", "phone": "+5511912345678"});
    assert_eq!(app.deliver(&twin).await.0, 200);
    assert_eq!(app.deliver(&json!({"name": "no address"})).await.0, 200);
    app.drain().await;
    assert_eq!(app.deliver(&json!({"email": "cleo@example.com"})).await.0, 200);
    let client = app.db.client().await;
    let park = "update leadsync.lead_sync set state = 'parked', last_error_code = 'X' \
                where lead_id = (select lead_id from leadsync.leads where email = 'cleo@example.com')";
    client.batch_execute(park).await.expect("park one");
    let unread = "insert into leadsync.fetches (source, object, remote_id, state, found_by, next_attempt_at) \
                  values ('meta', 'lead', '1', 'parked', 'webhook', now())";
    client.batch_execute(unread).await.expect("park one at its source");

    let statements = statements();
    assert!(statements.len() > 10, "{} blocks", statements.len());
    for sql in statements {
        client.batch_execute("begin").await.expect("begin");
        let messages = client.simple_query(sql).await;
        let messages = messages.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
        let rows = messages.iter().filter(|m| matches!(m, SimpleQueryMessage::Row(_))).count();
        let done = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
            _ => None,
        });
        let changed: u64 = done.sum();
        // Each of them finds one of the cases above.
        assert!(sql.starts_with("create role") || rows > 0 || changed > 0, "finds nothing:\n{sql}");
        client.batch_execute("rollback").await.expect("rollback");
    }
}

#[tokio::test]
async fn a_destination_that_was_away_gets_what_changed() {
    let app = TestApp::receiving().await;
    let lead = |company: &str, day: u8| {
        let at = format!("2026-03-{day:02}T09:00:00Z");
        json!({"email": "ana@example.com", "company": company, "occurred_at": at})
    };
    app.deliver(&lead("One", 1)).await;
    assert_eq!(app.drain().await.pushed, 1);

    app.store.register_destinations(&["another".to_owned()], true).await.expect("register");
    app.deliver(&lead("Two", 2)).await;
    assert_eq!(app.drain().await.pushed, 0, "nobody is told while it is away");

    app.store.register_destinations(&["hubspot".to_owned()], true).await.expect("register");
    let (syncer, destination) = app.syncer();
    assert_eq!(syncer.enrol(&destination).await.expect("enrol"), 1);
    assert_eq!(syncer.enrol(&destination).await.expect("enrol"), 0, "once is enough");
    let done = syncer.pass(&destination, &Stop::new()).await.expect("a pass");
    assert_eq!(done.pushed, 1);
    let contacts = app.crm.contacts(leadsync::fake_crm::Crm::Hubspot);
    assert_eq!(contacts[0].properties["company"], "Two");
}

/// The questions of the morning, as the role that asks them; and the same of the masked views.
#[tokio::test]
async fn an_analyst_may_ask_all_of_it() {
    let morning = README.split("### An analyst's morning").nth(1).expect("the section");
    let morning = morning.split("### ").next().expect("its end");
    let questions: Vec<&str> =
        morning.split("```sql\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    let db = crate::analytics::a_year(500, 1500).await;
    let client = db.client().await;
    let roles = "begin; create role leadsync_analyst; create role leadsync_analyst_masked; select leadsync.grant_roles()";
    client.batch_execute(roles).await.expect("roles");
    let (mut asked, mut masked) = (0, 0);
    for sql in questions.into_iter().filter(|sql| !sql.contains("requeue")) {
        assert_eq!(sql.trim_end().matches(';').count(), 1, "one statement each:\n{sql}");
        client.batch_execute("savepoint s; set local role leadsync_analyst").await.expect("role");
        client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
        client.batch_execute("rollback to s").await.expect("back");
        asked += 1;
        if sql.contains("explain(") {
            continue; // by lead id there
        }
        let sql = sql.replace("analytics.", "analytics_masked.");
        client.batch_execute("set local role leadsync_analyst_masked").await.expect("role");
        client.simple_query(&sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
        client.batch_execute("rollback to s").await.expect("back");
        masked += 1;
    }
    assert_eq!((asked, masked), (11, 10));
    client.batch_execute("rollback").await.expect("rollback");
}
