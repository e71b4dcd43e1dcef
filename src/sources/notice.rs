//! Kinds whose senders tell only of ids: what their configuration needs, and what their deliveries have in common.

use serde_json::Value;

use crate::config;
use crate::lead::Micros;
use crate::mapping::time;

use super::{Item, Source, SourceErrorKind, Split};

/// Media type of a document that was read at a source's API and delivered like a webhook of that source: what tells
/// the two apart, in the archive too.
pub const FETCHED: &str = "application/vnd.leadsync.fetched+json";

/// Longest id at a source, in bytes.
const MAX_ID: usize = 128;

/// Something at the source that a delivery tells of without saying what it is: it is read at the source's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Kind of thing ("lead", "contact").
    pub object: &'static str,
    /// Its id at the source: letters, digits, `-`, `_` and `.`.
    pub remote_id: String,
    /// When it changed; `None` where it never does, so that it is read once.
    pub changed_at: Option<Micros>,
    /// It is gone at the source and not to be read.
    pub deleted: bool,
}

/// The keys of a `[[source]]` that only these kinds have a use for, and which do.
const KEYS: [(&str, &[&str]); 10] = [
    ("token", &["hubspot-app", "linkedin", "meta"]),
    ("base_url", &["hubspot-app", "linkedin", "meta"]),
    ("rate", &["hubspot-app", "linkedin", "meta"]),
    ("poll", &["hubspot-app", "linkedin", "meta"]),
    ("api_version", &["linkedin", "meta"]),
    ("verify_token", &["meta"]),
    ("forms", &["meta"]),
    ("owners", &["linkedin"]),
    ("signed", &["linkedin"]),
    ("properties", &["hubspot-app"]),
];

/// Refuses keys that the kind has no use for, and a kind that lacks one it needs.
pub(super) fn check(source: &config::Source, kind: &'static Source) -> Result<(), SourceErrorKind> {
    for (key, kinds) in KEYS {
        let set = match key {
            "token" => source.token.is_some(),
            "base_url" => source.base_url.is_some(),
            "rate" => source.rate.is_some(),
            "poll" => source.poll.is_some(),
            "api_version" => source.api_version.is_some(),
            "verify_token" => !source.verify_token.is_empty(),
            "forms" => !source.forms.is_empty(),
            "owners" => !source.owners.is_empty(),
            "signed" => source.signed.is_some(),
            _ => !source.properties.is_empty(),
        };
        if set && !kinds.contains(&kind.kind) {
            let hint = match kinds {
                [only] => format!("remove it; only kind \"{only}\" has a use for it"),
                _ => "remove it; it is for kinds that read leads at an API".to_owned(),
            };
            return Err(SourceErrorKind::NotForKind { key, kind: kind.kind, hint: hint.into() });
        }
    }
    if !matches!(kind.split, Split::Notices(_)) {
        return Ok(());
    }
    let missing = |key, hint| Err(SourceErrorKind::Missing { key, hint });
    if source.secret.is_empty() {
        return missing("secret", "it is what the sender signs its deliveries with");
    }
    if source.token.is_none() {
        return missing("token", "deliveries say only ids; the leads are read with it");
    }
    if kind.kind == "meta" {
        if source.verify_token.is_empty() {
            return missing("verify_token", "choose a text and type it at Meta beside the URL");
        }
        let secrets = source.secret.as_slice();
        if source.verify_token.as_slice().iter().any(|token| secrets.contains(token)) {
            let why = "must not be the app secret, which is never typed anywhere";
            return Err(SourceErrorKind::Invalid { key: "verify_token", why: why.into() });
        }
    }
    Ok(())
}

/// A notice of something with that id, or why there is none.
pub(super) fn notice(object: &'static str, id: &Value, changed_at: Option<Micros>) -> Item {
    match remote_id(id) {
        Some(remote_id) => Item::Notice(Notice { object, remote_id, changed_at, deleted: false }),
        None => Item::Rejected {
            reason: "no_id".to_owned(),
            detail: format!("there is no id of a {object} where one belongs"),
        },
    }
}

/// The same of something that is gone.
pub(super) fn gone(object: &'static str, id: &Value, changed_at: Option<Micros>) -> Item {
    match notice(object, id, changed_at) {
        Item::Notice(notice) => Item::Notice(Notice { deleted: true, ..notice }),
        other => other,
    }
}

/// The id as text, if it is one. URNs end in it.
fn remote_id(value: &Value) -> Option<String> {
    let text = match value {
        Value::Number(number) if number.is_u64() => number.to_string(),
        Value::String(text) => {
            let text = text.trim();
            let last = text.rsplit_once(':').map(|(_, last)| last);
            last.filter(|_| text.starts_with("urn:")).unwrap_or(text).to_owned()
        }
        _ => return None,
    };
    is_remote_id(&text).then_some(text)
}

/// Whether that can be an id at a source, and stand in an address as it is.
pub fn is_remote_id(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let named = text.bytes().any(|c| c.is_ascii_alphanumeric());
    named && text.len() <= MAX_ID && text.bytes().all(plain)
}

/// Milliseconds since 1970, number or text.
pub(super) fn epoch_ms(value: &Value) -> Option<Micros> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    time::epoch(&text, 1_000).filter(|at| *at > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_can_stand_in_an_address() {
        for (value, id) in [
            (json!(600100200300401_u64), Some("600100200300401")),
            (json!(" 42 "), Some("42")),
            (json!("urn:li:leadGenFormResponse:f1a2-5"), Some("f1a2-5")),
            (json!(-1), None),
            (json!(1.5), None),
            (json!(""), None),
            (json!("a/b"), None),
            (json!(".."), None),
            (json!("a?b"), None),
            (json!("é"), None),
            (json!("x".repeat(129)), None),
            (json!(null), None),
            (json!([1]), None),
        ] {
            assert_eq!(remote_id(&value).as_deref(), id, "{value}");
        }
    }

    #[test]
    fn keys_are_for_kinds_that_there_are() {
        for (key, kinds) in KEYS {
            for kind in kinds {
                let known = |source: &&Source| source.kind == *kind;
                let found = super::super::SOURCES.iter().copied().find(known);
                assert!(
                    found.is_some_and(|s| matches!(s.split, Split::Notices(_))),
                    "{key} {kind}"
                );
            }
        }
    }
}
