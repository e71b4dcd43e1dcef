//! Deliveries of lead sources, over real HTTP into a real table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use leadsync::app::Roles;
use leadsync::fake_crm::Crm;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::app::{TestApp, until};
use crate::support::log::Log;
use crate::support::wire::{Client, bounded, chunk, gzip};

const RECEIVE: Roles = Roles { receive: true, sync: false };

/// An application with these sources beside `site`.
async fn app_with(sources: &[Value]) -> TestApp {
    let text = toml::to_string(&json!({ "source": sources })).unwrap();
    TestApp::spawn_with(&text, RECEIVE).await
}

/// What the archive says about the latest delivery to a source.
#[derive(Debug)]
struct Stored {
    outcome: String,
    reason: Option<String>,
    body: Option<Vec<u8>>,
    body_bytes: i32,
    copies: i64,
    items: Option<Value>,
    query: Option<String>,
    headers: Option<Value>,
}

async fn deliveries(app: &TestApp, source: &str) -> Vec<Stored> {
    let sql = "select outcome, reason, body, body_bytes, copies, items, query, headers
        from leadsync.deliveries where source = $1 order by received_at desc, delivery_id";
    let rows = app.db.client().await.query(sql, &[&source]).await.unwrap();
    rows.iter()
        .map(|row| Stored {
            outcome: row.get(0),
            reason: row.get(1),
            body: row.get(2),
            body_bytes: row.get(3),
            copies: row.get(4),
            items: row.get(5),
            query: row.get(6),
            headers: row.get(7),
        })
        .collect()
}

async fn lead(app: &TestApp, email: &str) -> Value {
    let (status, view) = app.get(&format!("/v1/leads/{email}")).await;
    assert_eq!(status, 200, "{email}: {view}");
    view
}

fn outcome(answer: &(u16, Value)) -> &str {
    assert_eq!(answer.0, 200, "{answer:?}");
    answer.1["outcome"].as_str().unwrap()
}

// What real senders send

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sources")
}

/// A payload as it arrived, and what must become of it.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) source: Value,
    pub(crate) query: String,
    pub(crate) now: i64,
    pub(crate) expect: Vec<Expected>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Expected {
    Ignored {
        ignored: String,
    },
    Rejected {
        rejected: String,
    },
    /// Object and id at the source; of something that is gone, with "gone " before.
    Notice {
        notice: String,
    },
    Lead(Box<ExpectedLead>),
}

#[derive(Deserialize)]
pub(crate) struct ExpectedLead {
    pub(crate) email: String,
    pub(crate) first_name: Option<String>,
    pub(crate) last_name: Option<String>,
    pub(crate) full_name: Option<String>,
    pub(crate) phone: Option<String>,
    pub(crate) company: Option<String>,
    pub(crate) job_title: Option<String>,
    pub(crate) consent: Option<bool>,
    pub(crate) utm: BTreeMap<String, String>,
    pub(crate) event_time_utc: Option<jiff::Timestamp>,
    /// Some of what else the lead has: fields, `landing_page`, `tags`, `attributes.NAME`.
    #[serde(default)]
    pub(crate) also: BTreeMap<String, String>,
    /// Fields that had a value which could not be used.
    #[serde(default)]
    pub(crate) errors: Vec<String>,
}

/// Every secret in the configuration of a source.
fn secrets<'a>(source: &'a Value) -> Vec<&'a str> {
    let one_or_more = |value: &'a Value| -> Vec<&'a str> {
        match value {
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        }
    };
    let (header, basic) = (&source["header"]["value"], &source["basic"]["password"]);
    let (key, token) = (&source["body_key"]["value"], &source["token"]);
    let verify = &source["verify_token"];
    let keys = [&source["secret"], &source["url_token"], header, basic, key, token, verify];
    // Shorter ones are parts of words.
    keys.into_iter().flat_map(one_or_more).filter(|secret| secret.len() > 5).collect()
}

pub(crate) struct Sample {
    /// Its file's name, and that of its source here.
    pub(crate) name: String,
    pub(crate) case: Case,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for kind in std::fs::read_dir(fixtures()).unwrap() {
        let folder = kind.unwrap().path();
        let Ok(files) = std::fs::read_dir(&folder) else { continue };
        for file in files {
            let path = file.unwrap().path();
            let Some(name) = path.to_str().unwrap().strip_suffix(".lead.json") else { continue };
            let name = Path::new(name).file_name().unwrap().to_str().unwrap().to_owned();
            let mut case: Case = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let read = |ext: &str| std::fs::read(folder.join(format!("{name}.{ext}")));
            let headers = String::from_utf8(read("headers").unwrap()).unwrap();
            let headers = headers.lines().filter_map(|line| line.split_once(": "));
            let headers =
                headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let body = read("json").or_else(|_| read("body")).unwrap();
            let kind = folder.file_name().unwrap().to_str().unwrap();
            let name = format!("{kind}-{name}");
            case.source["name"] = json!(name);
            samples.push(Sample { name, case, headers, body });
        }
    }
    samples
}

/// The answers of a delivery, one per lead; one word for several that are queued.
fn answers(name: &str, leads: usize, (status, answer): (u16, Value)) -> Vec<Value> {
    assert_eq!(status, 200, "{name}: {answer}");
    let queued = answer == json!({"outcome": "queued"});
    let several = if queued { vec![answer.clone(); leads] } else { vec![answer.clone()] };
    answer["outcomes"].as_array().cloned().unwrap_or(several)
}

