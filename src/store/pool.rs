//! Connection pools: one for receiving, one for syncing, so that neither can starve the other.

use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
    Timeouts,
};

use super::StoreError;
use super::url::{Target, UrlError};
use crate::error::Chain;
use crate::secret::Secret;

/// Oldest server version, as `server_version_num` has it.
const OLDEST: i32 = 140_000;

const SESSION: &str = include_str!("../../sql/schema/session.sql");
const SERVER: &str = include_str!("../../sql/schema/server.sql");

/// Longest wait for a free connection, for a new one (all hosts of the URL together), and for the check of a used one.
const WAIT: Duration = Duration::from_secs(5);
const CREATE: Duration = Duration::from_secs(10);
const RECYCLE: Duration = Duration::from_secs(5);
/// Longest wait of a statement for a row or table lock.
const LOCK: Duration = Duration::from_secs(3);
/// A transaction that nobody continues ends by itself and lets its rows go.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(30);

/// Sizes and limits of the pools.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Connections for receiving and for reads of the HTTP side.
    pub receive_connections: usize,
    /// Connections of the sync loop.
    pub sync_connections: usize,
    /// Longest time one statement may run; the server enforces it.
    pub statement_timeout: Duration,
    /// Whether changes of leads are kept in `lead_changes`.
    pub history: bool,
}

/// Both pools. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pools {
    receive: Pool,
    sync: Pool,
}

/// The server is older than what the statements need.
#[derive(Debug, thiserror::Error)]
#[error("the database is PostgreSQL {0}; 14 or newer is needed")]
pub struct TooOld(pub String);

impl Pools {
    /// Sets the pools up without connecting, so that a service can start while its database is down.
    pub fn new(url: &Secret, settings: &Settings) -> Result<Pools, UrlError> {
        let target = target(url)?;
        Ok(Pools {
            receive: pool(&target, settings.receive_connections, settings)?,
            sync: pool(&target, settings.sync_connections, settings)?,
        })
    }

    /// A connection for receiving and for reads. Every failure to get one is [`StoreError::Unavailable`].
    pub async fn receive(&self) -> Result<Object, StoreError> {
        Ok(self.receive.get().await?)
    }

    /// A connection for the sync loop. Every failure to get one is [`StoreError::Unavailable`].
    pub async fn sync(&self) -> Result<Object, StoreError> {
        Ok(self.sync.get().await?)
    }

    /// Connects once and looks at the server: refuses one that is too old, warns loudly about one that may forget
    /// what it has confirmed. Call it at start and after an outage.
    pub async fn check(&self) -> Result<(), StoreError> {
        let client = self.receive().await?;
        let row = client.query_one(SERVER, &[]).await?;
        let version: String = row.try_get("version")?;
        if row.try_get::<_, i32>("version_num")? < OLDEST {
            return Err(StoreError::Refused(Box::new(TooOld(version))));
        }
        let commit: String = row.try_get("synchronous_commit")?;
        if !matches!(commit.as_str(), "on" | "remote_apply") {
            tracing::warn!(
                "the database sets synchronous_commit={commit}, which forgets confirmed writes in a crash; \
                 leadsync sets it on for its own sessions"
            );
        }
        for name in ["fsync", "full_page_writes"] {
            if row.try_get::<_, String>(name)? != "on" {
                tracing::warn!(
                    "the database runs with {name}=off: a crash of its machine can lose or damage everything"
                );
            }
        }
        if row.try_get("in_recovery")? {
            tracing::warn!(
                "the database is a read-only replica; nothing can be stored until it is promoted \
                 (several hosts in the URL with target_session_attrs=read-write find the primary)"
            );
        }
        Ok(())
    }

    /// Closes idle connections and refuses new ones.
    pub fn close(&self) {
        self.receive.close();
        self.sync.close();
    }
}

/// The URL with our defaults where it says nothing: dead peers are noticed in seconds, not in hours.
pub(super) fn target(url: &Secret) -> Result<Target, UrlError> {
    let mut target = Target::parse(url)?;
    let config = &mut target.config;
    if config.get_application_name().is_none() {
        config.application_name("leadsync");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(15));
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(Duration::from_secs(30));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
    }
    Ok(target)
}

