//! Connection URLs as libpq and the managed providers write them, and TLS with libpq's meaning of `sslmode`.
//!
//! The client crate knows `sslmode` only as disable, prefer and require, and refuses a URL with `verify-full` or `sslrootcert`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::secret::Secret;

/// Why a connection URL cannot be used. No text of the URL is in it but names of options that PostgreSQL knows.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// Not a connection string.
    #[error("the database URL is not a valid connection string{0}")]
    Syntax(String),
    /// An option of libpq that is not supported here.
    #[error("the database URL has the option {0}, which is not supported")]
    Unsupported(&'static str),
    /// An option that nobody knows. Its name is not shown: it may be a piece of a password that was not escaped.
    #[error(
        "the database URL has an unknown option; a password with &, =, ?, @, / or blanks must be percent-encoded"
    )]
    Unknown,
    /// `sslmode` with another value.
    #[error("sslmode must be disable, allow, prefer, require, verify-ca or verify-full")]
    SslMode,
    /// `sslcert` without `sslkey` or the reverse.
    #[error("sslcert and sslkey are needed together")]
    HalfClientCertificate,
    /// A certificate or key file cannot be read.
    #[error("cannot read {option} {path}")]
    File {
        /// The option.
        option: &'static str,
        /// Its value.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// There is nothing to verify the server with.
    #[error("no root certificates found for {0}; set sslrootcert")]
    NoRoots(&'static str),
    /// The certificate and key do not fit, or the roots are unusable.
    #[error("the TLS settings of the database URL cannot be used")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A URL taken apart: how to connect and how to secure it.
#[derive(Clone)]
pub(super) struct Target {
    pub config: tokio_postgres::Config,
    pub tls: MakeRustlsConnect,
}

/// What libpq's `sslmode` checks of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Nothing,
    Chain,
    ChainAndName,
}

/// Options of libpq with no meaning here: dropped.
const IGNORED: &[&str] = &[
    "gssencmode",
    "krbsrvname",
    "gsslib",
    "gssdelegation",
    "sslcompression",
    "sslsni",
    "sslcertmode",
    "client_encoding",
    "fallback_application_name",
    "ssl_min_protocol_version",
];
/// Options of libpq whose loss would change what the user gets: refused by name.
const UNSUPPORTED: &[&str] = &[
    "sslcrl",
    "sslcrldir",
    "sslpassword",
    "ssl_max_protocol_version",
    "requirepeer",
    "require_auth",
    "passfile",
    "service",
    "replication",
    "requiressl",
];
/// Options that the client crate understands itself.
const PASSED: &[&str] = &[
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

#[derive(Default)]
struct TlsOptions {
    mode: Option<String>,
    root: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Target {
    pub(super) fn parse(url: &Secret) -> Result<Target, UrlError> {
        let mut options = TlsOptions::default();
        let rest = split(url.expose(), &mut options)?;
        let mut config: tokio_postgres::Config =
            rest.parse().map_err(|e: tokio_postgres::Error| {
                // Of the crate's reasons only this one never quotes the text.
                let reason = std::error::Error::source(&e).map(ToString::to_string);
                let reason = reason.filter(|text| text.starts_with("invalid value for option"));
                UrlError::Syntax(reason.map(|text| format!(": {text}")).unwrap_or_default())
            })?;
        let (mode, check) = match options.mode.as_deref() {
            Some("disable") => (SslMode::Disable, Check::Nothing),
            None | Some("allow" | "prefer") => (SslMode::Prefer, Check::Nothing),
            // libpq: with a root certificate at hand, `require` verifies the chain.
            Some("require") if options.root.is_some() => (SslMode::Require, Check::Chain),
            Some("require") => (SslMode::Require, Check::Nothing),
            Some("verify-ca") => (SslMode::Require, Check::Chain),
            Some("verify-full") => (SslMode::Require, Check::ChainAndName),
            Some(_) => return Err(UrlError::SslMode),
        };
        config.ssl_mode(mode);
        if mode == SslMode::Require && check == Check::Nothing && goes_far(&config) {
            tracing::warn!(
                "the connection to PostgreSQL is encrypted, but the server is not verified (sslmode=require); \
                 sslmode=verify-full with sslrootcert closes that gap"
            );
        }
        let direct = config.get_ssl_negotiation() == SslNegotiation::Direct;
        let tls = connector(check, &options, direct)?;
        Ok(Target { config, tls })
    }
}

/// Whether any host is neither a socket nor this machine.
fn goes_far(config: &tokio_postgres::Config) -> bool {
    config.get_hosts().iter().any(|host| match host {
        Host::Tcp(name) => !matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
        #[cfg(unix)]
        Host::Unix(_) => false,
    })
}

/// Takes the TLS options out of either form of connection string and checks the names of all others.
fn split(url: &str, tls: &mut TlsOptions) -> Result<String, UrlError> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        split_url(url, tls)
    } else {
        split_pairs(url, tls)
    }
}

fn split_url(url: &str, tls: &mut TlsOptions) -> Result<String, UrlError> {
    // Credentials end at the first @, and may hold a question mark.
    let after_credentials = url.find('@').map_or(0, |at| at + 1);
    let Some(query_at) = url[after_credentials..].find('?') else { return Ok(url.to_owned()) };
    let (before, query) = url.split_at(after_credentials + query_at);
    let mut kept = Vec::new();
    for pair in query[1..].split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or(UrlError::Unknown)?;
        if sort(&decode(key)?, || decode(value), tls)? {
            kept.push(pair);
        }
    }
    Ok(format!("{before}?{}", kept.join("&")))
}

