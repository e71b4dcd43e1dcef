//! `leadsync import`: files of every kind through the real program into a real database.

use std::path::PathBuf;

use serde_json::{Value, json};
use tokio_postgres::types::FromSqlOwned;

use crate::support::db::TestDb;
use crate::support::process::{Ended, Program};

mod columns;
mod interrupted;
mod lines;
mod merging;

/// A program with a database, and files beside its configuration.
struct Rig {
    db: TestDb,
    program: Program,
}

impl Rig {
    async fn new() -> Rig {
        Rig::with("").await
    }

    /// With this text after the configuration of the database.
    async fn with(more: &str) -> Rig {
        let db = TestDb::new().await;
        let program = Program::new(&format!("[database]\nurl = \"{}\"\n{more}", db.url()));
        Rig { db, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.program.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("write a file");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect(name)
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        let mut all = vec!["import"];
        all.extend(arguments);
        self.program.run(&all).await
    }

    /// Imports a file and gives the summary; the exit code must be this.
    async fn import(&self, arguments: &[&str], code: i32) -> Value {
        let mut all = vec!["--json"];
        all.extend(arguments);
        let ended = self.run(&all).await.with(code);
        serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"))
    }

    async fn value<T: FromSqlOwned>(&self, sql: &str) -> T {
        self.db.client().await.query_one(sql, &[]).await.expect(sql).get(0)
    }

    /// One text of one lead.
    async fn of(&self, email: &str, expression: &str) -> Option<String> {
        let sql = format!("select ({expression})::text from leadsync.leads where email = $1");
        let row = self.db.client().await.query_opt(&sql, &[&email]).await.expect(&sql);
        row.unwrap_or_else(|| panic!("there is no {email}")).get(0)
    }

    async fn leads(&self) -> i64 {
        self.value("select count(*) from leadsync.leads").await
    }
}

fn counts(summary: &Value) -> [u64; 5] {
    ["created", "updated", "unchanged", "stored_before", "refused"]
        .map(|name| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}")))
}

#[tokio::test]
async fn a_file_is_imported_shown_and_archived() {
    let rig = Rig::new().await;
    rig.write(
        "contacts.csv",
        "Name,E-mail,Phone,Created,Budget\n\
         Ana Lima,Ana@Example.com,+55 11 91234-5678,2026-03-05 14:22,10k\n\
         Bo,bo@example.com,call me,2026-03-06,\n",
    );
    let dry = rig.run(&["contacts.csv", "--dry-run"]).await.with(0);
    for part in [
        "E-mail   -> email",
        "Budget   -> attributes.budget",
        "Created  -> occurred_at",
        "Ana Lima | Bo",
        "2 leads would",
    ] {
        assert!(dry.stdout.contains(part), "{part} is not in\n{}", dry.stdout);
    }
    assert_eq!(rig.leads().await, 0);

    let ended = rig.run(&["contacts.csv"]).await.with(0);
    assert!(ended.stdout.starts_with("2 leads taken in "), "{}", ended.stdout);
    assert!(ended.stderr.contains("-> attributes.budget"), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("value left out: Phone: not a valid phone number (1 lines, the first is 3)")
    );
    assert!(!rig.path("contacts.csv.refused.csv").exists());
    let ana =
        "full_name || '/' || phone || '/' || (attributes -> 'budget' ->> 2) || '/' || first_source";
    assert_eq!(
        rig.of("ana@example.com", ana).await.as_deref(),
        Some("Ana Lima/+5511912345678/10k/import")
    );
    let seen = "to_char(last_seen_at at time zone 'utc', 'YYYY-MM-DD HH24:MI')";
    assert_eq!(rig.of("ana@example.com", seen).await.as_deref(), Some("2026-03-05 14:22"));

    let archived = "select concat_ws(' ', source, outcome, headers ->> 'leadsync-import', copies, cardinality(lead_ids),
        items #>> '{1,field_errors,phone}', convert_from(body, 'UTF8')::text like '%\"phone\":\"call me\"%') from leadsync.deliveries";
    let archived: String = rig.value(archived).await;
    assert_eq!(
        archived,
        "import created contacts.csv, lines 2 to 3 1 2 not a valid phone number t"
    );

    // The same file is known, by any name.
    rig.write("copy.txt", rig.read("contacts.csv"));
    let again = rig.import(&["copy.txt"], 0).await;
    assert_eq!(counts(&again), [0, 0, 0, 2, 0]);
    let again = rig.import(&["copy.txt", "--again"], 0).await;
    assert_eq!(counts(&again), [0, 0, 2, 0, 0]);

    // A replay reads the archive alone, and changes nothing.
    let items = "select items::text || updated_at || version from leadsync.deliveries, leadsync.leads where email = 'bo@example.com'";
    let before: String = rig.value(items).await;
    let replayed = rig.program.run(&["replay"]).await.with(0);
    assert_eq!(replayed.stdout, "2 unchanged\n");
    assert_eq!(rig.value::<String>(items).await, before);
    let status = rig.program.run(&["status"]).await.with(0);
    assert!(status.stdout.contains("source import: 1 deliveries"), "{}", status.stdout);

    // What is gone comes back only where that is asked for.
    rig.db.client().await.batch_execute("delete from leadsync.leads").await.unwrap();
    assert_eq!(counts(&rig.import(&["contacts.csv"], 0).await), [0, 0, 0, 2, 0]);
    assert_eq!(counts(&rig.import(&["contacts.csv", "--again"], 0).await), [2, 0, 0, 0, 0]);
}

#[tokio::test]
async fn ndjson_is_read_as_v1_reads_it() {
    let rig = Rig::new().await;
    rig.write(
        "leads.ndjson",
        "\u{feff}{\"email\":\"ana@example.com\",\"phone\":\"+5511912345678\",\"tags\":[\"vip\"],\"occurred_at\":\"2026-03-05T14:22:10Z\"}\r\n\
         \n\
         {\"email\":\"bo@example.com\",\"comapny\":\"Lima\"}\n\
         {\"email\":\"cleo@example.com\",\"phone\":\"call me\"}\n\
         {\"email\":\n\
         {\"email\":\"dan@example.com\"}",
    );
    let summary = rig.import(&["leads.ndjson"], 1).await;
    assert_eq!(counts(&summary), [2, 0, 0, 0, 3]);
    assert_eq!(rig.of("ana@example.com", "tags").await.as_deref(), Some(r#"{"vip": true}"#));
    let refused = rig.read("leads.ndjson.refused.csv");
    let lines: Vec<&str> = refused.lines().collect();
    assert_eq!(lines[0], "refused_line,refused_column,refused_reason,original");
    assert!(lines[1].starts_with("3,comapny,\"comapny: a lead has no such member; did you mean \"\"company\"\"?\",\"{\"\"email\"\"")
        || lines[1].starts_with("3,comapny,"), "{refused}");
    assert!(lines[1].contains("bo@example.com") && lines[1].contains("did you mean"), "{refused}");
    assert!(lines[2].starts_with("4,phone,") && lines[3].starts_with("5,,"), "{refused}");
    assert_eq!(rig.program.run(&["replay"]).await.with(0).stdout, "2 unchanged\n");

    rig.write("list.json", "[{\"email\":\"ana@example.com\"}]");
    let ended = rig.run(&["list.json"]).await.with(2);
    assert!(ended.stderr.contains("jq -c '.[]'"), "{}", ended.stderr);
    let ended = rig.run(&["leads.ndjson", "--map", "a=email"]).await.with(2);
    assert!(ended.stderr.contains("--map is for CSV"), "{}", ended.stderr);
}

#[tokio::test]
async fn what_cannot_be_imported_says_what_to_do() {
    let rig = Rig::new().await;
    rig.write("empty.csv", " \n\n");
    rig.write("plain.csv", "Name,City\nAna,Porto\n");
    rig.write("headless.csv", "ana@example.com,Ana\nbo@example.com,Bo\n");
    rig.write("open.csv", "\"Name,E-mail\nAna,a@example.com\n");
    rig.write("good.csv", "E-mail\nana@example.com\n");
    rig.write("good.csv.refused.csv", "my own list");
    for (arguments, told) in [
        (&["nowhere.csv"][..], "nowhere.csv: No such file"),
        (&["."], "not a file"),
        (&["empty.csv"], "there are no leads in it"),
        (&["plain.csv"], "--map 'COLUMN=email'; columns are Name, City"),
        (&["plain.csv", "--map", "Nam=email"], "did you mean \"Name\"?"),
        (&["plain.csv", "--map", "Name=emial"], "did you mean \"email\"?"),
        (&["plain.csv", "--map", "Name"], "COLUMN=FIELD"),
        (&["headless.csv"], "--no-header"),
        (&["open.csv"], "line 1, which should name the columns"),
        (&["good.csv", "--source", "improt"], "there are: import"),
        (&["good.csv", "--source", "api"], "there are: import"),
        (&["good.csv", "--occurred-at", "soon"], "2026-11-01"),
        (&["good.csv", "--time-zone", "Mars"], "America/Sao_Paulo"),
        (&["good.csv", "--encoding", "utf-9"], "windows-1252"),
        (&["good.csv", "--delimiter", "ab"], "tab"),
        (&["good.csv", "--day-first", "--month-first"], "cannot be used with"),
        (&["good.csv"], "is not a file of refused lines"),
    ] {
        let ended = rig.run(arguments).await.with(2);
        assert!(ended.stderr.contains(told), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(rig.read("good.csv.refused.csv"), "my own list");
    assert_eq!(rig.leads().await, 0);
    let summary = rig.import(&["good.csv", "--refused", "elsewhere.csv"], 0).await;
    assert_eq!((counts(&summary), &summary["refused_file"]), ([1, 0, 0, 0, 0], &json!(null)));
    let columns = ["headless.csv", "--no-header", "--map", "2=first_name"];
    assert_eq!(counts(&rig.import(&columns, 0).await), [1, 1, 0, 0, 0]);
    assert_eq!(rig.of("bo@example.com", "first_name").await.as_deref(), Some("Bo"));

    let nowhere = Program::new("[database]\nurl = \"postgres://x@127.0.0.1:1/x\"\n");
    std::fs::write(nowhere.folder.path().join("good.csv"), "E-mail\nana@example.com\n").unwrap();
    nowhere.run(&["import", "good.csv"]).await.with(3);
    nowhere.run(&["import", "good.csv", "--dry-run"]).await.with(0);
}
