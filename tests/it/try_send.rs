//! `leadsync try` and `leadsync send`, the real program: every sample becomes the lead that is expected of it,
//! and a running service believes what is signed.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use leadsync::app::Roles;
use serde_json::{Value, json};

use crate::hooks::{Expected, ExpectedLead, Sample, samples};
use crate::support::app::TestApp;
use crate::support::process::{Ended, Program};

const RECEIVE: Roles = Roles { receive: true, sync: false };

const KEY: &str = "header = { name = \"X-Api-Key\", value = \"site-key\" }";

fn configuration(sources: &[Value]) -> String {
    toml::to_string(&json!({ "source": sources })).expect("TOML")
}

/// Runs a command with a body in a file, the headers and the query of a sample.
async fn run(program: &Program, command: &[&str], sample: &Sample, with: &[&str]) -> Ended {
    std::fs::write(program.folder.path().join("payload"), &sample.body).expect("write the body");
    let headers: Vec<String> =
        sample.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let mut arguments = command.to_vec();
    arguments.extend(["--source", &sample.name, "--query", &sample.case.query, "payload"]);
    for (header, (name, _)) in headers.iter().zip(&sample.headers) {
        if with.iter().any(|kept| kept.eq_ignore_ascii_case(name)) {
            arguments.extend(["--header", header]);
        }
    }
    program.run(&arguments).await
}

fn is_as_expected(name: &str, part: &Value, expected: &ExpectedLead) {
    assert_eq!(part["outcome"], "lead", "{name}");
    let lead = &part["lead"];
    let texts = [
        ("first_name", &expected.first_name),
        ("last_name", &expected.last_name),
        ("full_name", &expected.full_name),
        ("phone", &expected.phone),
        ("company", &expected.company),
        ("job_title", &expected.job_title),
    ];
    for (target, value) in texts {
        assert_eq!(lead[target].as_str(), value.as_deref(), "{name} {target}");
    }
    assert_eq!(lead["email"], expected.email, "{name}");
    assert_eq!(lead["marketing_consent"].as_bool(), expected.consent, "{name}");
    let utm: BTreeMap<String, String> = lead
        .as_object()
        .expect("a lead")
        .iter()
        .filter(|(target, _)| target.starts_with("utm_"))
        .map(|(target, value)| (target.clone(), value.as_str().expect("a text").to_owned()))
        .collect();
    assert_eq!(utm, expected.utm, "{name}");
    let stated = lead["occurred_at"].as_str().map(|at| at.parse().expect("a time"));
    assert_eq!(stated, expected.event_time_utc, "{name}");
    assert_eq!(part["time"]["policy"] == "stated", stated.is_some(), "{name}");
    for (also, value) in &expected.also {
        let shown = match also.as_str() {
            "tags" => {
                let tags = lead["tags"].as_array().expect("a list");
                tags.iter().map(|tag| tag.as_str().expect("a text")).collect::<Vec<_>>().join(",")
            }
            target => lead[target].as_str().unwrap_or_default().to_owned(),
        };
        assert_eq!(shown, *value, "{name} {also}");
    }
    let errors: BTreeSet<String> =
        part["field_errors"].as_object().map(|e| e.keys().cloned().collect()).unwrap_or_default();
    assert_eq!(errors, BTreeSet::from_iter(expected.errors.clone()), "{name}");
    // Every value says where it is from, and every field error has its path.
    let targets = part["targets"].as_array().expect("a list");
    let target = |name: &str| targets.iter().find(|target| target["target"] == name);
    for name in lead.as_object().expect("a lead").keys().filter(|n| !n.ends_with("_proven")) {
        let target = target(name).unwrap_or_else(|| panic!("{name} is not explained"));
        assert!(target["from"].is_string() && target["value"] == lead[name], "{target}");
    }
    for error in &errors {
        let words = &part["field_errors"][error];
        let others = target(error).and_then(|target| target["others"].as_array());
        let told = others.into_iter().flatten().any(|other| other["meaning"] == *words);
        assert!(told || error.starts_with("attributes."), "{name} {error}: {part}");
    }
}

