//! Wiring: from configuration to running things. The one file that knows every room.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{self, Config, Loaded, Problem};
use crate::destinations;
use crate::error::{Chain, Exit};
use crate::fetch::{self, Fetcher};
use crate::http::{self, Clock, Context};
use crate::private_pg::{self, PrivatePg, PrivatePgError};
use crate::receive::{self, Receiver};
use crate::secret::Secret;
use crate::serve::{self, Limits};
use crate::sources::{ConfiguredSource, SourceError};
use crate::stop::Stop;
use crate::store::migrate::{self, MigrateError, State};
use crate::store::pool::{self, Pools};
use crate::store::url::UrlError;
use crate::store::{NotReady, Store, StoreError};
use crate::sync::schedule::{Schedule, ScheduleError};
use crate::sync::{self, Syncer};

mod connected;

pub use connected::{destinations, destinations_on};

/// How long starting waits for another instance that migrates.
const MIGRATE_DEADLINE: Duration = Duration::from_secs(120);

/// How often the archive's partitions are looked after.
const MAINTENANCE: Duration = Duration::from_secs(3600);

/// How long rejected deliveries are kept where no bodies of others are.
const KEEP_REJECTED: Duration = Duration::from_secs(30 * 86_400);

/// Why something could not be started or run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A source cannot be used as configured.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A destination cannot be used as configured.
    #[error(transparent)]
    Destination(#[from] destinations::DestinationError),
    /// `sync.schedule` is none.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// No private PostgreSQL.
    #[error(transparent)]
    PrivatePg(#[from] PrivatePgError),
    /// The database URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Migrating failed.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// The database cannot be worked on.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A command that looks or mends found nothing to look at.
    #[error(
        "there is no private PostgreSQL in {}; `leadsync serve` makes one. Is this the right folder?",
        .0.display()
    )]
    NoDatabase(PathBuf),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// `http.listen`.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl AppError {
    /// The exit code that says what kind of thing went wrong.
    pub fn exit(&self) -> Exit {
        match self {
            AppError::Source(_)
            | AppError::Destination(_)
            | AppError::Schedule(_)
            | AppError::Url(_) => Exit::Usage,
            AppError::PrivatePg(_)
            | AppError::Migrate(_)
            | AppError::NotReady(_)
            | AppError::NoDatabase(_)
            | AppError::Store(_) => Exit::Database,
            AppError::Listen { .. } => Exit::Failed,
        }
    }
}

/// An open database: the configured one, or the private one.
pub struct Database {
    /// Queries.
    pub store: Store,
    migrate_url: Secret,
    pools: Pools,
    private: Option<PrivatePg>,
}

impl Database {
    /// Opens the configured database, or starts the private one where none is configured.
    pub async fn open(config: &Config) -> Result<Database, AppError> {
        match &config.database.url {
            Some(url) => Database::connect(config, url.clone(), None).await,
            None => {
                let private = PrivatePg::start(&config.data_dir).await?;
                let url = Secret::new(private.url());
                Database::connect(config, url, Some(private)).await
            }
        }
    }

    /// As [`Database::open`], but uses the private server beside a service that runs it: for commands that look or mend
    /// while `serve` is at work.
    pub async fn join(config: &Config) -> Result<Database, AppError> {
        if config.database.url.is_none() && !private_pg::exists(&config.data_dir) {
            return Err(AppError::NoDatabase(config.data_dir.clone()));
        }
        let in_use = match Database::open(config).await {
            Err(AppError::PrivatePg(in_use @ PrivatePgError::InUse { .. })) => in_use,
            opened => return opened,
        };
        match private_pg::url_of_running(&config.data_dir) {
            Some(url) => Database::connect(config, Secret::new(&url), None).await,
            None => Err(in_use.into()),
        }
    }

    async fn connect(
        config: &Config,
        url: Secret,
        private: Option<PrivatePg>,
    ) -> Result<Database, AppError> {
        let migrate_url = config.database.migrate_url.clone().unwrap_or_else(|| url.clone());
        let settings = pool::Settings {
            receive_connections: config.database.receive_connections,
            sync_connections: config.database.sync_connections,
            statement_timeout: config.database.statement_timeout,
            history: config.leads.history,
        };
        let pools = Pools::new(&url, &settings)?;
        pools.check().await?;
        Ok(Database { store: Store::new(pools.clone()), migrate_url, pools, private })
    }

    /// Applies the migrations that are missing.
    pub async fn migrate(&self) -> Result<State, AppError> {
        Ok(migrate::run(&self.migrate_url, MIGRATE_DEADLINE).await?)
    }

    /// Closes connections, and stops the private server.
    pub async fn close(self) {
        self.pools.close();
        if let Some(private) = self.private
            && let Err(error) = private.stop().await
        {
            tracing::warn!("cannot stop the private PostgreSQL: {}", Chain(&error));
        }
    }
}

/// The configured sources, compiled.
pub fn sources(config: &Config) -> Result<Vec<ConfiguredSource>, AppError> {
    let compile = |source| ConfiguredSource::compile(source, &config.leads);
    Ok(config.sources.iter().map(compile).collect::<Result<_, _>>()?)
}

