//! Group commit: what waits while a group is written becomes the next group. An idle service writes at once.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::outcome::{Event, archived, item_outcomes};
use super::repeats::RepeatCounter;
use super::{Delivery, ItemOutcome, Job, RETRY_AFTER, ReceiveError, Settings};
use crate::config::Untimed;
use crate::error::Chain;
use crate::lead::Micros;
use crate::lead::merge::{EventTime, LeadState, Origin};
use crate::sources::Item;
use crate::store::fetches::Want;
use crate::store::leads::Merged;
use crate::store::{Store, StoreError};

/// Leads in one group: enough to share the cost of a commit (measured: CPU per row falls ninefold up
/// to 100 rows, little after), few enough to answer soon.
const GROUP_LEADS: usize = 512;

/// Deadlocks and broken connections are retried this often before the group is split or refused.
const TRIES: u32 = 3;

/// A group that waited too long is tried again in so many parts: with halves, those beside a locked lead
/// would wait for the limit of a lock nine times.
const PARTS: usize = 8;

/// How far ahead of ours a sender's clock may be when it says that something changed, in microseconds.
const CLOCKS_APART: Micros = 3_600 * 1_000_000;

/// How long parts are tried again, well below `http.request_timeout`. Where the whole table is locked,
/// every part of every part would wait.
const PATIENCE: Duration = Duration::from_secs(12);

/// One group-commit writer.
pub(super) struct Writer {
    pub store: Store,
    pub settings: Settings,
    pub repeats: std::sync::Arc<RepeatCounter>,
    pub changed: watch::Sender<u64>,
    /// Told after every commit with something new to read at a source.
    pub wanted: watch::Sender<u64>,
}

impl Writer {
    /// Writes groups until the last sender is gone.
    pub async fn run(self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.recv().await {
            let mut leads = first.delivery.items.len();
            let mut group = vec![first];
            while leads < GROUP_LEADS
                && let Ok(job) = queue.try_recv()
            {
                leads += job.delivery.items.len();
                group.push(job);
            }
            // A panic over one group must not end the writer, to which all later deliveries of the same
            // e-mails would go. Its jobs are dropped, so their senders are told to come back.
            if AssertUnwindSafe(self.write(group)).catch_unwind().await.is_err() {
                tracing::error!("storing a group of deliveries panicked");
            }
        }
    }

    /// Writes a group and answers each of its jobs. A delivery that the database refuses harms only
    /// itself: the group is halved until it stands alone. So does one whose lead somebody has locked, or
    /// takes too long: its group is tried again in parts, after all others.
    async fn write(&self, group: Vec<Job>) {
        let began = Instant::now();
        let mut groups = VecDeque::from([group]);
        while let Some(mut group) = groups.pop_front() {
            let deliveries: Vec<&Delivery> = group.iter().map(|job| &job.delivery).collect();
            match self.commit_with_retries(&deliveries).await {
                Ok(outcomes) => {
                    for (job, outcomes) in group.into_iter().zip(outcomes) {
                        // The sender may have hung up; its delivery is stored all the same.
                        let _ = job.reply.send(Ok(outcomes));
                    }
                }
                Err(StoreError::Refused(_) | StoreError::Retry(_)) if group.len() > 1 => {
                    let rest = group.split_off(group.len() / 2);
                    groups.push_front(rest);
                    groups.push_front(group);
                }
                Err(StoreError::TimedOut(error)) if began.elapsed() < PATIENCE => {
                    let deliveries = group.len();
                    tracing::warn!(
                        deliveries,
                        "storing a group took too long, trying again in parts: {}",
                        Chain(&*error)
                    );
                    let size = deliveries.div_ceil(PARTS);
                    while !group.is_empty() {
                        let rest = group.split_off(size.min(group.len()));
                        groups.push_back(std::mem::replace(&mut group, rest));
                    }
                }
                Err(error) => {
                    let ids: Vec<Uuid> = group.iter().map(|j| j.delivery.delivery_id).collect();
                    tracing::error!(delivery.ids = ?ids, "cannot store deliveries: {}", Chain(&error));
                    // Out of patience: what is left would wait as long.
                    let left = match error {
                        StoreError::TimedOut(_) => groups.drain(..).flatten().collect(),
                        _ => Vec::new(),
                    };
                    for job in group.into_iter().chain(left) {
                        let _ = job.reply.send(Err(ReceiveError::Unavailable(RETRY_AFTER)));
                    }
                }
            }
        }
    }

