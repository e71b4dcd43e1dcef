//! Configuration as it is written: plain data, one small struct per room.
//!
//! `config.default.toml` is the commented reference; the doc comments here are its reasons. How the
//! layers become a [`Config`] is `config/load.rs`, what may not stand together `config/validate.rs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

mod destination;
mod environment;
mod load;
mod read;
mod targets;
mod tree;
mod validate;
mod values;

pub use destination::{
    Converted, Deleted, Destination, FullProperty, OnFieldError, Property, Write,
};
pub use load::{ConfigError, Loaded, Override, Problem};
pub use tree::Place;
pub use values::cron;

use values::{default_tolerance, default_trust};

/// The whole file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the private PostgreSQL lives.
    pub data_dir: PathBuf,
    /// PostgreSQL.
    pub database: Database,
    /// The listener.
    pub http: Http,
    /// Rules for every lead.
    pub leads: Leads,
    /// The archive.
    pub deliveries: Deliveries,
    /// The sync loop.
    pub sync: Sync,
    /// Logs.
    pub log: Log,
    /// Lead sources, `[[source]]`.
    #[serde(default, rename = "source")]
    pub sources: Vec<Source>,
    /// CRMs, `[[destination]]`.
    #[serde(default, rename = "destination")]
    pub destinations: Vec<Destination>,
}

/// `[database]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// Connection URL of the service role; absent: private PostgreSQL in `data_dir`.
    pub url: Option<Secret>,
    /// Connection URL of the owner role that migrates, direct (not through a pooler); absent: `url`.
    pub migrate_url: Option<Secret>,
    /// Connections of the receiving pool, which is also the number of group-commit writers plus reads.
    pub receive_connections: usize,
    /// Connections of the sync pool.
    pub sync_connections: usize,
    /// Longest time one statement may run; the server enforces it.
    #[serde(with = "values::duration")]
    pub statement_timeout: Duration,
}

/// `[http]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Address and port; port 0 takes a free one.
    #[serde(with = "values::address")]
    pub listen: SocketAddr,
    /// Bearer token for `/v1`; absent: `/v1` answers loopback peers only.
    pub admin_token: Option<Secret>,
    /// Largest request body, before and after decompression, in bytes ("1MiB").
    #[serde(with = "values::bytes")]
    pub max_body: usize,
    /// Open connections at once; further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// Time a client has for the request line and headers; also the idle limit of kept-alive connections.
    #[serde(with = "values::duration")]
    pub header_timeout: Duration,
    /// Time a client has for the body.
    #[serde(with = "values::duration")]
    pub body_timeout: Duration,
    /// Time for a whole request, storing included.
    #[serde(with = "values::duration")]
    pub request_timeout: Duration,
    /// Time that requests under way have to finish after SIGTERM.
    #[serde(with = "values::duration")]
    pub drain_timeout: Duration,
}

/// `[leads]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Leads {
    /// Region of national phone numbers, ISO 3166-1 alpha-2 ("BR"); absent: only international ones are understood.
    pub default_region: Option<String>,
    /// How addresses are folded into one key.
    pub email_folding: EmailFolding,
    /// An event time further ahead of the receipt than this is not reliable.
    #[serde(with = "values::duration")]
    pub future_tolerance: Duration,
    /// Whether every change of a lead is kept, for people who ask what it was before.
    pub history: bool,
    /// How long those changes are kept.
    #[serde(with = "values::duration")]
    pub keep_history: Duration,
}

/// `leads.email_folding`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EmailFolding {
    /// Only letter case, white space and the domain's form.
    #[default]
    None,
    /// Also drops `+tag` from the local part.
    Plus,
    /// `Plus`, and dots in the local part of gmail.com and googlemail.com, which are one domain.
    Gmail,
}

/// `[deliveries]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Deliveries {
    /// How long raw payloads are kept; 0 keeps only rejected ones.
    #[serde(with = "values::duration")]
    pub keep: Duration,
}

