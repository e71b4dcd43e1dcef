//! `load`: rows of text into records, by external id (`id`), by database id (`.id`) or as new ones. All or nothing;
//! what is wrong comes as messages of a result, not as an exception.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::fault::Tweak;
use super::fields::FieldType;
use super::methods::{Args, Caller, forbidden, with_defaults};
use super::{Account, Model, Options, Raised};

/// Odoo stops after so many records that cannot be written where more than one in ten is so.
const MAX_ERRORS: usize = 10;

/// What becomes of a row.
enum Target {
    Known(i64),
    /// A new record, and the external id that it gets.
    New(Option<String>),
}

pub(super) fn load(
    account: &mut Account,
    options: &Options,
    caller: &Caller,
    model: Model,
    args: &Args,
    tweak: &Tweak,
) -> Result<Value, Raised> {
    let columns = args.texts(0, "fields");
    let data = args.get(1, "data").as_array().cloned().unwrap_or_default();
    check_columns(options, model, &columns)?;
    let mut messages = Vec::new();
    if tweak.conflict {
        // Somebody else wrote the first record in this instant and won.
        if let Some(row) = data.first() {
            let (target, values, _) = read(account, options, model, &columns, row, args);
            if let Target::New(Some(external)) = target {
                let id = account.create(model, with_defaults(model, caller, args, values));
                account.external.insert(external, (model, id));
            }
        }
        for at in 0..data.len().min(MAX_ERRORS) {
            let lost = json!({"message": "could not serialize access due to concurrent update\n"});
            messages.push(message(at, "error", lost));
        }
        return Ok(json!({"ids": false, "messages": messages, "nextrow": 0}));
    }
    if tweak.empty_results {
        return Ok(json!({"ids": [], "messages": [], "nextrow": 0}));
    }
    let (mut rows, mut unread, mut unwritten) = (Vec::new(), 0, 0);
    let mut coming = BTreeSet::new();
    for (at, row) in data.iter().enumerate() {
        let (target, values, said) = read(account, options, model, &columns, row, args);
        let bad = said.iter().any(|(kind, _)| *kind == "error");
        unread += usize::from(bad);
        messages.extend(said.into_iter().map(|(kind, said)| message(at, kind, said)));
        let wrong = match bad {
            true => None,
            false => refused(account, options, caller, model, &target, &values, args, &coming),
        };
        unwritten += usize::from(wrong.is_some());
        messages.extend(wrong.map(|wrong| message(at, "error", wrong)));
        if unwritten >= MAX_ERRORS && unwritten * MAX_ERRORS > at {
            messages.push(json!({
                "type": "warning",
                "message": "Found more than 10 errors and more than one error per 10 records, \
                            interrupted to avoid showing too many errors.",
            }));
            break;
        }
        if let Target::New(Some(external)) = &target {
            coming.insert(external.clone());
        }
        rows.push((target, values));
    }
    if unread + unwritten > 0 {
        return Ok(json!({"ids": false, "messages": messages, "nextrow": 0}));
    }
    let mut ids = store(account, caller, model, args, rows);
    if let Some((input, _)) = tweak.omit
        && input < ids.len()
    {
        ids.remove(input);
    }
    Ok(json!({"ids": ids, "messages": messages, "nextrow": 0}))
}

/// Writes what was found good.
fn store(
    account: &mut Account,
    caller: &Caller,
    model: Model,
    args: &Args,
    rows: Vec<(Target, Map<String, Value>)>,
) -> Vec<i64> {
    let mut made: BTreeMap<String, i64> = BTreeMap::new();
    let mut ids = Vec::new();
    for (target, values) in rows {
        let known = match &target {
            Target::Known(id) => Some(*id),
            Target::New(external) => external.as_ref().and_then(|e| made.get(e)).copied(),
        };
        let id = match known {
            Some(id) => {
                account.write(model, id, values);
                id
            }
            None => account.create(model, with_defaults(model, caller, args, values)),
        };
        if let Target::New(Some(external)) = target {
            made.insert(external.clone(), id);
            account.external.insert(external, (model, id));
        }
        ids.push(id);
    }
    ids
}

fn message(at: usize, kind: &str, mut said: Value) -> Value {
    said["type"] = json!(kind);
    said["record"] = json!(at);
    said["rows"] = json!({"from": at, "to": at});
    said
}

fn check_columns(options: &Options, model: Model, columns: &[String]) -> Result<(), Raised> {
    for column in columns.iter().filter(|column| !["id", ".id"].contains(&column.as_str())) {
        let (name, sub) = split(column);
        let field = model.fields(options).iter().find(|f| f.name == name);
        let points =
            field.is_some_and(|f| matches!(f.kind, FieldType::Many2one | FieldType::Many2many));
        let unknown = match sub {
            _ if field.is_none() => name,
            Some(sub) if !points || !["id", ".id"].contains(&sub) => sub,
            _ => continue,
        };
        return Err(Raised::new("builtins.KeyError", unknown));
    }
    Ok(())
}

