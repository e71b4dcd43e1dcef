//! Several destinations, new ones, and the ends of a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leadsync::app::{self, Roles};
use leadsync::destinations::{CallError, Destination, Key, Mapped, Outcome, Record, Remote, Reply};
use leadsync::fake_crm::{self, Crm, FakeCrm, Fault};
use leadsync::stop::Stop;
use leadsync::sync::Configured;
use leadsync::sync::schedule::Schedule;
use leadsync::sync::step::Step;
use serde_json::json;
use tokio::sync::watch;

use super::batches::state;
use super::{HOOKS_SECRET, Rig, email, hooks, lead, leads, settings, soon, with};
use crate::support::app::{CONFIG, TestApp};

async fn stand_in() -> FakeCrm {
    FakeCrm::on_free_port(fake_crm::Options::default()).await.expect("stand-in")
}

/// A HubSpot account named `second` at another stand-in.
fn second(rig: &Rig, crm: &FakeCrm) -> Configured {
    let mut config = rig.app.config.clone();
    config.destinations[0].name = "second".into();
    config.destinations[0].base_url = Some(crm.url());
    app::destinations(&config).expect("destinations").remove(0)
}

#[tokio::test]
async fn a_new_destination_gets_every_lead_there_is() {
    let mut rig = Rig::new().await;
    rig.deliver(&leads(130, 1)).await;
    rig.drain().await;
    let crm = stand_in().await;
    rig.destination = second(&rig, &crm);
    let names = ["hubspot".to_owned(), "second".to_owned()];
    rig.app.store.register_destinations(&names, true).await.unwrap();
    assert_eq!(rig.syncer.enrol(&rig.destination).await.unwrap(), 130);
    assert_eq!(rig.syncer.enrol(&rig.destination).await.unwrap(), 0);
    rig.deliver(&[lead(0, 2), lead(500, 1)]).await;
    rig.drain().await;
    assert_eq!(crm.contacts(Crm::Hubspot).len(), 131);
    assert_eq!(crm.contacts(Crm::Hubspot)[0].properties["city"], "City2");

    // It leaves the configuration, leads change, and it comes back.
    rig.app.store.register_destinations(&names[..1], true).await.unwrap();
    rig.deliver(&[lead(1, 3), lead(501, 1)]).await;
    rig.drain().await;
    assert_eq!(crm.contacts(Crm::Hubspot).len(), 131);
    rig.app.store.register_destinations(&names, true).await.unwrap();
    assert_eq!(rig.syncer.enrol(&rig.destination).await.unwrap(), 2);
    rig.drain().await;
    let contacts = crm.contacts(Crm::Hubspot);
    assert_eq!(contacts.len(), 132);
    let changed = contacts.iter().find(|c| c.email == email(1)).unwrap();
    assert_eq!(changed.properties["city"], "City3");
}

#[tokio::test]
async fn a_new_destination_gets_leads_of_transactions_that_began_before_it() {
    let mut rig = Rig::new().await;
    rig.deliver(&[lead(0, 1)]).await;
    let mut connection = rig.app.store.group_connection().await.unwrap();
    let late = connection.begin().await.unwrap();
    // It sees no destination `second`, and nobody sees its lead yet.
    late.upsert(&[state(&rig, 1, "Late", 1).await]).await.unwrap();
    let crm = stand_in().await;
    rig.destination = second(&rig, &crm);
    let names = ["hubspot".to_owned(), "second".to_owned()];
    rig.app.store.register_destinations(&names, true).await.unwrap();
    let (stop, (_changed, changes)) = (Stop::new(), watch::channel(0));
    let schedule = Schedule::parse("continuous").unwrap();
    let syncer = rig.another();
    let running =
        tokio::spawn(syncer.run(rig.destination.clone(), schedule, changes, stop.clone()));
    soon("the lead that could be seen", crm.wait_for_applied(1)).await;
    late.commit().await.unwrap();
    soon("the lead that could not", crm.wait_for_applied(2)).await;
    let contacts = crm.contacts(Crm::Hubspot);
    assert_eq!((contacts.len(), contacts[1].email.as_str()), (2, email(1).as_str()));
    stop.cancel();
    soon("it stops", running).await.unwrap();
}

