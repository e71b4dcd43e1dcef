//! The destination pipedrive against its stand-in: what it sends, and what it makes of each answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::config;
use leadsync::destinations::{
    self, CallError, Destination, DestinationError, Key, Mapped, Outcome, Record, Remote, Setup,
};
use leadsync::fake_crm::pipedrive::{OauthApp, PersonField, Token};
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
        Bench::with(|_| {}, |_| {}).await
    }

    async fn with(
        options: impl FnOnce(&mut Options),
        config: impl FnOnce(&mut config::Destination),
    ) -> Bench {
        let mut all = Options::default();
        all.pipedrive.search_lag = Duration::ZERO;
        all.pipedrive.tokens = vec![Token::good("t")];
        options(&mut all);
        let fake = FakeCrm::on_free_port(all).await.unwrap();
        let mut settings = settings(&fake.url());
        config(&mut settings);
        let to = build(&settings).unwrap();
        Bench { fake, to }
    }

    /// An account with the lead id in a custom field.
    async fn keyed() -> Bench {
        Bench::with(|_| {}, |c| c.key_property = Some("Lead key".to_owned())).await
    }

    async fn push(&self, record: &Record) -> Result<Outcome, CallError> {
        let reply = self.to.push(std::slice::from_ref(record)).await?;
        let [outcome] = <[Outcome; 1]>::try_from(reply.value).expect("one outcome per record");
        Ok(outcome)
    }

    /// Pushes, and gives the id.
    async fn written(&self, record: &Record) -> String {
        match self.push(record).await {
            Ok(Outcome::Written { remote_id: Some(id), .. }) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn found(&self, record: &Record, properties: &[&str]) -> Vec<Remote> {
        let properties: Vec<String> = properties.iter().map(|p| (*p).to_owned()).collect();
        let found = self.to.look_up(std::slice::from_ref(record), &properties).await.unwrap().value;
        let [found] = <[Vec<Remote>; 1]>::try_from(found).expect("one list per record");
        found
    }

    async fn ids(&self, record: &Record) -> Vec<String> {
        self.found(record, &[]).await.into_iter().map(|remote| remote.id).collect()
    }

    /// Method and path of every call since the last look, without the query and without those about fields.
    fn calls(&self) -> Vec<String> {
        let calls = self.fake.calls().into_iter();
        let calls = calls.map(|c| format!("{} {}", c.method, c.path.split('?').next().unwrap()));
        calls.filter(|call| !call.ends_with("/personFields")).collect()
    }

    /// The body of the last call.
    fn sent(&self) -> Value {
        self.fake.calls().last().unwrap().json()
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options);
        self.fake.set_options(options);
    }

    fn script(&self, path: &str, fault: Fault) {
        self.fake.script(Scripted { path: Some(path.to_owned()), fault });
    }

    fn code(&self, name: &str) -> String {
        let fields = self.fake.options().pipedrive.fields;
        fields.iter().find(|f| f.name == name).unwrap().code.clone()
    }

    fn by_hand(&self, email: &str, properties: &[(&str, &str)]) -> String {
        let properties = texts(properties);
        let made = Act::Create { email: email.to_owned(), properties };
        self.fake.behind(Crm::Pipedrive, made).unwrap()
    }
}

