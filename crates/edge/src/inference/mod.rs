//! What a model said of an image: results that come over HTTP, and a worker that runs a model command.
//!
//! docs/spec/inference.md is the contract.
//!
//! Promises: a result and its event are one transaction; a result is stored once, however often it is
//! sent or its job is worked on; it is linked to sessions and media of its own tenant only. A model that
//! hangs, floods or crashes harms its own job alone.
//!
//! It must not know how images come into the object store. It fails with the database's errors; what
//! a caller or a model did wrong is said in their terms, without the payload.

mod jobs;

pub use jobs::enqueue;
