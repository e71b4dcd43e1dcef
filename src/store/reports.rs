//! Ready reports: statements over the views of schema `analytics`, with parameters.
//!
//! A report is a file under `sql/reports/`. Its comment is its help: what it shows, then one line per parameter,
//! `-- name (integer, 30): what it is`, where the default is a value, `optional` (an empty text) or absent (the caller
//! must say it). In the statement a parameter is `:'name'`, as psql writes variables, so the files also run there.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};

use super::{Store, StoreError};

const SETTINGS: &str = include_str!("../../sql/schema/report.sql");

/// A ready report.
#[derive(Debug)]
pub struct Report {
    /// What it is called.
    pub name: &'static str,
    sql: &'static str,
}

/// All of them, by name.
pub const REPORTS: &[Report] = &[
    Report { name: "attribution", sql: include_str!("../../sql/reports/attribution.sql") },
    Report { name: "backlog", sql: include_str!("../../sql/reports/backlog.sql") },
    Report { name: "campaigns", sql: include_str!("../../sql/reports/campaigns.sql") },
    Report { name: "changes", sql: include_str!("../../sql/reports/changes.sql") },
    Report { name: "companies", sql: include_str!("../../sql/reports/companies.sql") },
    Report { name: "consent", sql: include_str!("../../sql/reports/consent.sql") },
    Report { name: "contacts", sql: include_str!("../../sql/reports/contacts.sql") },
    Report { name: "countries", sql: include_str!("../../sql/reports/countries.sql") },
    Report { name: "duplicates", sql: include_str!("../../sql/reports/duplicates.sql") },
    Report { name: "failures", sql: include_str!("../../sql/reports/failures.sql") },
    Report { name: "field-changes", sql: include_str!("../../sql/reports/field-changes.sql") },
    Report { name: "funnel", sql: include_str!("../../sql/reports/funnel.sql") },
    Report { name: "growth", sql: include_str!("../../sql/reports/growth.sql") },
    Report { name: "invalid-values", sql: include_str!("../../sql/reports/invalid-values.sql") },
    Report { name: "lag", sql: include_str!("../../sql/reports/lag.sql") },
    Report { name: "lead", sql: include_str!("../../sql/reports/lead.sql") },
    Report { name: "new-leads", sql: include_str!("../../sql/reports/new-leads.sql") },
    Report { name: "parked", sql: include_str!("../../sql/reports/parked.sql") },
    Report { name: "quality", sql: include_str!("../../sql/reports/quality.sql") },
    Report { name: "recent", sql: include_str!("../../sql/reports/recent.sql") },
    Report { name: "rejected", sql: include_str!("../../sql/reports/rejected.sql") },
    Report { name: "repeats", sql: include_str!("../../sql/reports/repeats.sql") },
    Report { name: "sources", sql: include_str!("../../sql/reports/sources.sql") },
    Report { name: "stage-moves", sql: include_str!("../../sql/reports/stage-moves.sql") },
    Report { name: "sync", sql: include_str!("../../sql/reports/sync.sql") },
    Report { name: "timeline", sql: include_str!("../../sql/reports/timeline.sql") },
    Report { name: "touches", sql: include_str!("../../sql/reports/touches.sql") },
    Report { name: "traffic", sql: include_str!("../../sql/reports/traffic.sql") },
    Report { name: "unsynced", sql: include_str!("../../sql/reports/unsynced.sql") },
    Report { name: "waiting", sql: include_str!("../../sql/reports/waiting.sql") },
];

/// What a report asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// `days` in `--param days=7`.
    pub name: &'static str,
    /// A whole number; otherwise text.
    pub integer: bool,
    /// What it is where nobody says it; `None`: somebody has to.
    pub default: Option<&'static str>,
    /// What it is for.
    pub about: &'static str,
}

/// Which schema a report reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// `analytics`.
    Clear,
    /// `analytics_masked`: personal values are masked.
    Masked,
}

/// How the values of a column are best shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// JSON: objects and lists.
    Json,
    /// Everything else.
    Text,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// What is in it.
    pub kind: ColumnKind,
}

