//! How a service hands an event to the cloud: a row of `sync_outbox`, in the service's own transaction.
//!
//! Promise: the event is there if and only if what it tells of is. Ingress has a bulk way of its own; the forwarder owns the rows from
//! then on. An id that is there already is an error of the caller: an event is minted once.

use event::Class;
use event::farm::Envelope;
use event::id::{BarnId, DeviceId, FarmId, SessionId};
use tokio_postgres::types::{Json, ToSql};
use uuid::Uuid;

const ADD: &str = "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id, session_id,
    event_type, occurred_at, trace_id, payload_json, payload_size_bytes, priority)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const ADD_ALL: &str =
    "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id, session_id,
    event_type, occurred_at, trace_id, payload_json, payload_size_bytes, priority)
SELECT a, b, c, d, e, f, g, h, i, j::jsonb, octet_length(j), k
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::uuid[], $7::text[],
    $8::timestamptz[], $9::text[], $10::text[], $11::int[]) AS n (a, b, c, d, e, f, g, h, i, j, k)";

/// The priority of a notice of what the site gave up: it goes first, and no limit takes it.
pub(crate) const NOTICE: i32 = 30;

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

/// Adds many events at once.
pub(crate) async fn add_all(
    transaction: &pg::Transaction<'_>,
    envelopes: &[Envelope],
) -> Result<(), pg::Error> {
    if envelopes.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(ADD_ALL).await?;
    insert_all(transaction, &statement, envelopes).await
}

/// The same on a connection that is not the pool's, and remembers no statements.
pub(crate) async fn add_all_uncached(
    transaction: &tokio_postgres::Transaction<'_>,
    envelopes: &[Envelope],
) -> Result<(), pg::Error> {
    let statement = transaction.prepare(ADD_ALL).await?;
    insert_all(transaction, &statement, envelopes).await
}

async fn insert_all(
    transaction: &tokio_postgres::Transaction<'_>,
    statement: &tokio_postgres::Statement,
    envelopes: &[Envelope],
) -> Result<(), pg::Error> {
    let of = |get: fn(&Envelope) -> Option<Uuid>| -> Vec<Option<Uuid>> {
        envelopes.iter().map(get).collect()
    };
    let values: [&(dyn ToSql + Sync); 11] = [
        &of(|one| Some(one.event_id.uuid())),
        &of(|one| Some(one.tenant_id.uuid())),
        &of(|one| one.farm_id.map(FarmId::uuid)),
        &of(|one| one.barn_id.map(BarnId::uuid)),
        &of(|one| one.device_id.map(DeviceId::uuid)),
        &of(|one| one.session_id.map(SessionId::uuid)),
        &envelopes.iter().map(|one| one.event_type.as_str()).collect::<Vec<_>>(),
        &envelopes.iter().map(|one| one.occurred_at).collect::<Vec<_>>(),
        &envelopes.iter().map(|one| one.trace_id.as_deref()).collect::<Vec<_>>(),
        &envelopes.iter().map(|one| one.payload.get()).collect::<Vec<_>>(),
        &envelopes.iter().map(|one| priority(one.class())).collect::<Vec<_>>(),
    ];
    transaction.execute(statement, &values).await?;
    Ok(())
}
