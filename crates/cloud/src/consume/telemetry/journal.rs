//! `event_journal`: events of types that have no table of their own.

use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use uuid::Uuid;

use crate::consume::event::Event;

const INSERT: &str = "INSERT INTO event_journal (tenant_id, occurred_at, event_id, event_type,
         farm_id, barn_id, device_id, session_id, trace_id, payload)
     SELECT a, b, c, d, e, f, g, h, i, j::jsonb
     FROM unnest($1::uuid[], $2::timestamptz[], $3::uuid[], $4::text[], $5::uuid[], $6::uuid[],
         $7::uuid[], $8::uuid[], $9::text[], $10::text[]) AS u (a, b, c, d, e, f, g, h, i, j)
     ON CONFLICT DO NOTHING";

/// Stores the events of a batch that nothing else stores. Core events have their tables, here or at
/// another service; so has a session that was cancelled.
pub(super) async fn insert(
    transaction: &Transaction<'_>,
    events: &[Event],
) -> Result<(), pg::Error> {
    let other = |event: &&Event| {
        let kind = &event.envelope.event_type;
        !EventType::CORE.contains(kind) && *kind != EventType::SESSION_CANCELLED
    };
    let mut others: Vec<&Event> = events.iter().filter(other).collect();
    if others.is_empty() {
        return Ok(());
    }
    others.sort_by_key(|event| (event.tenant(), event.envelope.occurred_at, event.id()));
    let of = |get: fn(&Event) -> Option<Uuid>| -> Vec<Option<Uuid>> {
        others.iter().map(|event| get(event)).collect()
    };
    let tenants: Vec<Uuid> = others.iter().map(|event| event.tenant()).collect();
    let times: Vec<Timestamp> = others.iter().map(|event| event.envelope.occurred_at).collect();
    let ids: Vec<Uuid> = others.iter().map(|event| event.id()).collect();
    let kinds: Vec<&str> = others.iter().map(|event| event.envelope.event_type.as_str()).collect();
    let traces: Vec<Option<&str>> =
        others.iter().map(|event| event.envelope.trace_id.as_deref()).collect();
    let payloads: Vec<&str> = others.iter().map(|event| event.envelope.payload.get()).collect();
    let statement = transaction.prepare_cached(INSERT).await?;
    transaction
        .execute(
            &statement,
            &[
                &tenants,
                &times,
                &ids,
                &kinds,
                &of(Event::farm),
                &of(Event::barn),
                &of(Event::device),
                &of(Event::session),
                &traces,
                &payloads,
            ],
        )
        .await?;
    Ok(())
}
