//! `…/sobjects/Lead/{id}` and `…/sobjects/Lead/{field}/{value}`: one record in a call.

use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::errors;
use super::write::{self, Done, Fields, Written};
use super::{Account, Object, Options, fields};

/// Endings that Salesforce takes for a file name, so that it does not find the resource.
const FILE_ENDINGS: [&str; 4] = [".inc", ".xml", ".json", ".html"];

pub(super) fn by_id(
    account: &mut Account,
    options: &Options,
    request: &Request,
    object: Object,
    id: &str,
) -> Answer {
    let live = |account: &Account| {
        let id = account.full_id(id)?;
        account.records.get(&id).filter(|r| !r.deleted && r.object == object)?;
        Some(id)
    };
    match request.method.as_str() {
        "GET" => match live(account) {
            Some(id) => Answer::json(200, &whole(account, options, object, &id)),
            None => errors::not_found(),
        },
        "DELETE" => match live(account) {
            Some(id) => {
                account.delete(options, &id, None);
                Answer::empty(204).written()
            }
            None => errors::refused(404, "ENTITY_IS_DELETED", "entity is deleted"),
        },
        "PATCH" => match body(options, request, object) {
            Ok(fields) => match account.update_one(options, request, object, id, &fields) {
                Ok(_) => Answer::empty(204).written(),
                Err(error) => error.answer(status(&error.code)),
            },
            Err(refused) => refused,
        },
        _ => errors::refused(405, "METHOD_NOT_ALLOWED", "HTTP Method not allowed"),
    }
}

pub(super) fn by_key(
    account: &mut Account,
    options: &Options,
    request: &Request,
    version: u32,
    object: Object,
    (field, value): (&str, &str),
) -> Answer {
    let value = percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
    if FILE_ENDINGS.iter().any(|end| value.ends_with(end)) {
        return errors::not_found();
    }
    let Some(key) = write::key_field(options, object, field) else { return write::no_key(field) };
    let found = account.with(object, &key, &value);
    if found.len() > 1 {
        let urls: Vec<String> = found
            .iter()
            .map(|id| format!("/services/data/v{version}.0/sobjects/{}/{id}", object.name()))
            .collect();
        return Answer::json(300, &json!(urls));
    }
    match (request.method.as_str(), found.first()) {
        ("GET", Some(id)) => Answer::json(200, &whole(account, options, object, id)),
        ("GET", None) => errors::not_found(),
        ("PATCH", found) => {
            if found.is_none() && request.param("updateOnly").as_deref() == Some("true") {
                return errors::not_found();
            }
            let mut fields = match body(options, request, object) {
                Ok(fields) => fields,
                Err(refused) => return refused,
            };
            if fields.contains_key("Id") || fields.contains_key(&key) {
                let message = "The Id field should not be specified in the sobject data.";
                return errors::refused(400, "INVALID_FIELD", message);
            }
            fields.insert(key.clone(), json!(value));
            answer(account.upsert_one(options, request, (object, &key), &fields), version)
        }
        _ => errors::refused(405, "METHOD_NOT_ALLOWED", "HTTP Method not allowed"),
    }
}

fn answer(written: Written, version: u32) -> Answer {
    match written {
        Ok(Done { created: false, .. }) if version < 46 => Answer::empty(204).written(),
        Ok(Done { id, created }) => {
            let body = json!({"id": id, "success": true, "errors": [], "created": created});
            Answer::json(if created { 201 } else { 200 }, &body).written()
        }
        Err(error) => error.answer(status(&error.code)),
    }
}

fn status(code: &str) -> u16 {
    match code {
        "ENTITY_IS_DELETED" | "INVALID_CROSS_REFERENCE_KEY" => 404,
        "INSUFFICIENT_ACCESS_OR_READONLY" => 403,
        _ => 400,
    }
}

fn body(options: &Options, request: &Request, object: Object) -> Result<Fields, Answer> {
    let Ok(Value::Object(members)) = serde_json::from_slice(&request.body) else {
        return Err(errors::refused(400, "JSON_PARSER_ERROR", "Unexpected character"));
    };
    fields::shape(options, object, &members)?;
    Ok(write::named(options, object, &members))
}

/// A record with all of its fields.
fn whole(account: &Account, options: &Options, object: Object, id: &str) -> Value {
    let Some(stored) = account.records.get(id) else { return Value::Null };
    let names = options.fields(object).iter().map(|f| f.name.as_str());
    let mut record: serde_json::Map<String, Value> =
        names.map(|name| (name.to_owned(), stored.read(id, options, name))).collect();
    record.insert("attributes".to_owned(), json!({"type": object.name()}));
    Value::Object(record)
}
