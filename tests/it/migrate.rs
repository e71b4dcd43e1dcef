//! Migrations: many instances at once, other binaries' histories, roles without rights.

use std::time::Duration;

use leadsync::secret::Secret;
use leadsync::store::migrate::{self, MigrateError, State};

use crate::support::db::TestDb;

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn four_instances_on_an_empty_database_migrate_once() {
    let db = TestDb::empty().await;
    let client = db.client().await;
    assert!(matches!(migrate::state(&client).await.unwrap(), State::Pending(n) if n > 0));
    assert!(!migrate::applied(&client).await.unwrap());
    let runs = (0..4).map(|_| {
        let url = db.secret();
        tokio::spawn(async move { migrate::run(&url, DEADLINE).await })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap().unwrap(), State::Current);
    }
    assert!(migrate::applied(&client).await.unwrap());
    let doubled = "select from leadsync.schema_history group by version having count(*) > 1";
    assert!(client.query(doubled, &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_newer_database_is_served_and_not_touched() {
    let db = TestDb::new().await;
    let client = db.client().await;
    let newer = "insert into leadsync.schema_history (version, name, applied_on, checksum)
        values (9999, 'of_tomorrow', '2030-01-01T00:00:00Z', '1')";
    client.batch_execute(newer).await.unwrap();
    assert_eq!(migrate::run(&db.secret(), DEADLINE).await.unwrap(), State::Ahead(9999));
    assert!(migrate::applied(&client).await.unwrap());
    client.batch_execute("delete from leadsync.schema_history where version = 1").await.unwrap();
    let error = migrate::run(&db.secret(), DEADLINE).await.unwrap_err();
    assert!(
        matches!(error, MigrateError::Diverged(_)) && error.to_string().contains("V1"),
        "{error}"
    );
}

#[tokio::test]
async fn another_history_is_refused_whatever_is_in_it() {
    for (change, told) in [
        ("checksum = '12345'", "V1"),
        ("checksum = 'x'", "damaged"),
        ("applied_on = 'yesterday'", "damaged"),
        ("version = 0", "V0"),
    ] {
        let db = TestDb::new().await;
        let sql = format!("update leadsync.schema_history set {change} where version = 1");
        db.client().await.batch_execute(&sql).await.unwrap();
        let error = migrate::run(&db.secret(), DEADLINE).await.unwrap_err();
        assert!(matches!(error, MigrateError::Diverged(_)), "{change}: {error}");
        assert!(error.to_string().contains(told), "{change}: {error}");
    }
}

#[tokio::test]
async fn a_role_without_rights_reads_what_is_there_and_is_told_when_that_is_not_enough() {
    let role = format!("role_{:08x}", rand::random::<u32>());
    let as_role =
        |db: &TestDb| Secret::new(db.url().replacen("leadsync@/", &format!("{role}@/"), 1));
    let migrated = TestDb::new().await;
    let client = migrated.client().await;
    let grants = format!(
        "create role {role} login; grant usage on schema leadsync to {role};
         grant select on leadsync.schema_history to {role}"
    );
    client.batch_execute(&grants).await.unwrap();
    assert_eq!(migrate::run(&as_role(&migrated), DEADLINE).await.unwrap(), State::Current);

    let empty = TestDb::empty().await;
    let error = migrate::run(&as_role(&empty), DEADLINE).await.unwrap_err();
    assert!(matches!(error, MigrateError::Forbidden(_)), "{error}");
    assert!(error.to_string().contains("migrate_url"));
    let clean = format!("drop owned by {role}; drop role {role}");
    client.batch_execute(&clean).await.unwrap();
}

#[tokio::test]
async fn waiting_for_another_instance_has_an_end() {
    let db = TestDb::empty().await;
    let other = db.client().await;
    other
        .batch_execute("select pg_advisory_lock(x'6c6561647379'::bigint << 16 | x'6e63'::int)")
        .await
        .unwrap();
    let error = migrate::run(&db.secret(), Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, MigrateError::Locked(_)), "{error}");
    drop(other);
    assert_eq!(migrate::run(&db.secret(), DEADLINE).await.unwrap(), State::Current);
}

#[tokio::test]
async fn no_database_is_unavailable() {
    let nowhere = Secret::new("postgresql://u@/x?host=/nonexistent&port=5432");
    let error = migrate::run(&nowhere, DEADLINE).await.unwrap_err();
    let MigrateError::Store(leadsync::store::StoreError::Unavailable(_)) = error else {
        panic!("{error}")
    };
}
