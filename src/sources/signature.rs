//! Who sent it: signatures and shared secrets, over the raw bytes, compared in constant time.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::config::{self, SignatureAlgorithm, SignatureEncoding};
use crate::secret::Secret;

use super::{Auth, Request, Source, SourceErrorKind};

/// Most signatures looked at in one header: enough for any rotation, too few to make us work.
const MAX_SIGNATURES: usize = 10;

/// How a built-in kind signs.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    /// HMAC-SHA256 of the body, standard base64 after a prefix.
    BodyBase64 {
        /// Header.
        header: &'static str,
        /// Text before the digest.
        prefix: &'static str,
    },
    /// `t=EPOCH,v1=HEX`: HMAC-SHA256 of `t.body`, any of several `v1`.
    TimedHex {
        /// Header.
        header: &'static str,
        /// Largest distance of `t` from now, in seconds.
        tolerance_s: u64,
    },
    /// The Standard Webhooks specification; also under the names `svix-*`.
    StandardWebhooks,
}

/// Why a request is not believed. Never says what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The header or parameter is missing, or came twice.
    #[error("the signature or token is missing")]
    Missing,
    /// It is there and does not have the form it must have.
    #[error("the signature has not the expected form")]
    Malformed,
    /// The time of the attempt is too far from now.
    #[error("the signature is too old or from the future")]
    Stale,
    /// It does not match.
    #[error("the signature or token does not match")]
    Mismatch,
}

impl AuthError {
    /// A stable word for metrics.
    pub const fn word(self) -> &'static str {
        match self {
            AuthError::Missing => "missing",
            AuthError::Malformed => "malformed",
            AuthError::Stale => "stale",
            AuthError::Mismatch => "mismatch",
        }
    }
}

/// One way of proving who sends, with what it takes. No `Debug`: it holds keys.
pub(super) enum Check {
    Body {
        header: String,
        prefix: String,
        algorithm: SignatureAlgorithm,
        encoding: SignatureEncoding,
        /// Header with the signed time, and its tolerance in seconds.
        timestamp: Option<(String, u64)>,
        keys: Vec<Secret>,
    },
    TimedHex {
        header: &'static str,
        tolerance_s: u64,
        keys: Vec<Secret>,
    },
    StandardWebhooks {
        keys: Vec<Vec<u8>>,
    },
    UrlToken(Vec<Secret>),
    Header {
        name: String,
        values: Vec<Secret>,
    },
    Basic {
        user: String,
        passwords: Vec<Secret>,
    },
}

/// Everything the configuration says about who may deliver; at least one check.
pub(super) fn compile(
    source: &config::Source,
    kind: &'static Source,
) -> Result<Vec<Check>, SourceErrorKind> {
    let secrets = source.secret.as_slice().to_vec();
    let not_for_kind = |key, hint| Err(SourceErrorKind::NotForKind { key, kind: kind.kind, hint });
    if source.signature.is_some() && !matches!(kind.auth, Auth::Written) {
        return not_for_kind("signature", "remove it; only kind \"custom\" spells it out");
    }
    let mut checks = Vec::new();
    match (kind.auth, &source.signature) {
        (Auth::Signed(scheme), _) if !secrets.is_empty() => checks.push(scheme.check(secrets)?),
        (Auth::Unsigned, _) if !secrets.is_empty() => {
            return not_for_kind(
                "secret",
                "its senders do not sign: use `url_token`, `header` or `basic`",
            );
        }
        (Auth::Written, Some(_)) if secrets.is_empty() => {
            return Err(SourceErrorKind::HalfASignature { given: "signature", missing: "secret" });
        }
        (Auth::Written, None) if !secrets.is_empty() => {
            return Err(SourceErrorKind::HalfASignature { given: "secret", missing: "signature" });
        }
        (Auth::Written, Some(signature)) => checks.push(Check::Body {
            header: signature.header.clone(),
            prefix: signature.prefix.clone(),
            algorithm: signature.algorithm,
            encoding: signature.encoding,
            timestamp: signature
                .timestamp_header
                .clone()
                .map(|h| (h, signature.tolerance.as_secs())),
            keys: secrets,
        }),
        _ => {}
    }
    if !source.url_token.as_slice().is_empty() {
        checks.push(Check::UrlToken(source.url_token.as_slice().to_vec()));
    }
    if let Some(header) = &source.header {
        checks.push(Check::Header {
            name: header.name.clone(),
            values: header.value.as_slice().to_vec(),
        });
    }
    if let Some(basic) = &source.basic {
        checks.push(Check::Basic {
            user: basic.user.clone(),
            passwords: basic.password.as_slice().to_vec(),
        });
    }
    if checks.is_empty() {
        return Err(SourceErrorKind::NoAuthentication(match kind.auth {
            Auth::Signed(_) => "`secret` to the signing secret of the sender",
            Auth::Unsigned => "`url_token` (sent as ?token=), `header` or `basic`",
            Auth::Written => "`signature` and `secret`, or `url_token`, `header` or `basic`",
        }));
    }
    Ok(checks)
}

