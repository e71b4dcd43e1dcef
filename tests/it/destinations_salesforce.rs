//! The destination salesforce against its stand-in: what it sends, and what it makes of each answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::config;
use leadsync::destinations::{
    self, CallError, Destination, DestinationError, Key, Mapped, Outcome, Record, Remote, Setup,
};
use leadsync::fake_crm::salesforce::{Act, DuplicateRule, ItemError, Object, Options};
use leadsync::fake_crm::{self, Apply, Body, Call, Crm, FakeCrm, Fault, Order, Scripted};
use leadsync::lead::Lead;
use leadsync::secret::Secret;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::openapi::{Spec, all_right};

/// Long enough for a loaded machine, short enough to wait for where a time-out is the point.
const DEADLINE: Duration = Duration::from_millis(1500);
const WRITE: &str = "/services/data/v67.0/composite";
const TOKEN: &str = "/services/oauth2/token";

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
        let mut all = fake_crm::Options::default();
        all.salesforce.client_id = Some("app".to_owned());
        all.salesforce.client_secret = Some("hush".to_owned());
        options(&mut all.salesforce);
        let fake = FakeCrm::on_free_port(all).await.unwrap();
        let mut settings = settings(&fake.url());
        config(&mut settings);
        let to = build(&settings).unwrap();
        Bench { fake, to }
    }

    async fn push(&self, records: &[Record]) -> Result<Vec<Outcome>, CallError> {
        Ok(self.to.push(records).await?.value)
    }

    /// Pushes, expects everything written, and gives ids and what was made new.
    async fn written(&self, records: &[Record]) -> Vec<(String, bool)> {
        let outcomes = self.push(records).await.unwrap();
        assert_eq!(outcomes.len(), records.len(), "one outcome per record");
        let written = |outcome| match outcome {
            Outcome::Written { remote_id: Some(id), created: Some(new) } => (id, new),
            other => panic!("{other:?}"),
        };
        outcomes.into_iter().map(written).collect()
    }

    async fn found(&self, record: &Record, properties: &[&str]) -> Vec<Remote> {
        let properties: Vec<String> = properties.iter().map(|p| (*p).to_owned()).collect();
        let found = self.to.look_up(std::slice::from_ref(record), &properties).await.unwrap();
        found.value.into_iter().next().expect("one list per record")
    }

    fn script(&self, path: &str, fault: Fault) {
        self.fake.script(Scripted { path: Some(path.to_owned()), fault });
    }

    fn status(&self, status: u16, body: Body, apply: Apply) {
        self.script(WRITE, Fault::Status { status, body, apply, retry_after: None });
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options.salesforce);
        self.fake.set_options(options);
    }

    fn act(&self, act: Act) -> String {
        self.fake.salesforce(&act).unwrap()
    }

    /// Somebody enters a lead by hand.
    fn by_hand(&self, email: &str, more: &[(&str, Value)]) -> String {
        let mut fields: BTreeMap<String, Value> =
            [("LastName", json!("Luz")), ("Company", json!("Acme")), ("Email", json!(email))]
                .map(|(name, value)| (name.to_owned(), value))
                .into();
        fields.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        self.act(Act::Create { object: Object::Lead, fields })
    }

    fn calls(&self, path: &str) -> Vec<Call> {
        self.fake.calls().into_iter().filter(|c| c.path.starts_with(path)).collect()
    }

    /// Bodies of the writes so far.
    fn writes(&self) -> Vec<Value> {
        self.calls(WRITE).iter().map(Call::json).collect()
    }

    fn properties(&self, id: &str) -> BTreeMap<String, String> {
        let contacts = self.fake.contacts(Crm::Salesforce);
        contacts.into_iter().find(|c| c.id == id).expect("a record").properties
    }

    /// Exactly these e-mails, each created once.
    fn exactly(&self, emails: &[&str]) {
        let there = self.fake.contacts(Crm::Salesforce).into_iter().filter(|c| !c.archived);
        let mut there: Vec<String> = there.map(|c| c.email).collect();
        there.sort();
        assert_eq!(there, emails);
        let creates = self.fake.creates_per_email(Crm::Salesforce);
        assert!(creates.values().all(|n| *n == 1), "{creates:?}");
        assert_eq!(self.fake.doubles(Crm::Salesforce), 0);
    }
}

/// Every request of every test that the API's description knows is what it allows.
impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let Some(spec) = Spec::read("salesforce-upsert.subset.openapi.json") else { return };
        let calls = self.fake.calls();
        let known = |call: &&Call| {
            // Forms are not JSON, and updates by id and `queryAll` are not in it.
            !call.path.starts_with(TOKEN) && spec.wrong(call).is_some()
        };
        all_right(&spec, calls.iter().filter(known));
    }
}

fn settings(base_url: &str) -> config::Destination {
    let mut config = config::Destination::new("crm", "salesforce");
    config.client_id = Some("app".to_owned());
    config.client_secret = Some(Secret::new("hush"));
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
    let lead = Lead { lead_id: Uuid::from_bytes(id), email: email.to_owned(), ..Lead::default() };
    let properties =
        properties.iter().map(|(to, value)| ((*to).to_owned(), value.map(str::to_owned))).collect();
    Record { lead: Arc::new(lead), remote_id: None, creating_for: None, properties }
}

