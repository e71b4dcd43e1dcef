//! What a mapping says about values it could not use: stable words and sentences, never the values.

use crate::lead::email::EmailError;

/// Why a part gives no lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLead {
    /// Nothing where the mapping looks for the address.
    #[error("no e-mail address where the mapping looks for one")]
    NoEmail,
    /// A text that is no address.
    #[error("{0}")]
    InvalidEmail(EmailError),
}

impl NoLead {
    /// A stable word for answers and tables.
    pub const fn reason(self) -> &'static str {
        match self {
            NoLead::NoEmail => "no_email",
            NoLead::InvalidEmail(_) => "invalid_email",
        }
    }
}

/// Why a value could not be used. The lead is kept without it. Never holds the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A list or an object where one value is wanted, or the reverse.
    #[error("is {found}, not {wanted}")]
    WrongType {
        /// What is there.
        found: &'static str,
        /// What should be.
        wanted: &'static str,
    },
    /// An integer over 64 bits or a huge float: its digits are lost already.
    #[error("the number is too large to be exact; send it as a text")]
    InexactNumber,
    /// Longer than the target holds; never cut silently.
    #[error("longer than {max} bytes")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// Not a phone number.
    #[error("not a valid phone number")]
    InvalidPhone,
    /// Neither yes nor no.
    #[error("neither a yes nor a no")]
    InvalidConsent,
    /// Not a time of the declared form, or outside the years 1 to 9999.
    #[error("not a time of the expected form")]
    InvalidTime,
    /// A word that is no stage of the life cycle.
    #[error("not a stage of the life cycle")]
    UnknownStage,
    /// More members than one event may give.
    #[error("more than {max}; the rest is left out")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// A blank or over-long name of an attribute.
    #[error("a name is blank or longer than 128 bytes")]
    InvalidName,
    /// `clear` names something that cannot be cleared.
    #[error("names something that cannot be cleared")]
    NotClearable,
}

impl FieldError {
    /// A stable word for answers.
    pub const fn code(self) -> &'static str {
        match self {
            FieldError::WrongType { .. } => "wrong_type",
            FieldError::InexactNumber => "inexact_number",
            FieldError::TooLong { .. } => "too_long",
            FieldError::InvalidPhone => "invalid_phone",
            FieldError::InvalidConsent => "invalid_consent",
            FieldError::InvalidTime => "invalid_time",
            FieldError::UnknownStage => "unknown_stage",
            FieldError::TooMany { .. } => "too_many",
            FieldError::InvalidName => "invalid_name",
            FieldError::NotClearable => "not_clearable",
        }
    }
}