impl Scheme {
    fn check(self, keys: Vec<Secret>) -> Result<Check, SourceErrorKind> {
        Ok(match self {
            Scheme::BodyBase64 { header, prefix } => Check::Body {
                header: header.to_owned(),
                prefix: prefix.to_owned(),
                algorithm: SignatureAlgorithm::HmacSha256,
                encoding: SignatureEncoding::Base64,
                timestamp: None,
                keys,
            },
            Scheme::TimedHex { header, tolerance_s } => {
                Check::TimedHex { header, tolerance_s, keys }
            }
            Scheme::StandardWebhooks => Check::StandardWebhooks {
                keys: keys.iter().map(standard_key).collect::<Result<_, _>>()?,
            },
        })
    }
}

/// Base64 after an optional `whsec_`; padding may be missing.
fn standard_key(secret: &Secret) -> Result<Vec<u8>, SourceErrorKind> {
    let text = secret.expose().trim();
    let text = text.strip_prefix("whsec_").unwrap_or(text).trim_end_matches('=');
    // Secrets are pasted by people, and the reference library takes one with odd last bits.
    let forgiving =
        GeneralPurpose::new(&alphabet::STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));
    match forgiving.decode(text) {
        Ok(key) if !key.is_empty() => Ok(key),
        _ => Err(SourceErrorKind::BadSecret),
    }
}

impl Check {
    /// Whether the header of that name (lower case) carries what this check compares.
    pub(super) fn reads_header(&self, name: &str) -> bool {
        let header = match self {
            Check::Body { header, .. } => header.as_str(),
            Check::TimedHex { header, .. } => header,
            Check::Header { name, .. } => name.as_str(),
            Check::Basic { .. } => "authorization",
            Check::StandardWebhooks { .. } => "webhook-signature",
            Check::UrlToken(_) => return false,
        };
        header.eq_ignore_ascii_case(name)
    }

    /// Believes the request or says why not.
    pub(super) fn run(&self, request: &Request, now: i64) -> Result<(), AuthError> {
        let header = |name: &str| request.header(name).ok_or(AuthError::Missing);
        match self {
            Check::Body { header: name, prefix, algorithm, encoding, timestamp, keys } => {
                let tag =
                    header(name)?.strip_prefix(prefix.as_str()).ok_or(AuthError::Malformed)?;
                let tag = strict(*encoding, tag).ok_or(AuthError::Malformed)?;
                let time = match timestamp {
                    None => None,
                    Some((name, tolerance_s)) => {
                        let time = header(name)?;
                        fresh(time, now, *tolerance_s)?;
                        Some(time)
                    }
                };
                let (time, dot) = time.map_or(("", ""), |time| (time, "."));
                let signed = [time.as_bytes(), dot.as_bytes(), &request.body];
                any(keys, |key| matches(*algorithm, key.expose().as_bytes(), &signed, &tag))
            }
            Check::TimedHex { header: name, tolerance_s, keys } => {
                timed_hex(header(name)?, request, now, *tolerance_s, keys)
            }
            Check::StandardWebhooks { keys } => standard_webhooks(request, now, keys),
            Check::UrlToken(tokens) => {
                let mut given =
                    form_urlencoded::parse(request.query.as_bytes()).filter(|(k, _)| k == "token");
                match (given.next(), given.next()) {
                    (Some((_, given)), None) => any(tokens, |token| equal(token.expose(), &given)),
                    _ => Err(AuthError::Missing),
                }
            }
            Check::Header { name, values } => {
                let given = header(name)?;
                any(values, |value| equal(value.expose(), given))
            }
            Check::Basic { user, passwords } => {
                let given = header("authorization")?;
                let (scheme, given) = given.split_once(' ').ok_or(AuthError::Malformed)?;
                if !scheme.eq_ignore_ascii_case("basic") {
                    return Err(AuthError::Malformed);
                }
                let given = STANDARD.decode(given.trim()).map_err(|_| AuthError::Malformed)?;
                any(passwords, |password| {
                    let wanted = format!("{user}:{}", password.expose());
                    wanted.as_bytes().ct_eq(&given).into()
                })
            }
        }
    }
}

