use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::*;
use crate::config::{self, *};

/// What is said about a text, line by line.
fn refused(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Ok(_) => panic!("nothing was refused in\n{text}"),
        Err(error) => error.to_string().lines().map(str::to_owned).collect(),
    }
}

fn loaded(text: &str) -> Loaded {
    Config::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn with_env(text: &str, vars: &[(&str, &str)]) -> Result<Loaded, String> {
    let vars = vars.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::from_layers(Some((Path::new("l.toml"), text)), vars, &[]).map_err(|e| e.to_string())
}

#[test]
fn the_defaults_stand_alone() {
    let Loaded { config, warnings, .. } = loaded("");
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(config.http.listen, SocketAddr::from(([127, 0, 0, 1], 8080)));
    assert_eq!(config.http.max_body, 1 << 20);
    assert_eq!(config.sync.lease, Duration::from_secs(120));
    assert_eq!(config.deliveries.keep, Duration::from_secs(30 * 86_400));
    assert!(config.database.url.is_none() && config.sources.is_empty());
}

/// The reference with everything in it switched on.
fn uncommented() -> String {
    let setting = |line: &str| {
        let key = line.split([' ', '=']).next().unwrap_or_default();
        line.starts_with('[')
            || line.contains(" = ")
                && !key.is_empty()
                && key.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.')
    };
    let line = |line: &'static str| match line.strip_prefix("# ") {
        Some(inner) if setting(inner) => inner,
        _ => line,
    };
    let text: Vec<&str> = DEFAULTS.lines().map(line).collect();
    // No test may depend on variables that are not there; cargo sets this one.
    let env = |text: &str| {
        let mut parts = text.split("env = \"");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            let rest = part.split_once('"').map_or("", |(_, rest)| rest);
            format!("{text}env = \"CARGO_PKG_NAME\"{rest}")
        })
    };
    env(&text.join("\n"))
}

#[test]
fn the_commented_examples_are_valid() {
    // Only what belongs to kind custom cannot stand beside a built-in kind.
    let text = uncommented().replace("kind = \"typeform\"", "kind = \"custom\"");
    let Loaded { config, .. } = loaded(&text);
    let source = &config.sources[0];
    assert_eq!(source.secret.as_slice().len(), 2);
    assert!(source.fields.contains_key("attributes.budget"));
    for whole in ["'$.data'", "['$.data', '$.more']"] {
        let text = format!(
            "[[source]]\nname = 'a'\nkind = 'json'\nurl_token = 't'\n[source.fields]\nattributes = {whole}\n"
        );
        let fields = Config::parse(&text).unwrap().config.sources.remove(0).fields;
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["attributes"]);
    }
    assert_eq!(config.destinations[0].fields["attributes.budget"].to(), "budget");
}

/// Every key that a struct takes: the reader names them when it meets one that it does not know.
fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let node = Node::loose(&["?"], String::new(), &Place::Nowhere);
    match T::deserialize(Reader(&node)) {
        Err(ReadError { what: What::UnknownKey { expected }, .. }) => expected,
        _ => panic!("an unknown key was taken"),
    }
}

#[test]
fn the_reference_and_the_readme_name_every_key() {
    let readme = include_str!("../../../README.md");
    let tree = tree::parse(&uncommented(), None).unwrap_or_else(|_| panic!("not TOML"));
    let mut named = BTreeSet::new();
    tree.walk(&mut |path, _| {
        named.insert(without_indexes(&path_text(path)));
    });
    let sections = [
        ("", keys::<Config>()),
        ("database.", keys::<Database>()),
        ("http.", keys::<Http>()),
        ("leads.", keys::<Leads>()),
        ("deliveries.", keys::<Deliveries>()),
        ("sync.", keys::<config::Sync>()),
        ("log.", keys::<Log>()),
        ("source.", keys::<Source>()),
        ("source.header.", keys::<HeaderAuth>()),
        ("source.basic.", keys::<BasicAuth>()),
        ("source.signature.", keys::<Signature>()),
        ("destination.", keys::<Destination>()),
    ];
    for (section, keys) in sections {
        for key in keys {
            assert!(named.contains(&format!("{section}{key}")), "{section}{key} is not in there");
            let name =
                if section.is_empty() { format!("{key}.") } else { format!("{section}{key}`") };
            let name = if *key == "data_dir" { "data_dir`".to_owned() } else { name };
            assert!(readme.contains(&format!("`{name}")), "README does not name {name}");
        }
    }
    for key in keys::<FullRule>() {
        assert!(DEFAULTS.contains(&format!("`{key}`")), "{key} is not in there");
    }
}

