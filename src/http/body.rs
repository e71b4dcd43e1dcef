//! A request as it arrived, and its body: the exact bytes, in a bounded amount.

use std::error::Error;
use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use futures_util::{Stream, StreamExt};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use warp::{Filter, Rejection};

use super::{HttpError, Peer, RequestId};

/// Bytes of bodies that the process holds at once, proven senders' or not; the next one is told to come
/// back. Every connection may send a body of the largest size, which together is more than memory.
const HELD: usize = 256 << 20;

static ROOM: Semaphore = Semaphore::const_new(HELD);

/// What a sender is told to wait for room.
const ROOM_SOON: Duration = Duration::from_secs(1);

/// A request whose body has not been read yet.
pub struct Arrived {
    /// Any; the route decides.
    pub method: Method,
    /// As received.
    pub headers: HeaderMap,
    /// As received, without `?`; may be empty.
    pub query: String,
    /// Absent only where no server put it there.
    pub peer: Option<Peer>,
    /// Given by the server.
    pub id: RequestId,
    body: Pin<Box<dyn Stream<Item = Result<Bytes, warp::Error>> + Send>>,
    /// Room for what was read of the body, given back with the request.
    held: Option<SemaphorePermit<'static>>,
}

/// Takes a request apart. Goes after the path filters: it matches everything and takes the body.
pub fn arrived() -> impl Filter<Extract = (Arrived,), Error = Rejection> + Clone {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::method()
        .and(warp::header::headers_cloned())
        .and(query)
        .and(warp::ext::optional::<Peer>())
        .and(warp::ext::optional::<RequestId>())
        .and(warp::body::stream())
        .map(|method, headers, query, peer, id: Option<RequestId>, body| Arrived {
            method,
            headers,
            query,
            peer,
            id: id.unwrap_or_else(RequestId::new),
            body: boxed(body),
            held: None,
        })
}

fn boxed(
    body: impl Stream<Item = Result<impl Buf, warp::Error>> + Send + 'static,
) -> Pin<Box<dyn Stream<Item = Result<Bytes, warp::Error>> + Send>> {
    // Chunks are `Bytes` underneath, for which this copies nothing.
    Box::pin(body.map(|chunk| chunk.map(|mut buf| buf.copy_to_bytes(buf.remaining()))))
}

impl Arrived {
    /// The whole body, at most `max` bytes both as sent and decompressed: 413 past that, before
    /// reading where the length is announced. Bodies in gzip are decompressed, and then the headers
    /// no longer say so; other encodings are 415. Takes the body: a second call gives an empty one.
    pub async fn read_body(&mut self, max: usize) -> Result<Bytes, HttpError> {
        let gzip = is_gzip(&self.headers)?;
        let announced =
            self.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: u64| length > max as u64) {
            return Err(HttpError::too_large(max));
        }
        let sent = self.collect(max).await?;
        if !gzip {
            return Ok(sent);
        }
        self.headers.remove(CONTENT_ENCODING);
        self.headers.remove(CONTENT_LENGTH);
        let body = inflate(&sent, max)?;
        self.hold(body.len())?;
        Ok(body)
    }

    /// Takes room for so many bytes more, or says busy.
    fn hold(&mut self, bytes: usize) -> Result<(), HttpError> {
        let busy = || HttpError::unavailable("busy", "too many bodies are being read", ROOM_SOON);
        let bytes = u32::try_from(bytes).map_err(|_| busy())?;
        let more = ROOM.try_acquire_many(bytes).map_err(|_| busy())?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }

    async fn collect(&mut self, max: usize) -> Result<Bytes, HttpError> {
        let mut whole = Bytes::new();
        let mut more = BytesMut::new();
        while let Some(chunk) = self.body.next().await {
            let chunk = chunk.map_err(broken)?;
            if chunk.len() > max.saturating_sub(whole.len() + more.len()) {
                return Err(HttpError::too_large(max));
            }
            self.hold(chunk.len())?;
            // Most bodies are one chunk, which is then handed on as it is.
            if whole.is_empty() && more.is_empty() {
                whole = chunk;
            } else {
                if more.is_empty() {
                    more.extend_from_slice(&std::mem::take(&mut whole));
                }
                more.extend_from_slice(&chunk);
            }
        }
        Ok(if more.is_empty() { whole } else { more.freeze() })
    }

    /// Media type in lower case without parameters, and its charset where one is named.
    pub(super) fn content_type(&self) -> Option<(String, Option<String>)> {
        let text = self.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let mut parts = text.split(';');
        let media_type = parts.next()?.trim().to_ascii_lowercase();
        let charset = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            let named = name.trim().eq_ignore_ascii_case("charset");
            named.then(|| value.trim().trim_matches('"').to_ascii_lowercase())
        });
        Some((media_type, charset))
    }
}

