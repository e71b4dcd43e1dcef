//! The running server: start or adopt, wait until it is ready, stop.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cluster::short_hash;
use super::find::Installation;
use super::run_as::{self, RunAs};
use super::{Options, PrivatePgError};

/// The port only names the socket file; nothing listens on it.
const PORT: u16 = 5432;
const POLL: Duration = Duration::from_millis(25);
const FAST_STOP: Duration = Duration::from_secs(45);
const IMMEDIATE_STOP: Duration = Duration::from_secs(15);
/// Longest that dropping blocks.
const DROP_STOP: Duration = Duration::from_secs(5);
/// A log larger than this is moved aside at start.
const LOG_MAX: u64 = 16 << 20;

/// A server that answers. Dropping it tells it to stop.
#[derive(Debug)]
pub(super) struct Server {
    cluster: PathBuf,
    url: String,
    /// `None` once it has ended.
    running: Option<Running>,
}

#[derive(Debug)]
enum Running {
    Ours(Child),
    Adopted(Pid),
}

impl Running {
    fn pid(&self) -> Pid {
        match self {
            // Process ids are positive and below 2^22.
            Running::Ours(child) => Pid::from_raw(child.id() as i32),
            Running::Adopted(pid) => *pid,
        }
    }
}

impl Server {
    pub(super) async fn start(
        cluster: PathBuf,
        installation: &Installation,
        run_as: Option<&RunAs>,
        log: PathBuf,
        options: &Options,
    ) -> Result<Server, PrivatePgError> {
        let started = Instant::now();
        let mut server = Server { cluster, url: String::new(), running: None };
        loop {
            let ignored_pid = match server.look().await {
                Found::Running(pid_file) => {
                    tracing::info!(
                        "adopting the PostgreSQL that is running (process {})",
                        pid_file.pid
                    );
                    server.url = url(&pid_file.socket_dir)?;
                    server.running = Some(Running::Adopted(pid_file.pid));
                    let log_from = std::fs::metadata(&log).map_or(0, |meta| meta.len());
                    match server.wait_ready(started, options, &log, log_from).await? {
                        Start::Ready => return Ok(server),
                        // It was on its way out: start anew.
                        Start::Ended { .. } => continue,
                    }
                }
                Found::Nothing { ignored_pid } => ignored_pid,
            };
            let socket_dir = socket_dir(&server.cluster, run_as)?;
            server.url = url(&socket_dir)?;
            let log_from =
                server.spawn(installation, run_as, &socket_dir, &log, ignored_pid, options)?;
            match server.wait_ready(started, options, &log, log_from).await? {
                Start::Ready => return Ok(server),
                Start::Ended { tail } => {
                    // Processes of a postmaster that was killed need a moment to notice.
                    let passing = tail.contains("pre-existing shared memory block");
                    if passing && started.elapsed() < options.start_timeout {
                        tokio::time::sleep(POLL * 10).await;
                        continue;
                    }
                    return Err(start_failed(&tail, log));
                }
            }
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn pid(&self) -> Pid {
        self.running.as_ref().map_or(Pid::from_raw(0), Running::pid)
    }

    pub(super) fn adopted(&self) -> bool {
        matches!(self.running, Some(Running::Adopted(_)))
    }

    /// Whether a server of this cluster runs. We hold the directory's lock, so nobody starts one meanwhile.
    async fn look(&self) -> Found {
        let Some(pid_file) = PidFile::read(&self.cluster) else {
            return Found::Nothing { ignored_pid: None };
        };
        if pid_file.data_dir != self.cluster {
            // A copied or moved folder: the file speaks of another server.
            return Found::Nothing { ignored_pid: None };
        }
        // The server writes the file a moment before it listens.
        let until = Instant::now() + Duration::from_secs(2);
        loop {
            if pid_file.listens() {
                return Found::Running(pid_file);
            }
            if !alive(pid_file.pid) {
                return Found::Nothing { ignored_pid: None };
            }
            if Instant::now() >= until || is_another_program(pid_file.pid) {
                // After a reboot, or in another container, somebody else has that number.
                return Found::Nothing { ignored_pid: Some(pid_file.pid) };
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns where the new lines of the log begin.
    fn spawn(
        &mut self,
        installation: &Installation,
        run_as: Option<&RunAs>,
        socket_dir: &Path,
        log: &Path,
        ignored_pid: Option<Pid>,
        options: &Options,
    ) -> Result<u64, PrivatePgError> {
        let (log_file, log_from) = open_log(log)?;
        let errors = log_file.try_clone().map_err(PrivatePgError::io("open", log))?;
        let durable = if options.durable { "on" } else { "off" };
        let mut command =
            run_as::command(installation, "postgres", run_as, &self.cluster).into_std();
        command.arg("-D").arg(&self.cluster).arg("-p").arg(PORT.to_string());
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "");
        set("unix_socket_directories", &socket_dir.to_string_lossy());
        for name in ["fsync", "full_page_writes", "synchronous_commit"] {
            set(name, durable);
        }
        // Personal data must not reach the log: no statements, no "Key (email)=(...)".
        set("log_error_verbosity", "terse");
        set("log_min_error_statement", "panic");
        set("logging_collector", "off");
        set("log_destination", "stderr");
        set("log_checkpoints", "off");
        for (name, value) in &options.settings {
            set(name, value);
        }
        if let Some(pid) = ignored_pid {
            // PostgreSQL takes a lock file with this number for its starter's and goes on to its other checks.
            command.env("PG_GRANDPARENT_PID", pid.to_string());
        }
        // A group of its own: Ctrl-C in the terminal is for leadsync, which then stops the server in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdout(Stdio::from(log_file)).stderr(Stdio::from(errors));
        let child = command
            .spawn()
            .map_err(PrivatePgError::io("run", &installation.program("postgres")))?;
        self.running = Some(Running::Ours(child));
        Ok(log_from)
    }

    async fn wait_ready(
        &mut self,
        started: Instant,
        options: &Options,
        log: &Path,
        log_from: u64,
    ) -> Result<Start, PrivatePgError> {
        let mut next_note = Instant::now() + Duration::from_secs(3);
        loop {
            if self.ended() {
                self.running = None;
                return Ok(Start::Ended { tail: tail(log, log_from) });
            }
            let ready = PidFile::read(&self.cluster).is_some_and(|pid_file| {
                pid_file.pid == self.pid() && pid_file.status == "ready" && pid_file.listens()
            });
            if ready {
                return Ok(Start::Ready);
            }
            let now = Instant::now();
            if now >= next_note {
                let last = tail(log, log_from);
                tracing::info!(
                    "PostgreSQL is starting, {} s so far: {}",
                    started.elapsed().as_secs(),
                    last.lines().last().unwrap_or("no word yet")
                );
                next_note = now + Duration::from_secs(5);
            }
            if started.elapsed() >= options.start_timeout {
                let said = tail(log, log_from);
                if said.contains("automatic recovery in progress") || said.contains("redo ") {
                    // Stopping it would make the next start begin the same recovery again.
                    self.running = None;
                    return Err(PrivatePgError::StillRecovering {
                        waited_s: started.elapsed().as_secs(),
                        log: log.to_owned(),
                    });
                }
                return Err(PrivatePgError::StartFailed {
                    reason: format!("not ready after {} s", started.elapsed().as_secs()),
                    log: log.to_owned(),
                    tail: said,
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) async fn stop(&mut self) -> Result<(), PrivatePgError> {
        for (signal, limit) in [(Signal::SIGINT, FAST_STOP), (Signal::SIGQUIT, IMMEDIATE_STOP)] {
            self.signal(signal);
            let until = Instant::now() + limit;
            while Instant::now() < until {
                if self.ended() {
                    self.running = None;
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            }
        }
        // Nothing more to try in Drop.
        let pid = self.pid().as_raw();
        self.running = None;
        Err(PrivatePgError::StopFailed { pid })
    }

    fn signal(&self, signal: Signal) {
        if let Some(running) = &self.running {
            // An error means that it has ended, which `ended` sees.
            let _ = kill(running.pid(), signal);
        }
    }

    fn ended(&mut self) -> bool {
        match &mut self.running {
            None => true,
            Some(Running::Ours(child)) => !matches!(child.try_wait(), Ok(None)),
            // Taking its file away is the last thing the server does; a killed one leaves it.
            Some(Running::Adopted(pid)) => {
                !alive(*pid)
                    || PidFile::read(&self.cluster).is_none_or(|pid_file| pid_file.pid != *pid)
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::SIGINT);
        let until = Instant::now() + DROP_STOP;
        while !self.ended() && Instant::now() < until {
            std::thread::sleep(POLL);
        }
    }
}

enum Found {
    Running(PidFile),
    /// With the number in a stale file, if a living stranger has it.
    Nothing {
        ignored_pid: Option<Pid>,
    },
}

enum Start {
    Ready,
    Ended { tail: String },
}

/// postmaster.pid, whose lines are: process, data directory, start time, port, socket directory, address, shared memory, status.
struct PidFile {
    pid: Pid,
    data_dir: PathBuf,
    socket_dir: PathBuf,
    status: String,
}

impl PidFile {
    fn read(cluster: &Path) -> Option<PidFile> {
        let text = std::fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
        let mut lines = text.lines();
        let pid: i32 = lines.next()?.trim().parse().ok().filter(|pid| *pid > 1)?;
        let data_dir = lines.next()?.into();
        let mut lines = lines.skip(2);
        let socket_dir = lines.next().unwrap_or_default().into();
        let status = lines.nth(2).unwrap_or_default().trim().to_owned();
        Some(PidFile { pid: Pid::from_raw(pid), data_dir, socket_dir, status })
    }

    fn listens(&self) -> bool {
        !self.socket_dir.as_os_str().is_empty()
            && UnixStream::connect(self.socket_dir.join(format!(".s.PGSQL.{PORT}"))).is_ok()
    }
}

fn alive(pid: Pid) -> bool {
    !matches!(kill(pid, None), Err(nix::errno::Errno::ESRCH))
}

/// Certain only where /proc tells; elsewhere the wait for its socket decides.
fn is_another_program(pid: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| !matches!(name.trim(), "postgres" | "postmaster"))
}

/// Beside the cluster; in /tmp if that would be too long for a socket address (about 104 bytes) or has characters that
/// a list of folders or a URL would have to quote.
fn socket_dir(cluster: &Path, run_as: Option<&RunAs>) -> Result<PathBuf, PrivatePgError> {
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

fn url(socket_dir: &Path) -> Result<String, PrivatePgError> {
    let dir = socket_dir.to_str().ok_or_else(|| {
        PrivatePgError::io("use", socket_dir)(std::io::Error::other("its name is not UTF-8"))
    })?;
    Ok(format!("postgresql://leadsync@/leadsync?host={dir}&port={PORT}"))
}

/// Opened to append; the length tells where this start's lines begin.
fn open_log(log: &Path) -> Result<(File, u64), PrivatePgError> {
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
fn tail(log: &Path, from: u64) -> String {
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

fn start_failed(tail: &str, log: PathBuf) -> PrivatePgError {
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
