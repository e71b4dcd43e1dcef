//! From a delivery to committed leads: the one path for hooks, `/v1`, replay and the demo.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use uuid::Uuid;

use crate::config::{self, Untimed};
use crate::error::Chain;
use crate::lead::{Micros, Outcome};
use crate::sources::api::Form;
use crate::sources::{ConfiguredSource, DecodeError, Item, LineReader, Verified};
use crate::stop::Stop;
use crate::store::{Store, StoreError};

pub mod group;
pub mod lines;
pub mod outcome;
pub mod repeats;
pub mod replay;

use group::Writer;
use lines::IMPORT_SOURCE;
use repeats::RepeatCounter;

/// Name under which leads of `/v1/leads` are stored.
pub const API_SOURCE: &str = "api";

/// Trust of leads of `/v1/leads` and of files: that of a source that sets none.
pub const DEFAULT_TRUST: u8 = 50;

/// What a sender is told to wait when nothing can be stored.
const RETRY_AFTER: Duration = Duration::from_secs(5);

const CONTENT_TYPE: &str = "content-type";

/// Deliveries waiting for one writer; more than this is answered 503 rather than kept in memory.
const QUEUE: usize = 4096;

/// Bytes of bodies waiting for all writers.
const QUEUED_BYTES: usize = 64 << 20;

/// What became of one item (one lead) of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemOutcome {
    /// What happened.
    pub outcome: Outcome,
    /// The lead, where there is one.
    pub lead_id: Option<Uuid>,
    /// Stable word for a rejected or ignored item.
    pub reason: Option<String>,
}

/// Why a delivery was not taken. Except for `Malformed`, nothing of it is stored.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// A body that no sender of that kind can have meant; archived as rejected. The text says what is
    /// wrong, without echoing input.
    #[error("malformed body: {0}")]
    Malformed(DecodeError),
    /// More work is waiting than memory should hold; come back after the given time.
    #[error("too busy")]
    Busy(Duration),
    /// The database cannot store now; come back after the given time.
    #[error("storage is unavailable")]
    Unavailable(Duration),
    /// The same `Idempotency-Key` came with another body.
    #[error("the idempotency key was used with another body")]
    KeyReused,
}

/// What the receiver needs to know of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rules for every lead.
    pub leads: config::Leads,
    /// Whether bodies of deliveries that became leads are archived.
    pub keep_bodies: bool,
    /// Group-commit writers.
    pub writers: usize,
}

/// Who says something, as the merge needs it.
#[derive(Clone, Debug)]
struct Speaker {
    name: Arc<str>,
    source: i16,
    trust: u8,
    untimed: Untimed,
}

/// One delivery, read: what a writer merges and archives.
struct Delivery {
    speaker: Speaker,
    delivery_id: Uuid,
    received_at: Micros,
    items: Vec<Item>,
    query: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    idempotency_key: Option<String>,
    /// From the archive: its copies are not counted again.
    replayed: bool,
    /// Lines of a file: of two without a time the later one counts.
    lines: bool,
}

/// Which copy of a delivery is taken.
#[derive(Clone, Copy)]
enum Taken {
    /// One that arrives now.
    Now,
    /// The archived one. It keeps its id whatever today's mapping reads of its headers, and jsonb of their order.
    Again { delivery_id: Uuid, received_at: Micros },
}

/// A delivery on its way to a writer.
struct Job {
    delivery: Delivery,
    reply: oneshot::Sender<Result<Vec<ItemOutcome>, ReceiveError>>,
    _room: OwnedSemaphorePermit,
}

/// A delivery of one's own code, already parsed: leads of `/v1/leads`.
#[derive(Clone, Debug)]
pub struct ApiDelivery {
    /// One per lead, in order.
    pub items: Vec<Item>,
    /// The exact bytes.
    pub body: Bytes,
    /// How the leads are written in it.
    pub form: Form,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
}

/// The receiver: cheap to clone.
#[derive(Clone)]
pub struct Receiver(Arc<Inner>);

struct Inner {
    store: Store,
    sources: HashMap<String, Arc<ConfiguredSource>>,
    speakers: HashMap<String, Speaker>,
    readers: HashMap<String, LineReader>,
    writers: Vec<mpsc::Sender<Job>>,
    room: Arc<Semaphore>,
    repeats: Arc<RepeatCounter>,
    leads: config::Leads,
    wanted: watch::Sender<u64>,
}

