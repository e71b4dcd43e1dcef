//! Lead sources: who may deliver, how a delivery becomes leads.
//!
//! To add a kind: one file here with a `const`, one line in [`SOURCES`], one payload with its lead
//! under `tests/fixtures/sources/`.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;

use crate::lead::LeadPatch;
use crate::mapping::{Document, MappingError, Rule};
use crate::secret::Secret;

pub mod api;
mod calendly;
mod cf7;
mod configured;
mod custom;
mod decode;
mod elementor;
mod google_ads;
mod gravityforms;
pub mod handshake;
mod hubspot_app;
mod hubspot_workflow;
mod intercom;
mod jotform;
pub mod json;
mod labels;
mod lines;
mod linkedin;
mod meta;
mod notice;
mod rdstation;
mod segment;
mod shopify;
mod signature;
mod standard_webhooks;
mod stripe;
mod tally;
mod tiktok;
mod typeform;
mod unbounce;
mod webflow;
mod wpforms;

pub use configured::{ConfiguredSource, Explained, Part, folding, written};
pub use decode::DecodeError;
pub use labels::{letters, recognise};
pub use lines::LineReader;
pub use notice::{FETCHED, Notice, is_remote_id};
pub use signature::{AuthError, Content, Scheme, SignError, Signing};

/// Every kind; configuration, documentation and tests walk this list.
pub const SOURCES: &[&Source] = &[
    &calendly::SOURCE,
    &cf7::SOURCE,
    &custom::SOURCE,
    &elementor::SOURCE,
    &google_ads::SOURCE,
    &gravityforms::SOURCE,
    &hubspot_app::SOURCE,
    &hubspot_workflow::SOURCE,
    &intercom::SOURCE,
    &jotform::SOURCE,
    &json::SOURCE,
    &linkedin::SOURCE,
    &meta::SOURCE,
    &rdstation::SOURCE,
    &segment::SOURCE,
    &shopify::SOURCE,
    &standard_webhooks::SOURCE,
    &stripe::SOURCE,
    &tally::SOURCE,
    &tiktok::SOURCE,
    &typeform::SOURCE,
    &unbounce::SOURCE,
    &webflow::SOURCE,
    &wpforms::SOURCE,
];

/// A kind of lead source: data first, and a small function for what a table cannot say.
pub struct Source {
    /// `kind` in configuration.
    pub kind: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// How its deliveries prove who sent them.
    pub auth: Auth,
    /// How one body becomes parts of one lead each.
    pub split: Split,
    /// Its mapping, in order of precedence; `[source.fields]` replaces a target's rules.
    pub rules: &'static [&'static [Rule]],
    /// Headers worth keeping with a delivery beside `content-type` and those the rules read. Never
    /// secrets, and never one that differs between a delivery and its retry: what is kept tells them apart.
    pub headers: &'static [&'static str],
    /// Adds to a part what paths cannot reach, under `@found` (titles joined, labels recognised).
    pub prepare: Option<fn(&mut Value)>,
    /// A stable word where a part is not about a lead ("event_type", "test").
    pub ignore: Option<fn(&Document<'_>) -> Option<&'static str>>,
    /// The answer to a GET with that query, where the sender checks the address like that.
    pub handshake: Option<HandshakeFn>,
}

/// Answers a GET by its query and the source's secrets; `None`: it is no handshake.
pub type HandshakeFn = fn(query: &str, secrets: &[Secret]) -> Option<Handshake>;

/// How deliveries of a kind prove who sent them.
#[derive(Clone, Copy, Debug)]
pub enum Auth {
    /// The sender signs, or sends a key of its own; `secret` in configuration.
    Signed(Scheme),
    /// The sender cannot sign: `url_token`, `header` or `basic`.
    Unsigned,
    /// `signature` in configuration says how.
    Written,
}

/// How one body becomes parts.
#[derive(Clone, Copy, Debug)]
pub enum Split {
    /// The body is one lead.
    Whole,
    /// A list is a batch, anything else one lead.
    List,
    /// A list under that member is a batch, anything else one lead.
    Member(&'static str),
    /// The body tells of things by their ids, which the function finds; a document that was read (media type
    /// [`FETCHED`]) is one lead.
    Notices(fn(&Value) -> Vec<Item>),
}

/// Answer to a GET with which a sender checks the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// HTTP status.
    pub status: u16,
    /// `content-type`.
    pub content_type: &'static str,
    /// The whole body.
    pub body: String,
}

/// A request as it arrived: nothing about it has been believed yet.
#[derive(Clone)]
pub struct Request {
    /// `POST` for deliveries.
    pub method: String,
    /// Query string as received, without `?`; may be empty. Never logged: it may carry a token.
    pub query: String,
    /// Header names in lower case, values as received (lossy UTF-8), in order.
    pub headers: Vec<(String, String)>,
    /// The exact bytes.
    pub body: Bytes,
}

