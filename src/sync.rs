//! To come.

pub mod backoff;
pub mod schedule;
