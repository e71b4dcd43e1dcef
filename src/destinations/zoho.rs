//! Zoho CRM leads or contacts: up to 100 in a call, told apart by a field that Zoho keeps unique (the e-mail).
//!
//! An upsert finds what people entered by hand, too. Where a lead lacks what Zoho asks of every new record, it is looked
//! for first, so that only new records get a filling. A lead that was pushed is updated by its id; one that Zoho does not
//! know any more is asked for once, to tell whether it was converted. The contact of a converted lead is remembered as
//! "Contacts/" and its id.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::batch::Batch;
use super::cached::{Cached, before_writing};
use super::client::{Answer, Call, Client};
use super::oauth::{self, OAuth};
use super::typed::Type;
use super::{
    Built, CallError, Destination, DestinationError, Kind, Mapped, Outcome, Page, Record, Remote,
    Reply, Setup,
};
use crate::config;

mod fields;
mod reads;
mod said;

use fields::Fields;
use reads::Place;
use said::{Item, Verdict};

pub(super) const KIND: Kind = Kind {
    name: "zoho",
    summary: "Zoho CRM leads or contacts, keyed by a unique field",
    keys: &[
        "client_id",
        "client_secret",
        "refresh_token",
        "token_url",
        "object",
        "key_property",
        "converted",
    ],
    reads: true,
    build,
};

const API: &str = "/crm/v8";
/// Zoho's limit.
const BATCH: usize = 100;
const DEFAULT_BASE: &str = "https://www.zohoapis.com";
/// Where the API of each data centre is, and where its access tokens are made.
const DATA_CENTRES: [(&str, &str); 8] = [
    ("www.zohoapis.com", "accounts.zoho.com"),
    ("www.zohoapis.eu", "accounts.zoho.eu"),
    ("www.zohoapis.in", "accounts.zoho.in"),
    ("www.zohoapis.com.au", "accounts.zoho.com.au"),
    ("www.zohoapis.jp", "accounts.zoho.jp"),
    ("www.zohoapis.sa", "accounts.zoho.sa"),
    ("www.zohoapis.com.cn", "accounts.zoho.com.cn"),
    ("www.zohoapis.ca", "accounts.zohocloud.ca"),
];
/// What the refresh token has to be made for.
const SCOPES: &str = "ZohoCRM.modules.leads.ALL,ZohoCRM.modules.contacts.ALL,ZohoCRM.settings.fields.READ,\
                      ZohoCRM.coql.READ";
/// Stands in a field that no record may lack and of which the lead says nothing.
const NOT_PROVIDED: &str = "[not provided]";
/// The fields that get it.
const FILLED: [&str; 2] = ["Last_Name", "Company"];
/// How long a list of fields is good for.
const KEEP: Duration = Duration::from_secs(3600);
/// How old it may be when it lacks a field.
const STALE: Duration = Duration::from_secs(60);

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Module {
    Leads,
    Contacts,
}

impl Module {
    fn name(self) -> &'static str {
        match self {
            Module::Leads => "Leads",
            Module::Contacts => "Contacts",
        }
    }
}

