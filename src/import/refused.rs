//! Lines that are no leads: where, why, and as they were, in a file that can be mended and imported.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ImportError;
use super::columns::REFUSED;
use super::survey::Survey;

/// One line that is no lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Number of its first line in the file, from 1.
    pub line: u64,
    /// The column at fault; empty for the line as a whole.
    pub column: String,
    /// Stable word.
    pub word: &'static str,
    /// For people.
    pub sentence: String,
    /// Its fields, or the whole as one where it has none.
    pub original: Vec<String>,
}

/// Lines of one fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The column; empty for lines as a whole.
    pub column: String,
    /// Stable word of a refusal, or why a value could not be used.
    pub reason: String,
    /// For people.
    pub sentence: String,
    /// How many.
    pub lines: u64,
    /// The first of them.
    pub first_line: u64,
}

/// Faults counted.
#[derive(Clone, Debug, Default)]
pub struct Faults(BTreeMap<(String, String), Fault>);

/// Most faults told apart: names of members in NDJSON are the file's own.
const MOST: usize = 100;

impl Faults {
    pub(super) fn add(&mut self, column: &str, reason: &str, sentence: &str, line: u64) {
        let mut key = (column.to_owned(), reason.to_owned());
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            key = (String::new(), "others".to_owned());
        }
        let (column, reason) = key.clone();
        let sentence = if reason == "others" { "other faults" } else { sentence };
        let fault = self.0.entry(key).or_insert_with(|| Fault {
            column,
            reason,
            sentence: sentence.to_owned(),
            lines: 0,
            first_line: line,
        });
        fault.lines += 1;
    }

    /// All of them, most frequent first.
    pub fn by_frequency(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.0.values().cloned().collect();
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.lines));
        faults
    }

    /// Lines with any.
    pub fn lines(&self) -> u64 {
        self.0.values().map(|fault| fault.lines).sum()
    }
}

/// The file they are written to, made with the first of them.
pub(super) struct RefusedFile {
    path: PathBuf,
    header: Vec<String>,
    delimiter: u8,
    file: Option<BufWriter<File>>,
}

impl RefusedFile {
    /// For the lines of a file.
    pub fn of(survey: &Survey) -> Result<RefusedFile, ImportError> {
        let path = &survey.refused;
        let delimiter = survey.delimiter().and_then(|c| u8::try_from(c).ok()).unwrap_or(b',');
        RefusedFile::new(path, delimiter, &survey.header)
            .map_err(|source| ImportError::Io { path: path.clone(), source })
    }

    /// With the separator and the header of the file that is read. What an earlier import left at the path is
    /// replaced; another file is not.
    fn new(path: &Path, delimiter: u8, columns: &[String]) -> io::Result<RefusedFile> {
        let header: Vec<String> =
            REFUSED.iter().map(|name| (*name).to_owned()).chain(columns.iter().cloned()).collect();
        if path.try_exists()? {
            let mut start = Vec::new();
            File::open(path)?.take(REFUSED[0].len() as u64).read_to_end(&mut start)?;
            // An import that was killed may have left the beginning of a line.
            if !REFUSED[0].as_bytes().starts_with(&start) {
                let what =
                    "exists and is not a file of refused lines; name another one with --refused";
                return Err(io::Error::other(what));
            }
            std::fs::remove_file(path)?;
        }
        Ok(RefusedFile { path: path.to_owned(), header, delimiter, file: None })
    }

    pub fn write(&mut self, refusal: &Refusal) -> io::Result<()> {
        let line = refusal.line.to_string();
        let told = [line.as_str(), &refusal.column, &refusal.sentence];
        let fields = told.into_iter().chain(refusal.original.iter().map(String::as_str));
        let row = row(fields, self.delimiter);
        self.opened()?.write_all(row.as_bytes())
    }

    fn opened(&mut self) -> io::Result<&mut BufWriter<File>> {
        if self.file.is_none() {
            // Of people, for its owner alone. Made anew, so that nobody's link is followed.
            let file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)?;
            let mut file = BufWriter::new(file);
            file.write_all(row(self.header.iter().map(String::as_str), self.delimiter).as_bytes())?;
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("not open"))
    }

    /// Where it is, if there is one; everything is in it.
    pub fn finish(self) -> io::Result<Option<PathBuf>> {
        match self.file {
            Some(mut file) => file.flush().map(|()| Some(self.path)),
            None => Ok(None),
        }
    }
}

/// A row of CSV.
fn row<'a>(fields: impl Iterator<Item = &'a str>, delimiter: u8) -> String {
    let mut row = String::new();
    for (at, field) in fields.enumerate() {
        if at > 0 {
            row.push(char::from(delimiter));
        }
        if field.contains(['"', '\n', '\r', char::from(delimiter)]) {
            row.push('"');
            row.push_str(&field.replace('"', "\"\""));
            row.push('"');
        } else {
            row.push_str(field);
        }
    }
    row.push_str("\r\n");
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_quoted_where_they_must_be() {
        let fields = ["a", "b;c", "d \"e\"", "f\ng", ""];
        assert_eq!(row(fields.into_iter(), b';'), "a;\"b;c\";\"d \"\"e\"\"\";\"f\ng\";\r\n");
    }

    #[test]
    fn only_a_file_of_refused_lines_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("refused.csv");
        let refusal = Refusal {
            line: 7,
            column: "Mail".into(),
            word: "invalid_email",
            sentence: "no".into(),
            original: vec!["x".into(), "y".into()],
        };
        for _ in 0..2 {
            let mut file = RefusedFile::new(&path, b',', &["Mail".into(), "Name".into()]).unwrap();
            file.write(&refusal).unwrap();
            assert_eq!(file.finish().unwrap(), Some(path.clone()));
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(
                text,
                "refused_line,refused_column,refused_reason,Mail,Name\r\n7,Mail,no,x,y\r\n"
            );
        }
        assert_eq!(RefusedFile::new(&path, b',', &[]).unwrap().finish().unwrap(), None);
        assert!(!path.exists(), "nothing is left of the last time");
        std::fs::write(&path, "").unwrap();
        assert!(RefusedFile::new(&path, b',', &[]).is_ok(), "one that was killed at once");
        std::fs::write(&path, "my list").unwrap();
        assert!(RefusedFile::new(&path, b',', &[]).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my list");
    }

    #[test]
    fn faults_are_bounded() {
        let mut faults = Faults::default();
        for n in 0..1000 {
            faults.add(&format!("c{n}"), "r", "s", n);
        }
        faults.add("c0", "r", "s", 5);
        assert_eq!((faults.by_frequency().len(), faults.lines()), (MOST + 1, 1001));
    }
}
