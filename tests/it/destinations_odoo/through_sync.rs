//! End to end, through the running sync.

use std::time::Duration;

use leadsync::app::Roles;
use leadsync::fake_crm::odoo::User;
use leadsync::fake_crm::{Apply, Body, Contact, Crm, FakeCrm, Fault, FaultRates, Options};
use leadsync::sync::Settings;
use serde_json::json;

use crate::support::app::TestApp;
use crate::sync::{Rig, email, lead, leads, settings, with};

/// A service that only receives, a stand-in Odoo, and a syncer to step by hand.
struct Odoo {
    rig: Rig,
    fake: FakeCrm,
}

/// So that a pause is there to be looked at.
fn long_pauses() -> Settings {
    Settings { backoff_max: Duration::from_secs(60), ..settings() }
}

impl Odoo {
    async fn start(more: &str) -> Odoo {
        Odoo::with(more, settings()).await
    }

    async fn with(more: &str, settings: Settings) -> Odoo {
        let mut options = Options::default();
        options.odoo.users = vec![User::good("leadsync", "key")];
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        let destination = format!(
            "[[destination]]\nname = \"odoo\"\nkind = \"odoo\"\nuser = \"leadsync\"\ndatabase = \"crm\"\n\
             token = \"key\"\nrate = \"10000/1s\"\nbase_url = \"{}\"\n{more}\n",
            fake.url()
        );
        let app = TestApp::spawn_with(&destination, Roles { receive: true, sync: false }).await;
        let rig = Rig::on(app, "odoo", settings).await;
        // Logs in, so that scripted faults strike what they are meant for.
        rig.destination.destination.check(&[]).await.unwrap();
        Odoo { rig, fake }
    }

    fn contacts(&self) -> Vec<Contact> {
        self.fake.contacts(Crm::Odoo)
    }

    fn contact(&self, n: usize) -> Contact {
        let email = email(n);
        self.contacts().into_iter().find(|c| c.email == email).expect("a contact")
    }

    /// Methods and arguments of the calls since the first `skip`.
    fn calls(&self, skip: usize) -> Vec<(String, serde_json::Value)> {
        let calls = self.fake.calls();
        let call = |call: &leadsync::fake_crm::Call| {
            let args = &call.json()["params"]["args"];
            (args[4].as_str().unwrap_or_default().to_owned(), args[5].clone())
        };
        calls.iter().skip(skip).map(call).collect()
    }

    /// Every lead is in sync and has exactly one contact, made once, with that city.
    #[track_caller]
    fn exactly(&self, n: usize, city: &str) {
        let contacts = self.contacts();
        let mut emails: Vec<&str> = contacts.iter().map(|c| c.email.as_str()).collect();
        emails.sort_unstable();
        assert_eq!(emails, (0..n).map(email).collect::<Vec<_>>());
        for contact in &contacts {
            assert_eq!(contact.properties["city"], city, "{contact:?}");
        }
        let creates = self.fake.creates_per_email(Crm::Odoo);
        assert!(creates.values().all(|n| *n == 1), "{creates:?}");
    }

    async fn parked(&self) -> Vec<(String, String)> {
        let of = self.rig.column(
            "case when s.state = 'parked' then s.last_error_code || ': ' || s.last_error_message end",
        );
        of.await.into_iter().filter(|(_, error)| !error.is_empty()).collect()
    }
}

#[tokio::test]
async fn made_once_updated_by_id_and_left_alone_when_nothing_changed() {
    let odoo = Odoo::start("").await;
    odoo.rig.deliver(&leads(3, 1)).await;
    let done = odoo.rig.pass().await;
    assert_eq!((done.pushed, done.calls), (3, 2), "looked up in one call, made in another");
    odoo.exactly(3, "City1");
    assert_eq!(odoo.contact(0).properties["name"], "Name0");
    odoo.rig.deliver(&leads(3, 1)).await;
    assert_eq!(odoo.rig.pass().await.calls, 0, "a repeat makes no call");
    let before = odoo.fake.calls().len();
    odoo.rig.deliver(&leads(3, 2)).await;
    let done = odoo.rig.pass().await;
    assert_eq!((done.pushed, done.calls), (3, 1));
    odoo.exactly(3, "City2");
    let sent = odoo.calls(before);
    assert_eq!(sent[0].0, "load");
    assert_eq!(sent[0].1[0], json!([".id", "city", "name"]), "by id, and without the e-mail");
    let clear = with(lead(1, 3), json!({"city": null, "clear": ["city"]}));
    odoo.rig.deliver(&[clear]).await;
    odoo.rig.drain().await;
    assert_eq!(odoo.contact(1).properties.get("city"), None);
    assert_eq!(odoo.contact(2).properties["city"], "City2");
}

