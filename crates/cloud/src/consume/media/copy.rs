//! Copies: work that is claimed, leased, fenced and tried again, in the columns of `media_object`.
//!
//! Promises: an object is `copied` only after the store has answered for it, with its size and
//! SHA-256 in its row. A store that is away costs no attempt. A copier that dies leaves a lease that
//! expires, which counts one. Whoever lost its lease changes nothing. An object is read only under
//! its own tenant's prefix, so that an event cannot name another tenant's image.

use std::time::Duration;

use objects::{About, Bucket};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Stores;
use crate::consume::MEDIA_STORE;
use crate::consume::hold::wait;

/// The largest object that is copied; it is held in memory.
const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// Objects claimed at once; they are copied one after the other.
const CLAIMED: i64 = 8;
/// Longer than that many objects may take, each read and written.
const LEASE_SECONDS: f64 = 2_400.0;
/// Attempts before an object is given up; the site may be slow to upload it.
const MAX_ATTEMPTS: i32 = 10;
/// The longest pause between two attempts.
const LONGEST_SECONDS: f64 = 3_600.0;

/// An expired lease is an attempt: the object may be what ended its copier.
const CLAIM: &str = "UPDATE media_object t SET copy_status = 'copying', copy_lease_token = $1,
         copy_lease_until = clock_timestamp() + make_interval(secs => $2),
         copy_attempts = t.copy_attempts + (k.copy_status = 'copying')::int
     FROM (SELECT tenant_id, media_id, copy_status FROM media_object
           WHERE (copy_status = 'pending' AND copy_next_at <= clock_timestamp())
              OR (copy_status = 'copying' AND copy_lease_until < clock_timestamp())
           ORDER BY copy_next_at LIMIT $3 FOR UPDATE SKIP LOCKED) k
     WHERE t.tenant_id = k.tenant_id AND t.media_id = k.media_id
     RETURNING t.tenant_id, t.media_id, t.path, t.mime_type, t.size_bytes, t.copy_attempts";

const COPIED: &str =
    "UPDATE media_object SET copy_status = 'copied', copied_at = clock_timestamp(),
         copied_bytes = size_bytes, copied_sha256 = $4, copy_lease_token = NULL,
         copy_lease_until = NULL, copy_error_code = NULL, copy_error_message = NULL
     WHERE tenant_id = $1 AND media_id = $2 AND copy_lease_token = $3";

/// After the last attempt the row is `failed`, until an operator sets it back.
const FAILED: &str = "UPDATE media_object SET
         copy_status = CASE WHEN copy_attempts + 1 >= $6 THEN 'failed' ELSE 'pending' END,
         copy_attempts = copy_attempts + 1,
         copy_next_at = clock_timestamp()
             + make_interval(secs => least($7, 5 * 2 ^ least(copy_attempts, 20))),
         copy_lease_token = NULL, copy_lease_until = NULL, copy_error_code = $4,
         copy_error_message = $5
     WHERE tenant_id = $1 AND media_id = $2 AND copy_lease_token = $3";

const RELEASE: &str = "UPDATE media_object SET copy_status = 'pending', copy_lease_token = NULL,
         copy_lease_until = NULL WHERE copy_lease_token = $1";

/// Why an object was not copied.
#[derive(Debug)]
enum Error {
    /// About a store or the way to it: the object is not to blame.
    Away(String),
    /// About the object: a short word, and in words.
    Object { code: &'static str, message: String },
}

impl Error {
    fn object(code: &'static str, message: impl Into<String>) -> Error {
        Error::Object { code, message: message.into() }
    }
}

impl From<objects::Error> for Error {
    fn from(error: objects::Error) -> Error {
        let code = match &error {
            objects::Error::NotFound => "not_found",
            objects::Error::TooLarge { .. } => "size_differs",
            _ => "refused",
        };
        match error.about() {
            About::Object => Error::object(code, error.to_string()),
            About::Destination | About::Us => Error::Away(error.to_string()),
        }
    }
}

struct Claimed {
    tenant: Uuid,
    media: Uuid,
    path: String,
    mime: String,
    size: u64,
    attempts: i32,
}

/// Copies until told to stop.
pub(super) async fn run(
    pool: &pg::Pool,
    stores: &Stores,
    poll: Duration,
    stop: &CancellationToken,
) {
    let made =
        Bucket::new(&stores.source).and_then(|source| Ok((source, Bucket::new(&stores.store)?)));
    let (source, store) = match made {
        Ok(both) => both,
        Err(error) => {
            tracing::error!(service = MEDIA_STORE, %error, "objects cannot be copied");
            return;
        }
    };
    let mut pause = poll;
    while !stop.is_cancelled() {
        let token = Uuid::new_v4();
        let done = tokio::select! {
            // What is claimed is given back below.
            () = stop.cancelled() => Ok(Turn::Away),
            done = turn(pool, &source, &store, token) => done,
        };
        match done {
            Ok(Turn::Copied) => pause = poll,
            Ok(Turn::Nothing) => {
                pause = poll;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(poll) => {}
                }
            }
            Ok(Turn::Away) | Err(_) => {
                if let Err(error) = &done {
                    tracing::warn!(service = MEDIA_STORE, %error, "copies wait for the database");
                }
                // Should this fail too, the lease expires.
                if let Ok(client) = pool.get().await {
                    let _ = client.execute(RELEASE, &[&token]).await;
                }
                let _ = wait(&mut pause, stop).await;
            }
        }
    }
}

