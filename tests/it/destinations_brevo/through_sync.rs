//! Brevo through the running sync: whatever goes wrong, one contact per lead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::app::Roles;
use leadsync::fake_crm::{Act, Apply, Body, Contact, Crm, FakeCrm, Fault, Options, Scripted};
use leadsync::sync::Settings;
use serde_json::{Value, json};

use crate::support::app::TestApp;
use crate::support::db::TestDb;
use crate::support::openapi::{Spec, all_right};
use crate::sync::{Rig, settings};

const DESTINATION: &str = r#"
[[destination]]
name = "brevo"
kind = "brevo"
token = "k"
rate = "10000/1s"
base_url = "BASE"
MORE
[destination.fields]
first_name = "FIRSTNAME"
company = "COMPANY"
phone = "SMS"
"#;

const ANA: &str = "ana@example.com";

async fn rig_with(more: &str, settings: Settings) -> Rig {
    let mut options = Options::default();
    options.brevo.keys = vec!["k".to_owned()];
    let crm = FakeCrm::on_free_port(options).await.expect("stand-in");
    let text = DESTINATION.replace("BASE", &crm.url()).replace("MORE", more);
    let roles = Roles { receive: true, sync: false };
    let db = Arc::new(TestDb::new().await);
    Rig::on(TestApp::start_on(db, Arc::new(crm), &text, roles).await, "brevo", settings).await
}

async fn rig() -> Rig {
    rig_with("", settings()).await
}

fn lead(email: &str, company: &str, at: u32) -> Value {
    json!({
        "email": email, "first_name": "Ana", "company": company,
        "occurred_at": format!("2026-03-05T14:22:{at:02}Z"),
    })
}

fn contacts(rig: &Rig) -> Vec<Contact> {
    rig.app.crm.contacts(Crm::Brevo).into_iter().filter(|c| !c.archived).collect()
}

fn script(rig: &Rig, path: &str, fault: Fault) {
    rig.app.crm.script(Scripted { path: Some(path.to_owned()), fault });
}

#[track_caller]
fn once(rig: &Rig, email: &str, what: &str) {
    let creates = rig.app.crm.creates_per_email(Crm::Brevo);
    assert_eq!(creates.get(email), Some(&1), "{what}: {creates:?}");
    assert_eq!(contacts(rig).iter().filter(|c| c.email == email).count(), 1, "{what}");
}

async fn synced(rig: &Rig, leads: usize) {
    assert_eq!(rig.states().await, BTreeMap::from([("synced".to_owned(), leads)]));
}

#[tokio::test]
async fn a_lead_is_made_changed_cleared_and_otherwise_left_alone() {
    let rig = rig().await;
    rig.deliver(&[lead(ANA, "Padaria", 1)]).await;
    rig.drain().await;
    once(&rig, ANA, "new");
    let calls = rig.app.crm.summary().calls;
    rig.deliver(&[lead(ANA, "Padaria", 1)]).await;
    rig.drain().await;
    assert_eq!(rig.app.crm.summary().calls, calls, "a repeat calls nobody");
    let properties = [("email".to_owned(), "private@example.com".to_owned())].into();
    rig.app.crm.behind(Crm::Brevo, Act::Change { id: "21".to_owned(), properties }).unwrap();
    rig.deliver(&[lead(ANA, "Café", 2)]).await;
    rig.drain().await;
    let there = contacts(&rig);
    assert_eq!(
        (there.len(), &*there[0].email, &*there[0].properties["COMPANY"]),
        (1, "private@example.com", "Café")
    );
    assert_eq!(rig.app.crm.summary().calls, calls + 1, "one call, by id");
    let clear = json!({"email": ANA, "occurred_at": "2026-03-05T14:22:03Z", "clear": ["company"]});
    rig.deliver(&[clear]).await;
    rig.drain().await;
    assert!(!contacts(&rig)[0].properties.contains_key("COMPANY"));
    synced(&rig, 1).await;
}

#[tokio::test]
async fn whatever_one_call_meets_there_is_one_contact() {
    let slow = Settings { call_timeout: Duration::from_millis(400), ..settings() };
    let rig = rig_with("", slow).await;
    let status = |status, body, apply| Fault::Status { status, body, apply, retry_after: None };
    let faults = [
        Fault::HoldAfter,
        Fault::ResetAfter,
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::EmptyBody { status: 200 },
        Fault::Conflict,
        status(500, Body::Json, Apply::All),
        status(502, Body::Html, Apply::None),
        status(409, Body::Empty, Apply::None),
    ];
    let all = faults.len();
    for (n, fault) in faults.into_iter().enumerate() {
        let (email, what) = (format!("n{n}@example.com"), format!("{fault:?}"));
        script(&rig, "POST /v3/contacts", fault);
        rig.deliver(&[lead(&email, "Padaria", 1)]).await;
        rig.drain().await;
        rig.app.crm.release();
        once(&rig, &email, &what);
        assert_eq!(contacts(&rig)[n].properties["COMPANY"], "Padaria", "{what}");
    }
    synced(&rig, all).await;
}

