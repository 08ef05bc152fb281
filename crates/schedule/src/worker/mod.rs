//! The worker: finalized sessions, claimed on the lease engine, become versions, events and notifications.
//!
//! Promises: a session has its effect once, whatever dies and when; two workers on one user and day go one after the other; a session that
//! kills its workers is failed after the limit; what a session cannot be read for stands in its `error`. No port is opened.
//! It must not know how images are read: that is an [`Extract`].

mod extract;
mod finalize;
mod heartbeat;
mod iteration;
mod reader;
mod record;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use lease::backoff::Backoff;
use lease::{Batch, Counts, Down, Handler, Options, Outcome, Verdict};
use uuid::Uuid;

use crate::canonical::{self, Day};
use crate::observation::Observation;
pub use extract::{Extract, ExtractError, Fixture, Session};
pub use finalize::finalize;
pub use heartbeat::{NotAlive, alive};
use iteration::{Iterations, Tally};
pub use reader::{Photographs, Reader, Stored};
pub use record::{RecordError, Recorded, record};
pub use table::{Claimed, table};

/// Connections beside one for each slot; the engine has its own.
const MORE_CONNECTIONS: usize = 2;
/// A fault of ours is mended by a person, so there is no hurry to look again.
const OUR_PAUSE: Duration = Duration::from_secs(5);
/// How often a transaction that another was in the way of is run again at once.
const CONFLICTS: usize = 3;
/// The most images of a session.
pub const MAX_IMAGES: usize = 50;

// A session that reads another again has no images of its own.
const IMAGES: &str = "SELECT r2_key FROM schedule_ingest.capture_image WHERE session_id =
    coalesce((SELECT replay_of FROM schedule_ingest.capture_session WHERE id = $1), $1)
ORDER BY sequence LIMIT $2";

/// How a worker works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name, as `locked_by` shows it; each process has its own.
    pub name: String,
    /// `WORKER_POLL_SECONDS`: how often it looks for sessions that are complete.
    pub poll: Duration,
    /// How long nothing must have come to a session for it to be complete.
    pub idle_timeout: Duration,
    /// How long a claim holds without a heartbeat.
    pub lease: Duration,
    /// How often sessions of lost leases are looked for.
    pub sweep: Duration,
    /// How many failures fail a session.
    pub max_attempts: u32,
    /// How long a session waits after a failure.
    pub backoff: Backoff,
    /// How many sessions are processed at once.
    pub slots: usize,
    /// How long a stop waits for sessions under way before it gives them back.
    pub stop_grace: Duration,
    /// The least confidence of an observation that is believed.
    pub min_confidence: f64,
    /// The file that is touched after each look for work, for [`alive`].
    pub heartbeat: Option<PathBuf>,
}

impl Settings {
    /// The defaults, for a worker of this name.
    pub fn new(name: impl Into<String>) -> Settings {
        Settings {
            name: name.into(),
            poll: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            lease: Duration::from_secs(120),
            sweep: Duration::from_secs(10),
            max_attempts: 5,
            backoff: Backoff::site(),
            slots: 2,
            stop_grace: Duration::from_secs(10),
            min_confidence: 0.6,
            heartbeat: None,
        }
    }
}

/// A running worker. Dropping it is like a crash: what it holds is taken over when its lease ends.
#[derive(Debug)]
pub struct Worker {
    worker: lease::Worker,
    iterations: Iterations,
    tally: Tally,
}

impl Worker {
    /// Starts it. The database need not be there yet, but its schema is made by [`crate::migration::migrate`], not here.
    pub fn start<E: Extract>(
        database: &pg::Options,
        settings: &Settings,
        extract: E,
    ) -> Result<Worker, lease::Error> {
        let database = pg::Options {
            max_connections: settings.slots + MORE_CONNECTIONS,
            application_name: "holdfast-schedule-worker".to_owned(),
            ..database.clone()
        };
        let pool = pg::Pool::new(&database)?;
        let options = Options {
            // One at a time: sessions take long, and a crash should cost one of them an attempt.
            batch: 1,
            slots: settings.slots,
            lease: settings.lease,
            max_attempts: settings.max_attempts,
            backoff: settings.backoff.clone(),
            poll: settings.poll,
            sweep: settings.sweep,
            stop_grace: settings.stop_grace,
            ..Options::new(settings.name.clone())
        };
        let tally = Tally::default();
        let process = Process {
            pool: pool.clone(),
            extract,
            min_confidence: settings.min_confidence,
            tally: tally.clone(),
        };
        let worker = lease::Worker::start(&database, table::queue(), process, options)?;
        let iterations = Iterations::start(pool, settings, tally.clone());
        Ok(Worker { worker, iterations, tally })
    }

    /// What it has done so far, in sessions.
    pub fn counts(&self) -> Counts {
        self.worker.counts()
    }

    /// Stops: nothing more is claimed; what is under way is finished or given back.
    pub async fn stop(self) {
        drop(self.iterations);
        self.worker.stop().await;
        self.tally.end();
    }
}

struct Process<E> {
    pool: pg::Pool,
    extract: E,
    min_confidence: f64,
    tally: Tally,
}

/// Why a session has no effect yet.
enum Stopped {
    /// A verdict on it.
    Verdict(Outcome),
    /// Nothing about it.
    Down(Down),
}

