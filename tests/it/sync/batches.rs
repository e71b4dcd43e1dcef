//! What is sent, in what batches, and what one bad record costs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leadsync::destinations::{CallError, Destination, Key, Mapped, Outcome, Record, Remote, Reply};
use leadsync::fake_crm::hubspot::Property;
use leadsync::fake_crm::{Crm, Fault, Options};
use leadsync::lead::email::Folding;
use leadsync::lead::merge::{EventTime, LeadState, Origin};
use leadsync::lead::{Change, Email, Field, LeadPatch};
use leadsync::sync::{Configured, Settings};
use serde_json::{Value, json};

use super::{Rig, Slow, email, lead, leads, settings, soon, with};

const POISONED: [usize; 3] = [0, 77, 249];

/// 250 leads, of which three have a tier that HubSpot does not know.
async fn poisoned() -> (Rig, Vec<String>) {
    let mut rig = Rig::new().await;
    map(&mut rig, "attributes.tier", "tier");
    let mut all = leads(250, 1);
    for n in POISONED {
        all[n] = with(lead(n, 1), json!({"attributes": {"tier": "wood"}}));
    }
    rig.deliver(&all).await;
    (rig, POISONED.map(email).to_vec())
}

fn map(rig: &mut Rig, value: &str, property: &str) {
    rig.destination.fields.push(Mapped::new(value, property));
    rig.destination.fields.sort_by(|a, b| a.property.cmp(&b.property));
}

async fn three_are_parked(rig: &Rig, parked: &[String]) {
    rig.exact_but(parked).await;
    let status = rig.app.store.status().await.unwrap();
    let cause = &status.parked[0];
    assert_eq!((status.parked.len(), cause.leads), (1, 3));
    assert_eq!(cause.code.as_deref(), Some("INVALID_OPTION"));
    let words = cause.message.as_deref().expect("a message");
    assert!(words.starts_with("tier: ") && words.contains("allowed options"), "{words}");
    assert_eq!((status.destinations[0].synced, status.destinations[0].parked), (247, 3));
    let (_, view) = rig.app.get(&format!("/v1/leads/{}", parked[1])).await;
    let state = &view["destinations"][0];
    assert_eq!((state["state"].as_str(), state["attempts"].as_i64()), (Some("parked"), Some(1)));
    assert_eq!(state["last_error"]["code"], "INVALID_OPTION");
}

#[tokio::test]
async fn three_poisons_among_250_are_named_by_the_crm() {
    let (mut rig, parked) = poisoned().await;
    // Workers that claim at the same instant pass over each other's rows, and one more call may take the rest.
    rig.destination = Configured { concurrency: 1, ..rig.destination.clone() };
    let done = rig.pass().await;
    // One pass: nobody waits for a backoff.
    assert_eq!((done.pushed, done.parked, done.failed, done.calls), (247, 3, 0, 3));
    three_are_parked(&rig, &parked).await;

    // One is mended by its source: due again by itself.
    rig.deliver(&[with(lead(77, 2), json!({"attributes": {"tier": "gold"}}))]).await;
    let done = rig.pass().await;
    assert_eq!((done.pushed, done.parked), (1, 0));
    rig.exact_but(&[email(0), email(249)]).await;

    // The others by the CRM: due when somebody says so.
    assert_eq!(rig.app.store.requeue(Some("hubspot"), Some("OTHER"), None).await.unwrap(), 0);
    let mut options = Options::default();
    let tier = |p: &&mut Property| p.name == "tier";
    options.hubspot.properties.iter_mut().find(tier).unwrap().options.push("wood".into());
    rig.app.crm.set_options(options);
    assert_eq!(rig.pass().await.calls, 0);
    let made_due = rig.app.store.requeue(Some("hubspot"), Some("INVALID_OPTION"), None).await;
    assert_eq!(made_due.unwrap(), 2);
    assert_eq!(rig.pass().await.pushed, 2);
    rig.exact().await;
}