fn records(emails: &[&str]) -> Vec<Record> {
    let properties =
        [("Company", Some("Acme")), ("FirstName", Some("Ana")), ("LastName", Some("Luz"))];
    emails.iter().map(|e| record(e, &properties)).collect()
}

fn known(record: &Record, id: &str) -> Record {
    Record { remote_id: Some(id.to_owned()), ..record.clone() }
}

fn exists(id: &str) -> Outcome {
    Outcome::Exists { remote_id: id.to_owned() }
}

fn code(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Rejected { code, .. } | Outcome::Retry { code, .. } => code,
        _ => "",
    }
}

fn unknown(result: &Result<Vec<Outcome>, CallError>) -> bool {
    match result {
        Err(CallError::Unknown { .. }) => true,
        Ok(outcomes) => outcomes.iter().all(|o| matches!(o, Outcome::Unknown { .. })),
        Err(_) => false,
    }
}

const THREE: [&str; 3] = ["ana@example.com", "bo@example.com", "cy@example.com"];

#[tokio::test]
async fn new_leads_are_made_by_key_and_changed_by_id() {
    let bench = Bench::new().await;
    assert_eq!((bench.to.key(), bench.to.batch_size()), (Key::Ours, 200));
    let one = record(
        "ana@example.com",
        &[
            ("Budget__c", Some("10.50")),
            ("Consent__c", Some("true")),
            ("FirstName", Some("Ana")),
            ("First_Seen__c", Some("2026-11-30T23:10:00Z")),
            ("Last_Seen__c", Some("2026-11-30T23:10:00.5Z")),
            ("Phone", None),
            ("Tags__c", Some("a;b")),
            ("title", Some("CEO")),
        ],
    );
    let (id, new) = bench.written(std::slice::from_ref(&one)).await.remove(0);
    assert!(new && id.starts_with("00Q"));
    let expected = json!({"allOrNone": false, "records": [{
        "attributes": {"type": "Lead"}, "Lead_Email_Key__c": "ana@example.com", "Email": "ana@example.com",
        "Budget__c": 10.5, "Consent__c": true, "FirstName": "Ana", "First_Seen__c": "2026-11-30",
        "Last_Seen__c": "2026-11-30T23:10:00+00:00", "Phone": null, "Tags__c": "a;b", "Title": "CEO",
        "LastName": "[not provided]", "Company": "[not provided]",
    }]});
    assert_eq!(bench.writes(), [expected]);
    let paths: Vec<String> = bench.fake.calls().into_iter().map(|c| c.path).collect();
    assert_eq!(paths.len(), 3, "token, description, upsert: {paths:?}");
    assert_eq!(paths[2], format!("{WRITE}/sobjects/Lead/Lead_Email_Key__c"));

    // Somebody changes the address in Salesforce: it is theirs.
    let fields = [("Email".to_owned(), json!("private@example.com"))].into();
    bench.act(Act::Edit { id: id.clone(), fields });
    let changes = [("Company", None), ("Consent__c", None), ("Phone", Some("1")), ("Title", None)];
    let next = known(&record("ana@example.com", &changes), &id);
    assert_eq!(bench.written(&[next]).await, [(id.clone(), false)]);
    let expected = json!({"allOrNone": false, "records": [{
        "attributes": {"type": "Lead"}, "id": id, "Company": "[not provided]", "Consent__c": false,
        "Phone": "1", "Title": null,
    }]});
    assert_eq!(bench.writes()[1], expected);
    assert_eq!(bench.calls(WRITE)[1].path, format!("{WRITE}/sobjects"));
    let there = bench.properties(&id);
    assert_eq!(there["Email"], "private@example.com");
    assert!(!there.contains_key("Title"));
    assert_eq!(bench.push(&[]).await, Ok(Vec::new()), "nothing to push is no call");
    assert_eq!(bench.fake.calls().len(), 4);
}

#[tokio::test]
async fn two_hundred_in_a_call_and_every_repeat_safe() {
    let bench = Bench::new().await;
    let emails: Vec<String> = (0..200).map(|n| format!("o'n{n:03}+x@example.com")).collect();
    let emails: Vec<&str> = emails.iter().map(String::as_str).collect();
    let all = records(&emails);
    let first = bench.written(&all).await;
    assert!(first.iter().all(|(_, new)| *new));
    for _ in 0..2 {
        let again = bench.written(&all).await;
        assert!(again.iter().zip(&first).all(|((a, new), (b, _))| a == b && !new));
    }
    let by_id: Vec<Record> = all.iter().zip(&first).map(|(r, (id, _))| known(r, id)).collect();
    bench.written(&by_id).await;
    assert_eq!(bench.calls(WRITE).len(), 4);
    bench.exactly(&emails);
    let groups: Vec<&str> = [&all[0], &by_id[0], &known(&all[0], "003000000000001AAA")]
        .map(|r| bench.to.group(r))
        .into();
    assert_eq!(groups, ["by_key", "lead_by_id", "contact_by_id"]);
}

