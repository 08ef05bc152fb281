//! Images: a row in `media_objects` for each, its bytes in an object store.
//!
//! docs/spec/media.md is the contract: states, uploads, events, the sweep.
//!
//! Promises: an address is handed out for one key, type, length and hash, for a short time, and never
//! overwrites. A row is there before its object can be. A row becomes `stored` only after the object was
//! seen with the right size and hash, in one transaction with its event and its job for the model. What a
//! crash leaves on either side is found and mended by the sweep.
//!
//! It must not know what an image shows or how objects reach the cloud. It fails with `Fault`.

mod adopt;
mod ask;
mod complete;
mod create;
mod http;
mod look;
mod meter;
mod stored;
mod told;

pub mod sweep;

use std::sync::Arc;

use event::id::{BarnId, DeviceId, FarmId, IdError, MediaId, SessionId, TenantId};
use jiff::Timestamp;
use objects::Bucket;
use serde::{Serialize, Serializer};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::config::Media as Config;

pub(crate) use http::SERVICE;
pub(crate) use meter::Meter;
pub(crate) use told::{dropped, stored as stored_event};

pub use stored::{StoredObject, stored, stored_count};

/// What the service works with.
#[derive(Debug, Clone)]
pub(crate) struct Media {
    config: Config,
    bucket: Bucket,
    /// The same bucket, with the address that cameras know.
    public: Bucket,
    /// Objects read at once.
    reads: Arc<Semaphore>,
}

impl Media {
    /// Fails when the store's address can never work.
    pub(crate) fn new(config: &Config) -> Result<Media, objects::Error> {
        Ok(Media {
            bucket: Bucket::new(&config.store)?,
            public: Bucket::new(&config.public)?,
            reads: Arc::new(Semaphore::new(config.max_reads)),
            config: config.clone(),
        })
    }
}

/// Why something could not be done with an image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The object store, or the way to it.
    #[error(transparent)]
    Store(objects::Error),
    /// There is no such image, or not for these tenants.
    #[error("there is no such media")]
    Missing,
    /// The state does not allow it.
    #[error("the media is {0}")]
    WrongState(String),
    /// The session does not take images.
    #[error("there is no such session of this tenant")]
    UnknownSession,
    /// The session has ended.
    #[error("the session is {0}")]
    SessionEnded(String),
    /// The object, or a part of it, is not there.
    #[error("the object is not there yet: upload it first")]
    NotUploaded,
    /// What is there is not what was announced.
    #[error("{message}")]
    Differs {
        /// A word for programs.
        code: &'static str,
        /// For people.
        message: String,
    },
    /// More is under way than is allowed.
    #[error("too much is under way: come back later")]
    Busy,
    /// A row that this code did not write: it makes no event.
    #[error("the row makes no event: {0}")]
    Damaged(String),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Database(error.into())
    }
}

/// An image's row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    #[serde(rename = "media_id")]
    pub(crate) id: Uuid,
    pub(crate) tenant_id: Uuid,
    pub(crate) farm_id: Uuid,
    pub(crate) barn_id: Uuid,
    pub(crate) device_id: Uuid,
    pub(crate) session_id: Option<Uuid>,
    pub(crate) bucket: String,
    pub(crate) object_key: String,
    pub(crate) etag: Option<String>,
    pub(crate) mime_type: String,
    pub(crate) size_bytes: i64,
    pub(crate) captured_at: Timestamp,
    pub(crate) created_at: Timestamp,
    pub(crate) status: String,
    #[serde(serialize_with = "hex")]
    pub(crate) sha256: Option<Vec<u8>>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) stored_at: Option<Timestamp>,
    pub(crate) missing_at: Option<Timestamp>,
    pub(crate) deleted_at: Option<Timestamp>,
}

pub(crate) const COLUMNS: &str =
    "id, tenant_id, farm_id, barn_id, device_id, session_id, bucket, object_key,
    etag, mime_type, size_bytes, captured_at, created_at, status, sha256, expires_at, stored_at,
    missing_at, deleted_at";

impl Row {
    pub(crate) fn read(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
        Ok(Row {
            id: row.try_get(0)?,
            tenant_id: row.try_get(1)?,
            farm_id: row.try_get(2)?,
            barn_id: row.try_get(3)?,
            device_id: row.try_get(4)?,
            session_id: row.try_get(5)?,
            bucket: row.try_get(6)?,
            object_key: row.try_get(7)?,
            etag: row.try_get(8)?,
            mime_type: row.try_get(9)?,
            size_bytes: row.try_get(10)?,
            captured_at: row.try_get(11)?,
            created_at: row.try_get(12)?,
            status: row.try_get(13)?,
            sha256: row.try_get(14)?,
            expires_at: row.try_get(15)?,
            stored_at: row.try_get(16)?,
            missing_at: row.try_get(17)?,
            deleted_at: row.try_get(18)?,
        })
    }

    fn size(&self) -> u64 {
        u64::try_from(self.size_bytes).unwrap_or_default()
    }

    fn is(&self, status: &str) -> bool {
        self.status == status
    }

    /// The ids as their types: whoever wrote the row, they are checked before they leave.
    fn ids(&self) -> Result<Ids, Fault> {
        fn id<T>(name: &str, from: fn(Uuid) -> Result<T, IdError>, id: Uuid) -> Result<T, Fault> {
            from(id).map_err(|error| Fault::Damaged(format!("{name} {error}")))
        }
        Ok(Ids {
            media: id("id", MediaId::from_uuid, self.id)?,
            tenant: id("tenant_id", TenantId::from_uuid, self.tenant_id)?,
            farm: id("farm_id", FarmId::from_uuid, self.farm_id)?,
            barn: id("barn_id", BarnId::from_uuid, self.barn_id)?,
            device: id("device_id", DeviceId::from_uuid, self.device_id)?,
            session: self
                .session_id
                .map(|session| id("session_id", SessionId::from_uuid, session))
                .transpose()?,
        })
    }
}

/// Whose an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) media: MediaId,
    pub(crate) tenant: TenantId,
    pub(crate) farm: FarmId,
    pub(crate) barn: BarnId,
    pub(crate) device: DeviceId,
    pub(crate) session: Option<SessionId>,
}

fn hex<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.as_ref().map(text).serialize(serializer)
}
