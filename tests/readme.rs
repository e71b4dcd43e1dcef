//! What the README says is true: its configurations compile, its commands exist, its tables are those of the code, and the
//! five-minute tour is executed as it stands there, with the real program. SQL is tested in `it/readme.rs`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leadsync::app;
use leadsync::config::Config;
use leadsync::destinations::DESTINATIONS;
use leadsync::lead::merge::LIFECYCLE_STAGES;
use leadsync::lead::{Field, Outcome};
use leadsync::mapping::{Target, Via};
use leadsync::sources::{Auth, Item, Request, SOURCES, Verified};
use leadsync::store::reports::REPORTS;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const README: &str = include_str!("../README.md");

/// How long anything may take that the tour waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fenced block.
struct Block {
    /// The `##` heading above it.
    section: String,
    /// The `###` heading above it, if any.
    part: String,
    lang: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let (mut section, mut part) = (String::new(), String::new());
    let mut blocks = Vec::new();
    let mut lines = README.lines();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            (section, part) = (heading.to_owned(), String::new());
        } else if let Some(heading) = line.strip_prefix("### ") {
            part = heading.to_owned();
        } else if let Some(lang) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let (section, part) = (section.clone(), part.clone());
            blocks.push(Block {
                section,
                part,
                lang: lang.to_owned(),
                text: text.join("\n") + "\n",
            });
        }
    }
    blocks
}

/// The rows of the table whose first heading is this, cell by cell.
fn table(first: &str) -> Vec<Vec<String>> {
    let heading = format!("| {first} |");
    let mut lines = README.lines().skip_while(|line| !line.starts_with(&heading)).skip(2);
    let rows = lines.by_ref().take_while(|line| line.starts_with('|'));
    let cells =
        |row: &str| row.trim_matches('|').split(" | ").map(|c| c.trim().to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "no table begins with {first}");
    rows
}

/// Texts between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn named(rows: &[Vec<String>]) -> Vec<&str> {
    rows.iter().flat_map(|row| spans(&row[0])).collect()
}

/// The text with every `{ env = "NAME" }` replaced by a secret of its own that any kind takes.
fn with_secrets(text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{ env = \"") {
        let (name, after) = after.split_once("\" }").expect("an end of { env = … }");
        whole += before;
        whole += &format!("\"whsec_{}\"", STANDARD.encode(format!("{name:-<32}")));
        rest = after;
    }
    whole + rest
}

fn parse(text: &str) -> Config {
    match Config::parse(&with_secrets(text)) {
        Ok(loaded) => loaded.config,
        Err(error) => panic!("{error}\n{text}"),
    }
}

#[test]
fn configurations_compile() {
    let mut kinds = BTreeSet::new();
    for block in blocks().into_iter().filter(|block| block.lang == "toml") {
        let config = parse(&block.text);
        let of =
            |what: &dyn std::fmt::Display| format!("{}, {}: {what}", block.section, block.part);
        let sources = app::sources(&config).unwrap_or_else(|error| panic!("{}", of(&error)));
        kinds.extend(sources.iter().map(|source| source.kind));
        kinds.extend(config.destinations.iter().map(|d| {
            DESTINATIONS.iter().find(|kind| kind.name == d.kind).map_or("", |kind| kind.name)
        }));
        app::destinations(&config).map(|_| ()).unwrap_or_else(|error| panic!("{}", of(&error)));
    }
    for kind in SOURCES.iter().map(|s| s.kind).chain(DESTINATIONS.iter().map(|d| d.name)) {
        assert!(kinds.contains(kind), "there is no example of kind {kind}");
    }
}

