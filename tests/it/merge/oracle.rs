//! What a row must be, said about the whole set of its events at once: every register is a maximum, a
//! minimum or a union over all of them. Shares no code with the product's join.

use std::collections::{BTreeMap, BTreeSet};

use leadsync::lead::{Change, Field, Micros};
use serde_json::{Map, Value, json};

use super::events::{Event, SOURCES, TOLERANCE, When, Y2000};

/// The merged columns of a row by name. Times are microseconds since 1970.
pub type Row = Map<String, Value>;

/// The greatest time that fits: 2^54 - 1 microseconds after 2000.
const LAST: Micros = Y2000 + 18_014_398_509_481_983;

const STAGES: &str =
    "subscriber lead marketing_qualified_lead sales_qualified_lead opportunity customer evangelist";

impl Event {
    /// Whether its time is believed, and the time.
    fn time(&self) -> (bool, Option<Micros>) {
        match self.when {
            When::Unsaid => (false, None),
            When::Received(at) => (true, Some(at)),
            When::Stated { at, received } => {
                (Y2000 <= at && at <= received + TOLERANCE, Some(at.clamp(Y2000, LAST)))
            }
        }
    }

    fn said(&self) -> i64 {
        let (reliable, at) = self.time();
        i64::from(reliable) * (1 << 55) + at.map_or(0, |at| at - Y2000) * 2 + 1
    }

    fn number(&self) -> i16 {
        SOURCES[self.source].number
    }

    fn trusted(&self) -> i64 {
        i64::from(SOURCES[self.source].trust) * (1 << 56) + self.said()
    }

    fn first_source(&self) -> &str {
        self.touch.source.as_deref().unwrap_or(SOURCES[self.source].name)
    }
}

/// Stamp, value (a clear is the least) as bytes, source.
type Word = (i64, Vec<u8>, i16);

fn word(stamp: i64, change: &Change, source: i16) -> Word {
    (stamp, change.value().unwrap_or_default().as_bytes().to_vec(), source)
}

fn value(word: &Word) -> Value {
    match word.1.is_empty() {
        true => Value::Null,
        false => json!(std::str::from_utf8(&word.1).expect("made of text")),
    }
}

fn put_word(row: &mut Row, name: &str, words: Vec<Word>) {
    let greatest = words.into_iter().max();
    row.insert(name.to_owned(), greatest.as_ref().map_or(Value::Null, value));
    row.insert(format!("{name}_stamp"), json!(greatest.as_ref().map(|w| w.0)));
    row.insert(format!("{name}_source"), json!(greatest.as_ref().map(|w| w.2)));
}

/// The row that a set of events amounts to.
pub fn expected<'a>(events: impl IntoIterator<Item = &'a Event>) -> Row {
    let events: Vec<&Event> = events.into_iter().collect();
    let mut row = Row::new();
    for field in Field::ALL {
        let said = events.iter().filter_map(|e| Some((*e, e.fields.get(&field)?)));
        let words = match field {
            Field::LifecycleStage => said
                .filter_map(|(e, change)| {
                    let rank = STAGES.split(' ').position(|s| Some(s) == change.value())? + 1;
                    let rank = i64::try_from(rank).expect("few stages");
                    Some(word(rank * (1 << 56) + e.said(), change, e.number()))
                })
                .collect(),
            _ => said.map(|(e, change)| word(e.trusted(), change, e.number())).collect(),
        };
        put_word(&mut row, field.name(), words);
    }
    consent(&mut row, &events);
    let typed = events.iter().map(|e| (e.trusted(), e.typed.as_bytes(), e.typed)).max();
    row.insert("email_as_typed".to_owned(), json!(typed.map(|t| t.2)));
    row.insert("email_as_typed_stamp".to_owned(), json!(typed.map(|t| t.0)));
    let tags: BTreeSet<&String> = events.iter().flat_map(|e| &e.tags).collect();
    let tags: Map<String, Value> = tags.into_iter().map(|t| (t.clone(), json!(true))).collect();
    row.insert("tags".to_owned(), object_or_null(tags));
    let names: BTreeSet<&String> = events.iter().flat_map(|e| e.attributes.keys()).collect();
    let attributes = names.into_iter().map(|name| {
        let said = events.iter().filter_map(|e| Some((e, e.attributes.get(name)?)));
        let greatest = said.map(|(e, c)| word(e.trusted(), c, e.number())).max().expect("named");
        (name.clone(), json!([greatest.0, greatest.2, value(&greatest)]))
    });
    row.insert("attributes".to_owned(), object_or_null(attributes.collect()));
    touches(&mut row, &events);
    row
}

