//! The destination RD Station against its stand-in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::config;
use leadsync::destinations::{
    self, CallError, Destination, DestinationError, Key, Mapped, Outcome, Record, Setup,
};
use leadsync::fake_crm::rdstation::App;
use leadsync::fake_crm::{Crm, FakeCrm, Fault, Options};
use leadsync::lead::Lead;
use leadsync::secret::Secret;
use serde_json::{Value, json};

mod through_sync;

/// The destination and its stand-in.
struct Bench {
    fake: FakeCrm,
    to: Arc<dyn Destination>,
}

fn config(url: &str) -> config::Destination {
    let mut config = config::Destination::new("rd", "rdstation");
    config.base_url = Some(url.to_owned());
    config.client_id = Some("id".to_owned());
    config.client_secret = Some(Secret::new("secret"));
    config.refresh_token = Some(Secret::new("refresh"));
    config
}

fn build(config: &config::Destination) -> Result<Arc<dyn Destination>, DestinationError> {
    destinations::build(config, &Setup::new(Duration::from_secs(20)))
}

impl Bench {
    async fn start() -> Bench {
        let mut options = Options::default();
        options.rdstation.apps = vec![App::good("id", "secret", "refresh")];
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        Bench { to: build(&config(&fake.url())).unwrap(), fake }
    }

    async fn push(&self, record: &Record) -> Result<Outcome, CallError> {
        let reply = self.to.push(std::slice::from_ref(record)).await;
        reply.map(|reply| reply.value[0].clone())
    }

    /// Pushes, and gives the uuid that was written.
    async fn written(&self, record: &Record) -> String {
        match self.push(record).await {
            Ok(Outcome::Written { remote_id: Some(uuid), .. }) => uuid,
            other => panic!("{other:?}"),
        }
    }

    async fn find(&self, record: &Record) -> Vec<String> {
        let found = self.to.look_up(std::slice::from_ref(record), &[]).await.unwrap().value;
        found[0].iter().map(|remote| remote.id.clone()).collect()
    }

    fn by_hand(&self, values: Value) -> String {
        let uuid = self.fake.rdstation("create", &json!({ "values": values })).unwrap();
        uuid.as_str().unwrap().to_owned()
    }

    /// Method, path and body of the newest call that writes.
    fn sent(&self) -> (String, Value) {
        let calls = self.fake.calls();
        let newest = calls.iter().rev().find(|call| call.method == "PATCH").expect("a PATCH");
        (newest.path.clone(), newest.json())
    }

    fn calls(&self, path: &str) -> usize {
        self.fake.calls().iter().filter(|call| call.path.starts_with(path)).count()
    }

    fn properties(&self, email: &str) -> BTreeMap<String, String> {
        let contacts = self.fake.contacts(Crm::Rdstation);
        contacts.iter().find(|c| c.email == email).expect(email).properties.clone()
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options);
        self.fake.set_options(options);
    }
}

fn record(email: &str, properties: &[(&str, Option<&str>)]) -> Record {
    let lead = Lead { email: email.to_owned(), ..Lead::default() };
    let properties =
        properties.iter().map(|(to, value)| ((*to).to_owned(), value.map(str::to_owned))).collect();
    Record { lead: Arc::new(lead), remote_id: None, creating_for: None, properties }
}

fn known(uuid: &str, record: Record) -> Record {
    Record { remote_id: Some(uuid.to_owned()), ..record }
}

const ANA: &str = "ana+x@example.com";

fn ana() -> Record {
    record(ANA, &[("name", Some("Ana"))])
}