/// Every `leadsync …` between backticks and in blocks of shell.
fn command_lines() -> Vec<String> {
    let mut lines = Vec::new();
    let mut fenced = false;
    for line in README.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let commands = spans(line).filter(|span| span.starts_with("leadsync "));
            lines.extend(commands.map(str::to_owned));
            if let Some(rest) = line.strip_prefix("| `leadsync ") {
                // The table of commands has their flags in the second column.
                let flags = rest.split('`').skip(2).step_by(2);
                let flags = flags.filter(|span| span.starts_with("--"));
                let command = rest.split('`').next().unwrap_or_default();
                lines.extend(flags.map(|flag| format!("leadsync {command} {flag}")));
            }
        }
    }
    for block in blocks().iter().filter(|block| ["sh", "cron"].contains(&block.lang.as_str())) {
        let at = block.text.match_indices("leadsync ").map(|(at, _)| &block.text[at..]);
        let command = |text: &str| text.split(['\n', '|', '"']).next().unwrap_or("").to_owned();
        lines.extend(at.map(command));
    }
    lines
}

fn help(command: &[&str]) -> String {
    let mut leadsync = Command::new(env!("CARGO_BIN_EXE_leadsync"));
    let output = leadsync.args(command).arg("--help").output().expect("run leadsync");
    assert!(output.status.success(), "leadsync {command:?} --help fails");
    String::from_utf8(output.stdout).expect("help is text")
}

#[test]
fn commands_and_flags_exist() {
    let overview = help(&[]);
    let mut seen = BTreeSet::new();
    for line in command_lines() {
        let mut words = line.split_whitespace().skip(1).peekable();
        let Some(command) =
            words.next_if(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
        else {
            continue;
        };
        let listed = overview.lines().any(|line| line.split_whitespace().next() == Some(command));
        assert!(listed, "there is no command `{line}`");
        seen.insert(command.to_owned());
        let text = help(&[command]);
        let known =
            |flag: &str| text.split([' ', ',', '\n', '[', '<', '|']).any(|word| word == flag);
        for flag in words.clone().filter(|word| word.starts_with("--")) {
            assert!(known(flag), "`{line}`: no flag {flag}");
        }
        if let Some((_, role)) = line.split_once("--only ") {
            let role = role.split_whitespace().next().unwrap_or_default();
            assert!(text.contains(&format!("- {role}:")), "`{line}`: no role {role}");
        }
    }
    let commands = table("command");
    let tabled: Vec<&str> =
        named(&commands).iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let listed =
        overview.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    for command in listed.filter_map(|line| line.split_whitespace().next()) {
        assert!(command == "help" || tabled.contains(&command), "no row for leadsync {command}");
        assert!(command == "help" || seen.contains(command));
    }
}

#[test]
fn tables_are_those_of_the_code() {
    let kinds = table("kind");
    assert_eq!(named(&kinds), SOURCES.iter().map(|source| source.kind).collect::<Vec<_>>());
    for (row, source) in kinds.iter().zip(SOURCES) {
        assert_eq!(row[1], source.title);
        let proof = match source.auth {
            Auth::Signed(_) => "`secret`",
            Auth::Unsigned => "`url_token`, `header` or `basic`",
            Auth::Written => "`signature` with `secret`, or `url_token`, `header`, `basic`",
        };
        assert_eq!(row[2], proof, "{}", source.kind);
    }
    let targets = table("target");
    let targets: BTreeSet<&str> = named(&targets).into_iter().collect();
    assert_eq!(targets, BTreeSet::from(Target::NAMES));
    let conversions: Vec<[String; 2]> =
        Via::ALL.iter().map(|via| [format!("`{}`", via.name()), via.what().to_owned()]).collect();
    assert_eq!(table("conversion"), conversions);
    let destinations: Vec<[String; 2]> =
        DESTINATIONS.iter().map(|d| [format!("`{}`", d.name), d.summary.to_owned()]).collect();
    assert_eq!(table("destination"), destinations);
    let reports = table("report");
    assert_eq!(reports.len(), REPORTS.len());
    for (row, report) in reports.iter().zip(REPORTS) {
        let names: Vec<&str> = report.parameters().iter().map(|p| p.name).collect();
        assert_eq!(row[0], format!("`{}`", report.name));
        assert_eq!(format!("{}.", row[1]), report.title(), "{}", report.name);
        assert_eq!(spans(&row[2]).collect::<Vec<_>>(), names, "{}", report.name);
    }
    for stage in LIFECYCLE_STAGES {
        assert!(README.contains(&format!("`{stage}`")), "{stage}");
    }
    let outcomes = table("outcome");
    for outcome in named(&outcomes) {
        assert!(Outcome::parse(outcome).is_some(), "{outcome}");
    }
    assert_eq!(outcomes.len(), 6);
    for policy in named(&table("`untimed`")) {
        let text = "[[source]]\nname = 'a'\nkind = 'json'\nurl_token = 'x'\nuntimed = ";
        parse(&format!("{text}'{policy}'"));
    }
    assert_eq!(table("`untimed`").len(), 3);
}

#[test]
fn fields_of_hubspot_are_its_own() {
    let config = parse("[[destination]]\nname = 'h'\nkind = 'hubspot'\ntoken = 'x'");
    let built = app::destinations(&config).expect("a destination");
    let mut fields: Vec<[String; 2]> = table("value of the lead")
        .iter()
        .map(|row| [0, 1].map(|at| row[at].trim_matches('`').to_owned()))
        .collect();
    fields.sort_by(|a, b| a[1].cmp(&b[1]));
    let own = built[0].fields.iter().map(|f| [f.value.clone(), f.property.clone()]);
    assert_eq!(fields, own.collect::<Vec<_>>());
    for field in Field::ALL {
        assert!(Target::NAMES.contains(&field.name()));
    }
}

#[test]
fn defaults_are_those_of_the_program() {
    fn walk(path: &str, value: &toml::Value, found: &mut Vec<(String, String)>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    walk(&path, value, found);
                }
            }
            value => found.push((path.to_owned(), value.to_string())),
        }
    }
    let mut defaults = Vec::new();
    let text = include_str!("../src/config.default.toml");
    walk("", &toml::Value::Table(text.parse().expect("TOML")), &mut defaults);
    for (setting, default) in defaults {
        let row = format!("| `{setting}` | `{default}` |");
        assert!(README.contains(&row), "the README has no row {row}");
    }
}

