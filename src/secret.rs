//! A text that must never be seen: no `Debug`, `Display` or serialisation shows it.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Error as _};

/// A secret. In configuration it is written as text, `{ env = "NAME" }` or `{ file = "path" }`, and is
/// read while the configuration is, so that a missing one is refused at start with its line.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself. Call it where the secret is used, never where something is shown.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    From(From),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct From {
    env: Option<String>,
    file: Option<std::path::PathBuf>,
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let written = Written::deserialize(deserializer).map_err(|_| {
            D::Error::custom("a secret is a text, { env = \"NAME\" } or { file = \"path\" }")
        })?;
        let text = match written {
            Written::Text(text) => text,
            Written::From(From { env: Some(name), file: None }) => std::env::var(&name)
                .map_err(|_| D::Error::custom(format!("environment variable {name} is not set")))?,
            Written::From(From { env: None, file: Some(path) }) => std::fs::read_to_string(&path)
                .map_err(|e| D::Error::custom(format!("cannot read {}: {e}", path.display())))?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
            Written::From(_) => {
                return Err(D::Error::custom("a secret names exactly one of `env` and `file`"));
            }
        };
        if text.is_empty() {
            return Err(D::Error::custom("the secret is empty"));
        }
        Ok(Secret(text))
    }
}
