//! What the files come to.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use sha2::{Digest as _, Sha256};

use crate::{Error, Files, pem};

const CA_FILE: &str = "ca_file";
const CLIENT_CERT: &str = "client_cert";
const CLIENT_KEY: &str = "client_key";

/// What the files came to when they were read. Cloning it shares it.
#[derive(Debug, Clone)]
pub struct Material {
    pub(crate) verifier: Arc<WebPkiServerVerifier>,
    pub(crate) shown: Option<Arc<CertifiedKey>>,
    ca_pem: Option<Arc<str>>,
}

impl Material {
    /// The text of `ca_file`, for a library that reads certificates itself.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }
}

/// Which state the files are in. What it comes to is worked out only when it is asked for: parsing all that the system trusts takes longer than
/// reading our files.
pub(crate) struct Look {
    pub(crate) digest: [u8; 32],
    read: Result<Read, Error>,
}

/// The files' content at one moment.
struct Read {
    ca: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

/// The provider is named, so that it does not matter what else the process has installed.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl Files {
    pub(crate) fn look(&self) -> Look {
        let read = self.read();
        let digest = match &read {
            Ok(read) => read.digest(),
            Err(error) => Sha256::digest(error.to_string()).into(),
        };
        Look { digest, read }
    }

    pub(crate) fn judge(&self, look: Look) -> Result<Material, Error> {
        self.material(&look.read?)
    }

    fn read(&self) -> Result<Read, Error> {
        let client = match &self.client {
            Some((cert, key)) => Some((pem::read(CLIENT_CERT, cert)?, pem::read(CLIENT_KEY, key)?)),
            None => None,
        };
        let ca = self.ca_file.as_deref().map(|file| pem::read(CA_FILE, file)).transpose()?;
        Ok(Read { ca, client })
    }

    fn material(&self, read: &Read) -> Result<Material, Error> {
        let mut roots = RootCertStore::empty();
        let mut ca_pem = None;
        if let (Some(file), Some(bytes)) = (&self.ca_file, &read.ca) {
            for one in pem::certificates(CA_FILE, file, bytes)? {
                roots.add(one).map_err(|error| Error::new(CA_FILE, file, error.to_string()))?;
            }
            let text = std::str::from_utf8(bytes)
                .map_err(|error| Error::new(CA_FILE, file, error.to_string()))?;
            ca_pem = Some(Arc::from(text));
        }
        if self.system {
            // What cannot be read of it is not trusted; a machine without any has `ca_file`.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| match &self.ca_file {
                Some(file) => Error::new(CA_FILE, file, error.to_string()),
                None => Error::new(CA_FILE, Path::new("of the system"), error.to_string()),
            })?;
        let shown = match (&self.client, &read.client) {
            (Some(files), Some(content)) => Some(Arc::new(certified(files, content)?)),
            _ => None,
        };
        Ok(Material { verifier, shown, ca_pem })
    }
}

fn certified(
    (cert, key): &(PathBuf, PathBuf),
    (chain, private): &(Vec<u8>, Vec<u8>),
) -> Result<CertifiedKey, Error> {
    let chain = pem::certificates(CLIENT_CERT, cert, chain)?;
    let private = pem::private_key(CLIENT_KEY, key, private)?;
    CertifiedKey::from_der(chain, private, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            Error::new(CLIENT_KEY, key, format!("is not the key of {}", cert.display()))
        }
        rustls::Error::InvalidCertificate(_) => Error::new(CLIENT_CERT, cert, error.to_string()),
        error => Error::new(CLIENT_KEY, key, error.to_string()),
    })
}

impl Read {
    fn digest(&self) -> [u8; 32] {
        let (cert, key) = self.client.as_ref().map(|(cert, key)| (cert, key)).unzip();
        pem::digest([self.ca.as_ref(), cert, key].map(|part| part.map(Vec::as_slice)))
    }
}
