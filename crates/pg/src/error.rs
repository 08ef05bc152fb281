//! What an error is about.
//!
//! A caller has four answers to an error, and the SQLSTATE chooses between them: wait and try the
//! same work again, set one record aside, run the transaction again at once, or stop.

use std::error::Error as StdError;
use std::path::PathBuf;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

/// What an error is about; see [`about`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The server or the way to it: gone, starting, stopping, full, or too slow. The same work may
    /// succeed later, so it is kept and tried again after a pause.
    Destination,
    /// The values that were sent. The same work fails every time, so the record is set aside.
    Data,
    /// Another transaction was in the way. The same work may succeed at once.
    Conflict,
    /// Us: a wrong statement, a missing table, a wrong password. Neither waiting nor setting a
    /// record aside helps; a person has to act.
    Us,
}

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection string cannot be used. The string itself is not shown: it may hold a
    /// password.
    #[error("the Postgres address cannot be used: {}", chain(.0))]
    Address(#[source] tokio_postgres::Error),
    /// The address asks for TLS and nothing says whom to trust.
    #[error("sslmode=require needs a CA file, because an unverified server could be anyone")]
    NoCertificateAuthority,
    /// The file of trusted certificates cannot be used.
    #[error("the CA file {} cannot be used: {problem}", path.display())]
    CertificateAuthority {
        /// The file as configured.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// No connection became free, or none could be made, within the time allowed.
    #[error("no connection to Postgres within {0:?}")]
    Timeout(std::time::Duration),
    /// The pool itself cannot work.
    #[error("the pool of Postgres connections cannot work: {0}")]
    Pool(String),
    /// Postgres, or the way to it, answered with an error.
    #[error("{}", describe(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// A migration did not go through.
    #[error("the migration recorded in {history} failed: {}", chain(.source))]
    Migration {
        /// The history table of the migrations.
        history: String,
        /// What the runner met.
        source: refinery::Error,
    },
    /// The table is not one that can have monthly partitions.
    #[error("{table} cannot have monthly partitions: {problem}")]
    Table {
        /// The table as named by the caller.
        table: String,
        /// Why it cannot.
        problem: &'static str,
    },
}

impl Error {
    /// What this error is about.
    pub fn about(&self) -> About {
        match self {
            Error::Timeout(_) => About::Destination,
            Error::Postgres(error) => about(error),
            Error::Migration { source, .. } => {
                let mut cause: Option<&(dyn StdError + 'static)> = source.source();
                while let Some(error) = cause {
                    if let Some(error) = error.downcast_ref::<tokio_postgres::Error>() {
                        // A migration that breaks a constraint is a wrong migration, not a
                        // record that could be set aside.
                        return match about(error) {
                            About::Data => About::Us,
                            other => other,
                        };
                    }
                    cause = error.source();
                }
                About::Us
            }
            Error::Address(_)
            | Error::NoCertificateAuthority
            | Error::CertificateAuthority { .. }
            | Error::Pool(_)
            | Error::Table { .. } => About::Us,
        }
    }

    pub(crate) fn from_pool(error: PoolError, wait: std::time::Duration) -> Error {
        match error {
            PoolError::Timeout(_) => Error::Timeout(wait),
            PoolError::Backend(error) => Error::Postgres(error),
            other => Error::Pool(other.to_string()),
        }
    }
}

/// Says what an error of the Postgres client is about.
pub fn about(error: &tokio_postgres::Error) -> About {
    if let Some(state) = error.code() {
        return about_state(state);
    }
    if error.is_closed() {
        return About::Destination;
    }
    match error.source() {
        // Refused, reset, timed out, unreachable, and a TLS handshake that broke off.
        Some(cause) if cause.is::<std::io::Error>() => About::Destination,
        _ => About::Us,
    }
}

fn about_state(state: &SqlState) -> About {
    let code = state.code();
    match code {
        // A statement cancelled by its timeout says that the server is slow; a read-only server is
        // one that was failed over; a database in use or being dropped is in motion.
        "57014" | "25006" | "55006" => About::Destination,
        // A lock that was not free within lock_timeout.
        "55P03" => About::Conflict,
        _ => match code.get(..2) {
            // 08: connection; 53: out of connections, memory or disk; 57: shutting down, starting,
            // crashed; 58: the server's own files failed it.
            Some("08" | "53" | "57" | "58") => About::Destination,
            // 22: a value that its type refuses; 23: a constraint; 54: a value beyond a limit.
            Some("22" | "23" | "54") => About::Data,
            Some("40") => About::Conflict,
            _ => About::Us,
        },
    }
}

/// The server's message with its SQLSTATE, or the whole chain of causes. The server's DETAIL is
/// left out because it repeats values of the row.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => format!("Postgres: {} ({})", answer.message(), answer.code().code()),
        None => format!("Postgres: {}", chain(error)),
    }
}

fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_one_answer() {
        let cases = [
            ("08006", About::Destination),
            ("08P01", About::Destination),
            ("53300", About::Destination),
            ("53100", About::Destination),
            ("57P01", About::Destination),
            ("57P02", About::Destination),
            ("57P03", About::Destination),
            ("57014", About::Destination),
            ("58030", About::Destination),
            ("25006", About::Destination),
            ("22001", About::Data),
            ("22P05", About::Data),
            ("23505", About::Data),
            ("23514", About::Data),
            ("54000", About::Data),
            ("40001", About::Conflict),
            ("40P01", About::Conflict),
            ("55P03", About::Conflict),
            ("42P01", About::Us),
            ("42601", About::Us),
            ("28P01", About::Us),
            ("3D000", About::Us),
            ("XX000", About::Us),
        ];
        for (code, expected) in cases {
            assert_eq!(about_state(&SqlState::from_code(code)), expected, "{code}");
        }
    }
}
