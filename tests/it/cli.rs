//! Every command as people and schedulers meet it: what it prints, how it ends, and what it never says.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use leadsync::fake_crm::hubspot::Token;
use leadsync::fake_crm::{self, Apply, Body, Crm, FakeCrm, Fault};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::db::TestDb;
use crate::support::process::{Ended, Program, Serving, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// A stand-in that takes one token.
async fn stand_in() -> FakeCrm {
    let mut options = fake_crm::Options::default();
    options.hubspot.tokens = vec![Token::good("crm-token")];
    FakeCrm::on_free_port(options).await.expect("a stand-in")
}

fn config(database: &str, crm: &str) -> String {
    format!(
        r#"
[database]
url = "{database}"
[sync]
poll = "100ms"
lease = "4s"
call_timeout = "1s"
confirm_after = "1500ms"
backoff_base = "20ms"
backoff_max = "200ms"
[[source]]
name = "site"
kind = "json"
header = {{ name = "X-Api-Key", value = "site-key" }}
[[destination]]
name = "hubspot"
kind = "hubspot"
token = "crm-token"
rate = "10000/1s"
base_url = "{crm}"
"#
    )
}

fn client() -> reqwest::Client {
    // reqwest wants one even for plain HTTP; another test may have set it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(PATIENCE).build().expect("a client")
}

/// Delivers to source `site`; the status.
async fn deliver(serving: &Serving, lead: &Value) -> u16 {
    let request = client().post(format!("{}/hooks/site", serving.url));
    let request = request.header("x-api-key", "site-key").json(lead);
    request.send().await.expect("an answer").status().as_u16()
}

/// Leads that are stored and not yet pushed.
async fn receive(program: &Program, emails: &[&str]) {
    let serving = program.serve(&["--only", "receive"]).await;
    for email in emails {
        let lead =
            json!({"email": email, "occurred_at": "2026-03-05T14:22:10Z", "first_name": "Ana"});
        assert_eq!(deliver(&serving, &lead).await, 200);
    }
    serving.process.terminate().await.with(0);
}

/// The commands that the program itself lists.
async fn commands() -> Vec<String> {
    let help = Program::new("").run(&["--help"]).await.with(0).stdout;
    let list = help.split("Commands:").nth(1).expect("a list of commands");
    let list = list.split("\n\n").next().expect("its lines");
    let name = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let mut names: Vec<String> = list.lines().filter_map(name).collect();
    names.retain(|name| name != "help");
    assert!(names.len() > 5, "{names:?}");
    names
}

fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}

#[tokio::test]
async fn every_command_explains_itself_with_an_example() {
    let program = Program::new("this = is not read");
    for command in commands().await {
        let help = program.run(&[&command, "--help"]).await.with(0);
        let examples = help.stdout.split("Example").nth(1).unwrap_or_default();
        assert_contains(examples, &format!("leadsync {command}"));
        assert_eq!(help.stderr, "");
    }
    let help = program.run(&["--help"]).await.with(0).stdout;
    assert_contains(&help, "Exit codes");
    assert_contains(&program.run(&["--version"]).await.with(0).stdout, "leadsync 0.");
}

