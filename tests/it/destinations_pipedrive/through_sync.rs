//! Pipedrive through the running sync: whatever goes wrong, one person per lead.

use std::collections::BTreeMap;
use std::time::Duration;

use leadsync::app::Roles;
use leadsync::fake_crm::pipedrive::Token;
use leadsync::fake_crm::{Act, Apply, Body, Contact, Crm, Fault, Options, Scripted};
use leadsync::stop::Stop;
use leadsync::sync::Settings;
use serde_json::{Value, json};

use crate::support::app::TestApp;
use crate::support::openapi::{Spec, all_right};
use crate::sync::{Rig, settings, soon};

/// What every test here says of the destination; a test may add to it.
const DESTINATION: &str = r#"
[[destination]]
name = "pipedrive"
kind = "pipedrive"
token = "t"
key_property = "Lead key"
rate = "10000/1s"
create_grace = "300ms"
base_url = "BASE"
MORE
[destination.fields]
full_name = "name"
company = "Company"
"#;

const ANA: &str = "ana@example.com";

async fn rig_with(more: &str, options: impl FnOnce(&mut Options), settings: Settings) -> Rig {
    let mut all = Options::default();
    all.pipedrive.search_lag = Duration::ZERO;
    all.pipedrive.tokens = vec![Token::good("t")];
    options(&mut all);
    let crm = leadsync::fake_crm::FakeCrm::on_free_port(all).await.expect("stand-in");
    let db = std::sync::Arc::new(crate::support::db::TestDb::new().await);
    let daily = if more.contains("daily") { "" } else { "daily = 1000000000" };
    let text = DESTINATION.replace("BASE", &crm.url()).replace("MORE", &format!("{daily}\n{more}"));
    let roles = Roles { receive: true, sync: false };
    let app = TestApp::start_on(db, std::sync::Arc::new(crm), &text, roles).await;
    Rig::on(app, "pipedrive", settings).await
}

async fn rig() -> Rig {
    rig_with("", |_| {}, settings()).await
}

fn lead(email: &str, company: Value, at: u32) -> Value {
    json!({
        "email": email, "full_name": "Ana Silva", "company": company,
        "occurred_at": format!("2026-03-05T14:22:{at:02}Z"),
    })
}

/// Persons that are there.
fn persons(rig: &Rig) -> Vec<Contact> {
    rig.app.crm.contacts(Crm::Pipedrive).into_iter().filter(|c| !c.archived).collect()
}

fn company(rig: &Rig) -> String {
    let fields = rig.app.crm.options().pipedrive.fields;
    fields.iter().find(|f| f.name == "Company").unwrap().code.clone()
}

/// Calls that write, by method and path.
fn writes(rig: &Rig) -> Vec<String> {
    let calls = rig.app.crm.calls().into_iter().filter(|c| c.method != "GET");
    calls.map(|c| format!("{} {}", c.method, c.path)).collect()
}

fn script(rig: &Rig, path: &str, fault: Fault) {
    rig.app.crm.script(Scripted { path: Some(path.to_owned()), fault });
}

/// Exactly one person of this address, made exactly once.
#[track_caller]
fn once(rig: &Rig, email: &str, what: &str) {
    let creates = rig.app.crm.creates_per_email(Crm::Pipedrive);
    assert_eq!(creates.get(email), Some(&1), "{what}: {creates:?}");
    assert_eq!(persons(rig).iter().filter(|p| p.email == email).count(), 1, "{what}");
}

async fn by_hand(rig: &Rig, act: Act) -> String {
    rig.app.crm.behind(Crm::Pipedrive, act).expect("a person")
}

fn made(email: &str) -> Act {
    Act::Create { email: email.to_owned(), properties: BTreeMap::new() }
}

async fn synced(rig: &Rig, leads: usize) {
    assert_eq!(rig.states().await, BTreeMap::from([("synced".to_owned(), leads)]));
}

