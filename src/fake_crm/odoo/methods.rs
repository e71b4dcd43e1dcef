//! The methods of the models, `load` apart.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::fault::Tweak;
use super::fields::{FieldType, POINTED_AT};
use super::{Account, Model, Options, Raised, domain, load};

/// Arguments by position or by name, whichever way they came.
pub(super) struct Args {
    pub positional: Vec<Value>,
    pub named: Map<String, Value>,
}

impl Args {
    pub fn get(&self, position: usize, name: &str) -> &Value {
        self.positional.get(position).or_else(|| self.named.get(name)).unwrap_or(&Value::Null)
    }

    pub fn texts(&self, position: usize, name: &str) -> Vec<String> {
        let list = self.get(position, name).as_array();
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn ids(&self) -> Vec<i64> {
        match self.get(0, "ids") {
            Value::Array(ids) => ids.iter().filter_map(Value::as_i64).collect(),
            one => one.as_i64().into_iter().collect(),
        }
    }

    fn count(&self, position: usize, name: &str) -> Option<usize> {
        self.get(position, name).as_u64().and_then(|n| n.try_into().ok()).filter(|n| *n > 0)
    }

    pub fn context(&self, name: &str) -> &Value {
        &self.named.get("context").unwrap_or(&Value::Null)[name]
    }

    /// Whether archived records are looked at too.
    pub fn archived_too(&self) -> bool {
        *self.context("active_test") == Value::Bool(false)
    }
}

/// Who calls.
pub(super) struct Caller {
    pub uid: i64,
    pub may_write: bool,
}

/// A record of any model, as reading sees it.
type Seen = (i64, bool, BTreeMap<String, Value>);

impl Account {
    /// Calls a method; the result, and whether something was written.
    pub(super) fn call(
        &mut self,
        options: &Options,
        caller: &Caller,
        model: &str,
        method: &str,
        args: &Args,
        tweak: &Tweak,
    ) -> Result<(Value, bool), Raised> {
        let own = Model::parse(model);
        let small = model == "res.users"
            || model == "ir.model.data"
            || POINTED_AT.iter().any(|(name, ..)| *name == model);
        if own.is_none() && !small {
            return Err(Raised::new(
                "odoo.exceptions.UserError",
                format!("Object {model} doesn't exist"),
            ));
        }
        let read = |result| Ok((result, false));
        match (method, own) {
            ("search", _) => {
                let found = self.search(options, caller, model, args)?;
                read(found.iter().map(|(id, ..)| json!(id)).collect())
            }
            ("search_count", _) => read(json!(self.search(options, caller, model, args)?.len())),
            ("search_read", _) => {
                let found = self.search(options, caller, model, args)?;
                read(self.read(options, model, found, &args.texts(1, "fields"))?)
            }
            ("read", _) => {
                let ids = args.ids();
                let found = match own {
                    Some(own) => {
                        let row = |id: &i64| Some((*id, self.table(own).rows.get(id)?));
                        let rows = ids.iter().filter_map(row);
                        rows.map(|(id, row)| (id, row.active(), row.values.clone())).collect()
                    }
                    None => {
                        let mut found = self.small(caller, model);
                        found.retain(|(id, ..)| ids.contains(id));
                        found
                    }
                };
                read(self.read(options, model, found, &args.texts(1, "fields"))?)
            }
            ("fields_get", Some(own)) => {
                let (wanted, attributes) =
                    (args.texts(0, "allfields"), args.texts(1, "attributes"));
                let fields = own.fields(options).iter();
                let fields = fields.filter(|f| wanted.is_empty() || wanted.contains(&f.name));
                read(Value::Object(
                    fields.map(|f| (f.name.clone(), f.described(&attributes))).collect(),
                ))
            }
            ("check_access_rights", _) => {
                let may = may(caller, model, args.get(0, "operation"));
                match may || *args.get(1, "raise_exception") == Value::Bool(false) {
                    true => read(json!(may)),
                    false => Err(forbidden("create", model)),
                }
            }
            ("has_access", _) => read(json!(may(caller, model, args.get(1, "operation")))),
            ("load", Some(own)) => {
                let result = load::load(self, options, caller, own, args, tweak)?;
                let wrote = result["ids"].as_array().is_some_and(|ids| !ids.is_empty());
                Ok((result, wrote))
            }
            ("create", Some(own)) => self.created(options, caller, own, args),
            ("write", Some(own)) => {
                if !caller.may_write {
                    return Err(forbidden("modify", model));
                }
                let values = checked(options, own, args.get(1, "vals"))?;
                let ids = args.ids();
                self.all_there(caller, own, &ids)?;
                for id in ids {
                    self.write(own, id, values.clone());
                }
                Ok((json!(true), true))
            }
            ("unlink", Some(own)) => {
                if !caller.may_write {
                    return Err(forbidden("delete", model));
                }
                for id in args.ids() {
                    self.unlink(own, id);
                }
                Ok((json!(true), true))
            }
            _ => Err(Raised::new(
                "builtins.AttributeError",
                format!("type object '{model}' has no attribute '{method}'"),
            )),
        }
    }

