//! Reads: one contact, a batch, the lagging search, the property list.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::{Account, Options, Stored, body, errors, time};

/// The contact a path names: `/1001`, or `/ana%40example.com?idProperty=email`.
pub(super) fn named(account: &Account, request: &Request, path: &str) -> Option<u64> {
    // The one decoder at hand turns "+" into a blank, and addresses have one.
    let path = path.strip_prefix('/')?.replace('+', "%2B");
    let id = form_urlencoded::parse(path.as_bytes()).next()?.0.into_owned();
    account.find(&id, request.param("idProperty").as_deref())
}

pub(super) fn one(account: &Account, request: &Request, path: &str) -> Answer {
    let found = named(account, request, path).and_then(|id| account.contacts.get_key_value(&id));
    let Some((id, stored)) = found else { return errors::no_contact() };
    let wanted = request.param("properties").unwrap_or_else(|| "email,firstname,lastname".into());
    Answer::json(200, &stored.object(*id, wanted.split(',')))
}

pub(super) fn batch(account: &Account, options: &Options, request: &Request) -> Answer {
    let body = match body(request) {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let property = body.get("idProperty").and_then(Value::as_str);
    let unique = |name: &str| options.properties.iter().any(|p| p.name == name && p.unique);
    if property.is_some_and(|p| p != "hs_object_id" && !unique(p)) {
        return errors::refused("idProperty is not a unique property");
    }
    let ids: Vec<&str> = texts(body.get("inputs"), |item| item["id"].as_str());
    if ids.len() > 100 {
        return errors::refused("The maximum number of inputs supported in a batch request is 100");
    }
    let wanted: Vec<&str> = texts(body.get("properties"), Value::as_str);
    let now = time(jiff::Timestamp::now());
    let mut results = Vec::new();
    let mut missing = Vec::new();
    for id in ids {
        match account.find(id, property).and_then(|id| account.contacts.get_key_value(&id)) {
            Some((id, stored)) => results.push(stored.object(*id, wanted.iter().copied())),
            None => missing.push(id),
        }
    }
    results.reverse();
    let mut answer =
        json!({"status": "COMPLETE", "results": results, "startedAt": now, "completedAt": now});
    if missing.is_empty() {
        return Answer::json(200, &answer);
    }
    answer["numErrors"] = json!(1);
    answer["errors"] = json!([{
        "status": "error", "category": "OBJECT_NOT_FOUND",
        "message": "Could not get some CONTACT objects, they may be deleted or not exist.",
        "context": {"ids": missing},
    }]);
    Answer::json(207, &answer)
}

/// A page of all contacts that are not in the bin, in the order of their ids.
pub(super) fn list(account: &Account, request: &Request) -> Answer {
    let limit = request.param("limit").map_or(Some(10), |limit| limit.parse::<usize>().ok());
    let after = request.param("after").map_or(Some(0), |after| after.parse::<u64>().ok());
    let (Some(limit), Some(after)) = (limit.filter(|n| (1..=100).contains(n)), after) else {
        return errors::refused("limit is 1 to 100, after is from paging.next");
    };
    let wanted = request.param("properties").unwrap_or_else(|| "email,firstname,lastname".into());
    let mut rest =
        account.contacts.range(after..).filter(|(_, stored)| !stored.archived).peekable();
    let mut results = Vec::new();
    while results.len() < limit
        && let Some((id, stored)) = rest.next()
    {
        results.push(stored.object(*id, wanted.split(',')));
    }
    let mut answer = json!({"results": results});
    if let Some((next, _)) = rest.peek() {
        answer["paging"] = json!({"next": {"after": next.to_string()}});
    }
    Answer::json(200, &answer)
}

fn texts<'a>(list: Option<&'a Value>, text: impl Fn(&'a Value) -> Option<&'a str>) -> Vec<&'a str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(text).collect()
}

pub(super) fn search(account: &Account, options: &Options, request: &Request) -> Answer {
    let body = match body(request) {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let number = |name: &str, default: usize| match body.get(name) {
        Some(Value::String(text)) => text.parse().unwrap_or(default),
        Some(number) => number.as_u64().and_then(|n| n.try_into().ok()).unwrap_or(default),
        None => default,
    };
    let (limit, after) = (number("limit", 10), number("after", 0));
    if limit > 200 {
        return errors::refused("limit must be at most 200");
    }
    let wanted: Vec<&str> = texts(body.get("properties"), Value::as_str);
    let groups = body.get("filterGroups").and_then(Value::as_array).cloned().unwrap_or_default();
    let hits: Vec<Value> = account
        .contacts
        .iter()
        .filter(|(_, stored)| !stored.archived)
        .filter_map(|(id, stored)| Some((id, stored, indexed(stored, options)?)))
        .filter(|(_, _, seen)| groups.is_empty() || groups.iter().any(|g| matches(g, seen)))
        .map(|(id, stored, seen)| {
            let mut hit = stored.object(*id, []);
            for name in wanted.iter().chain(&["email", "firstname", "lastname"]) {
                hit["properties"][*name] = json!(seen.get(*name));
            }
            hit
        })
        .collect();
    let page: Vec<&Value> = hits.iter().skip(after).take(limit).collect();
    let mut answer = json!({"total": hits.len(), "results": page});
    let next = after.saturating_add(limit);
    if next < hits.len() {
        answer["paging"] = json!({"next": {"after": next.to_string()}});
    }
    Answer::json(200, &answer)
}

/// The contact as the search index knows it, which is not yet as it is.
fn indexed<'a>(stored: &'a Stored, options: &Options) -> Option<&'a BTreeMap<String, String>> {
    stored.versions.iter().rev().find(|(at, _)| at.elapsed() >= options.search_lag).map(|(_, p)| p)
}

fn matches(group: &Value, seen: &BTreeMap<String, String>) -> bool {
    let filters = group["filters"].as_array().map(Vec::as_slice).unwrap_or_default();
    filters.iter().all(|filter| {
        let has = filter["propertyName"].as_str().and_then(|name| seen.get(name));
        let is = |v: &Value| {
            has.zip(v.as_str()).is_some_and(|(has, v)| has.to_lowercase() == v.to_lowercase())
        };
        match filter["operator"].as_str().unwrap_or_default() {
            "EQ" => is(&filter["value"]),
            "NEQ" => !is(&filter["value"]),
            "IN" => filter["values"].as_array().is_some_and(|list| list.iter().any(is)),
            "HAS_PROPERTY" => has.is_some(),
            "NOT_HAS_PROPERTY" => has.is_none(),
            "GTE" => has.zip(filter["value"].as_str()).is_some_and(|(has, v)| has.as_str() >= v),
            _ => false,
        }
    })
}

pub(super) fn properties(options: &Options) -> Answer {
    let list: Vec<Value> = options
        .properties
        .iter()
        .map(|p| {
            let choices: Vec<Value> =
                p.options.iter().map(|o| json!({"label": o, "value": o, "hidden": false})).collect();
            json!({
                "name": p.name, "label": p.name, "type": p.kind, "fieldType": "text", "groupName": "contactinformation",
                "hidden": false, "hasUniqueValue": p.unique, "calculated": false, "options": choices,
                "modificationMetadata": {
                    "archivable": true, "readOnlyDefinition": false, "readOnlyValue": p.read_only,
                },
            })
        })
        .collect();
    Answer::json(200, &json!({"results": list}))
}
