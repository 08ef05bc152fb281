//! SCRAM-SHA-512 (RFC 5802) without channel binding: the client's side of a login, and what a cluster keeps of a password. Pure.
//!
//! Names and passwords are printable ASCII, for which SASLprep changes nothing; others are refused rather than prepared wrongly.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use pbkdf2::pbkdf2_hmac;
use rand::RngExt as _;
use sha2::{Digest as _, Sha512};

/// How often a new password is hashed: twice what Kafka's own tools do, half of the most it takes.
pub const ITERATIONS: u32 = 8192;
/// Fewer would let whoever poses as the broker guess the password from our proof.
const FEWEST_ITERATIONS: u32 = 4096;
/// More would let it keep us busy. Kafka itself takes up to 16,384.
const MOST_ITERATIONS: u32 = 1_000_000;
const HASH_BYTES: usize = 64;
const SALT_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
const MAX_SECRET_BYTES: usize = 512;

type Hash = [u8; HASH_BYTES];

/// A name or a password that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be 1 to {MAX_SECRET_BYTES} printable ASCII characters for SCRAM")]
pub struct InvalidSecret {
    what: String,
}

/// Refuses what SASLprep might change; `what` names it in the error, which does not show it.
pub(in crate::kafka) fn check(what: &str, text: &str) -> Result<(), InvalidSecret> {
    let sound = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if sound && (1..=MAX_SECRET_BYTES).contains(&text.len()) {
        return Ok(());
    }
    Err(InvalidSecret { what: what.to_owned() })
}

/// Why a login cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScramError {
    #[error("the broker's answer is none of SCRAM's: {0}")]
    Malformed(&'static str),
    #[error(
        "the broker wants the password hashed {0} times; \
         between {FEWEST_ITERATIONS} and {MOST_ITERATIONS} is accepted"
    )]
    Iterations(u32),
    #[error("the broker does not know our password itself: it may be another's")]
    Impostor,
    #[error("the broker says {0:?}")]
    Refused(String),
}

/// A login before the broker's first answer.
pub(super) struct Login<'a> {
    password: &'a str,
    nonce: String,
    first_bare: String,
}

/// A login whose proof was sent: what the broker must show in turn.
pub(super) struct Sent {
    server_key: Hash,
    auth_message: String,
}

