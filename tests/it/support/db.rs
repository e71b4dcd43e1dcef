//! A database of its own for each test, cloned from a migrated template on one shared private server.
//!
//! The server is shared by all test processes of this checkout (`cargo nextest` runs one per test) and belongs to a keeper
//! process. Every test process holds a shared flock while it lives; when nobody holds it the keeper stops the server and
//! removes its files. Locks vanish with their processes, so a killed run leaves nothing that the next one trips over: a lost
//! keeper's server is adopted by the next keeper.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leadsync::private_pg::{Options, PrivatePg};
use leadsync::secret::Secret;
use leadsync::store::migrate;
use nix::fcntl::{Flock, FlockArg};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

/// Tells a re-executed test binary that it is the keeper, and of what folder.
const KEEPER: &str = "LEADSYNC_TEST_KEEPER";
/// How long the server waits for the next test process.
const LINGER: Duration = Duration::from_secs(5);

/// A database that exists for one test.
pub struct TestDb {
    url: String,
    name: String,
    admin: String,
}

impl TestDb {
    /// With all migrations applied.
    pub async fn new() -> TestDb {
        let cluster = cluster().await;
        TestDb::clone_of(cluster, &cluster.template).await
    }

    /// With nothing in it.
    pub async fn empty() -> TestDb {
        TestDb::clone_of(cluster().await, "template0").await
    }

    async fn clone_of(cluster: &Cluster, template: &str) -> TestDb {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Process numbers come round again while the server lives.
        let name = format!("test_{}_{number}_{:08x}", std::process::id(), rand::random::<u32>());
        let client = connect(&cluster.url).await;
        let strategy = if cluster.version_num >= 150_000 { "strategy file_copy" } else { "" };
        let sql = format!("create database {name} template {template} {strategy}");
        client.batch_execute(&sql).await.expect("clone the template");
        TestDb { url: with_database(&cluster.url, &name), name, admin: cluster.url.clone() }
    }

    /// Connection URL as the owner.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same as the configuration holds it.
    pub fn secret(&self) -> Secret {
        Secret::new(&self.url)
    }

    /// A connection that is the only one: returns once all others have ended, which is when their
    /// sessions have reported what they counted.
    pub async fn alone(&self) -> Client {
        let client = self.client().await;
        let others = "select count(*) from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
        let until = Instant::now() + Duration::from_secs(30);
        while client.query_one(others, &[]).await.expect("sessions").get::<_, i64>(0) > 0 {
            assert!(Instant::now() < until, "sessions stay open");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        client
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection to another database of the same server, for what is done to this one.
    pub async fn admin(&self) -> Client {
        connect(&self.admin).await
    }

    /// A plain connection, for looking at tables from outside.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let admin = self.admin.clone();
        let sql = format!("drop database if exists {} with (force)", self.name);
        // The test's own runtime cannot be waited for from here.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = connect(&admin).await;
                client.batch_execute(&sql).await.map_err(std::io::Error::other)
            })
        });
        if let Ok(Err(e)) = dropped.join() {
            eprintln!("cannot drop a test database: {e}");
        }
    }
}

/// A connection whose driver runs in the background.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("connect");
    tokio::spawn(connection);
    client
}

/// The URL with another database name.
pub fn with_database(url: &str, name: &str) -> String {
    assert!(url.contains("@/leadsync?"), "not a URL of the private server: {url}");
    url.replacen("@/leadsync?", &format!("@/{name}?"), 1)
}

struct Cluster {
    url: String,
    template: String,
    version_num: i32,
    // While this lives the keeper does not stop the server.
    _user: Flock<File>,
}

async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER.get_or_init(join_cluster).await
}

async fn join_cluster() -> Cluster {
    let base = base();
    make_dir(&base);
    let user = lock(&base.join("users.lock"), FlockArg::LockShared).expect("users.lock");
    // One at a time: the first starts the server and builds the template, the others find both.
    let _turn = lock(&base.join("turn.lock"), FlockArg::LockExclusive).expect("turn.lock");
    let url = server(&base);
    let client = connect(&url).await;
    let row = client
        .query_one("select current_setting('server_version_num')::int", &[])
        .await
        .expect("version");
    let template = template(&client, &url).await;
    Cluster { url, template, version_num: row.get(0), _user: user }
}

