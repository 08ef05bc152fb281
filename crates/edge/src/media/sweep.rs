//! The sweep: rows and objects are compared, both ways, and mended. docs/spec/media.md has the table of
//! what is found and what is done.
//!
//! Promises: one replica at a time; every step can be repeated; a store that is away makes nothing
//! missing. It fails with [`Error`], after having mended what it came to.

mod objects_side;
mod rows_side;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use super::{Fault, Media};
use crate::Config;
use crate::metrics::Metrics;
use crate::signal::Signal;

/// One sweep at a time, whoever of the replicas runs it.
const LOCK: i64 = 0x6d65_6469;
/// Connections of a sweep.
const CONNECTIONS: usize = 2;

/// Why a sweep could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no object store.
    #[error("there is no object store: set edge.media.s3_endpoint and its keys")]
    NoStore,
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The object store.
    #[error(transparent)]
    Store(#[from] objects::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}

/// What a sweep found, and mended unless it was only to look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Objects that were looked at.
    pub objects: u64,
    /// Rows that were looked at.
    pub rows: u64,
    /// Pending rows whose object was there.
    pub completed: u64,
    /// Pending rows that still have time.
    pub waiting: u64,
    /// Pending rows that had expired without an object.
    pub expired: u64,
    /// Pending rows that had expired with another object than was announced.
    pub rejected: u64,
    /// Objects without a row that got one.
    pub adopted: u64,
    /// Objects without a row that were removed.
    pub removed: u64,
    /// Objects without a row that are too young, or only counted.
    pub orphans: u64,
    /// Objects that are none of ours.
    pub foreign: u64,
    /// Stored rows whose object is gone.
    pub missing: u64,
    /// Missing rows whose object is back.
    pub restored: u64,
    /// Objects of deleted rows.
    pub leftovers: u64,
    /// Uploads in parts that nobody knew.
    pub aborted: u64,
    /// Rows that this code did not write.
    pub damaged: u64,
}

impl Report {
    /// What was found, by name; without what was only looked at.
    pub fn counts(&self) -> [(&'static str, u64); 11] {
        [
            ("completed", self.completed),
            ("expired", self.expired),
            ("rejected", self.rejected),
            ("adopted", self.adopted),
            ("removed", self.removed),
            ("foreign", self.foreign),
            ("missing", self.missing),
            ("restored", self.restored),
            ("leftovers", self.leftovers),
            ("aborted", self.aborted),
            ("damaged", self.damaged),
        ]
    }
}

/// A sweep under way.
struct Sweep<'a> {
    media: &'a Media,
    pool: &'a pg::Pool,
    dry_run: bool,
    now: Timestamp,
    report: Report,
}

impl Sweep<'_> {
    /// What is older than the grace is not about to be known.
    fn is_old(&self, at: Option<Timestamp>) -> bool {
        let grace = SignedDuration::try_from(self.media.config.orphan_grace);
        let grace = grace.unwrap_or(SignedDuration::MAX);
        at.is_some_and(|at| self.now.duration_since(at) >= grace)
    }

    /// A row that makes no event is for a person; a store or database that is away ends the sweep.
    fn pass(&mut self, fault: Fault) -> Result<(), Error> {
        match fault {
            Fault::Database(error) => Err(error.into()),
            Fault::Store(error) => Err(error.into()),
            other => {
                tracing::error!(fault = %other, "the sweep cannot mend a row");
                self.report.damaged += 1;
                Ok(())
            }
        }
    }
}

/// Sweeps once. `None` when another replica is at it.
pub async fn once(config: &Config, dry_run: bool) -> Result<Option<Report>, Error> {
    let media = Media::new(config.media.as_ref().ok_or(Error::NoStore)?)?;
    sweep(&media, &config.database, dry_run).await
}

async fn sweep(
    media: &Media,
    database: &pg::Options,
    dry_run: bool,
) -> Result<Option<Report>, Error> {
    let lock = pg::connect(database).await?;
    // The lock belongs to the connection, so that it goes with a replica that is killed.
    let row = lock.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let pool = pg::Pool::new(&pg::Options { max_connections: CONNECTIONS, ..database.clone() })?;
    let report = Report::default();
    let mut sweep = Sweep { media, pool: &pool, dry_run, now: Timestamp::now(), report };
    sweep.pending().await?;
    sweep.compare().await?;
    sweep.uploads().await?;
    // At once, so that the next one need not wait for the connection's end; which would do as well.
    let _ = lock.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await;
    Ok(Some(sweep.report))
}

/// Sweeps until told to stop.
pub(crate) async fn run(
    media: Media,
    database: pg::Options,
    metrics: Arc<Metrics>,
    mut stop: Signal,
) {
    let mut timer = interval(media.config.sweep_every);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.heard() => return,
            _ = timer.tick() => {}
        }
        let done = tokio::select! {
            // Whatever it was at can be repeated.
            () = stop.heard() => return,
            done = sweep(&media, &database, false) => done,
        };
        match done {
            Ok(Some(report)) => {
                metrics.media.swept(&report);
                if report.counts().iter().any(|(_, count)| *count > 0) {
                    tracing::info!(?report, "media swept");
                }
            }
            Ok(None) => {}
            Err(error) => {
                metrics.media.sweep_failed();
                tracing::warn!(%error, "the sweep of media comes again");
            }
        }
    }
}
