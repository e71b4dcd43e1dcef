//! `leadsync migrate`

use clap::Args;

use super::{Failure, Global};
use crate::app::{AppError, Database};
use crate::error::Exit;
use crate::store::migrate::State;

/// Bring the database schema up to this version
///
/// Under a lock, so any number of instances may try. `serve` does the same unless told not to.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  LEADSYNC_DATABASE__URL=postgres://owner@db.example.com/leads leadsync migrate"
)]
pub(super) struct Migrate {}

impl Migrate {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let config = global.load(Vec::new())?;
        let database = match Database::join(&config).await {
            Err(AppError::NoDatabase(_)) => Database::open(&config).await?,
            joined => joined?,
        };
        let state = database.migrate().await;
        database.close().await;
        match state? {
            State::Current => say!("the database is up to date")?,
            State::Ahead(version) => {
                say!("the database is ahead of this version: it has migration V{version}")?;
            }
            State::Pending(missing) => say!("{missing} migrations are missing")?,
        }
        Ok(Exit::Ok)
    }
}
