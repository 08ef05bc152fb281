//! Where the broker is, and connecting to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::OwnedTLSConfig;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};

/// A broker that does not answer is given up after this time.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Seconds. A dead link is noticed after two of them without a byte.
const HEARTBEAT: u16 = 10;

/// The address of a broker's virtual host, credentials included; they are never shown.
#[derive(Clone)]
pub struct Address {
    uri: AMQPUri,
    trust: Option<Arc<trust::Live>>,
}

/// An address that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("broker address: {0}; expected amqp://user:password@host:port/vhost or amqps://…")]
pub struct InvalidAddress(String);

impl Address {
    /// Reads `amqp://user:password@host:port/vhost` or `amqps://…`.
    pub fn parse(text: &str) -> Result<Address, InvalidAddress> {
        let mut uri: AMQPUri = text.parse().map_err(InvalidAddress)?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT);
        Ok(Address { uri, trust: None })
    }

    /// Trusts the certificates of this PEM file as well. New connections follow the file.
    pub fn with_ca_file(mut self, file: PathBuf) -> Address {
        let files = trust::Files { ca_file: Some(file), ..trust::Files::default() };
        self.trust = Some(files.follow());
        self
    }

    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, Arc<str>> {
        let cert_chain = match &self.trust {
            Some(live) => {
                let current = live.current().map_err(|error| Arc::from(error.to_string()))?;
                current.ca_pem().map(str::to_owned)
            }
            None => None,
        };
        let runtime = lapin::runtime::default_runtime().map_err(|error| words(&error))?;
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let builder = lapin::ConnectionBuilder::new_with_runtime(runtime)
            .with_uri(self.uri.clone())
            .with_properties(properties)
            .with_tls_config(OwnedTLSConfig { identity: None, cert_chain });
        match tokio::time::timeout(CONNECT_WITHIN, builder.connect()).await {
            Ok(connected) => connected.map_err(|error| words(&error)),
            Err(_) => Err("the broker does not answer".into()),
        }
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AMQPUri { authority, vhost, .. } = &self.uri;
        write!(f, "Address({}:{}/{vhost})", authority.host, authority.port)
    }
}

/// The client library's error in words; it names queues and arguments, never a body.
pub(crate) fn words(error: &lapin::Error) -> Arc<str> {
    error.to_string().into()
}

/// Waiting longer after each failure. Jitter is not needed: a broker's clients are few.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { pause: FIRST_PAUSE }
    }
}

impl Backoff {
    /// The pause after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let address = Address::parse("amqp://user:canary@host:5673/v").unwrap();
        assert_eq!(format!("{address:?}"), "Address(host:5673/v)");
        let error = Address::parse("http://user:canary@host").unwrap_err().to_string();
        assert!(!error.contains("canary"), "{error}");
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..8).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
