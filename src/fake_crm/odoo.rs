//! Odoo's external API, JSON-RPC (`/jsonrpc`) and JSON-2 (`/json/2/…`), for partners and leads: no unique e-mail, the
//! idempotent `load` by external id, one transaction per call, and errors inside HTTP 200.
//!
//! What an Odoo 14 was seen to answer is repeated here word for word; it is the target of `make test-odoo`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Contact;
use super::exchange::{Answer, Request};
use super::fault::Tweak;

mod act;
mod domain;
mod fields;
mod load;
mod methods;
mod rpc;

pub use fields::{FieldType, ModelField};

/// How the database behaves.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Its name. Another one is an error, as with several databases on one server.
    pub database: String,
    /// Who may call; empty: anybody, as user 2.
    pub users: Vec<User>,
    /// Fields of `res.partner`.
    pub partner_fields: Vec<ModelField>,
    /// Fields of `crm.lead`.
    pub lead_fields: Vec<ModelField>,
    /// Whether `/json/2` exists, which it does from Odoo 19 on.
    pub json2: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            database: "crm".to_owned(),
            users: Vec::new(),
            partner_fields: fields::partner(),
            lead_fields: fields::lead(),
            json2: true,
        }
    }
}

/// A user with an API key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Its id.
    pub uid: i64,
    /// The login.
    pub login: String,
    /// The key; a password works alike.
    pub key: String,
    /// Lacks the right to write partners and leads.
    #[serde(default)]
    pub read_only: bool,
}

impl User {
    /// User 6 with all rights that a sync needs.
    pub fn good(login: &str, key: &str) -> User {
        let (login, key) = (login.to_owned(), key.to_owned());
        User { uid: 6, login, key, read_only: false }
    }
}

/// The models with records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Model {
    Partner,
    Lead,
}

impl Model {
    const ALL: [Model; 2] = [Model::Partner, Model::Lead];

    fn parse(name: &str) -> Option<Model> {
        Model::ALL.into_iter().find(|model| model.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Model::Partner => "res.partner",
            Model::Lead => "crm.lead",
        }
    }

    /// The field with the e-mail as somebody wrote it.
    fn email(self) -> &'static str {
        match self {
            Model::Partner => "email",
            Model::Lead => "email_from",
        }
    }

    fn fields(self, options: &Options) -> &[ModelField] {
        match self {
            Model::Partner => &options.partner_fields,
            Model::Lead => &options.lead_fields,
        }
    }
}

/// The database.
#[derive(Default)]
pub(super) struct Account {
    partners: Table,
    leads: Table,
    /// `module.name` to model and id, unique.
    external: BTreeMap<String, (Model, i64)>,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<i64, Row>,
    made: i64,
}

/// A record. What is empty is not in it.
#[derive(Clone, Default)]
struct Row {
    values: BTreeMap<String, Value>,
}

impl Row {
    fn active(&self) -> bool {
        self.values.get("active") != Some(&Value::Bool(false))
    }
}

/// An exception of the server.
#[derive(Clone, Debug, PartialEq)]
struct Raised {
    name: &'static str,
    message: String,
}

impl Raised {
    fn new(name: &'static str, message: impl Into<String>) -> Raised {
        Raised { name, message: message.into() }
    }
}

impl Account {
    pub(super) fn contacts(&self) -> Vec<Contact> {
        let of = |model: Model| {
            self.table(model).rows.iter().map(move |(id, row)| {
                let shown = |(name, value): (&String, &Value)| {
                    let hidden = ["active", "email_normalized", "create_date", "write_date"];
                    let text = match value {
                        Value::String(text) => text.clone(),
                        Value::Array(pair) => pair.last()?.as_str()?.to_owned(),
                        other => other.to_string(),
                    };
                    (!hidden.contains(&name.as_str())).then(|| (name.clone(), text))
                };
                let email = row.values.get(model.email()).and_then(Value::as_str);
                Contact {
                    id: match model {
                        Model::Partner => id.to_string(),
                        Model::Lead => format!("{},{id}", model.name()),
                    },
                    email: email.unwrap_or_default().trim().to_lowercase(),
                    properties: row.values.iter().filter_map(shown).collect(),
                    archived: !row.active(),
                }
            })
        };
        Model::ALL.into_iter().flat_map(of).collect()
    }

    /// Whether a path is Odoo's.
    pub(super) fn owns(path: &str) -> bool {
        path == "/jsonrpc" || path.starts_with("/json/2/") || path == "/web/login"
    }

    pub(super) fn route(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/web/login") => Answer::html(200, "<title>Odoo</title>".to_owned()),
            (_, "/jsonrpc") => rpc::json_rpc(self, options, request, tweak),
            ("POST", _) if options.json2 => rpc::json2(self, options, request, tweak),
            _ => Answer::html(404, "<title>404 Not Found</title>".to_owned()),
        }
    }

    fn table(&self, model: Model) -> &Table {
        match model {
            Model::Partner => &self.partners,
            Model::Lead => &self.leads,
        }
    }

    fn table_mut(&mut self, model: Model) -> &mut Table {
        match model {
            Model::Partner => &mut self.partners,
            Model::Lead => &mut self.leads,
        }
    }

    /// Makes a record of these values.
    fn create(&mut self, model: Model, values: Map<String, Value>) -> i64 {
        let email = values.get(model.email()).and_then(Value::as_str).unwrap_or_default();
        *self.creates.entry(email.trim().to_lowercase()).or_default() += 1;
        let table = self.table_mut(model);
        table.made += 1;
        let id = table.made;
        let created = ("create_date".to_owned(), json!(now()));
        table.rows.insert(id, Row { values: [created].into() });
        self.store(model, id, values);
        id
    }

    /// Changes a record that is there.
    fn write(&mut self, model: Model, id: i64, values: Map<String, Value>) {
        self.updates += 1;
        self.store(model, id, values);
    }

    fn store(&mut self, model: Model, id: i64, values: Map<String, Value>) {
        let table = self.table_mut(model);
        let Some(row) = table.rows.get_mut(&id) else { return };
        for (name, value) in values {
            match value {
                Value::Bool(false) if name != "active" => drop(row.values.remove(&name)),
                value => drop(row.values.insert(name, value)),
            }
        }
        row.values.insert("write_date".to_owned(), json!(now()));
        let email = row.values.get(model.email()).and_then(Value::as_str);
        match email.and_then(fields::normalized) {
            Some(email) => row.values.insert("email_normalized".to_owned(), json!(email)),
            None => row.values.remove("email_normalized"),
        };
    }

    /// Deletes a record and its external ids.
    fn unlink(&mut self, model: Model, id: i64) {
        self.table_mut(model).rows.remove(&id);
        self.external.retain(|_, points_at| *points_at != (model, id));
    }
}

/// Odoo's way of writing a time, in UTC.
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%d %H:%M:%S").to_string()
}
