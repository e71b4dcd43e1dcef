//! Why a destination cannot be used as it is configured.

/// What is wrong with a `[[destination]]`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// No such kind.
    #[error("destination \"{name}\": there is no kind \"{kind}\"; {hint}")]
    UnknownKind {
        /// The destination.
        name: String,
        /// As written.
        kind: String,
        /// The nearest one, or all.
        hint: String,
    },
    /// A key that this kind needs is missing.
    #[error("destination \"{name}\": `{key}` is missing: {why}")]
    Missing {
        /// The destination.
        name: String,
        /// The key.
        key: &'static str,
        /// What it is for.
        why: &'static str,
    },
    /// A key has a value that cannot be used. The value itself is not shown: it may be secret.
    #[error("destination \"{name}\": `{key}` {why}")]
    Invalid {
        /// The destination.
        name: String,
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// `fields` names something that a lead does not have.
    #[error("destination \"{name}\": `fields.{value}` is nothing a lead has; {hint}")]
    UnknownValue {
        /// The destination.
        name: String,
        /// As written.
        value: String,
        /// The nearest valid name, or all.
        hint: String,
    },
}

impl DestinationError {
    /// The key of the `[[destination]]` that is at fault; empty for the destination as a whole.
    pub fn key(&self) -> String {
        match self {
            DestinationError::UnknownKind { .. } => "kind".to_owned(),
            DestinationError::Missing { .. } => String::new(),
            DestinationError::Invalid { key, .. } => (*key).to_owned(),
            DestinationError::UnknownValue { value, .. } => format!("fields.{value}"),
        }
    }
}
