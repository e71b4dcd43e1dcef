//! Destinations, from configuration to something that can be pushed to.

use std::sync::Arc;

use async_trait::async_trait;

use super::{AppError, Database};
use crate::config::{self, Config};
use crate::destinations::{self, Mapped, Setup, TokenStore, TokenStoreError};
use crate::error::Chain;
use crate::store::Store;
use crate::store::destinations::Budget;
use crate::sync;

/// Calls under way at once per destination, where the configuration says nothing.
const CONCURRENCY: usize = 4;

/// Refresh tokens that a CRM replaced are kept in the database, sealed.
struct StoredTokens(Store);

#[async_trait]
impl TokenStore for StoredTokens {
    async fn newest(&self, destination: &str) -> Result<Option<Vec<u8>>, TokenStoreError> {
        let kept = self.0.sealed_token(destination).await;
        kept.map_err(|error| TokenStoreError(Chain(&error).to_string()))
    }

    async fn keep(&self, destination: &str, sealed: &[u8]) -> Result<(), TokenStoreError> {
        let kept = self.0.keep_sealed_token(destination, sealed).await;
        kept.map_err(|error| TokenStoreError(Chain(&error).to_string()))
    }
}

/// The configured destinations, built, without a database: to look at, not to push to where the CRM replaces tokens.
pub fn destinations(config: &Config) -> Result<Vec<sync::Configured>, AppError> {
    built(config, &Setup::new(config.sync.call_timeout))
}

/// The configured destinations, built, with what must outlive the process kept in the database.
pub fn destinations_on(config: &Config, store: &Store) -> Result<Vec<sync::Configured>, AppError> {
    built(config, &setup_on(config, store))
}

fn setup_on(config: &Config, store: &Store) -> Setup {
    let tokens = Arc::new(StoredTokens(store.clone()));
    Setup { call_timeout: config.sync.call_timeout, tokens }
}

fn built(config: &Config, setup: &Setup) -> Result<Vec<sync::Configured>, AppError> {
    config.destinations.iter().map(|settings| destination(settings, setup)).collect()
}

fn destination(
    settings: &config::Destination,
    setup: &Setup,
) -> Result<sync::Configured, AppError> {
    let destination = destinations::build(settings, setup)?;
    let defaults = destination.default_fields().iter();
    let mut fields: Vec<Mapped> = match settings.fields.is_empty() {
        true => defaults.map(|(value, property)| Mapped::new(*value, *property)).collect(),
        false => settings.fields.iter().map(mapped).collect(),
    };
    fields.sort_by(|a, b| a.property.cmp(&b.property));
    let batch = destination.batch_size();
    let budget = Budget {
        daily: settings.daily.or(destination.default_daily()),
        backfill_share: settings.backfill_share,
        cost: destination.cost(batch).max(destination.look_up_cost(batch)),
    };
    Ok(sync::Configured {
        name: settings.name.clone(),
        rate: settings.rate.or(destination.default_rate()),
        destination,
        fields,
        budget,
        concurrency: settings.concurrency.unwrap_or(CONCURRENCY),
        on_field_error: settings.on_field_error,
        deleted: settings.deleted,
        create_grace: settings.create_grace,
    })
}

fn mapped((value, property): (&String, &config::Property)) -> Mapped {
    Mapped {
        value: value.clone(),
        property: property.to().to_owned(),
        write: property.write(),
        values: property.values(),
    }
}

/// Asks every destination whether it could be pushed to, and tells `find` about each, what, and whether it is right.
pub(super) async fn check(config: &Config, find: &mut impl FnMut(&str, String, bool)) {
    // A refresh token that the CRM replaces during the check must not be lost with it.
    let replaceable = config.destinations.iter().any(|settings| settings.refresh_token.is_some());
    let database = match replaceable {
        true => ready_database(config).await,
        false => None,
    };
    let setup = match &database {
        Some(database) => setup_on(config, &database.store),
        None => Setup::new(config.sync.call_timeout),
    };
    for settings in &config.destinations {
        let about = format!("destination {}", settings.name);
        let configured = match destination(settings, &setup) {
            Ok(configured) => configured,
            Err(error) => {
                find(&about, Chain(&error).to_string(), false);
                continue;
            }
        };
        if settings.refresh_token.is_some() && database.is_none() {
            let sentence = "not asked: the CRM may replace the refresh token, and the database that keeps the new \
                            one cannot be used yet; run `leadsync migrate` first";
            find(&about, sentence.to_owned(), false);
            continue;
        }
        let check = configured.destination.check(&configured.fields);
        match tokio::time::timeout(config.sync.call_timeout, check).await {
            Ok(Ok(sentences)) => sentences.into_iter().for_each(|s| find(&about, s, true)),
            Ok(Err(error)) => find(&about, Chain(&error).to_string(), false),
            Err(_) => find(&about, "no answer within sync.call_timeout".to_owned(), false),
        }
    }
    if let Some(database) = database {
        database.close().await;
    }
}

/// The migrated database, if there is one.
async fn ready_database(config: &Config) -> Option<Database> {
    let database = Database::join(config).await.ok()?;
    if database.store.ready().await.is_ok() {
        return Some(database);
    }
    database.close().await;
    None
}
