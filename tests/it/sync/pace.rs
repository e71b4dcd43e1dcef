//! Rate, circuit, pause and schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use leadsync::config::Rate;
use leadsync::destinations::{CallError, Destination, Mapped, Outcome, Record, Reply};
use leadsync::fake_crm::{self, Crm, FakeCrm, Fault};
use leadsync::stop::Stop;
use leadsync::store::destinations::{Budget, Pause, Spending, Told};
use leadsync::sync::schedule::Schedule;
use leadsync::sync::step::Step;
use leadsync::sync::{Configured, Settings};
use tokio::sync::watch;

use super::{Rig, email, lead, leads, settings, soon};

#[tokio::test]
async fn the_rate_is_never_exceeded_by_two_instances() {
    let crm = FakeCrm::on_free_port(fake_crm::Options::default()).await.unwrap();
    let mut rig = Rig::hooks(&format!("{}/webhook", crm.url()), settings()).await;
    let per = Duration::from_secs(2);
    rig.destination.rate = Some(Rate { calls: 40, per });
    rig.deliver(&leads(70, 1)).await;
    let (other, stop) = (rig.another(), Stop::new());
    let (mine, theirs) = tokio::join!(rig.pass(), other.pass(&rig.destination, &stop));
    assert!(mine.calls > 0 && theirs.unwrap().calls > 0, "both take part");
    rig.drain().await;
    assert_eq!(crm.contacts(Crm::Webhook).len(), 70);
    let times: Vec<Timestamp> = crm.calls().iter().map(|call| call.at).collect();
    assert_eq!(times.len(), 70);
    for (at, first) in times.iter().enumerate() {
        let window =
            times[at..].iter().take_while(|t| t.duration_since(*first) < per.try_into().unwrap());
        let calls = window.count();
        assert!(calls <= 40, "{calls} calls in a window from call {at}");
    }
}

#[tokio::test]
async fn a_rate_slower_than_a_lease_still_moves() {
    let crm = FakeCrm::on_free_port(fake_crm::Options::default()).await.unwrap();
    let settings = Settings {
        lease: Duration::from_millis(1600),
        call_timeout: Duration::from_millis(800),
        ..settings()
    };
    let mut rig = Rig::hooks(&format!("{}/webhook", crm.url()), settings).await;
    rig.destination.rate = Some(Rate { calls: 1, per: Duration::from_secs(2) });
    rig.deliver(&leads(3, 1)).await;
    let done = soon("three calls", rig.pass()).await;
    assert_eq!((done.pushed, done.calls), (3, 3));
    assert_eq!(crm.summary().calls, 3);
    // No lease ran out while its holder waited for the next call.
    assert!(rig.column("s.confirm_after").await.values().all(String::is_empty));
}

#[tokio::test]
async fn a_pause_is_shared_by_all_instances() {
    let rig = Rig::new().await;
    rig.deliver(&leads(2, 1)).await;
    rig.app.crm.script(Fault::RateLimited { retry_after: Some(30), daily: false });
    rig.worked().await;
    let (other, stop) = (rig.another(), Stop::new());
    let step = other.step(&rig.destination, &stop).await.unwrap();
    assert!(matches!(step, Step::Paused(left) if left > Duration::from_secs(20)), "{step:?}");
    let done = other.pass(&rig.destination, &stop).await.unwrap();
    assert!(done.paused && done.calls == 0);
    assert_eq!(rig.app.crm.summary().calls, 1);
}