    fn created(
        &mut self,
        options: &Options,
        caller: &Caller,
        model: Model,
        args: &Args,
    ) -> Result<(Value, bool), Raised> {
        if !caller.may_write {
            return Err(forbidden("create", model.name()));
        }
        let sent = match args.get(0, "vals_list") {
            Value::Null => args.get(0, "vals"),
            list => list,
        };
        let list = sent.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(sent));
        // One transaction: everything is checked before anything is made.
        let mut all = Vec::new();
        for values in list {
            let values = with_defaults(model, caller, args, checked(options, model, values)?);
            if let Some(missing) = load::missing(options, model, &values) {
                return Err(Raised::new("odoo.exceptions.ValidationError", missing));
            }
            all.push(values);
        }
        let ids: Vec<i64> = all.into_iter().map(|values| self.create(model, values)).collect();
        let result = if sent.is_array() { json!(ids) } else { json!(ids.first()) };
        Ok((result, true))
    }

    fn all_there(&self, caller: &Caller, model: Model, ids: &[i64]) -> Result<(), Raised> {
        let gone = |id: &&i64| !self.table(model).rows.contains_key(id);
        match ids.iter().find(gone) {
            None => Ok(()),
            Some(id) => Err(missing(model.name(), *id, caller.uid)),
        }
    }

    /// Every record of a model that is not one of [`Model`].
    fn small(&self, caller: &Caller, model: &str) -> Vec<Seen> {
        let row = |members: &[(&str, Value)]| -> BTreeMap<String, Value> {
            members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
        };
        match model {
            "ir.model.data" => {
                let external = |(at, (name, (model, id))): (i64, (&String, &(Model, i64)))| {
                    let (module, name) = name.split_once('.').unwrap_or_default();
                    let (module, name) = (("module", json!(module)), ("name", json!(name)));
                    let values =
                        [module, name, ("model", json!(model.name())), ("res_id", json!(id))];
                    (at, true, row(&values))
                };
                (1..).zip(&self.external).map(external).collect()
            }
            "res.users" => vec![(caller.uid, true, row(&[("name", json!("Lead Sync"))]))],
            _ => POINTED_AT
                .iter()
                .filter(|(name, ..)| *name == model)
                .map(|(_, id, name, code, _)| {
                    (*id, true, row(&[("name", json!(name)), ("code", json!(code))]))
                })
                .collect(),
        }
    }

    fn search(
        &self,
        options: &Options,
        caller: &Caller,
        model: &str,
        args: &Args,
    ) -> Result<Vec<Seen>, Raised> {
        let wanted = args.get(0, "domain");
        known(options, model, fields_of(wanted))?;
        let mut found = Vec::new();
        if let Some(own) = Model::parse(model) {
            for (id, row) in &self.table(own).rows {
                let value = |field: &str| seen(*id, row.active(), row.values.get(field), field);
                if (row.active() || args.archived_too()) && domain::holds(wanted, &value)? {
                    found.push((*id, row.active(), row.values.clone()));
                }
            }
        } else {
            for (id, active, values) in self.small(caller, model) {
                let value = |field: &str| seen(id, active, values.get(field), field);
                if domain::holds(wanted, &value)? {
                    found.push((id, active, values));
                }
            }
        }
        // `search_read` has the fields at the second place.
        let shift =
            usize::from(!args.get(1, "fields").is_null() && args.get(1, "fields").is_array());
        if args.get(3 + shift, "order").as_str().is_some_and(|order| order.ends_with("desc")) {
            found.reverse();
        }
        let skipped = args.count(1 + shift, "offset").unwrap_or(0);
        let limit = args.count(2 + shift, "limit").unwrap_or(usize::MAX);
        Ok(found.into_iter().skip(skipped).take(limit).collect())
    }

