//! How a service hands an event to the cloud: a row of `sync_outbox`, in the service's own transaction.
//!
//! Promise: the event is there if and only if what it tells of is. Ingress has a bulk way of its own; the forwarder owns the rows from
//! then on. An id that is there already is an error of the caller: an event is minted once.

use event::Class;
use event::farm::Envelope;
use event::id::{BarnId, DeviceId, FarmId, SessionId};
use tokio_postgres::types::Json;

const ADD: &str = "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id, session_id,
    event_type, occurred_at, trace_id, payload_json, payload_size_bytes, priority)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// Higher goes to the cloud first.
pub(crate) fn priority(class: Class) -> i32 {
    match class {
        Class::Alarm => 20,
        Class::Event => 10,
        Class::Telemetry => 0,
    }
}

/// Adds an event.
pub(crate) async fn add(
    transaction: &pg::Transaction<'_>,
    envelope: &Envelope,
) -> Result<(), pg::Error> {
    let statement = transaction.prepare_cached(ADD).await?;
    transaction
        .execute(
            &statement,
            &[
                &envelope.event_id.uuid(),
                &envelope.tenant_id.uuid(),
                &envelope.farm_id.map(FarmId::uuid),
                &envelope.barn_id.map(BarnId::uuid),
                &envelope.device_id.map(DeviceId::uuid),
                &envelope.session_id.map(SessionId::uuid),
                &envelope.event_type.as_str(),
                &envelope.occurred_at,
                &envelope.trace_id,
                &Json(&*envelope.payload),
                &i32::try_from(envelope.payload.get().len()).unwrap_or(i32::MAX),
                &priority(envelope.class()),
            ],
        )
        .await?;
    Ok(())
}
