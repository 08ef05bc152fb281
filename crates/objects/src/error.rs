//! Why something could not be done with an object, and what it is about.

use reqwest::StatusCode;

/// What a failure is about; that alone decides what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The object: trying again does not help.
    Object,
    /// The store or the way to it: the object is not to blame, waiting may help.
    Destination,
    /// This process or its configuration.
    Us,
}

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object, or no such upload.
    #[error("the store has no such object")]
    NotFound,
    /// An object is there under this key. After a lost answer it may be the one that was just written.
    #[error("an object is there already")]
    AlreadyThere,
    /// The object is larger than was asked for.
    #[error("the object is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The store says that what was sent is not what was announced.
    #[error("the store refused what was sent: {code}")]
    Damaged {
        /// The store's word.
        code: String,
    },
    /// The key is none that is used: see [`crate::key::check`].
    #[error("the key of the object is not sound")]
    Key,
    /// The store refuses our credentials.
    #[error("the store refuses access: {status} {code}")]
    Denied {
        /// The answer.
        status: StatusCode,
        /// The store's word.
        code: String,
    },
    /// The store has no room.
    #[error("the store is full")]
    Full,
    /// The store cannot be reached, does not answer in time, or says that it cannot.
    #[error("the store is away: {0}")]
    Away(String),
    /// The store answered something that cannot be understood.
    #[error("the store's answer cannot be understood: {0}")]
    Answer(String),
    /// The store refuses the request itself.
    #[error("the store refuses the request: {status} {code}")]
    Refused {
        /// The answer.
        status: StatusCode,
        /// The store's word.
        code: String,
    },
    /// A local file could not be read or written.
    #[error("a file of ours: {0}")]
    File(#[from] std::io::Error),
    /// The address can never work.
    #[error("the object store cannot be used as configured: {0}")]
    Address(String),
}

impl Error {
    /// What it is about.
    pub fn about(&self) -> About {
        match self {
            Error::NotFound
            | Error::AlreadyThere
            | Error::TooLarge { .. }
            | Error::Damaged { .. } => About::Object,
            // Keys that are refused are an outage: waiting costs nothing, and an operator mends it.
            Error::Denied { .. } | Error::Full | Error::Away(_) | Error::Answer(_) => {
                About::Destination
            }
            Error::Key | Error::Refused { .. } | Error::File(_) | Error::Address(_) => About::Us,
        }
    }

    /// Whether the same request may succeed in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Error::Away(_))
    }

    /// What an answer that is no success means. `code` is the store's own word, where it gave one.
    pub(crate) fn from_answer(status: StatusCode, code: &str) -> Error {
        let code = word(code);
        match (status.as_u16(), code.as_str()) {
            (_, "NoSuchBucket") => Error::Denied { status, code },
            (404, _) => Error::NotFound,
            (412, _) => Error::AlreadyThere,
            (_, "BadDigest" | "XAmzContentSHA256Mismatch" | "IncompleteBody" | "InvalidDigest") => {
                Error::Damaged { code }
            }
            (400, "InvalidPart" | "EntityTooSmall" | "EntityTooLarge" | "InvalidPartOrder") => {
                Error::Damaged { code }
            }
            (401 | 403, _) => Error::Denied { status, code },
            (507, _) | (_, "StorageFull" | "XMinioStorageFull" | "QuotaExceeded") => Error::Full,
            // What a store does not know it will not learn in a moment.
            (501, _) => Error::Refused { status, code },
            // 409: two writers met; one of them is told to come back.
            (408 | 409 | 429 | 500..=599, _) => Error::Away(format!("{status} {code}")),
            _ => Error::Refused { status, code },
        }
    }
}

/// A store's word, if it is one; a store may answer anything.
fn word(code: &str) -> String {
    code.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Error {
        // An address holds a signature: it stays out of logs.
        let error = error.without_url();
        let mut said = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(because) = cause {
            said = format!("{said}: {because}");
            cause = because.source();
        }
        Error::Away(said)
    }
}
