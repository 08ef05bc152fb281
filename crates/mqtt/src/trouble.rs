//! What a broken connection means to the one who must log it and decide.

use rumqttc::{ConnectReturnCode, ConnectionError};
use std::fmt;

/// Why the event loop has no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The broker answered and said no. Trying again will not help until someone changes something, so
    /// log it loudly and back off.
    Refused(&'static str),
    /// The link is down. Trying again is the cure.
    Link(String),
    /// The client was told to stop.
    Done,
}

impl From<&ConnectionError> for Trouble {
    fn from(error: &ConnectionError) -> Trouble {
        match error {
            ConnectionError::RequestsDone => Trouble::Done,
            ConnectionError::ConnectionRefused(code) => match code {
                ConnectReturnCode::ServiceUnavailable => {
                    Trouble::Link("the broker is not available".to_owned())
                }
                ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized => {
                    Trouble::Refused("the broker refuses the user name or password")
                }
                ConnectReturnCode::BadClientId => {
                    Trouble::Refused("the broker refuses the client id")
                }
                _ => Trouble::Refused("the broker refuses the protocol version"),
            },
            other => Trouble::Link(other.to_string()),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused(reason) => f.write_str(reason),
            Trouble::Link(reason) => f.write_str(reason),
            Trouble::Done => f.write_str("the client was stopped"),
        }
    }
}
