//! The reference worker: claims jobs, fetches images, runs the model command, stores what it says.
//!
//! Promise: a job ends with its result stored, or in the dead letters with a reason; in between it may
//! be worked on any number of times, by any number of workers, through kills at any step.

use std::path::Path;
use std::time::Duration;

use event::id::NodeId;
use jiff::Timestamp;
use lease::backoff::Backoff;
use lease::{Batch, Counts, Handler, Options, Outcome, Verdict, Worker};
use objects::{About, Bucket};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::Fault;
use super::jobs::{self, Job};
use super::model::{self, Failure, Prediction};
use super::results::{self, NewResult};
use super::room::{self, Room};
use crate::config::Inference;
use crate::http::fields::to_microsecond;
use crate::signal::Signal;

/// How long a claim holds a job that says nothing; the heartbeat renews it while the model works.
const LEASE: Duration = Duration::from_secs(60);
/// How long a command under way may go on when the edge stops.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Added to every wait after a failure, so that retries spread.
const JITTER: Duration = Duration::from_secs(1);
/// The most connections beside one for each handler; the engine has its own.
const MORE_CONNECTIONS: usize = 1;

/// The largest image; each slot holds one in memory while it fetches it.
const MAX_IMAGE_BYTES: u64 = 64 << 20;

/// The worker can never work as configured.
#[derive(Debug, thiserror::Error)]
#[error("edge.{key}: {problem}")]
pub struct Error {
    key: &'static str,
    problem: String,
}

impl Error {
    fn new(key: &'static str, problem: impl ToString) -> Error {
        Error { key, problem: problem.to_string() }
    }
}

/// A running worker. Dropping it is like a crash: what it holds is taken over when its lease ends.
#[derive(Debug)]
pub struct Evaluator {
    worker: Worker,
}

impl Evaluator {
    /// Starts a worker. Neither the database nor the object store need be there yet, but there must be
    /// a bucket to take images from.
    pub fn start(
        database: &pg::Options,
        config: &Inference,
        bucket: Option<Bucket>,
        replica: &NodeId,
    ) -> Result<Evaluator, Error> {
        let bucket = bucket.ok_or_else(|| {
            let problem = "there are no images without an object store: set edge.media.s3_endpoint";
            Error::new("inference.command", problem)
        })?;
        let database = pg::Options {
            max_connections: config.workers + MORE_CONNECTIONS,
            application_name: "holdfast-inference".to_owned(),
            ..database.clone()
        };
        let pool = pg::Pool::new(&database).map_err(|error| Error::new("database.url", error))?;
        let backoff = Backoff::Exponential {
            base: config.backoff_base,
            cap: config.backoff_cap,
            jitter: JITTER.min(config.backoff_cap),
        };
        let options = Options {
            batch: 1,
            slots: config.workers,
            lease: LEASE,
            max_attempts: config.max_attempts,
            backoff: backoff.clone(),
            breaker: backoff,
            stop_grace: STOP_GRACE,
            ..Options::new(format!("{replica}/inference"))
        };
        room::clear();
        let model = Model { pool, config: config.clone(), bucket };
        let worker = Worker::start(&database, jobs::queue(), model, options)
            .map_err(|error| Error::new("inference.workers", error))?;
        tracing::info!(workers = config.workers, "inference worker started");
        Ok(Evaluator { worker })
    }

    /// What it has done so far, in jobs.
    pub fn counts(&self) -> Counts {
        self.worker.counts()
    }

    /// Stops: what is under way is finished or given back.
    pub async fn stop(self) {
        self.worker.stop().await;
    }

    /// Runs until told to stop.
    pub(crate) async fn run(self, mut stop: Signal) {
        stop.heard().await;
        self.stop().await;
    }
}

/// Evaluates images.
struct Model {
    pool: pg::Pool,
    config: Inference,
    bucket: Bucket,
}

