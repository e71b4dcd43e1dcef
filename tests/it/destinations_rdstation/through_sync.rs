//! End to end, through the running sync.

use std::time::Duration;

use leadsync::app::Roles;
use leadsync::fake_crm::rdstation::App;
use leadsync::fake_crm::{
    Apply, Body, Contact, Crm, FakeCrm, Fault, FaultRates, Options, Scripted,
};
use leadsync::sync::Settings;
use serde_json::json;

use crate::support::app::TestApp;
use crate::sync::{Rig, email, lead, leads, settings, with};

/// A service that only receives, a stand-in RD Station, and a syncer to step by hand.
struct Rd {
    rig: Rig,
    fake: FakeCrm,
}

impl Rd {
    async fn start(more: &str) -> Rd {
        Rd::with(more, settings()).await
    }

    async fn with(more: &str, settings: Settings) -> Rd {
        let mut options = Options::default();
        options.rdstation.apps = vec![App::good("id", "secret", "refresh")];
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        let destination = format!(
            "[[destination]]\nname = \"rd\"\nkind = \"rdstation\"\nclient_id = \"id\"\nclient_secret = \"secret\"\n\
             refresh_token = \"refresh\"\nrate = \"10000/1s\"\nbase_url = \"{}\"\n{more}\n",
            fake.url()
        );
        let app = TestApp::spawn_with(&destination, Roles { receive: true, sync: false }).await;
        Rd { rig: Rig::on(app, "rd", settings).await, fake }
    }

    fn script(&self, fault: Fault) {
        self.fake.script(Scripted { path: Some("/platform/contacts/".to_owned()), fault });
    }

    fn contacts(&self) -> Vec<Contact> {
        self.fake.contacts(Crm::Rdstation)
    }

    fn contact(&self, n: usize) -> Contact {
        let email = email(n);
        self.contacts().into_iter().find(|c| c.email == email).expect("a contact")
    }

    fn calls(&self, method: &str) -> usize {
        self.fake.calls().iter().filter(|call| call.method == method).count()
    }

    /// Every lead has exactly one contact, made once, with that city.
    #[track_caller]
    fn exactly(&self, n: usize, city: &str) {
        let contacts = self.contacts();
        let mut emails: Vec<&str> = contacts.iter().map(|c| c.email.as_str()).collect();
        emails.sort_unstable();
        assert_eq!(emails, (0..n).map(email).collect::<Vec<_>>());
        for contact in &contacts {
            assert_eq!(contact.properties["city"], city, "{contact:?}");
        }
        let creates = self.fake.creates_per_email(Crm::Rdstation);
        assert!(creates.values().all(|n| *n == 1), "{creates:?}");
    }
}

#[tokio::test]
async fn made_once_updated_by_uuid_and_left_alone_when_nothing_changed() {
    let rd = Rd::start("").await;
    rd.rig.deliver(&leads(3, 1)).await;
    assert_eq!(rd.rig.pass().await.calls, 3);
    rd.exactly(3, "City1");
    assert_eq!(rd.contact(0).properties["name"], "Name0");
    assert_eq!(rd.rig.column("s.remote_id").await[&email(2)], rd.contact(2).id);
    rd.rig.deliver(&leads(3, 1)).await;
    assert_eq!(rd.rig.pass().await.calls, 0, "a repeat makes no call");
    rd.rig.deliver(&[with(lead(1, 2), json!({"city": null, "clear": ["city"]})), lead(2, 2)]).await;
    assert_eq!(rd.rig.pass().await.calls, 2);
    assert_eq!(rd.contact(1).properties.get("city"), None);
    assert_eq!(rd.contact(2).properties["city"], "City2");
    let last = rd.fake.calls().pop().unwrap();
    assert!(last.path.starts_with("/platform/contacts/uuid:"), "{}", last.path);
    assert_eq!((rd.calls("PATCH"), rd.calls("POST")), (5, 1), "one access token for all");
}

#[tokio::test]
async fn an_expired_token_is_renewed_in_the_same_call() {
    // So that the pause at the end is there to be looked at.
    let patient = Settings { backoff_max: Duration::from_secs(60), ..settings() };
    let rd = Rd::with("", patient).await;
    rd.rig.deliver(&leads(2, 1)).await;
    rd.rig.drain().await;
    rd.fake.rdstation("expire", &json!({})).unwrap();
    rd.rig.deliver(&leads(2, 2)).await;
    let done = rd.rig.pass().await;
    assert_eq!((done.pushed, done.failed, done.calls_failed), (2, 0, 0));
    rd.exactly(2, "City2");
    assert_eq!(rd.calls("POST"), 2);
    let mut options = rd.fake.options();
    options.rdstation.apps[0].revoked = true;
    rd.fake.set_options(options);
    rd.rig.deliver(&leads(2, 3)).await;
    rd.rig.pass().await;
    assert_eq!(rd.rig.paused().await.expect("a pause").0, "credentials");
}

#[tokio::test]
async fn whatever_became_of_the_answer_there_is_one_contact() {
    let quick = Settings { call_timeout: Duration::from_millis(700), ..settings() };
    let rd = Rd::with("", quick).await;
    let faults = [
        Fault::HoldAfter,
        Fault::ResetAfter,
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::CutJson,
        Fault::EmptyBody { status: 200 },
        Fault::Status { status: 500, body: Body::Html, apply: Apply::All, retry_after: None },
        Fault::Status { status: 503, body: Body::Json, apply: Apply::None, retry_after: None },
        Fault::Status { status: 409, body: Body::Json, apply: Apply::None, retry_after: None },
        Fault::Status { status: 423, body: Body::Json, apply: Apply::None, retry_after: Some(0) },
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        for version in [1, 2] {
            rd.rig.deliver(&[lead(at, version)]).await;
            rd.script(fault.clone());
            assert_eq!(rd.rig.worked().await.pushed, 0, "{fault:?}");
            rd.fake.release();
            rd.rig.drain().await;
            assert_eq!(rd.contact(at).properties["city"], format!("City{version}"), "{fault:?}");
        }
    }
    rd.exactly(10, "City2");
}

