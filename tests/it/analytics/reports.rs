//! Ready reports: all of them run, show something, only read, and end.

use std::collections::BTreeMap;
use std::time::Duration;

use leadsync::store::StoreError;
use leadsync::store::reports::{REPORTS, Report, Values};
use serde_json::Value;

use super::a_year;
use crate::merge::instance;
use crate::support::process::Program;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn all_reports_show_something_clear_and_masked() {
    let db = a_year(3000, 6000).await;
    let store = instance(&db, 2);
    let client = db.client().await;
    let lead = "select lead_id::text from leadsync.leads where version = 4 order by created_at desc limit 1";
    let lead: String = client.query_one(lead, &[]).await.expect("one that moved").get(0);
    for report in REPORTS {
        let name = report.name;
        let required = report.parameters().into_iter().filter(|p| p.default.is_none());
        let mut given: BTreeMap<String, String> =
            required.map(|p| (p.name.to_owned(), lead.clone())).collect();
        // Few leads have few of each campaign.
        if name == "campaigns" {
            given.insert("least".to_owned(), "1".to_owned());
        }
        let arguments = report.arguments(&given).expect("defaults");
        let mut counts = Vec::new();
        for values in [Values::Clear, Values::Masked] {
            let rows = store.report(report, &arguments, values, PATIENCE).await;
            let rows = rows.unwrap_or_else(|error| panic!("{name}: {:?}", error));
            assert!(rows.columns.len() > 1);
            let headings: std::collections::BTreeSet<_> =
                rows.columns.iter().map(|c| &c.name).collect();
            assert_eq!(headings.len(), rows.columns.len(), "{name}: two columns of one name");
            assert!(rows.rows.iter().all(|row| row.len() == rows.columns.len()), "{name}");
            assert!(!rows.rows.is_empty(), "{name} shows nothing ({values:?})");
            counts.push(rows.rows.len());
            if values == Values::Masked {
                let all = format!("{:?}", rows.rows);
                assert!(!all.contains("@gmail.com") && !all.contains("+5511"), "{name}: {all}");
            }
        }
    }
}

#[tokio::test]
async fn a_report_that_takes_too_long_is_ended() {
    let db = a_year(3000, 3000).await;
    let store = instance(&db, 1);
    let locked = db.client().await;
    locked
        .batch_execute("begin; lock table leadsync.leads in access exclusive mode")
        .await
        .expect("lock");
    let report = Report::find("consent").expect("there");
    let arguments = report.arguments(&BTreeMap::new()).expect("defaults");
    // Well before the service's own limit on waiting for a lock.
    let limit = Duration::from_millis(100);
    let late = store.report(report, &arguments, Values::Clear, limit);
    let late = tokio::time::timeout(Duration::from_secs(2), late).await.expect("ends in time");
    assert!(matches!(late, Err(StoreError::TimedOut(_))), "{late:?}");
    locked.batch_execute("rollback").await.expect("unlock");
    store.report(report, &arguments, Values::Clear, PATIENCE).await.expect("runs again");
}

#[tokio::test]
async fn the_command_lists_prints_and_explains_itself() {
    let db = a_year(300, 600).await;
    let program = Program::new(&format!("[database]\nurl = \"{}\"", db.url()));
    let list = program.run(&["report"]).await.with(0).stdout;
    for report in REPORTS {
        assert!(
            list.contains(&format!("\n{}\n", report.name)) || list.starts_with(report.name),
            "{}",
            report.name
        );
    }
    let table = program.run(&["report", "sources", "--param", "days=365"]).await.with(0).stdout;
    assert!(table.contains("rejected_percent") && table.contains("(8 rows)"), "{table}");
    let csv = program.run(&["report", "recent", "--format", "csv"]).await.with(0).stdout;
    assert!(csv.starts_with("created_at,email,full_name,company,phone,"), "{csv}");
    let phones = csv.lines().filter(|line| line.contains("+5511")).count();
    assert!(
        phones > 0 && csv.matches(",'+5511").count() == phones,
        "formulas are disarmed:\n{csv}"
    );
    let json = program.run(&["report", "sources", "--format", "json"]).await.with(0).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert!(json[0]["deliveries"].is_number() && json[0]["source"].is_string(), "{json}");
    let md = program.run(&["report", "backlog", "--format", "md"]).await.with(0).stdout;
    assert!(md.lines().all(|line| line.starts_with('|')) && md.lines().count() == 4, "{md}");
    let masked = program.run(&["report", "recent", "--masked"]).await.with(0).stdout;
    assert!(masked.contains("***") && !masked.contains('@'), "{masked}");

    for (arguments, told) in [
        (&["report", "sorces"][..], "did you mean sources?"),
        (&["report", "lead"], "--param lead="),
        (&["report", "sources", "--param", "days"], "NAME=VALUE"),
        (&["report", "sources", "--param", "days=x"], "whole number"),
        (&["report", "sources", "--param", "day=1"], "it has: days"),
        (&["report", "sources", "--param", "days=1", "--param", "days=2"], "given twice"),
        (&["report", "sources", "--format", "xml"], "table, csv, json, md"),
        (&["report", "--param", "days=1"], "NAME"),
    ] {
        let ended = program.run(arguments).await.with(2);
        assert!(ended.stderr.contains(told), "{told:?} is not in:\n{}", ended.stderr);
    }
    let quoted = program
        .run(&["report", "new-leads", "--param", "source=x' or true --"])
        .await
        .with(0)
        .stdout;
    assert!(quoted.contains("(0 rows)"), "{quoted}");
}
