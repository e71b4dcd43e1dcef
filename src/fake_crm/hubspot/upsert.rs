//! `POST …/batch/upsert` and `…/batch/update`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::super::fault::{Order, Tweak};
use super::errors::Invalid;
use super::{Account, Options, body, errors, time, values};

/// One input, its shape checked.
struct Input {
    id: String,
    id_property: Option<String>,
    trace: Option<String>,
    properties: BTreeMap<String, String>,
}

/// An error about a record: category, message, and the details where it is about values.
struct Refusal {
    category: &'static str,
    message: String,
    invalid: Vec<Invalid>,
}

pub(super) fn upsert(
    account: &mut Account,
    options: &Options,
    request: &Request,
    tweak: &Tweak,
    rng: &mut StdRng,
    only_update: bool,
) -> Answer {
    let started = Timestamp::now();
    let mut inputs = match inputs(options, request) {
        Ok(inputs) => inputs,
        Err(refused) => return refused,
    };
    if tweak.empty_results {
        return Answer::json(200, &complete(started, Vec::new()));
    }
    if tweak.conflict
        && !only_update
        && let Some(first) = inputs.first()
    {
        let email = first.id.to_lowercase();
        let id = match account.find(&email, Some("email")) {
            Some(id) => id,
            None => account.make(Some(email)),
        };
        account.touch(id);
        return errors::exists(id);
    }
    let traces: HashSet<&str> = inputs.iter().filter_map(|i| i.trace.as_deref()).collect();
    let per_record = options.honour_trace_ids && traces.len() == inputs.len();
    let refusals: Vec<Option<Refusal>> =
        inputs.iter().map(|input| refusal(account, options, input, only_update)).collect();
    let unknown = |r: &Refusal| r.invalid.iter().any(|i| i.code == "PROPERTY_DOESNT_EXIST");
    let refuses_all = match per_record {
        true => options.unknown_property_refuses_all && refusals.iter().flatten().any(unknown),
        false => refusals.iter().any(Option::is_some),
    };
    if refuses_all {
        let invalid: Vec<Invalid> =
            refusals.iter().flatten().flat_map(|r| r.invalid.clone()).collect();
        return match refusals.into_iter().flatten().next() {
            Some(first) if invalid.is_empty() => {
                Answer::json(400, &errors::envelope(first.category, &first.message))
            }
            _ => errors::invalid(&invalid),
        };
    }
    if tweak.half {
        inputs.truncate(inputs.len().div_ceil(2));
    }
    let mut results = Vec::new();
    let mut wrong: Vec<(Refusal, Vec<&str>)> = Vec::new();
    for ((at, input), refusal) in inputs.iter().enumerate().zip(refusals) {
        let omitted = tweak.omit.filter(|(omit, _)| *omit == at);
        if omitted.is_some_and(|(_, written)| !written) {
            continue;
        }
        if let Some(refusal) = refusal {
            let trace = input.trace.as_deref().unwrap_or_default();
            match wrong.iter_mut().find(|(r, _)| r.message == refusal.message) {
                Some((_, traces)) => traces.push(trace),
                None => wrong.push((refusal, vec![trace])),
            }
            continue;
        }
        let result = write(account, options, input, only_update);
        if omitted.is_none() {
            results.push(result);
        }
    }
    match tweak.order.unwrap_or(options.order) {
        Order::AsSent => {}
        Order::Reversed => results.reverse(),
        Order::Shuffled => results.shuffle(rng),
    }
    let wrote = !results.is_empty() || tweak.omit.is_some_and(|(_, written)| written);
    let mut answer = complete(started, results);
    let status = match wrong.is_empty() && tweak.omit.is_none() {
        true => 200,
        false => 207,
    };
    if status == 207 {
        answer["numErrors"] = json!(wrong.len());
        answer["errors"] = wrong
            .into_iter()
            .map(|(refusal, traces)| errors::item(refusal.category, refusal.message, &traces))
            .collect();
    }
    let answer = Answer::json(status, &answer);
    if wrote { answer.written() } else { answer }
}

fn complete(started: Timestamp, results: Vec<Value>) -> Value {
    json!({
        "status": "COMPLETE", "results": results, "startedAt": time(started),
        "completedAt": time(Timestamp::now()),
    })
}

