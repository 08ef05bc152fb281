//! From `pending` to `stored`: the object is looked at, then the row, its event and its job are one
//! transaction.

use api::tokens::Tenants;
use event::id::MediaId;
use objects::{About, Head};
use uuid::Uuid;

use super::create::split;
use super::{COLUMNS, Fault, Media, Row, look, told};
use crate::{inference, outbox};

/// Whether to wait when too many objects are being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A request comes back later.
    OrBusy,
    /// The sweep has time.
    Awaited,
}

/// Completes an upload. One that is complete stays as it is.
pub(super) async fn complete(
    media: &Media,
    pool: &pg::Pool,
    tenants: &Tenants,
    id: MediaId,
    trace_id: Option<String>,
) -> Result<Row, Fault> {
    let row = look::find(pool, tenants, id).await?;
    match row.status.as_str() {
        "stored" => Ok(row),
        "pending" => settle(media, pool, &row, trace_id, Turn::OrBusy).await,
        _ => Err(Fault::WrongState(row.status)),
    }
}

/// Stores a pending row whose object is there and is what was announced.
pub(super) async fn settle(
    media: &Media,
    pool: &pg::Pool,
    row: &Row,
    trace_id: Option<String>,
    turn: Turn,
) -> Result<Row, Fault> {
    put_together(media, pool, row).await?;
    let (head, sha256) = inspect(media, row, turn).await?;
    store(pool, row, &head, sha256, trace_id).await
}

/// What the store says of an object, and its hash; or how it differs.
pub(super) async fn inspect(
    media: &Media,
    row: &Row,
    turn: Turn,
) -> Result<(Head, [u8; 32]), Fault> {
    let head = media.bucket.head(&row.object_key).await.map_err(object)?;
    let differs = |code, message: String| Err(Fault::Differs { code, message });
    if head.size != row.size() {
        let message =
            format!("the object has {} bytes, and {} were announced", head.size, row.size_bytes);
        return differs("size_differs", message);
    }
    if head.mime_type.as_ref().is_some_and(|kind| *kind != row.mime_type) {
        return differs("type_differs", format!("the object is no {}", row.mime_type));
    }
    let hash = hash_of(media, &row.object_key, &head, turn).await?;
    if row.sha256.as_ref().is_some_and(|announced| hash.as_slice() != announced.as_slice()) {
        return differs("hash_differs", "the object has another SHA-256 than was announced".into());
    }
    Ok((head, hash))
}

/// The SHA-256 of an object: from the store if it keeps it, else by reading. Every stored row has one, announced or not,
/// so that a backup's list can be held against the objects.
pub(super) async fn hash_of(
    media: &Media,
    key: &str,
    head: &Head,
    turn: Turn,
) -> Result<[u8; 32], Fault> {
    if let Some(hash) = head.sha256 {
        return Ok(hash);
    }
    let _place = match turn {
        Turn::OrBusy => media.reads.try_acquire().map_err(|_| Fault::Busy)?,
        Turn::Awaited => media.reads.acquire().await.map_err(|_| Fault::Busy)?,
    };
    let (_, hash) = media.bucket.hash(key, head.size).await.map_err(object)?;
    Ok(hash)
}

/// An object that is not there is the sender's affair; anything else is the store's or ours.
fn object(error: objects::Error) -> Fault {
    match (&error, error.about()) {
        (objects::Error::NotFound, _) => Fault::NotUploaded,
        (_, About::Object) => Fault::Differs { code: "size_differs", message: error.to_string() },
        (_, About::Destination | About::Us) => Fault::Store(error),
    }
}

/// The upload in parts of a row, if it has one: the store's name for it, and the size of its parts.
pub(super) async fn upload_of(pool: &pg::Pool, id: Uuid) -> Result<Option<(String, u64)>, Fault> {
    let query = "SELECT upload_id, part_bytes FROM media_uploads WHERE media_id = $1";
    let Some(found) = pool.get().await?.query_opt(query, &[&id]).await? else { return Ok(None) };
    let part_bytes: i64 = found.try_get(1)?;
    Ok(Some((found.try_get(0)?, u64::try_from(part_bytes).unwrap_or_default())))
}

/// Puts the parts of an upload together, if it has any and all of them have come. Whether there is an
/// object afterwards is for the next look to say: an earlier attempt may have done it and died.
async fn put_together(media: &Media, pool: &pg::Pool, row: &Row) -> Result<(), Fault> {
    let Some((upload_id, part_bytes)) = upload_of(pool, row.id).await? else { return Ok(()) };
    let parts = match media.bucket.parts(&row.object_key, &upload_id).await {
        Err(objects::Error::NotFound) => return Ok(()),
        parts => parts.map_err(Fault::Store)?,
    };
    let there = parts.iter().map(|(number, _, size)| (*number, *size));
    if !there.eq(split(row.size(), part_bytes)) {
        // Not all have come; or a store that forgets its parts has put them together before.
        return Ok(());
    }
    let etags: Vec<String> = parts.into_iter().map(|(_, etag, _)| etag).collect();
    match media.bucket.complete_upload(&row.object_key, &upload_id, &etags).await {
        Ok(()) | Err(objects::Error::AlreadyThere | objects::Error::NotFound) => Ok(()),
        Err(error) => Err(object(error)),
    }
}

/// The row, its event and its job, together. When somebody else was first, what they made of it counts.
async fn store(
    pool: &pg::Pool,
    row: &Row,
    head: &Head,
    sha256: [u8; 32],
    trace_id: Option<String>,
) -> Result<Row, Fault> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let update = format!(
        "UPDATE media_objects SET status = 'stored', etag = $2, sha256 = coalesce(sha256, $3),
             stored_at = now()
         WHERE id = $1 AND status = 'pending' RETURNING {COLUMNS}"
    );
    let hash = sha256.as_slice();
    let Some(stored) = transaction.query_opt(&update, &[&row.id, &head.etag, &hash]).await? else {
        drop(transaction);
        let found = format!("SELECT {COLUMNS} FROM media_objects WHERE id = $1");
        let found = client.query_opt(&found, &[&row.id]).await?.ok_or(Fault::Missing)?;
        let found = Row::read(&found)?;
        return if found.is("stored") { Ok(found) } else { Err(Fault::WrongState(found.status)) };
    };
    let stored = Row::read(&stored)?;
    tell(&transaction, &stored, trace_id).await?;
    transaction.execute("DELETE FROM media_uploads WHERE media_id = $1", &[&row.id]).await?;
    transaction.commit().await?;
    Ok(stored)
}

/// The event of a stored image, and its job for the model.
pub(super) async fn tell(
    transaction: &pg::Transaction<'_>,
    row: &Row,
    trace_id: Option<String>,
) -> Result<(), Fault> {
    let ids = row.ids()?;
    outbox::add(transaction, &told::stored(row, trace_id)?).await?;
    inference::enqueue(transaction, ids.tenant, ids.media).await?;
    Ok(())
}
