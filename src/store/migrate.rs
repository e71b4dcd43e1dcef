//! Brings the schema to the state of this binary, once, whatever the number of instances that start together.

use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::StoreError;
use super::pool;
use super::tls::UrlError;
use crate::error::Chain;
use crate::secret::Secret;

mod embedded {
    refinery::embed_migrations!("migrations");
}

const HISTORY_TABLE: &str = "leadsync.schema_history";
/// Any number that nobody else takes: "leadsync" in ASCII.
const LOCK: i64 = 0x6c65_6164_7379_6e63;
const POLL: Duration = Duration::from_millis(200);

const EXISTS: &str = include_str!("../../sql/schema/exists.sql");
const HISTORY: &str = include_str!("../../sql/schema/history.sql");
const TRY_LOCK: &str = include_str!("../../sql/schema/lock.sql");

/// What the database has, seen from this binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Exactly the migrations of this binary.
    Current,
    /// That many of them are missing.
    Pending(usize),
    /// All of them and newer ones: a newer binary was here, and its schema works for the one before it.
    Ahead(i32),
}

impl State {
    /// Whether this binary can work on it.
    pub fn usable(&self) -> bool {
        !matches!(self, State::Pending(_))
    }
}

/// Why the schema is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The database's history and this binary contradict each other.
    #[error("the database was migrated by a different leadsync: {0}; nothing was changed")]
    Diverged(String),
    /// Another instance migrates longer than the deadline.
    #[error("another instance is still migrating after {} s", .0.as_secs())]
    Locked(Duration),
    /// The role may not do it.
    #[error(
        "the database role may not migrate; set database.migrate_url to the owner of the schema"
    )]
    Forbidden(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A migration failed, and was rolled back.
    #[error("a migration failed and was rolled back")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database cannot be reached or does not answer as expected.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<tokio_postgres::Error> for MigrateError {
    fn from(error: tokio_postgres::Error) -> MigrateError {
        MigrateError::Store(error.into())
    }
}

/// Applies what is missing. `url` should be the owner's and go straight to the server: through a transaction pooler the lock
/// protects nothing. `deadline` bounds the wait for another instance and for tables in use, not a migration's own work.
/// With nothing pending it only reads, so a role without DDL rights may call it.
pub async fn run(url: &Secret, deadline: Duration) -> Result<State, MigrateError> {
    run_set(&embedded::migrations::runner(), url, deadline).await
}

/// What the database has. Only reads.
pub async fn state(client: &Client) -> Result<State, MigrateError> {
    state_of(&embedded::migrations::runner(), client).await
}

/// Whether all migrations of this binary are there. Only reads; for readiness.
pub async fn applied(client: &Client) -> Result<bool, MigrateError> {
    Ok(state(client).await?.usable())
}

/// A number that changes with every change of the migrations, for caches of migrated databases.
pub fn fingerprint() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for migration in embedded::migrations::runner().get_migrations() {
        (migration.version(), migration.checksum()).hash(&mut hasher);
    }
    hasher.finish()
}

