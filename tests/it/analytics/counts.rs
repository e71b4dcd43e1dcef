//! `daily_counts`: the views say the same with and without it, whatever it has counted so far.

use serde_json::json;

use super::{a_year, texts};
use crate::merge::instance;
use crate::support::app::{TestApp, until};

/// The same numbers, counted the slow way.
const SLOW: &str = "
    select (d.received_at at time zone 'utc')::date as day, d.source, count(*) as deliveries,
        count(*) filter (where d.outcome = 'created') as created, count(*) filter (where d.outcome = 'rejected') as rejected,
        sum(d.body_bytes)::bigint as bytes
    from leadsync.deliveries as d
    group by 1, 2
    order by 1, 2";

const VIEW: &str = "
    select v.day, v.source, v.deliveries, v.created, v.rejected, v.bytes
    from analytics.sources_daily as v
    where v.deliveries > 0
    order by 1, 2";

#[tokio::test]
async fn the_days_are_the_same_counted_before_or_when_asked() {
    let db = a_year(400, 2000).await;
    let client = db.client().await;
    let store = instance(&db, 2);
    let expected = texts(&client, SLOW).await;
    assert!(expected.len() > 300, "{} lines", expected.len());
    assert_eq!(texts(&client, VIEW).await, expected, "nothing is counted yet");

    assert!(store.count_days().await.expect("count"), "a year is more than a week");
    assert_eq!(texts(&client, VIEW).await, expected, "a week is counted");
    let mut weeks = 1;
    while store.count_days().await.expect("count") {
        weeks += 1;
        assert!(weeks < 60);
    }
    let counted =
        "select sum(deliveries)::bigint from leadsync.daily_counts where what <> 'repeat'";
    let count: i64 = client.query_one(counted, &[]).await.expect("counted").get(0);
    assert_eq!(count, 2000, "everything is counted but what is younger than a minute");
    assert_eq!(texts(&client, VIEW).await, expected, "all is counted");

    // Stored late, and taken for something else since.
    client
        .batch_execute(
            "insert into leadsync.deliveries (delivery_id, week, received_at, last_received_at, source, outcome, body_bytes)
             select gen_random_uuid(), date_trunc('week', t at time zone 'utc')::date, t, t, 'site', 'rejected', 7
             from (select now() - interval '1 day' as t) as x;
             insert into leadsync.deliveries (delivery_id, week, received_at, last_received_at, source, outcome, body_bytes)
             select gen_random_uuid(), date_trunc('week', t at time zone 'utc')::date, t, t, 'ads', 'queued', 7
             from (select now() - interval '1 day' as t) as x;
             update leadsync.deliveries set outcome = 'ignored'
             where delivery_id = (select delivery_id from leadsync.deliveries where outcome = 'unchanged' order by received_at desc limit 1)",
        )
        .await
        .expect("late");
    let expected = texts(&client, SLOW).await;
    assert!(!store.count_days().await.expect("count"));
    assert_eq!(texts(&client, VIEW).await, expected, "the last days are counted anew");

    // The counts stay when the deliveries go.
    let before: i64 = client.query_one(counted, &[]).await.expect("counted").get(0);
    client.batch_execute("delete from leadsync.deliveries").await.expect("retention");
    assert!(!store.count_days().await.expect("count"));
    let after: i64 = client.query_one(counted, &[]).await.expect("counted").get(0);
    assert!(
        after > before / 2 && after < before,
        "{before} {after}: only the last days are counted anew"
    );
}

#[tokio::test]
async fn repeats_count_for_the_day_on_which_they_came() {
    let app = TestApp::receiving().await;
    let lead = json!({"email": "ana@example.com", "company": "Lima"});
    for _ in 0..4 {
        app.deliver(&lead).await;
    }
    app.deliver(&json!({"email": "bo@example.com"})).await;
    let repeats = "select coalesce(sum(repeats), 0)::bigint from analytics.duplicate_deliveries
                   where day = (now() at time zone 'utc')::date and source = 'site'";
    until("repeats are counted", async || app.value::<i64>(repeats).await == 3).await;
    let row = "select deliveries, repeats, share::float8 from analytics.duplicate_deliveries";
    let row = app.db.client().await.query_one(row, &[]).await.expect("one day and source");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, f64>(2)), (2, 3, 0.6));
}
