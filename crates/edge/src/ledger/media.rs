//! Images for the comparison with the cloud: what the site has, what became of the events that told of it, and telling again.

use api::tokens::Tenants;
use event::id::{EventId, MediaId, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::media::{COLUMNS, Row, stored_event};
use crate::outbox;
use crate::sync::admin::{Actor, scope};

/// The most images in a page, and in one request to tell of them again.
pub const MAX_IMAGES: i64 = 1_000;

/// An image whose object is in the site's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The image.
    pub media_id: MediaId,
    /// Its size.
    pub size_bytes: i64,
    /// Its SHA-256 in hex, where the site knows it.
    pub sha256: Option<String>,
}

/// An event that told the cloud of an image, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageEvent {
    /// The image.
    pub media_id: MediaId,
    /// The event.
    pub event_id: EventId,
    /// Its state in the outbox.
    pub status: String,
}

const STORED: &str = "SELECT tenant_id, id, size_bytes, encode(sha256, 'hex') FROM media_objects
WHERE status = 'stored' AND ($1::uuid[] IS NULL OR tenant_id = ANY($1)) AND id > $2
ORDER BY id LIMIT $3";

/// Images whose object the site has, after one, in the order of their ids.
pub async fn stored(
    pool: &pg::Pool,
    tenants: &Tenants,
    after: Option<MediaId>,
) -> Result<Vec<StoredImage>, pg::Error> {
    let client = pool.get().await?;
    let after = after.map_or(Uuid::nil(), MediaId::uuid);
    let rows = client.query(STORED, &[&scope(tenants), &after, &MAX_IMAGES]).await?;
    let each = rows.iter().filter_map(|row| {
        Some(StoredImage {
            tenant_id: TenantId::from_uuid(row.get(0)).ok()?,
            media_id: MediaId::from_uuid(row.get(1)).ok()?,
            size_bytes: row.get(2),
            sha256: row.get(3),
        })
    });
    Ok(each.collect())
}

const EVENTS: &str = "SELECT (payload_json->>'media_id')::uuid, id, status FROM sync_outbox
WHERE tenant_id = $1 AND event_type = 'media.stored' AND lower(payload_json->>'media_id') = ANY($2)";

/// The events that told of some images, as far as the outbox still has them.
pub async fn events(
    pool: &pg::Pool,
    tenant: TenantId,
    images: &[MediaId],
) -> Result<Vec<ImageEvent>, pg::Error> {
    let client = pool.get().await?;
    let ids: Vec<String> = images.iter().map(ToString::to_string).collect();
    let rows = client.query(EVENTS, &[&tenant.uuid(), &ids]).await?;
    let each = rows.iter().filter_map(|row| {
        Some(ImageEvent {
            media_id: MediaId::from_uuid(row.get(0)).ok()?,
            event_id: EventId::from_uuid(row.get(1)).ok()?,
            status: row.get(2),
        })
    });
    Ok(each.collect())
}

/// Tells the cloud again of images that it does not know, at most [`MAX_IMAGES`]: a new `media.stored` for each that has none on its way. One
/// transaction with its audit; returns how many.
pub async fn tell_again(
    pool: &pg::Pool,
    actor: &Actor,
    tenant: TenantId,
    images: &[MediaId],
    dry_run: bool,
) -> Result<u64, pg::Error> {
    let limit = usize::try_from(MAX_IMAGES).unwrap_or(usize::MAX);
    let ids: Vec<Uuid> = images.iter().take(limit).map(|image| image.uuid()).collect();
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let text = format!(
        "SELECT {COLUMNS} FROM media_objects m WHERE tenant_id = $1 AND id = ANY($2) AND status = 'stored'
             AND NOT EXISTS (SELECT FROM sync_outbox o WHERE NOT o.finished AND o.tenant_id = $1
                 AND o.event_type = 'media.stored' AND lower(o.payload_json->>'media_id') = m.id::text)
         ORDER BY id FOR UPDATE"
    );
    let (mut told, mut told_of) = (Vec::new(), Vec::new());
    for row in transaction.query(&text, &[&tenant.uuid(), &ids]).await? {
        let row = Row::read(&row)?;
        match stored_event(&row, None) {
            Ok(envelope) => {
                told.push(envelope);
                told_of.push(row.id);
            }
            Err(error) => tracing::warn!(media_id = %row.id, %error, "an image is passed over"),
        }
    }
    let count = told.len() as u64;
    if dry_run || told.is_empty() {
        transaction.rollback().await?;
        return Ok(count);
    }
    outbox::add_all(&transaction, &told).await?;
    // From here on the new event says how the image stands, not the one that did not arrive.
    for told_now in [
        "UPDATE media_objects SET untold_at = NULL WHERE id = ANY($1) AND untold_at IS NOT NULL",
        "UPDATE outbox_archive SET media_id = NULL WHERE media_id = ANY($1)",
    ] {
        transaction.execute(told_now, &[&told_of]).await?;
    }
    let filter = actor.noted(json!({"tenant_id": tenant, "media_ids": ids}));
    let audit = "INSERT INTO sync_audit (action, via, actor, filter, rows)
        VALUES ('verify_repair', $1, $2, $3, $4)";
    let rows = count.cast_signed();
    transaction.execute(audit, &[&actor.via(), &actor.name(), &filter, &rows]).await?;
    transaction.execute("SELECT pg_notify('sync_outbox', '')", &[]).await?;
    transaction.commit().await?;
    tracing::info!(%tenant, actor = actor.name(), count, "the cloud is told of images again");
    Ok(count)
}
