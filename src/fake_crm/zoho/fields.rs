//! The fields of Leads and Contacts, what the field list says of them, and which values they take.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::errors::ItemError;
use super::{Module, Options};

/// A field of a module.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldInfo {
    /// API name.
    pub name: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Most characters; 0: not a text.
    #[serde(default)]
    pub length: usize,
    /// Values of a picklist.
    #[serde(default)]
    pub values: Vec<String>,
    /// No record can be made without it.
    #[serde(default)]
    pub required: bool,
    /// Set by Zoho only.
    #[serde(default)]
    pub read_only: bool,
    /// "Do not allow duplicate values" is set; letter case ignored.
    #[serde(default)]
    pub unique: bool,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// An e-mail address.
    Email,
    /// Text of one line.
    Text,
    /// Text of several lines.
    Textarea,
    /// A phone number, not looked at.
    Phone,
    /// A web address, not looked at.
    Website,
    /// One of a list; an unknown value is taken.
    Picklist,
    /// Several of a list.
    Multiselectpicklist,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Double,
    /// `YYYY-MM-DD`.
    Date,
    /// ISO 8601 with an offset, without fractions.
    Datetime,
    /// A record of another module.
    Lookup,
    /// A number of 19 digits as text.
    Bigint,
}

impl FieldInfo {
    fn of(name: &str, kind: FieldType, length: usize) -> FieldInfo {
        FieldInfo {
            name: name.to_owned(),
            kind,
            length,
            values: Vec::new(),
            required: false,
            read_only: false,
            unique: false,
        }
    }

    /// As the field list shows it.
    pub(super) fn describe(&self) -> Value {
        let listed: Vec<Value> =
            self.values.iter().map(|v| json!({"display_value": v, "actual_value": v})).collect();
        let unique = if self.unique { json!({"casesensitive": "false"}) } else { json!({}) };
        let json_type = match self.kind {
            FieldType::Boolean => "boolean",
            FieldType::Integer => "integer",
            FieldType::Double => "double",
            FieldType::Multiselectpicklist => "jsonarray",
            FieldType::Lookup => "jsonobject",
            _ => "string",
        };
        let writable = !self.read_only;
        json!({
            "api_name": self.name, "field_label": self.name.replace('_', " "), "data_type": self.kind,
            "json_type": json_type, "length": self.length, "unique": unique,
            "system_mandatory": self.required, "read_only": self.read_only,
            "field_read_only": self.read_only, "visible": true, "pick_list_values": listed,
            "operation_type": {
                "web_update": writable, "api_create": writable, "web_create": writable,
                "api_update": writable,
            },
        })
    }
}

/// The fields a module starts with here: those that leads usually need, our key, and some custom ones. `Email` is set
/// unique, as leadsync's documentation asks for.
pub(super) fn standard(module: Module) -> Vec<FieldInfo> {
    use FieldType::*;
    let of = FieldInfo::of;
    let listed = |name: &str, kind, values: &[&str]| FieldInfo {
        values: values.iter().map(|v| (*v).to_owned()).collect(),
        ..of(name, kind, 120)
    };
    let read_only = |field| FieldInfo { read_only: true, ..field };
    let mut fields = vec![
        read_only(of("id", Bigint, 19)),
        FieldInfo { required: true, ..of("Last_Name", Text, 80) },
        of("First_Name", Text, 40),
        FieldInfo { unique: true, ..of("Email", Email, 100) },
        of("Phone", Phone, 30),
        of("Mobile", Phone, 30),
        of("Description", Textarea, 32_000),
        listed("Lead_Source", Picklist, &["-None-", "Web", "Partner"]),
        of("Email_Opt_Out", Boolean, 0),
        FieldInfo { unique: true, ..of("Lead_Key", Text, 255) },
        of("utm_source", Text, 255),
        of("Budget", Double, 0),
        of("Employees", Integer, 0),
        of("First_Seen", Date, 0),
        of("Last_Seen", Datetime, 0),
        listed("Tags", Multiselectpicklist, &["a", "b", "c"]),
        read_only(of("Created_Time", Datetime, 0)),
        read_only(of("Modified_Time", Datetime, 0)),
    ];
    fields.extend(match module {
        Module::Leads => vec![
            of("Company", Text, 200),
            of("Designation", Text, 100),
            of("Website", Website, 255),
            of("City", Text, 100),
            of("State", Text, 100),
            of("Country", Text, 100),
            listed("Lead_Status", Picklist, &["-None-", "Contacted"]),
            read_only(of("Converted__s", Boolean, 0)),
            read_only(of("Converted_Contact", Lookup, 0)),
        ],
        Module::Contacts => vec![
            of("Title", Text, 100),
            of("Mailing_City", Text, 100),
            of("Mailing_State", Text, 100),
            of("Mailing_Country", Text, 100),
        ],
    });
    fields
}

