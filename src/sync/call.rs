//! Calls with their turn and their deadline, and what is written about them afterwards.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use uuid::Uuid;

use super::attempt::{Next, Prepared};
use super::step::{Results, Work};
use super::{Configured, Syncer, pace};
use crate::destinations::{CallError, Limit, Record, Reply};
use crate::error::Chain;
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::destinations::{DestinationState, Spending};
use crate::store::sync::PushResult;

/// What comes next for each lead of a call, or why the call gave nothing, with its leads.
type Answered = Result<Vec<Next>, (CallError, Vec<Prepared>)>;

impl Syncer {
    /// Waits for a free call of the shared budget, `longest` at most, for a batch. False: paused, stopping, the day's
    /// budget spent, or somebody else's turn to probe: do not call.
    pub(super) async fn turn(
        &self,
        destination: &Configured,
        batch: &[Prepared],
        probing: bool,
        longest: Duration,
        stop: &Stop,
    ) -> Result<bool, StoreError> {
        let name = destination.name.as_str();
        if destination.is_paced() {
            let backfill = batch.iter().all(|prepared| prepared.claimed.backfill);
            let looks_up = batch.first().is_some_and(|p| p.needs_look_up(destination));
            let spending = Spending {
                period: destination.rate.map_or(Duration::ZERO, pace::period),
                longest,
                cost: match looks_up {
                    true => destination.destination.look_up_cost(batch.len()),
                    false => destination.destination.cost(batch.len()),
                },
                daily: destination.budget.daily,
                share: if backfill { destination.budget.backfill_share } else { 100 },
            };
            let Some(wait) = self.store.spend(name, &spending).await? else {
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
        let state = self.state(destination).await?;
        Ok(state.paused_for.is_zero() && state.failures == 0)
    }

    /// Pushes a batch in one call.
    pub(super) async fn push(
        &self,
        destination: &Configured,
        batch: Vec<Prepared>,
        stop: &Stop,
    ) -> Answered {
        let records: Vec<Record> = batch.iter().map(Prepared::outgoing).collect();
        let push = destination.destination.push(&records);
        match self.within_deadline(push, batch.len(), stop).await {
            Ok(reply) => {
                self.hear(destination, &reply.limits).await;
                let answered = batch.into_iter().zip(reply.value);
                Ok(answered
                    .map(|(prepared, outcome)| {
                        prepared.answered(outcome, destination, &self.settings)
                    })
                    .collect())
            }
            Err(error) => Err((error, batch)),
        }
    }

    /// Asks for the contacts of a batch in one call.
    pub(super) async fn look_up(
        &self,
        destination: &Configured,
        batch: Vec<Prepared>,
        stop: &Stop,
    ) -> Answered {
        let records: Vec<Record> = batch.iter().map(|p| p.record.clone()).collect();
        let properties: BTreeSet<&str> = batch.iter().flat_map(Prepared::conditional).collect();
        let properties: Vec<String> = properties.into_iter().map(str::to_owned).collect();
        let look_up = destination.destination.look_up(&records, &properties);
        match self.within_deadline(look_up, batch.len(), stop).await {
            Ok(reply) => {
                self.hear(destination, &reply.limits).await;
                let answered = batch.into_iter().zip(reply.value);
                Ok(answered
                    .map(|(prepared, found)| prepared.looked_up(found, destination, &self.settings))
                    .collect())
            }
            // Looking writes nothing, however it ends.
            Err(CallError::Unknown { after: Some(after), message }) => {
                Err((CallError::SlowDown { after: Some(after), message }, batch))
            }
            Err(CallError::Unknown { after: None, message }) => {
                Err((CallError::Unreachable { message }, batch))
            }
            Err(error) => Err((error, batch)),
        }
    }

    /// Pause, circuit and budget now.
    pub(super) async fn state(
        &self,
        destination: &Configured,
    ) -> Result<DestinationState, StoreError> {
        self.store.destination_state(&destination.name, &destination.budget).await
    }

    /// Takes over what an answer says of the CRM's limits. Where the database does not take it, the next answer says it
    /// again, and what was just written is not put in doubt.
    async fn hear(&self, destination: &Configured, limits: &[Limit]) {
        let Some(told) = pace::told(limits) else { return };
        if let Err(error) = self.store.told(&destination.name, &told).await {
            let name = destination.name.as_str();
            tracing::warn!(destination = name, "cannot keep the CRM's limits: {}", Chain(&error));
        }
    }

    /// One call, with a deadline over all of it and one value per record.
    async fn within_deadline<T>(
        &self,
        call: impl Future<Output = Result<Reply<Vec<T>>, CallError>>,
        records: usize,
        stop: &Stop,
    ) -> Result<Reply<Vec<T>>, CallError> {
        let unknown =
            |message: &str| CallError::Unknown { after: None, message: message.to_owned() };
        let stopping = async {
            stop.cancelled().await;
            tokio::time::sleep(self.settings.drain).await;
        };
        // A panic over one answer must not end the loop, and tells nothing about what was written.
        let call = AssertUnwindSafe(call).catch_unwind();
        let reply = tokio::select! {
            biased;
            reply = call => reply.map_err(|_| unknown("reading the answer panicked"))??,
            () = tokio::time::sleep(self.settings.call_timeout) => {
                return Err(unknown("no answer within the call's deadline"));
            }
            () = stopping => return Err(unknown("no answer before the service stopped")),
        };
        match reply.value.len() == records {
            true => Ok(reply),
            false => Err(unknown("the answer does not match what was sent")),
        }
    }

    /// New leases for what was not called yet. What was taken over meanwhile is dropped: nothing was written.
    pub(super) async fn renew(
        &self,
        destination: &Configured,
        work: &mut Work,
    ) -> Result<(), StoreError> {
        let leads = work.iter().flatten().map(|p| &p.claimed);
        let held: Vec<(Uuid, i64)> = leads.map(|c| (c.lead.lead_id, c.lease_token)).collect();
        let ours = self.store.renew(&destination.name, &held, self.settings.lease).await?;
        for batch in work.iter_mut() {
            batch.retain(|p| ours.contains(&p.claimed.lead.lead_id));
        }
        work.retain(|batch| !batch.is_empty());
        Ok(())
    }

    /// Settles; where this holder was fenced off after it may have written, the leads are due again.
    pub(super) async fn settle(
        &self,
        destination: &Configured,
        results: Results,
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
            let lead_id = claimed.lead.lead_id;
            if fenced.contains(&lead_id) {
                continue;
            }
            match result {
                PushResult::Parked(error) => {
                    let code = error.code.as_deref().unwrap_or(error.kind);
                    tracing::warn!(
                        lead.id = %lead_id, destination = name,
                        "lead {lead_id} is parked at {name}: {code}"
                    );
                }
                PushResult::Confirmed { .. } if !claimed.dropped.is_empty() && called => {
                    let dropped: Vec<&str> =
                        claimed.dropped.iter().map(|d| d.property.as_str()).collect();
                    tracing::warn!(
                        lead.id = %lead_id, destination = name,
                        "lead {lead_id} went to {name} without {}", dropped.join(", ")
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes what we alone know, until the database takes it: a holder that was fenced off and says nothing
    /// would leave the CRM with what it wrote last.
    pub(super) async fn persist<T, F>(
        &self,
        stop: &Stop,
        write: impl Fn() -> F,
    ) -> Result<T, StoreError>
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
