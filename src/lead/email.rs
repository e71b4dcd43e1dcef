//! The key of a lead.

use std::fmt;

/// A normalised e-mail address: only [`Email::parse`] makes one, past it nobody checks again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Email(String);

/// Why a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an e-mail address")]
pub struct EmailError;

impl Email {
    /// Normalises.
    pub fn parse(text: &str) -> Result<Email, EmailError> {
        let text = text.trim().to_lowercase();
        if text.contains('@') { Ok(Email(text)) } else { Err(EmailError) }
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