fn decode(text: &str) -> Result<Cow<'_, str>, UrlError> {
    // In a connection URL a plus sign is a plus sign.
    let escaped = text.replace('+', "%2B");
    let mut pairs = form_urlencoded::parse(escaped.as_bytes());
    match pairs.next() {
        None => Ok(Cow::Borrowed("")),
        // A decoded "=" would look like a second part; put it back together.
        Some((key, value)) if value.is_empty() && !text.contains('=') => {
            Ok(Cow::Owned(key.into_owned()))
        }
        Some((key, value)) => Ok(Cow::Owned(format!("{key}={value}"))),
    }
}

fn split_pairs(text: &str, tls: &mut TlsOptions) -> Result<String, UrlError> {
    let syntax = || UrlError::Syntax(String::new());
    let mut kept = String::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or_else(syntax)?;
        let after = after.trim_start();
        let (value, length) = pair_value(after).ok_or_else(syntax)?;
        if sort(key.trim_end(), || Ok(Cow::Owned(value)), tls)? {
            kept.push_str(key.trim_end());
            kept.push('=');
            kept.push_str(&after[..length]);
            kept.push(' ');
        }
        rest = after[length..].trim_start();
    }
    Ok(kept)
}

/// The value at the start of the text, with quotes and backslashes undone, and the bytes it took.
fn pair_value(text: &str) -> Option<(String, usize)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if quoted => return Some((value, at + 1)),
            '\\' => value.push(chars.next()?.1),
            c if c.is_whitespace() && !quoted => return Some((value, at)),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, text.len()))
}

/// Whether the client crate is to see the option.
fn sort<'a>(
    key: &str,
    value: impl FnOnce() -> Result<Cow<'a, str>, UrlError>,
    tls: &mut TlsOptions,
) -> Result<bool, UrlError> {
    let slot = match key {
        "sslmode" => &mut tls.mode,
        "sslrootcert" => &mut tls.root,
        "sslcert" => &mut tls.cert,
        "sslkey" => &mut tls.key,
        _ if PASSED.contains(&key) => return Ok(true),
        _ if IGNORED.contains(&key) => return Ok(false),
        _ => {
            let known = UNSUPPORTED.iter().find(|name| **name == key);
            return Err(known.map_or(UrlError::Unknown, |name| UrlError::Unsupported(name)));
        }
    };
    *slot = Some(value()?.into_owned()).filter(|value| !value.is_empty());
    Ok(false)
}

fn connector(
    check: Check,
    options: &TlsOptions,
    direct: bool,
) -> Result<MakeRustlsConnect, UrlError> {
    fn unusable(e: impl std::error::Error + Send + Sync + 'static) -> UrlError {
        UrlError::Tls(Box::new(e))
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(check, options.root.as_deref(), provider.clone())?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match (&options.cert, &options.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let certs = certificates("sslcert", cert)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|source| UrlError::File {
                option: "sslkey",
                path: key.into(),
                source,
            })?;
            builder.with_client_auth_cert(certs, key).map_err(unusable)?
        }
        _ => return Err(UrlError::HalfClientCertificate),
    };
    if direct {
        // Required then, and offered only then: some proxy may trip over it.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(
    option: &'static str,
    path: &str,
) -> Result<Vec<CertificateDer<'static>>, UrlError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|source| UrlError::File { option, path: path.into(), source })
}

