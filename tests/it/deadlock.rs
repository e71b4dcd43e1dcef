//! Writers and settlers on the same few leads never deadlock; the same load without the order of locks does.
//!
//! `LEADSYNC_DEADLOCK_SECONDS` makes the run longer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use leadsync::config::Config;
use leadsync::lead::merge::{EventTime, LeadState, Origin};
use leadsync::lead::{Email, LeadPatch, Micros};
use leadsync::receive::{ApiDelivery, Receiver, Settings};
use leadsync::sources::Item;
use leadsync::sources::api::Form;
use leadsync::stop::Stop;
use leadsync::store::sync::{Claimed, LastError, PushResult};
use leadsync::store::{Store, StoreError};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::merge::events::{Event, NOON, When, email, seeded, setting};
use crate::merge::instance;
use crate::merge::rows::{UPSERT, borrowed, of_state, parameters, stored};
use crate::support::app::CONFIG;
use crate::support::db::TestDb;

const WRITERS: usize = 8;
const SETTLERS: usize = 4;
const EMAILS: usize = 500;
/// The last of them also get events without a time, whose place only the service knows.
const TIMED: usize = 450;
const GROUP: usize = 50;

const SETTLE: &str = include_str!("../../sql/sync/settle.sql");

/// A database with a destination, on which deadlocks are found fast.
async fn database() -> TestDb {
    let db = TestDb::new().await;
    let client = db.client().await;
    let name: String =
        client.query_one("select current_database()::text", &[]).await.expect("name").get(0);
    let sql = format!("alter database {name} set deadlock_timeout = '20ms'");
    client.batch_execute(&sql).await.expect("deadlock_timeout");
    instance(&db, 1).register_destinations(&["crm".to_owned()], true).await.expect("destination");
    db
}

/// Deadlocks that the server has counted, once nobody else is connected.
async fn deadlocks(db: &TestDb) -> i64 {
    let client = db.alone().await;
    let sql = "select deadlocks from pg_stat_database where datname = current_database()";
    client.query_one(sql, &[]).await.expect("counter").get(0)
}

fn address(n: usize) -> &'static Email {
    static ALL: LazyLock<Vec<Email>> =
        LazyLock::new(|| (0..EMAILS).map(|n| email(&format!("p{n}@example.com"))).collect());
    &ALL[n]
}

fn timed(rng: &mut StdRng, at: Micros) -> Event {
    let mut event = Event::random(rng);
    event.source = 0;
    event.when = When::Stated { at, received: at };
    event
}

/// A delivery of up to [`GROUP`] leads, and what of it has a time.
fn delivery(rng: &mut StdRng, body: String) -> (ApiDelivery, Vec<LeadPatch>) {
    let mut patches = Vec::new();
    let mut items = Vec::new();
    for _ in 0..rng.random_range(1..=GROUP) {
        let number = rng.random_range(0..EMAILS);
        let at = NOON + rng.random_range(0..1_000_000_000_000);
        let mut patch = timed(rng, at).patch(address(number));
        if number >= TIMED && rng.random_bool(0.5) {
            patch.occurred_at = None;
        } else {
            patches.push(patch.clone());
        }
        items.push(Item::Lead(Box::new(patch)));
    }
    let body = Bytes::from(body);
    (ApiDelivery { items, body, form: Form::Json, idempotency_key: None }, patches)
}

/// Deliveries to one instance, several at a time, until the end; some of them reach every instance.
async fn write(
    receiver: Receiver,
    writer: usize,
    shared: Arc<Vec<(ApiDelivery, Vec<LeadPatch>)>>,
    mut rng: StdRng,
    until: Instant,
) -> (u64, Vec<LeadPatch>) {
    let (mut number, mut said) = (0, Vec::new());
    while Instant::now() < until {
        let mut at_once = JoinSet::new();
        for _ in 0..3 {
            number += 1;
            let (delivery, patches) = match rng.random_bool(0.2) {
                true => shared[rng.random_range(0..shared.len())].clone(),
                false => delivery(&mut rng, format!("{writer} {number}")),
            };
            said.extend(patches);
            let receiver = receiver.clone();
            at_once.spawn(async move { receiver.deliver_api(delivery).await.expect("stored") });
        }
        at_once.join_all().await;
    }
    (number, said)
}

