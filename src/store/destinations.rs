//! What all instances share about a CRM account: rate budget, pause, circuit.

use std::time::Duration;

use super::{Store, StoreError};

const REGISTER: &str = include_str!("../../sql/destinations/register.sql");
const PROBE: &str = include_str!("../../sql/destinations/probe.sql");
const SPEND: &str = include_str!("../../sql/destinations/spend.sql");
const STATE: &str = include_str!("../../sql/destinations/state.sql");
const PAUSE: &str = include_str!("../../sql/destinations/pause.sql");
const RECOVERED: &str = include_str!("../../sql/destinations/recovered.sql");

/// Pause, circuit and budget of a destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DestinationState {
    /// Time until the pause ends; zero when there is none.
    pub paused_for: Duration,
    /// Failed calls in a row; while there are any, one call at a time is made.
    pub failures: u32,
    /// Time until the rate budget has its next free call.
    pub next_call_in: Duration,
}

/// Why a destination is paused.
#[derive(Clone, Debug)]
pub struct Pause {
    /// `credentials`, `misconfigured`, `slow_down` or `unavailable`.
    pub kind: &'static str,
    /// The CRM's code.
    pub code: Option<String>,
    /// The CRM's words.
    pub message: String,
    /// How long.
    pub length: Duration,
    /// The call that failed was the one that [probes](Store::probe).
    pub probing: bool,
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::ZERO)
}

impl Store {
    /// Makes sure that the configured destinations exist. `only` says that they are all there are: changed
    /// leads are no longer marked due for others.
    pub async fn register_destinations(
        &self,
        names: &[String],
        only: bool,
    ) -> Result<(), StoreError> {
        let client = self.sync().await?;
        client.execute(REGISTER, &[&names, &only]).await?;
        Ok(())
    }

    /// Takes the next free call of a destination where one is allowed per `period`. Returns the wait before
    /// it, or `None`, and takes nothing, while the destination is paused or the wait is over `longest`.
    pub async fn spend(
        &self,
        destination: &str,
        period: Duration,
        longest: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(SPEND).await?;
        let (period, longest) = (period.as_secs_f64(), longest.as_secs_f64());
        let row = client.query_opt(&statement, &[&destination, &period, &longest]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(seconds))
    }

    /// Takes the turn to make the one call that tells whether a failing destination is back; nobody else has
    /// it before `length` is over, or [`Store::pause`] or [`Store::recovered`] was called. False: not ours.
    pub async fn probe(&self, destination: &str, length: Duration) -> Result<bool, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(PROBE).await?;
        let row = client.query_opt(&statement, &[&destination, &length.as_secs_f64()]).await?;
        Ok(row.is_some())
    }

    /// Pause, circuit and budget; a destination that is not registered is neither paused nor failing.
    pub async fn destination_state(
        &self,
        destination: &str,
    ) -> Result<DestinationState, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(STATE).await?;
        let Some(row) = client.query_opt(&statement, &[&destination]).await? else {
            let (paused_for, next_call_in) = (Duration::ZERO, Duration::ZERO);
            return Ok(DestinationState { paused_for, failures: 0, next_call_in });
        };
        Ok(DestinationState {
            paused_for: seconds(row.try_get(0)?),
            failures: u32::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0),
            next_call_in: seconds(row.try_get(2)?),
        })
    }

    /// Pauses a destination after a failed call; returns failures in a row.
    pub async fn pause(&self, destination: &str, pause: &Pause) -> Result<u32, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(PAUSE).await?;
        let length = pause.length.as_secs_f64();
        let row = client
            .query_opt(
                &statement,
                &[&destination, &length, &pause.kind, &pause.code, &pause.message, &pause.probing],
            )
            .await?;
        let failures: i32 = row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
        Ok(u32::try_from(failures).unwrap_or(0))
    }

    /// Closes the circuit after a call that succeeded; writes nothing when it was closed.
    pub async fn recovered(&self, destination: &str) -> Result<(), StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(RECOVERED).await?;
        client.execute(&statement, &[&destination]).await?;
        Ok(())
    }
}
