//! Lead sources: who may deliver, how a delivery becomes leads.
//!
//! To add a kind: one file here with a `const`, one line in [`SOURCES`], one payload with its lead
//! under `tests/fixtures/sources/`.

use bytes::Bytes;

use crate::lead::LeadPatch;

/// A request as it arrived: nothing about it has been believed yet.
#[derive(Clone, Debug)]
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

/// What became of one lead of a delivery while reading it.
#[derive(Clone, Debug)]
pub enum Item {
    /// A lead to merge.
    Lead(Box<LeadPatch>),
    /// Not about a lead; the reason is a stable `snake_case` word ("test_lead", "event_type").
    Ignored(String),
    /// Cannot become a lead; stable `snake_case` reason ("no_email", "invalid_email") and a detail for people without personal data.
    Rejected {
        /// Stable word.
        reason: String,
        /// For people.
        detail: String,
    },
}

/// A request whose sender is who it says it is: the only thing that is ever parsed.
#[derive(Clone, Debug)]
pub struct Verified(Request);

/// A source of the configuration, compiled and ready.
pub struct ConfiguredSource {
    /// Its name in the route.
    pub name: String,
}
