//! TLS to the database with libpq's meaning of `sslmode`, against a server with certificates made for the test.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leadsync::error::Chain;
use leadsync::private_pg::{Options, PrivatePg};
use leadsync::secret::Secret;
use leadsync::store::pool::{Pools, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::support::db::connect;

const PASSWORD: &str = "p%40ss"; // "p@ss"

/// A cluster served over TCP with TLS; PrivatePg itself never listens there.
struct TlsServer {
    dir: tempfile::TempDir,
    cluster: PathBuf,
    port: u16,
    server: Child,
}

impl TlsServer {
    async fn start(cert: &str, key: &str) -> TlsServer {
        let dir = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o711))
            .tempdir()
            .unwrap();
        let options = Options { durable: false, ..Options::default() };
        let private = PrivatePg::start_with(dir.path(), &options).await.unwrap();
        let programs = std::fs::read_link(format!("/proc/{}/exe", private.pid())).unwrap();
        let set = "alter role leadsync password 'p@ss'";
        connect(private.url()).await.batch_execute(set).await.unwrap();
        private.stop().await.unwrap();

        let cluster = dir.path().join("postgres").canonicalize().unwrap();
        give(&cluster, "server.crt", cert);
        give(&cluster, "server.key", key);
        let owner = std::fs::metadata(&cluster).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(programs);
        command.arg("-D").arg(&cluster).args(["-p", &port.to_string()]);
        for setting in
            ["ssl=on", "fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories="]
        {
            command.args(["-c", setting]);
        }
        if nix::unistd::Uid::effective().is_root() {
            command.uid(owner.uid()).gid(owner.gid());
        }
        let server = command
            .current_dir(&cluster)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = TlsServer { dir, cluster, port, server };
        server.until("localhost", "sslmode=disable", true).await;
        server
    }

    /// Whether the session is encrypted, or why there is none.
    async fn try_connect(&self, host: &str, options: &str) -> Result<bool, String> {
        let port = self.port;
        let url = format!("postgresql://leadsync:{PASSWORD}@{host}:{port}/leadsync?{options}");
        let settings = Settings {
            receive_connections: 1,
            sync_connections: 1,
            statement_timeout: Duration::from_secs(5),
            history: true,
        };
        let pools = Pools::new(&Secret::new(url), &settings).map_err(|e| Chain(&e).to_string())?;
        let client = pools.receive().await.map_err(|e| Chain(&e).to_string())?;
        let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        Ok(client.query_one(sql, &[]).await.unwrap().get(0))
    }

    /// Tries until that works, or until it no longer does.
    async fn until(&self, host: &str, options: &str, works: bool) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let outcome = self.try_connect(host, options).await;
            if outcome.is_ok() == works {
                return;
            }
            assert!(Instant::now() < until, "{options}: {outcome:?}");
        }
    }

    fn file(&self, name: &str, pem: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.server.id() as i32), Signal::SIGQUIT);
        let _ = self.server.wait();
    }
}

/// A file that only the server's user can read, as PostgreSQL demands of a key.
fn give(cluster: &Path, name: &str, pem: &str) {
    let owner = std::fs::metadata(cluster).unwrap();
    let path = cluster.join(name);
    std::fs::write(&path, pem).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

#[tokio::test]
async fn sslmode_means_what_libpq_means() {
    let (ca, issuer) = authority();
    let (other_ca, _) = authority();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let server = TlsServer::start(&leaf.pem(), &key.serialize_pem()).await;
    let ca = server.file("ca.pem", &ca);
    let other = server.file("other.pem", &other_ca);

    for (host, options, outcome) in [
        ("localhost", "sslmode=disable".to_owned(), Ok(false)),
        ("localhost", String::new(), Ok(true)),
        ("localhost", "sslmode=prefer".to_owned(), Ok(true)),
        ("127.0.0.1", "sslmode=require".to_owned(), Ok(true)),
        ("127.0.0.1", "sslmode=require&channel_binding=require".to_owned(), Ok(true)),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={ca}"), Ok(true)),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={other}"), Err("certificate")),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={ca}"), Ok(true)),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={other}"), Err("certificate")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={ca}"), Ok(true)),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={ca}"), Err("certificate")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}"), Err("certificate")),
        ("localhost", "sslmode=verify-full&sslrootcert=/nowhere".to_owned(), Err("sslrootcert")),
        ("localhost", "sslmode=disable&channel_binding=require".to_owned(), Err("channel binding")),
    ] {
        match (server.try_connect(host, &options).await, outcome) {
            (Ok(encrypted), Ok(wanted)) => assert_eq!(encrypted, wanted, "{host} {options}"),
            (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{host} {options}: {said}"),
            (got, _) => panic!("{host} {options}: {got:?}"),
        }
    }
}

#[tokio::test]
async fn a_self_signed_certificate_can_be_its_own_root() {
    // What `openssl req -x509` makes: marked as an authority, and used as the server's own.
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let server = TlsServer::start(&cert.pem(), &key.serialize_pem()).await;
    let own = server.file("own.pem", &cert.pem());
    let verify_full = format!("sslmode=verify-full&sslrootcert={own}");
    assert_eq!(server.try_connect("localhost", &verify_full).await, Ok(true));
    assert!(server.try_connect("127.0.0.1", &verify_full).await.is_err());
    let verify_ca = format!("sslmode=verify-ca&sslrootcert={own}");
    assert_eq!(server.try_connect("127.0.0.1", &verify_ca).await, Ok(true));

    // Another certificate of the same name is not it.
    let key = KeyPair::generate().unwrap();
    let impostor = params.self_signed(&key).unwrap();
    give(&server.cluster, "server.crt", &impostor.pem());
    give(&server.cluster, "server.key", &key.serialize_pem());
    kill(Pid::from_raw(server.server.id() as i32), Signal::SIGHUP).unwrap();
    server.until("localhost", &verify_full, false).await;
}
