//! Field node: sampler socket, spool, forwarder over MQTT and HTTP. No Postgres.
