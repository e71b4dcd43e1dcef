//! The archive of deliveries: recording, counting repeats, reading back, retention.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Store, StoreError, micros, system_time};
use crate::lead::{Micros, Outcome};

pub(super) const RECORD: &str = include_str!("../../sql/deliveries/record.sql");
const COUNT_REPEATS: &str = include_str!("../../sql/deliveries/count_repeats.sql");
const BY_KEY: &str = include_str!("../../sql/deliveries/by_key.sql");
const IS_ARCHIVED: &str = include_str!("../../sql/deliveries/is_archived.sql");
const REPLAYABLE: &str = include_str!("../../sql/deliveries/replayable.sql");
const ENSURE_WEEKS: &str = include_str!("../../sql/deliveries/ensure_weeks.sql");
const DROP_WEEKS: &str = include_str!("../../sql/deliveries/drop_weeks.sql");
const COUNT_DAYS: &str = include_str!("../../sql/deliveries/count_days.sql");
const SOURCES: &str = include_str!("../../sql/sources/register.sql");

/// One delivery as it goes into the archive.
#[derive(Clone, Debug)]
pub struct Archived {
    /// Digest of what arrived.
    pub delivery_id: Uuid,
    /// When.
    pub received_at: Micros,
    /// Where to.
    pub source: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why it was rejected or ignored.
    pub reason: Option<String>,
    /// Leads it speaks about.
    pub lead_ids: Vec<Uuid>,
    /// Per-lead detail, where there is any.
    pub items: Option<Value>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Query without the token.
    pub query: Option<String>,
    /// Kept headers.
    pub headers: Option<Value>,
    /// The bytes; `None` where they are not kept.
    pub body: Option<bytes::Bytes>,
    /// Size of the body.
    pub body_bytes: usize,
}

/// Parameter arrays of `record.sql`, in its order.
pub(super) struct RecordColumns<'a> {
    delivery_ids: Vec<Uuid>,
    received_at: Vec<SystemTime>,
    sources: Vec<&'a str>,
    outcomes: Vec<&'static str>,
    reasons: Vec<Option<&'a str>>,
    lead_ids: Vec<Option<String>>,
    items: Vec<Option<&'a Value>>,
    idempotency_keys: Vec<Option<&'a str>>,
    queries: Vec<Option<&'a str>>,
    headers: Vec<Option<&'a Value>>,
    bodies: Vec<Option<&'a [u8]>>,
    body_bytes: Vec<i32>,
}

impl Archived {
    pub(super) fn columns(all: &[Archived]) -> RecordColumns<'_> {
        RecordColumns {
            delivery_ids: all.iter().map(|d| d.delivery_id).collect(),
            received_at: all.iter().map(|d| system_time(d.received_at)).collect(),
            sources: all.iter().map(|d| d.source.as_str()).collect(),
            outcomes: all.iter().map(|d| d.outcome.name()).collect(),
            reasons: all.iter().map(|d| d.reason.as_deref()).collect(),
            lead_ids: all.iter().map(|d| array_text(&d.lead_ids)).collect(),
            items: all.iter().map(|d| d.items.as_ref()).collect(),
            idempotency_keys: all.iter().map(|d| d.idempotency_key.as_deref()).collect(),
            queries: all.iter().map(|d| d.query.as_deref()).collect(),
            headers: all.iter().map(|d| d.headers.as_ref()).collect(),
            bodies: all.iter().map(|d| d.body.as_deref()).collect(),
            body_bytes: all
                .iter()
                .map(|d| i32::try_from(d.body_bytes).unwrap_or(i32::MAX))
                .collect(),
        }
    }
}

impl RecordColumns<'_> {
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 12] {
        [
            &self.delivery_ids,
            &self.received_at,
            &self.sources,
            &self.outcomes,
            &self.reasons,
            &self.lead_ids,
            &self.items,
            &self.idempotency_keys,
            &self.queries,
            &self.headers,
            &self.bodies,
            &self.body_bytes,
        ]
    }
}

/// An array of arrays cannot be passed, so ids travel as the text of an array.
fn array_text(ids: &[Uuid]) -> Option<String> {
    let texts: Vec<String> = ids.iter().map(Uuid::to_string).collect();
    (!texts.is_empty()).then(|| format!("{{{}}}", texts.join(",")))
}