#[tokio::test]
async fn one_call_probes_and_its_word_is_the_newest() {
    let rig = Rig::new().await;
    let store = &rig.app.store;
    let pause = |kind, secs, probing| {
        let length = Duration::from_secs(secs);
        Pause { kind, code: None, message: String::new(), length, probing }
    };
    let minute = Duration::from_secs(60);
    assert!(!store.probe("hubspot", minute).await.unwrap(), "nothing has failed");
    assert_eq!(store.pause("hubspot", &pause("credentials", 50, false)).await.unwrap(), 1);
    // Calls that were under way: neither a row of failures nor an earlier end.
    for _ in 0..5 {
        assert_eq!(store.pause("hubspot", &pause("unavailable", 5, false)).await.unwrap(), 1);
    }
    let (kind, seconds) = rig.paused().await.unwrap();
    assert!(kind == "credentials" && seconds > 40.0, "{kind} {seconds}");
    assert!(!store.probe("hubspot", minute).await.unwrap(), "not before the pause is over");
    rig.lift_pause().await;
    assert!(store.probe("hubspot", minute).await.unwrap());
    assert!(!store.probe("hubspot", minute).await.unwrap(), "one at a time");
    let call = Spending { period: minute, longest: minute, cost: 1, daily: None, share: 100 };
    assert_eq!(store.spend("hubspot", &call).await.unwrap(), None);
    // The turn is given back with the answer.
    assert_eq!(store.pause("hubspot", &pause("unavailable", 5, true)).await.unwrap(), 2);
    let (kind, seconds) = rig.paused().await.unwrap();
    assert!(kind == "unavailable" && seconds <= 5.0, "{kind} {seconds}");
    rig.lift_pause().await;
    assert!(store.probe("hubspot", minute).await.unwrap());
    store.recovered("hubspot").await.unwrap();
    let state = store.destination_state("hubspot", &Budget::default()).await.unwrap();
    assert_eq!((state.failures, state.paused_for), (0, Duration::ZERO));
    assert!(!store.probe("hubspot", minute).await.unwrap());
}

/// A CRM that is down, and counts how many calls try it at once.
#[derive(Default)]
struct Down {
    up: AtomicBool,
    in_flight: AtomicU64,
    most: AtomicU64,
    calls: watch::Sender<u64>,
    written: watch::Sender<u64>,
}

#[async_trait]
impl Destination for Down {
    fn batch_size(&self) -> usize {
        1
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let up = self.up.load(Ordering::SeqCst);
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        if !up {
            self.most.fetch_max(in_flight, Ordering::SeqCst);
        }
        self.calls.send_modify(|n| *n += 1);
        // Long enough for others to come in between, if they may.
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if !up {
            return Err(CallError::Unreachable { message: "down".into() });
        }
        self.written.send_modify(|n| *n += 1);
        let written = Outcome::Written { remote_id: None, created: None };
        Ok(vec![written; records.len()].into())
    }

