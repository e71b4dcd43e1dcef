//! Looks whether what is configured can work, without writing.

use std::time::Duration;

use super::super::{CallError, Mapped};
use super::fields::{DataType, unknown};
use super::{RdStation, fields};

/// Fields of a contact that not every account lists among its fields.
const OWN: [&str; 2] = ["tags", "legal_bases"];

fn wrong(code: &str, message: String) -> CallError {
    CallError::Misconfigured { code: code.to_owned(), message }
}

impl RdStation {
    pub(super) async fn check_all(&self, mapped: &[Mapped]) -> Result<Vec<String>, CallError> {
        let listed = self.fields(Duration::ZERO).await?;
        for field in mapped.iter().filter(|field| field.property != "email") {
            let property = field.property.as_str();
            let Some(there) = listed.get(property) else {
                if OWN.contains(&property) {
                    continue;
                }
                return Err(unknown(property, listed.keys()));
            };
            let misfit = field.values.values().find(|word| {
                fields::value(there.kind, Some(word)).is_err()
                    || !there.options.is_empty() && !there.options.contains(word)
            });
            if let Some(word) = misfit {
                let takes = match there.options.is_empty() {
                    true => there.kind.name().to_owned(),
                    false => there.options.join(", "),
                };
                let message = format!(
                    "RD Station's field \"{property}\" does not take \"{word}\"; it takes {takes}"
                );
                return Err(wrong("NO_OPTION", message));
            }
            let free = !field.values.is_empty() || field.value.starts_with("attributes.");
            let fits = match there.kind {
                DataType::Boolean => free || field.value == "marketing_consent",
                DataType::Integer => free,
                _ => true,
            };
            if !fits {
                let message = format!(
                    "RD Station's field \"{property}\" is {}, which `{}` is not; map to another one",
                    there.kind.name(),
                    field.value
                );
                return Err(wrong("TYPE", message));
            }
        }
        let mut found = vec![
            format!("{} knows the app and gives it access", self.client.shown()),
            "contacts are keyed by e-mail, which RD Station keeps unique".to_owned(),
        ];
        if !mapped.is_empty() {
            found.push(format!("all {} mapped fields exist", mapped.len()));
        }
        Ok(found)
    }
}