fn error(kind: &'static str) -> LastError {
    LastError { kind, code: Some("no".to_owned()), message: "no".to_owned() }
}

fn result(rng: &mut StdRng) -> PushResult {
    match rng.random_range(0..10) {
        0 => PushResult::Retry(error("unavailable"), Duration::ZERO),
        1 => PushResult::Unknown(error("unknown"), Duration::ZERO),
        2 => PushResult::Parked(error("record")),
        3 => PushResult::Released,
        _ => PushResult::Confirmed { remote_id: Some("1".to_owned()), hash: vec![1, 2] },
    }
}

const LEASE: Duration = Duration::from_millis(300);

/// Claims and settles, in no order, until the end. Now and then a settler dies with its leases; what it
/// was fenced off from is marked again; operators requeue and enrol.
async fn settle(
    store: Store,
    holder: String,
    mut rng: StdRng,
    stop: Arc<AtomicBool>,
) -> Result<(u64, u64), StoreError> {
    let (mut claims, mut settled) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let claimed = store.claim("crm", GROUP, &holder, LEASE, Duration::ZERO, false).await?;
        claims += 1;
        if claimed.is_empty() || rng.random_bool(0.05) {
            tokio::task::yield_now().await;
            continue;
        }
        let mut results: Vec<(Claimed, PushResult)> =
            claimed.into_iter().map(|c| (c, result(&mut rng))).collect();
        results.shuffle(&mut rng);
        let fenced = store.settle("crm", &results, Duration::ZERO).await?;
        settled += (results.len() - fenced.len()) as u64;
        if !fenced.is_empty() {
            store.remark("crm", &fenced, Duration::ZERO).await?;
        }
        match rng.random_range(0..20) {
            0 => drop(store.requeue(None, None, None).await?),
            1 => drop(store.enrol("crm", uuid::Uuid::nil(), 100).await?),
            _ => {}
        }
    }
    Ok((claims, settled))
}

