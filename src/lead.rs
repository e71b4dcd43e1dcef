//! The lead: its fields, what one event says about them, and what a stored lead looks like to a CRM.
//!
//! Nothing in here does I/O. Normalisation (`lead/email.rs`, `lead/phone.rs` ...) is pure and happens
//! before the merge; the merge itself is `lead/merge.rs`.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

pub mod consent;
pub mod email;
pub mod merge;
pub mod name;
pub mod phone;
pub mod text;

pub use email::Email;

/// Microseconds since the Unix epoch, UTC, truncated (never rounded) from whatever the sender wrote.
pub type Micros = i64;

/// A field of a lead that holds one text value and has a register of its own in `leads`.
///
/// The order is the order of the columns; [`Field::ALL`] is the one list that SQL, configuration,
/// documentation and tests walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// Given name.
    FirstName,
    /// Family name, with its particles ("da Silva").
    LastName,
    /// The whole name as one text.
    FullName,
    /// E.164, or absent.
    Phone,
    /// Company or organisation.
    Company,
    /// Job title or role.
    JobTitle,
    /// Web address.
    Website,
    /// City.
    City,
    /// State, province or region.
    Region,
    /// Country, as the sender writes it.
    Country,
    /// Language, as the sender writes it.
    Language,
    /// Free text the lead wrote.
    Message,
    /// Stage in the customer's life cycle, one of [`merge::LIFECYCLE_STAGES`]; only moves forward.
    LifecycleStage,
}

impl Field {
    /// Every field, in column order.
    pub const ALL: [Field; 13] = [
        Field::FirstName,
        Field::LastName,
        Field::FullName,
        Field::Phone,
        Field::Company,
        Field::JobTitle,
        Field::Website,
        Field::City,
        Field::Region,
        Field::Country,
        Field::Language,
        Field::Message,
        Field::LifecycleStage,
    ];

    /// The column in `leadsync.leads`, the member in the canonical JSON and the key in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Field::FirstName => "first_name",
            Field::LastName => "last_name",
            Field::FullName => "full_name",
            Field::Phone => "phone",
            Field::Company => "company",
            Field::JobTitle => "job_title",
            Field::Website => "website",
            Field::City => "city",
            Field::Region => "region",
            Field::Country => "country",
            Field::Language => "language",
            Field::Message => "message",
            Field::LifecycleStage => "lifecycle_stage",
        }
    }

    /// The field with that name, if there is one.
    pub fn parse(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Longest value kept, in bytes of UTF-8. A longer one is a field error: the field is left out
    /// and reported, the lead is kept.
    pub const fn max_bytes(self) -> usize {
        match self {
            Field::Message => 16 * 1024,
            Field::Website => 2048,
            _ => 512,
        }
    }
}

/// What an event says about one field. Saying nothing is the absence of a `Change`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// Explicit erasure of the value, here and in the CRM. Sorts below every value.
    Clear,
    /// A value, normalised and never blank.
    Set(String),
}

impl Change {
    /// The value, or `None` for a clear.
    pub fn value(&self) -> Option<&str> {
        match self {
            Change::Clear => None,
            Change::Set(v) => Some(v),
        }
    }
}

/// What an event says about marketing consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consent {
    /// Opt-in or opt-out.
    pub granted: bool,
    /// The opt-in carries proof (double opt-in). Only such an opt-in lifts an earlier opt-out.
    pub proven: bool,
}

/// Where a lead was touched: one tuple, never mixed between events.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// Name of the lead source; the configured source's name where the event names none itself.
    pub source: Option<String>,
    /// `utm_source`.
    pub utm_source: Option<String>,
    /// `utm_medium`.
    pub utm_medium: Option<String>,
    /// `utm_campaign`.
    pub utm_campaign: Option<String>,
    /// `utm_term`.
    pub utm_term: Option<String>,
    /// `utm_content`.
    pub utm_content: Option<String>,
    /// Page the form stood on.
    pub landing_page: Option<String>,
}

/// What one event says about one lead, mapped and normalised, not yet stamped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadPatch {
    /// The key.
    pub email: Email,
    /// The address as the sender wrote it (white space around it stripped).
    pub email_as_typed: String,
    /// The event's own time, from its body; `None` where the body has none.
    pub occurred_at: Option<Micros>,
    /// Fields the event speaks about.
    pub fields: BTreeMap<Field, Change>,
    /// Consent, where the event speaks about it.
    pub consent: Option<Consent>,
    /// Tags to add.
    pub tags: BTreeSet<String>,
    /// Custom attributes by name. Values are text: numbers keep their exact digits.
    pub attributes: BTreeMap<String, Change>,
    /// Campaign data of this event.
    pub touch: Touch,
    /// The sender's id of the event; kept for people, never used for idempotency.
    pub event_id: Option<String>,
    /// The sender's type of the event.
    pub event_type: Option<String>,
    /// Fields that had a value which could not be used (`phone`: "not a valid number"); kept with the delivery.
    pub field_errors: BTreeMap<String, String>,
}

impl LeadPatch {
    /// A patch that says nothing but who the lead is.
    pub fn new(email: Email, email_as_typed: String) -> LeadPatch {
        LeadPatch {
            email,
            email_as_typed,
            occurred_at: None,
            fields: BTreeMap::new(),
            consent: None,
            tags: BTreeSet::new(),
            attributes: BTreeMap::new(),
            touch: Touch::default(),
            event_id: None,
            event_type: None,
            field_errors: BTreeMap::new(),
        }
    }
}

