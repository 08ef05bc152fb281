//! What a model said of an image: results that come over HTTP, and a worker that runs a model command.
//!
//! docs/spec/inference.md is the contract.
//!
//! Promises: a result and its event are one transaction; a result is stored once, however often it is
//! sent or its job is worked on; it is linked to sessions and media of its own tenant only. A model that
//! hangs, floods or crashes harms its own job alone.
//!
//! It must not know how images come into the object store. It fails with `Fault`; what a caller or a
//! model did wrong is said in their terms, without the payload.

mod ask;
mod http;
mod jobs;
mod look;
mod model;
mod results;
mod room;
mod worker;

pub(crate) use http::SERVICE;
pub use jobs::enqueue;
pub(crate) use jobs::forget_unasked;
pub(crate) use look::ResultRow;
pub use worker::{Error, Evaluator};

/// Why something could not be done with a result or a job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// There is no such result or job, or not for these tenants.
    #[error("there is no such result or job")]
    Missing,
    /// The session that was named is none of this tenant.
    #[error("this tenant has no such session")]
    UnknownSession,
    /// The media that was named is none of this tenant, or is not stored.
    #[error("this tenant has no such stored media")]
    UnknownMedia,
    /// A field contradicts the session or the media that was named.
    #[error("{0} is not that of the session or media that is named")]
    Contradiction(&'static str),
    /// Neither a field nor a session or media says where it was.
    #[error("{0} is missing: it is needed when neither a session nor media is named")]
    NoPlace(&'static str),
    /// The id was used for another result.
    #[error("this inference_result_id was used for another result")]
    IdReused,
    /// The image has a result, and another was wanted only without one.
    #[error("the image has a result already")]
    Answered,
    /// The job is in a state that does not allow it.
    #[error("the job is {0}, and only a dead one is put back to work")]
    WrongState(String),
    /// A row that this code did not write: it makes no event.
    #[error("the row makes no event: {0}")]
    Damaged(String),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Database(error.into())
    }
}
