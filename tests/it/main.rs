//! The integration tests, one binary: everything against a real PostgreSQL.

mod destinations;
mod fake_crm;
mod migrate;
mod pool;
mod private_pg;
mod readme;
mod smoke;
mod support;
mod tls;
