//! One fault each, struck on the first call: at rest nothing is left of it.

use std::time::Duration;

use futures_util::future::join_all;
use leadsync::fake_crm::hubspot::{Token, TokenState};
use leadsync::fake_crm::{Apply, Body, Fault, Options, Order};
use leadsync::store::sync::PushResult;
use leadsync::sync::Settings;

use super::{Rig, leads, settings, soon};

const LEADS: usize = 4;

/// What a fault may cost.
enum Cost {
    /// Exactly so many calls.
    Calls(u64),
    /// So many calls at most.
    AtMost(u64),
    /// The fault, then every lead alone at most once.
    Again,
    /// The fault, then every lead alone at most twice: again, and to be sure.
    Confirmed,
}

struct Case {
    name: String,
    faults: Vec<Fault>,
    options: Options,
    settings: Settings,
    cost: Cost,
    /// Kind of the pause after the first call, its length in seconds at least and at most, and whether the
    /// test ends it instead of time.
    pause: Option<(&'static str, f64, f64, bool)>,
    /// The leads have failed attempts after it.
    blamed: bool,
}

fn case(name: impl Into<String>, fault: Fault, cost: Cost) -> Case {
    Case {
        name: name.into(),
        faults: vec![fault],
        options: Options::default(),
        settings: settings(),
        cost,
        pause: None,
        blamed: true,
    }
}

/// Not the leads' fault: a pause, then one call.
fn paused(name: &str, fault: Fault, pause: (&'static str, f64, f64, bool)) -> Case {
    Case { pause: Some(pause), blamed: false, ..case(name, fault, Cost::Calls(2)) }
}

fn status(status: u16, body: Body, apply: Apply, retry_after: Option<u64>) -> Fault {
    Fault::Status { status, body, apply, retry_after }
}

async fn survives(case: Case) {
    let name = case.name.as_str();
    let rig = Rig::with(case.settings).await;
    rig.app.crm.set_options(case.options);
    for fault in &case.faults {
        rig.app.crm.script(fault.clone());
    }
    rig.deliver(&leads(LEADS, 1)).await;
    rig.worked().await;
    let attempts = rig.column("s.attempts").await;
    if case.blamed {
        assert!(attempts.values().any(|n| n != "0"), "{name}: {attempts:?}");
    } else {
        assert!(attempts.values().all(|n| n == "0"), "{name}: {attempts:?}");
    }
    if let Some((kind, least, most, lift)) = case.pause {
        let (paused, seconds) = rig.paused().await.unwrap_or_else(|| panic!("{name}: not paused"));
        assert_eq!(paused, kind, "{name}");
        assert!((least..=most).contains(&seconds), "{name}: paused for {seconds} s");
        if lift {
            rig.lift_pause().await;
        }
    }
    rig.drain().await;
    rig.exact().await;
    assert_eq!(rig.paused().await, None, "{name}");
    let calls = rig.app.crm.summary().calls;
    let leads = LEADS as u64;
    match case.cost {
        Cost::Calls(exactly) => assert_eq!(calls, exactly, "{name}"),
        Cost::AtMost(most) => assert!((2..=most).contains(&calls), "{name}: {calls} calls"),
        Cost::Again => assert!((2..=1 + leads).contains(&calls), "{name}: {calls} calls"),
        Cost::Confirmed => assert!((2..=1 + 2 * leads).contains(&calls), "{name}: {calls} calls"),
    }
}

async fn all(cases: Vec<Case>) {
    join_all(cases.into_iter().map(survives)).await;
}

#[tokio::test]
async fn limits_are_waited_out_and_blame_no_lead() {
    let limited = |retry_after, daily| Fault::RateLimited { retry_after, daily };
    all(vec![
        paused("429", limited(Some(2), false), ("slow_down", 0.0, 2.0, false)),
        paused("429, unsaid", limited(None, false), ("slow_down", 9.0, 10.0, true)),
        paused("429 of the day", limited(None, true), ("slow_down", 3500.0, 3600.0, true)),
        paused("429 of the day, said", limited(Some(2), true), ("slow_down", 0.0, 2.0, false)),
        Case {
            pause: None,
            ..paused("429 bare", status(429, Body::Empty, Apply::None, None), ("", 0.0, 0.0, false))
        },
        paused("423", status(423, Body::Json, Apply::None, None), ("slow_down", 0.0, 2.0, true)),
        paused(
            "503, said",
            status(503, Body::Html, Apply::None, Some(2)),
            ("unavailable", 0.0, 2.0, false),
        )
        .unknown(),
    ])
    .await;
}

impl Case {
    /// The outcome is unknown: attempts are counted, and a push to be sure follows.
    fn unknown(self) -> Case {
        Case { blamed: true, cost: Cost::Confirmed, ..self }
    }
}

#[tokio::test]
async fn server_errors_whatever_was_applied() {
    let mut cases = Vec::new();
    for (code, body) in [(500, Body::Json), (502, Body::Html), (504, Body::Empty)] {
        for apply in [Apply::None, Apply::Half, Apply::All] {
            let name = format!("{code} {body:?} {apply:?}");
            cases.push(case(name, status(code, body, apply, None), Cost::Confirmed));
        }
    }
    all(cases).await;
}

#[tokio::test]
async fn broken_connections_and_answers() {
    let slow = Case {
        settings: Settings { call_timeout: Duration::from_millis(200), ..settings() },
        ..case("slow after apply", Fault::DelayAfter { ms: 4000 }, Cost::Confirmed)
    };
    let late = Case {
        settings: Settings { call_timeout: Duration::from_millis(200), ..settings() },
        ..case("slow before apply", Fault::DelayBefore { ms: 400 }, Cost::Confirmed)
    };
    all(vec![
        slow,
        late,
        case("reset before", Fault::ResetBefore, Cost::Confirmed),
        case("reset after", Fault::ResetAfter, Cost::Confirmed),
        case("truncated", Fault::Truncated, Cost::Confirmed),
        case("half of the JSON", Fault::CutJson, Cost::Confirmed),
        case("200 and nothing", Fault::EmptyBody { status: 200 }, Cost::Confirmed),
        case("204", Fault::EmptyBody { status: 204 }, Cost::Confirmed),
    ])
    .await;
}

#[tokio::test]
async fn answers_that_do_not_match() {
    let harmless = |name: &str, fault| Case { blamed: false, ..case(name, fault, Cost::Calls(1)) };
    let mut no_traces = Options::default();
    no_traces.hubspot.echo_trace_ids = false;
    let mut lagging = Options::default();
    lagging.hubspot.search_lag = Duration::from_secs(3600);
    all(vec![
        harmless("reversed", Fault::Reorder { order: Order::Reversed }),
        harmless("shuffled", Fault::Reorder { order: Order::Shuffled }),
        Case { options: no_traces, ..harmless("no trace ids", Fault::Pass) },
        Case { options: lagging, ..case("search lag", Fault::ResetAfter, Cost::Confirmed) },
        case("no results", Fault::EmptyResults, Cost::Confirmed),
        // One of them is told nothing: again, and to be sure; the others are in sync at once.
        case("omitted", Fault::Omit { input: 1, written: false }, Cost::AtMost(3)),
        case("omitted, written", Fault::Omit { input: 2, written: true }, Cost::AtMost(3)),
        case("conflict", Fault::Conflict, Cost::Again),
    ])
    .await;
}

#[tokio::test]
async fn many_faults_in_a_row() {
    let faults = [
        Fault::ResetAfter,
        status(500, Body::Html, Apply::Half, None),
        Fault::RateLimited { retry_after: Some(0), daily: false },
        Fault::CutJson,
        Fault::ResetBefore,
    ];
    let rig = Rig::new().await;
    faults.iter().for_each(|fault| rig.app.crm.script(fault.clone()));
    rig.deliver(&leads(LEADS, 1)).await;
    rig.drain().await;
    rig.exact().await;
    let calls = rig.app.crm.summary().calls;
    assert!(calls <= (faults.len() + 4 * LEADS) as u64, "{calls} calls");
}

#[tokio::test]
async fn credentials_are_repaired_without_a_restart() {
    for what in ["401", "403"] {
        let rig = Rig::new().await;
        let mut options = Options::default();
        let mut token = Token::good("any");
        match what {
            "401" => token.state = TokenState::Expired,
            _ => token.scopes.clear(),
        }
        options.hubspot.tokens = vec![token];
        rig.app.crm.set_options(options);
        rig.deliver(&leads(LEADS, 1)).await;
        let done = rig.worked().await;
        assert_eq!((done.calls, done.calls_failed, done.parked, done.failed), (1, 1, 0, 0));
        assert_eq!(rig.paused().await.expect("paused").0, "credentials", "{what}");
        let status = rig.app.store.status().await.unwrap();
        let shown = status.destinations[0].paused.as_ref().expect("status says so");
        assert_eq!(shown.kind.as_deref(), Some("credentials"));
        // Deliveries go on being taken.
        rig.deliver(&leads(LEADS + 2, 2)).await;
        for _ in 0..3 {
            rig.lift_pause().await;
            assert_eq!(rig.worked().await.calls, 1, "one call probes");
        }
        assert!(rig.column("s.attempts").await.values().all(|n| n == "0"));
        rig.app.crm.set_options(Options::default());
        rig.drain().await;
        rig.exact().await;
        assert_eq!(rig.app.crm.summary().calls, 5, "{what}: four in vain, one that is not");
    }
}

#[tokio::test]
async fn a_crm_that_is_down_and_comes_back() {
    let rig = Rig::new().await;
    rig.deliver(&leads(LEADS, 1)).await;
    rig.app.crm.stop().await;
    let done = rig.worked().await;
    assert_eq!((done.calls, done.failed), (1, LEADS as u64));
    assert!(rig.column("s.attempts").await.values().all(|n| n == "1"));
    // Nothing was sent, so nothing has to be confirmed.
    assert!(rig.column("s.confirm_after").await.values().all(String::is_empty));
    rig.app.crm.resume().await.unwrap();
    rig.drain().await;
    rig.exact().await;
    assert!(rig.app.crm.summary().calls <= LEADS as u64);
}

#[tokio::test]
async fn the_database_goes_away_during_a_call() {
    let rig = Rig::new().await;
    rig.deliver(&leads(1, 1)).await;
    rig.app.crm.script(Fault::HoldAfter);
    let look = rig.app.db.client().await;
    let cut = async {
        soon("the call", rig.app.crm.wait_for_applied(1)).await;
        let lock = "begin; lock table leadsync.lead_sync in access exclusive mode";
        rig.sql.batch_execute(lock).await.unwrap();
        rig.app.crm.release();
        // Whoever settles is cut off, once.
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        soon("settling", async {
            while look.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
                tokio::time::sleep(rig.settings.poll).await;
            }
        })
        .await;
        rig.sql.batch_execute("commit").await.unwrap();
    };
    let (done, ()) = tokio::join!(rig.worked(), cut);
    assert_eq!(done.pushed, 1);
    rig.exact().await;
    assert_eq!(rig.app.crm.summary().calls, 1, "what the CRM confirmed is not sent again");
}

#[tokio::test]
async fn results_are_told_apart_in_the_table() {
    // One lead each: settled by hand, so that the table is seen after every kind of result.
    let rig = Rig::new().await;
    rig.deliver(&leads(3, 1)).await;
    let store = &rig.app.store;
    let (minute, grace) = (Duration::from_secs(60), Duration::from_secs(60));
    let claimed = store.claim("hubspot", 10, "test", minute, grace, false).await.unwrap();
    assert_eq!(claimed.len(), 3);
    let error = |kind| leadsync::store::sync::LastError { kind, code: None, message: "m".into() };
    let results = [
        PushResult::Retry(error("unavailable"), minute),
        PushResult::Unknown(error("unknown"), minute),
        PushResult::Postponed,
    ];
    let results: Vec<_> = claimed.into_iter().zip(results).collect();
    assert!(store.settle("hubspot", &results, grace).await.unwrap().is_empty());
    let row = "concat_ws(' ', s.state, s.attempts, s.confirm_after is not null, s.last_error_kind,
        s.next_attempt_at > clock_timestamp(), s.lease_holder)";
    let rows: Vec<String> = rig.column(row).await.into_values().collect();
    assert_eq!(rows, ["due 1 f unavailable t", "due 1 t unknown t", "due 0 f f"]);
}
