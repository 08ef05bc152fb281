//! Writing: the only way for an event to leave a node.

use event::id::EventId;
use event::scada::{Category, Envelope};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Json;
use uuid::Uuid;

use crate::analytics::{self, Reduced};

/// The version of the envelope that is written.
pub const SCHEMA_VERSION: &str = "1.0.0";

/// What goes with a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Headers {
    /// The same for all events of one cause: here, of one cycle.
    pub correlation_id: String,
    /// The trace, 32 hexadecimal digits.
    pub trace_id: String,
    /// See [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// Where it is published.
    pub topic: String,
    /// What keeps its order.
    pub partition_key: String,
    /// When the sensor measured.
    pub source_timestamp: String,
}

impl Headers {
    /// The headers of an event.
    pub fn of(envelope: &Envelope, correlation_id: &str) -> Headers {
        Headers {
            correlation_id: correlation_id.to_owned(),
            trace_id: Uuid::new_v4().simple().to_string(),
            schema_version: SCHEMA_VERSION.to_owned(),
            topic: envelope.topic().name().to_owned(),
            partition_key: envelope.partition_key(),
            source_timestamp: envelope.timestamp.to_string(),
        }
    }
}

/// The clock is read for each row, in the order in which they are given: several cycles of one transaction stay one after the other.
const ADD: &str = "INSERT INTO outbox_events
    (id, aggregate_type, aggregate_id, event_type, payload, headers, created_at)
SELECT id, kind, aggregate, type, payload::jsonb, headers::jsonb, clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
    AS n(id, kind, aggregate, type, payload, headers)";

const CACHE: &str = "INSERT INTO local_telemetry
    (id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id)
SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::float8[], $8::text[], $9::text[], $10::int4[])
ON CONFLICT DO NOTHING";

const ADD_ONE: &str = "INSERT INTO outbox_events
    (id, aggregate_type, aggregate_id, event_type, payload, headers)
VALUES ($1, $2, $3, $4, $5, $6)";

/// Writes events to a node's outbox.
#[derive(Debug, Clone)]
pub struct Outbox {
    pool: pg::Pool,
}

impl Outbox {
    /// An outbox in this database.
    pub fn new(pool: pg::Pool) -> Outbox {
        Outbox { pool }
    }

    /// One event. The same id a second time is an error of the caller.
    pub async fn write_event(&self, envelope: &Envelope) -> Result<(), pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        add_one(&transaction, envelope).await?;
        Ok(transaction.commit().await?)
    }

    /// Many events; those that are there already stay as they are. Returns how many were new.
    pub async fn write_batch(&self, envelopes: &[Envelope]) -> Result<u64, pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let added = add(&transaction, &[envelopes]).await?;
        transaction.commit().await?;
        Ok(added)
    }

    /// One measurement, for the bus and for the node itself.
    pub async fn write_event_with_local_cache(&self, envelope: &Envelope) -> Result<(), pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        add_one(&transaction, envelope).await?;
        cache(&transaction, &[std::slice::from_ref(envelope)]).await?;
        Ok(transaction.commit().await?)
    }

    /// What a cycle made: all of it for the bus, the measurements for the node itself too. Those that are there already stay as
    /// they are. Returns how many were new.
    pub async fn write_cycle(&self, envelopes: &[Envelope]) -> Result<u64, pg::Error> {
        self.write_cycles(&[envelopes]).await
    }

    /// The same for several cycles, in their order: to catch up.
    pub async fn write_cycles(&self, cycles: &[&[Envelope]]) -> Result<u64, pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let added = add(&transaction, cycles).await?;
        cache(&transaction, cycles).await?;
        transaction.commit().await?;
        Ok(added)
    }

    /// What was left of a cycle, with the ledger of what was not: as [`Outbox::write_cycle`], and the counts, once.
    pub async fn write_reduced(&self, reduced: &Reduced) -> Result<u64, pg::Error> {
        self.write_all_reduced(&[reduced]).await
    }

    /// The same for several cycles, in their order: to catch up.
    pub async fn write_all_reduced(&self, all: &[&Reduced]) -> Result<u64, pg::Error> {
        let cycles: Vec<&[Envelope]> = all
            .iter()
            .map(|reduced| reduced.envelopes.as_slice())
            .filter(|cycle| !cycle.is_empty())
            .collect();
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        // A cycle may be reduced to nothing: then nobody is woken for it.
        let added = if cycles.is_empty() { 0 } else { add(&transaction, &cycles).await? };
        cache(&transaction, &cycles).await?;
        for reduced in all {
            analytics::count(&transaction, &reduced.counts).await?;
        }
        transaction.commit().await?;
        Ok(added)
    }
}

