//! `stored_event`: ids of events that are stored and whose id no row need have.
//!
//! A reading and an event of the journal have a row of their own. Aggregates have no id, and of several events about one session,
//! result, batch or image one counts: without this nobody could tell one that did not count from one that was lost on the way.

use std::collections::BTreeSet;

use event::farm::EventType;
use pg::Transaction;
use uuid::Uuid;

use super::event::Event;

/// The time is that of the last delivery, so that an id is here for as long as ingestion remembers it.
const NOTE: &str = "INSERT INTO stored_event AS t (tenant_id, event_id)
     SELECT * FROM unnest($1::uuid[], $2::uuid[])
     ON CONFLICT (tenant_id, event_id) DO UPDATE SET stored_at = excluded.stored_at";

/// Notes the events of a batch whose type is `meant`, in the transaction that stores them.
pub(super) async fn note(
    transaction: &Transaction<'_>,
    events: &[Event],
    meant: impl Fn(&EventType) -> bool,
) -> Result<(), pg::Error> {
    let picked = events.iter().filter(|event| meant(&event.envelope.event_type));
    let keys: BTreeSet<(Uuid, Uuid)> = picked.map(|event| (event.tenant(), event.id())).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let (tenants, ids): (Vec<Uuid>, Vec<Uuid>) = keys.into_iter().unzip();
    let statement = transaction.prepare_cached(NOTE).await?;
    transaction.execute(&statement, &[&tenants, &ids]).await?;
    Ok(())
}

/// Types that the telemetry service stores without a row that has their id for certain.
pub(super) fn without_a_row(kind: &EventType) -> bool {
    let elsewhere = [EventType::TELEMETRY_INGESTED, EventType::MEDIA_STORED];
    *kind == EventType::SESSION_CANCELLED
        || (EventType::CORE.contains(kind) && !elsewhere.contains(kind))
}
