//! The sync loop: after whatever went wrong, every lead has one contact that equals the table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leadsync::app::{self, Roles};
use leadsync::destinations::{CallError, Destination, Key, Mapped, Outcome, Record, Remote, Reply};
use leadsync::fake_crm::Crm;
use leadsync::stop::Stop;
use leadsync::store::destinations::Budget;
use leadsync::sync::step::{Done, Step};
use leadsync::sync::{Configured, Settings, Syncer};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_postgres::Client;

use crate::support::app::TestApp;

mod batches;
mod faults;
mod identity;
mod pace;
mod policies;
mod reconcile;
mod service;

/// A service that only receives, and a syncer to step by hand.
pub struct Rig {
    pub app: TestApp,
    pub syncer: Syncer,
    pub destination: Configured,
    pub settings: Settings,
    /// A look at the tables from outside.
    pub sql: Client,
}

/// Timings that let a test see the end of everything.
pub fn settings() -> Settings {
    Settings {
        poll: Duration::from_millis(20),
        lease: Duration::from_secs(20),
        call_timeout: Duration::from_secs(5),
        drain: Duration::from_secs(5),
        confirm_after: Duration::from_millis(300),
        backoff_base: Duration::from_millis(10),
        backoff_max: Duration::from_millis(100),
    }
}

impl Rig {
    pub async fn new() -> Rig {
        Rig::with(settings()).await
    }

    pub async fn with(settings: Settings) -> Rig {
        Rig::on(TestApp::receiving().await, "hubspot", settings).await
    }

    /// On a running service, for one of its destinations.
    pub async fn on(app: TestApp, destination: &str, settings: Settings) -> Rig {
        let mut config = app.config.clone();
        config.sync.call_timeout = settings.call_timeout;
        let destinations = app::destinations(&config).expect("destinations");
        let destination =
            destinations.into_iter().find(|d| d.name == destination).expect("its name");
        let sql = app.db.client().await;
        let syncer = Syncer::new(app.store.clone(), settings.clone());
        Rig { app, syncer, destination, settings, sql }
    }

    /// A receiving service whose destination `hooks` is a webhook at `base_url`.
    pub async fn hooks(base_url: &str, settings: Settings) -> Rig {
        let roles = Roles { receive: true, sync: false };
        Rig::on(TestApp::spawn_with(&hooks(base_url), roles).await, "hooks", settings).await
    }

    /// One more instance on the same database.
    pub fn another(&self) -> Syncer {
        Syncer::new(self.app.store.clone(), self.settings.clone())
    }

    /// Delivers leads through `/v1`; all must be taken.
    pub async fn deliver(&self, leads: &[Value]) {
        let (status, answer) = self.app.post("/v1/leads", &[], json!(leads).to_string()).await;
        assert_eq!(status, 200, "{answer}");
    }

    pub async fn step(&self) -> Step {
        self.syncer.step(&self.destination, &Stop::new()).await.expect("a step")
    }

    /// A step that finds something to do.
    pub async fn worked(&self) -> Done {
        match self.step().await {
            Step::Worked(done) => done,
            other => panic!("nothing done: {other:?}"),
        }
    }

    /// One pass: what waits goes on waiting.
    pub async fn pass(&self) -> Done {
        self.syncer.pass(&self.destination, &Stop::new()).await.expect("a pass")
    }

    /// Pushes until nothing is due at all, waiting out backoffs, pauses and grace times.
    pub async fn drain(&self) -> Done {
        let mut total = Done::default();
        let name = self.destination.name.as_str();
        soon("everything is pushed", async {
            loop {
                total.add(&self.pass().await);
                let Some(next) = self.app.store.next_due(name).await.expect("next due") else {
                    break;
                };
                let state = self
                    .app
                    .store
                    .destination_state(name, &Budget::default())
                    .await
                    .expect("state");
                // What is due later is waited for exactly as long as it says.
                let wait = next.max(state.paused_for).max(Duration::from_millis(1));
                tokio::time::sleep(wait).await;
            }
        })
        .await;
        total
    }

