//! The server and the routes, over real sockets.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leadsync::app::{self, Database};
use leadsync::config::Config;
use leadsync::http::body::arrived;
use leadsync::http::{self as routes, Context, Peer};
use leadsync::secret::Secret;
use leadsync::serve::{DrainReport, Limits, serve};
use leadsync::stop::{Stop, on_signals};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use warp::Filter;
use warp::filters::BoxedFilter;
use warp::reply::Response;

use crate::support::db::TestDb;
use crate::support::wire::{Answer, Client, bounded, chunk, gzip};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(30);
const MAX_BODY: usize = 64 * 1024;

/// Generous everywhere; each test shortens what it is about.
const LIMITS: Limits = Limits {
    max_connections: 100,
    header_timeout: LONG,
    body_timeout: LONG,
    request_timeout: LONG,
    drain_timeout: LONG,
};

struct Server {
    address: SocketAddr,
    stop: Stop,
    task: JoinHandle<DrainReport>,
    // Whatever its routes stand on.
    database: Option<(Database, TestDb)>,
}

impl Server {
    async fn start(filter: BoxedFilter<(Response,)>, limits: Limits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new();
        let task = tokio::spawn(serve(listener, routes::service(filter), limits, stop.clone()));
        Server { address, stop, task, database: None }
    }

    async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// One request on a connection of its own.
    async fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.client().await;
        client.send(request).await;
        client.answer().await
    }

    async fn drained(self) -> DrainReport {
        bounded("the end of the server", self.task).await.unwrap()
    }
}

/// Answers with the length of the body, which may have `MAX_BODY` bytes.
fn echo() -> BoxedFilter<(Response,)> {
    arrived()
        .then(async |mut arrived: routes::body::Arrived| match arrived.read_body(MAX_BODY).await {
            Ok(body) => Response::new(Bytes::from(body.len().to_string()).into()),
            Err(error) => error.into_response(arrived.id),
        })
        .boxed()
}

fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST / HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

// Connections

#[tokio::test]
async fn half_requests_are_closed_in_time() {
    let server = Server::start(echo(), Limits { header_timeout: SHORT, ..LIMITS }).await;
    let beginnings = [
        "",
        "P",
        "POST / HTTP/1.1\r\nHost: localhost\r\nX-Slow:",
        "PRI * HTTP/2.0\r\n\r\n",
        "\x16\x03\x01",
    ];
    let mut clients = Vec::new();
    for beginning in beginnings {
        let mut client = server.client().await;
        client.send(beginning).await;
        clients.push(client);
    }
    for mut client in clients {
        // What cannot be a request may be told so first.
        while !matches!(
            bounded("the server to close", client.stream.read_buf(&mut client.read)).await,
            Ok(0) | Err(_)
        ) {}
        assert!(client.read.is_empty() || client.read.starts_with(b"HTTP/1.1 400 "));
    }
    assert_eq!(server.ask(post("", b"still here")).await.body, b"10");
}

#[tokio::test]
async fn kept_alive_connections_serve_again_until_they_idle() {
    let server = Server::start(echo(), Limits { header_timeout: SHORT, ..LIMITS }).await;
    let mut client = server.client().await;
    client.send([post("", b"one"), post("", b"four")].concat()).await;
    assert_eq!(client.answer().await.body, b"3");
    assert_eq!(client.answer().await.body, b"4");
    client.closed().await;
}

#[tokio::test]
async fn one_connection_too_many_waits() {
    let server = Server::start(echo(), Limits { max_connections: 1, ..LIMITS }).await;
    let mut first = server.client().await;
    first.send(post("", b"one")).await;
    assert_eq!(first.answer().await.body, b"3");
    let mut second = server.client().await;
    second.send(post("", b"four")).await;
    let early = tokio::time::timeout(SHORT, second.more()).await;
    assert!(early.is_err(), "served beyond the cap");
    drop(first);
    assert_eq!(second.answer().await.body, b"4");
}

