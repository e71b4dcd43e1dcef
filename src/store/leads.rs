//! Leads: the upsert's columns, and a lead as it is read for a destination.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Store, StoreError, micros};
use crate::lead::merge::{LeadState, Register};
use crate::lead::{Field, Lead, Touch};

pub(super) const UPSERT: &str = include_str!("../../sql/leads/upsert.sql");
const COUNT: &str = include_str!("../../sql/leads/count.sql");
const ENSURE_MONTHS: &str = include_str!("../../sql/leads/ensure_months.sql");
const DROP_MONTHS: &str = include_str!("../../sql/leads/drop_months.sql");
const IDS: &str = include_str!("../../sql/leads/ids.sql");

/// What the upsert says about one event.
#[derive(Debug)]
pub struct Merged {
    /// The key.
    pub email: String,
    /// `None` where a concurrent transaction made the lead unseen and the event adds nothing to it.
    pub lead_id: Option<Uuid>,
    /// The lead is new.
    pub created: bool,
    /// A value changed (also true for a new lead).
    pub moved: bool,
}

impl Merged {
    pub(super) fn of_row(row: &Row) -> Result<Merged, StoreError> {
        Ok(Merged {
            email: row.try_get("email")?,
            lead_id: row.try_get("lead_id")?,
            created: row.try_get("created")?,
            moved: row.try_get("moved")?,
        })
    }
}

/// Parameter arrays of `upsert.sql`, in its order.
pub(super) struct UpsertColumns<'a> {
    emails: Vec<&'a str>,
    lead_ids: Vec<Uuid>,
    first_seen_at: Vec<Option<SystemTime>>,
    last_seen_at: Vec<Option<SystemTime>>,
    typed_stamps: Vec<Option<i64>>,
    stamps: Vec<Vec<Option<i64>>>,
    consent_stamps: [Vec<Option<i64>>; 3],
    sources: Vec<Vec<Option<i16>>>,
    consent_sources: [Vec<Option<i16>>; 3],
    first_reliable: Vec<bool>,
    last_reliable: Vec<bool>,
    typed: Vec<Option<&'a str>>,
    values: Vec<Vec<Option<&'a str>>>,
    touches: [Vec<Option<&'a str>>; 7],
    last_sources: Vec<Option<&'a str>>,
    tags: Vec<Option<Value>>,
    attributes: Vec<Option<Value>>,
}

fn register_json(register: &Register) -> Value {
    json!([register.stamp, register.source, register.value])
}

fn touch_texts(touch: &Touch) -> [Option<&str>; 7] {
    [
        touch.source.as_deref(),
        touch.utm_source.as_deref(),
        touch.utm_medium.as_deref(),
        touch.utm_campaign.as_deref(),
        touch.utm_term.as_deref(),
        touch.utm_content.as_deref(),
        touch.landing_page.as_deref(),
    ]
}

pub(super) fn upsert_columns(states: &[LeadState]) -> UpsertColumns<'_> {
    let all =
        |pick: &dyn Fn(&LeadState) -> Option<i64>| states.iter().map(pick).collect::<Vec<_>>();
    let consent = |s: &LeadState| [s.consent.opt_out, s.consent.opt_in, s.consent.proven];
    let registers = |i: usize| states.iter().map(move |s| s.fields[i].as_ref());
    UpsertColumns {
        emails: states.iter().map(|s| s.email.as_str()).collect(),
        lead_ids: states.iter().map(|_| Uuid::now_v7()).collect(),
        first_seen_at: states.iter().map(|s| s.first.time.system_time()).collect(),
        last_seen_at: states.iter().map(|s| s.last.time.system_time()).collect(),
        typed_stamps: all(&|s| s.email_as_typed.as_ref().map(|r| r.stamp)),
        stamps: (0..Field::ALL.len())
            .map(|i| registers(i).map(|r| r.map(|r| r.stamp)).collect())
            .collect(),
        consent_stamps: [0, 1, 2].map(|i| all(&|s| consent(s)[i].map(|c| c.0))),
        sources: (0..Field::ALL.len())
            .map(|i| registers(i).map(|r| r.map(|r| r.source)).collect())
            .collect(),
        consent_sources: [0, 1, 2]
            .map(|i| states.iter().map(|s| consent(s)[i].map(|c| c.1)).collect()),
        first_reliable: states.iter().map(|s| s.first.time.reliable).collect(),
        last_reliable: states.iter().map(|s| s.last.time.reliable).collect(),
        typed: states.iter().map(|s| s.email_as_typed.as_ref()?.value.as_deref()).collect(),
        values: (0..Field::ALL.len())
            .map(|i| registers(i).map(|r| r.and_then(|r| r.value.as_deref())).collect())
            .collect(),
        touches: [0, 1, 2, 3, 4, 5, 6]
            .map(|i| states.iter().map(|s| touch_texts(&s.first.touch)[i]).collect()),
        last_sources: states.iter().map(|s| s.last.touch.source.as_deref()).collect(),
        tags: states
            .iter()
            .map(|s| {
                let tags: Map<_, _> =
                    s.tags.iter().map(|t| (t.clone(), Value::Bool(true))).collect();
                (!tags.is_empty()).then_some(Value::Object(tags))
            })
            .collect(),
        attributes: states
            .iter()
            .map(|s| {
                let registers: Map<_, _> =
                    s.attributes.iter().map(|(name, r)| (name.clone(), register_json(r))).collect();
                (!registers.is_empty()).then_some(Value::Object(registers))
            })
            .collect(),
    }
}