/// Checks the server's certificate as far as `sslmode` says. The handshake's signature is always checked.
#[derive(Debug)]
struct Verifier {
    check: Check,
    /// `None` only where nothing is checked.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates of `sslrootcert`: the server's own may be among them, which is how self-signed ones are trusted.
    pinned: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(
        check: Check,
        root: Option<&str>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Verifier, UrlError> {
        if check == Check::Nothing {
            return Ok(Verifier { check, chain: None, pinned: Vec::new(), provider });
        }
        let (certs, name, pinned) = match root {
            None | Some("system") => {
                (rustls_native_certs::load_native_certs().certs, "this system", Vec::new())
            }
            Some(path) => {
                let certs = certificates("sslrootcert", path)?;
                (certs.clone(), "sslrootcert", certs)
            }
        };
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(certs);
        if added == 0 {
            return Err(UrlError::NoRoots(name));
        }
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|e| UrlError::Tls(Box::new(e)))?;
        Ok(Verifier { check, chain: Some(chain), pinned, provider })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if self.pinned.contains(end_entity) {
            if self.check == Check::ChainAndName {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&parsed, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        let verdict =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // The name is looked at after the chain, so this error means a good chain.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Chain => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, UrlError> {
        Target::parse(&Secret::new(url))
    }

    #[test]
    fn urls_of_providers_are_understood() {
        for url in [
            "postgresql://u:p%40ss@db.example.com:5432/app?sslmode=require&channel_binding=require",
            "postgres://u:p?w@db.example.com/app?sslmode=verify-full&sslrootcert=system",
            "postgres://u@db.example.com/app?gssencmode=disable&sslmode=no-verify-typo",
            "host=db.example.com user=u password='a b\\'c' sslmode = 'require' dbname=app",
        ] {
            match parse(url) {
                Ok(target) => assert_eq!(target.config.get_dbname(), Some("app")),
                Err(e) => assert!(url.contains("typo") && matches!(e, UrlError::SslMode), "{e}"),
            }
        }
        let target = parse("postgres://u:p?w@h/app?sslmode=disable").unwrap();
        assert_eq!(target.config.get_password(), Some(&b"p?w"[..]));
        assert_eq!(target.config.get_ssl_mode(), SslMode::Disable);
        let target = parse("host=h password='a b\\'c'  sslmode=require").unwrap();
        assert_eq!(target.config.get_password(), Some(&b"a b'c"[..]));
        assert_eq!(target.config.get_ssl_mode(), SslMode::Require);
        let target = parse("postgresql://leadsync@/leadsync?host=/tmp/x&port=5432").unwrap();
        assert_eq!(target.config.get_hosts(), [Host::Unix("/tmp/x".into())]);
    }

    #[test]
    fn errors_never_show_the_password() {
        for url in [
            "postgres://u:hunter2@h:notaport/app",
            "postgres://u:pw@h/app?hunter2=1",
            "postgres://u:pw@h/app?hunter2",
            "host=h password=pw hunter2=3",
            "host=h password='hunter2",
            "hunter2",
            "postgres://u:hunter2%ff@h/%ff",
        ] {
            let Err(e) = parse(url) else { panic!("accepted: {url}") };
            let shown = format!("{e} {e:?} {}", crate::error::Chain(&e));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn options_that_cannot_be_kept_are_refused_by_name() {
        let Err(e) = parse("postgres://h/app?sslcrl=x") else { panic!("accepted") };
        assert!(e.to_string().contains("sslcrl"));
        let Err(e) = parse("postgres://h/app?sslmode=verify-full&sslcert=x") else {
            panic!("accepted")
        };
        assert!(matches!(e, UrlError::HalfClientCertificate));
        let Err(e) = parse("postgres://h/app?sslmode=verify-ca&sslrootcert=/nowhere/root%2Bca.pem")
        else {
            panic!("accepted")
        };
        assert!(e.to_string().contains("/nowhere/root+ca.pem"), "{e}");
    }
}
