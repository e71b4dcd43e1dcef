//! Salesforce's REST API for Lead and Contact: collections by external id and by id, single records, describe, SOQL,
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
mod query;
mod single;
mod write;

pub use errors::ItemError;
pub use fields::{FieldInfo, FieldType};
pub use people::Act;

/// The versions of the API that are served.
const VERSIONS: std::ops::RangeInclusive<u32> = 31..=67;

/// Longest path and query, in bytes.
const MAX_URI: usize = 16_384;

/// Whether a path is Salesforce's.
pub(super) fn owns(path: &str) -> bool {
    path.starts_with("/services/")
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Object {
    /// Ids begin with `00Q`.
    Lead,
    /// Ids begin with `003`.
    Contact,
}

impl Object {
    fn name(self) -> &'static str {
        match self {
            Object::Lead => "Lead",
            Object::Contact => "Contact",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Object::Lead => "00Q",
            Object::Contact => "003",
        }
    }

    fn parse(name: &str) -> Option<Object> {
        [Object::Lead, Object::Contact].into_iter().find(|o| o.name().eq_ignore_ascii_case(name))
    }
}

/// What a duplicate rule of the org does about a record with the e-mail of another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateRule {
    /// There is none.
    #[default]
    Off,
    /// It refuses, unless the header says `allowSave=true`.
    Alert,
    /// It refuses.
    Block,
}

/// How the org behaves. Where Salesforce's behaviour is not documented, both ways are offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The app's client id; absent: any.
    pub client_id: Option<String>,
    /// The app's secret; absent: any.
    pub client_secret: Option<String>,
    /// The grant `client_credentials` is switched on.
    pub client_credentials: bool,
    /// The refresh token; absent: any.
    pub refresh_token: Option<String>,
    /// Every refresh gives a new refresh token and kills the old one.
    pub rotate_refresh_tokens: bool,
    /// How long a session lasts.
    #[serde(rename = "session_ms", with = "super::hubspot::millis")]
    pub session: Duration,
    /// The fields of each object.
    pub objects: BTreeMap<Object, Vec<FieldInfo>>,
    /// Requests in 24 hours.
    pub daily_limit: u64,
    /// Off: 403 API_DISABLED_FOR_ORG.
    pub api_enabled: bool,
    /// What a duplicate rule does.
    pub duplicate_rule: DuplicateRule,
    /// The list of matches has the misspelt name that is seen too.
    pub misspelt_duplicate_result: bool,
    /// Errors of single records, by e-mail, key or id: locks, triggers, rules, rights.
    pub refusals: BTreeMap<String, ItemError>,
    /// An unknown field is an error of the record instead of the call.
    pub unknown_field_is_an_item_error: bool,
    /// The user has the right to edit converted leads.
    pub converted_leads_editable: bool,
    /// Rows in one answer to a query.
    pub query_page: usize,
}

impl Default for Options {
    fn default() -> Options {
        let objects = [Object::Lead, Object::Contact].map(|o| (o, fields::standard(o)));
        Options {
            client_id: None,
            client_secret: None,
            client_credentials: true,
            refresh_token: None,
            rotate_refresh_tokens: false,
            session: Duration::from_secs(2 * 3600),
            objects: objects.into(),
            // High enough never to be met by chance; the tests of limits set their own.
            daily_limit: 1_000_000_000,
            api_enabled: true,
            duplicate_rule: DuplicateRule::default(),
            misspelt_duplicate_result: false,
            refusals: BTreeMap::new(),
            unknown_field_is_an_item_error: false,
            converted_leads_editable: false,
            query_page: 2_000,
        }
    }
}

impl Options {
    /// The fields of an object.
    pub fn fields(&self, object: Object) -> &[FieldInfo] {
        self.objects.get(&object).map(Vec::as_slice).unwrap_or_default()
    }

    /// A field by its name, letter case ignored.
    fn field(&self, object: Object, name: &str) -> Option<&FieldInfo> {
        self.fields(object).iter().find(|f| f.name.eq_ignore_ascii_case(name))
    }

    /// To change a field in a test.
    pub fn field_mut(&mut self, object: Object, name: &str) -> Option<&mut FieldInfo> {
        self.objects.get_mut(&object)?.iter_mut().find(|f| f.name == name)
    }
}