/// The codes of problems in a room of the program: the first text after each call that makes one.
fn problem_codes(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or(text);
    let makers = ["HttpError::new(", "::bad_request(", "::unprocessable(", "::unavailable("];
    let calls = makers.iter().flat_map(|maker| text.split(maker).skip(1));
    let code = |call: &str| {
        let first = call.split('"').nth(1)?;
        // The makers' own definitions hand a variable on.
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        let before = call.split('"').next().unwrap_or_default();
        let direct = !before.contains(';') && !before.contains(')');
        (direct && first.chars().all(plain)).then(|| first.to_owned())
    };
    calls.filter_map(code).collect()
}

#[test]
fn problem_codes_are_those_of_the_program() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rooms = std::fs::read_dir(src.join("http")).expect("src/http");
    let mut files: Vec<PathBuf> = rooms.map(|entry| entry.expect("a file").path()).collect();
    files.push(src.join("serve.rs"));
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("a source file");
    let codes: BTreeSet<String> =
        files.iter().flat_map(|path| problem_codes(&read(path))).collect();
    let table = table("status");
    let told: BTreeSet<String> =
        table.iter().flat_map(|row| spans(&row[1])).map(str::to_owned).collect();
    assert_eq!(told, codes);
}

#[test]
fn links_lead_somewhere() {
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    let anchors: BTreeSet<String> = README
        .lines()
        .filter_map(|line| {
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
        })
        .map(anchor)
        .collect();
    for link in README.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        match link.strip_prefix('#') {
            Some(name) => assert!(anchors.contains(name), "no heading for #{name}"),
            None if link.starts_with("https://") => {}
            None => assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(link).exists(), "{link}"),
        }
    }
}

#[test]
fn the_import_shows_what_it_is_said_to_show() {
    let blocks = blocks();
    let of = |lang: &str| {
        let mut found = blocks.iter().filter(|b| b.section == "Import" && b.lang == lang);
        found.next().unwrap_or_else(|| panic!("no {lang}")).text.clone()
    };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("contacts.csv"), of("csv")).expect("the file");
    let command = of("sh").replace('\'', "").replace("leadsync ", "");
    let mut leadsync = Command::new(env!("CARGO_BIN_EXE_leadsync"));
    let output = leadsync.args(command.split_whitespace()).current_dir(folder.path()).output();
    let output = output.expect("run leadsync");
    assert_eq!(output.status.code(), Some(1), "one line is refused");
    // The faults are on stderr, before the last line.
    let told = String::from_utf8(output.stdout).expect("text");
    let (before, last) = told.trim_end().rsplit_once('\n').expect("two lines");
    let faults = String::from_utf8(output.stderr).expect("text");
    assert_eq!(format!("{before}\n{faults}{last}\n"), of("text"));
}

