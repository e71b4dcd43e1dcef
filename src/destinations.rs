//! Destinations: the CRMs that leads are pushed to.
//!
//! To add one: one file here that implements [`Destination`], one line in [`DESTINATIONS`], its
//! stand-in under `fake_crm/`. A destination knows its CRM's API and nothing else: no SQL, no retry,
//! no pacing (that is `sync`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::config;
use crate::lead::{Field, Lead};

mod batch;
mod brevo;
mod cached;
mod client;
mod error;
mod hubspot;
mod oauth;
mod odoo;
mod outcome;
mod pipedrive;
mod rdstation;
mod salesforce;
mod tokens;
mod typed;
mod webhook;
mod zoho;

pub use client::{caller, redacted};
pub use error::DestinationError;
pub use outcome::{CallError, Limit, Outcome, Page, Remote, Reply};
pub use tokens::{InMemory, TokenStore, TokenStoreError};

/// Every kind of CRM there is.
pub const DESTINATIONS: &[&Kind] = &[
    &brevo::KIND,
    &hubspot::KIND,
    &odoo::KIND,
    &pipedrive::KIND,
    &rdstation::KIND,
    &salesforce::KIND,
    &webhook::KIND,
    &zoho::KIND,
];

/// A kind of CRM.
pub struct Kind {
    /// `kind` in the configuration.
    pub name: &'static str,
    /// One sentence for people.
    pub summary: &'static str,
    /// Keys of `[[destination]]` that it reads beside those of every kind; others are refused.
    pub keys: &'static [&'static str],
    /// Whether contacts can be read there: [`look_up`](Destination::look_up) and [`list`](Destination::list) work.
    pub reads: bool,
    /// Makes one from its configuration, checked by [`build`] already.
    build: fn(&config::Destination, &Setup) -> Built,
}

/// What a destination is given beside its configuration.
#[derive(Clone)]
pub struct Setup {
    /// Deadline of one call, answer included.
    pub call_timeout: Duration,
    /// Keeps refresh tokens that the CRM replaced.
    pub tokens: Arc<dyn TokenStore>,
}

impl Setup {
    /// One that forgets replaced tokens with the process.
    pub fn new(call_timeout: Duration) -> Setup {
        Setup { call_timeout, tokens: Arc::new(InMemory::default()) }
    }
}

/// A destination, or what is wrong with its configuration.
type Built = Result<Arc<dyn Destination>, DestinationError>;

/// The destination that the configuration describes, or what is wrong with the description.
pub fn build(config: &config::Destination, setup: &Setup) -> Built {
    let Some(kind) = DESTINATIONS.iter().find(|kind| kind.name == config.kind) else {
        return Err(DestinationError::UnknownKind {
            name: config.name.clone(),
            kind: config.kind.clone(),
            hint: nearest(&config.kind, DESTINATIONS.iter().map(|kind| kind.name)),
        });
    };
    check_keys(config, kind)?;
    check_fields(config, kind)?;
    (kind.build)(config, setup)
}

/// A key that nothing reads is a mistake that would otherwise show late.
fn check_keys(config: &config::Destination, kind: &Kind) -> Result<(), DestinationError> {
    let stray = config.of_some_kinds().into_iter().find(|key| !kind.keys.contains(key));
    match stray {
        None => Ok(()),
        Some(key) => Err(DestinationError::Invalid {
            name: config.name.clone(),
            key,
            why: match kind.keys {
                [] => format!("is nothing that kind {} reads", kind.name),
                keys => format!(
                    "is nothing that kind {} reads; it reads {}",
                    kind.name,
                    keys.join(", ")
                ),
            },
        }),
    }
}

fn check_fields(config: &config::Destination, kind: &Kind) -> Result<(), DestinationError> {
    let mut taken = BTreeMap::new();
    for (value, property) in &config.fields {
        if property.write() != config::Write::Always && !kind.reads {
            return Err(DestinationError::Invalid {
                name: config.name.clone(),
                key: "fields",
                why: format!(
                    "has write = \"{}\" for {value}, but what is at a {} cannot be read",
                    property.write().name(),
                    kind.name
                ),
            });
        }
        if !Lead::is_value_name(value) {
            let names = Field::ALL.iter().map(|f| f.name()).chain(Lead::OTHER_VALUES);
            return Err(DestinationError::UnknownValue {
                name: config.name.clone(),
                value: value.clone(),
                hint: nearest(value, names),
            });
        }
        let to = property.to();
        let why = match taken.insert(to, value) {
            _ if to.trim() != to || to.is_empty() => format!("needs a property for {value}"),
            Some(other) => format!("sends both {other} and {value} to the property {to}"),
            None => continue,
        };
        return Err(DestinationError::Invalid { name: config.name.clone(), key: "fields", why });
    }
    Ok(())
}