#[tokio::test]
async fn three_poisons_among_250_that_refuse_whole_batches() {
    let (rig, parked) = poisoned().await;
    let mut options = Options::default();
    options.hubspot.honour_trace_ids = false;
    rig.app.crm.set_options(options);
    let done = rig.pass().await;
    assert_eq!((done.pushed, done.parked, done.failed), (247, 3, 0));
    three_are_parked(&rig, &parked).await;
    // Each of the three halves its batch of up to 100 at most seven times, two calls each time.
    assert!(done.calls <= 3 + 3 * 7 * 2, "{} calls", done.calls);
}

#[tokio::test]
async fn a_batch_is_halved_to_the_end_however_slow_the_crm() {
    let settings = Settings {
        lease: Duration::from_millis(3000),
        call_timeout: Duration::from_millis(1500),
        ..settings()
    };
    let mut rig = Rig::with(settings).await;
    map(&mut rig, "attributes.tier", "tier");
    let slow = Arc::new(Slow(rig.destination.destination.clone(), Duration::from_millis(300)));
    rig.destination = Configured { destination: slow, concurrency: 1, ..rig.destination.clone() };
    let mut options = Options::default();
    options.hubspot.honour_trace_ids = false;
    rig.app.crm.set_options(options);
    let mut all = leads(64, 1);
    all[0] = with(lead(0, 1), json!({"attributes": {"tier": "wood"}}));
    rig.deliver(&all).await;
    // A lease lasts for five of these calls, and seven are needed to find it.
    let done = soon("the culprit is found", rig.pass()).await;
    assert_eq!((done.pushed, done.parked), (63, 1));
    assert!(done.calls <= 14, "{} calls", done.calls);
    rig.exact_but(&[email(0)]).await;
}

#[tokio::test]
async fn an_unknown_property_pauses_the_destination_and_parks_nobody() {
    for refuses_all in [false, true] {
        let mut rig = Rig::new().await;
        map(&mut rig, "attributes.size", "company_size");
        let mut options = Options::default();
        options.hubspot.unknown_property_refuses_all = refuses_all;
        rig.app.crm.set_options(options.clone());
        let sized = |n| with(lead(n, 1), json!({"attributes": {"size": "10"}}));
        rig.deliver(&(0..4).map(sized).collect::<Vec<_>>()).await;
        let done = rig.worked().await;
        assert_eq!((done.calls, done.pushed, done.parked, done.failed), (1, 0, 0, 0));
        assert_eq!(rig.paused().await.expect("paused").0, "misconfigured");
        let status = rig.app.store.status().await.unwrap();
        let shown = status.destinations[0].paused.as_ref().expect("status says so");
        assert_eq!(shown.code.as_deref(), Some("PROPERTY_DOESNT_EXIST"));
        assert!(shown.message.as_deref().unwrap().contains("company_size"), "{shown:?}");
        assert_eq!(rig.states().await, BTreeMap::from([("due".to_owned(), 4)]));
        assert!(rig.column("s.attempts").await.values().all(|n| n == "0"));

        let mut property = options.hubspot.properties[0].clone();
        property.name = "company_size".into();
        options.hubspot.properties.push(property);
        rig.app.crm.set_options(options);
        rig.drain().await;
        rig.exact().await;
    }
}

#[tokio::test]
async fn what_a_stopped_batch_wrote_is_written_over() {
    let mut rig = Rig::new().await;
    map(&mut rig, "attributes.size", "company_size");
    rig.deliver(&[lead(0, 1)]).await;
    rig.drain().await;
    // The batch is stopped by the other lead's property, but this one is written.
    let changed = with(lead(0, 2), json!({"city": "Elsewhere"}));
    let other = with(lead(1, 1), json!({"attributes": {"size": "10"}}));
    rig.deliver(&[changed, other]).await;
    assert_eq!(rig.worked().await.calls_failed, 1);
    assert_eq!(rig.held()[&email(0)]["city"], "Elsewhere");
    // Back to what was confirmed last: no reason to think that the CRM has it still.
    rig.deliver(&[with(lead(0, 3), json!({"city": "City1"}))]).await;
    rig.destination.fields.retain(|field| field.value != "attributes.size");
    rig.drain().await;
    rig.exact().await;
}