impl Request {
    /// The value of a header that came exactly once. Which of two a proxy in front believed cannot
    /// be known, so two are none.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        match (values.next(), values.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }
}

/// Neither credentials nor personal data.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("headers", &names)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// What became of one lead of a delivery while reading it.
#[derive(Clone, Debug)]
pub enum Item {
    /// A lead to merge.
    Lead(Box<LeadPatch>),
    /// Not about a lead; the reason is a stable `snake_case` word ("test", "event_type").
    Ignored(String),
    /// Cannot become a lead; stable `snake_case` reason ("no_email", "invalid_email") and a detail for people without personal data.
    Rejected {
        /// Stable word.
        reason: String,
        /// For people.
        detail: String,
    },
    /// To be read at the source's API, or not to be read any more.
    Notice(Notice),
}

/// A request whose sender is who it says it is: the only thing that is ever parsed.
#[derive(Clone, Debug)]
pub struct Verified(Request);

impl Verified {
    /// A delivery from our own archive, which was verified when it arrived: a signature with a time
    /// in it would not be accepted a second time.
    pub fn stored(request: Request) -> Verified {
        Verified(request)
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.0
    }
}

/// Why a `[[source]]` cannot be used; says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("source \"{name}\": {kind}")]
pub struct SourceError {
    /// `name` of the source.
    pub name: String,
    /// What is wrong. Part of the sentence above, so it is no `source()` that would say it again.
    pub kind: SourceErrorKind,
}

/// What is wrong with a `[[source]]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceErrorKind {
    /// No such kind.
    #[error("unknown kind \"{kind}\"{hint}; kinds are {known}")]
    UnknownKind {
        /// As written.
        kind: String,
        /// The nearest, as a sentence.
        hint: String,
        /// All of them.
        known: String,
    },
    /// Anybody could deliver.
    #[error("nothing would tell its deliveries from anybody else's; set {0}")]
    NoAuthentication(&'static str),
    /// A key that this kind has no use for.
    #[error("`{key}` is not for kind \"{kind}\"; {hint}")]
    NotForKind {
        /// The key.
        key: &'static str,
        /// The kind.
        kind: &'static str,
        /// What to do.
        hint: Cow<'static, str>,
    },
    /// A key that the kind cannot do without.
    #[error("`{key}` is not set: {hint}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it is for.
        hint: &'static str,
    },
    /// A key has a value that cannot be used. The value itself is not shown: it may be secret.
    #[error("`{key}` {why}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: Cow<'static, str>,
    },
    /// `signature` without `secret`, or the reverse.
    #[error("`{given}` is set but `{missing}` is not; a signature needs both")]
    HalfASignature {
        /// Key that is there.
        given: &'static str,
        /// Key that is not.
        missing: &'static str,
    },
    /// HubSpot signs the address it calls.
    #[error(
        "`public_url` is not set; HubSpot signs the address it calls, like \"https://leads.example.com/hooks/NAME\""
    )]
    NoPublicUrl,
    /// A secret that is not what the scheme needs.
    #[error("`secret` is not a Standard Webhooks secret: base64 after an optional \"whsec_\"")]
    BadSecret,
    /// A region nobody has.
    #[error("`default_region` \"{0}\" is not a region; write two letters, like \"BR\"")]
    BadRegion(String),
    /// Over 100.
    #[error("`trust` is {0}; it goes from 0 to 100")]
    BadTrust(u8),
    /// A path or a name in `[source.fields]` or `split`.
    #[error("{0}")]
    Mapping(MappingError),
    /// The header's value would be archived with every delivery.
    #[error("`fields` reads the header \"{0}\", which carries a credential")]
    CredentialHeader(String),
    /// A custom source that never finds a key.
    #[error("`fields` has no `email`; add email = [\"$.path.to.email\"]")]
    NoEmail,
}

impl SourceErrorKind {
    /// The key of the `[[source]]` that is at fault; empty for the source as a whole.
    pub fn key(&self) -> String {
        match self {
            SourceErrorKind::UnknownKind { .. } => "kind".to_owned(),
            SourceErrorKind::NotForKind { key, .. } | SourceErrorKind::Invalid { key, .. } => {
                (*key).to_owned()
            }
            SourceErrorKind::HalfASignature { given, .. } => (*given).to_owned(),
            SourceErrorKind::BadSecret => "secret".to_owned(),
            SourceErrorKind::BadRegion(_) => "default_region".to_owned(),
            SourceErrorKind::BadTrust(_) => "trust".to_owned(),
            SourceErrorKind::Mapping(error) if error.target() == "split" => "split".to_owned(),
            SourceErrorKind::Mapping(error) => format!("fields.{}", error.target()),
            SourceErrorKind::NoPublicUrl => "secret".to_owned(),
            SourceErrorKind::NoAuthentication(_) | SourceErrorKind::Missing { .. } => String::new(),
            SourceErrorKind::CredentialHeader(_) | SourceErrorKind::NoEmail => "fields".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
