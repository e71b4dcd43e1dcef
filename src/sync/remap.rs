//! After a change of the mapping: leads that would be sent otherwise than they were are sent again.

use uuid::Uuid;

use super::attempt::{Prepared, prepare};
use super::{Configured, Syncer, payload};
use crate::store::StoreError;

/// Leads compared in one go.
const PAGE: i64 = 1_000;

impl Syncer {
    /// Where the mapping is another one than that of the last time: marks those leads due, behind those that change, for
    /// which something else would be sent than the CRM confirmed, or which it refused; returns how many. Cut off in the
    /// middle, it begins anew the next time, and leads that were sent meanwhile are equal.
    pub async fn remap(&self, destination: &Configured) -> Result<u64, StoreError> {
        let name = destination.name.as_str();
        let whole = destination.destination.sends_whole_lead();
        let digest = payload::mapping(&destination.fields, whole);
        let known = self.store.mapping(name).await?;
        if known.as_ref() == Some(&digest) {
            return Ok(0);
        }
        let mut marked = 0;
        // None is known where the destination is new, or from before mappings were remembered.
        if known.is_some() {
            let mut after = Uuid::nil();
            loop {
                let page = self.store.settled(name, after, PAGE).await?;
                let Some(last) = page.last() else { break };
                after = last.lead.lead_id;
                let others: Vec<Uuid> = page
                    .into_iter()
                    .map(|claimed| prepare(claimed, destination))
                    .filter(|prepared| !prepared.is_as_sent())
                    .map(|prepared: Prepared| prepared.claimed.lead.lead_id)
                    .collect();
                marked += self.store.mark(name, &others, false).await?;
            }
            tracing::info!(
                destination = name,
                leads = marked,
                "the mapping has changed: leads marked due for which something else is sent now"
            );
        }
        self.store.set_mapping(name, &digest).await?;
        Ok(marked)
    }
}
