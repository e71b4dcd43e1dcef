//! How errors are shown, and the process's exit codes. No room's own error type lives here.

use std::error::Error;
use std::fmt;

/// Displays an error with all its causes on one line: `tokio_postgres::Error` alone says only "db error".
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}
