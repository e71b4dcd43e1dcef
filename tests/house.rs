//! The rules of the house, by text search: who may import whom, which room owns which crate, and
//! that nothing lies around unused. A new edge is a visible line in the tables below.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use leadsync::sources::SOURCES;

/// Which rooms a room may use besides [`EVERYONES`].
const ROOMS: [(&str, &[&str]); 18] = [
    ("error", &[]),
    ("secret", &[]),
    ("stop", &[]),
    ("lead", &[]),
    ("config", &[]),
    // Must not share a mistake with the destination that it tests.
    ("fake_crm", &[]),
    ("private_pg", &[]),
    ("mapping", &["lead"]),
    ("telemetry", &["config"]),
    ("destinations", &["config", "lead"]),
    ("store", &["config", "lead"]),
    ("sources", &["config", "lead", "mapping"]),
    ("receive", &["config", "lead", "mapping", "sources", "store"]),
    ("import", &["config", "lead", "mapping", "receive", "sources"]),
    ("sync", &["config", "destinations", "lead", "store"]),
    (
        "fetch",
        &["config", "destinations", "lead", "mapping", "receive", "sources", "store", "sync"],
    ),
    ("http", &["config", "lead", "mapping", "receive", "sources", "store"]),
    ("serve", &["config", "http"]),
];

/// Rooms that any other may use.
const EVERYONES: [&str; 3] = ["error", "secret", "stop"];

/// What wires things up and may use everything.
const WIRING: [&str; 5] = ["app", "cli", "main", "lib", "build"];

/// Crates with an owner: a file, or a room with everything in it.
const OWNERS: [(&str, &[&str]); 36] = [
    ("async_trait", &["app/connected", "destinations", "fetch"]),
    ("chardetng", &["import"]),
    ("clap", &["cli"]),
    ("comfy_table", &["cli/report"]),
    ("cronexpr", &["config", "sync"]),
    ("csv", &["cli/report"]),
    ("csv_core", &["import"]),
    ("deadpool_postgres", &["store"]),
    ("encoding_rs", &["import", "cli/import"]),
    ("encoding_rs_io", &["import"]),
    ("flate2", &["http"]),
    ("hmac", &["sources", "cli/demo"]),
    ("hyper", &["serve", "fake_crm"]),
    ("hyper_util", &["serve", "fake_crm"]),
    ("idna", &["lead"]),
    ("indicatif", &["cli"]),
    ("multer", &["sources"]),
    ("nix", &["private_pg"]),
    ("percent_encoding", &["destinations/client", "fake_crm", "http"]),
    ("phonenumber", &["lead", "config"]),
    ("refinery", &["store"]),
    ("reqwest", &["destinations/client", "fetch/client", "cli/demo", "cli/send"]),
    ("ring", &["destinations/tokens", "store/tls"]),
    ("rustls", &["destinations/client", "store", "cli/demo"]),
    ("rustls_native_certs", &["destinations/client", "store"]),
    ("serde_json_path", &["mapping", "sources"]),
    ("sha1", &["sources"]),
    ("standardwebhooks", &["sources", "destinations", "fake_crm"]),
    ("subtle", &["http", "sources"]),
    ("tokio_postgres", &["store"]),
    ("tokio_postgres_rustls", &["store"]),
    ("toml", &["config"]),
    ("tower", &["serve"]),
    ("tracing_subscriber", &["telemetry", "config"]),
    ("unicode_normalization", &["lead", "sources"]),
    ("warp", &["http"]),
];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] =
    ["util", "utils", "common", "helper", "helpers", "manager", "misc", "mod"];

/// Left behind in a hurry. In two halves, so that this file does not find itself.
const UNFINISHED: [&str; 4] = [
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("#[ig", "nore"),
    concat!("db", "g!("),
];

