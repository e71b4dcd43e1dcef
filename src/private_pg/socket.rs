//! Where the server listens: a socket in a folder that only its user and root can enter.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::PrivatePgError;
use super::cluster::short_hash;
use super::run_as::{self, RunAs};

/// The port only names the socket file; nothing listens on it.
pub(super) const PORT: u16 = 5432;

/// Beside the cluster; in /tmp if that would be too long for a socket address (about 104 bytes) or has characters that
/// a list of folders or a URL would have to quote.
pub(super) fn socket_dir(
    cluster: &Path,
    run_as: Option<&RunAs>,
) -> Result<PathBuf, PrivatePgError> {
    let beside = cluster.parent().unwrap_or(cluster).join("socket");
    let plain = beside.to_str().is_some_and(|text| {
        text.len() <= 80
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
    });
    let dir = match plain {
        true => beside,
        false => Path::new("/tmp").join(format!("leadsync-{}", short_hash(cluster))),
    };
    match std::fs::create_dir(&dir) {
        Ok(()) => run_as::give(&dir, run_as)?,
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let owner = run_as.map_or(nix::unistd::Uid::effective().as_raw(), |user| user.uid);
            let meta =
                std::fs::symlink_metadata(&dir).map_err(PrivatePgError::io("look at", &dir))?;
            if !meta.is_dir() || meta.uid() != owner || meta.mode() & 0o077 != 0 {
                // In /tmp anybody could have made it to listen in.
                return Err(PrivatePgError::io("use", &dir)(std::io::Error::other(
                    "it exists, but is not a folder that only PostgreSQL's user can enter; remove it",
                )));
            }
        }
        Err(e) => return Err(PrivatePgError::io("create", &dir)(e)),
    }
    Ok(dir)
}

pub(super) fn url(socket_dir: &Path) -> Result<String, PrivatePgError> {
    let dir = socket_dir.to_str().ok_or_else(|| {
        PrivatePgError::io("use", socket_dir)(std::io::Error::other("its name is not UTF-8"))
    })?;
    Ok(format!("postgresql://leadsync@/leadsync?host={dir}&port={PORT}"))
}
