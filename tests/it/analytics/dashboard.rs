//! The dashboard: a document that Grafana takes, whose every query runs, also for the masked role.

use std::collections::BTreeSet;

use serde_json::Value;

use super::a_year;

const DASHBOARD: &str = include_str!("../../../sql/dashboards/leadsync.json");

fn list<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .unwrap_or_else(|| panic!("no list at {pointer}"))
}

/// What Grafana's macros become.
fn expanded(sql: &str, schema: &str) -> String {
    let mut sql = sql.replace("${schema}", schema);
    sql = sql.replace("$__timeFrom()", "(now() - interval '30 days')");
    while let Some((before, after)) = sql.split_once("$__timeFilter(") {
        let (column, after) = after.split_once(')').expect("an end of the macro");
        sql = format!("{before}{column} between now() - interval '30 days' and now(){after}");
    }
    assert!(!sql.contains('$'), "an unknown macro: {sql}");
    sql
}

#[tokio::test]
async fn every_panel_shows_something() {
    let db = a_year(3000, 6000).await;
    let client = db.client().await;
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let variables: BTreeSet<&str> =
        list(&dashboard, "/templating/list").iter().filter_map(|v| v["name"].as_str()).collect();
    assert_eq!(variables, BTreeSet::from(["datasource", "schema"]));
    assert!(dashboard["uid"] == "leadsync" && dashboard["schemaVersion"].is_u64());
    let (mut ids, mut views) = (BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard, "/panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: its id is another's");
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title}");
        let grid = |edge: &str| panel["gridPos"][edge].as_u64().expect("a place");
        assert!(grid("x") + grid("w") <= 24 && grid("h") > 0, "{title}");
        for target in list(panel, "/targets") {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            let sql = target["rawSql"].as_str().expect("SQL");
            let named =
                sql.split("${schema}.").skip(1).filter_map(|rest| rest.split([' ', ',']).next());
            views.extend(named.map(str::to_owned));
            for schema in ["analytics", "analytics_masked"] {
                let rows = client.query(&expanded(sql, schema), &[]).await;
                let rows = rows.unwrap_or_else(|error| panic!("{title}: {sql}\n{error:?}"));
                assert!(!rows.is_empty(), "{title} shows nothing");
                if target["format"] == "time_series" {
                    let names: Vec<&str> = rows[0].columns().iter().map(|c| c.name()).collect();
                    assert_eq!(names, ["time", "metric", "value"], "{title}");
                }
            }
        }
    }
    assert!(views.len() >= 9, "{views:?}");
}
