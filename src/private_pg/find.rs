//! Finds the installed PostgreSQL programs, or says how to install them on this system.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::PrivatePgError;

/// Oldest major version that works.
pub(super) const OLDEST: u32 = 14;

/// One installed version.
#[derive(Debug)]
pub(super) struct Installation {
    /// Folder with `postgres` and `initdb`.
    pub bin: PathBuf,
    /// 15 of "15.18".
    pub major: u32,
    version: String,
}

impl Installation {
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// The installation to use: the one that made the cluster, else the first found. `only_in` replaces the search path.
pub(super) async fn find(
    only_in: Option<&[PathBuf]>,
    made_by: Option<u32>,
    cluster: &Path,
) -> Result<Installation, PrivatePgError> {
    let folders = match only_in {
        Some(folders) => folders.to_vec(),
        None => usual_folders(),
    };
    let mut found: Vec<Installation> = Vec::new();
    for folder in folders {
        let Some(bin) = server_folder(&folder) else { continue };
        if found.iter().any(|other| other.bin == bin) {
            continue;
        }
        if let Some((major, version)) = version(&bin).await {
            found.push(Installation { bin, major, version });
        }
    }
    if found.is_empty() {
        return Err(PrivatePgError::NotInstalled { install: install_command() });
    }
    let installed: Vec<String> = found.iter().map(|one| one.version.clone()).collect();
    if let Some(made_by) = made_by {
        return found.into_iter().find(|one| one.major == made_by).ok_or_else(|| {
            PrivatePgError::OtherVersion {
                cluster: cluster.to_owned(),
                made_by,
                installed: installed.join(", "),
            }
        });
    }
    let first = found.swap_remove(0);
    if first.major >= OLDEST {
        return Ok(first);
    }
    found.into_iter().find(|one| one.major >= OLDEST).ok_or_else(|| PrivatePgError::TooOld {
        path: first.program("postgres"),
        version: first.version.clone(),
        install: install_command(),
    })
}

/// PATH first, so that a choice made there wins; then where packages put the programs without linking them.
fn usual_folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(newest_first("/usr/lib/postgresql", "", "bin")); // Debian, Ubuntu; Alpine's are linked in PATH
    folders.extend(newest_first("/usr", "pgsql-", "bin")); // Fedora, RHEL from postgresql.org
    folders.extend(newest_first("/usr/libexec", "postgresql", "")); // Alpine
    folders.extend(newest_first("/opt/homebrew/opt", "postgresql@", "bin"));
    folders.extend(newest_first("/usr/local/opt", "postgresql@", "bin"));
    folders.extend(newest_first("/usr/lib", "postgresql", "bin")); // openSUSE
    folders.push("/usr/local/pgsql/bin".into()); // built from source
    folders
}

/// `parent/prefixNN/rest` for every NN, largest first.
fn newest_first(parent: &str, prefix: &str, rest: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path().join(rest)))
        })
        .collect();
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, folder)| folder).collect()
}

/// The folder that `postgres` really is in (PATH often has a link), if `initdb` is there too.
fn server_folder(folder: &Path) -> Option<PathBuf> {
    let real = folder.join("postgres").canonicalize().ok()?;
    let bin = real.parent()?;
    bin.join("initdb").exists().then(|| bin.to_owned())
}

async fn version(bin: &Path) -> Option<(u32, String)> {
    let output = Command::new(bin.join("postgres"))
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .await
        .ok()
        .filter(|output| output.status.success())?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)" gives 15 and "15.18"; "18beta1" gives 18.
fn parse_version(text: &str) -> Option<(u32, String)> {
    let version = text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()))?;
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, version.to_owned()))
}

/// The one command that installs the server on this system.
fn install_command() -> String {
    if cfg!(target_os = "macos") {
        return "brew install postgresql@17".to_owned();
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    install_command_for(&release, super::run_as::am_root())
}

fn install_command_for(os_release: &str, root: bool) -> String {
    let value = |key: &str| {
        os_release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .unwrap_or_default()
            .trim_matches(['"', '\''])
            .to_owned()
    };
    let names = format!("{} {}", value("ID"), value("ID_LIKE"));
    let command = names.split_whitespace().find_map(|name| {
        Some(match name {
            "debian" | "ubuntu" => "apt-get install -y postgresql",
            "fedora" | "rhel" | "centos" => "dnf install -y postgresql-server",
            "arch" => "pacman -S postgresql",
            "alpine" => "apk add postgresql",
            "suse" | "opensuse" => "zypper install postgresql-server",
            _ => return None,
        })
    });
    match command {
        Some(command) if root => command.to_owned(),
        Some(command) => format!("sudo {command}"),
        None => "your package manager: the package with PostgreSQL's server and initdb".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_shapes_are_read() {
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(parse_version(debian), Some((15, "15.18".to_owned())));
        assert_eq!(
            parse_version("postgres (PostgreSQL) 18beta1"),
            Some((18, "18beta1".to_owned()))
        );
        assert_eq!(parse_version("postgres (PostgreSQL) 9.6.24"), Some((9, "9.6.24".to_owned())));
        assert_eq!(parse_version("not a version"), None);
    }

    #[test]
    fn the_install_command_fits_the_system() {
        for (release, command) in [
            ("ID=debian\n", "apt-get install -y postgresql"),
            (
                "NAME=\"Mint\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
                "apt-get install -y postgresql",
            ),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "dnf install -y postgresql-server"),
            ("ID=fedora\n", "dnf install -y postgresql-server"),
            ("ID=arch\n", "pacman -S postgresql"),
            ("ID=alpine\n", "apk add postgresql"),
        ] {
            assert_eq!(install_command_for(release, true), command);
            assert_eq!(install_command_for(release, false), format!("sudo {command}"));
        }
        assert!(install_command_for("", false).contains("package manager"));
    }
}
