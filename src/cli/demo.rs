//! `leadsync demo`

use clap::Args;

use super::Failure;
use crate::error::Exit;

/// Demo
#[derive(Debug, Args)]
pub(super) struct Demo {}

impl Demo {
    pub(super) async fn run(self) -> Result<Exit, Failure> {
        Ok(Exit::Ok)
    }
}
