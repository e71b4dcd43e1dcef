//! The private PostgreSQL through everything that can happen to it.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leadsync::private_pg::{Options, PrivatePg, PrivatePgError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::db::connect;
use crate::support::process::Folder;

/// Tells a re-executed test binary to start PostgreSQL in that folder and to hold it.
const HOLD: &str = "LEADSYNC_TEST_HOLD";

/// Where the cluster really is.
fn cluster(dir: &Folder) -> PathBuf {
    dir.path().join("postgres").canonicalize().unwrap()
}

fn options() -> Options {
    Options { durable: false, ..Options::default() }
}

async fn start(dir: &Folder) -> Result<PrivatePg, PrivatePgError> {
    PrivatePg::start_with(dir.path(), &options()).await
}

async fn count(server: &PrivatePg) -> i64 {
    connect(server.url()).await.query_one("select count(*) from kept", &[]).await.unwrap().get(0)
}

async fn keep_a_row(server: &PrivatePg) {
    let sql = "create table if not exists kept (); insert into kept default values";
    connect(server.url()).await.batch_execute(sql).await.unwrap();
}

/// Another leadsync: this test binary again, see [`hold`].
struct Holder {
    child: Child,
    // Its output must stay open: it prints more.
    lines: Lines<BufReader<ChildStdout>>,
    pid: i32,
}

