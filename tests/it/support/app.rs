//! A whole service on a database of its own, with a stand-in CRM, over real sockets.

use std::time::Duration;

use leadsync::app::{self, App, Database, Roles};
use leadsync::config::Config;
use leadsync::fake_crm::{self, FakeCrm};
use leadsync::stop::Stop;
use leadsync::store::Store;
use leadsync::sync::step::Done;
use leadsync::sync::{Configured, Syncer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::db::TestDb;

/// Sources that most tests need: `site` (kind json, open to whoever has the key), and timings that let
/// a test see the end of a lease.
pub const CONFIG: &str = r#"
[sync]
poll = "100ms"
lease = "4s"
call_timeout = "1s"
confirm_after = "1500ms"
backoff_base = "20ms"
backoff_max = "200ms"

[[source]]
name = "site"
kind = "json"
header = { name = "X-Api-Key", value = "site-key" }
"#;

/// A running service.
pub struct TestApp {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    /// The stand-in that destination `hubspot` pushes to.
    pub crm: FakeCrm,
    /// Its database.
    pub db: TestDb,
    /// Queries, as the service makes them.
    pub store: Store,
    /// The configuration it runs with.
    pub config: Config,
    /// For requests.
    pub http: reqwest::Client,
    stop: Stop,
    running: JoinHandle<()>,
}

impl TestApp {
    /// Both roles, default configuration.
    pub async fn spawn() -> TestApp {
        TestApp::spawn_with("", Roles { receive: true, sync: true }).await
    }

    /// Receiving only: the test drains with [`TestApp::drain`], step by step.
    pub async fn receiving() -> TestApp {
        TestApp::spawn_with("", Roles { receive: true, sync: false }).await
    }

    /// [`CONFIG`] with more text after it.
    pub async fn spawn_with(more: &str, roles: Roles) -> TestApp {
        let crm = FakeCrm::on_free_port(fake_crm::Options::default()).await.expect("stand-in");
        let destination = format!(
            "[[destination]]\nname = \"hubspot\"\nkind = \"hubspot\"\ntoken = \"any\"\nrate = \"10000/1s\"\nbase_url = \"{}\"\n",
            crm.url()
        );
        let text = format!("{CONFIG}\n{more}\n{destination}");
        let mut config = Config::parse(&text).expect("configuration of the test").config;
        let db = TestDb::new().await;
        config.database.url = Some(db.secret());
        let stop = Stop::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let database = Database::open(&config).await.expect("database");
        let app = App::start(&config, database, roles, listener, stop.clone()).await.expect("app");
        let store = app.store().clone();
        let running = tokio::spawn(app.run_until_stopped());
        // reqwest wants one even for plain HTTP; another test may have set it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().build().expect("client");
        TestApp { url, crm, db, store, config, http, stop, running }
    }

    /// Delivers canonical JSON to source `site`; status and answer.
    pub async fn deliver(&self, lead: &Value) -> (u16, Value) {
        self.post("/hooks/site", &[("x-api-key", "site-key")], lead.to_string()).await
    }

    /// POSTs a body; `content-type: application/json` unless a header says otherwise.
    pub async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> (u16, Value) {
        let mut request = self.http.post(format!("{}{path}", self.url)).body(body);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// `GET`; status and answer.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await.expect("an answer");
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap_or(Value::Null))
    }

    /// A syncer of its own and the service's destination, for stepping by hand.
    pub fn syncer(&self) -> (Syncer, Configured) {
        let mut destinations = app::destinations(&self.config).expect("destinations");
        (app::syncer(&self.config, self.store.clone()), destinations.remove(0))
    }

    /// Pushes until nothing is due at all, waiting out backoffs, pauses and grace times.
    pub async fn drain(&self) -> Done {
        let (syncer, destination) = self.syncer();
        let stop = Stop::new();
        let mut total = Done::default();
        let drained = async {
            loop {
                total.add(&syncer.pass(&destination, &stop).await.expect("a pass"));
                let state = self.store.destination_state("hubspot").await.expect("state");
                let next = self.store.next_due("hubspot").await.expect("next due");
                let Some(next) = next else { break };
                // What is due later is waited for exactly as long as it says.
                let wait = next.max(state.paused_for).max(Duration::from_millis(5));
                tokio::time::sleep(wait).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), drained).await.expect("drains in two minutes");
        total
    }

    /// Stops the service as SIGTERM does, and waits for its end.
    pub async fn stop(self) -> (FakeCrm, TestDb) {
        self.stop.cancel();
        self.running.await.expect("ends in order");
        (self.crm, self.db)
    }
}