/// `[sync]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sync {
    /// `continuous`, or a cron expression with a time zone ("0 * * * * America/Sao_Paulo").
    pub schedule: String,
    /// How often due leads are looked for when nothing wakes the loop.
    #[serde(with = "values::duration")]
    pub poll: Duration,
    /// How long a claimed lead belongs to one instance; must outlive `call_timeout`.
    #[serde(with = "values::duration")]
    pub lease: Duration,
    /// Deadline of one call to a CRM, answer included.
    #[serde(with = "values::duration")]
    pub call_timeout: Duration,
    /// After a stolen lease or an unknown outcome: no lead is in sync before a push made this much later.
    #[serde(with = "values::duration")]
    pub confirm_after: Duration,
    /// First pause after a failed attempt; doubles with each further one, with full jitter.
    #[serde(with = "values::duration")]
    pub backoff_base: Duration,
    /// Longest pause between attempts.
    #[serde(with = "values::duration")]
    pub backoff_max: Duration,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// `text` or `json`, to stderr.
    pub format: LogFormat,
    /// Filter directives, as `tracing_subscriber::EnvFilter` takes them ("info", "leadsync=debug").
    pub level: String,
}

/// `log.format`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

/// One `[[source]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Route: `POST /hooks/{name}`. Lower-case letters, digits, `-` and `_`.
    pub name: String,
    /// Built-in kind, or `custom`.
    pub kind: String,
    /// Signing secret, or two during a rotation.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub secret: OneOrMore<Secret>,
    /// For senders that cannot sign: compared with `?token=`.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub url_token: OneOrMore<Secret>,
    /// For senders that can set a header: the value that `header` must have.
    pub header: Option<HeaderAuth>,
    /// For senders that can do HTTP basic authentication.
    pub basic: Option<BasicAuth>,
    /// For senders that can only write a key into what they send: the member that must have the value.
    pub body_key: Option<HeaderAuth>,
    /// The address as the sender calls it, without query: HubSpot signs it, and behind a proxy it cannot be known.
    pub public_url: Option<String>,
    /// `meta` only: what Meta sends to check the address, typed there beside the URL; not the app secret.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub verify_token: OneOrMore<Secret>,
    /// Kinds whose deliveries say only ids (`hubspot-app`, `linkedin`, `meta`): the token that leads are read with.
    pub token: Option<Secret>,
    /// The same: where their API is, for stand-ins and proxies; each kind has a default.
    #[serde(serialize_with = "values::without_credentials")]
    pub base_url: Option<String>,
    /// The same: calls per time, one budget per source, shared by all instances; absent: the kind's default.
    pub rate: Option<Rate>,
    /// The same: how often leads are looked for whose webhook never came; 0: never. Absent: 15 minutes.
    #[serde(default, with = "values::optional_duration", skip_serializing_if = "Option::is_none")]
    pub poll: Option<Duration>,
    /// `linkedin` and `meta` only: version of the API.
    pub api_version: Option<String>,
    /// `meta` only: ids of the forms that are looked through; absent: all of the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<String>,
    /// `linkedin` only: whose leads are looked for, `urn:li:sponsoredAccount:1` or `urn:li:organization:1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// `hubspot-app` only: properties to read beside the kind's own and those that `fields` names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<String>,
    /// `linkedin` only: false where LinkedIn sends no signature; `secret` then only answers its challenge.
    pub signed: Option<bool>,
    /// `custom` only: how the sender signs.
    pub signature: Option<Signature>,
    /// 0 to 100. A lower-trust source fills, never overwrites a higher one.
    #[serde(default = "default_trust")]
    pub trust: u8,
    /// What an event without a time of its own counts with.
    pub untimed: Option<Untimed>,
    /// Region of national phone numbers; absent: `leads.default_region`.
    pub default_region: Option<String>,
    /// Opt-ins of this source carry proof (double opt-in).
    #[serde(default)]
    pub double_opt_in: bool,
    /// `custom` only: JSONPath of the parts that are one lead each (`$.leads[*]`); absent: the whole body.
    pub split: Option<String>,
    /// Events of other types are stored and ignored; compared with what `fields.event_type` finds. Absent: all are leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// Adds to or overrides the kind's mapping: target name to JSONPaths, first non-blank wins.
    #[serde(default, deserialize_with = "targets::dotted")]
    pub fields: BTreeMap<String, FieldRule>,
}

