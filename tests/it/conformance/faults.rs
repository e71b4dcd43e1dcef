//! What goes wrong with calls.

use std::time::Duration;

use leadsync::fake_crm::{Apply, Body, Fault, FaultRates, Order};
use leadsync::sync::Settings;

use super::{Bed, Kind, status};
use crate::sync::{leads, settings, soon};

/// Scripts a fault for the next write, makes one pass of changed leads, and says how the destination is paused.
async fn struck(bed: &Bed, version: usize, fault: Fault) -> Option<String> {
    bed.rig.deliver(&leads(3, version)).await;
    bed.strikes(fault);
    bed.rig.pass().await;
    bed.rig.paused().await.map(|(kind, _)| kind)
}

async fn heals(bed: &Bed, version: usize) {
    bed.crm().clear_script();
    bed.rig.lift_pause().await;
    bed.rig.drain().await;
    bed.exactly(0..3, version).await;
}

/// No lead is blamed for what is nobody's fault, or the configuration's.
async fn blames_nobody(bed: &Bed, what: &str) {
    let attempts = bed.rig.column("s.attempts").await;
    assert!(attempts.values().all(|n| n == "0"), "{} {what}: {attempts:?}", bed.kind.name);
    let states = bed.rig.states().await;
    assert!(!states.contains_key("parked"), "{} {what}: {states:?}", bed.kind.name);
}

/// So that a pause is still there when it is looked at, however busy the machine is.
fn long_pauses() -> Settings {
    Settings { backoff_max: Duration::from_secs(60), ..settings() }
}

pub async fn credentials(kind: &'static Kind) {
    let bed = Bed::with(kind, long_pauses(), "").await;
    for (version, code) in [(1, 401), (2, 403)] {
        // Once more for kinds that try again with a new access token.
        bed.strikes(status(code));
        let paused = struck(&bed, version, status(code)).await;
        assert_eq!(paused.as_deref(), Some("credentials"), "{} {code}", kind.name);
        blames_nobody(&bed, &code.to_string()).await;
        heals(&bed, version).await;
    }
}

pub async fn slow_down(kind: &'static Kind) {
    let bed = Bed::with(kind, long_pauses(), "").await;
    let asked =
        Fault::Status { status: 429, body: Body::Empty, apply: Apply::None, retry_after: Some(7) };
    let limited = Fault::RateLimited { retry_after: None, daily: false };
    for (version, fault) in [(1, limited), (2, asked)] {
        let paused = struck(&bed, version, fault.clone()).await;
        assert_eq!(paused.as_deref(), Some("slow_down"), "{} {fault:?}", kind.name);
        blames_nobody(&bed, &format!("{fault:?}")).await;
        heals(&bed, version).await;
    }
}

pub async fn server_errors(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    let mut version = 0;
    for (status, body) in
        [(500, Body::Json), (502, Body::Html), (503, Body::Empty), (504, Body::Html)]
    {
        for apply in [Apply::None, Apply::Half, Apply::All] {
            version += 1;
            let fault = Fault::Status { status, body, apply, retry_after: None };
            struck(&bed, version, fault).await;
            heals(&bed, version).await;
        }
    }
}

pub async fn broken_answers(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    let faults = [
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::Truncated,
        Fault::CutJson,
        Fault::EmptyBody { status: 200 },
    ];
    for (at, fault) in faults.into_iter().enumerate() {
        struck(&bed, at + 1, fault).await;
        heals(&bed, at + 1).await;
    }
    // The same on the very first call, when contacts are made.
    for fault in [Fault::ResetBefore, Fault::ResetAfter, Fault::Truncated, Fault::CutJson] {
        let bed = Bed::of(kind).await;
        struck(&bed, 1, fault).await;
        heals(&bed, 1).await;
    }
}

pub async fn applied_then_timed_out(kind: &'static Kind) {
    let timings = Settings { call_timeout: Duration::from_millis(400), ..settings() };
    let bed = Bed::with(kind, timings, "").await;
    for version in [1, 2] {
        bed.rig.deliver(&leads(3, version)).await;
        bed.strikes(Fault::HoldAfter);
        bed.rig.pass().await;
        bed.crm().release();
        heals(&bed, version).await;
    }
}

pub async fn results_in_another_order(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    for (version, order) in [(1, Order::Reversed), (2, Order::Shuffled), (3, Order::AsSent)] {
        struck(&bed, version, Fault::Reorder { order }).await;
        heals(&bed, version).await;
        for n in 0..3 {
            let (contact, known) = (bed.contact(n), bed.remote_id(n).await);
            assert!(known.is_empty() || known == contact.id, "{}: {known} {contact:?}", kind.name);
        }
    }
}

pub async fn an_answer_that_forgets_one(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    for (version, written) in [(1, false), (2, true)] {
        bed.rig.deliver(&leads(3, version)).await;
        bed.strikes(Fault::Omit { input: 1, written });
        bed.rig.worked().await;
        let states = bed.rig.states().await;
        assert_eq!(states.get("synced"), Some(&2), "{}: those that are named", kind.name);
        heals(&bed, version).await;
    }
    bed.rig.deliver(&leads(3, 3)).await;
    bed.strikes(Fault::EmptyResults);
    bed.rig.worked().await;
    assert_eq!(bed.rig.states().await.get("synced"), None, "{}: nobody is named", kind.name);
    heals(&bed, 3).await;
}

pub async fn down_and_back(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&leads(3, 1)).await;
    bed.crm().stop().await;
    bed.rig.pass().await;
    let paused = bed.rig.paused().await.map(|(kind, _)| kind);
    assert!(paused.is_none_or(|kind| kind == "unavailable"), "{}", kind.name);
    soon("the stand-in", bed.crm().resume()).await.expect("the same port");
    heals(&bed, 1).await;
}

pub async fn many_faults_in_a_row(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    let rates = |on: bool| {
        let mut options = bed.crm().options();
        options.seed = 20_261_130;
        options.rates = match on {
            true => FaultRates {
                reset_after_apply: 0.15,
                reset_before_apply: 0.1,
                truncated: 0.1,
                error_5xx: 0.1,
                ..FaultRates::default()
            },
            false => FaultRates::default(),
        };
        bed.crm().set_options(options);
    };
    rates(true);
    for version in 1..=4 {
        bed.rig.deliver(&leads(12, version)).await;
        bed.rig.pass().await;
        bed.rig.lift_pause().await;
    }
    rates(false);
    bed.rig.drain().await;
    bed.exactly(0..12, 4).await;
}
