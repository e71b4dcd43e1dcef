//! The protocol under fire: holders that stall, lose their lease, die and come back, answers that are lost,
//! requests that arrive late. At rest the CRM holds exactly what the table says.

use std::sync::Arc;
use std::time::Duration;

use leadsync::fake_crm::{Crm, Fault, FaultRates};
use leadsync::stop::Stop;
use leadsync::sync::step::Step;
use leadsync::sync::{Configured, Settings, Syncer};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::sync::{Gate, Gated, Rig, Slow, email, lead, leads, settings, soon, with};

/// A grace time that leaves a busy machine time to do things within it.
fn patient() -> Settings {
    Settings { confirm_after: Duration::from_millis(1500), ..settings() }
}

/// A step of another instance, under way.
fn stepping(syncer: Syncer, destination: &Configured) -> JoinHandle<Step> {
    let destination = destination.clone();
    tokio::spawn(async move { syncer.step(&destination, &Stop::new()).await.expect("a step") })
}

/// An instance dies: what it sent is under way, what it knew is gone.
async fn crash(task: JoinHandle<Step>) {
    task.abort();
    assert!(task.await.expect_err("it was in the middle of a call").is_cancelled());
}

fn city(rig: &Rig, n: usize) -> String {
    rig.held()[&email(n)]["city"].clone()
}

#[tokio::test]
async fn a_holder_that_stalls_before_its_write_overwrites_nothing_for_good() {
    let rig = Rig::new().await;
    rig.deliver(&leads(2, 1)).await;
    let (gate, gated) = Gated::put(&rig.destination, Gate::new(false), Gate::new(true));
    let stalled = stepping(rig.another(), &gated);
    gate.before.reached(1).await;
    assert_eq!(rig.end_leases().await, 2);
    rig.deliver(&[lead(0, 2)]).await;
    // Longer than any grace time: the others are at rest when it wakes up.
    rig.drain().await;
    rig.exact().await;
    gate.before.open();
    soon("the stalled call", stalled).await.unwrap();
    assert_eq!(city(&rig, 0), "City1", "the old data did arrive last, or this proves nothing");
    rig.drain().await;
    rig.exact().await;
}

#[tokio::test]
async fn a_holder_that_stalls_after_its_write_settles_nothing() {
    let rig = Rig::new().await;
    rig.deliver(&leads(2, 1)).await;
    let (gate, gated) = Gated::put(&rig.destination, Gate::new(true), Gate::new(false));
    let stalled = stepping(rig.another(), &gated);
    gate.after.reached(1).await;
    rig.end_leases().await;
    rig.deliver(&[lead(0, 2)]).await;
    rig.worked().await;
    gate.after.open();
    soon("the stalled call", stalled).await.unwrap();
    rig.drain().await;
    rig.exact().await;
}

#[tokio::test]
async fn a_holder_that_wakes_up_while_its_successor_calls_does_not_end_that_lease() {
    let rig = Rig::with(patient()).await;
    rig.deliver(&[lead(0, 1)]).await;
    let (gate, gated) = Gated::put(&rig.destination, Gate::new(true), Gate::new(false));
    let stalled = stepping(rig.another(), &gated);
    gate.after.reached(1).await;
    rig.end_leases().await;
    // The successor sends the same, and its request stays under way.
    rig.app.crm.script(Fault::HoldBefore);
    let successor = stepping(rig.another(), &rig.destination);
    soon("its call", rig.app.crm.wait_for_calls(2)).await;
    soon("the grace time of the first steal", async {
        while rig.column("s.confirm_after < clock_timestamp()").await[&email(0)] != "true" {
            tokio::time::sleep(rig.settings.poll).await;
        }
    })
    .await;
    gate.after.open();
    soon("the stalled call", stalled).await.unwrap();
    // Now the successor dies. That its lease ran out tells the next one that something may still arrive.
    crash(successor).await;
    rig.end_leases().await;
    rig.deliver(&[lead(0, 2)]).await;
    rig.worked().await;
    assert_eq!(city(&rig, 0), "City2");
    rig.app.crm.release();
    soon("the successor's write", rig.app.crm.wait_for_applied(3)).await;
    assert_eq!(city(&rig, 0), "City1", "the old data did arrive last, or this proves nothing");
    rig.drain().await;
    rig.exact().await;
}