impl Holder {
    fn start(dir: &Folder) -> Holder {
        let mut child = Holder::spawn(dir);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pid = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("HOLDING ")?.parse().ok())
            .expect("the holder did not start");
        Holder { child, lines, pid }
    }

    fn spawn(dir: &Folder) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "private_pg::hold", "--nocapture"])
            .env(HOLD, dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn kill_9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Does nothing in an ordinary run; re-executed with [`HOLD`] set it holds a server until its input ends.
#[tokio::test]
async fn hold() {
    let Some(dir) = std::env::var_os(HOLD).map(PathBuf::from) else { return };
    let server = PrivatePg::start_with(&dir, &options()).await.unwrap();
    keep_a_row(&server).await;
    println!("\nHOLDING {}", server.pid());
    let _ = std::io::stdin().lines().next();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn starts_stops_and_keeps_its_data() {
    let dir = Folder::new();
    let server = PrivatePg::start(dir.path()).await.unwrap();
    assert!(!server.adopted());
    keep_a_row(&server).await;
    let client = connect(server.url()).await;
    for (name, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("server_encoding", "UTF8"),
        ("max_connections", "100"),
        ("max_wal_size", "2GB"),
    ] {
        let row = client.query_one("select current_setting($1)", &[&name]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), value, "{name}");
    }
    let pid = server.pid();
    server.stop().await.unwrap();
    assert!(kill(Pid::from_raw(pid), None).is_err(), "the server is gone when stop returns");

    let server = start(&dir).await.unwrap();
    assert!(!server.adopted());
    assert_eq!(count(&server).await, 1);
    let log = std::fs::read_to_string(dir.path().join("postgres.log")).unwrap();
    assert!(log.contains("database system was shut down at"), "a clean start:\n{log}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn dropping_it_stops_the_server() {
    let dir = Folder::new();
    let server = start(&dir).await.unwrap();
    let pid = Pid::from_raw(server.pid());
    drop(server);
    assert!(kill(pid, None).is_err());
}

#[tokio::test]
async fn a_second_one_is_told_who_is_there() {
    let dir = Folder::new();
    let holder = Holder::start(&dir);
    let error = start(&dir).await.unwrap_err();
    let PrivatePgError::InUse { pid, .. } = &error else { panic!("{error}") };
    assert_eq!(*pid, Some(holder.child.id()));
    let text = error.to_string();
    assert!(text.contains(&holder.child.id().to_string()), "{text}");
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    // Its input ends: it stops in order, and the folder is free.
    let Holder { mut child, lines, .. } = holder;
    drop(child.stdin.take());
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    start(&dir).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn the_server_of_a_killed_process_is_adopted() {
    let dir = Folder::new();
    let holder = Holder::start(&dir);
    let pid = holder.pid;
    holder.kill_9();
    let server = start(&dir).await.unwrap();
    assert!(server.adopted());
    assert_eq!(server.pid(), pid);
    assert_eq!(count(&server).await, 1);
    server.stop().await.unwrap();
    assert!(dir.postgres("").is_none(), "an adopted server is stopped too");
    let server = start(&dir).await.unwrap();
    assert!(!server.adopted());
    assert_eq!(count(&server).await, 1);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_server_recovers() {
    let dir = Folder::new();
    let holder = Holder::start(&dir);
    let client = connect(&url_of(&dir)).await; // a backend that has to notice
    let pid = Pid::from_raw(holder.pid);
    holder.kill_9();
    kill(pid, Signal::SIGKILL).unwrap();
    let server = start(&dir).await.unwrap();
    assert_eq!(count(&server).await, 1);
    assert!(client.simple_query("select 1").await.is_err());
    server.stop().await.unwrap();
}

fn url_of(dir: &Folder) -> String {
    format!(
        "postgresql://leadsync@/leadsync?host={}&port=5432",
        dir.path().join("socket").display()
    )
}

#[tokio::test]
async fn a_stale_pid_file_is_seen_through() {
    let dir = Folder::new();
    start(&dir).await.unwrap().stop().await.unwrap();
    let cluster = cluster(&dir);
    let owner = std::fs::metadata(&cluster).unwrap();
    // A living stranger that runs as the same user, so that PostgreSQL itself would believe the file.
    let mut stranger = Command::new("sleep");
    stranger.arg("600").stdin(Stdio::null());
    if nix::unistd::Uid::effective().is_root() {
        use std::os::unix::process::CommandExt;
        stranger.uid(owner.uid()).gid(owner.gid());
    }
    let mut stranger = stranger.spawn().unwrap();
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let own_parent = std::process::id();
    for pid in [stranger.id(), dead.id(), own_parent] {
        let socket = dir.path().join("socket");
        let text = format!(
            "{pid}\n{}\n1700000000\n5432\n{}\n\n  5432001    131072\nready   \n",
            cluster.display(),
            socket.display()
        );
        let file = cluster.join("postmaster.pid");
        std::fs::write(&file, text).unwrap();
        std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        let server = start(&dir).await.unwrap();
        assert!(!server.adopted());
        server.stop().await.unwrap();
    }
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_half_made_cluster_is_made_again() {
    let dir = Folder::new();
    let mut child = Holder::spawn(&dir);
    let until = Instant::now() + Duration::from_secs(60);
    let half_made = loop {
        let found = std::fs::read_dir(dir.path()).unwrap().flatten().find(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with("postgres.new-")
                && entry.path().join("PG_VERSION").exists()
        });
        match found {
            Some(entry) => break entry.path(),
            None => assert!(Instant::now() < until, "initdb did not begin"),
        }
        tokio::task::yield_now().await;
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!dir.path().join("postgres").exists());

    let server = start(&dir).await.unwrap();
    keep_a_row(&server).await;
    server.stop().await.unwrap();
    start(&dir).await.unwrap().stop().await.unwrap();
    assert!(!half_made.exists(), "the leftover is gone");
}

#[tokio::test]
async fn without_programs_it_says_what_to_install() {
    let dir = Folder::new();
    let nowhere = Options { bin_dirs: Some(vec![]), ..options() };
    let error = PrivatePg::start_with(dir.path(), &nowhere).await.unwrap_err();
    let PrivatePgError::NotInstalled { install } = &error else { panic!("{error}") };
    assert!(error.to_string().contains(install.as_str()) && install.contains("postgresql"));
}

/// A folder with programs that say they are that version.
fn pretend_version(dir: &Folder, version: &str) -> PathBuf {
    let bin = dir.path().join(format!("bin-{version}"));
    std::fs::create_dir(&bin).unwrap();
    for program in ["postgres", "initdb"] {
        let path = bin.join(program);
        std::fs::write(&path, format!("#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n"))
            .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin
}

#[tokio::test]
async fn an_old_version_is_refused_and_another_one_named() {
    let dir = Folder::new();
    let only_in =
        |version| Options { bin_dirs: Some(vec![pretend_version(&dir, version)]), ..options() };
    let error = PrivatePg::start_with(dir.path(), &only_in("13.4")).await.unwrap_err();
    assert!(matches!(error, PrivatePgError::TooOld { .. }) && error.to_string().contains("13.4"));

    start(&dir).await.unwrap().stop().await.unwrap();
    let error = PrivatePg::start_with(dir.path(), &only_in("99.1")).await.unwrap_err();
    let PrivatePgError::OtherVersion { installed, .. } = &error else { panic!("{error}") };
    assert_eq!(installed, "99.1");
}

#[tokio::test]
async fn what_is_not_a_cluster_is_left_alone() {
    let dir = Folder::new();
    std::fs::create_dir(dir.path().join("postgres")).unwrap();
    std::fs::write(dir.path().join("postgres/thesis.txt"), "years of work").unwrap();
    let error = start(&dir).await.unwrap_err();
    assert!(matches!(error, PrivatePgError::NotACluster(_)), "{error}");
    assert!(dir.path().join("postgres/thesis.txt").exists());
}

#[tokio::test]
async fn a_failed_start_shows_the_reason() {
    let dir = Folder::new();
    let settings = vec![("shared_buffers".to_owned(), "nonsense".to_owned())];
    let nonsense = Options { settings, ..options() };
    let error = PrivatePg::start_with(dir.path(), &nonsense).await.unwrap_err();
    let PrivatePgError::StartFailed { reason, .. } = &error else { panic!("{error}") };
    assert!(reason.contains("shared_buffers"), "{reason}");
    start(&dir).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_long_path_gets_a_short_socket() {
    let dir = Folder::new();
    let long = dir.path().join("a folder, with \"quotes\" and blanks").join("x".repeat(90));
    crate::support::db::make_dir(&long);
    std::fs::set_permissions(long.parent().unwrap(), std::fs::Permissions::from_mode(0o711))
        .unwrap();
    let server = PrivatePg::start_with(&long, &options()).await.unwrap();
    assert!(server.url().contains("host=/tmp/leadsync-"), "{}", server.url());
    keep_a_row(&server).await;
    let socket_dir = server.url().split("host=").nth(1).unwrap().split('&').next().unwrap();
    let socket_dir = PathBuf::from(socket_dir);
    assert_eq!(std::fs::metadata(&socket_dir).unwrap().mode() & 0o777, 0o700);
    server.stop().await.unwrap();
    std::fs::remove_dir(socket_dir).unwrap();
}

#[tokio::test]
async fn root_runs_it_as_somebody_else() {
    if !nix::unistd::Uid::effective().is_root() {
        return; // nothing to drop
    }
    let dir = Folder::new();
    let server = start(&dir).await.unwrap();
    let cluster = std::fs::metadata(cluster(&dir)).unwrap();
    assert_ne!(cluster.uid(), 0);
    assert_eq!(cluster.mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(dir.path()).unwrap().uid(), 0, "only the cluster is given away");
    assert_eq!(std::fs::metadata(format!("/proc/{}", server.pid())).unwrap().uid(), cluster.uid());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn root_in_a_closed_folder_puts_the_cluster_elsewhere() {
    if !nix::unistd::Uid::effective().is_root() {
        return; // ones own folders are open
    }
    let dir = Folder::new();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let server = start(&dir).await.unwrap();
    keep_a_row(&server).await;
    server.stop().await.unwrap();
    let cluster = cluster(&dir);
    assert!(cluster.starts_with("/var/lib/leadsync"), "{}", cluster.display());
    let server = start(&dir).await.unwrap();
    assert_eq!(count(&server).await, 1);
    server.stop().await.unwrap();
    // A link that leads nowhere must not be taken for a first start.
    std::fs::remove_dir_all(cluster.parent().unwrap()).unwrap();
    let error = start(&dir).await.unwrap_err();
    assert!(matches!(error, PrivatePgError::NotACluster(_)), "{error}");
}

#[tokio::test]
async fn a_folder_that_was_closed_later_is_named() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let dir = Folder::new();
    start(&dir).await.unwrap().stop().await.unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = start(&dir).await.unwrap_err();
    let PrivatePgError::Unreachable { blocked, .. } = &error else { panic!("{error}") };
    assert_eq!(*blocked, dir.path().canonicalize().unwrap());
}