/// What is wrong with sources and destinations, with the places where it was written: what only their
/// rooms can tell, so that everything that can fail fails at start.
pub fn problems(loaded: &Loaded) -> Vec<Problem> {
    let config = &loaded.config;
    let place = |list: &str, at: usize, key: String| match key.as_str() {
        "" => format!("{list}[{at}]"),
        key => format!("{list}[{at}].{key}"),
    };
    let sources = config.sources.iter().enumerate().filter_map(|(at, source)| {
        let error = compiled(source, config).err()?;
        Some(loaded.problem(&place("source", at, error.kind.key()), error.to_string()))
    });
    let destinations = config.destinations.iter().enumerate().filter_map(|(at, settings)| {
        let setup = destinations::Setup::new(config.sync.call_timeout);
        let error = destinations::build(settings, &setup).err()?;
        Some(loaded.problem(&place("destination", at, error.key()), error.to_string()))
    });
    sources.chain(destinations).collect()
}

/// A source as it can be used: its mapping, and its API where it has one.
fn compiled(
    source: &config::Source,
    config: &Config,
) -> Result<(ConfiguredSource, Option<fetch::Configured>), SourceError> {
    let compiled = ConfiguredSource::compile(source, &config.leads)?;
    Ok((compiled, fetch::build(source, config.sync.call_timeout)?))
}

/// A syncer with the configured timings.
pub fn syncer(config: &Config, store: Store) -> Syncer {
    let sync = &config.sync;
    Syncer::new(
        store,
        sync::Settings {
            poll: sync.poll,
            lease: sync.lease,
            call_timeout: sync.call_timeout,
            confirm_after: sync.confirm_after,
            backoff_base: sync.backoff_base,
            backoff_max: sync.backoff_max,
            drain: config.http.drain_timeout,
        },
    )
}

/// A receiver without HTTP in front: for replay.
pub async fn receiver(
    config: &Config,
    store: Store,
    changed: watch::Sender<u64>,
    stop: Stop,
) -> Result<Receiver, AppError> {
    let settings = receive::Settings {
        leads: config.leads.clone(),
        keep_bodies: !config.deliveries.keep.is_zero(),
        // The other half of the pool is for reads.
        writers: (config.database.receive_connections / 2).clamp(1, 8),
    };
    Ok(Receiver::start(store, sources(config)?, settings, changed, stop).await?)
}

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Takes deliveries.
    pub receive: bool,
    /// Pushes to destinations.
    pub sync: bool,
}

/// A running service.
pub struct App {
    database: Database,
    receiver: Receiver,
    tasks: JoinSet<()>,
    stop: Stop,
}

/// The listener that the configuration asks for.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, AppError> {
    TcpListener::bind(address).await.map_err(|source| AppError::Listen { address, source })
}

impl App {
    /// Starts everything on a migrated database. Without the role of receiving, `listener` serves health
    /// checks only.
    pub async fn start(
        config: &Config,
        database: Database,
        roles: Roles,
        listener: TcpListener,
        stop: Stop,
    ) -> Result<App, AppError> {
        let clock = Arc::new(|| jiff::Timestamp::now().as_second());
        App::start_with_clock(config, database, roles, listener, stop, clock).await
    }

    /// The same with a clock of the caller's for signatures that carry a time.
    pub async fn start_with_clock(
        config: &Config,
        database: Database,
        roles: Roles,
        listener: TcpListener,
        stop: Stop,
        clock: Clock,
    ) -> Result<App, AppError> {
        let store = database.store.clone();
        store.ready().await?;
        let destinations = destinations_on(config, &store)?;
        let schedule = Schedule::parse(&config.sync.schedule)?;
        let keep = config.deliveries.keep;
        let keep = Keep {
            deliveries: if keep.is_zero() { KEEP_REJECTED } else { keep },
            history: config.leads.keep_history,
        };
        // Behind a long query (a dump, say) it gives up. The default partition takes what comes meanwhile.
        look_after_archive(&store, keep).await;
        let names: Vec<String> = destinations.iter().map(|d| d.name.clone()).collect();
        store.register_destinations(&names, roles.sync).await?;
        let (changed, changes) = watch::channel(0);
        let receiver = receiver(config, store.clone(), changed, stop.clone()).await?;
        let apis = fetch::build_all(config)?;
        if roles.receive {
            let names: Vec<String> = apis.iter().map(|source| source.name.clone()).collect();
            store.register_source_apis(&names).await?;
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(maintain(store.clone(), keep, stop.clone()));
        let context = Context {
            receiver: receiver.clone(),
            store: store.clone(),
            receives: roles.receive,
            admin_token: config.http.admin_token.clone(),
            max_body: config.http.max_body,
            leads: config.leads.clone(),
            now: clock,
        };
        let limits = Limits {
            max_connections: config.http.max_connections,
            header_timeout: config.http.header_timeout,
            body_timeout: config.http.body_timeout,
            request_timeout: config.http.request_timeout,
            drain_timeout: config.http.drain_timeout,
        };
        let routes = http::service(http::routes(context));
        let serving = stop.clone();
        tasks.spawn(async move {
            let report = serve::serve(listener, routes, limits, serving).await;
            if report.cut_off > 0 {
                tracing::warn!(
                    connections = report.cut_off,
                    "connections were cut off at the end of the drain time"
                );
            }
        });
        // Reading what a delivery only names is a part of receiving it.
        let fetcher = Fetcher::new(store.clone(), receiver.clone(), fetch::Settings::of(config));
        for source in apis.into_iter().filter(|_| roles.receive) {
            tasks.spawn(fetcher.clone().run(source, stop.clone()));
        }
        if roles.sync {
            let syncer = syncer(config, store);
            for destination in destinations {
                let syncer = syncer.clone();
                let (schedule, changes, stop) = (schedule.clone(), changes.clone(), stop.clone());
                tasks.spawn(syncer.run(destination, schedule, changes, stop));
            }
        }
        Ok(App { database, receiver, tasks, stop })
    }

    /// Queries on the service's database.
    pub fn store(&self) -> &Store {
        &self.database.store
    }

    /// The receiver, without HTTP in front.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Where its database is, for people who want to look; of a private server, without secrets.
    pub fn database_url(&self) -> &str {
        self.database.private.as_ref().map_or("(configured)", PrivatePg::url)
    }

    /// Runs until the stop token is cancelled, then finishes what is under way.
    pub async fn run_until_stopped(mut self) {
        self.stop.cancelled().await;
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!("a task died: {}", Chain(&error));
            }
        }
        self.receiver.flush_counts().await;
        drop(self.receiver);
        self.database.close().await;
    }
}

