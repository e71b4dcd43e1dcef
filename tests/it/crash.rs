//! Processes die, stall and lose their database: nothing acknowledged is lost, no contact is doubled, and everything is in
//! sync at the end without anybody's help.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leadsync::fake_crm::{self, Crm, FakeCrm, Fault, FaultRates};
use leadsync::private_pg::PrivatePg;
use leadsync::stop::Stop;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::support::db::{TestDb, connect};
use crate::support::process::{Folder, Program, Serving, eventually};

/// How long SIGTERM may take.
const DRAIN: Duration = Duration::from_secs(5);
/// Longest wait for everything to be in sync.
const REST: Duration = Duration::from_secs(60);
const SENDERS: u64 = 8;
const LEADS_EACH: u64 = 12;

/// Timings that let a test see the end of a lease. Without a database the program runs its own.
fn config(database: Option<&str>, crm: &str) -> String {
    let database = database.map(|url| format!("[database]\nurl = \"{url}\"")).unwrap_or_default();
    format!(
        r#"
{database}
[http]
drain_timeout = "{drain}s"
[sync]
poll = "100ms"
lease = "2500ms"
call_timeout = "1s"
confirm_after = "1500ms"
backoff_base = "20ms"
backoff_max = "200ms"
[[source]]
name = "site"
kind = "json"
header = {{ name = "X-Api-Key", value = "site-key" }}
[[destination]]
name = "hubspot"
kind = "hubspot"
token = "any"
rate = "10000/1s"
base_url = "{crm}"
"#,
        drain = DRAIN.as_secs(),
    )
}

async fn stand_in(rates: FaultRates) -> FakeCrm {
    let options = fake_crm::Options { rates, ..fake_crm::Options::default() };
    FakeCrm::on_free_port(options).await.expect("a stand-in")
}

/// Now and then slow, now and then deaf after the write.
fn rough() -> FaultRates {
    let (slow_after_apply, reset_after_apply, slow_ms) = (0.1, 0.05, 200);
    FaultRates { slow_after_apply, reset_after_apply, slow_ms, ..FaultRates::default() }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Shown when a test fails; `LEADSYNC_TEST_SEED` makes the same choices again.
fn seed() -> u64 {
    let seed = number_from("LEADSYNC_TEST_SEED").unwrap_or_else(rand::random);
    println!("LEADSYNC_TEST_SEED={seed}");
    seed
}

/// The event of that number of a lead: the larger the number, the newer.
fn event(email: &str, number: u64) -> Value {
    let time = jiff::Timestamp::from_second(1_770_000_000 + number as i64).expect("a time");
    json!({"email": email, "occurred_at": time.to_string(), "company": company(number)})
}

fn company(number: u64) -> String {
    format!("event {number}")
}

fn number_of(company: &str) -> u64 {
    company.strip_prefix("event ").expect("one of ours").parse().expect("a number")
}

fn client() -> reqwest::Client {
    // reqwest wants one even for plain HTTP; another test may have set it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(Duration::from_secs(30)).build().expect("a client")
}

/// What became of one request: stored, or to be delivered again.
async fn deliver(http: &reqwest::Client, url: &str, body: &str) -> bool {
    let request = http.post(format!("{url}/hooks/site")).header("x-api-key", "site-key");
    let request = request.header("content-type", "application/json").body(body.to_owned());
    let Ok(answer) = request.send().await else { return false };
    let status = answer.status().as_u16();
    // An answer that breaks off is none.
    let Ok(text) = answer.text().await else { return false };
    match status {
        200 => {
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let outcome = answer["outcome"].as_str().expect("an outcome");
            assert!(["created", "updated", "unchanged"].contains(&outcome), "{text}");
            true
        }
        503 => false,
        _ => panic!("{status}: {text}"),
    }
}

/// How far the events of a lead got.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    sent: u64,
    acknowledged: u64,
}

/// Senders that deliver one event after the other, each again and again until it is answered 200, and now and then an
/// old one or two copies at once.
struct Crowd {
    target: watch::Sender<Option<String>>,
    acknowledged: watch::Receiver<u64>,
    stop: Stop,
    senders: JoinSet<BTreeMap<String, Events>>,
}

