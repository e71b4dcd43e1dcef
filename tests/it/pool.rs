//! The pools: session settings, sorted errors, a server that goes away and comes back.

use std::time::Duration;

use leadsync::secret::Secret;
use leadsync::store::StoreError;
use leadsync::store::pool::{Pools, Settings};

use crate::support::db::TestDb;

fn settings() -> Settings {
    Settings {
        receive_connections: 2,
        sync_connections: 1,
        statement_timeout: Duration::from_millis(300),
        history: true,
    }
}

fn pools(db: &TestDb) -> Pools {
    Pools::new(&db.secret(), &settings()).unwrap()
}

#[tokio::test]
async fn every_session_has_our_settings() {
    let db = TestDb::new().await;
    // What the role says otherwise does not count.
    let weaken = "do $$ begin execute format(
        'alter database %I set synchronous_commit = off', current_database()); end $$";
    db.client().await.batch_execute(weaken).await.unwrap();
    let pools = pools(&db);
    pools.check().await.unwrap();
    for client in [pools.receive().await.unwrap(), pools.sync().await.unwrap()] {
        for (name, value) in [
            ("statement_timeout", "300ms"),
            ("lock_timeout", "3s"),
            ("synchronous_commit", "on"),
            ("default_transaction_isolation", "read committed"),
            ("application_name", "leadsync"),
            ("search_path", "leadsync, pg_temp"),
            ("TimeZone", "UTC"),
            ("leadsync.history", "on"),
        ] {
            let row = client.query_one("select current_setting($1)", &[&name]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), value, "{name}");
        }
    }
}

#[tokio::test]
async fn errors_are_sorted() {
    let db = TestDb::new().await;
    let client = pools(&db).receive().await.unwrap();
    let error = |sql: &'static str| {
        let client = &client;
        async move { StoreError::from(client.query(sql, &[]).await.unwrap_err()) }
    };
    assert!(matches!(error("select pg_sleep(10)").await, StoreError::TimedOut(_)));
    assert!(matches!(error("select 1 / 0").await, StoreError::Refused(_)));
    assert!(matches!(error("select * from nowhere").await, StoreError::Unavailable(_)));
    // A value that does not fit its parameter is this side's fault, not the connection's.
    let misfit = client.query("select $1::int", &[&"text"]).await.unwrap_err();
    assert!(matches!(StoreError::from(misfit), StoreError::Refused(_)));
    let raise = "do $$ begin raise sqlstate '40001'; end $$";
    assert!(matches!(error(raise).await, StoreError::Retry(_)));
}

#[tokio::test]
async fn a_lost_connection_is_unavailable_and_then_replaced() {
    let db = TestDb::new().await;
    let pools = pools(&db);
    let client = pools.sync().await.unwrap();
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    db.client().await.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let error = client.query_one("select 1", &[]).await.unwrap_err();
    assert!(matches!(StoreError::from(error), StoreError::Unavailable(_)));
    drop(client);
    // The pool learns of the end when the connection's task does, a moment after the error.
    for attempt in 0.. {
        let client = pools.sync().await.unwrap();
        match client.query_one("select 1", &[]).await {
            Ok(_) => break,
            Err(e) => assert!(matches!(StoreError::from(e), StoreError::Unavailable(_))),
        }
        assert!(attempt < 1000, "the pool keeps the dead connection");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_exhausted_pool_and_a_wrong_database_are_unavailable() {
    let db = TestDb::new().await;
    let pools = pools(&db);
    let _only = pools.sync().await.unwrap();
    assert!(matches!(pools.sync().await.unwrap_err(), StoreError::Unavailable(_)));
    let wrong = Secret::new(db.url().replacen("@/test_", "@/nowhere_", 1));
    let pools = Pools::new(&wrong, &settings()).unwrap();
    let error = pools.check().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)));
    let shown = leadsync::error::Chain(&error).to_string();
    assert!(shown.contains("does not exist"), "the whole chain is shown: {shown}");
}