/// Everything wrong with the imports of one file; `path` is relative to `src`, without `.rs`.
fn imports(path: &str, text: &str) -> Vec<String> {
    let room = path.split('/').next().unwrap_or(path);
    let wiring = WIRING.contains(&room);
    let may: &[&str] = match ROOMS.iter().find(|(name, _)| *name == room) {
        Some((_, rooms)) => rooms,
        None if wiring => &[],
        None => return vec![format!("{path}: room `{room}` is not in ROOMS")],
    };
    let code = code(text);
    let mut wrong = Vec::new();
    for used in rooms_used(&code) {
        let used = used.as_str();
        if !wiring && used != room && !may.contains(&used) && !EVERYONES.contains(&used) {
            wrong.push(format!("{path}: `{room}` may not use `{used}`"));
        }
    }
    // As many as lead out of the room.
    let upwards = "super::".repeat(path.matches('/').count() + 1);
    if code.contains(&upwards) {
        wrong.push(format!("{path}: write `crate::` instead of `{upwards}`"));
    }
    for (name, owners) in OWNERS {
        let owned = owners.iter().any(|o| path == *o || path.starts_with(&format!("{o}/")));
        if names_crate(&code, name) && !owned {
            wrong.push(format!("{path}: `{name}` belongs to {}", owners.join(", ")));
        }
    }
    wrong
}

/// The text without comments and without the unit tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Rooms after `crate::`, also in `crate::{a::B, c}`.
fn rooms_used(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let mut rooms: Vec<String> = Vec::new();
    for after in code.split("crate::").skip(1) {
        let Some(group) = after.strip_prefix('{') else {
            rooms.push(word(after));
            continue;
        };
        let (mut depth, mut start) = (0, true);
        for (at, c) in group.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    rooms.push(word(&group[at..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    rooms
}

/// Whether a path begins with the crate's name: `warp::x`, not `crate::warp::x` or `my_warp::x`.
fn names_crate(code: &str, name: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    code.contains(&format!("use {name};"))
        || code
            .match_indices(&format!("{name}::"))
            .any(|(at, _)| !code[..at].trim_end_matches("::").ends_with(inside))
}

/// Every file under a folder of the repository, by path from the folder; lossy text.
fn files(folder: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        // A folder that is not there has no files.
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                found.insert(name, text);
            }
        }
    }
    found
}

/// Rust files of `src`, by path without `.rs`.
fn sources() -> Vec<(String, String)> {
    let rust = |(path, text): (String, String)| Some((path.strip_suffix(".rs")?.to_owned(), text));
    files("src").into_iter().filter_map(rust).collect()
}

fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn rooms_use_only_whom_they_may() {
    let code = sources().into_iter().filter(|(path, _)| !path.ends_with("/tests"));
    none(code.flat_map(|(path, text)| imports(&path, &text)).collect());
}

#[test]
fn nothing_unfinished_and_no_empty_names() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests"] {
        for (path, text) in files(folder).into_iter().filter(|(path, _)| path.ends_with(".rs")) {
            let marks = UNFINISHED.into_iter().filter(|mark| text.contains(mark));
            wrong.extend(marks.map(|mark| format!("{folder}/{path}: {mark}")));
            let stem = Path::new(&path).file_stem().and_then(|stem| stem.to_str());
            if stem.is_some_and(|stem| EMPTY_NAMES.contains(&stem)) {
                wrong.push(format!("{folder}/{path}: a name that says nothing"));
            }
        }
    }
    none(wrong);
}

/// Macros that panic when nobody reads on, which `leadsync serve 2>&1 | head` is enough for.
#[test]
fn nothing_prints_but_what_survives_a_closed_pipe() {
    let mut wrong = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path != "build") {
        let code = code(&text);
        let printed = ["print!(", "println!(", "eprint!(", "eprintln!("];
        let found = printed.into_iter().filter(|mark| names_macro(&code, mark));
        wrong.extend(found.map(|mark| format!("src/{path}.rs: {mark}")));
    }
    none(wrong);
}

