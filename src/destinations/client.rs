//! Outgoing HTTP, the same for every destination: one deadline for the whole exchange, a cap on the answer,
//! no redirects, and transport failures sorted by whether the request may have been sent.
//!
//! Beside the commands `demo` and `send` the only place that names the HTTP client crate.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use serde_json::Value;

use super::{CallError, DestinationError, Record};
use crate::config;
use crate::error::Chain;

/// Largest answer that is read. A batch of 100 contacts is answered in some 100 KiB.
const MAX_ANSWER: usize = 4 << 20;
/// Longest time for DNS, TCP and TLS, which is where "unreachable" ends and "unknown" begins.
const MAX_CONNECT: Duration = Duration::from_secs(10);
/// Longest pause a CRM is believed: HubSpot's 477 asks for up to a day.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// Longest text of a CRM that is kept, in characters.
const MAX_WORDS: usize = 300;

/// What a path segment has as it is (RFC 3986, unreserved); `:` stands in some CRMs' paths and is added there.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An HTTP client for one destination.
#[derive(Clone)]
pub(super) struct Client {
    inner: reqwest::Client,
    base: Url,
    call_timeout: Duration,
}

/// What the other side answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// As far as it could be read.
    pub body: Bytes,
    /// Why the body is not all there.
    pub broken: Option<String>,
}

/// One request, to be sent below a client's base URL.
#[derive(Clone, Debug)]
pub(super) struct Call {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<(&'static str, Vec<u8>)>,
}

impl Call {
    /// `path` begins with `/` and is added to that of the base URL, or is empty for the base URL itself. What is not
    /// ours in it goes through [`segment`].
    pub fn new(method: Method, path: impl Into<String>) -> Call {
        Call { method, path: path.into(), query: Vec::new(), headers: Vec::new(), body: None }
    }

