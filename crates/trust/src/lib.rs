//! Whom our clients trust, and who they say they are: files in PEM, which may change while a role runs.
//!
//! Every client of ours that speaks TLS by `rustls` (HTTP, Postgres, MQTT) is configured by [`Files::client_config`]. The configuration is made once
//! and never changed: it asks [`Live`] at each handshake, so that a pool, an event loop or a client need not be made anew.
//!
//! Promises:
//! - A certificate that is put into its file is used by every connection made from then on; connections that are open stay as they are.
//! - Files that cannot be used, or do not fit together, change nothing: what was in use stays, and the log says which file and why.
//! - No session is resumed, because a resumed one would be trusted by what was in the files when it began.
//!
//! A listener's own files are read and told apart by the same [`pem`]; when they are looked at, and what is refused, is the listener's.
//!
//! It must not know where anybody connects to. It fails with [`Error`], at the start only, which is always the operator's to fix.

mod handshake;
mod live;
mod material;
pub mod pem;

use std::path::{Path, PathBuf};

pub use live::Live;
pub use material::Material;

/// A file that cannot be used. The words begin with what the file is for, which is the last part of its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} {}: {problem}", file.display())]
pub struct Error {
    /// What the file is for, as in `ca_file`, `client_cert` or `client_key`.
    pub key: &'static str,
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub problem: String,
}

impl Error {
    /// The file of this key cannot be used.
    pub fn new(key: &'static str, file: &Path, problem: impl Into<String>) -> Error {
        Error { key, file: file.to_owned(), problem: problem.into() }
    }
}

/// The files that a client speaks TLS with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Files {
    /// PEM certificates to trust.
    pub ca_file: Option<PathBuf>,
    /// Whether those that the system trusts are trusted as well.
    pub system: bool,
    /// PEM certificate chain and its key, to show a server that asks.
    pub client: Option<(PathBuf, PathBuf)>,
}
