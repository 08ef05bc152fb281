//! Sessions: their events, one row, in whichever order they come.
//!
//! Of several `created` events of one session the earliest counts, of several `finalized` or `cancelled`
//! ones the latest; ties go by event id. So the row is the same after any order and any repetition.

use std::collections::BTreeMap;

use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use serde::Deserialize;
use uuid::Uuid;

use super::event::Event;

#[derive(Debug, Deserialize)]
struct Created {
    batch_id: Option<Uuid>,
    initial_weight_kg: f64,
}

#[derive(Debug, Deserialize)]
struct Finalized {
    final_weight_kg: f64,
    image_count: i64,
    inference_result_id: Option<Uuid>,
}

/// What a `finalized` event says of the session's results, where its sender says it.
#[derive(Debug, Default, Deserialize)]
struct Results {
    inference_result_count: Option<u32>,
    inference_result_ids: Option<Vec<Uuid>>,
}

#[derive(Debug, Deserialize)]
struct Cancelled {
    reason: Option<String>,
}

/// When an event counts before another: Postgres keeps microseconds, so those decide here too.
fn order(event: &Event) -> (i64, Uuid) {
    (event.envelope.occurred_at.as_microsecond(), event.id())
}

/// One event for each session, chosen by `better`, in the order of the key so that two replicas lock
/// in the same order.
fn pick<'a>(
    events: &'a [Event],
    kind: &EventType,
    better: impl Fn((i64, Uuid), (i64, Uuid)) -> bool,
) -> BTreeMap<(Uuid, Uuid), &'a Event> {
    let mut picked: BTreeMap<(Uuid, Uuid), &Event> = BTreeMap::new();
    for event in events.iter().filter(|event| event.envelope.event_type == *kind) {
        let Some(session) = event.session() else { continue };
        let slot = picked.entry((event.tenant(), session)).or_insert(event);
        if better(order(event), order(slot)) {
            *slot = event;
        }
    }
    picked
}

/// Stores the sessions of a batch in `table`, which has the columns of a session.
pub(super) async fn upsert(
    transaction: &Transaction<'_>,
    table: &'static str,
    events: &[Event],
) -> Result<(), pg::Error> {
    created(transaction, table, events).await?;
    finalized(transaction, table, events).await
}

/// The columns that both halves have.
#[derive(Default)]
struct Columns {
    tenants: Vec<Uuid>,
    sessions: Vec<Uuid>,
    farms: Vec<Option<Uuid>>,
    barns: Vec<Option<Uuid>>,
    devices: Vec<Option<Uuid>>,
    ids: Vec<Uuid>,
    times: Vec<Timestamp>,
}

impl Columns {
    fn push(&mut self, session: Uuid, event: &Event) {
        self.tenants.push(event.tenant());
        self.sessions.push(session);
        self.farms.push(event.farm());
        self.barns.push(event.barn());
        self.devices.push(event.device());
        self.ids.push(event.id());
        self.times.push(event.envelope.occurred_at);
    }
}

async fn created(
    transaction: &Transaction<'_>,
    table: &'static str,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut columns = Columns::default();
    let (mut batches, mut weights) = (Vec::new(), Vec::new());
    for ((_, session), event) in pick(events, &EventType::SESSION_CREATED, |a, b| a < b) {
        let Some(payload) = event.payload::<Created>() else { continue };
        columns.push(session, event);
        batches.push(payload.batch_id);
        weights.push(payload.initial_weight_kg);
    }
    if columns.ids.is_empty() {
        return Ok(());
    }
    // The place of the session is that of its `created` event, once that has come.
    let statement = format!(
        "INSERT INTO {table} AS t (tenant_id, session_id, farm_id, barn_id, device_id,
             created_event_id, created_at, batch_id, initial_weight_kg)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::timestamptz[], $8::uuid[], $9::float8[])
         ON CONFLICT (tenant_id, session_id) DO UPDATE SET
             farm_id = excluded.farm_id, barn_id = excluded.barn_id,
             device_id = excluded.device_id, created_event_id = excluded.created_event_id,
             created_at = excluded.created_at, batch_id = excluded.batch_id,
             initial_weight_kg = excluded.initial_weight_kg, updated_at = now()
         WHERE t.created_at IS NULL OR (excluded.created_at, excluded.created_event_id)
             < (t.created_at, t.created_event_id)"
    );
    let statement = transaction.prepare_cached(&statement).await?;
    let Columns { tenants, sessions, farms, barns, devices, ids, times } = &columns;
    transaction
        .execute(
            &statement,
            &[tenants, sessions, farms, barns, devices, ids, times, &batches, &weights],
        )
        .await?;
    Ok(())
}

