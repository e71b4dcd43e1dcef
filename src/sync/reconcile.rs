//! Compares a CRM with the table: contacts that are missing, deleted, moved, doubled or different. Reports; repairs
//! only by marking leads due, never by merging or deleting.

use std::collections::HashMap;

use serde::Serialize;
use uuid::Uuid;

use super::answer::{is_id, log_pause};
use super::attempt::prepare;
use super::call::Cost;
use super::{Configured, Syncer};
use crate::config::{Deleted, Write};
use crate::destinations::{CallError, Page, Remote};
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::reconcile::{Run, Seen};

/// Leads or e-mails looked at in one go after the listing.
const PAGE: i64 = 500;

/// Calls that may fail in a row before it is given up.
const PATIENCE: u32 = 8;

/// Something that is not as the table says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// The lead has no contact, and none was ever remembered.
    Missing {
        /// The lead.
        lead_id: Uuid,
        /// Its e-mail.
        email: String,
    },
    /// The remembered contact is not there any more.
    Deleted {
        /// The lead.
        lead_id: Uuid,
        /// Its e-mail.
        email: String,
        /// The id that it had.
        remote_id: String,
    },
    /// The remembered contact is not there any more, but another one with the e-mail is: merged, or made by somebody.
    Moved {
        /// The lead.
        lead_id: Uuid,
        /// Its e-mail.
        email: String,
        /// The id that it had.
        remote_id: String,
        /// Contacts with the e-mail.
        others: Vec<String>,
    },
    /// The contact has other values.
    Differs {
        /// The lead.
        lead_id: Uuid,
        /// Its e-mail.
        email: String,
        /// The contact.
        remote_id: String,
        /// Property by property.
        properties: Vec<Difference>,
    },
    /// Several contacts have the e-mail of one lead. It is for people to merge them.
    Doubled {
        /// The e-mail.
        email: String,
        /// The contacts.
        remote_ids: Vec<String>,
    },
}

/// One property that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The CRM's property.
    pub property: String,
    /// What the table has; `None`: cleared.
    pub here: Option<String>,
    /// What the CRM has; `None`: blank.
    pub there: Option<String>,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Contacts listed, those of nobody here included.
    pub contacts: u64,
    /// Leads in sync that were compared with their contact.
    pub compared: u64,
    /// Findings of each kind.
    pub missing: u64,
    /// See [`Finding::Deleted`].
    pub deleted: u64,
    /// See [`Finding::Moved`].
    pub moved: u64,
    /// See [`Finding::Differs`].
    pub differing: u64,
    /// See [`Finding::Doubled`].
    pub doubled: u64,
    /// Leads marked due.
    pub repaired: u64,
}

impl Summary {
    /// Whether the CRM is as the table says.
    pub fn is_clean(&self) -> bool {
        self.missing + self.deleted + self.moved + self.differing + self.doubled == 0
    }

    fn count(&mut self, finding: &Finding) {
        match finding {
            Finding::Missing { .. } => self.missing += 1,
            Finding::Deleted { .. } => self.deleted += 1,
            Finding::Moved { .. } => self.moved += 1,
            Finding::Differs { .. } => self.differing += 1,
            Finding::Doubled { .. } => self.doubled += 1,
        }
    }
}

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The CRM.
    #[error("the CRM does not list its contacts: {0}")]
    Call(#[from] CallError),
    /// A finding could not be told.
    #[error("cannot write what was found")]
    Told(#[from] std::io::Error),
    /// Somebody stopped it.
    #[error("stopped before the end")]
    Stopped,
}

/// What a run tells on its way.
pub trait Listener {
    /// So many contacts were listed up to now.
    fn listed(&mut self, contacts: u64);
    /// Something was found.
    fn found(&mut self, finding: &Finding) -> std::io::Result<()>;
}

/// A run that is under way.
struct Running<'a, L> {
    destination: &'a Configured,
    run: Run,
    repair: bool,
    listener: &'a mut L,
    summary: Summary,
}

