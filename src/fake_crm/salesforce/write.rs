//! `PATCH …/composite/sobjects`: many records in one call, each for itself, answered in the order they were given.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::exchange::{Answer, Request};
use super::super::fault::{Order, Tweak};
use super::errors::{self, ItemError};
use super::{Account, DuplicateRule, Object, Options, fields, is_blank};

/// Most records in a call.
const MAX_RECORDS: usize = 200;
/// Most runs of one type in a call.
const MAX_CHUNKS: usize = 10;

/// What became of a record.
pub(super) type Written = Result<Done, ItemError>;

/// A record that was written.
pub(super) struct Done {
    pub id: String,
    pub created: bool,
}

/// The fields of a record, by their names in the org.
pub(super) type Fields = BTreeMap<String, Value>;

/// By external id: `…/composite/sobjects/Lead/Lead_Email_Key__c`.
pub(super) fn upsert(
    account: &mut Account,
    options: &Options,
    request: &Request,
    (object, field): (Object, &str),
    tweak: &Tweak,
) -> Answer {
    let Some(key) = key_field(options, object, field) else { return no_key(field) };
    let batch = match Batch::read(options, request, Some(object)) {
        Ok(batch) => batch,
        Err(refused) => return refused,
    };
    if batch.records.iter().any(|(_, record)| record.keys().any(|n| n.eq_ignore_ascii_case("id"))) {
        let message = "The Id field should not be specified in the sobject data.";
        return errors::refused(400, "INVALID_FIELD", message);
    }
    if tweak.conflict
        && let Some(value) = batch.records.first().and_then(|(_, r)| r.get(&key)).cloned()
        && account.with(object, &key, &folded(Some(&value))).is_empty()
    {
        // Somebody else's insert lands between Salesforce's look and its write.
        let id = account.make(object);
        let email = value.clone();
        let mut fields = Fields::from([(key.clone(), value), ("Email".to_owned(), email)]);
        let required = options.fields(object).iter().filter(|f| f.required);
        fields.extend(required.map(|f| (f.name.clone(), json!("Somebody"))));
        account.store(options, &id, &fields);
        *account.creates.entry(account.email_of(&id)).or_default() += 1;
        return batch.run(account, options, tweak, |account, at, record| match at {
            0 => Err(taken(&key, &id)),
            _ => account.upsert_one(options, request, (object, &key), &record.1),
        });
    }
    let mut seen = BTreeMap::<String, usize>::new();
    for (_, record) in &batch.records {
        *seen.entry(folded(record.get(&key))).or_default() += 1;
    }
    batch.run(account, options, tweak, |account, _, (_, record)| {
        let value = folded(record.get(&key));
        if !value.is_empty() && seen.get(&value).is_some_and(|n| *n > 1) {
            let message = format!("Duplicate external id specified: {value}");
            return Err(ItemError::new("DUPLICATE_VALUE", message, &[&key]));
        }
        account.upsert_one(options, request, (object, &key), record)
    })
}

/// By id, of several types: `…/composite/sobjects`.
pub(super) fn update(
    account: &mut Account,
    options: &Options,
    request: &Request,
    tweak: &Tweak,
) -> Answer {
    let batch = match Batch::read(options, request, None) {
        Ok(batch) => batch,
        Err(refused) => return refused,
    };
    let chunks = 1 + batch.records.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    if chunks > MAX_CHUNKS {
        let message = "Cannot process more than 10 chunks of different types in one request";
        return errors::refused(400, "LIMIT_EXCEEDED", message);
    }
    batch.run(account, options, tweak, |account, _, (object, record)| {
        let mut fields = record.clone();
        let id = fields.remove("Id").and_then(|id| Some(id.as_str()?.to_owned()));
        let Some(id) = id else {
            return Err(ItemError::new(
                "MISSING_ARGUMENT",
                "Id not specified in an update call",
                &["Id"],
            ));
        };
        account.update_one(options, request, *object, &id, &fields)
    })
}

/// The records of a call, each with its type.
struct Batch {
    records: Vec<(Object, Fields)>,
    all_or_none: bool,
}