fn timed_hex(
    value: &str,
    request: &Request,
    now: i64,
    tolerance_s: u64,
    keys: &[Secret],
) -> Result<(), AuthError> {
    let pairs: Vec<(&str, &str)> =
        value.split(',').take(MAX_SIGNATURES + 1).filter_map(|pair| pair.split_once('=')).collect();
    let mut times = pairs.iter().filter(|(name, _)| *name == "t").map(|(_, time)| *time);
    let (Some(time), None) = (times.next(), times.next()) else { return Err(AuthError::Malformed) };
    let tags: Vec<Vec<u8>> = pairs
        .iter()
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, tag)| strict(SignatureEncoding::Hex, tag))
        .collect();
    if tags.is_empty() {
        return Err(AuthError::Malformed);
    }
    fresh(time, now, tolerance_s)?;
    let signed = [time.as_bytes(), b".", &request.body];
    any(keys, |key| {
        let key = key.expose().as_bytes();
        tags.iter().any(|tag| matches(SignatureAlgorithm::HmacSha256, key, &signed, tag))
    })
}

/// The specification's `id.time.body`. The crate of the same name reads the system clock and wants
/// the body to be UTF-8, so that neither late tests nor odd bytes could be judged by it.
fn standard_webhooks(request: &Request, now: i64, keys: &[Vec<u8>]) -> Result<(), AuthError> {
    let header = |name: &str| {
        request
            .header(&format!("webhook-{name}"))
            .or_else(|| request.header(&format!("svix-{name}")))
    };
    let all = header("id").zip(header("timestamp")).zip(header("signature"));
    let ((id, time), signatures) = all.ok_or(AuthError::Missing)?;
    let tags: Vec<Vec<u8>> = signatures
        .split(' ')
        .take(MAX_SIGNATURES)
        .filter_map(|signature| signature.strip_prefix("v1,"))
        .filter_map(|tag| strict(SignatureEncoding::Base64, tag))
        .collect();
    if id.is_empty() || tags.is_empty() {
        return Err(AuthError::Malformed);
    }
    fresh(time, now, 300)?;
    let signed = [id.as_bytes(), b".", time.as_bytes(), b".", &request.body];
    any(keys, |key| {
        tags.iter().any(|tag| matches(SignatureAlgorithm::HmacSha256, key, &signed, tag))
    })
}

fn any<T>(secrets: &[T], test: impl Fn(&T) -> bool) -> Result<(), AuthError> {
    if secrets.iter().any(test) { Ok(()) } else { Err(AuthError::Mismatch) }
}

/// Epoch seconds in plain digits, near enough to now on either side.
fn fresh(time: &str, now: i64, tolerance_s: u64) -> Result<(), AuthError> {
    if time.is_empty() || !time.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AuthError::Malformed);
    }
    let time: i64 = time.parse().map_err(|_| AuthError::Malformed)?;
    if now.abs_diff(time) <= tolerance_s { Ok(()) } else { Err(AuthError::Stale) }
}

/// One text for one digest: lower-case hex, or padded standard base64. Nothing is forgiven.
fn strict(encoding: SignatureEncoding, text: &str) -> Option<Vec<u8>> {
    match encoding {
        SignatureEncoding::Hex if text.bytes().any(|b| b.is_ascii_uppercase()) => None,
        SignatureEncoding::Hex => hex::decode(text).ok(),
        SignatureEncoding::Base64 => STANDARD.decode(text).ok(),
    }
}

fn matches(algorithm: SignatureAlgorithm, key: &[u8], signed: &[&[u8]], tag: &[u8]) -> bool {
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

fn equal(wanted: &str, given: &str) -> bool {
    wanted.as_bytes().ct_eq(given.as_bytes()).into()
}