#[tokio::test]
async fn a_lead_is_made_changed_cleared_and_otherwise_left_alone() {
    let rig = rig().await;
    rig.deliver(&[lead(ANA, json!("Padaria"), 1)]).await;
    rig.drain().await;
    once(&rig, ANA, "new");
    let lead_id = rig.column("s.lead_id").await[ANA].clone();
    let person = persons(&rig).remove(0);
    assert_eq!(person.properties[&company(&rig)], "Padaria");
    assert!(person.properties.values().any(|value| *value == lead_id), "the key: {person:?}");
    assert_eq!(rig.column("s.remote_id").await[ANA], person.id);
    let calls = rig.app.crm.summary().calls;
    rig.deliver(&[lead(ANA, json!("Padaria"), 1)]).await;
    rig.drain().await;
    assert_eq!(rig.app.crm.summary().calls, calls, "a repeat calls nobody");
    let properties = [("email".to_owned(), "private@example.com".to_owned())].into();
    by_hand(&rig, Act::Change { id: person.id.clone(), properties }).await;
    rig.deliver(&[lead(ANA, json!("Café"), 2)]).await;
    rig.drain().await;
    let changed = persons(&rig).remove(0);
    assert_eq!(
        (changed.email.as_str(), &*changed.properties[&company(&rig)]),
        ("private@example.com", "Café")
    );
    assert_eq!(rig.app.crm.summary().calls, calls + 1, "one call, by id");
    let clear = json!({"email": ANA, "occurred_at": "2026-03-05T14:22:03Z", "clear": ["company"]});
    rig.deliver(&[clear]).await;
    rig.drain().await;
    assert!(!persons(&rig)[0].properties.contains_key(&company(&rig)));
    assert_eq!(
        writes(&rig),
        ["POST /api/v2/persons", "PATCH /api/v2/persons/501", "PATCH /api/v2/persons/501"]
    );
    synced(&rig, 1).await;
}

#[tokio::test]
async fn a_person_that_is_there_is_found_and_several_are_not_guessed() {
    let rig = rig().await;
    let there = by_hand(&rig, made("Ana@Example.com")).await;
    by_hand(&rig, made("bo@example.com")).await;
    let double = by_hand(&rig, made("bo@example.com")).await;
    rig.deliver(&[lead(ANA, json!("A"), 1), lead("bo@example.com", json!("B"), 1)]).await;
    rig.drain().await;
    assert_eq!(rig.column("s.remote_id").await[ANA], there);
    let bo = rig.column("s.state || ' ' || s.last_error_code || ' ' || s.last_error_message").await;
    let bo = &bo["bo@example.com"];
    assert!(bo.starts_with("parked ambiguous") && bo.contains("502, 503"), "{bo}");
    assert_eq!(writes(&rig), [format!("PATCH /api/v2/persons/{there}")]);
    by_hand(&rig, Act::Merge { id: double, into: "502".to_owned() }).await;
    rig.deliver(&[lead("bo@example.com", json!("C"), 2)]).await;
    rig.drain().await;
    synced(&rig, 2).await;
    assert_eq!(persons(&rig).len(), 2);
}

/// A call of unknown outcome, then whatever the search knows: one person.
async fn unknown_creates_make_one_person(lag: Option<u64>) {
    let status = |status, body, apply| Fault::Status { status, body, apply, retry_after: None };
    let options = |o: &mut Options| {
        o.pipedrive.search_lag = Duration::from_millis(lag.unwrap_or(0));
        o.pipedrive.never_indexed = lag.is_none();
    };
    let slow = Settings { call_timeout: Duration::from_millis(400), ..settings() };
    let rig = rig_with("", options, slow).await;
    let faults = [
        Fault::HoldAfter,
        Fault::ResetAfter,
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::EmptyBody { status: 200 },
        status(500, Body::Json, Apply::All),
        status(500, Body::Json, Apply::None),
        status(503, Body::Html, Apply::All),
    ];
    let all = faults.len();
    for (n, fault) in faults.into_iter().enumerate() {
        let (email, what) = (format!("n{n}@example.com"), format!("{fault:?}, lag {lag:?}"));
        script(&rig, "POST /api/v2/persons", fault);
        rig.deliver(&[lead(&email, json!("Padaria"), 1)]).await;
        rig.drain().await;
        rig.app.crm.release();
        once(&rig, &email, &what);
        assert_eq!(persons(&rig)[n].properties[&company(&rig)], "Padaria", "{what}");
    }
    synced(&rig, all).await;
}