impl Batch {
    fn read(options: &Options, request: &Request, only: Option<Object>) -> Result<Batch, Answer> {
        let bad = |message: &str| errors::refused(400, "JSON_PARSER_ERROR", message);
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
            return Err(bad("Unexpected character at [line:1, column:1]"));
        };
        let list = body["records"].as_array().map(Vec::as_slice).unwrap_or_default();
        if list.is_empty() {
            let message = "At least 1 record is required";
            return Err(errors::refused(400, "REQUIRED_FIELD_MISSING", message));
        }
        if list.len() > MAX_RECORDS {
            let message =
                "record limit reached. cannot submit more than 200 records in this operation";
            return Err(errors::refused(400, "EXCEEDED_ID_LIMIT", message));
        }
        let mut records = Vec::new();
        for item in list {
            let Value::Object(members) = item else { return Err(bad("records must be objects")) };
            let kind = item["attributes"]["type"].as_str().unwrap_or_default();
            let Some(object) = Object::parse(kind).filter(|o| only.is_none_or(|only| only == *o))
            else {
                let message = format!("sObject type '{kind}' is not supported.");
                return Err(errors::refused(400, "INVALID_TYPE", &message));
            };
            fields::shape(options, object, members)?;
            records.push((object, named(options, object, members)));
        }
        Ok(Batch { records, all_or_none: body["allOrNone"] == true })
    }

    /// Does every record for itself and answers in their order.
    fn run(
        self,
        account: &mut Account,
        options: &Options,
        tweak: &Tweak,
        mut one: impl FnMut(&mut Account, usize, &(Object, Fields)) -> Written,
    ) -> Answer {
        if tweak.empty_results {
            return Answer::json(200, &json!([]));
        }
        let before = self.all_or_none.then(|| account.clone());
        let upto = if tweak.half { self.records.len().div_ceil(2) } else { self.records.len() };
        let omitted = |at: usize| tweak.omit.filter(|(omit, _)| *omit == at);
        let mut results = Vec::new();
        for (at, record) in self.records.iter().enumerate().take(upto) {
            if omitted(at).is_some_and(|(_, written)| !written) {
                continue;
            }
            results.push((at, one(account, at, record)));
        }
        if let Some(before) = before.filter(|_| results.iter().any(|(_, r)| r.is_err())) {
            *account = before;
            for (_, result) in results.iter_mut().filter(|(_, r)| r.is_ok()) {
                let message = "Record rolled back because not all records were valid and the request was using AllOrNone header";
                *result = Err(ItemError::new("ALL_OR_NONE_OPERATION_ROLLED_BACK", message, &[]));
            }
        }
        let wrote = results.iter().any(|(_, r)| r.is_ok());
        results.retain(|(at, _)| omitted(*at).is_none());
        let misspelt = options.misspelt_duplicate_result;
        let mut items: Vec<Value> =
            results.into_iter().map(|(_, result)| item(result, misspelt)).collect();
        match tweak.order {
            None | Some(Order::AsSent) => {}
            Some(Order::Reversed | Order::Shuffled) => items.reverse(),
        }
        let answer = Answer::json(200, &Value::from(items));
        if wrote { answer.written() } else { answer }
    }
}

fn item(result: Written, misspelt: bool) -> Value {
    match result {
        Ok(Done { id, created }) => {
            json!({"id": id, "success": true, "created": created, "errors": []})
        }
        Err(error) => error.item(misspelt),
    }
}

/// The members of a record under the names the org has for them, without `attributes`.
pub(super) fn named(options: &Options, object: Object, members: &Map<String, Value>) -> Fields {
    members
        .iter()
        .filter(|(name, _)| *name != "attributes")
        .map(|(name, value)| {
            let known = options.field(object, name).map_or(name, |f| &f.name);
            (known.clone(), value.clone())
        })
        .collect()
}

/// The name of a field that an upsert may name.
pub(super) fn key_field(options: &Options, object: Object, field: &str) -> Option<String> {
    let field = options.field(object, field)?;
    (field.external_id || field.id_lookup).then(|| field.name.clone())
}

pub(super) fn no_key(field: &str) -> Answer {
    let message =
        format!("Provided external ID field does not exist or is not accessible: {field}");
    errors::refused(404, "NOT_FOUND", &message)
}

fn folded(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().trim().to_lowercase()
}

fn taken(field: &str, id: &str) -> ItemError {
    let id = id.get(..15).unwrap_or(id);
    let message =
        format!("duplicate value found: {field} duplicates value on record with id: {id}");
    ItemError::new("DUPLICATE_VALUE", message, &[])
}

impl Account {
    pub(super) fn email_of(&self, id: &str) -> String {
        self.records.get(id).map(|r| r.text("Email").to_lowercase()).unwrap_or_default()
    }