fn object_or_null(members: Map<String, Value>) -> Value {
    if members.is_empty() { Value::Null } else { Value::Object(members) }
}

fn consent(row: &mut Row, events: &[&Event]) {
    let mut latest = BTreeMap::new();
    for kind in ["out", "in", "proven"] {
        let said = events.iter().filter(|e| {
            e.consent.is_some_and(|c| match kind {
                "out" => !c.granted,
                "in" => c.granted && !c.proven,
                _ => c.granted && c.proven,
            })
        });
        let greatest = said.map(|e| (e.said(), e.number())).max();
        row.insert(format!("consent_{kind}_stamp"), json!(greatest.map(|g| g.0)));
        row.insert(format!("consent_{kind}_source"), json!(greatest.map(|g| g.1)));
        latest.insert(kind, greatest.map(|g| g.0));
    }
    let answer = match (latest["proven"], latest["out"], latest["in"]) {
        (Some(proven), Some(out), _) => Some(proven > out),
        (Some(_), None, _) | (None, None, Some(_)) => Some(true),
        (None, Some(_), _) => Some(false),
        (None, None, None) => None,
    };
    row.insert("marketing_consent".to_owned(), json!(answer));
}

fn touches(row: &mut Row, events: &[&Event]) {
    let first = events.iter().min_by_key(|e| {
        let (reliable, at) = e.time();
        let t = &e.touch;
        let utm = [&t.utm_source, &t.utm_medium, &t.utm_campaign, &t.utm_term, &t.utm_content];
        let texts = utm.map(|u| u.clone().unwrap_or_default().into_bytes());
        (!reliable, at, e.first_source().as_bytes(), texts, &t.landing_page)
    });
    let first = first.expect("at least one event");
    let touch = &first.touch;
    row.insert("first_seen_reliable".to_owned(), json!(first.time().0));
    row.insert("first_seen_at".to_owned(), json!(first.time().1));
    row.insert("first_source".to_owned(), json!(first.first_source()));
    row.insert("utm_source".to_owned(), json!(touch.utm_source));
    row.insert("utm_medium".to_owned(), json!(touch.utm_medium));
    row.insert("utm_campaign".to_owned(), json!(touch.utm_campaign));
    row.insert("utm_term".to_owned(), json!(touch.utm_term));
    row.insert("utm_content".to_owned(), json!(touch.utm_content));
    row.insert("landing_page".to_owned(), json!(touch.landing_page));
    let last = events.iter().map(|e| (e.time(), e.first_source().as_bytes(), e.first_source()));
    let ((reliable, at), _, source) = last.max().expect("at least one event");
    row.insert("last_seen_reliable".to_owned(), json!(reliable));
    row.insert("last_seen_at".to_owned(), json!(at));
    row.insert("last_source".to_owned(), json!(source));
}

/// The part of a row that a CRM may be told: when it changes, the version moves, and only then. A field
/// that was cleared is not the same as one that nobody spoke about.
pub fn told(row: &Row) -> Row {
    let mut told = Row::new();
    for field in Field::ALL.map(Field::name) {
        if !row[&format!("{field}_stamp")].is_null() {
            told.insert(field.to_owned(), row[field].clone());
        }
    }
    for name in row
        .keys()
        .filter(|n| n.starts_with("first_s") || n.starts_with("utm_") || *n == "landing_page")
    {
        told.insert(name.clone(), row[name].clone());
    }
    for name in ["marketing_consent", "tags"] {
        told.insert(name.to_owned(), row[name].clone());
    }
    let registers = row["attributes"].as_object().into_iter().flatten();
    told.extend(registers.map(|(name, r)| (format!("attributes.{name}"), r[2].clone())));
    told
}