/// How long what is kept.
#[derive(Clone, Copy)]
struct Keep {
    deliveries: Duration,
    history: Duration,
}

/// Brings the daily counts forward, makes next weeks' partitions and drops old ones.
async fn maintain(store: Store, keep: Keep, stop: Stop) {
    loop {
        // First the counts: they outlive what is dropped. A week of deliveries at a time, the rest the next time.
        match store.count_days().await {
            Ok(true) if !stop.is_cancelled() => continue,
            Ok(_) => {}
            Err(error) => tracing::warn!("cannot count the deliveries by day: {}", Chain(&error)),
        }
        if stop.run_until_cancelled(tokio::time::sleep(MAINTENANCE)).await.is_none() {
            return;
        }
        look_after_archive(&store, keep).await;
    }
}

async fn look_after_archive(store: &Store, keep: Keep) {
    if let Err(error) = store.maintain_archive(keep.deliveries).await {
        tracing::error!("cannot look after the archive's partitions: {}", Chain(&error));
    }
    if let Err(error) = store.maintain_history(keep.history).await {
        tracing::error!("cannot look after the history's partitions: {}", Chain(&error));
    }
}

/// What is wrong or right with one thing, for `leadsync check`.
#[derive(Debug)]
pub struct Finding {
    /// `database`, `source NAME` or `destination NAME`.
    pub about: String,
    /// A sentence.
    pub sentence: String,
    /// Whether it is right.
    pub right: bool,
}

/// Checks configuration, database, sources and destinations without writing anything.
pub async fn check(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |about: &str, sentence: String, right: bool| {
        findings.push(Finding { about: about.to_owned(), sentence, right });
    };
    for source in &config.sources {
        let about = format!("source {}", source.name);
        match compiled(source, config) {
            Ok((_, api)) => {
                find(&about, format!("kind {}, POST /hooks/{}", source.kind, source.name), true);
                if let Some(source) = api {
                    let deadline = config.sync.call_timeout;
                    match tokio::time::timeout(deadline, source.api.check()).await {
                        Ok(Ok(found)) => found.into_iter().for_each(|s| find(&about, s, true)),
                        Ok(Err(error)) => find(&about, Chain(&error).to_string(), false),
                        Err(_) => {
                            find(&about, "no answer within sync.call_timeout".to_owned(), false);
                        }
                    }
                }
            }
            Err(error) => find(&about, Chain(&error).to_string(), false),
        }
        if source.untimed == Some(config::Untimed::LastArrival) {
            let sentence = "untimed = \"last_arrival\": repeats and reorderings of events without a time can change the lead; this cannot converge";
            find(&about, sentence.to_owned(), true);
        }
    }
    connected::check(config, &mut find).await;
    match &config.database.url {
        None => {
            let place = Path::new(&config.data_dir).display().to_string();
            find("database", format!("private PostgreSQL in {place}, started by serve"), true);
        }
        Some(_) => match Database::open(config).await {
            Err(error) => find("database", Chain(&error).to_string(), false),
            Ok(database) => {
                match database.store.ready().await {
                    Ok(()) => find("database", "reachable and migrated".to_owned(), true),
                    Err(NotReady::NotMigrated) => {
                        find(
                            "database",
                            "reachable, not migrated yet: serve does it, or `leadsync migrate`"
                                .to_owned(),
                            true,
                        );
                    }
                    Err(error) => find("database", Chain(&error).to_string(), false),
                }
                database.close().await;
            }
        },
    }
    findings
}
