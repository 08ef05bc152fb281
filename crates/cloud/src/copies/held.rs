//! What the cloud has of some images.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The most images that are asked for at once.
pub const MAX_ASKED: usize = 1_000;

/// What the cloud says of some images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopyAnswer {
    /// Whether this cloud copies objects.
    pub copies: bool,
    /// The images that it knows.
    pub media: Vec<HeldCopy>,
}

/// What the cloud has of one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCopy {
    /// Whose it is.
    pub tenant_id: Uuid,
    /// The image.
    pub media_id: Uuid,
    /// `pending`, `copying`, `copied` or `failed`.
    pub copy_status: String,
    /// Its size, as its event tells.
    pub size_bytes: i64,
    /// When it was copied.
    pub copied_at: Option<Timestamp>,
    /// The copy's SHA-256, in hex.
    pub sha256: Option<String>,
}

const HELD: &str = "SELECT m.tenant_id, m.media_id, m.copy_status, m.size_bytes,
    CASE WHEN m.copy_status = 'copied' THEN m.copied_at END,
    CASE WHEN m.copy_status = 'copied' THEN encode(m.copied_sha256, 'hex') END
FROM unnest($1::uuid[], $2::uuid[]) AS n (tenant_id, media_id)
JOIN media_object m USING (tenant_id, media_id)";

/// What the cloud has of images, each with its tenant, at most [`MAX_ASKED`]. `configured` says that this very process has both stores.
pub async fn held(
    pool: &pg::Pool,
    images: &[(Uuid, Uuid)],
    configured: bool,
) -> Result<CopyAnswer, pg::Error> {
    let client = pool.get().await?;
    let images = &images[..images.len().min(MAX_ASKED)];
    let (tenants, media): (Vec<Uuid>, Vec<Uuid>) = images.iter().copied().unzip();
    let declared = "SELECT EXISTS (SELECT FROM media_copying)";
    let copies = configured || client.query_one(declared, &[]).await?.try_get(0)?;
    let statement = client.prepare_cached(HELD).await?;
    let rows = client.query(&statement, &[&tenants, &media]).await?;
    let each = rows.iter().map(|row| {
        Ok(HeldCopy {
            tenant_id: row.try_get(0)?,
            media_id: row.try_get(1)?,
            copy_status: row.try_get(2)?,
            size_bytes: row.try_get(3)?,
            copied_at: row.try_get(4)?,
            sha256: row.try_get(5)?,
        })
    });
    Ok(CopyAnswer { copies, media: each.collect::<Result<_, pg::Error>>()? })
}