fn names_macro(code: &str, mark: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(mark).any(|(at, _)| !code[..at].ends_with(inside))
}

/// Files that `include_str!` names, relative to the repository, once per mention.
fn included(path: &str, text: &str) -> Vec<String> {
    let resolve = |mention: &str| {
        let mut whole = Path::new("src").join(path).parent().map_or(PathBuf::new(), Path::to_owned);
        for part in mention.split('/') {
            match part {
                ".." => drop(whole.pop()),
                part => whole.push(part),
            }
        }
        whole.display().to_string()
    };
    let mentions = text.split("include_str!(").skip(1).filter_map(|rest| rest.split('"').nth(1));
    mentions.map(resolve).collect()
}

#[test]
fn every_statement_is_used_once_and_explained() {
    let used: Vec<String> =
        sources().iter().flat_map(|(path, text)| included(path, text)).collect();
    let mut wrong = Vec::new();
    // Dashboards are documents of their own format.
    for (path, text) in files("sql").into_iter().filter(|(path, _)| path.ends_with(".sql")) {
        let times = used.iter().filter(|used| **used == format!("sql/{path}")).count();
        if times != 1 {
            wrong.push(format!("sql/{path} is included {times} times"));
        }
        if !text.starts_with("-- ") {
            wrong.push(format!("sql/{path} does not open with a -- comment"));
        }
    }
    none(wrong);
}

/// The number of `V12__word.sql`.
fn migration(name: &str) -> Option<u32> {
    let (number, word) = name.strip_prefix('V')?.strip_suffix(".sql")?.split_once("__")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let good = !word.is_empty() && word.chars().all(plain) && !number.starts_with('0');
    number.parse().ok().filter(|_| good)
}

#[test]
fn migrations_are_numbered_without_gaps() {
    let files = files("migrations");
    // refinery only warns of a file whose name it cannot read.
    let bad = files.keys().filter(|name| migration(name).is_none());
    none(bad.map(|name| format!("migrations/{name} is not V<number>__<word>.sql")).collect());
    let mut numbers: Vec<u32> = files.keys().filter_map(|name| migration(name)).collect();
    numbers.sort_unstable();
    let expected: Vec<u32> = (1..).take(numbers.len()).collect();
    assert_eq!(numbers, expected);
}

/// Payloads without the lead that is expected of them, and leads without a payload.
fn unpaired<'a>(kind: &str, fixtures: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let of_kind = fixtures.filter_map(|name| name.strip_prefix(kind)?.strip_prefix('/'));
    let stem = |name: &str, ends: &[&str]| {
        let cut = ends.iter().find_map(|end| name.strip_suffix(end));
        cut.filter(|stem| !stem.contains('.')).map(str::to_owned)
    };
    let leads: BTreeSet<String> =
        of_kind.clone().filter_map(|name| stem(name, &[".lead.json"])).collect();
    let payloads: BTreeSet<String> =
        of_kind.filter_map(|name| stem(name, &[".json", ".body"])).collect();
    if payloads.is_empty() {
        return vec![format!("there is no payload in tests/fixtures/sources/{kind}/")];
    }
    let odd = leads.symmetric_difference(&payloads);
    odd.map(|stem| {
        format!("tests/fixtures/sources/{kind}/{stem} lacks its payload or its .lead.json")
    })
    .collect()
}

#[test]
fn every_source_kind_has_payloads_with_their_leads() {
    let fixtures = files("tests/fixtures/sources");
    let names = fixtures.keys().map(String::as_str);
    none(SOURCES.iter().flat_map(|source| unpaired(source.kind, names.clone())).collect());
    let folder = |name: &str| name.split_once('/').map(|(folder, _)| folder.to_owned());
    let folders: BTreeSet<String> = names.filter_map(folder).collect();
    let strangers = folders.iter().filter(|folder| !SOURCES.iter().any(|s| s.kind == **folder));
    none(
        strangers.map(|folder| format!("tests/fixtures/sources/{folder}/ is of no kind")).collect(),
    );
}