    async fn check(&self, _: &[Mapped]) -> Result<Vec<String>, CallError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_crm_that_is_down_is_probed_by_one_call_at_a_time() {
    let mut rig = Rig::new().await;
    let down = Arc::new(Down::default());
    rig.destination = Configured {
        destination: down.clone(),
        rate: None,
        concurrency: 4,
        ..rig.destination.clone()
    };
    rig.deliver(&leads(80, 1)).await;
    assert_eq!(rig.worked().await.calls_failed, 1);
    let (stop, (_changed, changes)) = (Stop::new(), watch::channel(0));
    let running: Vec<_> = (0..2)
        .map(|_| {
            let schedule = Schedule::parse("continuous").unwrap();
            let (syncer, destination) = (rig.another(), rig.destination.clone());
            tokio::spawn(syncer.run(destination, schedule, changes.clone(), stop.clone()))
        })
        .collect();
    let mut calls = down.calls.subscribe();
    let _ = soon("calls in vain", calls.wait_for(|n| *n >= 12)).await;
    down.up.store(true, Ordering::SeqCst);
    let mut written = down.written.subscribe();
    let _ = soon("all are written", written.wait_for(|n| *n >= 80)).await;
    stop.cancel();
    for task in running {
        soon("it stops", task).await.unwrap();
    }
    assert_eq!(down.most.load(Ordering::SeqCst), 1, "calls at once while it was down");
    assert_eq!(rig.states().await.get("synced"), Some(&80));
    assert_eq!(rig.column("s.lease_holder").await.values().filter(|h| !h.is_empty()).count(), 0);
}

#[tokio::test]
async fn a_schedule_runs_at_its_minute() {
    let rig = Rig::new().await;
    rig.deliver(&leads(2, 1)).await;
    let (start, really) = (Instant::now(), Timestamp::now());
    let noon: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    let early = SignedDuration::from_millis(700);
    let clock = Arc::new(move || {
        noon - early + SignedDuration::try_from(start.elapsed()).unwrap_or(SignedDuration::MAX)
    });
    let syncer = rig.another().with_clock(clock);
    let schedule = Schedule::parse("0 12 * * * UTC").unwrap();
    let (stop, (changed, changes)) = (Stop::new(), watch::channel(0));
    let running =
        tokio::spawn(syncer.run(rig.destination.clone(), schedule, changes, stop.clone()));
    // Nothing else wakes it.
    changed.send_replace(1);
    soon("the pass", rig.app.crm.wait_for_applied(1)).await;
    let at = rig.app.crm.calls()[0].at;
    assert!(at.duration_since(really) >= early, "not before noon: {at}");
    assert_eq!(rig.app.crm.summary().calls, 1);
    rig.deliver(&[lead(5, 1)]).await;
    changed.send_replace(2);
    stop.cancel();
    soon("it stops", running).await.unwrap();
    assert_eq!(rig.app.crm.summary().calls, 1, "the next pass is tomorrow");
}

/// Hours since 1970 by the clock of the database.
const HOUR: &str = "floor(extract(epoch from clock_timestamp()) / 3600)::bigint";

async fn spent(rig: &Rig) -> i64 {
    let sql = format!(
        "select sum(x) from leadsync.destinations as d, unnest(leadsync.day_spent(d.day_spent, d.day_hour, {HOUR})) as x
         where d.name = 'hubspot'"
    );
    rig.sql.query_one(&sql, &[]).await.expect("what was spent").get(0)
}

async fn set(rig: &Rig, sql: &str) {
    let sql = format!("update leadsync.destinations set {sql} where name = 'hubspot'");
    rig.sql.execute(&sql, &[]).await.expect(&sql);
}

#[tokio::test]
async fn the_day_ends_the_calls_of_all_instances_and_comes_back_hour_by_hour() {
    let mut rig = Rig::new().await;
    rig.destination.budget.daily = Some(3);
    for n in 0..3 {
        rig.deliver(&[lead(n, 1)]).await;
        assert_eq!(rig.pass().await.calls, 1);
    }
    assert_eq!(spent(&rig).await, 3);
    rig.deliver(&[lead(3, 1)]).await;
    let done = rig.pass().await;
    assert!(done.calls == 0 && done.paused, "{done:?}");
    assert_eq!(rig.app.crm.calls().len(), 3);
    let (kind, seconds) = rig.paused().await.expect("paused");
    assert!(kind == "slow_down" && seconds <= 3600.0, "{kind} {seconds}");
    let status = rig.app.store.status().await.unwrap();
    let paused = status.destinations[0].paused.as_ref().unwrap();
    assert!(paused.message.as_deref().unwrap().contains("budget is spent"), "{paused:?}");
    assert_eq!(status.destinations[0].failures, 0, "nothing has failed");

    // Less than a day later it is still spent, after a day it is not.
    for (hours, calls) in [(24, 0), (25, 1)] {
        rig.lift_pause().await;
        let then = format!("{HOUR} - {hours}");
        set(&rig, "day_spent = array_fill(0, array[25])").await;
        set(&rig, &format!("day_spent[(({then}) % 25)::int + 1] = 3, day_hour = {then}")).await;
        assert_eq!(rig.pass().await.calls, calls, "{hours} hours ago");
    }
}

#[tokio::test]
async fn a_part_of_the_day_is_kept_for_leads_that_change_while_a_backfill_runs() {
    let mut rig = Rig::hooks("http://127.0.0.1:9", settings()).await;
    rig.destination.destination = Arc::new(Down { up: AtomicBool::new(true), ..Down::default() });
    rig.deliver(&leads(20, 1)).await;
    let sql = "update leadsync.lead_sync set backfill = true where destination = 'hooks'";
    assert_eq!(rig.sql.execute(sql, &[]).await.unwrap(), 20);
    rig.destination.budget = Budget { daily: Some(10), backfill_share: 60, cost: 1 };
    rig.deliver(&leads(2, 2)).await;
    let done = rig.pass().await;
    assert_eq!((done.pushed, done.calls), (6, 6), "of these two that changed");
    let states = rig.column("s.state").await;
    assert!(states[&email(0)] == "synced" && states[&email(1)] == "synced", "fresh leads first");
    rig.deliver(&[lead(19, 2)]).await;
    assert_eq!(rig.pass().await.pushed, 1, "the rest of the day is for such");
    rig.deliver(&[lead(18, 2), lead(17, 2), lead(16, 2), lead(15, 2)]).await;
    let done = rig.pass().await;
    assert!(done.pushed == 3 && done.paused, "{done:?}");
    let left = "select count(*) from leadsync.lead_sync where destination = 'hooks' and backfill";
    // 20, less the four that were pushed and the seven that changed.
    assert_eq!(rig.app.value::<i64>(left).await, 9);
}

#[tokio::test]
async fn what_the_headers_say_makes_it_slower_and_never_faster() {
    let rig = Rig::new().await;
    let store = &rig.app.store;
    let ms = Duration::from_millis;
    let call = |period| Spending {
        period: ms(period),
        longest: ms(60_000),
        cost: 1,
        daily: Some(1000),
        share: 100,
    };
    let next = async || {
        let state = store.destination_state("hubspot", &Budget::default()).await.unwrap();
        state.next_call_in
    };
    let told = |told: Told| async move { store.told("hubspot", &told).await.unwrap() };
    for (configured, said, expected) in [(4000, 1000, 4000), (1000, 5000, 5000)] {
        told(Told { period: ms(said), ..Told::default() }).await;
        set(&rig, "next_call_at = '-infinity'").await;
        store.spend("hubspot", &call(configured)).await.unwrap().expect("a call");
        let wait = next().await;
        assert!(wait > ms(expected - 2500) && wait <= ms(expected), "{wait:?} of {expected}");
    }
    set(&rig, "next_call_at = '-infinity'").await;
    told(Told { hold: ms(30_000), ..Told::default() }).await;
    assert!(next().await > ms(20_000));
    // Another user of the account has spent nearly all of the day.
    set(&rig, "next_call_at = '-infinity'").await;
    let day = |left| Told {
        day_left: Some(left),
        day_allowed: Some(1000),
        day_for: ms(3_600_000),
        ..Told::default()
    };
    told(day(2)).await;
    let backfill = Spending { share: 60, ..call(0) };
    assert_eq!(store.spend("hubspot", &backfill).await.unwrap(), None, "kept for fresh leads");
    for _ in 0..2 {
        assert!(store.spend("hubspot", &call(0)).await.unwrap().is_some());
    }
    assert_eq!(store.spend("hubspot", &call(0)).await.unwrap(), None);
    let budget = Budget { daily: Some(1000), backfill_share: 60, cost: 1 };
    let state = store.destination_state("hubspot", &budget).await.unwrap();
    assert!(state.day_wait > ms(3_000_000) && state.backfill_wait > ms(3_000_000), "{state:?}");
    told(day(500)).await;
    assert!(store.spend("hubspot", &call(0)).await.unwrap().is_some());
    assert!(store.spend("hubspot", &backfill).await.unwrap().is_some());
}

#[tokio::test]
async fn headers_of_real_answers_are_heard() {
    let rig = Rig::new().await;
    let mut options = rig.app.crm.options();
    (options.hubspot.rolling_limit, options.hubspot.daily_limit) = (20, 7);
    rig.app.crm.set_options(options);
    rig.deliver(&[lead(0, 1)]).await;
    rig.pass().await;
    let row = "select told_period::text || ' ' || day_left || ' ' || day_allowed
        from leadsync.destinations where name = 'hubspot'";
    // 20 in 10 s, and a tenth further apart; one of seven is spent.
    assert_eq!(rig.app.value::<String>(row).await, "0.55 6 7");
}

#[tokio::test]
async fn after_slow_down_calls_are_further_apart_and_recover() {
    let rig = Rig::new().await;
    let store = &rig.app.store;
    let slow = |probing| Pause {
        kind: "slow_down",
        code: None,
        message: String::new(),
        length: Duration::from_secs(60),
        probing,
    };
    let call = Spending {
        period: Duration::from_secs(10),
        longest: Duration::from_secs(600),
        cost: 1,
        daily: None,
        share: 100,
    };
    let apart = async || {
        set(&rig, "next_call_at = '-infinity', paused_until = '-infinity'").await;
        store.spend("hubspot", &call).await.unwrap().expect("a call");
        let state = store.destination_state("hubspot", &Budget::default()).await.unwrap();
        state.next_call_in.as_secs_f64()
    };
    let within = |seconds: f64, expected: f64| {
        assert!(seconds > expected * 0.7 && seconds <= expected, "{seconds} of {expected}");
    };
    within(apart().await, 10.0);
    // Four calls that were under way together are asked once.
    for _ in 0..4 {
        store.pause("hubspot", &slow(false)).await.unwrap();
    }
    within(apart().await, 20.0);
    store.pause("hubspot", &slow(true)).await.unwrap();
    within(apart().await, 40.0);
    set(&rig, "slowed_at = slowed_at - interval '3 minutes'").await;
    within(apart().await, 10.0);
}
