//! Which contact is whose: remembered ids, merged and deleted contacts, CRMs that keep no key.

use std::sync::Arc;
use std::time::Duration;

use leadsync::config::Deleted;
use leadsync::destinations::Mapped;
use leadsync::fake_crm::{Contact, Crm, Fault, Scripted};
use leadsync::stop::Stop;
use leadsync::sync::{Configured, Settings};
use serde_json::json;

use super::{Gate, Gated, Rig, email, lead, leads, settings, soon};
use crate::support::keyless::Keyless;

/// A grace that outlasts the search lag of [`lagging`].
const GRACE: Duration = Duration::from_millis(900);

/// A rig whose destination is a CRM that keeps no key.
async fn keyless() -> Rig {
    keyless_with(settings()).await
}

async fn keyless_with(settings: Settings) -> Rig {
    let mut rig = Rig::with(settings).await;
    let url = rig.app.crm.url();
    let destination = Arc::new(Keyless::new(&url, rig.settings.call_timeout));
    let fields = vec![Mapped::new("first_name", "first"), Mapped::new("city", "town")];
    rig.destination =
        Configured { destination, fields, create_grace: GRACE, ..rig.destination.clone() };
    rig
}

/// New contacts are found by the search only after a while.
fn lagging(rig: &Rig, lag: Duration) {
    let mut options = rig.app.crm.options();
    options.plain.search_lag = lag;
    rig.app.crm.set_options(options);
}

fn script(rig: &Rig, path: &str, fault: Fault) {
    rig.app.crm.script(Scripted { path: Some(path.into()), fault });
}

fn there(rig: &Rig) -> Vec<Contact> {
    rig.app.crm.contacts(Crm::Plain).into_iter().filter(|c| !c.archived).collect()
}

/// Exactly one contact of each lead, made once, with this town.
#[track_caller]
fn exactly(rig: &Rig, n: usize, town: &str) {
    let contacts = there(rig);
    let mut emails: Vec<String> = contacts.iter().map(|c| c.email.clone()).collect();
    emails.sort();
    assert_eq!(emails, (0..n).map(email).collect::<Vec<_>>());
    assert!(contacts.iter().all(|c| c.properties["town"] == town), "{contacts:?}");
    let creates = rig.app.crm.creates_per_email(Crm::Plain);
    assert!(creates.values().all(|n| *n == 1), "{creates:?}");
}

/// Method and path of the calls since the first `skip`.
fn calls(rig: &Rig, skip: usize) -> Vec<String> {
    let calls = rig.app.crm.calls();
    calls.iter().skip(skip).map(|c| format!("{} {}", c.method, c.path)).collect()
}

async fn remote_ids(rig: &Rig) -> Vec<String> {
    rig.column("s.remote_id").await.into_values().collect()
}

#[tokio::test]
async fn a_contact_is_looked_up_before_it_is_made_and_known_by_its_id_afterwards() {
    let rig = keyless().await;
    rig.deliver(&leads(3, 1)).await;
    let done = rig.pass().await;
    assert_eq!((done.pushed, done.calls), (3, 6));
    exactly(&rig, 3, "City1");
    assert_eq!(rig.column("s.creating_since").await[&email(0)], "");
    rig.deliver(&[lead(1, 2)]).await;
    rig.drain().await;
    let id = rig.column("s.remote_id").await[&email(1)].clone();
    assert_eq!(calls(&rig, 6), [format!("PATCH /plain/contacts/{id}")]);
    assert_eq!(rig.pass().await.calls, 0);
}

#[tokio::test]
async fn a_contact_that_somebody_else_made_is_taken() {
    let rig = keyless().await;
    let made = json!({"email": "N000@Example.com", "first": "Theirs", "notes": "a"});
    rig.app
        .http
        .post(format!("{}/plain/contacts", rig.app.crm.url()))
        .json(&made)
        .send()
        .await
        .unwrap();
    rig.deliver(&leads(1, 1)).await;
    rig.drain().await;
    exactly(&rig, 1, "City1");
    assert_eq!(there(&rig)[0].properties["notes"], "a");
    assert_eq!(remote_ids(&rig).await, ["1"]);
}

#[tokio::test]
async fn after_an_unknown_outcome_none_is_made_before_the_search_must_have_found_it() {
    for fault in [Fault::ResetAfter, Fault::Truncated, Fault::CutJson] {
        let rig = keyless().await;
        lagging(&rig, Duration::from_millis(500));
        rig.deliver(&leads(1, 1)).await;
        rig.app.crm.script(Fault::Pass);
        rig.app.crm.script(fault.clone());
        assert_eq!(rig.worked().await.failed, 1, "{fault:?}");
        assert_ne!(rig.column("s.creating_since").await[&email(0)], "", "{fault:?}");
        rig.drain().await;
        exactly(&rig, 1, "City1");
        assert_eq!(rig.column("s.creating_since").await[&email(0)], "");
        assert_eq!(remote_ids(&rig).await, ["1"]);
    }
}

