//! `leadsync sync`

use clap::Args;

use super::{Failure, Global, not_configured};
use crate::app;
use crate::config::Write;
use crate::destinations::Record;
use crate::error::{Exit, Printable};
use crate::stop::{self, Stop};
use crate::store::Store;
use crate::store::sync::Position;
use crate::sync::attempt::{Prepared, prepare};
use crate::sync::step::Done;
use crate::sync::{Configured, Syncer};

/// Leads read at once for a dry run.
const PAGE: i64 = 500;

/// Push what is due to the destinations, once, for an external scheduler
///
/// Exit code 1 says that something failed, was parked or had to wait.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync sync --once\n  \
    leadsync sync --once --dry-run\n  \
    leadsync sync --once --destination hubspot")]
pub(super) struct Sync {
    /// One pass until nothing is due (for a running service use `leadsync serve --only sync`)
    #[arg(long, required = true)]
    once: bool,
    /// Print what would be sent, field by field, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Only this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
}

impl Sync {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        debug_assert!(self.once, "required by the parser");
        let (config, database) = global.open().await?;
        let stop = stop::on_signals()?;
        let outcome = async {
            let mut destinations = app::destinations_on(&config, &database.store)?;
            let names: Vec<String> = destinations.iter().map(|d| d.name.clone()).collect();
            if let Some(name) = &self.destination {
                destinations.retain(|d| d.name == *name);
                if destinations.is_empty() {
                    let known: Vec<_> = names.iter().map(String::as_str).collect();
                    return Err(not_configured("destination", name, &known));
                }
            }
            if self.dry_run {
                return dry_run(&database.store, &destinations).await;
            }
            database.store.register_destinations(&names, true).await?;
            let syncer = app::syncer(&config, database.store.clone());
            pass(&database.store, &syncer, &destinations, &stop).await
        };
        let outcome = outcome.await;
        database.close().await;
        outcome
    }
}

async fn pass(
    store: &Store,
    syncer: &Syncer,
    destinations: &[Configured],
    stop: &Stop,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    for destination in destinations {
        syncer.enrol(destination).await?;
        syncer.remap(destination).await?;
        let done = syncer.pass(destination, stop).await?;
        let Done { pushed, skipped, parked, failed, calls_failed, paused, .. } = done;
        // What is left waits after a failure, or for its confirming push.
        let waiting = store.next_due(&destination.name).await?.filter(|_| failed == 0 && !paused);
        let more = match (paused, waiting) {
            (true, _) => ", paused".to_owned(),
            (false, Some(wait)) => format!(", others wait for {} s", wait.as_secs().max(1)),
            (false, None) => String::new(),
        };
        say!(
            "{}: {pushed} pushed, {skipped} already there, {parked} parked, {failed} to be tried again{more}",
            Printable(&destination.name),
        )?;
        if parked > 0 || failed > 0 || calls_failed > 0 || paused || waiting.is_some() {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// One lead as it would be sent. What depends on what the CRM has says so: a dry run makes no calls.
fn show(prepared: &Prepared, destination: &Configured) -> std::io::Result<()> {
    let Record { lead, remote_id, properties, .. } = &prepared.record;
    let how = match remote_id {
        Some(id) => format!("known there as {id}"),
        None if prepared.needs_look_up(destination) => "looked up there first".to_owned(),
        None => "not known there yet".to_owned(),
    };
    say!(
        "{}: {} version {} ({})",
        Printable(&destination.name),
        Printable(&lead.email),
        lead.version,
        Printable(how),
    )?;
    for ((property, value), write) in properties.iter().zip(prepared.writes()) {
        let mut notes = match (write, remote_id) {
            (Write::Always, _) | (Write::OnCreate, None) => String::new(),
            (Write::IfBlank, _) => " (if blank there)".to_owned(),
            // It is there already.
            (Write::OnCreate, Some(_)) => continue,
        };
        if *write == Write::OnCreate {
            notes.push_str(" (if new there)");
        }
        if let Some(dropped) = prepared.claimed.dropped.iter().find(|d| d.property == *property) {
            notes.push_str(&format!(" (was left out last time: {})", dropped.code));
        }
        let (property, notes) = (Printable(property), Printable(notes));
        match value {
            Some(value) => say!("  {property} = {}{notes}", Printable(value))?,
            None => say!("  {property} is cleared{notes}")?,
        }
    }
    Ok(())
}

async fn dry_run(store: &Store, destinations: &[Configured]) -> Result<Exit, Failure> {
    for destination in destinations {
        let mut after = Position::FIRST;
        let mut would = 0_u64;
        loop {
            let (page, next) = store.preview(&destination.name, after, PAGE).await?;
            for claimed in page {
                let prepared = prepare(claimed, destination);
                if prepared.needs_no_call() {
                    continue;
                }
                would += 1;
                show(&prepared, destination)?;
            }
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        say!("{}: {would} leads would be sent; nothing was", Printable(&destination.name))?;
    }
    Ok(Exit::Ok)
}
