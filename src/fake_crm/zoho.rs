//! Zoho CRM's API, version 8, for Leads and Contacts: upsert and update in batches, search, COQL, field list, credits,
//! OAuth, and what people do there by hand (convert, merge, delete).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Contact;
use super::exchange::{Answer, Request};
use super::fault::Tweak;
use super::plain::as_text;

pub(super) mod errors;
mod fields;
mod oauth;
mod people;
mod read;
mod write;

pub use errors::ItemError;
pub use fields::{FieldInfo, FieldType};
pub use people::Act;

/// Whether a path is Zoho's.
pub(super) fn owns(path: &str) -> bool {
    path.starts_with("/crm/v8/") || path == "/oauth/v2/token"
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Module {
    /// Not yet a customer.
    Leads,
    /// What a lead is converted to.
    Contacts,
}

impl Module {
    fn name(self) -> &'static str {
        match self {
            Module::Leads => "Leads",
            Module::Contacts => "Contacts",
        }
    }

    fn parse(name: &str) -> Option<Module> {
        [Module::Leads, Module::Contacts].into_iter().find(|m| m.name() == name)
    }
}

/// How the account behaves. Where Zoho's behaviour is not documented, both ways are offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The client's id; absent: any.
    pub client_id: Option<String>,
    /// The client's secret; absent: any.
    pub client_secret: Option<String>,
    /// The refresh token; absent: any.
    pub refresh_token: Option<String>,
    /// What the refresh token was made for.
    pub scopes: BTreeSet<String>,
    /// How long an access token lasts.
    #[serde(rename = "token_ms", with = "super::hubspot::millis")]
    pub token: Duration,
    /// Access tokens that a refresh token gives in ten minutes.
    pub tokens_in_ten_minutes: usize,
    /// A refused grant is answered 200 with an `error`, as Zoho does; off: 400.
    pub refuses_grants_with_200: bool,
    /// The fields of each module.
    pub modules: BTreeMap<Module, Vec<FieldInfo>>,
    /// Credits in 24 hours.
    pub credits: u64,
    /// Errors of single records, by e-mail or id: locks, blueprints, validation rules.
    pub refusals: BTreeMap<String, ItemError>,
    /// null leaves a field alone instead of clearing it.
    pub null_is_ignored: bool,
    /// A converted lead is refused with CONVERTED_RECORD instead of as an id that is not there.
    pub converted_has_a_code: bool,
    /// The user may write.
    pub may_write: bool,
    /// How far the search is behind the writes.
    #[serde(rename = "search_lag_ms", with = "super::hubspot::millis")]
    pub search_lag: Duration,
}

impl Default for Options {
    fn default() -> Options {
        let modules = [Module::Leads, Module::Contacts].map(|m| (m, fields::standard(m)));
        Options {
            client_id: None,
            client_secret: None,
            refresh_token: None,
            scopes: oauth::all_scopes(),
            token: Duration::from_secs(3600),
            tokens_in_ten_minutes: 10,
            refuses_grants_with_200: true,
            modules: modules.into(),
            // High enough never to be met by chance; the tests of limits set their own.
            credits: 1_000_000_000,
            refusals: BTreeMap::new(),
            null_is_ignored: false,
            converted_has_a_code: false,
            may_write: true,
            search_lag: Duration::from_secs(3),
        }
    }
}

impl Options {
    /// The fields of a module.
    pub fn fields(&self, module: Module) -> &[FieldInfo] {
        self.modules.get(&module).map(Vec::as_slice).unwrap_or_default()
    }

    fn field(&self, module: Module, name: &str) -> Option<&FieldInfo> {
        self.fields(module).iter().find(|f| f.name == name)
    }

    /// To change a field in a test.
    pub fn field_mut(&mut self, module: Module, name: &str) -> Option<&mut FieldInfo> {
        self.modules.get_mut(&module)?.iter_mut().find(|f| f.name == name)
    }
}

/// The account's records.
#[derive(Default)]
pub(super) struct Account {
    /// By id; ids grow.
    records: BTreeMap<u64, Stored>,
    made: u64,
    /// Records that can be found, by module, field that may be checked for duplicates, and value in lower case.
    index: HashMap<(Module, String, String), BTreeSet<u64>>,
    tokens: HashMap<String, Instant>,
    used: u64,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
}

struct Stored {
    module: Module,
    /// Without those that Zoho sets; no nulls.
    fields: BTreeMap<String, Value>,
    deleted: bool,
    /// The contact it was converted to.
    converted: Option<u64>,
    created: Timestamp,
    updated: Timestamp,
    /// For the search, which is behind.
    written: Instant,
}

impl Stored {
    fn email(&self) -> String {
        self.fields.get("Email").and_then(Value::as_str).unwrap_or_default().to_lowercase()
    }

    /// The value of any field, Zoho's own ones included.
    fn read(&self, id: u64, field: &str) -> Value {
        match field {
            "id" => json!(id.to_string()),
            "Converted__s" => json!(self.converted.is_some()),
            "Converted_Contact" => match self.converted {
                Some(contact) => json!({"id": contact.to_string(), "name": "Contact"}),
                None => Value::Null,
            },
            "Created_Time" => json!(time(self.created)),
            "Modified_Time" => json!(time(self.updated)),
            name => self.fields.get(name).cloned().unwrap_or(Value::Null),
        }
    }
}

