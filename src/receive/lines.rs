//! Leads from a file: chunks of lines, each a delivery.

use bytes::Bytes;
use uuid::Uuid;

use super::{
    CONTENT_TYPE, Delivery, ItemOutcome, ReceiveError, Receiver, delivery_id, unavailable,
};
use crate::lead::Micros;
use crate::sources::{Item, Request};

/// Name under which leads of a file are stored, where no other one is given.
pub const IMPORT_SOURCE: &str = "import";

/// Marks a delivery of lines in the archive, and says where they stood. No hook keeps a header of this name,
/// unless its mapping asks for it.
const MARK: &str = "leadsync-import";

const MEDIA_TYPE: &str = "application/x-ndjson";

/// Leads of consecutive lines.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Name of the source.
    pub source: String,
    /// The leads, in order.
    pub items: Vec<Item>,
    /// The same as text, by [`LineReader`](crate::sources::LineReader).
    pub body: Bytes,
    /// Which file and which lines, for people.
    pub place: String,
    /// When they were received.
    pub received_at: Micros,
}

/// What became of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// They are archived, so they are merged, too: both are done in one transaction.
    Before,
    /// One outcome per lead, in order.
    Now(Vec<ItemOutcome>),
}

impl Receiver {
    /// Takes lines of a file, unless the archive has the same ones. Waits for room. With `again` the archive is
    /// not asked: the leads may be gone that came of them.
    pub async fn deliver_lines(&self, lines: Lines, again: bool) -> Result<Taken, ReceiveError> {
        let delivery_id = lines_id(&lines.source, &lines.body);
        if !again {
            let known = self.0.store.is_archived(delivery_id).await.map_err(unavailable)?;
            if known {
                return Ok(Taken::Before);
            }
        }
        let Lines { source, items, body, place, received_at } = lines;
        let outcomes = self
            .enqueue(Delivery {
                speaker: self.speaker(&source)?,
                delivery_id,
                received_at,
                items,
                query: String::new(),
                headers: vec![
                    (CONTENT_TYPE.to_owned(), MEDIA_TYPE.to_owned()),
                    (MARK.to_owned(), place),
                ],
                body,
                idempotency_key: None,
                replayed: false,
                lines: true,
            })
            .await;
        outcomes.map(Taken::Now)
    }

    /// Archived lines again; `None` where their source is not configured any more.
    pub(super) async fn replay_lines(
        &self,
        source: &str,
        request: Request,
        delivery_id: Uuid,
        received_at: Micros,
    ) -> Result<Option<Vec<ItemOutcome>>, ReceiveError> {
        let Some(reader) = self.0.readers.get(source) else { return Ok(None) };
        let delivery = Delivery {
            speaker: self.speaker(source)?,
            delivery_id,
            received_at,
            items: reader.read(&request.body),
            query: String::new(),
            headers: request.headers,
            body: request.body,
            idempotency_key: None,
            replayed: true,
            lines: true,
        };
        self.enqueue(delivery).await.map(Some)
    }
}

/// Whether an archived delivery is one of lines.
pub(super) fn is_lines(request: &Request) -> bool {
    request.headers.iter().any(|(name, _)| name == MARK)
}

/// A digest of what the lines say, not of where they stood.
fn lines_id(source: &str, body: &[u8]) -> Uuid {
    delivery_id(source, &[(MARK.to_owned(), String::new())], "", body)
}