    /// Pause kind and length in seconds; `None` where there is none.
    pub async fn paused(&self) -> Option<(String, f64)> {
        let row = self
            .sql
            .query_opt(
                "select pause_kind, extract(epoch from paused_until - clock_timestamp())::float8
                 from leadsync.destinations where name = $1 and paused_until > clock_timestamp()",
                &[&self.destination.name],
            )
            .await
            .expect("pause");
        row.map(|row| (row.get(0), row.get(1)))
    }

    /// Ends a pause, as time does.
    pub async fn lift_pause(&self) {
        let sql = "update leadsync.destinations set paused_until = clock_timestamp()";
        self.sql.execute(sql, &[]).await.expect("lift the pause");
    }

    /// Ends every lease, as time does; how many there were.
    pub async fn end_leases(&self) -> u64 {
        let sql = "update leadsync.lead_sync set lease_until = clock_timestamp() - interval '1 ms'
            where lease_until is not null";
        self.sql.execute(sql, &[]).await.expect("end the leases")
    }

    /// What a column of `lead_sync` says, by e-mail.
    pub async fn column(&self, expression: &str) -> BTreeMap<String, String> {
        let sql = format!(
            "select l.email, coalesce(({expression})::text, '')
             from leadsync.lead_sync as s join leadsync.leads as l using (lead_id) where s.destination = $1"
        );
        let rows = self.sql.query(&sql, &[&self.destination.name]).await.expect("a column");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    pub async fn states(&self) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        for state in self.column("s.state").await.into_values() {
            *states.entry(state).or_default() += 1;
        }
        states
    }

    /// What the table wants the CRM to hold, by e-mail. Read apart from the code under test.
    pub async fn wanted(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let sql = "select l.email, to_jsonb(l) from leadsync.leads as l";
        let rows = self.sql.query(sql, &[]).await.expect("leads");
        let properties = |lead: Value| {
            let of = |field: &Mapped| {
                let value = match field.value.strip_prefix("attributes.") {
                    Some(name) => &lead["attributes"][name][2],
                    None => &lead[field.value.as_str()],
                };
                Some((field.property.clone(), value.as_str()?.to_owned()))
            };
            self.destination.fields.iter().filter_map(of).collect()
        };
        rows.iter().map(|row| (row.get(0), properties(row.get(1)))).collect()
    }

    /// What HubSpot holds, by e-mail; one contact each.
    pub fn held(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let contacts = self.app.crm.contacts(Crm::Hubspot);
        let count = contacts.len();
        let held: BTreeMap<_, _> =
            contacts.into_iter().map(|contact| (contact.email, contact.properties)).collect();
        assert_eq!(held.len(), count, "one contact per e-mail");
        held
    }

    /// Every lead is in sync, has exactly one contact, made exactly once, and that equals the table.
    #[track_caller]
    pub fn exact(&self) -> impl Future<Output = ()> {
        self.exact_but(&[])
    }

    /// As [`Rig::exact`], but for parked leads, which have no contact.
    #[track_caller]
    pub fn exact_but(&self, parked: &[String]) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let mut wanted = self.wanted().await;
            wanted.retain(|email, _| !parked.contains(email));
            assert_eq!(self.held(), wanted, "CRM (left) and table (right), from {place}");
            let creates = self.app.crm.creates_per_email(Crm::Hubspot);
            assert!(
                creates.values().all(|n| *n == 1),
                "made more than once: {creates:?}, from {place}"
            );
            assert_eq!(creates.len(), wanted.len(), "from {place}");
            let rows = self
                .column(
                    "case when s.state = 'synced' and s.confirmed_version = s.wanted_version
                        and s.wanted_version = l.version and s.attempts = 0 and s.last_error_kind is null
                        and s.lease_until is null and s.lease_holder is null and s.confirm_after is null
                     then 'clean' else to_jsonb(s)::text end",
                )
                .await;
            assert_eq!(rows.len(), wanted.len() + parked.len(), "from {place}");
            for (email, row) in rows.iter().filter(|(email, _)| !parked.contains(email)) {
                assert_eq!(row, "clean", "{email}, from {place}");
            }
        }
    }
}