#[tokio::test]
async fn a_write_that_arrives_after_its_holder_died() {
    let rig = Rig::with(patient()).await;
    rig.deliver(&leads(2, 1)).await;
    rig.app.crm.script(Fault::HoldBefore);
    let holder = stepping(rig.another(), &rig.destination);
    soon("its call", rig.app.crm.wait_for_calls(1)).await;
    crash(holder).await;
    rig.end_leases().await;
    rig.deliver(&[lead(0, 2)]).await;
    assert_eq!(rig.pass().await.pushed, 2);
    rig.app.crm.release();
    soon("the late write", rig.app.crm.wait_for_applied(2)).await;
    assert_eq!(city(&rig, 0), "City1", "the old data did arrive last, or this proves nothing");
    rig.drain().await;
    rig.exact().await;
}

#[tokio::test]
async fn a_write_that_arrives_after_its_time_out() {
    let settings = Settings { call_timeout: Duration::from_millis(300), ..patient() };
    let rig = Rig::with(settings).await;
    rig.deliver(&[lead(0, 1)]).await;
    rig.app.crm.script(Fault::HoldBefore);
    assert_eq!(rig.worked().await.failed, 1);
    rig.deliver(&[lead(0, 2)]).await;
    soon("the newer data", async {
        while rig.pass().await.pushed == 0 {
            tokio::time::sleep(rig.settings.poll).await;
        }
    })
    .await;
    rig.app.crm.release();
    soon("the late write", rig.app.crm.wait_for_applied(2)).await;
    assert_eq!(city(&rig, 0), "City1", "the old data did arrive last, or this proves nothing");
    rig.drain().await;
    rig.exact().await;
}

#[tokio::test]
async fn a_holder_that_was_fenced_off_cannot_park_or_renew() {
    let rig = Rig::new().await;
    rig.deliver(&[lead(0, 1)]).await;
    let store = &rig.app.store;
    let (minute, grace) = (Duration::from_secs(60), rig.settings.confirm_after);
    let first = store.claim("hubspot", 1, "first", minute, grace, false).await.unwrap();
    let id = first[0].lead.lead_id;
    let held = [(id, first[0].lease_token)];
    assert_eq!(store.renew("hubspot", &held, minute).await.unwrap(), [id]);
    assert!(store.claim("hubspot", 1, "second", minute, grace, false).await.unwrap().is_empty());
    rig.end_leases().await;
    let second = store.claim("hubspot", 1, "second", minute, grace, false).await.unwrap();
    assert!(second[0].confirm_owed && second[0].lease_token > first[0].lease_token);
    assert!(store.renew("hubspot", &held, minute).await.unwrap().is_empty());
    let error = leadsync::store::sync::LastError {
        kind: "record",
        code: Some("OLD".into()),
        message: "old".into(),
    };
    let parked = [(first[0].clone(), leadsync::store::sync::PushResult::Parked(error))];
    assert_eq!(store.settle("hubspot", &parked, grace).await.unwrap(), [id]);
    let row = "concat_ws(' ', s.state, s.lease_holder, s.last_error_code)";
    assert_eq!(rig.column(row).await[&email(0)], "due second");
}

type Instance = (Stop, JoinHandle<()>);

