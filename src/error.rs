//! How errors are shown, and the process's exit codes. No room's own error type lives here.

use std::error::Error;
use std::fmt::{self, Write};
use std::process::ExitCode;

/// How the process ends. The numbers are documented in the README and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Everything asked for was done.
    Ok = 0,
    /// Something failed, was rejected or was parked; stderr says what.
    Failed = 1,
    /// The command line or the configuration is wrong; nothing was started.
    Usage = 2,
    /// The database could not be reached or used.
    Database = 3,
    /// Cut short by a second SIGINT or SIGTERM, as a shell reports it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Displays an error with all its causes on one line: `tokio_postgres::Error` alone says only "db error".
/// Control bytes are escaped, because causes quote servers and files.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Escaping(f);
        write!(out, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(out, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// Displays a text that others wrote with its control characters escaped, so that it can neither
/// start a new line in a log nor command a terminal.
pub struct Printable<T>(pub T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Passes text on with its control characters escaped: C0, DEL and C1 (some terminals obey the
/// latter), the line separators of Unicode, and the marks that reverse the reading direction.
pub struct Escaping<'a, W: Write>(pub &'a mut W);

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let hostile = |c: char| {
            c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        let mut rest = text;
        while let Some(at) = rest.find(hostile) {
            let (clean, tail) = rest.split_at(at);
            self.0.write_str(clean)?;
            let mut chars = tail.chars();
            if let Some(c) = chars.next() {
                write!(self.0, "{}", c.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner\u{1b}[31m\nforged line")]
    struct Inner;

    #[test]
    fn the_whole_chain_on_one_line() {
        assert_eq!(Chain(&Outer(Inner)).to_string(), r"outer: inner\u{1b}[31m\nforged line");
    }

    #[test]
    fn only_control_characters_are_escaped() {
        let harmless = "Ação \"x\" \\ 日本 {}";
        assert_eq!(Printable(harmless).to_string(), harmless);
        assert_eq!(Printable("a\u{9b}b\u{7f}c\0").to_string(), r"a\u{9b}b\u{7f}c\u{0}");
        assert_eq!(Printable("\u{202e}x\u{2028}").to_string(), r"\u{202e}x\u{2028}");
    }
}
