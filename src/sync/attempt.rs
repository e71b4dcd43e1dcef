//! One attempt at one lead: what is sent of it, what was found out about its contact on the way, what comes next.
//! Pure, so that every path can be tested without a CRM.

use std::time::Duration;

use super::answer::{is_id, record_error, unknown_error};
use super::payload;
use super::{Configured, Settings};
use crate::config::{Deleted, OnFieldError, Write};
use crate::destinations::{Key, Mapped, Outcome, Record, Remote};
use crate::store::sync::{Claimed, Dropped, LastError, PushResult};

/// Further calls that one lead may take in one attempt, beside one for each property that is dropped.
const FOLLOW_UPS: usize = 4;

/// A claimed lead with what would be sent. A dry run shows these, so that it cannot differ from a push.
#[derive(Clone)]
pub struct Prepared {
    /// The lead and its sync state.
    pub claimed: Claimed,
    /// All that the mapping has of it, and the id it is known by now; [`outgoing`](Prepared::outgoing) is what is sent.
    pub record: Record,
    /// Digest of it.
    pub hash: Vec<u8>,
    /// When each property of the record is written.
    writes: Vec<Write>,
    found: Found,
    /// The remembered id turned out to be gone.
    gone: bool,
    /// Left out, because the CRM refused it in this attempt.
    dropped: Vec<Dropped>,
    /// It is remembered that this attempt may make a contact.
    pub(super) creating: bool,
    follow_ups: usize,
}

/// What a look-up of this attempt found.
#[derive(Clone)]
enum Found {
    NotAsked,
    Nothing,
    Contact(Remote),
}

/// What comes after an answer about one lead.
pub(super) enum Next {
    Settle(Box<(Claimed, PushResult)>),
    /// One more call in this attempt.
    Again(Box<Prepared>),
}

/// What would be sent of a claimed lead.
pub fn prepare(claimed: Claimed, destination: &Configured) -> Prepared {
    let whole = destination.destination.sends_whole_lead();
    let (fields, properties): (Vec<&Mapped>, Vec<_>) =
        payload::properties(&claimed.lead, &destination.fields).into_iter().unzip();
    let writes: Vec<Write> = fields.into_iter().map(|field| field.write).collect();
    // What is only sent with a new contact is no news to one that is there.
    let news = properties.iter().zip(&writes).filter(|(_, write)| **write != Write::OnCreate);
    let hash = payload::hash(&claimed.lead, whole, news.map(|(property, _)| property));
    let record = Record {
        lead: claimed.lead.clone(),
        remote_id: claimed.remote_id.clone(),
        properties,
        creating_for: claimed.creating_for,
    };
    Prepared {
        claimed,
        record,
        hash,
        writes,
        found: Found::NotAsked,
        gone: false,
        dropped: Vec::new(),
        creating: false,
        follow_ups: 0,
    }
}

impl Prepared {
    /// The CRM confirmed exactly this before, and nothing has put that in doubt since.
    pub fn needs_no_call(&self) -> bool {
        !self.claimed.confirm_owed && self.is_as_sent()
    }

    /// The CRM last confirmed exactly this.
    pub(super) fn is_as_sent(&self) -> bool {
        self.claimed.sent_hash.as_deref() == Some(&self.hash[..])
    }

    /// When each property of the record is written, in its order.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Whether the CRM must be asked for the contact before it is written.
    pub fn needs_look_up(&self, destination: &Configured) -> bool {
        if !matches!(self.found, Found::NotAsked) {
            return false;
        }
        let unknown = self.record.remote_id.is_none();
        let others = destination.destination.key() != Key::Enforced;
        let left = self.gone && destination.deleted == Deleted::Leave;
        unknown && (others || left)
            || self.record.properties.iter().zip(&self.writes).any(
                |((_, value), write)| match write {
                    Write::Always => false,
                    Write::IfBlank => value.is_some(),
                    Write::OnCreate => unknown,
                },
            )
    }

