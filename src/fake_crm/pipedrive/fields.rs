//! The fields of a person and which values a field takes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A field of persons in the account.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonField {
    /// `name`, or 40 characters for a custom field.
    pub code: String,
    /// What people call it.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Made by the account.
    #[serde(default)]
    pub custom: bool,
    /// Ids and labels of `enum` and `set`.
    #[serde(default)]
    pub options: Vec<(u64, String)>,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// Text, up to 255 characters.
    Varchar,
    /// The same with suggestions.
    VarcharAuto,
    /// Text, up to 65,000 characters.
    Text,
    /// A number.
    Double,
    /// A whole number.
    Int,
    /// `{"value": 1, "currency": "EUR"}`
    Monetary,
    /// `YYYY-MM-DD`
    Date,
    /// Id of one option.
    Enum,
    /// Ids of options, at least one.
    Set,
    /// A phone number as text.
    Phone,
    /// `{"value": "Rua A, 1"}`
    Address,
    /// Id of a user.
    User,
}

/// Code of the custom text field that the tests keep the lead id in.
const LEAD_KEY: &str = "a1b2c3d4e5f60718293a4b5c6d7e8f9001122334";

/// The fields an account starts with here: Pipedrive's own and some custom ones.
pub(super) fn registry() -> Vec<PersonField> {
    use FieldType::*;
    let standard = |code: &str, name: &str, kind| PersonField {
        code: code.to_owned(),
        name: name.to_owned(),
        kind,
        custom: false,
        options: Vec::new(),
    };
    // Forty characters from the beginning of the name.
    let custom = |name: &str, kind| PersonField {
        code: name.bytes().cycle().map(|byte| format!("{byte:02x}")).take(20).collect(),
        name: name.to_owned(),
        kind,
        custom: true,
        options: Vec::new(),
    };
    let options = |list: &[&str]| (1..).zip(list.iter().map(|o| (*o).to_owned())).collect();
    vec![
        standard("name", "Name", Varchar),
        standard("emails", "Email", Varchar),
        standard("phones", "Phone", Phone),
        standard("owner_id", "Owner", User),
        standard("add_time", "Person created", Date),
        PersonField { code: LEAD_KEY.to_owned(), ..custom("Lead key", Varchar) },
        custom("Company", Varchar),
        custom("Message", Text),
        custom("Budget", Double),
        custom("Employees", Int),
        custom("Deal size", Monetary),
        custom("First seen", Date),
        PersonField { options: options(&["Gold", "Silver"]), ..custom("Tier", Enum) },
        PersonField { options: options(&["vip", "demo", "pricing"]), ..custom("Lead tags", Set) },
        custom("Second phone", Phone),
        custom("Home address", Address),
    ]
}

/// A field as `GET /api/v2/personFields` shows it.
pub(super) fn shown(field: &PersonField) -> Value {
    let options: Option<Vec<Value>> =
        matches!(field.kind, FieldType::Enum | FieldType::Set).then(|| {
            field.options.iter().map(|(id, label)| json!({"id": id, "label": label})).collect()
        });
    json!({
        "field_name": field.name, "field_code": field.code, "field_type": field.kind, "options": options,
        "subfields": null, "is_custom_field": field.custom, "is_optional_response_field": false,
    })
}

/// What is wrong with the value of a field. `null` is right for each: it clears.
pub(super) fn check(field: &PersonField, value: &Value) -> Result<(), String> {
    let text = |most: usize| value.as_str().is_some_and(|text| text.chars().count() <= most);
    let option = |id: &Value| field.options.iter().any(|(known, _)| id.as_u64() == Some(*known));
    let (right, wanted) = match field.kind {
        _ if value.is_null() => return Ok(()),
        FieldType::Varchar | FieldType::VarcharAuto | FieldType::Phone => {
            (text(255), "a string of at most 255 characters")
        }
        FieldType::Text => (text(65_000), "a string of at most 65000 characters"),
        FieldType::Double => (value.is_number(), "a number"),
        FieldType::Int | FieldType::User => (value.is_i64() || value.is_u64(), "an integer"),
        FieldType::Monetary => (
            value["value"].is_number() && value["currency"].as_str().is_some_and(|c| c.len() == 3),
            "an object with value and currency",
        ),
        FieldType::Date => {
            let date = value.as_str().and_then(|d| d.parse::<jiff::civil::Date>().ok());
            (date.is_some_and(|d| value == &json!(d.to_string())), "a date as YYYY-MM-DD")
        }
        FieldType::Enum => (option(value), "the id of an option"),
        FieldType::Set => (
            value.as_array().is_some_and(|ids| !ids.is_empty() && ids.iter().all(option)),
            "a non-empty array of ids of options",
        ),
        FieldType::Address => (value["value"].is_string(), "an object with value"),
    };
    match right {
        true => Ok(()),
        false => Err(format!("Parameter 'custom_fields.{}' should be {wanted}", field.code)),
    }
}

/// The custom fields of a body, checked.
pub(super) fn custom(
    fields: &[PersonField],
    unknown_refuses: bool,
    body: &Map<String, Value>,
) -> Result<Vec<(String, Value)>, String> {
    let given = match body.get("custom_fields") {
        None => return Ok(Vec::new()),
        Some(Value::Object(given)) => given,
        Some(_) => return Err("Parameter 'custom_fields' should be an object".to_owned()),
    };
    let mut checked = Vec::new();
    for (code, value) in given {
        match fields.iter().find(|f| f.custom && f.code == *code) {
            Some(field) => {
                check(field, value)?;
                checked.push((code.clone(), value.clone()));
            }
            None if unknown_refuses => {
                return Err(format!("Parameter 'custom_fields.{code}' is not a known field"));
            }
            None => {}
        }
    }
    Ok(checked)
}

/// A value as text; strings without their quotes.
pub(super) fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
