//! `leadsync import`

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use encoding_rs::Encoding;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use tokio::sync::watch;

use super::{Failure, Global, migrated, note};
use crate::app::{self, Database};
use crate::config::{Config, FieldRule, Untimed};
use crate::error::Exit;
use crate::import::{self, Done, Failed, Options, Order, Progress, Run, Survey};
use crate::lead::Micros;
use crate::mapping::{self, Target};
use crate::receive::lines::IMPORT_SOURCE;
use crate::receive::{DEFAULT_TRUST, untimed};
use crate::sources::{ConfiguredSource, LineReader};
use crate::stop::{self, Stop};

mod page;

/// Import leads from a CSV or NDJSON file, through the same merge as everything else
///
/// First shows which column fills what, and asks, if somebody is there to answer. A line that is no lead is
/// refused with its reason and stops nothing. Repeatable: what an earlier import stored is passed over, so
/// one that was cut short goes on where it was when it is run again. Ends with 1 if lines were refused or the
/// file was not read to its end.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync import contacts.csv --dry-run\n  \
    leadsync import contacts.csv --map 'Celular 2=-' --map 'Ramo=attributes.industry'\n  \
    leadsync import contacts.csv --occurred-at 2026-11-01 --yes --json\n  \
    leadsync import export.csv --source old-crm --day-first --time-zone America/Sao_Paulo\n  \
    leadsync import leads.ndjson")]
pub(super) struct Import {
    /// The file; NDJSON has one lead per line as POST /v1/leads takes it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The source that the leads are of: its trust, its `untimed`, its [source.fields] by column name
    #[arg(long, value_name = "NAME", default_value = IMPORT_SOURCE)]
    source: String,
    /// What a column fills: a field, attributes.NAME, or - for nothing. The column by its name, or #3
    #[arg(long, value_name = "COLUMN=FIELD", value_parser = column)]
    map: Vec<(String, Option<Target>)>,
    /// When the lines without a time of their own were true, like the day the file was made (RFC 3339, or a
    /// day); of two lines about one person the later one counts
    #[arg(long, value_name = "TIME")]
    occurred_at: Option<String>,
    /// Dates are like 31/12/2026 [default: decided by all lines of the file]
    #[arg(long, conflicts_with = "month_first")]
    day_first: bool,
    /// Dates are like 12/31/2026
    #[arg(long)]
    month_first: bool,
    /// Time zone of times that name none
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    time_zone: TimeZone,
    /// csv or ndjson [default: by the file's name, else by its first byte]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Encoding, like utf-8, utf-16le, windows-1252 [default: told by what is in the file]
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    encoding: Option<&'static Encoding>,
    /// What separates the fields: a character, or tab [default: told by what is in the file]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// The first line is a lead; columns are named 1, 2, 3 ...
    #[arg(long)]
    no_header: bool,
    /// Where refused lines go [default: FILE.refused.csv]
    #[arg(long, value_name = "PATH")]
    refused: Option<PathBuf>,
    /// Also what an earlier import stored goes through the merge, which changes nothing unless leads are gone
    #[arg(long)]
    again: bool,
    /// Show and count only; write nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Csv,
    Ndjson,
}

fn column(text: &str) -> Result<(String, Option<Target>), String> {
    let (column, field) = text.rsplit_once('=').ok_or("write it like 'COLUMN=FIELD'")?;
    let field = field.trim();
    if field == "-" {
        return Ok((column.to_owned(), None));
    }
    match Target::parse(field) {
        Some(Target::Attributes) => Err("write attributes.NAME".to_owned()),
        Some(target) => Ok((column.to_owned(), Some(target))),
        None => {
            let nearest = mapping::nearest_name(field, Target::NAMES);
            let hint = nearest.map(|near| format!("; did you mean \"{near}\"?"));
            Err(format!("there is no field \"{field}\"{}", hint.unwrap_or_default()))
        }
    }
}

fn zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|_| "not a time zone; write it like America/Sao_Paulo".to_owned())
}

fn encoding(text: &str) -> Result<&'static Encoding, String> {
    Encoding::for_label(text.as_bytes())
        .ok_or_else(|| "not an encoding of the web; write it like windows-1252".to_owned())
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "tab" | "\\t" => Ok(b'\t'),
        text => match text.as_bytes() {
            [byte] if byte.is_ascii_punctuation() && *byte != b'"' || text == "\t" => Ok(*byte),
            _ => Err("one of , ; | tab, or another sign".to_owned()),
        },
    }
}

/// The source that leads of a file are of.
struct Source {
    reader: LineReader,
    fields: BTreeMap<String, FieldRule>,
    trust: u8,
    untimed: Untimed,
}

impl Import {
    pub(super) async fn run(mut self, global: &Global) -> Result<Exit, Failure> {
        let config = global.load(Vec::new())?;
        let source = self.source(&config)?;
        let options = self.options()?;
        let (file, fields) = (self.file.clone(), source.fields.clone());
        let survey = tokio::task::spawn_blocking(move || Survey::of(&file, &options, &fields));
        let survey =
            survey.await.map_err(|_| Failure::Words("looking at it panicked".into()))??;
        let plan = page::Plan::of(&survey, &self.source, source.trust, self.when(&source, &survey));
        if self.dry_run {
            return self.check(survey, source, &plan).await;
        }
        // An import asked for is wanted, if nobody can be asked.
        let asks = !self.yes && std::io::stdin().is_terminal();
        if !self.json || asks {
            plan.show(&mut std::io::stderr().lock())?;
        }
        if asks && !answered_yes()? {
            return Err(Failure::Words("nothing was imported".to_owned()));
        }
        let database = migrated(&config).await?;
        let imported = self.store(&config, &database, survey, source).await;
        database.close().await;
        let (done, seconds) = imported?;
        let summary = page::Summary::of(&self.file, &self.source, &done, seconds);
        summary.tell(&done)?;
        match self.json {
            true => summary.print_json()?,
            false => summary.print()?,
        }
        Ok(match done.failed {
            Some(Failed::Store(_)) => Exit::Database,
            None if summary.is_all_taken() => Exit::Ok,
            _ => Exit::Failed,
        })
    }

