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
use super::{AuthError, MAX_SIGNATURES, SignError, any, content, set_header};

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
    let (before, after) = around(signing, time.unwrap_or_default());
    let signed = [before.as_bytes(), &content, after.as_bytes()];
    any(keys, |key| {
        let key = key.expose().as_bytes();
        tags.iter().any(|tag| matches(signing.algorithm, key, &signed, tag))
    })
}

/// What is signed before the body and after it.
fn around(signing: &Signing<String>, time: &str) -> (String, String) {
    let (before, after) =
        signing.signed.split_once("{body}").unwrap_or((signing.signed.as_str(), ""));
    (before.replace("{time}", time), after.replace("{time}", time))
}

/// Sets the headers that [`check`] looks for.
pub(super) fn sign(
    request: &mut Request,
    now: i64,
    signing: &Signing<String>,
    keys: &[Secret],
) -> Result<(), SignError> {
    let Some(key) = keys.first() else { return Ok(()) };
    let timed = signing.time_header.is_some() || signing.time_tag.is_some();
    let time = if timed {
        now.saturating_mul(per_second(signing).into()).to_string()
    } else {
        String::new()
    };
    // Whether others vouch for the rest of the body is for the receiver to judge.
    let content =
        content::of(request, signing.content, false).map_err(|_| SignError::Unreadable)?;
    let (before, after) = around(signing, &time);
    let signed = [before.as_bytes(), &content, after.as_bytes()];
    let tag = digest(signing.algorithm, key.expose().as_bytes(), &signed);
    let tag = format!("{}{}", signing.prefix, written(signing.encoding, &tag));
    let entry = |name: &Option<String>, value: String| match name {
        Some(name) => format!("{name}={value}"),
        None => value,
    };
    let tag = entry(&signing.tag, tag);
    if !timed {
        set_header(request, &signing.header, tag);
        return Ok(());
    }
    let time = entry(&signing.time_tag, time);
    match &signing.time_header {
        Some(header) if !header.eq_ignore_ascii_case(&signing.header) => {
            set_header(request, header, time);
            set_header(request, &signing.header, tag);
        }
        _ => set_header(request, &signing.header, format!("{time},{tag}")),
    }
    Ok(())
}

/// The values of that name in `a=1,b=2`.
fn named<'a>(list: &'a str, name: &str) -> Vec<&'a str> {
    let pairs = list.split(',').take(MAX_SIGNATURES + 1).filter_map(|pair| pair.split_once('='));
    pairs.filter(|(n, _)| *n == name).map(|(_, value)| value).collect()
}

fn per_second(signing: &Signing<String>) -> u32 {
    match signing.unit {
        TimestampUnit::S => 1,
        TimestampUnit::Ms => 1000,
    }
}

fn fresh(time: &str, now: i64, signing: &Signing<String>) -> Result<(), AuthError> {
    near(time, now, per_second(signing), signing.tolerance_s, signing.limits_future)
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

/// What [`strict`] reads.
pub(super) fn written(encoding: SignatureEncoding, digest: &[u8]) -> String {
    match encoding {
        SignatureEncoding::Hex => hex::encode(digest),
        SignatureEncoding::Base64 => STANDARD.encode(digest),
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], signed: &[&[u8]]) -> Option<M> {
    // An HMAC takes a key of any length, so this is never `None`.
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    signed.iter().for_each(|bytes| mac.update(bytes));
    Some(mac)
}

pub(super) fn matches(
    algorithm: SignatureAlgorithm,
    key: &[u8],
    signed: &[&[u8]],
    tag: &[u8],
) -> bool {
    fn check<M: Mac + KeyInit>(key: &[u8], signed: &[&[u8]], tag: &[u8]) -> bool {
        mac::<M>(key, signed).is_some_and(|mac| mac.verify_slice(tag).is_ok())
    }
    match algorithm {
        SignatureAlgorithm::HmacSha256 => check::<Hmac<Sha256>>(key, signed, tag),
        SignatureAlgorithm::HmacSha1 => check::<Hmac<Sha1>>(key, signed, tag),
    }
}

/// The digest that [`matches`] wants.
pub(super) fn digest(algorithm: SignatureAlgorithm, key: &[u8], signed: &[&[u8]]) -> Vec<u8> {
    fn make<M: Mac + KeyInit>(key: &[u8], signed: &[&[u8]]) -> Vec<u8> {
        mac::<M>(key, signed).map(|mac| mac.finalize().into_bytes().to_vec()).unwrap_or_default()
    }
    match algorithm {
        SignatureAlgorithm::HmacSha256 => make::<Hmac<Sha256>>(key, signed),
        SignatureAlgorithm::HmacSha1 => make::<Hmac<Sha1>>(key, signed),
    }
}