async fn run_set(
    runner: &refinery::Runner,
    url: &Secret,
    deadline: Duration,
) -> Result<State, MigrateError> {
    let started = Instant::now();
    loop {
        // A connection of its own: it goes away with its lock and its settings, whatever happens.
        let client = connect(url).await?;
        match attempt(runner, client, started, deadline).await {
            Err(e) if in_the_way(&e) && started.elapsed() < deadline => {
                tracing::warn!("migrating is blocked, trying again: {}", Chain(&e));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn attempt(
    runner: &refinery::Runner,
    mut client: Client,
    started: Instant,
    deadline: Duration,
) -> Result<State, MigrateError> {
    let state = state_of(runner, &client).await?;
    if state.usable() {
        return Ok(report(state));
    }
    // Behind a long query a migration gives up at once, because every reader would queue up behind it.
    client
        .batch_execute(
            "set lock_timeout = '5s'; set statement_timeout = 0; \
             set idle_in_transaction_session_timeout = '60s'; set synchronous_commit = on",
        )
        .await?;
    while !client.query_one(TRY_LOCK, &[&LOCK]).await?.try_get::<_, bool>("locked")? {
        if started.elapsed() >= deadline {
            return Err(MigrateError::Locked(started.elapsed()));
        }
        tokio::time::sleep(POLL).await;
    }
    let missing = match state_of(runner, &client).await? {
        State::Pending(missing) => missing,
        state => return Ok(report(state)), // somebody else did it meanwhile
    };
    let has_schema: bool = client.query_one(EXISTS, &[]).await?.try_get("has_schema")?;
    if !has_schema {
        // The history table lives in it, so it comes first. Asked for only when missing: the statement wants rights on
        // the database even where it has nothing to do.
        client.batch_execute("create schema leadsync").await.map_err(|e| failed(e.into()))?;
    }
    tracing::info!("applying {missing} migrations");
    let report = apply(runner, &mut client).await?;
    for migration in report.applied_migrations() {
        tracing::info!("applied migration {migration}");
    }
    state_of(runner, &client).await
}

async fn apply(
    runner: &refinery::Runner,
    client: &mut Client,
) -> Result<refinery::Report, MigrateError> {
    let mut runner = refinery::Runner::new(runner.get_migrations());
    runner.set_migration_table_name(HISTORY_TABLE);
    runner.run_async(client).await.map_err(|e| failed(Box::new(e)))
}

fn failed(error: Box<dyn std::error::Error + Send + Sync>) -> MigrateError {
    match postgres_cause(&*error) {
        Some("42501") => MigrateError::Forbidden(error),
        _ => MigrateError::Failed(error),
    }
}

/// A lock time-out or deadlock with the traffic on the tables, or a connection that went away: worth another attempt.
fn in_the_way(error: &MigrateError) -> bool {
    match error {
        MigrateError::Failed(error) => {
            matches!(postgres_cause(&**error), Some("55P03" | "40P01" | "40001"))
        }
        MigrateError::Store(StoreError::Retry(_)) => true,
        _ => false,
    }
}

/// The SQLSTATE somewhere down the causes.
fn postgres_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<tokio_postgres::Error>() {
            return error.code().map(tokio_postgres::error::SqlState::code);
        }
        cause = inner.source();
    }
    None
}

fn report(state: State) -> State {
    if let State::Ahead(version) = state {
        tracing::warn!(
            "the database has migration V{version}, which this leadsync does not know: a newer one was here. \
             Serving, not migrating"
        );
    }
    state
}

async fn state_of(runner: &refinery::Runner, client: &Client) -> Result<State, MigrateError> {
    let ours = runner.get_migrations();
    let exists = client.query_one(EXISTS, &[]).await?;
    if !exists.try_get::<_, bool>("has_history")? {
        return Ok(State::Pending(ours.len()));
    }
    let mut missing: Vec<_> = ours.iter().collect();
    let newest = ours.iter().map(|migration| migration.version()).max().unwrap_or(0);
    let mut ahead = None;
    for row in client.query(HISTORY, &[]).await? {
        let version: i32 = row.try_get("version")?;
        let name: String = row.try_get("name")?;
        let checksum: String = row.try_get("checksum")?;
        let applied_on: String = row.try_get("applied_on")?;
        // The migration crate trusts its table and panics over what a hand may have left in it.
        if checksum.parse::<u64>().is_err() || applied_on.parse::<jiff::Timestamp>().is_err() {
            return Err(MigrateError::Diverged(format!(
                "{HISTORY_TABLE} is damaged at V{version}"
            )));
        }
        match missing.iter().position(|migration| migration.version() == version) {
            Some(at) => {
                let ours = missing.remove(at);
                if ours.checksum().to_string() != checksum {
                    return Err(MigrateError::Diverged(format!(
                        "its migration V{version} ({name}) is not the V{version} ({}) of this one",
                        ours.name()
                    )));
                }
            }
            None if version > newest => ahead = ahead.max(Some(version)),
            None => {
                return Err(MigrateError::Diverged(format!(
                    "it has a migration V{version} ({name}) that this one never had"
                )));
            }
        }
    }
    match (missing.as_slice(), ahead) {
        ([], None) => Ok(State::Current),
        ([], Some(version)) => Ok(State::Ahead(version)),
        (missing, None) => Ok(State::Pending(missing.len())),
        ([first, ..], Some(version)) => Err(MigrateError::Diverged(format!(
            "it has V{version}, but not V{} of this one",
            first.version()
        ))),
    }
}

async fn connect(url: &Secret) -> Result<Client, MigrateError> {
    let target = pool::target(url)?;
    let (client, connection) = target
        .config
        .connect(target.tls)
        .await
        .map_err(|e| MigrateError::Store(StoreError::Unavailable(Box::new(e))))?;
    // Ends with the client; its error, if any, is that of the statement under way.
    tokio::spawn(async move {
        if let Err(e) = connection.await {
            tracing::debug!("the migrating connection ended: {}", Chain(&e));
        }
    });
    Ok(client)
}
