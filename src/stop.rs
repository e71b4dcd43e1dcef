//! One stop token for the whole process.

pub use tokio_util::sync::CancellationToken as Stop;