    /// Writes one record by the value of a key field.
    pub(super) fn upsert_one(
        &mut self,
        options: &Options,
        request: &Request,
        (object, key): (Object, &str),
        record: &Fields,
    ) -> Written {
        let value = folded(record.get(key));
        if value.is_empty() {
            return Err(ItemError::new("MISSING_ARGUMENT", format!("{key} not specified"), &[key]));
        }
        let found = self.with(object, key, &value);
        match found.as_slice() {
            [] => {
                refusal(options, &[&value, &folded(record.get("Email"))])?;
                self.create_one(options, request, object, record)
            }
            [one] => {
                let id = one.clone();
                self.update_one(options, request, object, &id, record)
            }
            several => {
                let message = format!(
                    "{key}: more than one record found for external id field: [{}]",
                    several.join(", ")
                );
                Err(ItemError::new("DUPLICATE_EXTERNAL_ID", message, &[key]))
            }
        }
    }

    pub(super) fn create_one(
        &mut self,
        options: &Options,
        request: &Request,
        object: Object,
        record: &Fields,
    ) -> Written {
        let after = record.iter().filter(|(_, v)| !is_blank(v));
        let after = after.map(|(n, v)| (n.clone(), v.clone())).collect();
        self.check(options, request, (object, None), record, &after)?;
        let id = self.make(object);
        self.store(options, &id, record);
        *self.creates.entry(self.email_of(&id)).or_default() += 1;
        Ok(Done { id, created: true })
    }

    pub(super) fn update_one(
        &mut self,
        options: &Options,
        request: &Request,
        object: Object,
        id: &str,
        record: &Fields,
    ) -> Written {
        let well_formed =
            matches!(id.len(), 15 | 18) && id.chars().all(|c| c.is_ascii_alphanumeric());
        if !well_formed || !id.starts_with(object.prefix()) {
            let message = format!("{} ID: id value of incorrect type: {id}", object.name());
            return Err(ItemError::new("MALFORMED_ID", message, &["Id"]));
        }
        let Some((id, stored)) =
            self.full_id(id).and_then(|id| Some((id.clone(), self.records.get(&id)?)))
        else {
            let message = "invalid cross reference id";
            return Err(ItemError::new("INVALID_CROSS_REFERENCE_KEY", message, &[]));
        };
        if stored.deleted {
            return Err(ItemError::new("ENTITY_IS_DELETED", "entity is deleted", &[]));
        }
        refusal(options, &[&id, &stored.text("Email").to_lowercase()])?;
        if stored.converted.is_some() && !options.converted_leads_editable {
            let message = "cannot reference converted lead";
            return Err(ItemError::new("CANNOT_UPDATE_CONVERTED_LEAD", message, &[]));
        }
        let mut after = stored.fields.clone();
        for (name, value) in record {
            match is_blank(value) {
                true => after.remove(name),
                false => after.insert(name.clone(), value.clone()),
            };
        }
        self.check(options, request, (object, Some(&id)), record, &after)?;
        self.store(options, &id, record);
        self.updates += 1;
        Ok(Done { id, created: false })
    }

    /// Values, unique fields, and the duplicate rule.
    fn check(
        &self,
        options: &Options,
        request: &Request,
        (object, own): (Object, Option<&str>),
        record: &Fields,
        after: &Fields,
    ) -> Result<(), ItemError> {
        if let Some(error) = fields::check(options, object, record, after) {
            return Err(error);
        }
        let others = |ids: Vec<String>| ids.into_iter().find(|id| Some(id.as_str()) != own);
        for field in options.fields(object).iter().filter(|f| f.unique) {
            let value = folded(record.get(&field.name));
            if !value.is_empty()
                && let Some(other) = others(self.with(object, &field.name, &value))
            {
                return Err(taken(&field.name, &other));
            }
        }
        let allowed = match options.duplicate_rule {
            DuplicateRule::Off => true,
            DuplicateRule::Block => false,
            DuplicateRule::Alert => {
                request.header("sforce-duplicate-rule-header").is_some_and(|v| {
                    v.split(';').any(|v| v.trim().eq_ignore_ascii_case("allowSave=true"))
                })
            }
        };
        let email = folded(record.get("Email"));
        if allowed || email.is_empty() {
            return Ok(());
        }
        let matches: BTreeSet<String> = [Object::Lead, Object::Contact]
            .into_iter()
            .flat_map(|object| self.with(object, "Email", &email))
            .filter(|id| Some(id.as_str()) != own)
            .collect();
        if matches.is_empty() {
            return Ok(());
        }
        let mut error = ItemError::new("DUPLICATES_DETECTED", "Use one of these records?", &[]);
        error.matches = matches.into_iter().collect();
        Err(error)
    }
}

/// The scripted error of a record that goes by one of these names.
fn refusal(options: &Options, names: &[&str]) -> Result<(), ItemError> {
    let found = names.iter().find_map(|name| options.refusals.get(*name));
    found.map_or(Ok(()), |error| Err(error.clone()))
}
