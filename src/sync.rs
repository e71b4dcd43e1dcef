//! The sync loop: claim, push, settle, until every destination has what the leads say.
//!
//! Nothing here is exactly-once by luck: the claim takes a lease and a token, the settle needs the token,
//! and a lead is in sync only when the CRM confirmed exactly the version that is wanted now.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::config::{Deleted, OnFieldError, Rate};
use crate::destinations::{Destination, Mapped};
use crate::error::Chain;
use crate::stop::Stop;
use crate::store::destinations::Budget;
use crate::store::{Store, StoreError};

mod answer;
pub mod attempt;
pub mod backoff;
mod call;
mod pace;
pub mod payload;
pub mod reconcile;
mod remap;
pub mod schedule;
pub mod step;

use schedule::Schedule;
use step::{Done, Step};

/// Leads looked at in one go when a new destination is brought up to date.
const ENROL_PAGE: i64 = 5_000;

/// Longest sleep before a scheduled pass without a look at the clock, which people and machines that were
/// suspended set forward.
const NAP: Duration = Duration::from_secs(30);

/// Tells the time of scheduled passes.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Timings of the loop; `config::Sync` explains them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often due leads are looked for when nothing wakes the loop.
    pub poll: Duration,
    /// How long a claimed lead belongs to one instance.
    pub lease: Duration,
    /// Deadline of one call.
    pub call_timeout: Duration,
    /// Grace time after a stolen lease or an unknown outcome.
    pub confirm_after: Duration,
    /// First pause after a failure.
    pub backoff_base: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
    /// How long a call under way may go on once the service stops.
    pub drain: Duration,
}

/// A destination with what the loop needs to know of its configuration.
#[derive(Clone)]
pub struct Configured {
    /// Name in tables, logs and commands.
    pub name: String,
    /// The CRM.
    pub destination: Arc<dyn Destination>,
    /// What is sent, sorted by property.
    pub fields: Vec<Mapped>,
    /// Calls per time over all instances.
    pub rate: Option<Rate>,
    /// Calls, or the CRM's credits, per day over all instances.
    pub budget: Budget,
    /// Calls under way at once in this instance.
    pub concurrency: usize,
    /// What to do when the CRM refuses a value.
    pub on_field_error: OnFieldError,
    /// What to do about a contact that was deleted at the CRM.
    pub deleted: Deleted,
    /// How long after a call of unknown outcome no contact is made where the CRM keeps no key.
    pub create_grace: Duration,
}

/// The sync loop of this instance. Cheap to clone.
#[derive(Clone)]
pub struct Syncer {
    store: Store,
    settings: Settings,
    /// Name of this instance in leases.
    holder: Arc<str>,
    clock: Clock,
}

impl Syncer {
    /// A syncer of its own name; nothing runs yet.
    pub fn new(store: Store, settings: Settings) -> Syncer {
        let holder = format!("{}-{}", std::process::id(), Uuid::new_v4().simple());
        Syncer { store, settings, holder: holder.into(), clock: Arc::new(Timestamp::now) }
    }

    /// The same with another clock for its schedule. Leases go by the clock of the database.
    pub fn with_clock(self, clock: Clock) -> Syncer {
        Syncer { clock, ..self }
    }

