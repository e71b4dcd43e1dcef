//! What is to be read at the APIs of sources: remember, claim, settle, and what people ask about it.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::view::{PausedStatus, paused, time};
use super::{Store, StoreError, system_time};
use crate::lead::{Micros, Outcome};

pub(super) const WANT: &str = include_str!("../../sql/fetches/want.sql");
const CLAIM: &str = include_str!("../../sql/fetches/claim.sql");
const SETTLE: &str = include_str!("../../sql/fetches/settle.sql");
const BACKLOG: &str = include_str!("../../sql/fetches/backlog.sql");
const REQUEUE: &str = include_str!("../../sql/fetches/requeue.sql");

/// Something at a source that was told of.
#[derive(Clone, Debug)]
pub struct Want {
    /// The source.
    pub source: String,
    /// Kind of thing.
    pub object: &'static str,
    /// Its id there.
    pub remote_id: String,
    /// When it changed; `None` where it never does.
    pub changed_at: Option<Micros>,
    /// It is gone there: not to be read.
    pub deleted: bool,
}

/// What told of a thing at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// A delivery.
    Webhook,
    /// The listing of what is new.
    Poll,
}

impl FoundBy {
    fn name(self) -> &'static str {
        match self {
            FoundBy::Webhook => "webhook",
            FoundBy::Poll => "poll",
        }
    }
}

/// Parameter arrays of `want.sql`, in its order.
pub(super) struct WantColumns<'a> {
    sources: Vec<&'a str>,
    objects: Vec<&'a str>,
    remote_ids: Vec<&'a str>,
    changed_at: Vec<Option<SystemTime>>,
    deleted: Vec<bool>,
    found_by: &'static str,
}

impl Want {
    pub(super) fn columns(all: &[Want], found_by: FoundBy) -> WantColumns<'_> {
        WantColumns {
            sources: all.iter().map(|w| w.source.as_str()).collect(),
            objects: all.iter().map(|w| w.object).collect(),
            remote_ids: all.iter().map(|w| w.remote_id.as_str()).collect(),
            changed_at: all.iter().map(|w| w.changed_at.map(system_time)).collect(),
            deleted: all.iter().map(|w| w.deleted).collect(),
            found_by: found_by.name(),
        }
    }
}

impl WantColumns<'_> {
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 6] {
        [
            &self.sources,
            &self.objects,
            &self.remote_ids,
            &self.changed_at,
            &self.deleted,
            &self.found_by,
        ]
    }
}

/// A thing leased to this instance for reading.
#[derive(Clone, Debug)]
pub struct ClaimedFetch {
    /// Kind of thing.
    pub object: String,
    /// Its id at the source.
    pub remote_id: String,
    /// The fence.
    pub lease_token: i64,
    /// The change that it was claimed for.
    pub wanted: i64,
    /// Failed attempts since the last success.
    pub attempts: u32,
}

/// Why a thing was not read, as it is kept with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchError {
    /// `record`, `unavailable` or `storage`.
    pub kind: &'static str,
    /// The API's code.
    pub code: Option<String>,
    /// The API's words.
    pub message: String,
}

/// What a reading came to.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchResult {
    /// Read and delivered.
    Done {
        /// When it last changed, as the document says.
        changed_at: Option<Micros>,
        /// What became of the document.
        outcome: Outcome,
        /// Why that was rejected or ignored.
        reason: Option<String>,
        /// The lead it became.
        lead_id: Option<Uuid>,
    },
    /// The API does not give it.
    Parked(FetchError),
    /// Again after the delay.
    Retry(FetchError, Duration),
    /// Not tried, or refused through no fault of its own; nothing is counted.
    Released,
}

impl FetchResult {
    fn name(&self) -> &'static str {
        match self {
            FetchResult::Done { .. } => "done",
            FetchResult::Parked(_) => "parked",
            FetchResult::Retry(..) => "retry",
            FetchResult::Released => "released",
        }
    }

    fn error(&self) -> Option<&FetchError> {
        match self {
            FetchResult::Parked(error) | FetchResult::Retry(error, _) => Some(error),
            FetchResult::Done { .. } | FetchResult::Released => None,
        }
    }

    fn delay(&self) -> f64 {
        match self {
            FetchResult::Retry(_, delay) => delay.as_secs_f64(),
            _ => 0.0,
        }
    }
}

/// One source that sends only ids in `status`.
#[derive(Debug, Serialize)]
pub struct FetchStatus {
    /// Source.
    pub source: String,
    /// Leads to be read, leased ones included.
    pub due: i64,
    /// Leads being read.
    pub leased: i64,
    /// Leads read and delivered.
    pub done: i64,
    /// Leads the API does not give.
    pub parked: i64,
    /// Leads that are gone at the source.
    pub deleted: i64,
    /// Age of the event, or the last reading, of the one that waits longest, in seconds.
    pub oldest_due_seconds: Option<f64>,
    /// Failed calls in a row.
    pub failures: i32,
    /// Why no calls are made, when none are.
    pub paused: Option<PausedStatus>,
    /// Up to when the listing for leads whose webhook never came is complete, RFC 3339.
    pub polled_to: Option<String>,
    /// Why the last such listing failed.
    pub poll_error: Option<String>,
    /// The newest error: kind, code, message, object, remote_id, at.
    pub last_error: Option<Value>,
}

