//! Cutting a file into records: one bad line is told with its number, and costs no other.
//!
//! `csv-core` takes a record apart, but by design it accepts everything: after one quote that is never
//! closed the rest of the file is a single field. So where a record ends is decided here, by RFC 4180 to
//! the letter; what breaks it costs its first line, and reading goes on with the next one.

use std::io::{self, Read};

/// Longest record, in bytes.
pub(super) const MAX_RECORD: usize = 1 << 20;

/// Bytes read at once.
const BLOCK: usize = 64 * 1024;

/// What a file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Fields separated by this byte.
    Csv(u8),
    /// One object per line.
    Lines,
}

/// Why a piece of the file is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A quote is opened and not closed within [`MAX_RECORD`], or at all.
    OpenQuote,
    /// Something stands between a closing quote and the next separator.
    AfterQuote,
    /// Longer than [`MAX_RECORD`]; the piece is its beginning.
    TooLong,
}

impl Broken {
    /// Stable word.
    pub fn word(self) -> &'static str {
        match self {
            Broken::OpenQuote => "open_quote",
            Broken::AfterQuote => "stray_quote",
            Broken::TooLong => "line_too_long",
        }
    }

    /// For people.
    pub fn sentence(self) -> String {
        match self {
            Broken::OpenQuote => "a quote is opened that is never closed".to_owned(),
            Broken::AfterQuote => {
                "a quote is not closed, or one inside quotes is not written twice".to_owned()
            }
            Broken::TooLong => format!("the line is longer than {MAX_RECORD} bytes"),
        }
    }
}

/// One record, or a piece that is none. Blank lines are neither.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// Number of its first line, from 1.
    pub line: u64,
    /// Without the line end.
    pub bytes: &'a [u8],
    /// Whether it is whole.
    pub broken: Option<Broken>,
}

/// Reads pieces one after the other, in memory for one of them.
pub(super) struct Pieces<R> {
    source: R,
    form: Form,
    buffer: Vec<u8>,
    /// Of what is in the buffer, what has not been given yet.
    start: usize,
    end: usize,
    ended: bool,
    line: u64,
}

/// Where a piece ends in the buffer, from its start.
struct Cut {
    /// Bytes of the piece.
    length: usize,
    /// Bytes up to the next one.
    taken: usize,
    /// Line ends in them.
    lines: u64,
    broken: Option<Broken>,
}

/// What looking for the end of a record came to.
enum Look {
    Found(Cut),
    /// The buffer ends first.
    More,
}

impl<R: Read> Pieces<R> {
    /// From the first byte of the source, which is line `line`.
    pub fn new(source: R, form: Form, line: u64) -> Pieces<R> {
        Pieces { source, form, buffer: vec![0; BLOCK], start: 0, end: 0, ended: false, line }
    }

    /// The next piece; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
        loop {
            if self.start == self.end && !self.fill()? {
                return Ok(None);
            }
            let line = self.line;
            let cut = self.cut()?;
            let bytes = self.start..self.start + cut.length;
            self.start += cut.taken;
            self.line += cut.lines;
            if cut.broken == Some(Broken::TooLong) {
                // What is left of it in the source; the buffer is not touched by that.
                self.skip_line()?;
            } else if self.buffer[bytes.clone()].iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let bytes = &self.buffer[bytes];
            return Ok(Some(Piece { line, bytes, broken: cut.broken }));
        }
    }

    /// Reads on until the end of the next piece is in the buffer.
    fn cut(&mut self) -> io::Result<Cut> {
        loop {
            let seen = &self.buffer[self.start..self.end];
            let look = match self.form {
                Form::Csv(delimiter) => look(seen, delimiter, self.ended),
                Form::Lines => look_line(seen, self.ended),
            };
            match look {
                Look::Found(cut) if cut.length <= MAX_RECORD => return Ok(cut),
                Look::More if seen.len() <= MAX_RECORD => _ = self.fill()?,
                // Longer than a record may be: its first line, if at least that ends.
                _ => {
                    let lines = matches!(self.form, Form::Lines);
                    return Ok(match look_line(seen, self.ended) {
                        Look::Found(cut) if cut.length <= MAX_RECORD && !lines => {
                            Cut { broken: Some(Broken::OpenQuote), ..cut }
                        }
                        _ => {
                            let length = seen.len().min(MAX_RECORD);
                            Cut { length, taken: length, lines: 0, broken: Some(Broken::TooLong) }
                        }
                    });
                }
            }
        }
    }

    /// Reads a block more; whether there was anything. A whole block, because what is in the buffer is looked
    /// through again after it.
    fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let before = self.end;
        if self.buffer.len() < before + BLOCK {
            self.buffer.resize(before + BLOCK, 0);
        }
        while !self.ended && self.end < before + BLOCK {
            match self.source.read(&mut self.buffer[self.end..before + BLOCK]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end > before)
    }

    /// Passes over the rest of a line that is too long, without keeping it. What has been given of it
    /// lies before `start`, and is left alone there.
    fn skip_line(&mut self) -> io::Result<()> {
        let mut block = self.buffer.split_off(self.start);
        let mut used = self.end - self.start;
        let given = self.start;
        loop {
            let found = block[..used].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            if let Some(at) = found {
                // A line feed may follow in the next block; on its own it is a blank line, which would count.
                let mut next = at + 1;
                if block[at] == b'\r' {
                    if next == used {
                        block.resize(used + 1, 0);
                        used += self.source.read(&mut block[used..=used])?;
                    }
                    next += usize::from(next < used && block[next] == b'\n');
                }
                self.line += 1;
                self.buffer.extend_from_slice(&block[next..used]);
                self.start = given;
                self.end = self.buffer.len();
                return Ok(());
            }
            block.resize(BLOCK, 0);
            used = self.source.read(&mut block)?;
            if used == 0 {
                self.ended = true;
                (self.start, self.end) = (given, given);
                return Ok(());
            }
        }
    }
}

