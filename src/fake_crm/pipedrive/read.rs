//! Reads: one person, the list, the lagging search, the fields.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::{Account, Indexed, Options, Person, errors, fields};

/// Largest page.
const PAGE: usize = 500;

pub(super) fn one(account: &Account, options: &Options, request: &Request, id: u64) -> Answer {
    match account.persons.get(&id).filter(|p| !p.gone) {
        Some(person) => data(&person.object(id, codes(request).as_deref(), &options.fields)),
        None => errors::no_person(404),
    }
}

fn data(value: &Value) -> Answer {
    Answer::json(200, &json!({"success": true, "data": value}))
}

/// The custom fields that are asked for.
fn codes(request: &Request) -> Option<Vec<&str>> {
    let query = request.query.split('&').find_map(|pair| pair.strip_prefix("custom_fields="));
    query.map(|list| list.split(',').flat_map(|part| part.split("%2C")).collect())
}

/// The size of a page, or what is wrong with it.
fn limit(request: &Request) -> Result<usize, Answer> {
    let asked = match request.param("limit") {
        None => return Ok(100),
        Some(asked) => asked.parse(),
    };
    match asked {
        Ok(limit @ 1..=PAGE) => Ok(limit),
        _ => Err(errors::invalid("Parameter 'limit' should be between 1 and 500")),
    }
}

/// A time in whole seconds; fractions are refused.
fn moment(request: &Request, name: &str) -> Result<Option<Timestamp>, Answer> {
    let Some(text) = request.param(name) else { return Ok(None) };
    let whole = !text.contains('.') && text.contains('T');
    match text.parse() {
        Ok(at) if whole => Ok(Some(at)),
        _ => Err(errors::invalid(&format!("Parameter '{name}' is not a valid datetime"))),
    }
}

pub(super) fn list(account: &Account, options: &Options, request: &Request) -> Answer {
    match listed(account, options, request) {
        Ok(answer) | Err(answer) => answer,
    }
}

fn listed(account: &Account, options: &Options, request: &Request) -> Result<Answer, Answer> {
    let limit = limit(request)?;
    let (since, until) = (moment(request, "updated_since")?, moment(request, "updated_until")?);
    let codes = codes(request);
    if codes.as_ref().is_some_and(|codes| codes.len() > 15) {
        return Err(errors::invalid("Parameter 'custom_fields' takes up to 15 fields"));
    }
    let ids: Option<Vec<u64>> =
        request.param("ids").map(|ids| ids.split(',').filter_map(|id| id.parse().ok()).collect());
    let sort = request.param("sort_by").unwrap_or_else(|| "id".to_owned());
    let key = |id: u64, person: &Person| match sort.as_str() {
        "add_time" => (person.added.as_second(), id),
        "update_time" => (person.updated.as_second(), id),
        _ => (0, id),
    };
    let second = |at: Timestamp| at.as_second();
    let mut found: Vec<((i64, u64), &Person)> = account
        .persons
        .iter()
        .filter(|(id, p)| !p.gone && ids.as_ref().is_none_or(|ids| ids.contains(id)))
        .filter(|(_, p)| since.is_none_or(|at| second(p.updated) >= second(at)))
        .filter(|(_, p)| until.is_none_or(|at| second(p.updated) < second(at)))
        .map(|(id, person)| (key(*id, person), person))
        .collect();
    found.sort_unstable_by_key(|(key, _)| *key);
    let descends = request.param("sort_direction").as_deref() == Some("desc");
    if descends {
        found.reverse();
    }
    if let Some(cursor) = request.param("cursor") {
        let after = read_cursor(&cursor).ok_or_else(|| errors::invalid("Invalid cursor"))?;
        found.retain(|(key, _)| if descends { *key < after } else { *key > after });
    }
    let page: Vec<Value> = found
        .iter()
        .take(limit)
        .map(|((_, id), person)| person.object(*id, codes.as_deref(), &options.fields))
        .collect();
    let last = found.get(limit.saturating_sub(1)).filter(|_| found.len() > limit);
    let next = last.map(|((key, id), _)| hex::encode(format!("{key}:{id}")));
    let more = json!({"next_cursor": next});
    Ok(Answer::json(200, &json!({"success": true, "data": page, "additional_data": more})))
}

fn read_cursor(cursor: &str) -> Option<(i64, u64)> {
    let text = String::from_utf8(hex::decode(cursor).ok()?).ok()?;
    let (key, id) = text.split_once(':')?;
    Some((key.parse().ok()?, id.parse().ok()?))
}

pub(super) fn search(account: &Account, options: &Options, request: &Request) -> Answer {
    let exact = request.param("exact_match").is_some_and(|e| e == "true" || e == "1");
    let term = request.param("term").unwrap_or_default().to_lowercase();
    if term.chars().count() < if exact { 1 } else { 2 } {
        return errors::invalid("Parameter 'term' is too short");
    }
    let limit = match limit(request) {
        Ok(limit) => limit,
        Err(refused) => return refused,
    };
    let wanted = request.param("fields");
    let known = ["custom_fields", "email", "notes", "phone", "name"];
    if wanted.iter().flat_map(|w| w.split(',')).any(|field| !known.contains(&field)) {
        return errors::invalid("Parameter 'fields' names an unknown field");
    }
    let within = |field: &str| wanted.as_ref().is_none_or(|w| w.split(',').any(|f| f == field));
    let hits = |value: &String| match exact && !options.loose_search {
        true => value.to_lowercase() == term,
        false => value.to_lowercase().contains(&term),
    };
    let fits = |seen: &Indexed| {
        within("email") && seen.emails.iter().any(hits)
            || within("custom_fields") && seen.custom.iter().any(hits)
            || within("phone") && seen.phones.iter().any(hits)
            || within("name") && hits(&seen.name)
    };
    let items: Vec<Value> = account
        .persons
        .iter()
        .filter_map(|(id, person)| Some((id, indexed(person, options)?)))
        .filter(|(_, seen)| !seen.gone && fits(seen))
        .map(|(id, seen)| {
            json!({"result_score": 1.2, "item": {
                "id": id, "type": "person", "name": seen.name, "emails": seen.emails, "phones": seen.phones,
                "primary_email": seen.emails.first(), "visible_to": 3, "owner": {"id": 1}, "organization": null,
                "custom_fields": seen.custom, "notes": [],
            }})
        })
        // The newest first: whoever takes the first hit for the right one is found out.
        .rev()
        .take(limit)
        .collect();
    let body = json!({
        "success": true, "data": {"items": items}, "additional_data": {"next_cursor": null},
    });
    Answer::json(200, &body)
}

/// The person as the search knows it, which is not yet as it is.
fn indexed<'a>(person: &'a Person, options: &Options) -> Option<&'a Indexed> {
    let mut known = person.versions.iter().rev();
    let seen = known.find(|(at, _)| !options.never_indexed && at.elapsed() >= options.search_lag);
    seen.map(|(_, indexed)| indexed)
}

pub(super) fn person_fields(options: &Options, request: &Request) -> Answer {
    let limit = match limit(request) {
        Ok(limit) => limit,
        Err(refused) => return refused,
    };
    let from = match request.param("cursor").map(|cursor| cursor.parse::<usize>()) {
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(_)) => return errors::invalid("Invalid cursor"),
    };
    let page: Vec<Value> =
        options.fields.iter().skip(from).take(limit).map(fields::shown).collect();
    let next = from.saturating_add(limit);
    let next = (next < options.fields.len()).then(|| next.to_string());
    let more = json!({"next_cursor": next});
    Answer::json(200, &json!({"success": true, "data": page, "additional_data": more}))
}