#[tokio::test]
async fn the_same_again_needs_no_call() {
    let rig = Rig::new().await;
    rig.deliver(&[lead(0, 1)]).await;
    assert_eq!(rig.pass().await.calls, 1);
    // A value that this destination is not sent.
    rig.deliver(&[with(lead(0, 1), json!({"language": "pt"}))]).await;
    let done = rig.pass().await;
    assert_eq!((done.calls, done.skipped), (0, 1));
    assert_eq!(rig.column("s.confirmed_version").await[&email(0)], "2");
    rig.exact().await;
    assert_eq!(rig.app.crm.summary().calls, 1);
}

#[tokio::test]
async fn a_clear_is_sent_as_an_empty_text_and_a_blank_is_not_sent() {
    let rig = Rig::new().await;
    rig.deliver(&[with(lead(0, 1), json!({"phone": "+5511912345678"}))]).await;
    rig.drain().await;
    assert_eq!(rig.held()[&email(0)]["phone"], "+5511912345678");
    rig.deliver(&[with(lead(0, 2), json!({"phone": " "}))]).await;
    rig.drain().await;
    assert_eq!(rig.held()[&email(0)]["phone"], "+5511912345678");
    rig.deliver(&[with(lead(0, 3), json!({"clear": ["phone"]}))]).await;
    rig.drain().await;
    let sent = rig.app.crm.calls().last().unwrap().json();
    let properties = &sent["inputs"][0]["properties"];
    assert_eq!(properties["phone"], "");
    assert_eq!(properties.get("company"), None, "never set: left alone");
    assert!(!rig.held()[&email(0)].contains_key("phone"));
    rig.exact().await;
}

#[tokio::test]
async fn a_change_during_a_push_is_pushed_next() {
    for fault in [Fault::HoldBefore, Fault::HoldAfter] {
        let rig = Rig::new().await;
        rig.deliver(&leads(2, 1)).await;
        rig.app.crm.script(fault);
        let change = async {
            soon("the call", rig.app.crm.wait_for_calls(1)).await;
            rig.deliver(&[lead(0, 2)]).await;
            rig.app.crm.release();
        };
        let (done, ()) = tokio::join!(rig.worked(), change);
        assert_eq!(done.pushed, 2);
        let states = rig.column("concat(s.state, s.confirmed_version, s.wanted_version)").await;
        assert_eq!(states[&email(0)], "due12");
        assert_eq!(states[&email(1)], "synced11");
        let done = rig.worked().await;
        assert_eq!((done.pushed, done.calls), (1, 1));
        rig.exact().await;
    }
}

/// What one event says about a lead, as a receiver would write it.
pub(super) async fn state(rig: &Rig, n: usize, city: &str, minute: i64) -> LeadState {
    let parsed = Email::parse(&email(n), Folding::None).unwrap();
    let mut patch = LeadPatch::new(parsed, email(n));
    patch.fields.insert(Field::City, Change::Set(city.to_owned()));
    let row = rig.sql.query_one("select source_id from leadsync.sources where name = 'api'", &[]);
    let time = EventTime::measured(1_600_000_000_000_000 + minute * 60_000_000);
    let source = row.await.unwrap().get(0);
    LeadState::of_event(patch, Origin { source_name: "api", source, trust: 50, time })
}