/// Runs `try` on a sample and returns how many leads it gave.
async fn is_shown(sample: Sample) -> usize {
    let name = &sample.name;
    let program = Program::new(&configuration(std::slice::from_ref(&sample.case.source)));
    // All headers but the content type, which is guessed.
    let with: Vec<&str> = sample.headers.iter().map(|(name, _)| &**name).collect();
    let with: Vec<&str> =
        with.into_iter().filter(|name| !name.eq_ignore_ascii_case("content-type")).collect();
    let ended = run(&program, &["try", "--json"], &sample, &with).await;
    let rejected = |expected: &Expected| matches!(expected, Expected::Rejected { .. });
    let any_rejected = sample.case.expect.iter().any(rejected);
    let ended = ended.with(i32::from(any_rejected));
    let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let parts = told["parts"].as_array().expect("a list");
    assert_eq!(parts.len(), sample.case.expect.len(), "{name}");
    let mut leads = 0;
    for (part, expected) in parts.iter().zip(&sample.case.expect) {
        match expected {
            Expected::Ignored { ignored } => {
                assert_eq!(*part, json!({"outcome": "ignored", "reason": ignored}), "{name}");
            }
            Expected::Rejected { rejected } => {
                assert_eq!(part["outcome"], "rejected", "{name}");
                assert_eq!(part["reason"], *rejected, "{name}");
            }
            Expected::Notice { notice } => {
                let told = notice.strip_prefix("gone ");
                assert_eq!(part["outcome"], if told.is_some() { "ignored" } else { "queued" });
                assert_eq!(part["reason"], told.unwrap_or(notice), "{name}");
            }
            Expected::Lead(expected) => {
                is_as_expected(name, part, expected);
                leads += 1;
            }
        }
    }
    assert!(!program.folder.path().join("leadsync-data").exists(), "a database was made");
    leads
}

#[tokio::test]
async fn every_sample_is_shown_as_its_lead() {
    // Several at once: an unoptimised program takes half a second to learn the world's phone numbers.
    let shown = stream::iter(samples()).map(is_shown).buffer_unordered(4);
    let leads = shown.fold(0, async |sum, leads| sum + leads).await;
    assert!(leads > 50, "{leads}");
}

#[tokio::test]
async fn a_page_tells_why() {
    let source = format!(
        "[[source]]\nname = \"site\"\nkind = \"custom\"\n{KEY}\nsplit = \"$.people[*]\"\nuntimed = \"fill_only\"\n\
         [source.fields]\nemail = [\"$.mail\", \"$.email\"]\nphone = \"$.tel\"\ncompany = [\"$.org\", \"$.firm\"]\n\
         occurred_at = {{ from = \"$.at\", via = \"epoch_s\" }}\n"
    );
    let program = Program::new(&source);
    let body = json!({"batch": 7, "people": [
        {"mail": "Ana@Example.com", "email": "x@example.com", "tel": "call me", "org": " ", "firm": {"name": "Aurora"}, "at": "now",
         "note": "\u{1b}[31m"},
        {"mail": "nobody"}]});
    std::fs::write(program.folder.path().join("two.json"), body.to_string()).expect("write");
    let ended = program.run(&["try", "--source", "site", "two.json"]).await.with(1);
    for line in [
        "source site (custom), read as application/json",
        "1 of 2: lead",
        "  email = \"ana@example.com\"\n      $.mail: \"Ana@Example.com\"\n      - $.email: not looked at, an earlier path decided",
        "  time: none stated; it fills blanks and overwrites nothing",
        "  not usable, left out: phone: not a valid phone number",
        "    phone\n      - $.tel \"call me\": not a valid phone number",
        "    company\n      - $.org: blank\n      - $.firm: is an object, not one value",
        "    occurred_at\n      - $.at via epoch_s \"now\": not a time of the expected form",
        "    $.firm.name = \"Aurora\"",
        "    $.note = \"\\u001b[31m\"",
        "2 of 2: rejected: invalid_email (the address has no @)",
        "    email\n      - $.mail \"nobody\": the address has no @\n      - $.email: not looked at",
        "around the leads no path looks at:\n    $['@body'].batch = 7",
    ] {
        assert!(ended.stdout.contains(line), "{line:?} is not in:\n{}", ended.stdout);
    }
    assert_eq!(ended.stderr, "");

    // Standard input is empty here.
    let ended = program.run(&["try", "--source", "site", "-"]).await.with(1);
    assert!(ended.stdout.contains("rejected: malformed (the body is empty)"), "{}", ended.stdout);
    let ended = program.run(&["try", "--source", "sitee", "two.json"]).await.with(2);
    assert!(ended.stderr.contains("did you mean \"site\"?"), "{}", ended.stderr);
    let ended = program.run(&["try", "--source", "site", "none.json"]).await.with(2);
    assert!(ended.stderr.contains("cannot read none.json"), "{}", ended.stderr);
    let wrong = ["try", "--source", "site", "--content-type", "text/plain", "two.json"];
    let ended = program.run(&wrong).await.with(1);
    assert!(ended.stdout.contains("rejected: malformed (the content type"), "{}", ended.stdout);
}