    /// Properties whose present value decides.
    pub(super) fn conditional(&self) -> impl Iterator<Item = &str> {
        let properties = self.record.properties.iter().zip(&self.writes);
        let if_blank = properties.filter(|(_, write)| **write == Write::IfBlank);
        if_blank.map(|((property, _), _)| property.as_str())
    }

    /// Whether a push of it makes a contact that nobody else keeps from being made twice.
    pub(super) fn creates(&self, destination: &Configured) -> bool {
        self.record.remote_id.is_none() && destination.destination.key() == Key::None
    }

    /// What is sent: by the policies of its properties, without what the CRM refused.
    pub fn outgoing(&self) -> Record {
        let there = match &self.found {
            Found::Contact(remote) => Some(remote),
            Found::Nothing | Found::NotAsked => None,
        };
        let known = there.is_some() || self.record.remote_id.is_some();
        let sent = |((property, value), write): &(&(String, Option<String>), &Write)| {
            let blank = || {
                let has = there.and_then(|remote| remote.properties.get(property)?.as_deref());
                has.is_none_or(|text| text.trim().is_empty())
            };
            let by_policy = match write {
                Write::Always => true,
                Write::IfBlank => value.is_some() && blank(),
                Write::OnCreate => !known,
            };
            by_policy && !self.dropped.iter().any(|d| d.property == *property)
        };
        let properties = self.record.properties.iter().zip(&self.writes).filter(sent);
        let properties = properties.map(|(property, _)| property.clone()).collect();
        Record { properties, ..self.record.clone() }
    }

    /// The result with everything that was found out.
    pub(super) fn settle(mut self, result: PushResult) -> (Claimed, PushResult) {
        self.claimed.remote_id = self.record.remote_id;
        match &result {
            PushResult::Confirmed { .. } => {
                self.claimed.creating_for = None;
                self.claimed.dropped = self.dropped;
            }
            // Whatever it was, it may have been done.
            PushResult::Unknown(..) => {}
            _ if self.creating => self.claimed.creating_for = None,
            _ => {}
        }
        (self.claimed, result)
    }

    /// As [`settle`](Prepared::settle) where the CRM has exactly this already and no call was made.
    pub(super) fn same(mut self) -> (Claimed, PushResult) {
        self.dropped = std::mem::take(&mut self.claimed.dropped);
        let hash = std::mem::take(&mut self.hash);
        self.settle(PushResult::Confirmed { remote_id: None, hash })
    }

    fn again(mut self, settings: &Settings) -> Next {
        self.follow_ups += 1;
        if self.follow_ups > FOLLOW_UPS + self.dropped.len() {
            let message = "the CRM says something else about it at every call".to_owned();
            return self.retry(settings, "unavailable", "unsettled", message);
        }
        Next::Again(Box::new(self))
    }

    fn retry(self, settings: &Settings, kind: &'static str, code: &str, message: String) -> Next {
        let delay = settings.backoff(self.claimed.attempts);
        let error = LastError { kind, code: Some(code.to_owned()), message };
        Next::Settle(Box::new(self.settle(PushResult::Retry(error, delay))))
    }

    fn park(self, code: &str, message: String) -> Next {
        let error = record_error(code.to_owned(), None, message);
        Next::Settle(Box::new(self.settle(PushResult::Parked(error))))
    }

    /// What an outcome of a push means.
    pub(super) fn answered(
        mut self,
        outcome: Outcome,
        destination: &Configured,
        settings: &Settings,
    ) -> Next {
        match outcome {
            Outcome::Written { remote_id, .. } => {
                let hash = self.hash.clone();
                let remote_id = remote_id.filter(|id| is_id(id));
                Next::Settle(Box::new(self.settle(PushResult::Confirmed { remote_id, hash })))
            }
            Outcome::Rejected { code, field, message } => {
                self.refused(code, field, message, destination, settings)
            }
            Outcome::Exists { remote_id } => {
                if !is_id(&remote_id) || self.record.remote_id.as_deref() == Some(&remote_id) {
                    let message =
                        "the CRM says that it is another contact, and not which".to_owned();
                    return self.retry(settings, "unavailable", "exists", message);
                }
                self.not_made();
                self.record.remote_id = Some(remote_id);
                self.found = Found::NotAsked;
                self.again(settings)
            }
            Outcome::Gone if self.record.remote_id.is_none() => {
                let message = "the CRM misses a contact that was not asked for by id".to_owned();
                self.retry(settings, "unavailable", "gone", message)
            }
            Outcome::Gone => {
                self.record.remote_id = None;
                self.gone = true;
                self.found = Found::NotAsked;
                self.again(settings)
            }
            Outcome::Ambiguous { remote_ids } => self.ambiguous(&remote_ids),
            Outcome::Retry { code, message } => self.retry(settings, "unavailable", &code, message),
            Outcome::Unknown { message } => {
                let delay = settings.backoff(self.claimed.attempts);
                Next::Settle(Box::new(
                    self.settle(PushResult::Unknown(unknown_error(message), delay)),
                ))
            }
        }
    }

