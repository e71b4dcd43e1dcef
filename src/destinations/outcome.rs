//! What a CRM said: about each record of a call, about a whole call, about its limits.

use std::collections::BTreeMap;
use std::time::Duration;

/// What the CRM said about one record of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer names the record as written.
    Written {
        /// The CRM's id, where it gave one.
        remote_id: Option<String>,
        /// Made new by this call, where the CRM says so.
        created: Option<bool>,
    },
    /// The record's own fault: permanent until the lead changes. It is parked, or sent again without the field,
    /// by `on_field_error`.
    Rejected {
        /// The CRM's code ("INVALID_EMAIL").
        code: String,
        /// The property at fault, where the CRM names one.
        field: Option<String>,
        /// The CRM's words, without personal data where that can be told apart.
        message: String,
    },
    /// Another contact carries the key, or this one was merged into or converted to that one: nothing was
    /// written. It is pushed again by that id in the same attempt.
    Exists {
        /// The id of the other one.
        remote_id: String,
    },
    /// The contact with the remembered id is not there any more (404, in the bin): nothing was written. It is made
    /// anew or left, by `deleted`.
    Gone,
    /// Several contacts of the CRM match: nothing was written, and nothing is guessed. It is parked.
    Ambiguous {
        /// All of them.
        remote_ids: Vec<String>,
    },
    /// Known not to be written, through no fault of the record: try again.
    Retry {
        /// The CRM's code.
        code: String,
        /// The CRM's words.
        message: String,
    },
    /// Nobody can tell whether it was written.
    Unknown {
        /// Why.
        message: String,
    },
}

/// Why a whole call gave no outcomes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The CRM refused the call for what is in it; nothing was written. More than one record: halve. One: it is the culprit.
    #[error("refused: {code}: {message}")]
    Refused {
        /// The CRM's code.
        code: String,
        /// The property at fault, where the CRM names one.
        field: Option<String>,
        /// The CRM's words.
        message: String,
    },
    /// Credentials or scope: nobody can write until somebody acts. Pause the destination, loudly.
    #[error("credentials: {code}: {message}")]
    Credentials {
        /// The CRM's code.
        code: String,
        /// The CRM's words.
        message: String,
    },
    /// A property, object or account that every record would fail on. Pause the destination, loudly.
    #[error("misconfigured: {code}: {message}")]
    Misconfigured {
        /// The CRM's code.
        code: String,
        /// The CRM's words.
        message: String,
    },
    /// Too many calls; nothing was written; not the records' fault.
    #[error("asked to slow down: {message}")]
    SlowDown {
        /// How long the CRM asks to wait, where it says so.
        after: Option<Duration>,
        /// The CRM's words.
        message: String,
    },
    /// The CRM could not be reached; nothing was written (connection refused, DNS, TLS, not sent).
    #[error("unreachable: {message}")]
    Unreachable {
        /// Why.
        message: String,
    },
    /// Time-out, reset, unreadable or contradictory answer, 5xx: some, all or none may be written.
    #[error("unknown outcome: {message}")]
    Unknown {
        /// How long the CRM asks to wait, where it says so.
        after: Option<Duration>,
        /// Why.
        message: String,
    },
}

/// What a call gave, and what its headers said of the CRM's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<T> {
    /// The answer.
    pub value: T,
    /// Limits as the CRM tells them, in no particular order; empty where it does not.
    pub limits: Vec<Limit>,
}

impl<T> Reply<T> {
    /// Another value with the same limits.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reply<U> {
        Reply { value: change(self.value), limits: self.limits }
    }
}

impl<T> From<T> for Reply<T> {
    /// Of a CRM that says nothing of its limits.
    fn from(value: T) -> Reply<T> {
        Reply { value, limits: Vec::new() }
    }
}

/// One limit of a CRM, as the headers of an answer tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Length of the window. From an hour on it counts as the day's.
    pub window: Duration,
    /// Calls (or credits, in the unit of [`cost`](super::Destination::cost)) in one window, where told.
    pub allowed: Option<u32>,
    /// How many are left.
    pub remaining: u32,
    /// Time until there are more, where told.
    pub resets_in: Option<Duration>,
}

/// A contact as the CRM has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The CRM's id.
    pub id: String,
    /// Its e-mail, in lower case.
    pub email: Option<String>,
    /// The properties asked for that the CRM knows, in the words that a push would use; `None`: blank.
    pub properties: BTreeMap<String, Option<String>>,
    /// In the bin, or converted to something that cannot be written.
    pub archived: bool,
}

/// One page of all contacts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its contacts. One that changes meanwhile may come twice or not at all.
    pub contacts: Vec<Remote>,
    /// Where the next page begins; `None`: there is none.
    pub next: Option<String>,
}
