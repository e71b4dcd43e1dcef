//! Destinations: the CRMs that leads are pushed to.
//!
//! To add one: one file here that implements [`Destination`], one line in [`DESTINATIONS`], its
//! stand-in under `fake_crm/`. A destination knows its CRM's API and nothing else: no SQL, no retry,
//! no pacing (that is `sync`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::config;
use crate::lead::{Field, Lead};

mod client;
mod hubspot;
mod webhook;

pub use client::caller;

/// Every kind of CRM there is.
pub const DESTINATIONS: &[&Kind] = &[&hubspot::KIND, &webhook::KIND];

/// A kind of CRM.
pub struct Kind {
    /// `kind` in the configuration.
    pub name: &'static str,
    /// One sentence for people.
    pub summary: &'static str,
    /// Makes one from its configuration, checked by [`build`] already, and the deadline of one call.
    build: fn(&config::Destination, Duration) -> Built,
}

/// A destination, or what is wrong with its configuration.
type Built = Result<Arc<dyn Destination>, DestinationError>;

/// Why a destination cannot be used as it is configured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// No such kind.
    #[error("destination \"{name}\": there is no kind \"{kind}\"; {hint}")]
    UnknownKind {
        /// The destination.
        name: String,
        /// As written.
        kind: String,
        /// The nearest one, or all.
        hint: String,
    },
    /// A key that this kind needs is missing.
    #[error("destination \"{name}\": `{key}` is missing: {why}")]
    Missing {
        /// The destination.
        name: String,
        /// The key.
        key: &'static str,
        /// What it is for.
        why: &'static str,
    },
    /// A key has a value that cannot be used. The value itself is not shown: it may be secret.
    #[error("destination \"{name}\": `{key}` {why}")]
    Invalid {
        /// The destination.
        name: String,
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// `fields` names something that a lead does not have.
    #[error("destination \"{name}\": `fields.{value}` is nothing a lead has; {hint}")]
    UnknownValue {
        /// The destination.
        name: String,
        /// As written.
        value: String,
        /// The nearest valid name, or all.
        hint: String,
    },
}

impl DestinationError {
    /// The key of the `[[destination]]` that is at fault; empty for the destination as a whole.
    pub fn key(&self) -> String {
        match self {
            DestinationError::UnknownKind { .. } => "kind".to_owned(),
            DestinationError::Missing { .. } => String::new(),
            DestinationError::Invalid { key, .. } => (*key).to_owned(),
            DestinationError::UnknownValue { value, .. } => format!("fields.{value}"),
        }
    }
}

/// The destination that the configuration describes, or what is wrong with the description.
/// `call_timeout` is the deadline of one call, answer included.
pub fn build(config: &config::Destination, call_timeout: Duration) -> Built {
    let Some(kind) = DESTINATIONS.iter().find(|kind| kind.name == config.kind) else {
        return Err(DestinationError::UnknownKind {
            name: config.name.clone(),
            kind: config.kind.clone(),
            hint: nearest(&config.kind, DESTINATIONS.iter().map(|kind| kind.name)),
        });
    };
    check_fields(config)?;
    (kind.build)(config, call_timeout)
}

fn check_fields(config: &config::Destination) -> Result<(), DestinationError> {
    let mut taken = BTreeMap::new();
    for (value, property) in &config.fields {
        if !Lead::is_value_name(value) {
            let names = Field::ALL.iter().map(|f| f.name()).chain(Lead::OTHER_VALUES);
            return Err(DestinationError::UnknownValue {
                name: config.name.clone(),
                value: value.clone(),
                hint: nearest(value, names),
            });
        }
        let to = property.to();
        let why = match taken.insert(to, value) {
            _ if to.trim() != to || to.is_empty() => format!("needs a property for {value}"),
            Some(other) => format!("sends both {other} and {value} to the property {to}"),
            None => continue,
        };
        return Err(DestinationError::Invalid { name: config.name.clone(), key: "fields", why });
    }
    Ok(())
}

/// "did you mean …?", or all valid names where none is near.
fn nearest(written: &str, valid: impl Iterator<Item = &'static str> + Clone) -> String {
    let near = valid
        .clone()
        .map(|name| (strsim::jaro_winkler(written, name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.75);
    match near {
        Some((_, name)) => format!("did you mean \"{name}\"?"),
        None => format!("valid are {}", valid.collect::<Vec<_>>().join(", ")),
    }
}

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

    /// Whether a push also sends what is not among the mapped properties, so that every version is news.
    fn sends_whole_lead(&self) -> bool {
        false
    }

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
