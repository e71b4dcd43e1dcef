//! PostgreSQL: the only room that names its client, pool and migration crates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadpool_postgres::Object;

use crate::lead::Micros;
use pool::Pools;

pub mod archive;
pub mod deliveries;
pub mod destinations;
pub mod fetches;
pub mod group;
pub mod leads;
pub mod migrate;
pub mod pool;
pub mod reconcile;
pub mod reports;
pub mod source_apis;
pub mod sync;
pub mod textbook;
mod tls;
pub mod url;
pub mod view;

/// Why the store could not answer; the kind is what the next room decides on.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, shutting down, read-only, out of connections, timed out: the same call may work later.
    #[error("the database is unavailable")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A statement waited too long, for a lock most often: others than those it waited for may work at once.
    #[error("the database is unavailable")]
    TimedOut(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A deadlock or serialisation failure rolled the statement back: the same call will most likely work at once.
    #[error("the database asks to try again")]
    Retry(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database refuses this data or statement; a repeat will not help.
    #[error("the database refused the statement")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why the service cannot work on this database now.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// It does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its schema cannot be told.
    #[error(transparent)]
    Migrate(#[from] migrate::MigrateError),
    /// Migrations are missing.
    #[error("the database lacks migrations of this version; run `leadsync migrate`")]
    NotMigrated,
}

/// The store: pools for receiving and syncing, so that neither can starve the other. Cheap to clone.
#[derive(Clone)]
pub struct Store(Pools);

impl Store {
    /// A store on two pools.
    pub fn new(pools: Pools) -> Store {
        Store(pools)
    }

    async fn receive(&self) -> Result<Object, StoreError> {
        self.0.receive().await
    }

    async fn sync(&self) -> Result<Object, StoreError> {
        self.0.sync().await
    }

    /// `Ok` when the database answers and has the migrations of this binary.
    pub async fn ready(&self) -> Result<(), NotReady> {
        let client = self.receive().await?;
        match migrate::applied(&client).await? {
            true => Ok(()),
            false => Err(NotReady::NotMigrated),
        }
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.0.close();
    }
}

/// Microseconds since the Unix epoch of a database time; times before 1970 count as 1970.
fn micros(time: SystemTime) -> Micros {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
}

/// The database time of microseconds since the Unix epoch; times before 1970 count as 1970.
fn system_time(at: Micros) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(at.max(0).unsigned_abs())
}
