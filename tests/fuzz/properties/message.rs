//! Bytes as a request, and sources to give it to.

use std::time::Duration;

use leadsync::config::{self, EmailFolding};
use leadsync::sources::{ConfiguredSource, Request};
use serde_json::Value;

/// A line, then lines like `content-type: application/json`, a blank line, and the body. Without a
/// blank line all after the first line is the body, so that no bytes are refused.
pub struct Message<'a> {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: &'a [u8],
}

pub fn message(data: &[u8]) -> Message<'_> {
    let (line, rest) = cut(data, b"\n");
    // An empty list of headers is a blank line at once.
    let (head, body) = match rest.strip_prefix(b"\n") {
        Some(body) => (&b""[..], body),
        None if rest.windows(2).any(|two| two == b"\n\n") => cut(rest, b"\n\n"),
        None => (&b""[..], rest),
    };
    let head = String::from_utf8_lossy(head).into_owned();
    let headers = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    Message {
        line: String::from_utf8_lossy(line).trim().to_owned(),
        headers: headers.collect(),
        body,
    }
}

fn cut<'a>(data: &'a [u8], at: &[u8]) -> (&'a [u8], &'a [u8]) {
    match data.windows(at.len()).position(|bytes| bytes == at) {
        Some(found) => (&data[..found], &data[found + at.len()..]),
        None => (data, &[]),
    }
}

pub fn request(headers: Vec<(String, String)>, body: &[u8]) -> Request {
    let body = body.to_vec().into();
    Request { method: "POST".to_owned(), query: String::new(), headers, body }
}

pub fn posted(content_type: &str, body: &[u8]) -> Request {
    request(vec![("content-type".to_owned(), content_type.to_owned())], body)
}

pub fn rules(region: Option<&str>, folding: EmailFolding) -> config::Leads {
    config::Leads {
        default_region: region.map(str::to_owned),
        email_folding: folding,
        future_tolerance: Duration::from_secs(300),
        history: true,
        keep_history: Duration::ZERO,
    }
}

/// A source that the configuration would take as well.
pub fn source(written: Value, rules: &config::Leads) -> ConfiguredSource {
    let source: config::Source = serde_json::from_value(written).expect("a source");
    ConfiguredSource::compile(&source, rules).expect("a source that compiles")
}

/// The same, where it may be none.
pub fn possible(written: Value) -> Option<ConfiguredSource> {
    let source: config::Source = serde_json::from_value(written).ok()?;
    ConfiguredSource::compile(&source, &rules(None, EmailFolding::None)).ok()
}

/// All that can be seen of what was read, to be compared.
pub fn shown<T: std::fmt::Debug>(what: &T) -> String {
    format!("{what:?}")
}