/// What is known of an image, and where it is.
struct Image {
    key: String,
    size: u64,
    sha256: Option<Vec<u8>>,
    /// What the command is told, but for the path.
    line: Value,
}

/// What became of a job: settled on its own account, or no image could be worked on.
enum End {
    Settled(Outcome),
    Down(String),
}

impl From<Fault> for End {
    /// The database says what it is about; a row that it refuses will be refused again.
    fn from(fault: Fault) -> End {
        match fault {
            Fault::Database(error) if error.about() != pg::About::Data => {
                End::Down(error.to_string())
            }
            Fault::UnknownMedia => gone("its row is not there any more"),
            fault => bury("refused", "RESULT_REFUSED", fault.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for End {
    fn from(error: tokio_postgres::Error) -> End {
        End::from(Fault::from(error))
    }
}

fn retry(code: &str, message: impl Into<String>) -> End {
    End::Settled(Outcome::Retry { code: code.to_owned(), message: message.into() })
}

fn bury(reason: &str, code: &str, message: impl Into<String>) -> End {
    let (reason, code) = (reason.to_owned(), code.to_owned());
    End::Settled(Outcome::Bury { reason, code, message: message.into() })
}

fn gone(message: &str) -> End {
    bury("media_gone", "MEDIA_GONE", message)
}

impl Handler<Job> for Model {
    async fn handle(&self, batch: Batch<Job>) -> Verdict {
        let mut outcomes = Vec::new();
        for item in &batch.items {
            let end = match self.work(item.row, batch.token).await {
                Ok(()) => End::Settled(Outcome::Done),
                Err(end) => end,
            };
            match end {
                End::Settled(outcome) => outcomes.push(outcome),
                End::Down(why) => {
                    let down = Verdict::down(why, None).down;
                    return Verdict { outcomes, down };
                }
            }
        }
        Verdict::each(outcomes)
    }
}

impl Model {
    async fn work(&self, job: Job, token: Uuid) -> Result<(), End> {
        // Whoever stored it was killed before the job could be settled.
        if results::is_there(&self.pool, job.id).await? {
            return Ok(());
        }
        let mut image = self.look_up(job).await?;
        let room = Room::new()
            .map_err(|error| End::Down(format!("no directory for the image: {error}")))?;
        let path = room.path().join(file_name(&image.key));
        self.fetch(&image, &path).await?;
        image.line["image"] = json!(path);
        let config = &self.config;
        let ran = model::run(&config.command, &room.path(), &image.line, config.timeout).await;
        let prediction = match ran.prediction {
            Ok(prediction) => prediction,
            Err(failure) => {
                if !ran.stderr.is_empty() {
                    let noted = jobs::note_stderr(&self.pool, job.id, token, &ran.stderr).await;
                    noted.map_err(Fault::Database)?;
                }
                return Err(judged(&failure));
            }
        };
        self.store(job, prediction).await
    }

    /// The image's row, and its session's.
    async fn look_up(&self, job: Job) -> Result<Image, End> {
        let client = self.pool.get().await.map_err(Fault::Database)?;
        let query =
            "SELECT m.object_key, m.size_bytes, m.sha256, m.farm_id, m.barn_id, m.device_id,
                m.mime_type, m.captured_at, s.id, s.batch_id, s.start_at, s.initial_weight_kg
            FROM media_objects m
            LEFT JOIN weight_sessions s ON s.id = m.session_id AND s.tenant_id = m.tenant_id
            WHERE m.id = $1 AND m.tenant_id = $2 AND m.status = 'stored'";
        let row = client.query_opt(query, &[&job.media.uuid(), &job.tenant.uuid()]).await?;
        let row = row.ok_or_else(|| gone("its row is not there any more"))?;
        let size: i64 = row.try_get(1)?;
        let session = match row.try_get::<_, Option<Uuid>>(8)? {
            None => Value::Null,
            Some(id) => json!({
                "session_id": id,
                "batch_id": row.try_get::<_, Option<Uuid>>(9)?,
                "start_at": row.try_get::<_, Timestamp>(10)?,
                "initial_weight_kg": row.try_get::<_, f64>(11)?,
            }),
        };
        let media = json!({
            "media_id": job.media,
            "tenant_id": job.tenant,
            "farm_id": row.try_get::<_, Uuid>(3)?,
            "barn_id": row.try_get::<_, Uuid>(4)?,
            "device_id": row.try_get::<_, Uuid>(5)?,
            "mime_type": row.try_get::<_, String>(6)?,
            "size_bytes": size,
            "captured_at": row.try_get::<_, Timestamp>(7)?,
        });
        Ok(Image {
            key: row.try_get(0)?,
            size: u64::try_from(size).unwrap_or(0),
            sha256: row.try_get(2)?,
            line: json!({"image": null, "media": media, "session": session}),
        })
    }

    /// The image, from the object store to a file; it must be the one that its row tells of.
    async fn fetch(&self, image: &Image, path: &Path) -> Result<(), End> {
        if image.size > MAX_IMAGE_BYTES {
            let message = format!("the image is larger than {MAX_IMAGE_BYTES} bytes");
            return Err(bury("media_too_large", "MEDIA_TOO_LARGE", message));
        }
        let body = match self.bucket.get(&image.key, image.size).await {
            Ok(body) => body,
            Err(objects::Error::NotFound) => return Err(gone("the store has no such object")),
            Err(error) if error.about() == About::Object => {
                return Err(retry("MEDIA_DAMAGED", error.to_string()));
            }
            Err(error) => return Err(End::Down(error.to_string())),
        };
        let known = |known: &Vec<u8>| known[..] == Sha256::digest(&body)[..];
        if body.len() as u64 != image.size || !image.sha256.as_ref().is_none_or(known) {
            return Err(retry("MEDIA_DAMAGED", "the object is not the one that its row tells of"));
        }
        let written = tokio::fs::write(path, &body).await;
        written.map_err(|error| End::Down(format!("the image's file cannot be written: {error}")))
    }

    async fn store(&self, job: Job, prediction: Prediction) -> Result<(), End> {
        let new = NewResult {
            id: job.id,
            tenant_id: job.tenant,
            session_id: None,
            media_id: Some(job.media),
            farm_id: None,
            barn_id: None,
            device_id: None,
            prediction,
            occurred_at: to_microsecond(Timestamp::now()),
            trace_id: None,
            digest: Sha256::digest(job.id.uuid().as_bytes()).into(),
            only_first: true,
        };
        match results::store(&self.pool, &new).await {
            // Of two workers that came here, because one had lost its lease, the first one's counts; and so does a result that
            // somebody sent while the model was at work.
            Ok(_) | Err(Fault::IdReused | Fault::Answered) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }
}

/// What a failure of the command means for its job.
fn judged(failure: &Failure) -> End {
    let message = failure.to_string();
    match failure {
        Failure::Start(_) => End::Down(message),
        Failure::Timeout(_) => retry("MODEL_TIMEOUT", message),
        Failure::Flood => retry("MODEL_OUTPUT", message),
        Failure::Status(_) => retry("MODEL_FAILED", message),
        Failure::Answer(_) => retry("MODEL_ANSWER", message),
    }
}

/// `image` with the extension of the object's key, where it has a plain one.
fn file_name(key: &str) -> String {
    let plain =
        |end: &&str| (1..=5).contains(&end.len()) && end.bytes().all(|b| b.is_ascii_alphanumeric());
    match key.rsplit_once('.').map(|(_, end)| end).filter(plain) {
        Some(end) => format!("image.{end}"),
        None => "image".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn a_file_is_named_by_a_plain_extension_only() {
        assert_eq!(file_name("tenants/a/images/2026/02/01/b.jpg"), "image.jpg");
        for key in ["a/b", "a.b/c", "a.", "a./../x", "a.jpg\0", "a.toolong"] {
            assert_eq!(file_name(key), "image", "{key}");
        }
    }
}