    /// Marks leads due that a destination has never heard of, page by page; returns how many.
    pub async fn enrol(&self, destination: &Configured) -> Result<i64, StoreError> {
        let mut after = Uuid::nil();
        let mut marked = 0;
        loop {
            let (last, page) = self.store.enrol(&destination.name, after, ENROL_PAGE).await?;
            marked += page;
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
        if marked > 0 {
            tracing::info!(
                destination = destination.name,
                leads = marked,
                "leads marked due that the destination has not heard of"
            );
        }
        Ok(marked)
    }

    /// One pass: pushes until nothing is due now. Leads that wait after a failure stay waiting.
    pub async fn pass(&self, destination: &Configured, stop: &Stop) -> Result<Done, StoreError> {
        let mut total = Done::default();
        // The first step is made alone: where the CRM fails it is the one call that probes, and the other
        // workers would only see that the turn is taken.
        if !self.pass_step(destination, stop, &mut total).await? {
            return Ok(total);
        }
        let workers = (0..destination.concurrency.max(1)).map(|_| async {
            let mut done = Done::default();
            while self.pass_step(destination, stop, &mut done).await? {}
            Ok::<_, StoreError>(done)
        });
        for done in futures_util::future::join_all(workers).await {
            total.add(&done?);
        }
        Ok(total)
    }

    /// One step of a pass. False: there is nothing more to do in it.
    async fn pass_step(
        &self,
        destination: &Configured,
        stop: &Stop,
        done: &mut Done,
    ) -> Result<bool, StoreError> {
        match self.step(destination, stop).await? {
            Step::Idle => return Ok(false),
            Step::Paused(_) => {
                done.paused = true;
                return Ok(false);
            }
            Step::Later(wait) => return Ok(!self.rest(stop, wait).await),
            Step::Worked(step) => done.add(&step),
        }
        Ok(!stop.is_cancelled())
    }

    /// Runs a destination until `stop`. `changed` ticks after every commit of this instance that moved a lead.
    pub async fn run(
        self,
        destination: Configured,
        schedule: Schedule,
        changed: watch::Receiver<u64>,
        stop: Stop,
    ) {
        loop {
            let running = self.run_unguarded(&destination, &schedule, &changed, &stop);
            if AssertUnwindSafe(running).catch_unwind().await.is_ok() {
                return;
            }
            // Its leases run out and count as stolen.
            tracing::error!(
                destination = destination.name,
                "the sync loop panicked and starts again"
            );
            if self.rest(&stop, self.settings.poll).await {
                return;
            }
        }
    }

    async fn run_unguarded(
        &self,
        destination: &Configured,
        schedule: &Schedule,
        changed: &watch::Receiver<u64>,
        stop: &Stop,
    ) {
        // Before the leads are looked at, so that none is committed unseen in between.
        let writers = self.insist(destination, stop, || self.store.lead_writers()).await;
        let Some(writers) = writers else { return };
        if self.insist(destination, stop, || self.enrol(destination)).await.is_none()
            || self.insist(destination, stop, || self.remap(destination)).await.is_none()
        {
            return;
        }
        tokio::join!(self.enrol_late(destination, writers, stop), async {
            if !schedule.is_continuous() {
                return self.run_scheduled(destination, schedule, stop).await;
            }
            let more = Notify::new();
            let workers = (0..destination.concurrency.max(1))
                .map(|worker| self.work(worker, destination, &more, changed.clone(), stop));
            futures_util::future::join_all(workers).await;
        });
    }

    /// Looks for leads once more when transactions have ended that may have begun before the destination was
    /// registered: they marked nothing due for it, and their leads were not to be seen before.
    async fn enrol_late(&self, destination: &Configured, mut writers: Vec<String>, stop: &Stop) {
        if writers.is_empty() {
            return;
        }
        while !writers.is_empty() {
            if self.rest(stop, self.settings.poll).await {
                return;
            }
            let now = self.insist(destination, stop, || self.store.lead_writers()).await;
            let Some(now) = now else { return };
            writers.retain(|writer| now.contains(writer));
        }
        self.insist(destination, stop, || self.enrol(destination)).await;
    }

    /// Asks the database until it answers; `None` when stopping.
    async fn insist<T, F>(
        &self,
        destination: &Configured,
        stop: &Stop,
        ask: impl Fn() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match ask().await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    let name = destination.name.as_str();
                    tracing::error!(destination = name, "cannot mark leads due: {}", Chain(&error));
                }
            }
            if self.rest(stop, self.settings.poll).await {
                return None;
            }
        }
    }

    async fn run_scheduled(&self, destination: &Configured, schedule: &Schedule, stop: &Stop) {
        loop {
            let Some(next) = schedule.next_after((self.clock)()) else {
                tracing::error!(destination = destination.name, "the schedule never comes again");
                return stop.cancelled().await;
            };
            // Negative, and so an error, when it is past.
            while let Ok(wait) = Duration::try_from(next.duration_since((self.clock)()))
                && !wait.is_zero()
            {
                if self.rest(stop, wait.min(NAP)).await {
                    return;
                }
            }
            if let Err(error) = self.pass(destination, stop).await {
                tracing::error!(
                    destination = destination.name,
                    "sync pass failed: {}",
                    Chain(&error)
                );
            }
        }
    }

    /// One worker. The first is woken by changes and polls; the others help when there is more than one
    /// call's worth, and stay away while the circuit is open, so that one call at a time probes.
    async fn work(
        &self,
        worker: usize,
        destination: &Configured,
        more: &Notify,
        mut changed: watch::Receiver<u64>,
        stop: &Stop,
    ) {
        while !stop.is_cancelled() {
            if worker > 0 && stop.run_until_cancelled(more.notified()).await.is_none() {
                return;
            }
            // Interest is registered before looking, so that nothing committed in between is missed.
            changed.mark_unchanged();
            match self.step(destination, stop).await {
                Ok(Step::Worked(done)) => {
                    if done.full && done.calls_failed == 0 {
                        more.notify_one();
                    }
                }
                Ok(Step::Idle) => {
                    if worker == 0 {
                        tokio::select! {
                            _ = stop.cancelled() => return,
                            Ok(()) = changed.changed() => {}
                            _ = tokio::time::sleep(self.settings.poll) => {}
                        }
                    }
                }
                Ok(Step::Later(wait)) => {
                    if worker == 0 && self.rest(stop, wait).await {
                        return;
                    }
                }
                Ok(Step::Paused(length)) => {
                    if worker == 0 && self.rest(stop, length.min(self.settings.poll)).await {
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(
                        destination = destination.name,
                        "sync step failed: {}",
                        Chain(&error)
                    );
                    if self.rest(stop, self.settings.poll).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits, and says whether to stop.
    async fn rest(&self, stop: &Stop, length: Duration) -> bool {
        stop.run_until_cancelled(tokio::time::sleep(length)).await.is_none()
    }
}
