//! Sources that send only ids: each lead is read at the API once, whatever arrives how often and in which order, and
//! whatever fails in between.

use std::path::Path;
use std::sync::Arc;

use leadsync::app::Roles;
use leadsync::sources::ConfiguredSource;
use leadsync::sources::Request;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::support::app::{TestApp, until};
use crate::support::sender_api::SenderApi;

mod apis;
mod faults;
mod poll;

const RECEIVE: Roles = Roles { receive: true, sync: false };
const TOKEN: &str = "read-token-example";
/// When HubSpot's sample was signed.
const NOW: i64 = 1_772_720_540;

/// A sample of `tests/fixtures/sources`.
fn sample(path: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sources");
    serde_json::from_slice(&std::fs::read(folder.join(path)).expect(path)).expect("JSON")
}

/// The three kinds at one stand-in, without a poll.
fn sources(api: &SenderApi) -> Vec<Value> {
    let source = |kind: &str, more: Value| {
        let mut source = json!({
            "name": kind, "kind": kind, "secret": format!("{kind}-secret-example"), "token": TOKEN,
            "base_url": api.url(), "rate": "1000/1s",
        });
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        source
    };
    vec![
        source("meta", json!({"verify_token": "meta-verify-example", "poll": "0"})),
        source("linkedin", json!({})),
        source(
            "hubspot-app",
            json!({"public_url": "https://leads.example.com/hooks/hubspot-app", "poll": "0",
                "fields": {"attributes.budget": "$.properties.budget"}}),
        ),
    ]
}

fn text(sources: &[Value]) -> String {
    toml::to_string(&json!({ "source": sources })).expect("TOML")
}

/// A service that receives, and the APIs its sources are read at.
struct Rig {
    app: TestApp,
    api: Arc<SenderApi>,
    sql: Client,
    /// What the service was configured with.
    text: String,
}

impl Rig {
    async fn new() -> Rig {
        Rig::with(|_| {}).await
    }

    /// With the sources changed.
    async fn with(change: impl FnOnce(&mut Vec<Value>)) -> Rig {
        let api = Arc::new(SenderApi::start(TOKEN).await);
        let mut sources = sources(&api);
        change(&mut sources);
        let text = text(&sources);
        let app = TestApp::spawn_with(&text, RECEIVE).await;
        let sql = app.db.client().await;
        Rig { app, api, sql, text }
    }

    /// A delivery as its sender signs it.
    async fn deliver(&self, source: &str, body: &Value) -> Value {
        deliver(&self.app, source, body).await
    }

    /// A column of the row of one thing; empty for null and where there is no row.
    async fn fetch(&self, id: &str, expression: &str) -> String {
        let sql = format!(
            "select coalesce(({expression})::text, '') from leadsync.fetches as f where remote_id = $1"
        );
        let row = self.sql.query_opt(&sql, &[&id]).await.expect("a look at fetches");
        row.map(|row| row.get(0)).unwrap_or_default()
    }

    /// Waits until a thing is in that state.
    async fn state(&self, id: &str, state: &str) {
        until(&format!("{id} is {state}"), async || self.fetch(id, "state").await == state).await;
    }

    async fn lead(&self, email: &str) -> Value {
        let (status, view) = self.app.get(&format!("/v1/leads/{email}")).await;
        assert_eq!(status, 200, "{email}: {view}");
        view
    }

    async fn leads(&self) -> i64 {
        self.app.value("select count(*) from leadsync.leads").await
    }

    /// Lets time pass as far as leases go.
    async fn end_leases(&self) {
        let sql = "update leadsync.fetches set lease_until = clock_timestamp() - interval '1 ms'
            where lease_until is not null";
        self.sql.execute(sql, &[]).await.expect("end the leases");
    }
}