impl Receiver {
    /// Registers the sources and starts the writers. They end when the last clone is dropped and the
    /// queues are empty; `changed` is told after every commit that moved a lead.
    pub async fn start(
        store: Store,
        sources: Vec<ConfiguredSource>,
        settings: Settings,
        changed: watch::Sender<u64>,
        stop: Stop,
    ) -> Result<Receiver, StoreError> {
        let mut speakers = HashMap::new();
        let mut names: Vec<String> = sources.iter().map(|s| s.name.clone()).collect();
        names.push(API_SOURCE.to_owned());
        if !sources.iter().any(|s| s.name == IMPORT_SOURCE) {
            names.push(IMPORT_SOURCE.to_owned());
        }
        let numbers: HashMap<String, i16> =
            store.register_sources(&names).await?.into_iter().collect();
        for name in &names {
            let configured = sources.iter().find(|s| s.name == *name);
            let speaker = Speaker {
                name: name.as_str().into(),
                // Registered a line above; 0 is no source's number.
                source: numbers.get(name).copied().unwrap_or(0),
                trust: configured.map_or(DEFAULT_TRUST, |s| s.trust),
                untimed: configured.map_or(untimed(name), |s| s.untimed),
            };
            speakers.insert(name.clone(), speaker);
        }
        let mut readers: HashMap<String, LineReader> =
            sources.iter().map(|s| (s.name.clone(), s.line_reader())).collect();
        readers
            .entry(IMPORT_SOURCE.to_owned())
            .or_insert_with(|| LineReader::unconfigured(IMPORT_SOURCE, &settings.leads));
        let repeats = Arc::new(RepeatCounter::default());
        tokio::spawn(repeats::keep_counting(repeats.clone(), store.clone(), stop));
        let wanted = watch::Sender::new(0);
        let writers = (0..settings.writers.max(1))
            .map(|_| {
                let (sender, receiver) = mpsc::channel(QUEUE);
                let writer = Writer {
                    store: store.clone(),
                    settings: settings.clone(),
                    repeats: repeats.clone(),
                    changed: changed.clone(),
                    wanted: wanted.clone(),
                };
                tokio::spawn(writer.run(receiver));
                sender
            })
            .collect();
        Ok(Receiver(Arc::new(Inner {
            store,
            sources: sources.into_iter().map(|s| (s.name.clone(), Arc::new(s))).collect(),
            speakers,
            readers,
            writers,
            room: Arc::new(Semaphore::new(QUEUED_BYTES)),
            repeats,
            leads: settings.leads,
            wanted,
        })))
    }

    /// The configured source of that name.
    pub fn source(&self, name: &str) -> Option<Arc<ConfiguredSource>> {
        self.0.sources.get(name).cloned()
    }

    /// Ticks after every commit here with something new to read at a source.
    pub fn wanted(&self) -> watch::Receiver<u64> {
        self.0.wanted.subscribe()
    }

    /// Takes one verified delivery of a source: decodes, splits, maps, merges, archives. `Ok` means
    /// committed. One outcome per lead in it, at least one. A sender that hangs up does not cancel the write.
    pub async fn deliver(
        &self,
        source: Arc<ConfiguredSource>,
        delivery: Verified,
    ) -> Result<Vec<ItemOutcome>, ReceiveError> {
        self.take(&source, &delivery, Taken::Now).await
    }

    /// Takes leads of `/v1/leads`. One outcome per item, in order.
    pub async fn deliver_api(&self, api: ApiDelivery) -> Result<Vec<ItemOutcome>, ReceiveError> {
        let delivery_id = api_delivery_id(api.idempotency_key.as_deref(), &api.body);
        if let Some(key) = &api.idempotency_key {
            let known = self.0.store.delivery_by_key(key).await.map_err(unavailable)?;
            if known.is_some_and(|known| known != delivery_id) {
                return Err(ReceiveError::KeyReused);
            }
        }
        let speaker = self.speaker(API_SOURCE)?;
        self.enqueue(Delivery {
            speaker,
            delivery_id,
            received_at: now(),
            items: api.items,
            query: String::new(),
            headers: vec![(CONTENT_TYPE.to_owned(), api.form.media_type().to_owned())],
            body: api.body,
            idempotency_key: api.idempotency_key,
            replayed: false,
            lines: false,
        })
        .await
    }

