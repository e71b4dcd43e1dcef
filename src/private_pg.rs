//! A private PostgreSQL: finds an installed one, keeps a cluster in the data directory, starts or adopts it, stops it.
//!
//! Layout of the data directory: `postgres/` the cluster, `socket/` its socket, `postgres.lock` held by the one
//! process that uses it, `postgres.log` what the server says. Nothing listens on the network.

mod cluster;
mod find;
mod log;
mod pid_file;
mod run_as;
mod server;
mod socket;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use pid_file::PidFile;
use server::Server;

/// What can differ from the defaults, which are those of production.
#[derive(Clone, Debug)]
pub struct Options {
    /// `false` switches fsync and full-page writes off: for tests, which may kill the server but not the machine.
    pub durable: bool,
    /// How long a start may take; a crash recovery under way is not cut short by it, see [`PrivatePgError::StillRecovering`].
    pub start_timeout: Duration,
    /// Folders to look for `postgres` and `initdb` in; `None`: PATH, then the usual package folders.
    pub bin_dirs: Option<Vec<PathBuf>>,
    /// Further server settings, name and value.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durable: true,
            start_timeout: Duration::from_secs(60),
            bin_dirs: None,
            settings: Vec::new(),
        }
    }
}

/// Why there is no private PostgreSQL. The texts say what to do.
#[derive(Debug, thiserror::Error)]
pub enum PrivatePgError {
    /// No server programs on this machine.
    #[error("PostgreSQL is not installed here; install it with `{install}`, or set database.url")]
    NotInstalled {
        /// The command for this system.
        install: String,
    },
    /// Only versions that are too old.
    #[error(
        "{path} is PostgreSQL {version}; {} or newer is needed, install it with `{install}`",
        find::OLDEST
    )]
    TooOld {
        /// The program found.
        path: PathBuf,
        /// Its version.
        version: String,
        /// The command for this system.
        install: String,
    },
    /// The cluster belongs to another major version than those installed.
    #[error(
        "the cluster in {cluster} was made by PostgreSQL {made_by}, and only {installed} is installed; \
         install PostgreSQL {made_by} beside it, or move the data over with pg_upgrade"
    )]
    OtherVersion {
        /// The cluster.
        cluster: PathBuf,
        /// Major version in its PG_VERSION.
        made_by: u32,
        /// Versions found.
        installed: String,
    },
    /// Another leadsync uses the directory.
    #[error("{dir} is in use by another leadsync{}; stop it, or set another data_dir", pid.map(|p| format!(" (process {p})")).unwrap_or_default())]
    InUse {
        /// The data directory.
        dir: PathBuf,
        /// The other process, if it has written its id.
        pid: Option<u32>,
    },
    /// The directory cannot be used by the user that must run PostgreSQL.
    #[error(
        "PostgreSQL must run as user {user}, who cannot enter {blocked}; \
         set data_dir to a place that every user can reach, for instance under /var/lib"
    )]
    Unreachable {
        /// The user.
        user: String,
        /// The first directory that keeps it out.
        blocked: PathBuf,
    },
    /// The cluster's files belong to somebody else.
    #[error("{cluster} belongs to user {owner}; {advice}")]
    WrongOwner {
        /// The cluster.
        cluster: PathBuf,
        /// Whose it is.
        owner: String,
        /// What to do.
        advice: String,
    },
    /// There is something where the cluster should be.
    #[error("{0} exists but is not a PostgreSQL cluster; move it away or set another data_dir")]
    NotACluster(PathBuf),
    /// A program did not do its part.
    #[error("{program} failed: {output}")]
    Program {
        /// Its name.
        program: String,
        /// The end of what it said.
        output: String,
    },
    /// The server did not come up.
    #[error("PostgreSQL did not start: {reason}; the end of {log}:\n{tail}")]
    StartFailed {
        /// In one sentence.
        reason: String,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// Crash recovery takes longer than the deadline. The server goes on, and the next start adopts it.
    #[error(
        "PostgreSQL is still recovering from a crash after {waited_s} s; it goes on by itself, start again later (see {log})"
    )]
    StillRecovering {
        /// Seconds waited.
        waited_s: u64,
        /// The log file.
        log: PathBuf,
    },
    /// The server does not end.
    #[error("PostgreSQL (process {pid}) does not stop")]
    StopFailed {
        /// The postmaster.
        pid: i32,
    },
    /// A file operation failed.
    #[error("cannot {what} {path}")]
    Io {
        /// Verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl PrivatePgError {
    fn io<'a>(
        what: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(std::io::Error) -> PrivatePgError + 'a {
        move |source| PrivatePgError::Io { what, path: path.to_owned(), source }
    }
}

