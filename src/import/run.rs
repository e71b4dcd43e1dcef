//! Storing the chunks of a file, several at once, until it ends or somebody stops it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::StreamExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ImportError;
use super::chunks::{self, Chunk, Read, died};
use super::refused::RefusedFile;
use super::survey::Survey;
use crate::lead::{Micros, Outcome};
use crate::receive::lines::{Lines, Taken};
use crate::receive::{ReceiveError, Receiver};
use crate::sources::{Item, LineReader};
use crate::stop::Stop;

/// Chunks under way at once: one for each writer, and some waiting.
const AT_ONCE: usize = 6;

/// Chunks that are read ahead.
const AHEAD: usize = 2;

/// How long storing one chunk is tried again while the database does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// How far an import is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes of the file.
    pub bytes: u64,
    /// The last line up to which everything is stored, from 1.
    pub line: u64,
    /// Leads stored, or found stored.
    pub leads: u64,
}

/// What storing came to.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Leads by what became of them.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Leads of chunks that an earlier import stored.
    pub before: u64,
    /// Up to this line everything is stored, from 1.
    pub line: u64,
}

/// How an import ended.
#[derive(Debug)]
pub struct Done {
    /// What was in the file.
    pub read: Read,
    /// What became of it.
    pub stored: Stored,
    /// Why not all of it is stored.
    pub failed: Option<Failed>,
}

/// Why an import ended before its file.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The database did not answer for too long.
    #[error("the leads cannot be stored")]
    Store(#[from] ReceiveError),
    /// The file cannot be read on, or the refused lines not be written.
    #[error(transparent)]
    Read(#[from] ImportError),
}

/// What an import needs besides the file.
pub struct Run<'a> {
    /// Merges and archives.
    pub receiver: &'a Receiver,
    /// Reads leads of the source.
    pub reader: LineReader,
    /// Its name.
    pub source: String,
    /// Also what an earlier import stored goes through the merge.
    pub again: bool,
    /// Ends it after what is under way.
    pub stop: Stop,
}

/// What the file would come to, without storing anything.
///
/// # Errors
///
/// The file could not be read to its end.
pub async fn check(survey: Survey, reader: LineReader, stop: Stop) -> Result<Read, ImportError> {
    let path = survey.path.clone();
    let (sender, mut receiver) = mpsc::channel(AHEAD);
    let reading = tokio::task::spawn_blocking(move || chunks::read(survey, reader, &sender, None));
    while let Some(Some(_)) = stop.run_until_cancelled(receiver.recv()).await {}
    drop(receiver);
    let (read, failed) = reading.await.unwrap_or_else(|_| died(&path));
    failed.map_or(Ok(read), Err)
}

/// Imports a file. `progress` is told after every chunk.
///
/// # Errors
///
/// Nothing was begun: the file of refused lines cannot be made.
pub async fn run(
    survey: Survey,
    run: Run<'_>,
    mut progress: impl FnMut(Progress),
) -> Result<Done, ImportError> {
    let path = survey.path.clone();
    let refused = RefusedFile::of(&survey)?;
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let file = file.unwrap_or_default();
    let (sender, receiver) = mpsc::channel(AHEAD);
    let reader = run.reader.clone();
    let reading =
        tokio::task::spawn_blocking(move || chunks::read(survey, reader, &sender, Some(refused)));
    // Ends the reader, too: it notices that nobody takes its chunks.
    let ending = run.stop.child_token();
    let mut received_at = 0;
    let chunks = futures_util::stream::unfold(receiver, |mut receiver| async {
        let next = ending.run_until_cancelled(receiver.recv()).await.flatten();
        next.map(|chunk| (chunk, receiver))
    });
    let storing = chunks.map(|chunk| {
        // Later chunks count as later, however soon they come: their lines take a microsecond each.
        received_at = now().max(received_at);
        let at = received_at;
        received_at += i64::try_from(chunk.items.len()).unwrap_or(0);
        run.store(&file, chunk, at, &ending)
    });
    let mut storing = std::pin::pin!(storing.buffered(AT_ONCE));
    let (mut stored, mut failed) = (Stored::default(), None);
    let mut leads = 0;
    while let Some(result) = storing.next().await {
        match result {
            Ok(result) if failed.is_none() => {
                for (outcome, count) in result.outcomes {
                    *stored.outcomes.entry(outcome).or_default() += count;
                }
                stored.before += result.before;
                stored.line = result.last_line;
                leads += result.leads;
                progress(Progress { bytes: result.position, line: stored.line, leads });
            }
            Ok(_) => {}
            Err(error) => {
                ending.cancel();
                failed.get_or_insert(error);
            }
        }
    }
    let (read, unread) = reading.await.unwrap_or_else(|_| died(&path));
    let failed = failed.map(Failed::from).or(unread.map(Failed::from));
    Ok(Done { read, stored, failed })
}

/// What became of one chunk.
struct OfChunk {
    outcomes: BTreeMap<Outcome, u64>,
    before: u64,
    leads: u64,
    last_line: u64,
    position: u64,
}

impl Run<'_> {
    /// Stores a chunk, and tries again while the database does not answer.
    async fn store(
        &self,
        file: &str,
        chunk: Chunk,
        received_at: Micros,
        ending: &CancellationToken,
    ) -> Result<OfChunk, ReceiveError> {
        let Chunk { first_line, last_line, items, body, position } = chunk;
        let place = format!("{file}, lines {first_line} to {last_line}");
        let leads = items.len() as u64;
        let began = Instant::now();
        let mut items = Some(items);
        let taken = loop {
            let lines = self.lines(&place, items.take(), &body, received_at);
            match self.receiver.deliver_lines(lines, self.again).await {
                Err(ReceiveError::Busy(wait) | ReceiveError::Unavailable(wait))
                    if began.elapsed() < PATIENCE && !ending.is_cancelled() =>
                {
                    let pause = tokio::time::sleep(wait.min(LONGEST_WAIT));
                    ending.run_until_cancelled(pause).await;
                }
                other => break other?,
            }
        };
        let mut of_chunk =
            OfChunk { outcomes: BTreeMap::new(), before: 0, leads, last_line, position };
        match taken {
            Taken::Before => of_chunk.before = leads,
            Taken::Now(outcomes) => {
                for outcome in outcomes {
                    *of_chunk.outcomes.entry(outcome.outcome).or_default() += 1;
                }
            }
        }
        Ok(of_chunk)
    }

    /// The chunk as a delivery. For a second try its leads are read from the body, as a replay would.
    fn lines(
        &self,
        place: &str,
        items: Option<Vec<Item>>,
        body: &Bytes,
        received_at: Micros,
    ) -> Lines {
        Lines {
            source: self.source.clone(),
            items: items.unwrap_or_else(|| self.reader.read(body)),
            body: body.clone(),
            place: place.to_owned(),
            received_at,
        }
    }
}

fn now() -> Micros {
    jiff::Timestamp::now().as_microsecond()
}
