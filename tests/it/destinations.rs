//! Every destination against its stand-in: what it makes of each answer, and that no contact is ever made twice.
//!
//! The suite walks `DESTINATIONS`; a new kind needs a [`Rig`] in [`rig`], and gets all of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::config;
use leadsync::destinations::{
    self, CallError, DESTINATIONS, Destination, DestinationError, Mapped, Outcome, Record, Setup,
};
use leadsync::fake_crm::hubspot::{Token, TokenState};
use leadsync::fake_crm::{Apply, Body, Crm, FakeCrm, Fault, Options, Order, odoo, rdstation};
use leadsync::lead::{Field, Lead};
use leadsync::secret::Secret;
use serde_json::{Value, json};
use uuid::Uuid;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
/// Long enough for a loaded machine, short enough to wait for where a time-out is the point.
const DEADLINE: Duration = Duration::from_millis(1500);

/// How one kind meets its stand-in.
struct Rig {
    kind: &'static str,
    crm: Crm,
    path: &'static str,
}

fn rig(kind: &'static str) -> Rig {
    match kind {
        "hubspot" => Rig { kind, crm: Crm::Hubspot, path: "" },
        "odoo" => Rig { kind, crm: Crm::Odoo, path: "" },
        "rdstation" => Rig { kind, crm: Crm::Rdstation, path: "" },
        "webhook" => Rig { kind, crm: Crm::Webhook, path: "/webhook" },
        new => panic!("give the destination {new} a stand-in in fake_crm and a rig here"),
    }
}

/// One kind at work.
struct Bench {
    rig: Rig,
    fake: FakeCrm,
    to: Arc<dyn Destination>,
}

impl Bench {
    async fn start(rig: Rig) -> Bench {
        let mut options = Options::default();
        options.hubspot.tokens = vec![Token::good("t")];
        options.webhook.secret = Some(SECRET.to_owned());
        options.odoo.users = vec![odoo::User::good("leadsync", "t")];
        options.rdstation.apps = vec![rdstation::App::good("id", "t", "refresh")];
        // So that the same records do for every kind.
        options.odoo.partner_fields.push(odoo::ModelField::text("firstname"));
        options.rdstation.fields.extend(["firstname", "phone"].map(rdstation::ContactField::text));
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        let to = build(&config(rig.kind, &format!("{}{}", fake.url(), rig.path)));
        if ["odoo", "rdstation"].contains(&rig.kind) {
            // Logs in, so that the next call is the one that a fault is meant for.
            to.check(&[]).await.unwrap();
        }
        Bench { rig, fake, to }
    }

    async fn hubspot() -> Bench {
        Bench::start(rig("hubspot")).await
    }

    /// Pushes in calls as large as the destination takes.
    async fn push(&self, records: &[Record]) -> Result<Vec<Outcome>, CallError> {
        let mut outcomes = Vec::new();
        for call in records.chunks(self.to.batch_size()) {
            outcomes.extend(self.to.push(call).await?.value);
        }
        Ok(outcomes)
    }

    async fn push_one(&self, record: &Record) -> Result<Vec<Outcome>, CallError> {
        self.push(std::slice::from_ref(record)).await
    }

    /// Pushes, expects everything written, and gives what was made new where the CRM says so.
    async fn written(&self, records: &[Record]) -> Vec<Option<bool>> {
        let outcomes = self.push(records).await.unwrap();
        assert_eq!(outcomes.len(), records.len(), "one outcome per record");
        outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Written { created, .. } => created,
                other => panic!("{}: {other:?}", self.rig.kind),
            })
            .collect()
    }

    /// Exactly these e-mails, each created once.
    fn exactly(&self, emails: &[&str]) {
        let mut there: Vec<String> =
            self.fake.contacts(self.rig.crm).into_iter().map(|c| c.email).collect();
        there.sort();
        assert_eq!(there, emails, "{}", self.rig.kind);
        let creates = self.fake.creates_per_email(self.rig.crm);
        assert!(creates.values().all(|n| *n == 1), "{}: {creates:?}", self.rig.kind);
        assert_eq!(self.fake.doubles(self.rig.crm), 0);
    }

    fn status(&self, status: u16, body: Body, apply: Apply, retry_after: Option<u64>) {
        self.fake.script(Fault::Status { status, body, apply, retry_after });
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options);
        self.fake.set_options(options);
    }
}

