//! A surveyed file line by line: leads, and lines that are none.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encoding_rs::Encoding;
use serde_json::Value;

use super::columns::{Columns, Fault};
use super::records::{Fields, Form, Pieces};
use super::refused::Refusal;
use super::survey::Survey;
use super::time::Times;
use crate::lead::LeadPatch;
use crate::sources::LineReader;
use crate::sources::json::strict;

/// A line with something in it.
pub(super) enum Line {
    /// A lead.
    Lead {
        /// From 1.
        line: u64,
        patch: Box<LeadPatch>,
        /// Texts of targets that could not be used.
        unusable: BTreeMap<String, String>,
    },
    /// None.
    Refused(Refusal),
}

/// Reads lines one after the other, in memory for one of them.
pub(super) struct Leads {
    pieces: Pieces<Box<dyn Read + Send>>,
    position: Arc<AtomicU64>,
    encoding: &'static Encoding,
    table: Option<(Fields, Columns)>,
    reader: LineReader,
    times: Times,
    occurred_at: Option<i64>,
    /// Lines with something in them so far.
    count: i64,
    skip_header: bool,
}

impl Leads {
    /// From the first line after the header.
    pub fn open(survey: Survey, reader: LineReader) -> io::Result<Leads> {
        let opened = survey.input.open()?;
        let table = match (survey.form, survey.columns) {
            (Form::Csv(delimiter), Some(columns)) => Some((Fields::new(delimiter), columns)),
            _ => None,
        };
        Ok(Leads {
            pieces: Pieces::new(opened.bytes, survey.form, 1),
            position: opened.position,
            encoding: opened.encoding,
            table,
            reader,
            times: survey.times,
            occurred_at: survey.occurred_at,
            count: 0,
            skip_header: survey.has_header,
        })
    }

    /// Bytes of the file that have been read.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// The next line with something in it.
    pub fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let Some(piece) = self.pieces.next()? else { return Ok(None) };
            if std::mem::take(&mut self.skip_header) {
                continue;
            }
            let line = piece.line;
            if let Some(broken) = piece.broken {
                self.count += 1;
                let original =
                    vec![self.encoding.decode_without_bom_handling(piece.bytes).0.into()];
                return Ok(Some(Line::Refused(Refusal {
                    line,
                    column: String::new(),
                    word: broken.word(),
                    sentence: broken.sentence(),
                    original,
                })));
            }
            let read = match &mut self.table {
                Some((fields, columns)) => {
                    fields.read(piece.bytes);
                    if fields.iter().all(|field| field.trim_ascii().is_empty()) {
                        continue;
                    }
                    let read = of_record(fields, columns, self.encoding, &self.times, &self.reader);
                    read.map_err(|fault| {
                        let decode = |field| self.encoding.decode_without_bom_handling(field).0;
                        (fault, fields.iter().map(decode).map(Cow::into_owned).collect())
                    })
                }
                None => of_object(piece.bytes, self.encoding, &self.reader).map_err(|fault| {
                    let text = self.encoding.decode_without_bom_handling(piece.bytes).0;
                    (fault, vec![text.into_owned()])
                }),
            };
            self.count += 1;
            return Ok(Some(match read {
                Ok((mut patch, unusable)) => {
                    if patch.occurred_at.is_none() {
                        // Of two lines about one person the later one counts.
                        patch.occurred_at =
                            self.occurred_at.map(|at| at.saturating_add(self.count));
                    }
                    Line::Lead { line, patch: Box::new(patch), unusable }
                }
                Err((Fault { column, word, sentence }, original)) => {
                    Line::Refused(Refusal { line, column, word, sentence, original })
                }
            }));
        }
    }
}

type Taken = (LeadPatch, BTreeMap<String, String>);

fn of_record(
    fields: &Fields,
    columns: &mut Columns,
    encoding: &'static Encoding,
    times: &Times,
    reader: &LineReader,
) -> Result<Taken, Fault> {
    let width = columns.all.len();
    let surplus = (width..fields.len()).any(|at| !fields.get(at).trim_ascii().is_empty());
    if fields.len() < width || surplus {
        let sentence = format!("{} fields, and the header has {width}", fields.len());
        return Err(Fault { column: String::new(), word: "wrong_number_of_fields", sentence });
    }
    let mut texts: Vec<Cow<'_, str>> = Vec::with_capacity(width);
    for (at, field) in fields.iter().take(width).enumerate() {
        let fault = |word, sentence: String| {
            let column = columns.all.get(at).map(|column| column.name.clone()).unwrap_or_default();
            Fault { column, word, sentence }
        };
        if !columns.is_read(at) {
            texts.push(Cow::Borrowed(""));
            continue;
        }
        if field.contains(&0) {
            return Err(fault("nul_byte", "there is a NUL byte in it".to_owned()));
        }
        match encoding.decode_without_bom_handling_and_without_replacement(field) {
            Some(text) => texts.push(text),
            None => {
                let sentence = format!("there are bytes in it that are not {}", encoding.name());
                return Err(fault("wrong_encoding", sentence));
            }
        }
    }
    columns.lead(&texts, times, &reader.settings())
}

fn of_object(
    line: &[u8],
    encoding: &'static Encoding,
    reader: &LineReader,
) -> Result<Taken, Fault> {
    let whole = |word, sentence: String| Fault { column: String::new(), word, sentence };
    let text =
        encoding.decode_without_bom_handling_and_without_replacement(line).ok_or_else(|| {
            whole(
                "wrong_encoding",
                format!("there are bytes in it that are not {}", encoding.name()),
            )
        })?;
    let value: Value = serde_json::from_str(text.trim()).map_err(|error| {
        whole("malformed_json", format!("not JSON, see column {}", error.column()))
    })?;
    match strict(&value, &reader.settings()) {
        Ok(patch) => Ok((patch, BTreeMap::new())),
        Err(problems) => {
            let sentence = problems.iter().map(|p| p.to_string()).collect::<Vec<_>>().join("; ");
            let first = problems.into_iter().next();
            let (column, word) = first.map_or_else(Default::default, |p| (p.field, p.code));
            Err(Fault { column, word, sentence })
        }
    }
}
