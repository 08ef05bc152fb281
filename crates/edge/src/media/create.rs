//! A place for an image: a pending row, and an address to put it to.

use event::id::{BarnId, DeviceId, FarmId, MediaId, SessionId, TenantId};
use event::names::s3::{Ext, object_key};
use jiff::{SignedDuration, Timestamp};
use objects::{MAX_PARTS, Signed, Upload};
use serde::Serialize;
use std::collections::BTreeMap;
use uuid::Uuid;

use super::{Fault, Media};

/// The most images of one tenant that are awaited at once; beyond it, its cameras are told to come back.
const MAX_PENDING: i64 = 10_000;
/// The most of all tenants: the sweep asks the store for each.
const MAX_PENDING_OF_ALL: i64 = 40_000;
/// Parts are of this size, larger where there would be too many.
const PART_BYTES: u64 = 8 << 20;
/// The most parts whose addresses are handed out.
const MOST_PARTS: u64 = 1_000;

const INSERT: &str =
    "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id,
    bucket, object_key, mime_type, size_bytes, captured_at, sha256, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

const ADD_UPLOAD: &str = "INSERT INTO media_uploads (media_id, upload_id, part_bytes, part_count)
VALUES ($1, $2, $3, $4)";

/// What is to be uploaded.
#[derive(Debug)]
pub(super) struct NewMedia {
    pub(super) tenant: TenantId,
    pub(super) farm: FarmId,
    pub(super) barn: BarnId,
    pub(super) device: DeviceId,
    pub(super) session: Option<SessionId>,
    pub(super) ext: Ext,
    pub(super) size: u64,
    pub(super) sha256: Option<[u8; 32]>,
    pub(super) captured_at: Timestamp,
}

/// A place, and how to use it.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    media_id: MediaId,
    bucket: String,
    object_key: String,
    expires_at: Timestamp,
    upload: How,
}

/// How the bytes go to the store.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum How {
    /// In one request.
    Whole(Request),
    /// In several.
    Parts { parts: Vec<Part> },
}

#[derive(Debug, Serialize)]
struct Part {
    part_number: u16,
    size_bytes: u64,
    #[serde(flatten)]
    request: Request,
}

/// A request as it must be sent.
#[derive(Debug, Serialize)]
struct Request {
    method: &'static str,
    url: String,
    headers: BTreeMap<&'static str, String>,
}

impl From<Signed> for Request {
    fn from(signed: Signed) -> Request {
        let headers = signed.headers.into_iter().collect();
        Request { method: "PUT", url: signed.url.into(), headers }
    }
}

/// Promises a place. The row is committed before the address is known to anybody.
pub(super) async fn create(
    media: &Media,
    pool: &pg::Pool,
    new: &NewMedia,
    now: Timestamp,
) -> Result<Place, Fault> {
    let id = MediaId::mint();
    let key = object_key(new.tenant, new.farm, new.barn, new.device, new.captured_at, id, new.ext);
    let ttl = media.config.presign_ttl;
    let expires_at = now.checked_add(SignedDuration::try_from(ttl).unwrap_or_default());
    let expires_at = expires_at.unwrap_or(now);
    let mime_type = new.ext.mime_type();
    check_room(pool, new).await?;
    // Opened before its row, so that a row never names an upload that is not there. One whose row never
    // came is aborted by the sweep.
    let upload = if new.size > media.config.multipart_above {
        let upload_id = media.bucket.create_upload(&key, mime_type).await.map_err(Fault::Store)?;
        Some((upload_id, PART_BYTES.max(new.size.div_ceil(MOST_PARTS))))
    } else {
        None
    };
    let how = match &upload {
        None => {
            let one = Upload { key: &key, mime_type, size: new.size, sha256: new.sha256 };
            How::Whole(media.public.presign_put(&one, ttl).map_err(Fault::Store)?.into())
        }
        Some((upload_id, part_bytes)) => {
            let mut parts = Vec::new();
            for (part_number, size_bytes) in split(new.size, *part_bytes) {
                let request =
                    media.public.presign_part(&key, upload_id, part_number, size_bytes, ttl);
                let request = request.map_err(Fault::Store)?.into();
                parts.push(Part { part_number, size_bytes, request });
            }
            How::Parts { parts }
        }
    };
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let size = i64::try_from(new.size).unwrap_or(i64::MAX);
    let hash = new.sha256.as_ref().map(<[u8; 32]>::as_slice);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 13] = [
        &id.uuid(),
        &new.tenant.uuid(),
        &new.farm.uuid(),
        &new.barn.uuid(),
        &new.device.uuid(),
        &new.session.map(SessionId::uuid),
        &media.bucket.name(),
        &key,
        &mime_type,
        &size,
        &new.captured_at,
        &hash,
        &expires_at,
    ];
    transaction.execute(INSERT, &values).await?;
    if let Some((upload_id, part_bytes)) = &upload {
        let count = i32::try_from(new.size.div_ceil(*part_bytes)).unwrap_or(i32::MAX);
        let bytes = i64::try_from(*part_bytes).unwrap_or(i64::MAX);
        transaction.execute(ADD_UPLOAD, &[&id.uuid(), upload_id, &bytes, &count]).await?;
    }
    transaction.commit().await?;
    let bucket = media.bucket.name().to_owned();
    Ok(Place { media_id: id, bucket, object_key: key, expires_at, upload: how })
}

/// The parts of an object: their numbers and sizes.
pub(super) fn split(size: u64, part_bytes: u64) -> impl Iterator<Item = (u16, u64)> {
    (1..=MAX_PARTS).map_while(move |number| {
        let before = u64::from(number - 1) * part_bytes;
        (before < size).then(|| (number, part_bytes.min(size - before)))
    })
}

/// Whether one more image may be awaited, and its session takes it.
async fn check_room(pool: &pg::Pool, new: &NewMedia) -> Result<(), Fault> {
    let client = pool.get().await?;
    let awaited = "SELECT count(*), count(*) FILTER (WHERE tenant_id = $1) FROM
        (SELECT tenant_id FROM media_objects WHERE status = 'pending' LIMIT $2) AS awaited";
    let awaited = client.query_one(awaited, &[&new.tenant.uuid(), &MAX_PENDING_OF_ALL]).await?;
    let (all, own): (i64, i64) = (awaited.try_get(0)?, awaited.try_get(1)?);
    if all >= MAX_PENDING_OF_ALL || own >= MAX_PENDING {
        return Err(Fault::Busy);
    }
    let Some(session) = new.session else { return Ok(()) };
    let found = "SELECT status FROM weight_sessions WHERE id = $1 AND tenant_id = $2";
    let values: [&Uuid; 2] = [&session.uuid(), &new.tenant.uuid()];
    let found = client.query_opt(found, &[values[0], values[1]]).await?;
    let status: String = found.ok_or(Fault::UnknownSession)?.try_get(0)?;
    if status == "created" { Ok(()) } else { Err(Fault::SessionEnded(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole() {
        for (size, part, count) in [(1, 5, 1), (5, 5, 1), (6, 5, 2), (50_001, 5, 10_000)] {
            let parts: Vec<(u16, u64)> = split(size, part).collect();
            assert_eq!(parts.len(), count, "{size}");
            let whole: u64 = parts.iter().map(|part| part.1).sum();
            assert_eq!(whole, size.min(50_000));
        }
    }
}