struct Zoho {
    client: Client,
    oauth: OAuth,
    /// What new leads become.
    module: Module,
    key: String,
    /// Whether a converted lead's contact is updated.
    follow: bool,
    leads: Cached<Fields>,
    contacts: Cached<Fields>,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let missing = |key, why| DestinationError::Missing { name: name(), key, why };
    let invalid = |key, why: String| DestinationError::Invalid { name: name(), key, why };
    let console = "make a Self Client in the API console of your data centre (like https://api-console.zoho.com)";
    let client_id = config.client_id.clone().ok_or_else(|| missing("client_id", console))?;
    let secret = config.client_secret.clone();
    let client_secret = secret.ok_or_else(|| missing("client_secret", console))?;
    let refresh_token = config.refresh_token.clone().ok_or_else(|| {
        missing("refresh_token", "make one with the Self Client and the scopes that README lists")
    })?;
    let module = match config.object.as_deref() {
        None | Some("Leads") => Module::Leads,
        Some("Contacts") => Module::Contacts,
        Some(_) => return Err(invalid("object", "must be \"Leads\" or \"Contacts\"".to_owned())),
    };
    let key = config.key_property.clone().unwrap_or_else(|| "Email".to_owned());
    if !is_name(&key) {
        return Err(invalid(
            "key_property",
            "is no API name of a field, like \"Email\"".to_owned(),
        ));
    }
    for (value, to) in &config.fields {
        let to = to.to();
        if (to == "Email" || to == key) && value != "email" {
            let why =
                format!("maps something else to the field {to}, which is how leads are told apart");
            return Err(invalid("fields", why));
        }
        if !is_name(to) {
            let why = format!("maps {value} to something that is no API name of a field");
            return Err(invalid("fields", why));
        }
    }
    let client = Client::new(config, Some(DEFAULT_BASE), setup.call_timeout)?;
    let base = config.base_url.as_deref().unwrap_or(DEFAULT_BASE);
    let token_url = config.token_url.clone().unwrap_or_else(|| token_url(base));
    let why = "it says where access tokens are made";
    let token_client = Client::to(config, "token_url", Some(&token_url), why, setup.call_timeout)?;
    let oauth = OAuth::new(oauth::Settings {
        destination: name(),
        token_client,
        client_id,
        client_secret,
        refresh_token: Some(refresh_token),
        encoding: oauth::Encoding::Form,
        scheme: "Zoho-oauthtoken",
        // Where only `token_url` is told, Zoho says where the API of that data centre is.
        base_member: (config.base_url.is_none() && config.token_url.is_some())
            .then_some("api_domain"),
        tokens: setup.tokens.clone(),
    });
    let follow = config.converted.unwrap_or_default() == config::Converted::Follow;
    Ok(Arc::new(Zoho {
        client,
        oauth,
        module,
        key,
        follow,
        leads: Cached::default(),
        contacts: Cached::default(),
    }))
}

/// Where the access tokens of an API are made: at the accounts server of its data centre, else beside it.
fn token_url(base: &str) -> String {
    let host = base.split("//").nth(1).and_then(|rest| rest.split(['/', ':']).next());
    let host = host.unwrap_or_default().to_lowercase();
    match DATA_CENTRES.iter().find(|(api, _)| *api == host) {
        Some((_, accounts)) => format!("https://{accounts}/oauth/v2/token"),
        None => {
            let base = base.split(['?', '#']).next().unwrap_or_default();
            format!("{}/oauth/v2/token", base.trim_end_matches('/'))
        }
    }
}

/// Whether it can be a field's name; it goes into queries as it is.
fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= 128
}

#[async_trait]
impl Destination for Zoho {
    fn batch_size(&self) -> usize {
        BATCH
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        match self.module {
            Module::Leads => &[
                ("first_name", "First_Name"),
                ("last_name", "Last_Name"),
                ("phone", "Phone"),
                ("company", "Company"),
                ("job_title", "Designation"),
                ("website", "Website"),
                ("city", "City"),
                ("region", "State"),
                ("country", "Country"),
            ],
            Module::Contacts => &[
                ("first_name", "First_Name"),
                ("last_name", "Last_Name"),
                ("phone", "Phone"),
                ("job_title", "Title"),
                ("city", "Mailing_City"),
                ("region", "Mailing_State"),
                ("country", "Mailing_Country"),
            ],
        }
    }

    fn default_daily(&self) -> Option<u32> {
        // Credits of the smallest of Zoho's plans.
        Some(5_000)
    }

    fn cost(&self, records: usize) -> u32 {
        u32::try_from(records.div_ceil(10)).unwrap_or(u32::MAX)
    }