/// An instance that makes one pass after the other until it is stopped.
fn passing(syncer: Syncer, destination: Configured) -> Instance {
    let stop = Stop::new();
    let mine = stop.clone();
    let task = tokio::spawn(async move {
        while !mine.is_cancelled() {
            syncer.pass(&destination, &mine).await.expect("a pass");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    (stop, task)
}

/// Edits, instances, faults, thefts and deaths at random, then rest.
async fn random_schedule(seed: u64, rounds: usize) {
    const LEADS: usize = 12;
    let mut rng = StdRng::seed_from_u64(seed);
    let settings = Settings {
        lease: Duration::from_secs(2),
        call_timeout: Duration::from_millis(250),
        // More than the time-out and the latest write together, with time to spare for a busy machine.
        confirm_after: Duration::from_millis(2000),
        backoff_base: Duration::from_millis(5),
        backoff_max: Duration::from_millis(30),
        ..settings()
    };
    let rig = Rig::with(settings).await;
    let mut options = rig.app.crm.options();
    options.seed = seed;
    options.rates = FaultRates {
        slow_after_apply: 0.03,
        reset_after_apply: 0.06,
        reset_before_apply: 0.04,
        truncated: 0.04,
        error_5xx: 0.08,
        rate_limited: 0.0,
        slow_ms: 600,
    };
    rig.app.crm.set_options(options.clone());
    // One instance stalls before every call for longer than any grace time, and does not know it.
    let stalled = Slow(rig.destination.destination.clone(), Duration::from_millis(3200));
    let stalled =
        Configured { destination: Arc::new(stalled), concurrency: 1, ..rig.destination.clone() };
    let unaware = Settings {
        lease: Duration::from_secs(60),
        call_timeout: Duration::from_secs(30),
        ..rig.settings.clone()
    };
    let stalling = passing(Syncer::new(rig.app.store.clone(), unaware), stalled);
    let mut instances: Vec<Instance> = Vec::new();
    let mut minute = 0;
    for _ in 0..rounds {
        match rng.random_range(0..10) {
            // An edit of some leads: values, blanks and clears.
            0..5 => {
                minute += 1;
                let count = rng.random_range(1..4);
                let mut edits = std::collections::BTreeMap::new();
                for _ in 0..count {
                    let n = rng.random_range(0..LEADS);
                    edits.insert(n, edit(&mut rng, n, minute));
                }
                rig.deliver(&edits.into_values().collect::<Vec<_>>()).await;
            }
            // A slow call, or a write that arrives when its sender has given up.
            5 => rig.app.crm.script(Fault::DelayBefore { ms: rng.random_range(50..500) }),
            // An instance starts.
            6 | 7 if instances.len() < 3 => {
                instances.push(passing(rig.another(), rig.destination.clone()));
            }
            // All leases run out: their holders do not know it.
            8 => {
                rig.end_leases().await;
            }
            // An instance ends: in order, or it dies.
            9 if !instances.is_empty() => {
                let (stop, task) = instances.swap_remove(rng.random_range(0..instances.len()));
                match rng.random_bool(0.5) {
                    true => {
                        stop.cancel();
                        soon("it stops", task).await.expect("in order");
                    }
                    false => task.abort(),
                }
            }
            _ => {}
        }
        let pause = rng.random_range(0..25);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    // Whoever took over from the one that stalls is at rest when it wakes up.
    rig.end_leases().await;
    instances.push(passing(rig.another(), rig.destination.clone()));
    instances.insert(0, stalling);
    for (stop, task) in instances {
        stop.cancel();
        soon("it stops", task).await.expect("in order");
    }
    rig.app.crm.clear_script();
    options.rates = FaultRates::default();
    rig.app.crm.set_options(options);
    rig.end_leases().await;
    rig.drain().await;
    // Nothing is under way any more, or the drain was no end.
    rig.exact().await;
    assert_eq!(rig.app.crm.doubles(Crm::Hubspot), 0);
}

fn edit(rng: &mut StdRng, n: usize, minute: usize) -> Value {
    let mut edit = lead(n, minute);
    for name in ["company", "phone", "job_title"] {
        match rng.random_range(0..4) {
            0 if name == "phone" => {
                let number = format!("+55119{:08}", rng.random_range(10_000_000..99_999_999));
                edit = with(edit, json!({ "phone": number }));
            }
            0 => edit = with(edit, json!({ name: format!("{name} {minute}") })),
            1 => edit = with(edit, json!({ name: " " })),
            2 => {
                let mut clear = edit["clear"].as_array().cloned().unwrap_or_default();
                clear.push(json!(name));
                edit = with(edit, json!({ "clear": clear }));
            }
            _ => {}
        }
    }
    edit
}

/// `LEADSYNC_TEST_SEED` repeats a run, `LEADSYNC_TEST_SCHEDULES` makes it longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_schedules_come_to_rest_with_both_sides_equal() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = number("LEADSYNC_TEST_SEED").unwrap_or_else(rand::random);
    let schedules: u64 = number("LEADSYNC_TEST_SCHEDULES").unwrap_or(3);
    let all = (0..schedules).map(|n| {
        let seed = first.wrapping_add(n);
        async move {
            // Shown when the test fails.
            println!("LEADSYNC_TEST_SEED={seed}");
            tokio::spawn(random_schedule(seed, 120))
                .await
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    });
    // A few at once: mostly they wait.
    let mut all: Vec<_> = all.collect();
    while !all.is_empty() {
        let rest = all.split_off(all.len().min(4));
        futures_util::future::join_all(all).await;
        all = rest;
    }
}