impl<'a> Login<'a> {
    /// A login with a nonce of its own. Name and password were checked.
    pub(super) fn new(user: &str, password: &'a str) -> Login<'a> {
        let nonce: [u8; NONCE_BYTES] = rand::rng().random();
        Login::with_nonce(user, password, STANDARD.encode(nonce))
    }

    fn with_nonce(user: &str, password: &'a str, nonce: String) -> Login<'a> {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Login { password, first_bare: format!("n={user},r={nonce}"), nonce }
    }

    /// The client's first message.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// Reads the broker's first message and makes the client's last.
    pub(super) fn answer(&self, server_first: &str) -> Result<(String, Sent), ScramError> {
        let malformed = ScramError::Malformed;
        let mut parts = server_first.splitn(4, ',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let nonce = part("r=").ok_or(malformed("it has no nonce"))?;
        let salt = part("s=").ok_or(malformed("it has no salt"))?;
        let iterations = part("i=").and_then(|number| number.parse::<u32>().ok());
        let iterations = iterations.ok_or(malformed("it has no number of iterations"))?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(malformed("its nonce does not go on from ours"));
        }
        if !(FEWEST_ITERATIONS..=MOST_ITERATIONS).contains(&iterations) {
            return Err(ScramError::Iterations(iterations));
        }
        let salt = STANDARD.decode(salt).map_err(|_| malformed("its salt is not base64"))?;
        let salted = salted(self.password, &salt, iterations);
        let client_key = keyed(&salted, "Client Key").finalize().into_bytes();
        let stored_key: Hash = Sha512::digest(client_key).into();
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare);
        let mut proof: Hash = keyed(&stored_key, &auth_message).finalize().into_bytes().into();
        proof.iter_mut().zip(client_key).for_each(|(byte, key)| *byte ^= key);
        let server_key = keyed(&salted, "Server Key").finalize().into_bytes().into();
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        Ok((last, Sent { server_key, auth_message }))
    }
}

impl Sent {
    /// Reads the broker's last message: it shows that the broker knows the password, too.
    pub(super) fn verify(&self, server_final: &str) -> Result<(), ScramError> {
        if let Some(error) = server_final.strip_prefix("e=") {
            return Err(ScramError::Refused(error.chars().take(100).collect()));
        }
        let shown = server_final.strip_prefix("v=").and_then(|rest| rest.split(',').next());
        let shown = shown.ok_or(ScramError::Malformed("it has no signature"))?;
        let shown = STANDARD.decode(shown).map_err(|_| ScramError::Impostor)?;
        // The comparison takes the same time wherever the first difference is.
        keyed(&self.server_key, &self.auth_message)
            .verify_slice(&shown)
            .map_err(|_| ScramError::Impostor)
    }
}

/// What a cluster is given of a password.
pub(super) struct Credential {
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
    pub(super) salted_password: Vec<u8>,
}

/// Salts a new password.
pub(super) fn credential(password: &str) -> Credential {
    let salt: [u8; SALT_BYTES] = rand::rng().random();
    let salted_password = salted(password, &salt, ITERATIONS).to_vec();
    Credential { salt: salt.to_vec(), iterations: ITERATIONS, salted_password }
}

fn salted(password: &str, salt: &[u8], iterations: u32) -> Hash {
    let mut hash = [0; HASH_BYTES];
    pbkdf2_hmac::<Sha512>(password.as_bytes(), salt, iterations, &mut hash);
    hash
}

fn keyed(key: &Hash, message: &str) -> Hmac<Sha512> {
    let mut block = [0; 128];
    // A key shorter than the hash's block is filled with zeroes by HMAC itself; done here, its length is right by type.
    block[..HASH_BYTES].copy_from_slice(key);
    Hmac::<Sha512>::new(&block.into()).chain_update(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    // There is no published vector for SHA-512. This one has the nonces and the salt of RFC 7677 and was computed apart from this code,
    // with Python's hashlib and hmac, step by step as section 3 of RFC 5802 writes them:
    //   s = hashlib.pbkdf2_hmac("sha512", b"pencil", salt, 4096); ck = HMAC(s, b"Client Key"); sk = sha512(ck)
    //   proof = ck XOR HMAC(sk, auth); signature = HMAC(HMAC(s, b"Server Key"), auth)
    //   auth = "n=us=2Cer=3D,r=" + nonce + "," + server_first + ",c=biws,r=" + server_nonce
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const PROOF: &str =
        "BgJiZfs5Mc3yxCRgBo5TRpFNwLk1maEz6BaSMCR4wEv+R17UsFZMCbPw+eWI2x5luMXXf3tsGEMPurzg0JeUYA==";
    const SIGNATURE: &str =
        "teOiRdivY921nd0kq3r0jklSshX11bFmN0czFoJfSgWXmf1giEnHsdBT/rtiVFeIteYZ93BNCk/yfslyaN8eNQ==";

    fn login() -> Login<'static> {
        Login::with_nonce("us,er=", "pencil", NONCE.to_owned())
    }

    #[test]
    fn a_login_is_as_computed_elsewhere() {
        let login = login();
        assert_eq!(login.first(), format!("n,,n=us=2Cer=3D,r={NONCE}"));
        let (last, sent) = login.answer(SERVER_FIRST).unwrap();
        assert_eq!(last.rsplit_once(",p=").unwrap().1, PROOF);
        assert_eq!(sent.verify(&format!("v={SIGNATURE}")), Ok(()));
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_found_out() {
        let (_, sent) = login().answer(SERVER_FIRST).unwrap();
        let other = SIGNATURE.replacen('t', "u", 1);
        assert_eq!(sent.verify(&format!("v={other}")), Err(ScramError::Impostor));
        assert_eq!(sent.verify("v="), Err(ScramError::Impostor));
        assert!(matches!(sent.verify(""), Err(ScramError::Malformed(_))));
        assert!(matches!(sent.verify("e=invalid-proof"), Err(ScramError::Refused(_))));
    }

    #[test]
    fn a_first_answer_that_is_none_or_weak_or_costly_is_refused() {
        for text in [
            "",
            "r=other,s=AAAA,i=4096",
            "r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096",
            "m=x,r=rOprNGfwEbeRWgbNEkqO1,s=AAAA,i=4096",
            "r=rOprNGfwEbeRWgbNEkqO1,s=?,i=4096",
            "r=rOprNGfwEbeRWgbNEkqO1,s=AAAA,i=many",
        ] {
            let refused = login().answer(text).err().unwrap();
            assert!(matches!(refused, ScramError::Malformed(_)), "{text}: {refused}");
        }
        for count in [1, 4_095, 1_000_001] {
            let text = format!("r={NONCE}1,s=AAAA,i={count}");
            assert_eq!(login().answer(&text).err(), Some(ScramError::Iterations(count)));
        }
    }

    #[test]
    fn every_password_has_a_salt_of_its_own_and_what_needs_preparing_is_refused() {
        let (one, two) = (credential("pencil"), credential("pencil"));
        assert_ne!(one.salt, two.salt);
        assert_ne!(one.salted_password, two.salted_password);
        assert_eq!(one.salted_password, salted("pencil", &one.salt, 8192));
        assert_eq!(check("a password", "p e=n,c!~"), Ok(()));
        for text in ["", "canary-ä", "canary\n", "canary\u{a0}", &"canary".repeat(100)] {
            let error = check("the password of ada", text).unwrap_err().to_string();
            assert!(error.contains("ada") && !error.contains("canary"), "{error}");
        }
    }
}
