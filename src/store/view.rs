//! What people are shown: one lead with its origins, and the state of everything.

use std::collections::BTreeMap;
use std::time::SystemTime;

use deadpool_postgres::Object;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::fetches::FetchStatus;
use super::leads::{attribute_registers, first_touch, tag_names};
use super::sync::{Dropped, dropped};
use super::{Store, StoreError, micros};
use crate::lead::merge::{Rule, read_stamp};
use crate::lead::{Email, Field};

const FIND: &str = include_str!("../../sql/leads/find.sql");
const DESTINATIONS: &str = include_str!("../../sql/leads/destinations.sql");
const SOURCE_NAMES: &str = include_str!("../../sql/sources/names.sql");
const BACKLOG: &str = include_str!("../../sql/sync/backlog.sql");
const PARKED: &str = include_str!("../../sql/sync/parked.sql");
const DROPPED: &str = include_str!("../../sql/sync/dropped.sql");
const REJECTED: &str = include_str!("../../sql/deliveries/rejected.sql");
const TOTALS: &str = include_str!("../../sql/deliveries/totals.sql");

/// `GET /v1/leads/{email}`.
#[derive(Debug, Serialize)]
pub struct LeadView {
    /// Id for the outside.
    pub lead_id: Uuid,
    /// The key.
    pub email: String,
    /// Moves only when something changed.
    pub version: i64,
    /// Columns of the lead; those without a value are left out.
    pub lead: BTreeMap<&'static str, Value>,
    /// Where each value came from, by field (`attributes.NAME` for custom ones).
    pub origin: BTreeMap<String, Origin>,
    /// State per destination.
    pub destinations: Vec<DestinationView>,
}

/// Where one value came from.
#[derive(Debug, Serialize)]
pub struct Origin {
    /// The value; null when it was cleared.
    pub value: Option<Value>,
    /// The event's time, RFC 3339; null where it had none.
    pub occurred_at: Option<String>,
    /// The source that said it.
    pub source: Option<String>,
    /// That source's trust when it said it; null where trust plays no part.
    pub trust: Option<u8>,
}

/// State of a lead at one destination.
#[derive(Debug, Serialize)]
pub struct DestinationView {
    /// Name in the configuration.
    pub name: String,
    /// `due`, `leased`, `synced` or `parked`.
    pub state: String,
    /// Version the CRM should have.
    pub wanted_version: i64,
    /// Version it last confirmed.
    pub confirmed_version: Option<i64>,
    /// Its id there.
    pub remote_id: Option<String>,
    /// Failed attempts since the last success.
    pub attempts: i32,
    /// When it is tried next, RFC 3339.
    pub next_attempt_at: Option<String>,
    /// What went wrong last.
    pub last_error: Option<LastErrorView>,
    /// Properties that the CRM refused and that were left out of the last push.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped_fields: Vec<Dropped>,
}

/// What went wrong last.
#[derive(Debug, Serialize)]
pub struct LastErrorView {
    /// `record`, `slow_down`, `unavailable`, `unknown`, `credentials` or `misconfigured`.
    pub kind: String,
    /// The CRM's code.
    pub code: Option<String>,
    /// The CRM's words.
    pub message: Option<String>,
}

/// `leadsync status`.
#[derive(Debug, Serialize)]
pub struct StatusView {
    /// Leads.
    pub leads: i64,
    /// Per source.
    pub sources: Vec<SourceStatus>,
    /// Rejected deliveries by cause, most frequent first, at most 20.
    pub rejected: Vec<RejectedStatus>,
    /// Per source that sends only ids.
    pub fetches: Vec<FetchStatus>,
    /// Per destination.
    pub destinations: Vec<DestinationStatus>,
    /// Parked leads by cause, most frequent first, at most 20.
    pub parked: Vec<ParkedStatus>,
    /// Properties that were left out of pushes, by cause, most frequent first, at most 20.
    pub dropped: Vec<DroppedStatus>,
}

