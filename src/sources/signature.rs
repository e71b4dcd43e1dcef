//! Who sent it: signatures and shared secrets, over the raw bytes, compared in constant time.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{self, SignatureAlgorithm, SignatureEncoding};
use crate::secret::Secret;

use super::{Auth, Request, Source, SourceErrorKind};

mod body_key;
mod content;
mod hmac;
mod hubspot;
mod scheme;
mod url_token;

pub(super) use body_key::without as without_key;
pub use scheme::{Content, Scheme, Signing};
pub(super) use url_token::without as without_token;

use hmac::{matches, near, strict};

/// Most signatures looked at in one header: enough for any rotation, too few to make us work.
const MAX_SIGNATURES: usize = 10;

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
    /// It covers only the first of several leads, and nothing else is configured.
    #[error(
        "the signature covers only the first of several leads; set `url_token`, `header` or `basic` as well"
    )]
    Partial,
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
            AuthError::Partial => "partial",
            AuthError::Mismatch => "mismatch",
        }
    }
}

/// Why a request cannot be made to prove its sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The key goes into a member of the body, and the body has no members.
    #[error("the body is neither a JSON object nor a form, so it cannot carry the key \"{0}\"")]
    NoPlaceForKey(String),
    /// What is signed is made out of the body.
    #[error("the body cannot be read, so it cannot be signed as its sender would")]
    Unreadable,
}

