//! From a delivery to committed leads: the one path for hooks, `/v1`, replay and the demo.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::lead::{LeadPatch, Outcome};
use crate::sources::{ConfiguredSource, Verified};

/// What became of one item (one lead) of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemOutcome {
    /// What happened.
    pub outcome: Outcome,
    /// The lead, where there is one.
    pub lead_id: Option<Uuid>,
    /// Stable word for a rejected or ignored item.
    pub reason: Option<String>,
}

/// Why a delivery could not be taken. Nothing of it is stored.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// A body that no sender of that kind can have meant; the text says what is wrong, without echoing input.
    #[error("malformed body: {0}")]
    Malformed(String),
    /// More work is waiting than memory should hold; come back after the given time.
    #[error("too busy")]
    Busy(Duration),
    /// The database cannot store now; come back after the given time.
    #[error("storage is unavailable")]
    Unavailable(Duration),
    /// The same `Idempotency-Key` came with another body.
    #[error("the idempotency key was used with another body")]
    KeyReused,
}

/// The receiver: cheap to clone.
#[derive(Clone)]
pub struct Receiver {
    // to come
}

impl Receiver {
    /// The configured source of that name.
    pub fn source(&self, _name: &str) -> Option<Arc<ConfiguredSource>> {
        None
    }

    /// Takes one verified delivery of a source: decodes, splits, maps, merges, archives. `Ok` means committed.
    /// One outcome per lead in it; at least one. A sender that hangs up does not cancel the write.
    pub async fn deliver(
        &self,
        _source: Arc<ConfiguredSource>,
        _delivery: Verified,
    ) -> Result<Vec<ItemOutcome>, ReceiveError> {
        Err(ReceiveError::Busy(Duration::from_secs(1)))
    }

    /// Takes canonical leads of `/v1/leads`, already parsed. `body` is archived as the delivery's raw body.
    /// One outcome per patch, in order.
    pub async fn deliver_patches(
        &self,
        _patches: Vec<LeadPatch>,
        _body: bytes::Bytes,
        _idempotency_key: Option<String>,
    ) -> Result<Vec<ItemOutcome>, ReceiveError> {
        Err(ReceiveError::Busy(Duration::from_secs(1)))
    }
}
