//! Makes the cluster, whole or not at all, and knows an existing one.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::PrivatePgError;
use super::find::Installation;
use super::run_as::{self, RunAs};

/// Where a cluster goes that cannot be in the data directory.
const ELSEWHERE: &str = "/var/lib/leadsync";

/// initdb takes about a second; a machine that needs longer than this is not well.
const INIT_TIMEOUT: Duration = Duration::from_secs(180);

/// Major version of the cluster, `None` if there is none yet.
pub(super) fn made_by(place: &Path) -> Result<Option<u32>, PrivatePgError> {
    match std::fs::read_to_string(place.join("PG_VERSION")) {
        Ok(version) => match version.trim().split('.').next().map(str::parse) {
            Some(Ok(major)) => Ok(Some(major)),
            _ => Err(PrivatePgError::NotACluster(place.to_owned())),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let mut entries = match std::fs::read_dir(place) {
                Ok(entries) => entries,
                // A link that points nowhere is data on a disk that is not there, not a first start.
                Err(_) if place.is_symlink() => {
                    return Err(PrivatePgError::NotACluster(place.to_owned()));
                }
                Err(_) if !place.exists() => return Ok(None),
                Err(e) => return Err(PrivatePgError::io("read", place)(e)),
            };
            match entries.next() {
                None => Ok(None),
                Some(_) => Err(PrivatePgError::NotACluster(place.to_owned())),
            }
        }
        Err(e) => Err(PrivatePgError::io("read the version of", place)(e)),
    }
}

/// The real folder of an existing cluster that the user can work in.
pub(super) async fn open(
    place: &Path,
    installation: &Installation,
    run_as: Option<&RunAs>,
) -> Result<PathBuf, PrivatePgError> {
    let cluster = place.canonicalize().map_err(PrivatePgError::io("resolve", place))?;
    run_as::can_enter(installation, run_as, &cluster).await?;
    if let Some(home) = cluster.parent() {
        clear_leftovers(home);
    }
    Ok(cluster)
}

/// Makes the cluster under another name and renames it when it is complete, so that a kill at any moment leaves either
/// none or a whole one. If root's data directory is closed to the user of PostgreSQL (a checkout under /root), the cluster
/// goes to /var/lib/leadsync and a link takes its place.
pub(super) async fn create(
    place: &Path,
    installation: &Installation,
    run_as: Option<&RunAs>,
    durable: bool,
) -> Result<PathBuf, PrivatePgError> {
    let data_dir = place.parent().unwrap_or(place);
    let home = match run_as::can_enter(installation, run_as, data_dir).await {
        Ok(()) => data_dir.to_owned(),
        Err(PrivatePgError::Unreachable { user, blocked }) => {
            let home = Path::new(ELSEWHERE).join(short_hash(data_dir));
            tracing::warn!(
                "user {user} cannot enter {}: the cluster goes to {} and {} links to it",
                blocked.display(),
                home.display(),
                place.display()
            );
            std::fs::create_dir_all(&home).map_err(PrivatePgError::io("create", &home))?;
            run_as::can_enter(installation, run_as, &home).await?;
            home
        }
        Err(e) => return Err(e),
    };
    clear_leftovers(&home);
    let cluster = home.join("postgres");
    if !cluster.join("PG_VERSION").exists() {
        init(&cluster, &home, installation, run_as, durable).await?;
    }
    if home != data_dir {
        let _ = std::fs::remove_dir(place); // an empty folder may be there
        std::os::unix::fs::symlink(&cluster, place).map_err(PrivatePgError::io("link", place))?;
        sync_dir(data_dir)?;
    }
    cluster.canonicalize().map_err(PrivatePgError::io("resolve", &cluster))
}

async fn init(
    cluster: &Path,
    home: &Path,
    installation: &Installation,
    run_as: Option<&RunAs>,
    durable: bool,
) -> Result<(), PrivatePgError> {
    tracing::info!("making a PostgreSQL {} cluster in {}", installation.major, cluster.display());
    // A name of its own each time: an initdb that outlived a killed leadsync may still be writing to the last one.
    let new = home.join(format!("{NEW}{}-{}", std::process::id(), uuid::Uuid::new_v4().simple()));
    std::fs::create_dir(&new).map_err(PrivatePgError::io("create", &new))?;
    let made = make(&new, installation, run_as, durable).await;
    if let Err(e) = made {
        let _ = std::fs::remove_dir_all(&new);
        return Err(e);
    }
    let _ = std::fs::remove_dir(cluster); // an empty folder may be there
    std::fs::rename(&new, cluster).map_err(PrivatePgError::io("rename to", cluster))?;
    sync_dir(home)
}

