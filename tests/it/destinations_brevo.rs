//! The destination brevo against its stand-in: what it sends, and what it makes of each answer.

use std::sync::Arc;
use std::time::Duration;

use leadsync::config;
use leadsync::destinations::{
    self, CallError, Destination, DestinationError, Key, Mapped, Outcome, Record, Remote, Setup,
};
use leadsync::fake_crm::{Act, Apply, Body, Crm, FakeCrm, Fault, Options, Scripted};
use leadsync::lead::{Field, Lead};
use leadsync::secret::Secret;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::openapi::{Spec, all_right};

mod through_sync;

const DEADLINE: Duration = Duration::from_millis(1500);

struct Bench {
    fake: FakeCrm,
    to: Arc<dyn Destination>,
}

impl Bench {
    async fn new() -> Bench {
        Bench::with(|_| {}).await
    }

    async fn with(config: impl FnOnce(&mut config::Destination)) -> Bench {
        let mut options = Options::default();
        options.brevo.keys = vec!["k".to_owned()];
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        let mut settings = settings(&fake.url());
        config(&mut settings);
        let to = build(&settings).unwrap();
        Bench { fake, to }
    }

    async fn keyed() -> Bench {
        Bench::with(|c| c.key_property = Some("ext_id".to_owned())).await
    }

    async fn push(&self, record: &Record) -> Result<Outcome, CallError> {
        let reply = self.to.push(std::slice::from_ref(record)).await?;
        let [outcome] = <[Outcome; 1]>::try_from(reply.value).expect("one outcome per record");
        Ok(outcome)
    }

    /// Pushes; the id, and whether it was made new.
    async fn written(&self, record: &Record) -> (String, bool) {
        match self.push(record).await {
            Ok(Outcome::Written { remote_id: Some(id), created: Some(new) }) => (id, new),
            other => panic!("{other:?}"),
        }
    }

    async fn found(&self, record: &Record, properties: &[&str]) -> Vec<Remote> {
        let properties: Vec<String> = properties.iter().map(|p| (*p).to_owned()).collect();
        let found = self.to.look_up(std::slice::from_ref(record), &properties).await.unwrap().value;
        let [found] = <[Vec<Remote>; 1]>::try_from(found).expect("one list per record");
        found
    }

    /// Method, path and body of the writes so far.
    fn writes(&self) -> Vec<(String, Value)> {
        let calls = self.fake.calls().into_iter().filter(|c| c.method != "GET");
        calls.map(|c| (format!("{} {}", c.method, c.path), c.json())).collect()
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options);
        self.fake.set_options(options);
    }

    fn script(&self, path: &str, fault: Fault) {
        self.fake.script(Scripted { path: Some(path.to_owned()), fault });
    }

    fn once(&self, email: &str) {
        let creates = self.fake.creates_per_email(Crm::Brevo);
        assert_eq!(creates.get(email), Some(&1), "{creates:?}");
        assert_eq!(self.fake.doubles(Crm::Brevo), 0);
    }
}

fn settings(base_url: &str) -> config::Destination {
    let mut config = config::Destination::new("crm", "brevo");
    config.token = Some(Secret::new("k"));
    config.base_url = Some(base_url.to_owned());
    config
}

fn build(config: &config::Destination) -> Result<Arc<dyn Destination>, DestinationError> {
    destinations::build(config, &Setup::new(DEADLINE))
}

/// A lead whose id follows from its e-mail.
fn record(email: &str, properties: &[(&str, Option<&str>)]) -> Record {
    let mut id = [0_u8; 16];
    for (at, byte) in email.bytes().enumerate() {
        id[at % 16] = id[at % 16].wrapping_mul(31).wrapping_add(byte);
    }
    let lead = Lead {
        lead_id: Uuid::from_bytes(id),
        email: email.to_owned(),
        version: 3,
        fields: [(Field::FirstName, Some("Ana".to_owned()))].into(),
        ..Lead::default()
    };
    let properties =
        properties.iter().map(|(to, value)| ((*to).to_owned(), value.map(str::to_owned))).collect();
    Record { lead: Arc::new(lead), remote_id: None, properties, creating_for: None }
}

fn known(record: &Record, id: &str) -> Record {
    Record { remote_id: Some(id.to_owned()), ..record.clone() }
}

