//! Reads: one contact, a page of them, the attributes.

use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::{Account, Options, Stored, UNIQUE, attributes, errors};

/// The contact a path names, by `identifierType`, or by what the value looks like.
pub(super) fn named(account: &Account, request: &Request, path: &str) -> Option<u64> {
    // The one decoder at hand turns "+" into a blank, and addresses have one.
    let path = path.replace('+', "%2B");
    let value = form_urlencoded::parse(path.as_bytes()).next()?.0.into_owned();
    let by_id = || {
        let id = value.parse().ok()?;
        account.contacts.get(&id).filter(|c| !c.gone).map(|_| id)
    };
    match request.param("identifierType").as_deref() {
        Some("email_id") => account.holder("email", &value),
        Some("ext_id") => account.holder("ext_id", &value),
        Some("phone_id") => account.holder(UNIQUE[0], &value),
        Some("contact_id") => by_id(),
        Some(_) => None,
        None => account.holder("email", &value).or_else(by_id),
    }
}

pub(super) fn one(account: &Account, request: &Request, path: &str) -> Answer {
    let found = named(account, request, path).and_then(|id| account.contacts.get_key_value(&id));
    match found {
        Some((id, stored)) => {
            let mut contact = stored.object(*id);
            contact["statistics"] = json!({});
            Answer::json(200, &contact)
        }
        None => errors::no_contact(),
    }
}

pub(super) fn list(account: &Account, request: &Request) -> Answer {
    let number = |name: &str, default: usize| match request.param(name) {
        None => Some(default),
        Some(text) => text.parse().ok(),
    };
    let (Some(limit @ 1..=1000), Some(offset)) = (number("limit", 50), number("offset", 0)) else {
        return errors::invalid("out_of_range", "Limit exceeds max value");
    };
    let mut live: Vec<(&u64, &Stored)> = account.contacts.iter().filter(|(_, c)| !c.gone).collect();
    if request.param("sort").as_deref() != Some("asc") {
        live.reverse();
    }
    let page: Vec<Value> =
        live.iter().skip(offset).take(limit).map(|(id, contact)| contact.object(**id)).collect();
    Answer::json(200, &json!({"contacts": page, "count": live.len()}))
}

pub(super) fn attributes(options: &Options) -> Answer {
    let list: Vec<Value> = options.attributes.iter().map(attributes::shown).collect();
    Answer::json(200, &json!({"attributes": list}))
}
