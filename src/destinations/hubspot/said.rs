//! What HubSpot's error envelopes mean. Every member of them is optional, and the useful part is often a JSON list
//! inside the text of `message`.

use std::time::Duration;

use serde_json::Value;

use super::super::client::{Answer, redacted, sent};
use super::super::{CallError, Outcome, Record};
use super::{items, texts};

/// Daily limits end at midnight of an account's zone that nobody tells: look again every hour.
const DAY_PAUSE: Duration = Duration::from_secs(3600);
/// HubSpot asks for two seconds or more on a locked record.
const LOCK_PAUSE: Duration = Duration::from_secs(2);

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The record's: permanent until it changes.
    Record,
    /// Nobody's: try again.
    Nobody,
    /// The configuration's: every record would fail.
    Everybody,
}

/// An error envelope, or one error of a 207, read.
pub(super) struct Said {
    /// The most telling code.
    pub code: String,
    field: Option<String>,
    words: String,
    category: String,
    scopes: Vec<String>,
}

impl Said {
    pub fn new(error: &Value, answer: &Answer) -> Said {
        let message = error["message"].as_str().unwrap_or_default();
        let category = error["category"].as_str().or(error["errorType"].as_str());
        // "Property values were not valid: [{…}]"
        let inner: Option<Vec<Value>> =
            message.find('[').and_then(|at| serde_json::from_str(message.get(at..)?).ok());
        let details = items(error, "errors");
        let inner = inner.unwrap_or_default();
        let telling = details
            .iter()
            .filter_map(|d| {
                Some((d["code"].as_str()?, texts(&d["context"]["propertyName"]).next(), d))
            })
            .chain(inner.iter().filter_map(|d| Some((d["error"].as_str()?, d["name"].as_str(), d))))
            // A fault of the configuration tells more than that of a record beside it; else the first one.
            .min_by_key(|(code, _, _)| !is_configuration(code));
        let (code, field, words) = match telling {
            Some((code, field, detail)) => (Some(code), field, detail["message"].as_str()),
            None => (None, texts(&error["context"]["propertyName"]).next(), None),
        };
        Said {
            code: code.or(category).map_or_else(|| answer.status.to_string(), |c| redacted(c, [])),
            field: field.map(|f| redacted(f, [])),
            words: match words.unwrap_or(message) {
                "" => answer.words(),
                words => words.to_owned(),
            },
            category: category.unwrap_or_default().to_owned(),
            scopes: details
                .iter()
                .flat_map(|d| texts(&d["context"]["requiredGranularScopes"]))
                .map(|s| redacted(s, []))
                .collect(),
        }
    }

    /// HubSpot's words without what was sent.
    pub fn message(&self, records: &[Record]) -> String {
        redacted(&self.words, sent(records))
    }

    pub fn blame(&self) -> Blame {
        let code = self.code.as_str();
        if is_configuration(code) || self.words.contains("non-unique") {
            Blame::Everybody
        } else if matches!(self.category.as_str(), "CONFLICT" | "OBJECT_ALREADY_EXISTS")
            || matches!(code, "CONFLICT" | "OBJECT_ALREADY_EXISTS")
        {
            Blame::Nobody
        } else if self.category == "VALIDATION_ERROR"
            || code.starts_with("INVALID_")
            || code.starts_with("MISSING_")
        {
            Blame::Record
        } else {
            Blame::Nobody
        }
    }

    /// The contact that was asked for by id is not there.
    pub fn is_missing(&self) -> bool {
        self.category == "OBJECT_NOT_FOUND" || self.code == "OBJECT_NOT_FOUND"
    }

    /// The contact that has the key already: "Contact already exists. Existing ID: 1001".
    pub fn existing(&self) -> Option<String> {
        let (_, id) = self.words.split_once("Existing ID:")?;
        let id: String = id.trim_start().chars().take_while(char::is_ascii_digit).collect();
        (!id.is_empty()).then_some(id)
    }

    pub fn rejected(&self, records: &[Record]) -> Outcome {
        Outcome::Rejected {
            code: self.code.clone(),
            field: self.field.clone(),
            message: self.message(records),
        }
    }

    /// The error that stops the destination.
    pub fn stop(&self, records: &[Record]) -> CallError {
        let code = self.code.clone();
        let mut message = self.message(records);
        match is_credential(&code) {
            true => {
                if !self.scopes.is_empty() {
                    message = format!("the token lacks the scope {}", self.scopes.join(", "));
                }
                CallError::Credentials { code, message }
            }
            false => CallError::Misconfigured { code, message },
        }
    }
}

fn is_credential(code: &str) -> bool {
    code == "MISSING_SCOPES" || code.ends_with("_AUTHENTICATION")
}

fn is_configuration(code: &str) -> bool {
    is_credential(code)
        || matches!(
            code,
            "PROPERTY_DOESNT_EXIST"
                | "READ_ONLY_VALUE"
                | "PROPERTY_NOT_FOUND"
                | "INVALID_OBJECT_TYPE"
        )
}

/// What an answer means that is neither 2xx nor 409.
pub(super) fn refusal(answer: &Answer, body: &Value, records: &[Record]) -> CallError {
    let said = Said::new(body, answer);
    let message = said.message(records);
    let code = said.code.clone();
    let after = answer.retry_after();
    match answer.status {
        401 => CallError::Credentials {
            code,
            message: format!("{message}; make a new token in HubSpot and put it into `token`"),
        },
        403 if said.scopes.is_empty() => CallError::Credentials { code, message },
        403 => CallError::Credentials {
            code,
            message: format!(
                "the token lacks the scope {}; add it to the token in HubSpot",
                said.scopes.join(", ")
            ),
        },
        423 => CallError::SlowDown {
            after: Some(after.unwrap_or(LOCK_PAUSE).max(LOCK_PAUSE)),
            message,
        },
        425 => CallError::SlowDown { after, message },
        429 => CallError::SlowDown { after: after.or_else(|| limit_pause(answer, body)), message },
        477 => CallError::SlowDown { after: Some(after.unwrap_or(DAY_PAUSE)), message },
        // The request took too long to arrive, or not all of it did.
        408 | 421 | 499 => CallError::Unknown { after, message },
        400 | 409 | 413 | 414 | 422 | 431 => match said.blame() {
            Blame::Everybody => said.stop(records),
            _ => CallError::Refused { code, field: said.field, message },
        },
        404 | 405 | 410 | 415 => {
            CallError::Misconfigured { code, message: format!("{message}; is `base_url` right?") }
        }
        300..400 => CallError::Misconfigured {
            code,
            message: format!("{message}; `base_url` leads to a redirect"),
        },
        402 => CallError::Credentials { code, message },
        400..500 => CallError::Refused { code, field: said.field, message },
        _ => CallError::Unknown { after, message },
    }
}

/// How long to wait after a 429 without `Retry-After`.
fn limit_pause(answer: &Answer, body: &Value) -> Option<Duration> {
    if body["policyName"] == "DAILY"
        || answer.header("x-hubspot-ratelimit-daily-remaining") == Some("0")
    {
        return Some(DAY_PAUSE);
    }
    if answer.header("x-hubspot-ratelimit-remaining") != Some("0") {
        return None;
    }
    let window = answer.header("x-hubspot-ratelimit-interval-milliseconds")?.parse().ok()?;
    Some(Duration::from_millis(window).min(DAY_PAUSE))
}
