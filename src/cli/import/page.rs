//! What `leadsync import` shows: the columns before, the counts after.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::HumanCount;
use serde::Serialize;
use serde_json::json;

use super::note;
use crate::error::{Chain, Printable};
use crate::import::{Column, Done, Fault, Faults, How, Order, Read, Survey};
use crate::lead::Outcome;

/// Longest name and value shown, in characters.
const LONGEST: usize = 28;

/// Most faults that are listed.
const MOST: usize = 20;

/// What would be imported how.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    format: &'static str,
    encoding: &'static str,
    delimiter: Option<char>,
    trust: u8,
    /// What lines without a time count with.
    without_time: String,
    /// `day` or `month`, where it was asked or told.
    first_in_dates: Option<&'static str>,
    columns: Vec<Column>,
    #[serde(skip)]
    heading: String,
}

impl Plan {
    pub fn of(survey: &Survey, source: &str, trust: u8, without_time: String) -> Plan {
        let delimiter = survey.delimiter();
        let separated = match delimiter {
            Some('\t') => ", separated by tabs".to_owned(),
            Some(delimiter) => format!(", separated by {delimiter}"),
            None => String::new(),
        };
        let format = if delimiter.is_some() { "csv" } else { "ndjson" };
        let heading = format!(
            "{}: {} in {}{separated}; source {source}, trust {trust}",
            survey.path().display(),
            format.to_uppercase(),
            survey.encoding(),
        );
        Plan {
            format,
            encoding: survey.encoding(),
            delimiter,
            trust,
            without_time,
            first_in_dates: survey.order_of_dates().map(|order| match order {
                Order::DayFirst => "day",
                Order::MonthFirst => "month",
            }),
            columns: survey.columns().to_vec(),
            heading,
        }
    }

    /// The table of columns.
    pub fn show(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", Printable(&self.heading))?;
        writeln!(out)?;
        let rows: Vec<[String; 3]> = self.columns.iter().map(row).collect();
        let width = |at: usize| {
            let widths = rows.iter().filter_map(|row| Some(row.get(at)?.chars().count()));
            widths.max().unwrap_or(0)
        };
        let (first, second) = (width(0), width(1));
        for [name, fills, samples] in &rows {
            writeln!(out, "  {name:<first$}  {fills:<second$}  {samples}")?;
        }
        if !rows.is_empty() {
            writeln!(out)?;
        }
        if let Some(first) = self.first_in_dates {
            writeln!(out, "  dates: the {first} comes first")?;
        }
        writeln!(out, "  times: {}", self.without_time)?;
        writeln!(out)
    }
}

fn row(column: &Column) -> [String; 3] {
    let how = match column.how {
        How::Guessed => "",
        How::Chosen => " (--map)",
        How::Configured => " ([source.fields])",
    };
    let fills = match column.fills.as_slice() {
        [] => "(nothing)".to_owned(),
        fills => format!("-> {}{how}", fills.join(", ")),
    };
    let samples: Vec<String> = column.samples.iter().map(|sample| short(sample)).collect();
    [short(&column.name), Printable(fills).to_string(), samples.join(" | ")]
}

/// On one line, and no longer than fits.
fn short(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    };
    Printable(text).to_string()
}

/// What an import did.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    file: String,
    source: String,
    /// Whether the file was read to its end and all of it stored.
    complete: bool,
    lines: u64,
    /// Leads stored by this import.
    taken: u64,
    created: u64,
    updated: u64,
    unchanged: u64,
    /// Leads that an earlier import stored.
    stored_before: u64,
    refused: u64,
    refused_file: Option<String>,
    refusals: Vec<Fault>,
    unusable_values: Vec<Fault>,
    /// Up to this line everything is stored.
    last_line: u64,
    seconds: f64,
}

