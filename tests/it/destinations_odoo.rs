//! The destination Odoo against its stand-in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::config;
use leadsync::destinations::{
    self, CallError, Destination, DestinationError, Key, Mapped, Outcome, Record, Remote, Setup,
};
use leadsync::fake_crm::odoo::{FieldType, ModelField, User};
use leadsync::fake_crm::{Crm, FakeCrm, Fault, Options};
use leadsync::lead::{Field, Lead};
use leadsync::secret::Secret;
use serde_json::{Value, json};

mod through_sync;

/// The destination and its stand-in.
struct Bench {
    fake: FakeCrm,
    to: Arc<dyn Destination>,
}

fn config(url: &str) -> config::Destination {
    let mut config = config::Destination::new("odoo", "odoo");
    config.base_url = Some(url.to_owned());
    config.database = Some("crm".to_owned());
    config.user = Some("leadsync".to_owned());
    config.token = Some(Secret::new("key"));
    config
}

fn build(config: &config::Destination) -> Result<Arc<dyn Destination>, DestinationError> {
    destinations::build(config, &Setup::new(Duration::from_secs(20)))
}

impl Bench {
    async fn start() -> Bench {
        Bench::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut config::Destination)) -> Bench {
        let mut options = Options::default();
        options.odoo.users = vec![User::good("leadsync", "key")];
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        let mut config = config(&fake.url());
        change(&mut config);
        Bench { to: build(&config).unwrap(), fake }
    }

    async fn leads() -> Bench {
        Bench::with(|config| config.object = Some("crm.lead".to_owned())).await
    }

    async fn push(&self, records: &[Record]) -> Vec<Outcome> {
        self.to.push(records).await.unwrap().value
    }

    /// Pushes, and gives the ids that were written.
    async fn written(&self, records: &[Record]) -> Vec<String> {
        let id = |outcome| match outcome {
            Outcome::Written { remote_id: Some(id), .. } => id,
            other => panic!("{other:?}"),
        };
        self.push(records).await.into_iter().map(id).collect()
    }

    async fn find(&self, records: &[Record]) -> Vec<Vec<String>> {
        let found = self.to.look_up(records, &[]).await.unwrap().value;
        found.into_iter().map(|all| all.into_iter().map(|remote| remote.id).collect()).collect()
    }

    /// Somebody makes a contact by hand.
    fn by_hand(&self, values: Value) -> String {
        self.fake.odoo("create", &json!({ "values": values })).unwrap().to_string()
    }

    /// What the newest call of a method was given: positional arguments, and the context.
    fn sent(&self, method: &str) -> (Value, Value) {
        let calls = self.fake.calls();
        let args = |call: &leadsync::fake_crm::Call| call.json()["params"]["args"].clone();
        let newest = calls.iter().rev().map(args).find(|args| args[4] == method).expect(method);
        (newest[5].clone(), newest[6]["context"].clone())
    }

    fn calls(&self, method: &str) -> usize {
        let is = |call: &&leadsync::fake_crm::Call| {
            let params = &call.json()["params"];
            params["method"] == method || params["args"][4] == method
        };
        self.fake.calls().iter().filter(is).count()
    }

    fn property(&self, id: &str, name: &str) -> Option<String> {
        let contacts = self.fake.contacts(Crm::Odoo);
        let contact = contacts.iter().find(|c| c.id == id).unwrap_or_else(|| panic!("no {id}"));
        contact.properties.get(name).cloned()
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

fn known(id: &str, record: Record) -> Record {
    Record { remote_id: Some(id.to_owned()), ..record }
}

const ANA: &str = "ana@example.com";
const BO: &str = "bo@example.com";

fn both() -> [Record; 2] {
    [record(ANA, &[("name", Some("Ana"))]), record(BO, &[("name", Some("Bo"))])]
}

#[tokio::test]
async fn a_load_is_as_agreed() {
    let bench = Bench::start().await;
    let new = [
        record(ANA, &[("name", Some("Ana")), ("phone", Some("+551140028922"))]),
        record(BO, &[("city", None), ("name", Some("Bo"))]),
    ];
    let ids = bench.written(&new).await;
    let (args, context) = bench.sent("load");
    assert_eq!(args[0], json!(["id", "email", "city", "name", "phone"]));
    // The external id tells the address to nobody, and must stay the same for ever.
    let key = "leadsync.partner_8e43ca37701228e74983efdbd0cff5c1";
    assert_eq!(args[1][0], json!([key, ANA, "", "Ana", "+551140028922"]));
    assert_eq!(args[1][1].as_array().unwrap()[1..], [json!(BO), json!(""), json!("Bo"), json!("")]);
    let expected = json!({"lang": "en_US", "active_test": false, "mail_create_nosubscribe": true});
    assert_eq!(context, expected);
    let update =
        known(&ids[0], record(ANA, &[("city", None), ("email", Some(ANA)), ("phone", Some("5"))]));
    bench.written(&[update]).await;
    let (args, _) = bench.sent("load");
    assert_eq!(args, json!([[".id", "city", "phone"], [[ids[0], "", "5"]]]), "no e-mail by id");
    assert_eq!(
        bench.fake.creates_per_email(Crm::Odoo),
        BTreeMap::from([(ANA.into(), 1), (BO.into(), 1)])
    );
}

#[tokio::test]
async fn what_is_not_sent_is_left_alone() {
    let bench = Bench::start().await;
    let ids = bench.written(&both()).await;
    for id in &ids {
        bench
            .fake
            .odoo("edit", &json!({"id": id, "values": {"phone": "1", "city": "Rio"}}))
            .unwrap();
    }
    let updates = [
        known(&ids[0], record(ANA, &[("city", None)])),
        known(&ids[1], record(BO, &[("phone", Some("2"))])),
    ];
    assert!(bench.to.alike(&updates[0]) && !bench.to.alike(&both()[0]));
    assert_eq!(bench.written(&updates).await, ids);
    assert_eq!(
        (bench.property(&ids[0], "city"), bench.property(&ids[0], "phone")),
        (None, Some("1".into()))
    );
    let bo = (bench.property(&ids[1], "city"), bench.property(&ids[1], "phone"));
    assert_eq!(bo, (Some("Rio".into()), Some("2".into())));
}

#[tokio::test]
async fn a_record_without_a_name_gets_one() {
    let bench = Bench::start().await;
    let mut named = record(BO, &[("name", None)]);
    let fields =
        [(Field::FirstName, Some("Bo".to_owned())), (Field::LastName, Some("Berg".to_owned()))];
    named.lead = Arc::new(Lead { email: BO.to_owned(), fields: fields.into(), ..Lead::default() });
    let ids = bench.written(&[record(ANA, &[]), named]).await;
    assert_eq!(bench.property(&ids[0], "name").as_deref(), Some(ANA));
    assert_eq!(bench.property(&ids[1], "name").as_deref(), Some("Bo Berg"));
    let cleared = known(&ids[0], record(ANA, &[("name", None)]));
    bench.written(&[cleared]).await;
    assert_eq!(bench.property(&ids[0], "name").as_deref(), Some(ANA), "it cannot be without one");
}

#[tokio::test]
async fn json2_needs_no_user() {
    let bench = Bench::with(|config| {
        config.user = None;
        config.database = None;
    })
    .await;
    let ids = bench.written(&both()).await;
    assert_eq!(bench.written(&both()).await, ids);
    assert_eq!(bench.find(&both()).await, [[ids[0].clone()], [ids[1].clone()]]);
    bench.to.check(&[Mapped::new("city", "city")]).await.unwrap();
    let paths: Vec<String> = bench.fake.calls().into_iter().map(|call| call.path).collect();
    assert!(paths.contains(&"/json/2/res.partner/load".to_owned()), "{paths:?}");
    assert!(paths.iter().all(|path| path.starts_with("/json/2/")), "{paths:?}");
    bench.option(|o| o.odoo.users[0].key = "new".to_owned());
    let revoked = bench.to.push(&both()).await;
    assert!(matches!(revoked, Err(CallError::Credentials { .. })), "{revoked:?}");
    bench.option(|o| o.odoo.json2 = false);
    let older = bench.to.check(&[]).await;
    assert!(
        matches!(&older, Err(CallError::Misconfigured { message, .. }) if message.contains("Odoo 19")),
        "{older:?}"
    );
}

#[tokio::test]
async fn what_people_made_is_found_by_email() {
    let bench = Bench::start().await;
    assert_eq!(bench.to.key(), Key::Ours);
    let made = bench.by_hand(json!({"name": "Ana", "email": "Ana <ANA@example.com>"}));
    bench.by_hand(json!({"name": "Ana's invoices", "email": ANA, "type": "invoice"}));
    assert_eq!(bench.find(&both()).await, [vec![made.clone()], vec![]]);
    let twin = bench.by_hand(json!({"name": "Ana again", "email": ANA}));
    assert_eq!(bench.find(&both()).await[0], [made.clone(), twin.clone()], "not for us to choose");
    bench.fake.odoo("archive", &json!({ "id": made })).unwrap();
    assert_eq!(bench.find(&both()).await[0], std::slice::from_ref(&twin), "the one in use");
    bench.fake.odoo("archive", &json!({ "id": twin })).unwrap();
    assert_eq!(bench.find(&both()).await[0].len(), 2);
    bench.fake.odoo("delete", &json!({ "id": twin })).unwrap();
    assert_eq!(
        bench.find(&both()).await[0],
        std::slice::from_ref(&made),
        "archived is not deleted"
    );
    let update = known(&made, record(ANA, &[("city", Some("Rio"))]));
    assert_eq!(bench.written(&[update]).await, std::slice::from_ref(&made), "and can be written");
    assert_eq!(bench.property(&made, "city").as_deref(), Some("Rio"));
}

#[tokio::test]
async fn found_contacts_speak_as_a_push_does() {
    let bench = Bench::start().await;
    let values = [
        ("country_id", Some("Brazil")),
        ("country_id/.id", None),
        ("is_company", Some("true")),
        ("name", Some("Ana")),
        ("phone", None),
        ("type", Some("contact")),
        ("x_score", Some("1.5")),
    ];
    let all: Vec<_> = values.into_iter().filter(|(to, _)| !to.contains('/')).collect();
    let ids = bench.written(&[record(ANA, &all)]).await;
    let properties: Vec<String> = values.iter().map(|(to, _)| (*to).to_owned()).collect();
    let record = known(&ids[0], record(ANA, &[]));
    let found = bench.to.look_up(&[record], &properties).await.unwrap().value;
    let mut expected: BTreeMap<String, Option<String>> =
        values.into_iter().map(|(to, value)| (to.to_owned(), value.map(str::to_owned))).collect();
    expected.insert("country_id/.id".to_owned(), Some("31".to_owned()));
    let remote = Remote {
        id: ids[0].clone(),
        email: Some(ANA.to_owned()),
        properties: expected,
        archived: false,
    };
    assert_eq!(found, [[remote]]);
}

#[tokio::test]
async fn merged_contacts_are_followed_and_deleted_ones_told() {
    let bench = Bench::start().await;
    let ids = bench.written(&both()).await;
    let records = both()
        .map(|record| known(if record.lead.email == ANA { &ids[0] } else { &ids[1] }, record));
    bench.fake.odoo("merge", &json!({"keep": ids[0], "lose": ids[1]})).unwrap();
    assert_eq!(bench.find(&records).await, [[ids[0].clone()], [ids[0].clone()]]);
    let outcomes = bench.push(&records).await;
    assert!(
        matches!(&outcomes[0], Outcome::Retry { code, .. } if code == "ROLLED_BACK"),
        "{outcomes:?}"
    );
    assert_eq!(outcomes[1], Outcome::Exists { remote_id: ids[0].clone() });
    bench.fake.odoo("delete", &json!({ "id": ids[0] })).unwrap();
    assert_eq!(bench.push(&records).await, [Outcome::Gone, Outcome::Gone]);
    assert_eq!(bench.find(&records).await, [[""; 0]; 2]);
    assert_eq!(bench.written(&both()).await.len(), 2, "made anew by their keys");
}

#[tokio::test]
async fn one_bad_record_is_named() {
    let bench = Bench::start().await;
    let kind = |kind| [("name", Some("N")), ("type", Some(kind))];
    let records = [
        record(ANA, &kind("contact")),
        record(BO, &kind("ana's own")),
        record("cy@example.com", &kind("contact")),
    ];
    let outcomes = bench.push(&records).await;
    assert!(
        matches!(&outcomes[0], Outcome::Retry { code, .. } if code == "ROLLED_BACK"),
        "{outcomes:?}"
    );
    let Outcome::Rejected { field, message, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(field.as_deref(), Some("type"));
    assert_eq!(message, "Value '[value]' not found in selection field 'Address Type'");
    assert!(bench.fake.contacts(Crm::Odoo).is_empty(), "one transaction");
    let guessed = record(ANA, &[("is_company", Some("maybe")), ("name", Some("N"))]);
    let outcomes = bench.push(&[guessed]).await;
    assert!(
        matches!(&outcomes[0], Outcome::Rejected { code, .. } if code == "WARNING"),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn odd_answers_are_unknown_and_races_tried_again() {
    let bench = Bench::start().await;
    bench.to.check(&[]).await.unwrap();
    bench.fake.script(Fault::Conflict);
    let outcomes = bench.push(&both()).await;
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Retry { .. })), "{outcomes:?}");
    for fault in [Fault::Omit { input: 0, written: true }, Fault::EmptyResults] {
        bench.fake.script(fault);
        let outcomes = bench.push(&both()).await;
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Unknown { .. })), "{outcomes:?}");
    }
    bench.written(&both()).await;
    assert_eq!(bench.fake.doubles(Crm::Odoo), 0);
}

