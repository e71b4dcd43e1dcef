//! Sync state: claim, settle, remark and what people ask about it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::leads::lead_of_row;
use super::{Store, StoreError, micros, system_time};
use crate::lead::{Lead, Micros};

const CLAIM: &str = include_str!("../../sql/sync/claim.sql");
const PREVIEW: &str = include_str!("../../sql/sync/preview.sql");
const SETTLE: &str = include_str!("../../sql/sync/settle.sql");
const CREATING: &str = include_str!("../../sql/sync/creating.sql");
const RENEW: &str = include_str!("../../sql/sync/renew.sql");
const REMARK: &str = include_str!("../../sql/sync/remark.sql");
const WRITERS: &str = include_str!("../../sql/leads/writers.sql");
const ENROL: &str = include_str!("../../sql/sync/enrol.sql");
const REQUEUE: &str = include_str!("../../sql/sync/requeue.sql");
const SETTLED: &str = include_str!("../../sql/sync/settled.sql");
const MARK: &str = include_str!("../../sql/sync/mark.sql");
const NEXT_DUE: &str = include_str!("../../sql/sync/next_due.sql");

/// A lead leased to this instance, as it is now.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The lead; `lead.version` is what a push of it confirms.
    pub lead: Arc<Lead>,
    /// The fence.
    pub lease_token: i64,
    /// Database time of the claim.
    pub claimed_at: SystemTime,
    /// A push is owed even if nothing changed since the last one.
    pub confirm_owed: bool,
    /// Failed attempts since the last success.
    pub attempts: u32,
    /// The CRM's id of it. What stands here when the lead is settled is remembered.
    pub remote_id: Option<String>,
    /// Digest of what the CRM last confirmed.
    pub sent_hash: Option<Vec<u8>>,
    /// Due because the destination or its mapping is new.
    pub backfill: bool,
    /// How long ago a contact may have been made by a call of unknown outcome. What stands here when the lead is settled
    /// is remembered, without the length.
    pub creating_for: Option<Duration>,
    /// What the CRM refused and was left out of the last push. Remembered likewise.
    pub dropped: Vec<Dropped>,
}

/// A property that the CRM refused and that was left out of a push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The CRM's property.
    pub property: String,
    /// The CRM's code.
    pub code: String,
    /// The CRM's words.
    pub message: String,
}

/// Properties left out, as the table keeps them.
pub(super) fn dropped(row: &Row) -> Result<Vec<Dropped>, StoreError> {
    let written: Option<Value> = row.try_get("dropped_fields")?;
    // People may write there; what cannot be read is nothing.
    Ok(written.and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default())
}

/// A place in the queue of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Among the leads of a backfill, which come last.
    pub backfill: bool,
    /// When it is due.
    pub at: Micros,
    /// The lead.
    pub lead_id: Uuid,
}

impl Position {
    /// Before all others.
    pub const FIRST: Position = Position { backfill: false, at: 0, lead_id: Uuid::nil() };
}

/// Why a push did not succeed, as it is kept with the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// `record`, `slow_down`, `unavailable`, `unknown`, `credentials` or `misconfigured`.
    pub kind: &'static str,
    /// The CRM's code.
    pub code: Option<String>,
    /// The CRM's words.
    pub message: String,
}

/// What a push of one lead came to.
#[derive(Clone, Debug, PartialEq)]
pub enum PushResult {
    /// The CRM has exactly what was sent (or has it already and no call was needed).
    Confirmed {
        /// The CRM's id, where it gave one.
        remote_id: Option<String>,
        /// Digest of what was sent.
        hash: Vec<u8>,
    },
    /// Refused until the lead changes.
    Parked(LastError),
    /// Not written; again after the delay.
    Retry(LastError, Duration),
    /// Perhaps written; again after the delay, and not in sync before the grace time.
    Unknown(LastError, Duration),
    /// Refused with the whole call, through no fault of the lead; nothing is counted.
    Postponed,
    /// Not tried; nothing is counted.
    Released,
}

