//! `leadsync requeue`

use clap::Args;

use super::{Failure, Global, not_configured};
use crate::error::Exit;

/// Make parked leads due again, and leads that wait after a failure due at once
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("which").required(true).multiple(true)),
    after_help = "Examples:\n  \
    leadsync requeue --all\n  \
    leadsync requeue --destination hubspot --code INVALID_EMAIL\n  \
    leadsync requeue --email ana@example.com"
)]
pub(super) struct Requeue {
    /// All of them
    #[arg(long, group = "which", conflicts_with_all = ["destination", "code", "email"])]
    all: bool,
    /// Only at this destination
    #[arg(long, group = "which", value_name = "NAME")]
    destination: Option<String>,
    /// Only those parked with this code of the CRM
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
                let parsed = crate::lead::Email::parse(typed, folding);
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
        let made_due = database
            .store
            .requeue(
                self.destination.as_deref(),
                self.code.as_deref(),
                email.as_ref().map(|email| email.as_str()),
            )
            .await;
        database.close().await;
        say!("{} leads made due", made_due?)?;
        Ok(Exit::Ok)
    }
}
