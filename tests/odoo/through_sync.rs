//! The running sync against a real Odoo that fails in every way that one can be made to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leadsync::app::{self, Roles};
use leadsync::destinations::Mapped;
use leadsync::stop::Stop;
use leadsync::store::destinations::Budget;
use leadsync::sync::step::Done;
use leadsync::sync::{Configured, Settings, Syncer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::cases::Odoo;
use crate::support::app::TestApp;
use crate::{odoo, server};

/// A service that only receives, and a syncer to step by hand.
struct Rig {
    odoo: Odoo,
    app: TestApp,
    syncer: Syncer,
    destination: Configured,
}

fn settings() -> Settings {
    Settings {
        poll: Duration::from_millis(50),
        lease: Duration::from_secs(60),
        call_timeout: Duration::from_secs(20),
        drain: Duration::from_secs(5),
        confirm_after: Duration::from_millis(300),
        backoff_base: Duration::from_millis(50),
        backoff_max: Duration::from_millis(500),
    }
}

impl Rig {
    async fn start(mark: &str, more: &str) -> Rig {
        Rig::at(odoo(mark), None, more).await
    }

    /// On an Odoo that is reached by another address.
    async fn at(odoo: Odoo, url: Option<String>, more: &str) -> Rig {
        let text = format!(
            "[[destination]]\nname = \"odoo\"\nkind = \"odoo\"\nuser = \"{}\"\ndatabase = \"{}\"\ntoken = \"{}\"\n\
             rate = \"10000/1s\"\nbase_url = \"{}\"\n{more}\n",
            odoo.login,
            odoo.database,
            odoo.key,
            url.as_ref().unwrap_or(&odoo.url)
        );
        let app = TestApp::spawn_with(&text, Roles { receive: true, sync: false }).await;
        let mut config = app.config.clone();
        config.sync.call_timeout = settings().call_timeout;
        let all = app::destinations(&config).expect("destinations");
        let destination = all.into_iter().find(|d| d.name == "odoo").expect("odoo");
        let syncer = Syncer::new(app.store.clone(), settings());
        Rig { odoo, app, syncer, destination }
    }

    fn lead(&self, n: usize, version: usize) -> Value {
        json!({
            "email": self.odoo.email(&format!("n{n}")), "first_name": format!("Name{n}"),
            "occurred_at": format!("2020-01-01T00:{version:02}:00Z"), "city": format!("City{version}"),
        })
    }

    async fn deliver(&self, leads: &[Value]) {
        let (status, answer) = self.app.post("/v1/leads", &[], json!(leads).to_string()).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn pass(&self) -> Done {
        self.syncer.pass(&self.destination, &Stop::new()).await.expect("a pass")
    }

    /// Pushes until nothing is due at all, waiting out backoffs and pauses.
    async fn drain(&self) -> Done {
        let mut total = Done::default();
        let drained = async {
            loop {
                total.add(&self.pass().await);
                let store = &self.app.store;
                let Some(next) = store.next_due("odoo").await.expect("next due") else { break };
                let state = store.destination_state("odoo", &Budget::default()).await;
                let state = state.expect("state");
                // What is due later is waited for exactly as long as it says.
                let wait = next.max(state.paused_for).max(Duration::from_millis(5));
                tokio::time::sleep(wait).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(180), drained).await.expect("drains in time");
        total
    }

    /// The contacts of these leads, archived ones too.
    async fn contacts(&self, model: &str) -> Vec<Value> {
        let field = if model == "crm.lead" { "email_from" } else { "email" };
        let domain = json!([[field, "=like", format!("%.{}@example.com", self.odoo.mark)]]);
        let read = json!([domain, [field, "name", "city", "active"]]);
        let named = json!({"context": {"active_test": false}, "order": "id"});
        let found = self.odoo.call(model, "search_read", read, named).await;
        found.as_array().expect("a list").clone()
    }

    /// Exactly one contact of each lead, with that city.
    async fn exactly(&self, n: usize, city: &str) {
        let contacts = self.contacts("res.partner").await;
        let mut emails: Vec<&str> = contacts.iter().filter_map(|c| c["email"].as_str()).collect();
        emails.sort_unstable();
        let mut wanted: Vec<String> = (0..n).map(|n| self.odoo.email(&format!("n{n}"))).collect();
        wanted.sort_unstable();
        assert_eq!(emails, wanted);
        assert!(contacts.iter().all(|c| c["city"] == city), "{contacts:?}");
    }

    async fn id_of(&self, n: usize) -> i64 {
        self.odoo.with_email(&self.odoo.email(&format!("n{n}"))).await[0]
    }

    /// Waits until so many contacts are there.
    async fn some_are_there(&self) {
        let some = async {
            while self.contacts("res.partner").await.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), some).await.expect("some contacts");
    }
}

#[tokio::test]
async fn the_same_event_eight_times_at_once() {
    let rig = Rig::start("eight", "concurrency = 4").await;
    let all: Vec<Value> = (0..20).map(|n| rig.lead(n, 1)).collect();
    let deliver = || rig.deliver(&all);
    tokio::join!(
        deliver(),
        deliver(),
        deliver(),
        deliver(),
        deliver(),
        deliver(),
        deliver(),
        deliver()
    );
    tokio::join!(rig.drain(), rig.drain(), rig.drain());
    rig.exactly(20, "City1").await;
    rig.deliver(&all).await;
    assert_eq!(
        rig.app.store.next_due("odoo").await.expect("next due"),
        None,
        "a repeat is no news"
    );
}

#[tokio::test]
async fn two_services_on_one_odoo_make_one_contact() {
    let one = Rig::start("two", "").await;
    let mut other = odoo("x");
    other.mark.clone_from(&one.odoo.mark);
    let two = Rig::at(other, None, "").await;
    let all: Vec<Value> = (0..30).map(|n| one.lead(n, 1)).collect();
    tokio::join!(one.deliver(&all), two.deliver(&all));
    tokio::join!(one.drain(), two.drain());
    one.exactly(30, "City1").await;
}

/// Passes everything on, but hangs up instead of the next answer to a `load`, once it is told to.
async fn proxy(to: String, hang_up: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let to = to.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&to).await.expect("Odoo");
            tokio::spawn(pass_on(client, server, hang_up.clone()));
        }
    });
    url
}

