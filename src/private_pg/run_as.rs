//! PostgreSQL refuses to run as root, so leadsync as root runs it as somebody else.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::unistd::{Uid, User};
use tokio::process::Command;

use super::PrivatePgError;
use super::find::Installation;

/// The user that the programs are run as; without one they run as the user of this process.
#[derive(Clone, Debug)]
pub(super) struct RunAs {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
}

pub(super) fn am_root() -> bool {
    Uid::effective().is_root()
}

/// Root: the owner of an existing cluster, else the user behind sudo, else `postgres`, else `nobody`. Others: themselves.
pub(super) fn choose(cluster: &Path, exists: bool) -> Result<Option<RunAs>, PrivatePgError> {
    let owner = match exists {
        true => {
            Some(std::fs::metadata(cluster).map_err(PrivatePgError::io("look at", cluster))?.uid())
        }
        false => None,
    };
    let wrong_owner = |owner: u32, advice: String| PrivatePgError::WrongOwner {
        cluster: cluster.to_owned(),
        owner: name_of(owner),
        advice,
    };
    match (owner, am_root()) {
        (Some(owner), false) if owner != Uid::effective().as_raw() => {
            Err(wrong_owner(owner, "run leadsync as that user or as root".to_owned()))
        }
        (_, false) => Ok(None),
        (Some(0), true) => {
            let user = unprivileged()?;
            let advice = format!(
                "PostgreSQL does not run as root; give it away with `chown -R {} {}`",
                user.name,
                cluster.display()
            );
            Err(wrong_owner(0, advice))
        }
        (Some(owner), true) => {
            let user = User::from_uid(Uid::from_raw(owner)).ok().flatten();
            Ok(Some(RunAs {
                uid: owner,
                // A user without an entry (another machine's volume) still owns its files.
                gid: user.map_or(owner, |user| user.gid.as_raw()),
                name: name_of(owner),
            }))
        }
        (None, true) => unprivileged().map(Some),
    }
}

fn unprivileged() -> Result<RunAs, PrivatePgError> {
    let sudo_user = std::env::var("SUDO_USER").ok();
    let names = sudo_user.iter().map(String::as_str).chain(["postgres", "nobody"]);
    for name in names {
        if let Ok(Some(user)) = User::from_name(name)
            && !user.uid.is_root()
        {
            return Ok(RunAs {
                uid: user.uid.as_raw(),
                gid: user.gid.as_raw(),
                name: name.to_owned(),
            });
        }
    }
    Err(PrivatePgError::Program {
        program: "choosing a user".to_owned(),
        output: "PostgreSQL does not run as root, and this system has neither a user postgres nor \
                 nobody; create one with `useradd --system postgres`"
            .to_owned(),
    })
}

fn name_of(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// A program of the installation as that user, in that folder, with nothing of our environment but what it needs to run:
/// secrets stay here, and no PGHOST or LANG of the caller changes what it does.
pub(super) fn command(
    installation: &Installation,
    program: &str,
    run_as: Option<&RunAs>,
    dir: &Path,
) -> Command {
    let mut command = Command::new(installation.program(program));
    command.env_clear().env("LC_ALL", "C").current_dir(dir).stdin(Stdio::null());
    for name in ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let Some(run_as) = run_as {
        command.gid(run_as.gid).uid(run_as.uid);
    }
    command
}

/// Whether that user can run the programs with `dir` as its folder. The error of a forbidden folder names the first that forbids.
pub(super) async fn can_enter(
    installation: &Installation,
    run_as: Option<&RunAs>,
    dir: &Path,
) -> Result<(), PrivatePgError> {
    let probe = command(installation, "postgres", run_as, dir)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    match (probe, run_as) {
        (Ok(_), _) => Ok(()),
        (Err(e), Some(run_as)) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            let blocked = first_blocked(dir, run_as)
                .or_else(|| first_blocked(&installation.bin, run_as))
                .unwrap_or_else(|| dir.to_owned());
            Err(PrivatePgError::Unreachable { user: run_as.name.clone(), blocked })
        }
        (Err(e), _) => Err(PrivatePgError::io("run PostgreSQL in", dir)(e)),
    }
}

/// From the root down, the first folder whose mode bits keep that user out.
fn first_blocked(dir: &Path, run_as: &RunAs) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = dir.ancestors().collect();
    ancestors.reverse();
    ancestors
        .into_iter()
        .find(|folder| {
            std::fs::metadata(folder).is_ok_and(|meta| {
                let bit = if meta.uid() == run_as.uid {
                    0o100
                } else if meta.gid() == run_as.gid {
                    0o010
                } else {
                    0o001
                };
                meta.mode() & bit == 0
            })
        })
        .map(Path::to_owned)
}

/// Gives a folder that was just made to that user, for nobody else.
pub(super) fn give(dir: &Path, run_as: Option<&RunAs>) -> Result<(), PrivatePgError> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
        .map_err(PrivatePgError::io("set the mode of", dir))?;
    if let Some(run_as) = run_as {
        std::os::unix::fs::chown(dir, Some(run_as.uid), Some(run_as.gid))
            .map_err(PrivatePgError::io("give away", dir))?;
    }
    Ok(())
}
