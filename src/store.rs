//! PostgreSQL: the only room that names its client, pool and migration crates.

pub mod migrate;
pub mod pool;
mod tls;
pub mod url;

use serde::Serialize;

use crate::lead::Email;

/// The store: pools for receiving and syncing. Cheap to clone.
#[derive(Clone)]
pub struct Store {}

/// Why the store could not answer; the kind is what the next room decides on.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, shutting down, read-only, out of connections, timed out: the same call may work later.
    #[error("the database is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A deadlock or serialisation failure rolled the statement back: the same call will most likely work at once.
    #[error("the database asks to try again")]
    Retry(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database refuses this data or statement; a repeat will not help.
    #[error("the database refused the statement")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// `GET /v1/leads/{email}`; serialises to the shape in the README.
#[derive(Debug, Serialize)]
pub struct LeadView {}

impl Store {
    /// The lead of that address with origins and sync state.
    pub async fn lead_view(&self, _email: &Email) -> Result<Option<LeadView>, StoreError> {
        Ok(None)
    }

    /// `Ok` when the database answers and has the migrations of this binary.
    pub async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
