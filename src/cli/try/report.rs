//! What `leadsync try` has to tell, before it is JSON or a page.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::{self, Untimed};
use crate::lead::merge::EventTime;
use crate::lead::{Change, LeadPatch, Micros};
use crate::mapping::{Fate, Leaf, Step, Target, Via};
use crate::sources::{ConfiguredSource, DecodeError, Explained, Item, Notice, Part};

/// A whole delivery.
#[derive(Serialize)]
pub(super) struct Report {
    pub parts: Vec<PartReport>,
    /// Values around the parts that no path looks at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmapped: Vec<Unmapped>,
}

/// One part of it.
#[derive(Serialize)]
pub(super) struct PartReport {
    /// `lead`, `queued`, `ignored` or `rejected`.
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Value by target; null for one that is cleared.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub lead: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub field_errors: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmapped: Vec<Unmapped>,
}

/// When the event counts as having happened.
#[derive(Serialize)]
pub(super) struct Time {
    /// As the sender states it.
    pub stated: Option<String>,
    /// `stated`, or the source's `untimed`.
    pub policy: &'static str,
    /// Whether it can overwrite older values.
    pub overwrites: bool,
    pub meaning: &'static str,
}

/// Where a target's value comes from.
#[derive(Serialize)]
pub(super) struct TargetReport {
    pub target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Path of the value, or what else it is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<&'static str>,
    /// The text that stood there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// The other paths.
    pub others: Vec<Other>,
}

/// A path that was not used.
#[derive(Serialize)]
pub(super) struct Other {
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<&'static str>,
    /// A stable word.
    pub why: &'static str,
    pub meaning: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// A value that no path looks at.
#[derive(Serialize)]
pub(super) struct Unmapped {
    pub path: String,
    pub value: Value,
}

impl Report {
    pub fn of(
        source: &ConfiguredSource,
        leads: &config::Leads,
        read: &Explained,
        now: Micros,
    ) -> Report {
        let part = |part: &Part| PartReport::of(part, source, leads, now);
        Report {
            parts: read.parts.iter().map(part).collect(),
            unmapped: read.unmapped.iter().map(Unmapped::of).collect(),
        }
    }

    /// As the service answers it: 400 or 415, and archived as rejected.
    pub fn malformed(error: &DecodeError) -> Report {
        let detail = Some(error.to_string());
        let mut part = PartReport::empty("rejected");
        (part.reason, part.detail) = (Some("malformed".to_owned()), detail);
        Report { parts: vec![part], unmapped: Vec::new() }
    }
}

impl PartReport {
    fn empty(outcome: &'static str) -> PartReport {
        PartReport {
            outcome,
            reason: None,
            detail: None,
            lead: Map::new(),
            time: None,
            field_errors: BTreeMap::new(),
            targets: Vec::new(),
            unmapped: Vec::new(),
        }
    }

    fn of(
        part: &Part,
        source: &ConfiguredSource,
        leads: &config::Leads,
        now: Micros,
    ) -> PartReport {
        let mut report = match &part.item {
            Item::Lead(patch) => PartReport {
                lead: values(patch),
                time: Some(Time::of(patch, source.untimed, leads, now)),
                field_errors: patch.field_errors.clone(),
                ..PartReport::empty("lead")
            },
            Item::Ignored(reason) => {
                PartReport { reason: Some(reason.clone()), ..PartReport::empty("ignored") }
            }
            Item::Notice(Notice { object, remote_id, deleted, .. }) => PartReport {
                reason: Some(format!("{object} {remote_id}")),
                detail: Some(match deleted {
                    true => "gone at the source, not read".to_owned(),
                    false => "read at the source's API before it becomes a lead".to_owned(),
                }),
                ..PartReport::empty(if *deleted { "ignored" } else { "queued" })
            },
            Item::Rejected { reason, detail } => PartReport {
                reason: Some(reason.clone()),
                detail: Some(detail.clone()),
                ..PartReport::empty("rejected")
            },
        };
        report.targets = targets(&part.steps, &report.lead);
        report.unmapped = part.unmapped.iter().map(Unmapped::of).collect();
        report
    }
}

/// Everything the patch says, by the name of the target that says it.
fn values(patch: &LeadPatch) -> Map<String, Value> {
    let mut values = Map::new();
    values.insert("email".to_owned(), json!(patch.email.as_str()));
    for (field, change) in &patch.fields {
        values.insert(field.name().to_owned(), change.value().into());
    }
    if let Some(consent) = patch.consent {
        values.insert("marketing_consent".to_owned(), json!(consent.granted));
        if consent.granted {
            values.insert("marketing_consent_proven".to_owned(), json!(consent.proven));
        }
    }
    if !patch.tags.is_empty() {
        values.insert("tags".to_owned(), json!(patch.tags));
    }
    for (name, change) in &patch.attributes {
        values.insert(format!("attributes.{name}"), change.value().into());
    }
    let touch = &patch.touch;
    let texts = [
        ("source", &touch.source),
        ("utm_source", &touch.utm_source),
        ("utm_medium", &touch.utm_medium),
        ("utm_campaign", &touch.utm_campaign),
        ("utm_term", &touch.utm_term),
        ("utm_content", &touch.utm_content),
        ("landing_page", &touch.landing_page),
        ("occurred_at", &patch.occurred_at.map(time)),
        ("event_id", &patch.event_id),
        ("event_type", &patch.event_type),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            values.insert(name.to_owned(), json!(text));
        }
    }
    let cleared = |change: &Change| change.value().is_none();
    let fields = patch.fields.iter().filter(|(_, change)| cleared(change));
    let fields = fields.map(|(field, _)| field.name().to_owned());
    let attributes = patch.attributes.iter().filter(|(_, change)| cleared(change));
    let attributes = attributes.map(|(name, _)| format!("attributes.{name}"));
    let clear: Vec<String> = fields.chain(attributes).collect();
    if !clear.is_empty() {
        values.insert("clear".to_owned(), json!(clear));
    }
    values
}

