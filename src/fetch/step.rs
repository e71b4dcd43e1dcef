//! One step: claim, read in the API's own batches, deliver each document, settle each batch.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};

use super::{CallError, Configured, Fetcher, Reading};
use crate::receive::ReceiveError;
use crate::sources::{ConfiguredSource, FETCHED, Request, Verified};
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::fetches::{ClaimedFetch, FetchError, FetchResult};
use crate::store::source_apis::ApiPause;
use crate::sync::backoff;

/// Calls under way at once per source and instance.
const CONCURRENCY: usize = 4;

/// Things claimed at once where the API gives one per call.
const SMALL_CLAIM: usize = 8;

/// What an API does not know is asked for this often before it is parked: a webhook may be faster than the API.
const MISSING_TRIES: u32 = 5;

/// How long an API waits that only somebody can mend, before it is probed again.
const MENDING_PAUSE: Duration = Duration::from_secs(60);

/// Pause after "slow down" where the API does not say how long.
const SLOW_DOWN_PAUSE: Duration = Duration::from_secs(10);

/// Longest pause of the circuit.
const CIRCUIT_MAX: Duration = Duration::from_secs(60);

/// Calls are this much further apart than the rate asks for, so that one that is late on its way does not land in a
/// window that is full.
const SPREAD: f64 = 1.1;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is due.
    Idle,
    /// The API is paused, or the budget has no call, for so long.
    Later(Duration),
    /// Things were claimed.
    Worked,
}

/// A claim's time by our clock, and how calls are made in it.
struct Round {
    began: Instant,
    /// Of the lease, without the deadline of one call.
    length: Duration,
    failures: u32,
    /// Cancelled by the first call that fails: the others are not begun.
    halt: Stop,
}

impl Round {
    /// How long a call may still be put off.
    fn room(&self) -> Duration {
        self.length.saturating_sub(self.began.elapsed())
    }
}

impl Fetcher {
    /// Claims, reads, delivers and settles once.
    pub async fn step(
        &self,
        source: &Configured,
        compiled: &Arc<ConfiguredSource>,
        stop: &Stop,
    ) -> Result<Step, StoreError> {
        let settings = &self.settings;
        let state = self.store.api_state(&source.name).await?;
        if !state.paused_for.is_zero() {
            return Ok(Step::Later(state.paused_for));
        }
        let length = settings.lease.saturating_sub(settings.call_timeout);
        if state.next_call_in >= length {
            return Ok(Step::Later(state.next_call_in));
        }
        let batch = source.api.batch_size().max(1);
        let limit = match state.failures {
            0 => batch.max(SMALL_CLAIM),
            // One call probes.
            _ => batch,
        };
        let round = Round {
            began: Instant::now(),
            length,
            failures: state.failures,
            halt: stop.child_token(),
        };
        let (name, holder) = (source.name.as_str(), &self.holder);
        let claimed = self.store.claim_fetches(name, limit, holder, settings.lease).await?;
        if claimed.is_empty() {
            return Ok(Step::Idle);
        }
        let batches: Vec<Vec<ClaimedFetch>> = claimed.chunks(batch).map(<[_]>::to_vec).collect();
        let mut settled = stream::iter(batches)
            .map(|batch| self.batch(source, compiled, batch, &round, stop))
            .buffer_unordered(CONCURRENCY);
        while let Some(result) = settled.next().await {
            result?;
        }
        Ok(Step::Worked)
    }