#[tokio::test]
async fn unknown_creates_make_one_person_where_the_search_is_quick() {
    unknown_creates_make_one_person(Some(0)).await;
}

#[tokio::test]
async fn unknown_creates_make_one_person_where_the_search_is_an_hour_behind() {
    unknown_creates_make_one_person(Some(3_600_000)).await;
}

#[tokio::test]
async fn unknown_creates_make_one_person_where_the_search_never_learns() {
    unknown_creates_make_one_person(None).await;
}

#[tokio::test]
async fn two_instances_make_one_person_each_lead() {
    let lag = |o: &mut Options| o.pipedrive.search_lag = Duration::from_secs(3600);
    let rig = rig_with("", lag, settings()).await;
    let emails: Vec<String> = (0..12).map(|n| format!("n{n}@example.com")).collect();
    let leads: Vec<Value> = emails.iter().map(|e| lead(e, json!("Padaria"), 1)).collect();
    rig.deliver(&leads).await;
    let (one, two, stop) = (rig.another(), rig.another(), Stop::new());
    let both = async {
        let passes =
            tokio::join!(one.pass(&rig.destination, &stop), two.pass(&rig.destination, &stop));
        passes.0.expect("a pass");
        passes.1.expect("a pass");
    };
    soon("both passes", both).await;
    rig.drain().await;
    for email in &emails {
        once(&rig, email, email);
    }
    synced(&rig, 12).await;
}

#[tokio::test]
async fn deleted_and_merged_persons() {
    for (setting, alive, state) in [("recreate", 1, "synced"), ("leave", 0, "parked")] {
        let more = format!("deleted = \"{setting}\"");
        let rig = rig_with(&more, |_| {}, settings()).await;
        rig.deliver(&[lead(ANA, json!("Padaria"), 1)]).await;
        rig.drain().await;
        by_hand(&rig, Act::Delete { id: "501".to_owned() }).await;
        rig.deliver(&[lead(ANA, json!("Café"), 2)]).await;
        rig.drain().await;
        assert_eq!(persons(&rig).len(), alive, "{setting}");
        assert_eq!(rig.states().await, BTreeMap::from([(state.to_owned(), 1)]), "{setting}");
    }
    let rig = rig().await;
    rig.deliver(&[lead(ANA, json!("Padaria"), 1)]).await;
    rig.drain().await;
    let kept = by_hand(&rig, made("other@example.com")).await;
    by_hand(&rig, Act::Merge { id: "501".to_owned(), into: kept.clone() }).await;
    rig.deliver(&[lead(ANA, json!("Café"), 2)]).await;
    rig.drain().await;
    assert_eq!(rig.column("s.remote_id").await[ANA], kept, "the survivor is followed");
    assert_eq!(persons(&rig).len(), 1);
    assert_eq!(persons(&rig)[0].properties[&company(&rig)], "Café");
    synced(&rig, 1).await;
}

#[tokio::test]
async fn a_bad_value_harms_only_its_lead_or_only_itself() {
    let long = "x".repeat(300);
    for (setting, state, code) in [("park", "parked", "INVALID_VALUE"), ("drop", "synced", "")] {
        let more = format!("on_field_error = \"{setting}\"");
        let rig = rig_with(&more, |_| {}, settings()).await;
        rig.deliver(&[lead(ANA, json!(long), 1), lead("bo@example.com", json!("B"), 1)]).await;
        rig.drain().await;
        let states = rig.column("s.state").await;
        assert_eq!((states[ANA].as_str(), states["bo@example.com"].as_str()), (state, "synced"));
        assert_eq!(rig.column("s.last_error_code").await[ANA], code);
        let people = persons(&rig);
        assert_eq!(people.len(), if setting == "drop" { 2 } else { 1 });
        assert!(
            people
                .iter()
                .filter(|p| p.email == ANA)
                .all(|p| !p.properties.contains_key(&company(&rig)))
        );
    }
}