    fn group(&self, record: &Record) -> &'static str {
        match record.remote_id.as_deref().map(|id| self.place(id).0) {
            None => "by_key",
            Some(Module::Leads) => "lead_by_id",
            Some(Module::Contacts) => "contact_by_id",
        }
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let records: Vec<&Record> = records.iter().collect();
        match records.first().map(|record| record.remote_id.as_deref()) {
            None => Ok(Vec::new().into()),
            Some(None) => self.by_key(&records).await,
            Some(Some(id)) => self.by_id(self.place(id).0, &records).await,
        }
    }

    async fn look_up(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        self.found(&records.iter().collect::<Vec<_>>(), properties).await.map_err(before_writing)
    }

    async fn list(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        self.page(cursor, properties).await.map_err(before_writing)
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        let listed = self.field_list(self.module).await?;
        listed.check_key(self.module, &self.key)?;
        listed.check(self.module, &self.key, fields)?;
        let module = self.module.name();
        self.check_scopes().await?;
        let mut found = vec![
            format!("{} knows the token and lets it write {module}", self.client.shown()),
            format!("{module}.{} does not allow duplicate values", self.key),
        ];
        if !fields.is_empty() {
            found.push(format!("all {} mapped fields exist and can be written", fields.len()));
        }
        for filled in FILLED.iter().filter(|f| listed.get(f).is_some_and(|f| f.required)) {
            if !fields.iter().any(|f| f.property == *filled) {
                found.push(format!(
                    "{module}.{filled} is not mapped: new records get \"{NOT_PROVIDED}\""
                ));
            }
        }
        if self.module == Module::Leads && self.follow {
            self.field_list(Module::Contacts).await?;
            found.push("the contacts of converted leads can be read".to_owned());
        }
        Ok(found)
    }
}

