//! HTTP by hand: what a well-behaved client would never send, and answers read byte by byte.

use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No test waits for ever.
pub async fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long for {what}"),
    }
}

/// A client that sends exactly what it is told to.
pub struct Client {
    pub stream: TcpStream,
    pub read: Vec<u8>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = bounded("a connection", TcpStream::connect(address)).await.unwrap();
        Client { stream, read: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        bounded("the server to read", self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// One answer to anything but HEAD.
    pub async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        let length = answer.header("content-length").unwrap().parse().unwrap();
        while self.read.len() < length {
            assert_ne!(self.more().await, 0, "closed in the middle of a body");
        }
        answer.body = self.read.drain(..length).collect();
        answer
    }

    pub async fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert_ne!(self.more().await, 0, "closed instead of answering");
        };
        let head: Vec<u8> = self.read.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Answer { status, headers, body: Vec::new() }
    }

    pub async fn more(&mut self) -> usize {
        bounded("an answer", self.stream.read_buf(&mut self.read)).await.unwrap()
    }

    /// The server closes without sending anything more.
    pub async fn closed(mut self) {
        assert_eq!(self.read, b"", "more than was expected");
        let read = bounded("the server to close", self.stream.read(&mut [0; 1])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "more than was expected");
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Checks that it is a problem as they all are, and gives its code.
    #[track_caller]
    pub fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"));
        for text in ["type", "title", "detail"] {
            assert!(problem[text].is_string(), "{text}: {problem}");
        }
        if status == 503 {
            assert!(self.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
        }
        problem["code"].as_str().unwrap().to_owned()
    }
}

pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
