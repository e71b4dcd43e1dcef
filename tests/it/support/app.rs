//! A whole service on a database of its own, with a stand-in CRM, over real sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leadsync::app::{self, App, Database, Roles};
use leadsync::config::Config;
use leadsync::fake_crm::{self, FakeCrm};
use leadsync::receive::Receiver;
use leadsync::stop::Stop;
use leadsync::store::Store;
use leadsync::store::destinations::Budget;
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
    /// The same.
    pub address: SocketAddr,
    /// The stand-in that destination `hubspot` pushes to.
    pub crm: Arc<FakeCrm>,
    /// Its database.
    pub db: Arc<TestDb>,
    /// Queries, as the service makes them.
    pub store: Store,
    /// The configuration it runs with.
    pub config: Config,
    /// Its receiver, without HTTP in front.
    pub receiver: Receiver,
    /// For requests.
    pub http: reqwest::Client,
    now: Arc<Mutex<Option<i64>>>,
    roles: Roles,
    stop: Stop,
    running: JoinHandle<()>,
}

impl TestApp {
    /// Receiving only: the test drains with [`TestApp::drain`], step by step.
    pub async fn receiving() -> TestApp {
        TestApp::spawn_with("", Roles { receive: true, sync: false }).await
    }

    /// [`CONFIG`] with more text after it.
    pub async fn spawn_with(more: &str, roles: Roles) -> TestApp {
        let crm = FakeCrm::on_free_port(fake_crm::Options::default()).await.expect("stand-in");
        TestApp::start_on(Arc::new(TestDb::new().await), Arc::new(crm), more, roles).await
    }

    /// On a database and a stand-in that may have served other instances.
    pub async fn start_on(db: Arc<TestDb>, crm: Arc<FakeCrm>, more: &str, roles: Roles) -> TestApp {
        let destination = format!(
            "[[destination]]\nname = \"hubspot\"\nkind = \"hubspot\"\ntoken = \"any\"\nrate = \"10000/1s\"\nbase_url = \"{}\"\n",
            crm.url()
        );
        let text = format!("{CONFIG}\n{more}\n{destination}");
        let mut config = Config::parse(&text).expect("configuration of the test").config;
        config.database.url = Some(db.secret());
        let stop = Stop::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let database = Database::open(&config).await.expect("database");
        let now = Arc::new(Mutex::new(None));
        let told = now.clone();
        let clock = Arc::new(move || {
            told.lock().expect("the clock").unwrap_or_else(|| jiff::Timestamp::now().as_second())
        });
        let app = App::start_with_clock(&config, database, roles, listener, stop.clone(), clock);
        let app = app.await.expect("app");
        let store = app.store().clone();
        let receiver = app.receiver().clone();
        let running = tokio::spawn(app.run_until_stopped());
        // reqwest wants one even for plain HTTP; another test may have set it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().build().expect("client");
        let url = format!("http://{address}");
        TestApp { url, address, crm, db, store, config, receiver, http, now, roles, stop, running }
    }

    /// One more instance on the same database, with [`CONFIG`] and this text after it.
    pub async fn another(&self, more: &str) -> TestApp {
        TestApp::start_on(self.db.clone(), self.crm.clone(), more, self.roles).await
    }

    /// Stops it and starts it anew with this text after [`CONFIG`].
    pub async fn restarted(self, more: &str) -> TestApp {
        let roles = self.roles;
        let (crm, db) = self.stop().await;
        TestApp::start_on(db, crm, more, roles).await
    }

    /// Sets the clock that signatures are checked against, in epoch seconds.
    pub fn set_now(&self, seconds: i64) {
        *self.now.lock().expect("the clock") = Some(seconds);
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

    /// The one value that a query without parameters gives.
    pub async fn value<T: tokio_postgres::types::FromSqlOwned>(&self, sql: &str) -> T {
        self.db.client().await.query_one(sql, &[]).await.expect(sql).get(0)
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
                let state = self
                    .store
                    .destination_state("hubspot", &Budget::default())
                    .await
                    .expect("state");
                let next = self.store.next_due("hubspot").await.expect("next due");
                let Some(next) = next else { break };
                // What is due later is waited for exactly as long as it says.
                let wait = next.max(state.paused_for).max(Duration::from_millis(5));
                tokio::time::sleep(wait).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), drained)
            .await
            .expect("drains in two minutes");
        total
    }

    /// Stops the service as SIGTERM does, and waits for its end.
    pub async fn stop(self) -> (Arc<FakeCrm>, Arc<TestDb>) {
        self.stop.cancel();
        self.running.await.expect("ends in order");
        (self.crm, self.db)
    }
}

/// Looks again until it is so, for a while: for what no event tells.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let limit = Duration::from_secs(20);
    let check = async || if so().await { Ok(()) } else { Err("waited too long".to_owned()) };
    super::process::eventually(what, limit, check).await;
}
