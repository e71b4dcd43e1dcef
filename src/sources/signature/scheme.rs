//! What differs between the signatures of senders, as data.

use crate::config::{self, SignatureAlgorithm, SignatureEncoding, TimestampUnit};

/// How a built-in kind signs.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    /// An HMAC in a header.
    Hmac(Signing<&'static str>),
    /// The Standard Webhooks specification; also under the names `svix-*`.
    StandardWebhooks,
    /// HubSpot's v3, else v2 or v1, as the request says. v2 and v3 sign the address that HubSpot calls.
    HubSpot,
    /// The secret itself, in a member of the body with that name.
    BodyKey(&'static str),
}

/// An HMAC that a header carries, over the body and maybe the time of the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Signing<S> {
    /// Header with the digest.
    pub header: S,
    /// Hash.
    pub algorithm: SignatureAlgorithm,
    /// How the digest is written.
    pub encoding: SignatureEncoding,
    /// Text before the digest ("sha256=").
    pub prefix: S,
    /// The digest's name where the header is a list (`v1` of `t=1,v1=HEX`); it may come several times.
    pub tag: Option<S>,
    /// Header with the time; the digest's own where there is only a `time_tag`.
    pub time_header: Option<S>,
    /// The time's name where its header is a list.
    pub time_tag: Option<S>,
    /// Unit of the time.
    pub unit: TimestampUnit,
    /// Largest distance of the time from now, in seconds.
    pub tolerance_s: u64,
    /// Whether a time ahead of ours is looked at as closely as one behind.
    pub limits_future: bool,
    /// What is signed, with `{time}` and `{body}`.
    pub signed: S,
    /// What `{body}` is.
    pub content: Content,
}

/// What of a request is signed as its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its bytes.
    Raw,
    /// Its bytes; of a form, the JSON that PHP writes for its fields.
    PhpFields,
    /// Its bytes; of a JSON array, those of the first element.
    FirstElement,
}

impl Signing<&'static str> {
    /// HMAC-SHA256 of the raw body in lower-case hex, to be varied. Each kind names a header.
    pub const BODY: Self = Signing {
        header: "x-signature",
        algorithm: SignatureAlgorithm::HmacSha256,
        encoding: SignatureEncoding::Hex,
        prefix: "",
        tag: None,
        time_header: None,
        time_tag: None,
        unit: TimestampUnit::S,
        tolerance_s: 300,
        limits_future: true,
        signed: "{body}",
        content: Content::Raw,
    };

    /// The usual `t=EPOCH,v1=HEX`, over `t.body`.
    pub const PACKED: Self =
        Signing { tag: Some("v1"), time_tag: Some("t"), signed: "{time}.{body}", ..Self::BODY };
}

impl From<Signing<&'static str>> for Signing<String> {
    fn from(of: Signing<&'static str>) -> Signing<String> {
        Signing {
            header: of.header.to_owned(),
            algorithm: of.algorithm,
            encoding: of.encoding,
            prefix: of.prefix.to_owned(),
            tag: of.tag.map(str::to_owned),
            time_header: of.time_header.map(str::to_owned),
            time_tag: of.time_tag.map(str::to_owned),
            unit: of.unit,
            tolerance_s: of.tolerance_s,
            limits_future: of.limits_future,
            signed: of.signed.to_owned(),
            content: of.content,
        }
    }
}

impl From<&config::Signature> for Signing<String> {
    fn from(written: &config::Signature) -> Signing<String> {
        let timed = written.timestamp_header.is_some() || written.timestamp_tag.is_some();
        let usual = if timed { "{time}.{body}" } else { "{body}" };
        Signing {
            header: written.header.clone(),
            algorithm: written.algorithm,
            encoding: written.encoding,
            prefix: written.prefix.clone(),
            tag: written.tag.clone(),
            time_header: written.timestamp_header.clone(),
            time_tag: written.timestamp_tag.clone(),
            unit: written.timestamp_unit,
            tolerance_s: written.tolerance.as_secs(),
            limits_future: true,
            signed: written.signed.clone().unwrap_or_else(|| usual.to_owned()),
            content: Content::Raw,
        }
    }
}
