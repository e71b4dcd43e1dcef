//! Reading: contacts that are there, and the list of properties.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::super::client::{Answer, Call};
use super::super::{CallError, Mapped, Page, Record, Remote};
use super::{BATCH, STAGES, id, items, said, stage};

const CONTACTS: &str = "/crm/v3/objects/contacts";
const READ: &str = "/crm/v3/objects/contacts/batch/read";
/// Addresses beside the first one that a contact is found by, joined with `;`.
const SECONDARY: &str = "hs_additional_emails";

/// The question for the contacts of records that are all known by id, or all by e-mail.
pub(super) fn asked(records: &[Record], properties: &[String]) -> Call {
    let inputs: Vec<Value> = records
        .iter()
        .map(|record| json!({"id": record.remote_id.as_ref().unwrap_or(&record.lead.email)}))
        .collect();
    let own = ["email", SECONDARY];
    let wanted: Vec<&str> = own.into_iter().chain(properties.iter().map(String::as_str)).collect();
    let mut body = json!({"properties": wanted, "inputs": inputs});
    if records.iter().any(|record| record.remote_id.is_none()) {
        body["idProperty"] = json!("email");
    }
    Call::post(READ).json(&body)
}

/// The contacts of each record; never by position.
pub(super) fn found(answer: &Answer, records: &[Record]) -> Result<Vec<Vec<Remote>>, CallError> {
    let body = answer.json()?;
    if !(200..300).contains(&answer.status) {
        let refusal = said::refusal(answer, &body, records);
        let nothing = answer.status == 404 && records.len() == 1;
        return if nothing { Ok(vec![Vec::new()]) } else { Err(refusal) };
    }
    let mut at_key = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        let email = || record.lead.email.to_lowercase();
        at_key.insert(record.remote_id.clone().unwrap_or_else(email), at);
    }
    let mut found = vec![Vec::new(); records.len()];
    for contact in items(&body, "results") {
        let Some(remote) = remote(contact) else { continue };
        let secondary = contact["properties"][SECONDARY].as_str().unwrap_or_default();
        let addresses = secondary.split(';').map(|address| address.trim().to_lowercase());
        let keys = remote.email.clone().into_iter().chain([remote.id.clone()]).chain(addresses);
        // Two leads whose contacts were merged have the same one.
        let mut places: Vec<usize> = keys.filter_map(|key| at_key.get(&key).copied()).collect();
        if places.is_empty() && records.len() == 1 {
            places.push(0);
        }
        if places.is_empty() {
            // A merged contact under a new id: asked for alone, it can be told. Nothing was written.
            return Err(CallError::Refused {
                code: "UNMATCHED".to_owned(),
                field: None,
                message: "the answer has a contact that was not asked for".to_owned(),
            });
        }
        for at in places {
            let Some(list): Option<&mut Vec<Remote>> = found.get_mut(at) else { continue };
            if !list.iter().any(|known| known.id == remote.id) {
                list.push(remote.clone());
            }
        }
    }
    Ok(found)
}

/// The question for a page of all contacts.
pub(super) fn page_asked(cursor: Option<&str>, properties: &[String]) -> Call {
    let wanted: Vec<&str> =
        ["email"].into_iter().chain(properties.iter().map(String::as_str)).collect();
    let call =
        Call::get(CONTACTS).query("limit", BATCH.to_string()).query("properties", wanted.join(","));
    match cursor {
        Some(after) => call.query("after", after),
        None => call,
    }
}

/// One page of all contacts.
pub(super) fn page(answer: &Answer) -> Result<Page, CallError> {
    let body = answer.json()?;
    if answer.status != 200 {
        return Err(said::refusal(answer, &body, &[]));
    }
    Ok(Page {
        contacts: items(&body, "results").iter().filter_map(remote).collect(),
        next: body["paging"]["next"]["after"].as_str().map(str::to_owned),
    })
}

fn remote(contact: &Value) -> Option<Remote> {
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        _ => None,
    };
    let members = contact["properties"].as_object();
    let properties: BTreeMap<String, Option<String>> = members
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let value = text(value);
            let value = if name == "lifecyclestage" { value.map(ours) } else { value };
            (name.clone(), value)
        })
        .collect();
    let email = properties.get("email").cloned().flatten();
    Some(Remote {
        id: id(contact)?,
        email: email.map(|email| email.to_lowercase()),
        properties,
        archived: contact["archived"] == true,
    })
}

/// Our word for a lifecycle stage of HubSpot.
fn ours(theirs: String) -> String {
    let known = STAGES.iter().find(|(_, name)| *name == theirs);
    known.map_or(theirs, |(ours, _)| (*ours).to_owned())
}

/// Whether the mapped properties are there and take what is sent. `body`: the list of properties.
pub(super) fn check(body: &Value, fields: &[Mapped]) -> Result<(), CallError> {
    let listed: HashMap<&str, &Value> =
        items(body, "results").iter().filter_map(|p| Some((p["name"].as_str()?, p))).collect();
    for field in fields {
        let property = field.property.as_str();
        let Some(found) = listed.get(property) else {
            let like = |name: &&&str| strsim::jaro_winkler(name, property) > 0.85;
            let hint = listed.keys().find(like);
            let hint = hint.map(|h| format!("did you mean \"{h}\"? Else ")).unwrap_or_default();
            let why = format!(
                "HubSpot has no contact property \"{property}\"; {hint}create it there \
                 (Settings, Properties), or correct [destination.fields]"
            );
            return misconfigured("PROPERTY_DOESNT_EXIST", why);
        };
        if found["modificationMetadata"]["readOnlyValue"] == true {
            let why = format!(
                "HubSpot's contact property \"{property}\" cannot be written; map to another one \
                 in [destination.fields]"
            );
            return misconfigured("READ_ONLY_VALUE", why);
        }
        check_options(field, items(found, "options"))?;
    }
    Ok(())
}

/// Whether the words that a mapping translates to are among the options of an enumeration.
fn check_options(field: &Mapped, options: &[Value]) -> Result<(), CallError> {
    let known: Vec<&str> = options.iter().filter_map(|option| option["value"].as_str()).collect();
    let odd = field.values.values().find(|word| !known.contains(&stage(word)));
    match odd {
        Some(word) if !known.is_empty() => misconfigured(
            "INVALID_OPTION",
            format!(
                "HubSpot's contact property \"{}\" has no option \"{word}\"; correct `values` in \
                 [destination.fields] (internal values: {})",
                field.property,
                known.join(", ")
            ),
        ),
        _ => Ok(()),
    }
}

fn misconfigured(code: &str, message: String) -> Result<(), CallError> {
    Err(CallError::Misconfigured { code: code.to_owned(), message })
}
