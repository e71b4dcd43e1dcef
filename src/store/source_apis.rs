//! What all instances share about the API of a source: rate budget, pause, circuit, and whose turn it is to list
//! what is new.

use std::time::Duration;

use super::{Store, StoreError, micros, system_time};
use crate::lead::Micros;

const REGISTER: &str = include_str!("../../sql/source_apis/register.sql");
const STATE: &str = include_str!("../../sql/source_apis/state.sql");
const SPEND: &str = include_str!("../../sql/source_apis/spend.sql");
const PROBE: &str = include_str!("../../sql/source_apis/probe.sql");
const PAUSE: &str = include_str!("../../sql/source_apis/pause.sql");
const RECOVERED: &str = include_str!("../../sql/source_apis/recovered.sql");
const POLL_TURN: &str = include_str!("../../sql/source_apis/poll_turn.sql");
const POLLED: &str = include_str!("../../sql/source_apis/polled.sql");

/// Pause, circuit and budget of an API.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ApiState {
    /// Time until the pause ends; zero when there is none.
    pub paused_for: Duration,
    /// Failed calls in a row; while there are any, one call at a time is made.
    pub failures: u32,
    /// Time until the rate budget has its next free call.
    pub next_call_in: Duration,
}

/// Why an API is paused.
#[derive(Clone, Debug)]
pub struct ApiPause {
    /// `credentials`, `misconfigured`, `slow_down` or `unavailable`.
    pub kind: &'static str,
    /// The API's code.
    pub code: Option<String>,
    /// The API's words.
    pub message: String,
    /// How long.
    pub length: Duration,
    /// The call that failed was the one that [probes](Store::probe_api).
    pub probing: bool,
}

/// A turn to list what is new.
#[derive(Clone, Copy, Debug)]
pub struct PollTurn {
    /// From when on.
    pub since: Micros,
    /// The time now, by the clock of the database.
    pub now: Micros,
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::ZERO)
}

impl Store {
    /// Makes sure that the APIs of these sources are known.
    pub async fn register_source_apis(&self, names: &[String]) -> Result<(), StoreError> {
        let client = self.sync().await?;
        client.execute(REGISTER, &[&names]).await?;
        Ok(())
    }

    /// Pause, circuit and budget; one that is not registered is neither paused nor failing.
    pub async fn api_state(&self, source: &str) -> Result<ApiState, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(STATE).await?;
        let Some(row) = client.query_opt(&statement, &[&source]).await? else {
            return Ok(ApiState::default());
        };
        Ok(ApiState {
            paused_for: seconds(row.try_get(0)?),
            failures: u32::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0),
            next_call_in: seconds(row.try_get(2)?),
        })
    }

    /// Takes the next free call where one is allowed per `period`. Returns the wait before it, or `None`, and takes
    /// nothing, while the API is paused or the wait is over `longest`.
    pub async fn spend_api_call(
        &self,
        source: &str,
        period: Duration,
        longest: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(SPEND).await?;
        let (period, longest) = (period.as_secs_f64(), longest.as_secs_f64());
        let row = client.query_opt(&statement, &[&source, &period, &longest]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(seconds))
    }

    /// Takes the turn to make the one call that tells whether a failing API is back; nobody else has it before
    /// `length` is over, or [`Store::pause_api`] or [`Store::api_recovered`] was called. False: not ours.
    pub async fn probe_api(&self, source: &str, length: Duration) -> Result<bool, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(PROBE).await?;
        Ok(client.query_opt(&statement, &[&source, &length.as_secs_f64()]).await?.is_some())
    }

    /// Pauses an API after a failed call.
    pub async fn pause_api(&self, source: &str, pause: &ApiPause) -> Result<(), StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(PAUSE).await?;
        let ApiPause { kind, code, message, length, probing } = pause;
        client
            .execute(&statement, &[&source, &length.as_secs_f64(), kind, code, message, probing])
            .await?;
        Ok(())
    }

    /// Closes the circuit after a call that succeeded; writes nothing when it was closed.
    pub async fn api_recovered(&self, source: &str) -> Result<(), StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(RECOVERED).await?;
        client.execute(&statement, &[&source]).await?;
        Ok(())
    }

    /// Takes the turn to list what is new; nobody else has it for `length`. `None`: it is not time yet, or the API is
    /// paused.
    pub async fn poll_turn(
        &self,
        source: &str,
        length: Duration,
    ) -> Result<Option<PollTurn>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(POLL_TURN).await?;
        let row = client.query_opt(&statement, &[&source, &length.as_secs_f64()]).await?;
        row.map(|row| {
            Ok(PollTurn { since: micros(row.try_get("since")?), now: micros(row.try_get("now")?) })
        })
        .transpose()
    }

    /// A listing ended: complete up to a time, or failed; the next one comes `next` from now.
    pub async fn polled(
        &self,
        source: &str,
        complete_to: Result<Micros, String>,
        next: Duration,
    ) -> Result<(), StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(POLLED).await?;
        let (to, error) = match complete_to {
            Ok(to) => (Some(system_time(to)), None),
            Err(error) => (None, Some(error)),
        };
        client.execute(&statement, &[&source, &to, &next.as_secs_f64(), &error]).await?;
        Ok(())
    }
}