    async fn take(
        &self,
        source: &ConfiguredSource,
        verified: &Verified,
        taken: Taken,
    ) -> Result<Vec<ItemOutcome>, ReceiveError> {
        let request = verified.request();
        let query = source.delivery_query(&request.query);
        let kept = source.kept_headers();
        let mut headers: Vec<(String, String)> = request
            .headers
            .iter()
            .filter(|(name, _)| kept.contains(&name.as_str()))
            .cloned()
            .collect();
        let body = source.kept_body(request);
        let content_type = request.headers.iter().find(|(name, _)| name == CONTENT_TYPE);
        // Without its parameters: the boundary of a multipart body differs from copy to copy.
        let media_type = content_type.map(|(name, value)| {
            let essence = value.split(';').next().unwrap_or_default();
            (name.clone(), essence.trim().to_ascii_lowercase())
        });
        let (delivery_id, received_at, replayed) = match taken {
            Taken::Again { delivery_id, received_at } => (delivery_id, received_at, true),
            Taken::Now => {
                let mut meant: Vec<_> = headers.iter().cloned().chain(media_type).collect();
                // A proxy may put the headers of a copy into another order.
                meant.sort_unstable();
                (delivery_id(&source.name, &meant, &query, &body), now(), false)
            }
        };
        headers.extend(content_type.cloned());
        let (items, malformed) = match source.read(verified) {
            Ok(items) => (items, None),
            Err(error) => {
                let detail = error.to_string();
                (vec![Item::Rejected { reason: "malformed".to_owned(), detail }], Some(error))
            }
        };
        let outcomes = self
            .enqueue(Delivery {
                speaker: self.speaker(&source.name)?,
                delivery_id,
                received_at,
                items,
                query,
                headers,
                body,
                idempotency_key: None,
                replayed,
                lines: false,
            })
            .await?;
        match malformed {
            Some(error) => Err(ReceiveError::Malformed(error)),
            None => Ok(outcomes),
        }
    }

    /// Every source has a speaker from the start, so this fails only for a source of another receiver.
    fn speaker(&self, name: &str) -> Result<Speaker, ReceiveError> {
        self.0.speakers.get(name).cloned().ok_or(ReceiveError::Unavailable(RETRY_AFTER))
    }

    async fn enqueue(&self, delivery: Delivery) -> Result<Vec<ItemOutcome>, ReceiveError> {
        let busy = || ReceiveError::Busy(RETRY_AFTER);
        let bytes = u32::try_from(delivery.body.len().clamp(1, QUEUED_BYTES)).unwrap_or(u32::MAX);
        let room = self.0.room.clone();
        let room = match delivery.replayed || delivery.lines {
            // Nobody waits for the answer of a replay or an import, so it waits for room.
            true => room.acquire_many_owned(bytes).await.map_err(|_| busy())?,
            // Nothing is awaited up to `try_send`: once a delivery is taken, its write cannot be cancelled.
            false => room.try_acquire_many_owned(bytes).map_err(|_| busy())?,
        };
        let writer = self.0.writer_of(&delivery);
        let (reply, answer) = oneshot::channel();
        let job = Job { delivery, reply, _room: room };
        writer.try_send(job).map_err(|_| busy())?;
        answer.await.unwrap_or(Err(ReceiveError::Unavailable(RETRY_AFTER)))
    }

    /// Writes the counts of repeats that have not been written yet: at the end of a service.
    pub async fn flush_counts(&self) {
        self.0.repeats.flush(&self.0.store).await;
    }
}

impl Inner {
    /// All events of one e-mail go to one writer, where they are folded instead of queueing for a lock.
    fn writer_of(&self, delivery: &Delivery) -> &mpsc::Sender<Job> {
        let email = delivery.items.iter().find_map(|item| match item {
            Item::Lead(patch) => Some(patch.email.as_str()),
            _ => None,
        });
        let mut hasher = std::hash::DefaultHasher::new();
        match email {
            Some(email) => email.hash(&mut hasher),
            None => delivery.delivery_id.hash(&mut hasher),
        }
        let writers = u64::try_from(self.writers.len()).unwrap_or(1);
        // The remainder is below the number of writers.
        &self.writers[(hasher.finish() % writers) as usize]
    }
}

/// What events without a time count with, of a source that is not configured. A file is most often older
/// than what came by itself, and nobody can tell by how much.
pub fn untimed(source: &str) -> Untimed {
    match source {
        IMPORT_SOURCE => Untimed::FillOnly,
        _ => Untimed::FirstReceipt,
    }
}

/// The same delivery again has the same id: a digest of source, the headers that matter, query and body.
fn delivery_id(source: &str, headers: &[(String, String)], query: &str, body: &[u8]) -> Uuid {
    let mut digest = Sha256::new();
    for part in headers.iter().flat_map(|(name, value)| [name, value]).map(String::as_bytes) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    for part in [source.as_bytes(), query.as_bytes(), body] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&digest.finalize()[..16]);
    uuid::Builder::from_custom_bytes(id).into_uuid()
}

/// The key is part of the id, so that it is kept even where the same body came before without it.
fn api_delivery_id(idempotency_key: Option<&str>, body: &[u8]) -> Uuid {
    let key = idempotency_key.map(|key| ("idempotency-key".to_owned(), key.to_owned()));
    delivery_id(API_SOURCE, key.as_slice(), "", body)
}

fn unavailable(error: StoreError) -> ReceiveError {
    tracing::error!("cannot store deliveries: {}", Chain(&error));
    ReceiveError::Unavailable(RETRY_AFTER)
}

/// Now, in microseconds since the Unix epoch.
fn now() -> Micros {
    jiff::Timestamp::now().as_microsecond()
}