#[tokio::test]
async fn a_client_that_reads_nothing_gives_its_slot_back() {
    let endless = warp::any().map(|| Response::new(vec![b'x'; 64 << 20].into())).boxed();
    let limits = Limits { max_connections: 1, request_timeout: SHORT, ..LIMITS };
    let server = Server::start(endless, limits).await;
    let mut deaf = server.client().await;
    deaf.send("GET / HTTP/1.1\r\n\r\n").await;
    let mut next = server.client().await;
    next.send("GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(next.head().await.status, 200);
    drop(deaf);
}

/// One of these tests again in a process of its own, where it takes its other branch; for what is a
/// whole process's: limits and signals. What it says after "says: " can be waited for.
struct Child {
    process: tokio::process::Child,
    lines: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
}

impl Child {
    const MARK: &str = "LEADSYNC_TEST_CHILD";

    fn is_this() -> bool {
        std::env::var_os(Child::MARK).is_some()
    }

    fn start(test: &str, shell: &str) -> Child {
        let (_, this_module) = module_path!().split_once("::").unwrap();
        let mut process = tokio::process::Command::new("sh")
            .args(["-c", &format!("{shell} exec \"$0\" --exact --nocapture \"$1\"")])
            .arg(std::env::current_exe().unwrap())
            .arg(format!("{this_module}::{test}"))
            .env(Child::MARK, "1")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = tokio::io::BufReader::new(process.stdout.take().unwrap()).lines();
        Child { process, lines }
    }

    async fn says(&mut self) -> String {
        loop {
            let line = bounded("the child", self.lines.next_line()).await.unwrap().unwrap();
            if let Some((_, text)) = line.split_once("says: ") {
                return text.to_owned();
            }
        }
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let id = nix::unistd::Pid::from_raw(self.process.id().unwrap().try_into().unwrap());
        nix::sys::signal::kill(id, signal).unwrap();
    }

    async fn exit_code(mut self) -> Option<i32> {
        drop(self.process.stdin.take());
        bounded("the child's end", self.process.wait()).await.unwrap().code()
    }
}

#[tokio::test]
async fn running_out_of_descriptors_passes() {
    if Child::is_this() {
        let server = Server::start(echo(), LIMITS).await;
        println!("says: {}", server.address);
        // Until the parent closes its end.
        let closed = || std::io::stdin().read_to_end(&mut Vec::new());
        tokio::task::spawn_blocking(closed).await.unwrap().unwrap();
        return;
    }
    let mut child = Child::start("running_out_of_descriptors_passes", "ulimit -n 40 &&");
    let address: SocketAddr = child.says().await.parse().unwrap();
    let mut clients = Vec::new();
    for _ in 0..60 {
        let stream = bounded("a connection", TcpStream::connect(address)).await.unwrap();
        let mut client = Client { stream, read: Vec::new() };
        client.send(post("", b"x")).await;
        clients.push(client);
    }
    // The early ones have the descriptors, and the server goes on serving them.
    assert_eq!(clients[0].answer().await.body, b"1");
    let mut last = clients.pop().unwrap();
    clients.truncate(1);
    assert_eq!(last.answer().await.body, b"1", "accepts again once there are descriptors");
    clients[0].send(post("", b"xy")).await;
    assert_eq!(clients[0].answer().await.body, b"2");
    assert_eq!(child.exit_code().await, Some(0));
}

// Bodies

#[tokio::test]
async fn slow_bodies_are_told_so() {
    let server = Server::start(echo(), Limits { body_timeout: SHORT, ..LIMITS }).await;
    for slow in [
        "POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut client = server.client().await;
        client.send(slow).await;
        assert_eq!(client.answer().await.problem(408), "body_timeout");
        client.closed().await;
    }
}

#[tokio::test]
async fn bodies_up_to_the_cap_and_not_a_byte_more() {
    let server = Server::start(echo(), LIMITS).await;
    let full = vec![b'x'; MAX_BODY];
    let chunked = |body: &[u8]| {
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (one, two) = body.split_at(body.len() / 2);
        [head.as_slice(), &chunk(one), &chunk(two), b"0\r\n\r\n"].concat()
    };
    let zipped = |body: &[u8]| post("Content-Encoding: gzip\r\n", &gzip(body));
    let length = MAX_BODY.to_string();
    for good in [post("", &full), chunked(&full), zipped(&full)] {
        assert_eq!(server.ask(good).await.body, length.as_bytes());
    }
    let over = vec![b'x'; MAX_BODY + 1];
    for bad in [post("", &over), chunked(&over), zipped(&over)] {
        assert_eq!(server.ask(bad).await.problem(413), "body_too_large");
    }
}

#[tokio::test]
async fn a_length_over_the_cap_is_refused_before_reading() {
    let server = Server::start(echo(), LIMITS).await;
    let mut client = server.client().await;
    let head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n";
    client.send(head).await;
    // Not 100: the body is not even asked for.
    assert_eq!(client.answer().await.problem(413), "body_too_large");
    client.closed().await;

    let mut client = server.client().await;
    client.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").await;
    assert_eq!(client.head().await.status, 100);
    client.send("abc").await;
    assert_eq!(client.answer().await.body, b"3");
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_goes_on_sending() {
    let server = Server::start(echo(), LIMITS).await;
    let piece = chunk(&[b'x'; 8192]);
    for head in ["Content-Length: 16777216", "Transfer-Encoding: chunked"] {
        let mut client = server.client().await;
        client.send(format!("POST / HTTP/1.1\r\n{head}\r\n\r\n")).await;
        for _ in 0..2000 {
            client.send(&piece).await;
        }
        assert_eq!(client.answer().await.problem(413), "body_too_large", "{head}");
    }
}

#[tokio::test]
async fn a_gzip_bomb_is_too_large() {
    let server = Server::start(echo(), LIMITS).await;
    let bomb = gzip(&vec![0; 32 << 20]);
    assert!(bomb.len() < MAX_BODY);
    let answer = server.ask(post("Content-Encoding: gzip\r\n", &bomb)).await;
    assert_eq!(answer.problem(413), "body_too_large");
    let answer = server.ask(post("Content-Encoding: gzip\r\n", b"not gzip at all")).await;
    assert_eq!(answer.problem(400), "bad_gzip");
}

#[tokio::test]
async fn other_encodings_are_refused_with_the_one_that_is_not() {
    let server = Server::start(echo(), LIMITS).await;
    for encoding in ["br", "deflate", "zstd", "gzip, gzip", "gzip\r\nContent-Encoding: br"] {
        let answer = server.ask(post(&format!("Content-Encoding: {encoding}\r\n"), b"x")).await;
        assert_eq!(answer.problem(415), "unsupported_encoding", "{encoding}");
        assert_eq!(answer.header("accept-encoding"), Some("gzip"));
    }
}

#[tokio::test]
async fn a_broken_chunk_is_no_body() {
    let server = Server::start(echo(), LIMITS).await;
    let broken = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n";
    assert_eq!(server.ask(broken).await.status, 400);
}

// Requests that try it on

#[tokio::test]
async fn nothing_is_smuggled_between_length_and_chunks() {
    let server = Server::start(echo(), LIMITS).await;
    // Whoever believed the length would take the second request for part of the first one's body.
    let second = "POST / HTTP/1.1\r\nContent-Length: 7\r\n\r\nsmuggle";
    for headers in [
        "Content-Length: 60\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 60",
    ] {
        let mut client = server.client().await;
        client
            .send(format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n3\r\nabc\r\n0\r\n\r\n{second}"))
            .await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.body.as_slice()), (200, b"3".as_slice()));
        assert_eq!(answer.header("connection"), Some("close"));
        client.closed().await;
    }
    for headers in [
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: 3, 4",
        "Content-Length: +3",
        "Content-Length: -3",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
    ] {
        let answer = server.ask(format!("POST / HTTP/1.1\r\n{headers}\r\n\r\nabcd")).await;
        assert_eq!(answer.status, 400, "{headers}");
    }
}

#[tokio::test]
async fn it_is_no_proxy() {
    let server = Server::start(echo(), LIMITS).await;
    let answer = server.ask("CONNECT example.com:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer.problem(501), "not_implemented");
    for target in ["OPTIONS *", "GET example.com:80"] {
        let answer = server.ask(format!("{target} HTTP/1.1\r\n\r\n")).await;
        assert_eq!(answer.problem(400), "bad_target", "{target}");
    }
}

#[tokio::test]
async fn long_targets_and_headers_are_refused() {
    let server = Server::start(echo(), LIMITS).await;
    for target in [format!("/{}", "a".repeat(9000)), format!("/?{}", "a".repeat(9000))] {
        let answer = server.ask(format!("GET {target} HTTP/1.1\r\n\r\n")).await;
        assert_eq!(answer.problem(414), "uri_too_long");
    }
    let many = "X: y\r\n".repeat(1000);
    assert_eq!(server.ask(format!("GET / HTTP/1.1\r\n{many}\r\n")).await.status, 431);
    let mut client = server.client().await;
    client.send(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(64 * 1024))).await;
    assert_eq!(client.head().await.status, 431);
}

// Handlers that go wrong

#[tokio::test]
async fn panics_are_contained() {
    let at_once = warp::path!("at-once").map(|| -> Response { panic!("private words") });
    let later = warp::path!("later").then(async || -> Response {
        tokio::task::yield_now().await;
        panic!("private words")
    });
    let server = Server::start(at_once.or(later).unify().or(echo()).unify().boxed(), LIMITS).await;
    let mut client = server.client().await;
    for path in ["/at-once", "/later"] {
        client.send(format!("GET {path} HTTP/1.1\r\n\r\n")).await;
        let answer = client.answer().await;
        assert_eq!(answer.problem(500), "internal");
        let body = String::from_utf8(answer.body).unwrap();
        assert!(!body.contains("private") && !body.contains("panic"), "{body}");
    }
    client.send(post("", b"same connection")).await;
    assert_eq!(client.answer().await.body, b"15");
}

#[tokio::test]
async fn a_request_ends_at_its_deadline() {
    let stuck = warp::any().then(std::future::pending::<Response>).boxed();
    let server = Server::start(stuck, Limits { request_timeout: SHORT, ..LIMITS }).await;
    assert_eq!(server.ask("GET / HTTP/1.1\r\n\r\n").await.problem(503), "deadline_exceeded");
}

#[tokio::test]
async fn requests_carry_peer_and_an_id_of_ours() {
    let whoami = warp::any()
        .and(warp::ext::optional::<Peer>())
        .and(warp::ext::optional::<routes::RequestId>())
        .map(|peer: Option<Peer>, id: Option<routes::RequestId>| {
            Response::new(format!("{} {}", peer.unwrap().0, id.unwrap()).into())
        });
    let server = Server::start(whoami.boxed(), LIMITS).await;
    let mut client = server.client().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nX-Request-Id: chosen\r\n\r\n").await;
        let answer = client.answer().await;
        let id = answer.header("x-request-id").unwrap().to_owned();
        let peer = client.stream.local_addr().unwrap();
        assert_eq!(String::from_utf8(answer.body).unwrap(), format!("{peer} {id}"));
        assert_eq!(id.len(), 36);
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

// The end

/// A route that says when it was entered and answers when it is let go.
fn held() -> (BoxedFilter<(Response,)>, mpsc::UnboundedReceiver<()>, Arc<Notify>) {
    let (entered, has_entered) = mpsc::unbounded_channel();
    let let_go = Arc::new(Notify::new());
    let waiting = Arc::clone(&let_go);
    let filter = warp::any().then(move || {
        let waiting = Arc::clone(&waiting);
        entered.send(()).unwrap();
        async move {
            waiting.notified().await;
            Response::new(Bytes::from_static(b"done").into())
        }
    });
    (filter.boxed(), has_entered, let_go)
}

#[tokio::test]
async fn draining_finishes_what_is_under_way() {
    let (filter, mut entered, let_go) = held();
    let server = Server::start(filter, LIMITS).await;
    let address = server.address;
    let silent = server.client().await;
    let mut idle = server.client().await;
    idle.send("GET / HTTP/1.1\r\n\r\n").await;
    bounded("the first request", entered.recv()).await.unwrap();
    let_go.notify_one();
    assert_eq!(idle.answer().await.body, b"done");
    let mut busy = server.client().await;
    busy.send("GET / HTTP/1.1\r\n\r\n").await;
    bounded("the second request", entered.recv()).await.unwrap();

    server.stop.cancel();
    idle.closed().await;
    silent.closed().await;
    let refused = bounded("a refusal", TcpStream::connect(address)).await;
    assert!(refused.is_err(), "still listens");
    let_go.notify_one();
    let answer = busy.answer().await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"done".as_slice()));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(server.drained().await.cut_off, 0);
}