async fn pass_on(mut client: TcpStream, mut server: TcpStream, hang_up: Arc<AtomicBool>) {
    let (mut sent, mut answer) = (vec![0; 65_536], vec![0; 65_536]);
    let mut loads = false;
    loop {
        tokio::select! {
            read = client.read(&mut sent) => match read {
                Ok(n) if n > 0 => {
                    loads |= sent[..n].windows(6).any(|w| w == b"\"load\"");
                    if server.write_all(&sent[..n]).await.is_err() { return }
                }
                _ => return,
            },
            read = server.read(&mut answer) => match read {
                Ok(n) if n > 0 => {
                    if loads && hang_up.swap(false, Ordering::SeqCst) { return }
                    if client.write_all(&answer[..n]).await.is_err() { return }
                }
                _ => return,
            },
        }
    }
}

#[tokio::test]
async fn a_hang_up_after_the_write_makes_no_second_contact() {
    let odoo = odoo("hangup");
    let hang_up = Arc::new(AtomicBool::new(false));
    let url = proxy(odoo.url.clone(), hang_up.clone()).await;
    let rig = Rig::at(odoo, Some(url), "").await;
    for version in [1, 2] {
        let all: Vec<Value> = (0..10).map(|n| rig.lead(n, version)).collect();
        rig.deliver(&all).await;
        hang_up.store(true, Ordering::SeqCst);
        rig.pass().await;
        assert!(!hang_up.load(Ordering::SeqCst), "it hung up");
        rig.exactly(10, &format!("City{version}")).await;
        rig.drain().await;
        rig.exactly(10, &format!("City{version}")).await;
    }
}

#[tokio::test]
async fn killed_in_the_middle() {
    let rig = Rig::start("killed", "").await;
    let all: Vec<Value> = (0..300).map(|n| rig.lead(n, 1)).collect();
    rig.deliver(&all).await;
    let trouble = async {
        rig.some_are_there().await;
        server("kill-odoo").await;
        server("start-odoo").await;
    };
    let (done, ()) = tokio::join!(rig.drain(), trouble);
    assert!(done.calls_failed > 0, "not in the middle: {done:?}");
    rig.exactly(300, "City1").await;
}

#[tokio::test]
async fn its_database_stopped_in_the_middle() {
    let rig = Rig::start("nodb", "").await;
    let all: Vec<Value> = (0..300).map(|n| rig.lead(n, 1)).collect();
    rig.deliver(&all).await;
    let trouble = async {
        rig.some_are_there().await;
        server("stop-database").await;
        server("start-database").await;
    };
    let (done, ()) = tokio::join!(rig.drain(), trouble);
    assert!(done.calls_failed > 0, "not in the middle: {done:?}");
    rig.exactly(300, "City1").await;
}

#[tokio::test]
async fn a_user_that_was_shut_out() {
    let rig = Rig::start("shut", "").await;
    rig.deliver(&[rig.lead(0, 1)]).await;
    rig.drain().await;
    rig.odoo.shut_out(true).await;
    rig.deliver(&[rig.lead(0, 2), rig.lead(1, 2)]).await;
    rig.pass().await;
    let kind: String =
        rig.app.value("select pause_kind from leadsync.destinations where name = 'odoo'").await;
    assert_eq!(kind, "credentials");
    rig.odoo.shut_out(false).await;
    rig.drain().await;
    rig.exactly(2, "City2").await;
}

