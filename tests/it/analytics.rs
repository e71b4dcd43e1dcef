//! What analysts are promised: the views, their columns, the history behind them, and who may see what.

mod columns;
mod counts;
mod dashboard;
pub mod history;
mod reports;
mod roles;
mod views;

use tokio_postgres::Client;

use crate::support::db::TestDb;

/// A year of leads in small: enough that every view and report has something to show.
pub async fn a_year(leads: u32, deliveries: u32) -> TestDb {
    let db = TestDb::new().await;
    fill(&db.client().await, leads, deliveries).await;
    db
}

async fn fill(client: &Client, leads: u32, deliveries: u32) {
    let sql = include_str!("analytics/scale.sql").replace("{leads}", &leads.to_string());
    let sql = sql.replace("{deliveries}", &deliveries.to_string());
    client.batch_execute("set leadsync.history = off").await.expect("history off");
    client.batch_execute(&sql).await.expect("fill");
    client.batch_execute("analyze; set leadsync.history = on").await.expect("analyze");
}

/// The rows of a query as text.
pub async fn texts(client: &Client, sql: &str) -> Vec<String> {
    let sql = format!("select row_to_json(r)::text from ({sql}) as r");
    let rows = client.query(&sql, &[]).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    rows.iter().map(|row| row.get(0)).collect()
}
