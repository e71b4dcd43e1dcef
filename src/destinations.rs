//! Destinations: the CRMs that leads are pushed to.
//!
//! To add one: one file here that implements [`Destination`], one line in [`DESTINATIONS`], its
//! stand-in under `fake_crm/`. A destination knows its CRM's API and nothing else: no SQL, no retry,
//! no pacing (that is `sync`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::config;
use crate::lead::Lead;

/// One lead to push.
#[derive(Clone, Debug)]
pub struct Record {
    /// The lead as it is stored now.
    pub lead: Arc<Lead>,
    /// The CRM's id of it, where one is known from an earlier push.
    pub remote_id: Option<String>,
    /// What is sent: CRM property to value; `None` clears it at the CRM. Own fields only, sorted by property.
    pub properties: Vec<(String, Option<String>)>,
}

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
    /// The record's own fault: permanent until the lead changes. It is parked.
    Rejected {
        /// The CRM's code ("INVALID_EMAIL").
        code: String,
        /// The property at fault, where the CRM names one.
        field: Option<String>,
        /// The CRM's words, without personal data where that can be told apart.
        message: String,
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

/// A configured CRM.
#[async_trait]
pub trait Destination: Send + Sync {
    /// Most records in one [`push`](Destination::push).
    fn batch_size(&self) -> usize;

    /// What is sent where configuration names no fields: lead value name and CRM property.
    fn default_fields(&self) -> &'static [(&'static str, &'static str)];

    /// Calls per time that the CRM allows by default; `None`: no limit known.
    fn default_rate(&self) -> Option<config::Rate> {
        None
    }

    /// Writes the records in one call. `Ok` has exactly one outcome per record, in the order given:
    /// an implementation lines the answer up itself and reports what the answer does not name as
    /// [`Outcome::Unknown`]. It must not retry, sleep or keep records back. Keys (`lead.email`) are distinct.
    async fn push(&self, records: &[Record]) -> Result<Vec<Outcome>, CallError>;

    /// Checks credentials, the key and the mapped properties without writing. `Ok`: one sentence per
    /// thing found right. `Err`: the first thing that is wrong.
    async fn check(&self, properties: &[String]) -> Result<Vec<String>, CallError>;
}
