//! `GET /v1/deliveries` over HTTP: filters, pages, one delivery whole, and the plans behind it.

use leadsync::app::Roles;
use serde_json::{Value, json};

use crate::support::app::TestApp;

const RECEIVE: Roles = Roles { receive: true, sync: false };

async fn listed(app: &TestApp, query: &str) -> (Vec<Value>, Value) {
    let (status, answer) = app.get(&format!("/v1/deliveries?{query}")).await;
    assert_eq!(status, 200, "{query}: {answer}");
    (answer["deliveries"].as_array().expect("a list").clone(), answer["next_cursor"].clone())
}

/// The bodies' numbers, in the order of the list.
async fn numbers(app: &TestApp, query: &str) -> Vec<i64> {
    let mut numbers = Vec::new();
    for delivery in listed(app, query).await.0 {
        let id = delivery["delivery_id"].as_str().expect("an id");
        let (status, whole) = app.get(&format!("/v1/deliveries/{id}")).await;
        assert_eq!(status, 200);
        let body: Value =
            serde_json::from_str(whole["body"].as_str().expect("a body")).expect("JSON");
        numbers.push(body["n"].as_i64().expect("a number"));
    }
    numbers
}

#[tokio::test]
async fn deliveries_are_found_by_what_is_known_of_them() {
    let form = "[[source]]\nname = \"form\"\nkind = \"json\"\nheader = { name = \"X-Form-Key\", value = \"k\" }\n";
    let app = TestApp::spawn_with(form, RECEIVE).await;
    let (_, created) = app
        .deliver(
            &json!({"n": 0, "email": "ana@example.com", "occurred_at": "2026-03-05T00:00:00Z"}),
        )
        .await;
    app.deliver(&json!({"n": 1, "email": "ana@example.com", "city": "Porto", "occurred_at": "2026-03-06T00:00:00Z"})).await;
    app.deliver(&json!({"n": 2})).await;
    let headers = [("x-form-key", "k"), ("x-secret", "not kept")];
    app.post("/hooks/form?a=b", &headers, json!({"n": 3, "email": "nobody"}).to_string()).await;
    app.deliver(&json!({"n": 4, "email": "bo@example.com"})).await;
    let ana = created["lead_id"].as_str().expect("a lead");

    assert_eq!(numbers(&app, "").await, [4, 3, 2, 1, 0], "newest first");
    assert_eq!(numbers(&app, "source=site").await, [4, 2, 1, 0]);
    assert_eq!(numbers(&app, "outcome=rejected").await, [3, 2]);
    assert_eq!(numbers(&app, "outcome=rejected&source=form").await, [3]);
    assert_eq!(numbers(&app, "outcome=created").await, [4, 0]);
    assert_eq!(numbers(&app, "reason=invalid_email").await, [3]);
    assert_eq!(numbers(&app, "outcome=rejected&reason=no_email").await, [2]);
    assert_eq!(numbers(&app, &format!("lead_id={ana}")).await, [1, 0]);
    assert_eq!(numbers(&app, &format!("lead_id={ana}&outcome=updated")).await, [1]);
    assert_eq!(numbers(&app, "lead_id=018f0000-0000-7000-8000-000000000000").await, [0i64; 0]);
    assert_eq!(numbers(&app, "source=api").await, [0i64; 0]);

    let all = listed(&app, "").await.0;
    let time = |at: usize| all[at]["received_at"].as_str().expect("a time").to_owned();
    assert_eq!(numbers(&app, &format!("since={}", time(2))).await, [4, 3, 2], "then or later");
    assert_eq!(numbers(&app, &format!("until={}", time(2))).await, [1, 0], "before");
    assert_eq!(numbers(&app, &format!("since={}&until={}", time(3), time(1))).await, [2, 1]);

    let first = &all[1];
    assert_eq!(
        (
            &first["source"],
            &first["outcome"],
            &first["reason"],
            &first["copies"],
            &first["lead_ids"]
        ),
        (&json!("form"), &json!("rejected"), &json!("invalid_email"), &json!(1), &json!([]))
    );
    assert_eq!(first["items"][0]["reason"], "invalid_email");
    assert_eq!(all[4]["lead_ids"], json!([ana]));
    assert!(first.get("body").is_none() && first.get("headers").is_none());
    let id = first["delivery_id"].as_str().expect("an id");
    let (_, whole) = app.get(&format!("/v1/deliveries/{id}")).await;
    assert_eq!((&whole["query"], &whole["body_encoding"]), (&json!("a=b"), &json!("utf-8")));
    assert_eq!(whole["headers"], json!({"content-type": "application/json"}));
    assert_eq!(whole["body_bytes"], whole["body"].as_str().expect("a body").len());
}