/// One way of proving who sends, with what it takes. No `Debug`: it holds keys.
pub(super) enum Check {
    Hmac {
        signing: Signing<String>,
        keys: Vec<Secret>,
        /// Nothing else vouches for a request.
        alone: bool,
    },
    HubSpot {
        public_url: String,
        keys: Vec<Secret>,
    },
    BodyKey {
        name: String,
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
    let not_for_kind = |key, hint: &'static str| {
        let hint = Cow::Borrowed(hint);
        Err(SourceErrorKind::NotForKind { key, kind: kind.kind, hint })
    };
    if source.signature.is_some() && !matches!(kind.auth, Auth::Written) {
        return not_for_kind("signature", "remove it; only kind \"custom\" spells it out");
    }
    if source.public_url.is_some() && !matches!(kind.auth, Auth::Signed(Scheme::HubSpot)) {
        return not_for_kind("public_url", "remove it; only HubSpot signs the address it calls");
    }
    let alone = source.url_token.is_empty() && source.header.is_none() && source.basic.is_none();
    let signed = source.signed != Some(false);
    let mut checks = Vec::new();
    match (kind.auth, &source.signature) {
        (Auth::Signed(scheme), _) if !secrets.is_empty() && signed => checks.push(match scheme {
            Scheme::Hmac(signing) => Check::Hmac { signing: signing.into(), keys: secrets, alone },
            Scheme::StandardWebhooks => Check::StandardWebhooks {
                keys: secrets.iter().map(standard_key).collect::<Result<_, _>>()?,
            },
            Scheme::HubSpot => Check::HubSpot {
                public_url: source.public_url.clone().ok_or(SourceErrorKind::NoPublicUrl)?,
                keys: secrets,
            },
            Scheme::BodyKey(name) => Check::BodyKey { name: name.to_owned(), keys: secrets },
        }),
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
        (Auth::Written, Some(signature)) => {
            checks.push(Check::Hmac { signing: signature.into(), keys: secrets, alone });
        }
        _ => {}
    }
    if let Some(key) = &source.body_key {
        checks.push(Check::BodyKey { name: key.name.clone(), keys: key.value.as_slice().to_vec() });
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
            Auth::Signed(Scheme::BodyKey(_)) => "`secret` to the key that the sender was given",
            Auth::Signed(_) if !signed => "`url_token` (sent as ?token=), as `signed` is false",
            Auth::Signed(_) => "`secret` to the signing secret of the sender",
            Auth::Unsigned => "`url_token` (sent as ?token=), `header`, `basic` or `body_key`",
            Auth::Written => "`signature` and `secret`, or `url_token`, `header` or `basic`",
        }));
    }
    Ok(checks)
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
        let headers: &[&str] = match self {
            Check::Hmac { signing, .. } => &[signing.header.as_str()],
            Check::HubSpot { .. } => &hubspot::HEADERS,
            Check::Header { name, .. } => &[name.as_str()],
            Check::Basic { .. } => &["authorization"],
            Check::StandardWebhooks { .. } => &["webhook-signature", "svix-signature"],
            Check::UrlToken(_) | Check::BodyKey { .. } => &[],
        };
        headers.iter().any(|header| header.eq_ignore_ascii_case(name))
    }

    /// The tokens of our own address that this check compares.
    pub(super) fn url_tokens(&self) -> &[Secret] {
        match self {
            Check::UrlToken(tokens) => tokens,
            _ => &[],
        }
    }

    /// The member of the body that carries what this check compares.
    pub(super) fn body_key(&self) -> Option<&str> {
        match self {
            Check::BodyKey { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Makes the request one that [`Check::run`] believes, with the first secret.
    pub(super) fn sign(&self, request: &mut Request, now: i64) -> Result<(), SignError> {
        match self {
            Check::Hmac { signing, keys, .. } => hmac::sign(request, now, signing, keys)?,
            Check::HubSpot { public_url, keys } => hubspot::sign(request, now, public_url, keys),
            Check::BodyKey { name, keys } => body_key::put(request, name, keys)?,
            Check::StandardWebhooks { keys } => sign_standard(request, now, keys),
            Check::UrlToken(tokens) => {
                if let Some(token) = tokens.first() {
                    url_token::put(request, token);
                }
            }
            Check::Header { name, values } => {
                if let Some(value) = values.first() {
                    set_header(request, name, value.expose().to_owned());
                }
            }
            Check::Basic { user, passwords } => {
                if let Some(password) = passwords.first() {
                    let credentials = STANDARD.encode(format!("{user}:{}", password.expose()));
                    set_header(request, "authorization", format!("Basic {credentials}"));
                }
            }
        }
        Ok(())
    }

    /// Whether all that it looks at comes before the body.
    pub(super) fn is_of_head(&self) -> bool {
        matches!(self, Check::UrlToken(_) | Check::Header { .. } | Check::Basic { .. })
    }

    /// Believes the request or says why not.
    pub(super) fn run(&self, request: &Request, now: i64) -> Result<(), AuthError> {
        let header = |name: &str| request.header(name).ok_or(AuthError::Missing);
        match self {
            Check::Hmac { signing, keys, alone } => {
                hmac::check(request, now, signing, keys, *alone)
            }
            Check::HubSpot { public_url, keys } => hubspot::check(request, now, public_url, keys),
            Check::BodyKey { name, keys } => body_key::check(request, name, keys),
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
    near(time, now, 1, 300, true)?;
    let signed = standard_content(id, time, &request.body);
    any(keys, |key| {
        tags.iter().any(|tag| matches(SignatureAlgorithm::HmacSha256, key, &signed, tag))
    })
}

fn standard_content<'a>(id: &'a str, time: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", time.as_bytes(), b".", body]
}

fn sign_standard(request: &mut Request, now: i64, keys: &[Vec<u8>]) {
    let Some(key) = keys.first() else { return };
    // Made of the body, so that the same body again is the same message again, as a retry is.
    let made = || format!("msg_{}", hex::encode(&Sha256::digest(&request.body)[..12]));
    let id = request.header("webhook-id").map_or_else(made, str::to_owned);
    let time = now.to_string();
    let signed = standard_content(&id, &time, &request.body);
    let tag = hmac::digest(SignatureAlgorithm::HmacSha256, key, &signed);
    let tag = hmac::written(SignatureEncoding::Base64, &tag);
    set_header(request, "webhook-id", id);
    set_header(request, "webhook-timestamp", time);
    set_header(request, "webhook-signature", format!("v1,{tag}"));
}

/// Sets a header, which then is there once.
fn set_header(request: &mut Request, name: &str, value: String) {
    request.headers.retain(|(given, _)| !given.eq_ignore_ascii_case(name));
    request.headers.push((name.to_ascii_lowercase(), value));
}

fn any<T>(secrets: &[T], test: impl Fn(&T) -> bool) -> Result<(), AuthError> {
    if secrets.iter().any(test) { Ok(()) } else { Err(AuthError::Mismatch) }
}

fn equal(wanted: &str, given: &str) -> bool {
    wanted.as_bytes().ct_eq(given.as_bytes()).into()
}