impl Syncer {
    /// Lists all contacts of a destination and compares them with the leads that are in sync. Pushes under way go on
    /// meanwhile. `repair` marks what can be mended due, behind leads that change.
    pub async fn reconcile(
        &self,
        destination: &Configured,
        repair: bool,
        listener: &mut impl Listener,
        stop: &Stop,
    ) -> Result<Summary, ReconcileError> {
        let run = self.store.reconcile_begin().await?;
        let summary = Summary::default();
        let mut running = Running { destination, run, repair, listener, summary };
        let ended = self.reconcile_all(&mut running, stop).await;
        // A run that failed is forgotten as well; where the database is at fault, the next run does it.
        let forgotten = self.store.reconcile_end(&run).await;
        ended?;
        forgotten?;
        Ok(running.summary)
    }

    async fn reconcile_all<L: Listener>(
        &self,
        running: &mut Running<'_, L>,
        stop: &Stop,
    ) -> Result<(), ReconcileError> {
        let fields = running.destination.fields.iter();
        let compared = fields.filter(|field| field.write == Write::Always);
        let properties: Vec<String> = compared.map(|field| field.property.clone()).collect();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.page(running.destination, cursor.as_deref(), &properties, stop).await?;
            self.compare(running, page.contacts).await?;
            match page.next {
                // One that repeats itself would go round for ever.
                Some(next) if Some(&next) != cursor.as_ref() => cursor = Some(next),
                _ => break,
            }
        }
        self.absent(running).await?;
        self.doubled(running).await
    }

    /// One page, at the pace of the destination, tried again for a while.
    async fn page(
        &self,
        destination: &Configured,
        cursor: Option<&str>,
        properties: &[String],
        stop: &Stop,
    ) -> Result<Page, ReconcileError> {
        let mut failures = 0;
        loop {
            let state = self.state(destination).await?;
            let wait = state.paused_for.max(state.backfill_wait);
            if !wait.is_zero() {
                if self.rest(stop, wait.min(self.settings.poll)).await {
                    return Err(ReconcileError::Stopped);
                }
                continue;
            }
            let cost = Cost { calls: destination.budget.cost, backfill: true };
            let lease = self.settings.lease;
            if !self.turn(destination, cost, state.failures > 0, lease, stop).await? {
                if self.rest(stop, self.settings.poll).await {
                    return Err(ReconcileError::Stopped);
                }
                continue;
            }
            let list = destination.destination.list(cursor, properties);
            let error = match self.within_deadline(list, stop).await {
                Ok(reply) => {
                    if state.failures > 0 {
                        self.store.recovered(&destination.name).await?;
                    }
                    self.hear(destination, &reply.limits).await;
                    return Ok(reply.value);
                }
                Err(error) => error,
            };
            failures += 1;
            let lasting = matches!(
                error,
                CallError::Refused { .. }
                    | CallError::Credentials { .. }
                    | CallError::Misconfigured { .. }
            );
            if lasting || failures >= PATIENCE {
                return Err(error.into());
            }
            // As after a failed push: all instances wait, then one call probes.
            let probing = state.failures > 0;
            let failed =
                self.settings.failed(Vec::new(), destination, error, state.failures, probing);
            if let Some(pause) = &failed.pause {
                log_pause(destination, pause);
                self.store.pause(&destination.name, pause).await?;
            }
        }
    }

    /// Compares a page of contacts with the leads that they belong to.
    async fn compare<L: Listener>(
        &self,
        running: &mut Running<'_, L>,
        contacts: Vec<Remote>,
    ) -> Result<(), ReconcileError> {
        let destination = running.destination;
        let kept = contacts.into_iter().filter(|c| is_id(&c.id));
        let by_id: HashMap<String, Remote> = kept.map(|c| (c.id.clone(), c)).collect();
        let seen: Vec<Seen> = by_id
            .values()
            .map(|contact| Seen {
                remote_id: contact.id.clone(),
                // The database takes no NUL.
                email: contact.email.clone().filter(|email| !email.contains(char::is_control)),
                archived: contact.archived,
            })
            .collect();
        running.summary.contacts += seen.len() as u64;
        running.listener.listed(running.summary.contacts);
        let matched = self.store.reconcile_page(&destination.name, &running.run, &seen).await?;
        let mut differing = Vec::new();
        for (contact_id, claimed) in matched {
            let Some(contact) = by_id.get(&contact_id).filter(|c| !c.archived) else { continue };
            running.summary.compared += 1;
            let prepared = prepare(claimed, destination);
            let dropped = &prepared.claimed.dropped;
            let properties = prepared.record.properties.iter().zip(prepared.writes());
            let differences: Vec<Difference> = properties
                .filter(|(_, write)| **write == Write::Always)
                .filter(|((property, _), _)| !dropped.iter().any(|d| d.property == *property))
                .filter_map(|((property, here), _)| difference(property, here.as_deref(), contact))
                .collect();
            if differences.is_empty() {
                continue;
            }
            let lead = &prepared.record.lead;
            differing.push(lead.lead_id);
            running.tell(Finding::Differs {
                lead_id: lead.lead_id,
                email: lead.email.clone(),
                remote_id: contact_id,
                properties: differences,
            })?;
        }
        self.repair(running, &differing).await
    }

    async fn absent<L: Listener>(
        &self,
        running: &mut Running<'_, L>,
    ) -> Result<(), ReconcileError> {
        let destination = running.destination;
        let mut after = Uuid::nil();
        loop {
            let name = destination.name.as_str();
            let page = self.store.reconcile_absent(name, &running.run, PAGE, after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.lead_id;
            let mut mendable = Vec::new();
            for absent in page {
                let (lead_id, email) = (absent.lead_id, absent.email);
                let finding = match (absent.remote_id, absent.others) {
                    (None, _) => Finding::Missing { lead_id, email },
                    (Some(remote_id), others) if others.is_empty() => {
                        Finding::Deleted { lead_id, email, remote_id }
                    }
                    (Some(remote_id), others) => {
                        Finding::Moved { lead_id, email, remote_id, others }
                    }
                };
                let left = matches!(finding, Finding::Deleted { .. })
                    && destination.deleted == Deleted::Leave;
                if !left {
                    mendable.push(lead_id);
                }
                running.tell(finding)?;
            }
            self.repair(running, &mendable).await?;
        }
    }

    async fn doubled<L: Listener>(
        &self,
        running: &mut Running<'_, L>,
    ) -> Result<(), ReconcileError> {
        let mut after = String::new();
        loop {
            let page = self.store.reconcile_doubled(&running.run, PAGE, &after).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after.clone_from(last);
            for (email, remote_ids) in page {
                running.tell(Finding::Doubled { email, remote_ids })?;
            }
        }
    }

    async fn repair<L>(
        &self,
        running: &mut Running<'_, L>,
        lead_ids: &[Uuid],
    ) -> Result<(), ReconcileError> {
        if running.repair && !lead_ids.is_empty() {
            let name = running.destination.name.as_str();
            running.summary.repaired += self.store.mark(name, lead_ids, true).await?;
        }
        Ok(())
    }
}

