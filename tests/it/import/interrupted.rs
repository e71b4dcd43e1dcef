//! Imports that are cut short, and go on when they are run again.

use std::fmt::Write;

use nix::sys::signal::Signal;

use super::{Rig, counts};
use crate::support::process::{Process, eventually};

const LINES: usize = 20_000;

/// Every fourth line is about somebody who was there before, every hundredth is no lead.
fn file() -> String {
    let mut file = String::from("email,first_name,company,Created\n");
    for n in 0..LINES {
        let email = match n {
            n if n % 100 == 99 => "nobody".to_owned(),
            n if n % 4 == 3 => format!("p{}@example.com", n / 2),
            n => format!("p{n}@example.com"),
        };
        let day = 1 + n % 28;
        writeln!(file, "{email},Name{n},Company {n},2026-03-{day:02}T10:00:00Z").expect("a text");
    }
    file
}

/// What every lead says, whatever happened on the way.
const TABLE: &str = "select md5(string_agg((to_jsonb(l) - '{lead_id,created_at,updated_at,version}'::text[])::text, '' order by email))
    from leadsync.leads as l";

async fn halfway(rig: &Rig, process: &Process) {
    let some = async || match rig.leads().await {
        0..2000 => Err(format!("not yet; {}", process.stderr())),
        _ => Ok(()),
    };
    eventually("a part is stored", std::time::Duration::from_secs(60), some).await;
}

#[tokio::test]
async fn killed_in_the_middle_it_goes_on_where_it_was() {
    let (whole, rig) = (Rig::new().await, Rig::new().await);
    let file = file();
    whole.write("people.csv", &file);
    let summary = whole.import(&["people.csv"], 1).await;
    let refused = LINES as u64 / 100;
    assert_eq!(summary["refused"], refused);
    let created = summary["created"].as_u64().unwrap();
    assert_eq!(whole.leads().await, created as i64);

    rig.write("people.csv", &file);
    let process = rig.program.start(&["import", "people.csv"]);
    halfway(&rig, &process).await;
    let ended = process.kill_9().await;
    assert_eq!(ended.code, None, "it was done before it was killed");
    let stored: i64 = rig.value("select count(*) from leadsync.deliveries").await;
    let leads = rig.leads().await;
    assert!(stored > 0 && leads < created as i64, "{stored} chunks, {leads} leads");

    let again = rig.import(&["people.csv"], 1).await;
    let [new, updated, unchanged, before, again_refused] = counts(&again);
    // What the killed process had under way may have been committed after that count, so at least those.
    assert!(before >= stored as u64 * 512 - 512, "{again}");
    assert_eq!(new + updated + unchanged + before, LINES as u64 - refused);
    assert_eq!(again_refused, refused);
    assert_eq!(rig.leads().await, created as i64);
    assert_eq!(rig.value::<String>(TABLE).await, whole.value::<String>(TABLE).await);
    assert_eq!(rig.read("people.csv.refused.csv"), whole.read("people.csv.refused.csv"));
}

#[tokio::test]
async fn ctrl_c_ends_it_between_chunks() {
    let rig = Rig::new().await;
    rig.write("people.csv", file());
    let process = rig.program.start(&["import", "people.csv", "--json"]);
    halfway(&rig, &process).await;
    process.signal(Signal::SIGINT);
    let ended = process.end().await.with(1);
    assert!(ended.stderr.contains("run the same command again to go on"), "{}", ended.stderr);
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
    assert_eq!(summary["complete"], false);
    let line = summary["last_line"].as_i64().unwrap();
    assert!(line > 1000 && line < LINES as i64, "{summary}");
    // Up to that line everything is stored, and nothing else.
    let [created, ..] = counts(&summary);
    assert_eq!(rig.leads().await, created as i64);
    let taken = summary["taken"].as_u64().unwrap();
    assert_eq!(taken, (line - 1) as u64 - (line - 1) as u64 / 100);
    let again = rig.import(&["people.csv"], 1).await;
    assert_eq!(
        (&again["complete"], &again["stored_before"]),
        (&true.into(), &taken.into()),
        "{again}"
    );
}

/// A database that goes away for a moment is waited for.
#[tokio::test]
async fn a_restart_of_the_connections_stops_nothing() {
    let rig = Rig::new().await;
    rig.write("people.csv", file());
    let process = rig.program.start(&["import", "people.csv", "--json"]);
    halfway(&rig, &process).await;
    let admin = rig.db.admin().await;
    let cut = format!(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}' and pid <> pg_backend_pid()",
        rig.db.name()
    );
    for _ in 0..3 {
        admin.batch_execute(&cut).await.expect("cut the connections");
    }
    let ended = process.end().await.with(1);
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
    assert_eq!(summary["complete"], true, "{summary}");
    let leads = LINES as u64 - LINES as u64 / 100;
    let [created, updated, unchanged, before, _] = counts(&summary);
    assert_eq!(created + updated + unchanged + before, leads);
    assert_eq!(
        rig.leads().await as u64,
        file()
            .lines()
            .skip(1)
            .filter_map(|l| l.split_once("@"))
            .map(|(name, _)| name.to_owned())
            .collect::<std::collections::BTreeSet<_>>()
            .len() as u64
    );
}
