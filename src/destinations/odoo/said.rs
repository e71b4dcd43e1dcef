//! What Odoo's answers mean. Pure.

use serde_json::Value;

use super::super::client::{redacted, sent};
use super::super::{CallError, Outcome, Record};
use super::rpc::{Failure, Raised};

/// What a load came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    /// One outcome per row.
    Outcomes(Vec<Outcome>),
    /// Not done; see the error.
    Failed(CallError),
}

/// Words of PostgreSQL for "somebody else wrote it first", in the languages it is likely to speak.
const LOST_RACE: [&str; 4] = ["serializ", "serialis", "sérialis", "deadlock"];

/// Exceptions of the database's driver after which the same again may work.
const TRANSIENT: [&str; 5] = [
    "SerializationFailure",
    "TransactionRollbackError",
    "DeadlockDetected",
    "LockNotAvailable",
    "QueryCanceled",
];

/// What the result of a load of these records into `model` means.
pub(super) fn loaded(result: &Value, records: &[Record], model: &str) -> Loaded {
    let messages = result["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    match &result["ids"] {
        Value::Array(ids) => Loaded::Outcomes(written(ids, messages, records)),
        Value::Bool(false) => undone(messages, records, model),
        _ => Loaded::Outcomes(unknown(records, "the answer has no ids")),
    }
}

fn unknown(records: &[Record], why: &str) -> Vec<Outcome> {
    vec![Outcome::Unknown { message: why.to_owned() }; records.len()]
}

fn written(ids: &[Value], messages: &[Value], records: &[Record]) -> Vec<Outcome> {
    let ids: Option<Vec<i64>> = ids.iter().map(|id| id.as_i64().filter(|id| *id > 0)).collect();
    let Some(ids) = ids.filter(|ids| ids.len() == records.len()) else {
        return unknown(records, "the ids in the answer are not those of what was sent");
    };
    let outcome = |(at, (id, record)): (usize, (i64, &Record))| {
        // Odoo makes something of a word that it does not know, and only says so.
        let warning =
            messages.iter().find(|message| message["record"].as_u64() == u64::try_from(at).ok());
        match warning {
            Some(warning) => Said::new(warning).rejected("WARNING", std::slice::from_ref(record)),
            None => Outcome::Written {
                remote_id: Some(id.to_string()),
                created: record.remote_id.is_some().then_some(false),
            },
        }
    };
    ids.into_iter().zip(records).enumerate().map(outcome).collect()
}

/// Nothing was written, because of at least one of the records.
fn undone(messages: &[Value], records: &[Record], model: &str) -> Loaded {
    let said: Vec<Said> =
        messages.iter().filter(|m| m["type"] != "warning").map(Said::new).collect();
    if said.iter().any(Said::is_transient) {
        let retry = Outcome::Retry {
            code: "CONCURRENT_UPDATE".to_owned(),
            message: "somebody else wrote in Odoo in the same instant".to_owned(),
        };
        return Loaded::Outcomes(vec![retry; records.len()]);
    }
    if let Some(lacking) = said.iter().find(|said| said.lacks_right(model)) {
        let message = lacking.message(records);
        return Loaded::Failed(CallError::Credentials { code: "AccessError".to_owned(), message });
    }
    let of = |at: usize| {
        let mut own = said.iter().filter(|said| said.record == Some(at));
        let first = own.next()?;
        // An unknown id is followed by what is missing of a new record.
        let gone = first.field.as_deref() == Some(".id") && records.get(at)?.remote_id.is_some();
        Some(if gone { Outcome::Gone } else { first.rejected("INVALID", records) })
    };
    let own: Vec<Option<Outcome>> = (0..records.len()).map(of).collect();
    if own.iter().all(Option::is_none) {
        let message = said.first().map(|said| said.message(records)).unwrap_or_default();
        return Loaded::Failed(CallError::Refused {
            code: "LOAD".to_owned(),
            field: None,
            message,
        });
    }
    let others = || Outcome::Retry {
        code: "ROLLED_BACK".to_owned(),
        message: "another lead of the same call was refused".to_owned(),
    };
    Loaded::Outcomes(own.into_iter().map(|outcome| outcome.unwrap_or_else(others)).collect())
}

/// A message of a load.
struct Said {
    record: Option<usize>,
    field: Option<String>,
    /// The exception behind it, where it is one.
    class: Option<String>,
    words: String,
}

