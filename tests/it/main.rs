//! The integration tests, one binary: everything against a real PostgreSQL.

mod migrate;
mod pool;
mod private_pg;
mod support;