#[tokio::test]
async fn leads_with_other_values_take_other_calls() {
    let odoo = Odoo::start("").await;
    let phone = |lead| with(lead, json!({"phone": "+551140028922"}));
    odoo.rig.deliver(&[lead(0, 1), phone(lead(1, 1)), lead(2, 1)]).await;
    assert_eq!(odoo.rig.pass().await.calls, 2, "new ones share one");
    for contact in odoo.contacts() {
        let edit = json!({"id": contact.id, "values": {"phone": "by hand"}});
        odoo.fake.odoo("edit", &edit).unwrap();
    }
    odoo.rig.deliver(&[lead(0, 2), phone(lead(1, 2)), lead(2, 2)]).await;
    assert_eq!(odoo.rig.pass().await.calls, 2, "one with and one without a phone");
    let phones: Vec<String> = (0..3).map(|n| odoo.contact(n).properties["phone"].clone()).collect();
    assert_eq!(phones, ["by hand", "+551140028922", "by hand"]);
}

#[tokio::test]
async fn a_contact_that_people_made_is_taken_and_two_of_them_are_told() {
    let odoo = Odoo::start("").await;
    let by_hand = |n: usize| {
        let values =
            json!({"name": "By hand", "email": email(n).to_uppercase(), "comment": "theirs"});
        odoo.fake.odoo("create", &json!({ "values": values })).unwrap()
    };
    let (one, twin, other) = (by_hand(0), by_hand(1), by_hand(1));
    odoo.rig.deliver(&leads(3, 1)).await;
    odoo.rig.drain().await;
    assert_eq!(odoo.contact(0).id, one.to_string());
    let taken = odoo.contact(0).properties;
    assert_eq!((taken["city"].as_str(), taken["comment"].as_str()), ("City1", "theirs"));
    let parked = odoo.parked().await;
    assert_eq!(parked.len(), 1, "{parked:?}");
    let (who, why) = &parked[0];
    assert_eq!(*who, email(1));
    assert!(why.contains(&format!("several contacts match: {twin}, {other}")), "{why}");
    assert_eq!(odoo.contacts().len(), 4);
    assert_eq!(odoo.fake.doubles(Crm::Odoo), 1, "not one more");
}

#[tokio::test]
async fn whatever_became_of_the_answer_there_is_one_contact_at_once() {
    // The grace would be ten minutes: the external id makes it needless.
    let quick = Settings { call_timeout: Duration::from_millis(700), ..settings() };
    let odoo = Odoo::with("", quick).await;
    let faults = [
        Fault::HoldAfter,
        Fault::ResetAfter,
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::CutJson,
        Fault::EmptyBody { status: 200 },
        Fault::EmptyResults,
        Fault::Omit { input: 0, written: true },
        Fault::Status { status: 500, body: Body::Html, apply: Apply::All, retry_after: None },
        Fault::Status { status: 502, body: Body::Html, apply: Apply::None, retry_after: None },
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        let own = [email(2 * at), email(2 * at + 1)];
        for version in [1, 2] {
            odoo.rig.deliver(&[lead(2 * at, version), lead(2 * at + 1, version)]).await;
            if version == 1 {
                // The look-up.
                odoo.fake.script(Fault::Pass);
            }
            odoo.fake.script(fault.clone());
            assert_eq!(odoo.rig.worked().await.pushed, 0, "{fault:?}");
            odoo.fake.release();
            odoo.rig.drain().await;
            let there = odoo.contacts().into_iter().filter(|c| own.contains(&c.email));
            let cities: Vec<String> = there.map(|c| c.properties["city"].clone()).collect();
            assert_eq!(cities, [format!("City{version}"), format!("City{version}")], "{fault:?}");
        }
    }
    let creates = odoo.fake.creates_per_email(Crm::Odoo);
    assert!(creates.len() == 20 && creates.values().all(|n| *n == 1), "{creates:?}");
}

