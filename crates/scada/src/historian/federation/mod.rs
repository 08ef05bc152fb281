//! From one historian to a second: what was newly stored goes to `federation_outbox` in the same transaction, and from there in order
//! per tag to the second's HTTP, by the same engine as a node's outbox.
//!
//! An event that came from another historian is not sent on, so two that send to each other do not go round in circles.

mod remote;

use std::collections::BTreeSet;

use event::scada::AssetName;
use uuid::Uuid;

use super::record::Record;
use crate::outbox::Headers;

pub use remote::Remote;
pub(super) use remote::{Answer, MAX_BODY_BYTES, MAX_EVENTS, Request, Verdict};

/// Which plants' events are sent on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plants {
    /// Every plant's.
    All,
    /// These plants'.
    Only(BTreeSet<String>),
}

impl Plants {
    fn allow(&self, plant: &AssetName) -> bool {
        match self {
            Plants::All => true,
            Plants::Only(plants) => plants.contains(plant.as_str()),
        }
    }
}

/// Events of one batch get times one after the other, so that they leave in their order.
const PUT: &str = "INSERT INTO federation_outbox
    (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at)
SELECT id, kind, aggregate, type, payload::jsonb, headers::jsonb,
    clock_timestamp() + place * interval '1 microsecond'
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
    WITH ORDINALITY AS n (id, kind, aggregate, type, payload, headers, place)
ON CONFLICT DO NOTHING";

/// Puts what a second historian is to get into the outbox.
pub(super) async fn put(
    transaction: &pg::Transaction<'_>,
    new: &[&Record],
    plants: &Plants,
) -> Result<(), pg::Error> {
    let sent: Vec<&&Record> =
        new.iter().filter(|record| plants.allow(&record.envelope.asset.plant)).collect();
    if sent.is_empty() {
        return Ok(());
    }
    let cause = Uuid::now_v7().to_string();
    let ids: Vec<Uuid> = sent.iter().map(|record| record.envelope.event_id.uuid()).collect();
    let kinds: Vec<&str> = sent.iter().map(|record| record.envelope.category.as_str()).collect();
    let keys: Vec<String> = sent.iter().map(|record| record.envelope.partition_key()).collect();
    let tags: Vec<&str> = sent.iter().map(|record| record.envelope.tag.as_str()).collect();
    // A body that was read as an event is text.
    let bodies: Vec<&str> =
        sent.iter().map(|record| std::str::from_utf8(&record.body).unwrap_or_default()).collect();
    let headers: Vec<String> = sent
        .iter()
        .map(|record| {
            let mut headers = Headers::of(&record.envelope, &cause);
            if let Some(version) = &record.version {
                headers.schema_version.clone_from(version);
            }
            serde_json::to_string(&headers).unwrap_or_default()
        })
        .collect();
    let statement = transaction.prepare_cached(PUT).await?;
    transaction.execute(&statement, &[&ids, &kinds, &keys, &tags, &bodies, &headers]).await?;
    Ok(())
}
