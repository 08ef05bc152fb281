//! The images that are stored, for a backup.

use pg::Error;
use tokio_postgres::Transaction;

/// Rows read with one statement.
const PAGE: i64 = 1_000;

/// An image that is media for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    /// Its key.
    pub key: String,
    /// Its size.
    pub size_bytes: i64,
    /// Its entity tag, where the store told it.
    pub etag: Option<String>,
    /// Its media type.
    pub mime_type: String,
    /// Its SHA-256; an image that an earlier version stored may have none.
    pub sha256: Option<Vec<u8>>,
}

const STORED: &str = "SELECT object_key, size_bytes, etag, mime_type, sha256 FROM media_objects
WHERE status = 'stored' AND bucket = $1 AND object_key > $2 ORDER BY object_key LIMIT $3";

/// A page of the images of a bucket, in the order of their keys and after one; empty at the end.
pub async fn stored(
    transaction: &Transaction<'_>,
    bucket: &str,
    after: &str,
) -> Result<Vec<StoredObject>, Error> {
    let rows = transaction.query(STORED, &[&bucket, &after, &PAGE]).await?;
    let each = rows.iter().map(|row| {
        Ok(StoredObject {
            key: row.try_get(0)?,
            size_bytes: row.try_get(1)?,
            etag: row.try_get(2)?,
            mime_type: row.try_get(3)?,
            sha256: row.try_get(4)?,
        })
    });
    each.collect()
}

/// How many images are stored in a bucket.
pub async fn stored_count(transaction: &Transaction<'_>, bucket: &str) -> Result<u64, Error> {
    let sql = "SELECT count(*) FROM media_objects WHERE status = 'stored' AND bucket = $1";
    Ok(transaction.query_one(sql, &[&bucket]).await?.try_get::<_, i64>(0)?.unsigned_abs())
}
