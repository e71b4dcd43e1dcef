//! Who may use `/v1`.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, FORWARDED, HOST};
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::body::Arrived;
use super::{Context, HttpError};

/// With an admin token: its bearer, from anywhere. Without: this machine only.
pub(super) fn authorize(context: &Context, arrived: &Arrived) -> Result<(), HttpError> {
    let Some(token) = &context.admin_token else {
        return if from_this_machine(arrived) {
            Ok(())
        } else {
            let detail = "without an admin token only clients on the same machine may ask";
            Err(HttpError::new(StatusCode::FORBIDDEN, "loopback_only", detail))
        };
    };
    // Digests have one length, so the comparison does not tell the token's.
    let given = bearer(&arrived.headers).ok_or_else(HttpError::bad_token)?;
    let same = Sha256::digest(given).ct_eq(&Sha256::digest(token.expose()));
    if bool::from(same) { Ok(()) } else { Err(HttpError::bad_token()) }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

/// A loopback peer is not enough: a proxy on this machine brings strangers, and a page in a browser
/// on this machine can be made to ask here under a name of its own (DNS rebinding).
fn from_this_machine(arrived: &Arrived) -> bool {
    let headers = &arrived.headers;
    let proxied = headers.contains_key(FORWARDED)
        || headers.contains_key("x-forwarded-for")
        || headers.contains_key("x-real-ip");
    let peer = arrived.peer.is_some_and(|peer| peer.0.ip().to_canonical().is_loopback());
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().is_none_or(|host| host.to_str().is_ok_and(is_loopback));
    peer && !proxied && host && hosts.next().is_none()
}

/// Whether a `Host` value names this machine by a loopback name or address.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']').unwrap_or_default(),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let no_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    no_port
        && (name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts() {
        for yes in
            ["localhost", "LocalHost:8080", "127.0.0.1", "127.8.0.1:80", "[::1]", "[::1]:8080"]
        {
            assert!(is_loopback(yes), "{yes}");
        }
        for no in [
            "",
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1:80",
            "[2001:db8::1]:80",
            "[",
            "[]",
            "localhost:80@evil.example",
            "[::1]evil.example",
        ] {
            assert!(!is_loopback(no), "{no}");
        }
    }

    #[test]
    fn bearer_tokens() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, http::HeaderValue::from_static(value));
            bearer(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(of("Bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(of("bearer  abc "), Some(b"abc".to_vec()));
        for no in ["Bearer", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(of(no), None, "{no}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