impl PushResult {
    fn name(&self) -> &'static str {
        match self {
            PushResult::Confirmed { .. } => "confirmed",
            PushResult::Parked(_) => "parked",
            PushResult::Retry(..) => "retry",
            PushResult::Unknown(..) => "unknown",
            PushResult::Postponed => "postponed",
            PushResult::Released => "released",
        }
    }

    fn error(&self) -> Option<&LastError> {
        match self {
            PushResult::Parked(e) | PushResult::Retry(e, _) | PushResult::Unknown(e, _) => Some(e),
            _ => None,
        }
    }

    fn delay(&self) -> f64 {
        match self {
            PushResult::Retry(_, delay) | PushResult::Unknown(_, delay) => delay.as_secs_f64(),
            _ => 0.0,
        }
    }
}

pub(super) fn claimed(row: &Row) -> Result<Claimed, StoreError> {
    Ok(Claimed {
        lead: Arc::new(lead_of_row(row)?),
        lease_token: row.try_get("lease_token")?,
        claimed_at: row.try_get("claimed_at")?,
        confirm_owed: row.try_get("confirm_owed")?,
        attempts: u32::try_from(row.try_get::<_, i32>("attempts")?).unwrap_or(0),
        remote_id: row.try_get("remote_id")?,
        sent_hash: row.try_get("sent_hash")?,
        backfill: row.try_get("backfill")?,
        creating_for: row
            .try_get::<_, Option<f64>>("creating_for")?
            .map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)),
        dropped: dropped(row)?,
    })
}