#[tokio::test]
async fn draining_gives_up_at_its_limit() {
    let (filter, mut entered, _let_go) = held();
    let server = Server::start(filter, Limits { drain_timeout: SHORT, ..LIMITS }).await;
    let mut stuck = server.client().await;
    stuck.send("GET / HTTP/1.1\r\n\r\n").await;
    bounded("the request", entered.recv()).await.unwrap();
    let mut half = server.client().await;
    half.send("GET / HTTP/1.1\r\nHost:").await;
    server.stop.cancel();
    let report = server.drained().await;
    assert!(report.cut_off >= 1 && report.cut_off <= report.open, "{report:?}");
    stuck.closed().await;
    half.closed().await;
}

#[tokio::test]
async fn a_full_server_stops_too() {
    let server = Server::start(echo(), Limits { max_connections: 1, ..LIMITS }).await;
    let mut only = server.client().await;
    only.send(post("", b"one")).await;
    assert_eq!(only.answer().await.body, b"3");
    server.stop.cancel();
    assert_eq!(server.drained().await.cut_off, 0);
}

#[tokio::test]
async fn the_first_signal_stops_and_the_second_ends() {
    use nix::sys::signal::Signal::{SIGINT, SIGTERM};
    if Child::is_this() {
        let stop = on_signals().unwrap();
        println!("says: ready");
        stop.cancelled().await;
        println!("says: stopping");
        std::future::pending::<()>().await;
    }
    for (first, second, code) in [(SIGTERM, SIGINT, 130), (SIGINT, SIGTERM, 143)] {
        let mut child = Child::start("the_first_signal_stops_and_the_second_ends", "");
        assert_eq!(child.says().await, "ready");
        child.signal(first);
        assert_eq!(child.says().await, "stopping");
        child.signal(second);
        assert_eq!(child.exit_code().await, Some(code));
    }
}

