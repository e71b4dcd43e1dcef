//! Chunks of leads, put together by a thread that reads the file.

use std::io;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::ImportError;
use super::leads::{Leads, Line};
use super::refused::{Faults, RefusedFile};
use super::survey::Survey;
use crate::sources::{Item, LineReader};

/// Leads in a chunk: as many as make a group of the writers full.
const CHUNK_LEADS: usize = 512;

/// Bytes of a chunk's body, give or take one lead.
const CHUNK_BYTES: usize = 512 * 1024;

/// Lines read between two looks at whether anybody still wants them.
const LOOK: u64 = 10_000;

/// Leads of consecutive lines, ready to be stored.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Number of the first line, from 1.
    pub first_line: u64,
    /// Of the last.
    pub last_line: u64,
    pub items: Vec<Item>,
    /// The same as the archive keeps it.
    pub body: Bytes,
    /// Bytes of the file read so far.
    pub position: u64,
}

/// What reading a file came to.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Lines with something in them, the header aside.
    pub lines: u64,
    /// Leads among them.
    pub leads: u64,
    /// Lines that are none, by fault.
    pub refused: Faults,
    /// Values of leads that could not be used, by fault.
    pub unusable: Faults,
    /// Where the refused lines are, where they were written.
    pub refused_file: Option<std::path::PathBuf>,
    /// Whether it was read to its end.
    pub complete: bool,
}

/// Reads the whole file; ends early when nobody takes chunks any more. What it read is told also where it
/// failed. Blocks.
pub(super) fn read(
    survey: Survey,
    reader: LineReader,
    chunks: &mpsc::Sender<Chunk>,
    mut refused: Option<RefusedFile>,
) -> (Read, Option<ImportError>) {
    let mut read = Read::default();
    let refused_path = survey.refused.clone();
    let mut failed = read_lines(survey, reader, chunks, refused.as_mut(), &mut read).err();
    if let Some(file) = refused {
        match file.finish() {
            Ok(path) => read.refused_file = path,
            Err(source) => {
                failed = failed.or(Some(ImportError::Io { path: refused_path, source }));
            }
        }
    }
    (read, failed)
}

fn read_lines(
    survey: Survey,
    reader: LineReader,
    chunks: &mpsc::Sender<Chunk>,
    mut refused: Option<&mut RefusedFile>,
    read: &mut Read,
) -> Result<(), ImportError> {
    let (path, refused_path) = (survey.path.clone(), survey.refused.clone());
    let failed = |source| ImportError::Io { path: path.clone(), source };
    let refused_failed = |source| ImportError::Io { path: refused_path.clone(), source };
    let columns: Vec<_> = survey.columns().to_vec();
    let column_of = |target: &str| {
        let found = columns.iter().find(|column| column.fills.iter().any(|fills| fills == target));
        found.map_or(target.to_owned(), |column| column.name.clone())
    };
    let mut leads = Leads::open(survey, reader.clone()).map_err(failed)?;
    let mut chunk = Filling::default();
    loop {
        if read.lines.is_multiple_of(LOOK) && chunks.is_closed() {
            return Ok(());
        }
        match leads.next().map_err(failed)? {
            None => {
                read.complete =
                    chunk.items.is_empty() || send(&mut chunk, leads.position(), chunks);
                return Ok(());
            }
            Some(Line::Refused(refusal)) => {
                read.lines += 1;
                read.refused.add(&refusal.column, refusal.word, &refusal.sentence, refusal.line);
                if let Some(file) = &mut refused {
                    file.write(&refusal).map_err(refused_failed)?;
                }
            }
            Some(Line::Lead { line, patch, unusable }) => {
                read.lines += 1;
                read.leads += 1;
                for (target, error) in &patch.field_errors {
                    read.unusable.add(&column_of(target), error, error, line);
                }
                chunk.add(line, &reader.line(&patch, &unusable), Item::Lead(patch));
                if chunk.is_full() && !send(&mut chunk, leads.position(), chunks) {
                    return Ok(());
                }
            }
        }
    }
}

/// Whether somebody took it.
fn send(chunk: &mut Filling, position: u64, chunks: &mpsc::Sender<Chunk>) -> bool {
    let Filling { first_line, last_line, items, body } = std::mem::take(chunk);
    let chunk = Chunk { first_line, last_line, items, body: body.into(), position };
    chunks.blocking_send(chunk).is_ok()
}

#[derive(Default)]
struct Filling {
    first_line: u64,
    last_line: u64,
    items: Vec<Item>,
    body: Vec<u8>,
}

impl Filling {
    fn add(&mut self, line: u64, text: &[u8], item: Item) {
        if self.items.is_empty() {
            self.first_line = line;
        }
        self.last_line = line;
        self.items.push(item);
        self.body.extend_from_slice(text);
        self.body.push(b'\n');
    }

    fn is_full(&self) -> bool {
        self.items.len() >= CHUNK_LEADS || self.body.len() >= CHUNK_BYTES
    }
}

/// What a thread that panicked is to its caller.
pub(super) fn died(path: &std::path::Path) -> (Read, Option<ImportError>) {
    let source = io::Error::other("reading it panicked");
    (Read::default(), Some(ImportError::Io { path: path.to_owned(), source }))
}
