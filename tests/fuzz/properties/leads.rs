//! What every lead is, wherever it came from.

use jiff::Timestamp;
use leadsync::config::EmailFolding;
use leadsync::lead::{Change, Field, LeadPatch, Micros, text};
use leadsync::mapping::{MAX_ATTRIBUTE_BYTES, MAX_MEMBERS, MAX_NAME_BYTES};
use leadsync::sources::json::canonical;
use leadsync::sources::{Item, is_remote_id};
use serde_json::{Map, Value, json};
use unicode_normalization::is_nfc;

use super::message::{rules, shown};

/// Micros of the first and of the last moment that clocks, CRMs and PostgreSQL know.
const TIMES: std::ops::RangeInclusive<Micros> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// Of one item of a delivery.
pub fn item(item: &Item) {
    match item {
        Item::Lead(patch) => lead(patch),
        Item::Ignored(reason) => word(reason),
        Item::Notice(notice) => assert!(is_remote_id(&notice.remote_id), "{notice:?}"),
        Item::Rejected { reason, detail } => {
            word(reason);
            assert!(!detail.is_empty() && detail.len() < 200, "{detail}");
        }
    }
}

/// Reasons are stable words, never a part of what arrived.
fn word(reason: &str) {
    assert!(reason.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{reason}");
}

pub fn lead(patch: &LeadPatch) {
    address(patch.email.as_str());
    one_line(&patch.email_as_typed, 4096);
    assert!(patch.occurred_at.is_none_or(|time| TIMES.contains(&time)), "{patch:?}");
    for (field, change) in &patch.fields {
        let Change::Set(value) = change else { continue };
        match field {
            Field::Message => lines(value, field.max_bytes()),
            Field::Phone => phone(value),
            _ => one_line(value, field.max_bytes()),
        }
    }
    assert!(patch.tags.len() <= MAX_MEMBERS && patch.attributes.len() <= MAX_MEMBERS, "{patch:?}");
    for name in patch.tags.iter().chain(patch.attributes.keys()) {
        one_line(name, MAX_NAME_BYTES);
        assert!(!name.chars().any(text::is_invisible), "{name:?}");
    }
    for change in patch.attributes.values() {
        change.value().into_iter().for_each(|value| lines(value, MAX_ATTRIBUTE_BYTES));
    }
    let touch = &patch.touch;
    let plain = [&touch.source, &touch.utm_source, &touch.utm_medium, &touch.utm_campaign];
    let more = [&touch.utm_term, &touch.utm_content, &patch.event_id, &patch.event_type];
    plain.into_iter().chain(more).flatten().for_each(|value| one_line(value, 512));
    touch.landing_page.iter().for_each(|value| one_line(value, 2048));
    assert!(patch.field_errors.len() <= 2 * MAX_MEMBERS, "{patch:?}");
    again(patch);
}

/// `a@b.c`, in lower case, that any mail program takes.
pub fn address(email: &str) {
    let (local, domain) = email.split_once('@').expect("an @");
    assert!(!local.is_empty() && local.len() <= 64 && email.len() <= 254, "{email:?}");
    assert!(domain.is_ascii() && domain.contains('.') && !domain.contains('@'), "{email:?}");
    assert_eq!(email.to_lowercase(), email);
    assert!(is_nfc(email), "{email:?}");
    let odd = |c: char| c.is_whitespace() || c.is_control() || text::is_invisible(c);
    assert!(!email.chars().any(odd), "{email:?}");
}

/// E.164.
pub fn phone(number: &str) {
    let digits = number.strip_prefix('+').expect("a plus");
    assert!(digits.bytes().all(|b| b.is_ascii_digit()), "{number}");
    assert!((4..=15).contains(&digits.len()) && !digits.starts_with('0'), "{number}");
}

pub fn one_line(value: &str, max: usize) {
    lines(value, max);
    assert!(!value.contains(['\n', '\t']) && !value.contains("  "), "{value:?}");
}

fn lines(value: &str, max: usize) {
    assert!(value.len() <= max, "{} bytes, not {max}", value.len());
    assert!(!text::is_blank(value) && value.trim() == value, "{value:?}");
    assert!(!value.chars().any(|c| c.is_control() && c != '\n'), "{value:?}");
    assert!(is_nfc(value), "{value:?}");
}

/// Written down in the canonical form, the strict reader takes all of it and reads the same: what a
/// lead says does not depend on how often it has been read.
fn again(patch: &LeadPatch) {
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("email", json!(patch.email.as_str()));
    let (mut clear, mut attributes) = (Vec::new(), Map::new());
    for (field, change) in &patch.fields {
        match change {
            Change::Set(value) => _ = put(field.name(), json!(value)),
            Change::Clear => clear.push(field.name().to_owned()),
        }
    }
    for (name, change) in &patch.attributes {
        match change {
            Change::Set(value) => _ = attributes.insert(name.clone(), json!(value)),
            Change::Clear => clear.push(format!("attributes.{name}")),
        }
    }
    let touch = &patch.touch;
    for (name, value) in [
        ("source", &touch.source),
        ("utm_source", &touch.utm_source),
        ("utm_medium", &touch.utm_medium),
        ("utm_campaign", &touch.utm_campaign),
        ("utm_term", &touch.utm_term),
        ("utm_content", &touch.utm_content),
        ("landing_page", &touch.landing_page),
        ("event_id", &patch.event_id),
        ("event_type", &patch.event_type),
    ] {
        put(name, json!(value));
    }
    put("marketing_consent", json!(patch.consent.map(|consent| consent.granted)));
    put("attributes", Value::Object(attributes));
    put("tags", json!(patch.tags));
    put("clear", json!(clear));
    let mut expected = patch.clone();
    // The last day there is, is past the last timestamp that the crate writes.
    match patch.occurred_at.map(Timestamp::from_microsecond) {
        Some(Ok(time)) => _ = put("occurred_at", json!(time.to_string())),
        Some(Err(_)) => expected.occurred_at = None,
        None => {}
    }
    expected.email_as_typed = patch.email.to_string();
    expected.consent.iter_mut().for_each(|consent| consent.proven = false);
    expected.field_errors.clear();
    let given = canonical(&Value::Object(members), &rules(None, EmailFolding::None));
    assert_eq!(shown(&given), shown(&Ok::<_, ()>(expected)));
}