fn config(kind: &str, base_url: &str) -> config::Destination {
    let base_url = Some(base_url.to_owned());
    let mut config = config::Destination { base_url, ..config::Destination::new("crm", kind) };
    match kind {
        "webhook" => config.secret = Some(Secret::new(SECRET)),
        "salesforce" | "zoho" => {
            config.client_id = Some("app".to_owned());
            config.client_secret = Some(Secret::new("s"));
            config.refresh_token = Some(Secret::new("r"));
        }
        "odoo" => {
            config.user = Some("leadsync".to_owned());
            config.database = Some("crm".to_owned());
            config.token = Some(Secret::new("t"));
        }
        "rdstation" => {
            config.client_id = Some("id".to_owned());
            config.client_secret = Some(Secret::new("t"));
            config.refresh_token = Some(Secret::new("refresh"));
        }
        _ => config.token = Some(Secret::new("t")),
    }
    config
}

fn build(config: &config::Destination) -> Arc<dyn Destination> {
    destinations::build(config, &Setup::new(DEADLINE)).unwrap()
}

fn refused(config: &config::Destination) -> DestinationError {
    destinations::build(config, &Setup::new(DEADLINE)).err().expect("this configuration is wrong")
}

/// A lead whose id follows from its e-mail, with its default properties for HubSpot, which a webhook ignores.
fn record(email: &str, properties: &[(&str, Option<&str>)]) -> Record {
    let mut id = [0_u8; 16];
    for (at, byte) in email.bytes().enumerate() {
        id[at % 16] = id[at % 16].wrapping_mul(31).wrapping_add(byte);
    }
    let lead = Lead {
        lead_id: Uuid::from_bytes(id),
        email: email.to_owned(),
        version: 3,
        fields: [(Field::FirstName, Some("Ana".to_owned())), (Field::Phone, None)].into(),
        ..Lead::default()
    };
    let properties =
        properties.iter().map(|(to, value)| ((*to).to_owned(), value.map(str::to_owned))).collect();
    Record { lead: Arc::new(lead), remote_id: None, properties, creating_for: None }
}

fn records(emails: &[&str]) -> Vec<Record> {
    emails.iter().map(|e| record(e, &[("firstname", Some("Ana")), ("phone", None)])).collect()
}

const THREE: [&str; 3] = ["ana@example.com", "bo@example.com", "cy@example.com"];

/// Kinds whose fields are too particular for this suite: they have one of their own, `destinations_KIND.rs`.
const PARTICULAR: [&str; 4] = ["brevo", "pipedrive", "salesforce", "zoho"];

async fn each(test: impl AsyncFn(Bench)) {
    for kind in DESTINATIONS.iter().filter(|kind| !PARTICULAR.contains(&kind.name)) {
        test(Bench::start(rig(kind.name)).await).await;
    }
}

fn unknown(result: &Result<Vec<Outcome>, CallError>) -> bool {
    match result {
        Err(CallError::Unknown { .. }) => true,
        Ok(outcomes) => outcomes.iter().all(|o| matches!(o, Outcome::Unknown { .. })),
        Err(_) => false,
    }
}

#[tokio::test]
async fn create_update_repeat() {
    each(async |bench| {
        let new = bench.written(&records(&THREE)).await;
        assert!(new.iter().all(|n| n.unwrap_or(true)));
        for _ in 0..2 {
            let again = bench.written(&records(&THREE)).await;
            assert!(again.iter().all(|n| !n.unwrap_or(false)));
        }
        bench.written(&records(&["bo@example.com", "dee@example.com"])).await;
        bench.exactly(&["ana@example.com", "bo@example.com", "cy@example.com", "dee@example.com"]);
        assert_eq!(bench.to.push(&[]).await, Ok(Vec::new().into()), "nothing to push is no call");
    })
    .await;
}

#[tokio::test]
async fn written_but_not_told_is_unknown_and_repeats_safely() {
    each(async |bench| {
        for (fault, certain) in [
            (Fault::HoldAfter, false),
            (Fault::ResetAfter, false),
            (Fault::ResetBefore, false),
            (Fault::Truncated, bench.rig.kind == "webhook"),
            (Fault::CutJson, bench.rig.kind == "webhook"),
            (Fault::EmptyBody { status: 200 }, bench.rig.kind == "webhook"),
            (Fault::EmptyBody { status: 204 }, bench.rig.kind == "webhook"),
        ] {
            bench.fake.script(fault.clone());
            let result = bench.push(&records(&["ana@example.com"])).await;
            // A webhook's 2xx is the promise itself, with or without a body.
            assert_eq!(unknown(&result), !certain, "{} {fault:?}: {result:?}", bench.rig.kind);
            if certain {
                let written = Outcome::Written { remote_id: None, created: None };
                assert_eq!(result, Ok(vec![written]));
            }
            bench.fake.release();
            bench.written(&records(&["ana@example.com"])).await;
            bench.exactly(&["ana@example.com"]);
        }
    })
    .await;
}