/// The control of the test above: without the grace it makes a second one.
#[tokio::test]
async fn without_the_grace_the_same_makes_a_second_contact() {
    let mut rig = keyless().await;
    rig.destination.create_grace = Duration::ZERO;
    lagging(&rig, Duration::from_secs(5));
    rig.deliver(&leads(1, 1)).await;
    rig.app.crm.script(Fault::Pass);
    rig.app.crm.script(Fault::ResetAfter);
    rig.drain().await;
    assert_eq!(rig.app.crm.doubles(Crm::Plain), 1);
}

#[tokio::test]
async fn after_an_unknown_outcome_that_made_nothing_one_is_made_when_the_grace_is_over() {
    let rig = keyless().await;
    rig.deliver(&leads(1, 1)).await;
    rig.app.crm.script(Fault::Pass);
    rig.app.crm.script(Fault::ResetBefore);
    assert_eq!(rig.worked().await.failed, 1);
    let began = std::time::Instant::now();
    rig.drain().await;
    assert!(began.elapsed() > GRACE / 2, "made too early: {:?}", began.elapsed());
    exactly(&rig, 1, "City1");
}

#[tokio::test]
async fn a_call_that_made_nothing_for_sure_costs_no_grace() {
    let mut rig = keyless().await;
    rig.destination.create_grace = Duration::from_secs(3600);
    rig.deliver(&leads(1, 1)).await;
    rig.app.crm.script(Fault::Pass);
    rig.app.crm.script(Fault::RateLimited { retry_after: None, daily: false });
    rig.step().await;
    assert_eq!(rig.column("s.creating_since").await[&email(0)], "");
    rig.lift_pause().await;
    rig.drain().await;
    exactly(&rig, 1, "City1");
}

#[tokio::test]
async fn a_holder_that_dies_before_its_create_makes_nobody_make_two() {
    let rig = keyless_with(Settings { lease: Duration::from_secs(30), ..settings() }).await;
    rig.deliver(&leads(1, 1)).await;
    let (gate, gated) = Gated::put(&rig.destination, Gate::new(false), Gate::new(true));
    let syncer = rig.another();
    let holder = tokio::spawn(async move { syncer.step(&gated, &Stop::new()).await });
    gate.before.reached(1).await;
    rig.end_leases().await;
    // The next one finds nothing, and knows that the first one is about to make it.
    let done = rig.worked().await;
    assert_eq!((done.pushed, done.failed, done.calls), (0, 1, 1));
    assert!(there(&rig).is_empty());
    // It wakes up within the grace, and what it made is found and taken.
    gate.before.open();
    soon("the late create", holder).await.unwrap().unwrap();
    rig.drain().await;
    exactly(&rig, 1, "City1");
    assert_eq!(remote_ids(&rig).await, ["1"]);
}

#[tokio::test]
async fn two_instances_make_one() {
    let rig = keyless().await;
    lagging(&rig, Duration::from_millis(300));
    rig.deliver(&leads(40, 1)).await;
    let (one, two, stop) = (rig.another(), rig.another(), Stop::new());
    soon("both", async {
        let (a, b) =
            tokio::join!(one.pass(&rig.destination, &stop), two.pass(&rig.destination, &stop));
        assert_eq!(a.unwrap().pushed + b.unwrap().pushed, 40);
    })
    .await;
    exactly(&rig, 40, "City1");
}

#[tokio::test]
async fn several_matches_are_parked_with_their_ids_until_somebody_merges_them() {
    let rig = keyless().await;
    let url = format!("{}/plain/contacts", rig.app.crm.url());
    for _ in 0..2 {
        let made = json!({"email": email(0), "town": "Theirs"});
        rig.app.http.post(&url).json(&made).send().await.unwrap();
    }
    rig.deliver(&leads(2, 1)).await;
    let done = rig.pass().await;
    assert_eq!((done.pushed, done.parked), (1, 1));
    let status = rig.app.store.status().await.unwrap();
    assert_eq!(status.parked[0].code.as_deref(), Some("ambiguous"));
    let message = status.parked[0].message.clone().unwrap();
    assert!(message.contains("1, 2"), "{message}");
    assert_eq!(there(&rig)[0].properties["town"], "Theirs", "nothing is guessed");
    rig.app.http.delete(format!("{url}/2")).send().await.unwrap();
    assert_eq!(rig.app.store.requeue(None, Some("ambiguous"), None).await.unwrap(), 1);
    rig.drain().await;
    exactly_one_of_each(&rig, 2);
    assert_eq!(rig.column("s.remote_id").await[&email(0)], "1");
}