#[test]
fn the_custom_example_reads_its_payload() {
    let blocks = blocks();
    let of = |lang: &str| {
        let mut found = blocks.iter().filter(|b| b.part.starts_with("custom") && b.lang == lang);
        found.next().unwrap_or_else(|| panic!("no {lang}")).text.clone()
    };
    let sources = app::sources(&parse(&of("toml"))).expect("compiles");
    let request = Request {
        method: "POST".to_owned(),
        query: String::new(),
        headers: vec![("x-event-id".to_owned(), "e1".to_owned())],
        body: of("json").into(),
    };
    let items = sources[0].read(&Verified::stored(request)).expect("readable");
    let [Item::Lead(lead)] = items.as_slice() else { panic!("{items:?}") };
    assert!(lead.field_errors.is_empty(), "{:?}", lead.field_errors);
    let field = |field: Field| lead.fields[&field].value().expect("set").to_owned();
    assert_eq!(lead.email.as_str(), "ana@example.com");
    assert_eq!(field(Field::LastName), "da Silva");
    assert_eq!(field(Field::Phone), "+5511912345678");
    assert_eq!(field(Field::LifecycleStage), "lead");
    assert_eq!(lead.consent.map(|consent| consent.granted), Some(true));
    assert_eq!(lead.tags.len(), 2);
    assert_eq!(lead.touch.utm_source.as_deref(), Some("ads"));
    assert_eq!(lead.occurred_at, Some(1_772_720_530_000_000));
    assert_eq!(
        (lead.event_type.as_deref(), lead.event_id.as_deref()),
        (Some("signup"), Some("e1"))
    );
}

#[test]
fn the_custom_example_is_tried() {
    let blocks = blocks();
    let of = |lang: &str| {
        let mut found = blocks.iter().filter(|b| b.part.starts_with("custom") && b.lang == lang);
        found.next().unwrap_or_else(|| panic!("no {lang}")).text.clone()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
    write("leadsync.toml", &with_secrets(&of("toml"))).expect("write");
    write("event.json", &of("json")).expect("write");
    let tour = Tour { folder, crm: None, service: None };
    let (shown, expected) = (tour.shell(&of("sh")), of("text"));
    assert!(matches(&expected, &shown), "{}\nshows\n{shown}\nand not\n{expected}", of("sh"));
}

/// A program of the tour that runs in a terminal of its own.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    /// Starts it and waits for the line that names its address.
    fn start(command: &mut Command, before: &str) -> Running {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("start");
        let (send, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let until = Instant::now() + PATIENCE;
        let mut said = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some((_, address)) = line.split_once(before) {
                        let address = address.trim().to_owned();
                        return Running { child, address };
                    }
                    said.push(line);
                }
                Err(_) => {
                    drop(Running { child, address: String::new() });
                    panic!("not ready:\n{}", said.join("\n"));
                }
            }
        }
    }

    /// As Ctrl-C does; the exit code.
    fn stop(&mut self) -> Option<i32> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return status.code();
        }
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("signal");
        self.child.wait().expect("wait").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the text is the pattern, where `…` stands for anything and white space does not count.