#[tokio::test]
async fn a_contact_is_made_by_address_and_changed_by_id() {
    let bench = Bench::new().await;
    assert_eq!(bench.to.key(), Key::Enforced);
    let one = record(
        "ana+a@example.com",
        &[
            ("BUDGET", Some("10.5")),
            ("CONSENT", Some("true")),
            ("FIRSTNAME", Some("Ana")),
            ("LEAD_TAGS", Some("vip;demo")),
            ("TIER", Some("gold")),
            ("lastname", None),
        ],
    );
    assert_eq!(bench.written(&one).await, ("21".to_owned(), true));
    let attributes = json!({
        "BUDGET": 10.5, "CONSENT": true, "FIRSTNAME": "Ana", "LEAD_TAGS": ["vip", "demo"], "TIER": 1,
        "LASTNAME": "",
    });
    let body =
        json!({"email": "ana+a@example.com", "attributes": attributes, "updateEnabled": true});
    assert_eq!(bench.writes(), [("POST /v3/contacts".to_owned(), body)]);
    let moved = [("email".to_owned(), "private@example.com".to_owned())].into();
    bench.fake.behind(Crm::Brevo, Act::Change { id: "21".to_owned(), properties: moved }).unwrap();
    let next = known(&record("ana+a@example.com", &[("FIRSTNAME", None)]), "21");
    assert_eq!(bench.written(&next).await, ("21".to_owned(), false));
    let by_id = (
        "PUT /v3/contacts/21?identifierType=contact_id".to_owned(),
        json!({"attributes": {"FIRSTNAME": ""}}),
    );
    assert_eq!(bench.writes()[1], by_id, "without the address");
    let contacts = bench.fake.contacts(Crm::Brevo);
    assert_eq!((contacts.len(), contacts[0].email.as_str()), (1, "private@example.com"));
    assert!(!contacts[0].properties.contains_key("FIRSTNAME"), "cleared");
    assert_eq!(bench.to.push(&[]).await.unwrap().value, []);
}

#[tokio::test]
async fn a_contact_that_was_there_tells_its_id_once() {
    let bench = Bench::new().await;
    let made = Act::Create { email: "ana@example.com".to_owned(), properties: Default::default() };
    bench.fake.behind(Crm::Brevo, made).unwrap();
    let one = record("ana@example.com", &[("FIRSTNAME", Some("Ana"))]);
    assert_eq!(bench.written(&one).await, ("21".to_owned(), false));
    // Not being told is no failure.
    bench.script("GET /v3/contacts/", Fault::ResetBefore);
    let untold = Outcome::Written { remote_id: None, created: Some(false) };
    assert_eq!(bench.push(&one).await, Ok(untold));
    bench.once("ana@example.com");
}

#[tokio::test]
async fn written_but_not_told_is_unknown_and_repeats_safely() {
    let bench = Bench::new().await;
    bench.written(&record("first@example.com", &[])).await;
    for (n, fault) in [
        Fault::HoldAfter,
        Fault::ResetAfter,
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::CutJson,
        Fault::EmptyBody { status: 200 },
        Fault::EmptyResults,
        Fault::Status { status: 500, body: Body::Json, apply: Apply::All, retry_after: None },
        Fault::Status { status: 502, body: Body::Html, apply: Apply::None, retry_after: None },
        Fault::Status { status: 504, body: Body::Empty, apply: Apply::All, retry_after: None },
    ]
    .into_iter()
    .enumerate()
    {
        let email = format!("n{n}@example.com");
        let one = record(&email, &[("FIRSTNAME", Some("Ana"))]);
        bench.script("POST /v3/contacts", fault.clone());
        let result = bench.push(&one).await;
        assert!(matches!(result, Err(CallError::Unknown { .. })), "{fault:?}: {result:?}");
        bench.fake.release();
        bench.written(&one).await;
        bench.once(&email);
    }
    // A 204 is the promise itself.
    let one = record("n1@example.com", &[]);
    bench.script("POST /v3/contacts", Fault::EmptyBody { status: 204 });
    assert!(!bench.written(&one).await.1);
    bench.fake.stop().await;
    let down = bench.push(&one).await;
    assert!(matches!(down, Err(CallError::Unreachable { .. })), "{down:?}");
}