impl Said {
    fn new(message: &Value) -> Said {
        let words = message["message"].as_str().unwrap_or_default().trim();
        // "Unknown error during import: <class 'odoo.exceptions.AccessError'>: You are not allowed …"
        let class = words
            .split_once("<class '")
            .and_then(|(_, rest)| rest.split_once("'>: "))
            .map(|(class, rest)| (class.rsplit('.').next().unwrap_or(class).to_owned(), rest));
        let (class, words) = match class {
            Some((class, rest)) => (Some(class), rest),
            None => (None, words),
        };
        Said {
            record: message["record"].as_u64().and_then(|at| at.try_into().ok()),
            field: message["field"].as_str().map(|field| redacted(field, [])),
            class: class.map(|class| redacted(&class, [])),
            words: words.to_owned(),
        }
    }

    fn is_transient(&self) -> bool {
        let class = self.class.as_deref().unwrap_or_default();
        TRANSIENT.contains(&class) || self.field.is_none() && lost_race(&self.words)
    }

    /// The user may not write this model at all, and not only this record of it, which may be another model's business
    /// (the contact of a user).
    fn lacks_right(&self, model: &str) -> bool {
        self.class.as_deref() == Some("AccessError")
            && self.words.contains(&format!("({model})"))
            && !self.words.contains("security restrictions")
    }

    /// The first line, without what was sent.
    fn message(&self, records: &[Record]) -> String {
        redacted(self.words.lines().next().unwrap_or_default(), sent(records))
    }

    fn rejected(&self, code: &str, records: &[Record]) -> Outcome {
        let code = self.class.as_deref().unwrap_or(code).to_owned();
        Outcome::Rejected { code, field: self.field.clone(), message: self.message(records) }
    }
}

fn lost_race(words: &str) -> bool {
    let words = words.to_lowercase();
    LOST_RACE.iter().any(|word| words.contains(word))
}

/// What a method that was not done means for these records.
pub(super) fn failed(failure: Failure, columns: &[String], about: &About<'_>) -> Loaded {
    let raised = match failure {
        Failure::Call(error) => return Loaded::Failed(error),
        Failure::Raised(raised) => raised,
    };
    let transient = TRANSIENT.contains(&raised.short());
    if transient || raised.name.starts_with("psycopg2") && lost_race(&raised.message) {
        let code = redacted(raised.short(), []);
        let message = redacted(&raised.message, sent(about.records));
        return Loaded::Outcomes(vec![Outcome::Retry { code, message }; about.records.len()]);
    }
    Loaded::Failed(error(&raised, columns, about))
}

/// What a call was about.
pub(super) struct About<'a> {
    pub model: &'a str,
    pub database: Option<&'a str>,
    pub records: &'a [Record],
}

/// The error that an exception stands for. Whatever it is, nothing was written.
pub(super) fn error(raised: &Raised, columns: &[String], about: &About<'_>) -> CallError {
    let code = redacted(raised.short(), []);
    let first = raised.message.lines().next().unwrap_or_default();
    let message = redacted(first, sent(about.records));
    let all = raised.message.as_str();
    let named = |column: &String| column.split('/').any(|part| part == all);
    let (short, model) = (raised.short(), about.model);
    match short {
        _ if raised.is_denied() => CallError::Credentials {
            code,
            message: format!(
                "{message}; make an API key for the user in Odoo (My Profile, Account Security) and put it \
                 into `token`"
            ),
        },
        "AccessError" | "Forbidden" => CallError::Credentials { code, message },
        "OperationalError" if about.database.is_some_and(|name| all.contains(name)) => {
            let hint = "is `database` right?";
            CallError::Misconfigured { code, message: format!("{message}; {hint}") }
        }
        // The server lost its database in the middle of it.
        "OperationalError" | "InterfaceError" => CallError::Unknown { after: None, message },
        "KeyError" if columns.iter().any(named) => CallError::Misconfigured {
            code,
            message: format!(
                "Odoo has no field \"{}\" in {model}; correct [destination.fields]",
                redacted(all, [])
            ),
        },
        "UserError" | "NotFound" if all.contains(model) => CallError::Misconfigured {
            code,
            message: format!("{message}; is the app installed in Odoo that brings {model}?"),
        },
        "ValueError" if all.contains("Invalid field") => CallError::Misconfigured { code, message },
        "AttributeError" if all.contains(model) => CallError::Misconfigured { code, message },
        "NotFound" => {
            CallError::Misconfigured { code, message: format!("{message}; is `base_url` right?") }
        }
        _ => CallError::Refused { code, field: None, message },
    }
}

#[cfg(test)]
#[path = "said/tests.rs"]
mod tests;
