//! What became of each event of a group, and the row that the archive keeps of each delivery.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Delivery, ItemOutcome};
use crate::lead::Outcome;
use crate::lead::merge::LeadState;
use crate::sources::{Item, Notice};
use crate::store::deliveries::Archived;
use crate::store::leads::Merged;

/// One event of a group: which delivery and item it is of, and what it amounts to.
pub(super) struct Event {
    pub delivery: usize,
    pub item: usize,
    pub state: LeadState,
}

/// Outcomes by delivery and item. The statement says what became of the fold; within a fold, an event
/// counts as an update when it gave the fold something that stands, and as a repeat otherwise.
pub(super) fn item_outcomes(
    deliveries: &[&Delivery],
    events: &[Event],
    folds: &BTreeMap<&str, LeadState>,
    merged: &HashMap<String, Merged>,
) -> Vec<Vec<ItemOutcome>> {
    let mut outcomes: Vec<Vec<ItemOutcome>> =
        deliveries.iter().map(|d| d.items.iter().map(without_lead).collect()).collect();
    let mut before: HashMap<&str, LeadState> = HashMap::new();
    for event in events {
        let email = event.state.email.as_str();
        let Some(result) = merged.get(email) else { continue };
        let earlier = before.get_mut(email);
        let outcome = if !result.moved {
            Outcome::Unchanged
        } else if earlier.is_none() && result.created {
            Outcome::Created
        } else if folds.get(email).is_some_and(|f| f.owes_to(&event.state, earlier.as_deref())) {
            Outcome::Updated
        } else {
            Outcome::Unchanged
        };
        outcomes[event.delivery][event.item] =
            ItemOutcome { outcome, lead_id: result.lead_id, reason: None };
        match earlier {
            Some(earlier) => earlier.join(event.state.clone()),
            None => {
                before.insert(email, event.state.clone());
            }
        }
    }
    outcomes
}

fn without_lead(item: &Item) -> ItemOutcome {
    let (outcome, reason) = match item {
        Item::Lead(_) => (Outcome::Unchanged, None),
        Item::Ignored(reason) => (Outcome::Ignored, Some(reason.clone())),
        Item::Rejected { reason, .. } => (Outcome::Rejected, Some(reason.clone())),
        Item::Notice(Notice { deleted: false, .. }) => (Outcome::Queued, None),
        Item::Notice(_) => (Outcome::Ignored, Some("deleted".to_owned())),
    };
    ItemOutcome { outcome, lead_id: None, reason }
}

/// The outcome of a delivery of several leads: the first of created, updated, unchanged, queued, rejected, ignored.
pub(super) fn of_delivery(outcomes: &[ItemOutcome]) -> Outcome {
    outcomes.iter().map(|o| o.outcome).min().unwrap_or(Outcome::Ignored)
}

/// The leads that a delivery speaks about, each once.
pub(super) fn lead_ids(outcomes: &[ItemOutcome]) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = outcomes.iter().filter_map(|o| o.lead_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The row of the archive.
pub(super) fn archived(
    delivery: &Delivery,
    outcomes: &[ItemOutcome],
    keep_bodies: bool,
) -> Archived {
    let outcome = of_delivery(outcomes);
    let any_rejected = outcomes.iter().any(|o| o.outcome == Outcome::Rejected);
    let headers: Map<_, _> =
        delivery.headers.iter().map(|(n, v)| (n.clone(), json!(v.replace('\0', "")))).collect();
    Archived {
        delivery_id: delivery.delivery_id,
        received_at: delivery.received_at,
        source: delivery.speaker.name.to_string(),
        outcome,
        reason: outcomes.iter().filter(|o| o.outcome == outcome).find_map(|o| o.reason.clone()),
        lead_ids: lead_ids(outcomes),
        items: details(delivery, outcomes),
        idempotency_key: delivery.idempotency_key.clone(),
        query: (!delivery.query.is_empty()).then(|| delivery.query.replace('\0', "")),
        headers: (!headers.is_empty()).then_some(Value::Object(headers)),
        body: (keep_bodies || any_rejected).then(|| delivery.body.clone()),
        body_bytes: delivery.body.len(),
    }
}

/// Per-lead detail, only where there is more to say than one outcome.
pub(super) fn details(delivery: &Delivery, outcomes: &[ItemOutcome]) -> Option<Value> {
    let told = |item: &Item| match item {
        Item::Lead(patch) => !patch.field_errors.is_empty(),
        Item::Rejected { .. } | Item::Notice(_) => true,
        Item::Ignored(_) => false,
    };
    if delivery.items.len() < 2 && !delivery.items.iter().any(told) {
        return None;
    }
    let details = delivery.items.iter().zip(outcomes).map(|(item, outcome)| {
        let mut detail = json!({ "outcome": outcome.outcome.name() });
        if let Some(reason) = &outcome.reason {
            detail["reason"] = json!(reason);
        }
        match item {
            Item::Lead(patch) if !patch.field_errors.is_empty() => {
                detail["field_errors"] = json!(patch.field_errors);
            }
            // The words may name a member of the body, and jsonb takes no NUL.
            Item::Rejected { detail: words, .. } => {
                detail["detail"] = json!(words.replace('\0', ""));
            }
            Item::Notice(notice) => detail["remote_id"] = json!(notice.remote_id),
            _ => {}
        }
        detail
    });
    Some(details.collect())
}
