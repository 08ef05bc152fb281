//! A node and its outbox against a real Postgres, one database a test.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod line;
mod outbox;
mod plant;
mod producer;
mod retries;
mod rules;
mod wire;

pub(crate) fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}