#[test]
fn layers_lie_over_each_other() {
    let text = "data_dir = 'file'\n[http]\nmax_connections = 7\nmax_body = '2KiB'\n";
    let flag = |key: &str, value: &str| Override {
        flag: "--x".to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let env = [
        ("LEADSYNC_HTTP__MAX_BODY", "3KiB"),
        ("LEADSYNC_HTTP__MAX_CONNECTIONS", "8"),
        ("LEADSYNC_DATABASE__URL", "postgres://u:pw@db/x"),
    ];
    let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let flags = [flag("http.max_connections", "9"), flag("log.format", "json")];
    let file = Some((Path::new("l.toml"), text));
    let loaded = Config::from_layers(file, env.into_iter(), &flags).unwrap();
    let Config { data_dir, http, log, database, .. } = &loaded.config;
    assert_eq!(data_dir, Path::new("file"));
    assert_eq!((http.max_body, http.max_connections), (3 << 10, 9));
    assert_eq!(log.format, LogFormat::Json);
    assert_eq!(database.url.as_ref().unwrap().expose(), "postgres://u:pw@db/x");

    let shown = loaded.show();
    assert!(shown.contains("url = \"[redacted]\"") && !shown.contains("pw@"), "{shown}");
    assert!(shown.contains("max_body = \"3KiB\""), "{shown}");
    assert!(shown.contains("# http.max_body: LEADSYNC_HTTP__MAX_BODY"), "{shown}");
    assert!(shown.contains("# data_dir: l.toml:1:12"), "{shown}");
}

#[test]
fn what_is_shown_can_be_read_again() {
    let text = uncommented().replace("kind = \"typeform\"", "kind = \"custom\"");
    let first = loaded(&text).config.show();
    assert_eq!(loaded(&first).config.show(), first);
}

#[test]
fn everything_wrong_is_named_at_once() {
    let text = "\
[http]
listen = 'localhost:8080'
max_body = 12.5
max_connections = -1
hedaer_timeout = '1s'

[sync]
poll = 5
lease = '2 fortnights'

[log]
format = 'jsn'

[[source]]
name = 'a'
kind = 'custom'
secrt = 'x'
trust = 300
secret = { env = 'LEADSYNC_TEST_UNSET' }
basic = 'zap:hunter2'

[[source]]
kind = 'json'

[[destination]]
name = 'crm'
kind = 'hubspot'
rate = 'fast'
token = { file = '/nonexistent/token' }
";
    let expected = [
        "leadsync.toml:2:10: http.listen: \"localhost:8080\" is not an IP address and a port, like \"127.0.0.1:8080\" or \"[::1]:8080\"",
        "leadsync.toml:3:12: http.max_body: expected a size: a number with KiB, MiB or GiB, in quotes, like \"1MiB\", found a number with a fraction",
        "leadsync.toml:4:19: http.max_connections: -1 is out of range; expected a whole number from 0",
        "leadsync.toml:5:1: unknown key `hedaer_timeout` in [http]; did you mean `header_timeout`?",
        "leadsync.toml:8:8: sync.poll: 5 is not a duration: a number with ms, s, m, h or d, in quotes, like \"30s\"",
        "leadsync.toml:9:9: sync.lease: \"2 fortnights\" is not a duration: a number with ms, s, m, h or d, in quotes, like \"30s\"",
        "leadsync.toml:12:10: log.format: \"jsn\" is not one of text, json; did you mean `json`?",
        "leadsync.toml:17:1: unknown key `secrt` in [[source]]; did you mean `secret`?",
        "leadsync.toml:18:9: source.trust: 300 is out of range; expected a whole number from 0 to 255",
        "leadsync.toml:19:10: source.secret: environment variable LEADSYNC_TEST_UNSET is not set",
        "leadsync.toml:20:9: source.basic: expected a table, found a text",
        "leadsync.toml:22:1: `name` is missing in [[source]]",
        "leadsync.toml:28:8: destination.rate: \"fast\" is not a rate: calls per time, like \"100/10s\"",
        "leadsync.toml:29:9: destination.token: cannot read /nonexistent/token: No such file or directory (os error 2)",
    ];
    assert_eq!(refused(text), expected);
}

#[test]
fn deep_places() {
    let text = "\
[[source]]
name = 'a'
kind = 'custom'
secret = ['x', { env = 'LEADSYNC_TEST_UNSET' }]
[source.fields]
company = { form = '$.a' }
attributes.budget = 5
city = ['$.a',
  7]
";
    let expected = [
        "leadsync.toml:4:16: source.secret: environment variable LEADSYNC_TEST_UNSET is not set",
        "leadsync.toml:6:13: unknown key `form` in [source.fields.company]; did you mean `from`?",
        "leadsync.toml:7:21: source.fields.attributes.budget: expected a JSONPath, a list of them, or { from = ..., via = ... }, found a whole number",
        "leadsync.toml:9:3: source.fields.city: expected a text, found a whole number",
    ];
    assert_eq!(refused(text), expected);
}

#[test]
fn combinations_are_refused_at_their_line() {
    let text = "\
[sync]
call_timeout = '90s'
confirm_after = '90s'
backoff_base = '1h'
schedule = 'hourly'
[leads]
default_region = 'ZZ'
[http]
max_body = '1GiB'
[database]
receive_connections = 1
[deliveries]
keep = 0
[log]
level = 'leadsync=loud'
[[source]]
name = 'Site'
kind = 'json'
trust = 101
untimed = 'first_receipt'
split = '$.x'
[[source]]
name = 'Site'
kind = 'json'
[[destination]]
name = 'crm'
kind = 'webhook'
base_url = 'ftp://x'
concurrency = 0
";
    let refused = refused(text);
    let lines = [
        "3:17: sync.confirm_after",
        "4:16: sync.backoff_base",
        "5:12: sync.schedule",
        "7:18: leads.default_region",
        "9:12: http.max_body",
        "11:23: database.receive_connections",
        "15:9: log.level",
        "17:8: source.name",
        "19:9: source.trust",
        "20:11: source.untimed",
        "21:9: source.split",
        "23:8: source.name: must be",
        "23:8: source.name: there is already",
        "28:12: destination.base_url",
        "29:15: destination.concurrency",
    ];
    for line in lines {
        let start = format!("leadsync.toml:{line}");
        assert!(refused.iter().any(|problem| problem.starts_with(&start)), "{line}\n{refused:#?}");
    }
    // The lease is a default; it is named where the defaults are.
    let lease = refused.iter().find(|problem| problem.contains("sync.lease"));
    assert!(lease.is_some_and(|problem| problem.starts_with("built-in defaults:")), "{lease:?}");
    assert_eq!(refused.len(), lines.len() + 1, "{refused:#?}");
}

#[test]
fn what_is_signed_is_said_whole() {
    let signed = Some("signed: must name {body}");
    let (word, both) = (Some("must be one word"), Some("are both needed"));
    for (signature, refusal) in [
        ("tag = 'v1'\ntimestamp_tag = 't'", None),
        ("tag = 'v1'\nprefix = 'sha256='\ntimestamp_header = 'X-Sig'\ntimestamp_tag = 't'", None),
        ("timestamp_header = 'x-time'\ntimestamp_unit = 'ms'\nsigned = '{time}:{body}'", None),
        ("timestamp_header = 'x-time'\ntimestamp_tag = 't'", None),
        ("prefix = 'HMAC a,b '\nsigned = 'hmacsha256={body}'", None),
        ("signed = 'all of it'", signed),
        ("signed = '{body}{body}'", signed),
        ("signed = '{time}.{body}'", signed),
        ("tag = 'v1'\ntimestamp_tag = 't'\nsigned = '{body}'", signed),
        ("tag = ''", word),
        ("tag = 'v,1'", word),
        ("tag = 'v1='", word),
        ("tag = 'v1'\ntimestamp_tag = 't '", word),
        ("prefix = ' x'", Some("must be visible ASCII")),
        ("prefix = \"a\\nb\"", Some("must be visible ASCII")),
        ("tag = 'v1'\nprefix = 'a,'", Some("without a comma")),
        ("timestamp_tag = 't'", both),
        ("timestamp_header = 'X-Sig'", both),
        ("tag = 'v1'\ntimestamp_header = 'X-Sig'", both),
        ("tag = 't'\ntimestamp_tag = 't'", Some("are the same")),
    ] {
        let text = format!(
            "[[source]]\nname = 'a'\nkind = 'custom'\nsecret = 'x'\nfields.email = '$.e'\n[source.signature]\nheader = 'x-sig'\n{signature}\n"
        );
        match (Config::parse(&text), refusal) {
            (Ok(_), refusal) => assert_eq!(refusal, None, "{signature}"),
            (Err(error), Some(refusal)) => {
                let error = error.to_string();
                assert!(error.contains("source.signature.") && error.contains(refusal), "{error}");
            }
            (Err(error), None) => panic!("{signature}: {error}"),
        }
    }
    for (url, refusal) in [
        ("https://leads.example.com/hooks/a", false),
        ("leads.example.com/hooks/a", true),
        ("https://leads.example.com/hooks/a?token=x", true),
    ] {
        let text = format!("[[source]]\nname = 'a'\nkind = 'json'\npublic_url = '{url}'\n");
        assert_eq!(Config::parse(&text).is_err(), refusal, "{url}");
    }
}

#[test]
fn risky_settings_are_warned_of() {
    let text = "\
[http]
listen = '0.0.0.0:8080'
body_timeout = '1m'
[[source]]
name = 'a'
kind = 'json'
untimed = 'last_arrival'
[[destination]]
name = 'crm'
kind = 'webhook'
base_url = 'http://crm.example/hook'
[[destination]]
name = 'stand-in'
kind = 'webhook'
base_url = 'http://127.0.0.1:9000/hook'
";
    let warnings: Vec<String> = loaded(text).warnings.iter().map(Problem::to_string).collect();
    let lines: Vec<&str> = warnings.iter().filter_map(|w| w.split(": ").next()).collect();
    let expected =
        ["leadsync.toml:2:10", "leadsync.toml:3:16", "leadsync.toml:7:11", "leadsync.toml:11:12"];
    assert_eq!(lines, expected, "{warnings:#?}");
}

#[test]
fn a_syntax_error_quotes_nothing() {
    for text in [
        "[database]\nurl = 'postgres://u:hunter2@db/x\n",
        "[database]\nurl = postgres://u:hunter2@db/x\n",
        "[database]\nurl = \"hunter2\\q\"\n",
        "[database]\nurl = 'hunter2' hunter2\n",
        "[database]\nurl = 'a'\nurl = 'hunter2'\n",
    ] {
        let refused = refused(text);
        assert!(refused[0].starts_with("leadsync.toml:"), "{refused:?}");
        assert!(!refused.join("").contains("hunter2"), "{refused:?}");
    }
    assert!(refused("[database]\nurl = 'a\n")[0].starts_with("leadsync.toml:2:"));
}

#[test]
fn secrets_in_the_wrong_place_are_not_echoed() {
    for text in [
        "[database]\nurl = ['hunter2']",
        "[[source]]\nname = 'a'\nkind = 'json'\nheader = 'hunter2'",
        "[[source]]\nname = 'a'\nkind = 'json'\nsecret = { value = 'hunter2' }",
        "[http]\nadmin_token = { token = 'hunter2' }",
        "database = 'hunter2'",
        "source = 'hunter2'",
    ] {
        let refused = refused(text).join("\n");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
    assert!(!format!("{:?}", loaded("database.url = 'hunter2'")).contains("hunter2"));
}

#[test]
fn the_environment_names_its_mistakes() {
    let error = |name, value| with_env("", &[(name, value)]).map(|_| ()).unwrap_err();
    assert_eq!(
        error("LEADSYNC_HTTP__LISTN", "x"),
        "LEADSYNC_HTTP__LISTN: unknown key `listn` in [http]; did you mean `listen`?"
    );
    assert_eq!(
        error("LEADSYNC_HTPP__LISTEN", "x"),
        "LEADSYNC_HTPP__LISTEN: unknown section `htpp`; did you mean `http`?"
    );
    assert_eq!(
        error("LEADSYNC_HTTP__MAX_CONNECTIONS", "many"),
        "LEADSYNC_HTTP__MAX_CONNECTIONS: http.max_connections: expected a whole number from 0"
    );
    assert!(error("LEADSYNC_SOURCE__NAME", "x").contains("in the file only"));
    assert!(
        error("LEADSYNC_SYNC__LEASE", "1s").starts_with("LEADSYNC_SYNC__LEASE: sync.lease: must")
    );
}

#[test]
fn other_variables_are_left_alone() {
    let text = "[http]\nadmin_token = { env = 'CARGO_PKG_NAME' }\n\
        [[source]]\nname = 'a'\nkind = 'json'\nsecret = 'x'\nurl_token = 'y'\n";
    let vars = [
        ("LEADSYNC_ADMIN_TOKEN", "t"),
        ("LEADSYNC_ANYTHING", "t"),
        ("PATH", "/bin"),
        ("leadsync_http__listen", "x"),
    ];
    assert!(with_env(text, &vars).unwrap().warnings.is_empty());
    // A secret can be said to be elsewhere, too.
    let elsewhere = with_env("", &[("LEADSYNC_DATABASE__URL__ENV", "CARGO_PKG_NAME")]).unwrap();
    assert_eq!(elsewhere.config.database.url.unwrap().expose(), "leadsync");
    // Named by the file, so not a setting.
    let text = "[database]\nurl = { env = 'LEADSYNC_TEST__UNSET' }\n";
    let error = with_env(text, &[("LEADSYNC_TEST__UNSET", "t")]).map(|_| ()).unwrap_err();
    assert_eq!(
        error,
        "l.toml:2:7: database.url: environment variable LEADSYNC_TEST__UNSET is not set"
    );
    // One underscore too few is likely a slip.
    let warnings = with_env("", &[("LEADSYNC_HTTP_LISTEN", "x")]).unwrap().warnings;
    assert!(warnings[0].to_string().contains("two underscores"), "{warnings:?}");
}

#[test]
fn files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my.toml");
    let load = || Config::load_from(Some(&path), std::iter::empty(), &[]);
    assert!(matches!(load(), Err(ConfigError::Unreadable { .. })));
    std::fs::write(&path, "\u{feff}data_dir = 'x'\r\n[http]\r\nlisten = 1\r\n").unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("my.toml:3:10: http.listen"), "{error}");
    std::fs::write(&path, b"data_dir = 'x'\n# \xff\n").unwrap();
    assert!(load().unwrap_err().to_string().ends_with("my.toml:2:1: not UTF-8"));
}

#[test]
fn later_problems_find_their_line() {
    let text = "[[source]]\nname = 'a'\nkind = 'json'\n[source.fields]\nattributes.x = '$.['\n";
    let loaded = loaded(text);
    let at = |path: &str| loaded.problem(path, "x").to_string();
    assert_eq!(at("source[0].fields.attributes.x"), "leadsync.toml:5:16: x");
    assert_eq!(at("source[0].kind"), "leadsync.toml:3:8: x");
    assert_eq!(at("source[0].secret"), "leadsync.toml:1:1: x");
    assert_eq!(at("nowhere"), "configuration: x");
}

proptest::proptest! {
    /// Whatever is done to a file, it is loaded or refused with sentences.
    #[test]
    fn no_file_makes_it_panic(
        cuts in proptest::collection::vec((0_usize..9000, 0_usize..40, "[\\[\\]{}='\"a-z0-9.#\n -]{0,6}"), 1..6)
    ) {
        let mut text = uncommented();
        for (at, length, instead) in cuts {
            let at = text.floor_char_boundary(at);
            let end = text.floor_char_boundary(at + length);
            text.replace_range(at..end, &instead);
        }
        if let Err(error) = Config::parse(&text) {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
    }
}
