//! How a role connects to the broker: address, TLS, credentials, reconnect backoff.
