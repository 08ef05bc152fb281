//! The client against two real stores, and the embedded one against crashes and a full disk.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test whose ground cannot be laid has failed"
)]

mod both;
mod client;
mod crash;
mod full;
mod list;
mod multipart;
mod presign;