    pub fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path)
    }

    pub fn post(path: impl Into<String>) -> Call {
        Call::new(Method::POST, path)
    }

    pub fn patch(path: impl Into<String>) -> Call {
        Call::new(Method::PATCH, path)
    }

    /// Adds a parameter to the query, encoded here.
    pub fn query(mut self, name: &'static str, value: impl Into<String>) -> Call {
        self.query.push((name, value.into()));
        self
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Call {
        self.headers.push((name, value));
        self
    }

    pub fn headers(mut self, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Call {
        self.headers.extend(headers);
        self
    }

    pub fn json(self, body: &Value) -> Call {
        self.json_bytes(body.to_string().into_bytes())
    }

    /// JSON whose exact bytes matter, because they are signed.
    pub fn json_bytes(mut self, body: Vec<u8>) -> Call {
        self.body = Some(("application/json", body));
        self
    }

    /// An HTML form.
    pub fn form(mut self, fields: &[(&str, &str)]) -> Call {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.body = Some(("application/x-www-form-urlencoded", body.into_bytes()));
        self
    }
}

/// A text as one segment of a path: an address, an id of the CRM's.
pub(super) fn segment(text: &str) -> String {
    match text {
        // These would walk up the path, also when encoded once.
        "." | ".." => text.replace('.', "%252E"),
        text => utf8_percent_encode(text, SEGMENT).to_string(),
    }
}

impl Client {
    /// A client whose requests go below `base_url`, or below `default` where configuration names none.
    pub fn new(
        config: &config::Destination,
        default: Option<&str>,
        call_timeout: Duration,
    ) -> Result<Client, DestinationError> {
        let written = config.base_url.as_deref().or(default);
        let why = "it says where the CRM is, like \"https://example.com/leads\"";
        Client::to(config, "base_url", written, why, call_timeout)
    }

    /// A client for the address that `key` of the configuration names; `why` says what it is for where there is none.
    pub fn to(
        config: &config::Destination,
        key: &'static str,
        written: Option<&str>,
        why: &'static str,
        call_timeout: Duration,
    ) -> Result<Client, DestinationError> {
        let name = || config.name.clone();
        let invalid = |why: String| DestinationError::Invalid { name: name(), key, why };
        let written =
            written.ok_or_else(|| DestinationError::Missing { name: name(), key, why })?;
        let base = Url::parse(written).map_err(|e| invalid(format!("is not a URL: {e}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(invalid("must begin with https:// or http://".to_owned()));
        }
        let inner = caller(&base, call_timeout).map_err(invalid)?;
        Ok(Client { inner, base, call_timeout })
    }

    /// The same for another base URL, which the CRM told with a token. Not one without encryption where ours has it.
    pub fn at(&self, base: &str) -> Result<Client, CallError> {
        let odd =
            |why: String| CallError::Misconfigured { code: "BASE_URL".to_owned(), message: why };
        let base = Url::parse(base)
            .map_err(|e| odd(format!("the CRM names an address for its API that is none: {e}")))?;
        if base.scheme() != "https" && base.scheme() != self.base.scheme() {
            return Err(odd("the CRM names an address for its API without https".to_owned()));
        }
        let inner = match base.host_str() == self.base.host_str() {
            true => self.inner.clone(),
            false => caller(&base, self.call_timeout)
                .map_err(|message| CallError::Unreachable { message })?,
        };
        Ok(Client { inner, base, call_timeout: self.call_timeout })
    }

    /// The base URL without what may be secret in it.
    pub fn shown(&self) -> String {
        let port = self.base.port().map(|p| format!(":{p}")).unwrap_or_default();
        let host = self.base.host_str().unwrap_or_default();
        format!("{}://{host}{port}{}", self.base.scheme(), self.base.path())
    }

    /// Sends one request and reads the answer. An error is `Unreachable` only where the request cannot have been
    /// sent.
    pub async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let mut url = self.base.clone();
        if !call.path.is_empty() {
            url.set_path(&format!("{}{}", self.base.path().trim_end_matches('/'), call.path));
        }
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        let mut request =
            self.inner.request(call.method, url).headers(call.headers.into_iter().collect());
        if let Some((kind, body)) = call.body {
            request = request.header(http::header::CONTENT_TYPE, kind).body(body);
        }
        let mut response = request.send().await.map_err(failure)?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut body = BytesMut::new();
        let broken = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len().saturating_add(chunk.len()) > MAX_ANSWER => {
                    break Some(format!("the answer is larger than {} MiB", MAX_ANSWER >> 20));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break None,
                Err(error) => break Some(words_of(error)),
            }
        };
        Ok(Answer { status, headers, body: body.freeze(), broken })
    }
}

/// An HTTP client for requests to that address and those below it, with that deadline for a whole exchange.
pub fn caller(base: &Url, call_timeout: Duration) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("leadsync/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .timeout(call_timeout)
        .connect_timeout(MAX_CONNECT.min(call_timeout))
        .referer(false)
        // Shorter than servers keep an idle connection: a request on a dying one has an unknown outcome.
        .pool_idle_timeout(Duration::from_secs(15))
        .tls_backend_preconfigured(tls(base.scheme() == "https")?);
    let host = base.host_str().unwrap_or_default();
    if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
        // A proxy of the environment cannot reach this machine's loopback.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|e| format!("cannot be used: {}", Chain(&e)))
}

/// TLS with the system's root certificates and a provider that is passed, not installed for the whole process.
fn tls(needed: bool) -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    if needed {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(
                "needs root certificates, and this system has none; install ca-certificates".into(),
            );
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("cannot be used: {e}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Sorts a failure to get an answer.
fn failure(error: reqwest::Error) -> CallError {
    // A request that could not even be built was not sent.
    let not_sent = error.is_connect() || error.is_builder();
    let message = words_of(error);
    match not_sent {
        true => CallError::Unreachable { message },
        false => CallError::Unknown { after: None, message },
    }
}

fn words_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    // The outermost text only says "error sending request".
    match error.source() {
        Some(source) if error.is_timeout() => format!("no answer in time: {}", Chain(source)),
        Some(source) => Chain(source).to_string(),
        None => error.to_string(),
    }
}

impl Answer {
    /// How long `Retry-After` asks to wait: seconds, or an HTTP date.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.header("retry-after")?.trim();
        let pause = match text.parse::<u64>() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
                let wait = at.duration_since(jiff::Timestamp::now());
                Duration::try_from(wait).unwrap_or(Duration::ZERO)
            }
        };
        Some(pause.min(MAX_PAUSE))
    }

    /// The body as JSON. An answer that promises success must be readable as a whole, or the outcome is unknown; of
    /// any other the status says enough, and HTML, nothing or half a page is `null`.
    pub fn json(&self) -> Result<Value, CallError> {
        let parsed = serde_json::from_slice(&self.body);
        if !(200..300).contains(&self.status) {
            return Ok(parsed.unwrap_or(Value::Null));
        }
        let why = match (&self.broken, parsed) {
            (None, Ok(body)) => return Ok(body),
            (Some(broken), _) => broken.clone(),
            (None, Err(_)) => "the answer is not JSON".to_owned(),
        };
        let message = format!("{} but {why}", self.words());
        Err(CallError::Unknown { after: None, message })
    }

    /// A header that is a whole number, as those of limits are; fractions are cut off, too large ones are the largest.
    pub fn number(&self, name: &str) -> Option<u32> {
        let text = self.header(name)?.trim();
        let whole = text.split('.').next().unwrap_or(text);
        let number: u64 = whole.parse().ok()?;
        Some(u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A short text for an answer without words of its own.
    pub fn words(&self) -> String {
        let reason = http::StatusCode::from_u16(self.status).ok();
        let reason = reason.and_then(|s| s.canonical_reason()).unwrap_or("no reason given");
        format!("{} {reason}", self.status)
    }
}

/// Words of a CRM fit to keep: no addresses, none of the `values` that were sent, no control characters, not long.
pub fn redacted<'a>(text: &str, values: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = text.to_owned();
    let mut values: Vec<&str> = values.into_iter().filter(|v| v.chars().count() > 3).collect();
    // Longest first, so that a value inside another leaves no rest of it behind.
    values.sort_unstable_by_key(|v| (std::cmp::Reverse(v.len()), *v));
    values.dedup();
    for value in values {
        text = text.replace(value, "[value]");
    }
    let edge = |c: char| c.is_whitespace() || c.is_control() || "\"'()[]{}<>,;:".contains(c);
    text.split_inclusive(edge)
        .map(|piece| match piece.contains('@') {
            true => {
                let end = piece.chars().next_back().filter(|c| edge(*c));
                format!("[address]{}", end.map(String::from).unwrap_or_default())
            }
            false => piece.to_owned(),
        })
        .collect::<String>()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_WORDS)
        .collect()
}

