//! Zoho CRM leads or contacts: up to 100 in a call, told apart by a field that Zoho keeps unique (the e-mail).
//!
//! An upsert finds what people entered by hand, too. Where a lead lacks what Zoho asks of every new record, it is looked
//! for first, so that only new records get a filling. A lead that was pushed is updated by its id; one that Zoho does not
//! know any more is asked for once, to tell whether it was converted. The contact of a converted lead is remembered as
//! "Contacts/" and its id.

use std::time::Duration;

use async_trait::async_trait;

use super::cached::{Cached, before_writing};
use super::client::{Answer, Call, Client};
use super::oauth::OAuth;
use super::{CallError, Destination, Kind, Mapped, Outcome, Page, Record, Remote, Reply};

mod configured;
mod fields;
mod push;
mod reads;
mod said;

use fields::Fields;

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
    build: configured::build,
};

const API: &str = "/crm/v8";
/// Zoho's limit.
const BATCH: usize = 100;
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
}