/// The result of a report: every value as text, null as `None`. Times are RFC 3339 in UTC, lists are JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// One value per column.
    pub rows: Vec<Vec<Option<String>>>,
}

/// Why values given to a report cannot be used. The message names the parameter and says what to write.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// There is no such parameter.
    #[error("report {report} has no parameter {name:?}; it has: {known}")]
    Unknown {
        /// The report.
        report: &'static str,
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// It has no default.
    #[error("report {report} needs --param {name}=…: {about}")]
    Missing {
        /// The report.
        report: &'static str,
        /// The parameter.
        name: &'static str,
        /// What it is for.
        about: &'static str,
    },
    /// Not a whole number from 0 to 1,000,000.
    #[error("--param {name}: must be a whole number from 0 to 1000000")]
    NotANumber {
        /// The parameter.
        name: &'static str,
    },
    /// PostgreSQL's texts have none.
    #[error("--param {name}: holds a NUL character")]
    Nul {
        /// The parameter.
        name: &'static str,
    },
}

impl Report {
    /// The report of that name.
    pub fn find(name: &str) -> Option<&'static Report> {
        REPORTS.iter().find(|report| report.name == name)
    }

    /// What it shows: the comment before the parameters.
    pub fn title(&self) -> String {
        let lines = self.comment().take_while(|line| parameter(line).is_none());
        lines.collect::<Vec<_>>().join(" ")
    }

    /// What it asks for, in the order of its file.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.comment().filter_map(parameter).collect()
    }

    fn comment(&self) -> impl Iterator<Item = &'static str> {
        self.sql.lines().map_while(|line| line.strip_prefix("-- "))
    }

    /// The statement as the server takes it: `:'name'` is `$1::text` and so on, in the order of the parameters.
    fn statement(&self) -> String {
        let named = self.parameters();
        let mut sql = self.sql.trim_end().trim_end_matches(';').to_owned();
        for (at, parameter) in named.iter().enumerate() {
            sql = sql.replace(&format!(":'{}'", parameter.name), &format!("${}::text", at + 1));
        }
        sql
    }

    /// The statement with these arguments (see [`Report::arguments`]) written into it, as somebody would run it in psql.
    pub fn written_out(&self, arguments: &[String]) -> String {
        let mut sql = self.sql.trim_end().trim_end_matches(';').to_owned();
        for (parameter, value) in self.parameters().iter().zip(arguments) {
            let literal = format!("'{}'", value.replace('\'', "''"));
            sql = sql.replace(&format!(":'{}'", parameter.name), &literal);
        }
        sql
    }

    /// One value per parameter: what is given, else the default.
    ///
    /// # Errors
    ///
    /// A name that there is not, a number that is none, or nothing for a parameter without a default.
    pub fn arguments(
        &self,
        given: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ParameterError> {
        let parameters = self.parameters();
        if let Some(name) = given.keys().find(|name| parameters.iter().all(|p| p.name != **name)) {
            let known: Vec<&str> = parameters.iter().map(|p| p.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(ParameterError::Unknown { report: self.name, name: name.clone(), known });
        }
        let value = |parameter: &Parameter| {
            let Parameter { name, about, .. } = *parameter;
            let value = given.get(name).map(String::as_str).or(parameter.default);
            let value = value.ok_or(ParameterError::Missing { report: self.name, name, about })?;
            // So far back that no clock has it, and not further than a date can be counted.
            if parameter.integer && !value.parse::<u32>().is_ok_and(|number| number <= 1_000_000) {
                return Err(ParameterError::NotANumber { name });
            }
            match value.contains('\0') {
                true => Err(ParameterError::Nul { name }),
                false => Ok(value.to_owned()),
            }
        };
        parameters.iter().map(value).collect()
    }
}

/// `days (integer, 30): how many days back`
fn parameter(line: &'static str) -> Option<Parameter> {
    let (head, about) = line.split_once("): ")?;
    let (name, kind) = head.split_once(" (")?;
    if !name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_') {
        return None;
    }
    let (kind, default) = match kind.split_once(", ") {
        Some((kind, "optional")) => (kind, Some("")),
        Some((kind, default)) => (kind, Some(default)),
        None => (kind, None),
    };
    let integer = match kind {
        "integer" => true,
        "text" => false,
        _ => return None,
    };
    Some(Parameter { name, integer, default, about })
}