#[test]
fn the_tables_above_speak_of_what_is_there() {
    let paths: Vec<String> = sources().into_iter().map(|(path, _)| path).collect();
    let owners = OWNERS.iter().flat_map(|(_, owners)| owners.iter());
    let named = ROOMS.iter().map(|(room, _)| room).chain(owners).chain(&WIRING);
    let gone = named.filter(|name| !paths.iter().any(|path| path == *name));
    none(gone.map(|name| format!("there is no src/{name}.rs")).collect());
    let manifest = include_str!("../Cargo.toml").replace('-', "_");
    let crates = OWNERS.iter().map(|(name, _)| name);
    let gone = crates.filter(|name| !manifest.contains(&format!("\n{name} = ")));
    none(gone.map(|name| format!("Cargo.toml does not name {name}")).collect());
}

#[test]
fn the_readme_names_every_command() {
    let readme = include_str!("../README.md");
    let command = |(path, _): (String, String)| {
        let name = path.strip_prefix("cli/").filter(|name| !name.contains('/'))?;
        Some(format!("leadsync {}", name.replace('_', "-")))
    };
    let missing = sources().into_iter().filter_map(command).filter(|name| !readme.contains(name));
    none(missing.map(|name| format!("README does not name `{name}`")).collect());
}

/// The checks can fail.
mod checks {
    use super::*;

    #[test]
    fn imports_are_found() {
        for (path, text) in [
            ("sources/tally", "use crate::store::Store;"),
            ("sync", "use crate::{\n    lead::{Lead, Field},\n    http,\n};"),
            ("lead/phone", "fn f() { crate::config::x() }"),
            ("receive", "let row: tokio_postgres::Row;"),
            ("receive", "use ::warp::Filter;"),
            ("destinations/hubspot", "use reqwest::Client;"),
            ("sync/step", "use super::super::http;"),
            ("sync", "use super::http;"),
            ("attic", ""),
        ] {
            assert_eq!(imports(path, text).len(), 1, "{path}: {text}");
        }
        for (path, text) in [
            ("sources/tally", "use crate::{error::Chain, lead::{Lead, Field}};"),
            ("destinations/client", "use reqwest::Client; use crate::destinations::CallError;"),
            ("lead", "/// As crate::store has it.\n// warp::x"),
            ("app", "use crate::{http, sync, store};"),
            ("receive", "crate::sources::warp::x(); my_warp::x(); hyper_text::y();"),
            ("fake_crm/hubspot/read", "use super::super::exchange;"),
            ("sync", "#[cfg(test)]\nmod tests { use super::*; use crate::fake_crm; }"),
        ] {
            assert_eq!(imports(path, text), Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn statements_migrations_and_fixtures_are_found() {
        let text = "const A: &str = include_str!(\n    \"../../sql/leads/upsert.sql\");";
        assert_eq!(included("store/leads", text), ["sql/leads/upsert.sql"]);
        assert_eq!(migration("V12__analytics_views.sql"), Some(12));
        assert!(names_macro("    println!(\"x\");", "println!("));
        assert!(!names_macro("eprintln!(); my_println!();", "println!("));
        for name in ["V01__x.sql", "V1_x.sql", "v1__x.sql", "V1__.sql", "V1__X.sql", "U1__x.sql"] {
            assert_eq!(migration(name), None, "{name}");
        }
        let fixtures =
            ["a/1.json", "a/1.headers", "a/1.lead.json", "b/2.body", "b/3.lead.json", "ab/4.json"];
        for (kind, wrong) in [("a", 0), ("b", 2), ("c", 1)] {
            assert_eq!(unpaired(kind, fixtures.into_iter()).len(), wrong, "{kind}");
        }
    }
}