/// "did you mean …?", or all valid names where none is near.
fn nearest(written: &str, valid: impl Iterator<Item = &'static str> + Clone) -> String {
    let near = valid
        .clone()
        .map(|name| (strsim::jaro_winkler(written, name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.75);
    match near {
        Some((_, name)) => format!("did you mean \"{name}\"?"),
        None => format!("valid are {}", valid.collect::<Vec<_>>().join(", ")),
    }
}

/// One lead to push.
#[derive(Clone, Debug)]
pub struct Record {
    /// The lead as it is stored now.
    pub lead: Arc<Lead>,
    /// The CRM's id of it, where one is known from an earlier push.
    pub remote_id: Option<String>,
    /// What is sent: CRM property to value; `None` clears it at the CRM. Own fields only, sorted by property.
    pub properties: Vec<(String, Option<String>)>,
    /// How long ago a contact of it began to be made by a call whose outcome is not known (only [`Key::None`]).
    pub creating_for: Option<Duration>,
}

/// A value of the lead and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Name of the lead's value (`phone`, `attributes.budget`).
    pub value: String,
    /// The CRM's property.
    pub property: String,
    /// When it is written.
    pub write: config::Write,
    /// Words of the lead and what the CRM calls them; other words go as they are.
    pub values: BTreeMap<String, String>,
}

impl Mapped {
    /// Always written, as it is.
    pub fn new(value: impl Into<String>, property: impl Into<String>) -> Mapped {
        Mapped {
            value: value.into(),
            property: property.into(),
            write: config::Write::Always,
            values: BTreeMap::new(),
        }
    }
}

/// Who keeps contacts apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// The CRM: it refuses or joins a second contact of the same key, so that repeating a push is safe.
    #[default]
    Enforced,
    /// The CRM, among the contacts that we made: repeating a push is safe, but one that somebody else made has to be
    /// looked up before the first.
    Ours,
    /// Nobody: contacts are looked up before one is made, and after an unknown outcome none is made before the
    /// look-up stayed empty for `create_grace`.
    None,
}

/// A configured CRM.
///
/// It is called for one batch at a time by each of several tasks; it must not retry, sleep, pace itself or keep
/// records back. A destination that has to log in may do so within any call.
#[async_trait]
pub trait Destination: Send + Sync {
    /// Most records in one [`push`](Destination::push) or [`look_up`](Destination::look_up).
    fn batch_size(&self) -> usize;

    /// What is sent where configuration names no fields: lead value name and CRM property.
    fn default_fields(&self) -> &'static [(&'static str, &'static str)];

    /// Whether a push also sends what is not among the mapped properties, so that every version is news.
    fn sends_whole_lead(&self) -> bool {
        false
    }

    /// Calls per short time that the CRM allows by default; `None`: no limit known.
    fn default_rate(&self) -> Option<config::Rate> {
        None
    }

    /// What the CRM allows per day by default, in the unit of [`cost`](Destination::cost); `None`: no limit known.
    fn default_daily(&self) -> Option<u32> {
        None
    }

    /// What a push of so many records takes of the day's limit: calls, or the CRM's tokens or credits.
    fn cost(&self, _records: usize) -> u32 {
        1
    }

    /// What a look-up of so many records takes of it.
    fn look_up_cost(&self, records: usize) -> u32 {
        self.cost(records)
    }

    /// Whether the CRM itself enforces the key.
    fn key(&self) -> Key {
        Key::Enforced
    }

    /// Records of one call share this word: "by_id" and "by_key", or kinds of object, where the CRM needs
    /// different calls for them. Also for [`look_up`](Destination::look_up).
    fn group(&self, _record: &Record) -> &'static str {
        ""
    }

    /// Whether the record can share a call only with records that set the same properties.
    fn alike(&self, _record: &Record) -> bool {
        false
    }

    /// Writes the records in one call: by `remote_id` where there is one, and then the e-mail is *not* sent, else by key
    /// (for [`Key::None`]: makes a new contact). `Ok` has exactly one outcome per record, in the order given: an
    /// implementation lines the answer up itself and reports what the answer does not name as
    /// [`Outcome::Unknown`]. Keys (`lead.email`) are distinct, and records are of one [group](Destination::group).
    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError>;

    /// What the CRM has for each record, in the order given: by `remote_id` where there is one, else by key; for
    /// [`Key::None`] by our own key property if one is configured, and by e-mail. All that match; of a contact that
    /// was merged the one that survived. Of the properties those in `properties`.
    ///
    /// Only where the kind [reads](Kind::reads).
    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        let _ = (records, properties);
        Err(unreadable())
    }

    /// One page of all contacts, archived ones where the CRM lists them. `cursor` is `None` for the first page, then
    /// [`Page::next`].
    ///
    /// Only where the kind [reads](Kind::reads).
    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let _ = (cursor, properties);
        Err(unreadable())
    }

    /// Checks credentials, that the key is there and unique, and that the mapped properties exist, fit and can be
    /// written, without writing. `Ok`: one sentence per thing found right. `Err`: the first thing that is wrong.
    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError>;
}

fn unreadable() -> CallError {
    CallError::Misconfigured {
        code: "UNREADABLE".to_owned(),
        message: "what is at this kind of destination cannot be read".to_owned(),
    }
}
