//! Names that other services rely on: topics, exchanges, queues, keys.
//!
//! Every function takes types that have passed their grammar, so that a name cannot be bent by what
//! came from outside.

pub mod amqp;
pub mod kafka;
pub mod mqtt;
pub mod s3;

pub use mqtt::Topic;