/// Named by the migrations, so that a changed set gets a new one.
async fn template(client: &Client, url: &str) -> String {
    let name = format!("template_{:016x}", migrate::fingerprint());
    let exists = "select from pg_database where datname = $1";
    if client.query_opt(exists, &[&name]).await.expect("look for the template").is_none() {
        // Renamed when it is complete: a killed run leaves only an unfinished one, which goes.
        client
            .batch_execute("drop database if exists template_unfinished with (force)")
            .await
            .expect("drop the unfinished template");
        client.batch_execute("create database template_unfinished").await.expect("create template");
        let unfinished = Secret::new(with_database(url, "template_unfinished"));
        migrate::run(&unfinished, Duration::from_secs(60)).await.expect("migrate the template");
        // The migrating session may need a moment to go; the rename waits for it.
        let rename = format!("alter database template_unfinished rename to {name}");
        client.batch_execute(&rename).await.expect("rename the template");
    }
    name
}

fn base() -> PathBuf {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    env!("CARGO_MANIFEST_DIR").hash(&mut hasher);
    let uid = nix::unistd::Uid::effective();
    std::env::temp_dir().join(format!("leadsync-test-{uid}-{:08x}", hasher.finish() as u32))
}

/// As root PostgreSQL runs as another user, who must be able to enter.
pub fn make_dir(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(dir).expect("create a folder for the tests");
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711)).expect("set its mode");
}

fn lock(path: &Path, how: FlockArg) -> Option<Flock<File>> {
    let file =
        File::options().write(true).create(true).truncate(false).open(path).expect("open a lock");
    Flock::lock(file, how).ok()
}

/// URL of the running server, starting a keeper if none lives.
fn server(base: &Path) -> String {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let keeper_lives = lock(&base.join("keeper.lock"), FlockArg::LockSharedNonblock).is_none();
        if keeper_lives {
            return std::fs::read_to_string(base.join("url")).expect("the keeper's URL");
        }
        match start_keeper(base) {
            Ok(url) => return url,
            // A keeper whose starter was killed is still on its way up and holds the folder.
            Err(said) => assert!(Instant::now() < until, "no server for the tests:\n{said}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn start_keeper(base: &Path) -> Result<String, String> {
    use std::os::unix::process::CommandExt;
    let log = File::create(base.join("keeper.log")).expect("keeper.log");
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "support::db::keep_the_server", "--nocapture"])
        .env(KEEPER, base)
        .process_group(0) // Ctrl-C is for the tests; the keeper goes when they have gone
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("start the keeper");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let url = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("KEEPING ").map(str::to_owned));
    if let Some(url) = url {
        // It outlives us, or we it.
        std::thread::spawn(move || {
            lines.for_each(drop);
            child.wait()
        });
        return Ok(url);
    }
    let _ = child.wait();
    Err(std::fs::read_to_string(base.join("keeper.log")).unwrap_or_default())
}

/// Does nothing in an ordinary run; re-executed with [`KEEPER`] set it is the keeper.
#[tokio::test]
async fn keep_the_server() {
    let Some(base) = std::env::var_os(KEEPER).map(PathBuf::from) else { return };
    let (data_dir, going) = (base.join("data"), base.join("going"));
    // Of a keeper that was killed while it removed them; usually there are none.
    let _ = std::fs::remove_dir_all(&going);
    make_dir(&data_dir);
    let options = Options { durable: false, ..Options::default() };
    let server = PrivatePg::start_with(&data_dir, &options).await.expect("start the server");
    std::fs::write(base.join("url"), server.url()).expect("write the URL");
    let _alive = lock(&base.join("keeper.lock"), FlockArg::LockExclusive).expect("keeper.lock");
    // Libtest has begun this line with the test's name.
    println!("\nKEEPING {}", server.url());
    let users = base.join("users.lock");
    let _nobody = loop {
        drop(lock(&users, FlockArg::LockExclusive).expect("users.lock"));
        // nextest starts the next process a moment after the last has ended.
        tokio::time::sleep(LINGER).await;
        if let Some(nobody) = lock(&users, FlockArg::LockExclusiveNonblock) {
            break nobody; // newcomers wait for it, and then find no keeper
        }
    };
    server.stop().await.expect("stop the server");
    // Moved away first: a keeper killed while it removes leaves nothing that looks like a cluster.
    std::fs::rename(&data_dir, &going).expect("move its files away");
    std::fs::remove_dir_all(&going).expect("remove its files");
}

#[tokio::test]
async fn every_test_has_a_migrated_database_of_its_own() {
    let (one, other) = tokio::join!(TestDb::new(), TestDb::new());
    assert_ne!(one.url(), other.url());
    for db in [&one, &other] {
        assert!(migrate::applied(&db.client().await).await.unwrap());
        db.client().await.batch_execute("create table public.only_mine ()").await.unwrap();
    }
    let name = one.name.clone();
    drop(one);
    let client = other.client().await;
    let row = client.query_opt("select from pg_database where datname = $1", &[&name]).await;
    assert!(row.unwrap().is_none());
}