#[tokio::test]
async fn server_errors_are_unknown_whatever_was_applied() {
    each(async |bench| {
        for (status, body, apply) in [
            (500, Body::Json, Apply::None),
            (502, Body::Html, Apply::Half),
            (503, Body::Empty, Apply::All),
            (504, Body::Json, Apply::All),
            (521, Body::Empty, Apply::Half),
            (524, Body::Html, Apply::None),
        ] {
            bench.status(status, body, apply, None);
            let result = bench.push(&records(&THREE)).await;
            assert!(unknown(&result), "{} {status}: {result:?}", bench.rig.kind);
        }
        bench.status(500, Body::Empty, Apply::None, Some(9));
        let result = bench.push(&records(&THREE)).await;
        let nine = Some(Duration::from_secs(9));
        assert!(matches!(result, Err(CallError::Unknown { after, .. }) if after == nine));
        bench.written(&records(&THREE)).await;
        bench.exactly(&THREE);
    })
    .await;
}

#[tokio::test]
async fn refusals_are_sorted() {
    each(async |bench| {
        let one = record("ana@example.com", &[]);
        let call = async |status, retry_after| {
            bench.status(status, Body::Json, Apply::None, retry_after);
            if (bench.rig.kind, status) == ("rdstation", 401) {
                // The first one only makes it renew its token.
                bench.fake.script(Fault::Pass);
                bench.status(status, Body::Json, Apply::None, retry_after);
            }
            bench.push_one(&one).await
        };
        for status in [401, 403] {
            let result = call(status, None).await;
            assert!(matches!(result, Err(CallError::Credentials { .. })), "{status} {result:?}");
        }
        for status in [301, 302, 307, 404, 410] {
            let result = call(status, None).await;
            assert!(matches!(result, Err(CallError::Misconfigured { .. })), "{status} {result:?}");
        }
        for status in [400, 413, 422] {
            let result = call(status, None).await;
            assert!(matches!(result, Err(CallError::Refused { .. })), "{status} {result:?}");
        }
        let seven = Duration::from_secs(7);
        let result = call(429, Some(7)).await;
        assert!(matches!(result, Err(CallError::SlowDown { after: Some(t), .. }) if t == seven));
        assert_eq!(bench.fake.contacts(bench.rig.crm).len(), 0, "nothing was written");
        bench.written(std::slice::from_ref(&one)).await;
        bench.exactly(&["ana@example.com"]);
    })
    .await;
}

#[tokio::test]
async fn a_crm_that_is_down_is_unreachable() {
    each(async |bench| {
        bench.fake.stop().await;
        let down = bench.push(&records(&THREE)).await;
        assert!(matches!(down, Err(CallError::Unreachable { .. })), "{down:?}");
        bench.fake.resume().await.unwrap();
        bench.written(&records(&THREE)).await;
        bench.exactly(&THREE);
        // A connection that was kept alive and is gone: either noticed before sending, or unknown.
        bench.fake.stop().await;
        bench.fake.resume().await.unwrap();
        let stale = bench.push(&records(&THREE)).await;
        assert!(stale.is_ok() || unknown(&stale), "{stale:?}");
        bench.exactly(&THREE);
    })
    .await;
}

