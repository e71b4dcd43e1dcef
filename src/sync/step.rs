//! One step: claim, look up and push in the CRM's own batches, settle each batch as it is answered.

use std::time::{Duration, Instant};

use super::answer::log_pause;
use super::attempt::{Next, Prepared, prepare};
use super::call::Cost;
use super::{Configured, Syncer};
use crate::destinations::CallError;
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::destinations::DestinationState;
use crate::store::sync::{Claimed, PushResult};

/// Leads claimed at once where the CRM takes one per call.
const SMALL_CLAIM: usize = 16;

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
    /// Calls made, look-ups included.
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

/// A claim's time, by our clock, which never grants more than the database's: it is taken before the
/// claim is sent.
pub(super) struct Lease {
    began: Instant,
    /// Of the lease, without the deadline of one call.
    length: Duration,
}

impl Lease {
    /// How long a call may still be put off. A call that outlived its lease would race with the next holder.
    pub fn room(&self) -> Duration {
        self.length.saturating_sub(self.began.elapsed())
    }
}

/// What is left to do in a step: batches, the next one last.
pub(super) type Work = Vec<Vec<Prepared>>;

/// What leads must have in common to share a call: that they need a look-up, the group of the destination, and what is
/// sent of them where the CRM's call is such.
#[derive(PartialEq)]
struct Kind {
    looks_up: bool,
    group: &'static str,
    alike: Option<Vec<String>>,
}

fn kind(lead: &Prepared, destination: &Configured) -> Kind {
    let looks_up = lead.needs_look_up(destination);
    let destination = &destination.destination;
    let alike = (!looks_up && destination.alike(&lead.record))
        .then(|| lead.outgoing().properties.into_iter().map(|(property, _)| property).collect());
    Kind { looks_up, group: destination.group(&lead.record), alike }
}

/// Puts leads that share a call together and on top of the work. Two leads that became one contact of the CRM are never
/// in one call.
fn put(work: &mut Work, leads: Vec<Prepared>, size: usize, destination: &Configured) {
    let mut batches: Vec<(Kind, Vec<Prepared>)> = Vec::new();
    for lead in leads {
        let kind = kind(&lead, destination);
        let fits = |(of, batch): &&mut (Kind, Vec<Prepared>)| {
            let same = |p: &Prepared| {
                p.record.remote_id.is_some() && p.record.remote_id == lead.record.remote_id
            };
            batch.len() < size && *of == kind && !batch.iter().any(same)
        };
        match batches.iter_mut().find(fits) {
            Some((_, batch)) => batch.push(lead),
            None => batches.push((kind, vec![lead])),
        }
    }
    work.extend(batches.into_iter().rev().map(|(_, batch)| batch));
}

/// A step that is under way.
struct Running<'a> {
    destination: &'a Configured,
    stop: &'a Stop,
    /// Most records in one call.
    size: usize,
    lease: Lease,
    work: Work,
    /// Failed calls in a row before the next one.
    failures: u32,
    done: Done,
}

impl Syncer {
    /// Claims, pushes and settles once. Public so that a caller can drain step by step.
    pub async fn step(&self, destination: &Configured, stop: &Stop) -> Result<Step, StoreError> {
        let settings = &self.settings;
        let state = self.state(destination).await?;
        let length = settings.lease.saturating_sub(settings.call_timeout);
        if let Some(wait) = waits(destination, &state, length) {
            return Ok(wait);
        }
        if !state.day_wait.is_zero() {
            self.exhausted(destination, state.day_wait).await?;
            return Ok(Step::Paused(state.day_wait));
        }
        let lease = Lease { began: Instant::now(), length };
        let size = destination.destination.batch_size().max(1);
        let limit = size.max(SMALL_CLAIM);
        let (holder, ends, grace) = (&self.holder, settings.lease, settings.confirm_after);
        let claim = |limit, backfill| {
            self.store.claim(&destination.name, limit, holder, ends, grace, backfill)
        };
        let mut claimed = claim(limit, false).await?;
        if claimed.len() < limit && state.backfill_wait.is_zero() {
            claimed.extend(claim(limit - claimed.len(), true).await?);
        }
        if claimed.is_empty() {
            return Ok(Step::Idle);
        }
        let done = Done { full: claimed.len() == limit, ..Done::default() };
        let (same, changed): (Vec<_>, Vec<_>) = claimed
            .into_iter()
            .map(|claimed| prepare(claimed, destination))
            .partition(Prepared::needs_no_call);
        let (work, failures) = (Vec::new(), state.failures);
        let mut running = Running { destination, stop, size, lease, work, failures, done };
        if !same.is_empty() {
            running.done.skipped += same.len() as u64;
            let results = same.into_iter().map(Prepared::same).collect();
            self.settle(destination, results, false, stop).await?;
        }
        put(&mut running.work, changed, size, destination);
        self.work_off(&mut running).await?;
        let left = running.work.into_iter().flatten();
        let left = left.map(|p| p.settle(PushResult::Released)).collect();
        self.settle(destination, left, false, stop).await?;
        Ok(Step::Worked(running.done))
    }

