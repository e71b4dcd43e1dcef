//! One stop token for the whole process.
//!
//! Everything that runs for long is given a [`Stop`] and ends soon after it is cancelled: the accept
//! loop takes no more connections and lets requests under way finish, the sync loop gives its leases
//! back. Nobody but [`on_signals`] and the commands' own ends cancels it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

pub use tokio_util::sync::CancellationToken as Stop;

/// A token that SIGTERM, SIGINT or SIGHUP cancels (the last unless it was ignored from the start). A second signal of any kind ends the process at once
/// with the shell's code for that signal (143, 130, 129), without waiting for anything: whatever was
/// answered is committed already, so nothing is lost by it.
///
/// From here on these signals no longer kill the process by themselves, so call it once, and only
/// in commands that honour the token. Needs a tokio runtime.
///
/// # Errors
///
/// The operating system refused to install a handler.
pub fn on_signals() -> io::Result<Stop> {
    let mut signals = Signals {
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
        // Under nohup a closed terminal is to be survived.
        hang_up: if hang_up_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
    };
    let stop = Stop::new();
    let cancelled_here = stop.clone();
    tokio::spawn(async move {
        let name = signals.next().await.name;
        info!("{name}: finishing what is under way, a second signal ends at once");
        cancelled_here.cancel();
        let again = signals.next().await;
        warn!("{}: ending at once", again.name);
        std::process::exit(again.exit_code);
    });
    Ok(stop)
}

struct Caught {
    name: &'static str,
    /// 128 + signal number, as shells report a process that a signal killed.
    exit_code: i32,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    async fn next(&mut self) -> Caught {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Caught { name: "SIGTERM", exit_code: 143 },
            _ = self.interrupt.recv() => Caught { name: "SIGINT", exit_code: 130 },
            _ = hang_up => Caught { name: "SIGHUP", exit_code: 129 },
        }
    }
}

/// Whether this process was started with SIGHUP ignored, as nohup does. Only Linux tells.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 is signal 1, SIGHUP.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|m| m & 1 == 1)
}
