//! `leadsync demo`

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tempfile::TempDir;

use super::Failure;
use crate::app::{App, Database, Roles, listen};
use crate::config::{Config, Log, LogFormat};
use crate::error::Exit;
use crate::fake_crm::{self, Crm, FakeCrm, FaultRates};
use crate::stop::{self, Stop};
use crate::store::Store;
use crate::telemetry;

mod handler;
mod traffic;

use traffic::{Plan, Sender};

/// Longest wait for the last lead to be in sync, faults of the CRM included.
const SYNC_DEADLINE: Duration = Duration::from_secs(120);

/// See it work: thousands of redelivered webhooks end as one contact each
///
/// Starts a private PostgreSQL, the service and a stand-in CRM that fails now and then; delivers signed
/// webhooks with repeats and reorderings; then gives the same deliveries to a textbook check-then-create
/// handler and counts what both made of them. Needs no configuration, touches nothing outside a
/// temporary folder.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync demo\n  \
    leadsync demo --leads 5000 --seed 7\n  \
    leadsync demo --json\n  \
    leadsync demo --keep")]
pub(super) struct Demo {
    /// People whose events are delivered
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    leads: u32,
    /// The same seed plans the same deliveries
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
    /// Leave everything running at the end, to look around; Ctrl-C ends it
    #[arg(long)]
    keep: bool,
}

/// What both made of the same deliveries.
#[derive(Debug, Serialize)]
struct Summary {
    /// Requests that were sent.
    deliveries: u64,
    /// Of these, further copies of one that was sent before.
    repeats: u64,
    /// Rows in the table.
    leads: u64,
    /// Contacts in the CRM.
    contacts: u64,
    /// Contacts beyond one per person, leadsync.
    doubles: u64,
    /// Contacts beyond one per person, the handler.
    handler_doubles: u64,
    /// From the first delivery to the last lead in sync.
    seconds: f64,
    /// Calls to the CRM that failed, by fault or status.
    #[serde(skip)]
    crm_faults: u64,
    #[serde(skip)]
    handler_contacts: u64,
}

impl Demo {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        telemetry::init(&Log { format: LogFormat::Text, level: "error".to_owned() })?;
        let stop = stop::on_signals()?;
        let folder = folder()?;
        let shown = tokio::select! {
            shown = self.show(folder.path()) => shown,
            () = stop.cancelled() => Err(Failure::Words("interrupted".to_owned())),
        };
        let (running, summary) = shown?;
        if self.json {
            say!("{}", serde_json::to_string(&summary).map_err(std::io::Error::from)?)?;
        } else {
            summary.print()?;
        }
        if self.keep {
            running.tell()?;
            stop.cancelled().await;
        }
        running.end().await;
        Ok(if summary.is_as_promised() { Exit::Ok } else { Exit::Failed })
    }

    async fn show(&self, folder: &Path) -> Result<(Running, Summary), Failure> {
        let plan = Plan::new(self.leads, self.seed);
        let started = step("starting PostgreSQL, the service and a stand-in CRM");
        let running = Running::start(folder, self.seed).await?;
        started.finish_and_clear();

        let began = Instant::now();
        let sender = Sender::new(&running.url)?;
        let bar = progress("delivering", plan.deliveries.len());
        let sent = sender.send_all(&plan, &bar).await;
        bar.finish_and_clear();
        let bar = progress("syncing   ", 0);
        wait_until_synced(&running.store, &bar).await?;
        bar.finish_and_clear();
        let seconds = began.elapsed().as_secs_f64();

        let bar = progress("textbook  ", plan.deliveries.len());
        handler::run(&plan, &running.store, &running.handler_crm.url(), &bar).await?;
        bar.finish_and_clear();

        let contacts = running.crm.summary().by_crm.get(&Crm::Hubspot).cloned().unwrap_or_default();
        let textbook =
            running.handler_crm.summary().by_crm.get(&Crm::Plain).cloned().unwrap_or_default();
        let calls = running.crm.calls();
        let summary = Summary {
            deliveries: sent,
            repeats: sent - plan.events.len() as u64,
            leads: u64::try_from(running.store.count_leads().await?).unwrap_or(0),
            contacts: contacts.contacts,
            // Creates, not what is left of them: a double that was merged away would count too.
            doubles: contacts.creates - running.crm.creates_per_email(Crm::Hubspot).len() as u64,
            handler_doubles: textbook.doubles,
            seconds: (seconds * 10.0).round() / 10.0,
            crm_faults: calls.iter().filter(|call| call.fault.is_some()).count() as u64,
            handler_contacts: textbook.contacts,
        };
        Ok((running, summary))
    }
}

impl Summary {
    fn is_as_promised(&self) -> bool {
        self.doubles == 0 && self.contacts == self.leads
    }