#[tokio::test]
async fn every_sample_becomes_its_lead() {
    let samples = samples();
    assert!(samples.len() > 60);
    let sources: Vec<Value> = samples.iter().map(|s| s.case.source.clone()).collect();
    let app = app_with(&sources).await;
    let log = Log::record();
    let sql = app.db.client().await;
    for Sample { name, case, headers, body } in &samples {
        app.set_now(case.now);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (&**n, &**v)).collect();
        let path = format!("/hooks/{name}?{}", case.query);
        let leads = case.expect.len();
        let first = answers(name, leads, app.post(&path, &headers, body.clone()).await);
        let again = answers(name, leads, app.post(&path, &headers, body.clone()).await);
        assert_eq!((first.len(), again.len()), (case.expect.len(), case.expect.len()), "{name}");
        let stored = deliveries(&app, name).await;
        assert_eq!(stored.len(), 1, "{name}");
        for (n, expected) in case.expect.iter().enumerate() {
            match expected {
                Expected::Ignored { ignored } => {
                    assert_eq!(
                        first[n],
                        json!({"outcome": "ignored", "reason": ignored}),
                        "{name}"
                    );
                    assert_eq!(again[n], first[n], "{name}");
                }
                Expected::Rejected { rejected } => {
                    assert_eq!(
                        first[n],
                        json!({"outcome": "rejected", "reason": rejected}),
                        "{name}"
                    );
                    assert_eq!(again[n], first[n], "{name}");
                }
                Expected::Notice { notice } => {
                    let answer = match notice.strip_prefix("gone ") {
                        Some(_) => json!({"outcome": "ignored", "reason": "deleted"}),
                        None => json!({"outcome": "queued"}),
                    };
                    assert_eq!((&first[n], &again[n]), (&answer, &answer), "{name}");
                    let row = "select 1 from leadsync.fetches where source = $1 and remote_id = $2
                        and object = $3 and state = $4 and wanted = 1";
                    let mut words = notice.rsplit(' ');
                    let (id, object) = (words.next(), words.next());
                    let state = if notice.starts_with("gone ") { "deleted" } else { "due" };
                    let row = sql.query_opt(row, &[name, &id, &object, &state]).await.unwrap();
                    assert!(row.is_some(), "{name}: {notice}");
                }
                Expected::Lead(expected) => {
                    assert_eq!(first[n]["outcome"], "created", "{name}");
                    assert_eq!(again[n]["outcome"], "unchanged", "{name}");
                    assert_eq!(again[n]["lead_id"], first[n]["lead_id"], "{name}");
                    is_as_expected(&app, &sql, name, expected, &first[n]["lead_id"]).await;
                    let items = stored[0].items.clone().unwrap_or_default();
                    let errors = items[n]["field_errors"].as_object();
                    let errors: BTreeSet<String> =
                        errors.map(|e| e.keys().cloned().collect()).unwrap_or_default();
                    assert_eq!(BTreeSet::from_iter(expected.errors.clone()), errors, "{name}");
                }
            }
        }
        let kept = stored[0].body.as_deref().unwrap();
        let secrets = secrets(&case.source);
        let text = String::from_utf8_lossy(kept);
        let others = format!("{text}{:?}{:?}", stored[0].headers, stored[0].query);
        assert!(!secrets.iter().any(|secret| others.contains(secret)), "{name}: {others}");
        // Byte for byte as it came; only what proves the sender in the body, or our token, is not kept.
        let sent = String::from_utf8_lossy(body).into_owned();
        let masked = secrets.iter().fold(sent, |sent, secret| sent.replace(secret, "***"));
        assert_eq!(text, masked, "{name}");
        // Some samples are about the same person.
        sql.batch_execute("truncate leadsync.leads, leadsync.lead_sync").await.unwrap();
    }
    log.has_no_error();
    let text = log.text();
    for secret in samples.iter().flat_map(|sample| secrets(&sample.case.source)) {
        assert!(!text.contains(secret), "{secret} in the log");
    }
    for private in ["@example", "Albuquerque", "11912345678"] {
        assert!(!text.contains(private), "{private} in the log");
    }
}

/// The lead as it is shown and as it stands in the table.
async fn is_as_expected(
    app: &TestApp,
    sql: &tokio_postgres::Client,
    name: &str,
    expected: &ExpectedLead,
    lead_id: &Value,
) {
    let view = lead(app, &expected.email.replace('+', "%2B")).await;
    assert_eq!((&view["lead_id"], &view["version"]), (lead_id, &json!(1)), "{name}");
    let row =
        "select (select received_at from leadsync.deliveries where source = $1) as receipt, l.*
        from leadsync.leads as l where email = $2";
    let row = sql.query_one(row, &[&name, &expected.email]).await.unwrap();
    let texts = [
        ("first_name", &expected.first_name),
        ("last_name", &expected.last_name),
        ("full_name", &expected.full_name),
        ("phone", &expected.phone),
        ("company", &expected.company),
        ("job_title", &expected.job_title),
    ];
    let utm = ["source", "medium", "campaign", "term", "content"].map(|n| format!("utm_{n}"));
    let utm = utm.each_ref().map(|column| (&**column, expected.utm.get(column).cloned()));
    let utm = utm.iter().map(|(column, value)| (*column, value));
    for (column, value) in texts.into_iter().chain(utm) {
        assert_eq!(view["lead"][column].as_str(), value.as_deref(), "{name} {column}");
        assert_eq!(&row.get::<_, Option<String>>(column), value, "{name} {column}");
    }
    for (also, value) in &expected.also {
        let shown = match (also.strip_prefix("attributes."), also.as_str()) {
            (Some(attribute), _) => view["lead"]["attributes"][attribute].clone(),
            (None, "tags") => {
                let tags = view["lead"]["tags"].as_array().unwrap();
                json!(tags.iter().map(|tag| tag.as_str().unwrap()).collect::<Vec<_>>().join(","))
            }
            (None, column) => view["lead"][column].clone(),
        };
        assert_eq!(shown, *value, "{name} {also}");
    }
    let consent: Option<bool> = row.get("marketing_consent");
    assert_eq!(consent, expected.consent, "{name}");
    assert_eq!(view["lead"]["marketing_consent"].as_bool(), expected.consent, "{name}");
    // Without a time of its own it counts with its receipt, to the microsecond.
    let time = |column: &str| jiff::Timestamp::try_from(row.get::<_, SystemTime>(column)).unwrap();
    let wanted = expected.event_time_utc.unwrap_or_else(|| time("receipt"));
    assert_eq!(time("last_seen_at"), wanted, "{name}");
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    source: Value,
    #[serde(default)]
    query: String,
    #[serde(default)]
    now: i64,
    headers: BTreeMap<String, String>,
    body: String,
    valid: bool,
}

#[tokio::test]
async fn every_signature_gets_its_verdict() {
    let text = std::fs::read(fixtures().join("vectors.json")).unwrap();
    let vectors: Vec<Value> = serde_json::from_slice(&text).unwrap();
    // Some are about the answer to a GET, and one scheme signs the method too: only POST delivers.
    let delivers = |v: &Value| {
        v["source"].is_object() && [&json!("POST"), &Value::Null].contains(&&v["method"])
    };
    let vectors = vectors.into_iter().filter(delivers);
    let mut vectors: Vec<Vector> = vectors.map(|v| serde_json::from_value(v).unwrap()).collect();
    assert!(vectors.len() > 100);
    for (n, vector) in vectors.iter_mut().enumerate() {
        vector.source["name"] = json!(format!("v{n}"));
    }
    let sources: Vec<Value> = vectors.iter().map(|v| v.source.clone()).collect();
    let app = app_with(&sources).await;
    let log = Log::record();
    for vector in &vectors {
        app.set_now(vector.now);
        let headers: Vec<(&str, &str)> = vector.headers.iter().map(|(n, v)| (&**n, &**v)).collect();
        let source = vector.source["name"].as_str().unwrap();
        let path = format!("/hooks/{source}?{}", vector.query);
        let (status, answer) = app.post(&path, &headers, vector.body.clone()).await;
        let stored = deliveries(&app, source).await;
        // Some vectors sign what is no JSON; that is found out after the signature, and kept.
        match (vector.valid, status) {
            (true, 400) => assert_eq!(answer["code"], "malformed_body", "{}", vector.id),
            (true, _) => assert_eq!(status, 200, "{}: {answer}", vector.id),
            (false, _) => {
                assert_eq!(
                    (status, &answer["code"]),
                    (401, &json!("bad_signature")),
                    "{}",
                    vector.id
                );
            }
        }
        assert_eq!(stored.len(), usize::from(vector.valid), "{}", vector.id);
        let json = serde_json::from_str::<Value>(&vector.body).is_ok();
        assert!(!json || status != 400, "{}", vector.id);
    }
    log.has_no_error();
    let text = log.text();
    for secret in vectors.iter().flat_map(|v| secrets(&v.source)) {
        assert!(!text.contains(secret), "{secret} in the log");
    }
}

