//! What PostgreSQL says of itself in postmaster.pid, and whether it is still true.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::socket::PORT;

/// postmaster.pid, whose lines are: process, data directory, start time, port, socket directory, address, shared memory, status.
pub(super) struct PidFile {
    pub pid: Pid,
    pub data_dir: PathBuf,
    pub socket_dir: PathBuf,
    pub status: String,
}

impl PidFile {
    pub(super) fn read(cluster: &Path) -> Option<PidFile> {
        let text = std::fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
        let mut lines = text.lines();
        let pid: i32 = lines.next()?.trim().parse().ok().filter(|pid| *pid > 1)?;
        let data_dir = lines.next()?.into();
        let mut lines = lines.skip(2);
        let socket_dir = lines.next().unwrap_or_default().into();
        let status = lines.nth(2).unwrap_or_default().trim().to_owned();
        Some(PidFile { pid: Pid::from_raw(pid), data_dir, socket_dir, status })
    }

    pub(super) fn listens(&self) -> bool {
        !self.socket_dir.as_os_str().is_empty()
            && UnixStream::connect(self.socket_dir.join(format!(".s.PGSQL.{PORT}"))).is_ok()
    }
}

pub(super) fn alive(pid: Pid) -> bool {
    if matches!(kill(pid, None), Err(nix::errno::Errno::ESRCH)) {
        return false;
    }
    // In a container without an init nobody may collect the dead.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.lines().any(|line| line.starts_with("State:") && line.contains('Z'))
}

/// Certain only where /proc tells; elsewhere the wait for its socket decides.
pub(super) fn is_another_program(pid: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| !matches!(name.trim(), "postgres" | "postmaster"))
}
