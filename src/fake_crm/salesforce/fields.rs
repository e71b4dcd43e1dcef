//! The fields of Lead and Contact, what `describe` says of them, and which values they take.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::exchange::Answer;
use super::errors::{ItemError, no_column, refused};
use super::{Object, Options};

/// A field of an object.
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
    /// Takes no other value than those.
    #[serde(default)]
    pub restricted: bool,
    /// A record cannot do without it.
    #[serde(default)]
    pub required: bool,
    /// Set by Salesforce only.
    #[serde(default)]
    pub read_only: bool,
    /// May be named in an upsert.
    #[serde(default)]
    pub external_id: bool,
    /// No two records have the same value; letter case ignored.
    #[serde(default)]
    pub unique: bool,
    /// May be named in an upsert although it is no external id.
    #[serde(default)]
    pub id_lookup: bool,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// An e-mail address.
    Email,
    /// Text of one line.
    String,
    /// Text of several lines.
    Textarea,
    /// A phone number, not looked at.
    Phone,
    /// A web address, not looked at.
    Url,
    /// One of a list.
    Picklist,
    /// Several of a list, joined by `;`.
    Multipicklist,
    /// `true` or `false`, never null.
    Boolean,
    /// A number.
    Double,
    /// `YYYY-MM-DD`.
    Date,
    /// ISO 8601.
    Datetime,
    /// An id of another record.
    Reference,
    /// The record's own id.
    Id,
}

impl FieldInfo {
    fn text(name: &str, length: usize) -> FieldInfo {
        FieldInfo::of(name, FieldType::String, length)
    }

    fn of(name: &str, kind: FieldType, length: usize) -> FieldInfo {
        FieldInfo {
            name: name.to_owned(),
            kind,
            length,
            values: Vec::new(),
            restricted: false,
            required: false,
            read_only: false,
            external_id: false,
            unique: false,
            id_lookup: false,
        }
    }

    fn describe(&self) -> Value {
        let listed: Vec<Value> = self
            .values
            .iter()
            .map(|v| json!({"active": true, "defaultValue": false, "label": v, "value": v}))
            .collect();
        let is_bool = self.kind == FieldType::Boolean;
        json!({
            "name": self.name, "label": self.name.replace("__c", "").replace('_', " "),
            "type": self.kind, "length": self.length, "custom": self.name.ends_with("__c"),
            "externalId": self.external_id, "unique": self.unique, "caseSensitive": false,
            "idLookup": self.id_lookup || self.external_id,
            "createable": !self.read_only, "updateable": !self.read_only,
            "nillable": !self.required && !is_bool, "defaultedOnCreate": is_bool,
            "restrictedPicklist": self.restricted, "picklistValues": listed,
        })
    }
}

/// The fields an org starts with here: those that leads usually need, our key, and some custom ones.
pub(super) fn standard(object: Object) -> Vec<FieldInfo> {
    use FieldType::*;
    let key =
        FieldInfo { external_id: true, unique: true, ..FieldInfo::text("Lead_Email_Key__c", 255) };
    let required = |field| FieldInfo { required: true, ..field };
    let read_only = |field| FieldInfo { read_only: true, ..field };
    let listed = |name: &str, values: &[&str], restricted| FieldInfo {
        values: values.iter().map(|v| (*v).to_owned()).collect(),
        restricted,
        ..FieldInfo::of(name, Picklist, 255)
    };
    let mut fields = vec![
        read_only(FieldInfo::of("Id", Id, 18)),
        key,
        required(FieldInfo::text("LastName", 80)),
        FieldInfo::text("FirstName", 40),
        FieldInfo { id_lookup: true, ..FieldInfo::of("Email", Email, 80) },
        FieldInfo::of("Phone", Phone, 40),
        FieldInfo::of("MobilePhone", Phone, 40),
        FieldInfo::text("Title", 128),
        FieldInfo::of("Description", Textarea, 32_000),
        listed("LeadSource", &["Web", "Phone Inquiry", "Other"], false),
        FieldInfo::of("HasOptedOutOfEmail", Boolean, 0),
        FieldInfo::text("utm_source__c", 255),
        FieldInfo::of("Budget__c", Double, 0),
        FieldInfo::of("First_Seen__c", Date, 0),
        FieldInfo::of("Last_Seen__c", Datetime, 0),
        FieldInfo::of("Consent__c", Boolean, 0),
        listed("Tier__c", &["gold", "silver"], true),
        FieldInfo { kind: Multipicklist, ..listed("Tags__c", &["a", "b", "c"], true) },
        read_only(FieldInfo::of("IsDeleted", Boolean, 0)),
        read_only(FieldInfo::of("MasterRecordId", Reference, 18)),
        read_only(FieldInfo::of("CreatedDate", Datetime, 0)),
        read_only(FieldInfo::of("LastModifiedDate", Datetime, 0)),
        read_only(FieldInfo::of("SystemModstamp", Datetime, 0)),
    ];
    fields.extend(match object {
        Object::Lead => vec![
            required(FieldInfo::text("Company", 255)),
            FieldInfo::of("Website", Url, 255),
            FieldInfo::text("City", 40),
            FieldInfo::text("State", 80),
            FieldInfo::text("Country", 80),
            listed("Status", &["Open - Not Contacted", "Working - Contacted"], false),
            read_only(FieldInfo::of("IsConverted", Boolean, 0)),
            read_only(FieldInfo::of("ConvertedContactId", Reference, 18)),
        ],
        Object::Contact => vec![
            FieldInfo::text("MailingCity", 40),
            FieldInfo::text("MailingState", 80),
            FieldInfo::text("MailingCountry", 80),
            FieldInfo::of("AccountId", Reference, 18),
        ],
    });
    fields
}