async fn deliver(app: &TestApp, source: &str, body: &Value) -> Value {
    app.set_now(NOW);
    let configured = app.config.sources.iter().find(|s| s.name == source).expect("its name");
    let compiled = ConfiguredSource::compile(configured, &app.config.leads).expect("compiles");
    let request = Request {
        method: "POST".to_owned(),
        query: String::new(),
        headers: Vec::new(),
        body: body.to_string().into(),
    };
    let signed = compiled.sign(request, NOW).expect("signed");
    let headers: Vec<(&str, &str)> = signed.headers.iter().map(|(n, v)| (&**n, &**v)).collect();
    let (status, answer) = app.post(&format!("/hooks/{source}"), &headers, signed.body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// What Meta sends of these leads.
fn leadgen(ids: &[&str]) -> Value {
    let change = |id: &&str| json!({"field": "leadgen", "value": {"leadgen_id": id, "created_time": 1_772_720_530}});
    let changes: Vec<Value> = ids.iter().map(change).collect();
    json!({"object": "page", "entry": [{"id": "153125381133", "time": 1_772_720_533, "changes": changes}]})
}

/// A lead as Graph gives it.
fn graph_lead(id: &str, email: &str) -> Value {
    json!({"id": id, "created_time": "2026-03-05T14:22:10+0000", "form_id": "990011223344556", "platform": "fb",
        "field_data": [{"name": "email", "values": [email]}, {"name": "full_name", "values": ["Ana Prado"]}]})
}

/// An event of HubSpot about a contact, so many milliseconds after the first one.
fn contact_event(kind: &str, id: u64, after_ms: i64) -> Value {
    json!({"eventId": 1, "subscriptionType": kind, "objectId": id, "occurredAt": 1_772_720_530_000_i64 + after_ms,
        "portalId": 1, "appId": 1, "attemptNumber": 0})
}

/// A contact as HubSpot gives it, changed so many milliseconds after the first event.
fn contact(id: u64, email: &str, company: &str, after_ms: i64) -> Value {
    let at = jiff::Timestamp::from_millisecond(1_772_720_530_000 + after_ms)
        .expect("a time")
        .to_string();
    json!({"id": id.to_string(), "createdAt": "2026-03-05T14:22:10Z", "updatedAt": at, "archived": false,
        "properties": {"email": email, "company": company, "lastmodifieddate": at, "budget": "10k", "secret_note": "x"}})
}

#[tokio::test]
async fn a_meta_lead_is_read_once_and_becomes_a_lead() {
    let rig = Rig::new().await;
    rig.api.put(sample("meta/meta-graph-1.json"));
    let delivery = sample("meta/meta-1.json");
    assert_eq!(rig.deliver("meta", &delivery).await, json!({"outcome": "queued"}));
    rig.state("600100200300401", "done").await;
    let lead = rig.lead("rafael.siqueira@example.com").await;
    assert_eq!(lead["lead"]["company"], "Oficina Tijuca");
    assert_eq!(lead["lead"]["last_seen_at"], "2026-03-05T14:22:10Z");
    assert_eq!(lead["origin"]["company"]["source"], "meta");
    assert_eq!(rig.fetch("600100200300401", "outcome").await, "created");
    assert_eq!(rig.fetch("600100200300401", "lead_id").await, lead["lead_id"].as_str().unwrap());

    // Copies, also another body about the same lead, cost nothing.
    let row = rig.fetch("600100200300401", "f.ctid::text || f.xmin::text").await;
    for delivery in [&delivery, &leadgen(&["600100200300401"]), &delivery] {
        assert_eq!(rig.deliver("meta", delivery).await, json!({"outcome": "queued"}));
    }
    assert_eq!(rig.fetch("600100200300401", "f.ctid::text || f.xmin::text").await, row);
    assert_eq!(rig.api.calls().len(), 1);
    let call = &rig.api.calls()[0];
    assert_eq!(call.path, "/v24.0/600100200300401");
    assert!(!call.query.contains(TOKEN), "the token is in the address");
    // The webhook and the document are two deliveries.
    let outcomes: i64 = rig
        .app
        .value("select count(*) from leadsync.deliveries where outcome in ('queued', 'created')")
        .await;
    assert_eq!(outcomes, 3);
}
