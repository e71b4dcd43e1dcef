//! Comparing a CRM with the table: what a run has seen is kept in the database, so that memory is bounded.

use std::time::SystemTime;

use uuid::Uuid;

use super::sync::{Claimed, claimed};
use super::{Store, StoreError};

const BEGIN: &str = include_str!("../../sql/reconcile/begin.sql");
const PAGE: &str = include_str!("../../sql/reconcile/page.sql");
const ABSENT: &str = include_str!("../../sql/reconcile/absent.sql");
const DOUBLED: &str = include_str!("../../sql/reconcile/doubled.sql");
const END: &str = include_str!("../../sql/reconcile/end.sql");

/// A run under way.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    id: Uuid,
    began: SystemTime,
}

/// A contact as the CRM lists it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The CRM's id.
    pub remote_id: String,
    /// E-mail in lower case.
    pub email: Option<String>,
    /// In the bin.
    pub archived: bool,
}

/// A lead in sync whose contact was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The lead.
    pub lead_id: Uuid,
    /// Its e-mail.
    pub email: String,
    /// The CRM's id of its contact, as it was.
    pub remote_id: Option<String>,
    /// Other contacts with its e-mail.
    pub others: Vec<String>,
}

impl Store {
    /// Begins a run.
    pub async fn reconcile_begin(&self) -> Result<Run, StoreError> {
        let client = self.sync().await?;
        let row = client.query_one(BEGIN, &[]).await?;
        Ok(Run { id: Uuid::new_v4(), began: row.try_get("began")? })
    }

    /// Remembers a page of contacts; gives the leads in sync that they belong to, with the contact's id. One that was seen
    /// before is not given again.
    pub async fn reconcile_page(
        &self,
        destination: &str,
        run: &Run,
        contacts: &[Seen],
    ) -> Result<Vec<(String, Claimed)>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(PAGE).await?;
        let ids: Vec<&str> = contacts.iter().map(|c| c.remote_id.as_str()).collect();
        let emails: Vec<Option<&str>> = contacts.iter().map(|c| c.email.as_deref()).collect();
        let archived: Vec<bool> = contacts.iter().map(|c| c.archived).collect();
        let rows =
            client.query(&statement, &[&destination, &run.id, &ids, &emails, &archived]).await?;
        rows.iter().map(|row| Ok((row.try_get("contact_id")?, claimed(row)?))).collect()
    }

    /// Leads whose contact the run has not seen, one page after a lead id.
    pub async fn reconcile_absent(
        &self,
        destination: &str,
        run: &Run,
        limit: i64,
        after: Uuid,
    ) -> Result<Vec<Absent>, StoreError> {
        let client = self.sync().await?;
        let statement = client.prepare_cached(ABSENT).await?;
        let rows =
            client.query(&statement, &[&destination, &run.id, &run.began, &limit, &after]).await?;
        rows.iter()
            .map(|row| {
                Ok(Absent {
                    lead_id: row.try_get("lead_id")?,
                    email: row.try_get("email")?,
                    remote_id: row.try_get("remote_id")?,
                    others: row.try_get::<_, Option<_>>("others")?.unwrap_or_default(),
                })
            })
            .collect()
    }

    /// E-mails of leads that the run has seen at several contacts with the ids of those, one page after an e-mail.
    pub async fn reconcile_doubled(
        &self,
        run: &Run,
        limit: i64,
        after: &str,
    ) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        let client = self.sync().await?;
        let rows = client.query(DOUBLED, &[&run.id, &limit, &after]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Forgets what a run has seen.
    pub async fn reconcile_end(&self, run: &Run) -> Result<(), StoreError> {
        let client = self.sync().await?;
        client.execute(END, &[&run.id]).await?;
        Ok(())
    }
}
