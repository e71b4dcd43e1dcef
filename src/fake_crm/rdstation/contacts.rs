//! Single contacts, and the segmentations, which are the only list of them.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::exchange::{Answer, Request};
use super::{Account, Options, errors, fields, spend};

/// What names a contact in a path.
enum Identifier {
    Email(String),
    Phone(String),
    Uuid(Uuid),
}

impl Identifier {
    fn parse(text: &str) -> Option<Identifier> {
        let text = percent_decoded(text)?;
        match text.split_once(':') {
            Some(("email", email)) => Some(Identifier::Email(email.to_lowercase())),
            Some(("phone", phone)) => Some(Identifier::Phone(phone.to_owned())),
            Some(("uuid", uuid)) => Some(Identifier::Uuid(uuid.parse().ok()?)),
            Some(_) => None,
            None => Some(Identifier::Uuid(text.parse().ok()?)),
        }
    }

    /// Members that a body must not have beside it.
    fn members(&self) -> &'static [&'static str] {
        match self {
            Identifier::Email(_) => &["email"],
            Identifier::Phone(_) => &["personal_phone", "mobile_phone"],
            Identifier::Uuid(_) => &["uuid"],
        }
    }
}

/// Undoes percent-encoding; a `+` stays one, as in any path.
fn percent_decoded(text: &str) -> Option<String> {
    let bytes = text.replace('+', "%2B");
    form_urlencoded::parse(bytes.as_bytes()).next().map(|(name, _)| name.into_owned())
}

fn not_found() -> Answer {
    errors::single(404, "RESOURCE_NOT_FOUND", "Lead not found.")
}

fn taken() -> Answer {
    errors::single(400, "EMAIL_ALREADY_IN_USE", "Email already in use.")
}