impl Crowd {
    fn start(seed: u64) -> Crowd {
        let (target, _) = watch::channel(None);
        let (counter, acknowledged) = watch::channel(0);
        let stop = Stop::new();
        let http = client();
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            let random = StdRng::seed_from_u64(seed.wrapping_add(sender));
            let sender = Sender {
                http: http.clone(),
                target: target.subscribe(),
                counter: counter.clone(),
                stop: stop.clone(),
            };
            senders.spawn(sender.run(senders.len(), random));
        }
        Crowd { target, acknowledged, stop, senders }
    }

    fn aim(&self, url: Option<&str>) {
        self.target.send_replace(url.map(str::to_owned));
    }

    fn so_far(&self) -> u64 {
        *self.acknowledged.borrow()
    }

    /// Waits for so many more answers.
    async fn answers(&mut self, more: u64) {
        let wanted = self.so_far() + more;
        let enough = self.acknowledged.wait_for(|n| *n >= wanted);
        tokio::time::timeout(REST, enough)
            .await
            .expect("deliveries are answered")
            .expect("senders live");
    }

    /// Nobody begins a new event; what became of all.
    async fn end(mut self) -> (BTreeMap<String, Events>, u64) {
        self.stop.cancel();
        let mut leads = BTreeMap::new();
        while let Some(sender) = self.senders.join_next().await {
            leads.extend(sender.expect("a sender"));
        }
        (leads, *self.acknowledged.borrow())
    }
}

struct Sender {
    http: reqwest::Client,
    target: watch::Receiver<Option<String>>,
    counter: watch::Sender<u64>,
    stop: Stop,
}

impl Sender {
    async fn run(self, sender: usize, mut random: StdRng) -> BTreeMap<String, Events> {
        let mut leads: BTreeMap<String, Events> = BTreeMap::new();
        while !self.stop.is_cancelled() {
            let email = format!("lead-{sender}-{}@example.com", random.random_range(0..LEADS_EACH));
            let events = leads.entry(email.clone()).or_default();
            let number = match events.acknowledged > 0 && random.random_ratio(1, 4) {
                true => random.random_range(1..=events.acknowledged),
                false => events.acknowledged + 1,
            };
            events.sent = events.sent.max(number);
            let body = event(&email, number).to_string();
            let stored = match random.random_ratio(1, 5) {
                true => {
                    let (one, other) = tokio::join!(self.insist(&body), self.insist(&body));
                    one || other
                }
                false => self.insist(&body).await,
            };
            if stored {
                events.acknowledged = events.acknowledged.max(number);
            }
        }
        leads
    }

