//! What the answer to a call means: for each of its records, and for the destination. Pure.

use std::time::Duration;

use super::attempt::{Next, Prepared};
use super::backoff;
use super::{Configured, Settings};
use crate::destinations::CallError;
use crate::store::destinations::Pause;
use crate::store::sync::{LastError, PushResult};

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
    pub next: Vec<Next>,
    /// What it means for the destination; `None` where only the record is at fault.
    pub pause: Option<Pause>,
}

impl Settings {
    pub(super) fn backoff(&self, attempts: u32) -> Duration {
        let failed = attempts.saturating_add(1);
        backoff::delay(failed, self.backoff_base, self.backoff_max, rand::random())
    }

    /// What a call without outcomes means for each of its records, after `failures` others in a row. `probing`: it was the one call
    /// that a failing destination is allowed.
    pub(super) fn failed(
        &self,
        batch: Vec<Prepared>,
        destination: &Configured,
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
                let refused = |p: Prepared| {
                    let (code, field, message) = (code.clone(), field.clone(), message.clone());
                    p.refused(code, field, message, destination, self)
                };
                return Failed { next: batch.into_iter().map(refused).collect(), pause: None };
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
        let settle = |p: Prepared| {
            let result = each(self.backoff(p.claimed.attempts));
            Next::Settle(Box::new(p.settle(result)))
        };
        Failed { next: batch.into_iter().map(settle).collect(), pause }
    }
}

/// The result of a record, given its backoff.
type Each = Box<dyn Fn(Duration) -> PushResult + Send>;

fn postponed() -> Each {
    Box::new(|_| PushResult::Postponed)
}

/// Whether a CRM's id can be kept: the database takes no NUL, and one record's id must not undo its batch.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len()) && !id.contains(char::is_control)
}

pub(super) fn unknown_error(message: String) -> LastError {
    LastError { kind: "unknown", code: None, message }
}

pub(super) fn record_error(code: String, field: Option<String>, message: String) -> LastError {
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
