//! Files in PEM, for clients and for listeners alike: reading them, and telling one state of them from another.

use std::path::Path;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};

use crate::Error;

/// The file's content; `key` says in the error what it is for.
pub fn read(key: &'static str, file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::new(key, file, error.to_string()))
}

/// The certificates of a file that was read: one at least.
pub fn certificates(
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::new(key, file, error.to_string()))?;
    match chain.is_empty() {
        true => Err(Error::new(key, file, "holds no certificate in PEM")),
        false => Ok(chain),
    }
}

/// The private key of a file that was read.
pub fn private_key(
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| Error::new(key, file, "holds no private key in PEM"))
}

/// Tells one state of some files from another without keeping what is in them. A file that is not there is as good as an empty one.
pub fn digest(parts: [Option<&[u8]>; 3]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for bytes in parts.map(Option::unwrap_or_default) {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    hash.finalize().into()
}