    async fn commit_with_retries(
        &self,
        deliveries: &[&Delivery],
    ) -> Result<Vec<Vec<ItemOutcome>>, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.commit(deliveries).await {
                // A commit in doubt is retried too: the same events again change nothing.
                Err(StoreError::Retry(error) | StoreError::Unavailable(error)) if tries < TRIES => {
                    tracing::warn!(
                        tries,
                        "storing a group failed, trying again: {}",
                        Chain(&*error)
                    );
                    let jitter = rand::random_range(5..50) * u64::from(tries);
                    tokio::time::sleep(Duration::from_millis(jitter)).await;
                }
                other => return other,
            }
        }
    }

    async fn commit(&self, deliveries: &[&Delivery]) -> Result<Vec<Vec<ItemOutcome>>, StoreError> {
        let mut connection = self.store.group_connection().await?;
        let tx = connection.begin().await?;
        let untimed: Vec<Uuid> =
            deliveries.iter().filter(|d| needs_first_receipt(d)).map(|d| d.delivery_id).collect();
        // A time that was ahead of the first copy's receipt is not ahead of a later one's. A copy that is
        // written at this very moment by another instance was received at this very moment, too: no lock.
        let timed: Vec<Uuid> =
            deliveries.iter().filter(|d| has_a_time(d)).map(|d| d.delivery_id).collect();
        let archive = tx.first_receipts(&untimed, &timed).await?;
        let receipts = first_receipts(deliveries, archive);
        let mut events: Vec<Event> = Vec::new();
        for (at, delivery) in deliveries.iter().enumerate() {
            let first_receipt = receipts[&delivery.delivery_id];
            for (item, lead) in delivery.items.iter().enumerate() {
                if let Item::Lead(patch) = lead {
                    let stated = patch.occurred_at;
                    let time = self.time_of(delivery, item, stated, first_receipt);
                    let speaker = &delivery.speaker;
                    let origin = Origin {
                        source_name: &speaker.name,
                        source: speaker.source,
                        trust: speaker.trust,
                        time,
                    };
                    let state = LeadState::of_event((**patch).clone(), origin);
                    events.push(Event { delivery: at, item, state });
                }
            }
        }
        let folds = fold(&events);
        let mut merged: HashMap<String, Merged> = HashMap::new();
        if !folds.is_empty() {
            let states: Vec<LeadState> = folds.values().cloned().collect();
            merged = tx.upsert(&states).await?.into_iter().map(|m| (m.email.clone(), m)).collect();
        }
        let wanted = wanted(deliveries);
        let news = match wanted.is_empty() {
            true => 0,
            false => tx.want(&wanted).await?,
        };
        let mut outcomes = item_outcomes(deliveries, &events, &folds, &merged);
        let mut distinct = HashSet::new();
        let rows: Vec<_> = deliveries
            .iter()
            .zip(&outcomes)
            .filter(|(d, _)| !d.replayed && distinct.insert(d.delivery_id))
            .map(|(d, outcomes)| archived(d, outcomes, self.settings.keep_bodies))
            .collect();
        let mut new = match rows.is_empty() {
            true => HashSet::new(),
            false => tx.record(&rows).await?,
        };
        tx.commit().await?;
        for (delivery, outcomes) in deliveries.iter().zip(&outcomes) {
            // The first of the group that is new is the archived copy; every other one is a repeat.
            if !new.remove(&delivery.delivery_id) {
                self.repeats.add(delivery, outcomes);
            }
        }
        if merged.values().any(|m| m.moved) {
            self.changed.send_modify(|n| *n = n.wrapping_add(1));
        }
        if news > 0 {
            self.wanted.send_modify(|n| *n = n.wrapping_add(1));
        }
        self.name_unseen(deliveries, &mut outcomes).await;
        Ok(outcomes)
    }

    /// When an event happened, for the merge.
    fn time_of(
        &self,
        delivery: &Delivery,
        item: usize,
        stated: Option<Micros>,
        first_receipt: Micros,
    ) -> EventTime {
        let later = match delivery.lines {
            true => i64::try_from(item).unwrap_or(0),
            false => 0,
        };
        match (stated, delivery.speaker.untimed) {
            (Some(at), _) => {
                EventTime::stated(at, first_receipt, self.settings.leads.future_tolerance)
            }
            (None, Untimed::FirstReceipt) => EventTime::measured(first_receipt + later),
            (None, Untimed::LastArrival) => EventTime::measured(delivery.received_at + later),
            (None, Untimed::FillOnly) => EventTime::UNKNOWN,
        }
    }

    /// Ids of leads that another transaction made between our snapshot and our insert: rare, and the
    /// leads are committed, so failing to name them fails nothing.
    async fn name_unseen(&self, deliveries: &[&Delivery], outcomes: &mut [Vec<ItemOutcome>]) {
        let mut unnamed: Vec<(usize, usize, String)> = Vec::new();
        for (at, delivery) in deliveries.iter().enumerate() {
            for (item, lead) in delivery.items.iter().enumerate() {
                if let Item::Lead(patch) = lead
                    && outcomes[at][item].lead_id.is_none()
                {
                    unnamed.push((at, item, patch.email.as_str().to_owned()));
                }
            }
        }
        if unnamed.is_empty() {
            return;
        }
        let emails: Vec<String> = unnamed.iter().map(|(.., email)| email.clone()).collect();
        match self.store.lead_ids(&emails).await {
            Ok(ids) => {
                for (at, item, email) in unnamed {
                    outcomes[at][item].lead_id = ids.get(&email).copied();
                }
            }
            Err(error) => tracing::warn!("cannot name leads just stored: {}", Chain(&error)),
        }
    }
}