impl Zoho {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        self.oauth.call(&self.client, call).await
    }

    /// The module and Zoho's id of a remembered id.
    fn place<'a>(&self, remote_id: &'a str) -> (Module, &'a str) {
        match remote_id.split_once('/') {
            Some(("Contacts", id)) => (Module::Contacts, id),
            Some(("Leads", id)) => (Module::Leads, id),
            _ => (self.module, remote_id),
        }
    }

    /// How a record is remembered.
    fn remote_id(&self, module: Module, id: &str) -> String {
        match module == self.module {
            true => id.to_owned(),
            false => format!("{}/{id}", module.name()),
        }
    }

    /// Leads that were never pushed.
    async fn by_key(&self, records: &[&Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(self.module, records).await?;
        fields.check_key(self.module, &self.key)?;
        let mut bodies: Vec<_> =
            records.iter().map(|record| self.body(record, &fields, self.module)).collect();
        // Those that lack what a new record must have: only what is not there yet is filled.
        let lacks: Vec<bool> =
            bodies.iter().map(|body| body.as_ref().is_ok_and(|body| fields.lacks(body))).collect();
        let asked = records.iter().zip(&lacks).filter(|(_, lacks)| **lacks);
        let asked: Vec<&Record> = asked.map(|(record, _)| *record).collect();
        let rows = self.matching(&asked, &[]).await.map_err(before_writing)?.value;
        let mut found = reads::about(&rows, &asked).into_iter();
        for (body, _) in bodies.iter_mut().zip(lacks).filter(|(_, lacks)| *lacks) {
            let ids = found.next().unwrap_or_default().into_iter().map(|row| row.id.clone());
            let ids: Vec<String> = ids.collect();
            let lacking = std::mem::replace(body, Ok(Map::new()));
            *body = match ids.as_slice() {
                [] => lacking.map(|body| fields.filled(body)),
                [one] => Err(Outcome::Exists { remote_id: one.clone() }),
                _ => Err(Outcome::Ambiguous { remote_ids: ids }),
            };
        }
        let mut batch = Batch::new(records.len());
        for (at, (record, body)) in records.iter().zip(bodies).enumerate() {
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("Email".to_owned(), json!(record.lead.email));
                    body.insert(self.key.clone(), json!(record.lead.email));
                    body
                }),
            );
        }
        let mut order = vec![self.key.as_str(), "Email"];
        order.dedup();
        let rest = json!({ "duplicate_check_fields": order });
        let call = Call::post(format!("{API}/{}/upsert", self.module.name()));
        self.send(self.module, call, rest, records, batch).await
    }

    /// Leads that were pushed before. The e-mail is not sent.
    async fn by_id(
        &self,
        module: Module,
        records: &[&Record],
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(module, records).await?;
        let mut batch = Batch::new(records.len());
        let mut seen = HashSet::new();
        for (at, record) in records.iter().enumerate() {
            let (_, id) = self.place(record.remote_id.as_deref().unwrap_or_default());
            let body = match seen.insert(id) {
                true => self.body(record, &fields, module),
                // Two of our leads were merged there, and which of them wins must not be left to chance.
                false => Err(Outcome::Retry {
                    code: "SAME_RECORD".to_owned(),
                    message: "another lead of the same call is the same record there".to_owned(),
                }),
            };
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("id".to_owned(), json!(id));
                    body
                }),
            );
        }
        let call = Call::new(http::Method::PUT, format!("{API}/{}", module.name()));
        self.send(module, call, json!({}), records, batch).await
    }

    /// Sends what is in the batch and sorts what the answer says.
    async fn send(
        &self,
        module: Module,
        call: Call,
        mut request: Value,
        records: &[&Record],
        mut batch: Batch,
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        if batch.len() == 0 {
            return Ok(batch.outcomes().into());
        }
        request["data"] = batch.take_bodies().into_iter().map(Value::Object).collect();
        let answer = self.call(call.json(&request)).await?;
        let sent = batch.sent(records);
        let items = said::items(&answer, &sent)?;
        let (mut moved, mut rights) = (Vec::new(), 0);
        for ((at, record), item) in sent.into_iter().zip(items) {
            let outcome = match item {
                Item::Written { id, created } => {
                    let created = created.or(record.remote_id.is_some().then_some(false));
                    let remote_id = id.map(|id| self.remote_id(module, &id));
                    Outcome::Written { remote_id, created }
                }
                Item::Silent => Outcome::Unknown { message: "the item says nothing".to_owned() },
                Item::Failed(fault) => match fault.verdict(record, &self.key) {
                    Verdict::Is(outcome) => outcome,
                    Verdict::Stop(error) => return Err(error),
                    Verdict::Moved => {
                        moved.push((at, record, fault));
                        continue;
                    }
                    Verdict::Rights => {
                        rights += 1;
                        // The right to one record may be its own; of a call of several it is that of all of them.
                        if rights == batch.len() && rights > 1 {
                            return Err(fault.stop(record));
                        }
                        fault.rejected(record)
                    }
                },
            };
            batch.settle(at, outcome);
        }
        self.moved(moved, &mut batch).await.map_err(before_writing)?;
        Ok(Reply { value: batch.outcomes(), limits: said::limits(&answer) })
    }

    /// The fields of a record in the types that they want, without e-mail and key. Where the account does not take a value,
    /// the outcome that says so.
    fn body(
        &self,
        record: &Record,
        fields: &Fields,
        module: Module,
    ) -> Result<Map<String, Value>, Outcome> {
        let mut body = Map::new();
        for (property, value) in &record.properties {
            if property == "Email" || *property == self.key {
                continue;
            }
            let field = match module == self.module {
                true => fields.get(property),
                // What a contact has no field for stays at the lead.
                false => fields.moved(property),
            };
            let Some(field) = field else { continue };
            let json = match value {
                None if field.kind == Type::Flag => json!(false),
                None if field.required && FILLED.contains(&field.name.as_str()) => {
                    json!(NOT_PROVIDED)
                }
                None => Value::Null,
                Some(text) => field.kind.json(text).map_err(|wanted| Outcome::Rejected {
                    code: "INVALID_VALUE".to_owned(),
                    field: Some(property.clone()),
                    message: format!("should be {wanted}"),
                })?,
            };
            body.insert(field.name.clone(), json);
        }
        Ok(body)
    }

    /// Says where the records are now that Zoho does not know by their id.
    async fn moved(
        &self,
        moved: Vec<(usize, &Record, said::Fault)>,
        batch: &mut Batch,
    ) -> Result<(), CallError> {
        let ids: Vec<&str> =
            moved.iter().filter_map(|(_, record, _)| record.remote_id.as_deref()).collect();
        let places = self.places(&ids).await?;
        for (at, record, fault) in moved {
            let remote_id = record.remote_id.as_deref().unwrap_or_default();
            let outcome = match places.get(remote_id) {
                None | Some(Place::Gone) => Outcome::Gone,
                Some(Place::Converted) => Outcome::Rejected {
                    code: "CONVERTED".to_owned(),
                    field: None,
                    message: "the lead was converted, and is not to be followed".to_owned(),
                },
                Some(Place::At(now)) if now == remote_id => fault.rejected(record),
                Some(Place::At(now)) => Outcome::Exists { remote_id: now.clone() },
            };
            batch.settle(at, outcome);
        }
        Ok(())
    }
}