/// The org's records.
#[derive(Clone, Default)]
pub(super) struct Account {
    /// By id of 18 characters, in the order of creation per object.
    records: BTreeMap<String, Stored>,
    made: BTreeMap<Object, u64>,
    /// Records that are not deleted, by object, field that may be a key, and value in lower case.
    index: HashMap<(Object, String, String), BTreeSet<String>>,
    sessions: HashMap<String, Instant>,
    /// The newest refresh token, where they rotate.
    refresh_token: Option<String>,
    /// Rows of queries that were not given yet.
    cursors: HashMap<String, Vec<Value>>,
    used: u64,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
}

#[derive(Clone)]
struct Stored {
    object: Object,
    /// Without those that Salesforce sets; no nulls.
    fields: BTreeMap<String, Value>,
    deleted: bool,
    /// The record it was merged into.
    master: Option<String>,
    /// The contact it was converted to.
    converted: Option<String>,
    created: Timestamp,
    updated: Timestamp,
}

impl Stored {
    fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The value of any field, Salesforce's own ones included.
    fn read(&self, id: &str, options: &Options, field: &str) -> Value {
        let name = options.field(self.object, field).map_or(field, |f| f.name.as_str());
        match name {
            "Id" => json!(id),
            "IsDeleted" => json!(self.deleted),
            "MasterRecordId" => json!(self.master),
            "IsConverted" => json!(self.converted.is_some()),
            "ConvertedContactId" => json!(self.converted),
            "CreatedDate" => json!(time(self.created)),
            "LastModifiedDate" | "SystemModstamp" => json!(time(self.updated)),
            name => match self.fields.get(name) {
                Some(value) => value.clone(),
                None => match options.field(self.object, name).map(|f| f.kind) {
                    Some(FieldType::Boolean) => json!(false),
                    _ => Value::Null,
                },
            },
        }
    }
}

impl Account {
    /// Leads and contacts, oldest first; deleted and converted ones count as archived.
    pub fn contacts(&self) -> Vec<Contact> {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_by_key(|(_, r)| r.created);
        records
            .into_iter()
            .map(|(id, record)| Contact {
                id: id.clone(),
                email: record.text("Email").to_lowercase(),
                properties: record.fields.iter().map(|(n, v)| (n.clone(), as_text(v))).collect(),
                archived: record.deleted || record.converted.is_some(),
            })
            .collect()
    }

    /// Answers one request.
    pub(super) fn route(&mut self, options: &Options, request: &Request, tweak: &Tweak) -> Answer {
        if request.path == "/services/oauth2/token" {
            return oauth::token(self, options, request);
        }
        if request.path.len() + request.query.len() > MAX_URI {
            return Answer::html(414, "<h1>414 URI Too Long</h1>".to_owned());
        }
        let Some((version, rest)) = request
            .path
            .strip_prefix("/services/data/v")
            .and_then(|path| path.split_once('/'))
            .and_then(|(version, rest)| Some((version.strip_suffix(".0")?.parse().ok()?, rest)))
        else {
            return errors::not_found();
        };
        if !oauth::is_in_session(self, options, request) {
            return errors::session();
        }
        if !options.api_enabled {
            let message = "The REST API is not enabled for this organization.";
            return errors::refused(403, "API_DISABLED_FOR_ORG", message);
        }
        if version < *VERSIONS.start() {
            return Answer::json(410, &errors::of_status(410));
        }
        if version > *VERSIONS.end() {
            return errors::not_found();
        }
        if self.used >= options.daily_limit {
            return errors::too_many(true, options.daily_limit);
        }
        self.used += 1;
        let mut answer = self.routed(options, request, version, rest, tweak);
        let usage = format!("api-usage={}/{}", self.used, options.daily_limit);
        answer.headers.push(("sforce-limit-info", usage));
        answer
    }