/// A lead in its `version`-th state; later versions are later events.
pub fn lead(n: usize, version: usize) -> Value {
    json!({
        "email": email(n), "occurred_at": format!("2020-01-01T{:02}:{:02}:00Z", version / 60, version % 60),
        "first_name": format!("Name{n}"), "city": format!("City{version}"),
    })
}

pub fn email(n: usize) -> String {
    format!("n{n:03}@example.com")
}

pub fn leads(n: usize, version: usize) -> Vec<Value> {
    (0..n).map(|n| lead(n, version)).collect()
}

/// The same lead with more members.
pub fn with(mut lead: Value, more: Value) -> Value {
    let members = more.as_object().expect("an object").clone();
    lead.as_object_mut().expect("an object").extend(members);
    lead
}

/// Configuration of a webhook destination.
pub fn hooks(base_url: &str) -> String {
    format!(
        "[[destination]]\nname = \"hooks\"\nkind = \"webhook\"\nsecret = \"{HOOKS_SECRET}\"\nrate = \"10000/1s\"\n\
         base_url = \"{base_url}\"\n"
    )
}

pub const HOOKS_SECRET: &str = "whsec_bGVhZHN5bmMtdGVzdC1zZWNyZXQtMzItYnl0ZXMtIS0=";

/// Waits for something that must come.
pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(40), wait).await {
        Ok(value) => value,
        Err(_) => panic!("waited 40 s in vain: {what}"),
    }
}

/// A place that calls stop at until it is opened.
pub struct Gate {
    open: watch::Sender<bool>,
    reached: watch::Sender<u64>,
}

impl Gate {
    pub fn new(open: bool) -> Gate {
        Gate { open: watch::Sender::new(open), reached: watch::Sender::new(0) }
    }

    async fn go_through(&self) {
        self.reached.send_modify(|n| *n += 1);
        // The senders live as long as this.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Until so many calls have come here.
    pub async fn reached(&self, n: u64) {
        let mut reached = self.reached.subscribe();
        let _ = soon("a call", reached.wait_for(|reached| *reached >= n)).await;
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

/// Another destination with a gate before and one after each call, as an instance that stalls there.
pub struct Gated {
    pub inner: Arc<dyn Destination>,
    pub before: Gate,
    pub after: Gate,
}

impl Gated {
    /// The same destination behind gates.
    pub fn put(destination: &Configured, before: Gate, after: Gate) -> (Arc<Gated>, Configured) {
        let inner = destination.destination.clone();
        let gated = Arc::new(Gated { inner, before, after });
        (gated.clone(), Configured { destination: gated, ..destination.clone() })
    }
}

#[async_trait]
impl Destination for Gated {
    fn batch_size(&self) -> usize {
        self.inner.batch_size()
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        self.inner.default_fields()
    }

    fn group(&self, record: &Record) -> &'static str {
        self.inner.group(record)
    }

    fn key(&self) -> Key {
        self.inner.key()
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        self.inner.look_up(records, properties).await
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        self.before.go_through().await;
        let outcomes = self.inner.push(records).await;
        self.after.go_through().await;
        outcomes
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        self.inner.check(fields).await
    }
}

/// Another destination, each call a while later.
pub struct Slow(pub Arc<dyn Destination>, pub Duration);

#[async_trait]
impl Destination for Slow {
    fn batch_size(&self) -> usize {
        self.0.batch_size()
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        self.0.default_fields()
    }

    fn group(&self, record: &Record) -> &'static str {
        self.0.group(record)
    }

    fn key(&self) -> Key {
        self.0.key()
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        self.0.look_up(records, properties).await
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        tokio::time::sleep(self.1).await;
        self.0.push(records).await
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        self.0.check(fields).await
    }
}
