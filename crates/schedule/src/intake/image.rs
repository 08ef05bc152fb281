//! A place for an image, and the image once it is there.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use objects::{About, Head, Upload};
use serde::Serialize;
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::{Fault, Intake};
use crate::observation::MAX_FIXTURE_BYTES;

/// The session is held until the place is written: a claim waits, and then finds it collecting again.
const TOUCH: &str =
    "UPDATE schedule_ingest.capture_session SET active_at = now(), finalized_at = NULL
WHERE id = $1 AND state = 'pending' RETURNING user_id";
const STATE: &str = "SELECT state::text FROM schedule_ingest.capture_session WHERE id = $1";
const PROMISE: &str = "INSERT INTO schedule_ingest.capture_upload
    (id, session_id, sequence, r2_key, mime_type, size_bytes, sha256)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (session_id, sequence) DO NOTHING";
const PROMISED: &str = "SELECT id, r2_key, mime_type, size_bytes, sha256
FROM schedule_ingest.capture_upload WHERE session_id = $1 AND sequence = $2";
const IMAGE: &str = "SELECT id, r2_key, created_at FROM schedule_ingest.capture_image
WHERE session_id = $1 AND sequence = $2";
const ADD: &str = "INSERT INTO schedule_ingest.capture_image
    (id, session_id, sequence, r2_key, telegram_message_id)
VALUES ($1, $2, $3, $4, $5) RETURNING id, r2_key, created_at";

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A photograph.
    Jpeg,
    /// A scan or a screenshot.
    Png,
    /// An observation, instead of a photograph.
    Observation,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 3] = [Kind::Jpeg, Kind::Png, Kind::Observation];

    /// Its media type.
    pub fn mime_type(self) -> &'static str {
        match self {
            Kind::Jpeg => "image/jpeg",
            Kind::Png => "image/png",
            Kind::Observation => "application/json",
        }
    }

    /// The end of its key.
    pub fn ext(self) -> &'static str {
        match self {
            Kind::Jpeg => "jpg",
            Kind::Png => "png",
            Kind::Observation => "json",
        }
    }

    /// The kind of a media type.
    pub fn of_mime_type(text: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.mime_type() == text)
    }

    /// The kind of a file, by the end of its name.
    pub fn of_ext(text: &str) -> Option<Kind> {
        match text.to_ascii_lowercase().as_str() {
            "jpeg" => Some(Kind::Jpeg),
            other => Kind::ALL.into_iter().find(|kind| kind.ext() == other),
        }
    }
}

/// An image that is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewImage {
    /// Its place in the session, from 1.
    pub sequence: i32,
    /// What it is.
    pub kind: Kind,
    /// How many bytes.
    pub size_bytes: u64,
    /// Their SHA-256, if it is known before.
    pub sha256: Option<[u8; 32]>,
}

/// A place for an image, and how to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The session.
    pub session_id: Uuid,
    /// Which image.
    pub sequence: i32,
    /// The key in the object store.
    pub r2_key: String,
    /// `PUT`.
    pub method: &'static str,
    /// Where to. Whoever has it may use it.
    pub url: String,
    /// Headers that must be sent exactly so.
    pub headers: BTreeMap<&'static str, String>,
    /// Until when the address works.
    pub expires_at: Timestamp,
    /// False when it was promised before.
    #[serde(skip)]
    pub new: bool,
}

/// An image of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Its id.
    pub id: Uuid,
    /// Its place in the session.
    pub sequence: i32,
    /// The key in the object store.
    pub r2_key: String,
    /// When it joined.
    pub created_at: Timestamp,
    /// False when it had joined before.
    #[serde(skip)]
    pub new: bool,
}

/// A place as it was promised.
struct Promised {
    id: Uuid,
    key: String,
    mime_type: String,
    size: u64,
    sha256: Option<[u8; 32]>,
}

impl Promised {
    fn read(row: &tokio_postgres::Row) -> Result<Promised, tokio_postgres::Error> {
        Ok(Promised {
            id: row.try_get(0)?,
            key: row.try_get(1)?,
            mime_type: row.try_get(2)?,
            size: row.try_get::<_, i64>(3)?.unsigned_abs(),
            sha256: row.try_get::<_, Option<Vec<u8>>>(4)?.and_then(|hash| hash.try_into().ok()),
        })
    }
}

impl Intake {
    /// Promises a place for an image. The same image again has the same place, with a new address.
    pub async fn place(&self, session: Uuid, image: &NewImage) -> Result<Place, Fault> {
        self.check(image)?;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let Some(row) = transaction.query_opt(TOUCH, &[&session]).await? else {
            return Err(ended(&transaction, session).await?);
        };
        let (user, sequence): (i64, i32) = (row.try_get(0)?, image.sequence);
        let key = format!("captures/{user}/{session}/{sequence:03}.{}", image.kind.ext());
        let mime_type = image.kind.mime_type();
        let size = i64::try_from(image.size_bytes).unwrap_or(i64::MAX);
        let hash = image.sha256.as_ref().map(<[u8; 32]>::as_slice);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
            [&Uuid::now_v7(), &session, &sequence, &key, &mime_type, &size, &hash];
        let new = transaction.execute(PROMISE, &values).await? == 1;
        if !new {
            let row = transaction.query_one(PROMISED, &[&session, &sequence]).await?;
            let before = Promised::read(&row)?;
            let same = (before.mime_type.as_str(), before.size, before.sha256)
                == (mime_type, image.size_bytes, image.sha256);
            if !same {
                return Err(Fault::Taken);
            }
        }
        if transaction.query_opt(IMAGE, &[&session, &sequence]).await?.is_some() && new {
            // A backend has put an image here itself.
            return Err(Fault::Taken);
        }
        transaction.commit().await?;
        let upload = Upload { key: &key, mime_type, size: image.size_bytes, sha256: image.sha256 };
        let ttl = self.limits.presign_ttl;
        let signed = self.public.presign_put(&upload, ttl).map_err(Fault::Store)?;
        let now = Timestamp::now();
        let until = now.checked_add(SignedDuration::try_from(ttl).unwrap_or_default());
        Ok(Place {
            session_id: session,
            sequence,
            r2_key: key,
            method: "PUT",
            url: signed.url.into(),
            headers: signed.headers.into_iter().collect(),
            expires_at: until.unwrap_or(now),
            new,
        })
    }

