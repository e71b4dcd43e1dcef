//! A first look at a file: what it is, before anything is written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::columns::{Column, Columns, is_address};
use super::encoding::Input;
use super::records::{Fields, Form, Pieces};
use super::time::{Evidence, Order, Times, evidence};
use super::{ImportError, Options};
use crate::config::FieldRule;

/// Records that columns are decided by.
const ROWS: usize = 1000;

/// Bytes that the separator is told by.
const SAMPLE: u64 = 256 * 1024;

/// What separates fields, in the order of who wins a tie.
const DELIMITERS: &[u8] = b",;\t|";

/// What is known of a file before it is read.
pub struct Survey {
    pub(super) path: PathBuf,
    pub(super) input: Input,
    pub(super) form: Form,
    pub(super) header: Vec<String>,
    /// Whether the first record is the header.
    pub(super) has_header: bool,
    pub(super) columns: Option<Columns>,
    pub(super) times: Times,
    pub(super) occurred_at: Option<i64>,
    pub(super) refused: PathBuf,
}

impl Survey {
    /// Looks at the file. Reads all of it where its encoding or the order of its dates has to be told.
    pub fn of(
        path: &Path,
        options: &Options,
        fields: &BTreeMap<String, FieldRule>,
    ) -> Result<Survey, ImportError> {
        let failed = |source| ImportError::Io { path: path.to_owned(), source };
        let input = Input::detect(path, options.encoding).map_err(failed)?;
        let first = first_byte(&input).map_err(failed)?;
        let first = first.ok_or_else(|| ImportError::Empty(path.to_owned()))?;
        let times = Times { order: options.order, zone: options.zone.clone() };
        let mut survey = Survey {
            path: path.to_owned(),
            input,
            form: Form::Lines,
            header: vec!["original".to_owned()],
            has_header: false,
            columns: None,
            times,
            occurred_at: options.occurred_at,
            refused: options.refused.clone(),
        };
        if is_ndjson(path, options, first) {
            if first == b'[' {
                return Err(ImportError::JsonList(path.to_owned()));
            }
            return only_for_csv(options).map_or(Ok(survey), Err);
        }
        let delimiter = match options.delimiter {
            Some(delimiter) => delimiter,
            None => delimiter(&survey.input).map_err(failed)?,
        };
        survey.form = Form::Csv(delimiter);
        survey.look_at_columns(options, fields)?;
        if survey.times.order.is_none() {
            survey.times.order = survey.order()?;
        }
        Ok(survey)
    }

    fn failed(&self, source: io::Error) -> ImportError {
        ImportError::Io { path: self.path.clone(), source }
    }

    fn look_at_columns(
        &mut self,
        options: &Options,
        fields: &BTreeMap<String, FieldRule>,
    ) -> Result<(), ImportError> {
        let mut rows = self.rows(ROWS + 1)?;
        if rows.is_empty() {
            return Err(ImportError::Empty(self.path.clone()));
        }
        let first = rows.remove(0);
        if options.header {
            if first.iter().any(|name| is_address(name)) {
                return Err(ImportError::NoHeader(self.path.clone()));
            }
            (self.header, self.has_header) = (first, true);
        } else {
            self.header = (1..=first.len()).map(|n| n.to_string()).collect();
            rows.insert(0, first);
        }
        let columns = Columns::decide(&self.header, &rows, &options.map, fields);
        let columns =
            columns.map_err(|error| ImportError::Columns { path: self.path.clone(), error })?;
        self.columns = Some(columns);
        Ok(())
    }

    /// The first records, decoded as well as it goes. A broken header is an error, a broken record is not
    /// among them.
    fn rows(&self, most: usize) -> Result<Vec<Vec<String>>, ImportError> {
        let Form::Csv(delimiter) = self.form else { return Ok(Vec::new()) };
        let opened = self.input.open().map_err(|error| self.failed(error))?;
        let mut pieces = Pieces::new(opened.bytes, self.form, 1);
        let mut fields = Fields::new(delimiter);
        let mut rows = Vec::new();
        while rows.len() < most {
            let Some(piece) = pieces.next().map_err(|error| self.failed(error))? else { break };
            match piece.broken {
                Some(broken) if rows.is_empty() => {
                    return Err(ImportError::Header {
                        path: self.path.clone(),
                        line: piece.line,
                        sentence: broken.sentence(),
                    });
                }
                Some(_) => {}
                None => {
                    fields.read(piece.bytes);
                    let decode = |field| opened.encoding.decode_without_bom_handling(field).0;
                    rows.push(fields.iter().map(decode).map(Cow::into_owned).collect());
                }
            }
        }
        Ok(rows)
    }

    /// Whether the day or the month comes first, by every line; `None` where no date needs it.
    fn order(&self) -> Result<Option<Order>, ImportError> {
        let (Form::Csv(delimiter), Some(columns)) = (self.form, &self.columns) else {
            return Ok(None);
        };
        let mut order = None;
        for at in columns.times() {
            let found = self.order_of(at, delimiter)?;
            let Seen { day, month, either } = found;
            let column = || self.header.get(at).cloned().unwrap_or_default();
            order = match (day, month, either) {
                (Some(day), Some(month), _) => {
                    return Err(ImportError::Contradiction { column: column(), day, month });
                }
                (Some(_), None, _) => Some(Order::DayFirst),
                (None, Some(_), _) => Some(Order::MonthFirst),
                (None, None, Some((line, text))) if order.is_none() => {
                    return Err(ImportError::Ambiguous { column: column(), line, text });
                }
                (None, None, _) => order,
            };
        }
        Ok(order)
    }