/// What the deliveries tell of without saying what it is.
fn wanted(deliveries: &[&Delivery]) -> Vec<Want> {
    let notices = deliveries.iter().flat_map(|delivery| {
        delivery.items.iter().filter_map(|item| match item {
            Item::Notice(notice) => Some(Want {
                source: delivery.speaker.name.to_string(),
                object: notice.object,
                remote_id: notice.remote_id.clone(),
                // One that says it will come would hide all that come before it.
                changed_at: notice
                    .changed_at
                    .map(|at| at.min(delivery.received_at.saturating_add(CLOCKS_APART))),
                deleted: notice.deleted,
            }),
            _ => None,
        })
    });
    notices.collect()
}

fn needs_first_receipt(delivery: &Delivery) -> bool {
    delivery.speaker.untimed == Untimed::FirstReceipt
        && delivery
            .items
            .iter()
            .any(|item| matches!(item, Item::Lead(patch) if patch.occurred_at.is_none()))
}

/// Whether the receipt of its first copy judges a stated time. A replayed delivery has it already.
fn has_a_time(delivery: &Delivery) -> bool {
    !delivery.replayed
        && delivery
            .items
            .iter()
            .any(|item| matches!(item, Item::Lead(patch) if patch.occurred_at.is_some()))
}

/// Receipt of the first copy of each delivery: the archive's, else that of the first in the group, which
/// is the one about to be archived. Never an earlier one of a copy that waited longer: later copies and
/// replays count with what the archive says, and all of them must say the same.
fn first_receipts(
    deliveries: &[&Delivery],
    archive: HashMap<Uuid, Micros>,
) -> HashMap<Uuid, Micros> {
    let mut receipts = archive;
    for delivery in deliveries {
        receipts.entry(delivery.delivery_id).or_insert(delivery.received_at);
    }
    receipts
}

/// One state per e-mail, in bytewise order of e-mails.
fn fold(events: &[Event]) -> BTreeMap<&str, LeadState> {
    let mut folds: BTreeMap<&str, LeadState> = BTreeMap::new();
    for event in events {
        match folds.get_mut(event.state.email.as_str()) {
            Some(fold) => fold.join(event.state.clone()),
            None => {
                folds.insert(event.state.email.as_str(), event.state.clone());
            }
        }
    }
    folds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receive::Speaker;

    fn copy(delivery_id: Uuid, received_at: Micros) -> Delivery {
        let speaker =
            Speaker { name: "s".into(), source: 1, trust: 50, untimed: Untimed::FirstReceipt };
        Delivery {
            speaker,
            delivery_id,
            received_at,
            items: Vec::new(),
            query: String::new(),
            headers: Vec::new(),
            body: bytes::Bytes::new(),
            idempotency_key: None,
            replayed: false,
            lines: false,
        }
    }

    /// Copies overtake each other on their way to the writers. Whatever the first one to be archived
    /// says is when all of them were received.
    #[test]
    fn the_archived_copy_says_when() {
        let (known, new) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let group = [copy(known, 10), copy(new, 40), copy(new, 30), copy(known, 50)];
        let receipts = first_receipts(&group.each_ref(), HashMap::from([(known, 20)]));
        assert_eq!(receipts, HashMap::from([(known, 20), (new, 40)]));
    }
}
