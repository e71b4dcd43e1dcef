//! Calls to the APIs of sources. They only read, so a failure of any kind may be tried again.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};
use reqwest::Url;
use serde_json::Value;

use super::CallError;
use crate::config;
use crate::destinations::{caller, redacted};
use crate::error::Chain;
use crate::sources::SourceErrorKind;

/// Largest answer that is read. A hundred contacts with all their properties are some 300 KiB.
const MAX_ANSWER: usize = 8 << 20;

/// Longest code of an API that is kept.
const MAX_CODE: usize = 64;

/// Longest pause an API is believed.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// An HTTP client for the API of one source.
pub(super) struct Client {
    inner: reqwest::Client,
    base: Url,
    headers: HeaderMap,
}

/// What the API answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Client {
    /// A client whose requests go below `base_url`, else below `default`, each with the token and the API's version
    /// under that header's name.
    pub fn new(
        source: &config::Source,
        default: &str,
        version: Option<(&'static str, &str)>,
        call_timeout: Duration,
    ) -> Result<Client, SourceErrorKind> {
        let url = |why: String| SourceErrorKind::Invalid { key: "base_url", why: why.into() };
        let written = source.base_url.as_deref().unwrap_or(default);
        let base = Url::parse(written).map_err(|error| url(format!("is not a URL: {error}")))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(url("must begin with https:// or http://".to_owned()));
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = &source.token {
            let odd = |_| SourceErrorKind::Invalid {
                key: "token",
                why: "has characters that cannot stand in a header".into(),
            };
            let bearer = format!("Bearer {}", token.expose().trim());
            let mut bearer = HeaderValue::try_from(bearer).map_err(odd)?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        if let Some((name, version)) = version {
            let odd = |_| SourceErrorKind::Invalid {
                key: "api_version",
                why: "has characters that cannot stand in a header".into(),
            };
            headers.insert(name, HeaderValue::try_from(version).map_err(odd)?);
        }
        let inner = caller(&base, call_timeout).map_err(url)?;
        Ok(Client { inner, base, headers })
    }

    /// GET of the base URL with `path`, which begins with `/`, and a query that is escaped already.
    pub async fn get(&self, path: &str, query: &str) -> Result<Answer, CallError> {
        let mut url = self.at(path);
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        self.send(self.inner.get(url)).await
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, CallError> {
        let request = self.inner.post(self.at(path)).header(CONTENT_TYPE, "application/json");
        self.send(request.body(body.to_string())).await
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<Answer, CallError> {
        let failed = |error: reqwest::Error| {
            // The address is no secret, but long and always the same.
            unavailable(Chain(&error.without_url()).to_string())
        };
        let mut response = request.headers(self.headers.clone()).send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len().saturating_add(chunk.len()) > MAX_ANSWER {
                let message = format!("the answer is larger than {} MiB", MAX_ANSWER >> 20);
                return Err(unavailable(message));
            }
            body.extend_from_slice(&chunk);
        }
        let body = body.freeze();
        let body = if (200..300).contains(&status) { body } else { self.without_token(body) };
        Ok(Answer { status, headers, body })
    }

    /// A refusal may repeat the token that it refuses, and its words are kept.
    fn without_token(&self, body: Bytes) -> Bytes {
        let bearer = self.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = bearer.and_then(|bearer| bearer.strip_prefix("Bearer "));
        match (token, std::str::from_utf8(&body)) {
            (Some(token), Ok(text)) if !token.is_empty() && text.contains(token) => {
                text.replace(token, "[token]").into()
            }
            _ => body,
        }
    }
}

pub(super) fn unavailable(message: impl Into<String>) -> CallError {
    CallError::Unavailable { after: None, message: message.into() }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Result<Value, CallError> {
        serde_json::from_slice(&self.body).map_err(|_| unavailable(self.words(None)))
    }

    /// How long `Retry-After` asks to wait: seconds, or an HTTP date.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let pause = match text.parse::<u64>() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
                Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default()
            }
        };
        Some(pause.min(MAX_PAUSE))
    }

    /// The API's words, or its status: short, and without addresses.
    pub fn words(&self, said: Option<&str>) -> String {
        match said.map(|said| redacted(said, [])).filter(|said| !said.trim().is_empty()) {
            Some(said) => format!("{} {said}", self.status),
            None => {
                let reason = http::StatusCode::from_u16(self.status).ok();
                let reason = reason.and_then(|status| status.canonical_reason());
                format!("{} {}", self.status, reason.unwrap_or("no reason given"))
            }
        }
    }

    /// A code of the API fit to keep, or its status.
    pub fn code(&self, said: Option<&str>) -> String {
        let plain = |c: &char| c.is_ascii_alphanumeric() || "_-.".contains(*c);
        let code: String = said.unwrap_or_default().chars().filter(plain).take(MAX_CODE).collect();
        if code.is_empty() { self.status.to_string() } else { code }
    }

    /// What every API means by a status that says nothing about one record; `None` for other statuses.
    pub fn trouble(&self, code: &str, said: Option<&str>) -> Option<CallError> {
        let message = self.words(said);
        match self.status {
            401 => Some(CallError::Credentials { code: code.to_owned(), message }),
            429 => Some(CallError::SlowDown { after: self.retry_after(), message }),
            // A redirect is an address that is wrong, or somebody in between.
            300..=399 => Some(CallError::Misconfigured { code: code.to_owned(), message }),
            408 | 500.. => Some(CallError::Unavailable { after: self.retry_after(), message }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_repeats_the_token_is_kept_without_it() {
        let source: config::Source = serde_json::from_value(serde_json::json!({
            "name": "ads", "kind": "meta", "token": "PAGE-TOKEN-1", "base_url": "http://127.0.0.1:1"
        }))
        .unwrap();
        let client = Client::new(&source, "", None, Duration::from_secs(1)).unwrap();
        let said = |body: &'static str| client.without_token(Bytes::from_static(body.as_bytes()));
        assert_eq!(said("Malformed access token PAGE-TOKEN-1"), "Malformed access token [token]");
        assert_eq!(said("no such lead"), "no such lead");
    }
}