#[tokio::test]
async fn a_dead_destination_delays_nothing_of_another() {
    let crm = stand_in().await;
    let mut options = fake_crm::Options::default();
    options.webhook.secret = Some(HOOKS_SECRET.to_owned());
    crm.set_options(options);
    let roles = Roles { receive: true, sync: true };
    let more = hooks(&format!("{}/webhook", crm.url()));
    let app = TestApp::spawn_with(&more, roles).await;
    app.crm.stop().await;
    let rig = Rig::on(app, "hubspot", settings()).await;
    rig.deliver(&leads(20, 1)).await;
    soon("all webhooks", crm.wait_for_applied(20)).await;
    // The stand-in checks the signatures.
    assert!(crm.calls().iter().all(|call| call.status == Some(200)));
    assert_eq!(crm.contacts(Crm::Webhook).len(), 20);
    assert_eq!(crm.summary().calls, 20);
    assert!(rig.column("s.state").await.values().all(|s| s == "due"));
    rig.app.crm.resume().await.unwrap();
    soon("the other one's contacts", async {
        while rig.app.crm.contacts(Crm::Hubspot).len() < 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(crm.summary().calls, 20);
    let (hubspot, _db) = rig.app.stop().await;
    assert!(hubspot.creates_per_email(Crm::Hubspot).values().all(|n| *n == 1));

    // A receiver with another secret takes nothing, and the leads wait.
    let mut options = crm.options();
    options.webhook.secret = Some("whsec_YW5vdGhlci1zZWNyZXQtb2YtMzItYnl0ZXMtISEhIQ==".into());
    crm.set_options(options);
    let rig = Rig::hooks(&format!("{}/webhook", crm.url()), settings()).await;
    rig.deliver(&[lead(0, 1)]).await;
    assert_eq!(rig.worked().await.calls_failed, 1);
    assert_eq!(rig.paused().await.expect("paused").0, "credentials");
    assert_eq!(rig.states().await.get("due"), Some(&1));
}

#[tokio::test]
async fn a_stop_gives_leases_back_and_counts_nothing() {
    let crm = stand_in().await;
    let rig = Rig::hooks(&format!("{}/webhook", crm.url()), settings()).await;
    rig.deliver(&leads(10, 1)).await;
    crm.script(Fault::HoldAfter);
    let stop = Stop::new();
    let halt = async {
        soon("the first call", crm.wait_for_calls(1)).await;
        let leased = rig.column("s.lease_until > clock_timestamp()").await;
        assert!(leased.values().all(|l| l == "true"), "{leased:?}");
        stop.cancel();
        crm.release();
    };
    let (done, ()) = tokio::join!(rig.syncer.pass(&rig.destination, &stop), halt);
    assert_eq!(done.unwrap().calls, 1);
    assert_eq!(crm.summary().calls, 1);
    let states = rig.states().await;
    assert_eq!((states["synced"], states["due"]), (1, 9));
    let row = "concat_ws(' ', s.attempts, s.last_error_kind, s.confirm_after, s.lease_holder, s.lease_until,
        s.next_attempt_at <= clock_timestamp())";
    assert!(rig.column(row).await.values().all(|row| row == "0 t"));
    // Another instance takes them at once, and owes nobody a confirmation.
    let done = rig.another().pass(&rig.destination, &Stop::new()).await.unwrap();
    assert_eq!((done.pushed, done.calls), (9, 9));
    assert_eq!(rig.states().await["synced"], 10);
}

#[tokio::test]
async fn sync_once_as_people_run_it() {
    let rig = Rig::new().await;
    let poison = with(lead(1, 1), json!({"attributes": {"tier": "wood"}}));
    rig.deliver(&[with(lead(0, 1), json!({"clear": ["phone"]})), poison]).await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("leadsync.toml");
    let text = format!(
        "{CONFIG}\n[database]\nurl = '{}'\n[[destination]]\nname = \"hubspot\"\nkind = \"hubspot\"\ntoken = \"any\"\n\
         base_url = \"{}\"\n[destination.fields]\nfirst_name = \"firstname\"\nphone = \"phone\"\nattributes.tier = \"tier\"\n",
        rig.app.db.url(),
        rig.app.crm.url()
    );
    std::fs::write(&config, text).unwrap();
    let run = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leadsync"));
        command
            .arg("--config")
            .arg(&config)
            .args(["sync", "--once"])
            .args(arguments)
            .kill_on_drop(true);
        let output = soon("the command", command.output()).await.unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), stdout, stderr)
    };
    let before = rig.column("to_jsonb(s)").await;
    let (code, stdout, stderr) = run(&["--dry-run"]).await;
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    for line in [
        "hubspot: n000@example.com version 1 (not known there yet)",
        "  firstname = Name0",
        "  phone is cleared",
        "  tier = wood",
        "hubspot: 2 leads would be sent; nothing was",
    ] {
        assert!(stdout.lines().any(|l| l == line), "{line}: {stdout}");
    }
    assert_eq!(rig.app.crm.summary().calls, 0);
    assert_eq!(rig.column("to_jsonb(s)").await, before, "a dry run leaves no trace");

    let (code, stdout, stderr) = run(&[]).await;
    assert_eq!(code, Some(1), "one is parked: {stdout}{stderr}");
    assert!(
        stdout.contains("hubspot: 1 pushed, 0 already there, 1 parked, 0 to be tried again"),
        "{stdout}"
    );
    assert!(!stderr.contains("@example.com"), "no personal data in logs: {stderr}");
    let (code, stdout, _) = run(&["--destination", "hubspot"]).await;
    assert_eq!(code, Some(0), "{stdout}");
    let (code, _, stderr) = run(&["--destination", "hubspt"]).await;
    assert_ne!(code, Some(0));
    assert!(stderr.contains("there are: hubspot"), "{stderr}");
    assert_eq!(rig.app.crm.contacts(Crm::Hubspot).len(), 1);
}