    /// Makes one call after the other until the work is done, or cannot be gone on with.
    async fn work_off(&self, running: &mut Running<'_>) -> Result<(), StoreError> {
        let Running { destination, stop, .. } = *running;
        while !running.work.is_empty() && !stop.is_cancelled() {
            if running.lease.room().is_zero() {
                // Slow calls or many halves: what is left goes on with a new lease, or a batch that is halved
                // would begin anew for ever.
                running.lease.began = Instant::now();
                self.renew(destination, &mut running.work).await?;
            }
            let room = running.lease.room();
            let probing = running.failures > 0;
            let Some(batch) = running.work.last() else { return Ok(()) };
            let looks_up = batch.first().is_some_and(|p| p.needs_look_up(destination));
            let cost = Cost {
                calls: match looks_up {
                    true => destination.destination.look_up_cost(batch.len()),
                    false => destination.destination.cost(batch.len()),
                },
                backfill: batch.iter().all(|prepared| prepared.claimed.backfill),
            };
            if room.is_zero() || !self.turn(destination, cost, probing, room, stop).await? {
                return Ok(());
            }
            if running.lease.room().is_zero() {
                continue;
            }
            let Some(batch) = running.work.pop() else { return Ok(()) };
            if !self.call_once(running, batch).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One call and what follows from it. False: the destination is paused.
    async fn call_once(
        &self,
        running: &mut Running<'_>,
        batch: Vec<Prepared>,
    ) -> Result<bool, StoreError> {
        let Running { destination, stop, failures, .. } = *running;
        let batch = self.announce(destination, batch).await?;
        if batch.is_empty() {
            return Ok(true);
        }
        if running.lease.room().is_zero() {
            // The database took its time: the lease is renewed first.
            running.work.push(batch);
            return Ok(true);
        }
        running.done.calls += 1;
        let looks_up = batch.first().is_some_and(|p| p.needs_look_up(destination));
        let answered = match looks_up {
            true => self.look_up(destination, batch, stop).await,
            false => self.push(destination, batch, stop).await,
        };
        let probing = failures > 0;
        let (next, pause) = match answered {
            Ok(next) => (next, None),
            Err((CallError::Refused { .. }, mut left)) if left.len() > 1 => {
                // Nothing was written; the culprit is found by halving.
                let right = left.split_off(left.len() / 2);
                running.work.push(right);
                running.work.push(left);
                (Vec::new(), None)
            }
            Err((error, batch)) => {
                let failed = self.settings.failed(batch, destination, error, failures, probing);
                (failed.next, failed.pause)
            }
        };
        let (mut results, mut again) = (Vec::new(), Vec::new());
        for next in next {
            match next {
                Next::Settle(result) => results.push(*result),
                Next::Again(prepared) => again.push(*prepared),
            }
        }
        results.iter().for_each(|(_, result)| running.done.count(result));
        put(&mut running.work, again, running.size, destination);
        if let Some(pause) = &pause {
            running.done.calls_failed += 1;
            log_pause(destination, pause);
            self.persist(stop, || self.store.pause(&destination.name, pause)).await?;
        } else if probing {
            self.persist(stop, || self.store.recovered(&destination.name)).await?;
            running.failures = 0;
        }
        self.settle(destination, results, true, stop).await?;
        Ok(pause.is_none())
    }

    /// Says once, in log and status, that nothing is left of the day.
    async fn exhausted(&self, destination: &Configured, wait: Duration) -> Result<(), StoreError> {
        let name = destination.name.as_str();
        let message = "the day's budget is spent; `daily` sets it, the CRM may have less left";
        if self.store.exhausted(name, wait, message).await? {
            let pause_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(destination = name, pause_ms, "{name} is paused: {message}");
        }
        Ok(())
    }

    /// Remembers, before the call, that it may make contacts which the CRM would make twice. Those that were taken
    /// over meanwhile are left out: nothing was written.
    async fn announce(
        &self,
        destination: &Configured,
        mut batch: Vec<Prepared>,
    ) -> Result<Vec<Prepared>, StoreError> {
        let creates = |p: &Prepared| p.creates(destination) && !p.needs_look_up(destination);
        let held: Vec<_> = batch
            .iter()
            .filter(|p| creates(p))
            .map(|p| (p.claimed.lead.lead_id, p.claimed.lease_token))
            .collect();
        if held.is_empty() {
            return Ok(batch);
        }
        let ours = self.store.creating(&destination.name, &held).await?;
        batch.retain(|p| !creates(p) || ours.contains(&p.claimed.lead.lead_id));
        for prepared in batch.iter_mut().filter(|p| creates(p)) {
            prepared.creating = true;
            prepared.claimed.creating_for = Some(Duration::ZERO);
        }
        Ok(batch)
    }
}

/// Why nothing is to be claimed now.
fn waits(destination: &Configured, state: &DestinationState, longest: Duration) -> Option<Step> {
    if !state.paused_for.is_zero() {
        return Some(Step::Paused(state.paused_for));
    }
    if destination.rate.is_some() && state.next_call_in >= longest {
        return Some(Step::Later(state.next_call_in));
    }
    None
}

/// The results of a call that touched the CRM, and of one that did not.
pub(super) type Results = Vec<(Claimed, PushResult)>;
