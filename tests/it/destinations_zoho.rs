//! The destination zoho against its stand-in: what it sends, and what it makes of each answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::config;
use leadsync::destinations::{
    self, CallError, Destination, DestinationError, Key, Mapped, Outcome, Record, Remote, Setup,
};
use leadsync::fake_crm::zoho::{Act, ItemError, Module, Options};
use leadsync::fake_crm::{self, Apply, Body, Call, Crm, FakeCrm, Fault, Scripted};
use leadsync::lead::Lead;
use leadsync::secret::Secret;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::openapi::{Spec, all_right};

/// Long enough for a loaded machine, short enough to wait for where a time-out is the point.
const DEADLINE: Duration = Duration::from_millis(1500);
const UPSERT: &str = "/crm/v8/Leads/upsert";
const LEADS: &str = "/crm/v8/Leads";
const TOKEN: &str = "/oauth/v2/token";

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
        all.zoho.client_id = Some("app".to_owned());
        all.zoho.client_secret = Some("hush".to_owned());
        all.zoho.refresh_token = Some("silence".to_owned());
        options(&mut all.zoho);
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
        self.script(UPSERT, Fault::Status { status, body, apply, retry_after: None });
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options.zoho);
        self.fake.set_options(options);
    }

    fn act(&self, act: Act) -> String {
        self.fake.zoho(&act).unwrap()
    }

    /// Somebody enters a lead by hand.
    fn by_hand(&self, email: &str, more: &[(&str, Value)]) -> String {
        let mut fields: BTreeMap<String, Value> =
            [("Last_Name", json!("Luz")), ("Email", json!(email))]
                .map(|(name, value)| (name.to_owned(), value))
                .into();
        fields.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        self.act(Act::Create { module: Module::Leads, fields })
    }

    fn calls(&self, path: &str) -> Vec<Call> {
        self.fake.calls().into_iter().filter(|c| c.path.starts_with(path)).collect()
    }

    /// Method, path and body of the writes so far.
    fn writes(&self) -> Vec<(String, Value)> {
        let is_write = |c: &Call| c.path.ends_with("/upsert") || c.method == "PUT";
        let calls = self.fake.calls().into_iter().filter(is_write);
        calls.map(|c| (format!("{} {}", c.method, c.path), c.json())).collect()
    }

    fn properties(&self, id: &str) -> BTreeMap<String, String> {
        let contacts = self.fake.contacts(Crm::Zoho);
        contacts.into_iter().find(|c| c.id == id).expect("a record").properties
    }

    /// Exactly these e-mails, each created once.
    fn exactly(&self, emails: &[&str]) {
        let there = self.fake.contacts(Crm::Zoho).into_iter().filter(|c| !c.archived);
        let mut there: Vec<String> = there.map(|c| c.email).collect();
        there.sort();
        assert_eq!(there, emails);
        let creates = self.fake.creates_per_email(Crm::Zoho);
        assert!(creates.values().all(|n| *n == 1), "{creates:?}");
        assert_eq!(self.fake.doubles(Crm::Zoho), 0);
    }
}

/// Every request of every test that the API's description knows is what it allows.
impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let Some(spec) = Spec::read("zoho-upsert.subset.openapi.json") else { return };
        let calls = self.fake.calls();
        let known = |call: &&Call| {
            // The empty one asks for the right to write, and updates, queries and lists are not in it.
            spec.wrong(call).is_some() && call.json()["data"] != json!([])
        };
        all_right(&spec, calls.iter().filter(known));
    }
}

