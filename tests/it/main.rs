//! The integration tests, one binary: everything against a real PostgreSQL.

mod deadlock;
mod destinations;
mod fake_crm;
mod merge;
mod migrate;
mod pool;
mod private_pg;
mod smoke;
mod support;
mod tls;