#[tokio::test]
async fn a_part_that_was_rejected_is_found_and_bytes_are_shown() {
    let app = TestApp::receiving().await;
    let batch = json!([{"email": "good@example.com"}, {"city": "Porto"}]);
    app.deliver(&batch).await;
    let (status, _) =
        app.post("/hooks/site", &[("x-api-key", "site-key")], vec![0xff_u8, 0xfe]).await;
    assert_eq!(status, 400);
    let found = listed(&app, "outcome=rejected").await.0;
    assert_eq!(found.len(), 2);
    assert_eq!(listed(&app, "reason=no_email").await.0, [found[1].clone()]);
    assert_eq!(found[1]["outcome"], "created");
    let id = found[0]["delivery_id"].as_str().expect("an id");
    let (_, whole) = app.get(&format!("/v1/deliveries/{id}")).await;
    assert_eq!((&whole["body"], &whole["body_encoding"]), (&json!("//4="), &json!("base64")));
    // A repeat is counted in the background.
    app.deliver(&batch).await;
    app.receiver.flush_counts().await;
    assert_eq!(listed(&app, "outcome=created").await.0[0]["copies"], 2);
}

#[tokio::test]
async fn pages_have_everything_once_while_more_arrives() {
    let app = TestApp::receiving().await;
    for n in 0..23 {
        app.deliver(&json!({"n": n, "email": format!("p{n}@example.com")})).await;
    }
    // Several of one instant, whose order only their ids tell, and of other weeks.
    let same = "update leadsync.deliveries set received_at = date_trunc('hour', received_at)
        where ctid in (select ctid from leadsync.deliveries order by delivery_id limit 9)";
    let older = "with gone as (delete from leadsync.deliveries where delivery_id in
            (select delivery_id from leadsync.deliveries order by delivery_id desc limit 5) returning *)
        insert into leadsync.deliveries select (jsonb_populate_record(null::leadsync.deliveries,
            to_jsonb(gone) || jsonb_build_object('received_at', received_at - interval '20 days', 'week', week - 21))).* from gone";
    app.db.client().await.batch_execute(same).await.expect("one instant");
    app.db.client().await.batch_execute(older).await.expect("older ones");
    let whole: Vec<Value> = listed(&app, "limit=200").await.0;
    assert_eq!(whole.len(), 23);
    let (mut paged, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let after = cursor.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let (page, next) = listed(&app, &format!("limit=4{after}")).await;
        pages += 1;
        paged.extend(page);
        // What arrives now is newer than any page to come.
        app.deliver(&json!({"late": pages, "email": "late@example.com"})).await;
        if next.is_null() {
            break;
        }
        cursor = next;
    }
    assert_eq!((pages, paged), (6, whole));
    assert_eq!(listed(&app, "source=site&limit=200").await.1, Value::Null);
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told_with_the_nearest_name() {
    let app = TestApp::receiving().await;
    for (query, told) in [
        ("sorce=site", "no such parameter; did you mean \"source\"?"),
        ("source=sit", "no such source; did you mean \"site\"?"),
        ("outcome=reject", "did you mean \"rejected\"?"),
        ("since=yesterday", "since is not a time"),
        ("until=2026-11-30", "until is not a time"),
        ("limit=201", "limit goes from 1 to 200"),
        ("limit=5&limit=6", "limit is given twice"),
        ("cursor=abc", "cursor is not the next_cursor of a page"),
        ("lead_id=7", "lead_id is not a UUID"),
        ("reason=", "reason has no value"),
    ] {
        let (status, answer) = app.get(&format!("/v1/deliveries?{query}")).await;
        assert_eq!((status, &answer["code"]), (422, &json!("invalid_parameter")), "{query}");
        assert!(answer["detail"].as_str().expect("a sentence").contains(told), "{query}: {answer}");
    }
    for path in ["/v1/deliveries/nothing", "/v1/deliveries/018f0000-0000-7000-8000-000000000000"] {
        assert_eq!(app.get(path).await.0, 404, "{path}");
    }
    assert_eq!(app.post("/v1/deliveries", &[], "{}").await.0, 405);
}