fn settings(base_url: &str) -> config::Destination {
    let mut config = config::Destination::new("crm", "zoho");
    config.client_id = Some("app".to_owned());
    config.client_secret = Some(Secret::new("hush"));
    config.refresh_token = Some(Secret::new("silence"));
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
    let properties = [("First_Name", Some("Ana")), ("Last_Name", Some("Luz"))];
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
    assert_eq!((bench.to.key(), bench.to.batch_size()), (Key::Enforced, 100));
    assert_eq!([1, 10, 11, 100].map(|n| bench.to.cost(n)), [1, 1, 2, 10]);
    let one = record(
        "ana@example.com",
        &[
            ("Budget", Some("10.50")),
            ("Email_Opt_Out", Some("true")),
            ("Employees", Some("12")),
            ("First_Seen", Some("2026-11-30T23:10:00Z")),
            ("Last_Name", Some("Luz")),
            ("Last_Seen", Some("2026-11-30T23:10:00.5Z")),
            ("Phone", None),
            ("Tags", Some("a;b")),
        ],
    );
    let (id, new) = bench.written(std::slice::from_ref(&one)).await.remove(0);
    assert!(new);
    let expected = json!({
        "data": [{
            "Email": "ana@example.com", "Budget": 10.5, "Email_Opt_Out": true, "Employees": 12,
            "First_Seen": "2026-11-30", "Last_Name": "Luz", "Last_Seen": "2026-11-30T23:10:00+00:00",
            "Phone": null, "Tags": ["a", "b"],
        }],
        "duplicate_check_fields": ["Email"],
    });
    assert_eq!(bench.writes(), [(format!("POST {UPSERT}"), expected)]);
    assert_eq!(bench.fake.calls().len(), 3, "token, fields, upsert");

    // Somebody changes the address in Zoho: it is theirs.
    let fields = [("Email".to_owned(), json!("private@example.com"))].into();
    bench.act(Act::Edit { id: id.clone(), fields });
    let changes =
        [("Email_Opt_Out", None), ("Last_Name", None), ("Phone", Some("1")), ("Tags", None)];
    let next = known(&record("ana@example.com", &changes), &id);
    assert_eq!(bench.written(&[next]).await, [(id.clone(), false)]);
    let expected = json!({"data": [{
        "id": id, "Email_Opt_Out": false, "Last_Name": "[not provided]", "Phone": "1", "Tags": null,
    }]});
    assert_eq!(bench.writes()[1], (format!("PUT {LEADS}"), expected));
    let there = bench.properties(&id);
    assert_eq!(there["Email"], "private@example.com");
    assert!(!there.contains_key("Tags"));
    assert_eq!(bench.push(&[]).await, Ok(Vec::new()), "nothing to push is no call");
    assert_eq!(bench.fake.calls().len(), 4);
}

#[tokio::test]
async fn a_hundred_in_a_call_and_every_repeat_safe() {
    let bench = Bench::new().await;
    let emails: Vec<String> = (0..100).map(|n| format!("o'n{n:03}+x@example.com")).collect();
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
    assert_eq!(bench.writes().len(), 4);
    bench.exactly(&emails);
    let groups: Vec<&str> = [&all[0], &by_id[0], &known(&all[0], "Contacts/5544000000000001001")]
        .map(|r| bench.to.group(r))
        .into();
    assert_eq!(groups, ["by_key", "lead_by_id", "contact_by_id"]);
}

#[tokio::test]
async fn leads_that_people_entered_are_found_and_only_new_ones_are_filled() {
    let bench = Bench::new().await;
    bench.option(|o| o.field_mut(Module::Leads, "Company").unwrap().required = true);
    let named = bench.by_hand("Ana@Example.com", &[]);
    let with =
        record("ana@example.com", &[("Company", Some("Acme")), ("Last_Name", Some("Silva"))]);
    assert_eq!(bench.written(&[with]).await, [(named.clone(), false)], "the upsert finds it");
    let twice = [bench.by_hand("bo@example.com", &[]), bench.by_hand("bo@example.com", &[])];
    let nameless: Vec<Record> = THREE
        .iter()
        .map(|e| record(e, &[("First_Name", Some("X")), ("Last_Name", None)]))
        .collect();
    let outcomes = bench.push(&nameless).await.unwrap();
    assert_eq!(outcomes[0], exists(&named));
    assert_eq!(outcomes[1], Outcome::Ambiguous { remote_ids: twice.into() });
    let Outcome::Written { remote_id: Some(new), created: Some(true) } = &outcomes[2] else {
        panic!("{outcomes:?}")
    };
    let there = bench.properties(new);
    assert_eq!(
        (there["Last_Name"].as_str(), there["Company"].as_str()),
        ("[not provided]", "[not provided]")
    );
    assert_eq!(
        bench
            .written(&[known(&record("ana@example.com", &[("First_Name", Some("X"))]), &named)])
            .await
            .len(),
        1
    );
    assert_eq!(bench.properties(&named)["Last_Name"], "Silva");
}