// Routes

const SITE: &str = r#"
[deliveries]
keep = "0"
[[source]]
name = "site"
kind = "json"
url_token = "t"
"#;

async fn start_routes(admin_token: Option<&str>) -> Server {
    start_routes_of(admin_token, true, MAX_BODY).await
}

/// The routes of a whole service on a database of their own.
async fn start_routes_of(admin_token: Option<&str>, receives: bool, max_body: usize) -> Server {
    let db = TestDb::new().await;
    let mut config = Config::parse(SITE).unwrap().config;
    config.database.url = Some(db.secret());
    let database = Database::open(&config).await.unwrap();
    let stop = Stop::new();
    let store = database.store.clone();
    let receiver = app::receiver(&config, store.clone(), watch::channel(0).0, stop).await.unwrap();
    let context = Context {
        receiver,
        store,
        receives,
        admin_token: admin_token.map(Secret::new),
        max_body,
        leads: config.leads,
        now: Arc::new(|| 0),
    };
    let server = Server::start(routes::routes(context), LIMITS).await;
    Server { database: Some((database, db)), ..server }
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn paths_that_are_not_there() {
    let server = start_routes(None).await;
    for path in [
        "/",
        "/hooks",
        "/hooks/",
        "/hooks/nobody",
        "/hooks/site/",
        "/hooks//site",
        "//hooks/site",
        "/hooks/site/more",
        "/hooks/..%2fv1%2fleads",
        "/v1",
        "/v1/",
        "/v1/leads/",
        "/v1//leads",
        "/V1/leads",
        "/v1/leads/a/b",
        "/healthz/",
        "/readyz/x",
        "/%2e%2e/",
        "/metrics%00",
    ] {
        for method in ["GET", "POST", "PUT"] {
            let answer = server.ask(request(method, path, "", "")).await;
            assert_eq!(answer.problem(404), "not_found", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn methods_that_are_not_allowed() {
    let server = start_routes(None).await;
    for (path, allow) in [
        ("/hooks/site", "HEAD, POST"),
        ("/v1/leads", "POST"),
        ("/v1/leads/a@example.com", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
        ("/readyz", "GET, HEAD"),
    ] {
        for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
            let answer = server.ask(request(method, path, "", "")).await;
            assert_eq!(answer.problem(405), "method_not_allowed", "{method} {path}");
            assert_eq!(answer.header("allow"), Some(allow));
        }
    }
}

#[tokio::test]
async fn health_and_readiness() {
    let server = start_routes(Some("t")).await;
    for path in ["/healthz", "/readyz", "/healthz?verbose=1"] {
        let answer = server.ask(request("GET", path, "", "")).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        assert!(answer.json()["status"].is_string());
        let mut client = server.client().await;
        client.send(request("HEAD", path, "Connection: close\r\n", "")).await;
        assert_eq!(client.head().await.status, 200);
        client.closed().await;
    }
}

#[tokio::test]
async fn the_token_opens_v1_and_nothing_else_does() {
    let server = start_routes(Some("right token")).await;
    for path in ["/v1/leads", "/v1/leads/a@example.com"] {
        for header in [
            "",
            "Authorization: Bearer wrong\r\n",
            "Authorization: Bearer right toke\r\n",
            "Authorization: Bearer right token2\r\n",
            "Authorization: Bearer\r\n",
            "Authorization: Basic right token\r\n",
            "Authorization: right token\r\n",
        ] {
            let answer = server.ask(request("GET", path, header, "")).await;
            assert_eq!(answer.problem(401), "unauthorized", "{path} {header}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    let right = "Authorization: bearer right token\r\n";
    let answer = server.ask(request("GET", "/v1/leads/a@example.com", right, "")).await;
    assert_eq!(answer.problem(404), "not_found");
}

#[tokio::test]
async fn without_a_token_only_this_machine_may_ask() {
    let server = start_routes(None).await;
    for header in [
        "X-Forwarded-For: 203.0.113.9\r\n",
        "Forwarded: for=203.0.113.9\r\n",
        "X-Real-IP: 203.0.113.9\r\n",
    ] {
        let answer = server.ask(request("GET", "/v1/leads/a@example.com", header, "")).await;
        assert_eq!(answer.problem(403), "loopback_only", "{header}");
    }
    let rebound = "GET /v1/leads/a@example.com HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(server.ask(rebound).await.problem(403), "loopback_only");
    let answer = server.ask(request("GET", "/v1/leads/a@example.com", "", "")).await;
    assert_eq!(answer.problem(404), "not_found");
}

#[tokio::test]
async fn addresses_in_the_path() {
    let server = start_routes(None).await;
    let get = |email: &str| request("GET", &format!("/v1/leads/{email}"), "", "");
    for known_form in ["a%40example.com", "a+b@example.com", "A%2Fb@example.com"] {
        assert_eq!(server.ask(get(known_form)).await.problem(404), "not_found", "{known_form}");
    }
    for bad in ["nobody", "%20", "%ff%fe@example.com"] {
        let answer = server.ask(get(bad)).await;
        assert_eq!(answer.problem(422), "invalid_email", "{bad}");
    }
}

#[tokio::test]
async fn content_types_of_v1() {
    let server = start_routes(None).await;
    let ask = async |header: &str, body: &str| {
        server.ask(request("POST", "/v1/leads", header, body)).await
    };
    for refused in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/json; charset=utf-16\r\n",
        "Content-Type: +json\r\n",
    ] {
        let answer = ask(refused, "{}").await;
        assert_eq!(answer.problem(415), "unsupported_media_type", "{refused}");
    }
    for taken in [
        "Content-Type: application/json\r\n",
        "Content-Type: Application/JSON; charset=\"UTF-8\"\r\n",
        "Content-Type: application/vnd.api+json\r\n",
        "Content-Type: application/x-ndjson\r\n",
    ] {
        assert_eq!(ask(taken, "").await.problem(400), "empty_body", "{taken}");
    }
}

#[tokio::test]
async fn bad_items_are_named_one_by_one() {
    let server = start_routes(None).await;
    let headers = "Content-Type: application/x-ndjson\r\nIdempotency-Key: k-1\r\n";
    let answer = server.ask(request("POST", "/v1/leads", headers, "{}\n\nnull\n{\n")).await;
    assert_eq!(answer.problem(422), "invalid_leads");
    assert_eq!(answer.header("idempotency-key"), Some("k-1"));
    let problem = answer.json();
    let items: Vec<u64> =
        problem["errors"].as_array().unwrap().iter().map(|e| e["item"].as_u64().unwrap()).collect();
    assert_eq!(items, [0, 1, 2]);
    for error in problem["errors"].as_array().unwrap() {
        assert!(
            error["field"].is_string() && error["code"].is_string() && error["message"].is_string()
        );
    }
    let outcomes = problem["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 3);
    assert!(outcomes.iter().all(|o| o["outcome"] == "rejected" && o["reason"].is_string()));
}

#[tokio::test]
async fn a_batch_has_a_limit() {
    let server = start_routes(None).await;
    let many = format!("[{}0]", "0,".repeat(10_000));
    let headers = "Content-Type: application/json\r\n";
    let answer = server.ask(request("POST", "/v1/leads", headers, &many)).await;
    assert_eq!(answer.problem(422), "too_many_items");
    let none = server.ask(request("POST", "/v1/leads", headers, "[]")).await;
    assert_eq!((none.status, none.json()), (200, serde_json::json!({"outcomes": []})));
}

#[tokio::test]
async fn bad_idempotency_keys_are_refused() {
    let server = start_routes(None).await;
    for key in ["", "two words", "\u{e9}", &"k".repeat(256), "a\r\nIdempotency-Key: b"] {
        let headers = format!("Content-Type: application/json\r\nIdempotency-Key: {key}\r\n");
        let answer = server.ask(request("POST", "/v1/leads", &headers, "[]")).await;
        assert_eq!(answer.problem(422), "invalid_idempotency_key", "{key}");
    }
}

#[tokio::test]
async fn what_memory_should_not_hold_is_told_to_come_back() {
    // Bodies may wait for the writers in 64 MiB together, and nine of these are more.
    let server = start_routes_of(None, true, 8 << 20).await;
    let (_, db) = server.database.as_ref().unwrap();
    let mut blocking = db.client().await;
    let lock = blocking.transaction().await.unwrap();
    lock.batch_execute("lock table leadsync.leads in access exclusive mode").await.unwrap();
    let (answered, mut answers) = mpsc::unbounded_channel();
    for n in 0..9 {
        let lead = format!(r#"{{"email":"a{n}@example.com"}}"#);
        let body = format!("{lead}{}", " ".repeat((8 << 20) - lead.len() - 1));
        let headers = "Content-Type: application/json\r\nIdempotency-Key: k\r\n";
        let headers = headers.replace("k\r", &format!("k{n}\r"));
        let mut client = server.client().await;
        let answered = answered.clone();
        tokio::spawn(async move {
            client.send(request("POST", "/v1/leads", &headers, &body)).await;
            answered.send(client.answer().await).unwrap();
        });
    }
    let first = bounded("the first answer", answers.recv()).await.unwrap();
    assert_eq!(first.problem(503), "busy");
    assert!(first.header("idempotency-key").unwrap().starts_with('k'));
    lock.commit().await.unwrap();
    for _ in 1..9 {
        let answer = bounded("an answer", answers.recv()).await.unwrap();
        assert_eq!((answer.status, answer.json()["outcome"].as_str()), (200, Some("created")));
    }
    let leads = blocking.query("select from leadsync.leads", &[]).await.unwrap();
    assert_eq!(leads.len(), 8, "what was answered 503 is nowhere");
}

/// Somebody looks at one lead in psql and leaves the transaction open.
#[tokio::test]
async fn a_locked_lead_harms_only_itself() {
    let server = start_routes(None).await;
    let post = |email: &str, company: &str| {
        let body = format!(r#"{{"email":"{email}","company":"{company}"}}"#);
        server.ask(request("POST", "/v1/leads", "Content-Type: application/json\r\n", &body))
    };
    assert_eq!(post("locked@example.com", "a").await.status, 200);
    let (_, db) = server.database.as_ref().unwrap();
    let mut psql = db.client().await;
    let lock = psql.transaction().await.unwrap();
    lock.batch_execute("select from leadsync.leads for update").await.unwrap();
    let emails: Vec<String> = (0..40).map(|n| format!("free{n}@example.com")).collect();
    // The first keeps the writer busy, so that the second waits in one group with others.
    let locked = ["b", "c"].map(|company| post("locked@example.com", company));
    let free = emails.iter().map(|email| post(email, "a"));
    let (locked, free) =
        tokio::join!(futures_util::future::join_all(locked), futures_util::future::join_all(free));
    assert!(free.iter().all(|answer| answer.status == 200));
    assert!(locked.iter().all(|answer| answer.status == 503));
    lock.rollback().await.unwrap();
    assert_eq!(post("locked@example.com", "b").await.status, 200);
}

#[tokio::test]
async fn an_instance_that_does_not_receive_answers_health_checks_only() {
    let server = start_routes_of(Some("t"), false, MAX_BODY).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.ask(request("GET", path, "", "")).await.status, 200, "{path}");
        let answer = server.ask(request("POST", path, "", "")).await;
        assert_eq!(answer.problem(405), "method_not_allowed");
    }
    let token = "Authorization: Bearer t\r\nContent-Type: application/json\r\n";
    for path in ["/hooks/site?token=t", "/hooks/nobody", "/v1/leads", "/v1/leads/a@example.com"] {
        for method in ["GET", "HEAD", "POST"] {
            let mut client = server.client().await;
            client.send(request(method, path, token, r#"{"email":"a@example.com"}"#)).await;
            if method == "HEAD" {
                assert_eq!(client.head().await.status, 404, "{path}");
            } else {
                assert_eq!(client.answer().await.problem(404), "not_found", "{method} {path}");
            }
        }
    }
    let (_, db) = server.database.as_ref().unwrap();
    let stored = db.client().await.query("select from leadsync.deliveries", &[]).await.unwrap();
    assert!(stored.is_empty());
}
