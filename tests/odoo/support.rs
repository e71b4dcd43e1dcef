//! What the tests of the service stand on, too.

#[path = "../it/support/app.rs"]
pub mod app;
#[path = "../it/support/db.rs"]
pub mod db;
#[path = "../it/support/log.rs"]
pub mod log;
#[path = "../it/support/process.rs"]
pub mod process;
