//! A new session, once for each key.

use event::farm::EventType;
use event::id::{BarnId, BatchId, DeviceId, FarmId, SessionId, TenantId};
use jiff::Timestamp;
use serde_json::json;

use super::{COLUMNS, Fault, Session, told};
use crate::outbox;

/// What a session is made of.
#[derive(Debug)]
pub(super) struct NewSession {
    pub(super) tenant_id: TenantId,
    pub(super) farm_id: FarmId,
    pub(super) barn_id: BarnId,
    pub(super) device_id: DeviceId,
    pub(super) batch_id: Option<BatchId>,
    pub(super) initial_weight_kg: f64,
    pub(super) start_at: Timestamp,
    pub(super) trace_id: Option<String>,
    /// What makes it one session.
    pub(super) key: String,
    /// What the request said, for those who use the key again.
    pub(super) digest: [u8; 32],
}

/// Makes a session, or finds the one that was made with this key. True when it is new.
pub(super) async fn create(pool: &pg::Pool, new: &NewSession) -> Result<(Session, bool), Fault> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    // A second request with this key waits here until the first has committed.
    let insert = format!(
        "INSERT INTO weight_sessions (id, tenant_id, farm_id, barn_id, device_id, batch_id, start_at,
             initial_weight_kg, idempotency_key, request_sha256)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         ON CONFLICT (tenant_id, idempotency_key) DO NOTHING RETURNING {COLUMNS}"
    );
    let made = transaction
        .query_opt(
            &insert,
            &[
                &SessionId::mint().uuid(),
                &new.tenant_id.uuid(),
                &new.farm_id.uuid(),
                &new.barn_id.uuid(),
                &new.device_id.uuid(),
                &new.batch_id.map(BatchId::uuid),
                &new.start_at,
                &new.initial_weight_kg,
                &new.key,
                &new.digest.as_slice(),
            ],
        )
        .await?;
    let Some(row) = made else {
        let found = format!(
            "SELECT {COLUMNS}, request_sha256 = $3 FROM weight_sessions
             WHERE tenant_id = $1 AND idempotency_key = $2"
        );
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&new.tenant_id.uuid(), &new.key, &new.digest.as_slice()];
        // It may have been removed since; then it is as if it had never been.
        let row = transaction.query_opt(&found, &values).await?.ok_or(Fault::KeyReused)?;
        return match row.try_get(16)? {
            true => Ok((Session::read(&row)?, false)),
            false => Err(Fault::KeyReused),
        };
    };
    let session = Session::read(&row)?;
    let payload = json!({
        "status": session.status,
        "batch_id": session.batch_id,
        "initial_weight_kg": session.initial_weight_kg,
    });
    let (kind, at) = (EventType::SESSION_CREATED, session.start_at);
    let event = told::event(&session, kind, at, new.trace_id.clone(), &payload)?;
    outbox::add(&transaction, &event).await?;
    transaction.commit().await?;
    Ok((session, true))
}