#[tokio::test]
async fn the_login_is_asked_for_once_and_again_when_denied() {
    let bench = Bench::start().await;
    let (ana, bo) = (both(), both());
    let (one, two) = tokio::join!(bench.to.push(&ana[..1]), bench.to.push(&bo[1..]));
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(bench.calls("authenticate"), 1, "whoever comes meanwhile waits for it");
    bench.option(|o| o.odoo.users[0].uid = 9);
    let denied = bench.to.push(&both()).await;
    assert!(matches!(denied, Err(CallError::Credentials { .. })), "{denied:?}");
    bench.written(&both()).await;
    assert_eq!(bench.calls("authenticate"), 2, "the login was another user's by then");
    bench.option(|o| o.odoo.users[0].key = "new".to_owned());
    for _ in 0..2 {
        let denied = bench.to.push(&both()).await;
        assert!(matches!(denied, Err(CallError::Credentials { .. })), "{denied:?}");
    }
}

#[tokio::test]
async fn configuration_that_no_record_can_pass_stops_everything() {
    let bench = Bench::start().await;
    let unknown = bench.to.push(&[record(ANA, &[("nosuch", Some("x"))])]).await;
    let Err(CallError::Misconfigured { message, .. }) = unknown else { panic!("{unknown:?}") };
    assert!(message.contains("no field \"nosuch\" in res.partner"), "{message}");
    bench.option(|o| o.odoo.users[0].read_only = true);
    let read_only = bench.to.push(&both()).await;
    let Err(CallError::Credentials { message, .. }) = read_only else { panic!("{read_only:?}") };
    assert_eq!(message, "You are not allowed to create 'Contact' (res.partner) records.");
    bench.option(|o| o.odoo.database = "other".to_owned());
    let elsewhere = bench.to.push(&both()).await;
    let Err(CallError::Misconfigured { message, .. }) = elsewhere else { panic!("{elsewhere:?}") };
    assert!(message.contains("is `database` right?"), "{message}");
}

