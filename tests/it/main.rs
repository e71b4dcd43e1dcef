//! The integration tests, one binary: everything against a real PostgreSQL.

mod destinations;
mod fake_crm;
mod lease;
mod migrate;
mod pool;
mod private_pg;
mod smoke;
mod support;
mod sync;
mod tls;
