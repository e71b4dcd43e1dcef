//! `leadsync status`

use clap::Args;

use super::{Failure, Global};
use crate::error::{Exit, Printable};
use crate::store::view::StatusView;

/// Show backlog, parked and rejected, and the last error of every destination
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  leadsync status\n  leadsync status --json")]
pub(super) struct Status {
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (_, database) = global.open().await?;
        let status = database.store.status().await;
        database.close().await;
        let status = status?;
        if self.json {
            let json = serde_json::to_string_pretty(&status).map_err(std::io::Error::from)?;
            say!("{json}")?;
        } else {
            show(&status)?;
        }
        Ok(Exit::Ok)
    }
}

fn show(status: &StatusView) -> std::io::Result<()> {
    say!("{} leads", status.leads)?;
    for source in &status.sources {
        say!(
            "source {}: {} deliveries, {} repeats absorbed, newest {}",
            Printable(&source.source),
            source.deliveries,
            source.repeats,
            source.newest.as_deref().unwrap_or("never"),
        )?;
    }
    for rejected in &status.rejected {
        say!(
            "source {}: {} deliveries rejected ({})",
            Printable(&rejected.source),
            rejected.deliveries,
            Printable(rejected.reason.as_deref().unwrap_or("no reason")),
        )?;
    }
    for fetches in &status.fetches {
        let name = Printable(&fetches.source);
        say!(
            "source {name}: {} leads read, {} to be read, {} parked",
            fetches.done,
            fetches.due,
            fetches.parked,
        )?;
        if let Some(age) = fetches.oldest_due_seconds {
            say!("source {name}: the oldest to be read waits for {age:.0} s")?;
        }
        if let Some(paused) = &fetches.paused {
            say!(
                "source {name}: PAUSED ({}): {}",
                Printable(paused.kind.as_deref().unwrap_or("unknown")),
                Printable(paused.message.as_deref().unwrap_or("no message")),
            )?;
        }
        if let Some(error) = &fetches.poll_error {
            say!("source {name}: new leads cannot be listed: {}", Printable(error))?;
        }
        if let Some(error) = &fetches.last_error {
            let said = |member: &str| error[member].as_str().unwrap_or_default().to_owned();
            say!(
                "source {name}: {} {} is not read: {}",
                Printable(said("object")),
                Printable(said("remote_id")),
                Printable(said("message")),
            )?;
        }
    }
    for destination in &status.destinations {
        let name = Printable(&destination.destination);
        say!(
            "destination {name}: {} in sync, {} due, {} parked{}",
            destination.synced,
            destination.due,
            destination.parked,
            if destination.active { "" } else { ", not configured any more" },
        )?;
        if let Some(age) = destination.oldest_due_seconds {
            say!("destination {name}: the oldest change waits for {age:.0} s")?;
        }
        if let Some(paused) = &destination.paused {
            say!(
                "destination {name}: PAUSED ({}): {}",
                Printable(paused.kind.as_deref().unwrap_or("unknown")),
                Printable(paused.message.as_deref().unwrap_or("no message")),
            )?;
        }
    }
    for parked in &status.parked {
        say!(
            "destination {}: {} leads parked ({}): {}",
            Printable(&parked.destination),
            parked.leads,
            Printable(parked.code.as_deref().unwrap_or("no code")),
            Printable(parked.message.as_deref().unwrap_or("no message")),
        )?;
    }
    for dropped in &status.dropped {
        say!(
            "destination {}: {} leads without {} ({})",
            Printable(&dropped.destination),
            dropped.leads,
            Printable(dropped.property.as_deref().unwrap_or("a property")),
            Printable(dropped.code.as_deref().unwrap_or("no code")),
        )?;
    }
    Ok(())
}