#[tokio::test]
async fn values_of_people_are_kept_where_the_mapping_says_so() {
    let more = "";
    let rig = rig_with(more, |_| {}, settings()).await;
    let mut config = rig.app.config.clone();
    let pipedrive = config.destinations.iter_mut().find(|d| d.name == "pipedrive").unwrap();
    let text = r#"[fields]
full_name = { to = "name", write = "on_create" }
company = { to = "Company", write = "if_blank" }"#;
    let fields: toml::Table = text.parse().unwrap();
    pipedrive.fields = fields["fields"].clone().try_into().unwrap();
    let destinations = leadsync::app::destinations(&config).unwrap();
    let mut rig = rig;
    rig.destination = destinations.into_iter().find(|d| d.name == "pipedrive").unwrap();
    let code = company(&rig);
    by_hand(&rig, made(ANA)).await;
    let named =
        [("name".to_owned(), "Dona Ana".to_owned()), (code.clone(), "Own words".to_owned())].into();
    by_hand(&rig, Act::Change { id: "501".to_owned(), properties: named }).await;
    rig.deliver(&[lead(ANA, json!("Padaria"), 1), lead("bo@example.com", json!("B"), 1)]).await;
    rig.drain().await;
    let people = persons(&rig);
    assert_eq!(
        (&*people[0].properties["name"], &*people[0].properties[&code]),
        ("Dona Ana", "Own words")
    );
    assert_eq!((&*people[1].properties["name"], &*people[1].properties[&code]), ("Ana Silva", "B"));
    synced(&rig, 2).await;
}

#[tokio::test]
async fn limits_and_credentials_blame_no_lead() {
    let status =
        |status, body| Fault::Status { status, body, apply: Apply::None, retry_after: None };
    let rig = rig().await;
    let mut n = 0;
    for (fault, kind) in [
        (Fault::RateLimited { retry_after: None, daily: false }, "slow_down"),
        (Fault::RateLimited { retry_after: None, daily: true }, "slow_down"),
        (status(403, Body::Html), "slow_down"),
        (status(401, Body::Json), "credentials"),
        (status(402, Body::Json), "credentials"),
        (status(403, Body::Json), "credentials"),
    ] {
        for path in ["GET /api/v2/persons/search", "POST /api/v2/persons"] {
            n += 1;
            let (email, what) = (format!("n{n}@example.com"), format!("{path} {fault:?}"));
            script(&rig, path, fault.clone());
            rig.deliver(&[lead(&email, json!("Padaria"), 1)]).await;
            rig.pass().await;
            let (paused, _) = rig.paused().await.unwrap_or_else(|| panic!("{what}: not paused"));
            assert_eq!(paused, kind, "{what}");
            assert_eq!(rig.column("s.attempts").await[&email], "0", "{what}");
            rig.lift_pause().await;
            rig.drain().await;
            once(&rig, &email, &what);
            synced(&rig, n).await;
        }
    }
}

#[tokio::test]
async fn the_days_tokens_are_counted_look_ups_and_all() {
    let limited = |o: &mut Options| o.pipedrive.limits.daily_headers = false;
    let rig = rig_with("daily = 100", limited, settings()).await;
    let leads = ["a@example.com", "b@example.com", "c@example.com"].map(|e| lead(e, json!("A"), 1));
    rig.deliver(&leads).await;
    rig.pass().await;
    // Of 100 tokens a look-up takes 41 and a write 6: there is room for two of both.
    assert_eq!(persons(&rig).len(), 2);
    let states = BTreeMap::from([("due".to_owned(), 1), ("synced".to_owned(), 2)]);
    assert_eq!(rig.states().await, states);
    let statuses = rig.app.crm.summary().calls_by_status;
    assert_eq!(
        statuses.keys().map(String::as_str).collect::<Vec<_>>(),
        ["200"],
        "nobody had to say so"
    );
}

#[tokio::test]
async fn every_request_of_the_sync_is_one_that_the_api_knows() {
    let Some(spec) = Spec::read("pipedrive-persons-leads.subset.openapi.json") else { return };
    let rig = rig().await;
    script(&rig, "POST /api/v2/persons", Fault::ResetAfter);
    rig.deliver(&[lead(ANA, json!("Padaria"), 1), lead("bo@example.com", json!("B"), 1)]).await;
    rig.drain().await;
    rig.deliver(&[lead(ANA, json!("Café"), 2)]).await;
    rig.drain().await;
    let calls = rig.app.crm.calls();
    let known = calls.iter().filter(|call| !call.path.starts_with("/api/v2/personFields"));
    assert!(all_right(&spec, known) > 6);
}
