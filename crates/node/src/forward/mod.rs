//! From the spool to the edge: `docs/spec/node-edge.md`.
//!
//! [`Replay`] decides, purely; the driver carries out: it reads batches from the spool, publishes
//! them over MQTT or posts them over HTTP, and hands acks back. Nothing leaves the spool before the edge's ack.

mod batch;
mod bucket;
mod bulk;
mod driver;
mod http;
mod islands;
mod limits;
mod link;
mod patience;
mod replay;
mod window;

pub use http::{PostError, Poster};
pub use limits::{BatchId, HttpLimits, Lane, Limits, Plan, Route, Step};
pub use replay::{Ignored, Replay};

pub(crate) use batch::reason_of;
pub(crate) use driver::Forwarder;
