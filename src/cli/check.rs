//! `leadsync check`

use clap::Args;

use super::{Failure, Global};
use crate::app;
use crate::error::{Exit, Printable};

/// Check configuration, database, sources and destinations without writing anything
///
/// Asks each CRM whether the credentials work and the mapped properties exist.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  leadsync check\n  leadsync check --show")]
pub(super) struct Check {
    /// Print the settings in force, secrets redacted
    #[arg(long)]
    show: bool,
}

impl Check {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        if self.show {
            say!("{}", global.read(Vec::new())?.show().trim_end())?;
            return Ok(Exit::Ok);
        }
        let config = global.load(Vec::new())?;
        let findings = app::check(&config).await;
        for finding in &findings {
            let mark = if finding.right { "ok   " } else { "WRONG" };
            say!("{mark} {}: {}", Printable(&finding.about), Printable(&finding.sentence))?;
        }
        Ok(if findings.iter().all(|f| f.right) { Exit::Ok } else { Exit::Failed })
    }
}