    /// One call, from waiting for its turn to settling what it gave.
    async fn batch(
        &self,
        source: &Configured,
        compiled: &Arc<ConfiguredSource>,
        batch: Vec<ClaimedFetch>,
        round: &Round,
        stop: &Stop,
    ) -> Result<(), StoreError> {
        let name = source.name.as_str();
        let probing = round.failures > 0;
        let free = !round.halt.is_cancelled() && !round.room().is_zero();
        if !free || !self.turn(source, probing, round.room(), &round.halt).await? {
            return self.settle(source, released(batch), stop).await;
        }
        let results = match self.call(source, &batch, stop).await {
            Ok(readings) => {
                if probing {
                    self.persist(stop, || self.store.api_recovered(name)).await?;
                }
                let delivered = batch.into_iter().zip(readings);
                join_all(
                    delivered.map(|(claimed, reading)| self.deliver(compiled, claimed, reading)),
                )
                .await
            }
            // Cut off by us: no fault of the API's.
            Err(_) if stop.is_cancelled() => released(batch),
            Err(error) => {
                round.halt.cancel();
                let pause = self.pause(&error, round.failures, probing);
                log_pause(name, &pause);
                self.persist(stop, || self.store.pause_api(name, &pause)).await?;
                let delay = |c: &ClaimedFetch| self.backoff(c.attempts);
                match error {
                    CallError::Unavailable { message, .. } => {
                        let error = FetchError { kind: "unavailable", code: None, message };
                        let retry = |c| (delay(&c), c);
                        let retried = batch.into_iter().map(retry);
                        retried.map(|(d, c)| (c, FetchResult::Retry(error.clone(), d))).collect()
                    }
                    // Through no fault of theirs: they keep their place.
                    _ => released(batch),
                }
            }
        };
        self.settle(source, results, stop).await
    }

    /// Waits for a free call of the shared budget, `longest` at most. False: paused, stopping, or somebody else's turn
    /// to probe: do not call.
    pub(super) async fn turn(
        &self,
        source: &Configured,
        probing: bool,
        longest: Duration,
        stop: &Stop,
    ) -> Result<bool, StoreError> {
        let name = source.name.as_str();
        let rate = source.rate;
        let period = rate.per.as_secs_f64() * SPREAD / f64::from(rate.calls.max(1));
        let period = Duration::try_from_secs_f64(period).unwrap_or(rate.per);
        let Some(wait) = self.store.spend_api_call(name, period, longest).await? else {
            return Ok(false);
        };
        if !wait.is_zero() && self.rest(stop, wait).await {
            return Ok(false);
        }
        if probing {
            return self.store.probe_api(name, self.settings.call_timeout).await;
        }
        // Somebody else's call may have failed since we looked.
        let state = self.store.api_state(name).await?;
        Ok(state.paused_for.is_zero() && state.failures == 0)
    }

    /// One call, with a deadline over all of it and one reading per id.
    async fn call(
        &self,
        source: &Configured,
        batch: &[ClaimedFetch],
        stop: &Stop,
    ) -> Result<Vec<Reading>, CallError> {
        let ids: Vec<&str> = batch.iter().map(|claimed| claimed.remote_id.as_str()).collect();
        let readings = self.bounded(source.api.read(&ids), stop).await?;
        match readings.len() == batch.len() {
            true => Ok(readings),
            false => Err(super::client::unavailable("the answer does not match what was asked")),
        }
    }