    fn print(&self) -> std::io::Result<()> {
        say!("{:<44}{:>12}{:>12}", "", "textbook", "leadsync")?;
        let row = |what: &str, textbook: u64, leadsync: u64| {
            say!("{what:<44}{textbook:>12}{leadsync:>12}")
        };
        row("deliveries", self.deliveries, self.deliveries)?;
        row("of these, repeats", self.repeats, self.repeats)?;
        row("people", self.leads, self.leads)?;
        row("contacts in the CRM", self.handler_contacts, self.contacts)?;
        row("doubles", self.handler_doubles, self.doubles)?;
        say!()?;
        say!(
            "leadsync: all in sync {} s after the first delivery, through {} failed calls of the CRM",
            self.seconds,
            self.crm_faults
        )?;
        say!(
            "textbook: \"seen this event? know this contact?\", then create, then remember; its CRM, like"
        )?;
        say!(
            "Pipedrive or Odoo, takes a second contact with the same e-mail; its calls never failed"
        )
    }
}

/// A temporary folder of a name that nobody can guess, which goes away with the demo. The server runs as
/// another user when we are root, so others may pass through.
fn folder() -> std::io::Result<TempDir> {
    let passable = std::fs::Permissions::from_mode(0o711);
    tempfile::Builder::new().prefix("leadsync-demo-").permissions(passable).tempdir()
}

/// Everything that runs.
struct Running {
    url: String,
    store: Store,
    crm: FakeCrm,
    handler_crm: FakeCrm,
    app: App,
    stop: Stop,
}

impl Running {
    async fn start(folder: &Path, seed: u64) -> Result<Running, Failure> {
        let faulty = fake_crm::Options {
            rates: FaultRates {
                slow_after_apply: 0.02,
                reset_after_apply: 0.05,
                reset_before_apply: 0.02,
                truncated: 0.03,
                error_5xx: 0.05,
                rate_limited: 0.02,
                slow_ms: 1_500,
            },
            seed,
            ..fake_crm::Options::default()
        };
        let crm = FakeCrm::on_free_port(faulty).await?;
        let mut plain = fake_crm::Options::default();
        plain.plain.latency = Duration::from_millis(30);
        let handler_crm = FakeCrm::on_free_port(plain).await?;
        let config = Config::parse(&configuration(folder, &crm.url()))?.config;
        let listener = listen(config.http.listen).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let database = Database::open(&config).await?;
        database.migrate().await?;
        let stop = Stop::new();
        let roles = Roles { receive: true, sync: true };
        let app = App::start(&config, database, roles, listener, stop.clone()).await?;
        let store = app.store().clone();
        Ok(Running { url, store, crm, handler_crm, app, stop })
    }

    fn tell(&self) -> std::io::Result<()> {
        say!()?;
        say!("still running; Ctrl-C ends it")?;
        say!("  service     {}/readyz", self.url)?;
        say!("  one lead    {}/v1/leads/{}", self.url, traffic::email(0))?;
        say!("  CRM         {}", self.crm.url())?;
        say!("  SQL         psql '{}'", self.app.database_url())
    }

    async fn end(self) {
        self.stop.cancel();
        self.app.run_until_stopped().await;
        self.crm.stop().await;
        self.handler_crm.stop().await;
    }
}

/// Short timings, so that the faults of the CRM are over in seconds.
fn configuration(folder: &Path, crm: &str) -> String {
    // Debug formatting quotes as TOML's basic strings do.
    let data_dir = folder.to_string_lossy();
    format!(
        r#"
data_dir = {data_dir:?}
[http]
listen = "127.0.0.1:0"
[sync]
poll = "200ms"
lease = "6s"
call_timeout = "1s"
confirm_after = "3s"
backoff_base = "100ms"
backoff_max = "1s"
[[source]]
name = "site"
kind = "typeform"
secret = "{site}"
[[source]]
name = "shop"
kind = "shopify"
secret = "{shop}"
[[source]]
name = "ads"
kind = "json"
header = {{ name = "X-Api-Key", value = "{ads}" }}
trust = 30
[[destination]]
name = "hubspot"
kind = "hubspot"
token = "demo"
base_url = "{crm}"
rate = "100/1s"
"#,
        site = traffic::SITE_SECRET,
        shop = traffic::SHOP_SECRET,
        ads = traffic::ADS_KEY,
    )
}

fn step(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn progress(what: &'static str, length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style).with_message(what)
}

async fn wait_until_synced(store: &Store, bar: &ProgressBar) -> Result<(), Failure> {
    let deadline = Instant::now() + SYNC_DEADLINE;
    loop {
        let status = store.status().await?;
        let synced: i64 = status.destinations.iter().map(|d| d.synced).sum();
        let due: i64 = status.destinations.iter().map(|d| d.due).sum();
        bar.set_length(u64::try_from(synced + due).unwrap_or(0));
        bar.set_position(u64::try_from(synced).unwrap_or(0));
        if due == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure::Words(format!("{due} leads are still not in sync")));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