const NEW: &str = "postgres.new-";

async fn make(
    new: &Path,
    installation: &Installation,
    run_as: Option<&RunAs>,
    durable: bool,
) -> Result<(), PrivatePgError> {
    run_as::give(new, run_as)?;
    // C.UTF-8 gives byte order and Unicode letter cases; where the system lacks it, C does.
    if let Err(first) = initdb(new, installation, run_as, durable, "C.UTF-8").await {
        empty(new)?;
        if initdb(new, installation, run_as, durable, "C").await.is_err() {
            return Err(first);
        }
    }
    let conf = new.join("postgresql.conf");
    let add = || {
        use std::io::Write;
        let mut file = std::fs::File::options().append(true).open(&conf)?;
        file.write_all(settings().as_bytes())?;
        file.sync_all()
    };
    add().map_err(PrivatePgError::io("write", &conf))?;
    create_database(new, installation, run_as, durable).await
}

async fn initdb(
    dir: &Path,
    installation: &Installation,
    run_as: Option<&RunAs>,
    durable: bool,
    locale: &str,
) -> Result<(), PrivatePgError> {
    let mut command = run_as::command(installation, "initdb", run_as, dir);
    command
        .arg("--pgdata")
        .arg(dir)
        .args(["--username=leadsync", "--encoding=UTF8", "--data-checksums", "--no-instructions"])
        // Nobody but the owner can enter the socket's folder, and nothing listens elsewhere.
        .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
        .arg(format!("--locale={locale}"));
    if !durable {
        command.arg("--no-sync");
    }
    run("initdb", command, None).await
}

/// Through the single-user mode, so that no client program is needed and the cluster appears together with its database.
async fn create_database(
    dir: &Path,
    installation: &Installation,
    run_as: Option<&RunAs>,
    durable: bool,
) -> Result<(), PrivatePgError> {
    let mut command = run_as::command(installation, "postgres", run_as, dir);
    command.args(["--single", "-c", "exit_on_error=on", "-D"]).arg(dir);
    if !durable {
        command.args(["-c", "fsync=off"]);
    }
    command.arg("postgres");
    run("postgres --single", command, Some("create database leadsync;\n")).await
}

/// Runs to the end, bounded; the error carries the end of what it said.
async fn run(name: &str, mut command: Command, input: Option<&str>) -> Result<(), PrivatePgError> {
    let failed = |output: String| PrivatePgError::Program { program: name.to_owned(), output };
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // A program that ended early says why in its output.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = tokio::time::timeout(INIT_TIMEOUT, child.wait_with_output())
        .await
        .map_err(|_| failed(format!("not done after {} s", INIT_TIMEOUT.as_secs())))?
        .map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(failed(format!("{}: {}", output.status, lines[lines.len().saturating_sub(8)..].join("\n"))))
}

/// Defaults for this machine, where the owner of the cluster may change them. What the promises need is on the command line.
fn settings() -> String {
    let small = memory_bytes().is_none_or(|bytes| bytes < 2 << 30);
    let shared = if small { "128MB" } else { "256MB" };
    format!(
        "\n# Set by leadsync when it made the cluster. Change what you like.\n\
         max_connections = 100\n\
         shared_buffers = {shared}\n\
         wal_compression = on\n\
         max_wal_size = 2GB\n\
         checkpoint_timeout = 15min\n\
         random_page_cost = 1.1\n"
    )
}

/// Memory of the machine or of the container, whichever is less.
fn memory_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    });
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    match (machine, container) {
        (Some(machine), Some(container)) => Some(machine.min(container)),
        (machine, container) => machine.or(container),
    }
}

/// Best effort: what is still being written to goes at the next start.
fn clear_leftovers(home: &Path) {
    for entry in std::fs::read_dir(home).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NEW) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn empty(dir: &Path) -> Result<(), PrivatePgError> {
    let entries = std::fs::read_dir(dir).map_err(PrivatePgError::io("read", dir))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(&path),
            _ => std::fs::remove_file(&path),
        };
        removed.map_err(PrivatePgError::io("remove", &path))?;
    }
    Ok(())
}

fn sync_dir(dir: &Path) -> Result<(), PrivatePgError> {
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(PrivatePgError::io("sync", dir))
}

/// Names a folder after a path, short enough for a socket.
pub(super) fn short_hash(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    hex::encode(&Sha256::digest(path.as_os_str().as_bytes())[..8])
}