// One person

#[tokio::test]
async fn fifty_at_once_are_one_lead() {
    let app = TestApp::receiving().await;
    let spellings = ["ana.luz@example.com", "ANA.LUZ@EXAMPLE.COM", "Ana.Luz@Example.com."];
    let paddings = [("", ""), (" ", ""), ("\t", " "), ("mailto:", ""), ("\u{feff}", "\n")];
    let bodies = (0..50).map(|n| {
        let (before, after) = paddings[n % paddings.len()];
        let email = format!("{before}{}{after}", spellings[n % spellings.len()]);
        // One event, told fifty times.
        json!({"email": email, "occurred_at": "2026-03-05T14:22:10Z", "first_name": "Ana", "n": n})
    });
    let answers = bodies.map(|body| {
        let app = &app;
        async move { app.deliver(&body).await }
    });
    let answers = futures_util::future::join_all(answers).await;
    let created = answers.iter().filter(|answer| outcome(answer) == "created").count();
    assert_eq!(created, 1, "{answers:?}");
    let unchanged = answers.iter().filter(|answer| outcome(answer) == "unchanged").count();
    assert_eq!(unchanged, 49, "{answers:?}");
    assert!(answers.iter().all(|(_, answer)| answer["lead_id"] == answers[0].1["lead_id"]));
    assert_eq!(app.value::<i64>("select count(*) from leadsync.leads").await, 1);
    assert_eq!(app.value::<i64>("select version from leadsync.leads").await, 1);
    assert_eq!(app.value::<i64>("select count(*) from leadsync.deliveries").await, 50);
    app.drain().await;
    assert_eq!(app.crm.contacts(Crm::Hubspot).len(), 1);
    assert_eq!(app.crm.creates_per_email(Crm::Hubspot)["ana.luz@example.com"], 1);
}

#[tokio::test]
async fn folding_joins_spellings_of_one_person() {
    let spellings = ["Ana.Luz+news@Gmail.com", "analuz@googlemail.com", "ana.luz@gmail.com"];
    for (folding, leads) in [("none", 3), ("plus", 2), ("gmail", 1)] {
        let app =
            TestApp::spawn_with(&format!("[leads]\nemail_folding = \"{folding}\""), RECEIVE).await;
        for (n, spelling) in spellings.iter().enumerate() {
            let at = format!("2026-03-0{}T00:00:00Z", n + 1);
            let answer = app.deliver(&json!({"email": spelling, "occurred_at": at})).await;
            assert!(["created", "unchanged"].contains(&outcome(&answer)), "{folding}: {answer:?}");
            let view = lead(&app, spelling).await;
            assert_eq!(view["lead_id"], answer.1["lead_id"], "found by any spelling");
            assert_eq!(view["lead"]["email_as_typed"], *spelling);
        }
        assert_eq!(
            app.value::<i64>("select count(*) from leadsync.leads").await,
            leads,
            "{folding}"
        );
    }
}

// What goes wrong

struct Bad {
    name: &'static str,
    /// `None`: the header is left out.
    content_type: Option<&'static str>,
    body: Vec<u8>,
    status: u16,
    /// `code` of a problem; `outcome` or `reason` otherwise.
    word: &'static str,
}

const JSON: Option<&str> = Some("application/json");
const FORM: Option<&str> = Some("application/x-www-form-urlencoded");

fn bad(name: &'static str, body: impl Into<Vec<u8>>, status: u16, word: &'static str) -> Bad {
    Bad { name, content_type: JSON, body: body.into(), status, word }
}