fn split(column: &str) -> (&str, Option<&str>) {
    match column.split_once('/') {
        Some((name, sub)) => (name, Some(sub)),
        None => (column, None),
    }
}

/// A cell as text; empty for what clears.
fn text(cell: &Value) -> String {
    match cell {
        Value::Null | Value::Bool(false) => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A row as values, and what is to be said of it.
fn read(
    account: &Account,
    options: &Options,
    model: Model,
    columns: &[String],
    row: &Value,
    args: &Args,
) -> (Target, Map<String, Value>, Vec<(&'static str, Value)>) {
    let (mut values, mut said) = (Map::new(), Vec::new());
    let (mut external, mut known) = (None, None);
    for (at, column) in columns.iter().enumerate() {
        // A short row says nothing of the columns at its end.
        let Some(cell) = row.get(at) else { continue };
        let cell = text(cell);
        match column.as_str() {
            "id" if cell.is_empty() => {}
            "id" if cell.contains('.') => external = Some(cell),
            "id" => external = Some(format!("__import__.{cell}")),
            ".id" => {
                let id = cell.parse::<i64>().ok();
                let table = account.table(model);
                known = id.filter(|id| {
                    table.rows.get(id).is_some_and(|row| row.active() || args.archived_too())
                });
                if known.is_none() {
                    let message = format!("Unknown database identifier '{cell}'");
                    said.push(("error", json!({"field": ".id", "message": message})));
                }
            }
            column => {
                let (name, sub) = split(column);
                if cell.is_empty() {
                    values.insert(name.to_owned(), json!(false));
                } else if let Some(field) = model.fields(options).iter().find(|f| f.name == name) {
                    match field.read(&cell, sub) {
                        Ok((value, warning)) => {
                            said.extend(warning.map(|warning| ("warning", warning)));
                            values.insert(name.to_owned(), value);
                        }
                        Err(error) => said.push(("error", error)),
                    }
                }
            }
        }
    }
    let target = match external {
        Some(external) => match account.external.get(&external) {
            Some((points_at, id)) if *points_at == model => Target::Known(*id),
            // One of another model is silently pointed at the new record.
            _ => Target::New(Some(external)),
        },
        None => known.map_or(Target::New(None), Target::Known),
    };
    (target, values, said)
}

/// Why a row whose cells are good cannot be written.
#[expect(clippy::too_many_arguments)]
fn refused(
    account: &Account,
    options: &Options,
    caller: &Caller,
    model: Model,
    target: &Target,
    values: &Map<String, Value>,
    args: &Args,
    coming: &BTreeSet<String>,
) -> Option<Value> {
    let during = |class: &str, message: &str| {
        json!({
            "message": format!("Unknown error during import: <class '{class}'>: {message}"),
            "moreinfo": "Resolve other errors first",
        })
    };
    if !caller.may_write {
        let to = if matches!(target, Target::Known(_)) { "modify" } else { "create" };
        let raised = forbidden(to, model.name());
        return Some(during(raised.name, &raised.message));
    }
    if values.values().any(|v| v.as_str().is_some_and(|text| text.contains('\0'))) {
        return Some(during(
            "ValueError",
            "A string literal cannot contain NUL (0x00) characters.",
        ));
    }
    let whole = match target {
        Target::Known(id) => {
            let mut whole: Map<String, Value> =
                account.table(model).rows.get(id)?.values.clone().into_iter().collect();
            whole.extend(values.clone());
            whole
        }
        Target::New(Some(external)) if external.contains(' ') => {
            return Some(json!({
                "message": "new row for relation \"ir_model_data\" violates check constraint \
                            \"ir_model_data_name_nospaces\"\n",
            }));
        }
        Target::New(Some(external)) if coming.contains(external) => return None,
        Target::New(_) => with_defaults(model, caller, args, values.clone()),
    };
    let message = missing(options, model, &whole)?;
    Some(match model {
        Model::Partner => json!({"message": message}),
        Model::Lead => json!({"message": message, "field": "name"}),
    })
}

/// What Odoo says of a record without a value that it needs.
pub(super) fn missing(
    options: &Options,
    model: Model,
    values: &Map<String, Value>,
) -> Option<String> {
    let lacks = |name: &str| !values.get(name).is_some_and(|value| *value != Value::Bool(false));
    if model == Model::Partner {
        let kind = values.get("type").and_then(Value::as_str).unwrap_or("contact");
        return (kind == "contact" && lacks("name"))
            .then(|| "'Contacts require a name'".to_owned());
    }
    let needed = model.fields(options).iter().find(|field| field.required && lacks(&field.name))?;
    Some(format!("Missing required value for the field '{}' ({})", needed.label, needed.name))
}
