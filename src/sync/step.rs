//! One step: claim, push in the CRM's own batches, settle each batch as it is answered.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::backoff;
use super::payload;
use super::{Configured, Syncer};
use crate::destinations::{CallError, Outcome, Record};
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::destinations::Pause;
use crate::store::sync::{Claimed, LastError, PushResult};

/// Leads claimed at once where the CRM takes one per call.
const SMALL_CLAIM: usize = 16;

/// How long a destination waits that only somebody can mend, before it is probed again.
const MENDING_PAUSE: Duration = Duration::from_secs(60);

/// Pause after "slow down" where the CRM does not say how long.
const SLOW_DOWN_PAUSE: Duration = Duration::from_secs(10);

/// Longest pause of the circuit.
const CIRCUIT_MAX: Duration = Duration::from_secs(60);

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due.
    Idle,
    /// The destination is paused for so long.
    Paused(Duration),
    /// Leads were claimed, and this was done with them.
    Worked(Done),
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Leads confirmed by a call.
    pub pushed: u64,
    /// Leads that needed no call: the CRM has exactly this already.
    pub skipped: u64,
    /// Leads parked.
    pub parked: u64,
    /// Leads to be tried again.
    pub failed: u64,
    /// Calls that gave no outcomes.
    pub calls_failed: u64,
    /// Calls made.
    pub calls: u64,
    /// As many leads were due as one step takes, so there may be more.
    pub full: bool,
    /// The pass ended because the destination is paused.
    pub paused: bool,
}

impl Done {
    /// Adds up.
    pub fn add(&mut self, other: &Done) {
        self.pushed += other.pushed;
        self.skipped += other.skipped;
        self.parked += other.parked;
        self.failed += other.failed;
        self.calls_failed += other.calls_failed;
        self.calls += other.calls;
        self.full |= other.full;
        self.paused |= other.paused;
    }

    fn count(&mut self, result: &PushResult) {
        match result {
            PushResult::Confirmed { .. } => self.pushed += 1,
            PushResult::Parked(_) => self.parked += 1,
            PushResult::Retry(..) | PushResult::Unknown(..) => self.failed += 1,
            PushResult::Released => {}
        }
    }
}

/// A claimed lead with what would be sent.
#[derive(Clone)]
struct Prepared {
    claimed: Claimed,
    record: Record,
    hash: Vec<u8>,
}

/// What a failed call means for every one of its records.
enum Each {
    Released,
    Parked(LastError),
    Retry(LastError),
    Unknown(LastError),
}

fn prepare(claimed: Claimed, destination: &Configured) -> Prepared {
    let properties = payload::properties(&claimed.lead, &destination.fields);
    let hash = payload::hash(&claimed.lead, &destination.fields, &properties);
    let record =
        Record { lead: claimed.lead.clone(), remote_id: claimed.remote_id.clone(), properties };
    Prepared { claimed, record, hash }
}

impl Prepared {
    /// The CRM confirmed exactly this before, and nothing has put that in doubt since.
    fn needs_no_call(&self) -> bool {
        !self.claimed.confirm_owed && self.claimed.sent_hash.as_deref() == Some(&self.hash[..])
    }
}