#[tokio::test]
async fn leads_that_people_entered_are_found_and_only_new_ones_are_filled() {
    let bench = Bench::new().await;
    let theirs = bench.by_hand("Ana@Example.com", &[]);
    let twice = [bench.by_hand("bo@example.com", &[]), bench.by_hand("bo@example.com", &[])];
    let ours =
        [("Lead_Email_Key__c", json!("cy@example.com")), ("Email", json!("private@example.com"))];
    let ours = bench.by_hand("cy@example.com", &ours);
    bench.by_hand("cy@example.com", &[]);
    let bare: Vec<Record> = [THREE[0], THREE[1], THREE[2], "dee@example.com"]
        .map(|e| record(e, &[("FirstName", Some("X"))]))
        .into();
    let found = bench.to.look_up(&bare, &[]).await.unwrap().value;
    let ids = |at: usize| found[at].iter().map(|r| r.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(0), ids(1)), (vec![theirs.clone()], twice.to_vec()));
    assert_eq!(ids(2), [ours], "our key comes first, whatever the address is now");
    assert_eq!(ids(3), Vec::<String>::new());
    assert_eq!(bench.written(&[known(&bare[0], &theirs)]).await, [(theirs.clone(), false)]);
    let there = bench.properties(&theirs);
    assert_eq!((there["FirstName"].as_str(), there["Company"].as_str()), ("X", "Acme"));
    let new = bench.written(&bare[3..]).await.remove(0).0;
    assert_eq!(bench.properties(&new)["Company"], "[not provided]");
    assert_eq!(bench.fake.doubles(Crm::Salesforce), 1, "that of the people");
}

#[tokio::test]
async fn each_record_stands_alone() {
    let bench = Bench::new().await;
    let first = bench.written(&records(&THREE)).await;
    let error = |code: &str, message: &str| ItemError {
        code: code.to_owned(),
        message: message.to_owned(),
        fields: Vec::new(),
        matches: Vec::new(),
    };
    bench.option(|o| {
        let wrapped = "MyTrigger: execution of AfterUpdate caused by: UNABLE_TO_LOCK_ROW";
        o.refusals = [
            (first[0].0.clone(), error("UNABLE_TO_LOCK_ROW", "unable to obtain exclusive access")),
            (first[1].0.clone(), error("CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY", wrapped)),
            (
                first[2].0.clone(),
                error("FIELD_CUSTOM_VALIDATION_EXCEPTION", "no Luz, said ana@example.com"),
            ),
        ]
        .into();
    });
    let mut batch = records(&THREE);
    batch.push(record("dee@example.com", &[("LastName", Some(&"x".repeat(81)))]));
    batch.push(record("eve@example.com", &[("Budget__c", Some("a lot"))]));
    batch.push(record("fay@example.com", &[("Tier__c", Some("Gold"))]));
    batch.push(record("gil@localhost", &[]));
    batch.push(record("hal@example.com", &[]));
    let outcomes = bench.push(&batch).await.unwrap();
    let codes: Vec<&str> = outcomes.iter().map(code).collect();
    assert_eq!(
        codes,
        [
            "UNABLE_TO_LOCK_ROW",
            "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY",
            "FIELD_CUSTOM_VALIDATION_EXCEPTION",
            "STRING_TOO_LONG",
            "INVALID_VALUE",
            "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
            "INVALID_EMAIL_ADDRESS",
            "",
        ]
    );
    assert!(outcomes[..2].iter().all(|o| matches!(o, Outcome::Retry { .. })));
    assert!(outcomes[2..7].iter().all(|o| matches!(o, Outcome::Rejected { .. })));
    assert!(matches!(outcomes[7], Outcome::Written { created: Some(true), .. }));
    let Outcome::Rejected { message, .. } = &outcomes[2] else { panic!() };
    assert_eq!(message, "no Luz, said [address]");
    let Outcome::Rejected { field, message, .. } = &outcomes[3] else { panic!() };
    assert_eq!(field.as_deref(), Some("LastName"));
    assert!(!message.contains("xxx"), "{message}");
    let Outcome::Rejected { field, message, .. } = &outcomes[4] else { panic!() };
    assert_eq!((field.as_deref(), message.as_str()), (Some("Budget__c"), "should be a number"));
    bench.exactly(&["ana@example.com", "bo@example.com", "cy@example.com", "hal@example.com"]);
}

#[tokio::test]
async fn a_race_is_an_update_of_what_the_other_made() {
    let bench = Bench::new().await;
    bench.written(&records(&["zoe@example.com"])).await;
    bench.script(WRITE, Fault::Conflict);
    let batch = records(&THREE);
    let outcomes = bench.push(&batch).await.unwrap();
    let Outcome::Exists { remote_id } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(matches!(outcomes[1], Outcome::Written { created: Some(true), .. }));
    let full = bench.written(&[known(&batch[0], remote_id)]).await.remove(0).0;
    assert_eq!(&full[..15], remote_id);
    assert_eq!(bench.properties(&full)["FirstName"], "Ana");
    bench.exactly(&["ana@example.com", "bo@example.com", "cy@example.com", "zoe@example.com"]);
}

