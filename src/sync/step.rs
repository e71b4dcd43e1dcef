//! One step: claim, push in the CRM's own batches, settle each batch as it is answered.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use uuid::Uuid;

use super::answer::log_pause;
use super::payload;
use super::{Configured, Syncer};
use crate::destinations::{CallError, Outcome, Record, Reply};
use crate::error::Chain;
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::sync::{Claimed, PushResult};

/// Leads claimed at once where the CRM takes one per call.
const SMALL_CLAIM: usize = 16;

/// Calls are this much further apart than the rate asks for: one that is late on its way must not land in
/// a window that is full of those behind it.
const SPREAD: f64 = 1.1;

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due.
    Idle,
    /// The destination is paused for so long.
    Paused(Duration),
    /// The rate budget has no call before the end of a lease; the next one is so far away.
    Later(Duration),
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
            PushResult::Postponed | PushResult::Released => {}
        }
    }
}

/// A claimed lead with what would be sent. A dry run shows these, so that it cannot differ from a push.
#[derive(Clone)]
pub struct Prepared {
    /// The lead and its sync state.
    pub claimed: Claimed,
    /// What the destination is given.
    pub record: Record,
    /// Digest of it.
    pub hash: Vec<u8>,
}

/// What would be sent of a claimed lead.
pub fn prepare(claimed: Claimed, destination: &Configured) -> Prepared {
    let properties = payload::properties(&claimed.lead, &destination.fields);
    let whole = destination.destination.sends_whole_lead();
    let hash = payload::hash(&claimed.lead, whole, &properties);
    let record =
        Record { lead: claimed.lead.clone(), remote_id: claimed.remote_id.clone(), properties };
    Prepared { claimed, record, hash }
}

impl Prepared {
    /// The CRM confirmed exactly this before, and nothing has put that in doubt since.
    pub fn needs_no_call(&self) -> bool {
        !self.claimed.confirm_owed && self.claimed.sent_hash.as_deref() == Some(&self.hash[..])
    }
}

/// A claim's time, by our clock, which never grants more than the database's: it is taken before the
/// claim is sent.
struct Lease {
    began: Instant,
    /// Of the lease, without the deadline of one call.
    length: Duration,
}

impl Lease {
    /// How long a call may still be put off. A call that outlived its lease would race with the next holder.
    fn room(&self) -> Duration {
        self.length.saturating_sub(self.began.elapsed())
    }
}

