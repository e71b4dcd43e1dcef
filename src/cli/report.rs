//! `leadsync report`

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Failure, Global};
use crate::error::Exit;
use crate::store::StoreError;
use crate::store::reports::{self, REPORTS, Values};

mod render;

/// Run one of the ready reports; without a name, list them
///
/// Reports read the views of schema analytics, in a transaction that can only read. The statements are in sql/reports/
/// and run in psql, too: psql -v days=7 -f sql/reports/new-leads.sql
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync report\n  \
    leadsync report sources --param days=7\n  \
    leadsync report lead --param lead=ana@example.com\n  \
    leadsync report contacts --param tag=vip --format csv > contacts.csv")]
pub(super) struct Report {
    /// Which one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// A parameter of the report, once per parameter
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = pair, requires = "name")]
    params: Vec<(String, String)>,
    /// How to print it; csv has formulas of spreadsheets disarmed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// With personal values masked
    #[arg(long)]
    masked: bool,
    /// Longest time it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    timeout: u32,
}

/// `--format`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For spreadsheets
    Csv,
    /// For programs: a list of objects
    Json,
    /// For documents: Markdown
    Md,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, like days=7")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Report {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let Some(name) = &self.name else {
            list()?;
            return Ok(Exit::Ok);
        };
        let report = reports::Report::find(name).ok_or_else(|| unknown(name))?;
        let mut given = BTreeMap::new();
        for (name, value) in &self.params {
            if given.insert(name.clone(), value.clone()).is_some() {
                return Err(Failure::Usage(format!("--param {name} is given twice")));
            }
        }
        let arguments =
            report.arguments(&given).map_err(|error| Failure::Usage(error.to_string()))?;
        let values = if self.masked { Values::Masked } else { Values::Clear };
        let (_, database) = global.open().await?;
        let limit = Duration::from_secs(self.timeout.into());
        let found = database.store.report(report, &arguments, values, limit).await;
        database.close().await;
        let rows = found.map_err(|error| match error {
            StoreError::TimedOut(_) => Failure::Words(format!(
                "report {name} takes longer than {} s; ask for fewer days, or raise --timeout",
                self.timeout
            )),
            error => error.into(),
        })?;
        let text = match self.format {
            Format::Table => render::table(&rows),
            Format::Csv => render::csv(&rows)?,
            Format::Json => render::json(&rows)?,
            Format::Md => render::markdown(&rows),
        };
        print(text.as_bytes())?;
        Ok(Exit::Ok)
    }
}

/// As [`super::say`]: that nobody reads on is no failure.
fn print(text: &[u8]) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(text) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn list() -> std::io::Result<()> {
    for report in REPORTS {
        say!("{}", report.name)?;
        say!("    {}", report.title())?;
        for parameter in report.parameters() {
            let default = match parameter.default {
                None => "required".to_owned(),
                Some("") => "optional".to_owned(),
                Some(default) => default.to_owned(),
            };
            say!("    --param {}=…  {} [{default}]", parameter.name, parameter.about)?;
        }
    }
    Ok(())
}

fn unknown(name: &str) -> Failure {
    let near = |report: &&reports::Report| strsim::jaro_winkler(report.name, name);
    let nearest = REPORTS.iter().max_by(|a, b| near(a).total_cmp(&near(b)));
    let hint = nearest.filter(|report| near(report) > 0.7);
    let hint = hint.map_or(String::new(), |report| format!("; did you mean {}?", report.name));
    Failure::Usage(format!("there is no report {name:?}{hint}; `leadsync report` lists them"))
}
