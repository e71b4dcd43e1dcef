//! Create, update, delete, merge.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::exchange::{Answer, Request};
use super::super::fault::Tweak;
use super::{Account, Entry, Options, Person, errors, fields};

/// Fields that only exist with contact sync.
const CONTACT_SYNC: [&str; 5] = ["job_title", "notes", "im", "birthday", "postal_address"];

/// What a body asks for, checked.
struct Change {
    name: Option<String>,
    emails: Option<Vec<Entry>>,
    phones: Option<Vec<Entry>>,
    standard: Vec<(String, Value)>,
    custom: Vec<(String, Value)>,
}

fn parse(options: &Options, request: &Request) -> Result<Change, Answer> {
    let Ok(Value::Object(body)) = serde_json::from_slice(&request.body) else {
        return Err(errors::invalid("The body should be an object"));
    };
    if let Some(field) = CONTACT_SYNC.iter().find(|f| body.contains_key(**f))
        && !options.contact_sync
    {
        return Err(errors::contact_sync(field));
    }
    let name = match body.get("name") {
        None => None,
        Some(Value::String(name)) if (1..=255).contains(&name.chars().count()) => {
            Some(name.clone())
        }
        Some(_) => return Err(errors::invalid("Parameter 'name' should be a non-empty string")),
    };
    let emails = entries(&body, "emails")?;
    if options.checks_emails
        && let Some(bad) = emails.iter().flatten().position(|e| !e.value.contains('@'))
    {
        return Err(errors::invalid(&format!("Parameter 'emails[{bad}].value' is not an e-mail")));
    }
    let phones = entries(&body, "phones")?;
    let own = [
        "owner_id",
        "org_id",
        "label_ids",
        "visible_to",
        "marketing_status",
        "add_time",
        "update_time",
    ];
    let mut standard = Vec::new();
    for (field, value) in &body {
        match field.as_str() {
            "name" | "emails" | "phones" | "custom_fields" => {}
            f if own.contains(&f) || CONTACT_SYNC.contains(&f) => {
                standard.push((field.clone(), value.clone()));
            }
            _ => return Err(errors::invalid(&format!("Parameter '{field}' is not allowed"))),
        }
    }
    let custom = fields::custom(&options.fields, options.unknown_field_refuses, &body)
        .map_err(|why| errors::invalid(&why))?;
    Ok(Change { name, emails, phones, standard, custom })
}

/// A list of addresses or numbers with exactly one primary.
fn entries(body: &Map<String, Value>, name: &str) -> Result<Option<Vec<Entry>>, Answer> {
    let Some(list) = body.get(name) else { return Ok(None) };
    let mut list: Vec<Entry> = serde_json::from_value(list.clone())
        .map_err(|_| errors::invalid(&format!("Parameter '{name}' should be an array")))?;
    let primary = list.iter().position(|e| e.primary).unwrap_or(0);
    for (at, entry) in list.iter_mut().enumerate() {
        entry.primary = at == primary;
    }
    Ok(Some(list))
}

impl Person {
    /// Lists are replaced, everything else that is not named stays.
    fn write(&mut self, change: Change) {
        if let Some(name) = change.name {
            self.name = name;
        }
        if let Some(emails) = change.emails {
            self.emails = emails;
        }
        if let Some(phones) = change.phones {
            self.phones = phones;
        }
        self.standard.extend(change.standard);
        for (code, value) in change.custom {
            match value.is_null() {
                true => drop(self.custom.remove(&code)),
                false => drop(self.custom.insert(code, value)),
            }
        }
    }
}

pub(super) fn create(
    account: &mut Account,
    options: &Options,
    request: &Request,
    tweak: &Tweak,
) -> Answer {
    let change = match parse(options, request) {
        Ok(change) => change,
        Err(refused) => return refused,
    };
    let Some(name) = &change.name else {
        return errors::invalid("Parameter 'name' is required");
    };
    if options.capped {
        return errors::capped();
    }
    let mut person = Person::named(name);
    person.write(change);
    if tweak.conflict {
        // Somebody makes the same person in this instant, and nothing keeps us apart.
        account.made_by_hand(&person.email(), &BTreeMap::new());
    }
    let id = account.make(person);
    stored(account, options, id, options.created_status)
}

pub(super) fn update(
    account: &mut Account,
    options: &Options,
    request: &Request,
    id: u64,
) -> Answer {
    let change = match parse(options, request) {
        Ok(change) => change,
        Err(refused) => return refused,
    };
    let person = match account.persons.get_mut(&id) {
        None => return errors::no_person(404),
        Some(person) if person.gone && !options.deleted_are_written => {
            return errors::no_person(options.gone_status);
        }
        Some(person) => person,
    };
    person.write(change);
    person.touch();
    account.updates += 1;
    stored(account, options, id, 200)
}

fn stored(account: &Account, options: &Options, id: u64, status: u16) -> Answer {
    match account.persons.get(&id) {
        Some(person) => {
            let person = person.object(id, None, &options.fields);
            Answer::json(status, &json!({"success": true, "data": person})).written()
        }
        None => errors::no_person(404),
    }
}

pub(super) fn delete(account: &mut Account, options: &Options, id: u64) -> Answer {
    match account.deleted_by_hand(&id.to_string()) {
        true => Answer::json(200, &json!({"success": true, "data": {"id": id}})).written(),
        false => errors::no_person(options.gone_status),
    }
}

/// `PUT /v1/persons/{id}/merge`: the person in `merge_with_id` wins.
pub(super) fn merge(
    account: &mut Account,
    options: &Options,
    request: &Request,
    id: u64,
) -> Answer {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let Some(into) = body["merge_with_id"].as_u64() else {
        return errors::invalid("Parameter 'merge_with_id' is required");
    };
    match join(account, id, into) {
        true => stored(account, options, into, 200),
        false => errors::no_person(404),
    }
}

/// Gives the winner what it lacks and all addresses and numbers; the loser is gone. Whether both were there.
pub(super) fn join(account: &mut Account, id: u64, into: u64) -> bool {
    let there = |id| account.persons.get(id).is_some_and(|p: &Person| !p.gone);
    if id == into || !there(&id) || !there(&into) {
        return false;
    }
    let Some(loser) = account.persons.get_mut(&id) else { return false };
    loser.gone = true;
    loser.touch();
    let lost = loser.clone();
    let Some(winner) = account.persons.get_mut(&into) else { return false };
    let known =
        |list: &[Entry], e: &Entry| list.iter().any(|k| k.value.eq_ignore_ascii_case(&e.value));
    for (list, more) in [(&mut winner.emails, lost.emails), (&mut winner.phones, lost.phones)] {
        for mut entry in more {
            if !known(list, &entry) {
                entry.primary = list.is_empty();
                list.push(entry);
            }
        }
    }
    for (code, value) in lost.custom {
        winner.custom.entry(code).or_insert(value);
    }
    winner.touch();
    true
}