#[tokio::test]
async fn a_patch_is_as_agreed() {
    let bench = Bench::start().await;
    assert_eq!((bench.to.key(), bench.to.batch_size()), (Key::Enforced, 1));
    let new = record(ANA, &[("city", None), ("email", Some(ANA)), ("name", Some("Ana"))]);
    let uuid = bench.written(&new).await;
    let path = "/platform/contacts/email:ana%2Bx%40example.com".to_owned();
    assert_eq!(bench.sent(), (path, json!({"city": null, "name": "Ana"})), "without the e-mail");
    let update = known(&uuid, record(ANA, &[("city", Some("Rio"))]));
    assert_eq!(bench.written(&update).await, uuid);
    assert_eq!(bench.sent().0, format!("/platform/contacts/uuid:{uuid}"));
    assert_eq!(bench.written(&new).await, uuid, "a repeat by e-mail makes no second one");
    assert_eq!(bench.properties(ANA).get("city"), None, "cleared");
    assert_eq!(bench.fake.creates_per_email(Crm::Rdstation)[ANA], 1);
}

#[tokio::test]
async fn custom_fields_get_what_they_hold() {
    let bench = Bench::start().await;
    let all = [
        ("cf_budget", Some("10k")),
        ("cf_employees", Some("12")),
        ("cf_interests", Some("a; b")),
        ("cf_opt_in", Some("true")),
        ("legal_bases", Some("true")),
        ("tags", Some("one;two")),
    ];
    bench.written(&record(ANA, &all)).await;
    let consent = json!([{"category": "communications", "type": "consent", "status": "granted"}]);
    assert_eq!(
        bench.sent().1,
        json!({
            "cf_budget": "10k", "cf_employees": 12, "cf_interests": ["a", "b"], "cf_opt_in": true,
            "legal_bases": consent, "tags": ["one", "two"],
        })
    );
    for (field, value, code) in
        [("cf_employees", "many", "NOT_AN_INTEGER"), ("cf_opt_in", "maybe", "NOT_A_BOOLEAN")]
    {
        let outcome = bench.push(&record(ANA, &[(field, Some(value))])).await;
        let Ok(Outcome::Rejected { code: said, field: at, .. }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((said.as_str(), at.as_deref()), (code, Some(field)));
    }
    let fields = "/platform/contacts/fields";
    assert_eq!(bench.calls(fields), 1, "asked for once");
    let unknown = record(ANA, &[("cf_budgt", Some("x"))]);
    let refused = bench.push(&unknown).await;
    let Err(CallError::Misconfigured { message, .. }) = refused else { panic!("{refused:?}") };
    assert!(message.contains("did you mean \"cf_budget\"?"), "{message}");
    assert_eq!(bench.calls(fields), 2, "looked again before complaining");
    let made = leadsync::fake_crm::rdstation::ContactField::text("cf_budgt");
    bench.option(|o| o.rdstation.fields.push(made));
    bench.written(&unknown).await;
}

#[tokio::test]
async fn refused_values_name_their_field() {
    let bench = Bench::start().await;
    let refused = bench.push(&record(ANA, &[("cf_tier", Some("anastasia"))])).await;
    let Err(CallError::Refused { code, field, message }) = refused else { panic!("{refused:?}") };
    assert_eq!((code.as_str(), field.as_deref()), ("MUST_BE_VALID_OPTION", Some("cf_tier")));
    assert!(!message.contains("anastasia"), "{message}");
}

#[tokio::test]
async fn one_renewed_token_does_for_all() {
    let bench = Bench::start().await;
    let records = ["a@x.com", "b@x.com", "c@x.com"].map(|email| record(email, &[]));
    let all = async || {
        let [a, b, c] = &records;
        tokio::join!(bench.written(a), bench.written(b), bench.written(c))
    };
    all().await;
    assert_eq!(bench.calls("/auth/token"), 1);
    bench.fake.rdstation("expire", &json!({})).unwrap();
    all().await;
    assert_eq!(bench.calls("/auth/token"), 2, "expired for all, renewed once");
    let counts = bench.fake.summary().by_crm[&Crm::Rdstation].clone();
    assert_eq!((counts.creates, counts.updates), (3, 3));
    bench.option(|o| o.rdstation.apps[0].revoked = true);
    let refused = bench.push(&records[0]).await;
    assert!(matches!(refused, Err(CallError::Credentials { .. })), "{refused:?}");
    let secret = bench.fake.calls().iter().any(|call| {
        let body = String::from_utf8_lossy(&call.body).into_owned();
        body.contains("\"secret\"") || body.contains("\"refresh\"")
    });
    assert!(!secret, "the stand-in shows no credentials");
}

#[tokio::test]
async fn an_app_without_the_right_is_told() {
    let bench = Bench::start().await;
    bench.option(|o| o.rdstation.apps[0].forbidden = true);
    let refused = bench.push(&ana()).await;
    assert!(
        matches!(&refused, Err(CallError::Credentials { code, .. }) if code == "FORBIDDEN"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_contacts_limit_is_not_the_accounts() {
    let bench = Bench::start().await;
    bench.option(|o| o.rdstation.contact_limit = 1);
    bench.written(&ana()).await;
    bench.written(&ana()).await;
    let limited = bench.push(&ana()).await;
    let Ok(Outcome::Retry { code, .. }) = &limited else { panic!("{limited:?}") };
    assert_eq!(code, "CONTACT_LIMIT");
    bench.written(&record("bo@example.com", &[])).await;
    bench.option(|o| {
        o.rdstation.account_limit = 0;
        o.rdstation.account_window = Duration::from_secs(600);
    });
    let slow = bench.push(&ana()).await;
    assert!(matches!(slow, Err(CallError::SlowDown { after: None, .. })), "{slow:?}");
    bench.option(|o| o.rdstation.send_retry_after = true);
    bench.fake.script(Fault::RateLimited { retry_after: Some(20), daily: false });
    let slow = bench.push(&ana()).await;
    let after = Some(Duration::from_secs(20));
    assert!(matches!(&slow, Err(CallError::SlowDown { after: a, .. }) if *a == after), "{slow:?}");
}

#[tokio::test]
async fn merged_contacts_are_followed_and_deleted_ones_told() {
    let bench = Bench::start().await;
    let lose = bench.written(&ana()).await;
    let keep = bench.by_hand(json!({"email": "keep@example.com", "name": "K"}));
    bench.fake.rdstation("merge", &json!({"keep": keep, "lose": lose})).unwrap();
    let record = known(&lose, ana());
    assert_eq!(bench.push(&record).await, Ok(Outcome::Exists { remote_id: keep.clone() }));
    assert_eq!(bench.find(&record).await, std::slice::from_ref(&keep));
    bench.fake.rdstation("delete", &json!({ "id": keep })).unwrap();
    assert_eq!(bench.push(&record).await, Ok(Outcome::Gone));
    assert_eq!(bench.find(&record).await, [""; 0]);
    let anew = bench.written(&ana()).await;
    assert_eq!(bench.push(&record).await, Ok(Outcome::Exists { remote_id: anew }));
}

#[tokio::test]
async fn contacts_are_found_with_their_values() {
    let bench = Bench::start().await;
    let all = [("cf_employees", Some("12")), ("legal_bases", Some("false")), ("tags", Some("a;b"))];
    let uuid = bench.written(&record(ANA, &all)).await;
    let properties = ["cf_employees", "city", "legal_bases", "tags"].map(str::to_owned);
    let found = bench.to.look_up(&[record("Ana+X@example.com", &[])], &properties).await.unwrap();
    let remote = &found.value[0][0];
    assert_eq!((remote.id.as_str(), remote.email.as_deref()), (uuid.as_str(), Some(ANA)));
    let expected: BTreeMap<String, Option<String>> = [
        ("cf_employees", Some("12")),
        ("city", None),
        ("legal_bases", Some("false")),
        ("tags", Some("a;b")),
    ]
    .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)))
    .into();
    assert_eq!(remote.properties, expected);
}

#[tokio::test]
async fn all_contacts_are_listed() {
    let bench = Bench::start().await;
    for n in 0..130 {
        bench.by_hand(json!({"email": format!("n{n}@x.com"), "name": n.to_string()}));
    }
    let properties = ["name".to_owned(), "city".to_owned()];
    let first = bench.to.list(None, &properties).await.unwrap().value;
    assert_eq!((first.contacts.len(), first.next.as_deref()), (125, Some("1:2")));
    assert_eq!(
        first.contacts[3].properties,
        [("name".into(), Some("3".into()))].into(),
        "no more is told"
    );
    let last = bench.to.list(first.next.as_deref(), &properties).await.unwrap().value;
    assert_eq!((last.contacts.len(), last.next), (5, None));
    assert_eq!(last.contacts[4].email.as_deref(), Some("n129@x.com"));
    bench.fake.reset();
    let none = bench.to.list(None, &properties).await.unwrap().value;
    assert_eq!((none.contacts.len(), none.next), (0, None));
}

#[tokio::test]
async fn check_says_what_to_do() {
    let bench = Bench::start().await;
    let said = async |field: Mapped| match bench.to.check(&[field]).await {
        Err(CallError::Misconfigured { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    for (value, property, says) in [
        ("phone", "personal_phon", "did you mean \"personal_phone\"?"),
        ("phone", "cf_employees", "is a whole number, which `phone` is not"),
        ("phone", "cf_opt_in", "is yes or no, which `phone` is not"),
    ] {
        let message = said(Mapped::new(value, property)).await;
        assert!(message.contains(says), "{property}: {message}");
    }
    let words = |word: &str, property: &str| Mapped {
        values: [("a".to_owned(), word.to_owned())].into(),
        ..Mapped::new("attributes.kind", property)
    };
    assert!(said(words("bronze", "cf_tier")).await.contains("it takes gold, silver"));
    assert!(said(words("some", "cf_employees")).await.contains("it takes a whole number"));
    let right = [
        Mapped::new("marketing_consent", "legal_bases"),
        Mapped::new("tags", "tags"),
        Mapped::new("email", "email"),
        words("gold", "cf_tier"),
    ];
    assert_eq!(bench.to.check(&right).await.unwrap().len(), 3);
    assert!(bench.fake.contacts(Crm::Rdstation).is_empty(), "without writing");
    bench.option(|o| o.rdstation.apps[0].refresh_token = "other".to_owned());
    bench.fake.rdstation("expire", &json!({})).unwrap();
    let refused = bench.to.check(&[]).await;
    let Err(CallError::Credentials { code, message }) = refused else { panic!("{refused:?}") };
    assert_eq!(code, "INVALID_REFRESH_TOKEN");
    assert!(message.contains("`refresh_token`"), "{message}");
}

#[test]
fn wrong_configuration_is_refused_by_name() {
    let said = |change: &dyn Fn(&mut config::Destination)| {
        let mut config = config("http://127.0.0.1:1");
        change(&mut config);
        build(&config).err().expect("this configuration is wrong").to_string()
    };
    assert!(said(&|c| c.client_id = None).contains("`client_id` is missing: make an app"));
    assert!(said(&|c| c.client_secret = None).contains("`client_secret` is missing"));
    assert!(said(&|c| c.refresh_token = None).contains("`refresh_token` is missing"));
    assert!(said(&|c| c.token = Some(Secret::new("x"))).contains("it reads client_id"));
    for (value, property) in [("phone", "email"), ("phone", "uuid"), ("phone", "legal_bases")] {
        let named = config::Property::Name(property.to_owned());
        let mapped = BTreeMap::from([(value.to_owned(), named)]);
        assert!(said(&|c| c.fields = mapped.clone()).contains("`fields` maps"), "{property}");
    }
    assert!(said(&|c| c.token_url = Some("no url".into())).contains("`token_url` is not a URL"));
}