impl Syncer {
    /// Claims, pushes and settles once. Public so that a caller can drain step by step.
    pub async fn step(&self, destination: &Configured, stop: &Stop) -> Result<Step, StoreError> {
        let state = self.store.destination_state(&destination.name).await?;
        if !state.paused_for.is_zero() {
            return Ok(Step::Paused(state.paused_for));
        }
        // The lease is measured from before the claim was sent: our clock never grants more than the database's.
        let began = Instant::now();
        let batch_size = destination.destination.batch_size().max(1);
        let limit = batch_size.max(SMALL_CLAIM);
        let settings = &self.settings;
        let claimed = self
            .store
            .claim(&destination.name, limit, &self.holder, settings.lease, settings.confirm_after)
            .await?;
        if claimed.is_empty() {
            return Ok(Step::Idle);
        }
        let mut done = Done { full: claimed.len() == limit, ..Done::default() };
        let (same, changed): (Vec<_>, Vec<_>) = claimed
            .into_iter()
            .map(|claimed| prepare(claimed, destination))
            .partition(Prepared::needs_no_call);
        if !same.is_empty() {
            done.skipped += same.len() as u64;
            let results = same.into_iter().map(|p| {
                let hash = p.hash;
                (p.claimed, PushResult::Confirmed { remote_id: None, hash })
            });
            self.settle(destination, results.collect(), false).await?;
        }
        let mut batches: Vec<Vec<Prepared>> =
            changed.chunks(batch_size).rev().map(<[Prepared]>::to_vec).collect();
        while let Some(batch) = batches.pop() {
            // No send unless the lease outlives the call: a late call would race with the next holder.
            let in_time = began.elapsed() + settings.call_timeout < settings.lease;
            let turn = match in_time && !stop.is_cancelled() {
                true => self.wait_for_turn(destination, stop).await?,
                false => false,
            };
            if !turn || began.elapsed() + settings.call_timeout >= settings.lease {
                batches.push(batch);
                break;
            }
            done.calls += 1;
            let results = match self.call(destination, &batch).await {
                Ok(outcomes) => {
                    if state.failures > 0 {
                        self.store.recovered(&destination.name).await?;
                    }
                    self.results(&batch, outcomes)
                }
                Err(CallError::Refused { .. }) if batch.len() > 1 => {
                    // Nothing was written; the culprit is found by halving.
                    let mut left = batch;
                    let right = left.split_off(left.len() / 2);
                    batches.push(right);
                    batches.push(left);
                    continue;
                }
                Err(error) => {
                    let refused = matches!(error, CallError::Refused { .. });
                    let results = self.failed_call(destination, &batch, error, state.failures).await?;
                    if !refused {
                        done.calls_failed += 1;
                    }
                    results
                }
            };
            results.iter().for_each(|(_, result)| done.count(result));
            self.settle(destination, results, true).await?;
            if done.calls_failed > 0 {
                break;
            }
        }
        let left: Vec<_> = batches.into_iter().flatten().map(|p| (p.claimed, PushResult::Released)).collect();
        if !left.is_empty() {
            self.settle(destination, left, false).await?;
        }
        Ok(Step::Worked(done))
    }

    /// Waits for a free call of the shared budget. False: paused or stopping, do not call.
    async fn wait_for_turn(&self, destination: &Configured, stop: &Stop) -> Result<bool, StoreError> {
        let Some(rate) = destination.rate else { return Ok(true) };
        let period = rate.per.div_f64(f64::from(rate.calls.max(1)));
        match self.store.spend(&destination.name, period).await? {
            Some(wait) if wait.is_zero() => Ok(true),
            Some(wait) => Ok(!self.rest(stop, wait).await),
            None => Ok(false),
        }
    }

    /// One call, with a deadline over all of it and one outcome per record.
    async fn call(
        &self,
        destination: &Configured,
        batch: &[Prepared],
    ) -> Result<Vec<Outcome>, CallError> {
        let records: Vec<Record> = batch.iter().map(|p| p.record.clone()).collect();
        let push = destination.destination.push(&records);
        let unknown = |message: &str| CallError::Unknown { after: None, message: message.to_owned() };
        let outcomes = tokio::time::timeout(self.settings.call_timeout, push)
            .await
            .map_err(|_| unknown("no answer within the call's deadline"))??;
        match outcomes.len() == batch.len() {
            true => Ok(outcomes),
            false => Err(unknown("the answer does not match what was sent")),
        }
    }

    fn results(&self, batch: &[Prepared], outcomes: Vec<Outcome>) -> Vec<(Claimed, PushResult)> {
        let result = |prepared: &Prepared, outcome| {
            let delay = self.backoff(prepared.claimed.attempts);
            match outcome {
                Outcome::Written { remote_id, .. } => {
                    PushResult::Confirmed { remote_id, hash: prepared.hash.clone() }
                }
                Outcome::Rejected { code, field, message } => {
                    PushResult::Parked(record_error(code, field, message))
                }
                Outcome::Retry { code, message } => {
                    let error = LastError { kind: "unavailable", code: Some(code), message };
                    PushResult::Retry(error, delay)
                }
                Outcome::Unknown { message } => {
                    PushResult::Unknown(LastError { kind: "unknown", code: None, message }, delay)
                }
            }
        };
        batch
            .iter()
            .zip(outcomes)
            .map(|(prepared, outcome)| (prepared.claimed.clone(), result(prepared, outcome)))
            .collect()
    }

