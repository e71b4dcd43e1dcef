//! What the answer to a call means: for each of its records, and for the destination. Pure.

use std::time::Duration;

use super::backoff;
use super::step::Prepared;
use super::{Configured, Settings};
use crate::destinations::{CallError, Outcome};
use crate::store::destinations::Pause;
use crate::store::sync::{Claimed, LastError, PushResult};

/// How long a destination waits that only somebody can mend, before it is probed again.
const MENDING_PAUSE: Duration = Duration::from_secs(60);

/// Pause after "slow down" where the CRM does not say how long.
const SLOW_DOWN_PAUSE: Duration = Duration::from_secs(10);

/// Longest id of a contact that is kept, in bytes.
const MAX_ID: usize = 256;

/// Longest pause of the circuit.
const CIRCUIT_MAX: Duration = Duration::from_secs(60);

/// A failed call.
pub(super) struct Failed {
    /// What it means for its records.
    pub results: Vec<(Claimed, PushResult)>,
    /// What it means for the destination; `None` where only the record is at fault.
    pub pause: Option<Pause>,
}

impl Settings {
    fn backoff(&self, attempts: u32) -> Duration {
        let failed = attempts.saturating_add(1);
        backoff::delay(failed, self.backoff_base, self.backoff_max, rand::random())
    }

    /// One result per record of a call that has outcomes.
    pub(super) fn results(
        &self,
        batch: &[Prepared],
        outcomes: Vec<Outcome>,
    ) -> Vec<(Claimed, PushResult)> {
        let result = |prepared: &Prepared, outcome| {
            let delay = self.backoff(prepared.claimed.attempts);
            match outcome {
                Outcome::Written { remote_id, .. } => {
                    let remote_id = remote_id.filter(|id| is_id(id));
                    PushResult::Confirmed { remote_id, hash: prepared.hash.clone() }
                }
                Outcome::Rejected { code, field, message } => {
                    PushResult::Parked(record_error(code, field, message))
                }
                Outcome::Retry { code, message } => {
                    let error = LastError { kind: "unavailable", code: Some(code), message };
                    PushResult::Retry(error, delay)
                }
                Outcome::Unknown { message } => PushResult::Unknown(unknown_error(message), delay),
                Outcome::Exists { remote_id } => {
                    let message = format!("the contact {remote_id} carries the key");
                    PushResult::Parked(record_error("exists".to_owned(), None, message))
                }
                Outcome::Gone => {
                    let message = "the contact was deleted".to_owned();
                    PushResult::Parked(record_error("deleted".to_owned(), None, message))
                }
                Outcome::Ambiguous { remote_ids } => {
                    let message = format!("several contacts match: {}", remote_ids.join(", "));
                    PushResult::Parked(record_error("ambiguous".to_owned(), None, message))
                }
            }
        };
        batch
            .iter()
            .zip(outcomes)
            .map(|(prepared, outcome)| (prepared.claimed.clone(), result(prepared, outcome)))
            .collect()
    }

    /// What a call without outcomes means, after `failures` others in a row. `probing`: it was the one call
    /// that a failing destination is allowed.
    pub(super) fn failed(
        &self,
        batch: &[Prepared],
        error: CallError,
        failures: u32,
        probing: bool,
    ) -> Failed {
        // `backoff_max` is the longest pause of every kind that the CRM does not ask for itself.
        let at_most = |length: Duration| length.min(self.backoff_max);
        let circuit = || {
            let (failed, longest) = (failures.saturating_add(1), at_most(CIRCUIT_MAX));
            backoff::delay(failed, self.backoff_base, longest, rand::random())
        };
        let pause = |kind, code, message, length| Pause { kind, code, message, length, probing };
        // What becomes of each record. Nothing is counted against it, unless the kind of failure says so.
        let (each, pause): (Each, Option<Pause>) = match error {
            CallError::Refused { code, field, message } => {
                let error = record_error(code, field, message);
                (Box::new(move |_| PushResult::Parked(error.clone())), None)
            }
            CallError::Credentials { code, message } => {
                let length = at_most(MENDING_PAUSE);
                (postponed(), Some(pause("credentials", Some(code), message, length)))
            }
            CallError::Misconfigured { code, message } => {
                let length = at_most(MENDING_PAUSE);
                (postponed(), Some(pause("misconfigured", Some(code), message, length)))
            }
            CallError::SlowDown { after, message } => {
                // Some say "Retry-After: 0", or a time that is past by our clock.
                let length = after.unwrap_or(at_most(SLOW_DOWN_PAUSE)).max(self.backoff_base);
                (postponed(), Some(pause("slow_down", None, message, length)))
            }
            CallError::Unreachable { message } => {
                let error = LastError { kind: "unavailable", code: None, message: message.clone() };
                let each: Each = Box::new(move |delay| PushResult::Retry(error.clone(), delay));
                (each, Some(pause("unavailable", None, message, circuit())))
            }
            CallError::Unknown { after, message } => {
                let error = unknown_error(message.clone());
                let each: Each = Box::new(move |delay| PushResult::Unknown(error.clone(), delay));
                let length = circuit().max(after.unwrap_or(Duration::ZERO));
                (each, Some(pause("unavailable", None, message, length)))
            }
        };
        let result = |p: &Prepared| (p.claimed.clone(), each(self.backoff(p.claimed.attempts)));
        Failed { results: batch.iter().map(result).collect(), pause }
    }
}

/// The result of a record, given its backoff.
type Each = Box<dyn Fn(Duration) -> PushResult + Send>;

fn postponed() -> Each {
    Box::new(|_| PushResult::Postponed)
}

/// Whether a CRM's id can be kept: the database takes no NUL, and one record's id must not undo its batch.
fn is_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len()) && !id.contains(char::is_control)
}

fn unknown_error(message: String) -> LastError {
    LastError { kind: "unknown", code: None, message }
}

fn record_error(code: String, field: Option<String>, message: String) -> LastError {
    let message = match field {
        Some(field) => format!("{field}: {message}"),
        None => message,
    };
    LastError { kind: "record", code: Some(code), message }
}

/// Says in the log why a destination is paused.
pub(super) fn log_pause(destination: &Configured, pause: &Pause) {
    let name = destination.name.as_str();
    let Pause { kind, message, length, .. } = pause;
    if matches!(*kind, "credentials" | "misconfigured") {
        tracing::error!(
            destination = name,
            "{name} is paused until somebody acts: {kind}: {message}"
        );
    } else {
        let pause_ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(destination = name, pause_ms, "{name} is paused: {kind}: {message}");
    }
}