impl<L: Listener> Running<'_, L> {
    fn tell(&mut self, finding: Finding) -> Result<(), ReconcileError> {
        self.summary.count(&finding);
        Ok(self.listener.found(&finding)?)
    }
}

/// How a property differs; blank and cleared are the same.
fn difference(property: &str, here: Option<&str>, contact: &Remote) -> Option<Difference> {
    let there = contact.properties.get(property).and_then(|value| value.as_deref());
    let text = |value: Option<&str>| {
        value.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let (here, there) = (text(here), text(there));
    (here != there).then(|| Difference { property: property.to_owned(), here, there })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_is_blank_however_it_is_written() {
        let contact = Remote {
            properties: [
                ("a".into(), Some("x ".into())),
                ("b".into(), Some(" ".into())),
                ("c".into(), None),
            ]
            .into(),
            ..Remote::default()
        };
        for (property, here) in
            [("a", Some("x")), ("b", None), ("c", None), ("c", Some("")), ("d", None)]
        {
            assert_eq!(difference(property, here, &contact), None, "{property} {here:?}");
        }
        let found = difference("a", Some("y"), &contact).expect("a difference");
        assert_eq!((found.here.as_deref(), found.there.as_deref()), (Some("y"), Some("x")));
        assert!(difference("d", Some("y"), &contact).is_some());
    }
}
