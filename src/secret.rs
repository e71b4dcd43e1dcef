//! A text that must never be seen: no `Debug`, `Display` or serialisation shows it.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What stands where a secret would be shown.
const REDACTED: &str = "[redacted]";

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
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.serialize_str(REDACTED)
    }
}

/// `{ env = "NAME" }` or `{ file = "path" }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Elsewhere {
    env: Option<String>,
    file: Option<PathBuf>,
}

impl Elsewhere {
    /// The secret, or a sentence without it.
    fn read(self) -> Result<String, String> {
        match (self.env, self.file) {
            (Some(name), None) => match std::env::var(&name) {
                Ok(text) => Ok(text),
                Err(std::env::VarError::NotPresent) => {
                    Err(format!("environment variable {name} is not set"))
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    Err(format!("environment variable {name} is not UTF-8"))
                }
            },
            (None, Some(path)) => std::fs::read_to_string(&path)
                // The line end that editors and `echo` leave behind is not part of the secret.
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| format!("cannot read {}: {error}", path.display())),
            _ => Err("a secret names exactly one of `env` and `file`".to_owned()),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Secret, D::Error> {
        struct Written;

        impl<'de> Visitor<'de> for Written {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, { env = \"NAME\" } or { file = \"path\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Secret, E> {
                if text.trim().is_empty() {
                    return Err(E::custom("the secret is empty"));
                }
                Ok(Secret::new(text))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Secret, A::Error> {
                let elsewhere = Elsewhere::deserialize(MapAccessDeserializer::new(map))?;
                let text = elsewhere.read().map_err(A::Error::custom)?;
                self.visit_str(&text)
            }
        }

        reader.deserialize_any(Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, Serialize)]
    struct Holder {
        it: Secret,
    }

    fn read(text: &str) -> Result<Holder, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn never_shown() {
        let holder = read("it = 'hunter2'").unwrap();
        assert_eq!(holder.it.expose(), "hunter2");
        let shown = format!("{holder:?} {holder:#?} {}", toml::to_string(&holder).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn read_from_elsewhere() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from a file\r\n").unwrap();
        let from_file = read(&format!("it = {{ file = '{}' }}", file.path().display())).unwrap();
        assert_eq!(from_file.it.expose(), "from a file");
        // Cargo sets this one for every test.
        let from_env = read("it = { env = 'CARGO_PKG_NAME' }").unwrap();
        assert_eq!(from_env.it.expose(), "leadsync");
    }

    #[test]
    fn refused() {
        for (text, why) in [
            ("it = ' '", "empty"),
            ("it = { env = 'LEADSYNC_NO_SUCH' }", "LEADSYNC_NO_SUCH is not set"),
            ("it = { file = '/nonexistent/secret' }", "cannot read /nonexistent/secret"),
            ("it = { env = 'A', file = 'b' }", "exactly one"),
            ("it = {}", "exactly one"),
            ("it = { evn = 'A' }", "evn"),
            ("it = 5", "a text, { env"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