fn bad_bodies() -> Vec<Bad> {
    let of = |content_type, name, body: &[u8], status, word| Bad {
        name,
        content_type,
        body: body.to_vec(),
        status,
        word,
    };
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"email":"nested@example.com","x":{open}{close}}}"#)
    };
    let members = |name: &str, n: usize| {
        let members: Vec<String> = (0..n).map(|n| format!("\"{n}\":1")).collect();
        format!(r#"{{"email":"{name}@example.com","x":{{{}}}}}"#, members.join(","))
    };
    let malformed = "malformed_body";
    let mut cases = vec![
        bad("empty", "", 400, malformed),
        bad("blank", " \r\n ", 400, malformed),
        bad("null", "null", 200, "no_email"),
        bad("text", "\"secretperson\"", 200, "no_email"),
        bad("number", "1", 200, "no_email"),
        bad("empty list", "[]", 200, "no_leads"),
        bad("empty object", "{}", 200, "no_email"),
        bad("list of lists", "[[]]", 200, "no_email"),
        bad("cut", r#"{"email":"secretperson@example.com""#, 400, malformed),
        bad("trailing comma", r#"{"email":"a@example.com",}"#, 400, malformed),
        bad("comment", "// x\n{\"email\":\"a@example.com\"}", 400, malformed),
        bad("single quotes", "{'email':'a@example.com'}", 400, malformed),
        bad("NaN", r#"{"email":"a@example.com","n":NaN}"#, 400, malformed),
        bad("two documents", r#"{"email":"a@example.com"}{}"#, 400, malformed),
        bad("no JSON", "secretperson, call me", 400, malformed),
        bad("mark", "\u{feff}{\"email\":\"bom@example.com\"}", 200, "created"),
        bad("two marks", "\u{feff}\u{feff}{}", 400, malformed),
        bad("not UTF-8", b"{\"email\":\"a@example.com\",\"city\":\"\xff\"}", 400, malformed),
        bad("overlong", b"{\"email\":\"a@example.com\",\"city\":\"\xc0\xaf\"}", 400, malformed),
        bad("UTF-16", b"{\0\"\0}\0", 400, malformed),
        bad("surrogate", r#"{"email":"a@example.com","city":"\ud800"}"#, 400, malformed),
        bad("raw line end", "{\"email\":\"a@example.com\",\"city\":\"a\nb\"}", 400, malformed),
        bad("NUL", r#"{"email":"nul@example.com","city":"a\u0000b"}"#, 200, "created"),
        bad("NUL in a key", r#"{"email":"nulkey@example.com","a\u0000":"x","attributes":{"b\u0000c":"d\u0000"}}"#, 200, "created"),
        bad("controls", r#"{"email":"ctl@example.com","city":"\u0001\u001b[31mx","tags":["\u0000"]}"#, 200, "created"),
        bad("bidi", "{\"email\":\"bidi\u{202e}\u{200b}@example.com\",\"city\":\"\u{202e}x\"}", 200, "created"),
        bad("non-character", r#"{"email":"non@example.com","city":"\ufffe"}"#, 200, "created"),
        bad("127 levels", nested(126), 200, "created"),
        bad("128 levels", nested(127), 400, malformed),
        bad("a million brackets", "[".repeat(1_000_000), 400, malformed),
        bad("90,000 members", members("members", 90_000), 200, "created"),
        bad("half a million values", format!("[{}0]", "0,".repeat(500_000)), 200, "too_many_leads"),
        bad("same key twice", r#"{"email":"first@example.com","email":"last@example.com"}"#, 200, "created"),
        bad("1e400", r#"{"email":"a@example.com","n":1e400}"#, 400, malformed),
        bad("1e100000", r#"{"email":"a@example.com","n":1e100000}"#, 400, malformed),
        bad("1e300", r#"{"email":"big@example.com","city":1e300,"attributes":{"n":1e300}}"#, 200, "created"),
        bad("2^64", r#"{"email":"int@example.com","city":18446744073709551616}"#, 200, "created"),
        bad("odd types", r#"{"email":"odd@example.com","first_name":{"a":1},"phone":[1,2],"tags":5,"attributes":"x","marketing_consent":{},"clear":7}"#, 200, "created"),
        bad("odd values", r#"{"email":"val@example.com","phone":"call me","marketing_consent":"perhaps","lifecycle_stage":"king","country":"UK"}"#, 200, "created"),
        bad("long value", format!(r#"{{"email":"long@example.com","city":"{}"}}"#, "x".repeat(20_000)), 200, "created"),
        bad("strange keys", r#"{"email":"keys@example.com","__proto__":{"a":1},"":1,"a.b":2,"EMAIL ":3,"constructor":4}"#, 200, "created"),
        bad("SQL", r#"{"email":"sql@example.com","city":"'); drop table leadsync.leads; --","attributes":{"$1":"'"}}"#, 200, "created"),
        bad("HTML", r#"{"email":"html@example.com","first_name":"<script>alert(1)</script>"}"#, 200, "created"),
        // Addresses
        bad("no address", r#"{"first_name":"secretperson"}"#, 200, "no_email"),
        bad("address null", r#"{"email":null}"#, 200, "no_email"),
        bad("address blank", r#"{"email":" \u00a0"}"#, 200, "no_email"),
        bad("address is an object", r#"{"email":{"a":"b"}}"#, 200, "no_email"),
        bad("address is two", r#"{"email":["a@example.com","b@example.com"]}"#, 200, "no_email"),
        bad("mailto", r#"{"email":"mailto:mailto@example.com?subject=x"}"#, 200, "created"),
        bad("IDN", r#"{"email":"idn@münchen.example"}"#, 200, "created"),
        bad("non-ASCII", r#"{"email":"josé@example.com"}"#, 200, "created"),
        bad("confusable", r#"{"email":"p\u0430t@example.com"}"#, 200, "created"),
        // Times
        bad("no zone", r#"{"email":"zone@example.com","occurred_at":"2026-03-05T14:22:10"}"#, 200, "created"),
        bad("infinity", r#"{"email":"inf@example.com","occurred_at":"infinity"}"#, 200, "created"),
        bad("year 0", r#"{"email":"year0@example.com","occurred_at":"0000-01-01T00:00:00Z"}"#, 200, "created"),
        bad("year 9999", r#"{"email":"year9999@example.com","occurred_at":"9999-12-31T23:59:59Z"}"#, 200, "created"),
        bad("second 60", r#"{"email":"leap@example.com","occurred_at":"2016-12-31T23:59:60Z"}"#, 200, "created"),
        // Content types
        of(None, "no content type", br#"{"email":"none@example.com"}"#, 200, "created"),
        of(Some("text/plain"), "text", br#"{"email":"a@example.com"}"#, 415, "unsupported_media_type"),
        of(Some("application/xml"), "XML", b"<a/>", 415, "unsupported_media_type"),
        of(Some("garbage;;="), "no media type", b"{} ", 415, "unsupported_media_type"),
        of(Some("application/json; charset=iso-8859-1"), "Latin-1", b"{\"email\":\"a@example.com\",\"city\":\"\xe9\"}", 415, "unsupported_media_type"),
        of(Some("application/json; charset=iso-8859-1"), "ASCII as Latin-1", br#"{"email":"latin@example.com"}"#, 200, "created"),
        of(Some("application/json; charset=utf-16"), "UTF-16 as it says", b"{\0}\0", 415, "unsupported_media_type"),
        of(FORM, "form", b"email=form%40example.com&city=x%00y", 200, "created"),
        of(FORM, "form in Latin-1", b"email=a%40example.com&city=%e9", 400, malformed),
        of(FORM, "JSON as a form", br#"{"email":"form@example.org"}"#, 200, "no_email"),
        of(FORM, "2,000 fields", "a=1&".repeat(2000).as_bytes(), 400, malformed),
        of(Some("multipart/form-data; boundary=x"), "multipart", b"--x\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\nmulti@example.com\r\n--x--\r\n", 200, "created"),
        of(Some("multipart/form-data; boundary=x"), "a file", b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nx\r\n--x--\r\n", 400, malformed),
        of(Some("multipart/form-data; boundary=x"), "cut multipart", b"--x\r\nContent-Disp", 400, malformed),
        of(Some("multipart/form-data"), "no boundary", b"x", 400, malformed),
    ];
    for (n, address) in [
        "nobody",
        "a@b@example.com",
        "a@example.com; b@example.com",
        "a@example.com,b@example.com",
        "Ana <a@example.com>",
        "\\\"a b\\\"@example.com",
        "a(x)@example.com",
        "a@[192.0.2.1]",
        "a@192.0.2.1",
        "@example.com",
        ".a@example.com",
        "a..b@example.com",
        "a b@example.com",
        "a@localhost",
        "a@-x.com",
        "a@x..com",
        "a@",
        "a\\u0000@example.com",
        "a@example.com\\r\\nbcc: x@example.com",
        "' or 1=1 --",
        "${jndi:ldap://x}@",
    ]
    .into_iter()
    .enumerate()
    {
        // Bodies are told apart by `n`: the same one would be a repeat.
        let body = format!(r#"{{"email":"{address}","first_name":"secretperson","n":{n}}}"#);
        cases.push(bad("hostile address", body, 200, "invalid_email"));
    }
    for long in [
        format!("{}@example.com", "a".repeat(65)),
        format!("a@{}com", "abcdefgh.".repeat(40)),
        "a".repeat(500_000),
    ] {
        cases.push(bad("long address", format!(r#"{{"email":"{long}"}}"#), 200, "invalid_email"));
    }
    cases
}

#[tokio::test]
async fn bad_bodies_harm_nobody() {
    let app = TestApp::receiving().await;
    let log = Log::record();
    for (n, Bad { name, content_type, body, status, word }) in bad_bodies().into_iter().enumerate()
    {
        let url = format!("{}/hooks/site", app.url);
        let mut request = app.http.post(url).header("x-api-key", "site-key").body(body.clone());
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let answer = bounded(name, request.send()).await.unwrap();
        let got = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        assert_eq!(got, status, "{name}: {text}");
        assert!(!text.contains("secretperson"), "{name} is echoed: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let stored = deliveries(&app, "site").await;
        assert_eq!(stored.len(), n + 1, "{name} is not in the archive");
        let stored = &stored[0];
        assert_eq!(stored.body.as_deref(), Some(&*body), "{name}");
        assert_eq!(usize::try_from(stored.body_bytes).unwrap(), body.len(), "{name}");
        if status != 200 {
            assert_eq!(answer["code"], word, "{name}");
            assert_eq!(
                (&*stored.outcome, stored.reason.as_deref()),
                ("rejected", Some("malformed")),
                "{name}"
            );
        } else if word == "created" {
            assert_eq!(
                (&answer["outcome"], &*stored.outcome),
                (&json!(word), word),
                "{name}: {answer}"
            );
        } else {
            assert_eq!(answer, json!({"outcome": "rejected", "reason": word}), "{name}");
            assert_eq!(
                (&*stored.outcome, stored.reason.as_deref()),
                ("rejected", Some(word)),
                "{name}"
            );
        }
    }
    log.has_no_error();
    assert!(
        !log.text().contains("secretperson") && !log.text().contains("@example"),
        "personal data in the log"
    );

    // What was made of the odd ones.
    for (email, field, value) in [
        ("nul@example.com", "city", json!("ab")),
        ("nulkey@example.com", "attributes", json!({"bc": "d"})),
        ("ctl@example.com", "city", json!("[31mx")),
        ("non@example.com", "city", json!("\u{fffe}")),
        ("bidi@example.com", "email_as_typed", json!("bidi\u{202e}\u{200b}@example.com")),
        ("last@example.com", "email_as_typed", json!("last@example.com")),
        ("big@example.com", "city", Value::Null),
        ("int@example.com", "city", Value::Null),
        ("odd@example.com", "first_name", Value::Null),
        ("val@example.com", "country", json!("UK")),
        ("long@example.com", "city", Value::Null),
        ("sql@example.com", "city", json!("'); drop table leadsync.leads; --")),
        ("html@example.com", "first_name", json!("<script>alert(1)</script>")),
        ("idn@xn--mnchen-3ya.example", "first_source", json!("site")),
        ("form@example.com", "city", json!("xy")),
    ] {
        assert_eq!(lead(&app, email).await["lead"][field], value, "{email}");
    }
    let errors = "select items -> 0 -> 'field_errors' from leadsync.deliveries where position('odd@example'::bytea in body) > 0";
    let errors: Value = app.value(errors).await;
    for field in ["first_name", "phone", "attributes", "clear"] {
        assert!(errors[field].is_string(), "{field}: {errors}");
    }
    let (status, view) = app.get("/v1/leads/pat@example.com").await;
    assert_eq!(status, 404, "confusables stay apart: {view}");
    assert_eq!(outcome(&app.deliver(&json!({"email": "after@example.com"})).await), "created");
}

#[tokio::test]
async fn who_does_not_prove_who_it_is_leaves_nothing() {
    let app = app_with(&[json!({"name": "listed", "kind": "json", "url_token": ["a", "b"]})]).await;
    let log = Log::record();
    let lead = json!({"email": "secretperson@example.com"}).to_string();
    for (path, headers, status, code) in [
        ("/hooks/site", &[][..], 401, "bad_signature"),
        ("/hooks/site", &[("x-api-key", "")], 401, "bad_signature"),
        ("/hooks/site", &[("x-api-key", "site-keY")], 401, "bad_signature"),
        (
            "/hooks/site",
            &[("x-api-key", "site-key"), ("x-api-key", "site-key")],
            401,
            "bad_signature",
        ),
        ("/hooks/site?x-api-key=site-key", &[], 401, "bad_signature"),
        ("/hooks/listed", &[], 401, "bad_signature"),
        ("/hooks/listed?token=", &[], 401, "bad_signature"),
        ("/hooks/listed?token=c", &[("x-api-key", "site-key")], 401, "bad_signature"),
        ("/hooks/listed?token=a&token=a", &[], 401, "bad_signature"),
        ("/hooks/nobody", &[("x-api-key", "site-key")], 404, "not_found"),
        ("/hooks/Site", &[("x-api-key", "site-key")], 404, "not_found"),
        ("/hooks/site%00", &[("x-api-key", "site-key")], 404, "not_found"),
        ("/hooks/api", &[("x-api-key", "site-key")], 404, "not_found"),
        (
            "/hooks/site",
            &[("x-api-key", "site-key"), ("content-encoding", "br")],
            415,
            "unsupported_encoding",
        ),
        (
            "/hooks/site",
            &[("x-api-key", "site-key"), ("content-encoding", "gzip")],
            400,
            "bad_gzip",
        ),
    ] {
        let (got, answer) = app.post(path, headers, lead.clone()).await;
        assert_eq!((got, answer["code"].as_str()), (status, Some(code)), "{path} {headers:?}");
        assert!(answer["request_id"].is_string() && !answer.to_string().contains("secretperson"));
    }
    let hook = format!("{}/hooks/site", app.url);
    assert_eq!(app.http.head(&hook).send().await.unwrap().status(), 200);
    for method in [reqwest::Method::GET, reqwest::Method::PUT, reqwest::Method::DELETE] {
        let answer =
            app.http.request(method, &hook).header("x-api-key", "site-key").send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["allow"]),
            (405, &"HEAD, POST".parse().unwrap())
        );
    }
    assert_eq!(app.value::<i64>("select count(*) from leadsync.deliveries").await, 0);
    assert_eq!(app.value::<i64>("select count(*) from leadsync.leads").await, 0);
    log.has_no_error();
    for private in ["secretperson", "site-key", "site-keY"] {
        assert!(!log.text().contains(private), "{private} in the log");
    }
    for token in ["a", "b"] {
        let answer = app.post(&format!("/hooks/listed?token={token}&x=1"), &[], lead.clone()).await;
        assert_eq!(outcome(&answer), if token == "a" { "created" } else { "unchanged" });
    }
    app.receiver.flush_counts().await;
    let stored = deliveries(&app, "listed").await;
    assert_eq!(stored.len(), 1, "a new token makes no new delivery");
    assert_eq!((stored[0].copies, stored[0].query.as_deref()), (2, Some("x=1")));
}

#[tokio::test]
async fn the_body_of_a_stranger_is_not_read() {
    let basic = json!({"user": "zap", "password": "hush-hush"});
    let app = app_with(&[
        json!({"name": "listed", "kind": "json", "url_token": "long-token"}),
        json!({"name": "basic", "kind": "json", "basic": basic}),
        json!({"name": "both", "kind": "segment", "secret": "s", "url_token": "long-token"}),
    ])
    .await;
    let body = r#"{"email":"a@example.com"}"#;
    for (path, wrong, right) in [
        ("/hooks/site", "\r\nX-Api-Key: other", "\r\nX-Api-Key: site-key"),
        ("/hooks/listed", "", "?token=long-token"),
        (
            "/hooks/basic",
            "\r\nAuthorization: Basic emFwOg==",
            "\r\nAuthorization: Basic emFwOmh1c2gtaHVzaA==",
        ),
        ("/hooks/both", "?token=other", "?token=long-token"),
    ] {
        let head = |proof: &str| {
            let (query, header) = proof.split_at(proof.find('\r').unwrap_or(proof.len()));
            format!(
                "POST {path}{query} HTTP/1.1\r\nHost: x{header}\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            )
        };
        let mut client = Client::connect(app.address).await;
        client.send(head(wrong)).await;
        // Not 100: the body is not even asked for.
        assert_eq!(client.answer().await.problem(401), "bad_signature", "{path}");
        let mut client = Client::connect(app.address).await;
        client.send(head(right)).await;
        assert_eq!(client.head().await.status, 100, "{path}");
        client.send(body).await;
        // A signature is over the body.
        let status = if path.ends_with("both") { 401 } else { 200 };
        assert_eq!(client.answer().await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_large_body_is_refused_however_it_comes() {
    let app = TestApp::receiving().await;
    let log = Log::record();
    let head = "POST /hooks/site HTTP/1.1\r\nHost: x\r\nX-Api-Key: site-key\r\nContent-Type: application/json\r\n";
    let piece = vec![b' '; 1 << 20];
    for framing in ["Content-Length: 20971520\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"] {
        let mut client = Client::connect(app.address).await;
        client.send(format!("{head}{framing}")).await;
        for _ in 0..20 {
            let bytes = if framing.starts_with('T') { chunk(&piece) } else { piece.clone() };
            client.send(bytes).await;
        }
        assert_eq!(client.answer().await.problem(413), "body_too_large", "{framing}");
    }
    let bomb = gzip(&vec![b' '; 20 << 20]);
    let headers = [("x-api-key", "site-key"), ("content-encoding", "gzip")];
    let (status, answer) = app.post("/hooks/site", &headers, bomb).await;
    assert_eq!((status, &answer["code"]), (413, &json!("body_too_large")));
    assert_eq!(app.value::<i64>("select count(*) from leadsync.deliveries").await, 0);

    // One byte less than too much, and one that arrives zipped.
    let lead = r#"{"email":"full@example.com"}"#;
    let full = format!("{lead}{}", " ".repeat((1 << 20) - lead.len()));
    let answer = app.post("/hooks/site", &headers[..1], full.clone()).await;
    assert_eq!(outcome(&answer), "created");
    let answer = app.post("/hooks/site", &headers, gzip(full.as_bytes())).await;
    assert_eq!(outcome(&answer), "unchanged");
    assert_eq!(
        app.value::<i64>("select count(*) from leadsync.deliveries").await,
        1,
        "zipped or not"
    );
    log.has_no_error();
}

#[tokio::test]
async fn a_sender_that_hangs_up_has_delivered() {
    let app = TestApp::receiving().await;
    for n in 0..20 {
        let body = json!({"email": format!("gone{n}@example.com")}).to_string();
        let mut client = Client::connect(app.address).await;
        client
            .send(format!(
                "POST /hooks/site HTTP/1.1\r\nX-Api-Key: site-key\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
    }
    until("the deliveries of those who hung up", async || {
        app.value::<i64>("select count(*) from leadsync.leads").await == 20
    })
    .await;
}

#[tokio::test]
async fn one_bad_lead_of_a_thousand_harms_only_itself() {
    let app = TestApp::receiving().await;
    let mut leads: Vec<Value> =
        (0..1000).map(|n| json!({"email": format!("a{n}@example.com")})).collect();
    leads[500] = json!({"email": "nobody"});
    let (status, answer) = app.deliver(&json!(leads)).await;
    assert_eq!(status, 200);
    let outcomes = answer["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 1000);
    for (n, outcome) in outcomes.iter().enumerate() {
        match n {
            500 => assert_eq!(*outcome, json!({"outcome": "rejected", "reason": "invalid_email"})),
            _ => assert_eq!(outcome["outcome"], "created", "{n}"),
        }
    }
    assert_eq!(app.value::<i64>("select count(*) from leadsync.leads").await, 999);
    let stored = deliveries(&app, "site").await;
    assert_eq!((stored.len(), &*stored[0].outcome), (1, "created"));
    let items = stored[0].items.as_ref().unwrap();
    assert_eq!(items.as_array().unwrap().len(), 1000);
    assert_eq!(items[500]["reason"], "invalid_email");
    let (_, again) = app.deliver(&json!(leads)).await;
    let unchanged =
        again["outcomes"].as_array().unwrap().iter().filter(|o| o["outcome"] == "unchanged");
    assert_eq!(unchanged.count(), 999);
}

// Repeats and time

#[tokio::test]
async fn repeats_are_counted_and_nothing_else() {
    let app = TestApp::receiving().await;
    let lead = json!({"email": "a@example.com", "first_name": "Ana"});
    assert_eq!(outcome(&app.deliver(&lead).await), "created");
    let row = "select l::text from leadsync.leads as l";
    let before: String = app.value(row).await;
    for _ in 0..4 {
        assert_eq!(outcome(&app.deliver(&lead).await), "unchanged");
    }
    let other = app.another("").await;
    assert_eq!(outcome(&other.deliver(&lead).await), "unchanged");
    let rejected = json!({"email": "nobody"});
    for _ in 0..3 {
        assert_eq!(outcome(&app.deliver(&rejected).await), "rejected");
    }
    assert_eq!(app.post("/hooks/site", &[("x-api-key", "site-key")], "{").await.0, 400);
    assert_eq!(app.post("/hooks/site", &[("x-api-key", "site-key")], "{").await.0, 400);
    other.stop().await;
    let (crm, db) = app.stop().await;
    let client = db.client().await;
    let rows = client
        .query("select outcome, copies, last_received_at > received_at from leadsync.deliveries order by copies", &[])
        .await
        .unwrap();
    let rows: Vec<(String, i64, bool)> =
        rows.iter().map(|r| (r.get(0), r.get(1), r.get(2))).collect();
    let rejected = |copies| ("rejected".to_owned(), copies, true);
    assert_eq!(rows, [rejected(2), rejected(3), ("created".to_owned(), 6, true)]);
    let after: String = client.query_one(row, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "byte for byte");
    assert!(crm.calls().is_empty());
}

fn untimed(policy: &str) -> Value {
    let key = json!({"name": "X-Api-Key", "value": "site-key"});
    json!({"name": policy, "kind": "json", "header": key, "untimed": policy})
}

async fn say(app: &TestApp, source: &str, lead: &Value) -> String {
    let key = [("x-api-key", "site-key")];
    let answer = app.post(&format!("/hooks/{source}"), &key, lead.to_string()).await;
    outcome(&answer).to_owned()
}

#[tokio::test]
async fn an_untimed_body_counts_with_the_receipt_of_its_first_copy() {
    let text = toml::to_string(&json!({"source": [untimed("first_receipt")]})).unwrap();
    let app = TestApp::spawn_with(&text, RECEIVE).await;
    let other = app.another(&text).await;
    let company = |name: &str| json!({"email": "a@example.com", "company": name});
    let source = "first_receipt";
    assert_eq!(say(&app, source, &company("First")).await, "created");
    assert_eq!(say(&other, source, &company("Second")).await, "updated");
    let row = "select l::text from leadsync.leads as l";
    let before: String = app.value(row).await;
    for instance in [&app, &other] {
        assert_eq!(say(instance, source, &company("First")).await, "unchanged");
        assert_eq!(say(instance, source, &company("Second")).await, "unchanged");
    }
    other.stop().await;
    let app = app.restarted(&text).await;
    assert_eq!(say(&app, source, &company("First")).await, "unchanged");
    assert_eq!(app.value::<String>(row).await, before, "byte for byte");
    assert_eq!(lead(&app, "a@example.com").await["lead"]["company"], "Second");
}

#[tokio::test]
async fn copies_of_an_untimed_body_race_and_agree() {
    let text = toml::to_string(&json!({"source": [untimed("first_receipt")]})).unwrap();
    let one = TestApp::spawn_with(&text, RECEIVE).await;
    let other = one.another(&text).await;
    for round in 0..5 {
        let lead = json!({"email": "a@example.com", "round": round, "tags": [format!("{round}")]});
        let copies =
            (0..40).map(|n| say(if n % 2 == 0 { &one } else { &other }, "first_receipt", &lead));
        let answers = bounded("the copies", futures_util::future::join_all(copies)).await;
        let changed = answers.iter().filter(|answer| *answer != "unchanged").count();
        assert_eq!(changed, 1, "{answers:?}");
        let agree = "select bool_and(d.first_receipt = l.first_seen_at and d.last_receipt = l.last_seen_at)
            from leadsync.leads as l, (select min(received_at) as first_receipt, max(received_at) as last_receipt
                from leadsync.deliveries where source = 'first_receipt') as d";
        assert!(one.value::<bool>(agree).await, "the lead and the archive tell different times");
    }
    assert_eq!(one.value::<i64>("select version from leadsync.leads").await, 5);
    assert_eq!(one.value::<i64>("select count(*) from leadsync.deliveries").await, 5);
}

#[tokio::test]
async fn other_policies_for_untimed_events() {
    let app = app_with(&[untimed("fill_only"), untimed("last_arrival")]).await;
    let event = |email: &str, company: &str, city: Value| json!({"email": email, "company": company, "city": city});
    let timed = |email: &str| json!({"email": email, "company": "Timed", "occurred_at": "2001-01-01T00:00:00Z"});

    assert_eq!(say(&app, "site", &timed("fill@example.com")).await, "created");
    assert_eq!(
        say(&app, "fill_only", &event("fill@example.com", "Untimed", json!("Recife"))).await,
        "updated"
    );
    let filled = &lead(&app, "fill@example.com").await;
    assert_eq!(
        (&filled["lead"]["company"], &filled["lead"]["city"]),
        (&json!("Timed"), &json!("Recife"))
    );
    assert_eq!(filled["origin"]["city"]["occurred_at"], Value::Null);
    // The other way round, any timed event replaces what only fills.
    assert_eq!(
        say(&app, "fill_only", &event("fill2@example.com", "Untimed", Value::Null)).await,
        "created"
    );
    assert_eq!(say(&app, "site", &timed("fill2@example.com")).await, "updated");
    assert_eq!(lead(&app, "fill2@example.com").await["lead"]["company"], "Timed");

    let (first, second) = (
        event("last@example.com", "First", Value::Null),
        event("last@example.com", "Second", Value::Null),
    );
    assert_eq!(say(&app, "last_arrival", &first).await, "created");
    assert_eq!(say(&app, "last_arrival", &second).await, "updated");
    assert_eq!(say(&app, "last_arrival", &first).await, "updated");
    assert_eq!(lead(&app, "last@example.com").await["lead"]["company"], "First");
}

#[tokio::test]
async fn times_ahead_fill_and_never_overwrite() {
    let app = TestApp::receiving().await;
    let now = jiff::Timestamp::now();
    let at = |time: &str, company: &str, city: Value| json!({"email": "a@example.com", "occurred_at": time, "company": company, "city": city});
    let ahead = |hours: i64| (now + jiff::SignedDuration::from_hours(hours)).to_string();
    assert_eq!(outcome(&app.deliver(&at(&ahead(24), "Ahead", Value::Null)).await), "created");
    assert_eq!(
        outcome(&app.deliver(&at("2020-01-01T00:00:00Z", "Past", Value::Null)).await),
        "updated"
    );
    for time in [
        &*ahead(24),
        &*ahead(24 * 365 * 400),
        "9999-12-31T23:59:59Z",
        "1970-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
    ] {
        let answer = app.deliver(&at(time, "Elsewhen", Value::Null)).await;
        assert_eq!(outcome(&answer), "unchanged", "{time}");
    }
    assert_eq!(outcome(&app.deliver(&at(&ahead(48), "Ahead", json!("Recife"))).await), "updated");
    let view = lead(&app, "a@example.com").await;
    assert_eq!(
        (&view["lead"]["company"], &view["lead"]["city"]),
        (&json!("Past"), &json!("Recife"))
    );
    assert_eq!(view["lead"]["last_seen_at"], "2020-01-01T00:00:00Z");
    // Within the tolerance it is a clock that is a little fast.
    let soon = (now + jiff::SignedDuration::from_mins(2)).to_string();
    assert_eq!(outcome(&app.deliver(&at(&soon, "Soon", Value::Null)).await), "updated");
}

#[tokio::test]
async fn the_less_trusted_fill_and_never_overwrite() {
    let source = |name: &str, trust: u8| json!({"name": name, "kind": "json", "header": {"name": "X-Api-Key", "value": "site-key"}, "trust": trust});
    let app = app_with(&[source("shop", 90), source("widget", 10)]).await;
    let event = |email: &str, year: u16, company: &str, city: Value| {
        json!({"email": email, "occurred_at": format!("{year}-01-01T00:00:00Z"), "company": company, "city": city,
            "attributes": {"plan": company}})
    };
    let shop = |email| event(email, 2020, "Shop", Value::Null);
    let widget = |email| event(email, 2026, "Widget", json!("Recife"));
    assert_eq!(say(&app, "shop", &shop("a@example.com")).await, "created");
    assert_eq!(say(&app, "widget", &widget("a@example.com")).await, "updated");
    assert_eq!(say(&app, "widget", &widget("b@example.com")).await, "created");
    assert_eq!(say(&app, "shop", &shop("b@example.com")).await, "updated");
    for email in ["a@example.com", "b@example.com"] {
        let view = lead(&app, email).await;
        assert_eq!(
            (&view["lead"]["company"], &view["lead"]["city"]),
            (&json!("Shop"), &json!("Recife"))
        );
        assert_eq!(view["lead"]["attributes"]["plan"], "Shop");
        assert_eq!(
            (&view["origin"]["company"]["source"], &view["origin"]["company"]["trust"]),
            (&json!("shop"), &json!(90))
        );
        assert_eq!(
            (&view["origin"]["city"]["source"], &view["origin"]["city"]["trust"]),
            (&json!("widget"), &json!(10))
        );
    }
    // Not even by clearing.
    let clear = json!({"email": "a@example.com", "occurred_at": "2026-02-01T00:00:00Z", "clear": ["company", "city"]});
    assert_eq!(say(&app, "widget", &clear).await, "updated");
    let view = lead(&app, "a@example.com").await;
    assert_eq!((&view["lead"]["company"], &view["lead"]["city"]), (&json!("Shop"), &Value::Null));
}

#[tokio::test]
async fn blanks_never_erase_and_clear_does_here_and_there() {
    let app = TestApp::receiving().await;
    let full = json!({"email": "a@example.com", "occurred_at": "2026-01-01T00:00:00Z", "first_name": "Ana",
        "phone": "+5511912345678", "company": "Aurora", "attributes": {"budget": "10k"}, "tags": ["vip"], "marketing_consent": true});
    assert_eq!(outcome(&app.deliver(&full).await), "created");
    app.drain().await;
    let before = lead(&app, "a@example.com").await["lead"].clone();
    for (day, blank) in
        [Value::Null, json!(""), json!(" \t\u{a0}"), json!([]), json!({})].into_iter().enumerate()
    {
        let event = json!({"email": "a@example.com", "occurred_at": format!("2026-01-{:02}T00:00:00Z", day + 2), "first_name": blank,
            "phone": blank, "company": blank, "attributes": {"budget": blank}, "tags": blank, "marketing_consent": blank, "clear": blank});
        assert_eq!(outcome(&app.deliver(&event).await), "unchanged", "{event}");
    }
    let view = lead(&app, "a@example.com").await;
    assert_eq!(view["version"], 1);
    for field in ["first_name", "phone", "company", "attributes", "tags", "marketing_consent"] {
        assert_eq!(view["lead"][field], before[field], "{field}");
    }
    assert_eq!(app.drain().await.calls, 0, "nothing to tell the CRM");

    let clear = json!({"email": "a@example.com", "occurred_at": "2026-02-01T00:00:00Z", "clear": ["phone", "attributes.budget"]});
    assert_eq!(outcome(&app.deliver(&clear).await), "updated");
    // An old word about what was cleared since does not bring it back.
    let old = json!({"email": "a@example.com", "occurred_at": "2026-01-20T00:00:00Z", "phone": "+5511999999999"});
    assert_eq!(outcome(&app.deliver(&old).await), "unchanged");
    app.drain().await;
    let view = lead(&app, "a@example.com").await;
    assert_eq!((view["lead"].get("phone"), view["lead"].get("attributes")), (None, None));
    assert_eq!(view["origin"]["phone"]["value"], Value::Null);
    assert_eq!(view["origin"]["phone"]["occurred_at"], "2026-02-01T00:00:00Z");
    let call = app.crm.calls().last().unwrap().json();
    assert_eq!(call["inputs"][0]["properties"]["phone"], "", "{call}");
    let contact = &app.crm.contacts(Crm::Hubspot)[0];
    assert!(!contact.properties.contains_key("phone"), "{contact:?}");
    assert_eq!(contact.properties["company"], "Aurora");
}

#[tokio::test]
async fn keeping_nothing_keeps_rejected_bodies() {
    let app = TestApp::spawn_with("[deliveries]\nkeep = \"0\"", RECEIVE).await;
    let key = [("x-api-key", "site-key")];
    for (body, kept) in [
        (r#"{"email":"a@example.com"}"#, false),
        (r#"{"email":"a@example.com","first_name":null}"#, false),
        (r#"{"email":"nobody"}"#, true),
        (r#"{"email":"#, true),
        (r#"[{"email":"b@example.com"},{"email":"nobody"}]"#, true),
    ] {
        app.post("/hooks/site", &key, body).await;
        let stored = &deliveries(&app, "site").await[0];
        assert_eq!(stored.body.as_deref(), kept.then_some(body.as_bytes()), "{body}");
        assert_eq!(usize::try_from(stored.body_bytes).unwrap(), body.len());
    }
    // Repeats are known without a body too.
    app.post("/hooks/site", &key, r#"{"email":"a@example.com"}"#).await;
    assert_eq!(app.value::<i64>("select count(*) from leadsync.deliveries").await, 5);
}