    /// What a call without outcomes means for its records, and for the destination.
    async fn failed_call(
        &self,
        destination: &Configured,
        batch: &[Prepared],
        error: CallError,
        failures: u32,
    ) -> Result<Vec<(Claimed, PushResult)>, StoreError> {
        let circuit = || {
            backoff::delay(
                failures.saturating_add(1),
                self.settings.backoff_base,
                CIRCUIT_MAX,
                rand::random(),
            )
        };
        let name = destination.name.as_str();
        let shown = error.to_string();
        let last = |kind, message: &str| LastError { kind, code: None, message: message.to_owned() };
        // Nothing is written, counted or blamed on the records, unless the kind of failure says so.
        let mut each = Each::Released;
        let pause = match error {
            CallError::Refused { code, field, message } => {
                each = Each::Parked(record_error(code, field, message));
                None
            }
            CallError::Credentials { code, message } => {
                Some(("credentials", Some(code), message, MENDING_PAUSE))
            }
            CallError::Misconfigured { code, message } => {
                Some(("misconfigured", Some(code), message, MENDING_PAUSE))
            }
            CallError::SlowDown { after, message } => {
                Some(("slow_down", None, message, after.unwrap_or(SLOW_DOWN_PAUSE)))
            }
            CallError::Unreachable { message } => {
                each = Each::Retry(last("unavailable", &message));
                Some(("unavailable", None, message, circuit()))
            }
            CallError::Unknown { after, message } => {
                each = Each::Unknown(last("unknown", &message));
                Some(("unavailable", None, message, circuit().max(after.unwrap_or(Duration::ZERO))))
            }
        };
        if let Some((kind, code, message, length)) = pause {
            let mend = matches!(kind, "credentials" | "misconfigured");
            if mend {
                tracing::error!(destination = name, "{name} is paused until somebody acts: {shown}");
            } else {
                tracing::warn!(destination = name, pause_ms = length.as_millis() as u64, "{name} is paused: {shown}");
            }
            self.store.pause(name, &Pause { kind, code, message, length }).await?;
        }
        let result = |prepared: &Prepared| {
            let delay = self.backoff(prepared.claimed.attempts);
            match &each {
                Each::Released => PushResult::Released,
                Each::Parked(error) => PushResult::Parked(error.clone()),
                Each::Retry(error) => PushResult::Retry(error.clone(), delay),
                Each::Unknown(error) => PushResult::Unknown(error.clone(), delay),
            }
        };
        Ok(batch.iter().map(|prepared| (prepared.claimed.clone(), result(prepared))).collect())
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let settings = &self.settings;
        backoff::delay(attempts.saturating_add(1), settings.backoff_base, settings.backoff_max, rand::random())
    }

    /// Settles; where this holder was fenced off after it may have written, the leads are due again.
    async fn settle(
        &self,
        destination: &Configured,
        results: Vec<(Claimed, PushResult)>,
        called: bool,
    ) -> Result<(), StoreError> {
        let grace = self.settings.confirm_after;
        let fenced: Vec<Uuid> = self.store.settle(&destination.name, &results, grace).await?;
        if called && !fenced.is_empty() {
            tracing::warn!(destination = destination.name, leads = fenced.len(), "lease lost during a call, leads are due again");
            self.store.remark(&destination.name, &fenced, grace).await?;
        }
        for (claimed, result) in &results {
            if let PushResult::Parked(error) = result {
                tracing::warn!(
                    lead.id = %claimed.lead.lead_id, destination = destination.name,
                    "lead {} is parked at {}: {}", claimed.lead.lead_id, destination.name,
                    error.code.as_deref().unwrap_or(error.kind)
                );
            }
        }
        Ok(())
    }
}

fn record_error(code: String, field: Option<String>, message: String) -> LastError {
    let message = match field {
        Some(field) => format!("{field}: {message}"),
        None => message,
    };
    LastError { kind: "record", code: Some(code), message }
}
