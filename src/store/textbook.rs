//! Tables of the textbook handler that the demo compares with: "have I processed this event? do I know this
//! contact?", then create, then remember. Not part of the product; its tables live in a schema of their own.

use super::{Store, StoreError};

const SETUP: &str = include_str!("../../sql/textbook/setup.sql");
const PROCESSED: &str = include_str!("../../sql/textbook/processed.sql");
const CONTACT: &str = include_str!("../../sql/textbook/contact.sql");
const REMEMBER: &str = include_str!("../../sql/textbook/remember.sql");

impl Store {
    /// Makes the handler's tables, empty.
    pub async fn textbook_setup(&self) -> Result<(), StoreError> {
        Ok(self.receive().await?.batch_execute(SETUP).await?)
    }

    /// Whether the event was processed.
    pub async fn textbook_processed(&self, event_id: &str) -> Result<bool, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(PROCESSED).await?;
        Ok(client.query_one(&statement, &[&event_id]).await?.try_get(0)?)
    }

    /// The CRM's id of the contact with that address, as far as the handler knows.
    pub async fn textbook_contact(&self, email: &str) -> Result<Option<String>, StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(CONTACT).await?;
        Ok(client.query_opt(&statement, &[&email]).await?.map(|row| row.try_get(0)).transpose()?)
    }

    /// Remembers the event as processed and the contact as created.
    pub async fn textbook_remember(
        &self,
        event_id: &str,
        email: &str,
        remote_id: &str,
    ) -> Result<(), StoreError> {
        let client = self.receive().await?;
        let statement = client.prepare_cached(REMEMBER).await?;
        client.execute(&statement, &[&event_id, &email, &remote_id]).await?;
        Ok(())
    }
}