/// Panics over the first calls.
struct Panicking(Arc<dyn Destination>, AtomicU64);

#[async_trait]
impl Destination for Panicking {
    fn batch_size(&self) -> usize {
        // The loop itself dies of this one.
        assert_ne!(self.1.fetch_add(1, Ordering::SeqCst), 1, "on purpose, in the loop");
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
        let outcomes = self.0.push(records).await;
        assert!(self.1.load(Ordering::SeqCst) > 1, "on purpose, over an answer");
        outcomes
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        self.0.check(fields).await
    }
}

#[tokio::test]
async fn a_panic_ends_neither_the_loop_nor_the_lead() {
    let rig = Rig::new().await;
    rig.deliver(&leads(3, 1)).await;
    let inner = rig.destination.destination.clone();
    let destination = Configured {
        destination: Arc::new(Panicking(inner, AtomicU64::new(0))),
        ..rig.destination.clone()
    };
    let step = rig.syncer.step(&destination, &Stop::new()).await.unwrap();
    assert!(matches!(&step, Step::Worked(done) if done.failed == 3), "{step:?}");
    let (stop, (_changed, changes)) = (Stop::new(), watch::channel(0));
    let schedule = Schedule::parse("continuous").unwrap();
    let running = tokio::spawn(rig.another().run(destination, schedule, changes, stop.clone()));
    soon("all are in sync", async {
        while rig.states().await.get("synced") != Some(&3) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    stop.cancel();
    soon("it stops", running).await.unwrap();
    rig.exact().await;
}
