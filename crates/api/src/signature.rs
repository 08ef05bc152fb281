//! The signature of what we post to others, so that they know who it comes from: HMAC-SHA256 over time and body.

use hmac::{Hmac, KeyInit as _, Mac as _};
use settings::Secret;
use sha2::Sha256;

/// The header it stands in.
pub const HEADER: &str = "holdfast-signature";

/// The value of the header: `t={unix seconds},v1={hex}`, the HMAC-SHA256 with the secret over `{t}.{body}`.
pub fn sign(secret: &Secret, seconds: i64, body: &[u8]) -> String {
    // A key of HMAC may have any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()) else {
        return String::new();
    };
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_that_every_library_makes() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac key
        let signed = sign(&Secret::new("key"), 1_700_000_000, b"{}");
        let (time, hex) = signed.split_once(",v1=").unwrap();
        assert_eq!(time, "t=1700000000");
        assert_eq!(hex, "9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae");
    }
}
