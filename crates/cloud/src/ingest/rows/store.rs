//! `ingest_dedupe`, `relay_outbox`.

use std::collections::{BTreeSet, HashSet};
use std::pin::pin;

use event::id::{EventId, TenantId};
use pg::Transaction;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::bigint;
use crate::RELAY_CHANNEL;
use crate::ingest::request::Event;
use crate::ingest::write::Error;
use crate::trace::Traceparent;

/// Puts ids into the cache; returns those that it did not have. An id that another transaction is
/// about to put there is waited for.
pub(crate) async fn insert_dedupe(
    transaction: &Transaction<'_>,
    ids: &BTreeSet<(TenantId, EventId)>,
) -> Result<HashSet<(TenantId, EventId)>, Error> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let statement = transaction
        .prepare_cached(
            // One row of two arrays: a row for each id would cost as much as its insertion.
            "WITH new AS (
                 INSERT INTO ingest_dedupe (tenant_id, event_id)
                 SELECT * FROM unnest($1::uuid[], $2::uuid[])
                 ON CONFLICT DO NOTHING RETURNING tenant_id, event_id)
             SELECT coalesce(array_agg(tenant_id), '{}'), coalesce(array_agg(event_id), '{}')
             FROM new",
        )
        .await?;
    let tenants: Vec<Uuid> = ids.iter().map(|(tenant, _)| tenant.uuid()).collect();
    let events: Vec<Uuid> = ids.iter().map(|(_, event)| event.uuid()).collect();
    let row = transaction.query_one(&statement, &[&tenants, &events]).await?;
    let (tenants, events): (Vec<Uuid>, Vec<Uuid>) = (row.get(0), row.get(1));
    let new = tenants.into_iter().zip(events).filter_map(|(tenant, event)| {
        Some((TenantId::from_uuid(tenant).ok()?, EventId::from_uuid(event).ok()?))
    });
    Ok(new.collect())
}

const AGAIN: &str = "WITH noted AS (
         SELECT t.tenant_id, t.event_id FROM ingest_again t
         JOIN unnest($1::uuid[], $2::uuid[]) AS k (tenant_id, event_id)
             ON t.tenant_id = k.tenant_id AND t.event_id = k.event_id
         ORDER BY 1, 2 FOR UPDATE OF t),
     taken AS (
         DELETE FROM ingest_again t USING noted n
         WHERE t.tenant_id = n.tenant_id AND t.event_id = n.event_id
         RETURNING t.tenant_id, t.event_id),
     renewed AS (
         UPDATE ingest_dedupe d SET first_seen_at = now() FROM taken t
         WHERE d.tenant_id = t.tenant_id AND d.event_id = t.event_id)
     SELECT tenant_id, event_id FROM taken";

/// Of events that were accepted before, those that are to be published again: their notes are taken away, and they count as
/// accepted now, so that they have time again to come to a store. One that another
/// transaction is taking is waited for, and is not ours then.
pub(crate) async fn take_asked_again<'a>(
    transaction: &Transaction<'_>,
    known: &[&'a Event],
) -> Result<Vec<&'a Event>, Error> {
    if known.is_empty() {
        return Ok(Vec::new());
    }
    let tenants: Vec<Uuid> = known.iter().map(|event| event.envelope.tenant_id.uuid()).collect();
    let ids: Vec<Uuid> = known.iter().map(|event| event.envelope.event_id.uuid()).collect();
    let statement = transaction.prepare_cached(AGAIN).await?;
    let rows = transaction.query(&statement, &[&tenants, &ids]).await?;
    let mut taken: HashSet<(Uuid, Uuid)> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    // Once, though the batch may have it twice.
    let again = known.iter().copied().filter(|event| {
        taken.remove(&(event.envelope.tenant_id.uuid(), event.envelope.event_id.uuid()))
    });
    Ok(again.collect())
}

const RELAY: &str = "COPY relay_outbox (tenant_id, event_id, event_type, occurred_at, trace_id,
    routing_key, ordering_key, priority, envelope, stream, epoch, seq, traceparent)
    FROM STDIN BINARY";

const RELAY_TYPES: [Type; 13] = [
    Type::UUID,
    Type::UUID,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
    Type::BYTEA,
    Type::TEXT,
    Type::UUID,
    Type::INT8,
    Type::TEXT,
];

/// Hands accepted events over to the relay, in their order.
pub(crate) async fn copy_relay(
    transaction: &Transaction<'_>,
    events: &[&Event],
    trace: Traceparent,
) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(RELAY).await?;
    let sink = transaction.copy_in(&statement).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &RELAY_TYPES));
    let traceparent = trace.to_string();
    for event in events {
        let envelope = &event.envelope;
        let place = event.place.as_ref();
        let values: [&(dyn ToSql + Sync); 13] = [
            &envelope.tenant_id.uuid(),
            &envelope.event_id.uuid(),
            &envelope.event_type.as_str(),
            &envelope.occurred_at,
            &envelope.trace_id,
            &envelope.event_type.routing_key(),
            &event.ordering_key(),
            &event.priority(),
            &envelope.to_json().into_bytes(),
            &place.map(|place| place.stream.as_str()),
            &place.map(|place| place.epoch.uuid()),
            &place.map(|place| bigint(place.seq)),
            &traceparent,
        ];
        writer.as_mut().write(&values).await?;
    }
    writer.finish().await?;
    Ok(())
}

/// Wakes the relay, once the transaction has committed, if there is something new for it.
pub(crate) async fn notify(transaction: &Transaction<'_>, new: bool) -> Result<(), Error> {
    if !new {
        return Ok(());
    }
    let statement = transaction.prepare_cached("SELECT pg_notify($1, '')").await?;
    transaction.execute(&statement, &[&RELAY_CHANNEL]).await?;
    Ok(())
}
