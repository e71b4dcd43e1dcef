//! Which column fills what: recognised by its name, told by `--map`, or written in `[source.fields]`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};

use super::time::Times;
use crate::config::FieldRule;
use crate::lead::text;
use crate::mapping::{self, Document, Mapping, Target, Written};
use crate::sources;

mod guess;

use guess::guess;
pub(super) use guess::is_address;

/// Values shown of each column.
const SAMPLES: usize = 3;

/// Columns that a file of refused lines has before those of the file it is of.
pub(super) const REFUSED: [&str; 3] = ["refused_line", "refused_column", "refused_reason"];

/// What decided about a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Its name, and what is in it.
    Guessed,
    /// `--map`.
    Chosen,
    /// `[source.fields]`.
    Configured,
}

/// One column of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// As the header has it; `#3` where it has nothing.
    pub name: String,
    /// Targets it fills, by name; none: it is passed over.
    pub fills: Vec<String>,
    /// What decided so.
    pub how: How,
    /// Values of the first lines.
    pub samples: Vec<String>,
    /// Its name, unlike that of every other column.
    #[serde(skip)]
    key: String,
    #[serde(skip)]
    kind: Kind,
}

/// What becomes of a column's text before the mapping sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Time,
    List,
}

/// Something the caller asks for that the file does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// `--map` names no column.
    #[error("--map: there is no column \"{name}\"{hint}; columns are {known}")]
    NoColumn {
        /// As written.
        name: String,
        /// The nearest, as a sentence.
        hint: String,
        /// All of them.
        known: String,
    },
    /// `--map` names one of several columns.
    #[error("--map: {count} columns are named \"{name}\"; write its number, like \"#3\"")]
    Several {
        /// As written.
        name: String,
        /// How many.
        count: usize,
    },
    /// Nothing is an address.
    #[error(
        "no column looks like an e-mail address; say which one is with --map 'COLUMN=email'; columns are {known}"
    )]
    NoEmail {
        /// All of them.
        known: String,
    },
    /// The mapping cannot be compiled.
    #[error(transparent)]
    Mapping(#[from] mapping::MappingError),
}

/// Why a line is no lead, and where.
pub(super) struct Fault {
    pub column: String,
    pub word: &'static str,
    pub sentence: String,
}

/// The columns of a file and what they fill.
pub(super) struct Columns {
    pub all: Vec<Column>,
    mapping: Mapping,
    /// One member per column, in their order.
    record: Value,
}

impl Columns {
    /// Decides about each column. `rows` are the first records, decoded.
    pub fn decide(
        header: &[String],
        rows: &[Vec<String>],
        chosen: &[(String, Option<Target>)],
        configured: &BTreeMap<String, FieldRule>,
    ) -> Result<Columns, ColumnsError> {
        let mut all = plain(header, rows);
        let mut lines: Vec<Written> = Vec::new();
        let mut decided = vec![false; all.len()];
        for (name, target) in chosen {
            let at = find(&all, name)?;
            (decided[at], all[at].how) = (true, How::Chosen);
            if let Some(target) = target {
                fill(&mut all[at], target, &mut lines);
            }
        }
        let by_hand: BTreeSet<String> = lines.iter().map(|line| line.target.clone()).collect();
        for (target, rule) in configured.iter().filter(|(target, _)| !by_hand.contains(*target)) {
            let written = sources::written(target, rule);
            let read = read_by(&all, &written)?;
            if read.is_empty() && written.value.is_none() {
                // Its paths are of what the source sends by itself.
                continue;
            }
            for at in read {
                (decided[at], all[at].how) = (true, How::Configured);
                all[at].fills.push(target.clone());
                if target == "occurred_at" && written.via.is_none() {
                    all[at].kind = Kind::Time;
                }
            }
            lines.push(written);
        }
        let taken: BTreeSet<String> = lines.iter().map(|line| line.target.clone()).collect();
        let guessed = guess(&all, rows, &decided, &taken);
        for (at, target) in guessed {
            fill(&mut all[at], &target, &mut lines);
        }
        if !lines.iter().any(|line| line.target == "email") {
            return Err(ColumnsError::NoEmail { known: known(&all) });
        }
        let mapping = Mapping::compile(&[], &lines)?;
        let record: Map<String, Value> =
            all.iter().map(|column| (column.key.clone(), Value::Null)).collect();
        Ok(Columns { all, mapping, record: Value::Object(record) })
    }