/// The answer to `describe`.
pub(super) fn describe(options: &Options, object: Object) -> Answer {
    let fields: Vec<Value> = options.fields(object).iter().map(FieldInfo::describe).collect();
    Answer::json(
        200,
        &json!({
            "name": object.name(), "createable": true, "updateable": true, "queryable": true,
            "fields": fields,
        }),
    )
}

/// Refuses what refuses the whole call: fields that are not there, and JSON of the wrong type.
pub(super) fn shape(
    options: &Options,
    object: Object,
    record: &serde_json::Map<String, Value>,
) -> Result<(), Answer> {
    for (name, value) in record.iter().filter(|(name, _)| *name != "attributes") {
        let Some(field) = options.field(object, name) else {
            match options.unknown_field_is_an_item_error {
                true => continue,
                false => return Err(no_column(name, object.name())),
            }
        };
        let right = match field.kind {
            _ if value.is_null() => true,
            FieldType::Boolean => value.is_boolean(),
            FieldType::Double => value.is_number(),
            _ => value.is_string(),
        };
        if !right {
            let kind = json!(field.kind);
            let kind = kind.as_str().unwrap_or_default();
            let message = format!(
                "Cannot deserialize instance of {kind} from VALUE_STRING value or request may be missing a \
                 required field at [line:1, column:2]"
            );
            return Err(refused(400, "JSON_PARSER_ERROR", &message));
        }
    }
    Ok(())
}

/// What is wrong with the values of a record, given what the record would then be.
pub(super) fn check(
    options: &Options,
    object: Object,
    written: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
) -> Option<ItemError> {
    for (name, value) in written {
        let Some(field) = options.field(object, name) else {
            let message = format!("No such column '{name}' on sobject of type {}", object.name());
            return Some(ItemError::new("INVALID_FIELD", message, &[]));
        };
        if let Some(error) = check_one(field, value) {
            return Some(error);
        }
    }
    let missing: BTreeSet<&str> = options
        .fields(object)
        .iter()
        .filter(|f| f.required && !after.contains_key(&f.name))
        .map(|f| f.name.as_str())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let missing: Vec<&str> = missing.into_iter().collect();
    let message = format!("Required fields are missing: [{}]", missing.join(", "));
    Some(ItemError::new("REQUIRED_FIELD_MISSING", message, &missing))
}

fn check_one(field: &FieldInfo, value: &Value) -> Option<ItemError> {
    let name = field.name.as_str();
    let error = |code, message: String| Some(ItemError::new(code, message, &[name]));
    if field.read_only {
        return error(
            "INVALID_FIELD_FOR_INSERT_UPDATE",
            format!(
                "Unable to create/update fields: {name}. Please check the security settings of this field and \
                 verify that it is read/write for your profile or permission set."
            ),
        );
    }
    let text = value.as_str().unwrap_or_default();
    if text.is_empty() {
        return None;
    }
    if field.length > 0 && text.chars().count() > field.length {
        let max = field.length;
        return error(
            "STRING_TOO_LONG",
            format!("{name}: data value too large: {text} (max length={max})"),
        );
    }
    match field.kind {
        FieldType::Email if !is_email(text) => {
            error("INVALID_EMAIL_ADDRESS", format!("{name}: invalid email address: {text}"))
        }
        FieldType::Picklist | FieldType::Multipicklist
            if field.restricted
                && !text.split(';').all(|v| field.values.iter().any(|o| o == v)) =>
        {
            error(
                "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
                format!("{name}: bad value for restricted picklist field: {text}"),
            )
        }
        FieldType::Date if text.len() != 10 || text.parse::<jiff::civil::Date>().is_err() => error(
            "INVALID_TYPE_ON_FIELD_IN_RECORD",
            format!("{name}: value not of required type: {text}"),
        ),
        FieldType::Datetime if text.parse::<jiff::Timestamp>().is_err() => error(
            "INVALID_TYPE_ON_FIELD_IN_RECORD",
            format!("{name}: value not of required type: {text}"),
        ),
        _ => None,
    }
}

/// Roughly: one `@`, no white space, a domain with a dot that ends in letters.
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