#[tokio::test]
async fn a_wrong_command_line_is_2_and_names_the_nearest() {
    let program = Program::new("");
    for (arguments, told) in [
        (&["servr"][..], "serve"),
        (&["status", "--jsn"], "--json"),
        (&["sync"], "--once"),
        (&["requeue"], "--all"),
        (&["requeue", "--all", "--destination", "x"], "cannot be used with"),
        (&["replay", "--since", "yesterday"], "RFC 3339"),
        (&["replay", "--outcome", "lost"], "created, updated"),
        (&["serve", "--only", "both"], "receive, sync"),
        (&["serve", "--listen", "localhost"], "--listen"),
        (&["fake-crm", "--listen", "here"], "--listen"),
        (&["status", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
    ] {
        let ended = program.run(arguments).await.with(2);
        assert_contains(&ended.stderr, told);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
    assert!(std::fs::read_dir(program.folder.path()).unwrap().next().is_none(), "nothing started");
}

#[tokio::test]
async fn a_wrong_configuration_is_2_with_place_and_nearest_name() {
    let program = Program::new(
        r#"
[http]
listn = "127.0.0.1:0"
[log]
format = "jsn"
[[source]]
name = "site"
kind = "typefrom"
secret = "sesame-open"
[[source]]
name = "shop"
kind = "json"
url_token = "sesame-open"
[source.fields]
company = "$.["
"#,
    );
    // All at once where they can be seen at once; the others when these are mended.
    let ended = program.run(&["serve"]).await.with(2);
    assert_contains(
        &ended.stderr,
        "leadsync.toml:3:1: unknown key `listn` in [http]; did you mean `listen`?",
    );
    assert_contains(&ended.stderr, "leadsync.toml:5:10: log.format: \"jsn\"");
    assert!(!ended.stderr.contains("sesame"), "{}", ended.stderr);

    let text = std::fs::read_to_string(program.folder.path().join("leadsync.toml")).unwrap();
    program.configure(&text.replace("listn", "listen").replace("jsn", "json"));
    for command in [&["serve"][..], &["check"], &["status"], &["sync", "--once"], &["migrate"]] {
        let ended = program.run(command).await.with(2);
        assert_contains(&ended.stderr, "leadsync.toml:8");
        assert_contains(&ended.stderr, "typeform");
        assert_contains(&ended.stderr, "leadsync.toml:15");
        assert!(!ended.stderr.contains("sesame"), "{}", ended.stderr);
    }
    let files: Vec<_> = std::fs::read_dir(program.folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "nothing was started: {files:?}");
}

#[tokio::test]
async fn check_says_what_is_right_and_what_is_wrong_and_writes_nothing() {
    let db = TestDb::empty().await;
    let crm = stand_in().await;
    let good = config(db.url(), &crm.url());
    let program = Program::new(&good);
    let ended = program.run(&["check"]).await.with(0);
    for part in [
        "ok    source site",
        "POST /hooks/site",
        "ok    destination hubspot",
        "ok    database",
        "not migrated yet",
    ] {
        assert_contains(&ended.stdout, part);
    }
    for (from, to, told) in [
        ("\"crm-token\"", "\"other-token\"", "WRONG destination hubspot"),
        ("base_url", "fields = { company = \"compny\" }\nbase_url", "\"company\""),
        (crm.url().as_str(), "http://127.0.0.1:1", "WRONG destination hubspot"),
        (db.url(), "postgresql://nobody@127.0.0.1:1/nothing", "WRONG database"),
        ("kind = \"json\"", "kind = \"json\"\nuntimed = \"last_arrival\"", "cannot converge"),
    ] {
        assert!(good.contains(from));
        program.configure(&good.replace(from, to));
        let ended = program.run(&["check"]).await;
        let wrong = if told == "cannot converge" { 0 } else { 1 };
        assert_contains(&ended.with(wrong).stdout, told);
    }
    assert!(crm.contacts(Crm::Hubspot).is_empty());
    let schema = "select from pg_namespace where nspname = 'leadsync'";
    assert!(db.client().await.query(schema, &[]).await.unwrap().is_empty());

    program.configure(&good);
    let shown = program.run(&["check", "--show", "--data-dir", "elsewhere"]).await.with(0).stdout;
    assert_contains(&shown, "data_dir = \"elsewhere\"");
    assert_contains(&shown, "[redacted]");
    assert!(!shown.contains("crm-token") && !shown.contains("site-key"), "{shown}");
}

#[tokio::test]
async fn migrate_once_twice_and_from_the_future() {
    let db = TestDb::empty().await;
    let program = Program::new("").env("LEADSYNC_DATABASE__URL", db.url());
    let refused = program.run(&["status"]).await.with(3);
    assert_contains(&refused.stderr, "migrat");
    let refused = program.run(&["serve", "--no-migrate", "--listen", "127.0.0.1:0"]).await.with(3);
    assert_contains(&refused.stderr, "migrat");
    for _ in 0..2 {
        assert_eq!(program.run(&["migrate"]).await.with(0).stdout, "the database is up to date\n");
    }
    let newer = "insert into leadsync.schema_history (version, name, applied_on, checksum)
        values (9999, 'of_tomorrow', '2030-01-01T00:00:00Z', '1')";
    db.client().await.batch_execute(newer).await.unwrap();
    assert_contains(&program.run(&["migrate"]).await.with(0).stdout, "V9999");
    program.serve(&["--no-migrate"]).await.process.terminate().await.with(0);
}

#[tokio::test]
async fn sync_once_and_status_say_how_things_are() {
    let db = TestDb::new().await;
    let crm = stand_in().await;
    let good = config(db.url(), &crm.url());
    let program = Program::new(&good);
    receive(&program, &["ana@example.com", "bo@example.com", "bad@localhost"]).await;

    let preview = program.run(&["sync", "--once", "--dry-run"]).await.with(0).stdout;
    for part in [
        "ana@example.com version 1 (not known there yet)",
        "  firstname = Ana",
        "would be sent; nothing was",
    ] {
        assert_contains(&preview, part);
    }
    assert!(crm.calls().is_empty(), "a dry run calls nobody");

    program.configure(&good.replace(&crm.url(), "http://127.0.0.1:1"));
    let down = program.run(&["sync", "--once"]).await.with(1);
    // Whether it is still paused at the end of the pass is up to the jitter of the pause.
    assert_contains(&down.stdout, "hubspot: 0 pushed, 0 already there, 0 parked, ");
    program.configure(&good);
    let unpaused = "update leadsync.destinations set paused_until = '-infinity'";
    let client = db.client().await;
    client.batch_execute(unpaused).await.unwrap();
    client.batch_execute("update leadsync.lead_sync set next_attempt_at = now()").await.unwrap();

    let rejected =
        client.query("select from leadsync.leads where email like 'bad%'", &[]).await.unwrap();
    let leads = 2 + rejected.len();
    let unknown = program.run(&["sync", "--once", "--destination", "hubspt"]).await.with(2);
    assert_contains(&unknown.stderr, "hubspot");
    // One lead that the CRM refuses.
    crm.script(Fault::Status {
        status: 400,
        body: Body::Json,
        apply: Apply::None,
        retry_after: None,
    });
    crm.script(Fault::Status {
        status: 400,
        body: Body::Json,
        apply: Apply::None,
        retry_after: None,
    });
    let parked = program.run(&["sync", "--once"]).await.with(1);
    assert_contains(&parked.stdout, "1 parked");
    assert_contains(&parked.stdout, "1 pushed");

    let status = program.run(&["status"]).await.with(0).stdout;
    for part in [
        &format!("{leads} leads")[..],
        "source site: ",
        "destination hubspot: 1 in sync, 0 due, 1 parked",
    ] {
        assert_contains(&status, part);
    }
    let status = program.run(&["status", "--json"]).await.with(0).stdout;
    let status: Value = serde_json::from_str(&status).expect("one JSON object");
    assert_eq!(status["leads"], leads);
    assert_eq!(status["sources"][0]["source"], "site");
    let destination = &status["destinations"][0];
    assert_eq!(
        (&destination["synced"], &destination["parked"]),
        (&json!(1), &json!(1)),
        "{status}"
    );
    assert_eq!(status["parked"][0]["leads"], 1);

    let wrong = program.run(&["requeue", "--email", "no address"]).await.with(2);
    assert_contains(&wrong.stderr, "--email");
    let none = program.run(&["requeue", "--code", "NO_SUCH_CODE"]).await.with(0);
    assert_eq!(none.stdout, "0 leads made due\n");
    let one = program.run(&["requeue", "--destination", "hubspot"]).await.with(0);
    assert_eq!(one.stdout, "1 leads made due\n");
    let done = program.run(&["sync", "--once"]).await.with(0);
    assert_eq!(done.stdout, "hubspot: 1 pushed, 0 already there, 0 parked, 0 to be tried again\n");
    let nothing = program.run(&["sync", "--once"]).await.with(0);
    assert_contains(&nothing.stdout, "hubspot: 0 pushed");
    assert_eq!(crm.contacts(Crm::Hubspot).len(), 2);
    assert_eq!(crm.doubles(Crm::Hubspot), 0);
}

#[tokio::test]
async fn replay_changes_nothing_and_mends_what_was_rejected() {
    let db = TestDb::new().await;
    let crm = stand_in().await;
    let good = config(db.url(), &crm.url());
    let program = Program::new(&good);
    let serving = program.serve(&["--only", "receive"]).await;
    assert_eq!(
        deliver(&serving, &json!({"email": "ana@example.com", "first_name": "Ana"})).await,
        200
    );
    assert_eq!(deliver(&serving, &json!({"kontakt": {"adresse": "bo@example.com"}})).await, 200);
    serving.process.terminate().await.with(0);

    let state = "select array_agg(l::text order by email)::text from leadsync.leads as l";
    let client = db.client().await;
    let before: String = client.query_one(state, &[]).await.unwrap().get(0);
    let replayed = program.run(&["replay"]).await.with(0).stdout;
    assert_contains(&replayed, "1 unchanged");
    assert_contains(&replayed, "1 rejected");
    let after: String = client.query_one(state, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "byte for byte");

    let mended = "name = \"X-Api-Key\", value = \"site-key\" }\nfields = { email = [\"$.email\", \"$.kontakt.adresse\"] }";
    program.configure(&good.replace("name = \"X-Api-Key\", value = \"site-key\" }", mended));
    let unknown = program.run(&["replay", "--source", "shop"]).await.with(2);
    assert_contains(&unknown.stderr, "no source \"shop\" is configured; there are: ");
    let replayed = program.run(&["replay", "--outcome", "rejected"]).await.with(0).stdout;
    assert_eq!(replayed, "1 created\n");
    let future = program.run(&["replay", "--since", "2999-01-01T00:00:00Z"]).await.with(0).stdout;
    assert_eq!(future, "nothing to replay\n");
}

#[tokio::test]
async fn without_a_database_it_is_3() {
    let program = Program::new("")
        .env("LEADSYNC_DATABASE__URL", "postgresql://nobody:sesame@127.0.0.1:1/nothing");
    for command in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["status"],
        &["migrate"],
        &["sync", "--once"],
        &["requeue", "--all"],
        &["replay"],
    ] {
        let ended = program.run(command).await.with(3);
        assert_contains(&ended.stderr, "leadsync: ");
        assert!(!ended.stderr.contains("sesame"), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_before_anything_is_started() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let program = Program::new("");
    for command in ["serve", "fake-crm"] {
        let ended = program.run(&[command, "--listen", &address]).await.with(1);
        assert_contains(&ended.stderr, &format!("cannot listen on {address}"));
        assert_contains(&ended.stderr, "in use");
    }
    assert!(std::fs::read_dir(program.folder.path()).unwrap().next().is_none(), "nothing started");
}

/// The end of a pipe that nobody reads.
fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[tokio::test]
async fn a_reader_that_goes_away_changes_nothing() {
    let db = TestDb::new().await;
    let crm = stand_in().await;
    let program = Program::new(&config(db.url(), &crm.url()));
    receive(&program, &["ana@example.com", "bo@example.com"]).await;
    for (command, code) in [
        (&["--help"][..], 0),
        (&["serve", "--help"], 0),
        (&["status"], 0),
        (&["status", "--json"], 0),
        (&["check"], 0),
        (&["check", "--show"], 0),
        (&["migrate"], 0),
        (&["sync", "--once", "--dry-run"], 0),
        (&["sync", "--once"], 0),
        (&["replay"], 0),
        (&["requeue", "--all"], 0),
        // Not even that something is wrong.
        (&["check", "--config", "wrong.toml"], 1),
    ] {
        let wrong = config(db.url(), "http://127.0.0.1:1");
        std::fs::write(program.folder.path().join("wrong.toml"), wrong).unwrap();
        let ended = program.start_into(command, broken_pipe()).end().await;
        assert!(!ended.stderr.contains("panicked"), "{command:?}: {}", ended.stderr);
        ended.with(code);
    }
    assert_eq!(crm.contacts(Crm::Hubspot).len(), 2, "the work was done");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let ended = program.start_into(&["status"], full.into()).end().await.with(1);
    assert_contains(&ended.stderr, "No space left");
}

#[tokio::test]
async fn a_service_whose_log_nobody_reads_goes_on() {
    let db = TestDb::new().await;
    let crm = stand_in().await;
    let program = Program::new(&config(db.url(), &crm.url())).env("RUST_LOG", "trace");
    let mut serving = program.serve(&[]).await;
    serving.process.stop_listening().await;
    let cut_off = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and application_name = 'leadsync'";
    for number in 0..20 {
        db.client().await.query_one(cut_off, &[]).await.unwrap();
        let lead = json!({"email": format!("lead-{number}@example.com"), "first_name": "Ana"});
        eventually("a delivery is stored", PATIENCE, async || {
            match deliver(&serving, &lead).await {
                200 => Ok(()),
                status => Err(status.to_string()),
            }
        })
        .await;
    }
    eventually("everything in sync", PATIENCE, async || match crm.contacts(Crm::Hubspot).len() {
        20 => Ok(()),
        there => Err(format!("{there} contacts")),
    })
    .await;
    serving.process.terminate().await.with(0);
}

#[tokio::test]
async fn the_stand_in_on_its_own() {
    let program = Program::new("");
    let process = program.start(&["fake-crm", "--listen", "127.0.0.1:0"]);
    let line = process.says("stand-in CRM on http://").await;
    let url = &line[line.find("http://").unwrap()..];
    let batch = json!({"inputs": [
        {"id": "ana@example.com", "idProperty": "email", "properties": {"email": "ana@example.com", "firstname": "Ana"}},
        {"id": "bo@example.com", "idProperty": "email", "properties": {"email": "bo@example.com"}},
    ]});
    let http = client();
    for _ in 0..2 {
        let request = http.post(format!("{url}/crm/v3/objects/contacts/batch/upsert"));
        let answer = request.bearer_auth("anything").json(&batch).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
    }
    let summary: Value =
        http.get(format!("{url}/_fake/summary")).send().await.unwrap().json().await.unwrap();
    assert_eq!((&summary["contacts"], &summary["creates"]), (&json!(2), &json!(2)), "{summary}");
    assert_eq!(summary["doubles"], 0);
    assert_eq!(process.terminate().await.with(0).stdout, "");
}

/// Runs every command that ends by itself, whatever comes of it.
async fn run_all(program: &Program) -> Vec<(String, Ended)> {
    let mut said = Vec::new();
    for command in [
        &["check"][..],
        &["check", "--show"],
        &["migrate"],
        &["status"],
        &["status", "--json"],
        &["sync", "--once", "--dry-run"],
        &["sync", "--once"],
        &["requeue", "--all"],
        &["replay"],
        &["sync", "--once", "--destination", "nowhere"],
    ] {
        said.push((command.join(" "), program.run(command).await));
    }
    said
}

/// All of these are in what a program is configured with or what its clients present.
const SECRETS: [&str; 2] = ["hush", "SHVzaA"];

fn no_secrets(what: &str, text: &str) {
    let basic = STANDARD.encode("zap:hush-basic");
    for secret in SECRETS.into_iter().chain([basic.as_str()]) {
        let line = text.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} was said by {what}");
    }
}

#[tokio::test]
async fn secrets_are_never_said() {
    let db = TestDb::new().await;
    let crm = FakeCrm::on_free_port(fake_crm::Options::default()).await.unwrap();
    let url = db.url().replacen("leadsync@", "leadsync:hush-database@", 1);
    assert_ne!(url, db.url());
    let program = Program::new(&format!(
        r#"
[database]
url = {{ env = "SERVICE_URL" }}
migrate_url = "{url}"
[http]
admin_token = {{ file = "admin.token" }}
[sync]
poll = "100ms"
lease = "4s"
call_timeout = "1s"
confirm_after = "1500ms"
backoff_base = "20ms"
backoff_max = "200ms"
[[source]]
name = "site"
kind = "json"
header = {{ name = "X-Api-Key", value = "hush-header" }}
[[source]]
name = "form"
kind = "json"
url_token = ["hush-token", "hush-token-old"]
[[source]]
name = "zap"
kind = "json"
basic = {{ user = "zap", password = "hush-basic" }}
[[source]]
name = "typeform"
kind = "typeform"
secret = "hush-typeform"
[[destination]]
name = "hubspot"
kind = "hubspot"
token = "hush-crm"
rate = "10000/1s"
base_url = "{crm}"
[[destination]]
name = "hook"
kind = "webhook"
secret = "whsec_SHVzaEh1c2hIdXNoSHVzaEh1c2hIdXNo"
base_url = "{crm}/webhook?key=hush-query"
"#,
        crm = crm.url(),
    ))
    .env("SERVICE_URL", &url)
    .env("RUST_LOG", "trace");
    std::fs::write(program.folder.path().join("admin.token"), "hush-admin\n").unwrap();

    let serving = program.serve(&[]).await;
    let http = client();
    let post = |path: &str| http.post(format!("{}{path}", serving.url));
    let lead = |n: u8| json!({"email": format!("lead-{n}@example.com"), "first_name": "Ana"});
    for (request, status) in [
        (post("/hooks/site").header("x-api-key", "hush-header").json(&lead(1)), 200),
        (post("/hooks/site").header("x-api-key", "hush-wrong").json(&lead(2)), 401),
        (post("/hooks/form?token=hush-token").json(&lead(3)), 200),
        (post("/hooks/form?token=hush-token-old").json(&lead(4)), 200),
        (post("/hooks/form?token=hush-wrong").json(&lead(5)), 401),
        (post("/hooks/zap").basic_auth("zap", Some("hush-basic")).json(&lead(6)), 200),
        (post("/hooks/zap").basic_auth("zap", Some("hush-wrong")).json(&lead(7)), 401),
        (post("/hooks/typeform").header("typeform-signature", "sha256=hush").json(&lead(8)), 401),
        (post("/hooks/nowhere?token=hush-token").json(&lead(9)), 404),
        (post("/v1/leads").bearer_auth("hush-admin").json(&lead(10)), 200),
        (post("/v1/leads").bearer_auth("hush-wrong").json(&lead(11)), 401),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{}", answer.url());
        no_secrets("an answer", &format!("{:?}", answer.headers()));
        no_secrets("an answer", &answer.text().await.unwrap());
    }
    let both = [Crm::Hubspot, Crm::Webhook];
    eventually("leads reach both", PATIENCE, async || {
        let there = both.map(|crm_of| crm.contacts(crm_of).len());
        if there == [5, 5] { Ok(()) } else { Err(format!("{there:?}")) }
    })
    .await;
    // And everything that can go wrong on the way out.
    for fault in [
        Fault::ResetBefore,
        Fault::Truncated,
        Fault::Status { status: 401, body: Body::Json, apply: Apply::None, retry_after: None },
    ] {
        crm.script(fault.clone());
        crm.script(fault);
    }
    let calls = crm.summary().calls;
    let again = json!({"email": "lead-1@example.com", "first_name": "Bea", "last_name": "B"});
    let answer = post("/hooks/site").header("x-api-key", "hush-header").json(&again).send().await;
    assert_eq!(answer.unwrap().status(), 200);
    tokio::time::timeout(PATIENCE, crm.wait_for_calls(calls + 2)).await.expect("pushes");
    let serve = serving.process.terminate().await.with(0);
    assert_contains(&serve.stderr, "DEBUG");
    no_secrets("serve", &format!("{}{}", serve.stdout, serve.stderr));
    crm.stop().await;
    for (command, ended) in run_all(&program).await {
        no_secrets(&command, &format!("{}{}", ended.stdout, ended.stderr));
    }
}

/// Stands in every value that came from a person.
const PERSONAL: &str = "zqx";

fn nothing_personal(what: &str, text: &str) {
    let line = text.lines().find(|line| line.to_lowercase().contains(PERSONAL));
    assert_eq!(line, None, "{what} speaks of people");
}

#[tokio::test]
async fn logs_speak_of_nobody() {
    let db = TestDb::new().await;
    let crm = stand_in().await;
    let text = config(db.url(), &crm.url());
    // The second has all of debug.
    for level in ["info", "trace"] {
        let program = Program::new(&text).env("RUST_LOG", level);
        let serving = program.serve(&[]).await;
        let http = client();
        let post = |path: &str| {
            http.post(format!("{}{path}", serving.url)).header("x-api-key", "site-key")
        };
        let email = format!("zqx-{level}@example.com");
        let whole = json!({
            "email": email, "first_name": "Zqxandra", "last_name": "ZQXberg", "phone": "+5511912345678",
            "company": "Zqx Ltda", "message": "zqx zqx", "tags": ["zqx"], "attributes": {"zqx": "zqx"},
            "utm_source": "zqx", "landing_page": "https://example.com/?zqx", "event_id": "zqx",
        });
        let requests = [
            post("/hooks/site").json(&whole),
            post("/hooks/site").json(&whole),
            post("/hooks/site").json(&json!({"email": "zqx without an at", "first_name": "Zqx"})),
            post("/hooks/site").json(&json!({"email": "zqx@localhost", "first_name": "Zqx"})),
            post("/hooks/site")
                .json(&json!([{"email": email}, {"email": "zqx"}, "zqx", {"zqx": 1}])),
            post("/hooks/site")
                .header("content-type", "application/json")
                .body("{\"email\": \"zqx"),
            post("/hooks/site").header("content-type", "text/zqx").body("zqx"),
            post("/hooks/site?email=zqx@example.com").json(&whole),
            post("/hooks/zqx").json(&whole),
            post("/zqx/zqx").header("x-zqx", "zqx").json(&whole),
            post("/v1/leads").json(&whole),
            post("/v1/leads").json(&json!({"email": "zqx", "zqx": "zqx", "phone": "zqx"})),
            post("/v1/leads").header("idempotency-key", "zqx").json(&whole),
            post("/v1/leads").header("idempotency-key", "zqx").json(&json!({"email": email})),
            http.get(format!("{}/v1/leads/{email}", serving.url)),
            http.get(format!("{}/v1/leads/zqx%00", serving.url)),
        ];
        for request in requests {
            request.send().await.expect("an answer");
        }
        eventually("the lead reaches the CRM", PATIENCE, async || {
            let contacts = crm.contacts(Crm::Hubspot);
            contacts
                .iter()
                .any(|c| c.email == email)
                .then_some(())
                .ok_or_else(|| "not yet".to_owned())
        })
        .await;
        // Refused as a whole with words that quote it; lost; and a database that hangs up and refuses.
        for fault in [
            Fault::Status { status: 400, body: Body::Json, apply: Apply::None, retry_after: None },
            Fault::Conflict,
            Fault::CutJson,
        ] {
            crm.script(fault);
        }
        let client = db.client().await;
        let refuse = "alter table leadsync.leads add constraint refuses check (first_name <> 'Zqx refused') not valid";
        client.batch_execute(refuse).await.unwrap();
        let request =
            post("/hooks/site").json(&json!({"email": email, "first_name": "Zqx refused"}));
        assert_eq!(request.send().await.unwrap().status(), 503);
        client.batch_execute("alter table leadsync.leads drop constraint refuses").await.unwrap();
        let cut_off = "select count(pg_terminate_backend(pid)) from pg_stat_activity
            where datname = current_database() and application_name = 'leadsync'";
        for number in 0..3 {
            client.query_one(cut_off, &[]).await.unwrap();
            let lead =
                json!({"email": format!("zqx-{level}-{number}@example.com"), "first_name": "Zqx"});
            post("/hooks/site").json(&lead).send().await.expect("an answer");
        }
        let ended = serving.process.terminate().await.with(0);
        assert_contains(&ended.stderr, "refuses");
        nothing_personal(&format!("serve at {level}"), &ended.stderr);
        assert_eq!(ended.stdout, "");
    }
    for (command, ended) in run_all(&Program::new(&text).env("RUST_LOG", "trace")).await {
        nothing_personal(&command, &ended.stderr);
    }
}

/// With temporary files in its own folder.
fn demo() -> Program {
    let program = Program::new("");
    let here = program.folder.path().display().to_string();
    program.env("TMPDIR", here)
}

fn left_nothing(program: &Program) {
    let left: Vec<_> = std::fs::read_dir(program.folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn the_demo_keeps_its_promise() {
    let program = demo();
    let shown = program.run(&["demo", "--json", "--leads", "150"]).await.with(0);
    left_nothing(&program);
    let summary: Value = serde_json::from_str(&shown.stdout).expect("one JSON object");
    let keys: Vec<&str> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["deliveries", "repeats", "leads", "contacts", "doubles", "handler_doubles", "seconds"]
    );
    let number = |key: &str| summary[key].as_f64().expect("a number");
    assert_eq!(number("leads"), 150.0, "{summary}");
    assert_eq!(number("contacts"), 150.0, "{summary}");
    assert_eq!(number("doubles"), 0.0, "{summary}");
    assert!(number("handler_doubles") > 0.0, "{summary}");
    assert!(number("repeats") > 0.0, "{summary}");
    assert!(number("deliveries") >= number("leads") + number("repeats"), "{summary}");
}

#[tokio::test]
async fn a_demo_that_is_cut_short_leaves_nothing() {
    let program = demo();
    let process = program.start(&["demo", "--leads", "20000"]);
    eventually("its database runs", PATIENCE, async || {
        let folders = std::fs::read_dir(program.folder.path()).unwrap().flatten();
        let names = folders.map(|folder| folder.file_name().to_string_lossy().into_owned());
        let running = names.into_iter().find_map(|name| program.folder.postgres(&name));
        running.map(drop).ok_or_else(|| process.stderr())
    })
    .await;
    process.signal(Signal::SIGINT);
    assert_ne!(process.end().await.code, Some(0));
    left_nothing(&program);
}
