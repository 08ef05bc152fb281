//! A token's text and its hash.
//!
//! `hf_` and 64 hexadecimal digits: the prefix lets a scanner find one that was left in a file, and
//! lets a text that can be no token be refused without asking the database.

use std::fmt::Write as _;

use rand::RngExt as _;
use settings::Secret;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

const PREFIX: &str = "hf_";
const DIGITS: usize = 64;

/// SHA-256 of a token's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &str) -> TokenHash {
        TokenHash(Sha256::digest(token.as_bytes()).into())
    }

    /// The hash of what somebody presents, if it can be a token at all.
    pub fn of_presented(text: &str) -> Option<TokenHash> {
        let digits = text.strip_prefix(PREFIX)?;
        let sound = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
        sound.then(|| TokenHash::of(text))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether a stored hash is this one, in a time that does not depend on where they differ.
    pub(super) fn matches(&self, stored: &[u8]) -> bool {
        self.0.ct_eq(stored).into()
    }
}

/// A new token: 32 random bytes.
pub(super) fn mint() -> Secret {
    let bytes: [u8; 32] = rand::rng().random();
    let mut text = String::with_capacity(PREFIX.len() + DIGITS);
    text.push_str(PREFIX);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Secret::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_match_only_themselves() {
        let (one, two) = (mint(), mint());
        assert_ne!(one, two);
        let hash = TokenHash::of_presented(one.expose()).unwrap();
        assert!(hash.matches(TokenHash::of(one.expose()).bytes()));
        assert!(!hash.matches(TokenHash::of(two.expose()).bytes()));
        assert!(!hash.matches(&[]));
        assert!(!format!("{one:?}").contains(one.expose()));
    }

    #[test]
    fn what_can_be_no_token_has_no_hash() {
        let minted = mint();
        for text in ["", "hf_", "guess", &minted.expose()[3..], &format!("{}0", minted.expose())] {
            assert_eq!(TokenHash::of_presented(text), None, "{text:?}");
        }
    }
}
