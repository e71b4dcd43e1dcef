//! The archive as people are shown it: pages of deliveries, and one of them whole.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Store, StoreError, micros, system_time};
use crate::lead::{Micros, Outcome};

const PAGE: &str = include_str!("../../sql/deliveries/page.sql");
const PAGE_OF_LEAD: &str = include_str!("../../sql/deliveries/page_of_lead.sql");
const PAGE_REJECTED: &str = include_str!("../../sql/deliveries/page_rejected.sql");
const ONE: &str = include_str!("../../sql/deliveries/one.sql");

/// Which deliveries are asked for; `None` is any.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Where it was sent to.
    pub source: Option<String>,
    /// What became of it; `rejected` also finds deliveries of several leads of which some were rejected.
    pub outcome: Option<Outcome>,
    /// Why it, or a lead in it, was rejected or ignored.
    pub reason: Option<String>,
    /// Received then or later.
    pub since: Option<Micros>,
    /// Received before.
    pub until: Option<Micros>,
    /// A lead that it speaks about.
    pub lead_id: Option<Uuid>,
}

/// The last delivery of a page: the next page begins after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// When it was received.
    pub received_at: Micros,
    /// Which it is.
    pub delivery_id: Uuid,
}

/// One delivery in a list.
#[derive(Debug, Serialize)]
pub struct DeliveryView {
    /// Digest of what arrived.
    pub delivery_id: Uuid,
    /// Where it was sent to.
    pub source: String,
    /// When the first copy was received, RFC 3339.
    pub received_at: Option<String>,
    /// When the last one was.
    pub last_received_at: Option<String>,
    /// How often it was received; counted in the background.
    pub copies: i64,
    /// What became of it.
    pub outcome: String,
    /// Why it was rejected or ignored.
    pub reason: Option<String>,
    /// Leads that it speaks about.
    pub lead_ids: Vec<Uuid>,
    /// Per lead in it, where there are several or something is wrong with one.
    pub items: Option<Value>,
    /// Size of the body.
    pub body_bytes: i32,
    #[serde(skip)]
    place: Place,
}

impl DeliveryView {
    /// Where it stands in the list.
    pub fn place(&self) -> Place {
        self.place
    }
}

/// One delivery whole.
#[derive(Debug, Serialize)]
pub struct WholeDelivery {
    /// As in a list.
    #[serde(flatten)]
    pub delivery: DeliveryView,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Query without the token.
    pub query: Option<String>,
    /// Headers that were kept.
    pub headers: Option<Value>,
    /// The body, where it was kept.
    pub body: Option<String>,
    /// How `body` is written: `utf-8`, or `base64` where it is no text.
    pub body_encoding: Option<&'static str>,
}

fn time(row: &Row, column: &str) -> Result<(Micros, Option<String>), StoreError> {
    let at = micros(row.try_get::<_, SystemTime>(column)?);
    Ok((at, Timestamp::from_microsecond(at).ok().map(|time| time.to_string())))
}

impl DeliveryView {
    fn of_row(row: &Row) -> Result<DeliveryView, StoreError> {
        let delivery_id = row.try_get("delivery_id")?;
        let (at, received_at) = time(row, "received_at")?;
        Ok(DeliveryView {
            delivery_id,
            source: row.try_get("source")?,
            received_at,
            last_received_at: time(row, "last_received_at")?.1,
            copies: row.try_get("copies")?,
            outcome: row.try_get("outcome")?,
            reason: row.try_get("reason")?,
            lead_ids: row.try_get::<_, Option<Vec<Uuid>>>("lead_ids")?.unwrap_or_default(),
            items: row.try_get("items")?,
            body_bytes: row.try_get("body_bytes")?,
            place: Place { received_at: at, delivery_id },
        })
    }
}

/// A body as JSON can hold it. PostgreSQL's own `convert_from` fails on what is no text.
fn shown(body: Vec<u8>) -> (String, &'static str) {
    match String::from_utf8(body) {
        Ok(text) => (text, "utf-8"),
        Err(bytes) => (STANDARD.encode(bytes.as_bytes()), "base64"),
    }
}

impl Store {
    /// A page of deliveries, newest first, that begins after a place.
    pub async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<Place>,
        limit: i64,
    ) -> Result<Vec<DeliveryView>, StoreError> {
        let client = self.receive().await?;
        let statement = match filter {
            DeliveryFilter { lead_id: Some(_), .. } => PAGE_OF_LEAD,
            DeliveryFilter { outcome: Some(Outcome::Rejected), .. } => PAGE_REJECTED,
            _ => PAGE,
        };
        let statement = client.prepare_cached(statement).await?;
        let outcome = filter.outcome.map(Outcome::name);
        let (since, until) = (filter.since.map(system_time), filter.until.map(system_time));
        let at = after.map(|place| system_time(place.received_at));
        let id = after.map(|place| place.delivery_id);
        let parameters: [&(dyn ToSql + Sync); 9] = [
            &filter.source,
            &outcome,
            &filter.reason,
            &since,
            &until,
            &filter.lead_id,
            &at,
            &id,
            &limit,
        ];
        let rows = client.query(&statement, &parameters).await?;
        rows.iter().map(DeliveryView::of_row).collect()
    }

    /// One delivery with everything that was kept of it.
    pub async fn delivery(&self, delivery_id: Uuid) -> Result<Option<WholeDelivery>, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(ONE).await?;
        let Some(row) = client.query_opt(&statement, &[&delivery_id]).await? else {
            return Ok(None);
        };
        let body = row.try_get::<_, Option<Vec<u8>>>("body")?.map(shown);
        let (body, body_encoding) = body.unzip();
        Ok(Some(WholeDelivery {
            delivery: DeliveryView::of_row(&row)?,
            idempotency_key: row.try_get("idempotency_key")?,
            query: row.try_get("query")?,
            headers: row.try_get("headers")?,
            body,
            body_encoding,
        }))
    }
}