fn pool(target: &Target, size: usize, settings: &Settings) -> Result<Pool, UrlError> {
    // Fast: a broken connection is known by its closed socket, and a statement's error is sorted anyway.
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(target.config.clone(), target.tls.clone(), config);
    let limits = [settings.statement_timeout, LOCK, IDLE_IN_TRANSACTION];
    let limits = limits.map(|d| d.as_millis().to_string());
    let history = if settings.history { "on" } else { "off" };
    let session = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
        let limits = limits.clone();
        Box::pin(async move {
            let [statement, lock, idle] = &limits;
            // Not start-up options: connection poolers refuse those that they do not know.
            client
                .query_one(SESSION, &[statement, lock, idle, &history])
                .await
                .map_err(HookError::Backend)?;
            Ok(())
        })
    });
    Pool::builder(manager)
        .max_size(size.max(1))
        .timeouts(Timeouts { wait: Some(WAIT), create: Some(CREATE), recycle: Some(RECYCLE) })
        .runtime(Runtime::Tokio1)
        .post_create(session)
        .build()
        .map_err(|e| UrlError::Tls(Box::new(e)))
}

impl From<PoolError> for StoreError {
    /// Whatever keeps us from having a connection, a wrong password as much as a dead host, is not the data's fault.
    fn from(error: PoolError) -> StoreError {
        tracing::debug!("no database connection: {}", Chain(&error));
        StoreError::Unavailable(Box::new(error))
    }
}

/// What the server said, without what it quotes: DETAIL holds key values, and the message of a data
/// exception (class 22) the value itself. Both can be somebody's address, and errors are logged.
#[derive(Debug, thiserror::Error)]
#[error("SQLSTATE {state}: {message}{object}")]
struct ServerError {
    state: String,
    message: String,
    object: String,
}

impl ServerError {
    fn of(error: &tokio_postgres::error::DbError) -> ServerError {
        let state = error.code().code().to_owned();
        let message = match state.starts_with("22") {
            true => "a value does not fit".to_owned(),
            false => error.message().to_owned(),
        };
        let named = [
            ("table", error.table()),
            ("column", error.column()),
            ("constraint", error.constraint()),
        ];
        let object = named
            .into_iter()
            .filter_map(|(what, name)| Some(format!(", {what} {}", name?)))
            .collect();
        ServerError { state, message, object }
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> StoreError {
        match error.as_db_error() {
            Some(said) => {
                let said = Box::new(ServerError::of(said));
                match sort(&said.state) {
                    Kind::Unavailable => StoreError::Unavailable(said),
                    Kind::TimedOut => StoreError::TimedOut(said),
                    Kind::Retry => StoreError::Retry(said),
                    Kind::Refused => StoreError::Refused(said),
                }
            }
            // Without a state it came from this side: the connection, or a value that does not fit the statement.
            None if lost(&error) => StoreError::Unavailable(Box::new(error)),
            None => StoreError::Refused(Box::new(error)),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Unavailable,
    TimedOut,
    Retry,
    Refused,
}

/// What a SQLSTATE means for the caller. Refused is only what a repeat with the same data cannot change.
fn sort(state: &str) -> Kind {
    match state {
        "40001" | "40P01" => Kind::Retry,
        // Migrations not run, or rights not granted yet: the operator's fault, the data must wait.
        "42P01" | "42501" | "3F000" | "42703" | "42883" => Kind::Unavailable,
        // The statement's own limit, and that of its locks.
        "57014" | "55P03" => Kind::TimedOut,
        // Read-only: a replica after a failover.
        "25006" => Kind::Unavailable,
        _ => match state.get(..2) {
            // Connection, authorisation, resources, operator, system, internal; rollbacks of a deposed primary.
            Some("08" | "28" | "3D" | "53" | "55" | "57" | "58" | "XX" | "F0" | "25" | "40") => {
                Kind::Unavailable
            }
            _ => Kind::Refused,
        },
    }
}

fn lost(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.is::<std::io::Error>() || inner.is::<rustls::Error>() {
            return true;
        }
        cause = inner.source();
    }
    // The crate keeps its kinds to itself; their texts are all there is.
    error.is_closed()
        || matches!(
            error.to_string().as_str(),
            "error communicating with the server"
                | "error connecting to server"
                | "error performing TLS handshake"
                | "authentication error"
                | "timeout waiting for server"
                | "unexpected message from server"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_sorted_by_whose_fault_they_are() {
        for (state, kind) in [
            ("08006", Kind::Unavailable),
            ("57P01", Kind::Unavailable),
            ("57P03", Kind::Unavailable),
            ("53300", Kind::Unavailable),
            ("53100", Kind::Unavailable),
            ("25006", Kind::Unavailable),
            ("57014", Kind::TimedOut),
            ("55P03", Kind::TimedOut),
            ("42P01", Kind::Unavailable),
            ("28P01", Kind::Unavailable),
            ("40001", Kind::Retry),
            ("40P01", Kind::Retry),
            ("22021", Kind::Refused),
            ("23514", Kind::Refused),
            ("21000", Kind::Refused),
            ("42601", Kind::Refused),
            ("54000", Kind::Refused),
            ("", Kind::Refused),
        ] {
            assert_eq!(sort(state), kind, "{state}");
        }
    }
}