#[tokio::test]
async fn all_contacts_are_listed() {
    let bench = Bench::start().await;
    for n in 0..205 {
        bench.by_hand(json!({"name": n.to_string(), "email": format!("n{n}@example.com")}));
    }
    bench.by_hand(json!({"name": "nobody's"}));
    bench.fake.odoo("archive", &json!({"id": 3})).unwrap();
    let name = ["name".to_owned()];
    let first = bench.to.list(None, &name).await.unwrap().value;
    assert_eq!((first.contacts.len(), first.next.as_deref()), (200, Some("200")));
    assert_eq!(first.contacts[2].properties["name"].as_deref(), Some("2"), "archived ones too");
    let last = bench.to.list(first.next.as_deref(), &name).await.unwrap().value;
    assert_eq!((last.contacts.len(), last.next), (5, None), "without those nobody can write to");
    assert_eq!(last.contacts[4].email.as_deref(), Some("n204@example.com"));
}

#[tokio::test]
async fn leads_are_known_by_their_key_alone() {
    let bench = Bench::leads().await;
    assert_eq!(bench.to.key(), Key::Enforced);
    let by_hand = json!({"model": "crm.lead", "values": {"name": "Fair", "email_from": ANA}});
    bench.fake.odoo("create", &by_hand).unwrap();
    let new = record(ANA, &[("contact_name", Some("Ana"))]);
    assert_eq!(bench.find(std::slice::from_ref(&new)).await, [[""; 0]], "one of somebody else");
    let ids = bench.written(std::slice::from_ref(&new)).await;
    assert_eq!(bench.written(std::slice::from_ref(&new)).await, ids);
    assert_eq!(bench.find(std::slice::from_ref(&new)).await, [[ids[0].clone()]]);
    let (args, context) = bench.sent("load");
    assert_eq!(args[0], json!(["id", "email_from", "contact_name", "name"]));
    assert!(args[1][0][0].as_str().unwrap().starts_with("leadsync.lead_"), "{args}");
    assert_eq!(context["default_user_id"], false);
    assert_eq!(bench.property(&format!("crm.lead,{}", ids[0]), "user_id"), None, "nobody's yet");
    let listed = bench.to.list(None, &[]).await.unwrap().value;
    let listed: Vec<&str> = listed.contacts.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(listed, [ids[0].as_str()], "those that we made");
    assert_eq!(bench.fake.contacts(Crm::Odoo).len(), 2);
}

