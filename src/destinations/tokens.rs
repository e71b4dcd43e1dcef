//! Refresh tokens that a CRM replaces: the newest must outlive the process, or a restart locks the user out.
//!
//! A destination has no database, so it is given a [`TokenStore`]. What is kept is sealed with the credentials of the
//! configuration: a dump of the database gives nobody access to the CRM.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use rand::RngExt;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest, Sha256};

use crate::secret::Secret;

/// Keeps one sealed text per destination.
#[async_trait]
pub trait TokenStore: Send + Sync {
    /// What was kept last.
    async fn newest(&self, destination: &str) -> Result<Option<Vec<u8>>, TokenStoreError>;

    /// Keeps it; on `Ok` it outlives the process.
    async fn keep(&self, destination: &str, sealed: &[u8]) -> Result<(), TokenStoreError>;
}

/// Tokens cannot be kept or read now.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenStoreError(pub String);

/// Forgets with the process: for checks, and where no CRM replaces tokens.
#[derive(Default)]
pub struct InMemory(Mutex<HashMap<String, Vec<u8>>>);

#[async_trait]
impl TokenStore for InMemory {
    async fn newest(&self, destination: &str) -> Result<Option<Vec<u8>>, TokenStoreError> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(kept.get(destination).cloned())
    }

    async fn keep(&self, destination: &str, sealed: &[u8]) -> Result<(), TokenStoreError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(destination.to_owned(), sealed.to_vec());
        Ok(())
    }
}

/// Seals tokens. With other credentials in the configuration nothing old opens, so a new token written there wins over
/// one that was kept.
pub(super) struct Seal(LessSafeKey);

impl Seal {
    /// A seal that needs all of these texts to be broken.
    pub fn new(secrets: &[&Secret]) -> Option<Seal> {
        let mut digest = Sha256::new_with_prefix("leadsync refresh token 1");
        for secret in secrets {
            digest.update((secret.expose().len() as u64).to_be_bytes());
            digest.update(secret.expose());
        }
        let key = UnboundKey::new(&CHACHA20_POLY1305, &digest.finalize()).ok()?;
        Some(Seal(LessSafeKey::new(key)))
    }

    /// The sealed text: nonce, then ciphertext with its tag.
    pub fn close(&self, token: &Secret) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = rand::rng().random();
        let mut text = token.expose().as_bytes().to_vec();
        let aad = Aad::empty();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text)
            .ok()?;
        Some([nonce.as_slice(), &text].concat())
    }

    /// The text, where it was sealed with the same credentials.
    pub fn open(&self, sealed: &[u8]) -> Option<Secret> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::empty(), &mut text).ok()?;
        Some(Secret::new(std::str::from_utf8(plain).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_credentials_open_what_was_sealed() {
        let (a, b) = (Secret::new("client secret"), Secret::new("first token"));
        let seal = Seal::new(&[&a, &b]).unwrap();
        let token = Secret::new("newest token");
        let sealed = seal.close(&token).unwrap();
        assert_ne!(sealed, seal.close(&token).unwrap(), "a nonce is used once");
        assert!(!sealed.windows(6).any(|w| w == b"newest"));
        assert_eq!(seal.open(&sealed), Some(token));
        assert_eq!(Seal::new(&[&a, &Secret::new("other")]).unwrap().open(&sealed), None);
        let mut broken = sealed.clone();
        broken[NONCE_LEN] ^= 1;
        assert_eq!(seal.open(&broken), None);
        for odd in [&sealed[..5], &[], &sealed[..NONCE_LEN]] {
            assert_eq!(seal.open(odd), None);
        }
    }
}