#[track_caller]
fn exactly_one_of_each(rig: &Rig, n: usize) {
    let mut emails: Vec<String> = there(rig).into_iter().map(|c| c.email).collect();
    emails.sort();
    assert_eq!(emails, (0..n).map(email).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_deleted_contact_is_made_anew_or_left() {
    for (deleted, left) in [(Deleted::Recreate, 1), (Deleted::Leave, 0)] {
        let mut rig = keyless().await;
        rig.destination.deleted = deleted;
        rig.deliver(&leads(1, 1)).await;
        rig.drain().await;
        rig.app
            .http
            .delete(format!("{}/plain/contacts/1", rig.app.crm.url()))
            .send()
            .await
            .unwrap();
        for version in [2, 3] {
            rig.deliver(&[lead(0, version)]).await;
            rig.drain().await;
            assert_eq!(there(&rig).len(), left, "{deleted:?}");
        }
        let code = rig.column("s.state || ' ' || coalesce(s.last_error_code, '')").await;
        let (expected, id) = if left == 1 { ("synced ", "2") } else { ("parked deleted", "1") };
        assert_eq!(code[&email(0)], expected);
        assert_eq!(remote_ids(&rig).await, [id]);
    }
}

#[tokio::test]
async fn hubspot_contacts_that_are_merged_are_followed() {
    for deleted in [Deleted::Recreate, Deleted::Leave] {
        let mut rig = Rig::new().await;
        rig.destination.deleted = deleted;
        rig.deliver(&leads(3, 1)).await;
        rig.drain().await;
        let ids = rig.column("s.remote_id").await;
        let (kept, lost) = (ids[&email(0)].clone(), ids[&email(1)].clone());
        let merge = json!({"primaryObjectId": kept, "objectIdToMerge": lost});
        let url = format!("{}/crm/v3/objects/contacts/merge", rig.app.crm.url());
        rig.app.http.post(url).bearer_auth("t").json(&merge).send().await.unwrap();
        rig.deliver(&leads(3, 2)).await;
        rig.drain().await;
        assert_eq!(rig.states().await, [("synced".to_owned(), 3)].into(), "{deleted:?}");
        let contacts = rig.app.crm.contacts(Crm::Hubspot);
        assert_eq!(contacts.len(), 2);
        assert!(contacts.iter().all(|c| c.properties["city"] == "City2"), "{contacts:?}");
        let ids = rig.column("s.remote_id").await;
        assert_eq!((&ids[&email(0)], ids[&email(0)] != kept), (&ids[&email(1)], true));
        // Two leads of one contact: never in one call, which HubSpot would refuse as a whole.
        rig.deliver(&leads(3, 3)).await;
        let done = rig.drain().await;
        assert_eq!((done.pushed, done.calls, done.failed), (3, 2, 0));
    }
}

#[tokio::test]
async fn a_contact_whose_address_was_changed_in_the_crm_stays_the_same_one() {
    let rig = Rig::new().await;
    rig.deliver(&leads(2, 1)).await;
    rig.drain().await;
    let id = rig.column("s.remote_id").await[&email(0)].clone();
    let url = format!("{}/crm/v3/objects/contacts/{id}", rig.app.crm.url());
    let changed = json!({"properties": {"email": "new@example.com"}});
    rig.app.http.patch(url).bearer_auth("t").json(&changed).send().await.unwrap();
    rig.deliver(&[lead(0, 2)]).await;
    rig.drain().await;
    let contacts = rig.app.crm.contacts(Crm::Hubspot);
    assert_eq!(contacts.len(), 2);
    let contact = contacts.iter().find(|c| c.id == id).unwrap();
    assert_eq!(contact.email, "new@example.com");
    assert_eq!(contact.properties["city"], "City2");
}

#[tokio::test]
async fn a_race_for_a_new_contact_becomes_an_update_in_the_same_attempt() {
    let rig = Rig::new().await;
    rig.deliver(&leads(1, 1)).await;
    script(&rig, "/crm/v3/objects/contacts/batch/upsert", Fault::Conflict);
    let done = rig.worked().await;
    assert_eq!((done.pushed, done.calls, done.failed), (1, 2, 0));
    rig.exact().await;
}
