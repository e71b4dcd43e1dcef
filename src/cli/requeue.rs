//! `leadsync requeue`

use clap::Args;

use super::{Failure, Global, not_configured};
use crate::error::Exit;
use crate::lead::Email;
use crate::store::{Store, StoreError};

/// Make parked leads due again, and leads that wait after a failure due at once
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("which").required(true).multiple(true)),
    after_help = "Examples:\n  \
    leadsync requeue --all\n  \
    leadsync requeue --destination hubspot --code INVALID_EMAIL\n  \
    leadsync requeue --source meta\n  \
    leadsync requeue --email ana@example.com"
)]
pub(super) struct Requeue {
    /// All of them
    #[arg(long, group = "which", conflicts_with_all = ["destination", "source", "code", "email"])]
    all: bool,
    /// Only at this destination
    #[arg(long, group = "which", value_name = "NAME")]
    destination: Option<String>,
    /// Only those that this source's API did not give
    #[arg(long, group = "which", value_name = "NAME", conflicts_with_all = ["destination", "email"])]
    source: Option<String>,
    /// Only those parked with this code of the CRM or API
    #[arg(long, group = "which", value_name = "CODE")]
    code: Option<String>,
    /// Only this lead
    #[arg(long, group = "which", value_name = "ADDRESS")]
    email: Option<String>,
}

impl Requeue {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (config, database) = global.open().await?;
        let email = match &self.email {
            None => None,
            Some(typed) => {
                let folding = crate::sources::folding(config.leads.email_folding);
                let parsed = Email::parse(typed, folding);
                match parsed {
                    Ok(email) => Some(email),
                    Err(error) => {
                        database.close().await;
                        return Err(Failure::Usage(format!("--email: {error}")));
                    }
                }
            }
        };
        if let Some(name) = &self.destination
            && !config.destinations.iter().any(|d| d.name == *name)
        {
            database.close().await;
            let known: Vec<_> = config.destinations.iter().map(|d| d.name.as_str()).collect();
            return Err(not_configured("destination", name, &known));
        }
        if let Some(name) = &self.source
            && !config.sources.iter().any(|s| s.name == *name)
        {
            database.close().await;
            let known: Vec<_> = config.sources.iter().map(|s| s.name.as_str()).collect();
            return Err(not_configured("source", name, &known));
        }
        let done = self.requeue(&database.store, email.as_ref()).await;
        database.close().await;
        let (leads, fetches) = done?;
        if self.source.is_none() {
            say!("{leads} leads made due")?;
        }
        if self.source.is_some() || fetches > 0 {
            say!("{fetches} leads to be read at their source made due")?;
        }
        Ok(Exit::Ok)
    }

    /// Pushes, and readings at sources, made due.
    async fn requeue(
        &self,
        store: &Store,
        email: Option<&Email>,
    ) -> Result<(u64, u64), StoreError> {
        let code = self.code.as_deref();
        let leads = match &self.source {
            Some(_) => 0,
            None => {
                let email = email.map(Email::as_str);
                store.requeue(self.destination.as_deref(), code, email).await?
            }
        };
        let fetches = match self.destination.is_some() || email.is_some() {
            true => 0,
            false => store.requeue_fetches(self.source.as_deref(), code).await?,
        };
        Ok((leads, fetches))
    }
}
