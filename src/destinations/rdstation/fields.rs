//! Fields of a contact: what they hold, and a lead's values in their terms. Pure.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::{CallError, Remote};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataType {
    Text,
    Texts,
    Integer,
    Boolean,
    /// Consents, as the LGPD wants them kept.
    LegalBases,
}

impl DataType {
    /// Of RD Station's own fields, which every account has.
    pub fn of(name: &str) -> DataType {
        match name {
            "tags" => DataType::Texts,
            "legal_bases" => DataType::LegalBases,
            _ => DataType::Text,
        }
    }

    fn parse(text: &str) -> DataType {
        match text {
            "STRING[]" => DataType::Texts,
            "INTEGER" => DataType::Integer,
            "BOOLEAN" => DataType::Boolean,
            _ => DataType::Text,
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            DataType::Text => "a text",
            DataType::Texts => "a list of texts",
            DataType::Integer => "a whole number",
            DataType::Boolean => "yes or no",
            DataType::LegalBases => "a consent",
        }
    }
}

/// A field of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub kind: DataType,
    /// Values that it takes; empty: any.
    pub options: Vec<String>,
}

/// The fields in an answer, by their names.
pub(super) fn listed(body: &Value) -> HashMap<String, Field> {
    let field = |field: &Value| {
        let name = field["api_identifier"].as_str()?.to_owned();
        let options = [&field["valid_options"], &field["validation_rules"]["valid_options"]];
        let options = options.into_iter().flat_map(|list| list.as_array().into_iter().flatten());
        let options = options.filter_map(|option| option["value"].as_str().map(str::to_owned));
        let kind = DataType::parse(field["data_type"].as_str().unwrap_or_default());
        Some((name, Field { kind, options: options.collect() }))
    };
    body["fields"].as_array().into_iter().flatten().filter_map(field).collect()
}

/// A value as its field takes it; `Ok(None)`: there is nothing to send. The error is a code.
pub(super) fn value(kind: DataType, text: Option<&str>) -> Result<Option<Value>, &'static str> {
    let Some(text) = text else {
        return Ok(match kind {
            DataType::Text | DataType::Integer | DataType::Boolean => Some(Value::Null),
            DataType::Texts => Some(json!([])),
            // Not knowing is no withdrawal.
            DataType::LegalBases => None,
        });
    };
    Ok(Some(match kind {
        DataType::Text => json!(text),
        DataType::Texts => {
            let list: Vec<&str> =
                text.split(';').map(str::trim).filter(|t| !t.is_empty()).collect();
            json!(list)
        }
        DataType::Integer => json!(text.trim().parse::<i64>().map_err(|_| "NOT_AN_INTEGER")?),
        DataType::Boolean => json!(yes_or_no(text).ok_or("NOT_A_BOOLEAN")?),
        DataType::LegalBases => {
            let status = match yes_or_no(text).ok_or("NOT_A_CONSENT")? {
                true => "granted",
                false => "declined",
            };
            json!([{"category": "communications", "type": "consent", "status": status}])
        }
    }))
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "true" | "yes" | "1" | "sim" => Some(true),
        "false" | "no" | "0" | "não" | "nao" => Some(false),
        _ => None,
    }
}

/// Says that the account has no such field.
pub(super) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> CallError {
    let near = known
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(likeness, _)| *likeness > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = near.map(|(_, near)| format!("did you mean \"{near}\"? Else ")).unwrap_or_default();
    CallError::Misconfigured {
        code: "NO_FIELD".to_owned(),
        message: format!(
            "RD Station has no contact field \"{name}\"; {hint}make it there (its name then begins with cf_), or \
             correct [destination.fields]"
        ),
    }
}

/// A contact of an answer.
pub(super) fn remote(contact: &Value, properties: &[String]) -> Option<Remote> {
    let id = contact["uuid"].as_str()?.to_owned();
    // A whole contact leaves out what is blank; one in a list has little more than the address.
    let whole = contact.get("extra_emails").is_some() || contact.get("tags").is_some();
    let known = |property: &String| match contact.get(property) {
        Some(value) => Some((property.clone(), text(value))),
        None => whole.then(|| (property.clone(), None)),
    };
    Some(Remote {
        id,
        email: contact["email"].as_str().map(str::to_lowercase),
        properties: properties.iter().filter_map(known).collect(),
        archived: false,
    })
}

/// A value in the words that a push would use.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Value::Array(list) => {
            if let Some(texts) = list.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
                return Some(texts.join(";")).filter(|text| !text.is_empty());
            }
            let consent = list.iter().find(|basis| basis["type"] == "consent")?;
            Some((consent["status"] == "granted").to_string())
        }
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_the_terms_of_their_fields() {
        let taken = |kind, text| value(kind, Some(text)).unwrap().unwrap();
        assert_eq!(taken(DataType::Text, "5"), json!("5"));
        assert_eq!(taken(DataType::Texts, "a; b;;c"), json!(["a", "b", "c"]));
        assert_eq!(taken(DataType::Integer, " 12 "), json!(12));
        assert_eq!(taken(DataType::Boolean, "Sim"), json!(true));
        assert_eq!(taken(DataType::LegalBases, "false")[0]["status"], "declined");
        assert_eq!(value(DataType::Integer, Some("many")), Err("NOT_AN_INTEGER"));
        assert_eq!(value(DataType::Boolean, Some("maybe")), Err("NOT_A_BOOLEAN"));
        assert_eq!(value(DataType::Text, None), Ok(Some(Value::Null)));
        assert_eq!(value(DataType::Texts, None), Ok(Some(json!([]))));
        assert_eq!(value(DataType::LegalBases, None), Ok(None));
    }

    #[test]
    fn a_contact_of_a_list_says_nothing_of_its_fields() {
        let properties = ["city".to_owned(), "tags".to_owned(), "legal_bases".to_owned()];
        let mut contact = json!({"uuid": "u", "email": "A@x.com", "name": "A"});
        let listed = remote(&contact, &properties).unwrap();
        assert_eq!((listed.email.as_deref(), listed.properties.len()), (Some("a@x.com"), 0));
        contact["tags"] = json!(["a", "b"]);
        contact["legal_bases"] = json!([{"type": "consent", "status": "granted"}]);
        let whole = remote(&contact, &properties).unwrap();
        assert_eq!(whole.properties["city"], None, "left out, so it is blank");
        assert_eq!(whole.properties["tags"].as_deref(), Some("a;b"));
        assert_eq!(whole.properties["legal_bases"].as_deref(), Some("true"));
        assert_eq!(remote(&json!({"email": "a@x.com"}), &properties), None);
    }
}
