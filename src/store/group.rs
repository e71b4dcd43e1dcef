//! One group of deliveries in one transaction: merge, then archive, then commit.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use deadpool_postgres::{Client, Transaction};
use uuid::Uuid;

use super::deliveries::{Archived, RECORD};
use super::fetches::{FoundBy, WANT, Want};
use super::leads::{Merged, UPSERT, upsert_columns};
use super::{Store, StoreError, micros};
use crate::lead::Micros;
use crate::lead::merge::LeadState;

const LOCK: &str = include_str!("../../sql/deliveries/lock.sql");
const SEEN: &str = include_str!("../../sql/deliveries/seen.sql");

/// A connection taken for one group.
pub struct GroupConnection(Client);

/// The transaction of one group. Dropped without [`GroupTx::commit`] it rolls back.
pub struct GroupTx<'a>(Transaction<'a>);

impl Store {
    /// A connection for one group.
    pub async fn group_connection(&self) -> Result<GroupConnection, StoreError> {
        Ok(GroupConnection(self.receive().await?))
    }
}

impl GroupConnection {
    /// Opens the transaction: READ COMMITTED, so that each statement sees what committed before it.
    pub async fn begin(&mut self) -> Result<GroupTx<'_>, StoreError> {
        Ok(GroupTx(self.0.transaction().await?))
    }
}

impl GroupTx<'_> {
    /// When the first copies of these deliveries were received, where they are archived. Until this
    /// transaction ends, nobody else can answer the same question about those of `untimed`.
    pub async fn first_receipts(
        &self,
        untimed: &[Uuid],
        timed: &[Uuid],
    ) -> Result<HashMap<Uuid, Micros>, StoreError> {
        if !untimed.is_empty() {
            let mut sorted = untimed.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            let lock = self.0.prepare_cached(LOCK).await?;
            self.0.query_one(&lock, &[&sorted]).await?;
        }
        let all = [untimed, timed].concat();
        if all.is_empty() {
            return Ok(HashMap::new());
        }
        let seen = self.0.prepare_cached(SEEN).await?;
        let rows = self.0.query(&seen, &[&all]).await?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, micros(row.try_get::<_, SystemTime>(1)?))))
            .collect()
    }

    /// Merges folded states into their leads and marks what changed as due. `states` are sorted
    /// bytewise by e-mail and have distinct e-mails. One result per state, in no particular order.
    pub async fn upsert(&self, states: &[LeadState]) -> Result<Vec<Merged>, StoreError> {
        let statement = self.0.prepare_cached(UPSERT).await?;
        let columns = upsert_columns(states);
        let rows = self.0.query(&statement, &columns.parameters()).await?;
        rows.iter().map(Merged::of_row).collect()
    }

    /// Archives deliveries; returns the ids of those that are new to the archive.
    pub async fn record(&self, deliveries: &[Archived]) -> Result<HashSet<Uuid>, StoreError> {
        let statement = self.0.prepare_cached(RECORD).await?;
        let columns = Archived::columns(deliveries);
        let rows = self.0.query(&statement, &columns.parameters()).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Remembers what deliveries tell of; returns how many of it were news.
    pub async fn want(&self, wanted: &[Want]) -> Result<u64, StoreError> {
        let statement = self.0.prepare_cached(WANT).await?;
        let columns = Want::columns(wanted, FoundBy::Webhook);
        Ok(self.0.execute(&statement, &columns.parameters()).await?)
    }

    /// Commits. After `Ok` everything is durable.
    pub async fn commit(self) -> Result<(), StoreError> {
        Ok(self.0.commit().await?)
    }
}
