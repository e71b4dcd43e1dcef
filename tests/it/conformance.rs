//! One list of scenarios, played by every kind of destination against its stand-in: whatever goes wrong, at rest each
//! lead has exactly one contact that equals the table.
//!
//! A new kind: a file in `conformance/` that describes it, and a line in [`KINDS`]. What a kind cannot play it says in
//! its `lacks`, with the reason; everything else it must.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leadsync::app::Roles;
use leadsync::destinations::{DESTINATIONS, Destination, Mapped};
use leadsync::fake_crm::{self, Contact, Crm, FakeCrm, Fault, Options, Scripted};
use leadsync::sync::Settings;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::TestApp;
use crate::support::db::TestDb;
use crate::sync::{Rig, email, settings};

mod brevo;
mod faults;
mod hubspot;
mod identity;
mod keyless;
mod odoo;
mod pipedrive;
mod rdstation;
mod rules;
mod salesforce;
mod webhook;
mod zoho;

/// Everybody who plays.
const KINDS: &[&Kind] = &[
    &brevo::KIND,
    &hubspot::KIND,
    &keyless::KIND,
    &odoo::KIND,
    &pipedrive::KIND,
    &rdstation::KIND,
    &salesforce::KIND,
    &webhook::KIND,
    &zoho::KIND,
];

/// A destination of the tests, for a base URL and a deadline, with its mapping.
type Instead = fn(&str, Duration) -> (Arc<dyn Destination>, Vec<Mapped>);

/// Members of a lead that the CRM refuses, and the same in good.
type Poison = (fn() -> Value, fn() -> Value);

/// What the scenarios have to know of a kind.
pub struct Kind {
    /// As in `DESTINATIONS`.
    name: &'static str,
    /// Where its contacts are.
    crm: Crm,
    /// `[[destination]]` named "crm" with `first_name` and `city` mapped, without `name`, given the stand-in's URL.
    config: fn(&str) -> String,
    /// A destination that is not in `DESTINATIONS`, with its mapping; `config` is of any kind then.
    instead: Option<Instead>,
    /// How the stand-in is to behave.
    options: fn(&mut Options),
    /// New contacts are found by the stand-in's search only after so long.
    search_lag: Option<fn(&mut Options, Duration)>,
    /// Property of the stand-in's contact that holds the lead's city.
    city: &'static str,
    /// What stands there after a clear; `None`: nothing at all.
    cleared: Option<&'static str>,
    /// How paths of calls that write begin, with their methods where others have the same.
    writes: &'static str,
    /// Members of a lead that the CRM refuses for their own sake, and the same in good.
    poison: Option<Poison>,
    /// Header of requests from beside the product.
    auth: (&'static str, &'static str),
    /// Somebody makes a contact with this e-mail and this city.
    make: Option<fn(&str, &str) -> Request>,
    /// Somebody deletes the contact with this id.
    delete: Option<fn(&str) -> Request>,
    /// Somebody merges: the id that stays, the id that goes.
    merge: Option<fn(&str, &str) -> Request>,
    /// Scenarios that it cannot play, and why.
    lacks: &'static [(&'static str, &'static str)],
}

/// A request from beside the product.
pub struct Request {
    method: Method,
    path: String,
    body: Value,
}

/// A kind at work on a database of its own.
pub struct Bed {
    kind: &'static Kind,
    rig: Rig,
}

/// How long a look-up must stay empty after an unknown outcome, where that plays a part. Kinds without a key say so in
/// their configuration.
pub const GRACE: Duration = Duration::from_millis(900);

impl Bed {
    async fn of(kind: &'static Kind) -> Bed {
        Bed::with(kind, settings(), "").await
    }

    /// With other timings and further settings of the destination.
    async fn with(kind: &'static Kind, settings: Settings, more: &str) -> Bed {
        let mut options = Options::default();
        (kind.options)(&mut options);
        let crm = Arc::new(FakeCrm::on_free_port(options).await.expect("stand-in"));
        let config = (kind.config)(&crm.url());
        // Settings of the destination stand before its tables.
        let config = match config.split_once("[destination.") {
            Some((head, tables)) => format!("{head}{more}\n[destination.{tables}"),
            None => format!("{config}\n{more}\n"),
        };
        let text = config.replacen("[[destination]]", "[[destination]]\nname = \"crm\"", 1);
        let db = Arc::new(TestDb::new().await);
        let roles = Roles { receive: true, sync: false };
        let app = TestApp::start_on(db, crm, &text, roles).await;
        let mut rig = Rig::on(app, "crm", settings).await;
        if let Some(instead) = kind.instead {
            let (destination, fields) = instead(&rig.app.crm.url(), rig.settings.call_timeout);
            (rig.destination.destination, rig.destination.fields) = (destination, fields);
        }
        Bed { kind, rig }
    }

    fn crm(&self) -> &FakeCrm {
        &self.rig.app.crm
    }

    /// Queues a fault for the next call that writes.
    fn strikes(&self, fault: Fault) {
        self.crm().script(Scripted { path: Some(self.kind.writes.to_owned()), fault });
    }

