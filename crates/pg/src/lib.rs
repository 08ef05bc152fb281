//! Postgres for every role: how to reach it, how its tables come to be, and what its errors mean.
//!
//! Purpose: [`Pool`], [`connect`] and [`listen()`] turn [`Options`] into connections that notice a dead link;
//! [`migrate`] brings a schema up to date while any number of replicas start at once, and
//! [`schema`] says how far it is;
//! [`copy`] sends many rows at once;
//! [`partitions`] keeps a month's partition ready before its rows arrive; [`about`] says what an
//! error is about, and that alone decides whether a caller retries, sets a record aside, or stops.
//!
//! Promises: the number of connections is bounded, and so is every wait for one. A migration runs
//! once, whoever starts it. A row is never lost or seen twice while its partition is made.
//!
//! It must not know any table of any role: the names come from the caller.
//!
//! It fails with [`Error`], which carries the server's own words and SQLSTATE, and never the
//! password or the values of a row.

pub mod copy;
mod error;
mod listen;
mod migration;
pub mod partitions;
mod pool;
pub mod schema;
mod turn;
pub mod whole;

pub use deadpool_postgres::{Client, GenericClient, Transaction};
pub use error::{About, Error, about};
pub use listen::listen;
pub use migration::migrate;
pub use pool::{Options, Pool, connect};
pub use schema::Schema;
pub use turn::Turn;
