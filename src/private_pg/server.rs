//! The running server: start or adopt, wait until it is ready, stop.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::find::Installation;
use super::log::{open_log, start_failed, tail};
use super::pid_file::{PidFile, alive, is_another_program};
use super::run_as::{self, RunAs};
use super::socket::{PORT, socket_dir, url};
use super::{Options, PrivatePgError};

const POLL: Duration = Duration::from_millis(25);
const FAST_STOP: Duration = Duration::from_secs(45);
const IMMEDIATE_STOP: Duration = Duration::from_secs(15);
/// Longest that dropping blocks.
const DROP_STOP: Duration = Duration::from_secs(5);

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
            let stale_pid = match server.look().await {
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
                Found::Nothing { stale_pid } => stale_pid,
            };
            let socket_dir = socket_dir(&server.cluster, run_as)?;
            server.url = url(&socket_dir)?;
            let log_from =
                server.spawn(installation, run_as, &socket_dir, &log, stale_pid, options)?;
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
            return Found::Nothing { stale_pid: None };
        };
        let stale = Found::Nothing { stale_pid: Some(pid_file.pid) };
        if pid_file.data_dir != self.cluster {
            return stale; // a copied or moved folder: the file speaks of another server
        }
        // The server writes the file a moment before it listens. After a reboot, or in another container, somebody else
        // may have its number.
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && alive(pid_file.pid) && !is_another_program(pid_file.pid) {
            if pid_file.listens() {
                return Found::Running(pid_file);
            }
            tokio::time::sleep(POLL).await;
        }
        stale
    }

    /// Returns where the new lines of the log begin.
    fn spawn(
        &mut self,
        installation: &Installation,
        run_as: Option<&RunAs>,
        socket_dir: &Path,
        log: &Path,
        stale_pid: Option<Pid>,
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
        set("fsync", durable);
        set("full_page_writes", durable);
        // Costs nothing without fsync, and a killed server then still has what it confirmed.
        set("synchronous_commit", "on");
        // Personal data must not reach the log: no statements, no "Key (email)=(...)".
        set("log_error_verbosity", "terse");
        set("log_min_error_statement", "panic");
        set("logging_collector", "off");
        set("log_destination", "stderr");
        set("log_checkpoints", "off");
        for (name, value) in &options.settings {
            set(name, value);
        }
        if let Some(pid) = stale_pid {
            // PostgreSQL itself would believe a lock file whose number is taken again. With this it takes the number for
            // its starter's and goes on to its other check, whether shared memory of that cluster is in use.
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
    /// With the number in a file that a server left.
    Nothing {
        stale_pid: Option<Pid>,
    },
}

enum Start {
    Ready,
    Ended { tail: String },
}
