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

impl ConfiguredSource {
    /// Checks who sent it.
    pub fn verify(&self, _request: Request, _now_epoch_s: i64) -> Result<Verified, AuthError> {
        Err(AuthError)
    }

    /// The answer to a GET challenge, where the kind has one.
    pub fn handshake(&self, _query: &str) -> Option<Handshake> {
        None
    }
}

/// The sender did not prove who it is.
#[derive(Debug, thiserror::Error)]
#[error("not signed")]
pub struct AuthError;

/// The answer to a GET challenge.
pub struct Handshake {
    /// HTTP status.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// What to answer.
    pub body: String,
}

/// The canonical lead.
pub mod json {
    use serde_json::Value;

    use crate::config;
    use crate::lead::{Email, LeadPatch};

    /// What is wrong with one member.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Problem {
        /// The member.
        pub field: String,
        /// Stable word.
        pub code: &'static str,
        /// For people.
        pub message: String,
    }

    /// Reads one canonical lead, strictly.
    pub fn canonical(value: &Value, _rules: &config::Leads) -> Result<LeadPatch, Vec<Problem>> {
        let email = value.get("email").and_then(Value::as_str).unwrap_or_default();
        match Email::parse(email) {
            Ok(key) => Ok(LeadPatch::new(key, email.to_owned())),
            Err(error) => Err(vec![Problem {
                field: "email".into(),
                code: "invalid_email",
                message: error.to_string(),
            }]),
        }
    }
}