/// The same source with another secret everywhere, which is base64 as well.
fn with_other_secrets(mut source: Value) -> Value {
    let other = json!("b3RoZXItc2VjcmV0LW9mLW5vYm9keQ==");
    for key in ["secret", "url_token"] {
        if !source[key].is_null() {
            source[key] = other.clone();
        }
    }
    for (key, value) in [("header", "value"), ("body_key", "value"), ("basic", "password")] {
        if !source[key].is_null() {
            source[key][value] = other.clone();
        }
    }
    source.as_object_mut().expect("a source").retain(|_, value| !value.is_null());
    source
}

#[tokio::test]
async fn what_is_sent_is_believed_with_the_right_secret_only() {
    let mut samples = samples();
    samples.sort_by(|a, b| a.name.cmp(&b.name));
    // The first of each kind, and each of kind `custom`, which sign differently.
    let mut kinds = BTreeSet::new();
    samples.retain(|sample| {
        let kind = sample.case.source["kind"].as_str().expect("a kind").to_owned();
        kind == "custom" || kinds.insert(kind)
    });
    assert_eq!(kinds.len() + 1, leadsync::sources::SOURCES.len());
    let sources: Vec<Value> = samples.iter().map(|s| s.case.source.clone()).collect();
    let app = TestApp::spawn_with(&configuration(&sources), RECEIVE).await;
    let program = Program::new("");
    // What makes the delivery what it is; signatures of the sample are long too old.
    let with = ["content-type", "x-shopify-topic"];
    for sample in &samples {
        let name = &sample.name;
        let to = ["send", "--to", &*app.url];
        program.configure(&configuration(&[with_other_secrets(sample.case.source.clone())]));
        let ended = run(&program, &to, sample, &with).await.with(1);
        assert!(ended.stdout.starts_with("401 "), "{name}: {}", ended.stdout);
        program.configure(&configuration(std::slice::from_ref(&sample.case.source)));
        let ended = run(&program, &to, sample, &with).await.with(0);
        assert!(ended.stdout.starts_with("200 "), "{name}: {}", ended.stdout);
        assert_eq!(ended.stderr, "", "{name}");
    }
}

#[tokio::test]
async fn a_delivery_is_sent_again() {
    let app = TestApp::receiving().await;
    let source = format!("[[source]]\nname = \"site\"\nkind = \"json\"\n{KEY}\n");
    let listen = format!("[http]\nlisten = \"{}\"\n{source}", app.address);
    let program = Program::new(&listen);
    let body = json!({"email": "a@example.com", "first_name": "Ana"});
    std::fs::write(program.folder.path().join("a.json"), body.to_string()).expect("write");
    let ended = program.run(&["send", "--source", "site", "--repeat", "2", "a.json"]).await.with(0);
    let outcomes: Vec<String> = ended
        .stdout
        .lines()
        .map(|line| {
            let answer: Value =
                serde_json::from_str(line.strip_prefix("200 ").expect("taken")).expect("JSON");
            answer["outcome"].as_str().expect("an outcome").to_owned()
        })
        .collect();
    assert_eq!(outcomes, ["created", "unchanged", "unchanged"]);

    // A proxy's address has a path of its own; an unknown one is not there.
    let to = format!("{}/elsewhere", app.url);
    let ended = program.run(&["send", "--source", "site", "--to", &to, "a.json"]).await.with(1);
    assert!(ended.stdout.starts_with("404 "), "{}", ended.stdout);
    program.configure(&format!("[http]\nlisten = \"127.0.0.1:0\"\n{source}"));
    let ended = program.run(&["send", "--source", "site", "a.json"]).await.with(2);
    assert!(ended.stderr.contains("--to"), "{}", ended.stderr);
    app.stop().await;
    program.configure(&listen);
    let ended = program.run(&["send", "--source", "site", "a.json"]).await.with(1);
    assert!(ended.stderr.contains("cannot deliver to http://127.0.0.1"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("site-key"), "{}", ended.stderr);
}