impl Syncer {
    /// Claims, pushes and settles once. Public so that a caller can drain step by step.
    pub async fn step(&self, destination: &Configured, stop: &Stop) -> Result<Step, StoreError> {
        let settings = &self.settings;
        let state = self.store.destination_state(&destination.name).await?;
        if !state.paused_for.is_zero() {
            return Ok(Step::Paused(state.paused_for));
        }
        let length = settings.lease.saturating_sub(settings.call_timeout);
        if destination.rate.is_some() && state.next_call_in >= length {
            return Ok(Step::Later(state.next_call_in));
        }
        let mut lease = Lease { began: Instant::now(), length };
        let batch_size = destination.destination.batch_size().max(1);
        let limit = batch_size.max(SMALL_CLAIM);
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
            self.settle(destination, results.collect(), false, stop).await?;
        }
        let mut failures = state.failures;
        let mut batches: Vec<Vec<Prepared>> =
            changed.chunks(batch_size).rev().map(<[Prepared]>::to_vec).collect();
        while !batches.is_empty() && !stop.is_cancelled() {
            if lease.room().is_zero() {
                // Slow calls or many halves: what is left goes on with a new lease, or a batch that is halved
                // would begin anew for ever.
                lease.began = Instant::now();
                self.renew(destination, &mut batches).await?;
            }
            let probing = failures > 0;
            let room = lease.room();
            if room.is_zero() || !self.turn(destination, probing, room, stop).await? {
                break;
            }
            if lease.room().is_zero() {
                continue;
            }
            let Some(batch) = batches.pop() else { break };
            done.calls += 1;
            let (results, pause) = match self.call(destination, &batch, stop).await {
                Ok(reply) => (settings.results(&batch, reply.value), None),
                Err(CallError::Refused { .. }) if batch.len() > 1 => {
                    // Nothing was written; the culprit is found by halving.
                    let mut left = batch;
                    let right = left.split_off(left.len() / 2);
                    batches.push(right);
                    batches.push(left);
                    (Vec::new(), None)
                }
                Err(error) => {
                    let failed = settings.failed(&batch, error, failures, probing);
                    (failed.results, failed.pause)
                }
            };
            results.iter().for_each(|(_, result)| done.count(result));
            if let Some(pause) = &pause {
                done.calls_failed += 1;
                log_pause(destination, pause);
                self.persist(stop, || self.store.pause(&destination.name, pause)).await?;
            } else if probing {
                self.persist(stop, || self.store.recovered(&destination.name)).await?;
                failures = 0;
            }
            self.settle(destination, results, true, stop).await?;
            if pause.is_some() {
                break;
            }
        }
        let left: Vec<_> =
            batches.into_iter().flatten().map(|p| (p.claimed, PushResult::Released)).collect();
        self.settle(destination, left, false, stop).await?;
        Ok(Step::Worked(done))
    }

    /// Waits for a free call of the shared budget, `longest` at most. False: paused, stopping, or somebody
    /// else's turn to probe: do not call.
    async fn turn(
        &self,
        destination: &Configured,
        probing: bool,
        longest: Duration,
        stop: &Stop,
    ) -> Result<bool, StoreError> {
        let name = destination.name.as_str();
        if let Some(rate) = destination.rate {
            let period = rate.per.as_secs_f64() * SPREAD / f64::from(rate.calls.max(1));
            let period = Duration::try_from_secs_f64(period).unwrap_or(rate.per);
            let Some(wait) = self.store.spend(name, period, longest).await? else {
                return Ok(false);
            };
            if !wait.is_zero() && self.rest(stop, wait).await {
                return Ok(false);
            }
        }
        if probing {
            return self.store.probe(name, self.settings.call_timeout).await;
        }
        // Somebody else's call may have failed since we looked.
        let state = self.store.destination_state(name).await?;
        Ok(state.paused_for.is_zero() && state.failures == 0)
    }

    /// One call, with a deadline over all of it and one outcome per record.
    async fn call(
        &self,
        destination: &Configured,
        batch: &[Prepared],
        stop: &Stop,
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        let records: Vec<Record> = batch.iter().map(|p| p.record.clone()).collect();
        let unknown =
            |message: &str| CallError::Unknown { after: None, message: message.to_owned() };
        let stopping = async {
            stop.cancelled().await;
            tokio::time::sleep(self.settings.drain).await;
        };
        // A panic over one answer must not end the loop, and tells nothing about what was written.
        let push = AssertUnwindSafe(destination.destination.push(&records)).catch_unwind();
        let reply = tokio::select! {
            biased;
            reply = push => reply.map_err(|_| unknown("reading the answer panicked"))??,
            () = tokio::time::sleep(self.settings.call_timeout) => {
                return Err(unknown("no answer within the call's deadline"));
            }
            () = stopping => return Err(unknown("no answer before the service stopped")),
        };
        match reply.value.len() == batch.len() {
            true => Ok(reply),
            false => Err(unknown("the answer does not match what was sent")),
        }
    }

    /// New leases for what was not called yet. What was taken over meanwhile is dropped: nothing was written.
    async fn renew(
        &self,
        destination: &Configured,
        batches: &mut Vec<Vec<Prepared>>,
    ) -> Result<(), StoreError> {
        let leads = batches.iter().flatten().map(|p| &p.claimed);
        let held: Vec<(Uuid, i64)> = leads.map(|c| (c.lead.lead_id, c.lease_token)).collect();
        let ours = self.store.renew(&destination.name, &held, self.settings.lease).await?;
        for batch in batches.iter_mut() {
            batch.retain(|p| ours.contains(&p.claimed.lead.lead_id));
        }
        batches.retain(|batch| !batch.is_empty());
        Ok(())
    }

    /// Settles; where this holder was fenced off after it may have written, the leads are due again.
    async fn settle(
        &self,
        destination: &Configured,
        results: Vec<(Claimed, PushResult)>,
        called: bool,
        stop: &Stop,
    ) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        let (name, grace) = (destination.name.as_str(), self.settings.confirm_after);
        let fenced = self.persist(stop, || self.store.settle(name, &results, grace)).await?;
        if called && !fenced.is_empty() {
            tracing::warn!(
                destination = name,
                leads = fenced.len(),
                "lease lost during a call, leads are due again"
            );
            self.persist(stop, || self.store.remark(name, &fenced, grace)).await?;
        }
        for (claimed, result) in &results {
            if let PushResult::Parked(error) = result
                && !fenced.contains(&claimed.lead.lead_id)
            {
                tracing::warn!(
                    lead.id = %claimed.lead.lead_id, destination = name,
                    "lead {} is parked at {name}: {}", claimed.lead.lead_id,
                    error.code.as_deref().unwrap_or(error.kind)
                );
            }
        }
        Ok(())
    }

    /// Writes what we alone know, until the database takes it: a holder that was fenced off and says nothing
    /// would leave the CRM with what it wrote last.
    async fn persist<T, F>(&self, stop: &Stop, write: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match write().await {
                Err(
                    error @ (StoreError::Unavailable(_)
                    | StoreError::TimedOut(_)
                    | StoreError::Retry(_)),
                ) => {
                    tracing::warn!("cannot settle, trying again: {}", Chain(&error));
                    if self.rest(stop, self.settings.poll).await {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }
}