fn kind(of: &Type) -> ColumnKind {
    match *of {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC => {
            ColumnKind::Number
        }
        Type::BOOL => ColumnKind::Boolean,
        Type::JSON | Type::JSONB => ColumnKind::Json,
        ref other if matches!(other.kind(), tokio_postgres::types::Kind::Array(_)) => {
            ColumnKind::Json
        }
        _ => ColumnKind::Text,
    }
}

impl Store {
    /// Runs a report with these arguments (see [`Report::arguments`]), reading only, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`StoreError::TimedOut`] when it takes longer, and what else a statement can meet.
    pub async fn report(
        &self,
        report: &Report,
        arguments: &[String],
        values: Values,
        timeout: Duration,
    ) -> Result<Rows, StoreError> {
        let mut client = self.receive().await?;
        // Its end, also by an error, takes the settings back.
        let transaction = client.build_transaction().read_only(true).start().await?;
        let schema = match values {
            Values::Clear => "analytics",
            Values::Masked => "analytics_masked",
        };
        let limit = timeout.as_millis().to_string();
        transaction.query_one(SETTINGS, &[&limit, &schema]).await?;
        let sql = report.statement();
        let prepared = transaction.prepare(&sql).await?;
        let column = |column: &tokio_postgres::Column| Column {
            name: column.name().to_owned(),
            kind: kind(column.type_()),
        };
        let columns: Vec<Column> = prepared.columns().iter().map(column).collect();
        // Through JSON every type has a text that people and programs know.
        let as_text = format!(
            "select array(select v.value from json_each_text(row_to_json(r)) as v) as row from ({sql}\n) as r"
        );
        let parameters: Vec<&(dyn ToSql + Sync)> =
            arguments.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let found = transaction.query(&as_text, &parameters).await?;
        let rows =
            found.iter().map(|row| Ok(row.try_get("row")?)).collect::<Result<_, StoreError>>();
        Ok(Rows { columns, rows: rows? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_what_they_are_and_ask_for() {
        assert!(REPORTS.len() >= 20);
        assert!(REPORTS.is_sorted_by(|a, b| a.name < b.name));
        for report in REPORTS {
            let Report { name, sql } = report;
            assert!(report.title().ends_with('.'), "{name}: {}", report.title());
            let comment = report.comment().count();
            let title = report.comment().take_while(|line| parameter(line).is_none()).count();
            let parameters = report.parameters();
            assert_eq!(title + parameters.len(), comment, "{name}: a parameter cannot be read");
            for parameter in &parameters {
                assert!(sql.contains(&format!(":'{}'", parameter.name)), "{name}: {parameter:?}");
            }
            assert!(!report.statement().contains(":'"), "{name}: a parameter is not explained");
            assert!(!sql.contains("analytics."), "{name}: the schema is chosen by the caller");
        }
    }

    #[test]
    fn arguments_are_checked_by_name_and_kind() {
        let report = Report::find("new-leads").expect("there");
        let given = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            report.arguments(&pairs.collect())
        };
        assert_eq!(given(&[]).expect("defaults"), ["30", ""]);
        assert_eq!(given(&[("source", "x"), ("days", "7")]).expect("both"), ["7", "x"]);
        for wrong in ["seven", "-1", "", "7 days", "1000001", "99999999999"] {
            assert_eq!(
                given(&[("days", wrong)]).unwrap_err(),
                ParameterError::NotANumber { name: "days" }
            );
        }
        let unknown = given(&[("day", "7")]).unwrap_err().to_string();
        assert!(unknown.contains("days, source"), "{unknown}");
        assert_eq!(
            given(&[("source", "a\0")]).unwrap_err(),
            ParameterError::Nul { name: "source" }
        );
        let lead = Report::find("lead").expect("there").arguments(&BTreeMap::new()).unwrap_err();
        assert!(lead.to_string().contains("--param lead="), "{lead}");
    }
}
