//! Copies: work that is claimed, leased, fenced and tried again, in the columns of `media_object`.
//!
//! Promises: an object is `copied` only after the store has answered for it, with its size and
//! SHA-256 in its row. No more objects are copied, and held in memory, at once than is configured. A
//! store that is away costs no attempt. A copier that dies leaves a lease that
//! expires, which counts one. Whoever lost its lease changes nothing. An object is read only under
//! its own tenant's prefix, so that an event cannot name another tenant's image.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use objects::{About, Bucket};
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Stores;
use super::stores::Sources;
use crate::consume::MEDIA_STORE;

/// The largest object that is copied; it is held in memory.
const MAX_OBJECT_BYTES: u64 = 64 << 20;
/// Objects copied at once, unless something else is configured.
pub(in crate::consume) const DEFAULT_COPIES: usize = 4;
/// Longer than an object may take that is read, written and read again.
const LEASE_SECONDS: f64 = 900.0;
/// Attempts before an object is given up; the site may be slow to upload it.
const MAX_ATTEMPTS: i32 = 10;
/// The longest pause between two attempts.
const LONGEST_SECONDS: f64 = 3_600.0;
/// How long an image waits whose tenant's own store is away.
const AWAY_SECONDS: f64 = 10.0;
/// The longest pause while a store or the database is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// An expired lease is an attempt: the object may be what ended its copier. Every object has a lease of its own.
const CLAIM: &str = "UPDATE media_object t SET copy_status = 'copying',
         copy_lease_token = gen_random_uuid(),
         copy_lease_until = clock_timestamp() + make_interval(secs => $1),
         copy_attempts = t.copy_attempts + (k.copy_status = 'copying')::int
     FROM (SELECT tenant_id, media_id, copy_status FROM media_object
           WHERE (copy_status = 'pending' AND copy_next_at <= clock_timestamp())
              OR (copy_status = 'copying' AND copy_lease_until < clock_timestamp())
           ORDER BY copy_next_at LIMIT $2 FOR UPDATE SKIP LOCKED) k
     WHERE t.tenant_id = k.tenant_id AND t.media_id = k.media_id
     RETURNING t.tenant_id, t.media_id, t.path, t.mime_type, t.size_bytes, t.copy_attempts,
         t.copy_lease_token";

const COPIED: &str =
    "UPDATE media_object SET copy_status = 'copied', copied_at = clock_timestamp(),
         copied_bytes = size_bytes, copied_sha256 = $4, copy_lease_token = NULL,
         copy_lease_until = NULL, copy_error_code = NULL, copy_error_message = NULL
     WHERE tenant_id = $1 AND media_id = $2 AND copy_lease_token = $3";

/// After the last attempt the row is `failed`, until an operator sets it back.
const FAILED: &str = "UPDATE media_object SET
         copy_status = CASE WHEN copy_attempts + 1 >= $6 THEN 'failed' ELSE 'pending' END,
         copy_failed_at = CASE WHEN copy_attempts + 1 >= $6 THEN clock_timestamp() END,
         copy_attempts = copy_attempts + 1,
         copy_next_at = clock_timestamp()
             + make_interval(secs => least($7, 5 * 2 ^ least(copy_attempts, 20))),
         copy_lease_token = NULL, copy_lease_until = NULL, copy_error_code = $4,
         copy_error_message = $5
     WHERE tenant_id = $1 AND media_id = $2 AND copy_lease_token = $3";

const RELEASE: &str = "UPDATE media_object SET copy_status = 'pending', copy_lease_token = NULL,
         copy_lease_until = NULL WHERE copy_lease_token = ANY ($1)";

const PUT_OFF: &str = "UPDATE media_object SET copy_status = 'pending', copy_lease_token = NULL,
         copy_lease_until = NULL, copy_next_at = clock_timestamp() + make_interval(secs => $2)
     WHERE copy_lease_token = $1";

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
    token: Uuid,
}