/// A running private PostgreSQL. Call [`PrivatePg::stop`] when done; dropping it only makes sure that the server is told to stop.
/// When this process is killed the server stays, and the next start adopts it.
#[derive(Debug)]
pub struct PrivatePg {
    server: Server,
    // Last: the directory is free only after the server was told to stop.
    _lock: Flock<File>,
}

impl PrivatePg {
    /// Starts or adopts the cluster of `data_dir`, creating both if need be.
    pub async fn start(data_dir: &Path) -> Result<PrivatePg, PrivatePgError> {
        PrivatePg::start_with(data_dir, &Options::default()).await
    }

    /// The same with other [`Options`]. An adopted server keeps those that it was started with.
    pub async fn start_with(
        data_dir: &Path,
        options: &Options,
    ) -> Result<PrivatePg, PrivatePgError> {
        let data_dir = make_data_dir(data_dir)?;
        let lock = lock(&data_dir)?;
        let place = data_dir.join("postgres");
        let made_by = cluster::made_by(&place)?;
        let installation = find::find(options.bin_dirs.as_deref(), made_by, &place).await?;
        let run_as = run_as::choose(&place, made_by.is_some())?;
        let cluster = match made_by {
            Some(_) => cluster::open(&place, &installation, run_as.as_ref()).await?,
            None => {
                cluster::create(&place, &installation, run_as.as_ref(), options.durable).await?
            }
        };
        let log = data_dir.join("postgres.log");
        let server = Server::start(cluster, &installation, run_as.as_ref(), log, options).await?;
        Ok(PrivatePg { server, _lock: lock })
    }

    /// Connection URL for any client: the database `leadsync` as its owner, over the Unix socket.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Process id of the server.
    pub fn pid(&self) -> i32 {
        self.server.pid().as_raw()
    }

    /// Whether a server left by an earlier process was taken over.
    pub fn adopted(&self) -> bool {
        self.server.adopted()
    }

    /// Fast shutdown: sessions end, everything is written, the server has ended when this returns.
    pub async fn stop(mut self) -> Result<(), PrivatePgError> {
        self.server.stop().await
    }
}

/// Whether a data directory has a cluster.
pub fn exists(data_dir: &Path) -> bool {
    data_dir.join("postgres").exists()
}

/// Connection URL of the server that another leadsync runs in `data_dir`; `None` where none answers yet. Whoever uses it
/// must expect it to end with that other leadsync.
pub fn url_of_running(data_dir: &Path) -> Option<String> {
    let cluster = data_dir.join("postgres").canonicalize().ok()?;
    let pid_file = PidFile::read(&cluster)?;
    let ready = pid_file.data_dir == cluster && pid_file.status == "ready" && pid_file.listens();
    if ready { socket::url(&pid_file.socket_dir).ok() } else { None }
}

fn make_data_dir(data_dir: &Path) -> Result<PathBuf, PrivatePgError> {
    use std::os::unix::fs::PermissionsExt;
    if !data_dir.exists() {
        std::fs::create_dir_all(data_dir).map_err(PrivatePgError::io("create", data_dir))?;
        if run_as::am_root() {
            // A strict umask must not lock out the user that runs PostgreSQL: entering is enough, listing is not needed.
            std::fs::set_permissions(data_dir, std::fs::Permissions::from_mode(0o711))
                .map_err(PrivatePgError::io("set the mode of", data_dir))?;
        }
    }
    data_dir.canonicalize().map_err(PrivatePgError::io("resolve", data_dir))
}

/// An flock ends with its process however that ends, and the file is close-on-exec, so PostgreSQL never inherits it.
fn lock(data_dir: &Path) -> Result<Flock<File>, PrivatePgError> {
    let path = data_dir.join("postgres.lock");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(PrivatePgError::io("open", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            let mut write = || {
                lock.set_len(0)?;
                lock.rewind()?;
                write!(lock, "{}", std::process::id())
            };
            write().map_err(PrivatePgError::io("write", &path))?;
            Ok(lock)
        }
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            Err(PrivatePgError::InUse { dir: data_dir.to_owned(), pid: pid.trim().parse().ok() })
        }
        Err((_, errno)) => Err(PrivatePgError::io("lock", &path)(errno.into())),
    }
}