async fn add_one(transaction: &pg::Transaction<'_>, envelope: &Envelope) -> Result<(), pg::Error> {
    let statement = transaction.prepare_cached(ADD_ONE).await?;
    let headers = Headers::of(envelope, &Uuid::now_v7().to_string());
    transaction
        .execute(
            &statement,
            &[
                &envelope.event_id.uuid(),
                &envelope.category.as_str(),
                &envelope.partition_key(),
                &envelope.tag.as_str(),
                &Json(envelope),
                &Json(&headers),
            ],
        )
        .await?;
    Ok(())
}

async fn add(transaction: &pg::Transaction<'_>, cycles: &[&[Envelope]]) -> Result<u64, pg::Error> {
    let statement = transaction.prepare_cached(&format!("{ADD} ON CONFLICT DO NOTHING")).await?;
    let all = || cycles.iter().copied().flatten();
    let each = |made: fn(&Envelope) -> String| all().map(made).collect::<Vec<_>>();
    let ids: Vec<Uuid> = all().map(|envelope| envelope.event_id.uuid()).collect();
    let mut headers = Vec::with_capacity(ids.len());
    for cycle in cycles {
        let cause = Uuid::now_v7().to_string();
        let of = |envelope| serde_json::to_string(&Headers::of(envelope, &cause));
        headers.extend(cycle.iter().map(|envelope| of(envelope).unwrap_or_default()));
    }
    let added = transaction
        .execute(
            &statement,
            &[
                &ids,
                &each(|envelope| envelope.category.as_str().to_owned()),
                &each(Envelope::partition_key),
                &each(|envelope| envelope.tag.as_str().to_owned()),
                &each(Envelope::to_json),
                &headers,
            ],
        )
        .await?;
    Ok(added)
}

async fn cache(transaction: &pg::Transaction<'_>, cycles: &[&[Envelope]]) -> Result<(), pg::Error> {
    let all = cycles.iter().copied().flatten();
    let measured: Vec<&Envelope> =
        all.filter(|envelope| envelope.category == Category::Telemetry).collect();
    if measured.is_empty() {
        return Ok(());
    }
    let statement = transaction.prepare_cached(CACHE).await?;
    let each = |made: fn(&Envelope) -> &str| {
        measured.iter().map(|envelope| made(envelope)).collect::<Vec<_>>()
    };
    let ids: Vec<Uuid> = measured.iter().map(|envelope| EventId::uuid(envelope.event_id)).collect();
    let times: Vec<_> = measured.iter().map(|envelope| envelope.timestamp).collect();
    let values: Vec<f64> = measured.iter().map(|envelope| envelope.value).collect();
    let nodes: Vec<i32> = measured.iter().map(|envelope| i32::from(envelope.node_id)).collect();
    transaction
        .execute(
            &statement,
            &[
                &ids,
                &times,
                &each(|envelope| envelope.asset.plant.as_str()),
                &each(|envelope| envelope.asset.area.as_str()),
                &each(|envelope| envelope.asset.unit.as_str()),
                &each(|envelope| envelope.tag.as_str()),
                &values,
                &each(|envelope| &envelope.unit),
                &each(|envelope| envelope.quality.as_str()),
                &nodes,
            ],
        )
        .await?;
    Ok(())
}