fn matches(pattern: &str, text: &str) -> bool {
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (pattern, text) = (bare(pattern), bare(text));
    let pieces: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = pieces.as_slice() else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    for piece in middle {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn patterns_match_what_they_say() {
    assert!(matches("a …\n c", "a b c") && matches("[…x…]", "[1 x 2]") && matches("a", " a\n"));
    assert!(!matches("a…c", "a b") && !matches("a…b…c", "a c") && !matches("a", "ab"));
}

/// The tour's folder, program and addresses.
struct Tour {
    folder: tempfile::TempDir,
    crm: Option<Running>,
    service: Option<Running>,
}

impl Tour {
    /// Free ports instead of those that the text names.
    fn own_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (port, running) in [("127.0.0.1:8090", &self.crm), ("127.0.0.1:8080", &self.service)] {
            if let Some(running) = running {
                text = text.replace(port, running.address.trim_start_matches("http://"));
            }
        }
        text
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEADSYNC_") {
                command.env_remove(name);
            }
        }
        let program = Path::new(env!("CARGO_BIN_EXE_leadsync"));
        let mut path = program.parent().expect("a folder").as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command.current_dir(self.folder.path()).env("PATH", path).env_remove("RUST_LOG");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a block of shell to its end.
    fn shell(&self, text: &str) -> String {
        let output =
            self.command("sh").arg("-ec").arg(self.own_ports(text)).output().expect("run sh");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\nfails ({}): {error}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    fn step(&mut self, text: &str, expected: Option<&str>) {
        match text.trim() {
            "leadsync fake-crm" => {
                let mut command = self.command("leadsync");
                command.args(["fake-crm", "--listen", "127.0.0.1:0"]);
                self.crm = Some(Running::start(&mut command, "stand-in CRM on "));
            }
            "leadsync serve" => {
                let file = self.folder.path().join("leadsync.toml");
                let config = std::fs::read_to_string(&file).expect("leadsync.toml");
                std::fs::write(&file, self.own_ports(&config)).expect("leadsync.toml");
                let mut command = self.command("leadsync");
                command.args(["serve", "--listen", "127.0.0.1:0"]);
                self.service = Some(Running::start(&mut command, "ready on "));
            }
            _ => {
                let expected = expected.unwrap_or_else(|| panic!("no result is shown of\n{text}"));
                // What only looks may look again: leads are pushed in the background.
                let looks = !text.contains(" -d ");
                let until = Instant::now() + PATIENCE;
                loop {
                    let shown = self.shell(text);
                    if matches(expected, &shown) {
                        break;
                    }
                    let again = looks && Instant::now() < until;
                    assert!(again, "{text}\nshows\n{shown}\nand not\n{expected}");
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}

#[test]
fn the_five_minutes() {
    let curl = Command::new("curl").arg("--version").output();
    assert!(curl.is_ok_and(|output| output.status.success()), "the tour needs curl; install it");
    let folder = tempfile::tempdir().expect("a folder");
    // As root PostgreSQL runs as another user, who must be able to enter.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(folder.path(), open).expect("set its mode");
    let mut tour = Tour { folder, crm: None, service: None };

    let blocks = blocks();
    let tour_of = |section: &str| -> Vec<&Block> {
        let all = blocks.iter().filter(|block| block.section == section);
        all.filter(|block| ["toml", "sh", "text"].contains(&block.lang.as_str())).collect()
    };
    let minutes = tour_of("Your first lead in five minutes");
    let api = tour_of("HTTP API");
    assert!(minutes.len() > 15 && api.len() == 4, "blocks are missing");
    let steps: Vec<&Block> = minutes.into_iter().chain(api).collect();
    for (at, block) in steps.iter().enumerate() {
        match block.lang.as_str() {
            "toml" => {
                std::fs::write(tour.folder.path().join("leadsync.toml"), &block.text)
                    .expect("write");
            }
            "sh" => {
                let next = steps.get(at + 1).filter(|next| next.lang == "text");
                tour.step(&block.text, next.map(|next| next.text.as_str()));
            }
            _ => {}
        }
    }
    // What the text says of the unknown outcome, once the leads of the last step are pushed.
    tour.step(
        "leadsync status",
        Some("3 leads\n…destination hubspot: 2 in sync, 1 due, 0 parked…"),
    );
    assert!(tour.shell("leadsync sync --once --dry-run").contains("nothing was"));
    assert!(tour.shell("leadsync replay").contains("unchanged"));
    for running in [&mut tour.service, &mut tour.crm] {
        assert_eq!(running.as_mut().expect("started").stop(), Some(0));
    }
}