    fn source(&self, config: &Config) -> Result<Source, Failure> {
        let found = config.sources.iter().find(|source| source.name == self.source);
        if let Some(source) = found {
            let compiled = ConfiguredSource::compile(source, &config.leads);
            let compiled = compiled.map_err(app::AppError::from)?;
            return Ok(Source {
                reader: compiled.line_reader(),
                fields: source.fields.clone(),
                trust: compiled.trust,
                untimed: compiled.untimed,
            });
        }
        if self.source != IMPORT_SOURCE {
            let names = config.sources.iter().map(|source| source.name.as_str());
            let known: Vec<&str> = names.chain([IMPORT_SOURCE]).collect();
            return Err(super::not_configured("source", &self.source, &known));
        }
        Ok(Source {
            reader: LineReader::unconfigured(IMPORT_SOURCE, &config.leads),
            fields: BTreeMap::new(),
            trust: DEFAULT_TRUST,
            untimed: untimed(IMPORT_SOURCE),
        })
    }

    fn options(&mut self) -> Result<Options, Failure> {
        let occurred_at = self.occurred_at.as_deref().map(|text| self.time(text)).transpose()?;
        let refused = self.refused.take().unwrap_or_else(|| {
            let mut name = OsString::from(self.file.as_os_str());
            name.push(".refused.csv");
            name.into()
        });
        Ok(Options {
            ndjson: self.format.map(|format| matches!(format, Format::Ndjson)),
            encoding: self.encoding,
            delimiter: self.delimiter,
            header: !self.no_header,
            map: std::mem::take(&mut self.map),
            order: match (self.day_first, self.month_first) {
                (true, _) => Some(Order::DayFirst),
                (_, true) => Some(Order::MonthFirst),
                _ => None,
            },
            zone: self.time_zone.clone(),
            occurred_at,
            refused,
        })
    }

    fn time(&self, text: &str) -> Result<Micros, Failure> {
        let timestamp = mapping::time::rfc3339(text);
        let day = || {
            let date: jiff::civil::Date = text.trim().parse().ok()?;
            let midnight = date.to_datetime(jiff::civil::Time::midnight());
            Some(self.time_zone.to_timestamp(midnight).ok()?.as_microsecond())
        };
        timestamp.or_else(day).ok_or_else(|| {
            let what =
                "--occurred-at: not a time; write it like 2026-11-01T09:00:00Z or 2026-11-01";
            Failure::Usage(what.to_owned())
        })
    }

    /// What the lines without a time count with, in words.
    fn when(&self, source: &Source, survey: &Survey) -> String {
        let without = match survey.fills("occurred_at") {
            true => "lines without one",
            false if survey.delimiter().is_none() => "leads without occurred_at",
            false => "no column has the time of a lead, so they",
        };
        if let Some(at) = &self.occurred_at {
            let lines = if survey.fills("occurred_at") { without } else { "lines" };
            return format!("{lines} count with {at}, later lines as later ones");
        }
        match source.untimed {
            Untimed::FillOnly => format!(
                "{without} fill blanks and replace nothing; to change that, say with --occurred-at when the file was made"
            ),
            Untimed::FirstReceipt => format!(
                "{without} count as of their first import and replace what is older; say with --occurred-at when the file was made"
            ),
            Untimed::LastArrival => {
                format!(
                    "{without} count as of now, at every import again (untimed = \"last_arrival\")"
                )
            }
        }
    }

    async fn check(
        self,
        survey: Survey,
        source: Source,
        plan: &page::Plan,
    ) -> Result<Exit, Failure> {
        let stop = stop::on_signals()?;
        if !self.json {
            plan.show(&mut std::io::stdout().lock()).or_else(page::closed_is_fine)?;
        }
        let read = import::check(survey, source.reader, stop).await?;
        let all_taken = read.complete && read.refused.lines() == 0;
        page::print_check(&self.file, &self.source, plan, &read, self.json)?;
        Ok(if all_taken { Exit::Ok } else { Exit::Failed })
    }

    async fn store(
        &self,
        config: &Config,
        database: &Database,
        survey: Survey,
        source: Source,
    ) -> Result<(Done, Duration), Failure> {
        let stop = stop::on_signals()?;
        let (changed, _) = watch::channel(0);
        let counting = Stop::new();
        let receiver =
            app::receiver(config, database.store.clone(), changed, counting.clone()).await?;
        let bar = bar(survey.size());
        let began = Instant::now();
        let told = |progress: Progress| {
            bar.set_position(progress.bytes);
            let rate = progress.leads as f64 / began.elapsed().as_secs_f64().max(0.001);
            let message =
                format!("{} leads, {}/s", HumanCount(progress.leads), HumanCount(rate as u64));
            bar.set_message(message);
        };
        let run = Run {
            receiver: &receiver,
            reader: source.reader,
            source: self.source.clone(),
            again: self.again,
            stop,
        };
        let done = import::run(survey, run, told).await;
        bar.finish_and_clear();
        receiver.flush_counts().await;
        counting.cancel();
        Ok((done?, began.elapsed()))
    }
}

fn answered_yes() -> std::io::Result<bool> {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "Import this? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "s" | "sim" | "j" | "ja"))
}

fn bar(bytes: u64) -> ProgressBar {
    let template = "importing {wide_bar} {percent}%  {msg}  {eta} left";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(bytes).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