    /// Columns with the time of the event.
    pub fn times(&self) -> impl Iterator<Item = usize> {
        self.all.iter().enumerate().filter(|(_, c)| c.kind == Kind::Time).map(|(at, _)| at)
    }

    /// Whether any column fills this target.
    pub fn fill(&self, target: &str) -> bool {
        self.all.iter().any(|column| column.fills.iter().any(|fills| fills == target))
    }

    /// Whether somebody needs to know what is in the column.
    pub fn is_read(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|column| !column.fills.is_empty())
    }

    /// What one record says about one lead, and the texts that could not be used by their targets.
    pub fn lead(
        &mut self,
        fields: &[Cow<'_, str>],
        times: &Times,
        settings: &mapping::Settings<'_>,
    ) -> Result<(crate::lead::LeadPatch, BTreeMap<String, String>), Fault> {
        if let Value::Object(record) = &mut self.record {
            let slots = record.iter_mut().map(|(_, value)| value);
            for ((column, slot), field) in self.all.iter().zip(slots).zip(fields) {
                *slot = match column.kind {
                    _ if column.fills.is_empty() || text::is_blank(field) => Value::Null,
                    Kind::Text => Value::from(field.as_ref()),
                    Kind::List => field.split([',', ';', '|']).map(Value::from).collect(),
                    Kind::Time => Value::from(time(column, field, times)?),
                };
            }
        }
        let document = Document { part: &self.record, body: &self.record, headers: &[] };
        let mapped = self.mapping.apply(&document, settings);
        if let Some(error) = mapped.errors.get("occurred_at") {
            return Err(self.fault("occurred_at", error.code(), error.to_string()));
        }
        let unusable = mapped
            .errors
            .keys()
            .filter_map(|target| Some((target.clone(), self.text_of(target, fields)?)))
            .collect();
        match mapped.lead {
            Ok(patch) => Ok((patch, unusable)),
            Err(mapping::NoLead::NoEmail) => {
                Err(self.fault("email", "no_email", "there is no e-mail address".to_owned()))
            }
            Err(none) => Err(self.fault("email", none.reason(), none.to_string())),
        }
    }

    /// The column that fills a target first.
    pub fn of_target(&self, target: &str) -> Option<&Column> {
        self.all.iter().find(|column| column.fills.iter().any(|fills| fills == target))
    }

    fn fault(&self, target: &str, word: &'static str, sentence: String) -> Fault {
        let column = self.of_target(target).map(|column| column.name.clone());
        Fault { column: column.unwrap_or_default(), word, sentence }
    }

    /// The text that a target could not use, cut to what is enough to see that again. Only of plain columns:
    /// what a conversion refuses says nothing without it.
    fn text_of(&self, target: &str, fields: &[Cow<'_, str>]) -> Option<String> {
        let longest = Target::parse(target)?.max_bytes().saturating_mul(8).saturating_add(4);
        let filling = |column: &Column| {
            column.kind == Kind::Text
                && column.how != How::Configured
                && column.fills.iter().any(|fills| fills == target)
        };
        let mut texts = self.all.iter().zip(fields).filter(|(column, _)| filling(column));
        let (_, found) = texts.find(|(_, field)| !text::is_blank(field))?;
        let end = (0..=longest.min(found.len())).rev().find(|at| found.is_char_boundary(*at))?;
        found.get(..end).map(str::to_owned)
    }
}

fn time(column: &Column, field: &str, times: &Times) -> Result<String, Fault> {
    let read = times.read(field).and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
    read.map(|at| at.to_string()).ok_or_else(|| Fault {
        column: column.name.clone(),
        word: "invalid_time",
        sentence: "not a time in a form that is understood".to_owned(),
    })
}

/// Columns that nothing has been decided about.
fn plain(header: &[String], rows: &[Vec<String>]) -> Vec<Column> {
    let mut keys = BTreeSet::new();
    let column = |(at, name): (usize, &String)| {
        let shown = text::single_line(name).unwrap_or_else(|| format!("#{}", at + 1));
        let mut key = shown.clone();
        while !keys.insert(key.clone()) {
            key = format!("{shown} #{}", at + 1);
        }
        Column {
            name: shown,
            fills: Vec::new(),
            how: How::Guessed,
            samples: samples(rows, at),
            key,
            kind: Kind::Text,
        }
    };
    header.iter().enumerate().map(column).collect()
}

fn values(rows: &[Vec<String>], at: usize) -> impl Iterator<Item = &str> {
    rows.iter()
        .filter_map(move |row| row.get(at))
        .map(String::as_str)
        .filter(|v| !text::is_blank(v))
}

fn samples(rows: &[Vec<String>], at: usize) -> Vec<String> {
    let mut samples: Vec<String> = Vec::new();
    for value in values(rows, at) {
        if samples.len() < SAMPLES && !samples.iter().any(|sample| sample == value) {
            samples.push(value.to_owned());
        }
    }
    samples
}

fn known(all: &[Column]) -> String {
    all.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The column that somebody means: by its name, letter case ignored where it must be, or its number.
fn find(all: &[Column], name: &str) -> Result<usize, ColumnsError> {
    let number = name.strip_prefix('#').and_then(|number| number.parse::<usize>().ok());
    if let Some(at) = number.and_then(|n| n.checked_sub(1)).filter(|at| *at < all.len()) {
        return Ok(at);
    }
    let wanted = name.trim();
    let those = |same: &dyn Fn(&str) -> bool| -> Vec<usize> {
        all.iter().enumerate().filter(|(_, c)| same(&c.name)).map(|(at, _)| at).collect()
    };
    let mut found = those(&|name| name == wanted);
    if found.is_empty() {
        found = those(&|name| name.to_lowercase() == wanted.to_lowercase());
    }
    match found.as_slice() {
        [one] => Ok(*one),
        [] => {
            let nearest = mapping::nearest_name(wanted, all.iter().map(|c| c.name.as_str()));
            let hint = nearest.map(|near| format!("; did you mean \"{near}\"?"));
            Err(ColumnsError::NoColumn {
                name: wanted.to_owned(),
                hint: hint.unwrap_or_default(),
                known: known(all),
            })
        }
        several => Err(ColumnsError::Several { name: wanted.to_owned(), count: several.len() }),
    }
}

/// Adds the column to the line of the target.
fn fill(column: &mut Column, target: &Target, lines: &mut Vec<Written>) {
    let name = target.name();
    column.kind = match target {
        Target::OccurredAt => Kind::Time,
        Target::Tags | Target::Clear => Kind::List,
        _ => Kind::Text,
    };
    let path = format!("$['{}']", column.key.replace('\\', "\\\\").replace('\'', "\\'"));
    match lines.iter_mut().find(|line| line.target == name) {
        Some(line) => line.from.push(path),
        None => {
            lines.push(Written { target: name.clone(), from: vec![path], ..Written::default() })
        }
    }
    column.fills.push(name);
}

/// The columns that a line of `[source.fields]` reads: a record in which every value is the number of its
/// column shows which ones its paths find.
fn read_by(all: &[Column], written: &Written) -> Result<Vec<usize>, ColumnsError> {
    let numbers: Map<String, Value> =
        all.iter().enumerate().map(|(at, c)| (c.key.clone(), Value::from(at))).collect();
    let numbers = Value::Object(numbers);
    let mut found = Vec::new();
    for path in written.from.iter().filter(|path| !path.starts_with("$['@")) {
        let path = mapping::compile_json_path(&written.target, path)?;
        let columns = path.query(&numbers).all().into_iter().filter_map(Value::as_u64);
        found.extend(columns.filter_map(|at| usize::try_from(at).ok()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