/// One source in `status`.
#[derive(Debug, Serialize)]
pub struct SourceStatus {
    /// Name.
    pub source: String,
    /// Distinct deliveries in the archive.
    pub deliveries: i64,
    /// Further copies of them.
    pub repeats: i64,
    /// When the last one came, RFC 3339.
    pub newest: Option<String>,
}

/// One cause of rejection in `status`.
#[derive(Debug, Serialize)]
pub struct RejectedStatus {
    /// Source.
    pub source: String,
    /// Stable word.
    pub reason: Option<String>,
    /// How many.
    pub deliveries: i64,
    /// When the last one came, RFC 3339.
    pub newest: Option<String>,
}

/// One destination in `status`.
#[derive(Debug, Serialize)]
pub struct DestinationStatus {
    /// Name.
    pub destination: String,
    /// Whether changed leads are marked due for it.
    pub active: bool,
    /// Leads to push, leased ones included.
    pub due: i64,
    /// Leads being pushed.
    pub leased: i64,
    /// Leads in sync.
    pub synced: i64,
    /// Leads the CRM refused.
    pub parked: i64,
    /// Age of the change that waits longest, in seconds.
    pub oldest_due_seconds: Option<f64>,
    /// Failed calls in a row.
    pub failures: i32,
    /// Why no calls are made, when none are.
    pub paused: Option<PausedStatus>,
    /// The newest error: kind, code, message, at.
    pub last_error: Option<Value>,
}

/// Why a destination is paused.
#[derive(Debug, Serialize)]
pub struct PausedStatus {
    /// `credentials`, `misconfigured`, `slow_down` or `unavailable`.
    pub kind: Option<String>,
    /// The CRM's code.
    pub code: Option<String>,
    /// The CRM's words.
    pub message: Option<String>,
}

/// One cause of parking in `status`.
#[derive(Debug, Serialize)]
pub struct ParkedStatus {
    /// Destination.
    pub destination: String,
    /// The CRM's code.
    pub code: Option<String>,
    /// The CRM's words, of the newest one.
    pub message: Option<String>,
    /// How many.
    pub leads: i64,
}

/// One cause of leaving a property out in `status`.
#[derive(Debug, Serialize)]
pub struct DroppedStatus {
    /// Destination.
    pub destination: String,
    /// The CRM's property.
    pub property: Option<String>,
    /// The CRM's code.
    pub code: Option<String>,
    /// How many leads are there without it.
    pub leads: i64,
}

/// RFC 3339 in UTC.
fn rfc3339(at: SystemTime) -> Option<String> {
    Timestamp::from_microsecond(micros(at)).ok().map(|t| t.to_string())
}

pub(super) fn time(row: &Row, column: &str) -> Result<Option<String>, StoreError> {
    Ok(row.try_get::<_, Option<SystemTime>>(column)?.and_then(rfc3339))
}

fn occurred_at(stamp: i64) -> Option<String> {
    let (_, at) = read_stamp(stamp);
    Timestamp::from_microsecond(at?).ok().map(|t| t.to_string())
}

