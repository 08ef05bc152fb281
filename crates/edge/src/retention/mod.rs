//! Keeps the site's disks within bounds: what has expired goes, and what must go before it was delivered is declared.
//!
//! Promises: work that is under way in the outbox is never touched; what has not reached the cloud stays whatever its age,
//! until the disk limit forces a drop, and then every sequence has its tombstone, and every event without one is told of by an
//! alarm, in the transaction that removes it; a kill anywhere leaves nothing undeclared and nothing that the next turn does not
//! finish. One replica works at a time.
//! docs/spec/retention.md is the contract.
//!
//! It must not know how events and images reach the cloud, only what `sync_outbox` and `media_objects` say of them. A failure of the database ends the turn and the next one
//! begins anew; a failure of the object store holds what needs it, and the rest goes on.

mod archive;
pub mod bytes;
mod disk;
mod forced;
mod forced_media;
mod forced_notice;
mod ledger;
pub mod lifecycle;
mod media;
mod meter;
mod partitions;
mod report;
mod run;
mod walk;

use std::sync::Arc;
use std::time::{Duration, Instant};

use objects::Bucket;
use tokio_postgres::Client;

use crate::Config;
use crate::config;

pub use disk::Disk;
pub use forced::Class;
pub(crate) use meter::Meter;
pub use report::{Fate, Job, Line, Report};
pub(crate) use run::run;

/// One turn at a time, whoever of the replicas runs it.
const TURN_LOCK: i64 = 0x7265_7461_696e;
/// However long a batch took, the rest after it is no longer than this.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// A statement may read many pages; one that takes longer has met a server that hangs.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(300);

/// Why a turn ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The object store.
    #[error("the object store: {0}")]
    Store(#[from] objects::Error),
    /// An archive does not read back as it was written.
    #[error("the archive {key} does not read back as it was written")]
    Damaged {
        /// The object.
        key: String,
    },
    /// A value that ingress did not write.
    #[error("the ledger's row of {stream} is damaged: {problem}")]
    Ledger {
        /// The stream.
        stream: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A notice of what was dropped that this binary did not write.
    #[error("a notice of dropped events of tenant {0} cannot be read")]
    Notice(uuid::Uuid),
    /// The file system of `retention.disk_path` cannot be asked.
    #[error("edge.retention.disk_path: {0}")]
    Disk(std::io::Error),
    /// Whoever watches the steps ended the turn.
    #[error("ended after {0}")]
    Ended(&'static str),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}

/// Called with the name of every step that was made; `false` ends the turn there, as a kill would.
pub type Watch = Arc<dyn Fn(&'static str) -> bool + Send + Sync>;

/// Retention of one site.
#[derive(Clone)]
pub struct Retention {
    database: pg::Options,
    config: config::Retention,
    /// There is a cloud that things can reach.
    delivers: bool,
    store: Option<Bucket>,
    watch: Option<Watch>,
}

impl std::fmt::Debug for Retention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Retention {
    /// Retention as configured. Without a store, dead letters and media are held.
    pub fn new(config: &Config, store: Option<Bucket>) -> Retention {
        Retention {
            database: pg::Options {
                application_name: "holdfast-retention".to_owned(),
                statement_timeout: Some(STATEMENT_TIMEOUT),
                ..config.database.clone()
            },
            config: config.retention.clone(),
            delivers: config.sync.is_some(),
            store,
            watch: None,
        }
    }

    /// With someone who is told of every step and can end the turn after it.
    pub fn watched(self, watch: Watch) -> Retention {
        Retention { watch: Some(watch), ..self }
    }

    /// What a turn would do, without doing it.
    pub async fn look(&self) -> Result<Report, Error> {
        let client = pg::connect(&self.database).await?;
        let mut turn = Turn { client, retention: self, share: 1.0, report: Report::new(true) };
        turn.expired().await?;
        let disk = turn.measure(false).await?;
        turn.would_drop(&disk).await?;
        turn.report.disk = Some(disk);
        Ok(turn.report)
    }

    /// One turn: removes what has expired, then looks at the disk. `None` when another replica is at it.
    pub async fn turn(&self) -> Result<Option<Report>, Error> {
        let Some(mut turn) = self.begin(self.config.share).await? else {
            return Ok(None);
        };
        turn.expired().await?;
        let disk = turn.measure(true).await?;
        turn.force(disk).await?;
        Ok(Some(turn.report))
    }

    /// Whether there is too little disk. Takes no lock and changes nothing.
    pub async fn is_over(&self) -> Result<bool, Error> {
        let client = pg::connect(&self.database).await?;
        let turn = Turn { client, retention: self, share: 1.0, report: Report::new(true) };
        Ok(turn.measure(false).await?.is_over())
    }

    /// Looks at the disk alone, and does a whole turn without rests if there is too little of it. `None` when another replica is
    /// at it.
    pub async fn watch_disk(&self) -> Result<Option<Report>, Error> {
        let Some(mut turn) = self.begin(1.0).await? else {
            return Ok(None);
        };
        let disk = turn.measure(true).await?;
        if !disk.is_over() {
            turn.report.disk = Some(disk);
            return Ok(Some(turn.report));
        }
        turn.expired().await?;
        let disk = turn.measure(true).await?;
        turn.force(disk).await?;
        Ok(Some(turn.report))
    }

    async fn begin(&self, share: f64) -> Result<Option<Turn<'_>>, Error> {
        let client = pg::connect(&self.database).await?;
        // The lock belongs to the connection that does the work: whoever loses it has lost the work too.
        let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&TURN_LOCK]).await?;
        let ours: bool = row.try_get(0)?;
        Ok(ours.then(|| Turn { client, retention: self, share, report: Report::new(false) }))
    }
}

/// A turn under way.
struct Turn<'a> {
    client: Client,
    retention: &'a Retention,
    /// The share of the time that it works.
    share: f64,
    report: Report,
}

impl Turn<'_> {
    /// Everything that may go by age.
    async fn expired(&mut self) -> Result<(), Error> {
        let config = &self.retention.config;
        let (raw, agg) = (config.telemetry_raw_days, config.telemetry_agg_days);
        self.partitions(Job::Raw, "telemetry_raw", raw).await?;
        self.default_rows(raw).await?;
        self.partitions(Job::Aggregates, "telemetry_agg", agg).await?;
        self.dead_letters().await?;
        self.acked().await?;
        self.media().await
    }

    fn config(&self) -> &config::Retention {
        &self.retention.config
    }

    /// Tells the watcher of a step.
    fn step(&self, name: &'static str) -> Result<(), Error> {
        match &self.retention.watch {
            Some(watch) if !watch(name) => Err(Error::Ended(name)),
            _ => Ok(()),
        }
    }

    /// Rests after a batch that began at `since`.
    async fn rest(&self, since: Instant) {
        let share = self.share.clamp(0.01, 1.0);
        let rest = since.elapsed().mul_f64((1.0 - share) / share);
        tokio::time::sleep(rest.min(LONGEST_REST)).await;
    }
}

/// A count from the database.
fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
