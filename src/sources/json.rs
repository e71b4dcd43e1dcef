//! The canonical lead: forgiving as kind `json` (Zapier and the like), strict for `/v1/leads`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use serde::Serialize;
use serde_json::Value;

use crate::config;
use crate::lead::phone::Region;
use crate::lead::{Field, LeadPatch};
use crate::mapping::{
    self, Document, Mapped, Mapping, MappingError, NoLead, Rule, Settings, Target, rule,
};

use super::configured::folding;
use super::labels::{self, Found};
use super::{Auth, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "json",
    title: "JSON or form with plain names (Zapier, Make, own code)",
    auth: Auth::Unsigned,
    split: Split::List,
    rules: &[CANONICAL, ALIASES, labels::RULES],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

/// The canonical form: every member under the name of its column.
const CANONICAL: &[Rule] = &[
    rule(Target::Email, &["$.email"]),
    rule(Target::Field(Field::FirstName), &["$.first_name"]),
    rule(Target::Field(Field::LastName), &["$.last_name"]),
    rule(Target::Field(Field::FullName), &["$.full_name"]),
    rule(Target::Field(Field::Phone), &["$.phone"]),
    rule(Target::Field(Field::Company), &["$.company"]),
    rule(Target::Field(Field::JobTitle), &["$.job_title"]),
    rule(Target::Field(Field::Website), &["$.website"]),
    rule(Target::Field(Field::City), &["$.city"]),
    rule(Target::Field(Field::Region), &["$.region"]),
    rule(Target::Field(Field::Country), &["$.country"]),
    rule(Target::Field(Field::Language), &["$.language"]),
    rule(Target::Field(Field::Message), &["$.message"]),
    rule(Target::Field(Field::LifecycleStage), &["$.lifecycle_stage"]),
    rule(Target::MarketingConsent, &["$.marketing_consent"]),
    rule(Target::Tags, &["$.tags"]),
    rule(Target::Attributes, &["$.attributes"]),
    rule(Target::Source, &["$.source"]),
    rule(Target::UtmSource, &["$.utm_source"]),
    rule(Target::UtmMedium, &["$.utm_medium"]),
    rule(Target::UtmCampaign, &["$.utm_campaign"]),
    rule(Target::UtmTerm, &["$.utm_term"]),
    rule(Target::UtmContent, &["$.utm_content"]),
    rule(Target::LandingPage, &["$.landing_page"]),
    rule(Target::OccurredAt, &["$.occurred_at"]),
    rule(Target::EventId, &["$.event_id"]),
    rule(Target::EventType, &["$.event_type"]),
    rule(Target::Clear, &["$.clear"]),
];

/// Names that users of Zapier and the like give their fields; labels cover the rest.
const ALIASES: &[Rule] = &[
    rule(Target::Field(Field::JobTitle), &["$.title", "$.Title"]),
    rule(
        Target::OccurredAt,
        &["$.created_at", "$.createdAt", "$.submitted_at", "$.submittedAt", "$.timestamp"],
    ),
];

/// Problems told of one lead: an object of a hundred thousand strange members is answered with no more.
const MAX_PROBLEMS: usize = 50;

/// Longest name that is shown, in characters: the longest name of an attribute, with its prefix.
const MAX_SHOWN: usize = "attributes.".len() + mapping::MAX_NAME_BYTES;

/// The canonical rules alone, compiled once. An `Err` would be caught by every test of this file.
static STRICT: LazyLock<Result<Mapping, MappingError>> =
    LazyLock::new(|| Mapping::compile(&[CANONICAL], &[]));

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    found.put_members(part);
    found.leave_in(part);
}

/// What is wrong with one member of a lead sent to `/v1/leads`. Never echoes its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The member; empty for the lead as a whole.
    pub field: String,
    /// A stable word.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}

