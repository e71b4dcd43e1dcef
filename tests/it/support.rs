//! What the tests stand on.

pub mod app;
pub mod db;
pub mod keyless;
pub mod log;
pub mod openapi;
pub mod process;
pub mod wire;