fn body(request: &Request) -> Result<Map<String, Value>, Answer> {
    let json = request.header("content-type").is_some_and(|kind| kind.contains("application/json"));
    if !json {
        let message =
            "The payload is in a format not supported by this method on the target resource.";
        return Err(errors::single(415, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    match serde_json::from_slice(&request.body) {
        Ok(Value::Object(members)) => Ok(members),
        _ => {
            let message =
                "Could not parse the body of the request according to the provided Content-Type.";
            Err(errors::single(400, "BAD_REQUEST", message))
        }
    }
}

fn checked(options: &Options, members: &Map<String, Value>) -> Option<Answer> {
    let wrong = members.iter().filter_map(|(name, value)| fields::check(options, name, value));
    let wrong: Vec<_> = wrong.collect();
    (!wrong.is_empty()).then(|| errors::invalid(&wrong))
}

impl Account {
    fn find(&self, options: &Options, identifier: &Identifier) -> Option<Uuid> {
        match identifier {
            Identifier::Email(email) => self.by_email.get(email).copied().or_else(|| {
                let extra = |(_, c): &(&Uuid, &super::Stored)| c.extra_emails.contains(email);
                let found = self.contacts.iter().find(extra).filter(|_| options.find_extra_emails);
                found.map(|(uuid, _)| *uuid)
            }),
            Identifier::Phone(phone) => {
                let mut all = self.contacts.iter();
                let has = |values: &Map<String, Value>| {
                    ["personal_phone", "mobile_phone"]
                        .iter()
                        .any(|name| values.get(*name).is_some_and(|value| value == phone.as_str()))
                };
                all.find(|(_, c)| has(&c.values)).map(|(uuid, _)| *uuid)
            }
            Identifier::Uuid(uuid) => self.contacts.contains_key(uuid).then_some(*uuid),
        }
    }

    /// Writes members that were found good.
    pub(super) fn write(&mut self, uuid: Uuid, members: &Map<String, Value>) {
        let Some(stored) = self.contacts.get_mut(&uuid) else { return };
        for (name, value) in members {
            match (name.as_str(), value.as_str()) {
                ("email", Some(email)) => {
                    let email = email.to_lowercase();
                    self.by_email.remove(&stored.email);
                    stored.email.clone_from(&email);
                    self.by_email.insert(email, uuid);
                }
                _ => fields::write(stored, name, value),
            }
        }
    }

    fn shown(&self, uuid: Uuid) -> Answer {
        match self.contacts.get(&uuid) {
            Some(stored) => Answer::json(200, &stored.shown(uuid)),
            None => not_found(),
        }
    }
}

/// `GET`, `PATCH` and `DELETE /platform/contacts/{identifier}`
pub(super) fn one(
    account: &mut Account,
    options: &Options,
    request: &Request,
    method: &str,
    identifier: &str,
) -> Answer {
    let Some(identifier) = Identifier::parse(identifier) else { return not_found() };
    let found = account.find(options, &identifier);
    match (method, found) {
        ("PATCH", found) => patch(account, options, request, &identifier, found),
        ("GET", Some(uuid)) => account.shown(uuid),
        ("DELETE", Some(uuid)) => {
            account.remove(uuid);
            Answer::empty(204).written()
        }
        ("GET" | "DELETE", None) => not_found(),
        _ => Answer::empty(405),
    }
}

fn patch(
    account: &mut Account,
    options: &Options,
    request: &Request,
    identifier: &Identifier,
    found: Option<Uuid>,
) -> Answer {
    let members = match body(request) {
        Ok(members) => members,
        Err(refused) => return refused,
    };
    if identifier.members().iter().any(|member| members.contains_key(*member)) {
        let message = "The payload contains an attribute that was used to identify the resource.";
        return errors::single(400, "CONFLICTING_FIELD", message);
    }
    if let Some(refused) = checked(options, &members) {
        return refused;
    }
    let email = members.get("email").and_then(Value::as_str).map(str::to_lowercase);
    if let Some(owner) = email.as_ref().and_then(|email| account.by_email.get(email))
        && Some(*owner) != found
    {
        return taken();
    }
    let uuid = match (found, identifier) {
        (Some(uuid), _) => {
            if let Some(stored) = account.contacts.get_mut(&uuid) {
                let (limit, window) = (options.contact_limit, options.contact_window);
                if let Some(wait) = spend(&mut stored.patches, limit, window) {
                    return errors::too_many(options.send_retry_after.then_some(wait.as_secs()));
                }
            }
            account.updates += 1;
            uuid
        }
        (None, Identifier::Email(email)) if fields::is_email(email) => account.make(email),
        (None, Identifier::Email(_)) => {
            let wrong = ("email".to_owned(), "INVALID_FORMAT", "email is not valid".to_owned());
            return errors::invalid(&[wrong]);
        }
        (None, _) => return not_found(),
    };
    account.write(uuid, &members);
    account.shown(uuid).written()
}

/// `POST /platform/contacts`, which only creates.
pub(super) fn create(account: &mut Account, options: &Options, request: &Request) -> Answer {
    let members = match body(request) {
        Ok(members) => members,
        Err(refused) => return refused,
    };
    if let Some(refused) = checked(options, &members) {
        return refused;
    }
    let Some(email) = members.get("email").and_then(Value::as_str).map(str::to_lowercase) else {
        let wrong = ("email".to_owned(), "CANNOT_BE_NULL", "email cannot be null.".to_owned());
        return errors::invalid(&[wrong]);
    };
    if account.by_email.contains_key(&email) {
        return taken();
    }
    let uuid = account.make(&email);
    account.write(uuid, &members);
    account.shown(uuid).written()
}

/// `GET /platform/segmentations`: there is always one with everybody in it.
pub(super) fn segmentations() -> Answer {
    Answer::json(
        200,
        &json!({"segmentations": [
            {"id": 7, "name": "Clientes", "standard": false, "process_status": "processed"},
            {"id": 1, "name": "Todos os contatos da base de Leads", "standard": true, "process_status": "processed"},
        ]}),
    )
}

/// `GET /platform/segmentations/{id}/contacts`: pages of at most 125, with the totals in headers.
pub(super) fn segment(account: &Account, request: &Request, path: &str) -> Answer {
    if path != "segmentations/1/contacts" {
        return errors::single(404, "RESOURCE_NOT_FOUND", "Segmentation not found.");
    }
    let number = |name: &str, default| {
        request.param(name).and_then(|text| text.parse::<usize>().ok()).unwrap_or(default)
    };
    let (page, size) = (number("page", 1).max(1), number("page_size", 10).clamp(1, 125));
    let shown = |uuid: &Uuid| {
        let stored = account.contacts.get(uuid)?;
        Some(json!({
            "uuid": uuid, "name": stored.values.get("name"), "email": stored.email,
            "created_at": stored.created.to_string(), "last_conversion_date": null, "links": [],
        }))
    };
    let from = (page - 1).saturating_mul(size);
    let contacts: Vec<Value> =
        account.order.iter().skip(from).take(size).filter_map(shown).collect();
    let mut answer = Answer::json(200, &json!({ "contacts": contacts }));
    let total = account.order.len();
    answer.headers.push(("pagination-total-rows", total.to_string()));
    answer.headers.push(("pagination-total-pages", total.div_ceil(size).to_string()));
    answer
}
