//! How a role connects to the MQTT broker: address, TLS, credentials, session, and reconnect backoff.
//!
//! The client is `rumqttc` in its MQTT 3.1.1 edition (package `rumqttc-v4-next`; the package
//! `rumqttc-next` is the MQTT 5 edition and its types do not fit). It is re-exported as
//! [`rumqttc`], so that every role uses the same one.
//!
//! ```no_run
//! # fn main() -> Result<(), mqtt::Error> {
//! let broker = mqtt::Broker {
//!     address: "mqtts://broker.example:8883".parse()?,
//!     tls: mqtt::Tls { ca_file: Some("ca.pem".into()), ..Default::default() },
//!     credentials: Some(mqtt::Credentials::new("barn-7", "secret")),
//! };
//! let session = mqtt::Session { client_id: "barn-7".into(), clean: false, ..Default::default() };
//! let (client, event_loop) = broker.connect(&session)?;
//! # Ok(()) }
//! ```
//!
//! It must not know any topic or message. It fails at start, with [`Error`], for a configuration that can
//! never connect; after that the event loop reports, and [`Trouble`] tells a refusal from a broken link.

mod address;
mod backoff;
mod broker;
mod trouble;

pub use address::Address;
pub use backoff::Backoff;
pub use broker::{Broker, Credentials, Session, Tls, install_crypto};
pub use rumqttc;
pub use trouble::Trouble;

/// A connection that can never work as configured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker's address is not one.
    #[error("broker address {text:?}: {reason}; expected mqtt://host:port or mqtts://host:port")]
    Address {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A certificate or key file cannot be used.
    #[error("{file}: {reason}", file = file.display())]
    Certificate {
        /// The file.
        file: std::path::PathBuf,
        /// Why.
        reason: String,
    },
    /// Settings that contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The client refuses the options.
    #[error("mqtt options: {0}")]
    Options(String),
}