    /// A call to an API, with a deadline over all of it; a panic over an answer is an answer that cannot be read.
    pub(super) async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
        stop: &Stop,
    ) -> Result<T, CallError> {
        let unavailable = |message: &str| super::client::unavailable(message);
        let stopping = async {
            stop.cancelled().await;
            tokio::time::sleep(self.settings.drain).await;
        };
        tokio::select! {
            biased;
            answer = AssertUnwindSafe(call).catch_unwind() => {
                answer.map_err(|_| unavailable("reading the answer panicked"))?
            }
            () = tokio::time::sleep(self.settings.call_timeout) => {
                Err(unavailable("no answer within the call's deadline"))
            }
            () = stopping => Err(unavailable("no answer before the service stopped")),
        }
    }

    /// Hands a document to the receiver as a delivery of its source.
    async fn deliver(
        &self,
        compiled: &Arc<ConfiguredSource>,
        claimed: ClaimedFetch,
        reading: Reading,
    ) -> (ClaimedFetch, FetchResult) {
        let record = |code, message| FetchError { kind: "record", code: Some(code), message };
        let delay = self.backoff(claimed.attempts);
        let result = match reading {
            Reading::Document { body, changed_at } => {
                let delivered = self.receiver.deliver(compiled.clone(), document(body)).await;
                match delivered.map(|outcomes| outcomes.into_iter().next()) {
                    Ok(Some(one)) => FetchResult::Done {
                        changed_at,
                        outcome: one.outcome,
                        reason: one.reason,
                        lead_id: one.lead_id,
                    },
                    Ok(None) | Err(ReceiveError::Malformed(_)) => {
                        let message = "the document cannot be read".to_owned();
                        FetchResult::Parked(record("malformed".to_owned(), message))
                    }
                    Err(error) => {
                        let message = error.to_string();
                        FetchResult::Retry(
                            FetchError { kind: "storage", code: None, message },
                            delay,
                        )
                    }
                }
            }
            Reading::Missing { code, message } if claimed.attempts + 1 < MISSING_TRIES => {
                FetchResult::Retry(record(code, message), delay)
            }
            Reading::Missing { code, message } | Reading::Refused { code, message } => {
                tracing::warn!(
                    source = compiled.name,
                    "{} {} of {} cannot be read and is parked: {code}",
                    claimed.object,
                    claimed.remote_id,
                    compiled.name
                );
                FetchResult::Parked(record(code, message))
            }
            Reading::Unsaid => {
                let message = "the answer does not speak of it".to_owned();
                FetchResult::Retry(FetchError { kind: "unavailable", code: None, message }, delay)
            }
        };
        (claimed, result)
    }

    async fn settle(
        &self,
        source: &Configured,
        results: Vec<(ClaimedFetch, FetchResult)>,
        stop: &Stop,
    ) -> Result<(), StoreError> {
        let name = source.name.as_str();
        let settled = self.persist(stop, || self.store.settle_fetches(name, &results)).await?;
        if settled < results.len() as u64 {
            // Whoever has them now reads them once more, which changes nothing.
            tracing::warn!(source = name, "lease lost during a call, another instance reads again");
        }
        Ok(())
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let (base, max) = (self.settings.backoff_base, self.settings.backoff_max);
        backoff::delay(attempts.saturating_add(1), base, max, rand::random())
    }

    /// What a failed call means for the API.
    pub(super) fn pause(&self, error: &CallError, failures: u32, probing: bool) -> ApiPause {
        let at_most = |length: Duration| length.min(self.settings.backoff_max);
        let pause = |kind, code: Option<&String>, message: &String, length| ApiPause {
            kind,
            code: code.cloned(),
            message: message.clone(),
            length,
            probing,
        };
        match error {
            CallError::Credentials { code, message } => {
                pause("credentials", Some(code), message, at_most(MENDING_PAUSE))
            }
            CallError::Misconfigured { code, message } | CallError::Refused { code, message } => {
                pause("misconfigured", Some(code), message, at_most(MENDING_PAUSE))
            }
            CallError::SlowDown { after, message } => {
                // Some say "Retry-After: 0", or a time that is past by our clock.
                let length = after.unwrap_or(at_most(SLOW_DOWN_PAUSE));
                pause("slow_down", None, message, length.max(self.settings.backoff_base))
            }
            CallError::Unavailable { after, message } => {
                let (failed, longest) = (failures.saturating_add(1), at_most(CIRCUIT_MAX));
                let base = self.settings.backoff_base;
                let length = backoff::delay(failed, base, longest, rand::random());
                pause("unavailable", None, message, length.max(after.unwrap_or_default()))
            }
        }
    }
}

/// A document as the delivery that it becomes. Nobody else is asked who sent it: we asked for it.
fn document(body: Bytes) -> Verified {
    Verified::stored(Request {
        method: "POST".to_owned(),
        query: String::new(),
        headers: vec![("content-type".to_owned(), FETCHED.to_owned())],
        body,
    })
}

fn released(batch: Vec<ClaimedFetch>) -> Vec<(ClaimedFetch, FetchResult)> {
    batch.into_iter().map(|claimed| (claimed, FetchResult::Released)).collect()
}

/// Says in the log why an API is paused.
pub(super) fn log_pause(name: &str, pause: &ApiPause) {
    let ApiPause { kind, message, length, .. } = pause;
    if matches!(*kind, "credentials" | "misconfigured") {
        tracing::error!(
            source = name,
            "reading leads of {name} is paused until somebody acts: {kind}: {message}"
        );
    } else {
        let pause_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            source = name,
            pause_ms,
            "reading leads of {name} is paused: {kind}: {message}"
        );
    }
}