#[tokio::test]
async fn limits_and_credentials_blame_no_lead() {
    let status =
        |status, body| Fault::Status { status, body, apply: Apply::None, retry_after: None };
    let rig = rig().await;
    let mut n = 0;
    for (fault, kind) in [
        (Fault::RateLimited { retry_after: None, daily: false }, "slow_down"),
        (status(425, Body::Json), "slow_down"),
        (status(401, Body::Json), "credentials"),
        (status(403, Body::Json), "credentials"),
        (status(404, Body::Html), "misconfigured"),
    ] {
        n += 1;
        let email = format!("n{n}@example.com");
        script(&rig, "POST /v3/contacts", fault.clone());
        rig.deliver(&[lead(&email, "Padaria", 1)]).await;
        rig.pass().await;
        let (paused, _) = rig.paused().await.unwrap_or_else(|| panic!("{fault:?}: not paused"));
        assert_eq!(paused, kind, "{fault:?}");
        assert_eq!(rig.column("s.attempts").await[&email], "0", "{fault:?}");
        rig.lift_pause().await;
        rig.drain().await;
        once(&rig, &email, kind);
    }
}

#[tokio::test]
async fn a_phone_of_somebody_else_parks_the_lead_or_is_left_out() {
    for (setting, state, there) in [("park", "parked", 1), ("drop", "synced", 2)] {
        let rig = rig_with(&format!("on_field_error = \"{setting}\""), settings()).await;
        let with_phone = |email: &str| {
            let mut lead = lead(email, "Padaria", 1);
            lead["phone"] = json!("+5511912345678");
            lead
        };
        rig.deliver(&[with_phone(ANA)]).await;
        rig.drain().await;
        rig.deliver(&[with_phone("bo@example.com")]).await;
        rig.drain().await;
        assert_eq!(rig.column("s.state").await["bo@example.com"], state);
        assert_eq!(contacts(&rig).len(), there, "{setting}");
        assert_eq!(contacts(&rig)[0].properties["SMS"], "+5511912345678", "{setting}");
    }
}

#[tokio::test]
async fn deleted_merged_and_renamed_contacts() {
    for (setting, alive, state) in [("recreate", 1, "synced"), ("leave", 0, "parked")] {
        let rig = rig_with(&format!("deleted = \"{setting}\""), settings()).await;
        rig.deliver(&[lead(ANA, "Padaria", 1)]).await;
        rig.drain().await;
        rig.app.crm.behind(Crm::Brevo, Act::Delete { id: "21".to_owned() }).unwrap();
        rig.deliver(&[lead(ANA, "Café", 2)]).await;
        rig.drain().await;
        assert_eq!(contacts(&rig).len(), alive, "{setting}");
        assert_eq!(rig.states().await, BTreeMap::from([(state.to_owned(), 1)]), "{setting}");
    }
    // The table lost the id, and the address was changed: the lead id in ext_id still tells.
    let rig = rig_with("key_property = \"ext_id\"", settings()).await;
    rig.deliver(&[lead(ANA, "Padaria", 1)]).await;
    rig.drain().await;
    let properties = [("email".to_owned(), "private@example.com".to_owned())].into();
    rig.app.crm.behind(Crm::Brevo, Act::Change { id: "21".to_owned(), properties }).unwrap();
    rig.sql.execute("update leadsync.lead_sync set remote_id = null", &[]).await.unwrap();
    rig.deliver(&[lead(ANA, "Café", 2)]).await;
    rig.drain().await;
    let there = contacts(&rig);
    assert_eq!((there.len(), &*there[0].properties["COMPANY"]), (1, "Café"));
    assert_eq!(rig.column("s.remote_id").await[ANA], "21");
    synced(&rig, 1).await;
}

#[tokio::test]
async fn every_request_of_the_sync_is_one_that_the_api_knows() {
    let Some(spec) = Spec::read("brevo-contacts.subset.openapi.json") else { return };
    let rig = rig().await;
    rig.deliver(&[lead(ANA, "Padaria", 1), lead("bo+x@example.com", "B", 1)]).await;
    rig.drain().await;
    rig.deliver(&[lead(ANA, "Café", 2)]).await;
    rig.drain().await;
    assert_eq!(all_right(&spec, &rig.app.crm.calls()), 4);
}