/// Copies until told to stop: as many objects at once as it is told, and looks every `poll` when there was none.
pub(super) async fn run(
    pool: &pg::Pool,
    stores: &Stores,
    (copies, poll): (usize, Duration),
    stop: &CancellationToken,
) {
    let made = Sources::new(stores).and_then(|sources| Ok((sources, Bucket::new(&stores.store)?)));
    let copier = match made {
        Ok((sources, store)) => Copier { pool, sources, store },
        Err(error) => {
            tracing::error!(service = MEDIA_STORE, %error, "objects cannot be copied");
            return;
        }
    };
    let mut under_way = FuturesUnordered::new();
    let mut held = BTreeSet::new();
    let (mut pause, mut next) = (poll, Instant::now());
    while !stop.is_cancelled() {
        let room = copies.saturating_sub(under_way.len());
        if room > 0 && next <= Instant::now() {
            match copier.claim(room).await {
                Ok(claimed) => {
                    if claimed.len() < room {
                        next = Instant::now() + poll;
                    }
                    held.extend(claimed.iter().map(|one| one.token));
                    under_way.extend(claimed.into_iter().map(|one| copier.one(one)));
                }
                Err(error) => {
                    tracing::warn!(service = MEDIA_STORE, %error, "copies wait for the database");
                    next = later(&mut pause);
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            Some((token, ended)) = under_way.next(), if !under_way.is_empty() => {
                held.remove(&token);
                match ended {
                    Ended::Settled => pause = poll,
                    // Those that were under way with it meet the same outage: it lengthens the pause once.
                    Ended::Away if next <= Instant::now() + poll => next = later(&mut pause),
                    Ended::Away => {}
                }
            }
            () = tokio::time::sleep_until(next), if under_way.len() < copies => {}
        }
    }
    drop(under_way);
    copier.release(held.into_iter().collect()).await;
}

/// When to claim again: later each time, spread so that replicas do not come back all at once.
fn later(pause: &mut Duration) -> Instant {
    let spread = pause.mul_f64(rand::rng().random_range(0.75..1.25));
    *pause = (*pause * 2).min(LONGEST_PAUSE);
    Instant::now() + spread
}

enum Ended {
    /// Copied, or found fault with.
    Settled,
    /// A store or the database is away.
    Away,
}

struct Copier<'a> {
    pool: &'a pg::Pool,
    sources: Sources,
    store: Bucket,
}

impl Copier<'_> {
    async fn claim(&self, room: usize) -> Result<Vec<Claimed>, pg::Error> {
        let limit = i64::try_from(room).unwrap_or(i64::MAX);
        let rows = self.pool.get().await?.query(CLAIM, &[&LEASE_SECONDS, &limit]).await?;
        let each = rows.iter().map(|row| {
            Ok(Claimed {
                tenant: row.try_get(0)?,
                media: row.try_get(1)?,
                path: row.try_get(2)?,
                mime: row.try_get(3)?,
                size: u64::try_from(row.try_get::<_, i64>(4)?).unwrap_or_default(),
                attempts: row.try_get(5)?,
                token: row.try_get(6)?,
            })
        });
        each.collect()
    }

    /// Gives back what is not copied. Should this fail too, the leases expire.
    async fn release(&self, tokens: Vec<Uuid>) {
        if !tokens.is_empty()
            && let Ok(client) = self.pool.get().await
        {
            let _ = client.execute(RELEASE, &[&tokens]).await;
        }
    }

    /// Gives back an object whose store is away, for a while. No attempt is counted.
    async fn put_off(&self, token: Uuid) {
        if let Ok(client) = self.pool.get().await {
            let _ = client.execute(PUT_OFF, &[&token, &AWAY_SECONDS]).await;
        }
    }

    /// Copies one object, or gives it back.
    async fn one(&self, claimed: Claimed) -> (Uuid, Ended) {
        let copied = copy(self.sources.of(claimed.tenant), &self.store, &claimed).await;
        let ended = match copied {
            // Its images wait a little, so that those of others are not behind them.
            Err(Error::Away(why)) if self.sources.is_own(claimed.tenant) => {
                let tenant = claimed.tenant;
                tracing::warn!(service = MEDIA_STORE, %tenant, why, "a tenant's copies wait for a store");
                self.put_off(claimed.token).await;
                return (claimed.token, Ended::Settled);
            }
            Err(Error::Away(why)) => {
                tracing::warn!(service = MEDIA_STORE, why, "copies wait for the object store");
                Ended::Away
            }
            Ok(hash) => self.settle(&claimed, Ok(hash)).await,
            Err(Error::Object { code, message }) => {
                self.settle(&claimed, Err((code, message))).await
            }
        };
        if let Ended::Away = ended {
            self.release(vec![claimed.token]).await;
        }
        (claimed.token, ended)
    }

    /// Writes what became of an object: its hash, or what is wrong with it.
    async fn settle(
        &self,
        claimed: &Claimed,
        outcome: Result<[u8; 32], (&'static str, String)>,
    ) -> Ended {
        let (tenant, media, token) = (&claimed.tenant, &claimed.media, &claimed.token);
        let written = async {
            let client = self.pool.get().await?;
            Ok::<_, pg::Error>(match &outcome {
                Ok(hash) => client.execute(COPIED, &[tenant, media, token, &&hash[..]]).await?,
                Err((code, message)) => {
                    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                        [tenant, media, token, code, message, &MAX_ATTEMPTS, &LONGEST_SECONDS];
                    client.execute(FAILED, &values).await?
                }
            })
        };
        let written = written.await;
        if let Err((code, _)) = &outcome {
            let attempts = claimed.attempts + 1;
            tracing::warn!(
                service = MEDIA_STORE, media_id = %media, code, attempts,
                "an object could not be copied"
            );
        }
        match written {
            Ok(0) => {
                tracing::warn!(service = MEDIA_STORE, media_id = %media, "a copier lost its lease");
                Ended::Settled
            }
            Ok(_) => Ended::Settled,
            Err(error) => {
                tracing::warn!(service = MEDIA_STORE, %error, "copies wait for the database");
                Ended::Away
            }
        }
    }
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
