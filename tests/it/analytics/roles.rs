//! Each role can do exactly what it should, and the masked one never comes across a personal value.
//!
//! Roles belong to the whole server, so each test makes them in a transaction that it rolls back.

use serde_json::json;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{a_year, texts};
use crate::support::app::{TestApp, until};
use leadsync::store::reports::REPORTS;

/// In every text that a person can put anywhere.
const CANARY: &str = "Kanarienvogel";

const ROLES: &str = "
    create role leadsync_app; create role leadsync_analyst; create role leadsync_analyst_masked;
    select leadsync.grant_roles()";

async fn with_roles(client: &Client) {
    client.batch_execute("begin").await.expect("begin");
    client.batch_execute(ROLES).await.expect("roles");
}

/// Runs it as a role; `Ok` with everything it gave as one text, or the error.
async fn try_as(client: &Client, role: &str, sql: &str) -> Result<String, tokio_postgres::Error> {
    client.batch_execute(&format!("savepoint s; set local role {role}")).await.expect("role");
    let outcome = client.simple_query(sql).await;
    client.batch_execute("rollback to s; release s").await.expect("back");
    outcome.map(|messages| {
        let mut all = String::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                for at in 0..row.len() {
                    all += row.get(at).unwrap_or_default();
                    all += "\n";
                }
            }
        }
        all
    })
}

async fn may(client: &Client, role: &str, sql: &str) -> String {
    try_as(client, role, sql).await.unwrap_or_else(|error| panic!("{role}: {sql}\n{error:?}"))
}

async fn may_not(client: &Client, role: &str, sql: &str) {
    let error = match try_as(client, role, sql).await {
        Ok(_) => panic!("{role} may: {sql}"),
        Err(error) => error,
    };
    // A view that nobody can write to says so before it looks who asks.
    let codes = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE];
    assert!(error.code().is_some_and(|code| codes.contains(code)), "{role}: {sql}\n{error:?}");
}

