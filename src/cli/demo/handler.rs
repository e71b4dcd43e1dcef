//! The textbook handler, really run: look, create, remember. Between looking and remembering others look too.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::traffic::{Event, Plan, client};
use crate::cli::Failure;
use crate::error::Chain;
use crate::store::{Store, StoreError};

/// Handlers at work at once: as many as an application server commonly has.
const AT_ONCE: usize = 32;

/// Gives every delivery of the plan to the handler. The CRM at `crm` takes contacts as they come.
pub(super) async fn run(
    plan: &Plan,
    store: &Store,
    crm: &str,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    store.textbook_setup().await?;
    let handler = Handler { store: store.clone(), client: client()?, crm: crm.to_owned() };
    let handler = &handler;
    let mut handled = stream::iter(&plan.deliveries)
        .map(|event| async move {
            let handled = handler.handle(&plan.events[*event]).await;
            bar.inc(1);
            handled
        })
        .buffer_unordered(AT_ONCE);
    while let Some(handled) = handled.next().await {
        handled?;
    }
    Ok(())
}

struct Handler {
    store: Store,
    client: reqwest::Client,
    crm: String,
}

impl Handler {
    async fn handle(&self, event: &Event) -> Result<(), Failure> {
        if self.store.textbook_processed(&event.id).await? {
            return Ok(());
        }
        let remote_id = match self.store.textbook_contact(&event.email).await? {
            Some(remote_id) => remote_id,
            None => self.create(event).await?,
        };
        self.remember(event, &remote_id).await?;
        Ok(())
    }

    async fn create(&self, event: &Event) -> Result<String, Failure> {
        let failed = |error: reqwest::Error| {
            Failure::Words(format!("the handler's CRM failed: {}", Chain(&error)))
        };
        let answer = self
            .client
            .post(format!("{}/plain/contacts", self.crm))
            .json(&json!({"email": event.email, "first_name": event.first_name}))
            .timeout(Duration::from_secs(10))
            .send()
            .await
            .map_err(failed)?;
        let answer: Value = answer.json().await.map_err(failed)?;
        Ok(answer["id"].to_string())
    }

    async fn remember(&self, event: &Event, remote_id: &str) -> Result<(), StoreError> {
        self.store.textbook_remember(&event.id, &event.email, remote_id).await
    }
}