/// A lead as it is stored now: what a destination is given to build its call from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// Id for the outside; appears in logs instead of personal data.
    pub lead_id: Uuid,
    /// Normalised address.
    pub email: String,
    /// Moves only when something changed.
    pub version: i64,
    /// Values of the text fields. A field that was explicitly cleared is present with `None`,
    /// one that was never set is absent.
    pub fields: BTreeMap<Field, Option<String>>,
    /// `None`: unknown.
    pub marketing_consent: Option<bool>,
    /// Tags, sorted.
    pub tags: BTreeSet<String>,
    /// Custom attributes; `None` where explicitly cleared.
    pub attributes: BTreeMap<String, Option<String>>,
    /// First touch.
    pub first_touch: Touch,
    /// Time of the first touch, where it is known.
    pub first_seen_at: Option<Micros>,
}

impl Lead {
    /// The value configuration calls `name`: a field, `name`, `marketing_consent`, `tags`, `first_source`,
    /// `utm_*`, `landing_page`, or `attributes.NAME`. Outer `None`: never set (leave alone at the
    /// CRM); `Some(None)`: cleared on purpose (clear at the CRM).
    pub fn value_of(&self, name: &str) -> Option<Option<String>> {
        if let Some(field) = Field::parse(name) {
            return self.fields.get(&field).cloned();
        }
        if let Some(attribute) = name.strip_prefix("attributes.") {
            return self.attributes.get(attribute).cloned();
        }
        let touch = &self.first_touch;
        let value = match name {
            "email" => Some(self.email.clone()),
            "lead_id" => Some(self.lead_id.to_string()),
            "name" => return self.name(),
            "marketing_consent" => self.marketing_consent.map(|c| c.to_string()),
            "tags" if !self.tags.is_empty() => {
                Some(self.tags.iter().cloned().collect::<Vec<_>>().join(";"))
            }
            "first_source" => touch.source.clone(),
            "utm_source" => touch.utm_source.clone(),
            "utm_medium" => touch.utm_medium.clone(),
            "utm_campaign" => touch.utm_campaign.clone(),
            "utm_term" => touch.utm_term.clone(),
            "utm_content" => touch.utm_content.clone(),
            "landing_page" => touch.landing_page.clone(),
            _ => None,
        };
        value.map(Some)
    }

    /// The name as one text, for CRMs that have only one: the full name, unless its parts, which may be newer, say
    /// something else. As [`value_of`](Lead::value_of) has it.
    fn name(&self) -> Option<Option<String>> {
        let part = |field| self.fields.get(&field);
        let (full, first, last) =
            (part(Field::FullName), part(Field::FirstName), part(Field::LastName));
        full.or(first).or(last)?;
        let parts: Vec<&str> =
            [first, last].into_iter().flatten().flatten().map(String::as_str).collect();
        let full = full.and_then(Option::as_ref);
        let same = |full: &&String| parts.iter().all(|part| full.contains(part));
        Some(match full.filter(same) {
            Some(full) => Some(full.clone()),
            None => (!parts.is_empty()).then(|| parts.join(" ")),
        })
    }

    /// Whether `name` is something [`Lead::value_of`] knows, so that configuration can be refused at start.
    pub fn is_value_name(name: &str) -> bool {
        Field::parse(name).is_some()
            || name.strip_prefix("attributes.").is_some_and(|a| !a.is_empty())
            || Lead::OTHER_VALUES.contains(&name)
    }

    /// Values beside the text fields and attributes that a destination can be given.
    pub const OTHER_VALUES: [&'static str; 12] = [
        "email",
        "lead_id",
        "name",
        "marketing_consent",
        "tags",
        "first_source",
        "utm_source",
        "utm_medium",
        "utm_campaign",
        "utm_term",
        "utm_content",
        "landing_page",
    ];
}

/// What became of one event or of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The lead is new.
    Created,
    /// A value of the lead changed.
    Updated,
    /// Already known: a repeat, or nothing that wins.
    Unchanged,
    /// Stored; it tells of something that is read at the source's API before it can become a lead.
    Queued,
    /// Stored, but cannot become a lead; the reason is kept with the delivery.
    Rejected,
    /// Stored, but not about a lead (a test, another event type).
    Ignored,
}

impl Outcome {
    /// The word in answers, tables and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Created => "created",
            Outcome::Updated => "updated",
            Outcome::Unchanged => "unchanged",
            Outcome::Queued => "queued",
            Outcome::Rejected => "rejected",
            Outcome::Ignored => "ignored",
        }
    }

    /// The outcome with that name.
    pub fn parse(name: &str) -> Option<Outcome> {
        use Outcome::*;
        [Created, Updated, Unchanged, Queued, Rejected, Ignored]
            .into_iter()
            .find(|o| o.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_full_one_unless_its_parts_say_otherwise() {
        let name = |full, first, last| {
            let fields =
                [(Field::FullName, full), (Field::FirstName, first), (Field::LastName, last)];
            let set = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
            let set =
                set.map(|(field, value): (Field, Option<&str>)| (field, value.map(str::to_owned)));
            Lead { fields: set.collect(), ..Lead::default() }.value_of("name")
        };
        let text = |text: &str| Some(Some(text.to_owned()));
        let (full, ana, lima) =
            (Some(Some("Dr. Ana M. Lima")), Some(Some("Ana")), Some(Some("Lima")));
        assert_eq!(name(None, None, None), None);
        assert_eq!(name(full, ana, lima), text("Dr. Ana M. Lima"));
        assert_eq!(name(full, ana, Some(Some("Silva"))), text("Ana Silva"), "married meanwhile");
        assert_eq!(name(None, ana, lima), text("Ana Lima"));
        assert_eq!(name(None, ana, Some(None)), text("Ana"));
        assert_eq!(name(Some(None), None, lima), text("Lima"));
        assert_eq!(name(Some(None), Some(None), None), Some(None), "cleared");
    }
}
