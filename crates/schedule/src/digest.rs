//! SHA-256, as hex and as ids. Pure.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The digest of some bytes in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A UUID of version 8 made of the digest of parts. Each part goes with its length, so that no two lists of parts run together.
pub(crate) fn id(parts: &[&str]) -> Uuid {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let digest = digest.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_everybody_makes() {
        assert_eq!(
            hex(b"null"),
            "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"
        );
    }

    #[test]
    fn ids_are_of_version_8_and_parts_do_not_run_together() {
        assert_eq!(id(&["a"]).get_version_num(), 8);
        assert_ne!(id(&["ab", "c"]), id(&["a", "bc"]));
        assert_eq!(id(&["ab", "c"]), id(&["ab", "c"]));
    }
}
