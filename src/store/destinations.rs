//! What all instances share about a CRM account: rate budget, pause, circuit.

use std::time::Duration;

use super::{Store, StoreError};

const REGISTER: &str = include_str!("../../sql/destinations/register.sql");
const SPEND: &str = include_str!("../../sql/destinations/spend.sql");
const STATE: &str = include_str!("../../sql/destinations/state.sql");
const PAUSE: &str = include_str!("../../sql/destinations/pause.sql");
const RECOVERED: &str = include_str!("../../sql/destinations/recovered.sql");

/// Pause and circuit of a destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DestinationState {
    /// Time until the pause ends; zero when there is none.
    pub paused_for: Duration,
    /// Failed calls in a row.
    pub failures: u32,
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
    /// it, or `None` while the destination is paused.
    pub async fn spend(
        &self,
        destination: &str,
        period: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(SPEND).await?;
        let row = client.query_opt(&statement, &[&destination, &period.as_secs_f64()]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(seconds))
    }

    /// Pause and circuit; a destination that is not registered is neither paused nor failing.
    pub async fn destination_state(
        &self,
        destination: &str,
    ) -> Result<DestinationState, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(STATE).await?;
        let Some(row) = client.query_opt(&statement, &[&destination]).await? else {
            return Ok(DestinationState { paused_for: Duration::ZERO, failures: 0 });
        };
        Ok(DestinationState {
            paused_for: seconds(row.try_get(0)?),
            failures: u32::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0),
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
                &[&destination, &length, &pause.kind, &pause.code, &pause.message],
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
