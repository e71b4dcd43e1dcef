//! Single writes, archive, erasure, merge.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::exchange::{Answer, Request};
use super::{Account, Options, body, errors, read, upsert, values};

impl Account {
    /// Changes the primary e-mail. One that is already a secondary of this contact stays one.
    pub(super) fn set_email(&mut self, id: u64, email: String) {
        let Some(stored) = self.contacts.get_mut(&id) else { return };
        if stored.secondary.contains(&email) || stored.email.as_ref() == Some(&email) {
            return;
        }
        if let Some(old) = stored.email.replace(email.clone()) {
            self.by_email.remove(&old);
        }
        self.by_email.insert(email, id);
    }

    /// Takes a contact out of the lookup.
    fn unlink(&mut self, id: u64) {
        self.by_email.retain(|_, owner| *owner != id);
    }
}

pub(super) fn create(account: &mut Account, options: &Options, request: &Request) -> Answer {
    let properties = match parsed(options, request) {
        Ok(properties) => properties,
        Err(refused) => return refused,
    };
    let invalid = values::check(options, &properties, true);
    if !invalid.is_empty() {
        return errors::invalid(&invalid);
    }
    let email = properties.get("email").map(|e| e.to_lowercase());
    if let Some(owner) = email.as_ref().and_then(|e| account.by_email.get(e)) {
        return errors::exists(*owner);
    }
    let id = account.make(email);
    stored(account, id, &properties, 201)
}

pub(super) fn update(
    account: &mut Account,
    options: &Options,
    request: &Request,
    path: &str,
) -> Answer {
    let properties = match parsed(options, request) {
        Ok(properties) => properties,
        Err(refused) => return refused,
    };
    let Some(id) = read::named(account, request, path) else { return errors::no_contact() };
    let invalid = values::check(options, &properties, false);
    if !invalid.is_empty() {
        return errors::invalid(&invalid);
    }
    if let Some(email) = properties.get("email").map(|e| e.to_lowercase()) {
        match account.by_email.get(&email) {
            Some(owner) if *owner != id => return errors::exists(*owner),
            _ => account.set_email(id, email),
        }
    }
    account.updates += 1;
    stored(account, id, &properties, 200)
}

fn parsed(options: &Options, request: &Request) -> Result<BTreeMap<String, String>, Answer> {
    let body = body(request)?;
    upsert::properties(options, body.get("properties").unwrap_or(&Value::Null))
}

fn stored(
    account: &mut Account,
    id: u64,
    properties: &BTreeMap<String, String>,
    status: u16,
) -> Answer {
    if let Some(stored) = account.contacts.get_mut(&id) {
        values::write(stored, properties);
    }
    account.touch(id);
    let wanted = properties.keys().map(String::as_str).chain(["email"]);
    match account.contacts.get(&id) {
        Some(stored) => Answer::json(status, &stored.object(id, wanted)).written(),
        None => errors::no_contact(),
    }
}

pub(super) fn archive(account: &mut Account, request: &Request, path: &str) -> Answer {
    // Archiving what is not there is no error at HubSpot.
    let Some(id) = read::named(account, request, path) else { return Answer::empty(204) };
    account.unlink(id);
    if let Some(stored) = account.contacts.get_mut(&id) {
        stored.archived = true;
    }
    account.touch(id);
    Answer::empty(204).written()
}

pub(super) fn gdpr_delete(account: &mut Account, request: &Request) -> Answer {
    let body = match body(request) {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let Some(object) = body.get("objectId").and_then(Value::as_str) else {
        return errors::malformed("objectId is missing");
    };
    let property = body.get("idProperty").and_then(Value::as_str);
    // An unknown address only goes on HubSpot's block list, which an API write passes.
    if let Some(id) = account.find(object, property) {
        account.unlink(id);
        account.contacts.remove(&id);
    }
    Answer::empty(204).written()
}

pub(super) fn merge(account: &mut Account, options: &Options, request: &Request) -> Answer {
    let body = match body(request) {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let id =
        |name: &str| account.find(body.get(name).and_then(Value::as_str).unwrap_or_default(), None);
    let (Some(primary), Some(loser)) = (id("primaryObjectId"), id("objectIdToMerge")) else {
        return errors::no_contact();
    };
    if primary == loser {
        return errors::refused("A contact cannot be merged with itself");
    }
    let Some(lost) = account.contacts.remove(&loser) else { return errors::no_contact() };
    for address in lost.email.iter().chain(&lost.secondary) {
        account.by_email.insert(address.clone(), primary);
    }
    let mut survivor = primary;
    if let Some(stored) = account.contacts.get_mut(&primary) {
        for (name, value) in lost.properties {
            stored.properties.entry(name).or_insert(value);
        }
        stored.secondary.extend(lost.secondary.into_iter().chain(lost.email));
        let email = stored.email.clone();
        if options.merge_renumbers
            && let Some(email) = email
        {
            survivor = account.renumber(&email).unwrap_or(primary);
        }
    }
    account.touch(survivor);
    match account.contacts.get(&survivor) {
        Some(stored) => Answer::json(200, &stored.object(survivor, ["email"])).written(),
        None => errors::no_contact(),
    }
}