async fn finalized(
    transaction: &Transaction<'_>,
    table: &'static str,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut columns = Columns::default();
    let (mut weights, mut images, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for ((_, session), event) in pick(events, &EventType::SESSION_FINALIZED, |a, b| a > b) {
        let Some(payload) = event.payload::<Finalized>() else { continue };
        columns.push(session, event);
        weights.push(payload.final_weight_kg);
        images.push(payload.image_count);
        results.push(payload.inference_result_id);
    }
    if columns.ids.is_empty() {
        return Ok(());
    }
    let statement = format!(
        "INSERT INTO {table} AS t (tenant_id, session_id, farm_id, barn_id, device_id,
             finalized_event_id, finalized_at, final_weight_kg, image_count, inference_result_id)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::timestamptz[], $8::float8[], $9::bigint[], $10::uuid[])
         ON CONFLICT (tenant_id, session_id) DO UPDATE SET
             farm_id = CASE WHEN t.created_at IS NULL THEN excluded.farm_id ELSE t.farm_id END,
             barn_id = CASE WHEN t.created_at IS NULL THEN excluded.barn_id ELSE t.barn_id END,
             device_id =
                 CASE WHEN t.created_at IS NULL THEN excluded.device_id ELSE t.device_id END,
             finalized_event_id = excluded.finalized_event_id,
             finalized_at = excluded.finalized_at, final_weight_kg = excluded.final_weight_kg,
             image_count = excluded.image_count,
             inference_result_id = excluded.inference_result_id, updated_at = now()
         WHERE t.finalized_at IS NULL OR (excluded.finalized_at, excluded.finalized_event_id)
             > (t.finalized_at, t.finalized_event_id)"
    );
    let statement = transaction.prepare_cached(&statement).await?;
    let Columns { tenants, sessions, farms, barns, devices, ids, times } = &columns;
    transaction
        .execute(
            &statement,
            &[tenants, sessions, farms, barns, devices, ids, times, &weights, &images, &results],
        )
        .await?;
    Ok(())
}

/// Notes which results the finalized sessions of a batch must have to be complete. After [`upsert`]: it
/// goes by the event that counts.
pub(super) async fn expect_results(
    transaction: &Transaction<'_>,
    events: &[Event],
) -> Result<(), pg::Error> {
    let (mut tenants, mut sessions, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    let (mut counts, mut named) = (Vec::new(), Vec::new());
    for ((tenant, session), event) in pick(events, &EventType::SESSION_FINALIZED, |a, b| a > b) {
        // These fields are not part of the contract, so they may be anything.
        let results = event.payload::<Results>().unwrap_or_default();
        tenants.push(tenant);
        sessions.push(session);
        ids.push(event.id());
        counts.push(results.inference_result_count.map(i64::from));
        named.push(results.inference_result_ids.map(|ids| serde_json::json!(ids)));
    }
    if ids.is_empty() {
        return Ok(());
    }
    let statement = "UPDATE weighvision_session AS t
         SET inference_result_count = u.results, inference_result_ids = u.named
         FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::jsonb[])
             AS u (tenant, session, event, results, named)
         WHERE t.tenant_id = u.tenant AND t.session_id = u.session AND t.finalized_event_id = u.event
             AND (t.inference_result_count, t.inference_result_ids)
                 IS DISTINCT FROM (u.results, u.named)";
    let statement = transaction.prepare_cached(statement).await?;
    transaction.execute(&statement, &[&tenants, &sessions, &ids, &counts, &named]).await?;
    Ok(())
}

/// Stores that sessions of a batch were cancelled, in a table as [`upsert`] has it.
pub(super) async fn cancel(
    transaction: &Transaction<'_>,
    table: &'static str,
    events: &[Event],
) -> Result<(), pg::Error> {
    let mut columns = Columns::default();
    let mut reasons = Vec::new();
    for ((_, session), event) in pick(events, &EventType::SESSION_CANCELLED, |a, b| a > b) {
        let Some(payload) = event.payload::<Cancelled>() else { continue };
        columns.push(session, event);
        reasons.push(payload.reason);
    }
    if columns.ids.is_empty() {
        return Ok(());
    }
    let statement = format!(
        "INSERT INTO {table} AS t (tenant_id, session_id, farm_id, barn_id,
             device_id, cancelled_event_id, cancelled_at, cancel_reason)
         SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[],
             $6::uuid[], $7::timestamptz[], $8::text[])
         ON CONFLICT (tenant_id, session_id) DO UPDATE SET
             cancelled_event_id = excluded.cancelled_event_id,
             cancelled_at = excluded.cancelled_at, cancel_reason = excluded.cancel_reason,
             updated_at = now()
         WHERE t.cancelled_at IS NULL OR (excluded.cancelled_at, excluded.cancelled_event_id)
             > (t.cancelled_at, t.cancelled_event_id)"
    );
    let statement = transaction.prepare_cached(&statement).await?;
    let Columns { tenants, sessions, farms, barns, devices, ids, times } = &columns;
    transaction
        .execute(&statement, &[tenants, sessions, farms, barns, devices, ids, times, &reasons])
        .await?;
    Ok(())
}