#[tokio::test]
async fn converted_leads_are_followed_to_their_contact() {
    let bench = Bench::new().await;
    let city = [("City", Some("Porto")), ("Company", Some("Acme")), ("LastName", Some("Luz"))];
    let one = record("ana@example.com", &city);
    let lead = bench.written(std::slice::from_ref(&one)).await.remove(0).0;
    let contact = bench.act(Act::Convert { lead: lead.clone(), contact: None });
    assert_eq!(bench.push(&[known(&one, &lead)]).await.unwrap(), [exists(&contact)]);
    assert_eq!(
        bench.push(std::slice::from_ref(&one)).await.unwrap(),
        [exists(&contact)],
        "its key too"
    );
    let moved = record(
        "ana@example.com",
        &[("City", Some("Faro")), ("Company", Some("New")), ("Phone", Some("5"))],
    );
    assert_eq!(bench.written(&[known(&moved, &contact)]).await, [(contact.clone(), false)]);
    let sent = bench.writes().pop().unwrap();
    let expected = json!({"attributes": {"type": "Contact"}, "id": contact, "MailingCity": "Faro", "Phone": "5"});
    assert_eq!(sent["records"], json!([expected]), "a contact has no company of its own");
    let long = record("ana@example.com", &[("City", Some(&"x".repeat(41)))]);
    let refused = bench.push(&[known(&long, &contact)]).await.unwrap();
    assert!(
        matches!(&refused[0], Outcome::Rejected { field: Some(field), .. } if field == "City"),
        "{refused:?}"
    );
    // The contact is merged into another one, and that one is deleted.
    let other = bench.act(Act::Create { object: Object::Contact, fields: BTreeMap::new() });
    bench.act(Act::Merge { winner: other.clone(), loser: contact.clone() });
    assert_eq!(bench.push(&[known(&one, &contact)]).await.unwrap(), [exists(&other)]);
    assert_eq!(bench.push(&[known(&one, &lead)]).await.unwrap(), [exists(&other)], "all the way");
    let found = bench.found(&one, &["City", "Company"]).await;
    assert_eq!((found.len(), found[0].id.as_str()), (1, other.as_str()));
    assert_eq!(found[0].properties["City"].as_deref(), Some("Faro"));
    bench.act(Act::Delete { id: other.clone() });
    assert_eq!(bench.push(&[known(&one, &other)]).await.unwrap(), [Outcome::Gone]);
    let parked = bench.push(std::slice::from_ref(&one)).await.unwrap();
    assert_eq!(code(&parked[0]), "CONVERTED", "a key that is taken for good: {parked:?}");
}

#[tokio::test]
async fn converted_leads_are_parked_where_that_is_asked_for() {
    let bench = Bench::with(|_| {}, |c| c.converted = Some(config::Converted::Park)).await;
    let one = records(&THREE[..1]).remove(0);
    let lead = bench.written(std::slice::from_ref(&one)).await.remove(0).0;
    bench.act(Act::Convert { lead: lead.clone(), contact: None });
    for pushed in [known(&one, &lead), one.clone()] {
        let outcomes = bench.push(&[pushed]).await.unwrap();
        assert_eq!(code(&outcomes[0]), "CONVERTED");
    }
    let found = bench.found(&one, &[]).await;
    assert_eq!((found.len(), found[0].archived), (1, true));
    let described = "/services/data/v67.0/sobjects/Contact/describe";
    assert!(bench.calls(described).is_empty(), "there may be no right to contacts");
}

#[tokio::test]
async fn merged_and_deleted_leads() {
    let bench = Bench::new().await;
    let all = records(&[THREE[0], THREE[1], THREE[2], "dee@example.com"]);
    let ids: Vec<String> = bench.written(&all).await.into_iter().map(|(id, _)| id).collect();
    bench.act(Act::Merge { winner: ids[1].clone(), loser: ids[0].clone() });
    bench.act(Act::Merge { winner: ids[2].clone(), loser: ids[1].clone() });
    bench.act(Act::Delete { id: ids[3].clone() });
    let by_id: Vec<Record> = all.iter().zip(&ids).map(|(r, id)| known(r, id)).collect();
    let outcomes = bench.push(&by_id).await.unwrap();
    assert_eq!(outcomes[..2], [exists(&ids[2]), exists(&ids[2])], "followed to the last one");
    assert!(matches!(outcomes[2], Outcome::Written { .. }));
    assert_eq!(outcomes[3], Outcome::Gone);
    assert_eq!(
        bench.calls("/services/data/v67.0/queryAll").len(),
        3,
        "one question per step, for all"
    );
    // Now three leads of ours are one there: a call names it once.
    let same = [known(&all[0], &ids[2]), known(&all[1], &ids[2][..15]), known(&all[2], &ids[2])];
    let outcomes = bench.push(&same).await.unwrap();
    assert!(matches!(outcomes[0], Outcome::Written { .. }));
    assert!(outcomes[1..].iter().all(|o| code(o) == "SAME_RECORD"), "{outcomes:?}");
    for id in ["00Q000000009999AAA", "1001", "", "00Q", "é"] {
        let outcomes = bench.push(&[known(&all[3], id)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Gone], "{id}");
    }
    let (anew, new) = bench.written(&all[3..]).await.remove(0);
    assert!(new && anew != ids[3]);
}

