//! The files of a listener's certificate: which they are, and what they come to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use settings::{Key, Kind, Section};
use trust::pem;

use super::Error;

const CERT: &str = "tls.cert";
const KEY: &str = "tls.key";
const CLIENT_CA: &str = "tls.client_ca";
/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The keys of a section whose role listens.
pub const KEYS: [Key; 3] = [
    Key::new(
        CERT,
        Kind::Text,
        "PEM certificate that http.listen shows, with those between it and its authority; HTTP is then served over TLS only. Read again when it changes.",
    ),
    Key::new(KEY, Kind::Text, "PEM key of tls.cert."),
    Key::new(
        CLIENT_CA,
        Kind::Text,
        "PEM certificates of the authorities whose clients are let in; who has no certificate of theirs is refused.",
    ),
];

/// What a listener speaks TLS with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// PEM certificate chain.
    pub cert: PathBuf,
    /// PEM key of the first certificate.
    pub key: PathBuf,
    /// PEM certificates of the authorities that clients' certificates must come from.
    pub client_ca: Option<PathBuf>,
    /// How often the files are looked at.
    pub look_every: Duration,
}

/// The files as they were at one moment.
pub(super) struct Read {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// What the files come to.
pub(super) struct Material {
    pub(super) config: Arc<ServerConfig>,
    /// When the certificate ends, in seconds of Unix time.
    pub(super) expires: i64,
}

impl Tls {
    /// Without clients' certificates.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        Tls { cert: cert.into(), key: key.into(), client_ca: None, look_every: LOOK_EVERY }
    }

    /// What a section that has [`KEYS`] says; nothing when HTTP is plain.
    pub fn from_section(section: &Section) -> Result<Option<Tls>, settings::Error> {
        let path = |key| Ok::<_, settings::Error>(section.find(key)?.map(|value| value.path()));
        let client_ca = path(CLIENT_CA)?;
        match (path(CERT)?, path(KEY)?) {
            (Some(cert), Some(key)) => Ok(Some(Tls { client_ca, ..Tls::new(cert, key) })),
            (None, None) if client_ca.is_none() => Ok(None),
            (None, _) => Err(section.refuse(CERT, "is missing: TLS wants tls.cert and tls.key")),
            (Some(_), None) => Err(section.refuse(KEY, "is missing: it goes with tls.cert")),
        }
    }

    /// Reads the files and says until when the certificate holds, as a role would that starts.
    pub fn examine(&self) -> Result<Timestamp, Error> {
        let expires = self.material(&self.read()?)?.expires;
        let until = Timestamp::from_second(expires);
        Ok(until.map_err(|error| trust::Error::new(CERT, &self.cert, error.to_string()))?)
    }

    pub(super) fn read(&self) -> Result<Read, Error> {
        Ok(Read {
            cert: pem::read(CERT, &self.cert)?,
            key: pem::read(KEY, &self.key)?,
            client_ca: self
                .client_ca
                .as_deref()
                .map(|file| pem::read(CLIENT_CA, file))
                .transpose()?,
        })
    }

    pub(super) fn material(&self, read: &Read) -> Result<Material, Error> {
        let chain = pem::certificates(CERT, &self.cert, &read.cert)?;
        let expires = chain.first().and_then(|first| expiry(first)).ok_or_else(|| {
            trust::Error::new(CERT, &self.cert, "the first certificate cannot be read".to_owned())
        })?;
        let key = pem::private_key(KEY, &self.key, &read.key)?;
        // Named, so that it does not matter what else the process has installed.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| trust::Error::new(CERT, &self.cert, error.to_string()))?;
        let builder = match (&self.client_ca, &read.client_ca) {
            (Some(file), Some(bytes)) => {
                let wrong = |why: String| trust::Error::new(CLIENT_CA, file, why);
                let mut roots = RootCertStore::empty();
                for one in pem::certificates(CLIENT_CA, file, bytes)? {
                    roots.add(one).map_err(|error| wrong(error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| wrong(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                trust::Error::new(KEY, &self.key, "is not the key of tls.cert".to_owned())
            }
            error => trust::Error::new(CERT, &self.cert, error.to_string()),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Material { config: Arc::new(config), expires })
    }
}

impl Read {
    pub(super) fn digest(&self) -> [u8; 32] {
        pem::digest(
            [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()]
                .map(|part| part.map(Vec::as_slice)),
        )
    }
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}
