//! Reading leads at the APIs of sources that send only ids.
//!
//! A delivery of such a source is stored and answered at once; what it tells of is a row of `leadsync.fetches`. The
//! loop here claims due rows, reads them, and hands each document to the [`Receiver`] like a delivery of the same
//! source, so that merge, archive and replay are those of all others. A crash between reading and settling reads
//! again, which the merge makes harmless.
//!
//! To add an API: one file here that implements [`Api`], one line in [`APIS`].

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::Value;
use tokio::sync::watch;
use uuid::Uuid;

use crate::config::{self, Config, Rate};
use crate::error::Chain;
use crate::lead::Micros;
use crate::receive::Receiver;
use crate::sources::{ConfiguredSource, SourceError, SourceErrorKind};
use crate::stop::Stop;
use crate::store::{Store, StoreError};

mod catch_up;
mod client;
mod hubspot;
mod linkedin;
mod meta;
mod step;

pub use step::Step;

/// How often leads are looked for whose webhook never came, where the configuration says nothing.
const POLL: Duration = Duration::from_secs(15 * 60);

/// An API that leads are read at, by the kind of its source.
pub const APIS: &[&Kind] = &[&hubspot::KIND, &linkedin::KIND, &meta::KIND];

/// A kind of API.
pub struct Kind {
    /// `kind` of the source.
    pub source: &'static str,
    /// Calls per time where the configuration says nothing.
    rate: Rate,
    /// Makes one from its configuration and the deadline of one call.
    build: fn(&config::Source, Duration) -> Built,
}

/// An API, or what is wrong with its configuration.
type Built = Result<Arc<dyn Api>, SourceErrorKind>;

/// Why a whole call gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Token or permission: nobody can read until somebody acts. Pause, loudly.
    #[error("credentials: {code}: {message}")]
    Credentials {
        /// The API's code.
        code: String,
        /// The API's words.
        message: String,
    },
    /// The address or the version of the API. Pause, loudly.
    #[error("misconfigured: {code}: {message}")]
    Misconfigured {
        /// The API's code.
        code: String,
        /// The API's words.
        message: String,
    },
    /// Not this call with this token; others perhaps.
    #[error("refused: {code}: {message}")]
    Refused {
        /// The API's code.
        code: String,
        /// The API's words.
        message: String,
    },
    /// Too many calls.
    #[error("asked to slow down: {message}")]
    SlowDown {
        /// How long the API asks to wait, where it says so.
        after: Option<Duration>,
        /// The API's words.
        message: String,
    },
    /// Not reachable, no answer in time, 5xx, an answer that cannot be read.
    #[error("unavailable: {message}")]
    Unavailable {
        /// How long the API asks to wait, where it says so.
        after: Option<Duration>,
        /// Why.
        message: String,
    },
}

/// What the API gave for one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The thing itself.
    Document {
        /// JSON, as the source's mapping reads it. All that the mapping needs is in it, so that a replay needs no API.
        body: Bytes,
        /// When it last changed; `None` for what never does.
        changed_at: Option<Micros>,
    },
    /// It is not there, or not for us; perhaps not yet.
    Missing {
        /// The API's code.
        code: String,
        /// The API's words.
        message: String,
    },
    /// It will not be given however often it is asked for.
    Refused {
        /// The API's code.
        code: String,
        /// The API's words.
        message: String,
    },
    /// The answer does not speak of it.
    Unsaid,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Ids, each with the time of its change where it can change.
    pub found: Vec<(String, Option<Micros>)>,
    /// What [`Api::list`] is to be given for the next page; `None`: this was the last.
    pub next: Option<Value>,
}

/// The API of a configured source. It knows the API and nothing else: no SQL, no retry, no pacing.
#[async_trait]
pub trait Api: Send + Sync {
    /// Kind of thing that it reads.
    fn object(&self) -> &'static str;

    /// Most ids in one [`read`](Api::read).
    fn batch_size(&self) -> usize {
        1
    }

    /// Reads things in one call; `Ok` has one reading per id, in the order given.
    async fn read(&self, ids: &[&str]) -> Result<Vec<Reading>, CallError>;