#[tokio::test]
async fn a_merge_is_followed() {
    let odoo = Odoo::start("").await;
    odoo.rig.deliver(&leads(3, 1)).await;
    odoo.rig.drain().await;
    let (keep, lose) = (odoo.contact(0).id, odoo.contact(1).id);
    odoo.fake.odoo("merge", &json!({"keep": keep, "lose": lose})).unwrap();
    odoo.rig.deliver(&[lead(1, 2), lead(2, 2)]).await;
    odoo.rig.drain().await;
    assert_eq!(odoo.contact(0).properties["city"], "City2", "the survivor");
    assert_eq!(odoo.contact(2).properties["city"], "City2");
    assert_eq!(odoo.rig.column("s.remote_id").await[&email(1)], keep);
    assert_eq!(odoo.contacts().len(), 2);
}

#[tokio::test]
async fn a_deleted_contact_is_made_anew_or_left() {
    for (setting, left) in [("recreate", 2), ("leave", 1)] {
        let odoo = Odoo::start(&format!("deleted = \"{setting}\"")).await;
        odoo.rig.deliver(&leads(2, 1)).await;
        odoo.rig.drain().await;
        odoo.fake.odoo("delete", &json!({"id": odoo.contact(0).id})).unwrap();
        odoo.rig.deliver(&leads(2, 2)).await;
        odoo.rig.drain().await;
        assert_eq!(odoo.contacts().len(), left, "{setting}");
        assert_eq!(odoo.contact(1).properties["city"], "City2", "the other goes on");
        let parked = odoo.parked().await;
        assert_eq!(parked.len(), 2 - left, "{parked:?}");
        assert_eq!(odoo.rig.pass().await.calls, 0);
    }
}

#[tokio::test]
async fn an_archived_contact_stays_one() {
    let odoo = Odoo::start("").await;
    odoo.rig.deliver(&leads(1, 1)).await;
    odoo.rig.drain().await;
    odoo.fake.odoo("archive", &json!({"id": odoo.contact(0).id})).unwrap();
    odoo.rig.deliver(&leads(1, 2)).await;
    odoo.rig.drain().await;
    assert!(odoo.contact(0).archived);
    odoo.exactly(1, "City2");
}

const KIND: &str = "[destination.fields]\ncity = \"city\"\nattributes.kind = \"type\"\n";

#[tokio::test]
async fn a_bad_value_harms_only_its_lead() {
    let kind = |n, kind| with(lead(n, 1), json!({"attributes": {"kind": kind}}));
    let all: Vec<_> =
        (0..6).map(|n| kind(n, if n == 3 { "nonsense" } else { "Other Address" })).collect();
    let odoo = Odoo::start(KIND).await;
    odoo.rig.deliver(&all).await;
    odoo.rig.drain().await;
    let parked = odoo.parked().await;
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert!(
        parked[0].0 == email(3) && parked[0].1.contains("type: Value '[value]' not found"),
        "{parked:?}"
    );
    assert_eq!(odoo.contacts().len(), 5);
    assert_eq!(odoo.fake.doubles(Crm::Odoo), 0);

    let odoo = Odoo::start(&format!("on_field_error = \"drop\"\n{KIND}")).await;
    odoo.rig.deliver(&all).await;
    odoo.rig.drain().await;
    odoo.exactly(6, "City1");
    assert_eq!(odoo.contact(3).properties.get("type"), None);
    assert_eq!(odoo.contact(4).properties["type"], "other");
}

#[tokio::test]
async fn fields_are_written_as_their_policy_says() {
    let policies = "[destination.fields]\ncity = { to = \"city\", write = \"if_blank\" }\n\
                    first_name = { to = \"comment\", write = \"on_create\" }\n";
    let odoo = Odoo::start(policies).await;
    let values = json!({"name": "By hand", "email": email(0), "city": "Theirs"});
    odoo.fake.odoo("create", &json!({ "values": values })).unwrap();
    odoo.rig.deliver(&leads(2, 1)).await;
    odoo.rig.drain().await;
    let theirs = odoo.contact(0).properties;
    assert_eq!((theirs["city"].as_str(), theirs.get("comment")), ("Theirs", None));
    let ours = odoo.contact(1).properties;
    assert_eq!((ours["city"].as_str(), ours["comment"].as_str()), ("City1", "Name1"));
}

