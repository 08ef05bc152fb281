//! A small client of Kafka's own protocol, for what the client library has no safe call for: access rules and users.
//!
//! Purpose: one connection, by TLS and SCRAM-SHA-512 as the [`Cluster`](super::Cluster) says, that asks one question after the other
//! ([`acls`], [`users`]). The messages are those of the crate `kafka-protocol`; why there is a second client is in
//! `docs/adr/0018-a-second-kafka-client.md`.
//!
//! Promises: the broker's certificate, its host's name and its knowledge of our password are checked. A frame has at most
//! [`MAX_FRAME_BYTES`](connection::MAX_FRAME_BYTES), and every step a time limit. No password is sent, shown or logged; what is derived
//! from a new one goes by TLS or to this machine only.
//!
//! It must not know topics, groups or roles. It fails with a [`WireError`] that names the broker, the request and what to do. Nothing is
//! asked twice: whoever runs a command runs it again.

pub(super) mod acls;
mod connection;
mod scram;
pub(super) mod users;

use std::fmt;
use std::path::PathBuf;

pub(super) use connection::Connection;
use kafka_protocol::error::ResponseError;
pub(super) use scram::check as check_secret;
pub use scram::{ITERATIONS, InvalidSecret};

/// Why the cluster could not be asked, or what it refused.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A file of ours cannot be used.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A name or a password that SCRAM would want prepared.
    #[error("{0}")]
    Secret(#[from] InvalidSecret),
    /// No broker of the list could be reached.
    #[error("no broker could be asked: {0}")]
    NoBroker(String),
    /// The way to a broker broke.
    #[error("{broker}: {step}: {why}")]
    Broken {
        /// The broker.
        broker: String,
        /// What we were at.
        step: &'static str,
        /// What happened.
        why: String,
    },
    /// The broker refuses our login, or does not know our password itself.
    #[error("{broker}: the login of {user} failed: {why}")]
    Login {
        /// The broker.
        broker: String,
        /// Who wanted in.
        user: String,
        /// Why not.
        why: String,
    },
    /// The broker does not know a request, or only versions that we do not.
    #[error("{broker} does not serve {request}: it is older than Kafka 2.7, or no Kafka")]
    NotServed {
        /// The broker.
        broker: String,
        /// Kafka's name of the request.
        request: &'static str,
    },
    /// The cluster refuses a request.
    #[error("{broker}: {request}: {refusal}")]
    Refused {
        /// The broker.
        broker: String,
        /// Kafka's name of the request.
        request: &'static str,
        /// What the cluster says.
        refusal: Refusal,
    },
    /// What is derived from a password would go where others can read it.
    #[error(
        "{broker} is reached without TLS: who reads a salted password on the way can log in with it; \
         set kafka.tls, or run this on the broker's machine"
    )]
    Readable {
        /// The broker.
        broker: String,
    },
    /// The cluster has taken a change, and does not show it.
    #[error("{broker} does not show what it took within {seconds} s: look again with diff")]
    NotShown {
        /// The broker.
        broker: String,
        /// How long we looked.
        seconds: u64,
    },
}

impl WireError {
    /// True when another broker of the list may do better.
    fn is_of_this_broker(&self) -> bool {
        matches!(self, WireError::Broken { .. } | WireError::NotServed { .. })
    }
}

/// What a request needs, for the words about one that was not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Describe,
    Alter,
}

/// An error code of Kafka's in words, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    error: ResponseError,
    message: Option<String>,
    need: Need,
}

impl Refusal {
    /// The refusal that a code stands for; `None` for zero, which is success.
    fn of(code: i16, message: Option<&str>, need: Need) -> Option<Refusal> {
        let error = ResponseError::try_from_code(code)?;
        let message = message.filter(|text| !text.is_empty()).map(str::to_owned);
        Some(Refusal { error, message, need })
    }

    fn advice(&self) -> Option<&'static str> {
        Some(match (self.error, self.need) {
            (ResponseError::ClusterAuthorizationFailed, Need::Describe) => {
                "our user wants Describe on the cluster, or a place in super.users"
            }
            (ResponseError::ClusterAuthorizationFailed, Need::Alter) => {
                "our user wants Alter on the cluster, or a place in super.users"
            }
            (ResponseError::SecurityDisabled, _) => {
                "the brokers have no authorizer: set authorizer.class.name and start them again"
            }
            (ResponseError::UnsupportedVersion, _) => {
                "the cluster's metadata.version is older than its brokers: see kafka-features"
            }
            (ResponseError::NotController | ResponseError::RequestTimedOut, _) => {
                "the controllers are changing: try again"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            ResponseError::Unknown(code) => write!(f, "error {code}")?,
            known => f.write_str(&as_kafka_writes(&known.to_string()))?,
        }
        if let Some(message) = &self.message {
            write!(f, " ({message})")?;
        }
        match self.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}

/// `SecurityDisabled` as `SECURITY_DISABLED`, which is what Kafka's documents have.
fn as_kafka_writes(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_as_kafka_names_them_with_what_to_do() {
        let said = |code, need| Refusal::of(code, None, need).map(|refusal| refusal.to_string());
        assert_eq!(said(0, Need::Alter), None);
        for (code, need, parts) in [
            (31, Need::Alter, ["CLUSTER_AUTHORIZATION_FAILED", "Alter on the cluster"]),
            (31, Need::Describe, ["CLUSTER_AUTHORIZATION_FAILED", "Describe on the cluster"]),
            (54, Need::Describe, ["SECURITY_DISABLED", "authorizer.class.name"]),
            (7, Need::Alter, ["REQUEST_TIMED_OUT", "try again"]),
            (9_999, Need::Alter, ["error", "9999"]),
        ] {
            let text = said(code, need).unwrap();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
        let why = Refusal::of(42, Some("no such thing"), Need::Alter).unwrap().to_string();
        assert_eq!(why, "INVALID_REQUEST (no such thing)");
    }
}
