//! What can go wrong with a private server.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program this needs is not on the machine.
    #[error("{program} was not found; install the package {package}")]
    NotInstalled {
        /// The program looked for.
        program: &'static str,
        /// The package that has it on Debian.
        package: &'static str,
    },
    /// Postgres refuses to run as root, and the user it runs as instead cannot enter the folder.
    #[error(
        "user {user} cannot use {}: {} is closed to it; choose another folder or run chmod o+x on it",
        folder.display(), closed.display()
    )]
    Closed {
        /// The folder the server was to use.
        folder: PathBuf,
        /// The folder on the way that stops the user.
        closed: PathBuf,
        /// The user.
        user: &'static str,
    },
    /// Reading or writing failed.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The network refused.
    #[error("{action}: {source}")]
    Network {
        /// What was tried.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote, and of the server's log where there is one.
        output: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {within:?}: {detail}")]
    TooLate {
        /// What was waited for.
        what: String,
        /// How long.
        within: Duration,
        /// What there was instead.
        detail: String,
    },
}

impl Error {
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { action, path, source }
    }
}