fn texts(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn settings(base_url: &str) -> config::Destination {
    let mut config = config::Destination::new("crm", "pipedrive");
    config.token = Some(Secret::new("t"));
    config.base_url = Some(base_url.to_owned());
    config
}

fn build(config: &config::Destination) -> Result<Arc<dyn Destination>, DestinationError> {
    destinations::build(config, &Setup::new(DEADLINE))
}

fn record(email: &str, properties: &[(&str, Option<&str>)]) -> Record {
    let lead = Lead {
        lead_id: Uuid::new_v5_of(email),
        email: email.to_owned(),
        version: 3,
        fields: [(Field::FirstName, Some("Ana".to_owned())), (Field::Phone, None)].into(),
        ..Lead::default()
    };
    let properties =
        properties.iter().map(|(to, value)| ((*to).to_owned(), value.map(str::to_owned))).collect();
    Record { lead: Arc::new(lead), remote_id: None, properties, creating_for: None }
}

/// A lead id that follows from the e-mail.
trait OfEmail {
    fn new_v5_of(email: &str) -> Uuid;
}

impl OfEmail for Uuid {
    fn new_v5_of(email: &str) -> Uuid {
        let mut id = [0_u8; 16];
        for (at, byte) in email.bytes().enumerate() {
            id[at % 16] = id[at % 16].wrapping_mul(31).wrapping_add(byte);
        }
        Uuid::from_bytes(id)
    }
}

fn known(record: &Record, id: &str) -> Record {
    Record { remote_id: Some(id.to_owned()), ..record.clone() }
}

#[tokio::test]
async fn a_person_is_made_as_agreed() {
    let bench = Bench::keyed().await;
    assert_eq!(bench.to.key(), Key::None);
    let one = record(
        "ana@example.com",
        &[
            ("Company", Some("Padaria")),
            ("Budget", Some("10.5")),
            ("Tier", Some("gold")),
            ("Lead tags", Some("vip;demo")),
            ("Message", None),
            ("name", Some("Ana Silva")),
            ("phones", Some("+5511912345678")),
        ],
    );
    let reply = bench.to.push(std::slice::from_ref(&one)).await.unwrap();
    let written = Outcome::Written { remote_id: Some("501".to_owned()), created: Some(true) };
    assert_eq!(reply.value, [written]);
    let expected = json!({
        "name": "Ana Silva",
        "emails": [{"value": "ana@example.com", "primary": true, "label": "work"}],
        "phones": [{"value": "+5511912345678", "primary": true, "label": "work"}],
        "custom_fields": {
            bench.code("Company"): "Padaria", bench.code("Budget"): 10.5, bench.code("Tier"): 1,
            bench.code("Lead tags"): [1, 2], bench.code("Message"): null,
            bench.code("Lead key"): one.lead.lead_id,
        },
    });
    assert_eq!(bench.sent(), expected);
    assert_eq!(bench.calls(), ["POST /api/v2/persons"]);
    let days: Vec<u32> =
        reply.limits.iter().filter(|l| l.window.as_secs() > 60).map(|l| l.remaining).collect();
    assert_eq!(days, [1_000_000_000 - 10 - 5], "the fields and the create, in tokens");
    assert_eq!(bench.to.push(&[]).await.unwrap().value, []);
}

#[tokio::test]
async fn everybody_has_a_name() {
    let bench = Bench::new().await;
    let name = |record: &Record| {
        let record = record.clone();
        let bench = &bench;
        async move {
            bench.written(&record).await;
            bench.sent()["name"].as_str().unwrap().to_owned()
        }
    };
    assert_eq!(name(&record("a@example.com", &[])).await, "Ana");
    assert_eq!(name(&record("b@example.com", &[("name", None)])).await, "Ana");
    let mut nameless = record("cy.lima@example.com", &[]);
    nameless.lead = Arc::new(Lead { email: "cy.lima@example.com".to_owned(), ..Lead::default() });
    assert_eq!(name(&nameless).await, "cy.lima");
    let long = record("d@example.com", &[("name", Some(&"ü".repeat(300)))]);
    assert_eq!(name(&long).await.chars().count(), 255);
}

#[tokio::test]
async fn an_update_goes_by_id_and_leaves_the_address_alone() {
    let bench = Bench::keyed().await;
    let one = record("ana@example.com", &[("Company", Some("Padaria"))]);
    let id = bench.written(&one).await;
    let moved = texts(&[("email", "private@example.com")]);
    bench.fake.behind(Crm::Pipedrive, Act::Change { id: id.clone(), properties: moved }).unwrap();
    let next = known(&record("ana@example.com", &[("Company", None)]), &id);
    let written = Outcome::Written { remote_id: Some(id.clone()), created: Some(false) };
    assert_eq!(bench.push(&next).await, Ok(written));
    assert_eq!(bench.sent(), json!({"custom_fields": {bench.code("Company"): null}}));
    let people = bench.fake.contacts(Crm::Pipedrive);
    assert_eq!((people.len(), people[0].email.as_str()), (1, "private@example.com"));
    assert!(!people[0].properties.contains_key(&bench.code("Company")), "cleared");
    assert_eq!(bench.calls(), ["POST /api/v2/persons", "PATCH /api/v2/persons/501"]);
}

#[tokio::test]
async fn numbers_that_people_typed_stay() {
    let bench = Bench::new().await;
    let id = bench.by_hand("ana@example.com", &[("phones", "+1 555 0100")]);
    let more = texts(&[("phones", "+1 555 0199")]);
    bench.fake.behind(Crm::Pipedrive, Act::Change { id: id.clone(), properties: more }).unwrap();
    let numbers = async |phone: Option<&str>| {
        bench.written(&known(&record("ana@example.com", &[("phones", phone)]), &id)).await;
        let sent = bench.sent()["phones"].clone();
        let list = sent.as_array().unwrap().iter();
        list.map(|e| (e["value"].as_str().unwrap().to_owned(), e["primary"] == true))
            .collect::<Vec<_>>()
    };
    let entry = |value: &str, primary| (value.to_owned(), primary);
    // What was the primary number is ours to change; the other one is not.
    let ours = [entry("+15550111", true), entry("+1 555 0199", false)];
    assert_eq!(numbers(Some("+15550111")).await, ours);
    let known_already = [entry("+15550199", true)];
    assert_eq!(
        numbers(Some("+15550199")).await,
        known_already,
        "the same number, written otherwise"
    );
    assert_eq!(numbers(Some("+15550111")).await, [entry("+15550111", true)]);
    assert_eq!(numbers(None).await, []);
    bench.fake.behind(Crm::Pipedrive, Act::Delete { id: id.clone() }).unwrap();
    let gone = known(&record("ana@example.com", &[("phones", Some("+15550111"))]), &id);
    assert_eq!(bench.push(&gone).await, Ok(Outcome::Gone));
}

#[tokio::test]
async fn persons_are_found_by_key_then_by_address() {
    let bench = Bench::keyed().await;
    let one = record("ana@example.com", &[("Company", Some("Padaria"))]);
    assert_eq!(bench.ids(&one).await, [""; 0]);
    let by_hand = bench.by_hand("Ana@Example.com", &[]);
    assert_eq!(bench.ids(&one).await, [by_hand.as_str()], "letter case is ignored");
    let ours = bench.written(&one).await;
    assert_eq!(bench.ids(&one).await, [ours.as_str()], "the own key is surer than an address");
    let found = bench.found(&known(&one, &by_hand), &["Company", "name", "phones"]).await;
    assert_eq!(found[0].id, by_hand, "an id that is known is surer still");
    let found = bench.found(&one, &["Company", "name", "phones"]).await;
    let expected = Remote {
        id: ours.clone(),
        email: Some("ana@example.com".to_owned()),
        properties: [
            ("Company".to_owned(), Some("Padaria".to_owned())),
            ("name".to_owned(), Some("Ana".to_owned())),
            ("phones".to_owned(), None),
        ]
        .into(),
        archived: false,
    };
    assert_eq!(found, [expected]);
    let bo = record("bo@example.com", &[]);
    let doubles = [bench.by_hand("bo@example.com", &[]), bench.by_hand("bo@example.com", &[])];
    assert_eq!(bench.ids(&bo).await, doubles, "all of them, and nothing is guessed");
}

#[tokio::test]
async fn near_matches_deleted_and_merged_ones_are_told_apart() {
    let bench = Bench::new().await;
    bench.option(|o| o.pipedrive.loose_search = true);
    let ana = record("ana@example.com", &[]);
    bench.by_hand("mariana@example.com", &[]);
    assert_eq!(bench.ids(&ana).await, [""; 0], "only part of an address");
    let (lost, kept) =
        (bench.by_hand("ana@example.com", &[]), bench.by_hand("bo@example.com", &[]));
    let merge = Act::Merge { id: lost.clone(), into: kept.clone() };
    bench.fake.behind(Crm::Pipedrive, merge).unwrap();
    assert_eq!(bench.push(&known(&ana, &lost)).await, Ok(Outcome::Gone));
    assert_eq!(bench.ids(&known(&ana, &lost)).await, [kept.as_str()], "the survivor");
    bench.option(|o| o.pipedrive.gone_status = 410);
    bench.fake.behind(Crm::Pipedrive, Act::Delete { id: kept.clone() }).unwrap();
    assert_eq!(bench.push(&known(&ana, &kept)).await, Ok(Outcome::Gone));
    assert_eq!(bench.ids(&known(&ana, &kept)).await, [""; 0]);
    bench.option(|o| o.pipedrive.deleted_are_written = true);
    assert_eq!(bench.push(&known(&ana, &kept)).await, Ok(Outcome::Gone), "whatever it answers");
    // The search still shows what was deleted.
    let late = bench.by_hand("cy@example.com", &[]);
    bench.option(|o| o.pipedrive.search_lag = Duration::from_millis(1));
    let cy = record("cy@example.com", &[]);
    crate::support::app::until("it is indexed", async || !bench.ids(&cy).await.is_empty()).await;
    bench.option(|o| o.pipedrive.never_indexed = true);
    bench.fake.behind(Crm::Pipedrive, Act::Delete { id: late }).unwrap();
    assert_eq!(bench.ids(&cy).await, [""; 0]);
}

#[tokio::test]
async fn a_create_that_was_not_told_is_found_although_the_search_lags() {
    for never in [false, true] {
        let bench = Bench::keyed().await;
        bench.option(|o| {
            o.pipedrive.search_lag = Duration::from_secs(3600);
            o.pipedrive.never_indexed = never;
        });
        let one = record("ana@example.com", &[]);
        bench.script("POST /api/v2/persons", Fault::ResetAfter);
        let unknown = bench.push(&one).await;
        assert!(matches!(unknown, Err(CallError::Unknown { .. })), "{unknown:?}");
        assert_eq!(bench.ids(&one).await, [""; 0], "the search does not know");
        for n in 0..3 {
            bench.by_hand(&format!("other{n}@example.com"), &[]);
        }
        let doubted = Record { creating_for: Some(DEADLINE), ..one };
        assert_eq!(bench.ids(&doubted).await, ["501"], "but the list does");
    }
}

#[tokio::test]
async fn outcomes_that_nobody_knows() {
    let bench = Bench::new().await;
    let mut n = 0;
    for fault in [
        Fault::HoldAfter,
        Fault::ResetAfter,
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::CutJson,
        Fault::EmptyBody { status: 200 },
        Fault::EmptyBody { status: 204 },
        Fault::EmptyResults,
        Fault::Status { status: 500, body: Body::Json, apply: Apply::All, retry_after: None },
        Fault::Status { status: 502, body: Body::Html, apply: Apply::None, retry_after: None },
        Fault::Status { status: 408, body: Body::Empty, apply: Apply::None, retry_after: None },
    ] {
        n += 1;
        bench.script("POST /api/v2/persons", fault.clone());
        let result = bench.push(&record(&format!("n{n}@example.com"), &[])).await;
        assert!(matches!(result, Err(CallError::Unknown { .. })), "{fault:?}: {result:?}");
        bench.fake.release();
    }
    // A read before the write that fails has written nothing.
    let id = bench.by_hand("ana@example.com", &[]);
    let update = known(&record("ana@example.com", &[("phones", Some("+1555"))]), &id);
    bench.script("GET /api/v2/persons/", Fault::ResetAfter);
    let result = bench.push(&update).await;
    assert!(matches!(result, Err(CallError::Unreachable { .. })), "{result:?}");
    bench.fake.stop().await;
    let down = bench.push(&update).await;
    assert!(matches!(down, Err(CallError::Unreachable { .. })), "{down:?}");
}

#[tokio::test]
async fn refusals_are_sorted() {
    let bench = Bench::new().await;
    let one = record("ana@example.com", &[("Company", Some("Padaria"))]);
    bench.written(&record("first@example.com", &[])).await;
    let call = async |status, body, retry_after| {
        let fault = Fault::Status { status, body, apply: Apply::None, retry_after };
        bench.script("POST /api/v2/persons", fault);
        bench.push(&one).await
    };
    for status in [401, 402, 403] {
        let result = call(status, Body::Json, None).await;
        assert!(matches!(result, Err(CallError::Credentials { .. })), "{status} {result:?}");
    }
    for status in [301, 404, 405, 410, 415] {
        let result = call(status, Body::Json, None).await;
        assert!(matches!(result, Err(CallError::Misconfigured { .. })), "{status} {result:?}");
    }
    for status in [400, 413, 422, 418] {
        let result = call(status, Body::Json, None).await;
        assert!(matches!(result, Err(CallError::Refused { .. })), "{status} {result:?}");
    }
    assert!(matches!(call(409, Body::Json, None).await, Ok(Outcome::Retry { .. })));
    let pause = async |status, body, said| match call(status, body, said).await {
        Err(CallError::SlowDown { after, .. }) => after.map(|a| a.as_secs()),
        other => panic!("{status}: {other:?}"),
    };
    assert_eq!(pause(429, Body::Json, Some(7)).await, Some(7));
    assert_eq!(pause(429, Body::Json, None).await, Some(2), "the burst window");
    assert_eq!(pause(423, Body::Json, None).await, None);
    assert_eq!(pause(425, Body::Json, Some(9)).await, Some(9));
    assert_eq!(pause(403, Body::Html, None).await, Some(300), "the edge, no scope");
    bench.script("POST /api/v2/persons", Fault::RateLimited { retry_after: None, daily: true });
    let day = bench.push(&one).await;
    let hour = Some(Duration::from_secs(3600));
    assert!(matches!(day, Err(CallError::SlowDown { after, .. }) if after == hour), "{day:?}");
    bench.option(|o| {
        o.pipedrive.limits.burst = 1;
        o.pipedrive.limits.window = Duration::from_secs(40);
    });
    let burst = bench.push(&one).await;
    let Err(CallError::SlowDown { after: Some(after), .. }) = burst else { panic!("{burst:?}") };
    assert!((30..=40).contains(&after.as_secs()), "{after:?}");
    assert_eq!(bench.fake.contacts(Crm::Pipedrive).len(), 1, "nothing was written");
}

#[tokio::test]
async fn a_value_that_does_not_fit_harms_only_its_lead() {
    let bench = Bench::new().await;
    for (property, value) in [
        ("Budget", "10k"),
        ("Tier", "Bronze"),
        ("First seen", "30.11.2026"),
        ("Company", &"x".repeat(300)),
        ("owner_id", "Ana"),
    ] {
        let one = record("ana@example.com", &[(property, Some(value))]);
        match bench.push(&one).await {
            Ok(Outcome::Rejected { code, field, message }) => {
                assert_eq!((code.as_str(), field.as_deref()), ("INVALID_VALUE", Some(property)));
                assert!(!message.contains(value), "{message}");
            }
            other => panic!("{property}: {other:?}"),
        }
    }
    assert_eq!(bench.calls(), [""; 0], "nothing was sent");
    let typed = record("ana@example.com", &[("marketing_status", Some("subscribed"))]);
    bench.written(&typed).await;
    // What Pipedrive refuses all the same names the field.
    let fault =
        Fault::Status { status: 422, body: Body::Json, apply: Apply::None, retry_after: None };
    bench.script("POST", fault);
    bench.option(|o| o.pipedrive.checks_emails = true);
    let refused = bench.push(&record("not an address", &[])).await;
    assert!(
        matches!(&refused, Err(CallError::Refused { code, .. }) if code == "ERR_SCHEMA_VALIDATION_FAILED")
    );
}

#[tokio::test]
async fn what_everybody_would_fail_on_stops_the_destination() {
    let bench = Bench::new().await;
    let unknown = bench.push(&record("ana@example.com", &[("Compny", Some("x"))])).await;
    let Err(CallError::Misconfigured { code, message }) = unknown else { panic!("{unknown:?}") };
    assert_eq!(code, "PROPERTY_DOESNT_EXIST");
    assert!(message.contains("did you mean \"Company\"?"), "{message}");
    let title = bench.push(&record("ana@example.com", &[("job_title", Some("CEO"))])).await;
    let Err(CallError::Misconfigured { message, .. }) = title else { panic!("{title:?}") };
    assert!(message.contains("contact sync"), "{message}");
    bench.option(|o| o.pipedrive.capped = true);
    let capped = bench.push(&record("ana@example.com", &[])).await;
    let code = "feature_capping_persons_limit";
    assert!(
        matches!(&capped, Err(CallError::Credentials { code: c, .. }) if c == code),
        "{capped:?}"
    );
    bench.option(|o| o.pipedrive.closed = true);
    let closed = bench.push(&record("ana@example.com", &[])).await;
    assert!(matches!(closed, Err(CallError::Credentials { .. })), "{closed:?}");
}

#[tokio::test]
async fn an_app_renews_its_token_once_for_all() {
    let bench = Bench::with(
        |o| {
            o.pipedrive.tokens.clear();
            o.pipedrive.oauth = Some(OauthApp::good("id", "pw", "refresh"));
        },
        |c| {
            c.token = None;
            c.client_id = Some("id".to_owned());
            c.client_secret = Some(Secret::new("pw"));
            c.refresh_token = Some(Secret::new("refresh"));
            c.token_url = c.base_url.as_ref().map(|base| format!("{base}/oauth/token"));
        },
    )
    .await;
    bench.written(&record("ana@example.com", &[])).await;
    let tokens = || bench.calls().iter().filter(|c| c.as_str() == "POST /oauth/token").count();
    assert_eq!(tokens(), 1);
    bench.fake.behind(Crm::Pipedrive, Act::ExpireTokens).unwrap();
    let records: Vec<Record> = (0..8).map(|n| record(&format!("n{n}@example.com"), &[])).collect();
    let pushes = records.iter().map(|record| bench.push(record));
    for pushed in futures_util::future::join_all(pushes).await {
        assert!(matches!(pushed, Ok(Outcome::Written { .. })), "{pushed:?}");
    }
    assert_eq!(tokens(), 2, "eight calls met the end of a token, one renewed it");
    assert_eq!(bench.fake.doubles(Crm::Pipedrive), 0, "a 401 has written nothing");
    bench.option(|o| o.pipedrive.oauth.as_mut().unwrap().revoked = true);
    bench.fake.behind(Crm::Pipedrive, Act::ExpireTokens).unwrap();
    let refused = bench.push(&record("x@example.com", &[])).await;
    assert!(matches!(refused, Err(CallError::Credentials { .. })), "{refused:?}");
    assert!(!format!("{refused:?}").contains("refresh\""), "{refused:?}");
}

#[tokio::test]
async fn all_persons_are_listed_page_by_page() {
    let bench = Bench::new().await;
    for n in 0..251 {
        bench.by_hand(&format!("n{n:03}@example.com"), &[("name", "Ana")]);
    }
    bench.fake.behind(Crm::Pipedrive, Act::Delete { id: "600".to_owned() }).unwrap();
    bench.by_hand("last@example.com", &[]);
    let properties = ["name".to_owned(), "Company".to_owned()];
    let first = bench.to.list(None, &properties).await.unwrap().value;
    assert_eq!(first.contacts.len(), 250);
    let second = bench.to.list(first.next.as_deref(), &properties).await.unwrap().value;
    assert_eq!((second.contacts.len(), second.next), (1, None));
    assert_eq!(second.contacts[0].email.as_deref(), Some("last@example.com"));
    let name = &first.contacts[0].properties;
    assert_eq!(name["name"].as_deref(), Some("Ana"));
    assert_eq!(name["Company"], None);
}

#[tokio::test]
async fn the_check_finds_what_is_wrong_and_writes_nothing() {
    let bench = Bench::keyed().await;
    let mapped = |value: &str, property: &str| Mapped::new(value, property);
    let right = [
        mapped("full_name", "name"),
        mapped("phone", "phones"),
        mapped("company", "company"),
        mapped("email", "emails"),
    ];
    let found = bench.to.check(&right).await.unwrap();
    assert!(found.iter().any(|line| line.contains("\"Lead key\"")), "{found:?}");
    assert!(found.iter().any(|line| line.contains("all 4 mapped fields")), "{found:?}");
    let wrong = async |mapped: Mapped| bench.to.check(&[mapped]).await.unwrap_err().to_string();
    let hint = wrong(mapped("company", "Compny")).await;
    assert!(hint.contains("did you mean \"Company\"?"), "{hint}");
    let mut words = mapped("lifecycle_stage", "Tier");
    words.values.insert("lead".to_owned(), "Bronze".to_owned());
    let hint = wrong(words.clone()).await;
    assert!(hint.contains("\"Bronze\" is none of the field's options (Gold, Silver)"), "{hint}");
    words.values.insert("lead".to_owned(), "Gold".to_owned());
    bench.to.check(&[words]).await.unwrap();
    let twin =
        PersonField { code: "9".repeat(40), ..bench.fake.options().pipedrive.fields[6].clone() };
    bench.option(|o| o.pipedrive.fields.push(twin));
    let hint = wrong(mapped("company", "Company")).await;
    assert!(hint.contains("several person fields \"Company\""), "{hint}");
    bench.option(|o| {
        o.pipedrive.tokens[0].scopes.remove("contacts:full");
    });
    let hint = bench.to.check(&[]).await.unwrap_err();
    assert!(matches!(&hint, CallError::Credentials { .. }), "{hint}");
    assert!(hint.to_string().contains("contacts:full"), "{hint}");
    bench.option(|o| o.pipedrive.tokens.push(Token::good("other")));
    bench.option(|o| o.pipedrive.tokens.remove(0).token.clear());
    let hint = bench.to.check(&[]).await.unwrap_err().to_string();
    assert!(hint.contains("Personal preferences"), "{hint}");
    assert!(bench.fake.contacts(Crm::Pipedrive).is_empty());
    for key in ["Budget", "name", "Nothing"] {
        let bench = Bench::with(|_| {}, |c| c.key_property = Some(key.to_owned())).await;
        let refused = bench.to.check(&[]).await;
        assert!(matches!(refused, Err(CallError::Misconfigured { .. })), "{key}: {refused:?}");
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    let refused = |change: fn(&mut config::Destination)| {
        let mut config = settings("http://127.0.0.1:9");
        change(&mut config);
        build(&config).err().map(|e| e.to_string()).unwrap_or_default()
    };
    for (change, says) in [
        ((|c| c.token = None) as fn(&mut config::Destination), "`token` is missing"),
        (|c| c.client_id = Some("id".into()), "use one or the other"),
        (|c| (c.token, c.client_id) = (None, Some("id".into())), "`client_secret` is missing"),
        (|c| (c.token, c.refresh_token) = (None, Some(Secret::new("r"))), "`client_id` is missing"),
        (|c| c.token = Some(Secret::new("a\nb")), "cannot stand in a header"),
        (|c| c.key_property = Some(" ".into()), "`key_property` is blank"),
        (|c| c.base_url = Some("pipedrive".into()), "is not a URL"),
        (|c| c.database = Some("x".into()), "`database` is nothing that kind pipedrive reads"),
    ] {
        let said = refused(change);
        assert!(said.contains(says), "{said:?} without {says:?}");
    }
    let mut config = settings("http://127.0.0.1:9");
    config.fields = [("phone".to_owned(), config::Property::Name("emails".to_owned()))].into();
    let said = build(&config).err().unwrap().to_string();
    assert!(said.contains("which is the key"), "{said}");
}

#[tokio::test]
async fn nothing_secret_or_personal_is_said() {
    let bench = Bench::new().await;
    let one =
        record("ana@example.com", &[("Company", Some("Padaria Lima")), ("Tier", Some("Platin"))]);
    let mut said = vec![format!("{:?}", bench.push(&one).await)];
    let words = "ana@example.com of Padaria Lima is odd";
    let one = record("ana@example.com", &[("Company", Some("Padaria Lima"))]);
    for fault in [
        Fault::ResetBefore,
        Fault::Status { status: 500, body: Body::Html, apply: Apply::None, retry_after: None },
        Fault::Status { status: 400, body: Body::Json, apply: Apply::None, retry_after: None },
    ] {
        bench.script("POST /api/v2/persons", fault);
        said.push(format!("{:?}", bench.push(&one).await));
    }
    bench.fake.stop().await;
    said.push(format!("{:?}", bench.push(&one).await));
    for secret in ["ana@", "Padaria", "Platin", words] {
        assert!(said.iter().all(|s| !s.contains(secret)), "{secret} in {said:?}");
    }
}

#[tokio::test]
async fn every_request_is_one_that_the_api_knows() {
    let Some(spec) = Spec::read("pipedrive-persons-leads.subset.openapi.json") else { return };
    let bench = Bench::keyed().await;
    let one = record(
        "ana+tag@example.com",
        &[("Company", Some("Padaria & Filhos")), ("phones", Some("+1555")), ("Tier", None)],
    );
    bench.found(&one, &["Company", "name"]).await;
    let id = bench.written(&one).await;
    bench.written(&known(&one, &id)).await;
    let doubted = Record { creating_for: Some(DEADLINE), ..record("bo@example.com", &[]) };
    bench.found(&doubted, &["Company"]).await;
    bench.found(&known(&one, &id), &["Company"]).await;
    bench.to.list(None, &["Company".to_owned(), "name".to_owned()]).await.unwrap();
    bench.to.check(&[Mapped::new("company", "Company")]).await.unwrap();
    let calls = bench.fake.calls();
    // The document is about persons, not about their fields.
    let known = calls.iter().filter(|call| !call.path.starts_with("/api/v2/personFields"));
    assert_eq!(all_right(&spec, known), 12);
    let mut odd = calls.iter().find(|c| c.method == "POST").unwrap().clone();
    odd.body = br#"{"emails": "x"}"#.to_vec().into();
    assert_eq!(spec.wrong(&odd).map(|wrong| wrong.len()), Some(2), "the check can fail");
    odd.path = "/api/v2/persons?limit=5".to_owned();
    assert_eq!(spec.wrong(&odd).map(|wrong| wrong.len()), Some(3));
}