#[tokio::test]
async fn an_expired_session_is_renewed_once_for_all() {
    let bench = Bench::new().await;
    bench.written(&records(&THREE)).await;
    bench.act(Act::EndSessions);
    let batch = |n: usize| {
        records(&[["d@example.com", "e@example.com", "f@example.com", "g@example.com"][n]])
    };
    let batches = [batch(0), batch(1), batch(2), batch(3)];
    let pushed = futures_util::future::join_all(batches.iter().map(|b| bench.push(b))).await;
    assert!(pushed.iter().all(Result::is_ok), "{pushed:?}");
    assert_eq!(bench.calls(TOKEN).len(), 2, "one at the start, one for four calls");
    bench.option(|o| o.session = Duration::ZERO);
    let refused = bench.push(&records(&THREE)).await;
    let Err(CallError::Credentials { code, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((code.as_str(), bench.calls(TOKEN).len()), ("INVALID_SESSION_ID", 3));
    bench.option(|o| o.client_secret = Some("other".to_owned()));
    let refused = bench.push(&records(&THREE)).await;
    let Err(CallError::Credentials { code, message }) = refused else { panic!("{refused:?}") };
    assert_eq!(code, "invalid_client");
    assert!(message.contains("`client_secret`"), "{message}");
}

#[tokio::test]
async fn a_refresh_token_that_rotates() {
    let options = |o: &mut Options| {
        o.refresh_token = Some("r0".to_owned());
        o.rotate_refresh_tokens = true;
        o.client_credentials = false;
    };
    let bench = Bench::with(options, |c| c.refresh_token = Some(Secret::new("r0"))).await;
    for _ in 0..3 {
        bench.written(&records(&THREE)).await;
        bench.act(Act::EndSessions);
    }
    let forms: Vec<Vec<u8>> = bench.calls(TOKEN).iter().map(|c| c.body.to_vec()).collect();
    assert_eq!(forms.len(), 3);
    assert!(forms.iter().all(|f| String::from_utf8_lossy(f).contains("grant_type=refresh_token")));
    bench.exactly(&THREE);
}

#[tokio::test]
async fn limits_come_as_403_and_say_how_long() {
    let bench = Bench::new().await;
    let reply = bench.to.push(&records(&THREE)).await.unwrap();
    assert_eq!(reply.limits.len(), 1);
    assert_eq!(reply.limits[0].window, Duration::from_secs(86_400));
    assert_eq!(reply.limits[0].allowed, Some(1_000_000_000));
    assert_eq!(reply.limits[0].remaining, 1_000_000_000 - 2, "the description counts");
    let pause = async || match bench.push(&records(&THREE)).await {
        Err(CallError::SlowDown { after, .. }) => after.map(|t| t.as_secs()),
        other => panic!("{other:?}"),
    };
    bench.option(|o| o.daily_limit = 1);
    assert_eq!(pause().await, Some(3600), "the day's limit is looked at hourly");
    bench.option(|o| o.daily_limit = 1_000);
    bench.script(WRITE, Fault::RateLimited { retry_after: None, daily: false });
    assert_eq!(pause().await, Some(10));
    bench.script(
        WRITE,
        Fault::Status { status: 429, body: Body::Empty, apply: Apply::None, retry_after: Some(7) },
    );
    assert_eq!(pause().await, Some(7));
    bench.written(&records(&THREE)).await;
    bench.exactly(&THREE);
}

#[tokio::test]
async fn written_but_not_told_is_unknown_and_repeats_safely() {
    let bench = Bench::new().await;
    bench.to.check(&[]).await.unwrap();
    for (at, fault) in [
        Fault::HoldAfter,
        Fault::ResetAfter,
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::CutJson,
        Fault::EmptyBody { status: 200 },
        Fault::EmptyResults,
        Fault::Omit { input: 0, written: true },
    ]
    .into_iter()
    .enumerate()
    {
        let batch = records(&[format!("n{at}@example.com").as_str(), "last@example.com"]);
        bench.script(WRITE, fault.clone());
        let result = bench.push(&batch).await;
        assert!(unknown(&result), "{fault:?}: {result:?}");
        bench.fake.release();
        bench.written(&batch).await;
    }
    for (status, body, apply) in [
        (500, Body::Json, Apply::None),
        (502, Body::Html, Apply::Half),
        (503, Body::Json, Apply::All),
        (504, Body::Empty, Apply::All),
    ] {
        bench.status(status, body, apply);
        let result = bench.push(&records(&THREE)).await;
        assert!(unknown(&result), "{status}: {result:?}");
        bench.written(&records(&THREE)).await;
    }
    // Order is promised; a turned list would be noticed by nobody, which is why it is not to be trusted with less.
    bench.script(WRITE, Fault::Reorder { order: Order::AsSent });
    bench.written(&records(&THREE)).await;
    let creates = bench.fake.creates_per_email(Crm::Salesforce);
    assert_eq!(creates.len(), 12);
    assert!(creates.values().all(|n| *n == 1), "{creates:?}");
    assert_eq!(bench.fake.doubles(Crm::Salesforce), 0);
}

#[tokio::test]
async fn what_fails_before_the_write_wrote_nothing() {
    let query = "/services/data/v67.0/query";
    let describe = "/services/data/v67.0/sobjects";
    for fault in [
        Fault::ResetAfter,
        Fault::CutJson,
        Fault::HoldAfter,
        Fault::Status { status: 503, body: Body::Html, apply: Apply::None, retry_after: None },
    ] {
        for path in [TOKEN, describe] {
            let bench = Bench::new().await;
            bench.script(path, fault.clone());
            let failed = bench.push(&records(&THREE)).await;
            assert!(
                matches!(failed, Err(CallError::Unreachable { .. })),
                "{path} {fault:?}: {failed:?}"
            );
            bench.fake.release();
            bench.exactly(&[]);
            bench.written(&records(&THREE)).await;
            bench.exactly(&THREE);
        }
        // Where a record went is asked for after the write; what was said of the others stands.
        let bench = Bench::new().await;
        let all = records(&THREE);
        let ids: Vec<String> = bench.written(&all).await.into_iter().map(|(id, _)| id).collect();
        bench.act(Act::Delete { id: ids[0].clone() });
        bench.script(query, fault.clone());
        let by_id: Vec<Record> = all.iter().zip(&ids).map(|(r, id)| known(r, id)).collect();
        let outcomes = bench.push(&by_id).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Retry { .. }), "{fault:?}: {outcomes:?}");
        assert!(outcomes[1..].iter().all(|o| matches!(o, Outcome::Written { .. })));
        bench.fake.release();
        assert_eq!(bench.push(&by_id).await.unwrap()[0], Outcome::Gone);
    }
    let bench = Bench::new().await;
    bench.fake.stop().await;
    let down = bench.push(&records(&THREE)).await;
    assert!(matches!(down, Err(CallError::Unreachable { .. })), "{down:?}");
    bench.fake.resume().await.unwrap();
    bench.written(&records(&THREE)).await;
}