    fn routed(
        &mut self,
        options: &Options,
        request: &Request,
        version: u32,
        rest: &str,
        tweak: &Tweak,
    ) -> Answer {
        let parts: Vec<&str> = rest.split('/').collect();
        let method = request.method.as_str();
        let object = |name: &str| Object::parse(name);
        match (method, parts.as_slice()) {
            ("PATCH", ["composite", "sobjects"]) => write::update(self, options, request, tweak),
            ("PATCH", ["composite", "sobjects", name, field]) => match object(name) {
                Some(object) => write::upsert(self, options, request, (object, field), tweak),
                None => errors::not_found(),
            },
            ("GET", ["query"]) => query::begin(self, options, request, version, false),
            ("GET", ["queryAll"]) => query::begin(self, options, request, version, true),
            ("GET", ["query" | "queryAll", locator]) => query::more(self, version, locator),
            ("GET", ["limits"]) => {
                let left = options.daily_limit.saturating_sub(self.used);
                let daily = json!({"Max": options.daily_limit, "Remaining": left});
                Answer::json(200, &json!({ "DailyApiRequests": daily }))
            }
            ("GET", ["sobjects", name, "describe"]) => match object(name) {
                Some(object) => fields::describe(options, object),
                None => errors::not_found(),
            },
            (_, ["sobjects", name, id]) => match object(name) {
                Some(object) => single::by_id(self, options, request, object, id),
                None => errors::not_found(),
            },
            (_, ["sobjects", name, field, value]) => match object(name) {
                Some(object) => {
                    single::by_key(self, options, request, version, object, (field, value))
                }
                None => errors::not_found(),
            },
            _ => errors::not_found(),
        }
    }

    /// Records that are there and have this value in this field.
    fn with(&self, object: Object, field: &str, value: &str) -> Vec<String> {
        let key = (object, field.to_owned(), value.to_lowercase());
        self.index.get(&key).map(|ids| ids.iter().cloned().collect()).unwrap_or_default()
    }

    /// Makes a record without fields.
    fn make(&mut self, object: Object) -> String {
        let made = self.made.entry(object).or_default();
        *made += 1;
        let id = with_check(&format!("{}{made:012}", object.prefix()));
        let now = Timestamp::now();
        let stored = Stored {
            object,
            fields: BTreeMap::new(),
            deleted: false,
            master: None,
            converted: None,
            created: now,
            updated: now,
        };
        self.records.insert(id.clone(), stored);
        id
    }

    /// Writes fields; null and "" clear.
    fn store(&mut self, options: &Options, id: &str, fields: &BTreeMap<String, Value>) {
        self.unlink(options, id);
        if let Some(stored) = self.records.get_mut(id) {
            stored.updated = Timestamp::now();
            for (name, value) in fields {
                match is_blank(value) {
                    true => stored.fields.remove(name),
                    false => stored.fields.insert(name.clone(), value.clone()),
                };
            }
        }
        self.link(options, id);
    }

    /// Takes a record out of the index, or puts it in.
    fn unlink(&mut self, options: &Options, id: &str) {
        for key in self.keys(options, id) {
            if let Some(ids) = self.index.get_mut(&key) {
                ids.remove(id);
            }
        }
    }

    fn link(&mut self, options: &Options, id: &str) {
        for key in self.keys(options, id) {
            self.index.entry(key).or_default().insert(id.to_owned());
        }
    }

    fn keys(&self, options: &Options, id: &str) -> Vec<(Object, String, String)> {
        let Some(stored) = self.records.get(id).filter(|r| !r.deleted) else { return Vec::new() };
        options
            .fields(stored.object)
            .iter()
            .filter(|f| f.external_id || f.unique || f.id_lookup)
            .filter_map(|f| Some((f, stored.fields.get(&f.name)?)))
            .map(|(f, value)| (stored.object, f.name.clone(), as_text(value).to_lowercase()))
            .collect()
    }

    /// The full id of a record, given with 15 or 18 characters.
    fn full_id(&self, id: &str) -> Option<String> {
        let full = match id.len() {
            15 => with_check(id),
            _ => id.to_owned(),
        };
        self.records.contains_key(&full).then_some(full)
    }
}

fn is_blank(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

/// Salesforce's way of writing a time.
fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3f+0000").to_string()
}

/// An id of 15 characters with the three that tell which of them are capitals.
fn with_check(id: &str) -> String {
    let mut whole = id.to_owned();
    for five in id.as_bytes().chunks(5) {
        let bits = five.iter().enumerate().filter(|(_, c)| c.is_ascii_uppercase());
        let bits: usize = bits.map(|(at, _)| 1 << at).sum();
        whole.push(char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"[bits % 32]));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_check_of_their_capitals() {
        assert_eq!(with_check("00QD000000aBcDe"), "00QD000000aBcDeMAK");
        assert_eq!(with_check("003000000000001"), "003000000000001AAA");
    }
}