#[tokio::test]
async fn a_key_of_ours_beside_the_address() {
    let bench = Bench::with(
        |o| o.field_mut(Module::Leads, "Email").unwrap().unique = false,
        |c| {
            c.key_property = Some("Lead_Key".to_owned());
        },
    )
    .await;
    let theirs = bench.by_hand("ana@example.com", &[]);
    let written = bench.written(&records(&THREE[..1])).await;
    assert_eq!(written, [(theirs.clone(), false)], "found by its address");
    assert_eq!(bench.properties(&theirs)["Lead_Key"], "ana@example.com", "and keyed from now on");
    assert_eq!(bench.writes()[0].1["duplicate_check_fields"], json!(["Lead_Key", "Email"]));
    let fields = [("Email".to_owned(), json!("private@example.com"))].into();
    bench.act(Act::Edit { id: theirs.clone(), fields });
    assert_eq!(bench.written(&records(&THREE[..1])).await, [(theirs, false)]);
    bench.script(UPSERT, Fault::Conflict);
    let raced = bench.push(&records(&THREE[1..2])).await.unwrap();
    assert!(matches!(raced[0], Outcome::Exists { .. }), "{raced:?}");
    assert_eq!(bench.fake.doubles(Crm::Zoho), 0);
}

#[tokio::test]
async fn each_record_stands_alone() {
    let bench = Bench::new().await;
    let first = bench.written(&records(&THREE)).await;
    let error = |code: &str, field: &str| ItemError {
        code: code.to_owned(),
        message: "no, said ana@example.com".to_owned(),
        details: [("api_name".to_owned(), json!(field))].into(),
    };
    bench.option(|o| {
        o.refusals = [
            (first[0].0.clone(), error("RECORD_LOCKED", "")),
            (first[1].0.clone(), error("NOT_ALLOWED", "First_Name")),
            (first[2].0.clone(), error("INTERNAL_ERROR", "")),
        ]
        .into();
    });
    let name = ("Last_Name", Some("Luz"));
    let mut batch = records(&THREE);
    batch.push(record("dee@example.com", &[("Last_Name", Some(&"x".repeat(81)))]));
    batch.push(record("eve@example.com", &[("Budget", Some("a lot")), name]));
    batch.push(record("gil@localhost", &[name]));
    batch.push(record("hal@example.com", &[name]));
    let outcomes = bench.push(&batch).await.unwrap();
    let codes: Vec<&str> = outcomes.iter().map(code).collect();
    assert_eq!(
        codes,
        ["RECORD_LOCKED", "NOT_ALLOWED", "", "INVALID_DATA", "INVALID_VALUE", "INVALID_DATA", ""]
    );
    assert!(matches!(outcomes[0], Outcome::Retry { .. }));
    assert!(matches!(outcomes[2], Outcome::Unknown { .. }));
    assert!(matches!(outcomes[6], Outcome::Written { created: Some(true), .. }));
    let Outcome::Rejected { field, message, .. } = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!((field.as_deref(), message.as_str()), (Some("First_Name"), "no, said [address]"));
    let Outcome::Rejected { field, message, .. } = &outcomes[3] else { panic!("{outcomes:?}") };
    assert_eq!(field.as_deref(), Some("Last_Name"));
    assert_eq!(message, "invalid data; at most, in characters: 80");
    let Outcome::Rejected { field, .. } = &outcomes[5] else { panic!("{outcomes:?}") };
    assert_eq!(field.as_deref(), Some("Email"));
    // Where every record fails the status is 400, and the items are read all the same.
    let failed = bench.push(&batch[5..6]).await.unwrap();
    assert_eq!(code(&failed[0]), "INVALID_DATA");
    bench.option(|o| o.refusals.clear());
    bench.exactly(&["ana@example.com", "bo@example.com", "cy@example.com", "hal@example.com"]);
}

