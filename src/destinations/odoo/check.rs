//! Looks whether what is configured can work, without writing.

use serde_json::{Value, json};

use super::super::{CallError, Mapped};
use super::{Object, Odoo};

/// Types of fields that a cell of text can fill.
const FILLABLE: [&str; 11] = [
    "char",
    "text",
    "html",
    "boolean",
    "integer",
    "float",
    "monetary",
    "date",
    "datetime",
    "selection",
    "many2one",
];

fn wrong(code: &str, message: String) -> CallError {
    CallError::Misconfigured { code: code.to_owned(), message }
}

impl Odoo {
    pub(super) async fn check_all(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        let model = self.object.model();
        let attributes = json!(["type", "readonly", "selection", "relation"]);
        let args = vec![("allfields", json!([])), ("attributes", attributes)];
        let listed = self.ask(model, "fields_get", args).await?;
        if listed.get("email_normalized").is_none() {
            return Err(wrong(
                "NO_EMAIL_NORMALIZED",
                format!(
                    "{model} has no field email_normalized; install Odoo's app {}",
                    if self.object == Object::Lead { "CRM" } else { "Contacts" }
                ),
            ));
        }
        for field in fields {
            check_field(model, &listed, field)?;
        }
        for right in ["create", "write"] {
            if !self.may(right).await? {
                return Err(CallError::Credentials {
                    code: "AccessError".to_owned(),
                    message: format!(
                        "the user may not {right} {model}; give it the group {} in Odoo (Settings, Users)",
                        match self.object {
                            Object::Partner => "\"Contact Creation\"",
                            Object::Lead => "\"Sales: User: All Documents\"",
                        }
                    ),
                });
            }
        }
        let mut found = vec![
            format!("{} knows the key and lets it write {model}", self.client.shown()),
            match self.object {
                Object::Partner => "contacts are found by e-mail, and kept apart by an external id that Odoo keeps unique",
                Object::Lead => "leads are kept apart by an external id that Odoo keeps unique",
            }
            .to_owned(),
        ];
        if !fields.is_empty() {
            found.push(format!("all {} mapped fields exist and can be written", fields.len()));
        }
        Ok(found)
    }

    async fn may(&self, right: &str) -> Result<bool, CallError> {
        let model = self.object.model();
        let older = vec![("operation", json!(right)), ("raise_exception", json!(false))];
        match self.ask(model, "check_access_rights", older).await {
            // It went with Odoo 19.
            Err(CallError::Misconfigured { code, .. } | CallError::Refused { code, .. })
                if code == "AttributeError" || code == "NotFound" =>
            {
                let newer = vec![("ids", json!([])), ("operation", json!(right))];
                Ok(self.ask(model, "has_access", newer).await? == true)
            }
            answer => Ok(answer? == true),
        }
    }
}

fn check_field(model: &str, listed: &Value, field: &Mapped) -> Result<(), CallError> {
    let property = field.property.as_str();
    let (name, sub) = match property.split_once('/') {
        Some((name, sub)) => (name, Some(sub)),
        None => (property, None),
    };
    let Some(there) = listed.get(name) else {
        let names = listed.as_object().into_iter().flatten().map(|(name, _)| name);
        let like = |listed: &&String| strsim::jaro_winkler(listed, name) > 0.85;
        let hint = names
            .filter(like)
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        let hint = hint.map(|h| format!("did you mean \"{h}\"? Else ")).unwrap_or_default();
        return Err(wrong(
            "NO_FIELD",
            format!(
                "{model} has no field \"{name}\"; {hint}make it in Odoo (Settings, Technical, Fields), or \
                 correct [destination.fields]"
            ),
        ));
    };
    let kind = there["type"].as_str().unwrap_or_default();
    if there["readonly"] == true {
        return Err(wrong(
            "READONLY",
            format!(
                "{model}'s field \"{name}\" is kept by Odoo; map to another one in [destination.fields]"
            ),
        ));
    }
    let by_id = sub.is_some_and(|sub| kind == "many2one" && ["id", ".id"].contains(&sub));
    if !FILLABLE.contains(&kind) || sub.is_some() && !by_id {
        return Err(wrong(
            "TYPE",
            format!(
                "{model}'s field \"{property}\" of type {kind} cannot be filled with a value of a lead"
            ),
        ));
    }
    let value = field.value.as_str();
    let translated = !field.values.is_empty() || value.starts_with("attributes.");
    let fits = match kind {
        "boolean" => translated || value == "marketing_consent",
        "integer" | "float" | "monetary" | "date" | "datetime" => translated,
        _ => true,
    };
    if !fits {
        return Err(wrong(
            "TYPE",
            format!(
                "{model}'s field \"{property}\" is of type {kind}, which `{value}` is not; map to another one, \
                 or say with `values` what becomes of its words"
            ),
        ));
    }
    let options = there["selection"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known = |word: &String| {
        options.iter().flat_map(|pair| pair.as_array().into_iter().flatten()).any(|own| own == word)
    };
    match field.values.values().find(|word| kind == "selection" && !known(word)) {
        None => Ok(()),
        Some(word) => {
            let keys: Vec<&str> = options.iter().filter_map(|pair| pair[0].as_str()).collect();
            Err(wrong(
                "NO_OPTION",
                format!(
                    "{model}'s field \"{name}\" does not have \"{word}\"; it has {}",
                    keys.join(", ")
                ),
            ))
        }
    }
}