/// First id; Zoho's have 19 digits.
const FIRST_ID: u64 = 5_544_000_000_000_001_000;

impl Account {
    /// Leads and contacts, oldest first; deleted and converted ones count as archived.
    pub fn contacts(&self) -> Vec<Contact> {
        self.records
            .iter()
            .map(|(id, record)| Contact {
                id: id.to_string(),
                email: record.email(),
                properties: record.fields.iter().map(|(n, v)| (n.clone(), as_text(v))).collect(),
                archived: record.deleted || record.converted.is_some(),
            })
            .collect()
    }

    /// Answers one request.
    pub(super) fn route(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        if request.path == "/oauth/v2/token" {
            return oauth::token(self, options, request);
        }
        if let Some(refused) = oauth::gate(self, options, request) {
            return refused;
        }
        let cost = match request.path.ends_with("/upsert") || request.method == "PUT" {
            true => write::records(request).len().div_ceil(10).max(1) as u64,
            false => 1,
        };
        if self.used + cost > options.credits {
            return errors::too_many(true);
        }
        self.used += cost;
        let mut answer = self.routed(options, request, tweak);
        // Told only when half of them are gone.
        if self.used * 2 >= options.credits {
            let left = (options.credits - self.used).to_string();
            answer.headers.push(("x-api-credits-remaining", left));
        }
        answer
    }

    fn routed(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        let path = request.path.strip_prefix("/crm/v8/").unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", ["coql"]) => return read::coql(self, options, request),
            ("GET", ["settings", "fields"]) => return read::field_list(options, request),
            (_, ["coql" | "settings", ..]) => return errors::no_url(),
            _ => {}
        }
        let Some(module) = parts.first().and_then(|name| Module::parse(name)) else {
            return errors::no_module();
        };
        match (request.method.as_str(), &parts[1..]) {
            ("POST" | "PUT" | "DELETE", _) if !options.may_write => errors::no_permission(),
            ("POST", ["upsert"]) => write::upsert(self, options, request, module, tweak),
            ("POST", []) => write::insert(self, options, request, module, tweak),
            ("PUT", []) => write::update(self, options, request, module, tweak),
            ("PUT", [id]) => write::update_one(self, options, request, module, id),
            ("DELETE", []) => write::delete(self, request, module),
            ("GET", ["search"]) => read::search(self, options, request, module),
            ("GET", []) => read::list(self, options, request, module),
            ("GET", [id]) => read::one(self, options, request, module, id),
            _ => errors::no_url(),
        }
    }

    /// Records that can be found and have this value in this field, oldest first.
    fn with(&self, module: Module, field: &str, value: &str) -> Vec<u64> {
        let key = (module, field.to_owned(), value.trim().to_lowercase());
        self.index.get(&key).map(|ids| ids.iter().copied().collect()).unwrap_or_default()
    }

    /// A record that is there and was not converted.
    fn live(&self, module: Module, id: &str) -> Option<u64> {
        let id = id.parse().ok()?;
        let stored = self.records.get(&id).filter(|r| r.module == module && !r.deleted)?;
        stored.converted.is_none().then_some(id)
    }

    fn make(&mut self, module: Module) -> u64 {
        self.made += 1;
        let id = FIRST_ID + self.made;
        let now = Timestamp::now();
        let stored = Stored {
            module,
            fields: BTreeMap::new(),
            deleted: false,
            converted: None,
            created: now,
            updated: now,
            written: Instant::now(),
        };
        self.records.insert(id, stored);
        id
    }

    fn make_with(&mut self, module: Module, fields: &BTreeMap<String, Value>) -> u64 {
        let id = self.make(module);
        self.store(id, fields);
        let email = self.records.get(&id).map(Stored::email).unwrap_or_default();
        *self.creates.entry(email).or_default() += 1;
        id
    }

    /// Writes fields; null clears.
    fn store(&mut self, id: u64, fields: &BTreeMap<String, Value>) {
        self.unlink(id);
        if let Some(stored) = self.records.get_mut(&id) {
            (stored.updated, stored.written) = (Timestamp::now(), Instant::now());
            for (name, value) in fields {
                match value.is_null() || value.as_str() == Some("") {
                    true => stored.fields.remove(name),
                    false => stored.fields.insert(name.clone(), value.clone()),
                };
            }
        }
        self.link(id);
    }

    /// Takes a record out of the index, or puts it in.
    fn unlink(&mut self, id: u64) {
        for key in self.keys(id) {
            if let Some(ids) = self.index.get_mut(&key) {
                ids.remove(&id);
            }
        }
    }

    fn link(&mut self, id: u64) {
        for key in self.keys(id) {
            self.index.entry(key).or_default().insert(id);
        }
    }

    fn keys(&self, id: u64) -> Vec<(Module, String, String)> {
        let Some(stored) = self.records.get(&id) else { return Vec::new() };
        if stored.deleted || stored.converted.is_some() {
            return Vec::new();
        }
        // Whichever of them may become unique by an option.
        let texts = stored.fields.iter().filter(|(_, value)| value.is_string());
        texts
            .map(|(name, value)| {
                (stored.module, name.clone(), as_text(value).trim().to_lowercase())
            })
            .collect()
    }
}

/// Zoho's way of writing a time.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}
