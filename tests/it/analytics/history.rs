//! `lead_changes`: what changed is written with the change, whole and in order, and nothing else is.

use serde_json::{Value, json};
use tokio_postgres::Client;

use super::texts;
use crate::support::app::TestApp;
use leadsync::app::Roles;

const RECEIVING: Roles = Roles { receive: true, sync: false };

/// Every move of every lead is in the history, each change begins where the one before it ended, and the last ends at the
/// lead as it is.
pub async fn is_whole(client: &Client) {
    let wrong = texts(
        client,
        "with change as (
            select c.lead_id, c.version, c.changed_at, k.field, k.change
            from leadsync.lead_changes as c
            cross join lateral jsonb_each(c.changes) as k (field, change)
        ),
        course as (
            select c.*, lead(c.change) over w as following, lead(c.changed_at) over w as followed_at
            from change as c
            window w as (partition by c.lead_id, c.field order by c.version)
        )
        select 'a change does not begin where the one before it ended' as wrong, c.field, c.change, c.following
        from course as c
        where c.following is not null
            and (c.following ->> 0 is distinct from c.change ->> 1 or c.followed_at < c.changed_at
                -- Stamps only grow; those of the first touch, the earliest, fall, and an opt-out may be older than the opt-in it overrules.
                or (c.field not like 'utm%' and c.field not in ('first_seen_at', 'first_source', 'landing_page', 'marketing_consent')
                    and (c.following ->> 4)::bigint < (c.change ->> 5)::bigint))
        union all
        select 'the last change is not what the lead has', c.field, c.change, to_jsonb(r.value)
        from course as c
        left join leadsync.lead_registers as r on r.lead_id = c.lead_id and r.field = c.field
        where c.following is null and c.change ->> 1 is distinct from r.value
        union all
        select 'a change of nothing', c.field, c.change, null
        from course as c
        where c.change ->> 0 = c.change ->> 1
        union all
        select 'versions are missing', null, to_jsonb(l.version), to_jsonb(h.versions)
        from leadsync.leads as l
        left join (
            select c.lead_id, count(distinct c.version) as versions, min(c.version) as first, max(c.version) as last, count(*) as rows
            from leadsync.lead_changes as c
            group by c.lead_id
        ) as h on h.lead_id = l.lead_id
        -- A version without a row is one in which only the first touch became more believable, at the same time.
        where coalesce(h.versions, 0) + case when l.first_seen_reliable then 1 else 0 end < l.version - 1
            or h.versions > l.version - 1 or h.rows <> h.versions or h.first < 2 or h.last > l.version
        union all
        select 'nothing changed', null, to_jsonb(c.version), c.changes
        from leadsync.lead_changes as c
        where c.changes = '{}'
        limit 5",
    )
    .await;
    assert_eq!(wrong, Vec::<String>::new());
}

async fn changes(client: &Client, version: i64) -> Value {
    let sql = "select changes from leadsync.lead_changes where version = $1";
    client.query_one(sql, &[&version]).await.expect("one row").get(0)
}

