//! Counting repeats: bookkeeping off the path of the answer. A crash loses counts, never leads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::outcome::{details, lead_ids, of_delivery};
use super::{Delivery, ItemOutcome};
use crate::error::Chain;
use crate::stop::Stop;
use crate::store::Store;
use crate::store::deliveries::Repeats;

/// How often counts are written.
const EVERY: Duration = Duration::from_secs(1);

/// Distinct deliveries counted between two writes; more are not counted, to bound memory.
const MOST: usize = 100_000;

/// Counts in one statement, so that each is done well within its time-out.
const AT_ONCE: usize = 5_000;

/// Repeats since the last write, by delivery.
#[derive(Default)]
pub(super) struct RepeatCounter {
    counts: Mutex<HashMap<Uuid, Repeats>>,
    /// Held while counts are written: whoever flushes last also waits for what others are writing, so
    /// that nothing is on its way any more when a service closes its database.
    writing: tokio::sync::Mutex<()>,
}

impl RepeatCounter {
    /// Counts one more copy. A replayed delivery is no new copy, but may have a new outcome.
    pub fn add(&self, delivery: &Delivery, outcomes: &[ItemOutcome]) {
        let outcome = of_delivery(outcomes);
        let copies = i64::from(!delivery.replayed);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= MOST && !counts.contains_key(&delivery.delivery_id) {
            return;
        }
        let count = counts.entry(delivery.delivery_id).or_insert(Repeats {
            delivery_id: delivery.delivery_id,
            copies: 0,
            last_received_at: delivery.received_at,
            outcome,
            lead_ids: Vec::new(),
            items: None,
        });
        count.copies += copies;
        count.last_received_at = count.last_received_at.max(delivery.received_at);
        count.outcome = outcome;
        count.lead_ids = lead_ids(outcomes);
        count.items = details(delivery, outcomes);
    }

    /// Writes what has been counted; keeps it for the next time when that fails.
    pub async fn flush(&self, store: &Store) {
        let _writing = self.writing.lock().await;
        let counts = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *counts)
        };
        let repeats: Vec<Repeats> = counts.into_values().collect();
        let mut rest = repeats.as_slice();
        while !rest.is_empty() {
            let (some, later) = rest.split_at(rest.len().min(AT_ONCE));
            if let Err(error) = store.count_repeats(some).await {
                tracing::warn!("cannot count repeats, trying again later: {}", Chain(&error));
                return self.put_back(rest);
            }
            rest = later;
        }
    }

    /// Counts that could not be written, as far as there is room.
    fn put_back(&self, repeats: &[Repeats]) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for repeat in repeats {
            let room = counts.len() < MOST;
            if let Some(newer) = counts.get_mut(&repeat.delivery_id) {
                newer.copies += repeat.copies;
            } else if room {
                counts.insert(repeat.delivery_id, repeat.clone());
            }
        }
    }
}

/// Writes counts until the service stops, and once more then.
pub(super) async fn keep_counting(counter: Arc<RepeatCounter>, store: Store, stop: Stop) {
    while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
        counter.flush(&store).await;
    }
    counter.flush(&store).await;
}