#[tokio::test]
async fn archived_merged_and_deleted_meanwhile() {
    let rig = Rig::start("people", "").await;
    let all = |version| (0..5).map(|n| rig.lead(n, version)).collect::<Vec<Value>>();
    rig.deliver(&all(1)).await;
    rig.drain().await;
    let (archived, keep, lose, deleted) =
        (rig.id_of(0).await, rig.id_of(1).await, rig.id_of(2).await, rig.id_of(3).await);
    let values = json!([[archived], {"active": false}]);
    rig.odoo.call("res.partner", "write", values, json!({})).await;
    rig.odoo.merge("res.partner", keep, lose).await;
    rig.odoo.call("res.partner", "unlink", json!([[deleted]]), json!({})).await;
    rig.deliver(&all(2)).await;
    rig.drain().await;
    let contacts = rig.contacts("res.partner").await;
    assert_eq!(contacts.len(), 4, "{contacts:?}");
    assert!(contacts.iter().all(|c| c["city"] == "City2"), "{contacts:?}");
    assert_eq!(contacts[0]["active"], false, "archived stays archived");
    assert_ne!(rig.id_of(3).await, deleted, "deleted comes back");
    rig.deliver(&all(2)).await;
    rig.drain().await;
    assert_eq!(rig.contacts("res.partner").await.len(), 4);
}

#[tokio::test]
async fn a_contact_that_people_made_is_taken() {
    let rig = Rig::start("taken", "").await;
    let email = rig.odoo.email("n0");
    let values = json!([{"name": "By hand", "email": format!("Somebody <{}>", email.to_uppercase()), "comment": "theirs"}]);
    let made = rig.odoo.call("res.partner", "create", values, json!({})).await;
    rig.deliver(&[rig.lead(0, 1)]).await;
    rig.drain().await;
    assert_eq!(rig.odoo.with_email(&email).await, [made.as_i64().unwrap()]);
    assert_eq!(rig.odoo.read("res.partner", made.as_i64().unwrap(), "city").await, "City1");
    rig.deliver(&[rig.lead(0, 2)]).await;
    rig.drain().await;
    assert_eq!(rig.odoo.read("res.partner", made.as_i64().unwrap(), "city").await, "City2");
}

#[tokio::test]
async fn leads_are_made_once_and_belong_to_nobody_yet() {
    let rig = Rig::start("leads", "object = \"crm.lead\"").await;
    for version in [1, 2] {
        let all: Vec<Value> = (0..5).map(|n| rig.lead(n, version)).collect();
        rig.deliver(&all).await;
        tokio::join!(rig.drain(), rig.drain());
        let leads = rig.contacts("crm.lead").await;
        assert_eq!(leads.len(), 5, "{leads:?}");
        assert!(leads.iter().all(|lead| lead["city"] == format!("City{version}")), "{leads:?}");
        let id = leads[0]["id"].as_i64().unwrap();
        assert_eq!(rig.odoo.read("crm.lead", id, "user_id").await, false);
    }
}

#[tokio::test]
async fn a_bad_value_harms_only_its_lead() {
    let fields = "[destination.fields]\ncity = \"city\"\nattributes.land = \"country_id\"\n";
    let rig = Rig::start("bad", fields).await;
    let land = |n, land: &str| {
        let mut lead = rig.lead(n, 1);
        lead["attributes"] = json!({ "land": land });
        lead
    };
    rig.deliver(&[land(0, "Brazil"), land(1, "Narnia"), land(2, "PT")]).await;
    rig.drain().await;
    assert_eq!(rig.contacts("res.partner").await.len(), 2);
    let why: String = rig
        .app
        .value("select last_error_message from leadsync.lead_sync where destination = 'odoo' and state = 'parked'")
        .await;
    assert!(why.contains("country_id: No matching record found for name '[value]'"), "{why}");
}

#[tokio::test]
async fn check_and_list_do_as_they_do_at_the_stand_in() {
    for (object, email) in [("res.partner", "email"), ("crm.lead", "email_from")] {
        let rig = Rig::start("check", &format!("object = \"{object}\"")).await;
        let to = &rig.destination.destination;
        let good = [Mapped::new("city", "city"), Mapped::new("country", "country_id")];
        assert_eq!(to.check(&good).await.expect("all right").len(), 3);
        for wrong in ["nosuch", "email_normalized", "write_date"] {
            assert!(to.check(&[Mapped::new("city", wrong)]).await.is_err(), "{wrong}");
        }
        rig.deliver(&[rig.lead(0, 1)]).await;
        rig.drain().await;
        let city = ["city".to_owned()];
        let (mut cursor, mut found) = (None, Vec::new());
        loop {
            let page = to.list(cursor.as_deref(), &city).await.expect("a page").value;
            let ours = rig.odoo.email("n0");
            found.extend(page.contacts.into_iter().filter(|c| c.email.as_deref() == Some(&ours)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), 1, "{email}");
        assert_eq!(found[0].properties["city"].as_deref(), Some("City1"));
    }
}