impl Summary {
    pub fn of(file: &Path, source: &str, done: &Done, took: Duration) -> Summary {
        let Done { read, stored, failed } = done;
        let of = |outcome| stored.outcomes.get(&outcome).copied().unwrap_or(0);
        Summary {
            file: file.display().to_string(),
            source: source.to_owned(),
            complete: read.complete && failed.is_none(),
            lines: read.lines,
            taken: stored.outcomes.values().sum(),
            created: of(Outcome::Created),
            updated: of(Outcome::Updated),
            unchanged: of(Outcome::Unchanged),
            stored_before: stored.before,
            refused: read.refused.lines(),
            refused_file: read.refused_file.as_ref().map(|path| path.display().to_string()),
            refusals: read.refused.by_frequency(),
            unusable_values: read.unusable.by_frequency(),
            last_line: stored.line,
            seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
        }
    }

    /// Whether every line is a lead that is stored.
    pub fn is_all_taken(&self) -> bool {
        self.complete && self.refused == 0
    }

    /// On stderr: what went wrong, and how to go on.
    pub fn tell(&self, done: &Done) -> io::Result<()> {
        tell_faults(&done.read);
        if let Some(path) = &self.refused_file {
            note(format_args!(
                "refused lines are in {}; mend them and import that file",
                Printable(path)
            ));
        }
        if let Some(error) = &done.failed {
            note(format_args!("leadsync: the import ended early: {}", Chain(error)));
        } else if !self.complete {
            note(format_args!("leadsync: the import was stopped"));
        }
        if !self.complete {
            note(format_args!(
                "stored up to line {}; run the same command again to go on from there",
                self.last_line
            ));
        }
        Ok(())
    }

    pub fn print(&self) -> io::Result<()> {
        say!(
            "{} leads taken in {} s: {} created, {} updated, {} unchanged",
            HumanCount(self.taken),
            self.seconds,
            HumanCount(self.created),
            HumanCount(self.updated),
            HumanCount(self.unchanged)
        )?;
        if self.stored_before > 0 {
            say!(
                "{} leads were stored by an earlier import, passed over (--again takes them, too)",
                HumanCount(self.stored_before)
            )?;
        }
        if self.refused > 0 {
            say!("{} lines refused", HumanCount(self.refused))?;
        }
        Ok(())
    }

    pub fn print_json(&self) -> io::Result<()> {
        say!("{}", serde_json::to_string(self).map_err(io::Error::from)?)
    }
}

/// What a file would come to.
pub(super) fn print_check(
    file: &Path,
    source: &str,
    plan: &Plan,
    read: &Read,
    json: bool,
) -> io::Result<()> {
    if json {
        let summary = json!({
            "file": file.display().to_string(), "source": source, "dry_run": true, "complete": read.complete, "plan": plan,
            "lines": read.lines, "leads": read.leads, "refused": read.refused.lines(),
            "refusals": read.refused.by_frequency(), "unusable_values": read.unusable.by_frequency(),
        });
        return say!("{summary}");
    }
    tell_faults(read);
    let (leads, refused) = (HumanCount(read.leads), HumanCount(read.refused.lines()));
    say!("{leads} leads would be taken, {refused} lines refused; nothing was written")
}

fn tell_faults(read: &Read) {
    tell("refused", &read.refused);
    tell("value left out", &read.unusable);
}

fn tell(what: &str, faults: &Faults) {
    let faults = faults.by_frequency();
    for fault in faults.iter().take(MOST) {
        let column = match fault.column.as_str() {
            "" => String::new(),
            column => format!("{}: ", short(column)),
        };
        note(format_args!(
            "{what}: {column}{} ({} lines, the first is {})",
            Printable(&fault.sentence),
            HumanCount(fault.lines),
            fault.first_line
        ));
    }
    if faults.len() > MOST {
        note(format_args!("{what}: {} more faults, see --json", faults.len() - MOST));
    }
}

/// A reader who has seen enough is no failure.
pub(super) fn closed_is_fine(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}
