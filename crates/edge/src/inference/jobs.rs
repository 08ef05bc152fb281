//! `inference_jobs`: images that wait for the model.

use event::id::{MediaId, TenantId};
use uuid::Uuid;

const ADD: &str = "INSERT INTO inference_jobs (id, tenant_id, media_id) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, media_id) DO NOTHING";

/// Asks for the evaluation of an image, in the transaction that stores it. An image that has a job
/// keeps the one it has.
pub async fn enqueue(
    transaction: &pg::Transaction<'_>,
    tenant: TenantId,
    media: MediaId,
) -> Result<(), pg::Error> {
    let statement = transaction.prepare_cached(ADD).await?;
    transaction.execute(&statement, &[&Uuid::now_v7(), &tenant.uuid(), &media.uuid()]).await?;
    Ok(())
}