    fn check(&self, image: &NewImage) -> Result<(), Fault> {
        let (most, bytes) = (self.limits.max_images, self.limits.max_image_bytes);
        if !(1..=most).contains(&image.sequence) {
            let message = format!("sequence must be a whole number from 1 to {most}");
            return Err(Fault::Wrong { field: "sequence", message });
        }
        let bytes = match image.kind {
            Kind::Observation => bytes.min(MAX_FIXTURE_BYTES),
            _ => bytes,
        };
        if !(1..=bytes).contains(&image.size_bytes) {
            let message = format!("size_bytes must be a whole number from 1 to {bytes}");
            return Err(Fault::Wrong { field: "size_bytes", message });
        }
        Ok(())
    }

    /// Adds an image to its session, once its object is there as it was announced. Twice changes nothing.
    pub async fn complete(
        &self,
        session: Uuid,
        sequence: i32,
        telegram_message_id: Option<i64>,
    ) -> Result<Image, Fault> {
        let client = self.pool.get().await?;
        if let Some(row) = client.query_opt(IMAGE, &[&session, &sequence]).await? {
            return image(&row, sequence);
        }
        let row = client.query_opt(PROMISED, &[&session, &sequence]).await?;
        let promised = Promised::read(&row.ok_or(Fault::Missing)?)?;
        // Looking at the object may take long: the connection is not kept meanwhile.
        drop(client);
        self.inspect(&promised).await?;
        let client = self.pool.get().await?;
        let Promised { id, key, .. } = &promised;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [id, &session, &sequence, key, &telegram_message_id];
        match client.query_one(ADD, &values).await {
            Ok(row) => Ok(Image { new: true, ..image(&row, sequence)? }),
            Err(error) => {
                let refused = error.code() == Some(&SqlState::CHECK_VIOLATION);
                if !refused && error.code() != Some(&SqlState::UNIQUE_VIOLATION) {
                    return Err(error.into());
                }
                // Somebody else has just completed it, or a worker has taken the session.
                if let Some(row) = client.query_opt(IMAGE, &[&session, &sequence]).await? {
                    return image(&row, sequence);
                }
                let row = client.query_opt(STATE, &[&session]).await?.ok_or(Fault::Missing)?;
                Err(Fault::Ended(row.try_get(0)?))
            }
        }
    }

    /// Whether the object is what was announced.
    async fn inspect(&self, promised: &Promised) -> Result<(), Fault> {
        let differs = |code, message: String| Err(Fault::Differs { code, message });
        let Head { size, mime_type, sha256, .. } =
            self.bucket.head(&promised.key).await.map_err(object)?;
        if size != promised.size {
            let message =
                format!("the image has {size} bytes, and {} were announced", promised.size);
            return differs("size_differs", message);
        }
        if mime_type.is_some_and(|kind| kind != promised.mime_type) {
            return differs("type_differs", format!("the image is no {}", promised.mime_type));
        }
        let Some(announced) = promised.sha256 else { return Ok(()) };
        let hash = match sha256 {
            Some(hash) => hash,
            None => {
                let _place = self.reads.try_acquire().map_err(|_| Fault::Busy)?;
                self.bucket.hash(&promised.key, promised.size).await.map_err(object)?.1
            }
        };
        if hash != announced {
            return differs(
                "hash_differs",
                "the image has another SHA-256 than was announced".into(),
            );
        }
        Ok(())
    }
}

fn image(row: &tokio_postgres::Row, sequence: i32) -> Result<Image, Fault> {
    Ok(Image {
        id: row.try_get(0)?,
        sequence,
        r2_key: row.try_get(1)?,
        created_at: row.try_get(2)?,
        new: false,
    })
}

/// Why a session takes nothing: it has ended, or it is not there.
async fn ended(transaction: &Transaction<'_>, session: Uuid) -> Result<Fault, Fault> {
    let row = transaction.query_opt(STATE, &[&session]).await?;
    Ok(match row {
        Some(row) => Fault::Ended(row.try_get(0)?),
        None => Fault::Missing,
    })
}

/// An object that is not there is the sender's affair; anything else is the store's or ours.
fn object(error: objects::Error) -> Fault {
    match (&error, error.about()) {
        (objects::Error::NotFound, _) => Fault::NotUploaded,
        (_, About::Object) => Fault::Differs { code: "size_differs", message: error.to_string() },
        (_, About::Destination | About::Us) => Fault::Store(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_type_and_by_the_end_of_a_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_mime_type(kind.mime_type()), Some(kind));
            assert_eq!(Kind::of_ext(&kind.ext().to_uppercase()), Some(kind));
        }
        assert_eq!(Kind::of_ext("jpeg"), Some(Kind::Jpeg));
        assert_eq!((Kind::of_ext("gif"), Kind::of_mime_type("text/html")), (None, None));
    }
}
