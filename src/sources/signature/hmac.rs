//! HMACs in headers, compared in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

use crate::config::{SignatureAlgorithm, SignatureEncoding, TimestampUnit};
use crate::secret::Secret;
use crate::sources::Request;

use super::scheme::Signing;
use super::{AuthError, MAX_SIGNATURES, any, content};

/// Believes the request or says why not. `alone`: nothing else vouches for it.
pub(super) fn check(
    request: &Request,
    now: i64,
    signing: &Signing<String>,
    keys: &[Secret],
    alone: bool,
) -> Result<(), AuthError> {
    let header = |name: &str| request.header(name).ok_or(AuthError::Missing);
    let value = header(&signing.header)?;
    let given = match &signing.tag {
        None => vec![value],
        Some(tag) => named(value, tag),
    };
    let tags: Vec<Vec<u8>> = given
        .iter()
        .filter_map(|tag| tag.strip_prefix(signing.prefix.as_str()))
        .filter_map(|tag| strict(signing.encoding, tag))
        .collect();
    if tags.is_empty() {
        return Err(AuthError::Malformed);
    }
    let time = match (&signing.time_header, &signing.time_tag) {
        (None, None) => None,
        (time_header, time_tag) => {
            let value = time_header.as_ref().map_or(Ok(value), |name| header(name))?;
            Some(match time_tag.as_ref().map(|tag| named(value, tag)).as_deref() {
                None => value,
                Some([one]) => one,
                Some(_) => return Err(AuthError::Malformed),
            })
        }
    };
    if let Some(time) = time {
        fresh(time, now, signing)?;
    }
    let content = content::of(request, signing.content, alone)?;
    let (before, after) =
        signing.signed.split_once("{body}").unwrap_or((signing.signed.as_str(), ""));
    let filled = |text: &str| text.replace("{time}", time.unwrap_or_default());
    let (before, after) = (filled(before), filled(after));
    let signed = [before.as_bytes(), &content, after.as_bytes()];
    any(keys, |key| {
        let key = key.expose().as_bytes();
        tags.iter().any(|tag| matches(signing.algorithm, key, &signed, tag))
    })
}

/// The values of that name in `a=1,b=2`.
fn named<'a>(list: &'a str, name: &str) -> Vec<&'a str> {
    let pairs = list.split(',').take(MAX_SIGNATURES + 1).filter_map(|pair| pair.split_once('='));
    pairs.filter(|(n, _)| *n == name).map(|(_, value)| value).collect()
}

fn fresh(time: &str, now: i64, signing: &Signing<String>) -> Result<(), AuthError> {
    let per_second = match signing.unit {
        TimestampUnit::S => 1,
        TimestampUnit::Ms => 1000,
    };
    near(time, now, per_second, signing.tolerance_s, signing.limits_future)
}

/// A time since 1970 in plain digits, near enough to now.
pub(super) fn near(
    time: &str,
    now: i64,
    per_second: u32,
    tolerance_s: u64,
    limits_future: bool,
) -> Result<(), AuthError> {
    if time.is_empty() || !time.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AuthError::Malformed);
    }
    let time: i64 = time.parse().map_err(|_| AuthError::Malformed)?;
    let now = now.saturating_mul(i64::from(per_second));
    let tolerance = tolerance_s.saturating_mul(u64::from(per_second));
    let near = now.abs_diff(time) <= tolerance || (!limits_future && time > now);
    if near { Ok(()) } else { Err(AuthError::Stale) }
}

/// One text for one digest: lower-case hex, or padded standard base64. Nothing is forgiven.
pub(super) fn strict(encoding: SignatureEncoding, text: &str) -> Option<Vec<u8>> {
    match encoding {
        SignatureEncoding::Hex if text.bytes().any(|b| b.is_ascii_uppercase()) => None,
        SignatureEncoding::Hex => hex::decode(text).ok(),
        SignatureEncoding::Base64 => STANDARD.decode(text).ok(),
    }
}

pub(super) fn matches(
    algorithm: SignatureAlgorithm,
    key: &[u8],
    signed: &[&[u8]],
    tag: &[u8],
) -> bool {
    fn check<M: Mac + KeyInit>(key: &[u8], signed: &[&[u8]], tag: &[u8]) -> bool {
        // An HMAC takes a key of any length, so this is never the `Err`.
        let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return false };
        signed.iter().for_each(|bytes| mac.update(bytes));
        mac.verify_slice(tag).is_ok()
    }
    match algorithm {
        SignatureAlgorithm::HmacSha256 => check::<Hmac<Sha256>>(key, signed, tag),
        SignatureAlgorithm::HmacSha1 => check::<Hmac<Sha1>>(key, signed, tag),
    }
}