fn problem(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Problem {
    Problem { field: field.into(), code, message: message.into() }
}

/// The strict reading of one canonical lead: an unknown member, a wrong type or a value that cannot be
/// used is a problem, and with any problem there is no patch.
pub fn canonical(value: &Value, leads: &config::Leads) -> Result<LeadPatch, Vec<Problem>> {
    let settings = Settings {
        folding: folding(leads.email_folding),
        region: leads.default_region.as_deref().and_then(Region::parse),
        ..Settings::default()
    };
    strict(value, &settings)
}

/// The same for a source that has settings of its own.
pub fn strict(value: &Value, settings: &Settings<'_>) -> Result<LeadPatch, Vec<Problem>> {
    let Value::Object(members) = value else {
        return Err(vec![problem("", "wrong_type", "a lead is an object")]);
    };
    let wrong = members.iter().filter_map(|(name, value)| wrong_member(name, value));
    let mut problems: Vec<Problem> =
        wrong.chain(contradictions(value)).take(MAX_PROBLEMS).collect();
    let mapping = match &*STRICT {
        Ok(mapping) => mapping,
        Err(error) => return Err(vec![problem("", "internal", error.to_string())]),
    };
    let mapped = mapping.apply(&Document { part: value, body: value, headers: &[] }, settings);
    let known = |field: &str, problems: &[Problem]| problems.iter().any(|p| p.field == field);
    for (field, error) in mapped.errors {
        if !known(&field, &problems) {
            problems.push(problem(field, error.code(), error.to_string()));
        }
    }
    match mapped.lead {
        Err(NoLead::NoEmail) if !known("email", &problems) => {
            problems.push(problem("email", "no_email", "a lead needs an e-mail address"));
        }
        Err(NoLead::InvalidEmail(error)) if !known("email", &problems) => {
            problems.push(problem("email", "invalid_email", error.to_string()));
        }
        Ok(patch) if problems.is_empty() => return Ok(patch),
        _ => {}
    }
    Err(problems)
}

/// The reading of a canonical lead that was taken before: what cannot be used in it is left out.
pub(super) fn forgiving(value: &Value, settings: &Settings<'_>) -> Mapped {
    match &*STRICT {
        Ok(mapping) => {
            mapping.apply(&Document { part: value, body: value, headers: &[] }, settings)
        }
        Err(_) => Mapped { lead: Err(NoLead::NoEmail), errors: BTreeMap::new(), event_type: None },
    }
}

/// An unknown name, or a value of a type the member does not have.
fn wrong_member(name: &str, value: &Value) -> Option<Problem> {
    let target = Target::parse(name).filter(|target| !matches!(target, Target::Attribute(_)));
    let Some(target) = target else {
        let names = Target::NAMES.into_iter().filter(|name| *name != "attributes.");
        let nearest = mapping::nearest_name(name, names);
        let hint = nearest.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        let message = format!("a lead has no such member{hint}");
        return Some(problem(shown(name), "unknown_member", message));
    };
    let texts =
        |list: &Value| list.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let (right, wanted) = match target {
        _ if value.is_null() => (true, ""),
        Target::MarketingConsent => (value.is_boolean(), "true or false"),
        Target::Tags | Target::Clear => (texts(value), "a list of texts"),
        Target::Attributes => {
            let scalar = |value: &Value| !value.is_array() && !value.is_object();
            (
                value.as_object().is_some_and(|m| m.values().all(scalar)),
                "an object of texts, numbers and booleans",
            )
        }
        _ => (value.is_string(), "a text"),
    };
    (!right).then(|| problem(name, "wrong_type", format!("must be {wanted}")))
}

/// A name is the caller's own; it is shown only as far as one can be meant.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect()
}