    /// Whether [`list`](Api::list) has what it needs; the sentence says what is missing.
    fn lists(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// A page of what is new or changed since then: the first, or the one that `next` of an earlier page stands for.
    async fn list(&self, since: Micros, next: Option<Value>) -> Result<Page, CallError>;

    /// Checks the token with calls that only read. `Ok`: one sentence per thing found right.
    async fn check(&self) -> Result<Vec<String>, CallError>;
}

/// A source whose leads are read at its API.
#[derive(Clone)]
pub struct Configured {
    /// Name of the source.
    pub name: String,
    /// Its API.
    pub api: Arc<dyn Api>,
    /// Calls per time over all instances.
    pub rate: Rate,
    /// How often leads are looked for whose webhook never came; `None`: never.
    pub poll: Option<Duration>,
}

/// The API of a source; `None` for kinds that say what their leads are.
pub fn build(
    source: &config::Source,
    call_timeout: Duration,
) -> Result<Option<Configured>, SourceError> {
    let Some(kind) = APIS.iter().find(|kind| kind.source == source.kind) else { return Ok(None) };
    let api = (kind.build)(source, call_timeout)
        .map_err(|kind| SourceError { name: source.name.clone(), kind })?;
    let poll = match (source.poll, api.lists()) {
        (Some(every), Err(missing)) if !every.is_zero() => {
            let kind = SourceErrorKind::Invalid { key: "poll", why: missing.into() };
            return Err(SourceError { name: source.name.clone(), kind });
        }
        (_, Err(_)) => None,
        (every, Ok(())) => Some(every.unwrap_or(POLL)).filter(|every| !every.is_zero()),
    };
    let rate = source.rate.unwrap_or(kind.rate);
    Ok(Some(Configured { name: source.name.clone(), api, rate, poll }))
}

/// The APIs of all configured sources that have one.
pub fn build_all(config: &Config) -> Result<Vec<Configured>, SourceError> {
    let built = config.sources.iter().map(|source| build(source, config.sync.call_timeout));
    built.filter_map(Result::transpose).collect()
}

/// Timings of the loop; those of `[sync]`, which explains them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often due things are looked for when nothing wakes the loop.
    pub poll: Duration,
    /// How long a claimed thing belongs to one instance.
    pub lease: Duration,
    /// Deadline of one call.
    pub call_timeout: Duration,
    /// First pause after a failure.
    pub backoff_base: Duration,
    /// Longest pause that no API asks for itself.
    pub backoff_max: Duration,
    /// How long a call under way may go on once the service stops.
    pub drain: Duration,
}

impl Settings {
    /// As configured.
    pub fn of(config: &Config) -> Settings {
        let sync = &config.sync;
        Settings {
            poll: sync.poll,
            lease: sync.lease,
            call_timeout: sync.call_timeout,
            backoff_base: sync.backoff_base,
            backoff_max: sync.backoff_max,
            drain: config.http.drain_timeout,
        }
    }
}

/// The reading loop of this instance. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    store: Store,
    receiver: Receiver,
    settings: Settings,
    /// Name of this instance in leases.
    holder: Arc<str>,
}

impl Fetcher {
    /// A fetcher of its own name; nothing runs yet.
    pub fn new(store: Store, receiver: Receiver, settings: Settings) -> Fetcher {
        let holder = format!("{}-{}", std::process::id(), Uuid::new_v4().simple());
        Fetcher { store, receiver, settings, holder: holder.into() }
    }

    /// Reads what is due at a source, and lists what is new there, until `stop`.
    pub async fn run(self, source: Configured, stop: Stop) {
        let Some(compiled) = self.receiver.source(&source.name) else { return };
        let reading = self.guarded(&source.name, &stop, || self.read(&source, &compiled, &stop));
        let listing = self.guarded(&source.name, &stop, || self.catch_up(&source, &stop));
        tokio::join!(reading, listing);
    }

    /// Begins again after a panic: one answer of an API must not end the loop. Leases run out.
    async fn guarded<F: Future<Output = ()>>(&self, name: &str, stop: &Stop, run: impl Fn() -> F) {
        while AssertUnwindSafe(run()).catch_unwind().await.is_err() {
            tracing::error!(source = name, "the fetch loop panicked and starts again");
            if self.rest(stop, self.settings.poll).await {
                return;
            }
        }
    }

    async fn read(&self, source: &Configured, compiled: &Arc<ConfiguredSource>, stop: &Stop) {
        let mut wanted = self.receiver.wanted();
        while !stop.is_cancelled() {
            // Interest is registered before looking, so that nothing committed in between is missed.
            wanted.mark_unchanged();
            let rest = match self.step(source, compiled, stop).await {
                Ok(Step::Worked) => continue,
                Ok(Step::Idle) => self.settings.poll,
                Ok(Step::Later(wait)) => wait.min(self.settings.poll),
                Err(error) => {
                    let name = source.name.as_str();
                    tracing::error!(source = name, "cannot fetch: {}", Chain(&error));
                    self.settings.poll
                }
            };
            self.wait(&mut wanted, stop, rest).await;
        }
    }

    async fn wait(&self, wanted: &mut watch::Receiver<u64>, stop: &Stop, length: Duration) {
        tokio::select! {
            () = stop.cancelled() => {}
            Ok(()) = wanted.changed() => {}
            () = tokio::time::sleep(length) => {}
        }
    }

    /// Waits, and says whether to stop.
    async fn rest(&self, stop: &Stop, length: Duration) -> bool {
        stop.run_until_cancelled(tokio::time::sleep(length)).await.is_none()
    }

    /// Writes what we alone know, until the database takes it.
    async fn persist<T, F>(&self, stop: &Stop, write: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match write().await {
                Err(
                    error @ (StoreError::Unavailable(_)
                    | StoreError::TimedOut(_)
                    | StoreError::Retry(_)),
                ) => {
                    tracing::warn!("cannot settle a fetch, trying again: {}", Chain(&error));
                    if self.rest(stop, self.settings.poll).await {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }
}
