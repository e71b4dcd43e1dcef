//! TLS to the database, with libpq's meaning of `sslmode`.

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
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::UrlError;

/// What libpq's `sslmode` checks of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    Chain,
    ChainAndName,
}

/// The TLS options of a connection URL, as written.
#[derive(Default)]
pub(super) struct TlsOptions {
    pub mode: Option<String>,
    pub root: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
}

pub(super) fn connector(
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
