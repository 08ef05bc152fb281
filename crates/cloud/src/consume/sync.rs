//! Batches: what the sites say about those they sent, one row each, in whichever order it comes.

use std::collections::BTreeMap;

use event::farm::EventType;
use jiff::Timestamp;
use pg::Transaction;
use serde::Deserialize;
use uuid::Uuid;

use super::event::Event;

#[derive(Debug, Deserialize)]
struct Batch {
    batch_id: String,
    event_count: i64,
    edge_cluster_id: Option<String>,
}

/// Of several events of one kind about one batch the latest counts.
const SENT: &str = "INSERT INTO {table} AS t (tenant_id, batch_id, sent_event_id, sent_at,
         sent_count, edge_cluster_id)
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::timestamptz[], $5::bigint[],
         $6::text[])
     ON CONFLICT (tenant_id, batch_id) DO UPDATE SET sent_event_id = excluded.sent_event_id,
         sent_at = excluded.sent_at, sent_count = excluded.sent_count,
         edge_cluster_id = excluded.edge_cluster_id
     WHERE t.sent_at IS NULL
         OR (excluded.sent_at, excluded.sent_event_id) > (t.sent_at, t.sent_event_id)";

const ACKED: &str = "INSERT INTO {table} AS t (tenant_id, batch_id, acked_event_id, acked_at,
         acked_count)
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::timestamptz[], $5::bigint[])
     ON CONFLICT (tenant_id, batch_id) DO UPDATE SET acked_event_id = excluded.acked_event_id,
         acked_at = excluded.acked_at, acked_count = excluded.acked_count
     WHERE t.acked_at IS NULL
         OR (excluded.acked_at, excluded.acked_event_id) > (t.acked_at, t.acked_event_id)";

/// Stores what a batch of events says about batches in `table`, which has the columns of a batch.
pub(super) async fn upsert(
    transaction: &Transaction<'_>,
    table: &'static str,
    events: &[Event],
) -> Result<(), pg::Error> {
    for (kind, text) in [(EventType::SYNC_BATCH_SENT, SENT), (EventType::SYNC_BATCH_ACKED, ACKED)] {
        let picked = pick(events, &kind);
        if picked.is_empty() {
            continue;
        }
        let statement = transaction.prepare_cached(&text.replace("{table}", table)).await?;
        let tenants: Vec<Uuid> = picked.keys().map(|(tenant, _)| *tenant).collect();
        let batches: Vec<&str> = picked.keys().map(|(_, batch)| batch.as_str()).collect();
        let ids: Vec<Uuid> = picked.values().map(|(event, _)| event.id()).collect();
        let times: Vec<Timestamp> =
            picked.values().map(|(event, _)| event.envelope.occurred_at).collect();
        let counts: Vec<i64> = picked.values().map(|(_, batch)| batch.event_count).collect();
        let clusters: Vec<Option<&str>> =
            picked.values().map(|(_, batch)| batch.edge_cluster_id.as_deref()).collect();
        if kind == EventType::SYNC_BATCH_SENT {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&tenants, &batches, &ids, &times, &counts, &clusters];
            transaction.execute(&statement, &values).await?;
        } else {
            transaction.execute(&statement, &[&tenants, &batches, &ids, &times, &counts]).await?;
        }
    }
    Ok(())
}

fn pick<'a>(events: &'a [Event], kind: &EventType) -> BTreeMap<(Uuid, String), (&'a Event, Batch)> {
    let mut picked: BTreeMap<(Uuid, String), (&Event, Batch)> = BTreeMap::new();
    let order = |event: &Event| (event.envelope.occurred_at.as_microsecond(), event.id());
    for event in events.iter().filter(|event| event.envelope.event_type == *kind) {
        let Some(batch) = event.payload::<Batch>() else { continue };
        let key = (event.tenant(), batch.batch_id.clone());
        if picked.get(&key).is_none_or(|(held, _)| order(held) < order(event)) {
            picked.insert(key, (event, batch));
        }
    }
    picked
}
