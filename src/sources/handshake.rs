//! GETs with which senders check an address before they use it. Pure functions, for the kinds that need one.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::secret::Secret;

use super::Handshake;

/// Longest challenge that is given back.
const MAX_CHALLENGE: usize = 512;

/// WebSub and Meta: `hub.mode=subscribe`, and a `hub.verify_token` that is one of the secrets; the answer
/// is the challenge.
pub fn hub_challenge(query: &str, secrets: &[Secret]) -> Option<Handshake> {
    let token = parameter(query, "hub.verify_token")?;
    let ours = |secret: &Secret| secret.expose().as_bytes().ct_eq(token.as_bytes()).into();
    if parameter(query, "hub.mode")? != "subscribe" || !secrets.iter().any(ours) {
        return None;
    }
    // As text, so that no browser takes what anybody wrote into a link for a page.
    let body = parameter(query, "hub.challenge")?;
    Some(Handshake { status: 200, content_type: "text/plain; charset=utf-8", body })
}

/// LinkedIn: the HMAC-SHA256 of `challengeCode` under the client secret, the newest of several.
pub fn linkedin_challenge(query: &str, secrets: &[Secret]) -> Option<Handshake> {
    let code = parameter(query, "challengeCode")?;
    // An HMAC takes a key of any length, so this is never the `Err`.
    let key = secrets.first()?.expose().as_bytes();
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?;
    mac.update(code.as_bytes());
    let response = hex::encode(mac.finalize().into_bytes());
    let body = serde_json::json!({ "challengeCode": code, "challengeResponse": response });
    Some(Handshake { status: 200, content_type: "application/json", body: body.to_string() })
}

/// A parameter that came exactly once, and is short.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut given = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
    match (given.next(), given.next()) {
        (Some((_, value)), None) if value.len() <= MAX_CHALLENGE => Some(value.into_owned()),
        _ => None,
    }
}