#[tokio::test]
async fn a_race_is_tried_again_and_a_taken_key_is_the_records_fault() {
    for code in ["duplicate_parameter", "invalid_parameter"] {
        let bench = Bench::keyed().await;
        bench.option(|o| o.brevo.duplicate_code = code.to_owned());
        let one = record("ana@example.com", &[("SMS", Some("+5511912345678"))]);
        bench.script("POST /v3/contacts", Fault::Conflict);
        let lost = bench.push(&one).await;
        assert!(matches!(&lost, Ok(Outcome::Retry { code: c, .. }) if c == code), "{lost:?}");
        bench.written(&one).await;
        bench.once("ana@example.com");
        let two =
            record("bo@example.com", &[("FIRSTNAME", Some("Bo")), ("sms", Some("+5511912345678"))]);
        match bench.push(&two).await {
            Ok(Outcome::Rejected { field, message, .. }) => {
                assert_eq!(field.as_deref(), Some("sms"), "as it is mapped");
                assert!(!message.contains("5511912345678"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        // The lead's contact was given another address: the lead id still names it.
        let moved = [("email".to_owned(), "private@example.com".to_owned())].into();
        let id = "21".to_owned();
        bench.fake.behind(Crm::Brevo, Act::Change { id, properties: moved }).unwrap();
        let exists = Outcome::Exists { remote_id: "21".to_owned() };
        assert_eq!(bench.push(&one).await, Ok(exists), "{code}");
        let contacts = bench.fake.contacts(Crm::Brevo);
        assert_eq!((contacts.len(), &*contacts[0].email), (1, "private@example.com"));
        assert!(bench.writes().iter().all(|(_, body)| body.get("forceMerge").is_none()));
    }
}

#[tokio::test]
async fn a_contact_that_is_gone_is_told() {
    let bench = Bench::keyed().await;
    let one = record("ana@example.com", &[("FIRSTNAME", Some("Ana"))]);
    let (id, _) = bench.written(&one).await;
    bench.fake.behind(Crm::Brevo, Act::Delete { id: id.clone() }).unwrap();
    assert_eq!(bench.push(&known(&one, &id)).await, Ok(Outcome::Gone));
    assert_eq!(bench.found(&known(&one, &id), &[]).await, []);
    let (anew, new) = bench.written(&one).await;
    assert!(new && anew != id);
    assert_eq!(bench.push(&known(&one, "odd/../id")).await, Ok(Outcome::Gone));
}

#[tokio::test]
async fn refusals_are_sorted() {
    let bench = Bench::new().await;
    bench.written(&record("first@example.com", &[])).await;
    let one = record("ana@example.com", &[("SMS", Some("+5511912345678"))]);
    let call = async |status, body, retry_after| {
        let fault = Fault::Status { status, body, apply: Apply::None, retry_after };
        bench.script("POST /v3/contacts", fault);
        bench.push(&one).await
    };
    for status in [401, 402, 403] {
        let result = call(status, Body::Json, None).await;
        assert!(matches!(result, Err(CallError::Credentials { .. })), "{status} {result:?}");
    }
    for status in [301, 404, 405, 410] {
        let result = call(status, Body::Json, None).await;
        assert!(matches!(result, Err(CallError::Misconfigured { .. })), "{status} {result:?}");
    }
    for status in [400, 413, 422, 418] {
        let result = call(status, Body::Json, None).await;
        assert!(matches!(result, Err(CallError::Refused { .. })), "{status} {result:?}");
    }
    assert!(matches!(call(408, Body::Empty, None).await, Err(CallError::Unknown { .. })));
    assert!(matches!(call(409, Body::Empty, None).await, Ok(Outcome::Retry { .. })));
    let pause = async |status, said| match call(status, Body::Json, said).await {
        Err(CallError::SlowDown { after, .. }) => after.map(|a| a.as_secs()),
        other => panic!("{status}: {other:?}"),
    };
    assert_eq!(pause(429, Some(7)).await, Some(7));
    assert_eq!(pause(429, None).await, None);
    assert_eq!(pause(425, None).await, Some(60));
    assert_eq!(pause(423, None).await, None);
    let odd = record("ana@example.com", &[("SMS", Some("(11) 91234-5678"))]);
    match bench.push(&odd).await {
        Err(CallError::Refused { code, field, .. }) => {
            assert_eq!((code.as_str(), field.as_deref()), ("invalid_parameter", Some("SMS")));
        }
        other => panic!("{other:?}"),
    }
    bench.option(|o| o.brevo.address_refused = true);
    let refused = bench.push(&one).await.unwrap_err().to_string();
    assert!(refused.contains("Authorised IPs"), "{refused}");
    assert!(!refused.contains("203.0.113.7"), "{refused}");
    bench.option(|o| (o.brevo.address_refused, o.brevo.permission_denied) = (false, true));
    assert!(matches!(bench.push(&one).await, Err(CallError::Credentials { .. })));
    assert_eq!(bench.fake.contacts(Crm::Brevo).len(), 1, "nothing was written");
}

#[tokio::test]
async fn limits_are_told_and_met() {
    let bench = Bench::new().await;
    bench.option(|o| {
        o.brevo.per_second = 4;
        o.brevo.second = Duration::from_secs(40);
    });
    let one = record("ana@example.com", &[]);
    let reply = bench.to.push(std::slice::from_ref(&one)).await.unwrap();
    let limit = reply.limits[0];
    assert_eq!((limit.allowed, limit.remaining), (Some(4), 2), "the attributes were read, too");
    bench.push(&known(&one, "21")).await.unwrap();
    bench.push(&known(&one, "21")).await.unwrap();
    let Err(CallError::SlowDown { after: Some(after), .. }) = bench.push(&known(&one, "21")).await
    else {
        panic!("slowed down")
    };
    assert!((30..=40).contains(&after.as_secs()), "{after:?}");
    bench.option(|o| (o.brevo.per_second, o.brevo.per_hour) = (1000, 1));
    let hour = bench.push(&known(&one, "21")).await;
    let wait = Some(Duration::from_secs(1800));
    assert!(matches!(hour, Err(CallError::SlowDown { after, .. }) if after == wait), "{hour:?}");
}

#[tokio::test]
async fn a_value_that_brevo_would_drop_is_told() {
    let bench = Bench::new().await;
    for (property, value) in
        [("BUDGET", "10k"), ("TIER", "Bronze"), ("FIRST_SEEN", "30.11.2026"), ("LEAD_TAGS", "x")]
    {
        match bench.push(&record("ana@example.com", &[(property, Some(value))])).await {
            Ok(Outcome::Rejected { code, field, message }) => {
                assert_eq!((code.as_str(), field.as_deref()), ("INVALID_VALUE", Some(property)));
                assert!(!message.contains(value), "{message}");
            }
            other => panic!("{property}: {other:?}"),
        }
    }
    let unknown = bench.push(&record("ana@example.com", &[("FIRST_NAME", Some("Ana"))])).await;
    let Err(CallError::Misconfigured { code, message }) = unknown else { panic!("{unknown:?}") };
    assert_eq!(code, "PROPERTY_DOESNT_EXIST");
    assert!(message.contains("did you mean \"FIRSTNAME\"?"), "{message}");
    assert_eq!(bench.writes(), [], "nothing was sent");
}

#[tokio::test]
async fn contacts_are_looked_up_and_listed() {
    let bench = Bench::keyed().await;
    let one = record("ana@example.com", &[("FIRSTNAME", Some("Ana")), ("TIER", Some("Silver"))]);
    assert_eq!(bench.found(&one, &["TIER"]).await, []);
    let (id, _) = bench.written(&one).await;
    let expected = Remote {
        id: id.clone(),
        email: Some("ana@example.com".to_owned()),
        properties: [
            ("FIRSTNAME".to_owned(), Some("Ana".to_owned())),
            ("LASTNAME".to_owned(), None),
            ("tier".to_owned(), Some("Silver".to_owned())),
        ]
        .into(),
        archived: false,
    };
    let wanted = ["FIRSTNAME", "LASTNAME", "tier"];
    assert_eq!(bench.found(&one, &wanted).await, std::slice::from_ref(&expected));
    let moved = [("email".to_owned(), "private@example.com".to_owned())].into();
    bench.fake.behind(Crm::Brevo, Act::Change { id: id.clone(), properties: moved }).unwrap();
    let found = bench.found(&one, &wanted).await;
    assert_eq!(found[0].id, id, "by the lead id, whatever its address");
    for n in 0..500 {
        let made =
            Act::Create { email: format!("n{n:03}@example.com"), properties: Default::default() };
        bench.fake.behind(Crm::Brevo, made).unwrap();
    }
    let properties = wanted.map(str::to_owned);
    let first = bench.to.list(None, &properties).await.unwrap().value;
    assert_eq!((first.contacts.len(), first.contacts[0].id.as_str()), (500, "21"));
    assert_eq!(first.contacts[0].properties, expected.properties);
    let second = bench.to.list(first.next.as_deref(), &properties).await.unwrap().value;
    assert_eq!((second.contacts.len(), second.next), (1, None));
    assert_eq!(second.contacts[0].email.as_deref(), Some("n499@example.com"));
}

#[tokio::test]
async fn the_check_finds_what_is_wrong_and_writes_nothing() {
    let bench = Bench::keyed().await;
    let right = [
        Mapped::new("first_name", "FIRSTNAME"),
        Mapped::new("phone", "sms"),
        Mapped::new("email", "EMAIL"),
    ];
    let found = bench.to.check(&right).await.unwrap();
    assert!(found.iter().any(|line| line.contains("all 3 mapped attributes")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("ext_id")), "{found:?}");
    let wrong = async |mapped: Mapped| bench.to.check(&[mapped]).await.unwrap_err().to_string();
    let hint = wrong(Mapped::new("first_name", "FIRST_NAME")).await;
    assert!(hint.contains("did you mean \"FIRSTNAME\"?"), "{hint}");
    let hint = wrong(Mapped::new("message", "SCORE")).await;
    assert!(hint.contains("is a formula"), "{hint}");
    let mut words = Mapped::new("lifecycle_stage", "TIER");
    words.values.insert("lead".to_owned(), "Bronze".to_owned());
    let hint = wrong(words).await;
    assert!(hint.contains("\"Bronze\" is none of the attribute's values (Gold, Silver)"), "{hint}");
    bench.option(|o| o.brevo.keys = vec!["other".to_owned()]);
    let hint = bench.to.check(&[]).await.unwrap_err().to_string();
    assert!(hint.contains("make a new API key"), "{hint}");
    assert!(bench.fake.contacts(Crm::Brevo).is_empty());
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    let refused = |change: fn(&mut config::Destination)| {
        let mut config = settings("http://127.0.0.1:9");
        change(&mut config);
        build(&config).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let name = |to: &str| config::Property::Name(to.to_owned());
    for (change, says) in [
        ((|c| c.token = None) as fn(&mut config::Destination), "`token` is missing"),
        (|c| c.token = Some(Secret::new("a\nb")), "cannot stand in a header"),
        (|c| c.key_property = Some("LEAD_ID".into()), "can only be \"ext_id\""),
        (|c| c.base_url = Some("brevo".into()), "is not a URL"),
        (|c| c.client_id = Some("x".into()), "`client_id` is nothing that kind brevo reads"),
    ] {
        let said = refused(change);
        assert!(said.contains(says), "{said:?} without {says:?}");
    }
    let mut config = settings("http://127.0.0.1:9");
    config.fields = [("phone".to_owned(), name("Email"))].into();
    assert!(build(&config).err().unwrap().to_string().contains("which is the key"));
    config.fields = [("lead_id".to_owned(), name("EXT_ID"))].into();
    assert!(build(&config).is_ok());
    config.key_property = Some("ext_id".to_owned());
    assert!(build(&config).err().unwrap().to_string().contains("keeps for the lead id"));
}

#[tokio::test]
async fn every_request_is_one_that_the_api_knows() {
    let Some(spec) = Spec::read("brevo-contacts.subset.openapi.json") else { return };
    let bench = Bench::keyed().await;
    let one =
        record("ana+tag@example.com", &[("FIRSTNAME", Some("Ana")), ("LEAD_TAGS", Some("vip"))]);
    bench.found(&one, &["FIRSTNAME"]).await;
    let (id, _) = bench.written(&one).await;
    bench.written(&one).await;
    bench.written(&known(&one, &id)).await;
    bench.found(&known(&one, &id), &["FIRSTNAME"]).await;
    let calls = bench.fake.calls();
    assert_eq!(all_right(&spec, &calls), 8);
    let mut odd = calls.iter().find(|c| c.method == "POST").unwrap().clone();
    odd.body = br#"{"email": 5, "updateEnabled": "yes"}"#.to_vec().into();
    assert_eq!(spec.wrong(&odd).map(|wrong| wrong.len()), Some(2), "the check can fail");
}
