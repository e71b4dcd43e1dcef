//! Create or update, update, delete.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::exchange::{Answer, Request};
use super::super::fault::Tweak;
use super::{Account, Options, Stored, UNIQUE, attributes, errors, read};

/// What a body asks for, its shape checked.
struct Change {
    /// Lower case; at an update `attributes.EMAIL`.
    email: Option<String>,
    ext_id: Option<String>,
    attributes: Map<String, Value>,
    lists: Vec<u64>,
    blocked: Option<bool>,
    updates: bool,
    merges: bool,
}

fn parse(request: &Request) -> Result<Change, Answer> {
    let Ok(Value::Object(body)) = serde_json::from_slice(&request.body) else {
        return Err(errors::invalid("bad_request", "Input must be a valid JSON object"));
    };
    let mut attributes = match body.get("attributes") {
        None => Map::new(),
        Some(Value::Object(attributes)) => attributes.clone(),
        Some(_) => {
            return Err(errors::invalid("invalid_parameter", "attributes should be an object"));
        }
    };
    let email = body.get("email").cloned().or(attributes.remove("EMAIL"));
    let email = match email {
        None => None,
        Some(Value::String(text)) if is_email(&text) => Some(text.to_lowercase()),
        Some(_) => return Err(errors::invalid("invalid_parameter", "Invalid email address")),
    };
    for name in UNIQUE {
        match attributes.get(name) {
            Some(Value::String(number)) if number.is_empty() || is_phone(number) => {}
            None => {}
            Some(_) => return Err(errors::invalid("invalid_parameter", "Invalid phone number")),
        }
    }
    let flag = |name: &str| body.get(name).and_then(Value::as_bool);
    Ok(Change {
        email,
        ext_id: body.get("ext_id").and_then(Value::as_str).map(str::to_owned),
        attributes,
        lists: body
            .get("listIds")
            .and_then(Value::as_array)
            .map(|ids| ids.iter().filter_map(Value::as_u64).collect())
            .unwrap_or_default(),
        blocked: flag("emailBlacklisted"),
        updates: flag("updateEnabled").unwrap_or(false),
        merges: flag("forceMerge").unwrap_or(false),
    })
}

impl Change {
    /// Keys of this change that contacts other than `own` have.
    fn taken(&self, account: &Account, own: Option<u64>) -> Vec<String> {
        [("email", self.email.as_deref()), ("ext_id", self.ext_id.as_deref())]
            .into_iter()
            .chain(UNIQUE.iter().map(|n| (*n, self.attributes.get(*n).and_then(Value::as_str))))
            .filter_map(|(key, value)| Some((key, value.filter(|v| !v.is_empty())?)))
            .filter(|(key, value)| account.holder(key, value).is_some_and(|id| Some(id) != own))
            .map(|(key, _)| key.to_owned())
            .collect()
    }
}

impl Stored {
    fn write(&mut self, options: &Options, change: Change) {
        self.modified = Timestamp::now();
        if change.email.is_some() {
            self.email = change.email;
        }
        if change.ext_id.is_some() {
            self.ext_id = change.ext_id;
        }
        if let Some(blocked) = change.blocked {
            self.blocked = blocked;
        }
        for list in change.lists {
            if !self.lists.contains(&list) {
                self.lists.push(list);
            }
        }
        for (name, value) in change.attributes {
            let Some(attribute) = options.attributes.iter().find(|a| a.name == name) else {
                continue;
            };
            if attributes::is_blank(&value) {
                self.attributes.remove(&name);
            } else if attributes::fits(attribute, &value) {
                self.attributes.insert(name, value);
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
    let change = match parse(request) {
        Ok(change) => change,
        Err(refused) => return refused,
    };
    let Some(email) = change.email.clone() else {
        return errors::invalid("missing_parameter", "email is missing");
    };
    if tweak.conflict {
        if account.holder("email", &email).is_none() {
            account.make(Stored { email: Some(email), ..Stored::new() });
        }
        return errors::duplicate(&options.duplicate_code, "create", &["email".to_owned()]);
    }
    let own = account.holder("email", &email);
    let taken = change.taken(account, own.filter(|_| change.updates));
    if !taken.is_empty() {
        let doing = if own.is_some() { "update" } else { "create" };
        if !change.merges {
            return errors::duplicate(&options.duplicate_code, doing, &taken);
        }
        // What the product must never ask for: the other contact goes.
        for key in taken {
            let other = change.attributes.get(&key).and_then(Value::as_str);
            if let Some(id) = other.and_then(|value| account.holder(&key, value)) {
                account.deleted_by_hand(&id.to_string());
            }
        }
    }
    let known = own.and_then(|id| account.contacts.get_mut(&id));
    match known {
        Some(stored) => {
            stored.write(options, change);
            account.updates += 1;
            Answer::empty(204).written()
        }
        None => {
            let mut stored = Stored::new();
            stored.write(options, change);
            let id = account.make(stored);
            Answer::json(201, &json!({"id": id})).written()
        }
    }
}

pub(super) fn update(
    account: &mut Account,
    options: &Options,
    request: &Request,
    path: &str,
) -> Answer {
    let change = match parse(request) {
        Ok(change) => change,
        Err(refused) => return refused,
    };
    let Some(id) = read::named(account, request, path) else { return errors::no_contact() };
    let taken = change.taken(account, Some(id));
    if !taken.is_empty() {
        return errors::duplicate(&options.duplicate_code, "update", &taken);
    }
    let Some(stored) = account.contacts.get_mut(&id) else { return errors::no_contact() };
    stored.write(options, change);
    account.updates += 1;
    Answer::empty(204).written()
}

pub(super) fn delete(account: &mut Account, request: &Request, path: &str) -> Answer {
    let found = read::named(account, request, path);
    match found.is_some_and(|id| account.deleted_by_hand(&id.to_string())) {
        true => Answer::empty(204).written(),
        false => errors::no_contact(),
    }
}

/// One `@` with something on both sides, and a dot in the domain.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let plain = |part: &str| !part.is_empty() && !part.contains(['@', ' ', ',', ';', '"']);
    plain(local) && plain(domain) && domain.contains('.') && !domain.starts_with('.')
}

/// With a country code: `+55…`, `0055…` or `55…`.
fn is_phone(text: &str) -> bool {
    let digits = text.strip_prefix('+').or(text.strip_prefix("00")).unwrap_or(text);
    (8..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}
