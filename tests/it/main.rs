//! The integration tests, one binary: everything against a real PostgreSQL.

mod api;
mod cli;
mod crash;
mod deadlock;
mod destinations;
mod destinations_odoo;
mod destinations_rdstation;
mod destinations_salesforce;
mod destinations_zoho;
mod fake_crm;
mod fake_crm_odoo;
mod fake_crm_rdstation;
mod fake_crm_salesforce;
mod fake_crm_zoho;
mod fetch;
mod fuzz;
mod hooks;
mod http;
mod import;
mod lease;
mod merge;
mod migrate;
#[path = "../odoo/cases.rs"]
mod odoo_cases;
mod payloads;
mod pool;
mod private_pg;
mod readme;
mod replay;
mod smoke;
mod support;
mod sync;
mod tls;
mod try_send;
