//! Keeps the site's disks within bounds: what has expired goes, and what must go before it was delivered is declared.
//!
//! Promises: work that is under way in the outbox is never touched; what has not reached the cloud stays whatever its age,
//! until the disk limit forces a drop, and then every sequence has its tombstone, and every event without one is told of by an
//! alarm, in the transaction that removes it; a kill anywhere leaves nothing undeclared and nothing that the next turn does not
//! finish. One replica works at a time.
//! docs/spec/retention.md is the contract.
//!
//! It must not know how events and images reach the cloud, only what `sync_outbox` and `media_objects` say of them. A connection that breaks ends the turn and the next one
//! begins anew; a job that fails otherwise is said, and the others go on; a failure of the object store holds what needs it.

mod archive;
pub mod bytes;
mod dedupe;
mod disk;
mod forced;
mod forced_kept;
mod forced_media;
mod forced_notice;
mod ledger;
pub mod lifecycle;
mod limit;
mod media;
mod meter;
mod partitions;
mod report;
mod run;
mod untold;
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
pub use report::{Failure, Fate, Job, Line, Report};
pub(crate) use run::run;

/// One turn at a time, whoever of the replicas runs it.
const TURN_LOCK: i64 = 0x7265_7461_696e;
/// However long a batch took, the rest after it is no longer than this.
const LONGEST_REST: Duration = Duration::from_secs(10);
/// A statement may read many pages; one that takes longer has met a server that hangs.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(300);

// Every forwarder that has spoken with a cloud, or tried to, has left a row in the first. The outbox is read only where none did.
const DELIVERS: &str = "SELECT CASE WHEN EXISTS (SELECT FROM sync_state) OR EXISTS (SELECT FROM cloud_copying) THEN true
    ELSE EXISTS (SELECT FROM sync_outbox WHERE status IN ('acked', 'claimed', 'sending')) END";

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
    /// A cloud is configured.
    delivers: bool,
    /// How long an event id stays in the dedupe cache.
    dedupe_ttl: Duration,
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
            dedupe_ttl: config.dedupe_ttl,
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
        let mut turn = self.on(client, 1.0, true).await?;
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
        let (delivers, report) = (self.delivers, Report::new(true));
        let turn = Turn { client, retention: self, delivers, share: 1.0, report };
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
        Ok(if ours { Some(self.on(client, share, false).await?) } else { None })
    }

    /// A turn, or a look, on this connection.
    async fn on(&self, client: Client, share: f64, dry_run: bool) -> Result<Turn<'_>, Error> {
        // A replica without sync, or a cron, need not be told of the cloud: what the forwarders of the site left says it.
        let delivers = self.delivers || client.query_one(DELIVERS, &[]).await?.try_get(0)?;
        Ok(Turn { client, retention: self, delivers, share, report: Report::new(dry_run) })
    }
}

/// A turn under way.
struct Turn<'a> {
    client: Client,
    retention: &'a Retention,
    /// There is a cloud that things can reach.
    delivers: bool,
    /// The share of the time that it works.
    share: f64,
    report: Report,
}

impl Turn<'_> {
    /// Everything that may go by age.
    async fn expired(&mut self) -> Result<(), Error> {
        let config = &self.retention.config;
        let (raw, agg) = (config.telemetry_raw_days, config.telemetry_agg_days);
        let outcome = self.partitions(Job::Raw, "telemetry_raw", raw).await;
        self.settle(Job::Raw, outcome)?;
        let outcome = self.default_rows(raw).await;
        self.settle(Job::Raw, outcome)?;
        let outcome = self.partitions(Job::Aggregates, "telemetry_agg", agg).await;
        self.settle(Job::Aggregates, outcome)?;
        let outcome = self.default_aggregates(agg).await;
        self.settle(Job::Aggregates, outcome)?;
        let outcome = self.dead_letters().await;
        self.settle(Job::DeadLetters, outcome)?;
        let outcome = self.acked().await;
        self.settle(Job::Acked, outcome)?;
        let outcome = self.media().await;
        self.settle(Job::Media, outcome)?;
        let outcome = self.dedupe().await;
        self.settle(Job::Dedupe, outcome)
    }

    /// A job that failed is said, and the next one has its turn: above all the disk limit must not wait for it. A connection
    /// that is gone took the lock with it, and ends the turn.
    fn settle(&mut self, job: Job, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Err(error) if !matches!(error, Error::Ended(_)) && !self.client.is_closed() => {
                tracing::error!(job = job.as_str(), %error, "a job of retention failed; the others go on");
                self.report.failures.push(Failure { job, why: error.to_string() });
                Ok(())
            }
            outcome => outcome,
        }
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
