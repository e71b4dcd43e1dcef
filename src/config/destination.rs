//! `[[destination]]`: a CRM account and what is sent to it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::values::{self, default_backfill_share, default_create_grace};
use super::{Rate, targets};
use crate::secret::Secret;

/// One `[[destination]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// Name in tables, logs and commands. Lower-case letters, digits, `-` and `_`.
    pub name: String,
    /// Which CRM; `leadsync check` lists them.
    pub kind: String,
    /// Access token or API key.
    pub token: Option<Secret>,
    /// Signing secret (`webhook`), `whsec_...` as Standard Webhooks has it.
    pub secret: Option<Secret>,
    /// OAuth: who we are.
    pub client_id: Option<String>,
    /// OAuth: the secret that belongs to `client_id`.
    pub client_secret: Option<Secret>,
    /// OAuth: the long-lived token; absent: client credentials, where the kind takes them.
    pub refresh_token: Option<Secret>,
    /// OAuth: where access tokens are made; each kind has a default.
    #[serde(serialize_with = "values::without_credentials")]
    pub token_url: Option<String>,
    /// Where the CRM is; each kind has a default except `webhook`, where it is the whole URL.
    #[serde(serialize_with = "values::without_credentials")]
    pub base_url: Option<String>,
    /// Database of the CRM (`odoo`).
    pub database: Option<String>,
    /// User of the CRM (`odoo`).
    pub user: Option<String>,
    /// Kind of record that leads become ("Lead", "Contact"); each kind has a default.
    pub object: Option<String>,
    /// Property that holds our own key (`salesforce`: the unique external id).
    pub key_property: Option<String>,
    /// Calls per time ("100/10s"), one budget per CRM account, shared by all instances; absent: the kind's default.
    pub rate: Option<Rate>,
    /// Calls (or the CRM's credits) per day, shared likewise; absent: the kind's default.
    pub daily: Option<u32>,
    /// Part of the day's budget, in per cent, for leads older than the destination and those that a new mapping sends
    /// again.
    #[serde(default = "default_backfill_share")]
    pub backfill_share: u8,
    /// Calls under way at once, per instance.
    pub concurrency: Option<usize>,
    /// What to do when the CRM refuses a value of a lead.
    #[serde(default)]
    pub on_field_error: OnFieldError,
    /// What to do about a contact that somebody deleted at the CRM.
    #[serde(default)]
    pub deleted: Deleted,
    /// What to do about a lead that was converted at the CRM (`salesforce`, `zoho`).
    pub converted: Option<Converted>,
    /// Where the CRM keeps no key: how long after an unknown outcome a look-up must stay empty before a contact
    /// is made again.
    #[serde(default = "default_create_grace", with = "values::duration")]
    pub create_grace: Duration,
    /// What is sent: lead value name to CRM property. Absent: the kind's default mapping.
    #[serde(default, deserialize_with = "targets::dotted")]
    pub fields: BTreeMap<String, Property>,
}

impl Destination {
    /// One of which nothing is written but what must be.
    pub fn new(name: impl Into<String>, kind: impl Into<String>) -> Destination {
        Destination {
            name: name.into(),
            kind: kind.into(),
            token: None,
            secret: None,
            client_id: None,
            client_secret: None,
            refresh_token: None,
            token_url: None,
            base_url: None,
            database: None,
            user: None,
            object: None,
            key_property: None,
            rate: None,
            daily: None,
            backfill_share: default_backfill_share(),
            concurrency: None,
            on_field_error: OnFieldError::default(),
            deleted: Deleted::default(),
            converted: None,
            create_grace: default_create_grace(),
            fields: BTreeMap::new(),
        }
    }

    /// The keys written here that only some kinds read.
    pub fn of_some_kinds(&self) -> Vec<&'static str> {
        [
            ("token", self.token.is_some()),
            ("secret", self.secret.is_some()),
            ("client_id", self.client_id.is_some()),
            ("client_secret", self.client_secret.is_some()),
            ("refresh_token", self.refresh_token.is_some()),
            ("token_url", self.token_url.is_some()),
            ("database", self.database.is_some()),
            ("user", self.user.is_some()),
            ("object", self.object.is_some()),
            ("key_property", self.key_property.is_some()),
            ("converted", self.converted.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, written)| written.then_some(key))
        .collect()
    }
}

/// `destination.on_field_error`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFieldError {
    /// The lead is parked until it changes or somebody requeues it.
    #[default]
    Park,
    /// The lead is sent without the value, which is reported.
    Drop,
}

/// `destination.deleted`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deleted {
    /// The contact is made anew.
    #[default]
    Recreate,
    /// It stays deleted: the lead is parked.
    Leave,
}

/// `destination.converted`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Converted {
    /// What the lead was converted to is updated.
    #[default]
    Follow,
    /// The lead is parked.
    Park,
}

/// `phone = "phone"` or `phone = { to = "phone", write = "if_blank" }`.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Property {
    /// Only the name.
    Name(String),
    /// The long form.
    Full(FullProperty),
}

/// The long form of a [`Property`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FullProperty {
    /// Property at the CRM.
    pub to: String,
    /// When it is written.
    #[serde(default)]
    pub write: Write,
    /// Words of the lead and what the CRM calls them; other words go as they are.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

/// `write` of a mapped property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Write {
    /// Whenever the lead changes.
    #[default]
    Always,
    /// Only where the CRM has nothing.
    IfBlank,
    /// Only with a contact that is made new.
    OnCreate,
}

impl Write {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Write::Always => "always",
            Write::IfBlank => "if_blank",
            Write::OnCreate => "on_create",
        }
    }
}

impl Property {
    /// The property at the CRM.
    pub fn to(&self) -> &str {
        match self {
            Property::Name(name) => name,
            Property::Full(full) => &full.to,
        }
    }

    /// When it is written.
    pub fn write(&self) -> Write {
        match self {
            Property::Name(_) => Write::Always,
            Property::Full(full) => full.write,
        }
    }

    /// Words of the lead and what the CRM calls them.
    pub fn values(&self) -> BTreeMap<String, String> {
        match self {
            Property::Name(_) => BTreeMap::new(),
            Property::Full(full) => full.values.clone(),
        }
    }
}