    /// Delivers until it is answered 200; false: the test ended first.
    async fn insist(&self, body: &str) -> bool {
        let mut target = self.target.clone();
        loop {
            let Some(url) = self.stop.run_until_cancelled(target.wait_for(Option::is_some)).await
            else {
                return false;
            };
            let url = url.expect("the crowd lives").clone().expect("waited for");
            if deliver(&self.http, &url, body).await {
                self.counter.send_modify(|n| *n += 1);
                return true;
            }
            // Senders pause before they try again; this one not for long.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until everything is in sync, and holds table and CRM against what was sent.
async fn at_rest(db: &Client, crm: &FakeCrm, sent: &BTreeMap<String, Events>) {
    let out_of_sync = "select s.state, s.attempts, s.confirm_after::text, s.lease_until::text, s.last_error_message
        from leadsync.leads as l
        left join leadsync.lead_sync as s on s.lead_id = l.lead_id and s.destination = 'hubspot'
        where s.state is distinct from 'synced'";
    eventually("everything in sync", REST, async || {
        let rows = db.query(out_of_sync, &[]).await.map_err(|e| format!("{e:?}"))?;
        match rows.first() {
            None => Ok(()),
            Some(first) => Err(format!("{} leads are not, one of them {first:?}", rows.len())),
        }
    })
    .await;
    let rows = db.query("select email, company from leadsync.leads", &[]).await.unwrap();
    let table: BTreeMap<String, String> =
        rows.iter().map(|row| (row.get("email"), row.get("company"))).collect();
    for (email, events) in sent {
        let stored = table.get(email).map_or(0, |company| number_of(company));
        let possible = events.acknowledged..=events.sent;
        assert!(possible.contains(&stored), "{email}: {stored} is stored, and {events:?}");
    }
    assert!(table.keys().all(|email| sent.contains_key(email)));
    let contacts = crm.contacts(Crm::Hubspot);
    let there: BTreeMap<String, String> =
        contacts.iter().map(|c| (c.email.clone(), c.properties["company"].clone())).collect();
    assert_eq!(there, table, "the CRM has what the table has");
    assert_eq!(contacts.len(), table.len());
    let creates = crm.creates_per_email(Crm::Hubspot);
    assert!(creates.values().all(|n| *n == 1), "{creates:?}");
}

fn nothing_panicked(said: &str) {
    assert!(!said.contains("panicked"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_twenty_moments_it_loses_and_doubles_nothing() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let db = TestDb::new().await;
    let crm = stand_in(rough()).await;
    let program = Program::new(&config(Some(db.url()), &crm.url()));
    let mut crowd = Crowd::start(seed);
    for _ in 0..number_from("LEADSYNC_TEST_KILLS").unwrap_or(20) {
        let serving = program.serve(&[]).await;
        crowd.aim(Some(&serving.url));
        crowd.answers(random.random_range(1..120)).await;
        // The moment is what the test is about; nothing is waited for.
        tokio::time::sleep(Duration::from_micros(random.random_range(0..60_000))).await;
        nothing_panicked(&serving.process.kill_9().await.stderr);
        crowd.aim(None);
    }
    let serving = program.serve(&[]).await;
    crowd.aim(Some(&serving.url));
    crowd.answers(50).await;
    let (sent, _) = crowd.end().await;
    at_rest(&db.client().await, &crm, &sent).await;
    nothing_panicked(&serving.process.terminate().await.with(0).stderr);
}

/// One lead is being pushed by a process that stalls beyond its lease, while another one takes over with newer data.
async fn stalled_during_a_push(fault: Fault, end: Signal) {
    let before = matches!(fault, Fault::HoldBefore);
    let db = TestDb::new().await;
    let crm = stand_in(FaultRates::default()).await;
    let program = Program::new(&config(Some(db.url()), &crm.url()));
    let http = client();
    let receiver = program.serve(&["--only", "receive"]).await;
    crm.script(fault);
    let stalls = program.serve(&["--only", "sync"]).await.process;
    assert!(deliver(&http, &receiver.url, &event("a@example.com", 1).to_string()).await);
    let reached = async {
        match before {
            true => crm.wait_for_calls(1).await,
            false => crm.wait_for_applied(1).await,
        }
    };
    tokio::time::timeout(REST, reached).await.expect("a push");
    stalls.signal(Signal::SIGSTOP);

    assert!(deliver(&http, &receiver.url, &event("a@example.com", 2).to_string()).await);
    let takes_over = program.serve(&["--only", "sync"]).await.process;
    tokio::time::timeout(REST, crm.wait_for_applied(if before { 1 } else { 2 }))
        .await
        .expect("taken over");
    // The first call ends only now: held before the write, it writes the old data over the new.
    crm.release();
    tokio::time::timeout(REST, crm.wait_for_applied(2)).await.expect("the late write");
    stalls.signal(end);
    if end == Signal::SIGKILL {
        assert_eq!(stalls.end().await.code, None);
    } else {
        // It finds itself fenced off, and goes on working.
        stalls.says("lease lost during a call").await;
        assert_eq!(stalls.terminate().await.code, Some(0));
    }
    let sent = [("a@example.com".to_owned(), Events { sent: 2, acknowledged: 2 })];
    at_rest(&db.client().await, &crm, &sent.into()).await;
    takes_over.terminate().await.with(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_after_the_write_it_is_fenced_off() {
    stalled_during_a_push(Fault::HoldAfter, Signal::SIGCONT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_of_a_stalled_process_is_mended() {
    stalled_during_a_push(Fault::HoldBefore, Signal::SIGCONT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_of_a_process_that_dies_is_mended() {
    stalled_during_a_push(Fault::HoldBefore, Signal::SIGKILL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_cut_off_are_replaced() {
    let db = TestDb::new().await;
    let crm = stand_in(rough()).await;
    let program = Program::new(&config(Some(db.url()), &crm.url()));
    let admin = db.client().await;
    let mut crowd = Crowd::start(seed());
    let mut serving = program.serve(&[]).await;
    crowd.aim(Some(&serving.url));
    let cut_off = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and application_name = 'leadsync'";
    for _ in 0..15 {
        crowd.answers(40).await;
        let cut: i64 = admin.query_one(cut_off, &[]).await.unwrap().get(0);
        assert!(cut > 0);
    }
    crowd.answers(100).await;
    let (sent, _) = crowd.end().await;
    at_rest(&admin, &crm, &sent).await;
    assert!(serving.process.runs());
    nothing_panicked(&serving.process.terminate().await.with(0).stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_crashes_and_comes_back_needs_no_restart_of_the_service() {
    let folder = Folder::new();
    let data_dir = folder.path().join("database");
    let mut database = PrivatePg::start(&data_dir).await.unwrap();
    let url = database.url().to_owned();
    let crm = stand_in(rough()).await;
    let program = Program::new(&config(Some(&url), &crm.url()));
    let mut serving = program.serve(&[]).await;
    let mut crowd = Crowd::start(seed());
    crowd.aim(Some(&serving.url));
    for _ in 0..3 {
        crowd.answers(200).await;
        // What an immediate stop does to the server is what a power cut does: it must recover from its log.
        kill(Pid::from_raw(database.pid()), Signal::SIGQUIT).unwrap();
        drop(database);
        database = PrivatePg::start(&data_dir).await.unwrap();
        assert_eq!((database.adopted(), database.url()), (false, url.as_str()));
    }
    crowd.answers(200).await;
    let (sent, _) = crowd.end().await;
    at_rest(&connect(&url).await, &crm, &sent).await;
    assert!(serving.process.runs());
    nothing_panicked(&serving.process.terminate().await.with(0).stderr);
    database.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_finishes_what_is_under_way() {
    let db = TestDb::new().await;
    let (slow_after_apply, slow_ms) = (1.0, 150);
    let crm = stand_in(FaultRates { slow_after_apply, slow_ms, ..FaultRates::default() }).await;
    let program = Program::new(&config(Some(db.url()), &crm.url()));
    let client = db.client().await;
    let mut crowd = Crowd::start(seed());
    for _ in 0..5 {
        let serving = program.serve(&[]).await;
        let calls = crm.summary().calls;
        crowd.aim(Some(&serving.url));
        crowd.answers(60).await;
        tokio::time::timeout(REST, crm.wait_for_calls(calls + 2)).await.expect("a push");
        let told = Instant::now();
        let ended = serving.process.terminate().await.with(0);
        assert!(told.elapsed() < DRAIN, "{:?}\n{}", told.elapsed(), ended.stderr);
        crowd.aim(None);
        nothing_panicked(&ended.stderr);
        assert!(!ended.stderr.contains("cut off"), "{}", ended.stderr);
        let leased = "select count(*) from leadsync.lead_sync where lease_holder is not null or lease_until is not null";
        let leased: i64 = client.query_one(leased, &[]).await.unwrap().get(0);
        assert_eq!(leased, 0, "leases are given back");
        // Neither lost nor doubled: nobody waits for the grace time of an unknown outcome.
        let unknown = "select count(*) from leadsync.lead_sync where confirm_after is not null";
        let unknown: i64 = client.query_one(unknown, &[]).await.unwrap().get(0);
        assert_eq!(unknown, 0, "calls under way were waited for");
    }
    let serving = program.serve(&[]).await;
    crowd.aim(Some(&serving.url));
    crowd.answers(20).await;
    let (sent, acknowledged) = crowd.end().await;
    at_rest(&client, &crm, &sent).await;
    serving.process.terminate().await.with(0);
    let counted = "select sum(copies)::bigint from leadsync.deliveries";
    let counted: i64 = client.query_one(counted, &[]).await.unwrap().get(0);
    assert_eq!(counted as u64, acknowledged, "every copy that was answered is counted");
}

/// A call hangs when the service is told to stop, and perhaps told again.
async fn stopped_during_a_call_that_hangs(again: Option<Signal>, code: i32) {
    let db = TestDb::new().await;
    let crm = stand_in(FaultRates::default()).await;
    let mut text = config(Some(db.url()), &crm.url());
    for (from, to) in [
        ("call_timeout = \"1s\"", "call_timeout = \"40s\""),
        ("lease = \"2500ms\"", "lease = \"80s\""),
        ("confirm_after = \"1500ms\"", "confirm_after = \"50s\""),
        ("drain_timeout = \"5s\"", "drain_timeout = \"500ms\""),
    ] {
        assert!(text.contains(from));
        text = text.replace(from, to);
    }
    let serving = Program::new(&text).serve(&[]).await;
    crm.script(Fault::HoldAfter);
    assert!(deliver(&client(), &serving.url, &event("a@example.com", 1).to_string()).await);
    tokio::time::timeout(REST, crm.wait_for_applied(1)).await.expect("a push");
    let told = Instant::now();
    serving.process.signal(again.unwrap_or(Signal::SIGTERM));
    serving.process.says("finishing what is under way").await;
    if let Some(again) = again {
        serving.process.signal(again);
    }
    serving.process.end().await.with(code);
    assert!(told.elapsed() < Duration::from_secs(20), "{:?}", told.elapsed());
    if again.is_none() {
        let owed = "select count(*) from leadsync.lead_sync
            where lease_until is null and state = 'due' and confirm_after is not null";
        let owed: i64 = db.client().await.query_one(owed, &[]).await.unwrap().get(0);
        assert_eq!(owed, 1, "given back, and to be confirmed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crm_that_never_answers_does_not_keep_it_from_ending() {
    stopped_during_a_call_that_hangs(None, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once() {
    tokio::join!(
        stopped_during_a_call_that_hangs(Some(Signal::SIGTERM), 143),
        stopped_during_a_call_that_hangs(Some(Signal::SIGINT), 130),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_at_once_on_an_empty_database() {
    let db = TestDb::empty().await;
    let crm = stand_in(FaultRates::default()).await;
    let program = Program::new(&config(Some(db.url()), &crm.url()));
    let start = || program.start(&["serve", "--listen", "127.0.0.1:0"]);
    let (a, b, c, d) = (start(), start(), start(), start());
    let (a, b, c, d) =
        tokio::join!(Serving::ready(a), Serving::ready(b), Serving::ready(c), Serving::ready(d));
    let serving = [a, b, c, d];
    let client = db.client().await;
    let history = "select version from leadsync.schema_history order by version";
    let versions: Vec<i32> =
        client.query(history, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let expected: Vec<i32> = (1..).take(versions.len()).collect();
    assert_eq!(versions, expected, "each migration once");
    assert!(!versions.is_empty());
    let http = &self::client();
    let body = event("a@example.com", 1).to_string();
    let stored = serving.iter().map(|s| deliver(http, &s.url, &body));
    assert!(futures_util::future::join_all(stored).await.into_iter().all(|stored| stored));
    let sent = [("a@example.com".to_owned(), Events { sent: 1, acknowledged: 1 })];
    at_rest(&client, &crm, &sent.into()).await;
    for serving in serving {
        nothing_panicked(&serving.process.terminate().await.with(0).stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_database_outlives_it_and_is_adopted() {
    let crm = stand_in(FaultRates::default()).await;
    let program = Program::new(&config(None, &crm.url()));
    let http = client();
    let data_dir = "leadsync-data";
    let serving = program.serve(&[]).await;
    let postgres = program.folder.postgres(data_dir).expect("a server of its own");
    assert!(deliver(&http, &serving.url, &event("a@example.com", 1).to_string()).await);

    let second = program.run(&["serve", "--listen", "127.0.0.1:0"]).await.with(3);
    let holder = serving.process.pid().to_string();
    assert!(second.stderr.contains("in use by another leadsync"), "{}", second.stderr);
    assert!(second.stderr.contains(&holder), "{} names {holder}", second.stderr);
    assert!(deliver(&http, &serving.url, &event("a@example.com", 2).to_string()).await);

    serving.process.kill_9().await;
    assert!(kill(postgres, None).is_ok(), "the database stays");
    let serving = program.serve(&[]).await;
    assert_eq!(program.folder.postgres(data_dir), Some(postgres), "the same one");
    let url = format!(
        "postgresql://leadsync@/leadsync?host={}&port=5432",
        program.folder.path().join(data_dir).join("socket").display()
    );
    let sent = [("a@example.com".to_owned(), Events { sent: 2, acknowledged: 2 })];
    at_rest(&connect(&url).await, &crm, &sent.clone().into()).await;

    nothing_panicked(&serving.process.terminate().await.with(0).stderr);
    // Taking its file away is the last thing a server does.
    assert_eq!(program.folder.postgres(data_dir), None, "stopped with the service");
    let serving = program.serve(&[]).await;
    assert!(deliver(&http, &serving.url, &event("a@example.com", 2).to_string()).await);
    at_rest(&connect(&url).await, &crm, &sent.into()).await;
    serving.process.terminate().await.with(0);
}
