//! `leadsync reconcile`

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::{Failure, Global, not_configured};
use crate::app;
use crate::destinations::DESTINATIONS;
use crate::error::{Exit, Printable};
use crate::stop;
use crate::sync::reconcile::{Difference, Finding, Listener, ReconcileError, Summary};

/// Compare a CRM with the table: contacts that are missing, deleted, moved, doubled or different
///
/// Lists every contact of the CRM, at its pace and behind the leads that change, and changes nothing unless told to.
/// Exit code 1 says that something was found that is not repaired by this.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync reconcile hubspot\n  \
    leadsync reconcile hubspot --repair\n  \
    leadsync reconcile hubspot --json | jq 'select(.finding == \"doubled\")'")]
pub(super) struct Reconcile {
    /// The destination
    #[arg(value_name = "DESTINATION")]
    destination: String,
    /// Mark leads due whose contact is missing, deleted, moved or different; doubled ones are for people to merge
    #[arg(long)]
    repair: bool,
    /// One JSON object per line: each finding, at the end the summary
    #[arg(long)]
    json: bool,
}

impl Reconcile {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (config, database) = global.open().await?;
        let stop = stop::on_signals()?;
        let outcome = async {
            let mut destinations = app::destinations_on(&config, &database.store)?;
            let names: Vec<String> = destinations.iter().map(|d| d.name.clone()).collect();
            let name = self.destination.as_str();
            let Some(at) = names.iter().position(|known| known == name) else {
                let known: Vec<_> = names.iter().map(String::as_str).collect();
                return Err(not_configured("destination", name, &known));
            };
            let destination = destinations.swap_remove(at);
            let kind = config.destinations.iter().find(|d| d.name == name).map(|d| d.kind.as_str());
            if DESTINATIONS.iter().any(|k| Some(k.name) == kind && !k.reads) {
                let kind = kind.unwrap_or_default();
                return Err(Failure::Usage(format!(
                    "{name} is a {kind}, and what is there cannot be read; there is nothing to compare with"
                )));
            }
            let syncer = app::syncer(&config, database.store.clone());
            let mut told = Told { json: self.json, progress: progress() };
            let summary = syncer.reconcile(&destination, self.repair, &mut told, &stop).await;
            told.progress.finish_and_clear();
            let summary = summary.map_err(|error| match error {
                ReconcileError::Store(error) => error.into(),
                ReconcileError::Told(error) => Failure::Io(error),
                other => Failure::Words(format!("{name}: {other}")),
            })?;
            self.say_summary(&summary)?;
            let left = summary.doubled > 0 || !self.repair && !summary.is_clean();
            Ok(if left { Exit::Failed } else { Exit::Ok })
        };
        let outcome = outcome.await;
        database.close().await;
        outcome
    }

    fn say_summary(&self, summary: &Summary) -> std::io::Result<()> {
        if self.json {
            return say!("{}", serde_json::to_string(summary)?);
        }
        let Summary { contacts, compared, missing, deleted, moved, differing, doubled, repaired } =
            summary;
        let end = match self.repair {
            true => format!("{repaired} leads marked due"),
            false => "nothing was changed".to_owned(),
        };
        say!(
            "{}: {contacts} contacts, {compared} compared: {missing} missing, {deleted} deleted, {moved} moved, \
             {differing} different, {doubled} doubled; {end}",
            Printable(&self.destination)
        )
    }
}

/// Nothing is drawn where nobody looks.
fn progress() -> ProgressBar {
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
}

struct Told {
    json: bool,
    progress: ProgressBar,
}

impl Listener for Told {
    fn listed(&mut self, contacts: u64) {
        self.progress.set_message(format!("{contacts} contacts"));
        self.progress.set_position(contacts);
    }

    fn found(&mut self, finding: &Finding) -> std::io::Result<()> {
        if self.json {
            let line = serde_json::to_string(finding)?;
            return self.progress.suspend(|| say!("{line}"));
        }
        self.progress.suspend(|| show(finding))
    }
}

fn show(finding: &Finding) -> std::io::Result<()> {
    match finding {
        Finding::Missing { email, .. } => say!("missing: {}", Printable(email)),
        Finding::Deleted { email, remote_id, .. } => {
            say!("deleted: {} was {}", Printable(email), Printable(remote_id))
        }
        Finding::Moved { email, remote_id, others, .. } => say!(
            "moved: {} was {}, is {}",
            Printable(email),
            Printable(remote_id),
            Printable(others.join(", "))
        ),
        Finding::Differs { email, remote_id, properties, .. } => {
            say!("different: {} ({})", Printable(email), Printable(remote_id))?;
            for Difference { property, here, there } in properties {
                let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "blank".into());
                say!(
                    "  {}: {} here, {} there",
                    Printable(property),
                    Printable(text(here)),
                    Printable(text(there))
                )?;
            }
            Ok(())
        }
        Finding::Doubled { email, remote_ids } => {
            say!("doubled: {}: {}", Printable(email), Printable(remote_ids.join(", ")))
        }
    }
}
