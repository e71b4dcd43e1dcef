//! The merge is a function of the set of events: the fold in Rust, the statement and an oracle agree
//! on thousands of random sets, in any order, repetition and batching, through any number of instances.
//!
//! `LEADSYNC_SEED` repeats a run; `LEADSYNC_MERGE_SETS` and `LEADSYNC_MERGE_ORDERS` make it longer.

mod agreement;
pub mod events;
mod oracle;
pub mod rows;
mod service;
mod table;

pub use table::instance;

use leadsync::lead::Field;
use leadsync::lead::merge::LeadState;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use events::{Event, email, seeded, set, setting};
use oracle::{Row, expected};

/// Random sets, and orders of each.
fn extent(sets: u64) -> (u64, u64) {
    (setting("LEADSYNC_MERGE_SETS", sets), setting("LEADSYNC_MERGE_ORDERS", 5))
}

/// The things in another order, some of them again, cut into batches.
fn delivered<T: Clone>(rng: &mut StdRng, things: &[T]) -> Vec<Vec<T>> {
    let mut order = things.to_vec();
    for _ in 0..rng.random_range(0..=things.len()) {
        order.push(things[rng.random_range(0..things.len())].clone());
    }
    order.shuffle(rng);
    let mut batches = vec![Vec::new()];
    for thing in order {
        if rng.random_bool(0.4) && !batches.last().is_some_and(Vec::is_empty) {
            batches.push(Vec::new());
        }
        batches.last_mut().expect("one at least").push(thing);
    }
    batches
}

/// Every column in which two rows differ.
fn difference(is: &Row, should: &Row) -> Option<String> {
    if is == should {
        return None;
    }
    let names: std::collections::BTreeSet<_> = is.keys().chain(should.keys()).collect();
    let differing = names.into_iter().filter(|n| is.get(*n) != should.get(*n));
    Some(
        differing
            .map(|n| format!("{n}: is {:?}, should be {:?}", is.get(n), should.get(n)))
            .collect::<Vec<_>>()
            .join("; "),
    )
}

fn join_all(states: Vec<LeadState>) -> LeadState {
    let join = |mut fold: LeadState, state| {
        fold.join(state);
        fold
    };
    states.into_iter().reduce(join).expect("at least one")
}

#[test]
fn the_fold_is_the_oracle_in_any_order_repetition_and_grouping() {
    let (mut rng, seed) = seeded();
    let (sets, orders) = extent(3000);
    let key = email("ana@example.com");
    let (mut folds, mut settled) = (0, 0);
    for number in 0..sets {
        let events = set(&mut rng, 8);
        let should = expected(&events);
        let singles: Vec<LeadState> = events.iter().map(|e| e.state(&key)).collect();
        for _ in 0..orders {
            // Each batch is folded, then the folds are joined two at a time, in any pairing.
            let mut states: Vec<LeadState> =
                delivered(&mut rng, &singles).into_iter().map(join_all).collect();
            folds += states.len();
            while states.len() > 1 {
                let other = states.swap_remove(rng.random_range(0..states.len()));
                let at = rng.random_range(0..states.len());
                states[at].join(other);
            }
            let mut state = states.pop().expect("one is left");
            let is = rows::of_state(&state);
            if let Some(differs) = difference(&is, &should) {
                panic!("seed {seed}, set {number}: {differs}\n{events:#?}");
            }
            let before = state.clone();
            state.join(before.clone());
            assert_eq!(state, before, "seed {seed}, set {number}: idempotent");
            settled += 1;
        }
    }
    println!("fold: {sets} sets x {orders} orders, {folds} batches, {settled} rows, 0 mismatches");
}

/// The generator makes what the rules are about; without it the tests above would prove little.
#[test]
fn the_events_tie_and_contradict_each_other() {
    let (mut rng, _) = seeded();
    let (mut ties, mut by_source, mut cleared, mut unreliable, mut lifted) = (0, 0, 0, 0, 0);
    for _ in 0..500 {
        let events = set(&mut rng, 8);
        let row = expected(&events);
        for field in [Field::FirstName, Field::City, Field::Message] {
            let stamp = format!("{}_stamp", field.name());
            let wins =
                |e: &&Event| e.fields.contains_key(&field) && expected([*e])[&stamp] == row[&stamp];
            let winners: Vec<&Event> = events.iter().filter(wins).collect();
            let Some(first) = winners.first() else { continue };
            let same = |e: &&Event| e.fields[&field] == first.fields[&field];
            ties += usize::from(!winners.iter().all(same));
            let sources = winners.iter().any(|e| e.source != first.source);
            by_source += usize::from(sources && winners.iter().all(same));
        }
        cleared += usize::from(!row["phone_stamp"].is_null() && row["phone"].is_null());
        unreliable += usize::from(row["first_seen_reliable"] == false);
        lifted +=
            usize::from(!row["consent_out_stamp"].is_null() && row["marketing_consent"] == true);
    }
    println!(
        "ties {ties}, by source {by_source}, cleared {cleared}, unreliable {unreliable}, lifted {lifted}"
    );
    for (what, times) in [
        ("values at one time", ties),
        ("sources of one value at one time", by_source),
        ("cleared fields", cleared),
        ("rows without a believed time", unreliable),
        ("opt-outs lifted", lifted),
    ] {
        assert!(times >= 3, "{what}: only {times} of 500");
    }
}
