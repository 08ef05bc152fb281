//! The sweep: rows and objects are compared, both ways, and mended. docs/spec/media.md has the table of
//! what is found and what is done.
//!
//! Promises: one replica at a time; every step can be repeated; a store that is away makes nothing
//! missing. It fails with [`Error`], after having mended what it came to.

mod objects_side;
mod rows_side;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use uuid::Uuid;

use super::{Fault, Media};
use crate::Config;
use crate::metrics::Metrics;
use crate::signal::Signal;

/// One sweep at a time, whoever of the replicas runs it.
const LOCK: i64 = 0x6d65_6469;
/// The first sweep waits for the start to be over, and for cameras that the stop cut off to come back.
const FIRST_WITHIN: Duration = Duration::from_secs(60);
/// Connections of a sweep.
const CONNECTIONS: usize = 2;
/// The most faults that are named, and the most others.
pub const MAX_NAMED: usize = 1_000;

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
    /// Rows whose object is another one than they tell of: for a person.
    pub resized: u64,
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
    pub fn counts(&self) -> [(&'static str, u64); 12] {
        [
            ("completed", self.completed),
            ("expired", self.expired),
            ("rejected", self.rejected),
            ("adopted", self.adopted),
            ("removed", self.removed),
            ("foreign", self.foreign),
            ("missing", self.missing),
            ("resized", self.resized),
            ("restored", self.restored),
            ("leftovers", self.leftovers),
            ("aborted", self.aborted),
            ("damaged", self.damaged),
        ]
    }
}

/// What is the matter with a row or an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Matter {
    /// A stored row without an object.
    Missing,
    /// A row whose object is another one than it tells of.
    Resized,
    /// A row that is known as missing, and its object is back.
    Restored,
    /// An object without a row.
    Orphan,
    /// An object without a row that is so young that its row may have just gone, or is about to come.
    Young,
    /// An object of a row that was deleted.
    Leftover,
    /// An object whose key is none of ours.
    Foreign,
}

/// A row and an object that do not agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// What is the matter.
    pub matter: Matter,
    /// The row's image, where there is a row.
    pub media_id: Option<Uuid>,
    /// The key of both.
    pub object_key: String,
    /// Whether this sweep has mended or declared it.
    pub mended: bool,
}

impl Named {
    /// Whether it is a fault that is still there. What is too young to tell, and what is none of ours, is none.
    pub fn is_open(&self) -> bool {
        !self.mended && !matches!(self.matter, Matter::Young | Matter::Foreign)
    }
}

/// A sweep's report, with the names of what it found: at most [`MAX_NAMED`] faults that are still there, and as many others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// How much was found.
    pub report: Report,
    /// Which.
    pub named: Vec<Named>,
}

/// What is named: what is well may not take the place of what is not.
#[derive(Debug, Default)]
struct Names {
    named: Vec<Named>,
    /// How many faults are still there.
    open: usize,
    /// How many others there were.
    closed: usize,
}

impl Names {
    fn add(&mut self, one: Named) {
        let count = if one.is_open() { &mut self.open } else { &mut self.closed };
        *count += 1;
        if *count <= MAX_NAMED {
            self.named.push(one);
        }
    }
}

/// A sweep under way.
struct Sweep<'a> {
    media: &'a Media,
    pool: &'a pg::Pool,
    dry_run: bool,
    now: Timestamp,
    report: Report,
    names: Names,
}

impl Sweep<'_> {
    /// What is older than the grace is not about to be known.
    fn is_old(&self, at: Option<Timestamp>) -> bool {
        let grace = SignedDuration::try_from(self.media.config.orphan_grace);
        let grace = grace.unwrap_or(SignedDuration::MAX);
        at.is_some_and(|at| self.now.duration_since(at) >= grace)
    }

    fn name(&mut self, matter: Matter, media_id: Option<Uuid>, object_key: &str, mends: bool) {
        let (object_key, mended) = (object_key.to_owned(), mends && !self.dry_run);
        self.names.add(Named { matter, media_id, object_key, mended });
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
    Ok(named(config, dry_run).await?.map(|swept| swept.report))
}

/// Sweeps once, and names what was found. `None` when another replica is at it.
pub async fn named(config: &Config, dry_run: bool) -> Result<Option<Swept>, Error> {
    let media = Media::new(config.media.as_ref().ok_or(Error::NoStore)?)?;
    sweep(&media, &config.database, dry_run).await
}

async fn sweep(
    media: &Media,
    database: &pg::Options,
    dry_run: bool,
) -> Result<Option<Swept>, Error> {
    let lock = pg::connect(database).await?;
    // The lock belongs to the connection, so that it goes with a replica that is killed.
    let row = lock.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let pool = pg::Pool::new(&pg::Options { max_connections: CONNECTIONS, ..database.clone() })?;
    let mut sweep = Sweep {
        media,
        pool: &pool,
        dry_run,
        now: Timestamp::now(),
        report: Report::default(),
        names: Names::default(),
    };
    sweep.pending().await?;
    sweep.compare().await?;
    sweep.uploads().await?;
    // At once, so that the next one need not wait for the connection's end; which would do as well.
    let _ = lock.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await;
    Ok(Some(Swept { report: sweep.report, named: sweep.names.named }))
}

/// Sweeps until told to stop.
pub(crate) async fn run(
    media: Media,
    database: pg::Options,
    metrics: Arc<Metrics>,
    mut stop: Signal,
) {
    let first = Instant::now() + media.config.sweep_every.min(FIRST_WITHIN);
    let mut timer = interval_at(first, media.config.sweep_every);
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
            Ok(Some(Swept { report, .. })) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_named_after_any_number_of_others() {
        let mut names = Names::default();
        let one =
            |matter, mended| Named { matter, media_id: None, object_key: String::new(), mended };
        for _ in 0..2 * MAX_NAMED {
            names.add(one(Matter::Young, false));
            names.add(one(Matter::Restored, true));
        }
        names.add(one(Matter::Missing, false));
        let open: Vec<&Named> = names.named.iter().filter(|one| one.is_open()).collect();
        assert_eq!(open, [&one(Matter::Missing, false)]);
        for _ in 0..2 * MAX_NAMED {
            names.add(one(Matter::Missing, false));
        }
        assert_eq!(names.named.len(), 2 * MAX_NAMED, "and their number has a limit");
    }
}
