//! `leadsync replay`

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;

use super::{Failure, Global, not_configured};
use crate::app;
use crate::error::Exit;
use crate::lead::{Micros, Outcome};
use crate::receive::API_SOURCE;
use crate::receive::lines::IMPORT_SOURCE;
use crate::receive::replay::Replayed;
use crate::stop::Stop;
use crate::store::deliveries::ReplayFilter;

/// Send stored deliveries through today's mapping again
///
/// Harmless at any time: without a changed mapping, nothing changes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync replay\n  \
    leadsync replay --source site --outcome rejected\n  \
    leadsync replay --since 2026-11-01T00:00:00Z")]
pub(super) struct Replay {
    /// Only deliveries of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only deliveries received since then (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Micros>,
    /// Only deliveries with this outcome (created, updated, unchanged, queued, rejected, ignored)
    #[arg(long, value_name = "OUTCOME", value_parser = outcome)]
    outcome: Option<Outcome>,
}

fn time(text: &str) -> Result<Micros, String> {
    let time: jiff::Timestamp = text.parse().map_err(|e| format!("not an RFC 3339 time: {e}"))?;
    Ok(time.as_microsecond())
}

fn outcome(text: &str) -> Result<Outcome, String> {
    Outcome::parse(text)
        .ok_or_else(|| "one of created, updated, unchanged, queued, rejected, ignored".to_owned())
}

impl Replay {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (config, database) = global.open().await?;
        if let Some(name) = &self.source
            && name != API_SOURCE
            && name != IMPORT_SOURCE
            && !config.sources.iter().any(|s| s.name == *name)
        {
            database.close().await;
            let known: Vec<_> = config.sources.iter().map(|s| s.name.as_str()).collect();
            return Err(not_configured("source", name, &known));
        }
        let (changed, _) = watch::channel(0);
        let filter = ReplayFilter { source: self.source, since: self.since, outcome: self.outcome };
        let bar = ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {pos} deliveries replayed, {per_sec}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.enable_steady_tick(Duration::from_millis(200));
        let replayed = async {
            let receiver =
                app::receiver(&config, database.store.clone(), changed, Stop::new()).await?;
            Ok::<_, Failure>(receiver.replay(&filter, |done| bar.set_position(done)).await?)
        };
        let replayed = replayed.await;
        bar.finish_and_clear();
        database.close().await;
        let replayed = replayed?;
        if replayed == Replayed::default() {
            say!("nothing to replay")?;
        }
        for (outcome, leads) in &replayed.outcomes {
            say!("{leads} {}", outcome.name())?;
        }
        if replayed.without_body > 0 {
            say!("{} without a stored body, passed over", replayed.without_body)?;
        }
        if replayed.without_source > 0 {
            say!(
                "{} of sources that are not configured any more, passed over",
                replayed.without_source
            )?;
        }
        if replayed.failed > 0 {
            say!("{} could not be stored; run the replay again", replayed.failed)?;
            return Ok(Exit::Failed);
        }
        Ok(Exit::Ok)
    }
}
