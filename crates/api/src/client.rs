//! Whom our own HTTP clients trust, and who they say they are.
//!
//! The files are followed while a role runs, as the crate `trust` says. It must not know where the clients go. It fails when a client is made, with
//! words that name the key.

use std::path::PathBuf;

use reqwest::ClientBuilder;
use settings::Section;
pub use trust::Error;

const CA_FILE: &str = "ca_file";
const CLIENT_CERT: &str = "client_cert";
const CLIENT_KEY: &str = "client_key";

/// What a client speaks TLS with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM certificates to trust, beside those the system trusts.
    pub ca_file: Option<PathBuf>,
    /// PEM certificate chain and key to show a server that asks.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// The keys `ca_file`, `client_cert` and `client_key` after a prefix like `sync.`; the section declares all three.
    pub fn from_section(section: &Section, prefix: &str) -> Result<Tls, settings::Error> {
        let key = |name| format!("{prefix}{name}");
        let path =
            |name| Ok::<_, settings::Error>(section.find(&key(name))?.map(|value| value.path()));
        let client = match (path(CLIENT_CERT)?, path(CLIENT_KEY)?) {
            (Some(cert), Some(private)) => Some((cert, private)),
            (None, None) => None,
            (Some(_), None) => {
                let why = format!("is missing: it goes with {}", key(CLIENT_CERT));
                return Err(section.refuse(&key(CLIENT_KEY), why));
            }
            (None, Some(_)) => {
                let why = format!("is missing: it goes with {}", key(CLIENT_KEY));
                return Err(section.refuse(&key(CLIENT_CERT), why));
            }
        };
        Ok(Tls { ca_file: path(CA_FILE)?, client })
    }

    /// Gives a client's builder what it speaks TLS with; without files that is what the library has.
    pub fn apply(&self, builder: ClientBuilder) -> Result<ClientBuilder, Error> {
        // An error only says that a provider is installed already, which is what we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if *self == Tls::default() {
            return Ok(builder);
        }
        let Tls { ca_file, client } = self.clone();
        let config = trust::Files { ca_file, system: true, client }.client_config()?;
        Ok(builder.tls_backend_preconfigured(config))
    }
}
