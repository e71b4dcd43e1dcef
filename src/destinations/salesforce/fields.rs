//! The fields of an object as `describe` tells them: what may be written, in which type, and under which name.

use std::collections::HashMap;

use serde_json::Value;

use super::super::typed::Type;
use super::super::{CallError, Mapped, Record};
use super::Object;

/// Fields that a conversion carries over under another name.
const RENAMED: [(&str, &str); 5] = [
    ("street", "mailingstreet"),
    ("city", "mailingcity"),
    ("state", "mailingstate"),
    ("postalcode", "mailingpostalcode"),
    ("country", "mailingcountry"),
];

/// The name of a field at the other object, in lower case, where it has another one there.
fn renamed(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    let (a, b) = RENAMED.iter().find(|(a, b)| name == *a || name == *b)?;
    Some(if name == *a { b } else { a })
}

/// The property of ours that a field of either object is, or the field itself.
pub(super) fn property(field: &str, record: &Record) -> String {
    let is = |property: &&String| {
        property.eq_ignore_ascii_case(field)
            || renamed(property).is_some_and(|other| other.eq_ignore_ascii_case(field))
    };
    let known = record.properties.iter().map(|(property, _)| property).find(is);
    known.cloned().unwrap_or_else(|| field.to_owned())
}

/// An object of the org.
pub(super) struct Fields {
    /// By name in lower case.
    by_name: HashMap<String, FieldInfo>,
    may_write: bool,
}

/// A field.
pub(super) struct FieldInfo {
    /// As the org writes it.
    pub name: String,
    pub kind: Type,
    pub writable: bool,
    /// No record is without it, and nothing but the writer fills it.
    pub required: bool,
    /// Tells records apart, and Salesforce sees to it.
    unique_key: bool,
    /// The values of a picklist that takes no others.
    options: Option<Vec<String>>,
}

impl Fields {
    pub fn read(body: &Value) -> Fields {
        let list = body["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let by_name = list
            .iter()
            .filter_map(|field| {
                let name = field["name"].as_str()?;
                Some((name.to_lowercase(), FieldInfo::read(name, field)))
            })
            .collect();
        let is = |name: &str| body[name].as_bool().unwrap_or(true);
        Fields { by_name, may_write: is("createable") && is("updateable") }
    }

    /// A field by its name, letter case ignored.
    pub fn get(&self, name: &str) -> Option<&FieldInfo> {
        self.by_name.get(&name.to_lowercase())
    }

    /// Where a property that is mapped for the other object goes in this one.
    pub fn moved(&self, name: &str) -> Option<&FieldInfo> {
        let field = self.get(name).or_else(|| self.by_name.get(renamed(name)?));
        field.filter(|field| field.writable)
    }

    /// That the key is what it must be, or the destination may not run: without it every repeat makes a double.
    pub fn check_key(&self, object: Object, key: &str) -> Result<(), CallError> {
        let object = object.name();
        let wrong = |code: &str, message: String| {
            Err(CallError::Misconfigured { code: code.to_owned(), message })
        };
        let make = "a text field of 255 characters with \"External ID\" and \"Unique\" (letter case ignored) set, \
                    which the app's user may see and edit";
        match self.get(key) {
            None => wrong(
                "NO_KEY",
                format!(
                    "{object} has no field {key}, or the app's user may not see it; make {make}"
                ),
            ),
            Some(field) if !field.unique_key => wrong(
                "KEY_NOT_UNIQUE",
                format!(
                    "{object}.{key} is not unique, so that doubles could be made; it must be {make}"
                ),
            ),
            Some(field) if !field.writable => wrong(
                "KEY_NOT_WRITABLE",
                format!("{object}.{key} cannot be written; it must be {make}"),
            ),
            Some(_) => Ok(()),
        }
    }

    /// That the object and the mapped properties can be written.
    pub fn check(&self, object: Object, mapped: &[Mapped]) -> Result<(), CallError> {
        if !self.may_write {
            return Err(CallError::Credentials {
                code: "INSUFFICIENT_ACCESS".to_owned(),
                message: format!(
                    "the app's user may not create and edit {}; give it a permission set that does",
                    object.name()
                ),
            });
        }
        for mapped in mapped {
            self.check_one(object, mapped)?;
        }
        Ok(())
    }

    fn check_one(&self, object: Object, mapped: &Mapped) -> Result<(), CallError> {
        let (object, property) = (object.name(), mapped.property.as_str());
        let wrong = |code: &str, message: String| {
            Err(CallError::Misconfigured { code: code.to_owned(), message })
        };
        let Some(field) = self.get(property) else {
            return Err(self.unknown(object, property));
        };
        if !field.writable {
            return wrong(
                "READ_ONLY_FIELD",
                format!(
                    "{object}.{property} cannot be written; map to another one in [destination.fields], or give \
                     the app's user the right to edit it"
                ),
            );
        }
        if field.kind == Type::Other {
            return wrong(
                "UNFIT_FIELD",
                format!("{object}.{property} is no field that a text can fill; map to another one"),
            );
        }
        let stray = |word: &&String| field.options.as_ref().is_some_and(|o| !o.contains(word));
        match mapped.values.values().find(stray) {
            None => Ok(()),
            Some(word) => wrong(
                "INVALID_OPTION",
                format!(
                    "{object}.{property} has no value \"{word}\"; correct `values` of {}, valid are {}",
                    mapped.value,
                    field.options.iter().flatten().cloned().collect::<Vec<_>>().join(", ")
                ),
            ),
        }
    }

    /// The error about a field that is not there.
    pub fn unknown(&self, object: &str, property: &str) -> CallError {
        let lower = property.to_lowercase();
        let like = self
            .by_name
            .iter()
            .map(|(name, field)| (strsim::jaro_winkler(name, &lower), &field.name))
            .filter(|(likeness, _)| *likeness > 0.85)
            .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
        let hint =
            like.map(|(_, name)| format!("did you mean \"{name}\"? Else ")).unwrap_or_default();
        CallError::Misconfigured {
            code: "INVALID_FIELD".to_owned(),
            message: format!(
                "{object} has no field \"{property}\", or the app's user may not see it; {hint}make it in \
                 Salesforce, or correct [destination.fields]"
            ),
        }
    }
}

impl FieldInfo {
    fn read(name: &str, field: &Value) -> FieldInfo {
        let is = |name: &str| field[name].as_bool().unwrap_or(false);
        let listed = field["picklistValues"].as_array().map(Vec::as_slice).unwrap_or_default();
        let active = listed.iter().filter(|v| v["active"].as_bool() != Some(false));
        let options = active.filter_map(|v| Some(v["value"].as_str()?.to_owned())).collect();
        let writable = is("createable") && is("updateable");
        FieldInfo {
            name: name.to_owned(),
            kind: kind(field["type"].as_str().unwrap_or_default()),
            writable,
            required: writable && !is("nillable") && !is("defaultedOnCreate"),
            unique_key: is("externalId") && is("unique"),
            options: is("restrictedPicklist").then_some(options),
        }
    }
}

fn kind(name: &str) -> Type {
    match name {
        "boolean" => Type::Flag,
        "int" | "long" => Type::Whole,
        "double" | "currency" | "percent" => Type::Number,
        "date" => Type::Day,
        "datetime" => Type::Time,
        "reference" | "id" | "base64" | "address" | "location" | "anyType" | "complexvalue" => {
            Type::Other
        }
        // Text of every sort; several values of a multi-select picklist are joined by `;`, as ours are.
        _ => Type::Text,
    }
}
