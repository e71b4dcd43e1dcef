//! `leadsync serve`

use clap::{Args, ValueEnum};

use super::{Failure, Global, flag};
use crate::app::{App, Database, Roles, listen};
use crate::error::Exit;
use crate::stop;

/// Receive deliveries and push leads to destinations
///
/// Migrates the database first. Logs the address once it is ready; SIGTERM finishes what is under way.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    leadsync serve\n  \
    leadsync serve --listen 0.0.0.0:8080 --only receive\n  \
    leadsync serve --only sync")]
pub(super) struct Serve {
    /// One role instead of both
    #[arg(long, value_name = "ROLE")]
    only: Option<Only>,
    /// Address and port (http.listen); port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Do not migrate; refuse to start on a database that lacks migrations
    #[arg(long)]
    no_migrate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Takes deliveries
    Receive,
    /// Pushes to destinations; of HTTP answers /healthz and /readyz only, everything else is 404
    Sync,
}

impl Serve {
    pub(super) async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let listen_flag = self.listen.as_deref().map(|a| flag("--listen", "http.listen", a));
        let config = global.load(listen_flag.into_iter().collect())?;
        let stop = stop::on_signals()?;
        // Before anything slow: a taken port is the most likely mistake.
        let listener = listen(config.http.listen).await?;
        let address = listener.local_addr()?;
        let database = Database::open(&config).await?;
        if !self.no_migrate {
            database.migrate().await?;
        }
        let roles = Roles {
            receive: self.only != Some(Only::Sync),
            sync: self.only != Some(Only::Receive),
        };
        let app = App::start(&config, database, roles, listener, stop).await?;
        for source in config.sources.iter().filter(|_| roles.receive) {
            tracing::info!(source = source.name, "POST http://{address}/hooks/{}", source.name);
        }
        if roles.receive && config.sources.is_empty() {
            tracing::warn!("no [[source]] is configured; only /v1/leads takes leads");
        }
        if roles.sync && config.destinations.is_empty() {
            tracing::warn!("no [[destination]] is configured; leads stay in the table");
        }
        tracing::info!("ready on http://{address}");
        app.run_until_stopped().await;
        Ok(Exit::Ok)
    }
}
