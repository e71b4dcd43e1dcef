//! The server's log: opened for it, and read when it does not start.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::PrivatePgError;

/// A log larger than this is moved aside at start.
const LOG_MAX: u64 = 16 << 20;

/// Opened to append; the length tells where this start's lines begin.
pub(super) fn open_log(log: &Path) -> Result<(File, u64), PrivatePgError> {
    use std::os::unix::fs::OpenOptionsExt;
    let error = PrivatePgError::io("open", log);
    let open = || {
        if std::fs::metadata(log).is_ok_and(|meta| meta.len() > LOG_MAX) {
            std::fs::rename(log, log.with_extension("log.1"))?;
        }
        let file = File::options().append(true).create(true).mode(0o600).open(log)?;
        let from = file.metadata()?.len();
        Ok((file, from))
    };
    open().map_err(error)
}

/// The last lines of the log after that offset.
pub(super) fn tail(log: &Path, from: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(end.saturating_sub(16 << 10)).min(end)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

pub(super) fn start_failed(tail: &str, log: PathBuf) -> PrivatePgError {
    let reason = if tail.contains("No space left on device") {
        "the disk is full".to_owned()
    } else if tail.contains("incompatible with server") {
        "the cluster was made by another version or build".to_owned()
    } else if tail.contains("Read-only file system") {
        "the file system is read-only".to_owned()
    } else {
        let fatal = tail.lines().rev().find_map(|line| {
            let at = line.find("FATAL:").or_else(|| line.find("PANIC:"))?;
            Some(line[at..].to_owned())
        });
        fatal.unwrap_or_else(|| "it ended at once".to_owned())
    };
    PrivatePgError::StartFailed { reason, log, tail: tail.to_owned() }
}