#[tokio::test]
async fn check_says_what_to_do() {
    let bench = Bench::start().await;
    let said = async |field: Mapped| match bench.to.check(&[field]).await {
        Err(CallError::Misconfigured { message, .. } | CallError::Credentials { message, .. }) => {
            message
        }
        other => panic!("{other:?}"),
    };
    for (value, property, says) in [
        ("phone", "phnoe", "did you mean \"phone\"?"),
        ("phone", "write_date", "is kept by Odoo"),
        ("tags", "category_id", "of type many2many cannot be filled"),
        ("country", "country_id/code", "cannot be filled"),
        ("phone", "x_score", "of type float, which `phone` is not"),
        ("phone", "is_company", "of type boolean, which `phone` is not"),
    ] {
        let message = said(Mapped::new(value, property)).await;
        assert!(message.contains(says), "{property}: {message}");
    }
    let words = |words: &[(&str, &str)], property: &str| Mapped {
        values: words.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        ..Mapped::new("attributes.kind", property)
    };
    let message = said(words(&[("a", "nosuch")], "type")).await;
    assert!(message.contains("does not have \"nosuch\"; it has contact, invoice"), "{message}");
    let right = [
        Mapped::new("marketing_consent", "x_opt_in"),
        Mapped::new("attributes.score", "x_score"),
        Mapped::new("country", "country_id/id"),
        words(&[("a", "other"), ("b", "Invoice Address")], "type"),
    ];
    let found = bench.to.check(&right).await.unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(bench.fake.contacts(Crm::Odoo).is_empty(), "without writing");
    bench.option(|o| o.odoo.users[0].read_only = true);
    assert!(said(Mapped::new("city", "city")).await.contains("\"Contact Creation\""));
    bench.option(|o| o.odoo.partner_fields.retain(|f| f.name != "email_normalized"));
    assert!(said(Mapped::new("city", "city")).await.contains("app Contacts"));
    let wrong =
        build(&config::Destination { user: Some("nobody".into()), ..config(&bench.fake.url()) });
    let refused = wrong.unwrap().check(&[]).await;
    assert!(
        matches!(&refused, Err(CallError::Credentials { message, .. }) if message.contains("API key")),
        "{refused:?}"
    );
}