/// What was sent of the records, for [`redacted`].
pub(super) fn sent(records: &[Record]) -> impl Iterator<Item = &str> {
    records.iter().flat_map(|record| {
        let values = record.properties.iter().filter_map(|(_, value)| value.as_deref());
        values.chain([record.lead.email.as_str()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(retry_after: &str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", retry_after.parse().unwrap());
        Answer { status: 429, headers, body: Bytes::new(), broken: None }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(answer("8").retry_after(), Some(Duration::from_secs(8)));
        assert_eq!(answer("99999999999").retry_after(), Some(MAX_PAUSE));
        assert_eq!(answer("Sun, 06 Nov 1994 08:49:37 GMT").retry_after(), Some(Duration::ZERO));
        let in_an_hour = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3600);
        let date = in_an_hour.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let wait = answer(&date).retry_after().unwrap();
        assert!((3590..=3600).contains(&wait.as_secs()), "{wait:?}");
        for odd in ["", "soon", "-5", "1.5"] {
            assert_eq!(answer(odd).retry_after(), None, "{odd}");
        }
    }

    #[test]
    fn a_segment_stays_one() {
        assert_eq!(segment("ana+x/é@example.com"), "ana%2Bx%2F%C3%A9%40example.com");
        let url = Url::parse(&format!("http://x/a/{}/b", segment(".."))).unwrap();
        assert_eq!(url.path(), "/a/%252E%252E/b");
    }

    #[test]
    fn numbers_of_headers() {
        let number = |text: &str| answer(text).number("retry-after");
        assert_eq!(number(" 8 "), Some(8));
        assert_eq!(number("8.75"), Some(8));
        assert_eq!(number("99999999999"), Some(u32::MAX));
        assert_eq!((number("-1"), number("many"), number("")), (None, None, None));
    }

    #[test]
    fn redacted_words_keep_the_sense_and_lose_the_person() {
        let said = redacted(
            "Email address \"ana@example.com\" of Anastasia is invalid; owner <bo@example.com>\u{7}",
            ["Anastasia", "is", "Ana"],
        );
        assert_eq!(said, "Email address \"[address]\" of [value] is invalid; owner <[address]> ");
        assert_eq!(redacted(&"ü".repeat(500), []).chars().count(), MAX_WORDS);
    }
}