#[tokio::test]
async fn a_merge_is_followed_and_a_deleted_contact_made_anew_or_left() {
    let rd = Rd::start("").await;
    rd.rig.deliver(&leads(3, 1)).await;
    rd.rig.drain().await;
    let (keep, lose) = (rd.contact(0).id, rd.contact(1).id);
    rd.fake.rdstation("merge", &json!({"keep": keep, "lose": lose})).unwrap();
    rd.fake.rdstation("delete", &json!({"id": rd.contact(2).id})).unwrap();
    rd.rig.deliver(&[lead(1, 2), lead(2, 2)]).await;
    rd.rig.drain().await;
    assert_eq!(rd.contact(0).properties["city"], "City2", "the survivor");
    assert_eq!(rd.rig.column("s.remote_id").await[&email(1)], keep);
    assert_eq!(rd.contact(2).properties["city"], "City2", "anew");
    assert_eq!(rd.contacts().len(), 2);

    let rd = Rd::start("deleted = \"leave\"").await;
    rd.rig.deliver(&leads(2, 1)).await;
    rd.rig.drain().await;
    rd.fake.rdstation("delete", &json!({"id": rd.contact(0).id})).unwrap();
    rd.rig.deliver(&leads(2, 2)).await;
    rd.rig.drain().await;
    assert_eq!(rd.contacts().len(), 1);
    assert_eq!(rd.rig.states().await["parked"], 1);
}

#[tokio::test]
async fn a_bad_value_harms_only_its_lead() {
    let fields = "[destination.fields]\ncity = \"city\"\nattributes.staff = \"cf_employees\"\n\
                  attributes.tier = { to = \"cf_tier\", values = { A = \"gold\" } }\n";
    let odd = |n, attributes| with(lead(n, 1), json!({ "attributes": attributes }));
    let all = [
        odd(0, json!({"staff": "12", "tier": "A"})),
        odd(1, json!({"staff": "a dozen"})),
        odd(2, json!({"tier": "B"})),
    ];
    let rd = Rd::start(fields).await;
    rd.rig.deliver(&all).await;
    rd.rig.drain().await;
    let said = rd.rig.column("s.last_error_code").await;
    assert_eq!(said[&email(1)], "NOT_AN_INTEGER");
    assert_eq!(said[&email(2)], "MUST_BE_VALID_OPTION");
    let properties = rd.contact(0).properties;
    assert_eq!(
        (properties["cf_employees"].as_str(), properties["cf_tier"].as_str()),
        ("12", "gold")
    );
    assert_eq!(rd.contacts().len(), 1);
    assert_eq!(rd.rig.paused().await, None);

    let rd = Rd::start(&format!("on_field_error = \"drop\"\n{fields}")).await;
    rd.rig.deliver(&all).await;
    rd.rig.drain().await;
    rd.exactly(3, "City1");
}

#[tokio::test]
async fn a_contacts_limit_holds_up_nobody_else() {
    let rd = Rd::start("").await;
    let limit = |limit| {
        let mut options = rd.fake.options();
        options.rdstation.contact_limit = limit;
        rd.fake.set_options(options);
    };
    limit(1);
    rd.rig.deliver(&leads(2, 1)).await;
    rd.rig.drain().await;
    rd.rig.deliver(&[lead(0, 2)]).await;
    rd.rig.drain().await;
    rd.rig.deliver(&leads(2, 3)).await;
    rd.rig.pass().await;
    assert_eq!(rd.rig.paused().await, None);
    assert_eq!(rd.contact(1).properties["city"], "City3");
    assert_eq!(rd.contact(0).properties["city"], "City2");
    assert_eq!(rd.rig.column("s.last_error_code").await[&email(0)], "CONTACT_LIMIT");
    limit(24);
    rd.rig.drain().await;
    rd.exactly(2, "City3");
    let mut options = rd.fake.options();
    options.rdstation.account_limit = 0;
    options.rdstation.send_retry_after = true;
    rd.fake.set_options(options);
    rd.rig.deliver(&[lead(0, 4)]).await;
    rd.rig.pass().await;
    let (kind, length) = rd.rig.paused().await.expect("a pause");
    assert_eq!(kind, "slow_down");
    assert!(length <= 61.0, "{length}");
}

#[tokio::test]
async fn leads_through_all_kinds_of_trouble() {
    let rd = Rd::start("concurrency = 3").await;
    let mut options = rd.fake.options();
    options.rates = FaultRates {
        reset_after_apply: 0.08,
        reset_before_apply: 0.05,
        truncated: 0.08,
        error_5xx: 0.08,
        ..FaultRates::default()
    };
    rd.fake.set_options(options);
    for version in 1..=3 {
        rd.rig.deliver(&leads(15, version)).await;
        tokio::join!(rd.rig.drain(), rd.rig.drain());
        rd.exactly(15, &format!("City{version}"));
    }
    assert_eq!(rd.rig.states().await["synced"], 15);
}