impl<E: Extract> Handler<Claimed> for Process<E> {
    async fn handle(&self, batch: Batch<Claimed>) -> Verdict {
        let mut outcomes = Vec::with_capacity(batch.items.len());
        for item in &batch.items {
            match self.process(batch.token, &item.row).await {
                Ok(outcome) => outcomes.push(outcome),
                Err(Stopped::Verdict(outcome)) => {
                    self.note(item.row.session, &outcome);
                    outcomes.push(outcome);
                }
                Err(Stopped::Down(down)) => {
                    self.tally.put_back();
                    return Verdict { outcomes, down: Some(down) };
                }
            }
        }
        Verdict::each(outcomes)
    }
}

impl<E: Extract> Process<E> {
    /// Says what is wrong with a session. The words are those of its `error`, which never repeat what a capture shows.
    fn note(&self, session: Uuid, verdict: &Outcome) {
        match verdict {
            Outcome::Bury { code, message, .. } => {
                self.tally.failed();
                tracing::warn!(%session, code, why = message, "a capture session failed");
            }
            Outcome::Retry { code, message } => {
                self.tally.put_back();
                tracing::warn!(%session, code, why = message, "a capture session is tried again");
            }
            Outcome::Done | Outcome::NotTried => {}
        }
    }

    async fn process(&self, token: Uuid, claimed: &Claimed) -> Result<Outcome, Stopped> {
        let session = claimed.session;
        let day = self.see(claimed).await?;
        let recorded = self.record(token, claimed, &day).await?;
        self.tally.recorded(&recorded);
        tracing::info!(%session, ?recorded, "a capture session was processed");
        // A session that another has taken over is theirs to end; the engine's own fence counts it.
        Ok(if recorded == Recorded::Fenced { Outcome::NotTried } else { Outcome::Done })
    }

    async fn see(&self, claimed: &Claimed) -> Result<Day, Stopped> {
        let images = async { images(&*self.pool.get().await?, claimed.session).await };
        let images = images.await.map_err(about_database)?;
        if images.len() > MAX_IMAGES {
            let message = format!("the capture has more than {MAX_IMAGES} images");
            return Err(refused("too_many_images", message));
        }
        let session = Session { id: claimed.session, user_id: claimed.user_id, images };
        let seen = self.extract.extract(&session).await.map_err(about_extraction)?;
        believe(&seen, self.min_confidence)
            .map_err(|message| refused("low_confidence", message))?;
        canonical::canonicalize(&seen)
            .map_err(|error| refused("unreadable_schedule", error.to_string()))
    }

    async fn record(&self, token: Uuid, claimed: &Claimed, day: &Day) -> Result<Recorded, Stopped> {
        let mut tries = 0;
        loop {
            let recorded = async {
                let mut client = self.pool.get().await?;
                record(&mut client, claimed, token, day).await
            };
            match recorded.await {
                Ok(recorded) => return Ok(recorded),
                Err(RecordError::Overtaken) if tries < CONFLICTS => tries += 1,
                Err(RecordError::Postgres(error))
                    if error.about() == pg::About::Conflict && tries < CONFLICTS =>
                {
                    tries += 1;
                }
                Err(error @ RecordError::Overtaken) => {
                    return Err(Stopped::Down(Down { why: error.to_string(), retry_after: None }));
                }
                Err(RecordError::Postgres(error)) => return Err(about_database(error)),
                Err(error @ RecordError::Snapshot) => {
                    return Err(refused("unreadable_snapshot", error.to_string()));
                }
            }
        }
    }
}

/// Refuses an observation that is not sure enough, in words for the person who made the capture.
pub(crate) fn believe(seen: &Observation, min_confidence: f64) -> Result<(), String> {
    match seen.confidence {
        Some(confidence) if confidence.is_nan() || confidence < min_confidence => Err(format!(
            "the capture could not be read well enough ({:.0} % sure, {:.0} % needed): \
             take the picture again, straight, close and in good light",
            confidence * 100.0,
            min_confidence * 100.0
        )),
        _ => Ok(()),
    }
}

/// The keys of a session's images, in order; one more than allowed where there are too many.
pub(crate) async fn images(
    client: &tokio_postgres::Client,
    session: Uuid,
) -> Result<Vec<String>, pg::Error> {
    let most = i64::try_from(MAX_IMAGES + 1).unwrap_or(i64::MAX);
    let rows = client.query(IMAGES, &[&session, &most]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

fn refused(reason: &str, message: String) -> Stopped {
    let code = reason.to_ascii_uppercase();
    Stopped::Verdict(Outcome::Bury { reason: reason.to_owned(), code, message })
}

fn about_extraction(error: ExtractError) -> Stopped {
    match error {
        ExtractError::Unreadable(message) => refused("unreadable_capture", message),
        ExtractError::Failed(message) => {
            Stopped::Verdict(Outcome::Retry { code: "EXTRACTION_FAILED".to_owned(), message })
        }
        ExtractError::Unreachable(why) => Stopped::Down(Down { why, retry_after: None }),
    }
}

fn about_database(error: pg::Error) -> Stopped {
    let why = error.to_string();
    match error.about() {
        pg::About::Destination | pg::About::Conflict => {
            Stopped::Down(Down { why, retry_after: None })
        }
        pg::About::Us => Stopped::Down(Down { why, retry_after: Some(OUR_PAUSE) }),
        pg::About::Data => refused("refused_by_the_database", why),
    }
}