#[tokio::test]
async fn a_failed_tls_handshake_is_unreachable() {
    each(async |bench| {
        let config = config(bench.rig.kind, &bench.fake.url().replace("http:", "https:"));
        match destinations::build(&config, &Setup::new(DEADLINE)) {
            Ok(to) => {
                let result = to.push(&records(&THREE[..1])).await;
                assert!(matches!(result, Err(CallError::Unreachable { .. })), "{result:?}");
                bench.exactly(&[]);
            }
            // A system without root certificates is told so at start.
            Err(refused) => assert!(refused.to_string().contains("ca-certificates"), "{refused}"),
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_secret_or_personal_is_said() {
    each(async |bench| {
        let url = format!("{}{}", bench.fake.url().replace("//", "//user:pw@"), bench.rig.path);
        let to = build(&config(bench.rig.kind, &format!("{url}?token=hush")));
        let one = record("ana@example.com", &[("firstname", Some("Anastasia"))]);
        let mut said = Vec::new();
        for fault in [
            Fault::ResetBefore,
            Fault::Truncated,
            Fault::Status { status: 500, body: Body::Html, apply: Apply::None, retry_after: None },
            Fault::Conflict,
        ] {
            bench.fake.script(fault);
            said.push(format!("{:?}", to.push(std::slice::from_ref(&one)).await));
        }
        bench.fake.stop().await;
        said.push(format!("{:?} {:?}", to.push(&[one]).await, to.check(&[]).await));
        for secret in ["hush", "pw@", "user", "ana@", "Anastasia", SECRET] {
            assert!(said.iter().all(|s| !s.contains(secret)), "{secret} in {said:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn check_writes_nothing() {
    each(async |bench| {
        let defaults = bench.to.default_fields().iter();
        let mapped: Vec<Mapped> = defaults.map(|(value, to)| Mapped::new(*value, *to)).collect();
        let found = bench.to.check(&mapped).await.unwrap();
        assert!(!found.is_empty());
        bench.exactly(&[]);
        for (value, _) in bench.to.default_fields() {
            assert!(Lead::is_value_name(value), "{value}");
        }
    })
    .await;
}

#[tokio::test]
async fn hubspot_lines_up_reordered_results() {
    let bench = Bench::hubspot().await;
    let emails: Vec<String> = (0..100).map(|n| format!("n{n:03}@example.com")).collect();
    let all: Vec<Record> =
        emails.iter().map(|e| record(e, &[("firstname", Some(e.as_str()))])).collect();
    for (echo, order) in [
        (true, Order::Reversed),
        (false, Order::Reversed),
        (true, Order::Shuffled),
        (false, Order::Shuffled),
    ] {
        bench.option(|o| (o.hubspot.echo_trace_ids, o.hubspot.order) = (echo, order));
        let outcomes = bench.push(&all).await.unwrap();
        let contacts = bench.fake.contacts(Crm::Hubspot);
        for (record, outcome) in all.iter().zip(outcomes) {
            let Outcome::Written { remote_id: Some(id), .. } = outcome else {
                panic!("{outcome:?}")
            };
            let contact = contacts.iter().find(|c| c.id == id).unwrap();
            assert_eq!(contact.email, record.lead.email);
        }
    }
    assert_eq!(bench.fake.calls().len(), 4, "a hundred in a call");
    bench.exactly(&emails.iter().map(String::as_str).collect::<Vec<_>>());
}

#[tokio::test]
async fn hubspot_request_is_as_agreed() {
    let bench = Bench::hubspot().await;
    let one = record(
        "ana@example.com",
        &[("lifecyclestage", Some("marketing_qualified_lead")), ("phone", None)],
    );
    bench.written(std::slice::from_ref(&one)).await;
    let call = &bench.fake.calls()[0];
    assert_eq!(call.path, "/crm/v3/objects/contacts/batch/upsert");
    let expected = json!({"inputs": [{
        "id": "ana@example.com", "idProperty": "email", "objectWriteTraceId": one.lead.lead_id,
        "properties": {"lifecyclestage": "marketingqualifiedlead", "phone": "", "email": "ana@example.com"},
    }]});
    assert_eq!(call.json(), expected);
    let agent = call.headers.iter().find(|(n, _)| n == "user-agent").unwrap();
    assert!(agent.1.starts_with("leadsync/"));
}

#[tokio::test]
async fn hubspot_partial_failure_harms_only_the_bad_record() {
    let bench = Bench::hubspot().await;
    let mut batch = records(&["ana@example.com", "bad@localhost", "cy@example.com"]);
    batch.push(record("dee@example.com", &[("annualrevenue", Some("a lot"))]));
    for echo in [true, false] {
        bench.option(|o| o.hubspot.echo_trace_ids = echo);
        let outcomes = bench.push(&batch).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Written { .. }));
        assert!(matches!(outcomes[2], Outcome::Written { .. }));
        let Outcome::Rejected { code, field, message } = &outcomes[1] else {
            panic!("{outcomes:?}")
        };
        assert_eq!((code.as_str(), field.as_deref()), ("INVALID_EMAIL", Some("email")));
        assert_eq!(message, "Email address [value] is invalid");
        let Outcome::Rejected { code, field, .. } = &outcomes[3] else { panic!("{outcomes:?}") };
        assert_eq!((code.as_str(), field.as_deref()), ("INVALID_INTEGER", Some("annualrevenue")));
    }
    bench.exactly(&["ana@example.com", "cy@example.com"]);
    // As if trace ids were not honoured: the caller halves until the culprit stands alone.
    bench.option(|o| o.hubspot.honour_trace_ids = false);
    for wrong in [&batch[..], &batch[1..2]] {
        let Err(CallError::Refused { code, field, .. }) = bench.push(wrong).await else { panic!() };
        assert_eq!((code.as_str(), field.as_deref()), ("INVALID_EMAIL", Some("email")));
    }
    bench.written(&batch[2..3]).await;
    bench.option(|o| {
        o.hubspot.honour_trace_ids = true;
        o.hubspot.required.insert("company".into());
    });
    let outcomes = bench.push(&records(&["new@example.com"])).await.unwrap();
    assert!(
        matches!(&outcomes[0], Outcome::Rejected { code, .. } if code == "MISSING_REQUIRED_PROPERTY")
    );
    bench.exactly(&["ana@example.com", "cy@example.com"]);
}

#[tokio::test]
async fn hubspot_says_nothing_about_a_record() {
    let bench = Bench::hubspot().await;
    bench.fake.script(Fault::EmptyResults);
    let outcomes = bench.push(&records(&THREE)).await;
    assert!(outcomes.is_ok() && unknown(&outcomes), "{outcomes:?}");
    bench.exactly(&[]);
    for written in [false, true] {
        bench.fake.script(Fault::Omit { input: 1, written });
        let outcomes = bench.push(&records(&THREE)).await.unwrap();
        assert!(matches!(outcomes[1], Outcome::Unknown { .. }), "{outcomes:?}");
        assert!(matches!(outcomes[0], Outcome::Written { .. }));
        assert!(matches!(outcomes[2], Outcome::Written { .. }));
    }
    bench.written(&records(&THREE)).await;
    bench.exactly(&THREE);
}

#[tokio::test]
async fn hubspot_races_are_tried_again() {
    let bench = Bench::hubspot().await;
    bench.fake.script(Fault::Conflict);
    let outcomes = bench.push(&records(&THREE)).await.unwrap();
    assert!(
        outcomes.iter().all(|o| matches!(o, Outcome::Retry { code, .. } if code == "CONFLICT"))
    );
    let created = bench.written(&records(&THREE)).await;
    assert_eq!(created, [Some(false), Some(true), Some(true)]);
    bench.exactly(&THREE);
}

#[tokio::test]
async fn hubspot_configuration_errors_stop_everything() {
    let bench = Bench::hubspot().await;
    let wrong =
        [record("ana@example.com", &[("nosuch", Some("x"))]), record("bo@example.com", &[])];
    for all in [false, true] {
        bench.option(|o| o.hubspot.unknown_property_refuses_all = all);
        let Err(CallError::Misconfigured { code, message }) = bench.push(&wrong).await else {
            panic!("an unknown property stops the destination")
        };
        assert_eq!(code, "PROPERTY_DOESNT_EXIST");
        assert!(message.contains("nosuch"), "{message}");
    }
    bench.option(|o| o.hubspot.properties.iter_mut().for_each(|p| p.unique = false));
    let result = bench.push(&records(&THREE)).await;
    assert!(matches!(result, Err(CallError::Misconfigured { .. })), "{result:?}");
    for (state, code) in [
        (TokenState::Expired, "EXPIRED_AUTHENTICATION"),
        (TokenState::Revoked, "INVALID_AUTHENTICATION"),
    ] {
        bench.option(|o| o.hubspot.tokens[0].state = state);
        let result = bench.push(&records(&THREE)).await;
        assert!(
            matches!(&result, Err(CallError::Credentials { code: c, .. }) if c == code),
            "{result:?}"
        );
    }
    bench.option(|o| {
        o.hubspot.tokens[0].state = TokenState::Good;
        o.hubspot.tokens[0].scopes.remove("crm.objects.contacts.write");
    });
    let Err(CallError::Credentials { code, message }) = bench.push(&records(&THREE)).await else {
        panic!("a missing scope stops the destination")
    };
    assert_eq!(code, "MISSING_SCOPES");
    assert!(message.contains("crm.objects.contacts.write"), "{message}");
    assert!(matches!(bench.to.check(&[]).await, Err(CallError::Credentials { .. })));
}

#[tokio::test]
async fn hubspot_limits_say_how_long() {
    let bench = Bench::hubspot().await;
    let pause = async || match bench.push(&records(&THREE)).await {
        Err(CallError::SlowDown { after, .. }) => after.map(|t| t.as_secs()),
        other => panic!("{other:?}"),
    };
    bench.option(|o| {
        o.hubspot.rolling_limit = 0;
        o.hubspot.rolling_window = Duration::from_secs(10);
    });
    assert_eq!(pause().await, Some(10));
    bench.option(|o| {
        o.hubspot.send_retry_after = false;
        o.hubspot.rolling_window = Duration::from_secs(20);
    });
    assert_eq!(pause().await, Some(20), "the window, where Retry-After is missing");
    bench.option(|o| (o.hubspot.rolling_limit, o.hubspot.daily_limit) = (1000, 0));
    assert_eq!(pause().await, Some(3600), "the day's limit is looked at hourly");
    bench.status(423, Body::Json, Apply::None, None);
    assert_eq!(pause().await, Some(2));
    bench.status(477, Body::Json, Apply::None, Some(7200));
    assert_eq!(pause().await, Some(7200));
    bench.status(477, Body::Empty, Apply::None, Some(9_999_999));
    assert_eq!(pause().await, Some(24 * 3600), "no longer than a day");
    bench.exactly(&[]);
}

#[tokio::test]
async fn hubspot_follows_merged_contacts() {
    let bench = Bench::hubspot().await;
    bench.written(&records(&["ana@example.com"])).await;
    bench.fake.renumber("ana@example.com");
    let outcomes = bench.push(&records(&["ana@example.com"])).await.unwrap();
    let moved = Outcome::Written { remote_id: Some("1002".into()), created: Some(false) };
    assert_eq!(outcomes, [moved]);
    // Merged into another contact: our address is a secondary one, and the answer names the other.
    let merged = json!({"properties": {"email": "boss@example.com"}});
    raw(&bench, "/crm/v3/objects/contacts", &merged).await;
    let merge = json!({"primaryObjectId": "1003", "objectIdToMerge": "1002"});
    raw(&bench, "/crm/v3/objects/contacts/merge", &merge).await;
    bench.option(|o| o.hubspot.echo_trace_ids = false);
    let survivor = Outcome::Written { remote_id: Some("1004".into()), created: Some(false) };
    let one = &records(&["ana@example.com"])[0];
    assert_eq!(bench.push_one(one).await, Ok(vec![survivor.clone()]), "the only one asked about");
    let two = [records(&["bo@example.com"])[0].clone(), one.clone()];
    let outcomes = bench.push(&two).await.unwrap();
    assert!(matches!(outcomes[1], Outcome::Unknown { .. }), "{outcomes:?}");
    let known = |id: &str| Record { remote_id: Some(id.into()), ..one.clone() };
    let survivor = Outcome::Written { remote_id: Some("1004".into()), created: None };
    assert_eq!(
        bench.push_one(&known("1004")).await,
        Ok(vec![survivor]),
        "by id, whatever its e-mail"
    );
    assert_eq!(bench.push_one(&known("1002")).await, Ok(vec![Outcome::Gone]));
    bench.option(|o| o.hubspot.secondary_conflicts = true);
    let other = Outcome::Exists { remote_id: "1004".into() };
    assert_eq!(bench.push_one(one).await, Ok(vec![other]));
}

#[tokio::test]
async fn hubspot_knows_a_contact_by_its_id() {
    let bench = Bench::hubspot().await;
    let emails = ["ana@example.com", "bo@example.com", "cy@example.com"];
    bench.written(&records(&emails)).await;
    let mut known = records(&emails);
    for (record, id) in known.iter_mut().zip(["1001", "4711", "1003"]) {
        record.remote_id = Some(id.into());
        record.properties.push(("email".into(), Some("new@example.com".into())));
    }
    bench.option(|o| o.hubspot.echo_trace_ids = false);
    let written = |id: &str| Outcome::Written { remote_id: Some(id.into()), created: None };
    let outcomes = bench.push(&known).await.unwrap();
    assert_eq!(outcomes, [written("1001"), Outcome::Gone, written("1003")]);
    let call = bench.fake.calls().pop().unwrap();
    assert_eq!(call.path, "/crm/v3/objects/contacts/batch/update");
    assert!(!String::from_utf8_lossy(&call.body).contains('@'), "no e-mail is sent by id");
    bench.exactly(&emails);
}

#[tokio::test]
async fn hubspot_contacts_are_found_by_id_and_by_e_mail() {
    let bench = Bench::hubspot().await;
    bench.written(&records(&["ana@example.com", "bo@example.com", "cy@example.com"])).await;
    let by_email = records(&["cy@example.com", "nobody@example.com", "ana@example.com"]);
    let wanted = ["firstname".to_owned(), "phone".to_owned()];
    let found = bench.to.look_up(&by_email, &wanted).await.unwrap().value;
    let ids: Vec<Vec<&str>> =
        found.iter().map(|list| list.iter().map(|r| r.id.as_str()).collect()).collect();
    assert_eq!(ids, [vec!["1003"], vec![], vec!["1001"]]);
    assert_eq!(found[0][0].email.as_deref(), Some("cy@example.com"));
    assert_eq!(found[0][0].properties["firstname"].as_deref(), Some("Ana"));
    assert_eq!(found[0][0].properties["phone"], None);
    // Merged: ana is a secondary address of bo now, and the survivor has a new id.
    let merge = json!({"primaryObjectId": "1002", "objectIdToMerge": "1001"});
    raw(&bench, "/crm/v3/objects/contacts/merge", &merge).await;
    let both = records(&["ana@example.com", "cy@example.com"]);
    let found = bench.to.look_up(&both, &[]).await.unwrap().value;
    assert_eq!((found[0][0].id.as_str(), found[1][0].id.as_str()), ("1004", "1003"));
    let known = |id: &str| vec![Record { remote_id: Some(id.into()), ..both[0].clone() }];
    assert_eq!(bench.to.look_up(&known("1004"), &[]).await.unwrap().value[0].len(), 1);
    assert_eq!(bench.to.look_up(&known("1001"), &[]).await.unwrap().value, [vec![]]);
    assert_eq!(bench.to.look_up(&[], &[]).await, Ok(Vec::new().into()));
}

#[tokio::test]
async fn hubspot_lists_every_contact_page_by_page() {
    let bench = Bench::hubspot().await;
    let emails: Vec<String> = (0..205).map(|n| format!("n{n:03}@example.com")).collect();
    let emails: Vec<&str> = emails.iter().map(String::as_str).collect();
    let stage = [("lifecyclestage", Some("marketing_qualified_lead"))];
    let all: Vec<Record> = emails.iter().map(|email| record(email, &stage)).collect();
    bench.written(&all).await;
    let (mut cursor, mut listed, mut sizes) = (None::<String>, Vec::new(), Vec::new());
    loop {
        let wanted = ["lifecyclestage".to_owned()];
        let page = bench.to.list(cursor.as_deref(), &wanted).await.unwrap().value;
        sizes.push(page.contacts.len());
        listed.extend(page.contacts);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [100, 100, 5]);
    let there: Vec<&str> = listed.iter().filter_map(|r| r.email.as_deref()).collect();
    assert_eq!(there, emails);
    let ours = Some("marketing_qualified_lead");
    assert!(listed.iter().all(|r| r.properties["lifecyclestage"].as_deref() == ours), "our word");
}

/// A request from beside the product, with the product's own client left out of it.
async fn raw(bench: &Bench, path: &str, body: &Value) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(bench.fake.addr()).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer t\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
}

#[tokio::test]
async fn hubspot_check_says_what_to_do() {
    let bench = Bench::hubspot().await;
    let check = async |property: &str| bench.to.check(&[Mapped::new("first_name", property)]).await;
    let Err(CallError::Misconfigured { code, message }) = check("frstname").await else { panic!() };
    assert_eq!(code, "PROPERTY_DOESNT_EXIST");
    assert!(message.contains("did you mean \"firstname\"?"), "{message}");
    let Err(CallError::Misconfigured { code, .. }) = check("createdate").await else { panic!() };
    assert_eq!(code, "READ_ONLY_VALUE");
    bench.option(|o| {
        o.hubspot.tokens[0].scopes.remove("crm.schemas.contacts.read");
    });
    let Err(CallError::Credentials { message, .. }) = check("firstname").await else { panic!() };
    assert!(message.contains("crm.schemas.contacts.read"), "{message}");
    bench.option(|o| o.hubspot.tokens.clear());
    bench.fake.script(Fault::Truncated);
    assert!(matches!(check("firstname").await, Err(CallError::Unknown { .. })));
}

#[tokio::test]
async fn webhook_body_and_headers() {
    let bench = Bench::start(rig("webhook")).await;
    let mut one = record("ana@example.com", &[]);
    let lead = Arc::make_mut(&mut one.lead);
    lead.marketing_consent = Some(true);
    lead.tags = ["b".to_owned(), "a".to_owned()].into();
    lead.attributes =
        [("budget".to_owned(), Some("10.50".to_owned())), ("gone".to_owned(), None)].into();
    lead.first_touch.utm_source = Some("ads".to_owned());
    lead.first_seen_at = Some(1_764_482_400_000_000);
    for _ in 0..2 {
        bench.written(std::slice::from_ref(&one)).await;
    }
    let calls = bench.fake.calls();
    let header = |call: usize, name: &str| {
        calls[call].headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap()
    };
    let id = format!("msg_{}_3", one.lead.lead_id);
    assert_eq!([header(0, "webhook-id"), header(1, "webhook-id")], [id.clone(), id], "stable");
    let body = calls[0].json();
    assert_eq!(body["type"], "lead.upserted");
    assert!(body["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    let expected = json!({
        "lead_id": one.lead.lead_id, "email": "ana@example.com", "version": 3, "first_name": "Ana",
        "phone": null, "marketing_consent": true, "tags": ["a", "b"],
        "attributes": {"budget": "10.50", "gone": null}, "utm_source": "ads",
        "first_seen_at": "2025-11-30T06:00:00Z",
    });
    assert_eq!(body["data"], expected);
    let mut config = config("webhook", &format!("{}/webhook", bench.fake.url()));
    config.fields.insert("first_name".into(), config::Property::Name("given".into()));
    let chosen = record("ana@example.com", &[("given", Some("Ana"))]);
    build(&config).push(&[chosen]).await.unwrap();
    let data = bench.fake.calls()[2].json()["data"].clone();
    assert_eq!(
        data,
        json!({"lead_id": one.lead.lead_id, "email": "ana@example.com", "version": 3, "given": "Ana"})
    );
}

#[tokio::test]
async fn webhook_answers_of_its_own() {
    let bench = Bench::start(rig("webhook")).await;
    let one = record("ana@example.com", &[]);
    for status in [408, 425, 429] {
        bench.status(status, Body::Empty, Apply::None, None);
        let result = bench.push_one(&one).await;
        assert!(matches!(result, Err(CallError::SlowDown { after: None, .. })), "{result:?}");
    }
    bench.status(503, Body::Empty, Apply::None, Some(3));
    let result = bench.push_one(&one).await;
    assert!(matches!(result, Err(CallError::SlowDown { after: Some(_), .. })), "{result:?}");
    // One bad lead: the others go through.
    let batch = records(&THREE);
    bench.written(&batch[..1]).await;
    bench.status(422, Body::Json, Apply::None, None);
    assert!(matches!(bench.push(&batch[1..2]).await, Err(CallError::Refused { .. })));
    bench.written(&batch[2..]).await;
    bench.exactly(&["ana@example.com", "cy@example.com"]);
    assert!(matches!(bench.to.push(&batch).await, Err(CallError::Refused { .. })), "one per call");
    bench.option(|o| {
        o.webhook.secret = Some("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=".into())
    });
    let result = bench.push_one(&one).await;
    assert!(matches!(result, Err(CallError::Credentials { .. })), "{result:?}");
}

#[test]
fn wrong_configuration_is_refused_by_name() {
    let stray = config::Destination {
        client_id: Some("x".into()),
        ..config("hubspot", "http://127.0.0.1:9")
    };
    assert_eq!(refused(&stray).key(), "client_id");
    assert!(refused(&stray).to_string().contains("it reads token"), "{}", refused(&stray));
    let mut unread = config("webhook", "http://127.0.0.1:9");
    let write = config::Write::IfBlank;
    let full = config::FullProperty { to: "phone".into(), write, values: BTreeMap::new() };
    unread.fields.insert("phone".into(), config::Property::Full(full));
    assert!(refused(&unread).to_string().contains("cannot be read"), "{}", refused(&unread));
    let base = |kind| config(kind, "https://example.com/x");
    let said = |config: &config::Destination| refused(config).to_string();
    assert!(said(&base("hubspt")).contains("did you mean \"hubspot\"?"));
    let kinds: Vec<&str> = DESTINATIONS.iter().map(|kind| kind.name).collect();
    assert!(said(&base("zzz")).contains(&format!("valid are {}", kinds.join(", "))));
    let without = |kind, change: fn(&mut config::Destination)| {
        let mut config = base(kind);
        change(&mut config);
        said(&config)
    };
    assert!(without("hubspot", |c| c.token = None).contains("`token` is missing"));
    assert!(without("hubspot", |c| c.token = Some(Secret::new("a\nb"))).contains("`token`"));
    assert!(without("webhook", |c| c.secret = None).contains("`secret` is missing"));
    assert!(without("webhook", |c| c.base_url = None).contains("`base_url` is missing"));
    for secret in ["whsec_", "whsec_!!", "whsec_QUJD"] {
        let mut config = base("webhook");
        config.secret = Some(Secret::new(secret));
        assert!(
            matches!(refused(&config), DestinationError::Invalid { key: "secret", .. }),
            "{secret}"
        );
    }
    for url in ["ftp://example.com", "example.com", "", "file:///etc/passwd", "https://"] {
        for kind in DESTINATIONS {
            let error = refused(&config(kind.name, url));
            assert!(
                matches!(error, DestinationError::Invalid { key: "base_url", .. }),
                "{url}: {error}"
            );
        }
    }
    let field = |kind, fields: &[(&str, &str)]| {
        let mut config = base(kind);
        for (value, to) in fields {
            config.fields.insert((*value).into(), config::Property::Name((*to).into()));
        }
        said(&config)
    };
    assert!(field("hubspot", &[("fist_name", "x")]).contains("did you mean \"first_name\"?"));
    assert!(field("hubspot", &[("utm_sorce", "x")]).contains("did you mean \"utm_source\"?"));
    assert!(field("hubspot", &[("attributes.", "x")]).contains("attributes."));
    assert!(field("hubspot", &[("phone", " ")]).contains("needs a property for phone"));
    assert!(field("webhook", &[("city", "x"), ("region", "x")]).contains("both city and region"));
    assert!(field("hubspot", &[("full_name", "email")]).contains("the key"));
    assert!(field("webhook", &[("full_name", "lead_id")]).contains("always sent"));
}