/// Paths of one target: a text, a list, or a table that also names a transform.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum FieldRule {
    /// `company = "$.org"`
    One(String),
    /// `company = ["$.org", "$.company"]`
    Many(Vec<String>),
    /// `occurred_at = { from = "$.ts", via = "epoch_ms" }`
    Full(FullRule),
}

/// The long form of a [`FieldRule`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FullRule {
    /// JSONPaths, first non-blank wins.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub from: OneOrMore<String>,
    /// A constant, where no path gives a value.
    pub value: Option<String>,
    /// Transform by name; the README lists them.
    pub via: Option<String>,
}

/// `header = { name = "X-Api-Key", value = { env = "KEY" } }`, and `body_key` likewise.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderAuth {
    /// Name of the header, or of the member of the body; letter case ignored.
    pub name: String,
    /// Its value, or two during a rotation.
    pub value: OneOrMore<Secret>,
}

/// `basic = { user = "zap", password = { env = "PW" } }`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// User name.
    pub user: String,
    /// Password, or two during a rotation.
    pub password: OneOrMore<Secret>,
}

/// How a `custom` source signs: an HMAC over the raw body in a header.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Header that carries it.
    pub header: String,
    /// `hmac-sha256` or `hmac-sha1`.
    #[serde(default)]
    pub algorithm: SignatureAlgorithm,
    /// `hex` or `base64`.
    #[serde(default)]
    pub encoding: SignatureEncoding,
    /// Text before the digest ("sha256=").
    #[serde(default)]
    pub prefix: String,
    /// The digest's name where the header is a list (`v1` of `t=1772720531,v1=HEX`); absent: the header is
    /// `prefix` and the digest.
    pub tag: Option<String>,
    /// Header with the time of the attempt. Absent: `header`, where there is a `timestamp_tag`; else no time is signed.
    pub timestamp_header: Option<String>,
    /// The time's name where that header is a list (`t`).
    pub timestamp_tag: Option<String>,
    /// Unit of that time.
    #[serde(default)]
    pub timestamp_unit: TimestampUnit,
    /// What is signed, with `{time}` and `{body}`; absent: `{time}.{body}`, without a time `{body}`.
    pub signed: Option<String>,
    /// Largest age of that time.
    #[serde(default = "default_tolerance", with = "values::duration")]
    pub tolerance: Duration,
}

/// `signature.algorithm`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum SignatureAlgorithm {
    /// HMAC with SHA-256.
    #[default]
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// HMAC with SHA-1, for senders that know nothing better.
    #[serde(rename = "hmac-sha1")]
    HmacSha1,
}

/// `signature.encoding`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SignatureEncoding {
    /// Lower-case hexadecimal.
    #[default]
    Hex,
    /// Standard base64 with padding.
    Base64,
}

/// `signature.timestamp_unit`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimestampUnit {
    /// Seconds since 1970.
    #[default]
    S,
    /// Milliseconds since 1970.
    Ms,
}

/// `source.untimed`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Untimed {
    /// The receipt time of the first copy of that body, which the archive remembers.
    #[default]
    FirstReceipt,
    /// No time: fills blanks, never overwrites.
    FillOnly,
    /// The receipt time of this copy: last arrival wins. Not convergent, cannot be.
    LastArrival,
}

/// Calls per time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Calls in one window.
    pub calls: u32,
    /// The window.
    pub per: Duration,
}

/// One value or a list of them.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    /// One.
    One(T),
    /// A list.
    More(Vec<T>),
}

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        OneOrMore::More(Vec::new())
    }
}

impl<T> OneOrMore<T> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// All of them.
    pub fn as_slice(&self) -> &[T] {
        match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(more) => more,
        }
    }
}