/// Whether a charset's name means UTF-8 or a part of it.
pub(super) fn is_utf8(charset: &str) -> bool {
    matches!(charset, "utf-8" | "utf8" | "us-ascii" | "ascii")
}

/// Every `Content-Encoding` counts, also a repeated header: gzip once, or nothing.
fn is_gzip(headers: &HeaderMap) -> Result<bool, HttpError> {
    let mut gzip = false;
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value.to_str().map_err(|_| HttpError::unsupported_encoding())?;
        for encoding in value.split(',').map(str::trim) {
            if encoding.is_empty() || encoding.eq_ignore_ascii_case("identity") {
                continue;
            }
            let known =
                encoding.eq_ignore_ascii_case("gzip") || encoding.eq_ignore_ascii_case("x-gzip");
            if !known || gzip {
                return Err(HttpError::unsupported_encoding());
            }
            gzip = true;
        }
    }
    Ok(gzip)
}

/// Stops one byte past the limit, so a bomb costs no more than an honest body of the largest size.
fn inflate(sent: &[u8], max: usize) -> Result<Bytes, HttpError> {
    let mut body = Vec::new();
    MultiGzDecoder::new(sent).take((max as u64).saturating_add(1)).read_to_end(&mut body).map_err(
        |error| HttpError::bad_request("bad_gzip", "the body is not gzip").because(error),
    )?;
    if body.len() > max {
        return Err(HttpError::too_large(max));
    }
    Ok(body.into())
}

/// The server reports a body that took too long as an I/O error of kind `TimedOut`.
fn broken(error: warp::Error) -> HttpError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(this) = cause {
        let io = this.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut) {
            let detail = "the body took too long to arrive";
            return HttpError::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail);
        }
        cause = this.source();
    }
    HttpError::bad_request("incomplete_body", "the body did not arrive whole").because(error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http::HeaderValue;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn encodings() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            is_gzip(&headers).ok()
        };
        assert_eq!(of(&[]), Some(false));
        assert_eq!(of(&["identity"]), Some(false));
        assert_eq!(of(&["GZip"]), Some(true));
        assert_eq!(of(&["identity, x-gzip"]), Some(true));
        for refused in
            [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &["gzip", "br"], &["deflate"]]
        {
            assert_eq!(of(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn inflates_up_to_the_limit_and_no_further() {
        let text = vec![b'a'; 1000];
        assert_eq!(inflate(&gzip(&text), 1000).unwrap(), text);
        let two_members = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(inflate(&two_members, 1000).unwrap(), "one two");
        let status = |sent: &[u8], max| {
            let error = inflate(sent, max).unwrap_err();
            error.into_response::<Bytes>(RequestId::new()).status().as_u16()
        };
        assert_eq!(status(&gzip(&text), 999), 413);
        assert_eq!(status(&gzip(&text)[..20], 1000), 400, "cut short");
        assert_eq!(status(b"plain", 1000), 400);
        assert_eq!(status(&[gzip(b"x"), b"junk".to_vec()].concat(), 1000), 400, "trailing junk");
        assert_eq!(status(b"", 1000), 400);
    }
}
