//! Leads from a file: CSV or NDJSON, through the same merge as everything else.
//!
//! A file is looked at first ([`Survey`]): encoding, separator, columns, the order of day and month. Then a
//! thread reads it line by line in bounded memory and puts together chunks of leads; each chunk is a
//! delivery ([`crate::receive::lines`]) that is merged and archived in one transaction. Its id is a digest of
//! what it says, so the same file again finds its chunks in the archive and passes over them, as far as it
//! got the last time.

use std::path::PathBuf;

use encoding_rs::Encoding;
use jiff::tz::TimeZone;

use crate::lead::Micros;
use crate::mapping::Target;

mod chunks;
mod columns;
mod encoding;
mod leads;
mod records;
mod refused;
mod run;
mod survey;
mod time;

pub use chunks::Read;
pub use columns::{Column, ColumnsError, How};
pub use refused::{Fault, Faults, Refusal};
pub use run::{Done, Failed, Progress, Run, Stored, check, run};
pub use survey::Survey;
pub use time::Order;

/// How a file is to be read, where the caller knows better than a look at it.
#[derive(Clone, Debug)]
pub struct Options {
    /// NDJSON or CSV; `None`: by its name, else by its first byte.
    pub ndjson: Option<bool>,
    /// Its encoding; `None`: told by what is in it.
    pub encoding: Option<&'static Encoding>,
    /// What separates the fields; `None`: told likewise.
    pub delimiter: Option<u8>,
    /// The first line names the columns; without, they are `1`, `2` and so on.
    pub header: bool,
    /// `--map`: columns by name or `#NUMBER`, and what they fill (`None`: nothing).
    pub map: Vec<(String, Option<Target>)>,
    /// Of dates like `03/05/2026`; `None`: decided by the whole file.
    pub order: Option<Order>,
    /// Of times without an offset.
    pub zone: TimeZone,
    /// When the lines without a time of their own happened: each a microsecond after the one before.
    pub occurred_at: Option<Micros>,
    /// Lines that are no leads go there.
    pub refused: PathBuf,
}

/// Why a file cannot be imported as it is.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It cannot be read, or the file of refused lines not written.
    #[error("{}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no line in it.
    #[error("{}: there are no leads in it", .0.display())]
    Empty(PathBuf),
    /// A list in JSON.
    #[error(
        "{}: leads are read one per line, and this is one JSON list; make lines of it with jq -c '.[]'",
        .0.display()
    )]
    JsonList(PathBuf),
    /// The first line is broken.
    #[error("{}: line {line}, which should name the columns: {sentence}", .path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong.
        sentence: String,
    },
    /// The first line is a lead.
    #[error(
        "{}: there is an e-mail address in the first line, so it does not seem to name the columns; \
         with --no-header they are 1, 2, 3 ...: --map 1=email",
        .0.display()
    )]
    NoHeader(PathBuf),
    /// Columns were asked for that are not there, or the address is not found.
    #[error("{}: {error}", .path.display())]
    Columns {
        /// Which file.
        path: PathBuf,
        /// What.
        error: ColumnsError,
    },
    /// `--map` and the like for NDJSON.
    #[error("{0} is for CSV, and this is NDJSON, whose members have names of their own")]
    OnlyForCsv(&'static str),
    /// `03/05/2026`, and no line tells.
    #[error(
        "column \"{column}\", line {line}: \"{text}\" can be two days, and no line of the file tells which; \
         say --day-first or --month-first"
    )]
    Ambiguous {
        /// Its name.
        column: String,
        /// The first such line.
        line: u64,
        /// What stands there.
        text: String,
    },
    /// `31/03/2026` and `03/31/2026` in one column.
    #[error(
        "column \"{column}\": the day comes first in line {day} and the month in line {month}; say --day-first \
         or --month-first, the other lines are refused then"
    )]
    Contradiction {
        /// Its name.
        column: String,
        /// The first line of one kind.
        day: u64,
        /// The first of the other.
        month: u64,
    },
}

#[cfg(test)]
mod tests;
