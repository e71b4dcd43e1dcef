//! Logs: one line per event to stderr, as text or JSON.
//!
//! Whatever others wrote (a CRM's answer, a header, a path) reaches a line with its control
//! characters escaped, so that it can neither begin a line of its own nor command a terminal.
//! Crates that log through `log` (refinery) are heard too, but for what they log of people's data.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal};

use tracing::field::{Field, Visit};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::{MakeVisitor, VisitFmt, VisitOutput};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{Log, LogFormat};
use crate::error::Escaping;

/// Overrides `log.level`.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// `log.level` or `RUST_LOG` is not a filter.
    #[error("{name} is not a log filter")]
    Filter {
        /// Which of the two.
        name: &'static str,
        /// What is wrong.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Set up already.
    #[error("logs are set up already")]
    Twice(#[from] TryInitError),
}

/// Sets up the process's logs; once.
pub fn init(log: &Log) -> Result<(), TelemetryError> {
    let named = std::env::var(FILTER_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let (name, text) = match &named {
        Some(text) => (FILTER_VARIABLE, text),
        None => ("log.level", &log.level),
    };
    let filter = EnvFilter::builder()
        .parse(text)
        .map_err(|source| TelemetryError::Filter { name, source })?;
    let no_colours = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = !no_colours && io::stderr().is_terminal();
    subscriber(log.format, filter, colours, io::stderr).try_init()?;
    Ok(())
}

fn subscriber<W>(
    format: LogFormat,
    filter: EnvFilter,
    colours: bool,
    writer: W,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // A log line that cannot be written is lost: to complain about it on the same stderr panics, in whatever task logged.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .log_internal_errors(false);
    let discreet = filter_fn(is_discreet);
    match format {
        LogFormat::Text => {
            Box::new(lines.with_ansi(colours).fmt_fields(Fields).finish().with(discreet))
        }
        // serde_json escapes control characters by itself.
        LogFormat::Json => {
            Box::new(lines.with_ansi(false).json().flatten_event(true).finish().with(discreet))
        }
    }
}

/// Crates that are heard only down to this level. Below it tokio-postgres logs the parameters of statements and
/// warp the segments of paths, which are people's data, and refinery what we say ourselves.
const INDISCREET: [(&str, Level); 3] =
    [("tokio_postgres", Level::INFO), ("warp", Level::DEBUG), ("refinery_core", Level::WARN)];

/// No filter lets that through.
fn is_discreet(metadata: &Metadata<'_>) -> bool {
    let hushed = |(name, level)| metadata.target().starts_with(name) && *metadata.level() > level;
    !INDISCREET.into_iter().any(hushed)
}

/// Writes the fields of events and spans as the crate's own formatter does, but escaped. (That one escapes
/// messages only, and not line ends.)
struct Fields;

impl<'w> MakeVisitor<Writer<'w>> for Fields {
    type Visitor = Line<'w>;

    fn make_visitor(&self, writer: Writer<'w>) -> Line<'w> {
        Line { writer, empty: true, result: Ok(()) }
    }
}

struct Line<'w> {
    writer: Writer<'w>,
    empty: bool,
    result: fmt::Result,
}

impl Line<'_> {
    fn write(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.empty) {
            self.writer.write_char(' ')?;
        }
        if name != "message" {
            let (on, off) =
                if self.writer.has_ansi_escapes() { ("\x1b[3m", "\x1b[0m") } else { ("", "") };
            let name = name.trim_start_matches("r#");
            write!(self.writer, "{on}{name}{off}=")?;
        }
        Escaping(&mut self.writer).write_fmt(value)
    }
}

impl Visit for Line<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.record_debug(field, &format_args!("{value}"));
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // What the `log` bridge adds is said by the line itself.
        if self.result.is_ok() && !field.name().starts_with("log.") {
            self.result = self.write(field.name(), format_args!("{value:?}"));
        }
    }
}

impl VisitOutput<fmt::Result> for Line<'_> {
    fn finish(self) -> fmt::Result {
        self.result
    }
}

impl VisitFmt for Line<'_> {
    fn writer(&mut self) -> &mut dyn fmt::Write {
        &mut self.writer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{info, info_span, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What a piece of code logs.
    fn logged(format: LogFormat, filter: &str, colours: bool, run: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = subscriber(format, filter.into(), colours, move || writer.clone());
        tracing::subscriber::with_default(subscriber, run);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    const HOSTILE: &str = "x\n2026 INFO forged \u{1b}[31m\u{9b}2J";

    fn hostile() {
        let span = info_span!("request", path = %HOSTILE).entered();
        warn!(crm.code = HOSTILE, crm.text = %HOSTILE, n = 5, "CRM said {HOSTILE}");
        drop(span);
    }

    #[test]
    fn text_is_one_clean_line() {
        let text = logged(LogFormat::Text, "info", false, hostile);
        let line = text.strip_suffix('\n').unwrap();
        assert!(!line.contains(char::is_control), "{line:?}");
        for part in [r"CRM said x\n2026", r#"crm.code="x\n"#, r"crm.text=x\n", "n=5", r"path=x\n"] {
            assert!(line.contains(part), "{part} not in {line}");
        }
    }

    #[test]
    fn colours_are_ours_alone() {
        let text = logged(LogFormat::Text, "info", true, hostile);
        assert!(text.contains("\u{1b}["));
        assert!(!text.contains("\u{1b}[31m\u{9b}") && text.matches('\n').count() == 1, "{text:?}");
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = logged(LogFormat::Json, "info", false, hostile);
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["crm.text"], HOSTILE);
        assert_eq!(value["n"], 5);
        assert_eq!(value["level"], "WARN");
    }

    #[test]
    fn parameters_of_statements_are_never_logged() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, "trace,tokio_postgres::query=trace", false, || {
                tracing::debug!(target: "tokio_postgres::query", "with parameters: ana@example.com");
                info!(target: "tokio_postgres::connection", "NOTICE");
            });
            assert!(text.contains("NOTICE") && !text.contains("ana@"), "{text}");
        }
    }

    #[test]
    fn filtered() {
        let run = || {
            info!("quiet");
            warn!("loud");
        };
        let text = logged(LogFormat::Text, "warn", false, run);
        assert!(text.contains("loud") && !text.contains("quiet"));
    }
}
