//! The fields of a contact and which values they take.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::exchange::Answer;
use super::errors::Invalid;
use super::{Options, Stored};

/// A field of a contact.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContactField {
    /// `api_identifier`; those that users made begin with `cf_`.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: DataType,
    /// Values it may have; empty: any.
    #[serde(default)]
    pub options: Vec<String>,
}

impl ContactField {
    /// A text, as people add it.
    pub fn text(name: &str) -> ContactField {
        ContactField { name: name.to_owned(), kind: DataType::String, options: Vec::new() }
    }
}

/// `data_type` of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataType {
    /// Text.
    #[serde(rename = "STRING")]
    String,
    /// Several texts.
    #[serde(rename = "STRING[]")]
    Strings,
    /// Whole number.
    #[serde(rename = "INTEGER")]
    Integer,
    /// True or false.
    #[serde(rename = "BOOLEAN")]
    Boolean,
}

/// The fields an account starts with here: RD Station's own and some custom ones.
pub(super) fn registry() -> Vec<ContactField> {
    let field =
        |name: &str, kind| ContactField { name: name.to_owned(), kind, options: Vec::new() };
    let mut all: Vec<ContactField> = [
        "email",
        "name",
        "bio",
        "website",
        "job_title",
        "personal_phone",
        "mobile_phone",
        "city",
        "state",
        "country",
        "twitter",
        "facebook",
        "linkedin",
        "birthdate",
        "cf_budget",
        "cf_source",
        "cf_campaign",
    ]
    .map(|name| field(name, DataType::String))
    .into();
    all.extend([
        field("tags", DataType::Strings),
        field("cf_interests", DataType::Strings),
        field("cf_employees", DataType::Integer),
        field("cf_opt_in", DataType::Boolean),
        ContactField {
            options: ["gold", "silver"].map(str::to_owned).into(),
            ..field("cf_tier", DataType::String)
        },
    ]);
    all
}

/// `GET /platform/contacts/fields`
pub(super) fn list(options: &Options) -> Answer {
    let shown = |(number, field): (u128, &ContactField)| {
        let mut shown = json!({
            "uuid": Uuid::from_u128(number),
            "api_identifier": field.name, "custom_field": field.name.starts_with("cf_"),
            "data_type": field.kind, "name": {"default": field.name, "pt-BR": field.name},
            "label": {"default": field.name, "pt-BR": field.name},
            "presentation_type": if field.options.is_empty() { "TEXT_INPUT" } else { "COMBO_BOX" },
            "validation_rules": {},
        });
        if !field.options.is_empty() {
            let option = |value: &String| json!({"value": value, "label": {"pt-BR": value}});
            shown["validation_rules"] =
                json!({"valid_options": field.options.iter().map(option).collect::<Vec<_>>()});
        }
        shown
    };
    let fields: Vec<Value> = (1..).zip(&options.fields).map(shown).collect();
    Answer::json(200, &json!({ "fields": fields }))
}

/// What is wrong with one member of a body.
pub(super) fn check(options: &Options, name: &str, value: &Value) -> Option<Invalid> {
    let invalid = |kind, message: &str| Some((name.to_owned(), kind, message.to_owned()));
    if name == "legal_bases" {
        let sound = |basis: &Value| {
            ["category", "type"].iter().all(|member| basis[*member].is_string())
                && (basis["type"] != "consent"
                    || ["granted", "declined"].iter().any(|status| basis["status"] == *status))
        };
        return match value.as_array() {
            Some(bases) if bases.iter().all(sound) => None,
            _ => invalid("INVALID", "It is not valid"),
        };
    }
    let Some(field) = options.fields.iter().find(|field| field.name == name) else {
        return match options.refuse_unknown {
            true => invalid("INVALID", "It is not a field of a contact"),
            false => None,
        };
    };
    if value.is_null() {
        return match options.refuse_null || name == "email" {
            true => invalid("CANNOT_BE_NULL", "Cannot be null"),
            false => None,
        };
    }
    let good = match field.kind {
        DataType::String => value.is_string(),
        DataType::Strings => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
        DataType::Integer => value.is_i64(),
        DataType::Boolean => value.is_boolean(),
    };
    if !good {
        return match field.kind {
            DataType::String => invalid("MUST_BE_STRING", "It must be string"),
            DataType::Strings => invalid("MUST_BE_STRING_ARRAY", "It must be an array of strings"),
            DataType::Integer => invalid("INVALID", "It is not valid"),
            DataType::Boolean => invalid("MUST_BE_BOOLEAN", "It must be boolean"),
        };
    }
    let text = value.as_str().unwrap_or_default();
    if text.chars().count() > 10_000 {
        return invalid("TOO_LONG", "Is too long (maximum 10000 characters)");
    }
    let among = field.options.is_empty() || field.options.iter().any(|option| option == text);
    if !among {
        return invalid("MUST_BE_VALID_OPTION", "It must be one of the valid options");
    }
    (name == "email" && !is_email(text))
        .then(|| (name.to_owned(), "INVALID_FORMAT", "email must be a valid address".to_owned()))
}

/// Writes a member; null, "" and an empty list clear. Tags replace those that were there.
pub(super) fn write(stored: &mut Stored, name: &str, value: &Value) {
    let empty = value.is_null() || *value == "" || value.as_array().is_some_and(Vec::is_empty);
    if empty {
        stored.values.remove(name);
    } else {
        stored.values.insert(name.to_owned(), value.clone());
    }
}

pub(super) fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && domain.contains('.') && !domain.contains('@')
    }) && !text.contains(char::is_whitespace)
}