#[tokio::test]
async fn a_transaction_that_commits_late_is_not_skipped() {
    let rig = Rig::new().await;
    rig.deliver(&leads(3, 1)).await;
    rig.drain().await;
    // One lead changes and one is new in a transaction that stays open while others come and go.
    let mut connection = rig.app.store.group_connection().await.unwrap();
    let late = connection.begin().await.unwrap();
    let states = [state(&rig, 0, "Late", 1).await, state(&rig, 9, "Late", 1).await];
    assert_eq!(late.upsert(&states).await.unwrap().iter().filter(|m| m.moved).count(), 2);
    for version in 2..5 {
        rig.deliver(&[lead(1, version), lead(2, version), lead(10 + version, version)]).await;
        rig.drain().await;
    }
    assert_eq!(rig.app.crm.contacts(Crm::Hubspot).len(), 6);
    late.commit().await.unwrap();
    let done = rig.drain().await;
    assert_eq!(done.pushed, 2);
    assert_eq!(rig.held()[&email(0)]["city"], "Late");
    assert_eq!(rig.held()[&email(9)]["city"], "Late");
    rig.exact().await;
}

#[tokio::test]
async fn news_do_not_wait_for_a_push_that_only_confirms() {
    let settings = Settings { confirm_after: Duration::from_secs(30), ..settings() };
    let rig = Rig::with(settings).await;
    rig.deliver(&[lead(0, 1)]).await;
    rig.app.crm.script(Fault::ResetAfter);
    rig.worked().await;
    rig.lift_pause().await;
    soon("the second push", async {
        while rig.pass().await.pushed == 0 {
            tokio::time::sleep(rig.settings.poll).await;
        }
    })
    .await;
    // It is pushed once more when the grace time is over; a change is not kept back so long.
    assert_eq!(rig.pass().await.calls, 0);
    rig.deliver(&[lead(0, 2)]).await;
    assert_eq!(rig.pass().await.pushed, 1);
    assert_eq!(rig.held()[&email(0)]["city"], "City2");
    assert_eq!(rig.states().await, BTreeMap::from([("due".to_owned(), 1)]));
}

#[tokio::test]
async fn an_answer_that_is_not_one_outcome_per_record_is_no_answer() {
    let rig = Rig::new().await;
    let inner = rig.destination.destination.clone();
    let destination = Configured { destination: Arc::new(Short(inner)), ..rig.destination.clone() };
    rig.deliver(&leads(3, 1)).await;
    let step = rig.syncer.step(&destination, &leadsync::stop::Stop::new()).await.unwrap();
    let leadsync::sync::step::Step::Worked(done) = step else { panic!("{step:?}") };
    assert_eq!((done.pushed, done.failed), (0, 3));
    let kinds: Vec<String> = rig.column("s.last_error_kind").await.into_values().collect();
    assert_eq!(kinds, ["unknown"; 3]);
    rig.drain().await;
    rig.exact().await;
}

/// Loses the last outcome.
struct Short(Arc<dyn Destination>);

#[async_trait]
impl Destination for Short {
    fn batch_size(&self) -> usize {
        self.0.batch_size()
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        self.0.default_fields()
    }

    fn group(&self, record: &Record) -> &'static str {
        self.0.group(record)
    }

    fn key(&self) -> Key {
        self.0.key()
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        self.0.look_up(records, properties).await
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let mut reply = self.0.push(records).await?;
        reply.value.pop();
        Ok(reply)
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        self.0.check(fields).await
    }
}

#[tokio::test]
async fn leads_of_a_page_are_one_call() {
    // 100 at a time, whatever the number: what a backlog costs is known.
    let rig = Rig::new().await;
    rig.deliver(&leads(201, 1)).await;
    assert_eq!(rig.pass().await.calls, 3);
    let sizes: Vec<usize> = rig
        .app
        .crm
        .calls()
        .iter()
        .map(|c| c.json()["inputs"].as_array().map_or(0, Vec::len))
        .collect();
    let mut sorted = sizes.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 100, 100]);
    let emails: std::collections::BTreeSet<String> = rig
        .app
        .crm
        .calls()
        .iter()
        .flat_map(|c| c.json()["inputs"].as_array().cloned().unwrap_or_default())
        .map(|input: Value| input["id"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(emails.len(), 201);
    rig.exact().await;
}