/// The end of a line; a record of it.
fn look_line(bytes: &[u8], ended: bool) -> Look {
    let at = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
    match at {
        Some(at) => match line_end(bytes, at, ended) {
            Some(taken) => Look::Found(Cut { length: at, taken, lines: 1, broken: None }),
            None => Look::More,
        },
        None if ended => {
            Look::Found(Cut { length: bytes.len(), taken: bytes.len(), lines: 0, broken: None })
        }
        None => Look::More,
    }
}

/// The end of a record of CSV.
fn look(bytes: &[u8], delimiter: u8, ended: bool) -> Look {
    /// Where in a field we are.
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Start,
        Plain,
        Quoted,
        Closed,
    }
    let mut at = At::Start;
    let mut lines = 0;
    let mut first_end = None;
    for (index, byte) in bytes.iter().copied().enumerate() {
        at = match (at, byte) {
            (At::Quoted, b'"') => At::Closed,
            (At::Quoted, b'\n' | b'\r') => {
                let pair = byte == b'\r' && bytes.get(index + 1) == Some(&b'\n');
                if !pair {
                    lines += 1;
                    first_end = first_end.or(Some(index + 1));
                }
                At::Quoted
            }
            (At::Quoted, _) => At::Quoted,
            (At::Closed, b'"') => At::Quoted,
            (At::Start, b'"') => At::Quoted,
            (_, b'\n' | b'\r') => {
                return match line_end(bytes, index, ended) {
                    Some(taken) => {
                        Look::Found(Cut { length: index, taken, lines: lines + 1, broken: None })
                    }
                    None => Look::More,
                };
            }
            (_, byte) if byte == delimiter => At::Start,
            (At::Closed, _) => return first_line(bytes, first_end, Broken::AfterQuote, ended),
            (At::Start | At::Plain, _) => At::Plain,
        };
    }
    match at {
        _ if !ended => Look::More,
        At::Quoted => first_line(bytes, first_end, Broken::OpenQuote, ended),
        _ => Look::Found(Cut { length: bytes.len(), taken: bytes.len(), lines, broken: None }),
    }
}

/// Only the first line of a record that is broken: the next one may be good.
fn first_line(bytes: &[u8], first_end: Option<usize>, broken: Broken, ended: bool) -> Look {
    let within = first_end.and_then(|end| bytes.get(..end)).unwrap_or(bytes);
    match look_line(within, ended || first_end.is_some()) {
        Look::Found(cut) => Look::Found(Cut { broken: Some(broken), ..cut }),
        Look::More => Look::More,
    }
}

/// Past the line end at `at`; `None` where a line feed may follow that has not been read yet.
fn line_end(bytes: &[u8], at: usize, ended: bool) -> Option<usize> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) => Some(at + 2),
        (Some(b'\r'), None) if !ended => None,
        _ => Some(at + 1),
    }
}

/// The fields of a record, unquoted.
pub(super) struct Fields {
    reader: csv_core::Reader,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Fields {
    /// For records with this separator.
    pub fn new(delimiter: u8) -> Fields {
        let reader = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
        Fields { reader, bytes: vec![0; 1024], ends: vec![0; 32], count: 0 }
    }

    /// Takes a record apart.
    pub fn read(&mut self, record: &[u8]) {
        self.reader.reset();
        let (mut input, mut written, mut ended) = (record, 0, 0);
        loop {
            let (result, used, out, ends) =
                self.reader.read_record(input, &mut self.bytes[written..], &mut self.ends[ended..]);
            input = input.get(used..).unwrap_or_default();
            written += out;
            ended += ends;
            match result {
                // Empty input is how the reader is told of the end.
                csv_core::ReadRecordResult::InputEmpty => {}
                csv_core::ReadRecordResult::OutputFull => {
                    self.bytes.resize(self.bytes.len() * 2, 0);
                }
                csv_core::ReadRecordResult::OutputEndsFull => {
                    self.ends.resize(self.ends.len() * 2, 0);
                }
                csv_core::ReadRecordResult::Record | csv_core::ReadRecordResult::End => break,
            }
        }
        self.count = ended;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// One of them; empty past the last.
    pub fn get(&self, index: usize) -> &[u8] {
        if index >= self.count {
            return &[];
        }
        let from = if index == 0 { 0 } else { self.ends[index - 1] };
        self.bytes.get(from..self.ends[index]).unwrap_or_default()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count).map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests;