/// Confirms everything that is due.
async fn drain(store: &Store) {
    store.requeue(None, None, None).await.expect("requeue");
    while let Some(wait) = store.next_due("crm").await.expect("next due") {
        // Leases of settlers that died run out.
        tokio::time::sleep(wait).await;
        let claimed =
            store.claim("crm", 100, "end", Duration::from_secs(60), Duration::ZERO, false);
        let confirmed = PushResult::Confirmed { remote_id: None, hash: vec![3] };
        let results: Vec<_> =
            claimed.await.expect("claim").into_iter().map(|c| (c, confirmed.clone())).collect();
        assert!(store.settle("crm", &results, Duration::ZERO).await.expect("settle").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_and_four_settlers_never_deadlock() {
    let (mut rng, seed) = seeded();
    let db = database().await;
    let length = Duration::from_secs(setting("LEADSYNC_DEADLOCK_SECONDS", 8));
    let until = Instant::now() + length;
    let leads = Config::parse(CONFIG).expect("configuration").config.leads;
    let shared: Arc<Vec<_>> =
        Arc::new((0..20).map(|n| delivery(&mut rng, format!("shared {n}"))).collect());
    let ended = Stop::new();
    let mut stores = Vec::new();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = instance(&db, 2);
        stores.push(store.clone());
        let settings = Settings { leads: leads.clone(), keep_bodies: false, writers: 1 };
        let (changed, _) = watch::channel(0);
        let receiver = Receiver::start(store, Vec::new(), settings, changed, ended.clone());
        let receiver = receiver.await.expect("an instance");
        let rng = StdRng::seed_from_u64(rng.random());
        writers.spawn(write(receiver, writer, shared.clone(), rng, until));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut settlers = JoinSet::new();
    for settler in 0..SETTLERS {
        let store = instance(&db, 1);
        stores.push(store.clone());
        let rng = StdRng::seed_from_u64(rng.random());
        settlers.spawn(settle(store, format!("settler {settler}"), rng, stop.clone()));
    }
    let (mut deliveries, mut said) = (0, Vec::new());
    for (n, patches) in writers.join_all().await {
        deliveries += n;
        said.extend(patches);
    }
    stop.store(true, Ordering::Relaxed);
    let (mut claims, mut settled) = (0, 0);
    for settler in settlers.join_all().await {
        let (c, s) = settler.expect("settles");
        claims += c;
        settled += s;
    }
    drain(&stores[0]).await;

    let client = db.client().await;
    let rows = consistent(&client, &said, leads.future_tolerance, seed).await;
    drop(client);
    ended.cancel();
    stores.iter().for_each(Store::close);
    drop(stores);
    let deadlocks = deadlocks(&db).await;
    println!(
        "{length:?}: {deliveries} deliveries, {} events with a time, {claims} claims, {settled} settled, \
         {rows} rows compared, {deadlocks} deadlocks",
        said.len()
    );
    assert!(deliveries > 0 && settled > 0);
    assert_eq!(deadlocks, 0, "seed {seed}");
}

/// Rows are what was said, and every lead is in sync. Returns how many rows were compared.
async fn consistent(client: &Client, said: &[LeadPatch], tolerance: Duration, seed: u64) -> usize {
    let sql = "select source_id from leadsync.sources where name = 'api'";
    let source: i16 = client.query_one(sql, &[]).await.expect("source").get(0);
    let mut folds: BTreeMap<&str, LeadState> = BTreeMap::new();
    for patch in said {
        let at = patch.occurred_at.expect("only those with a time");
        let time = EventTime::stated(at, at, tolerance);
        let origin = Origin { source_name: "api", source, trust: 50, time };
        let state = LeadState::of_event(patch.clone(), origin);
        match folds.get_mut(patch.email.as_str()) {
            Some(fold) => fold.join(state),
            None => drop(folds.insert(patch.email.as_str(), state)),
        }
    }
    for n in TIMED..EMAILS {
        folds.remove(address(n).as_str());
    }
    let mut compared = 0;
    for lead in stored(client).await {
        if let Some(fold) = folds.get(lead.email.as_str()) {
            assert_eq!(lead.row, of_state(fold), "seed {seed}, {}", lead.email);
            compared += 1;
        }
    }
    assert_eq!(compared, folds.len(), "seed {seed}: leads");
    let sql = "
        select count(*) from leadsync.leads as l
        full join leadsync.lead_sync as s on s.lead_id = l.lead_id
        where s.state is distinct from 'synced' or s.wanted_version is distinct from l.version
            or s.confirmed_version is distinct from l.version or s.lease_holder is not null
            or s.confirm_after is not null";
    let wrong: i64 = client.query_one(sql, &[]).await.expect("counts").get(0);
    assert_eq!(wrong, 0, "seed {seed}: leads that are not in sync");
    compared
}

/// Text with parts taken out, each of which must be there.
fn without(sql: &str, parts: &[&str]) -> String {
    let mut text = sql.to_owned();
    for part in parts {
        assert!(text.contains(part), "no `{part}` to take out");
        text = text.replace(part, "");
    }
    text
}

/// Counts what died in a deadlock; a control must not fail otherwise.
fn count(ended: Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>, died: &AtomicU64) {
    match ended {
        Ok(_) => {}
        Err(e) if e.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {
            died.fetch_add(1, Ordering::Relaxed);
        }
        Err(e) => panic!("the control failed otherwise: {e:?}"),
    }
}

fn states(rng: &mut StdRng) -> Vec<LeadState> {
    let mut numbers: Vec<usize> = (0..EMAILS).collect();
    numbers.shuffle(rng);
    numbers.truncate(GROUP);
    let at = NOON + rng.random_range(0..1_000_000_000_000);
    numbers.into_iter().map(|n| timed(rng, at).state(address(n))).collect()
}

/// Writes as the product does, but without the order of the statement or of its input.
async fn write_unordered(client: Client, mut rng: StdRng, died: Arc<AtomicU64>, until: Instant) {
    let sql = without(UPSERT, &["order by n.email collate \"C\"", "order by m.lead_id, d.name"]);
    let statement = client.prepare(&sql).await.expect("prepare");
    while died.load(Ordering::Relaxed) == 0 && Instant::now() < until {
        let values = parameters(&states(&mut rng));
        count(client.query(&statement, &borrowed(&values)).await, &died);
    }
}

/// Writes as the product does.
async fn write_ordered(store: Store, mut rng: StdRng, died: Arc<AtomicU64>, until: Instant) {
    while died.load(Ordering::Relaxed) == 0 && Instant::now() < until {
        let mut states = states(&mut rng);
        states.sort_by(|a, b| a.email.as_str().cmp(b.email.as_str()));
        let mut connection = store.group_connection().await.expect("a connection");
        let tx = connection.begin().await.expect("a transaction");
        match tx.upsert(&states).await {
            Ok(_) => tx.commit().await.expect("commit"),
            Err(StoreError::Retry(_)) => {
                died.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => panic!("the control failed otherwise: {e:?}"),
        }
    }
}

/// Claims as the product does, and settles without locking in order first.
async fn settle_unordered(
    store: Store,
    client: Client,
    mut rng: StdRng,
    died: Arc<AtomicU64>,
    until: Instant,
) {
    let sql = without(SETTLE, &["order by s.lead_id\n    for update of s"]);
    while died.load(Ordering::Relaxed) == 0 && Instant::now() < until {
        let claimed = store.claim("crm", GROUP, "control", LEASE, Duration::ZERO, false).await;
        let mut claimed = claimed.expect("claim");
        claimed.shuffle(&mut rng);
        let ids: Vec<_> = claimed.iter().map(|c| c.lead.lead_id).collect();
        let tokens: Vec<_> = claimed.iter().map(|c| c.lease_token).collect();
        let versions: Vec<_> = claimed.iter().map(|c| c.lead.version).collect();
        let at: Vec<_> = claimed.iter().map(|c| c.claimed_at).collect();
        let results = vec!["confirmed"; ids.len()];
        let nothing: Vec<Option<&str>> = vec![None; ids.len()];
        let hashes: Vec<Option<&[u8]>> = vec![None; ids.len()];
        let delays = vec![0.0_f64; ids.len()];
        let creating = vec![false; ids.len()];
        let dropped: Vec<Option<serde_json::Value>> = vec![None; ids.len()];
        let ended = client
            .query(
                &sql,
                &[
                    &"crm", &ids, &tokens, &versions, &at, &results, &nothing, &hashes, &delays,
                    &nothing, &nothing, &nothing, &0.0_f64, &creating, &dropped,
                ],
            )
            .await;
        count(ended, &died);
    }
}

/// Longest time a control may take to deadlock.
const CONTROL: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_order_of_the_upsert_the_same_load_deadlocks() {
    let (mut rng, _) = seeded();
    let db = database().await;
    let (died, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + CONTROL);
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let client = db.client().await;
        writers.spawn(write_unordered(
            client,
            StdRng::seed_from_u64(rng.random()),
            died.clone(),
            until,
        ));
    }
    let (stop, mut settlers) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for _ in 0..SETTLERS {
        let (store, rng) = (instance(&db, 1), StdRng::seed_from_u64(rng.random()));
        settlers.spawn(settle(store, "control".to_owned(), rng, stop.clone()));
    }
    writers.join_all().await;
    stop.store(true, Ordering::Relaxed);
    // A settler may be the victim of the writers' disorder.
    for ended in settlers.join_all().await {
        match ended {
            Ok(_) => {}
            Err(StoreError::Retry(_)) => drop(died.fetch_add(1, Ordering::Relaxed)),
            Err(e) => panic!("the control failed otherwise: {e:?}"),
        }
    }
    let counted = deadlocks(&db).await;
    println!(
        "upserts without order: {} died, the server counted {counted}",
        died.load(Ordering::Relaxed)
    );
    assert!(counted > 0, "the test of the ordered load could not fail");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_order_of_the_settling_the_same_load_deadlocks() {
    let (mut rng, _) = seeded();
    let db = database().await;
    let (died, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + CONTROL);
    let mut tasks = JoinSet::new();
    for _ in 0..WRITERS {
        let rng = StdRng::seed_from_u64(rng.random());
        tasks.spawn(write_ordered(instance(&db, 1), rng, died.clone(), until));
    }
    for _ in 0..SETTLERS {
        let (store, client) = (instance(&db, 1), db.client().await);
        let rng = StdRng::seed_from_u64(rng.random());
        tasks.spawn(settle_unordered(store, client, rng, died.clone(), until));
    }
    tasks.join_all().await;
    let counted = deadlocks(&db).await;
    println!(
        "settling without order: {} died, the server counted {counted}",
        died.load(Ordering::Relaxed)
    );
    assert!(counted > 0, "the test of the ordered load could not fail");
}
