//! Objects in an S3 store: a client for any store that speaks S3, and behind the feature `server` an
//! endpoint of our own over files that survive a power cut.
//!
//! Promises: [`Bucket::put`] never overwrites. What is read is bounded by what the caller asks for. A
//! request has a time limit and is tried again a few times when the store, not the object, is the
//! reason. Every [`Error`] says what it is about. Keys and signed addresses are never in an error.
//!
//! It must not know events or tables: a key is text here, checked by [`key::check`] only so far that it
//! means the same object to every store.

mod address;
mod bucket;
mod error;
pub mod key;
mod list;
mod multipart;
mod presign;
mod request;
#[cfg(feature = "server")]
pub mod server;
mod transfer;

pub use address::{Address, Style};
pub use bucket::{Bucket, Head};
pub use error::{About, Error};
pub use list::{Listed, Page};
pub use multipart::{MAX_PARTS, MIN_PART_BYTES, OpenUpload};
pub use presign::{Signed, Upload};