async fn names(client: &Client, schema: &str, kinds: &str) -> Vec<String> {
    let sql = format!(
        "select format('%I.%I', '{schema}', c.relname) from pg_class as c
         where c.relnamespace = '{schema}'::regnamespace and c.relkind::text = any ('{{{kinds}}}') order by 1"
    );
    client.query(&sql, &[]).await.expect("the catalog").iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn each_role_may_do_what_it_should_and_nothing_else() {
    let db = a_year(50, 200).await;
    let client = db.client().await;
    with_roles(&client).await;
    let lead: String = client
        .query_one("select email from leadsync.leads limit 1", &[])
        .await
        .expect("one")
        .get(0);
    let readers = [
        ("leadsync_analyst", "analytics", "analytics_masked"),
        ("leadsync_analyst_masked", "analytics_masked", "analytics"),
    ];
    for (role, own, other) in readers {
        for view in names(&client, own, "v").await {
            may(&client, role, &format!("select * from {view} limit 3")).await;
            may_not(&client, role, &format!("delete from {view}")).await;
        }
        for hidden in names(&client, other, "v").await {
            may_not(&client, role, &format!("select from {hidden}")).await;
        }
        for hidden in names(&client, "leadsync", "r,p,v,S").await {
            may_not(&client, role, &format!("select from {hidden}")).await;
        }
        for report in REPORTS {
            let required = report.parameters().into_iter().filter(|p| p.default.is_none());
            let given = required.map(|p| (p.name.to_owned(), lead.clone())).collect();
            let sql = report.written_out(&report.arguments(&given).expect("defaults"));
            may(&client, role, &format!("set local search_path = {own}; {sql}")).await;
        }
        for denied in [
            "update analytics.leads set version = 1",
            "update analytics_masked.leads set version = 1",
            "select analytics.requeue('hubspot')",
            "select leadsync.grant_roles()",
            "select leadsync.count_days()",
            "select leadsync.drop_change_months('2100-01-01')",
            "select leadsync.drop_delivery_weeks('2100-01-01')",
            "create table analytics.x ()",
            "create table leadsync.x ()",
            "create view analytics_masked.x as select 1",
            "truncate leadsync.leads",
            "insert into leadsync.sources (name) values ('x')",
        ] {
            may_not(&client, role, denied).await;
        }
    }
    may(&client, "leadsync_analyst", &format!("select * from analytics.explain('{lead}')")).await;
    let id: String = client
        .query_one("select lead_id::text from leadsync.leads limit 1", &[])
        .await
        .expect("one")
        .get(0);
    may(
        &client,
        "leadsync_analyst_masked",
        &format!("select * from analytics_masked.explain('{id}')"),
    )
    .await;
    may_not(
        &client,
        "leadsync_analyst_masked",
        &format!("select * from analytics.explain('{lead}')"),
    )
    .await;

    let app = "leadsync_app";
    for table in names(&client, "leadsync", "r,p").await {
        may(&client, app, &format!("select * from {table} limit 1")).await;
    }
    for view in
        [names(&client, "analytics", "v").await, names(&client, "analytics_masked", "v").await]
            .concat()
    {
        may(&client, app, &format!("select * from {view} limit 1")).await;
    }
    for allowed in [
        "update leadsync.leads set company = 'x', version = version + 1",
        "delete from leadsync.leads",
        "select leadsync.count_days()",
        "select leadsync.ensure_change_months('2026-01-01', 2)",
        "select leadsync.drop_change_months('2000-01-01')",
        "select leadsync.drop_delivery_weeks('2000-01-01')",
        "select analytics.requeue('hubspot')",
    ] {
        may(&client, app, allowed).await;
    }
    for denied in [
        "create table leadsync.x ()",
        "drop view analytics.leads",
        "alter table leadsync.leads add column x text",
        "insert into leadsync.schema_history (version) values (99)",
        "select leadsync.grant_roles()",
        "drop table leadsync.lead_changes",
    ] {
        may_not(&client, app, denied).await;
    }
    may(&client, app, "update leadsync.leads set company = 'y', version = version + 1; select from leadsync.lead_changes").await;
    client.batch_execute("rollback").await.expect("rollback");
}

/// A lead whose every text holds the canary, also at the CRM and in the archive.
async fn canaries() -> TestApp {
    let app = TestApp::receiving().await;
    let c = CANARY;
    for (day, n) in [(5, 1), (6, 2), (7, 3)] {
        let lead = json!({
            "email": format!("{c}@{c}.example.com"), "occurred_at": format!("2026-03-{day:02}T09:00:00Z"), "first_name": format!("{c}{n}"),
            "last_name": format!("{c}{n}"), "full_name": format!("{c} {n}"), "phone": format!("+551191234567{n}"), "company": format!("{c} {n}"),
            "job_title": format!("{c}{n}"), "website": format!("https://{c}{n}.example.com"), "city": format!("{c}{n}"), "region": format!("{c}@x{n}"),
            "country": format!("{c}@x{n}"), "language": format!("{c}@x{n}"), "message": format!("{c}{n}"), "tags": [format!("{c}{n}")],
            "attributes": {format!("{c}"): format!("{c}{n}")}, "source": format!("{c}@x"), "utm_source": format!("{c}@x"), "utm_medium": format!("{c}@x"),
            "utm_campaign": format!("{c}@x"), "utm_term": format!("{c}@x"), "utm_content": format!("{c}@x"),
            "landing_page": format!("https://example.com/p?email={c}#{c}"), "marketing_consent": true
        });
        assert_eq!(app.deliver(&lead).await.0, 200);
    }
    // Another one with the same phone, name and company, a value that cannot be used, and what is no lead at all.
    let twin = json!({"email": format!("{c}2@example.com"), "phone": "+5511912345673", "full_name": format!("{c} 3"), "company": format!("{c} 3")});
    app.deliver(&twin).await;
    let bad =
        json!({"email": format!("{c}3@example.com"), "phone": c, "attributes": {c: {"a": 1}}});
    app.deliver(&bad).await;
    app.deliver(&json!({"email": format!("{c} at example"), "name": c})).await;
    let keyed = [("x-api-key", "site-key"), ("idempotency-key", CANARY)];
    let body = json!([{"email": format!("{c}4@example.com"), "nme": c}, {"email": c}]);
    app.post("/v1/leads", &keyed, body.to_string()).await;
    let sync = format!(
        "update leadsync.lead_sync set state = 'parked', attempts = 1, remote_id = '{c}', last_error_kind = 'record', last_error_code = '{c}@x',
            last_error_message = '{c}', last_error_at = now(), sent_at = now(), synced_at = now(), confirmed_version = wanted_version;
         update leadsync.destinations set paused_until = now() + interval '1 hour', pause_kind = 'unavailable', pause_code = '{c}@x', pause_message = '{c}'"
    );
    let repeat = json!({"email": format!("{c}5@example.com")});
    app.deliver(&repeat).await;
    app.deliver(&repeat).await;
    let counted = "select count(*) from analytics.duplicate_deliveries";
    until("the repeat is counted", async || app.value::<i64>(counted).await == 1).await;
    let client = app.db.client().await;
    client.batch_execute(&sync).await.expect("errors");
    client.batch_execute("analyze").await.expect("statistics");
    app
}

fn clean(what: &str, text: &str) {
    let lower = text.to_lowercase();
    assert!(
        !lower.contains(&CANARY.to_lowercase()) && !lower.contains("+55119"),
        "{what} shows a personal value:\n{text}"
    );
}

#[tokio::test]
async fn the_masked_role_never_sees_a_personal_value() {
    let app = canaries().await;
    let client = app.db.client().await;
    with_roles(&client).await;
    let role = "leadsync_analyst_masked";

    // The canaries are there to be seen.
    for view in [
        "leads",
        "lead_fields",
        "lead_changes",
        "lead_timeline",
        "sync_state",
        "sync_failures",
        "deliveries",
        "possible_duplicates",
    ] {
        let clear = texts(&client, &format!("select * from analytics.{view}")).await.join("\n");
        assert!(
            clear.contains(CANARY) || clear.contains(&CANARY.to_lowercase()),
            "{view} has no canary"
        );
    }
    let views = names(&client, "analytics_masked", "v").await;
    assert!(views.len() > 15);
    for view in &views {
        let shown = may(&client, role, &format!("select * from {view}")).await;
        clean(view, &shown);
        if !view.ends_with("backlog") {
            assert!(!shown.is_empty(), "{view} shows nothing");
        }
        let plan = may(
            &client,
            role,
            &format!("explain (analyze, verbose, costs on) select * from {view}"),
        )
        .await;
        clean(&format!("the plan of {view}"), &plan);
    }
    // Masked, and not merely empty.
    let lead = may(&client, role, "select email, phone, tags, attributes, landing_page, utm_source from analytics_masked.leads where attributes <> '{}'").await;
    assert!(
        lead.starts_with("***\n***\n{***")
            && lead.contains("{\"***\": \"***\"}\nhttps://example.com/p\n***"),
        "{lead}"
    );
    let id: String = client
        .query_one("select lead_id::text from leadsync.leads order by version desc limit 1", &[])
        .await
        .expect("one")
        .get(0);
    let account =
        may(&client, role, &format!("select * from analytics_masked.explain('{id}')")).await;
    assert!(account.lines().count() > 30, "{account}");
    clean("explain", &account);

    // What the planner and the server know.
    for sql in [
        "select * from pg_stats",
        "select * from pg_stats_ext",
        "select * from pg_stat_activity",
        "select * from pg_stat_user_tables",
        "select pg_get_viewdef('analytics_masked.leads'::regclass)",
        "select * from information_schema.columns where table_schema like 'analytics%'",
        "select * from pg_settings where name like 'leadsync%'",
    ] {
        clean(sql, &may(&client, role, sql).await);
    }
    for denied in [
        "select * from pg_statistic",
        "select leadsync.masked('x')",
        "select currval('leadsync.sources_source_id_seq')",
        "select query_to_xml('select * from leadsync.leads', true, true, '')",
        "copy leadsync.leads to stdout",
        "select analytics.explain('x')",
        "create function analytics_masked.f() returns int language sql return 1",
    ] {
        may_not(&client, role, denied).await;
    }
    // Errors quote what they meet, and functions in a predicate may say what they are given.
    let leak =
        "create function pg_temp.leak(t text) returns boolean language plpgsql cost 0.0000001 as
        'begin raise exception ''leaked: %'', t; end'; ";
    for (view, column) in [
        ("leads", "email"),
        ("leads", "phone"),
        ("leads", "message"),
        ("leads", "tags[1]"),
        ("leads", "attributes"),
        ("lead_fields", "value"),
        ("lead_fields", "field"),
        ("lead_changes", "from_value"),
        ("lead_changes", "to_value"),
        ("lead_timeline", "detail"),
        ("lead_timeline", "summary"),
        ("sync_state", "remote_id"),
        ("sync_state", "last_error_message"),
        ("deliveries", "detail"),
        ("deliveries", "idempotency_key"),
        ("possible_duplicates", "key"),
        ("rejected_deliveries", "example_detail"),
    ] {
        let from = format!("from analytics_masked.{view} where {column} is not null");
        for sql in [
            format!("select ({column})::text::integer {from}"),
            format!("select 1 {from} and ({column})::text::uuid is null"),
            format!("{leak} select 1 {from} and pg_temp.leak(({column})::text)"),
            format!(
                "{leak} select 1 from analytics_masked.{view} where pg_temp.leak(({column})::text)"
            ),
        ] {
            let Err(error) = try_as(&client, role, &sql).await else { continue };
            clean(&sql, &format!("{error:?}"));
        }
    }
    // An address that somebody knows finds nothing.
    let email = format!("{}@{}.example.com", CANARY.to_lowercase(), CANARY.to_lowercase());
    for column in ["email", "email_as_typed"] {
        let found = may(
            &client,
            role,
            &format!("select lead_id from analytics_masked.leads where {column} = '{email}'"),
        )
        .await;
        assert_eq!(found, "");
    }
    client.batch_execute("rollback").await.expect("rollback");
}