#[test]
fn wrong_configuration_is_refused_by_name() {
    let said = |change: &dyn Fn(&mut config::Destination)| {
        let mut config = config("http://127.0.0.1:1");
        change(&mut config);
        build(&config).err().expect("this configuration is wrong").to_string()
    };
    assert!(said(&|c| c.token = None).contains("`token` is missing: make an API key"));
    assert!(said(&|c| c.database = None).contains("`database` is missing"));
    assert!(said(&|c| c.base_url = None).contains("`base_url` is missing"));
    assert!(
        said(&|c| c.object = Some("contact".into()))
            .contains("res.partner (contacts) and crm.lead")
    );
    assert!(
        said(&|c| c.secret = Some(Secret::new("x")))
            .contains("it reads token, user, database, object")
    );
    for property in ["email", "id", "email_normalized"] {
        let named = config::Property::Name(property.to_owned());
        let mapped = BTreeMap::from([("phone".to_owned(), named)]);
        assert!(said(&|c| c.fields = mapped.clone()).contains("`fields` maps"), "{property}");
    }
    let json2 = &|c: &mut config::Destination| {
        c.user = None;
        c.token = Some(Secret::new("a\nb"));
    };
    assert!(said(json2).contains("cannot stand in a header"));
}

#[tokio::test]
async fn a_field_of_their_own_can_be_filled() {
    let bench = Bench::start().await;
    let field = ModelField { kind: FieldType::Datetime, ..ModelField::text("x_when") };
    bench.option(|o| o.odoo.partner_fields.push(field));
    let when = [("name", Some("N")), ("x_when", Some("2026-11-30 10:00:00"))];
    let ids = bench.written(&[record(ANA, &when)]).await;
    assert_eq!(bench.property(&ids[0], "x_when").as_deref(), Some("2026-11-30 10:00:00"));
}
