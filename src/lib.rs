//! leadsync: redelivered webhooks in, exactly one lead in PostgreSQL and one contact in each CRM out.
//!
//! The map of the house. `tests/house.rs` holds the rooms to the imports allowed here.

pub mod app;
pub mod cli;
pub mod config;
pub mod destinations;
pub mod error;
pub mod fake_crm;
pub mod fetch;
pub mod http;
pub mod import;
pub mod lead;
pub mod mapping;
pub mod private_pg;
pub mod receive;
pub mod secret;
pub mod serve;
pub mod sources;
pub mod stop;
pub mod store;
pub mod sync;
pub mod telemetry;
