//! Outgoing HTTP, the same for every destination: one deadline for the whole exchange, a cap on the answer,
//! no redirects, and transport failures sorted by whether the request may have been sent.
//!
//! Beside the commands `demo` and `send` the only place that names the HTTP client crate.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Url;

use super::{CallError, DestinationError};
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

/// An HTTP client for one destination.
pub(super) struct Client {
    inner: reqwest::Client,
    base: Url,
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

impl Client {
    /// A client whose requests go below `base_url`, or below `default` where configuration names none.
    pub fn new(
        config: &config::Destination,
        default: Option<&str>,
        call_timeout: Duration,
    ) -> Result<Client, DestinationError> {
        let invalid = |why: String| DestinationError::Invalid {
            name: config.name.clone(),
            key: "base_url",
            why,
        };
        let written =
            config.base_url.as_deref().or(default).ok_or_else(|| DestinationError::Missing {
                name: config.name.clone(),
                key: "base_url",
                why: "it says where to send the leads, like \"https://example.com/leads\"",
            })?;
        let base = Url::parse(written).map_err(|e| invalid(format!("is not a URL: {e}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(invalid("must begin with https:// or http://".to_owned()));
        }
        let inner = caller(&base, call_timeout).map_err(invalid)?;
        Ok(Client { inner, base })
    }

    /// The base URL without what may be secret in it.
    pub fn shown(&self) -> String {
        let port = self.base.port().map(|p| format!(":{p}")).unwrap_or_default();
        let host = self.base.host_str().unwrap_or_default();
        format!("{}://{host}{port}{}", self.base.scheme(), self.base.path())
    }

    /// Sends one request to the base URL with `path` (which begins with `/`) added, and reads the answer. An error is
    /// `Unreachable` only where the request cannot have been sent.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Option<Vec<u8>>,
    ) -> Result<Answer, CallError> {
        let mut url = self.base.clone();
        if !path.is_empty() {
            url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        }
        let mut request = self.inner.request(method, url).headers(headers.into_iter().collect());
        if let Some(body) = body {
            request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
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
pub(super) fn redacted<'a>(text: &str, values: impl IntoIterator<Item = &'a str>) -> String {
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
    fn redacted_words_keep_the_sense_and_lose_the_person() {
        let said = redacted(
            "Email address \"ana@example.com\" of Anastasia is invalid; owner <bo@example.com>\u{7}",
            ["Anastasia", "is", "Ana"],
        );
        assert_eq!(said, "Email address \"[address]\" of [value] is invalid; owner <[address]> ");
        assert_eq!(redacted(&"ü".repeat(500), []).chars().count(), MAX_WORDS);
    }
}