    /// The record is refused: parked, or sent again without the property at fault.
    pub(super) fn refused(
        mut self,
        code: String,
        field: Option<String>,
        message: String,
        destination: &Configured,
        settings: &Settings,
    ) -> Next {
        if destination.on_field_error == OnFieldError::Drop
            && let Some(property) = &field
            && self.outgoing().properties.iter().any(|(name, _)| name == property)
        {
            self.not_made();
            self.dropped.push(Dropped { property: property.clone(), code, message });
            return self.again(settings);
        }
        let error = record_error(code, field, message);
        Next::Settle(Box::new(self.settle(PushResult::Parked(error))))
    }

    /// The call of this attempt is known to have made nothing.
    fn not_made(&mut self) {
        if self.creating {
            self.claimed.creating_for = None;
            self.creating = false;
        }
    }

    fn ambiguous(self, remote_ids: &[String]) -> Next {
        let message = format!(
            "several contacts match: {}; merge them in the CRM, then `leadsync requeue`",
            remote_ids.join(", ")
        );
        self.park("ambiguous", message)
    }

    /// What a look-up means.
    pub(super) fn looked_up(
        mut self,
        remotes: Vec<Remote>,
        destination: &Configured,
        settings: &Settings,
    ) -> Next {
        let mut there: Vec<Remote> =
            remotes.into_iter().filter(|remote| !remote.archived && is_id(&remote.id)).collect();
        let ours = self.record.remote_id.as_deref();
        if let Some(at) = there.iter().position(|remote| Some(remote.id.as_str()) == ours) {
            there = vec![there.swap_remove(at)];
        }
        if there.len() > 1 {
            let ids: Vec<String> = there.into_iter().map(|remote| remote.id).collect();
            return self.ambiguous(&ids);
        }
        match there.pop() {
            Some(remote) => {
                // Found by e-mail, or the one that survived a merge.
                self.record.remote_id = Some(remote.id.clone());
                self.found = Found::Contact(remote);
                Next::Again(Box::new(self))
            }
            None if ours.is_some() => self.answered(Outcome::Gone, destination, settings),
            None if self.gone && destination.deleted == Deleted::Leave => {
                // It is asked for by that id again when the lead changes.
                self.record.remote_id = self.claimed.remote_id.clone();
                let message =
                    "the contact was deleted in the CRM, and `deleted` says to leave it so";
                self.park("deleted", message.to_owned())
            }
            None => {
                self.found = Found::Nothing;
                self.may_be_made(destination, settings)
            }
        }
    }

    /// Where a call of unknown outcome may have made the contact, none is made before that must have shown.
    fn may_be_made(self, destination: &Configured, settings: &Settings) -> Next {
        let left = match self.claimed.creating_for {
            Some(age) if self.creates(destination) => destination.create_grace.saturating_sub(age),
            _ => Duration::ZERO,
        };
        if left.is_zero() {
            return Next::Again(Box::new(self));
        }
        let error = LastError {
            kind: "unknown",
            code: Some("creating".to_owned()),
            message: "a call of unknown outcome may have made the contact; it is not found yet"
                .to_owned(),
        };
        let delay = settings.backoff(self.claimed.attempts).min(left);
        Next::Settle(Box::new(self.settle(PushResult::Retry(error, delay))))
    }
}
