//! The integration tests, one binary: everything against a real PostgreSQL.

mod cli;
mod crash;
mod destinations;
mod fake_crm;
mod migrate;
mod pool;
mod private_pg;
mod smoke;
mod support;
mod tls;