    fn order_of(&self, column: usize, delimiter: u8) -> Result<Seen, ImportError> {
        let opened = self.input.open().map_err(|error| self.failed(error))?;
        let mut pieces = Pieces::new(opened.bytes, self.form, 1);
        let mut fields = Fields::new(delimiter);
        let mut seen = Seen::default();
        while let Some(piece) = pieces.next().map_err(|error| self.failed(error))? {
            if piece.broken.is_some() {
                continue;
            }
            fields.read(piece.bytes);
            let Ok(text) = std::str::from_utf8(fields.get(column)) else { continue };
            match evidence(text) {
                Evidence::Only(Order::DayFirst) => seen.day = seen.day.or(Some(piece.line)),
                Evidence::Only(Order::MonthFirst) => seen.month = seen.month.or(Some(piece.line)),
                Evidence::Either if seen.either.is_none() => {
                    seen.either = Some((piece.line, text.trim().to_owned()));
                }
                Evidence::Either | Evidence::None => {}
            }
        }
        Ok(seen)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.input.size
    }

    /// The name of its encoding.
    pub fn encoding(&self) -> &'static str {
        self.input.encoding.name()
    }

    /// What separates its fields; `None`: it is NDJSON.
    pub fn delimiter(&self) -> Option<char> {
        match self.form {
            Form::Csv(delimiter) => Some(char::from(delimiter)),
            Form::Lines => None,
        }
    }

    /// Its columns; of NDJSON there are none.
    pub fn columns(&self) -> &[Column] {
        self.columns.as_ref().map(|columns| columns.all.as_slice()).unwrap_or_default()
    }

    /// Whether a column fills this target.
    pub fn fills(&self, target: &str) -> bool {
        self.columns.as_ref().is_some_and(|columns| columns.fill(target))
    }

    /// Which number of a date comes first, where that was asked or told.
    pub fn order_of_dates(&self) -> Option<Order> {
        self.times.order
    }
}

/// First lines by what they say about the order.
#[derive(Default)]
struct Seen {
    day: Option<u64>,
    month: Option<u64>,
    either: Option<(u64, String)>,
}

/// The first byte that is not blank.
fn first_byte(input: &Input) -> io::Result<Option<u8>> {
    let bytes = BufReader::new(input.open()?.bytes).bytes();
    for byte in bytes {
        let byte = byte?;
        if !byte.is_ascii_whitespace() {
            return Ok(Some(byte));
        }
    }
    Ok(None)
}

fn is_ndjson(path: &Path, options: &Options, first: u8) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    match (options.ndjson, extension.as_deref()) {
        (Some(ndjson), _) => ndjson,
        (None, Some("csv" | "tsv")) => false,
        (None, Some("ndjson" | "jsonl" | "json")) => true,
        _ => matches!(first, b'{' | b'['),
    }
}

/// What was asked for that NDJSON has no use for.
fn only_for_csv(options: &Options) -> Option<ImportError> {
    let given = [
        (!options.map.is_empty(), "--map"),
        (options.delimiter.is_some(), "--delimiter"),
        (!options.header, "--no-header"),
        (options.order == Some(Order::DayFirst), "--day-first"),
        (options.order == Some(Order::MonthFirst), "--month-first"),
    ];
    let given = given.into_iter().find(|(is_given, _)| *is_given);
    given.map(|(_, name)| ImportError::OnlyForCsv(name))
}

/// The separator with which most records have as many fields as the first, and that more than one.
fn delimiter(input: &Input) -> io::Result<u8> {
    let mut sample = Vec::new();
    input.open()?.bytes.take(SAMPLE).read_to_end(&mut sample)?;
    let mut best = (0, 0, b',');
    for delimiter in DELIMITERS.iter().copied() {
        let mut pieces = Pieces::new(sample.as_slice(), Form::Csv(delimiter), 1);
        let mut fields = Fields::new(delimiter);
        let (mut width, mut alike) = (0, 0u64);
        for _ in 0..ROWS {
            let Some(piece) = pieces.next()? else { break };
            fields.read(piece.bytes);
            width = if width == 0 { fields.len() } else { width };
            alike += u64::from(piece.broken.is_none() && fields.len() == width);
        }
        if width > 1 && (alike, width) > (best.0, best.1) {
            best = (alike, width, delimiter);
        }
    }
    Ok(best.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn told(text: &str) -> u8 {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        delimiter(&Input::detect(file.path(), None).unwrap()).unwrap()
    }

    #[test]
    fn separators_are_told_by_the_records() {
        assert_eq!(told("email,name\na@example.com,\"x;y;z\"\n"), b',');
        assert_eq!(
            told("email;name;city\na@example.com;\"Silva, Ana\";x\nb@example.com;y, z;\n"),
            b';'
        );
        assert_eq!(told("email\tname\na@example.com\tLima, S.A.; Porto\n"), b'\t');
        assert_eq!(told("email|name\na@example.com|x\n"), b'|');
        assert_eq!(told("email\na@example.com\n"), b',', "one column");
        // A comma in the title alone, and semicolons in every line.
        assert_eq!(told("name, first;email\nx;a@example.com\ny;b@example.com\n"), b';');
    }
}
