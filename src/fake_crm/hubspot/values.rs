//! The property registry and which values a property takes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::errors::Invalid;
use super::{Options, Stored};

/// A contact property of the account.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Property {
    /// Internal name.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: PropertyType,
    /// Internal values of an enumeration.
    #[serde(default)]
    pub options: Vec<String>,
    /// Cannot be written.
    #[serde(default)]
    pub read_only: bool,
    /// May be an id property.
    #[serde(default)]
    pub unique: bool,
}

/// What a property holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PropertyType {
    /// Text, up to 65,536 characters.
    String,
    /// A number.
    Number,
    /// One or more of the internal values, joined by `;`.
    Enumeration,
    /// `YYYY-MM-DD`, or epoch milliseconds at midnight UTC.
    Date,
    /// ISO 8601, or epoch milliseconds.
    Datetime,
    /// `true` or `false`.
    Bool,
}

/// Stages in their order; the property only moves forward.
const STAGES: [&str; 8] = [
    "subscriber",
    "lead",
    "marketingqualifiedlead",
    "salesqualifiedlead",
    "opportunity",
    "customer",
    "evangelist",
    "other",
];

/// The properties an account starts with here: HubSpot's usual ones and some custom ones.
pub(super) fn registry() -> Vec<Property> {
    use PropertyType::*;
    let property = |name: &str, kind| Property {
        name: name.to_owned(),
        kind,
        options: Vec::new(),
        read_only: false,
        unique: false,
    };
    let options = |list: &[&str]| list.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>();
    let mut all: Vec<Property> = [
        "firstname",
        "lastname",
        "phone",
        "company",
        "jobtitle",
        "website",
        "city",
        "state",
        "country",
        "message",
        "full_name",
        "language",
        "utm_source",
        "utm_medium",
        "utm_campaign",
        "utm_term",
        "utm_content",
        "first_source",
        "landing_page",
        "lead_tags",
        "budget",
    ]
    .map(|name| property(name, String))
    .into();
    all.extend([
        Property { unique: true, ..property("email", String) },
        Property { unique: true, ..property("lead_key", String) },
        Property { options: options(&STAGES), ..property("lifecyclestage", Enumeration) },
        Property {
            options: options(&["gold", "silver", "bronze"]),
            ..property("tier", Enumeration)
        },
        property("annualrevenue", Number),
        property("first_seen_on", Date),
        property("last_seen_at", Datetime),
        property("marketing_consent", Bool),
        Property { read_only: true, ..property("hs_object_id", Number) },
        Property { read_only: true, ..property("hs_additional_emails", Enumeration) },
        Property { read_only: true, ..property("createdate", Datetime) },
        Property { read_only: true, ..property("lastmodifieddate", Datetime) },
    ]);
    all
}

/// What is wrong with the properties of a record; `creates`: it would be a new contact.
pub(super) fn check(
    options: &Options,
    properties: &BTreeMap<String, String>,
    creates: bool,
) -> Vec<Invalid> {
    let mut wrong: Vec<Invalid> =
        properties.iter().filter_map(|(name, value)| check_one(options, name, value)).collect();
    if creates {
        for name in &options.required {
            if properties.get(name).is_none_or(String::is_empty) {
                wrong.push(Invalid::new(
                    "MISSING_REQUIRED_PROPERTY",
                    name,
                    format!("Required property {name} is missing"),
                ));
            }
        }
    }
    wrong
}

fn check_one(options: &Options, name: &str, value: &str) -> Option<Invalid> {
    let invalid = |code, message| Some(Invalid::new(code, name, message));
    let Some(property) = options.properties.iter().find(|p| p.name == name) else {
        return invalid("PROPERTY_DOESNT_EXIST", format!("Property \"{name}\" does not exist"));
    };
    if property.read_only {
        return invalid(
            "READ_ONLY_VALUE",
            format!("\"{name}\" is a read only property; its value cannot be set."),
        );
    }
    if name == "email" {
        return match is_email(value) {
            true => None,
            false => invalid("INVALID_EMAIL", format!("Email address {value} is invalid")),
        };
    }
    if value.is_empty() {
        return None;
    }
    match property.kind {
        PropertyType::String if value.chars().count() > 65_536 => {
            invalid("VALUE_TOO_LONG", format!("Property \"{name}\" is too long"))
        }
        PropertyType::Number if value.parse::<f64>().is_err() => {
            invalid("INVALID_INTEGER", format!("{value} was not a valid number."))
        }
        PropertyType::Enumeration
            if value
                .strip_prefix(';')
                .unwrap_or(value)
                .split(';')
                .any(|v| !property.options.iter().any(|o| o == v)) =>
        {
            let allowed = property.options.join(", ");
            invalid(
                "INVALID_OPTION",
                format!("{value} was not one of the allowed options: [{allowed}]"),
            )
        }
        PropertyType::Bool if value != "true" && value != "false" => invalid(
            "INVALID_OPTION",
            format!("{value} was not one of the allowed options: [true, false]"),
        ),
        PropertyType::Date if !is_date(value) => {
            invalid("INVALID_DATE", format!("{value} was not a valid date."))
        }
        PropertyType::Datetime
            if value.parse::<i64>().is_err() && value.parse::<jiff::Timestamp>().is_err() =>
        {
            invalid("INVALID_DATE", format!("{value} was not a valid time."))
        }
        _ => None,
    }
}

/// Writes the properties; "" clears, and the lifecycle stage never goes back.
pub(super) fn write(stored: &mut Stored, properties: &BTreeMap<String, String>) {
    let rank = |stage: &str| STAGES.iter().position(|s| *s == stage);
    for (name, value) in properties {
        if name == "email" {
            continue;
        }
        if value.is_empty() {
            stored.properties.remove(name);
            continue;
        }
        let kept = stored.properties.get(name);
        if name == "lifecyclestage" && kept.is_some_and(|kept| rank(kept) > rank(value)) {
            continue;
        }
        let value = match (value.strip_prefix(';'), kept) {
            (Some(more), Some(kept)) => format!("{kept};{more}"),
            (Some(more), None) => more.to_owned(),
            (None, _) => value.clone(),
        };
        stored.properties.insert(name.clone(), value);
    }
}

/// HubSpot's check, roughly: no quotes, one `@`, a top-level domain of letters.
pub(super) fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let tld = domain.rsplit_once('.').map_or("", |(_, tld)| tld);
    let plain = |part: &str| {
        !part.is_empty()
            && !part
                .chars()
                .any(|c| c.is_whitespace() || c.is_control() || "\"'@,;<>".contains(c) && c != '\'')
    };
    plain(local)
        && plain(domain)
        && !domain.starts_with('.')
        && tld.len() >= 2
        && (tld.chars().all(char::is_alphabetic) || tld.starts_with("xn--"))
}

fn is_date(text: &str) -> bool {
    match text.parse::<i64>() {
        Ok(ms) => ms % 86_400_000 == 0,
        Err(_) => text.parse::<jiff::civil::Date>().is_ok(),
    }
}
