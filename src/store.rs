//! PostgreSQL: the only room that names its client, pool and migration crates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadpool_postgres::{Client, Pool};

use crate::lead::Micros;

pub mod deliveries;
pub mod destinations;
pub mod error;
pub mod group;
pub mod leads;
pub mod migrate;
pub mod pool;
pub mod sync;
pub mod textbook;
pub mod view;

pub use error::StoreError;

/// The store: pools for receiving and syncing, so that neither can starve the other. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    receive: Pool,
    sync: Pool,
}

impl Store {
    /// A store on two pools.
    pub fn new(pools: pool::Pools) -> Store {
        Store { receive: pools.receive, sync: pools.sync }
    }

    async fn receive(&self) -> Result<Client, StoreError> {
        Ok(self.receive.get().await?)
    }

    async fn sync(&self) -> Result<Client, StoreError> {
        Ok(self.sync.get().await?)
    }

    /// `Ok` when the database answers and has the migrations of this binary.
    pub async fn ready(&self) -> Result<(), StoreError> {
        migrate::check_applied(&*self.receive().await?).await
    }

    /// Closes all connections.
    pub fn close(&self) {
        self.receive.close();
        self.sync.close();
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
