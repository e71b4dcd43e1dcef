//! Commands: one file each. Results go to stdout, everything else to stderr.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::app::{self, AppError, Database};
use crate::config::{Config, ConfigError, Loaded, Override};
use crate::error::{Chain, Exit};
use crate::import::ImportError;
use crate::telemetry;

/// Prints a line of results, as `println!` does, and gives the error.
macro_rules! say {
    () => { say!("") };
    ($($text:tt)*) => { $crate::cli::say(format_args!($($text)*)) };
}

mod check;
mod demo;
mod fake_crm;
mod import;
mod migrate;
mod reconcile;
mod replay;
mod report;
mod requeue;
mod send;
mod serve;
mod status;
mod sync;
mod r#try;

/// Redelivered webhooks in, exactly one lead in PostgreSQL and one contact in the CRM out.
#[derive(Debug, Parser)]
#[command(
    name = "leadsync",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 done, 1 something failed or was parked, 2 command line or configuration wrong, \
                  3 database cannot be used.\n\n\
                  Start with `leadsync demo`; it needs no configuration."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
struct Global {
    /// Configuration file [default: leadsync.toml here, if there is one]
    #[arg(long, short, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the private PostgreSQL lives (data_dir)
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    Sync(sync::Sync),
    Migrate(migrate::Migrate),
    Check(check::Check),
    Try(r#try::Try),
    Send(send::Send),
    Status(status::Status),
    Requeue(requeue::Requeue),
    Reconcile(reconcile::Reconcile),
    Replay(replay::Replay),
    Import(import::Import),
    Report(report::Report),
    FakeCrm(fake_crm::FakeCrm),
}

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Logs.
    #[error(transparent)]
    Telemetry(#[from] telemetry::TelemetryError),
    /// Something could not be started or run.
    #[error(transparent)]
    App(#[from] AppError),
    /// The operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The command line asks for something that is not there.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be imported as it is.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Said in words.
    #[error("{0}")]
    Words(String),
}

impl<E: Into<AppError>> From<E> for Failure
where
    E: private::Store,
{
    fn from(error: E) -> Failure {
        Failure::App(error.into())
    }
}

mod private {
    /// Errors of the store, which commands meet as errors of the app.
    pub trait Store {}
    impl Store for crate::store::StoreError {}
    impl Store for crate::store::NotReady {}
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Failure::Config(_) | Failure::Telemetry(_) | Failure::Usage(_) | Failure::Import(_) => {
                Exit::Usage
            }
            Failure::App(error) => error.exit(),
            Failure::Io(_) | Failure::Words(_) => Exit::Failed,
        }
    }
}

/// Parses the command line and runs the command.
pub fn main() -> Exit {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(format_args!("cannot start: {error}"));
            return Exit::Failed;
        }
    };
    match runtime.block_on(cli.run()) {
        Ok(exit) => exit,
        Err(failure) => {
            // A refused configuration is several lines on purpose; `Chain` would make it one.
            match &failure {
                Failure::Config(error @ ConfigError::Refused(_)) => {
                    complain(format_args!("{error}"))
                }
                other => complain(format_args!("{}", Chain(other))),
            }
            failure.exit()
        }
    }
}

impl Cli {
    async fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Demo(command) => command.run().await,
            Command::Serve(command) => command.run(&self.global).await,
            Command::Sync(command) => command.run(&self.global).await,
            Command::Migrate(command) => command.run(&self.global).await,
            Command::Check(command) => command.run(&self.global).await,
            Command::Try(command) => command.run(&self.global),
            Command::Send(command) => command.run(&self.global).await,
            Command::Status(command) => command.run(&self.global).await,
            Command::Requeue(command) => command.run(&self.global).await,
            Command::Reconcile(command) => command.run(&self.global).await,
            Command::Replay(command) => command.run(&self.global).await,
            Command::Import(command) => command.run(&self.global).await,
            Command::Report(command) => command.run(&self.global).await,
            Command::FakeCrm(command) => command.run().await,
        }
    }
}

impl Global {
    /// Loads the configuration, sets up logs and shows warnings.
    fn load(&self, flags: Vec<Override>) -> Result<Config, Failure> {
        let loaded = self.read(flags)?;
        let problems = app::problems(&loaded);
        if !problems.is_empty() {
            return Err(ConfigError::Refused(problems).into());
        }
        telemetry::init(&loaded.config.log)?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        Ok(loaded.config)
    }

    /// The configuration with these flags, as it is.
    fn read(&self, mut flags: Vec<Override>) -> Result<Loaded, Failure> {
        if let Some(data_dir) = &self.data_dir {
            flags.push(flag("--data-dir", "data_dir", data_dir));
        }
        Ok(Config::load(self.config.as_deref(), &flags)?)
    }

    /// Loads the configuration and opens a database that has the migrations.
    async fn open(&self) -> Result<(Config, Database), Failure> {
        let config = self.load(Vec::new())?;
        let database = migrated(&config).await?;
        Ok((config, database))
    }
}

/// A database that has the migrations.
async fn migrated(config: &Config) -> Result<Database, Failure> {
    let database = Database::join(config).await?;
    if let Err(error) = database.store.ready().await {
        database.close().await;
        return Err(error.into());
    }
    Ok(database)
}

/// One line of results. That nobody reads on (`| head`) changes nothing about what a command does or how it ends.
fn say(line: std::fmt::Arguments<'_>) -> std::io::Result<()> {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// What went wrong; the exit code says it even where nobody reads this.
fn complain(what: std::fmt::Arguments<'_>) {
    note(format_args!("leadsync: {what}"));
}

/// A line on stderr, which may be closed.
fn note(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// A name on the command line that the configuration does not have.
fn not_configured(what: &str, name: &str, known: &[&str]) -> Failure {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Failure::Usage(format!("no {what} {name:?} is configured; there are: {known}"))
}

/// A setting from the command line.
fn flag(flag: &str, key: &str, value: &str) -> Override {
    Override { flag: flag.to_owned(), key: key.to_owned(), value: value.to_owned() }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
