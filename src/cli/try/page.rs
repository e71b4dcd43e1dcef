//! The report of `leadsync try` for people.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use super::report::{PartReport, Report, TargetReport, Unmapped};
use crate::error::Printable;

/// Longest value shown, in characters.
const LONGEST: usize = 60;
/// Most values without a path that are listed.
const MOST_UNMAPPED: usize = 40;

pub(super) fn print(report: &Report) -> io::Result<()> {
    for (at, part) in report.parts.iter().enumerate() {
        say!()?;
        part_heading(part, at + 1, report.parts.len())?;
        for target in part.targets.iter().filter(|target| target.from.is_some()) {
            with_value(target)?;
        }
        if let Some(time) = &part.time {
            say!("  time: {}", time.meaning)?;
        }
        if part.lead.get("marketing_consent_proven") == Some(&Value::Bool(true)) {
            say!("  consent: with proof (double_opt_in)")?;
        }
        for (name, error) in &part.field_errors {
            say!("  not usable, left out: {}: {error}", Printable(name))?;
        }
        let empty: Vec<_> = part.targets.iter().filter(|target| target.from.is_none()).collect();
        if !empty.is_empty() {
            say!("  without a value:")?;
            for target in empty {
                say!("    {}", Printable(&target.target))?;
                others(target)?;
            }
        }
        unmapped("  no path looks at:", &part.unmapped)?;
    }
    if !report.unmapped.is_empty() {
        say!()?;
        unmapped("around the leads no path looks at:", &report.unmapped)?;
    }
    Ok(())
}

fn part_heading(part: &PartReport, number: usize, of: usize) -> io::Result<()> {
    let number = if of == 1 { String::new() } else { format!("{number} of {of}: ") };
    let reason = part.reason.as_deref().unwrap_or_default();
    match (part.outcome, &part.detail) {
        ("lead", _) => say!("{number}lead"),
        (outcome, None) => say!("{number}{outcome}: {reason}"),
        (outcome, Some(detail)) => say!("{number}{outcome}: {reason} ({})", Printable(detail)),
    }
}

/// A target with what was found for it; a part that is rejected gets no values.
fn with_value(target: &TargetReport) -> io::Result<()> {
    let found = target.found.as_deref().map(Value::from);
    if let Some(shown) = target.value.as_ref().or(found.as_ref()) {
        say!("  {} = {}", Printable(&target.target), Printable(short(shown)))?;
    }
    if let Some(from) = &target.from {
        let via = target.via.map(|via| format!(" via {via}")).unwrap_or_default();
        // The text as it stood there, where the value is another.
        let other = found.filter(|found| target.value.as_ref().is_some_and(|v| v != found));
        let found = other.map(|found| format!(": {}", short(&found))).unwrap_or_default();
        say!("      {}", Printable(format_args!("{from}{via}{found}")))?;
    }
    others(target)
}

/// The other paths, those of one fate on one line.
fn others(target: &TargetReport) -> io::Result<()> {
    let mut by_fate: BTreeMap<(usize, &str), Vec<String>> = BTreeMap::new();
    for other in &target.others {
        let via = other.via.map(|via| format!(" via {via}")).unwrap_or_default();
        let found = other.found.as_deref();
        let found = found.map(|found| format!(" {}", short(&found.into()))).unwrap_or_default();
        let first = target.others.iter().position(|o| o.meaning == other.meaning).unwrap_or(0);
        let paths = by_fate.entry((first, &other.meaning)).or_default();
        paths.push(format!("{}{via}{found}", other.path));
    }
    for ((_, meaning), paths) in by_fate {
        say!("      - {}: {meaning}", Printable(paths.join(", ")))?;
    }
    Ok(())
}

fn unmapped(heading: &str, leaves: &[Unmapped]) -> io::Result<()> {
    if leaves.is_empty() {
        return Ok(());
    }
    say!("{heading}")?;
    for leaf in leaves.iter().take(MOST_UNMAPPED) {
        say!("    {} = {}", Printable(&leaf.path), Printable(short(&leaf.value)))?;
    }
    if leaves.len() > MOST_UNMAPPED {
        say!("    and {} more, see --json", leaves.len() - MOST_UNMAPPED)?;
    }
    Ok(())
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
