//! The fields of a module as Zoho lists them: what may be written, in which type, and under which name.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::typed::Type;
use super::super::{CallError, Mapped, Record};
use super::{FILLED, Module, NOT_PROVIDED};

/// Fields that a conversion carries over under another name.
const RENAMED: [(&str, &str); 6] = [
    ("Designation", "Title"),
    ("Street", "Mailing_Street"),
    ("City", "Mailing_City"),
    ("State", "Mailing_State"),
    ("Zip_Code", "Mailing_Zip"),
    ("Country", "Mailing_Country"),
];

/// The name of a field at the other module, where it has another one there.
fn renamed(name: &str) -> Option<&'static str> {
    let (a, b) = RENAMED.iter().find(|(a, b)| name == *a || name == *b)?;
    Some(if name == *a { b } else { a })
}

/// The property of ours that a field of either module is, or the field itself.
pub(super) fn property(field: &str, record: &Record) -> String {
    let is = |property: &&String| *property == field || renamed(property) == Some(field);
    let known = record.properties.iter().map(|(property, _)| property).find(is);
    known.cloned().unwrap_or_else(|| field.to_owned())
}

/// A module of the account.
pub(super) struct Fields(HashMap<String, FieldInfo>);

/// A field.
pub(super) struct FieldInfo {
    pub name: String,
    pub kind: Type,
    pub writable: bool,
    /// No record can be made without it.
    pub required: bool,
    unique: bool,
}

impl Fields {
    pub fn read(body: &Value) -> Fields {
        let list = body["fields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = list.iter().filter_map(|f| Some((f["api_name"].as_str()?, f)));
        Fields(named.map(|(name, f)| (name.to_owned(), FieldInfo::read(name, f))).collect())
    }

    pub fn get(&self, name: &str) -> Option<&FieldInfo> {
        self.0.get(name)
    }

    /// Where a property that is mapped for the other module goes in this one.
    pub fn moved(&self, name: &str) -> Option<&FieldInfo> {
        let field = self.get(name).or_else(|| self.get(renamed(name)?));
        field.filter(|field| field.writable)
    }

    fn unfilled(&self, body: &Map<String, Value>) -> impl Iterator<Item = &'static str> {
        FILLED.into_iter().filter(|name| {
            let blank = |v: &Value| v.is_null() || v == "";
            self.get(name).is_some_and(|f| f.required) && body.get(*name).is_none_or(blank)
        })
    }

    /// Whether a record lacks what every new record must have.
    pub fn lacks(&self, body: &Map<String, Value>) -> bool {
        self.unfilled(body).next().is_some()
    }

    /// The record with that.
    pub fn filled(&self, mut body: Map<String, Value>) -> Map<String, Value> {
        for name in self.unfilled(&body).collect::<Vec<_>>() {
            body.insert(name.to_owned(), json!(NOT_PROVIDED));
        }
        body
    }

    /// That the key is what it must be, or the destination may not run: without it two calls at once make a double.
    pub fn check_key(&self, module: Module, key: &str) -> Result<(), CallError> {
        let module = module.name();
        let wrong = |code: &str, message: String| {
            Err(CallError::Misconfigured { code: code.to_owned(), message })
        };
        let set = "in Zoho (Setup, Modules and Fields), edit the field and set \"Do not allow duplicate values\"";
        match self.get(key) {
            None => wrong("NO_KEY", format!("{module} has no field {key}; correct `key_property`")),
            Some(field) if !field.unique => wrong(
                "KEY_NOT_UNIQUE",
                format!(
                    "{module}.{key} allows duplicate values, so that doubles could be made; {set}"
                ),
            ),
            Some(field) if !field.writable => {
                wrong("KEY_NOT_WRITABLE", format!("{module}.{key} cannot be written"))
            }
            Some(_) => Ok(()),
        }
    }

    /// That the mapped fields can be written.
    pub fn check(&self, module: Module, key: &str, mapped: &[Mapped]) -> Result<(), CallError> {
        for property in mapped.iter().map(|m| m.property.as_str()) {
            let (name, wrong) = (module.name(), |code: &str, message: String| {
                Err(CallError::Misconfigured { code: code.to_owned(), message })
            });
            match self.get(property) {
                None => return Err(self.unknown(module, property)),
                Some(field) if !field.writable => {
                    return wrong(
                        "READ_ONLY_FIELD",
                        format!(
                            "{name}.{property} cannot be written; map to another one in [destination.fields]"
                        ),
                    );
                }
                Some(field) if field.kind == Type::Other => {
                    return wrong(
                        "UNFIT_FIELD",
                        format!(
                            "{name}.{property} is no field that a text can fill; map to another one"
                        ),
                    );
                }
                Some(_) => self.check_unique(module, key, property)?,
            }
        }
        Ok(())
    }

    /// That a property is no second key: Zoho looks for a new record by every unique field, so that two people with one
    /// phone would become one.
    pub fn check_unique(&self, module: Module, key: &str, property: &str) -> Result<(), CallError> {
        let unique = self.get(property).is_some_and(|field| field.unique);
        if !unique || property == key || property == "Email" {
            return Ok(());
        }
        let module = module.name();
        Err(CallError::Misconfigured {
            code: "UNIQUE_FIELD".to_owned(),
            message: format!(
                "{module}.{property} does not allow duplicate values: Zoho would take a lead for the record that has its \
                 {property}; allow them, or map to another field"
            ),
        })
    }

    /// The error about a field that is not there.
    pub fn unknown(&self, module: Module, property: &str) -> CallError {
        let like = self
            .0
            .keys()
            .map(|name| (strsim::jaro_winkler(name, property), name))
            .filter(|(likeness, _)| *likeness > 0.85)
            .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)));
        let hint =
            like.map(|(_, name)| format!("did you mean \"{name}\"? Else ")).unwrap_or_default();
        CallError::Misconfigured {
            code: "INVALID_FIELD".to_owned(),
            message: format!(
                "{} has no field with the API name \"{property}\"; {hint}make it in Zoho, or correct \
                 [destination.fields]",
                module.name()
            ),
        }
    }
}

impl FieldInfo {
    fn read(name: &str, field: &Value) -> FieldInfo {
        let may = |operation: &str| field["operation_type"][operation].as_bool().unwrap_or(true);
        let unique = match &field["unique"] {
            Value::Object(members) => !members.is_empty(),
            other => other.as_bool().unwrap_or(false),
        };
        FieldInfo {
            name: name.to_owned(),
            kind: kind(field["data_type"].as_str().unwrap_or_default()),
            writable: may("api_create") && may("api_update") && field["read_only"] != true,
            required: field["system_mandatory"] == true,
            unique,
        }
    }
}

fn kind(name: &str) -> Type {
    match name {
        "boolean" => Type::Flag,
        "integer" => Type::Whole,
        "double" | "currency" | "percent" => Type::Number,
        "date" => Type::Day,
        "datetime" => Type::Time,
        "multiselectpicklist" => Type::List,
        "lookup" | "ownerlookup" | "userlookup" | "multiuserlookup" | "multiselectlookup"
        | "subform" | "fileupload" | "imageupload" | "profileimage" | "formula"
        | "rollup_summary" | "autonumber" | "consent_lookup" | "event_reminder" | "ALARM"
        | "RRULE" => Type::Other,
        _ => Type::Text,
    }
}
