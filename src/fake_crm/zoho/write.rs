//! Upsert, insert, update and delete: up to 100 records, each for itself, answered in the order they were given.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::super::fault::{Order, Tweak};
use super::errors::{ItemError, bad_id, refused};
use super::{Account, Module, Options, Stored, fields, time};

/// Most records in a call.
const MAX_RECORDS: usize = 100;

type Fields = BTreeMap<String, Value>;

/// A record that was written.
struct Done {
    id: u64,
    /// `insert` or `update`.
    action: &'static str,
    /// The field that it was found by.
    by: Option<String>,
}

type Written = Result<Done, ItemError>;

/// The records of the body, none where it is not as it should be.
pub(super) fn records(request: &Request) -> Vec<Value> {
    let mut body = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
    match body["data"].take() {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

pub(super) fn upsert(
    account: &mut Account,
    options: &Options,
    request: &Request,
    module: Module,
    tweak: &Tweak,
) -> Answer {
    let batch = match batch(options, request, module) {
        Ok(batch) => batch,
        Err(refused) => return refused,
    };
    let order = match check_order(options, module, request) {
        Ok(order) => order,
        Err(refused) => return refused,
    };
    if tweak.conflict
        && let Some(first) = batch.first()
        && let Some(field) = order.first()
        && let Some(value) = first.get(field).and_then(Value::as_str)
        && account.with(module, field, value).is_empty()
    {
        // Somebody else's insert lands between Zoho's look and its write.
        let theirs = [(field.clone(), json!(value)), ("Email".to_owned(), json!(value))];
        let mut theirs = Fields::from(theirs);
        let required = options.fields(module).iter().filter(|f| f.required);
        theirs.extend(required.map(|f| (f.name.clone(), json!("Somebody"))));
        let theirs = account.make_with(module, &theirs);
        let unique = options.field(module, field).is_some_and(|f| f.unique);
        return run(account, tweak, batch, |account, at, record| match at {
            0 if unique => Err(taken(account, field, theirs)),
            0 => account.insert_one(options, module, at, record),
            _ => account.upsert_one(options, module, at, record, &order),
        });
    }
    run(account, tweak, batch, |account, at, record| {
        account.upsert_one(options, module, at, record, &order)
    })
}

pub(super) fn insert(
    account: &mut Account,
    options: &Options,
    request: &Request,
    module: Module,
    tweak: &Tweak,
) -> Answer {
    match batch(options, request, module) {
        Ok(batch) => run(account, tweak, batch, |account, at, record| {
            account.insert_one(options, module, at, record)
        }),
        Err(refused) => refused,
    }
}

pub(super) fn update(
    account: &mut Account,
    options: &Options,
    request: &Request,
    module: Module,
    tweak: &Tweak,
) -> Answer {
    match batch(options, request, module) {
        Ok(batch) => run(account, tweak, batch, |account, at, record| {
            let mut record = record.clone();
            let id = record.remove("id").and_then(|id| Some(id.as_str()?.to_owned()));
            match id {
                Some(id) => account.update_one(options, module, at, &id, &record),
                None => {
                    let details = [("api_name", json!("id"))];
                    let message = "required field not found";
                    Err(ItemError::new("MANDATORY_NOT_FOUND", message, &details))
                }
            }
        }),
        Err(refused) => refused,
    }
}

pub(super) fn update_one(
    account: &mut Account,
    options: &Options,
    request: &Request,
    module: Module,
    id: &str,
) -> Answer {
    match batch(options, request, module) {
        Ok(mut batch) => {
            batch.truncate(1);
            run(account, &Tweak::default(), batch, |account, at, record| {
                account.update_one(options, module, at, id, record)
            })
        }
        Err(refused) => refused,
    }
}

/// `?ids=1,2`
pub(super) fn delete(account: &mut Account, request: &Request, module: Module) -> Answer {
    let ids = request.param("ids").unwrap_or_default();
    let mut wrote = false;
    let items: Vec<Value> = ids
        .split(',')
        .map(|id| match account.live(module, id) {
            Some(id) => {
                account.delete(id);
                wrote = true;
                json!({
                    "code": "SUCCESS", "details": {"id": id.to_string()}, "message": "record deleted",
                    "status": "success",
                })
            }
            None => bad_id().value(),
        })
        .collect();
    let answer = Answer::json(if wrote { 200 } else { 400 }, &json!({ "data": items }));
    if wrote { answer.written() } else { answer }
}

/// Reads the records and refuses what refuses the whole call.
fn batch(options: &Options, request: &Request, module: Module) -> Result<Vec<Fields>, Answer> {
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return Err(refused(
            400,
            "INVALID_DATA",
            "body",
            &json!({"expected_data_type": "jsonobject"}),
        ));
    };
    let list = body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        let details = json!({"api_name": "data"});
        return Err(refused(400, "MANDATORY_NOT_FOUND", "required field not found", &details));
    }
    if list.len() > MAX_RECORDS {
        let details = json!({"limit": MAX_RECORDS, "api_name": "data"});
        let message = "number of records exceeds the limit";
        return Err(refused(400, "LIMIT_EXCEEDED", message, &details));
    }
    let known = |name: &str| options.field(module, name).is_some();
    let record = |item: &Value| {
        let members = item.as_object().into_iter().flatten();
        let members = members.filter(|(name, _)| known(name));
        let members = members.filter(|(_, v)| !(options.null_is_ignored && v.is_null()));
        members.map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    Ok(list.iter().map(record).collect())
}

/// The fields that tell whether a record is there, in their order: those that are asked for, then every other unique
/// one; without asking the e-mail comes first.
fn check_order(
    options: &Options,
    module: Module,
    request: &Request,
) -> Result<Vec<String>, Answer> {
    let body = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
    let asked = body["duplicate_check_fields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut order: Vec<String> = Vec::new();
    for name in asked.iter().map(|n| n.as_str().unwrap_or_default()) {
        let may = name == "Email" || options.field(module, name).is_some_and(|f| f.unique);
        if !may {
            let details = json!({"api_name": "duplicate_check_fields"});
            return Err(refused(400, "INVALID_DATA", "invalid data", &details));
        }
        order.push(name.to_owned());
    }
    if order.is_empty() {
        order.push("Email".to_owned());
    }
    let unique = options.fields(module).iter().filter(|f| f.unique && f.name != "Email");
    for field in unique {
        if !order.contains(&field.name) {
            order.push(field.name.clone());
        }
    }
    Ok(order)
}

/// Does every record for itself.
fn run(
    account: &mut Account,
    tweak: &Tweak,
    batch: Vec<Fields>,
    mut one: impl FnMut(&mut Account, usize, &Fields) -> Written,
) -> Answer {
    if tweak.empty_results {
        return Answer::json(200, &json!({"data": []}));
    }
    let upto = if tweak.half { batch.len().div_ceil(2) } else { batch.len() };
    let omitted = |at: usize| tweak.omit.filter(|(omit, _)| *omit == at);
    let mut items = Vec::new();
    let (mut good, mut bad, mut inserted) = (0, 0, 0);
    for (at, record) in batch.iter().enumerate().take(upto) {
        if omitted(at).is_some_and(|(_, written)| !written) {
            continue;
        }
        let item = match one(account, at, record) {
            Ok(done) => {
                good += 1;
                inserted += usize::from(done.action == "insert");
                account.shown(&done)
            }
            Err(error) => {
                bad += 1;
                error.value()
            }
        };
        if omitted(at).is_none() {
            items.push(item);
        }
    }
    match tweak.order {
        None | Some(Order::AsSent) => {}
        Some(Order::Reversed | Order::Shuffled) => items.reverse(),
    }
    let status = match (good, bad) {
        (0, _) => 400,
        (_, 0) if inserted == good => 201,
        (_, 0) => 200,
        _ => 207,
    };
    let answer = Answer::json(status, &json!({ "data": items }));
    if good > 0 { answer.written() } else { answer }
}

fn taken(account: &Account, field: &str, id: u64) -> ItemError {
    let module = account.records.get(&id).map_or("Leads", |r| r.module.name());
    let record = json!({"id": id.to_string(), "module": {"api_name": module}});
    let details = [("api_name", json!(field)), ("duplicate_record", record)];
    ItemError::new("DUPLICATE_DATA", "duplicate data", &details)
}

impl Account {
    fn shown(&self, done: &Done) -> Value {
        let Some(stored) = self.records.get(&done.id) else { return Value::Null };
        let who = json!({"name": "Ana Luz", "id": "5544000000000000001"});
        let details = json!({
            "id": done.id.to_string(), "Created_Time": time(stored.created),
            "Modified_Time": time(stored.updated), "Created_By": who, "Modified_By": who,
        });
        let message = if done.action == "insert" { "record added" } else { "record updated" };
        json!({
            "code": "SUCCESS", "duplicate_field": done.by, "action": done.action, "details": details,
            "message": message, "status": "success",
        })
    }

    fn upsert_one(
        &mut self,
        options: &Options,
        module: Module,
        at: usize,
        record: &Fields,
        order: &[String],
    ) -> Written {
        let found = order.iter().find_map(|field| {
            let value = record.get(field)?.as_str().filter(|v| !v.trim().is_empty())?;
            let id = *self.with(module, field, value).first()?;
            Some((field.clone(), id))
        });
        match found {
            None => self.insert_one(options, module, at, record),
            Some((field, id)) => {
                let done = self.update_one(options, module, at, &id.to_string(), record)?;
                Ok(Done { by: Some(field), ..done })
            }
        }
    }

    fn insert_one(
        &mut self,
        options: &Options,
        module: Module,
        at: usize,
        record: &Fields,
    ) -> Written {
        self.check(options, module, at, record, None)?;
        if let Some(error) = fields::missing(options, module, at, record) {
            return Err(error);
        }
        let id = self.make_with(module, record);
        Ok(Done { id, action: "insert", by: None })
    }

    fn update_one(
        &mut self,
        options: &Options,
        module: Module,
        at: usize,
        id: &str,
        record: &Fields,
    ) -> Written {
        let Some(live) = self.live(module, id) else {
            let stored = id.parse().ok().and_then(|id: u64| self.records.get(&id));
            return Err(match stored.is_some_and(|r| r.converted.is_some()) {
                true if options.converted_has_a_code => {
                    ItemError::new("CONVERTED_RECORD", "record is converted", &[("id", json!(id))])
                }
                _ => bad_id(),
            });
        };
        self.check(options, module, at, record, Some(live))?;
        let cleared = |f: &&super::FieldInfo| {
            f.required && record.get(&f.name).is_some_and(|v| v.is_null() || v == "")
        };
        if options.fields(module).iter().find(cleared).is_some() {
            return Err(fields::missing(options, module, at, record).unwrap_or_else(bad_id));
        }
        self.store(live, record);
        self.updates += 1;
        Ok(Done { id: live, action: "update", by: None })
    }

    /// Scripted errors, values, unique fields.
    fn check(
        &self,
        options: &Options,
        module: Module,
        at: usize,
        record: &Fields,
        own: Option<u64>,
    ) -> Result<(), ItemError> {
        let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
        let names = [
            text("Email").to_lowercase(),
            own.map(|id| id.to_string()).unwrap_or_default(),
            own.and_then(|id| self.records.get(&id)).map(Stored::email).unwrap_or_default(),
        ];
        if let Some(error) = names.iter().find_map(|name| options.refusals.get(name)) {
            return Err(error.clone());
        }
        if let Some(error) = fields::check(options, module, at, record) {
            return Err(error);
        }
        for field in options.fields(module).iter().filter(|f| f.unique) {
            let value = text(&field.name);
            let mut others = self.with(module, &field.name, value).into_iter();
            if !value.is_empty()
                && let Some(other) = others.find(|id| Some(*id) != own)
            {
                return Err(taken(self, &field.name, other));
            }
        }
        Ok(())
    }
}
