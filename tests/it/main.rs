//! The integration tests, one binary: everything against a real PostgreSQL.

mod api;
mod cli;
mod crash;
mod deadlock;
mod deliveries;
mod destinations;
mod fake_crm;
mod hooks;
mod http;
mod import;
mod lease;
mod merge;
mod migrate;
mod pool;
mod private_pg;
mod readme;
mod replay;
mod smoke;
mod support;
mod sync;
mod tls;
mod try_send;
