//! HubSpot's three signatures. v3 is an HMAC with a time and comes with all newer requests; v2 (workflows)
//! and v1 (app events) are plain hashes of secret and request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::{SignatureAlgorithm, SignatureEncoding};
use crate::secret::Secret;
use crate::sources::Request;

use super::hmac::{digest, matches, near, strict, written};
use super::{AuthError, any, set_header};

const V3: &str = "x-hubspot-signature-v3";
const OLD: &str = "x-hubspot-signature";
const TIME: &str = "x-hubspot-request-timestamp";

/// Headers that carry a signature.
pub(super) const HEADERS: [&str; 2] = [V3, OLD];

/// Escapes that HubSpot decodes in the address before it signs; all others stay.
const DECODED: [(&str, &str); 12] = [
    ("%3A", ":"),
    ("%2F", "/"),
    ("%3F", "?"),
    ("%40", "@"),
    ("%21", "!"),
    ("%24", "$"),
    ("%27", "'"),
    ("%28", "("),
    ("%29", ")"),
    ("%2A", "*"),
    ("%2C", ","),
    ("%3B", ";"),
];

/// Believes the request or says why not: by v3 where it has one.
pub(super) fn check(
    request: &Request,
    now: i64,
    public_url: &str,
    keys: &[Secret],
) -> Result<(), AuthError> {
    let header = |name: &str| request.header(name).ok_or(AuthError::Missing);
    let url = address(request, public_url);
    // Their own libraries sign the address as it is, their manual decodes it first.
    let decoded = DECODED.iter().fold(url.clone(), |url, (escape, c)| url.replace(escape, c));
    let urls = [url.as_bytes(), decoded.as_bytes()];
    let (method, body) = (request.method.as_bytes(), &request.body[..]);
    // Any v3 header, one that came twice too: falling back would let it be stripped of its meaning.
    if request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(V3)) {
        let time = header(TIME)?;
        near(time, now, 1000, 300, true)?;
        let tag = STANDARD.decode(header(V3)?).map_err(|_| AuthError::Malformed)?;
        return any(keys, |key| {
            let key = key.expose().as_bytes();
            let signed = |url| content(request, url, time);
            urls.iter().any(|url| matches(SignatureAlgorithm::HmacSha256, key, &signed(url), &tag))
        });
    }
    let tag = strict(SignatureEncoding::Hex, header(OLD)?).ok_or(AuthError::Malformed)?;
    match header("x-hubspot-signature-version")? {
        "v1" => any(keys, |key| hash(&[key.expose().as_bytes(), body], &tag)),
        "v2" => any(keys, |key| {
            let key = key.expose().as_bytes();
            urls.iter().any(|url| hash(&[key, method, url, body], &tag))
        }),
        _ => Err(AuthError::Malformed),
    }
}

fn address(request: &Request, public_url: &str) -> String {
    let question = if request.query.is_empty() { "" } else { "?" };
    format!("{public_url}{question}{}", request.query)
}

/// What v3 signs.
fn content<'a>(request: &'a Request, url: &'a [u8], time: &'a str) -> [&'a [u8]; 4] {
    [request.method.as_bytes(), url, &request.body, time.as_bytes()]
}

/// Sets the headers of v3, the address signed as it is.
pub(super) fn sign(request: &mut Request, now: i64, public_url: &str, keys: &[Secret]) {
    let Some(key) = keys.first() else { return };
    let time = now.saturating_mul(1000).to_string();
    let url = address(request, public_url);
    let signed = content(request, url.as_bytes(), &time);
    let tag = digest(SignatureAlgorithm::HmacSha256, key.expose().as_bytes(), &signed);
    set_header(request, TIME, time);
    set_header(request, V3, written(SignatureEncoding::Base64, &tag));
}

fn hash(signed: &[&[u8]], tag: &[u8]) -> bool {
    let mut hash = Sha256::new();
    signed.iter().for_each(|bytes| hash.update(bytes));
    hash.finalize().as_slice().ct_eq(tag).into()
}