enum Turn {
    Copied,
    Nothing,
    Away,
}

async fn turn(
    pool: &pg::Pool,
    source: &Bucket,
    store: &Bucket,
    token: Uuid,
) -> Result<Turn, pg::Error> {
    let client = pool.get().await?;
    let rows = client.query(CLAIM, &[&token, &LEASE_SECONDS, &CLAIMED]).await?;
    drop(client);
    if rows.is_empty() {
        return Ok(Turn::Nothing);
    }
    for row in &rows {
        let claimed = Claimed {
            tenant: row.get(0),
            media: row.get(1),
            path: row.get(2),
            mime: row.get(3),
            size: u64::try_from(row.get::<_, i64>(4)).unwrap_or_default(),
            attempts: row.get(5),
        };
        let copied = copy(source, store, &claimed).await;
        let (tenant, media) = (&claimed.tenant, &claimed.media);
        let client = pool.get().await?;
        let changed = match copied {
            Ok(hash) => client.execute(COPIED, &[tenant, media, &token, &&hash[..]]).await?,
            Err(Error::Object { code, message }) => {
                tracing::warn!(
                    service = MEDIA_STORE, media_id = %media, code, attempts = claimed.attempts + 1,
                    "an object could not be copied"
                );
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                    [tenant, media, &token, &code, &message, &MAX_ATTEMPTS, &LONGEST_SECONDS];
                client.execute(FAILED, &values).await?
            }
            Err(Error::Away(why)) => {
                tracing::warn!(service = MEDIA_STORE, why, "copies wait for the object store");
                return Ok(Turn::Away);
            }
        };
        if changed == 0 {
            tracing::warn!(service = MEDIA_STORE, media_id = %media, "a copier lost its lease");
        }
    }
    Ok(Turn::Copied)
}

/// Copies one object and returns its SHA-256.
async fn copy(source: &Bucket, store: &Bucket, claimed: &Claimed) -> Result<[u8; 32], Error> {
    let key = object_key(claimed.tenant, &claimed.path)?;
    if claimed.size > MAX_OBJECT_BYTES {
        let message = format!("the object is larger than {MAX_OBJECT_BYTES} bytes");
        return Err(Error::object("too_large", message));
    }
    let body = read(source, key, claimed.size).await?;
    let hash: [u8; 32] = Sha256::digest(&body).into();
    match store.put(key, &claimed.mime, body.into()).await {
        // An earlier attempt may have got this far: what the store has decides.
        Ok(()) | Err(objects::Error::AlreadyThere) => {}
        Err(error) => return Err(error.into()),
    }
    // What the store gives back is what was read, or it is not copied.
    let kept = read(store, key, claimed.size).await?;
    if <[u8; 32]>::from(Sha256::digest(&kept)) != hash {
        return Err(Error::object("hash_differs", "the store gave back other bytes"));
    }
    Ok(hash)
}

/// Reads an object that has `size` bytes.
async fn read(bucket: &Bucket, key: &str, size: u64) -> Result<Vec<u8>, Error> {
    let body = bucket.get(key, size).await?;
    if body.len() as u64 == size {
        return Ok(body);
    }
    let message = format!("the object does not have the {size} bytes its event tells of");
    Err(Error::object("size_differs", message))
}

/// The key of an object: its path, which must lie under its own tenant's prefix.
fn object_key(tenant: Uuid, path: &str) -> Result<&str, Error> {
    let key = path.strip_prefix('/').unwrap_or(path);
    let sound = key.strip_prefix(&format!("tenants/{tenant}/")).is_some_and(|rest| {
        rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
    });
    if sound {
        Ok(key)
    } else {
        Err(Error::object("foreign_path", "the path is not under the tenant's own prefix"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_under_its_own_tenant_only() {
        let (ours, theirs) = (Uuid::now_v7(), Uuid::now_v7());
        let key = format!("tenants/{ours}/farms/f/a.jpg");
        assert_eq!(object_key(ours, &key).unwrap(), key);
        assert_eq!(object_key(ours, &format!("/{key}")).unwrap(), key);
        for path in [
            format!("tenants/{theirs}/farms/f/a.jpg"),
            format!("tenants/{ours}/../{theirs}/a.jpg"),
            format!("tenants/{ours}//a.jpg"),
            format!("tenants/{ours}"),
            format!("tenants/{ours}x/a.jpg"),
            "/data/media/frame-001.jpg".to_owned(),
            format!("//tenants/{ours}/a.jpg"),
        ] {
            assert!(object_key(ours, &path).is_err(), "{path}");
        }
    }
}
