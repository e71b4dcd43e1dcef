//! Stored deliveries through today's mapping again. Replaying everything ever received changes nothing
//! unless a mapping changed.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use uuid::Uuid;

use super::lines::is_lines;
use super::{
    API_SOURCE, CONTENT_TYPE, Delivery, ItemOutcome, RETRY_AFTER, ReceiveError, Receiver, Taken,
};
use crate::lead::{Micros, Outcome};
use crate::sources::api::{self, Form};
use crate::sources::{Request, Verified};
use crate::store::StoreError;
use crate::store::deliveries::{ReplayFilter, Stored};

/// Deliveries read at once.
const PAGE: i64 = 100;

/// Deliveries under way at once: enough for full groups.
const AT_ONCE: usize = 256;

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Leads by what became of them.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Deliveries whose body was not kept.
    pub without_body: u64,
    /// Deliveries of sources that are no longer configured.
    pub without_source: u64,
    /// Deliveries that could not be stored; run the replay again.
    pub failed: u64,
}

impl Receiver {
    /// Replays what the filter chooses; `progress` is told after every page how many
    /// deliveries are done.
    pub async fn replay(
        &self,
        filter: &ReplayFilter,
        mut progress: impl FnMut(u64),
    ) -> Result<Replayed, StoreError> {
        let mut replayed = Replayed::default();
        let mut after = Uuid::nil();
        let mut done = 0;
        loop {
            let page = self.0.store.replayable(filter, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.delivery_id;
            done += u64::try_from(page.len()).unwrap_or(0);
            let mut results =
                stream::iter(page).map(|stored| self.replay_one(stored)).buffer_unordered(AT_ONCE);
            while let Some(result) = results.next().await {
                match result {
                    Ok(Some(outcomes)) => {
                        for outcome in outcomes {
                            *replayed.outcomes.entry(outcome.outcome).or_default() += 1;
                        }
                    }
                    Ok(None) => replayed.without_source += 1,
                    Err(Skipped::WithoutBody) => replayed.without_body += 1,
                    Err(Skipped::Failed) => replayed.failed += 1,
                }
            }
            progress(done);
        }
        self.flush_counts().await;
        Ok(replayed)
    }

    async fn replay_one(&self, stored: Stored) -> Result<Option<Vec<ItemOutcome>>, Skipped> {
        let Some(body) = stored.body else { return Err(Skipped::WithoutBody) };
        let Stored { delivery_id, received_at, .. } = stored;
        let request = request_of(stored.headers, stored.query, body.into());
        let outcome = if stored.source == API_SOURCE {
            self.replay_api(request, delivery_id, received_at, stored.idempotency_key).await
        } else if is_lines(&request) {
            let lines = self.replay_lines(&stored.source, request, delivery_id, received_at).await;
            return lines.map_err(|_| Skipped::Failed);
        } else {
            let Some(source) = self.source(&stored.source) else { return Ok(None) };
            let taken = Taken::Again { delivery_id, received_at };
            self.take(&source, &Verified::stored(request), taken).await
        };
        match outcome {
            Ok(outcomes) => Ok(Some(outcomes)),
            Err(ReceiveError::Malformed(_)) => Ok(Some(vec![ItemOutcome {
                outcome: Outcome::Rejected,
                lead_id: None,
                reason: Some("malformed".to_owned()),
            }])),
            Err(_) => Err(Skipped::Failed),
        }
    }

    async fn replay_api(
        &self,
        request: Request,
        delivery_id: Uuid,
        received_at: Micros,
        idempotency_key: Option<String>,
    ) -> Result<Vec<ItemOutcome>, ReceiveError> {
        let form = request.header(CONTENT_TYPE).and_then(Form::of).unwrap_or(Form::Json);
        // Only bodies that could be split are archived, so an error here is none of the body's.
        let leads = api::read(form, &request.body, &self.0.leads)
            .map_err(|_| ReceiveError::Unavailable(RETRY_AFTER))?;
        self.enqueue(Delivery {
            speaker: self.speaker(API_SOURCE)?,
            delivery_id,
            received_at,
            items: leads.items(),
            query: String::new(),
            headers: request.headers,
            body: request.body,
            idempotency_key,
            replayed: true,
            lines: false,
        })
        .await
    }
}

enum Skipped {
    WithoutBody,
    Failed,
}

fn request_of(headers: Option<serde_json::Value>, query: Option<String>, body: Bytes) -> Request {
    let headers = match headers {
        Some(serde_json::Value::Object(headers)) => headers
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
            .collect(),
        _ => Vec::new(),
    };
    Request { method: "POST".to_owned(), query: query.unwrap_or_default(), headers, body }
}