/// Reads the inputs and refuses what refuses the whole request whatever the values are.
fn inputs(options: &Options, request: &Request) -> Result<Vec<Input>, Answer> {
    let mut body = body(request)?;
    let Some(Value::Array(list)) = body.remove("inputs") else {
        return Err(errors::malformed("inputs is missing"));
    };
    if list.is_empty() {
        return Err(errors::refused("At least one input is required in a batch request"));
    }
    if list.len() > 100 {
        return Err(errors::refused(
            "The maximum number of inputs supported in a batch request is 100",
        ));
    }
    let inputs =
        list.iter().map(|item| input(options, item)).collect::<Result<Vec<Input>, Answer>>()?;
    for input in &inputs {
        let name = input.id_property.as_deref().unwrap_or("hs_object_id");
        let unique = options.properties.iter().any(|p| p.name == name && p.unique);
        if !unique && name != "hs_object_id" {
            return Err(errors::refused(&format!(
                "Unable to perform update/upsert by non-unique 0-1 property {name}"
            )));
        }
    }
    let mut seen = HashSet::new();
    let mut twice = BTreeSet::new();
    for input in &inputs {
        let key = match options.same_key_ignores_case {
            true => input.id.to_lowercase(),
            false => input.id.clone(),
        };
        if !seen.insert(key.clone()) {
            twice.insert(key);
        }
    }
    if !twice.is_empty() {
        return Err(errors::same_ids(&twice.into_iter().collect::<Vec<_>>()));
    }
    Ok(inputs)
}

fn input(options: &Options, item: &Value) -> Result<Input, Answer> {
    let text = |name: &str| match &item[name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(errors::malformed(&format!("{name} must be a string"))),
    };
    let id = text("id")?.filter(|id| !id.is_empty());
    Ok(Input {
        id: id.ok_or_else(|| errors::malformed("id is missing"))?,
        id_property: text("idProperty")?,
        trace: text("objectWriteTraceId")?,
        properties: properties(options, &item["properties"])?,
    })
}

/// The properties of a record: every value is text.
pub(super) fn properties(
    options: &Options,
    value: &Value,
) -> Result<BTreeMap<String, String>, Answer> {
    let Value::Object(members) = value else {
        return Err(errors::malformed("properties is missing"));
    };
    let mut properties = BTreeMap::new();
    for (name, value) in members {
        match value {
            Value::String(text) => {
                properties.insert(name.clone(), text.clone());
            }
            Value::Null if options.accept_null => {}
            _ => return Err(errors::malformed(&format!("value of {name} must be a string"))),
        }
    }
    Ok(properties)
}

/// Why a record cannot be written.
fn refusal(
    account: &Account,
    options: &Options,
    input: &Input,
    only_update: bool,
) -> Option<Refusal> {
    let found = account.find(&input.id, input.id_property.as_deref());
    if found.is_none() && (only_update || input.id_property.is_none()) {
        let message = "resource not found".to_owned();
        return Some(Refusal { category: "OBJECT_NOT_FOUND", message, invalid: Vec::new() });
    }
    let mut properties = input.properties.clone();
    if input.id_property.as_deref() == Some("email") {
        properties.entry("email".to_owned()).or_insert_with(|| input.id.clone());
    }
    let invalid = values::check(options, &properties, found.is_none());
    if !invalid.is_empty() {
        let message = errors::invalid_text(&invalid);
        return Some(Refusal { category: "VALIDATION_ERROR", message, invalid });
    }
    let email = properties.get("email")?.to_lowercase();
    let owner = account.by_email.get(&email).copied()?;
    let secondary = account.contacts.get(&owner).is_some_and(|c| c.secondary.contains(&email));
    let taken = found != Some(owner) || secondary && options.secondary_conflicts;
    taken.then(|| Refusal {
        category: "CONFLICT",
        message: format!("Contact already exists. Existing ID: {owner}"),
        invalid: Vec::new(),
    })
}

fn write(account: &mut Account, options: &Options, input: &Input, only_update: bool) -> Value {
    let by_email = input.id_property.as_deref() == Some("email");
    let found = account.find(&input.id, input.id_property.as_deref());
    let email = match input.properties.get("email") {
        Some(email) => Some(email.to_lowercase()),
        None if by_email => Some(input.id.to_lowercase()),
        None => None,
    };
    let id = match found {
        Some(id) => {
            account.updates += 1;
            if let Some(email) = email {
                account.set_email(id, email);
            }
            id
        }
        None => account.make(email),
    };
    if let Some(stored) = account.contacts.get_mut(&id) {
        values::write(stored, &input.properties);
        if let (false, Some(property)) = (by_email, &input.id_property) {
            stored.properties.insert(property.clone(), input.id.clone());
        }
    }
    account.touch(id);
    let wanted = input.properties.keys().map(String::as_str).chain(["email"]);
    let mut object = account.contacts.get(&id).map_or(Value::Null, |c| c.object(id, wanted));
    if !only_update {
        object["new"] = json!(found.is_none());
    }
    if options.echo_trace_ids
        && let Some(trace) = &input.trace
    {
        object["objectWriteTraceId"] = json!(trace);
    }
    object
}