#[tokio::test]
async fn a_lost_race_is_run_again() {
    let odoo = Odoo::start("").await;
    odoo.rig.deliver(&leads(3, 1)).await;
    odoo.fake.script(Fault::Pass);
    odoo.fake.script(Fault::Conflict);
    assert_eq!(odoo.rig.worked().await.pushed, 0);
    assert_eq!(odoo.rig.paused().await, None, "nobody's fault");
    odoo.rig.drain().await;
    odoo.exactly(3, "City1");
}

#[tokio::test]
async fn a_revoked_key_pauses_until_it_is_mended() {
    let odoo = Odoo::with("", long_pauses()).await;
    let key = |key: &str| {
        let mut options = odoo.fake.options();
        options.odoo.users[0].key = key.to_owned();
        odoo.fake.set_options(options);
    };
    key("another");
    odoo.rig.deliver(&leads(3, 1)).await;
    odoo.rig.pass().await;
    let (kind, _) = odoo.rig.paused().await.expect("a pause");
    assert_eq!(kind, "credentials");
    assert_eq!(odoo.rig.column("s.attempts").await[&email(0)], "0", "not the leads' fault");
    key("key");
    odoo.rig.lift_pause().await;
    odoo.rig.drain().await;
    odoo.exactly(3, "City1");
}

#[tokio::test]
async fn statuses_of_what_stands_before_odoo() {
    let odoo = Odoo::with("", long_pauses()).await;
    for (status, retry_after, kind) in [
        (403, None, "credentials"),
        (404, None, "misconfigured"),
        (429, Some(7), "slow_down"),
        (503, Some(9), "unavailable"),
        (502, Some(0), "unavailable"),
    ] {
        odoo.rig.deliver(&[lead(status.into(), 1)]).await;
        odoo.fake.script(Fault::Pass);
        let body = Body::Html;
        odoo.fake.script(Fault::Status { status, body, apply: Apply::None, retry_after });
        assert_eq!(odoo.rig.pass().await.calls_failed, 1, "{status}");
        // The one without a time to wait is over too soon to be looked at.
        if retry_after != Some(0) {
            let (paused, length) = odoo.rig.paused().await.expect("a pause");
            let asked = retry_after.map_or(60.0, |seconds| seconds as f64);
            assert!(paused == kind && length <= asked && length > asked / 2.0, "{status} {length}");
        }
        odoo.rig.lift_pause().await;
        odoo.rig.drain().await;
    }
    assert_eq!(odoo.contacts().len(), 5);
    assert_eq!(odoo.fake.doubles(Crm::Odoo), 0);
}

#[tokio::test]
async fn leads_of_odoo_are_made_once_beside_those_of_others() {
    let odoo = Odoo::start("object = \"crm.lead\"").await;
    let theirs = json!({"model": "crm.lead", "values": {"name": "Fair", "email_from": email(0)}});
    odoo.fake.odoo("create", &theirs).unwrap();
    odoo.rig.deliver(&leads(2, 1)).await;
    odoo.fake.script(Fault::ResetAfter);
    odoo.rig.drain().await;
    odoo.rig.deliver(&leads(2, 2)).await;
    odoo.rig.drain().await;
    let contacts = odoo.contacts();
    assert_eq!(contacts.len(), 3);
    let ours: Vec<_> = contacts.iter().filter(|c| c.properties["name"] != "Fair").collect();
    assert_eq!(ours.len(), 2);
    assert!(ours.iter().all(|c| c.properties["city"] == "City2"), "{ours:?}");
    assert_eq!(ours[0].properties["contact_name"], ours[0].properties["name"]);
}

#[tokio::test]
async fn a_hundred_leads_through_all_kinds_of_trouble() {
    let odoo = Odoo::start("concurrency = 3").await;
    let mut options = odoo.fake.options();
    options.rates = FaultRates {
        reset_after_apply: 0.1,
        reset_before_apply: 0.05,
        truncated: 0.1,
        error_5xx: 0.1,
        ..FaultRates::default()
    };
    odoo.fake.set_options(options.clone());
    for version in 1..=3 {
        odoo.rig.deliver(&leads(100, version)).await;
        let (one, two) = tokio::join!(odoo.rig.drain(), odoo.rig.drain());
        assert!(one.calls + two.calls > 0);
        odoo.exactly(100, &format!("City{version}"));
    }
    assert_eq!(odoo.rig.states().await["synced"], 100);
}