/// Further copies of one archived delivery.
#[derive(Clone, Debug)]
pub struct Repeats {
    /// Which.
    pub delivery_id: Uuid,
    /// How many since the last count.
    pub copies: i64,
    /// When the last one was received.
    pub last_received_at: Micros,
    /// What became of the last one.
    pub outcome: Outcome,
    /// Leads the last one speaks about.
    pub lead_ids: Vec<Uuid>,
    /// Per-lead detail of the last one, where there is any.
    pub items: Option<Value>,
}

/// A delivery read back for replay.
#[derive(Debug)]
pub struct Stored {
    /// Digest of what arrived.
    pub delivery_id: Uuid,
    /// When its first copy was received.
    pub received_at: Micros,
    /// Where to.
    pub source: String,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Query without the token.
    pub query: Option<String>,
    /// Kept headers.
    pub headers: Option<Value>,
    /// The bytes, where they were kept.
    pub body: Option<Vec<u8>>,
}

/// What to replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayFilter {
    /// Only of this source.
    pub source: Option<String>,
    /// Only received since then.
    pub since: Option<Micros>,
    /// Only with this outcome.
    pub outcome: Option<Outcome>,
}

impl Store {
    /// Counts further copies. Bookkeeping: losing a call of this loses no lead.
    pub async fn count_repeats(&self, repeats: &[Repeats]) -> Result<u64, StoreError> {
        let ids: Vec<Uuid> = repeats.iter().map(|r| r.delivery_id).collect();
        let copies: Vec<i64> = repeats.iter().map(|r| r.copies).collect();
        let times: Vec<SystemTime> =
            repeats.iter().map(|r| system_time(r.last_received_at)).collect();
        let outcomes: Vec<&str> = repeats.iter().map(|r| r.outcome.name()).collect();
        let leads: Vec<Option<String>> = repeats.iter().map(|r| array_text(&r.lead_ids)).collect();
        let items: Vec<Option<&Value>> = repeats.iter().map(|r| r.items.as_ref()).collect();
        let client = self.receive().await?;
        let statement = client.prepare_cached(COUNT_REPEATS).await?;
        Ok(client.execute(&statement, &[&ids, &copies, &times, &outcomes, &leads, &items]).await?)
    }

    /// The delivery that came with an `Idempotency-Key`.
    pub async fn delivery_by_key(&self, key: &str) -> Result<Option<Uuid>, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(BY_KEY).await?;
        Ok(client.query_opt(&statement, &[&key]).await?.map(|row| row.try_get(0)).transpose()?)
    }

    /// Whether a delivery is in the archive.
    pub async fn is_archived(&self, delivery_id: Uuid) -> Result<bool, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(IS_ARCHIVED).await?;
        Ok(client.query_one(&statement, &[&delivery_id]).await?.try_get(0)?)
    }

    /// A page of stored deliveries in order of their ids, after the given one (start with nil).
    pub async fn replayable(
        &self,
        filter: &ReplayFilter,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<Stored>, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(REPLAYABLE).await?;
        let since = filter.since.map(system_time);
        let outcome = filter.outcome.map(Outcome::name);
        let rows =
            client.query(&statement, &[&filter.source, &since, &outcome, &after, &limit]).await?;
        rows.iter()
            .map(|row| {
                Ok(Stored {
                    delivery_id: row.try_get("delivery_id")?,
                    received_at: micros(row.try_get("received_at")?),
                    source: row.try_get("source")?,
                    idempotency_key: row.try_get("idempotency_key")?,
                    query: row.try_get("query")?,
                    headers: row.try_get("headers")?,
                    body: row.try_get("body")?,
                })
            })
            .collect()
    }

    /// Makes the partitions of the coming weeks and drops those whose every delivery is older than `keep`.
    pub async fn maintain_archive(&self, keep: Duration) -> Result<(), StoreError> {
        let client = self.receive().await?;
        client.query_one(ENSURE_WEEKS, &[]).await?;
        client.query_one(DROP_WEEKS, &[&keep.as_secs_f64()]).await?;
        Ok(())
    }

    /// Brings the counts by day forward, by a week at most; returns whether there is more to count.
    pub async fn count_days(&self) -> Result<bool, StoreError> {
        let client = self.receive().await?;
        Ok(client.query_one(COUNT_DAYS, &[]).await?.try_get(0)?)
    }

    /// Gives every configured source its number, for good.
    pub async fn register_sources(
        &self,
        names: &[String],
    ) -> Result<Vec<(String, i16)>, StoreError> {
        let client = self.receive().await?;
        // Twice: where another instance registers the same source at this moment, the first run may
        // neither make it nor see it.
        client.query(SOURCES, &[&names]).await?;
        let rows = client.query(SOURCES, &[&names]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }
}
