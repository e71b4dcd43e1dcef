//! Records as rows of a `load`. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::Record;
use super::{MODULE, Object, external};

/// Rows that set the same columns: one call.
#[derive(Debug, PartialEq)]
pub(super) struct Rows {
    pub columns: Vec<String>,
    pub cells: Vec<Vec<Value>>,
    /// Which records they are.
    pub at: Vec<usize>,
}

/// The calls that the records take; one, where they are as [`alike`](super::super::Destination::alike) says.
///
/// A contact that is there keeps what is not sent of it, so that only those with the same columns can share a call. What
/// is not sent of a new one is empty there, too.
pub(super) fn rows(object: Object, records: &[Record]) -> Vec<Rows> {
    let mut calls: BTreeMap<(bool, Vec<String>), Vec<usize>> = BTreeMap::new();
    let mut new = Vec::new();
    for (at, record) in records.iter().enumerate() {
        match record.remote_id {
            Some(_) => {
                let columns = own(object, record).map(|(to, _)| to.clone()).collect();
                calls.entry((true, columns)).or_default().push(at);
            }
            None => new.push(at),
        }
    }
    if !new.is_empty() {
        let all = new.iter().filter_map(|at| records.get(*at));
        let mut columns: Vec<String> =
            all.flat_map(|record| own(object, record).map(|(to, _)| to.clone())).collect();
        columns.push("name".to_owned());
        columns.sort();
        columns.dedup();
        calls.insert((false, columns), new);
    }
    calls
        .into_iter()
        .map(|((known, columns), at)| {
            let row = |at: &usize| {
                let record = records.get(*at)?;
                Some(if known {
                    update(record, &columns)
                } else {
                    create(object, record, &columns)
                })
            };
            let cells = at.iter().filter_map(row).collect();
            let first = if known { vec![".id".to_owned()] } else { key_columns(object) };
            Rows { columns: first.into_iter().chain(columns).collect(), cells, at }
        })
        .collect()
}

fn key_columns(object: Object) -> Vec<String> {
    vec!["id".to_owned(), object.email().to_owned()]
}

/// What the mapping sends beside the e-mail, which goes with a new record only.
fn own(object: Object, record: &Record) -> impl Iterator<Item = &(String, Option<String>)> {
    record.properties.iter().filter(move |(to, _)| to != object.email())
}

fn update(record: &Record, columns: &[String]) -> Vec<Value> {
    let id = record.remote_id.as_deref().unwrap_or_default();
    let cell = |column: &String| match value(record, column) {
        // Neither model has records without a name.
        None if column == "name" => json!(named(record)),
        value => json!(value.unwrap_or_default()),
    };
    [json!(id)].into_iter().chain(columns.iter().map(cell)).collect()
}

fn create(object: Object, record: &Record, columns: &[String]) -> Vec<Value> {
    let key = format!("{MODULE}.{}", external(object, record));
    let cell = |column: &String| match value(record, column) {
        None if column == "name" => json!(named(record)),
        value => json!(value.unwrap_or_default()),
    };
    let first = [json!(key), json!(record.lead.email)];
    first.into_iter().chain(columns.iter().map(cell)).collect()
}

/// A value that is sent, and is not blank.
fn value<'a>(record: &'a Record, column: &str) -> Option<&'a str> {
    let (_, value) = record.properties.iter().find(|(to, _)| to == column)?;
    value.as_deref().filter(|value| !value.is_empty())
}

/// A name for a record that needs one.
fn named(record: &Record) -> String {
    record.lead.value_of("name").flatten().unwrap_or_else(|| record.lead.email.clone())
}
