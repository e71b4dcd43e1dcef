//! The statement against the oracle, on the table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use leadsync::lead::merge::LeadState;
use leadsync::lead::{Change, Email, Field};
use leadsync::store::Store;
use leadsync::store::leads::Merged;
use leadsync::store::pool::{Pools, Settings};
use leadsync::store::sync::PushResult;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use tokio::sync::Barrier;
use tokio_postgres::Client;

use super::events::{Event, NOON, When, email, fold, seeded, set};
use super::oracle::{Row, expected, told};
use super::rows::{UPSERT, borrowed, parameters, stored};
use super::{delivered, difference, extent};
use crate::analytics::history;
use crate::support::db::TestDb;

/// An instance: a pool of its own.
pub fn instance(db: &TestDb, connections: usize) -> Store {
    let settings = Settings {
        receive_connections: connections,
        sync_connections: 1,
        statement_timeout: std::time::Duration::from_secs(60),
        history: true,
    };
    Store::new(Pools::new(&db.secret(), &settings).expect("pools"))
}

/// A database with one active destination, so that the statement's marking runs too.
async fn database() -> TestDb {
    let db = TestDb::new().await;
    instance(&db, 1).register_destinations(&["crm".to_owned()], true).await.expect("destination");
    db
}

/// Upserts states of distinct e-mails, as a group does it.
async fn upsert(store: &Store, mut states: Vec<LeadState>) -> Vec<Merged> {
    states.sort_by(|a, b| a.email.as_str().cmp(b.email.as_str()));
    let mut connection = store.group_connection().await.expect("a connection");
    let tx = connection.begin().await.expect("a transaction");
    let merged = tx.upsert(&states).await.expect("upsert");
    tx.commit().await.expect("commit");
    assert_eq!(merged.len(), states.len(), "one result per state");
    merged
}

/// Every lead is due with the version it has, and was never settled.
async fn everything_is_due(client: &Client) {
    let sql = "
        select count(*) from leadsync.leads as l
        full join leadsync.lead_sync as s on s.lead_id = l.lead_id
        where s.state is distinct from 'due' or s.wanted_version is distinct from l.version
            or s.destination <> 'crm'";
    let wrong: i64 = client.query_one(sql, &[]).await.expect("counts").get(0);
    assert_eq!(wrong, 0, "leads that are not due with their version");
}

/// Deliveries of one set on their way to one lead, by the place of each event in the set, and what is
/// expected of the lead so far.
struct Course {
    key: Email,
    set: usize,
    batches: Vec<Vec<usize>>,
    seen: BTreeSet<usize>,
    version: i64,
    told: Option<Row>,
}

