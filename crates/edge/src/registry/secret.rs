//! A node's secret: minted once, shown once, kept as hashes.
//!
//! Promise: the secret itself is never stored here or logged. Two hashes are kept. Plain SHA-256
//! serves the HTTP bearer check: the secret is 256 random bits, so there is no dictionary to try
//! and a slow hash would only slow the check down. Mosquitto's own form (PBKDF2 with SHA-512)
//! serves its password file.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pbkdf2::pbkdf2_hmac;
use rand::RngExt as _;
use settings::Secret;
use sha2::{Digest as _, Sha256, Sha512};
use subtle::ConstantTimeEq as _;

/// Mosquitto's own number of rounds. It is low, and enough for 256 random bits.
const BROKER_ROUNDS: u32 = 101;
const BROKER_SALT_BYTES: usize = 12;
const BROKER_HASH_BYTES: usize = 64;

/// SHA-256 of a secret's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// The hash of a secret as presented.
    pub fn of(secret: &str) -> SecretHash {
        SecretHash(Sha256::digest(secret.as_bytes()).into())
    }

    /// Takes the 32 bytes of a stored hash.
    pub(crate) fn from_stored(bytes: &[u8]) -> Option<SecretHash> {
        bytes.try_into().ok().map(SecretHash)
    }

    /// The bytes to store.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether two hashes are the same, in a time that does not depend on where they differ.
    pub fn matches(&self, other: &SecretHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A new secret: 32 random bytes in hexadecimal, which every configuration file can hold as it is.
pub(crate) fn mint() -> Secret {
    let bytes: [u8; 32] = rand::rng().random();
    let mut text = String::with_capacity(64);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Secret::new(text)
}

/// The password field of a line in Mosquitto's password file.
pub(crate) fn broker_hash(secret: &Secret) -> String {
    let salt: [u8; BROKER_SALT_BYTES] = rand::rng().random();
    let mut hash = [0; BROKER_HASH_BYTES];
    pbkdf2_hmac::<Sha512>(secret.expose().as_bytes(), &salt, BROKER_ROUNDS, &mut hash);
    format!("$7${BROKER_ROUNDS}${}${}", STANDARD.encode(salt), STANDARD.encode(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_match_only_themselves() {
        let (one, two) = (mint(), mint());
        assert_eq!(one.expose().len(), 64);
        assert_ne!(one, two);
        assert!(SecretHash::of(one.expose()).matches(&SecretHash::of(one.expose())));
        assert!(!SecretHash::of(one.expose()).matches(&SecretHash::of(two.expose())));
        assert_ne!(broker_hash(&one), broker_hash(&one), "the salt is fresh each time");
    }
}