impl Store {
    /// Leases up to `limit` due leads of a destination to `holder`: those of a backfill, or those that changed; committed
    /// when it returns.
    pub async fn claim(
        &self,
        destination: &str,
        limit: usize,
        holder: &str,
        lease: Duration,
        grace: Duration,
        backfill: bool,
    ) -> Result<Vec<Claimed>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(CLAIM).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client
            .query(
                &statement,
                &[
                    &destination,
                    &limit,
                    &holder,
                    &lease.as_secs_f64(),
                    &grace.as_secs_f64(),
                    &backfill,
                ],
            )
            .await?;
        rows.iter().map(claimed).collect()
    }

    /// What claiming would take, without taking it: a page in queue order after the given place, and the next place.
    pub async fn preview(
        &self,
        destination: &str,
        after: Position,
        limit: i64,
    ) -> Result<(Vec<Claimed>, Option<Position>), StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(PREVIEW).await?;
        let rows = client
            .query(
                &statement,
                &[&destination, &limit, &system_time(after.at), &after.lead_id, &after.backfill],
            )
            .await?;
        let page = rows.iter().map(claimed).collect::<Result<Vec<_>, _>>()?;
        let next = match rows.last() {
            Some(row) => Some(Position {
                backfill: row.try_get("backfill")?,
                at: micros(row.try_get("next_attempt_at")?),
                lead_id: row.try_get("lead_id")?,
            }),
            None => None,
        };
        // `infinity`, with which people hold a lead back, has no place that could be gone on from.
        Ok((page, next.filter(|next| *next > after)))
    }

    /// Writes the results of a push. Returns the leads that this holder was fenced off from.
    pub async fn settle(
        &self,
        destination: &str,
        results: &[(Claimed, PushResult)],
        grace: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(SETTLE).await?;
        let lead_ids: Vec<Uuid> = results.iter().map(|(c, _)| c.lead.lead_id).collect();
        let tokens: Vec<i64> = results.iter().map(|(c, _)| c.lease_token).collect();
        let versions: Vec<i64> = results.iter().map(|(c, _)| c.lead.version).collect();
        let claimed_at: Vec<SystemTime> = results.iter().map(|(c, _)| c.claimed_at).collect();
        let names: Vec<&str> = results.iter().map(|(_, r)| r.name()).collect();
        let known = |(claimed, result): &(Claimed, PushResult)| match result {
            PushResult::Confirmed { remote_id, hash } => {
                (remote_id.clone().or(claimed.remote_id.clone()), Some(hash.clone()))
            }
            _ => (claimed.remote_id.clone(), None),
        };
        let (remote_ids, hashes): (Vec<Option<String>>, Vec<Option<Vec<u8>>>) =
            results.iter().map(known).unzip();
        let creating: Vec<bool> = results.iter().map(|(c, _)| c.creating_for.is_some()).collect();
        let dropped: Vec<Option<Value>> = results
            .iter()
            .map(|(c, _)| (!c.dropped.is_empty()).then(|| serde_json::json!(c.dropped)))
            .collect();
        let delays: Vec<f64> = results.iter().map(|(_, r)| r.delay()).collect();
        let errors = || results.iter().map(|(_, r)| r.error());
        let kinds: Vec<Option<&str>> = errors().map(|e| e.map(|e| e.kind)).collect();
        let codes: Vec<Option<&str>> =
            errors().map(|e| e.and_then(|e| e.code.as_deref())).collect();
        let messages: Vec<Option<&str>> = errors().map(|e| e.map(|e| e.message.as_str())).collect();
        let rows = client
            .query(
                &statement,
                &[
                    &destination,
                    &lead_ids,
                    &tokens,
                    &versions,
                    &claimed_at,
                    &names,
                    &remote_ids,
                    &hashes,
                    &delays,
                    &kinds,
                    &codes,
                    &messages,
                    &grace.as_secs_f64(),
                    &creating,
                    &dropped,
                ],
            )
            .await?;
        let settled: Vec<Uuid> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        Ok(lead_ids.into_iter().filter(|id| !settled.contains(id)).collect())
    }

    /// Remembers that contacts are about to be made at a CRM that keeps no key. Returns the leads that still belong to
    /// the holder; for others none may be made.
    pub async fn creating(
        &self,
        destination: &str,
        held: &[(Uuid, i64)],
    ) -> Result<Vec<Uuid>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(CREATING).await?;
        let (lead_ids, tokens): (Vec<Uuid>, Vec<i64>) = held.iter().copied().unzip();
        let rows = client.query(&statement, &[&destination, &lead_ids, &tokens]).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Makes leases last for `lease` from now. Returns the leads that still belong to the holder.
    pub async fn renew(
        &self,
        destination: &str,
        held: &[(Uuid, i64)],
        lease: Duration,
    ) -> Result<Vec<Uuid>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(RENEW).await?;
        let (lead_ids, tokens): (Vec<Uuid>, Vec<i64>) = held.iter().copied().unzip();
        let rows = client
            .query(&statement, &[&destination, &lead_ids, &tokens, &lease.as_secs_f64()])
            .await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Marks leads due again whose holder was fenced off after it may have written to the CRM.
    pub async fn remark(
        &self,
        destination: &str,
        lead_ids: &[Uuid],
        grace: Duration,
    ) -> Result<u64, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(REMARK).await?;
        Ok(client.execute(&statement, &[&destination, &lead_ids, &grace.as_secs_f64()]).await?)
    }

    /// Transactions that are writing leads now, by virtual id.
    pub async fn lead_writers(&self) -> Result<Vec<String>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(WRITERS).await?;
        let rows = client.query(&statement, &[]).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Marks leads due that a destination has never heard of, or that changed while it was not configured: one page after a lead id. Returns the last
    /// lead looked at (`None`: there are no more) and how many were marked.
    pub async fn enrol(
        &self,
        destination: &str,
        after: Uuid,
        limit: i64,
    ) -> Result<(Option<Uuid>, i64), StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(ENROL).await?;
        let row = client.query_one(&statement, &[&destination, &after, &limit]).await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Leads that a destination has or has refused, one page after a lead id.
    pub async fn settled(
        &self,
        destination: &str,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<Claimed>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(SETTLED).await?;
        let rows = client.query(&statement, &[&destination, &limit, &after]).await?;
        rows.iter().map(claimed).collect()
    }

    /// Marks leads due again, behind those that change; returns how many were not due anyway. `differs`: the CRM does not
    /// have what was last sent, so the same again is sent.
    pub async fn mark(
        &self,
        destination: &str,
        lead_ids: &[Uuid],
        differs: bool,
    ) -> Result<u64, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(MARK).await?;
        Ok(client.execute(&statement, &[&destination, &lead_ids, &differs]).await?)
    }

    /// Makes parked and waiting leads due now; `None` means all.
    pub async fn requeue(
        &self,
        destination: Option<&str>,
        code: Option<&str>,
        email: Option<&str>,
    ) -> Result<u64, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(REQUEUE).await?;
        Ok(client.execute(&statement, &[&destination, &code, &email]).await?)
    }

    /// Time until the earliest lead of a destination is due; `None`: nothing is.
    pub async fn next_due(&self, destination: &str) -> Result<Option<Duration>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(NEXT_DUE).await?;
        let seconds: Option<f64> =
            client.query_one(&statement, &[&destination]).await?.try_get(0)?;
        Ok(seconds.map(|s| Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX)))
    }
}
