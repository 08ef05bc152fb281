//! Intake: captures come in, their images by presigned addresses. docs/spec/schedule-api.md is the contract.
//!
//! Entry points: [`Intake`] is what a program calls, [`serve`] the same over HTTP.
//!
//! Promises: a place is recorded before its address is known to anybody; an image joins its session only after the object was seen as it was
//! announced; asking twice does once. A session that a worker has taken gets no image any more: the database decides.
//!
//! It must not know what an image shows. It fails with [`Fault`].

mod docs;
mod http;
mod image;
mod look;
mod meter;
mod show;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use objects::{Address, Bucket};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::worker::MAX_IMAGES;
pub use docs::openapi;
pub use http::{ROUTES, serve};
pub use image::{Image, Kind, NewImage, Place};
pub use show::{Outcome, Session, show};
pub use sweep::Swept;

/// Objects read at once to check their hash.
const MAX_READS: usize = 4;
/// The longest idempotency key.
pub const MAX_KEY_BYTES: usize = 200;

const OPEN: &str = "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
VALUES ($1, $2, 'pending', now())";
const REMEMBER: &str = "INSERT INTO schedule_ingest.capture_request (idempotency_key, session_id)
VALUES ($1, $2) ON CONFLICT (idempotency_key) DO NOTHING";
const REMEMBERED: &str = "SELECT s.id, s.user_id FROM schedule_ingest.capture_request r
JOIN schedule_ingest.capture_session s ON s.id = r.session_id WHERE r.idempotency_key = $1";

/// What may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a presigned address works.
    pub presign_ttl: Duration,
    /// The most bytes of an image.
    pub max_image_bytes: u64,
    /// The most images of a session.
    pub max_images: i32,
    /// How long after the last that happened to a session that has ended its places are forgotten; longer than an address works.
    pub sweep_after: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            presign_ttl: Duration::from_secs(15 * 60),
            max_image_bytes: 20 << 20,
            max_images: i32::try_from(MAX_IMAGES).unwrap_or(i32::MAX),
            sweep_after: Duration::from_secs(24 * 3600),
        }
    }
}

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The object store, or the way to it.
    #[error(transparent)]
    Store(objects::Error),
    /// There is no such session, or no place of this sequence in it.
    #[error("there is no such session, or no place of this sequence in it")]
    Missing,
    /// A field breaks its rule.
    #[error("{message}")]
    Wrong {
        /// Which.
        field: &'static str,
        /// The rule.
        message: String,
    },
    /// The session takes no images any more.
    #[error("the session is {0} and takes no images any more: open another")]
    Ended(String),
    /// The place was promised for something else.
    #[error("this sequence was promised for another image: take the next")]
    Taken,
    /// The object is not there.
    #[error("the image is not there yet: upload it first")]
    NotUploaded,
    /// The object is not what was announced.
    #[error("{message}")]
    Differs {
        /// A word for programs.
        code: &'static str,
        /// For people.
        message: String,
    },
    /// The key has opened a session of another user.
    #[error("this idempotency key has opened a session of another user: use a new one")]
    KeyReused,
    /// More is under way than is allowed.
    #[error("too much is under way: come back later")]
    Busy,
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Database(error.into())
    }
}

/// A session that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Which.
    pub session: Uuid,
    /// False when the key had opened it before.
    pub new: bool,
}

/// Takes captures in. Clones share everything.
#[derive(Debug, Clone)]
pub struct Intake {
    pool: pg::Pool,
    bucket: Bucket,
    /// The same bucket, with the address that senders know.
    public: Bucket,
    limits: Limits,
    reads: Arc<Semaphore>,
}

impl Intake {
    /// Fails when the store's address can never work.
    pub fn new(
        pool: pg::Pool,
        store: &Address,
        public: &Address,
        limits: Limits,
    ) -> Result<Intake, objects::Error> {
        Ok(Intake {
            pool,
            bucket: Bucket::new(store)?,
            public: Bucket::new(public)?,
            limits,
            reads: Arc::new(Semaphore::new(MAX_READS)),
        })
    }

    /// Opens a session for a user. The same key opens it once.
    pub async fn open(&self, user_id: i64, key: Option<&str>) -> Result<Opened, Fault> {
        let session = Uuid::now_v7();
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        transaction.execute(OPEN, &[&session, &user_id]).await?;
        let Some(key) = key else {
            transaction.commit().await?;
            return Ok(Opened { session, new: true });
        };
        check_key(key)?;
        if transaction.execute(REMEMBER, &[&key, &session]).await? == 1 {
            transaction.commit().await?;
            return Ok(Opened { session, new: true });
        }
        transaction.rollback().await?;
        let row = client.query_opt(REMEMBERED, &[&key]).await?.ok_or(Fault::Missing)?;
        if row.try_get::<_, i64>(1)? != user_id {
            return Err(Fault::KeyReused);
        }
        Ok(Opened { session: row.try_get(0)?, new: false })
    }
}

fn check_key(key: &str) -> Result<(), Fault> {
    let visible = key.bytes().all(|byte| byte.is_ascii_graphic());
    if visible && (1..=MAX_KEY_BYTES).contains(&key.len()) {
        return Ok(());
    }
    let message = format!("Idempotency-Key must be 1 to {MAX_KEY_BYTES} visible ASCII characters");
    Err(Fault::Wrong { field: "Idempotency-Key", message })
}