#[tokio::test]
async fn refusals_are_sorted() {
    let bench = Bench::new().await;
    let batch = records(&THREE);
    let call = async |status| {
        bench.status(status, Body::Json, Apply::None);
        bench.push(&batch).await
    };
    for status in [301, 302, 404, 405, 410] {
        let result = call(status).await;
        assert!(matches!(result, Err(CallError::Misconfigured { .. })), "{status} {result:?}");
    }
    for status in [400, 413, 414, 422] {
        let result = call(status).await;
        assert!(matches!(result, Err(CallError::Refused { .. })), "{status} {result:?}");
    }
    let result = call(403).await;
    assert!(matches!(result, Err(CallError::Credentials { .. })), "{result:?}");
    bench.option(|o| o.api_enabled = false);
    let off = bench.push(&batch).await;
    assert!(
        matches!(&off, Err(CallError::Credentials { code, .. }) if code == "API_DISABLED_FOR_ORG")
    );
    bench.option(|o| o.api_enabled = true);
    bench.exactly(&[]);

    // The right to write is that of all records where it is about new ones, else that of the one.
    let no = ItemError {
        code: "INSUFFICIENT_ACCESS_OR_READONLY".into(),
        message: "insufficient access rights".into(),
        fields: Vec::new(),
        matches: Vec::new(),
    };
    bench.option(|o| drop(o.refusals.insert("bo@example.com".into(), no.clone())));
    let new = bench.push(&batch).await;
    assert!(matches!(new, Err(CallError::Credentials { .. })), "{new:?}");
    bench.option(|o| o.refusals.clear());
    let ids: Vec<String> = bench.written(&batch).await.into_iter().map(|(id, _)| id).collect();
    let by_id: Vec<Record> = batch.iter().zip(&ids).map(|(r, id)| known(r, id)).collect();
    bench.option(|o| drop(o.refusals.insert(ids[1].clone(), no.clone())));
    let outcomes = bench.push(&by_id).await.unwrap();
    assert_eq!(
        outcomes.iter().map(code).collect::<Vec<_>>(),
        ["", "INSUFFICIENT_ACCESS_OR_READONLY", ""]
    );
    bench.option(|o| o.refusals = ids.iter().map(|id| (id.clone(), no.clone())).collect());
    let all = bench.push(&by_id).await;
    assert!(matches!(all, Err(CallError::Credentials { .. })), "{all:?}");
    bench.option(|o| {
        o.refusals.clear();
        o.duplicate_rule = DuplicateRule::Block;
    });
    // A rule of the org finds a contact with the same address: the ids are told, nothing is guessed.
    let fields = [("Email".to_owned(), json!("dee@example.com"))].into();
    let theirs = bench.act(Act::Create { object: Object::Contact, fields });
    let outcomes = bench.push(&records(&["dee@example.com"])).await.unwrap();
    let Outcome::Rejected { code, message, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert_eq!(code, "DUPLICATES_DETECTED");
    assert!(message.contains(&theirs), "{message}");
}

#[tokio::test]
async fn configuration_errors_stop_everything() {
    let bench = Bench::new().await;
    let stopped = async |record: Record| match bench.push(&[record]).await {
        Err(CallError::Misconfigured { code, message }) => (code, message),
        other => panic!("{other:?}"),
    };
    let (code, message) = stopped(record("ana@example.com", &[("FrstName", Some("x"))])).await;
    assert_eq!(code, "INVALID_FIELD");
    assert!(message.contains("did you mean \"FirstName\"?"), "{message}");
    assert_eq!(bench.writes().len(), 0, "known beforehand");
    let (code, _) =
        stopped(record("ana@example.com", &[("CreatedDate", Some("2026-11-30"))])).await;
    assert_eq!(code, "INVALID_FIELD_FOR_INSERT_UPDATE");
    // The user loses the right to see a field after it was described.
    bench.option(|o| o.objects.get_mut(&Object::Lead).unwrap().retain(|f| f.name != "Phone"));
    let (code, _) = stopped(record("ana@example.com", &[("Phone", Some("1"))])).await;
    assert_eq!(code, "INVALID_FIELD");
    for (change, expected) in [
        (
            Box::new(|o: &mut Options| {
                o.field_mut(Object::Lead, "Lead_Email_Key__c").unwrap().unique = false
            }) as Box<dyn FnOnce(&mut Options)>,
            "KEY_NOT_UNIQUE",
        ),
        (
            Box::new(|o| o.objects.get_mut(&Object::Lead).unwrap().retain(|f| !f.external_id)),
            "NO_KEY",
        ),
    ] {
        let bench = Bench::with(change, |_| {}).await;
        let refused = bench.push(&records(&THREE)).await;
        assert!(
            matches!(&refused, Err(CallError::Misconfigured { code, .. }) if code == expected),
            "{refused:?}"
        );
        bench.exactly(&[]);
    }
    bench.exactly(&[]);
}

#[tokio::test]
async fn check_says_what_to_do_and_writes_nothing() {
    let bench = Bench::new().await;
    let mapped: Vec<Mapped> =
        bench.to.default_fields().iter().map(|(value, to)| Mapped::new(*value, *to)).collect();
    for (value, _) in bench.to.default_fields() {
        assert!(Lead::is_value_name(value), "{value}");
    }
    let found = bench.to.check(&mapped).await.unwrap();
    assert!(found.iter().any(|f| f.contains("unique external id")), "{found:?}");
    assert!(found.iter().any(|f| f.contains("calls a day")), "{found:?}");
    let bare = bench.to.check(&[]).await.unwrap();
    assert!(bare.iter().any(|f| f.contains("Lead.Company is not mapped")), "{bare:?}");
    let check = async |field: Mapped| match bench.to.check(&[field]).await {
        Err(CallError::Misconfigured { code, message }) => (code, message),
        other => panic!("{other:?}"),
    };
    let (code, message) = check(Mapped::new("phone", "Phon")).await;
    assert_eq!(code, "INVALID_FIELD");
    assert!(message.contains("did you mean \"Phone\"?"), "{message}");
    assert_eq!(check(Mapped::new("phone", "CreatedDate")).await.0, "READ_ONLY_FIELD");
    let mut tier = Mapped::new("attributes.tier", "Tier__c");
    tier.values = [("vip".to_owned(), "platinum".to_owned())].into();
    let (code, message) = check(tier).await;
    assert_eq!(code, "INVALID_OPTION");
    assert!(message.contains("valid are gold, silver"), "{message}");
    bench.option(|o| o.field_mut(Object::Lead, "Lead_Email_Key__c").unwrap().unique = false);
    let (code, message) = check(Mapped::new("phone", "Phone")).await;
    assert_eq!(code, "KEY_NOT_UNIQUE");
    assert!(message.contains("\"External ID\" and \"Unique\""), "{message}");
    bench.option(|o| o.client_secret = Some("other".to_owned()));
    bench.act(Act::EndSessions);
    assert!(matches!(bench.to.check(&[]).await, Err(CallError::Credentials { .. })));
    assert!(bench.writes().is_empty());
}

#[tokio::test]
async fn look_up_finds_by_key_by_address_and_by_id() {
    let bench = Bench::new().await;
    let all = records(&THREE);
    let ids: Vec<String> = bench.written(&all).await.into_iter().map(|(id, _)| id).collect();
    let hand = bench.by_hand("ana@example.com", &[("Phone", json!("7"))]);
    let found = bench.found(&all[0], &["Phone", "FirstName", "Consent__c", "Nope"]).await;
    let of = |id: &str| found.iter().find(|r| r.id == id).expect("found");
    assert_eq!(found.len(), 1, "ours, and not {hand}");
    assert_eq!(of(&ids[0]).properties["Phone"], None);
    assert_eq!(of(&ids[0]).properties["Consent__c"].as_deref(), Some("false"));
    assert_eq!(of(&ids[0]).email.as_deref(), Some("ana@example.com"));
    assert!(!of(&ids[0]).properties.contains_key("Nope"));
    bench.act(Act::Merge { winner: ids[1].clone(), loser: ids[2].clone() });
    let found = bench.found(&known(&all[2], &ids[2]), &[]).await;
    assert_eq!(found.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), [ids[1].as_str()]);
    bench.act(Act::Delete { id: ids[1].clone() });
    assert!(bench.found(&known(&all[1], &ids[1]), &[]).await.is_empty());
    assert!(bench.found(&record("nobody@example.com", &[]), &[]).await.is_empty());
    assert_eq!(bench.to.look_up(&[], &[]).await.unwrap().value, Vec::<Vec<Remote>>::new());
    let both = [all[0].clone(), known(&all[2], &ids[2]), all[2].clone()];
    let found = bench.to.look_up(&both, &[]).await.unwrap().value;
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 0]);
}