/// What is wrong with the values of the record at `at`. Unknown names are not looked at, as Zoho does.
pub(super) fn check(
    options: &Options,
    module: Module,
    at: usize,
    written: &BTreeMap<String, Value>,
) -> Option<ItemError> {
    let fields = written.iter().filter_map(|(name, v)| Some((options.field(module, name)?, v)));
    fields.filter_map(|(field, value)| check_one(field, value, at)).next()
}

/// The fields that a new record lacks.
pub(super) fn missing(
    options: &Options,
    module: Module,
    at: usize,
    written: &BTreeMap<String, Value>,
) -> Option<ItemError> {
    let blank = |v: &Value| v.is_null() || v.as_str() == Some("");
    let mut required = options.fields(module).iter().filter(|f| f.required);
    let lacks = required.find(|f| written.get(&f.name).is_none_or(blank))?;
    let path = format!("$.data[{at}].{}", lacks.name);
    let details = [("api_name", json!(lacks.name)), ("json_path", json!(path))];
    Some(ItemError::new("MANDATORY_NOT_FOUND", "required field not found", &details))
}

fn check_one(field: &FieldInfo, value: &Value, at: usize) -> Option<ItemError> {
    if value.is_null() || value.as_str() == Some("") {
        return None;
    }
    let path = || json!(format!("$.data[{at}].{}", field.name));
    let name = ("api_name", json!(field.name));
    if field.read_only && field.name != "id" {
        let details = [name, ("json_path", path())];
        return Some(ItemError::new("INVALID_DATA", "this field cannot be written", &details));
    }
    let text = value.as_str();
    let expected = match field.kind {
        FieldType::Email if !text.is_some_and(is_email) => "email",
        FieldType::Boolean if !value.is_boolean() => "boolean",
        FieldType::Integer if !value.is_i64() => "integer",
        FieldType::Double if !value.is_number() => "double",
        FieldType::Multiselectpicklist if !is_texts(value) => "jsonarray",
        FieldType::Date if !text.is_some_and(is_date) => "date",
        FieldType::Datetime if !text.is_some_and(is_time) => "datetime",
        FieldType::Text
        | FieldType::Textarea
        | FieldType::Phone
        | FieldType::Website
        | FieldType::Picklist
            if text.is_none() =>
        {
            "text"
        }
        _ => "",
    };
    if !expected.is_empty() {
        let details = [name, ("expected_data_type", json!(expected)), ("json_path", path())];
        return Some(ItemError::new("INVALID_DATA", "invalid data", &details));
    }
    if field.length > 0 && text.is_some_and(|t| t.chars().count() > field.length) {
        let details = [name, ("maximum_length", json!(field.length)), ("json_path", path())];
        return Some(ItemError::new("INVALID_DATA", "invalid data", &details));
    }
    None
}

fn is_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|list| list.iter().all(Value::is_string))
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// "2026-11-30T12:00:00+00:00": an offset in digits, no fractions.
fn is_time(text: &str) -> bool {
    text.len() == 25 && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let last = domain.rsplit_once('.').map_or("", |(_, last)| last);
    !local.is_empty()
        && !text
            .contains(|c: char| c.is_whitespace() || c.is_control() || "\"(),:;<>[]\\".contains(c))
        && !domain.contains('@')
        && !domain.starts_with('.')
        && last.len() >= 2
        && last.chars().all(char::is_alphanumeric)
}