    /// Somebody does something at the CRM.
    async fn somebody(&self, request: Request) {
        let url = format!("{}{}", self.crm().url(), request.path);
        let (name, value) = self.kind.auth;
        let http = &self.rig.app.http;
        let answer = http.request(request.method, url).header(name, value).json(&request.body);
        let answer = answer.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{}: {}", self.kind.name, answer.status());
    }

    /// Contacts that are not in the bin.
    fn there(&self) -> Vec<Contact> {
        self.crm().contacts(self.kind.crm).into_iter().filter(|c| !c.archived).collect()
    }

    fn contact(&self, n: usize) -> Contact {
        let found = self.there().into_iter().find(|c| c.email == email(n));
        found.unwrap_or_else(|| panic!("{}: {} is not there", self.kind.name, email(n)))
    }

    fn city(&self, n: usize) -> Option<String> {
        self.contact(n).properties.get(self.kind.city).cloned()
    }

    async fn remote_id(&self, n: usize) -> String {
        self.rig.column("s.remote_id").await[&email(n)].clone()
    }

    /// Exactly one contact of each of these leads, made once, all in sync, with the city of this version.
    #[track_caller]
    fn exactly(
        &self,
        leads: impl IntoIterator<Item = usize>,
        version: usize,
    ) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let leads: BTreeSet<String> = leads.into_iter().map(email).collect();
        async move {
            let name = self.kind.name;
            let contacts = self.there();
            let emails: Vec<&str> = contacts.iter().map(|c| c.email.as_str()).collect();
            let wanted: Vec<&str> = leads.iter().map(String::as_str).collect();
            let mut sorted = emails.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, wanted, "{name}: one contact each, from {place}");
            for contact in &contacts {
                let city = contact.properties.get(self.kind.city).map(String::as_str);
                assert_eq!(city, Some(&*format!("City{version}")), "{name}: {contact:?}, {place}");
            }
            let creates = self.crm().creates_per_email(self.kind.crm);
            assert!(creates.values().all(|n| *n == 1), "{name}: {creates:?}, from {place}");
            for (email, row) in self.rig.column(CLEAN).await {
                assert!(!leads.contains(&email) || row == "clean", "{name}: {row}, from {place}");
            }
        }
    }
}

/// `clean`, or the row that is not.
const CLEAN: &str = "case when s.state = 'synced' and s.confirmed_version = s.wanted_version
    and s.attempts = 0 and s.last_error_kind is null and s.lease_until is null and s.lease_holder is null
    and s.confirm_after is null and s.creating_since is null then 'clean' else to_jsonb(s)::text end";

/// Plays a scenario with every kind that can.
async fn play(scenario: &str, play: impl AsyncFn(&'static Kind)) {
    let mut played = 0;
    for kind in KINDS {
        if kind.lacks.iter().any(|(lacked, _)| *lacked == scenario) {
            continue;
        }
        // The name of the kind in the output of a test that fails inside.
        println!("{scenario}: {}", kind.name);
        play(kind).await;
        played += 1;
    }
    assert!(played > 0, "nobody plays {scenario}");
}

/// Makes a test of each scenario, and a list of their names.
macro_rules! scenarios {
    ($($room:ident: $($name:ident),+;)+) => {
        const SCENARIOS: &[&str] = &[$($(stringify!($name)),+),+];

        $($(
            #[tokio::test]
            async fn $name() {
                play(stringify!($name), async |kind| $room::$name(kind).await).await;
            }
        )+)+
    };
}

scenarios! {
    rules: create_update_and_repeat, clear, many_at_once, two_instances, the_bad_one_alone;
    faults: credentials, slow_down, server_errors, broken_answers, applied_then_timed_out,
        results_in_another_order, an_answer_that_forgets_one, down_and_back, many_faults_in_a_row;
    identity: made_by_somebody_else, search_lag, deleted_and_made_anew, deleted_and_left, merged,
        several_match, somebody_was_faster;
}

#[test]
fn every_kind_plays() {
    for kind in DESTINATIONS {
        let plays = KINDS.iter().any(|k| k.name == kind.name && k.instead.is_none());
        assert!(plays, "describe the destination {} in tests/it/conformance/", kind.name);
    }
    for kind in KINDS {
        for (scenario, why) in kind.lacks {
            assert!(SCENARIOS.contains(scenario), "{}: there is no {scenario}", kind.name);
            assert!(why.len() > 10, "{}: say why it lacks {scenario}", kind.name);
        }
    }
}

/// A lead in its `version`-th state, with members that the kind refuses or takes.
fn spoilt(n: usize, version: usize, members: Value) -> Value {
    crate::sync::with(crate::sync::lead(n, version), members)
}

/// Shorthand for descriptions of kinds.
fn request(method: Method, path: impl Into<String>, body: Value) -> Request {
    Request { method, path: path.into(), body }
}

/// A status with the envelope of the CRM, nothing done.
fn status(status: u16) -> Fault {
    Fault::Status {
        status,
        body: fake_crm::Body::Json,
        apply: fake_crm::Apply::None,
        retry_after: None,
    }
}

/// The clear of a city, later than any version.
fn cleared(n: usize) -> Value {
    json!({"email": email(n), "occurred_at": "2020-02-01T00:00:00Z", "clear": ["city"]})
}