#[tokio::test]
async fn the_list_is_all_of_them_in_pages() {
    let bench = Bench::with(|o| o.query_page = 700, |_| {}).await;
    for n in 0..2_003 {
        bench.by_hand(&format!("N{n}@example.com"), &[]);
    }
    let gone = bench.by_hand("gone@example.com", &[]);
    bench.act(Act::Delete { id: gone });
    let properties = ["Company".to_owned()];
    let first = bench.to.list(None, &properties).await.unwrap().value;
    assert_eq!(first.contacts.len(), 2_000);
    let second = bench.to.list(first.next.as_deref(), &properties).await.unwrap().value;
    assert_eq!((second.contacts.len(), second.next), (3, None));
    assert_eq!(second.contacts[2].email.as_deref(), Some("n2002@example.com"));
    assert_eq!(second.contacts[2].properties["Company"].as_deref(), Some("Acme"));
}

#[tokio::test]
async fn contacts_instead_of_leads() {
    let bench = Bench::with(|_| {}, |c| c.object = Some("Contact".to_owned())).await;
    let city = [("FirstName", Some("Ana")), ("MailingCity", Some("Porto"))];
    let (id, new) = bench.written(&[record("ana@example.com", &city)]).await.remove(0);
    assert!(new && id.starts_with("003"));
    assert_eq!(bench.calls(WRITE)[0].path, format!("{WRITE}/sobjects/Contact/Lead_Email_Key__c"));
    assert_eq!(bench.properties(&id)["LastName"], "[not provided]");
    let mapped: Vec<Mapped> =
        bench.to.default_fields().iter().map(|(value, to)| Mapped::new(*value, *to)).collect();
    bench.to.check(&mapped).await.unwrap();
    bench.exactly(&["ana@example.com"]);
}

