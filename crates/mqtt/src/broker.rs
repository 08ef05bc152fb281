//! From settings to a connected client.

use crate::{Address, Error};
use rumqttc::{
    AckMode, AsyncClient, EventLoop, LastWill, MqttOptions, NetworkOptions, TlsConfiguration,
    Transport,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// User name and password. `Debug` hides the password.
#[derive(Clone)]
pub struct Credentials {
    username: String,
    password: String,
}

impl Credentials {
    /// A user name with its password.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Credentials {
        Credentials { username: username.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Whom an `mqtts://` link trusts, and who it says we are. New connections follow the files.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// PEM file of the authorities to trust; the system's when absent.
    pub ca_file: Option<PathBuf>,
    /// PEM file of our certificate chain; needs `client_key`.
    pub client_cert: Option<PathBuf>,
    /// PEM file of our private key.
    pub client_key: Option<PathBuf>,
}

/// Where the broker is and how to be let in.
#[derive(Debug, Clone)]
pub struct Broker {
    /// The address.
    pub address: Address,
    /// For `mqtts://`.
    pub tls: Tls,
    /// For a broker that asks.
    pub credentials: Option<Credentials>,
}

/// What kind of client connects.
#[derive(Debug, Clone)]
pub struct Session {
    /// The client id; the broker keeps a persistent session under it.
    pub client_id: String,
    /// Whether the broker forgets us at disconnect.
    pub clean: bool,
    /// Silence after which the link is tested; a half-open link is found within twice this.
    pub keepalive: Duration,
    /// QoS 1 publishes that may wait for their PUBACK.
    pub inflight: u16,
    /// The largest packet in either direction.
    pub max_packet_bytes: usize,
    /// Whether the role acknowledges incoming publishes itself.
    pub manual_acks: bool,
    /// What the broker publishes for us when the link breaks.
    pub last_will: Option<LastWill>,
    /// Requests that may wait between the client and its event loop.
    pub queue: usize,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
}

impl Default for Session {
    fn default() -> Session {
        Session {
            client_id: String::new(),
            clean: true,
            keepalive: Duration::from_secs(15),
            inflight: 20,
            max_packet_bytes: 1 << 20,
            manual_acks: false,
            last_will: None,
            queue: 16,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Makes ring the process's TLS provider. Safe to call more than once; the first provider stays.
pub fn install_crypto() {
    // An error only says that a provider is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Broker {
    /// The client's options, without connecting.
    pub fn options(&self, session: &Session) -> Result<MqttOptions, Error> {
        let broker = rumqttc::Broker::tcp(self.address.host.clone(), self.address.port);
        let mut options = MqttOptions::new(session.client_id.clone(), broker);
        let refused = |error: rumqttc::ConfigError| Error::Options(error.to_string());
        options.try_set_clean_session(session.clean).map_err(refused)?;
        options.try_set_inflight(session.inflight).map_err(refused)?;
        let seconds = session.keepalive.as_secs().max(1);
        options.set_keep_alive(u16::try_from(seconds).unwrap_or(u16::MAX));
        options.set_max_packet_size(session.max_packet_bytes, session.max_packet_bytes);
        // What waits goes out in one write, not in one for each message.
        options.set_max_request_batch(usize::from(session.inflight));
        if session.manual_acks {
            options.set_ack_mode(AckMode::Manual);
        }
        if let Some(will) = &session.last_will {
            options.set_last_will(will.clone());
        }
        if let Some(Credentials { username, password }) = &self.credentials {
            options.set_credentials(username.clone(), password.clone());
        }
        if self.address.tls {
            options.set_transport(Transport::tls_with_config(self.tls.configuration()?));
        }
        options.validate().map_err(refused)?;
        Ok(options)
    }

    /// A client and the event loop that connects when it is polled.
    pub fn connect(&self, session: &Session) -> Result<(AsyncClient, EventLoop), Error> {
        let options = self.options(session)?;
        let (client, mut event_loop) = AsyncClient::builder(options)
            .capacity(session.queue)
            .try_build()
            .map_err(|error| Error::Options(error.to_string()))?;
        let mut network = NetworkOptions::new();
        // Small live batches must not wait for a full segment.
        network.set_tcp_nodelay(true);
        network.set_connection_timeout(session.connect_timeout.as_secs().max(1));
        event_loop.set_network_options(network);
        Ok((client, event_loop))
    }
}

impl Tls {
    fn configuration(&self) -> Result<TlsConfiguration, Error> {
        install_crypto();
        let Some(ca_file) = &self.ca_file else {
            if self.client_cert.is_some() || self.client_key.is_some() {
                return Err(Error::Contradiction("a client certificate needs a CA file"));
            }
            return TlsConfiguration::try_default_rustls()
                .map_err(|error| Error::Options(format!("the system's certificates: {error}")));
        };
        let client = match (&self.client_cert, &self.client_key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => {
                return Err(Error::Contradiction(
                    "a client certificate and its key go together: give both or none",
                ));
            }
        };
        let files = trust::Files { ca_file: Some(ca_file.clone()), system: false, client };
        let config = files.client_config().map_err(|trust::Error { file, problem, .. }| {
            Error::Certificate { file, reason: problem }
        })?;
        Ok(TlsConfiguration::Rustls(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(address: &str) -> Broker {
        Broker { address: address.parse().unwrap(), tls: Tls::default(), credentials: None }
    }

    #[test]
    fn options_carry_the_session() {
        let mut broker = broker("mqtt://127.0.0.1:1");
        broker.credentials = Some(Credentials::new("barn-7", "hunter2"));
        let session = Session { client_id: "barn-7".into(), clean: false, ..Session::default() };
        let options = broker.options(&session).unwrap();
        assert!(!options.clean_session());
        assert_eq!(options.inflight(), 20);
        assert_eq!(options.keep_alive(), Duration::from_secs(15));
        assert!(!format!("{broker:?}").contains("hunter2"));
    }

    #[test]
    fn a_persistent_session_needs_a_client_id() {
        let session = Session { clean: false, ..Session::default() };
        assert!(matches!(broker("mqtt://127.0.0.1:1").options(&session), Err(Error::Options(_))));
    }

    #[test]
    fn unusable_certificates_are_refused_at_start_with_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let mut broker = broker("mqtts://127.0.0.1:1");
        broker.tls.ca_file = Some(file.clone());
        let session = Session { client_id: "a".into(), ..Session::default() };
        for content in [None, Some("no certificate here")] {
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let error = broker.options(&session).err().unwrap().to_string();
            assert!(error.contains("ca.pem"), "{error}");
        }
        broker.tls = Tls { client_cert: Some(file), ..Tls::default() };
        assert!(matches!(broker.options(&session), Err(Error::Contradiction(_))));
    }
}