async fn names(client: &Object) -> Result<BTreeMap<i16, String>, StoreError> {
    let names = client.prepare_cached(SOURCE_NAMES).await?;
    let rows = client.query(&names, &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

impl Store {
    /// The lead of that address with origins and sync state.
    pub async fn lead_view(&self, email: &Email) -> Result<Option<LeadView>, StoreError> {
        let client = self.receive().await?;
        let find = client.prepare_cached(FIND).await?;
        let Some(row) = client.query_opt(&find, &[&email.as_str()]).await? else { return Ok(None) };
        let names = names(&client).await?;
        let lead_id: Uuid = row.try_get("lead_id")?;
        let destinations = client.prepare_cached(DESTINATIONS).await?;
        let destinations = client.query(&destinations, &[&lead_id]).await?;
        Ok(Some(LeadView {
            lead_id,
            email: row.try_get("email")?,
            version: row.try_get("version")?,
            lead: columns(&row)?,
            origin: origins(&row, &names)?,
            destinations: destinations.iter().map(destination_view).collect::<Result<_, _>>()?,
        }))
    }

    /// Every source that anything ever came from, or that is configured, by name.
    pub async fn source_names(&self) -> Result<Vec<String>, StoreError> {
        let mut names: Vec<String> = names(&self.receive().await?).await?.into_values().collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The state of everything.
    pub async fn status(&self) -> Result<StatusView, StoreError> {
        let leads = self.count_leads().await?;
        let fetches = self.fetch_statuses().await?;
        let client = self.receive().await?;
        let sources = client.query(TOTALS, &[]).await?;
        let rejected = client.query(REJECTED, &[]).await?;
        let destinations = client.query(BACKLOG, &[]).await?;
        let parked = client.query(PARKED, &[]).await?;
        let dropped = client.query(DROPPED, &[]).await?;
        Ok(StatusView {
            leads,
            sources: sources
                .iter()
                .map(|row| {
                    Ok(SourceStatus {
                        source: row.try_get("source")?,
                        deliveries: row.try_get("deliveries")?,
                        repeats: row.try_get("repeats")?,
                        newest: time(row, "newest")?,
                    })
                })
                .collect::<Result<_, StoreError>>()?,
            rejected: rejected
                .iter()
                .map(|row| {
                    Ok(RejectedStatus {
                        source: row.try_get("source")?,
                        reason: row.try_get("reason")?,
                        deliveries: row.try_get("deliveries")?,
                        newest: time(row, "newest")?,
                    })
                })
                .collect::<Result<_, StoreError>>()?,
            fetches,
            destinations: destinations.iter().map(destination_status).collect::<Result<_, _>>()?,
            parked: parked
                .iter()
                .map(|row| {
                    Ok(ParkedStatus {
                        destination: row.try_get("destination")?,
                        code: row.try_get("code")?,
                        message: row.try_get("message")?,
                        leads: row.try_get("leads")?,
                    })
                })
                .collect::<Result<_, StoreError>>()?,
            dropped: dropped
                .iter()
                .map(|row| {
                    Ok(DroppedStatus {
                        destination: row.try_get("destination")?,
                        property: row.try_get("property")?,
                        code: row.try_get("code")?,
                        leads: row.try_get("leads")?,
                    })
                })
                .collect::<Result<_, StoreError>>()?,
        })
    }
}

/// Why no calls are made, when none are.
pub(super) fn paused(row: &Row) -> Result<Option<PausedStatus>, StoreError> {
    let paused = PausedStatus {
        kind: row.try_get("pause_kind")?,
        code: row.try_get("pause_code")?,
        message: row.try_get("pause_message")?,
    };
    Ok(row.try_get::<_, bool>("paused")?.then_some(paused))
}

fn destination_status(row: &Row) -> Result<DestinationStatus, StoreError> {
    Ok(DestinationStatus {
        destination: row.try_get("name")?,
        active: row.try_get("active")?,
        due: row.try_get("due")?,
        leased: row.try_get("leased")?,
        synced: row.try_get("synced")?,
        parked: row.try_get("parked")?,
        oldest_due_seconds: row.try_get("oldest_due_seconds")?,
        failures: row.try_get("failures")?,
        paused: paused(row)?,
        last_error: row.try_get("last_error")?,
    })
}

fn destination_view(row: &Row) -> Result<DestinationView, StoreError> {
    let kind: Option<String> = row.try_get("last_error_kind")?;
    let code = row.try_get("last_error_code")?;
    let message = row.try_get("last_error_message")?;
    Ok(DestinationView {
        name: row.try_get("destination")?,
        state: row.try_get("state")?,
        wanted_version: row.try_get("wanted_version")?,
        confirmed_version: row.try_get("confirmed_version")?,
        remote_id: row.try_get("remote_id")?,
        attempts: row.try_get("attempts")?,
        next_attempt_at: time(row, "next_attempt_at")?,
        last_error: kind.map(|kind| LastErrorView { kind, code, message }),
        dropped_fields: dropped(row)?,
    })
}

fn columns(row: &Row) -> Result<BTreeMap<&'static str, Value>, StoreError> {
    let mut lead = BTreeMap::new();
    let mut put = |name, value: Option<Value>| {
        if let Some(value) = value {
            lead.insert(name, value);
        }
    };
    for field in Field::ALL {
        put(field.name(), row.try_get::<_, Option<String>>(field.name())?.map(Value::String));
    }
    put("email_as_typed", row.try_get::<_, Option<String>>("email_as_typed")?.map(Value::String));
    put("marketing_consent", row.try_get::<_, Option<bool>>("marketing_consent")?.map(Value::Bool));
    let touch = first_touch(row)?;
    let touches = [
        ("first_source", touch.source),
        ("utm_source", touch.utm_source),
        ("utm_medium", touch.utm_medium),
        ("utm_campaign", touch.utm_campaign),
        ("utm_term", touch.utm_term),
        ("utm_content", touch.utm_content),
        ("landing_page", touch.landing_page),
        ("last_source", row.try_get("last_source")?),
    ];
    for (name, value) in touches {
        put(name, value.map(Value::String));
    }
    for name in ["first_seen_at", "last_seen_at", "created_at", "updated_at"] {
        put(name, time(row, name)?.map(Value::String));
    }
    let tags = tag_names(row.try_get("tags")?);
    put("tags", (!tags.is_empty()).then(|| tags.into_iter().map(Value::String).collect()));
    let attributes: serde_json::Map<_, _> = attribute_registers(row.try_get("attributes")?)
        .into_iter()
        .filter_map(|(name, register)| Some((name, Value::String(register.value?))))
        .collect();
    put("attributes", (!attributes.is_empty()).then_some(Value::Object(attributes)));
    Ok(lead)
}

fn origins(
    row: &Row,
    names: &BTreeMap<i16, String>,
) -> Result<BTreeMap<String, Origin>, StoreError> {
    let mut origins = BTreeMap::new();
    for field in Field::ALL {
        let name = field.name();
        let Some(stamp) = row.try_get::<_, Option<i64>>(&*format!("{name}_stamp"))? else {
            continue;
        };
        let source: Option<i16> = row.try_get(&*format!("{name}_source"))?;
        let value: Option<String> = row.try_get(name)?;
        let origin = Origin {
            value: value.map(Value::String),
            occurred_at: occurred_at(stamp),
            source: source.and_then(|s| names.get(&s).cloned()),
            // The furthest rule has the rank of the stage where others have trust.
            trust: (field.rule() == Rule::Newest).then(|| read_stamp(stamp).0),
        };
        origins.insert(name.to_owned(), origin);
    }
    for (name, register) in attribute_registers(row.try_get("attributes")?) {
        let origin = Origin {
            value: register.value.map(Value::String),
            occurred_at: occurred_at(register.stamp),
            source: names.get(&register.source).cloned(),
            trust: Some(read_stamp(register.stamp).0),
        };
        origins.insert(format!("attributes.{name}"), origin);
    }
    if let Some(granted) = row.try_get::<_, Option<bool>>("marketing_consent")? {
        let (decisive, other) = match granted {
            false => ("out", "out"),
            true => ("proven", "in"),
        };
        let read = |which: &str| -> Result<Option<(i64, Option<i16>)>, StoreError> {
            let stamp: Option<i64> = row.try_get(&*format!("consent_{which}_stamp"))?;
            let source = row.try_get(&*format!("consent_{which}_source"))?;
            Ok(stamp.map(|stamp| (stamp, source)))
        };
        if let Some((stamp, source)) = read(decisive)?.or(read(other)?) {
            let origin = Origin {
                value: Some(Value::Bool(granted)),
                occurred_at: occurred_at(stamp),
                source: source.and_then(|s| names.get(&s).cloned()),
                trust: None,
            };
            origins.insert("marketing_consent".to_owned(), origin);
        }
    }
    Ok(origins)
}