#[tokio::test]
async fn nothing_secret_or_personal_is_said() {
    let bench = Bench::new().await;
    let to = build(&settings(&bench.fake.url().replace("//", "//user:pw@"))).unwrap();
    let one = record("ana@example.com", &[("LastName", Some("Anastasia"))]);
    let mut said = Vec::new();
    for fault in [
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::Status { status: 500, body: Body::Html, apply: Apply::None, retry_after: None },
        Fault::Conflict,
    ] {
        bench.script(WRITE, fault);
        said.push(format!("{:?}", to.push(std::slice::from_ref(&one)).await));
    }
    bench.option(|o| o.client_id = Some("other".to_owned()));
    bench.act(Act::EndSessions);
    said.push(format!("{:?} {:?}", to.push(std::slice::from_ref(&one)).await, to.check(&[]).await));
    bench.fake.stop().await;
    said.push(format!("{:?}", to.push(&[one]).await));
    for secret in ["hush", "pw@", "user", "ana@", "Anastasia"] {
        assert!(said.iter().all(|s| !s.contains(secret)), "{secret} in {said:?}");
    }
}

#[test]
fn wrong_configuration_is_refused_by_name() {
    let said = |change: fn(&mut config::Destination)| {
        let mut config = settings("https://example.my.salesforce.com");
        change(&mut config);
        build(&config).err().expect("this configuration is wrong").to_string()
    };
    assert!(build(&settings("https://example.my.salesforce.com")).is_ok());
    for (change, expected) in [
        (
            (|c| c.client_id = None) as fn(&mut config::Destination),
            "`client_id` is missing: make an External Client App",
        ),
        (|c| c.client_secret = None, "`client_secret` is missing"),
        (|c| c.base_url = None, "`base_url` is missing: the address of your org"),
        (|c| c.base_url = Some("example.com".into()), "`base_url`"),
        (|c| c.token_url = Some("x".into()), "`token_url`"),
        (|c| c.object = Some("Account".into()), "`object` must be \"Lead\" or \"Contact\""),
        (|c| c.key_property = Some("E mail".into()), "`key_property` is no name of a field"),
        (|c| c.token = Some(Secret::new("t")), "`token` is nothing that kind salesforce reads"),
        (
            |c| drop(c.fields.insert("phone".into(), config::Property::Name("email".into()))),
            "maps something else",
        ),
        (
            |c| {
                drop(
                    c.fields
                        .insert("phone".into(), config::Property::Name("lead_email_key__C".into())),
                )
            },
            "how leads are told apart",
        ),
        (
            |c| drop(c.fields.insert("phone".into(), config::Property::Name("a-b".into()))),
            "no name of a field",
        ),
    ] {
        let message = said(change);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}
