//! The poll: lists what is new at a source now and then, for leads whose webhook never came. What is known already
//! costs nothing.

use std::time::Duration;

use super::step::log_pause;
use super::{CallError, Configured, Fetcher};
use crate::error::Chain;
use crate::lead::Micros;
use crate::sources::is_remote_id;
use crate::stop::Stop;
use crate::store::StoreError;
use crate::store::fetches::{FoundBy, Want};
use crate::store::source_apis::PollTurn;

/// A listing goes back by this much behind the end of the last one: what is new may be listed late.
const OVERLAP: Micros = 3_600 * 1_000_000;

/// Longest sleep without a look whether it is our turn.
const NAP: Duration = Duration::from_secs(30);

/// Wait after a listing that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// Most pages of one listing: an API that never ends must end somewhere.
const MOST_PAGES: usize = 10_000;

/// Why a listing came to nothing.
enum Failed {
    Store(StoreError),
    Call(CallError),
    /// The API is paused, or the service stops.
    NotNow,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Store(error)
    }
}

impl Fetcher {
    /// Lists what is new every so often until `stop`; of several instances one at a time.
    pub(super) async fn catch_up(&self, source: &Configured, stop: &Stop) {
        let Some(every) = source.poll else { return };
        let name = source.name.as_str();
        while !stop.is_cancelled() {
            match self.store.poll_turn(name, every).await {
                Ok(None) => {}
                Ok(Some(turn)) => {
                    let complete = self.list(source, turn, stop).await;
                    let (complete_to, next) = match complete {
                        Ok(()) => (Ok(turn.now), every),
                        Err(failed) => self.listing_failed(source, failed, every, stop).await,
                    };
                    if let Err(error) = self.store.polled(name, complete_to, next).await {
                        tracing::warn!(source = name, "a listing is not noted: {}", Chain(&error));
                    }
                }
                Err(error) => {
                    tracing::error!(source = name, "cannot list leads: {}", Chain(&error))
                }
            }
            if self.rest(stop, every.min(NAP)).await {
                return;
            }
        }
    }

    async fn list(&self, source: &Configured, turn: PollTurn, stop: &Stop) -> Result<(), Failed> {
        let name = source.name.as_str();
        let (since, mut next, mut news) = (turn.since.saturating_sub(OVERLAP), None, 0);
        for _ in 0..MOST_PAGES {
            let failures = self.store.api_state(name).await?.failures;
            let longest = self.settings.lease;
            if !self.turn(source, failures > 0, longest, stop).await? {
                return Err(Failed::NotNow);
            }
            let page = self.bounded(source.api.list(since, next.take()), stop).await;
            // One that refuses is there as well.
            if failures > 0 && matches!(page, Ok(_) | Err(CallError::Refused { .. })) {
                self.store.api_recovered(name).await?;
            }
            let page = page.map_err(Failed::Call)?;
            let wanted: Vec<Want> = page
                .found
                .into_iter()
                .filter(|(remote_id, _)| is_remote_id(remote_id))
                .map(|(remote_id, changed_at)| Want {
                    source: source.name.clone(),
                    object: source.api.object(),
                    remote_id,
                    changed_at,
                    deleted: false,
                })
                .collect();
            news += self.store.want(&wanted, FoundBy::Poll).await?;
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        if news > 0 {
            tracing::info!(source = name, leads = news, "found leads that no webhook told of");
        }
        Ok(())
    }

    /// What is to be noted of a listing that failed, and when the next one comes.
    async fn listing_failed(
        &self,
        source: &Configured,
        failed: Failed,
        every: Duration,
        stop: &Stop,
    ) -> (Result<Micros, String>, Duration) {
        let name = source.name.as_str();
        let again = AGAIN.min(every);
        let error = match failed {
            Failed::Store(error) => {
                tracing::error!(source = name, "cannot list leads: {}", Chain(&error));
                return (Err("the database did not answer".to_owned()), again);
            }
            Failed::NotNow => return (Err("it was paused or stopped".to_owned()), again),
            Failed::Call(_) if stop.is_cancelled() => {
                return (Err("the service stopped".to_owned()), again);
            }
            Failed::Call(error) => error,
        };
        if matches!(error, CallError::Refused { .. }) {
            // Reading goes on: the token may be good enough for that.
            tracing::error!(source = name, "new leads of {name} cannot be listed: {error}");
            return (Err(error.to_string()), every);
        }
        let failures = self.store.api_state(name).await.map_or(0, |state| state.failures);
        let pause = self.pause(&error, failures, failures > 0);
        log_pause(name, &pause);
        if let Err(error) = self.persist(stop, || self.store.pause_api(name, &pause)).await {
            tracing::warn!(source = name, "a pause is not noted: {}", Chain(&error));
        }
        (Err(error.to_string()), again)
    }
}