impl UpsertColumns<'_> {
    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![
            &self.emails,
            &self.lead_ids,
            &self.first_seen_at,
            &self.last_seen_at,
            &self.typed_stamps,
        ];
        all.extend(self.stamps.iter().map(|c| c as &(dyn ToSql + Sync)));
        all.extend(self.consent_stamps.iter().map(|c| c as &(dyn ToSql + Sync)));
        all.extend(self.sources.iter().map(|c| c as &(dyn ToSql + Sync)));
        all.extend(self.consent_sources.iter().map(|c| c as &(dyn ToSql + Sync)));
        all.push(&self.first_reliable);
        all.push(&self.last_reliable);
        all.push(&self.typed);
        all.extend(self.values.iter().map(|c| c as &(dyn ToSql + Sync)));
        all.extend(self.touches.iter().map(|c| c as &(dyn ToSql + Sync)));
        all.push(&self.last_sources);
        all.push(&self.tags);
        all.push(&self.attributes);
        all
    }
}

/// Attribute registers as stored: `{"budget": [stamp, source, "10k"]}`. What is not one is passed over.
pub(super) fn attribute_registers(stored: Option<Value>) -> BTreeMap<String, Register> {
    let Some(Value::Object(stored)) = stored else { return BTreeMap::new() };
    stored
        .into_iter()
        .filter_map(|(name, register)| {
            let parts = register.as_array()?;
            let source = i16::try_from(parts.get(1)?.as_i64()?).ok()?;
            let value = parts.get(2)?.as_str().map(str::to_owned);
            Some((name, Register { stamp: parts.first()?.as_i64()?, value, source }))
        })
        .collect()
}

/// Tags as stored: the keys of an object.
pub(super) fn tag_names(stored: Option<Value>) -> BTreeSet<String> {
    match stored {
        Some(Value::Object(tags)) => tags.into_iter().map(|(tag, _)| tag).collect(),
        _ => BTreeSet::new(),
    }
}

/// The first touch in a row.
pub(super) fn first_touch(row: &Row) -> Result<Touch, StoreError> {
    Ok(Touch {
        source: row.try_get("first_source")?,
        utm_source: row.try_get("utm_source")?,
        utm_medium: row.try_get("utm_medium")?,
        utm_campaign: row.try_get("utm_campaign")?,
        utm_term: row.try_get("utm_term")?,
        utm_content: row.try_get("utm_content")?,
        landing_page: row.try_get("landing_page")?,
    })
}

/// The lead in a row of `claim.sql` or `preview.sql`.
pub(super) fn lead_of_row(row: &Row) -> Result<Lead, StoreError> {
    let mut fields = BTreeMap::new();
    for field in Field::ALL {
        let name = field.name();
        if row.try_get::<_, bool>(&*format!("{name}_set"))? {
            fields.insert(field, row.try_get::<_, Option<String>>(name)?);
        }
    }
    Ok(Lead {
        lead_id: row.try_get("lead_id")?,
        email: row.try_get("email")?,
        version: row.try_get("version")?,
        fields,
        marketing_consent: row.try_get("marketing_consent")?,
        tags: tag_names(row.try_get("tags")?),
        attributes: attribute_registers(row.try_get("attributes")?)
            .into_iter()
            .map(|(name, register)| (name, register.value))
            .collect(),
        first_touch: first_touch(row)?,
        first_seen_at: row.try_get::<_, Option<SystemTime>>("first_seen_at")?.map(micros),
    })
}

impl Store {
    /// How many leads there are.
    pub async fn count_leads(&self) -> Result<i64, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(COUNT).await?;
        Ok(client.query_one(&statement, &[]).await?.try_get(0)?)
    }

    /// Makes the history's partitions of this month and the next two, and drops those whose every change is older than
    /// `keep`.
    pub async fn maintain_history(&self, keep: Duration) -> Result<(), StoreError> {
        let client = self.receive().await?;
        client.query_one(ENSURE_MONTHS, &[]).await?;
        client.query_one(DROP_MONTHS, &[&keep.as_secs_f64()]).await?;
        Ok(())
    }

    /// Ids of the leads of these addresses.
    pub async fn lead_ids(&self, emails: &[String]) -> Result<BTreeMap<String, Uuid>, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(IDS).await?;
        let rows = client.query(&statement, &[&emails]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }
}