#[tokio::test]
async fn the_statement_is_the_oracle_in_any_order_repetition_and_batching() {
    let (mut rng, seed) = seeded();
    let (sets, orders) = extent(2000);
    let db = database().await;
    let instances = [instance(&db, 1), instance(&db, 1)];
    let mut all: Vec<Vec<Event>> = Vec::new();
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    for set in 0..sets as usize {
        let events = super::set(&mut rng, 8);
        for order in 0..orders {
            let mut batches = delivered(&mut rng, &(0..events.len()).collect::<Vec<_>>());
            batches.reverse();
            // Bytewise, some of these sort elsewhere than any collation has them.
            let letter =
                ["a", "é", "z", "\u{FF5A}", "\u{10400}", "-"].choose(&mut rng).expect("one");
            let key = email(&format!("{letter}{set}.{order}@example.com"));
            let seen = BTreeSet::new();
            let course = Course { key: key.clone(), set, batches, seen, version: 0, told: None };
            courses.insert(key.as_str().to_owned(), course);
        }
        all.push(events);
    }
    let mut under_way: Vec<String> = courses.keys().cloned().collect();
    let (mut statements, mut merges, mut repeats) = (0_u64, 0_u64, 0_u64);
    while !under_way.is_empty() {
        under_way.shuffle(&mut rng);
        let most = if rng.random_bool(0.1) { 3 } else { 512 };
        let size = rng.random_range(1..=most);
        let group = under_way[..size.min(under_way.len())].to_vec();
        let mut states = Vec::new();
        let mut should: HashMap<String, (bool, bool)> = HashMap::new();
        for key in &group {
            let course = courses.get_mut(key).expect("under way");
            let events = &all[course.set];
            let batch = course.batches.pop().expect("not empty");
            states.push(fold(&course.key, batch.iter().map(|at| &events[*at])));
            let (created, known) = (course.told.is_none(), course.seen.len());
            course.seen.extend(batch);
            let mut moved = false;
            if course.seen.len() > known {
                let now = told(&expected(course.seen.iter().map(|at| &events[*at])));
                moved = course.told.as_ref() != Some(&now);
                course.told = Some(now);
            }
            should.insert(key.clone(), (created, moved));
            course.version += i64::from(moved);
            repeats += u64::from(!moved);
        }
        let store = instances.choose(&mut rng).expect("two");
        for merged in upsert(store, states).await {
            let is = (merged.created, merged.moved);
            assert_eq!(is, should[&merged.email], "seed {seed}: created, moved");
            assert!(merged.lead_id.is_some(), "seed {seed}: nobody else is at work");
        }
        statements += 1;
        merges += group.len() as u64;
        under_way.retain(|key| !courses[key].batches.is_empty());
    }
    let client = db.client().await;
    let leads = stored(&client).await;
    assert_eq!(leads.len(), courses.len());
    let shoulds: Vec<Row> = all.iter().map(expected).collect();
    for lead in &leads {
        let course = &courses[&lead.email];
        if let Some(differs) = difference(&lead.row, &shoulds[course.set]) {
            panic!("seed {seed}, {}: {differs}\n{:#?}", lead.email, all[course.set]);
        }
        assert_eq!(lead.version, course.version, "seed {seed}, {}", lead.email);
    }
    everything_is_due(&client).await;
    history::is_whole(&client).await;
    println!(
        "statement: {sets} sets x {orders} orders, {statements} statements, {merges} merges \
         ({repeats} without a change), {} rows, 0 mismatches",
        leads.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_of_two_instances_at_once_end_as_the_oracle_says() {
    let (mut rng, seed) = seeded();
    let rounds = super::setting("LEADSYNC_MERGE_ROUNDS", 3);
    let (mut statements, mut merges, mut rows) = (0, 0, 0);
    for round in 0..rounds {
        let db = database().await;
        let instances = [instance(&db, 4), instance(&db, 4)];
        let mut shoulds: BTreeMap<String, Row> = BTreeMap::new();
        // Everything everybody says: each event once to four times, through any instance.
        let mut said: Vec<(Email, Event)> = Vec::new();
        for number in 0..400 {
            let key = email(&format!("p{number}@example.com"));
            let events = set(&mut rng, 12);
            shoulds.insert(key.as_str().to_owned(), expected(&events));
            for event in events {
                let copies = rng.random_range(1..=4);
                said.extend(std::iter::repeat_n((key.clone(), event), copies));
            }
        }
        said.shuffle(&mut rng);
        let mut writers = tokio::task::JoinSet::new();
        let share = said.len().div_ceil(8);
        for (writer, mine) in said.chunks(share).enumerate() {
            let (store, mine) = (instances[writer % 2].clone(), mine.to_vec());
            let mut rng = StdRng::seed_from_u64(rng.random());
            writers.spawn(async move { write(&store, &mine, &mut rng).await });
        }
        let mut tally: HashMap<String, (u64, i64)> = HashMap::new();
        for (merged, n) in writers.join_all().await {
            statements += n;
            for m in merged {
                let (created, moved) = tally.entry(m.email).or_default();
                *created += u64::from(m.created);
                *moved += i64::from(m.moved);
                merges += 1;
            }
        }
        let client = db.client().await;
        let leads = stored(&client).await;
        assert_eq!(leads.len(), shoulds.len());
        for lead in &leads {
            if let Some(differs) = difference(&lead.row, &shoulds[&lead.email]) {
                panic!("seed {seed}, round {round}, {}: {differs}", lead.email);
            }
            let (created, moved) = tally[&lead.email];
            assert_eq!(created, 1, "seed {seed}, {}: created once", lead.email);
            assert_eq!(moved, lead.version, "seed {seed}, {}: one version per move", lead.email);
        }
        everything_is_due(&client).await;
        history::is_whole(&client).await;
        rows += leads.len();
    }
    println!(
        "8 writers, 2 instances, {rounds} rounds: {statements} statements, {merges} merges, {rows} rows, 0 mismatches"
    );
}

/// Writes events in groups of 1 to 25, folded as a group is.
async fn write(store: &Store, said: &[(Email, Event)], rng: &mut StdRng) -> (Vec<Merged>, usize) {
    let (mut merged, mut statements, mut rest) = (Vec::new(), 0, said);
    while !rest.is_empty() {
        let (group, after) = rest.split_at(rng.random_range(1..=25).min(rest.len()));
        rest = after;
        let mut folds: BTreeMap<&str, LeadState> = BTreeMap::new();
        for (key, event) in group {
            let state = event.state(key);
            match folds.get_mut(key.as_str()) {
                Some(fold) => fold.join(state),
                None => drop(folds.insert(key.as_str(), state)),
            }
        }
        merged.extend(upsert(store, folds.into_values().collect()).await);
        statements += 1;
    }
    (merged, statements)
}

/// An event that only says this, at so many microseconds after [`NOON`].
fn says(field: Field, value: Option<&str>, after: i64) -> Event {
    let mut event = Event::random(&mut StdRng::seed_from_u64(7));
    event.source = 0;
    event.when = When::Stated { at: NOON + after, received: NOON + 1_000_000 };
    let change = value.map_or(Change::Clear, |v| Change::Set(v.to_owned()));
    event.fields = BTreeMap::from([(field, change)]);
    (event.consent, event.typed) = (None, "Ana@example.com");
    event.tags.clear();
    event.attributes.clear();
    event.touch = Default::default();
    event
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_fifty_at_once_exactly_one_creates() {
    let db = database().await;
    let instances = [instance(&db, 12), instance(&db, 12)];
    for round in 0..10 {
        let key = email(&format!("hot{round}@example.com"));
        let start = Arc::new(Barrier::new(50));
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..50 {
            // Half of them say the same; the others each something newer.
            let value = if writer % 2 == 0 { "same".to_owned() } else { format!("v{writer}") };
            let state = says(Field::City, Some(&value), writer).state(&key);
            let (store, start) = (instances[writer as usize % 2].clone(), start.clone());
            writers.spawn(async move {
                start.wait().await;
                upsert(&store, vec![state]).await.remove(0)
            });
        }
        let merged = writers.join_all().await;
        let created = merged.iter().filter(|m| m.created).count();
        let moved = merged.iter().filter(|m| m.moved).count() as i64;
        assert_eq!(created, 1, "round {round}");
        assert!(merged.iter().all(|m| m.moved || !m.created), "a new lead has moved");
        let ids: BTreeSet<_> = merged.iter().filter_map(|m| m.lead_id).collect();
        assert_eq!(ids.len(), 1, "one lead");
        let leads = stored(&db.client().await).await;
        let lead = leads.iter().find(|l| l.email == key.as_str()).expect("the lead");
        assert_eq!((lead.version, &lead.row["city"]), (moved, &"v49".into()), "round {round}");
    }
}

/// Everything about the writing that `explain (analyze, wal)` counts, over the whole plan.
async fn wal_records(client: &Client, states: &[LeadState]) -> i64 {
    fn count(plan: &serde_json::Value) -> i64 {
        let own = plan["WAL Records"].as_i64().expect("counted");
        let below = plan["Plans"].as_array().into_iter().flatten().map(count).max();
        own.max(below.unwrap_or(0))
    }
    let values = parameters(states);
    let sql = format!("explain (analyze, wal, format json) {UPSERT}");
    let row = client.query_one(&sql, &borrowed(&values)).await.expect("explain");
    count(&row.get::<_, serde_json::Value>(0)[0]["Plan"])
}

#[tokio::test]
async fn a_repeat_writes_nothing_at_all() {
    let (mut rng, seed) = seeded();
    let db = database().await;
    let store = instance(&db, 1);
    let mut client = db.client().await;
    let sets: Vec<(Email, Vec<Event>)> =
        (0..200).map(|n| (email(&format!("p{n}@example.com")), set(&mut rng, 6))).collect();
    let whole = || sets.iter().map(|(key, events)| fold(key, events)).collect::<Vec<_>>();
    upsert(&store, whole()).await;
    // In a transaction of its own, so that none of the leads is looked at for the first time below.
    let before: Vec<String> = stored(&client).await.into_iter().map(|l| l.writing).collect();

    // All of it, each event alone, and any part of it: nothing moves, no row is written or even locked.
    for merged in upsert(&store, whole()).await {
        assert!(!merged.moved && !merged.created && merged.lead_id.is_some(), "seed {seed}");
    }
    for at in 0..6 {
        let alone = sets.iter().filter_map(|(key, e)| Some(fold(key, [e.get(at)?])));
        for merged in upsert(&store, alone.collect()).await {
            assert!(!merged.moved && !merged.created, "seed {seed}");
        }
    }
    let tx = client.transaction().await.expect("a transaction");
    let repeat = wal_records(tx.client(), &whole()).await;
    assert_eq!(repeat, 0, "seed {seed}: WAL records of a repeat");
    let xid = "select pg_current_xact_id_if_assigned() is null";
    assert!(tx.query_one(xid, &[]).await.expect("xid").get::<_, bool>(0), "a repeat takes no xid");
    tx.commit().await.expect("commit");
    let after: Vec<String> = stored(&client).await.into_iter().map(|l| l.writing).collect();
    assert_eq!(before, after, "seed {seed}");

    // The measure measures: news are seen by it, of a lead that is known and of one that is not.
    for key in [&sets[0].0, &email("new@example.com")] {
        let mut news = says(Field::City, Some("Elsewhere"), 0);
        news.when = When::Received(NOON + 36_000_000_000);
        assert!(wal_records(&client, &[news.state(key)]).await > 0, "seed {seed}");
    }
}

#[tokio::test]
async fn only_a_changed_value_moves_the_version_and_what_is_due() {
    let db = database().await;
    let store = instance(&db, 1);
    let client = db.client().await;
    let key = email("ana@example.com");
    let lead = async || stored(&client).await.remove(0);
    let due = async || {
        let sql = "select state, wanted_version from leadsync.lead_sync";
        let row = client.query_one(sql, &[]).await.expect("one destination");
        (row.get::<_, String>(0), row.get::<_, i64>(1))
    };
    let settle = async || {
        let minute = std::time::Duration::from_secs(60);
        let claimed = store.claim("crm", 10, "test", minute, minute, false).await.expect("claim");
        assert_eq!(claimed.len(), 1, "one lead is due");
        let confirmed = PushResult::Confirmed { remote_id: None, hash: vec![1] };
        let results: Vec<_> = claimed.into_iter().map(|c| (c, confirmed.clone())).collect();
        let ids = [results[0].0.lead.lead_id];
        let settled = store.settle("crm", &results, minute).await.expect("settle");
        assert!(!settled.contains(&ids[0]), "not fenced off");
    };
    let steps: [(&str, Event, bool, bool); 9] = [
        ("a new lead", says(Field::City, Some("Berlin"), 0), true, true),
        ("the same later", says(Field::City, Some("Berlin"), 10), false, false),
        ("older news of another field", says(Field::Phone, Some("+49301"), 5), false, true),
        ("something older", says(Field::City, Some("Bonn"), 9), false, false),
        ("a greater value of the same time", says(Field::City, Some("Bonn"), 10), false, true),
        ("a clear", says(Field::City, None, 20), false, true),
        ("the clear again, later", says(Field::City, None, 30), false, false),
        ("a clear of what nobody spoke about", says(Field::Company, None, 1), false, true),
        ("that clear, later", says(Field::Company, None, 2), false, false),
    ];
    let mut events: Vec<Event> = Vec::new();
    let mut version = 0;
    for (what, event, created, moved) in steps {
        let stamp = |row: &Row, f: &str| row[&format!("{f}_stamp")].as_i64().unwrap_or(0);
        let field = *event.fields.keys().next().expect("one");
        let old = if events.is_empty() { None } else { Some(lead().await) };
        let merged = upsert(&store, vec![event.state(&key)]).await.remove(0);
        events.push(event);
        assert_eq!((merged.created, merged.moved), (created, moved), "{what}");
        version += i64::from(moved);
        let new = lead().await;
        assert_eq!(new.version, version, "{what}");
        assert_eq!(difference(&new.row, &expected(&events)), None, "{what}");
        assert_eq!(told(&new.row) != old.as_ref().map(|o| told(&o.row)).unwrap_or_default(), moved);
        if what.contains("later") {
            let old = old.expect("not the first");
            let raised = stamp(&new.row, field.name()) > stamp(&old.row, field.name());
            assert!(raised, "{what}: the stamp is raised");
        }
        let state = if moved { "due" } else { "synced" };
        assert_eq!(due().await, (state.to_owned(), version), "{what}");
        if moved {
            settle().await;
        }
    }
}

#[tokio::test]
async fn no_plan_counts_on_small_tables() {
    let db = database().await;
    let client = db.client().await;
    let store = instance(&db, 1);
    let minute = std::time::Duration::from_secs(60);
    // Empty, then small and looked at by analyze; after five runs a plan is kept for good.
    for round in 0..20 {
        let states = (0..3).map(|n| {
            let key = email(&format!("p{n}@example.com"));
            says(Field::City, Some(&format!("v{round}")), i64::from(round)).state(&key)
        });
        upsert(&store, states.collect()).await;
        let claimed = store.claim("crm", 10, "test", minute, minute, false).await.expect("claim");
        assert_eq!(claimed.len(), 3, "moved in every round");
        let confirmed = PushResult::Confirmed { remote_id: None, hash: vec![1] };
        let results: Vec<_> = claimed.into_iter().map(|c| (c, confirmed.clone())).collect();
        assert!(store.settle("crm", &results, minute).await.expect("settle").is_empty());
        if round == 9 {
            client
                .batch_execute("analyze leadsync.leads, leadsync.lead_sync")
                .await
                .expect("analyze");
        }
    }
    drop(client);
    store.close();
    let sql = "select relname::text, seq_scan from pg_stat_user_tables where relname in ('leads', 'lead_sync')";
    let rows = db.alone().await.query(sql, &[]).await.expect("counters");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row.get::<_, i64>(1), 0, "scans of {}", row.get::<_, String>(0));
    }
}