    fn read(
        &self,
        options: &Options,
        model: &str,
        found: Vec<Seen>,
        fields: &[String],
    ) -> Result<Value, Raised> {
        known(options, model, fields.iter().cloned())?;
        let whole = |(id, active, values): Seen| {
            let mut row = Map::new();
            row.insert("id".to_owned(), json!(id));
            for field in fields {
                row.insert(field.clone(), seen(id, active, values.get(field), field));
            }
            Value::Object(row)
        };
        Ok(found.into_iter().map(whole).collect())
    }
}

/// A value as Odoo gives it: `false` for what is empty.
fn seen(id: i64, active: bool, value: Option<&Value>, field: &str) -> Value {
    match field {
        "id" => json!(id),
        "active" => json!(active),
        _ => value.cloned().unwrap_or(Value::Bool(false)),
    }
}

/// The fields that a domain names.
fn fields_of(domain: &Value) -> impl Iterator<Item = String> {
    let terms = domain.as_array().into_iter().flatten();
    terms.filter_map(|term| term[0].as_str().map(str::to_owned))
}

/// Refuses a field that the model does not have.
fn known(
    options: &Options,
    model: &str,
    mut named: impl Iterator<Item = String>,
) -> Result<(), Raised> {
    let Some(own) = Model::parse(model) else { return Ok(()) };
    let unknown = named.find(|name| !own.fields(options).iter().any(|f| f.name == *name));
    match unknown {
        None => Ok(()),
        Some(name) => Err(Raised::new(
            "builtins.ValueError",
            format!("Invalid field '{name}' on model '{model}'"),
        )),
    }
}

fn may(caller: &Caller, model: &str, operation: &Value) -> bool {
    *operation == "read" || caller.may_write && Model::parse(model).is_some()
}

/// The exception about a record that is gone.
pub(super) fn missing(model: &str, id: i64, uid: i64) -> Raised {
    let record = format!("(Record: {model}({id},), User: {uid})");
    let message = format!("Record does not exist or has been deleted.\n{record}");
    Raised::new("odoo.exceptions.MissingError", message)
}

/// The exception that a user without the right gets.
pub(super) fn forbidden(to: &str, model: &str) -> Raised {
    let label = if model == "res.partner" { "Contact" } else { "Lead/Opportunity" };
    Raised::new(
        "odoo.exceptions.AccessError",
        format!(
            "You are not allowed to {to} '{label}' ({model}) records.\n\nThis operation is allowed for the \
             following groups:\n\t- Extra Rights/Contact Creation\n\t- Sales/User: Own Documents Only\n\n\
             Contact your administrator to request access if necessary."
        ),
    )
}

/// What Odoo fills in by itself where a new record does not say it.
pub(super) fn with_defaults(
    model: Model,
    caller: &Caller,
    args: &Args,
    mut values: Map<String, Value>,
) -> Map<String, Value> {
    if model == Model::Lead {
        let kind = args.context("default_type").as_str().unwrap_or("opportunity");
        values.entry("type").or_insert_with(|| json!(kind));
        // Whoever makes a lead is its salesperson.
        if args.context("default_user_id").is_null() {
            values.entry("user_id").or_insert_with(|| json!([caller.uid, "Lead Sync"]));
        }
    }
    values
}

/// The values of a `create` or `write`, or why they are none.
fn checked(options: &Options, model: Model, sent: &Value) -> Result<Map<String, Value>, Raised> {
    let Some(sent) = sent.as_object() else {
        return Err(Raised::new("builtins.TypeError", "values are a dictionary"));
    };
    let mut values = Map::new();
    known(options, model.name(), sent.keys().cloned())?;
    for (name, value) in sent {
        let field = model.fields(options).iter().find(|f| f.name == *name);
        let value = match field.map(|f| f.kind) {
            Some(FieldType::Selection) => {
                let known = |f: &super::ModelField| {
                    f.selection.iter().any(|(key, _)| value == key) || *value == Value::Bool(false)
                };
                if !field.is_some_and(known) {
                    let message = format!("Wrong value for {}.{name}: {value}", model.name());
                    return Err(Raised::new("builtins.ValueError", message));
                }
                value.clone()
            }
            Some(FieldType::Many2one) => {
                let pointed = |(_, id, ..): &&(&str, i64, &str, &str, &str)| value == id;
                let found = POINTED_AT.iter().find(pointed);
                found.map_or(Value::Bool(false), |(_, id, name, ..)| json!([id, name]))
            }
            _ if *value == "" || value.is_null() => Value::Bool(false),
            _ => value.clone(),
        };
        values.insert(name.clone(), value);
    }
    Ok(values)
}
