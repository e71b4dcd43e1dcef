//! One stop token for the whole process.
//!
//! Everything that runs for long is given a [`Stop`] and ends soon after it is cancelled: the accept
//! loop takes no more connections and lets requests under way finish, the sync loop gives its leases
//! back. Nobody but [`on_signals`] and the commands' own ends cancels it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

pub use tokio_util::sync::CancellationToken as Stop;

/// A token that SIGTERM or SIGINT cancels. A second signal of either kind ends the process at once
/// with the shell's code for that signal (143, 130), without waiting for anything: whatever was
/// answered is committed already, so nothing is lost by it.
///
/// From here on the two signals no longer kill the process by themselves, so call it once, and only
/// in commands that honour the token. Needs a tokio runtime.
///
/// # Errors
///
/// The operating system refused to install a handler.
pub fn on_signals() -> io::Result<Stop> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = Stop::new();
    let cancelled_here = stop.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await.name;
        info!("{name}: finishing what is under way, a second signal ends at once");
        cancelled_here.cancel();
        let again = next(&mut terminate, &mut interrupt).await;
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

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> Caught {
    tokio::select! {
        _ = terminate.recv() => Caught { name: "SIGTERM", exit_code: 143 },
        _ = interrupt.recv() => Caught { name: "SIGINT", exit_code: 130 },
    }
}