#[tokio::test]
async fn only_those_with_the_token_may_ask() {
    let app = TestApp::spawn_with("[http]\nadmin_token = \"a-token\"\n", RECEIVE).await;
    app.deliver(&json!({"email": "ana@example.com"})).await;
    for path in [
        "/v1/deliveries",
        "/v1/deliveries/018f0000-0000-7000-8000-000000000000",
        "/v1/deliveries?x=y",
    ] {
        assert_eq!(app.get(path).await.0, 401, "{path}");
    }
    let asked = app.http.get(format!("{}/v1/deliveries", app.url)).bearer_auth("a-token");
    let answer: Value = asked.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(answer["deliveries"].as_array().map(Vec::len), Some(1));
}

/// Rows of a plan that reads no more than it gives: every page comes from an index, under the plan that serves any
/// parameters.
#[tokio::test]
async fn pages_come_from_indexes() {
    let app = TestApp::receiving().await;
    let client = app.db.client().await;
    let fill = "insert into leadsync.deliveries (delivery_id, week, received_at, last_received_at, source, outcome, reason, lead_ids, body_bytes)
        select gen_random_uuid(), date_trunc('week', at at time zone 'utc')::date, at, at, 'site',
            case when n % 500 = 0 then 'rejected' else 'created' end, case when n % 500 = 0 then 'no_email' end,
            array[md5((n % 5000)::text)::uuid], 100
        from generate_series(1, 20000) as n, lateral (select now() - n * interval '1 minute' as at) as t";
    client.batch_execute(fill).await.expect("deliveries");
    client
        .batch_execute("analyze leadsync.deliveries; set plan_cache_mode = force_generic_plan")
        .await
        .expect("statistics");
    let nulls = "null, null, null, null, null, null";
    for (sql, parameters, most) in [
        (include_str!("../../sql/deliveries/page.sql"), format!("{nulls}, null, null, 51"), 120.0),
        (
            include_str!("../../sql/deliveries/page.sql"),
            format!("{nulls}, now() - interval '5 days', gen_random_uuid(), 51"),
            120.0,
        ),
        (
            include_str!("../../sql/deliveries/page_of_lead.sql"),
            "null, null, null, null, null, md5('7')::uuid, null, null, 51".to_owned(),
            60.0,
        ),
        (
            include_str!("../../sql/deliveries/page_rejected.sql"),
            "null, 'rejected', null, null, null, null, null, null, 51".to_owned(),
            120.0,
        ),
    ] {
        client.batch_execute("deallocate all").await.expect("forget");
        client.batch_execute(&format!("prepare page as {sql}")).await.expect("a statement");
        let explain = format!(
            "explain (analyze, costs off, timing off, summary off, format json) execute page ({parameters})"
        );
        let plan: Value = client.query_one(&explain, &[]).await.expect("a plan").get(0);
        let read = rows_read(&plan[0]["Plan"]);
        assert!(read <= most, "{read} rows were read\n{parameters}\n{plan:#}");
    }
}

/// Rows that the leaves of a plan gave or threw away.
fn rows_read(node: &Value) -> f64 {
    let of = |name: &str| {
        node[name].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(1.0)
    };
    match node["Plans"].as_array() {
        Some(below) => below.iter().map(rows_read).sum(),
        None => {
            of("Actual Rows") + of("Rows Removed by Filter") + of("Rows Removed by Index Recheck")
        }
    }
}