fn fetch_status(row: &Row) -> Result<FetchStatus, StoreError> {
    Ok(FetchStatus {
        source: row.try_get("name")?,
        due: row.try_get("due")?,
        leased: row.try_get("leased")?,
        done: row.try_get("done")?,
        parked: row.try_get("parked")?,
        deleted: row.try_get("deleted")?,
        oldest_due_seconds: row.try_get("oldest_due_seconds")?,
        failures: row.try_get("failures")?,
        paused: paused(row)?,
        polled_to: time(row, "polled_to")?,
        poll_error: row.try_get("poll_error")?,
        last_error: row.try_get("last_error")?,
    })
}

impl Store {
    /// Remembers what a listing found; returns how many of it were news.
    pub async fn want(&self, wanted: &[Want], found_by: FoundBy) -> Result<u64, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(WANT).await?;
        Ok(client.execute(&statement, &Want::columns(wanted, found_by).parameters()).await?)
    }

    /// Leases up to `limit` things that are due at a source to `holder`; committed when it returns.
    pub async fn claim_fetches(
        &self,
        source: &str,
        limit: usize,
        holder: &str,
        lease: Duration,
    ) -> Result<Vec<ClaimedFetch>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(CLAIM).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows =
            client.query(&statement, &[&source, &limit, &holder, &lease.as_secs_f64()]).await?;
        rows.iter()
            .map(|row| {
                Ok(ClaimedFetch {
                    object: row.try_get("object")?,
                    remote_id: row.try_get("remote_id")?,
                    lease_token: row.try_get("lease_token")?,
                    wanted: row.try_get("wanted")?,
                    attempts: u32::try_from(row.try_get::<_, i32>("attempts")?).unwrap_or(0),
                })
            })
            .collect()
    }

    /// Writes what became of readings. Returns how many were still this holder's.
    pub async fn settle_fetches(
        &self,
        source: &str,
        results: &[(ClaimedFetch, FetchResult)],
    ) -> Result<u64, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(SETTLE).await?;
        let claimed = || results.iter().map(|(claimed, _)| claimed);
        let objects: Vec<&str> = claimed().map(|c| c.object.as_str()).collect();
        let remote_ids: Vec<&str> = claimed().map(|c| c.remote_id.as_str()).collect();
        let tokens: Vec<i64> = claimed().map(|c| c.lease_token).collect();
        let wanted: Vec<i64> = claimed().map(|c| c.wanted).collect();
        let names: Vec<&str> = results.iter().map(|(_, r)| r.name()).collect();
        let mut changed_at: Vec<Option<SystemTime>> = Vec::new();
        let mut outcomes: Vec<Option<&str>> = Vec::new();
        let mut reasons: Vec<Option<&str>> = Vec::new();
        let mut lead_ids: Vec<Option<Uuid>> = Vec::new();
        for (_, result) in results {
            let (at, what, why, lead) = match result {
                FetchResult::Done { changed_at, outcome, reason, lead_id } => {
                    (changed_at.map(system_time), Some(outcome.name()), reason.as_deref(), *lead_id)
                }
                _ => (None, None, None, None),
            };
            changed_at.push(at);
            outcomes.push(what);
            reasons.push(why);
            lead_ids.push(lead);
        }
        let delays: Vec<f64> = results.iter().map(|(_, r)| r.delay()).collect();
        let errors = || results.iter().map(|(_, r)| r.error());
        let kinds: Vec<Option<&str>> = errors().map(|e| e.map(|e| e.kind)).collect();
        let codes: Vec<Option<&str>> =
            errors().map(|e| e.and_then(|e| e.code.as_deref())).collect();
        let messages: Vec<Option<&str>> = errors().map(|e| e.map(|e| e.message.as_str())).collect();
        Ok(client
            .execute(
                &statement,
                &[
                    &source,
                    &objects,
                    &remote_ids,
                    &tokens,
                    &wanted,
                    &names,
                    &changed_at,
                    &outcomes,
                    &reasons,
                    &lead_ids,
                    &delays,
                    &kinds,
                    &codes,
                    &messages,
                ],
            )
            .await?)
    }

    /// Makes parked and waiting readings due now; `None` means all.
    pub async fn requeue_fetches(
        &self,
        source: Option<&str>,
        code: Option<&str>,
    ) -> Result<u64, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(REQUEUE).await?;
        Ok(client.execute(&statement, &[&source, &code]).await?)
    }

    /// The state of every source that is read at an API.
    pub(super) async fn fetch_statuses(&self) -> Result<Vec<FetchStatus>, StoreError> {
        let client = self.receive().await?;
        client.query(BACKLOG, &[]).await?.iter().map(fetch_status).collect()
    }
}