/// A member that has a value and is to be cleared.
fn contradictions(value: &Value) -> impl Iterator<Item = Problem> + '_ {
    let clear = value.get("clear").and_then(Value::as_array).into_iter().flatten();
    clear.filter_map(Value::as_str).filter_map(move |name| {
        let member = match name.strip_prefix("attributes.") {
            Some(attribute) => value.get("attributes").and_then(|a| a.get(attribute)),
            None => value.get(name),
        };
        let given = member.is_some_and(|member| !member.is_null() && member.as_str() != Some(""));
        given.then(|| problem(shown(name), "contradiction", "has a value and is to be cleared"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn leads() -> config::Leads {
        config::Leads {
            default_region: Some("BR".into()),
            email_folding: config::EmailFolding::None,
            future_tolerance: Duration::from_secs(300),
            history: true,
            keep_history: std::time::Duration::from_secs(86_400),
        }
    }

    fn problems(value: Value) -> Vec<(String, &'static str)> {
        let problems = canonical(&value, &leads()).unwrap_err();
        problems.into_iter().map(|p| (p.field, p.code)).collect()
    }

    #[test]
    fn a_whole_lead() {
        let patch = canonical(
            &json!({"email": " Ana@Example.com", "occurred_at": "2026-03-05T14:22:10.123456789Z", "source": "own",
                    "full_name": "Ana da Silva", "phone": "(11) 91234-5678", "company": null, "city": "",
                    "marketing_consent": true, "tags": ["a"], "attributes": {"budget": 5, "x": null},
                    "clear": ["website", "attributes.old"], "utm_source": "news", "event_id": "e1"}),
            &leads(),
        )
        .unwrap();
        assert_eq!(patch.email.as_str(), "ana@example.com");
        assert_eq!(patch.email_as_typed, "Ana@Example.com");
        assert_eq!(patch.occurred_at, Some(1_772_720_530_123_456));
        assert_eq!(patch.fields[&Field::Phone].value(), Some("+5511912345678"));
        assert_eq!(patch.fields[&Field::LastName].value(), Some("da Silva"));
        assert_eq!(patch.fields[&Field::Website].value(), None);
        assert!(
            !patch.fields.contains_key(&Field::Company) && !patch.fields.contains_key(&Field::City)
        );
        assert_eq!(patch.attributes.len(), 2);
        assert_eq!(patch.touch.source.as_deref(), Some("own"));
    }

    #[test]
    fn problems_name_the_member() {
        let own = |pairs: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
            pairs.iter().map(|(field, code)| (field.to_string(), *code)).collect()
        };
        assert_eq!(problems(json!([])), own(&[("", "wrong_type")]));
        assert_eq!(problems(json!({})), own(&[("email", "no_email")]));
        assert_eq!(problems(json!({"email": 5})), own(&[("email", "wrong_type")]));
        assert_eq!(problems(json!({"email": "nobody"})), own(&[("email", "invalid_email")]));
        let e = "a@example.com";
        assert_eq!(
            problems(
                json!({"email": e, "comapny": "x", "phone": "call me", "occurred_at": "now", "tags": "a",
                            "marketing_consent": "yes", "attributes": {"a": []}, "clear": ["email"], "city": 5})
            ),
            own(&[
                ("comapny", "unknown_member"),
                ("tags", "wrong_type"),
                ("marketing_consent", "wrong_type"),
                ("attributes", "wrong_type"),
                ("city", "wrong_type"),
                ("email", "contradiction"),
                ("clear", "not_clearable"),
                ("occurred_at", "invalid_time"),
                ("phone", "invalid_phone")
            ])
        );
        assert_eq!(
            problems(json!({"email": e, "attributes.x": "1"})),
            own(&[("attributes.x", "unknown_member")])
        );
        let many: serde_json::Map<_, _> = (0..1000).map(|n| (format!("x{n}"), json!(n))).collect();
        assert_eq!(
            problems(Value::Object(many)).len(),
            MAX_PROBLEMS + 1,
            "and that it has no e-mail"
        );
        let near = canonical(&json!({"email": e, "comapny": "x"}), &leads()).unwrap_err();
        assert_eq!(near[0].message, "a lead has no such member; did you mean \"company\"?");
    }

    #[test]
    fn every_target_is_a_member() {
        for name in Target::NAMES.into_iter().filter(|name| *name != "attributes.") {
            assert!(CANONICAL.iter().any(|rule| rule.target.name() == name), "{name}");
        }
    }
}
