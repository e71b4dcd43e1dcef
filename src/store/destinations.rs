//! What all instances share about a CRM account: rate budget, pause, circuit.

use std::time::Duration;

use super::{Store, StoreError};

const REGISTER: &str = include_str!("../../sql/destinations/register.sql");
const PROBE: &str = include_str!("../../sql/destinations/probe.sql");
const SPEND: &str = include_str!("../../sql/destinations/spend.sql");
const STATE: &str = include_str!("../../sql/destinations/state.sql");
const TOLD: &str = include_str!("../../sql/destinations/told.sql");
const EXHAUSTED: &str = include_str!("../../sql/destinations/exhausted.sql");
const TOKEN: &str = include_str!("../../sql/destinations/token.sql");
const KEEP_TOKEN: &str = include_str!("../../sql/destinations/keep_token.sql");
const MAPPING: &str = include_str!("../../sql/destinations/mapping.sql");
const SET_MAPPING: &str = include_str!("../../sql/destinations/set_mapping.sql");
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
    /// Time until the day's budget may have room again; zero while it has.
    pub day_wait: Duration,
    /// The same for leads of a backfill.
    pub backfill_wait: Duration,
}

impl DestinationState {
    const NEW: DestinationState = DestinationState {
        paused_for: Duration::ZERO,
        failures: 0,
        next_call_in: Duration::ZERO,
        day_wait: Duration::ZERO,
        backfill_wait: Duration::ZERO,
    };
}

/// The day's budget of a destination.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    /// Calls or credits; `None`: no limit known.
    pub daily: Option<u32>,
    /// Part of it that a backfill may use, in per cent.
    pub backfill_share: u8,
    /// Most that one call costs of it.
    pub cost: u32,
}

/// What a call takes of the budget.
#[derive(Clone, Copy, Debug)]
pub struct Spending {
    /// One call is allowed in so much time.
    pub period: Duration,
    /// Longest wait for a call.
    pub longest: Duration,
    /// What it costs of the day's budget.
    pub cost: u32,
    /// The day's budget; `None`: no limit known.
    pub daily: Option<u32>,
    /// Part of the day's budget that may be used, in per cent.
    pub share: u8,
}

/// What a CRM's headers say of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    /// One call is allowed in so much time; zero: they do not say.
    pub period: Duration,
    /// No call for so long.
    pub hold: Duration,
    /// Left of the day.
    pub day_left: Option<u32>,
    /// What the day allows.
    pub day_allowed: Option<u32>,
    /// How long `day_left` is believed.
    pub day_for: Duration,
}

/// The database's integers end earlier.
fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn part(percent: u8) -> f64 {
    f64::from(percent.min(100)) / 100.0
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

    /// Takes the next free call of a destination. Returns the wait before it, or `None`, and takes nothing, while the
    /// destination is paused, the wait too long or the day's budget spent.
    pub async fn spend(
        &self,
        destination: &str,
        spending: &Spending,
    ) -> Result<Option<Duration>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(SPEND).await?;
        let Spending { period, longest, cost, daily, share } = *spending;
        let (period, longest) = (period.as_secs_f64(), longest.as_secs_f64());
        let row = client
            .query_opt(
                &statement,
                &[&destination, &period, &longest, &int(cost), &daily.map(int), &part(share)],
            )
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(seconds))
    }

    /// Takes over what the CRM's headers say of its limits; writes nothing that is known.
    pub async fn told(&self, destination: &str, told: &Told) -> Result<(), StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(TOLD).await?;
        let (period, hold) = (told.period.as_secs_f64(), told.hold.as_secs_f64());
        let (left, allowed) = (told.day_left.map(int), told.day_allowed.map(int));
        let day_for = told.day_for.as_secs_f64();
        client
            .execute(&statement, &[&destination, &period, &hold, &left, &allowed, &day_for])
            .await?;
        Ok(())
    }

    /// Pauses a destination whose day's budget is spent. False: it is paused already.
    pub async fn exhausted(
        &self,
        destination: &str,
        length: Duration,
        message: &str,
    ) -> Result<bool, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(EXHAUSTED).await?;
        let length = length.as_secs_f64();
        Ok(client.execute(&statement, &[&destination, &length, &message]).await? > 0)
    }

    /// The sealed refresh token that was kept last.
    pub async fn sealed_token(&self, destination: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let client = self.sync().await?;
        let row = client.query_opt(TOKEN, &[&destination]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
    }

    /// Keeps a sealed refresh token, also for a destination that is not registered yet.
    pub async fn keep_sealed_token(
        &self,
        destination: &str,
        sealed: &[u8],
    ) -> Result<(), StoreError> {
        let client = self.sync().await?;
        client.execute(KEEP_TOKEN, &[&destination, &sealed]).await?;
        Ok(())
    }

    /// Digest of the mapping that every lead was sent with, or compared with.
    pub async fn mapping(&self, destination: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let client = self.sync().await?;
        let row = client.query_opt(MAPPING, &[&destination]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
    }

    /// Keeps it.
    pub async fn set_mapping(&self, destination: &str, digest: &[u8]) -> Result<(), StoreError> {
        let client = self.sync().await?;
        client.execute(SET_MAPPING, &[&destination, &digest]).await?;
        Ok(())
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
        budget: &Budget,
    ) -> Result<DestinationState, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(STATE).await?;
        let Budget { daily, backfill_share, cost } = *budget;
        let (daily, share, cost) = (daily.map(int), part(backfill_share), int(cost));
        let row = client.query_opt(&statement, &[&destination, &daily, &share, &cost]).await?;
        let Some(row) = row else { return Ok(DestinationState::NEW) };
        Ok(DestinationState {
            paused_for: seconds(row.try_get(0)?),
            failures: u32::try_from(row.try_get::<_, i32>(1)?).unwrap_or(0),
            next_call_in: seconds(row.try_get(2)?),
            day_wait: seconds(row.try_get(3)?),
            backfill_wait: seconds(row.try_get(4)?),
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