#[tokio::test]
async fn a_race_is_an_update_of_what_the_other_made() {
    let bench = Bench::new().await;
    bench.script(UPSERT, Fault::Conflict);
    let batch = records(&THREE);
    let outcomes = bench.push(&batch).await.unwrap();
    let Outcome::Exists { remote_id } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(matches!(outcomes[1], Outcome::Written { created: Some(true), .. }));
    assert_eq!(bench.written(&[known(&batch[0], remote_id)]).await, [(remote_id.clone(), false)]);
    bench.exactly(&THREE);
    // Another unique field is no reason to write to somebody else's record.
    bench.option(|o| o.field_mut(Module::Leads, "Phone").unwrap().unique = true);
    bench.by_hand("dee@example.com", &[("Phone", json!("5"))]);
    let taken = known(&record("ana@example.com", &[("Phone", Some("5"))]), remote_id);
    let outcomes = bench.push(&[taken]).await.unwrap();
    assert_eq!(code(&outcomes[0]), "DUPLICATE_DATA");
    // Zoho would find the lead by it: known from the fields as they are when the destination starts.
    let to = build(&settings(&bench.fake.url())).unwrap();
    let second_key = record("eve@example.com", &[("Last_Name", Some("Luz")), ("Phone", Some("5"))]);
    let refused = to.push(&[second_key]).await;
    assert!(
        matches!(&refused, Err(CallError::Misconfigured { code, .. }) if code == "UNIQUE_FIELD"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn converted_leads_are_followed_to_their_contact() {
    for has_code in [false, true] {
        let bench = Bench::with(|o| o.converted_has_a_code = has_code, |_| {}).await;
        let all = [("City", Some("Porto")), ("Company", Some("Acme")), ("Last_Name", Some("Luz"))];
        let one = record("ana@example.com", &all);
        let lead = bench.written(std::slice::from_ref(&one)).await.remove(0).0;
        let contact = bench.act(Act::Convert { lead: lead.clone(), contact: None });
        let remembered = format!("Contacts/{contact}");
        assert_eq!(bench.push(&[known(&one, &lead)]).await.unwrap(), [exists(&remembered)]);
        let moved = record(
            "ana@example.com",
            &[("City", Some("Faro")), ("Company", Some("New")), ("Designation", Some("CEO"))],
        );
        assert_eq!(
            bench.written(&[known(&moved, &remembered)]).await,
            [(remembered.clone(), false)]
        );
        let expected = json!({"data": [{"id": contact, "Mailing_City": "Faro", "Title": "CEO"}]});
        assert_eq!(bench.writes().pop().unwrap(), ("PUT /crm/v8/Contacts".to_owned(), expected));
        let found = bench.found(&known(&one, &lead), &["City", "Company", "Designation"]).await;
        assert_eq!((found.len(), found[0].id.as_str()), (1, remembered.as_str()));
        assert_eq!(found[0].properties["City"].as_deref(), Some("Faro"));
        assert_eq!(found[0].properties["Designation"].as_deref(), Some("CEO"));
        assert!(!found[0].properties.contains_key("Company"));
        let long = record("ana@example.com", &[("City", Some(&"x".repeat(101)))]);
        let refused = bench.push(&[known(&long, &remembered)]).await.unwrap();
        assert!(
            matches!(&refused[0], Outcome::Rejected { field: Some(field), .. } if field == "City"),
            "{refused:?}"
        );
        bench.act(Act::Delete { id: contact });
        for id in [&remembered, &lead] {
            assert_eq!(bench.push(&[known(&one, id)]).await.unwrap(), [Outcome::Gone], "{id}");
        }
    }
    let bench = Bench::with(|_| {}, |c| c.converted = Some(config::Converted::Park)).await;
    let one = records(&THREE[..1]).remove(0);
    let lead = bench.written(std::slice::from_ref(&one)).await.remove(0).0;
    bench.act(Act::Convert { lead: lead.clone(), contact: None });
    assert_eq!(code(&bench.push(&[known(&one, &lead)]).await.unwrap()[0]), "CONVERTED");
}

#[tokio::test]
async fn merged_and_deleted_leads_are_gone() {
    let bench = Bench::new().await;
    let all = records(&[THREE[0], THREE[1], THREE[2], "dee@example.com"]);
    let ids: Vec<String> = bench.written(&all).await.into_iter().map(|(id, _)| id).collect();
    bench.act(Act::Merge { winner: ids[1].clone(), loser: ids[0].clone() });
    bench.act(Act::Delete { id: ids[3].clone() });
    let by_id: Vec<Record> = all.iter().zip(&ids).map(|(r, id)| known(r, id)).collect();
    let outcomes = bench.push(&by_id).await.unwrap();
    assert_eq!([&outcomes[0], &outcomes[3]], [&Outcome::Gone, &Outcome::Gone]);
    assert!(outcomes[1..3].iter().all(|o| matches!(o, Outcome::Written { .. })));
    let same = [known(&all[1], &ids[1]), known(&all[2], &ids[1])];
    let outcomes = bench.push(&same).await.unwrap();
    assert_eq!((code(&outcomes[0]), code(&outcomes[1])), ("", "SAME_RECORD"));
    for id in ["5544000000000009999", "00Q1", "", "Contacts/x", "é", "99999999999999999999999999"]
    {
        let outcomes = bench.push(&[known(&all[3], id)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Gone], "{id}");
    }
    let (anew, new) = bench.written(&all[3..]).await.remove(0);
    assert!(new && anew != ids[3]);
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_for_all() {
    let bench = Bench::new().await;
    bench.written(&records(&THREE)).await;
    bench.act(Act::EndTokens);
    let batch = |n: usize| {
        records(&[["d@example.com", "e@example.com", "f@example.com", "g@example.com"][n]])
    };
    let batches = [batch(0), batch(1), batch(2), batch(3)];
    let pushed = futures_util::future::join_all(batches.iter().map(|b| bench.push(b))).await;
    assert!(pushed.iter().all(Result::is_ok), "{pushed:?}");
    assert_eq!(bench.calls(TOKEN).len(), 2, "one at the start, one for four calls");
    bench.option(|o| o.tokens_in_ten_minutes = 0);
    bench.act(Act::EndTokens);
    let hasty = bench.push(&records(&THREE)).await;
    assert!(matches!(hasty, Err(CallError::SlowDown { .. })), "{hasty:?}");
    bench.option(|o| {
        o.tokens_in_ten_minutes = 10;
        o.refresh_token = Some("other".to_owned());
    });
    let refused = bench.push(&records(&THREE)).await;
    let Err(CallError::Credentials { code, message }) = refused else { panic!("{refused:?}") };
    assert_eq!(code, "invalid_code");
    assert!(message.contains("`refresh_token`"), "{message}");
}

#[tokio::test]
async fn scopes_rights_and_limits() {
    let bench = Bench::new().await;
    bench.written(&records(&THREE)).await;
    bench.option(|o| o.scopes.retain(|s| !s.contains("modules.leads")));
    let refused = bench.push(&records(&THREE)).await;
    let Err(CallError::Credentials { code: said, message }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(said, "OAUTH_SCOPE_MISMATCH");
    assert!(message.contains("ZohoCRM.modules.leads.ALL"), "{message}");
    bench.option(|o| {
        o.scopes = Options::default().scopes;
        o.may_write = false;
    });
    let refused = bench.push(&records(&THREE)).await;
    assert!(
        matches!(&refused, Err(CallError::Credentials { code, .. }) if code == "NO_PERMISSION")
    );
    bench.option(|o| o.may_write = true);
    let no = |id: &str| {
        (
            id.to_owned(),
            ItemError {
                code: "NO_PERMISSION".into(),
                message: "permission denied".into(),
                details: BTreeMap::new(),
            },
        )
    };
    bench.option(|o| o.refusals = [no("bo@example.com")].into());
    let outcomes = bench.push(&records(&THREE)).await.unwrap();
    assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), ["", "NO_PERMISSION", ""]);
    bench.option(|o| o.refusals = THREE.map(no).into());
    let all = bench.push(&records(&THREE)).await;
    assert!(matches!(all, Err(CallError::Credentials { .. })), "{all:?}");
    bench.option(|o| o.refusals.clear());

    let pause = async || match bench.push(&records(&THREE)).await {
        Err(CallError::SlowDown { after, .. }) => after.map(|t| t.as_secs()),
        other => panic!("{other:?}"),
    };
    bench.script(UPSERT, Fault::RateLimited { retry_after: None, daily: false });
    assert_eq!(pause().await, Some(10));
    let reply = bench.to.push(&records(&THREE)).await.unwrap();
    assert!(reply.limits.is_empty(), "nothing is told before half of them are gone");
    bench.option(|o| o.credits = 20);
    let mut reply = reply;
    for _ in 0..10 {
        if reply.limits.is_empty() {
            reply = bench.to.push(&records(&THREE)).await.unwrap();
        }
    }
    assert_eq!(reply.limits[0].window, Duration::from_secs(86_400));
    assert!(reply.limits[0].remaining <= 10);
    bench.option(|o| o.credits = 1);
    assert_eq!(pause().await, Some(3600), "the day's limit is looked at hourly");
    bench.option(|o| o.credits = 1_000);
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
        Fault::EmptyBody { status: 204 },
        Fault::EmptyResults,
        Fault::Omit { input: 0, written: true },
    ]
    .into_iter()
    .enumerate()
    {
        let batch = records(&[format!("n{at}@example.com").as_str(), "last@example.com"]);
        bench.script(UPSERT, fault.clone());
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
    let creates = bench.fake.creates_per_email(Crm::Zoho);
    assert_eq!(creates.len(), 13);
    assert!(creates.values().all(|n| *n == 1), "{creates:?}");
    assert_eq!(bench.fake.doubles(Crm::Zoho), 0);
}

#[tokio::test]
async fn what_fails_before_the_write_wrote_nothing() {
    for path in [TOKEN, "/crm/v8/settings", "/crm/v8/coql"] {
        for fault in [
            Fault::ResetAfter,
            Fault::CutJson,
            Fault::HoldAfter,
            Fault::Status { status: 503, body: Body::Html, apply: Apply::None, retry_after: None },
        ] {
            let bench = Bench::new().await;
            bench.by_hand("ana@example.com", &[]);
            bench.script(path, fault.clone());
            // Without a last name it is looked for first.
            let nameless = [record("ana@example.com", &[("Phone", Some("1"))])];
            let failed = bench.push(&nameless).await;
            assert!(
                matches!(failed, Err(CallError::Unreachable { .. })),
                "{path} {fault:?}: {failed:?}"
            );
            bench.fake.release();
            assert_eq!(bench.writes(), []);
            assert!(matches!(bench.push(&nameless).await.unwrap()[0], Outcome::Exists { .. }));
        }
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
    for status in [400, 413, 422] {
        let result = call(status).await;
        assert!(matches!(result, Err(CallError::Refused { .. })), "{status} {result:?}");
    }
    let result = call(403).await;
    assert!(matches!(result, Err(CallError::Credentials { .. })), "{result:?}");
    bench.exactly(&[]);
    let stopped = async |record: Record| match bench.push(&[record]).await {
        Err(CallError::Misconfigured { code, message }) => (code, message),
        other => panic!("{other:?}"),
    };
    let (code, message) = stopped(record("ana@example.com", &[("FirstName", Some("x"))])).await;
    assert_eq!(code, "INVALID_FIELD");
    assert!(message.contains("did you mean \"First_Name\"?"), "{message}");
    for (key, expected) in
        [("Email", "KEY_NOT_UNIQUE"), ("Nope", "NO_KEY"), ("Phone", "KEY_NOT_UNIQUE")]
    {
        let bench = Bench::with(
            |o| o.field_mut(Module::Leads, "Email").unwrap().unique = false,
            |c| c.key_property = Some(key.to_owned()),
        )
        .await;
        let refused = bench.push(&batch).await;
        assert!(
            matches!(&refused, Err(CallError::Misconfigured { code, .. }) if code == expected),
            "{refused:?}"
        );
        bench.exactly(&[]);
    }
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
    assert!(found.iter().any(|f| f.contains("does not allow duplicate values")), "{found:?}");
    let bare = bench.to.check(&[]).await.unwrap();
    assert!(bare.iter().any(|f| f.contains("Leads.Last_Name is not mapped")), "{bare:?}");
    let check = async |to: &str| match bench.to.check(&[Mapped::new("phone", to)]).await {
        Err(CallError::Misconfigured { code, message }) => (code, message),
        other => panic!("{other:?}"),
    };
    let (code, message) = check("phone").await;
    assert_eq!(code, "INVALID_FIELD");
    assert!(message.contains("did you mean \"Phone\"?"), "{message}");
    assert_eq!(check("Created_Time").await.0, "READ_ONLY_FIELD");
    bench.option(|o| o.field_mut(Module::Leads, "Phone").unwrap().unique = true);
    let (code, message) = check("Phone").await;
    assert_eq!(code, "UNIQUE_FIELD");
    assert!(message.contains("would take a lead for the record"), "{message}");
    bench.option(|o| o.field_mut(Module::Leads, "Email").unwrap().unique = false);
    let (code, message) = check("Phone").await;
    assert_eq!(code, "KEY_NOT_UNIQUE");
    assert!(message.contains("\"Do not allow duplicate values\""), "{message}");
    bench.option(|o| o.modules = Options::default().modules);
    for scope in ["ZohoCRM.coql.READ", "ZohoCRM.modules.leads.ALL", "ZohoCRM.settings.fields.READ"]
    {
        bench.option(|o| {
            o.scopes = Options::default().scopes;
            o.scopes.remove(scope);
        });
        let refused = bench.to.check(&[]).await;
        let Err(CallError::Credentials { message, .. }) = refused else {
            panic!("{scope}: {refused:?}")
        };
        assert!(message.contains(scope), "{message}");
    }
    assert!(bench.fake.contacts(Crm::Zoho).is_empty());
}

#[tokio::test]
async fn look_up_finds_by_key_by_address_and_by_id() {
    let bench = Bench::with(|_| {}, |c| c.key_property = Some("Lead_Key".to_owned())).await;
    let all = records(&THREE);
    let ids: Vec<String> = bench.written(&all).await.into_iter().map(|(id, _)| id).collect();
    let fields = [
        ("Email".to_owned(), json!("private@example.com")),
        ("Tags".to_owned(), json!(["a", "b"])),
    ]
    .into();
    bench.act(Act::Edit { id: ids[0].clone(), fields });
    let hand = bench.by_hand("ana@example.com", &[("Phone", json!("7"))]);
    let found = bench.found(&all[0], &["Phone", "Tags", "Nope"]).await;
    let of = |id: &str| found.iter().find(|r| r.id == id).expect("found");
    assert_eq!(found.len(), 2);
    assert_eq!(of(&hand).properties["Phone"].as_deref(), Some("7"));
    assert_eq!(of(&ids[0]).properties["Phone"], None);
    assert_eq!(of(&ids[0]).properties["Tags"].as_deref(), Some("a;b"));
    assert_eq!(of(&ids[0]).email.as_deref(), Some("private@example.com"));
    assert!(!of(&ids[0]).properties.contains_key("Nope"));
    bench.act(Act::Delete { id: ids[1].clone() });
    assert!(bench.found(&known(&all[1], &ids[1]), &[]).await.is_empty());
    assert!(bench.found(&record("o'nobody@example.com", &[]), &[]).await.is_empty());
    assert_eq!(bench.to.look_up(&[], &[]).await.unwrap().value, Vec::<Vec<Remote>>::new());
    let both = [known(&all[2], &ids[2]), all[2].clone(), all[1].clone()];
    let found = bench.to.look_up(&both, &[]).await.unwrap().value;
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0]);
}

#[tokio::test]
async fn the_list_is_all_of_them_in_pages() {
    let bench = Bench::new().await;
    assert_eq!(bench.to.list(None, &[]).await.unwrap().value.contacts, []);
    for n in 0..403 {
        bench.by_hand(&format!("N{n}@example.com"), &[("Phone", json!("1"))]);
    }
    let gone = bench.by_hand("gone@example.com", &[]);
    bench.act(Act::Delete { id: gone });
    let properties = ["Phone".to_owned()];
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = bench.to.list(cursor.as_deref(), &properties).await.unwrap().value;
        all.extend(page.contacts);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((all.len(), bench.calls(LEADS).len()), (403, 4));
    assert_eq!(all[402].email.as_deref(), Some("n402@example.com"));
    assert_eq!(all[402].properties["Phone"].as_deref(), Some("1"));
}

#[tokio::test]
async fn contacts_instead_of_leads() {
    let bench = Bench::with(|_| {}, |c| c.object = Some("Contacts".to_owned())).await;
    let city = [("Last_Name", Some("Luz")), ("Mailing_City", Some("Porto"))];
    let (id, new) = bench.written(&[record("ana@example.com", &city)]).await.remove(0);
    assert!(new && !id.contains('/'));
    assert_eq!(bench.writes()[0].0, "POST /crm/v8/Contacts/upsert");
    let mapped: Vec<Mapped> =
        bench.to.default_fields().iter().map(|(value, to)| Mapped::new(*value, *to)).collect();
    bench.to.check(&mapped).await.unwrap();
    bench.exactly(&["ana@example.com"]);
}

#[tokio::test]
async fn an_api_without_encryption_is_not_followed() {
    let fake = FakeCrm::on_free_port(fake_crm::Options::default()).await.unwrap();
    let mut config = settings("");
    config.base_url = None;
    config.token_url = Some(format!("{}{TOKEN}", fake.url()));
    let to = build(&config).unwrap();
    // An answer of a server without encryption does not lead away from one that has it.
    let refused = to.push(&records(&THREE)).await;
    assert!(matches!(refused, Err(CallError::Misconfigured { .. })), "{refused:?}");
    assert_eq!(fake.calls().len(), 1);
    assert!(fake.contacts(Crm::Zoho).is_empty());
}

#[tokio::test]
async fn nothing_secret_or_personal_is_said() {
    let bench = Bench::new().await;
    let to = build(&settings(&bench.fake.url().replace("//", "//user:pw@"))).unwrap();
    let one = record("ana@example.com", &[("Last_Name", Some("Anastasia"))]);
    let mut said = Vec::new();
    for fault in [
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::Status { status: 500, body: Body::Html, apply: Apply::None, retry_after: None },
        Fault::Conflict,
    ] {
        bench.script(UPSERT, fault);
        said.push(format!("{:?}", to.push(std::slice::from_ref(&one)).await));
    }
    bench.option(|o| o.client_id = Some("other".to_owned()));
    bench.act(Act::EndTokens);
    said.push(format!("{:?} {:?}", to.push(std::slice::from_ref(&one)).await, to.check(&[]).await));
    bench.fake.stop().await;
    said.push(format!("{:?}", to.push(&[one]).await));
    for secret in ["hush", "silence", "pw@", "user", "ana@", "Anastasia"] {
        assert!(said.iter().all(|s| !s.contains(secret)), "{secret} in {said:?}");
    }
}

#[test]
fn wrong_configuration_is_refused_by_name() {
    let said = |change: fn(&mut config::Destination)| {
        let mut config = settings("https://www.zohoapis.eu");
        change(&mut config);
        build(&config).err().expect("this configuration is wrong").to_string()
    };
    for base in ["https://www.zohoapis.eu", "https://www.zohoapis.ca/"] {
        assert!(build(&settings(base)).is_ok());
    }
    for (change, expected) in [
        (
            (|c| c.client_id = None) as fn(&mut config::Destination),
            "`client_id` is missing: make a Self Client",
        ),
        (|c| c.client_secret = None, "`client_secret` is missing"),
        (|c| c.refresh_token = None, "`refresh_token` is missing"),
        (|c| c.base_url = Some("example.com".into()), "`base_url`"),
        (|c| c.token_url = Some("x".into()), "`token_url`"),
        (|c| c.object = Some("Deals".into()), "`object` must be \"Leads\" or \"Contacts\""),
        (|c| c.key_property = Some("E mail".into()), "`key_property` is no API name of a field"),
        (|c| c.token = Some(Secret::new("t")), "`token` is nothing that kind zoho reads"),
        (
            |c| drop(c.fields.insert("phone".into(), config::Property::Name("Email".into()))),
            "how leads are told apart",
        ),
        (
            |c| drop(c.fields.insert("phone".into(), config::Property::Name("a-b".into()))),
            "no API name of a field",
        ),
    ] {
        let message = said(change);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}