#[tokio::test]
async fn each_change_is_kept_with_both_sides() {
    let app = TestApp::receiving().await;
    let client = app.db.client().await;
    let mut lead = json!({
        "email": "ana@example.com", "occurred_at": "2026-03-05T00:00:00Z", "first_name": "Ana", "phone": "+5511912345678",
        "tags": ["vip"], "attributes": {"budget": "10k", "size": "3"}, "utm_campaign": "spring"
    });
    app.deliver(&lead).await;
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 0);

    // A repeat, and a newer event that says the same, are no change.
    app.deliver(&lead).await;
    lead["occurred_at"] = json!("2026-03-06T00:00:00Z");
    app.deliver(&lead).await;
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 0);

    let update = json!({
        "email": "ana@example.com", "occurred_at": "2026-03-07T00:00:00Z", "phone": "+5511987654321", "company": "Lima",
        "tags": ["new"], "attributes": {"budget": "20k", "size": "3"}, "marketing_consent": true, "lifecycle_stage": "customer"
    });
    app.deliver(&update).await;
    let stamp = |day: u8| {
        let at = format!("2026-03-{day:02}T00:00:00Z").parse::<jiff::Timestamp>().expect("a time");
        (50_i64 << 56) | (1 << 55) | ((at.as_microsecond() - 946_684_800_000_000) << 1) | 1
    };
    let source: i16 = app.value("select source_id from leadsync.sources where name = 'site'").await;
    let kept = changes(&client, 2).await;
    assert_eq!(
        kept["phone"],
        json!(["+5511912345678", "+5511987654321", source, source, stamp(6), stamp(7)])
    );
    assert_eq!(kept["company"], json!([null, "Lima", null, source, null, stamp(7)]));
    assert_eq!(
        kept["attributes.budget"],
        json!(["10k", "20k", source, source, stamp(6), stamp(7)])
    );
    assert_eq!(kept["tags"], json!(["vip", "new;vip", null, null, null, null]));
    assert_eq!(kept["marketing_consent"][1], "true");
    assert_eq!(kept["lifecycle_stage"][1], "customer");
    let fields: Vec<&str> =
        kept.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(fields.len(), 6, "{fields:?}");

    // An older event with a touch of its own, and a clear.
    let older = json!({"email": "ana@example.com", "occurred_at": "2026-03-01T00:00:00Z", "utm_campaign": "winter"});
    app.deliver(&older).await;
    let kept = changes(&client, 3).await;
    assert_eq!(kept["utm_campaign"][0], "spring");
    assert_eq!(kept["utm_campaign"][1], "winter");
    assert_eq!(kept["first_seen_at"][1], "2026-03-01T00:00:00.000000Z");
    let clear = json!({"email": "ana@example.com", "occurred_at": "2026-03-08T00:00:00Z", "clear": ["phone", "website"]});
    app.deliver(&clear).await;
    let kept = changes(&client, 4).await;
    assert_eq!(kept["phone"][1], Value::Null);
    assert_eq!(kept["website"], json!([null, null, null, source, null, stamp(8)]));
    is_whole(&client).await;

    // What the view makes of it: the beginning is derived, and a field that came later did not exist.
    let told = texts(
        &client,
        "select version, field, from_value, to_value, to_source, recorded
         from analytics.lead_changes where field in ('phone', 'company', 'first_name') order by field, version",
    )
    .await;
    let told: Vec<Value> =
        told.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    let row = |version: u8, field: &str, from: Option<&str>, to: Option<&str>, recorded: bool| json!({"version": version, "field": field, "from_value": from, "to_value": to, "to_source": "site", "recorded": recorded});
    assert_eq!(
        told,
        [
            row(2, "company", None, Some("Lima"), true),
            row(1, "first_name", None, Some("Ana"), false),
            row(1, "phone", None, Some("+5511912345678"), false),
            row(2, "phone", Some("+5511912345678"), Some("+5511987654321"), true),
            row(4, "phone", Some("+5511987654321"), None, true),
        ]
    );

    // Who is deleted leaves no history.
    client.batch_execute("delete from leadsync.leads").await.expect("delete");
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 0);
}

#[tokio::test]
async fn it_is_written_with_the_change_or_not_at_all() {
    let app = TestApp::receiving().await;
    app.deliver(&json!({"email": "ana@example.com", "company": "One"})).await;
    let client = app.db.client().await;
    let change = "update leadsync.leads set company = 'Two', version = version + 1";
    client.batch_execute(&format!("begin; {change}; rollback")).await.expect("rolled back");
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 0);
    client.batch_execute(&format!("begin; {change}; commit")).await.expect("committed");
    is_whole(&client).await;
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let app = TestApp::spawn_with("[leads]\nhistory = false", RECEIVING).await;
    let lead = |company: &str, day: u8| {
        let at = format!("2026-03-{day:02}T09:00:00Z");
        json!({"email": "ana@example.com", "company": company, "occurred_at": at})
    };
    app.deliver(&lead("One", 1)).await;
    app.deliver(&lead("Two", 2)).await;
    assert_eq!(app.value::<i64>("select version from leadsync.leads").await, 2);
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 0);
    let app = app.restarted("").await;
    app.deliver(&lead("Three", 3)).await;
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 1);
}

#[tokio::test]
async fn months_are_made_and_dropped() {
    let app = TestApp::receiving().await;
    let client = app.db.client().await;
    let months =
        "select count(*) from pg_inherits where inhparent = 'leadsync.lead_changes'::regclass";
    // This one, the next two, and the default.
    assert_eq!(app.value::<i64>(months).await, 4);
    client
        .batch_execute(
            "select leadsync.ensure_change_months('2025-01-15', 2);
             insert into leadsync.lead_changes values
                (gen_random_uuid(), 2, '2025-01-31 23:59:59+00', '{}'), (gen_random_uuid(), 2, '2025-02-01 00:00:00+00', '{}'),
                (gen_random_uuid(), 2, '2024-05-01 00:00:00+00', '{}')",
        )
        .await
        .expect("old changes");
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes_202501").await, 1);
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes_default").await, 1);
    // A month that has rows in the default partition stays there.
    assert_eq!(app.value::<i32>("select leadsync.ensure_change_months('2024-05-01', 1)").await, 0);
    assert_eq!(app.value::<i32>("select leadsync.drop_change_months('2025-02-01')").await, 1);
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 1);
    app.store.maintain_history(std::time::Duration::from_secs(86_400)).await.expect("maintain");
    assert_eq!(app.value::<i64>("select count(*) from leadsync.lead_changes").await, 0);
    assert_eq!(app.value::<i64>(months).await, 4);
}