fn time(micros: Micros) -> String {
    jiff::Timestamp::from_microsecond(micros).map(|at| at.to_string()).unwrap_or_default()
}

impl Time {
    fn of(patch: &LeadPatch, untimed: Untimed, leads: &config::Leads, now: Micros) -> Time {
        let told = |policy, overwrites, meaning| Time {
            stated: patch.occurred_at.map(time),
            policy,
            overwrites,
            meaning,
        };
        if let Some(at) = patch.occurred_at {
            return match EventTime::stated(at, now, leads.future_tolerance).reliable {
                true => told("stated", true, "the sender's own time"),
                false => told(
                    "stated",
                    false,
                    "the sender's own time, which is before 2000 or ahead of the clock: it fills blanks and overwrites nothing",
                ),
            };
        }
        match untimed {
            Untimed::FirstReceipt => told(
                "first_receipt",
                true,
                "none stated; it counts with the receipt of the first copy of this body",
            ),
            Untimed::FillOnly => {
                told("fill_only", false, "none stated; it fills blanks and overwrites nothing")
            }
            Untimed::LastArrival => {
                told("last_arrival", true, "none stated; every copy counts with its own receipt")
            }
        }
    }
}

/// One entry per target that has a rule or a value, in the order of the documentation.
fn targets(steps: &[Step], values: &Map<String, Value>) -> Vec<TargetReport> {
    let mut by_name: BTreeMap<(usize, &str), TargetReport> = BTreeMap::new();
    let entry = |name: &str| TargetReport {
        target: name.to_owned(),
        value: values.get(name).cloned(),
        from: None,
        via: None,
        found: None,
        others: Vec::new(),
    };
    for step in steps {
        let report = by_name
            .entry((place(&step.target), &step.target))
            .or_insert_with(|| entry(&step.target));
        let path = step.path.clone().unwrap_or_else(|| "the constant `value`".to_owned());
        let via = (step.via != Via::Text).then(|| step.via.name());
        if step.fate == Fate::Used {
            (report.from, report.via) = (Some(path), via);
            report.found = step.found.clone();
        } else {
            let (why, meaning) = (step.fate.word(), step.fate.to_string());
            report.others.push(Other { path, via, why, meaning, found: step.found.clone() });
        }
    }
    for name in values.keys().filter(|name| *name != "marketing_consent_proven") {
        let report = by_name.entry((place(name), name)).or_insert_with(|| entry(name));
        if report.from.is_none() {
            let made = match name.as_str() {
                "first_name" | "last_name" if values[name].is_string() => "split off full_name",
                "source" => "the name of the source",
                _ if values[name].is_null() => "clear",
                _ => "attributes",
            };
            report.from = Some(made.to_owned());
        }
    }
    by_name.into_values().collect()
}

fn place(target: &str) -> usize {
    let name = if target.starts_with("attributes.") { "attributes." } else { target };
    Target::NAMES.iter().position(|known| *known == name).unwrap_or(usize::MAX)
}

impl Unmapped {
    fn of(leaf: &Leaf) -> Unmapped {
        Unmapped { path: leaf.path.clone(), value: leaf.value.clone() }
    }
}
