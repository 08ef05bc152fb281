//! The edge's writer with all its tables, against a raw binary COPY of the same rows into `telemetry_raw`, on the same durable
//! Postgres, with as many records a transaction (the edge's default) and the same indexes.
//!
//! The writer reads and checks compressed messages while the transaction before is under way, as the edge does; COPY has its rows
//! ready. The cost of a table is the writer's own timing of its step, beside what COPY takes for a record.

use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use edge::ingress::{Incoming, Source, Timings, Writer};
use event::farm::{Envelope, Telemetry};
use event::id::{BarnId, DeviceId, FarmId, NodeId, TenantId};
use event::names::Topic;
use event::wire::{self, Batch, Limits};
use jiff::Timestamp;
use rig::{Postgres, PostgresOptions};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::measure::{interleaved, median, micros_each, per_second};
use crate::place::Place;
use crate::readings::{Message, messages};
use crate::row::Row;

const ROUNDS: usize = 3;
const NODES: usize = 20;
const MESSAGES: usize = 400;
const RECORDS: usize = 500;
const TOTAL: usize = MESSAGES * RECORDS;
/// The edge's default of `ingress.max_records`, in messages.
const MESSAGES_A_TRANSACTION: usize = 4_000 / RECORDS;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("ingress", "starting Postgres");
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let tenant = TenantId::mint();
    let messages = messages(tenant, NODES, MESSAGES, RECORDS)?;
    let mut server =
        runtime.block_on(Postgres::start(folder.path(), PostgresOptions::default()))?;
    let rows = runtime.block_on(Site::prepare(&server, tenant, &messages)).and_then(|site| {
        place.say("ingress", "writing");
        measure(&runtime, &site)
    });
    runtime.block_on(server.stop())?;
    rows
}

fn measure(runtime: &Runtime, site: &Site) -> Result<Vec<Row>> {
    let mut timings = Vec::new();
    let (ours, theirs) = interleaved(
        ROUNDS,
        || {
            let (rate, spent) = runtime.block_on(site.ingest())?;
            timings.push(spent);
            Ok(rate)
        },
        || runtime.block_on(site.copy()),
    )?;
    let mut rows = vec![Row::more("ingress/all_tables_beside_copy", "records/s", ours, theirs)];
    let copy_micros = 1e6 / theirs;
    for (step, time_of) in STEPS {
        let each = timings.iter().map(|spent| micros_each(time_of(spent), TOTAL)).collect();
        rows.push(Row::less(format!("ingress/{step}"), "us/record", median(each), copy_micros));
    }
    Ok(rows)
}

type TimeOf = fn(&Timings) -> std::time::Duration;

/// The steps of a transaction, by the table they write.
const STEPS: [(&str, TimeOf); 8] = [
    ("cost_of_frontier_lock", |t| t.lock),
    ("cost_of_ingress_dedupe", |t| t.dedupe + t.decide),
    ("cost_of_sync_outbox", |t| t.outbox),
    ("cost_of_telemetry_raw", |t| t.telemetry),
    ("cost_of_ledger", |t| t.ledger),
    ("cost_of_nodes_and_devices", |t| t.rest),
    ("cost_of_telemetry_dirty", |t| t.mark),
    ("cost_of_commit", |t| t.commit),
];

/// A database with enrolled nodes, and what both sides write into it.
struct Site {
    client: Client,
    writer: Writer,
    incoming: Arc<[Incoming]>,
    rows: Vec<Reading>,
}

/// A row of `telemetry_raw`.
struct Reading {
    envelope: Envelope,
    telemetry: Telemetry,
    node: NodeId,
    epoch: Uuid,
    seq: i64,
    received_at: Timestamp,
}

impl Site {
    async fn prepare(server: &Postgres, tenant: TenantId, messages: &[Message]) -> Result<Site> {
        let options = pg::Options::new(server.url("postgres"));
        edge::migrate(&options).await?;
        let client = pg::connect(&options).await?;
        let mut rows = Vec::with_capacity(TOTAL);
        let mut incoming = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            if index < NODES {
                enrol(&client, &message.node, tenant).await?;
            }
            rows.extend(readings(message, tenant)?);
            let topic = Topic::Backfill(message.node.clone()).to_string();
            incoming.push(Incoming::new(Source::Mqtt, topic, message.body.clone()));
        }
        let metrics = Arc::new(edge::metrics::Metrics::new());
        let writer = Writer::new(pg::Pool::new(&options)?, metrics);
        Ok(Site { client, writer, incoming: incoming.into(), rows })
    }

    /// Both begin with empty tables and nothing left to be written back.
    async fn empty(&self) -> Result<()> {
        self.client
            .batch_execute(
                "TRUNCATE telemetry_raw, telemetry_dirty, ingress_dedupe, sync_outbox, devices, ledger_frontier, ledger_block",
            )
            .await?;
        Ok(self.client.batch_execute("CHECKPOINT").await?)
    }

    async fn expect_all(&self) -> Result<()> {
        let row = self.client.query_one("SELECT count(*) FROM telemetry_raw", &[]).await?;
        let stored: i64 = row.get(0);
        ensure!(usize::try_from(stored) == Ok(TOTAL), "{stored} of {TOTAL} readings were stored");
        Ok(())
    }

    /// Records a second, and where the time went.
    async fn ingest(&self) -> Result<(f64, Timings)> {
        self.empty().await?;
        let start = Instant::now();
        let (sender, mut receiver) = mpsc::channel(1);
        let (writer, incoming) = (self.writer.clone(), Arc::clone(&self.incoming));
        let checking = tokio::spawn(async move {
            for group in incoming.chunks(MESSAGES_A_TRANSACTION) {
                let mut checked = Vec::with_capacity(group.len());
                for message in group {
                    checked.push(writer.check(message).await?);
                }
                if sender.send(checked).await.is_err() {
                    break;
                }
            }
            anyhow::Ok(())
        });
        let mut spent = Timings::default();
        while let Some(checked) = receiver.recv().await {
            spent.add(&self.writer.commit(&checked).await?.timings);
        }
        checking.await??;
        let rate = per_second(TOTAL, start);
        self.expect_all().await?;
        Ok((rate, spent))
    }

    /// Records a second.
    async fn copy(&self) -> Result<f64> {
        self.empty().await?;
        let start = Instant::now();
        for rows in self.rows.chunks(MESSAGES_A_TRANSACTION * RECORDS) {
            let statement =
                "COPY telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, occurred_at,
                 metric_type, metric_value, unit, ingested_at, quality, stream, epoch, seq)
                 FROM STDIN BINARY";
            let sink = self.client.copy_in(statement).await?;
            let mut writer = pin!(BinaryCopyInWriter::new(sink, &COLUMNS));
            for row in rows {
                row.write(writer.as_mut()).await?;
            }
            writer.finish().await?;
        }
        let rate = per_second(TOTAL, start);
        self.expect_all().await?;
        Ok(rate)
    }
}

const COLUMNS: [Type; 14] = [
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::FLOAT8,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::TEXT,
    Type::UUID,
    Type::INT8,
];

impl Reading {
    async fn write(&self, writer: std::pin::Pin<&mut BinaryCopyInWriter>) -> Result<()> {
        let (e, t) = (&self.envelope, &self.telemetry);
        writer
            .write(&[
                &e.event_id.uuid(),
                &e.tenant_id.uuid(),
                &e.farm_id.map(FarmId::uuid),
                &e.barn_id.map(BarnId::uuid),
                &e.device_id.map(DeviceId::uuid),
                &e.occurred_at,
                &t.metric_type,
                &t.metric_value,
                &t.unit,
                &self.received_at,
                &t.quality.map(|quality| quality.as_str()),
                &self.node.as_str(),
                &self.epoch,
                &self.seq,
            ])
            .await?;
        Ok(())
    }
}

/// The rows that a message becomes.
fn readings(message: &Message, tenant: TenantId) -> Result<Vec<Reading>> {
    let json = wire::decode(&message.body, &Limits::MQTT)?;
    let batch = Batch::parse(&json, &Limits::MQTT)?;
    let read = batch.records.iter().map(|record| {
        let envelope = Envelope::parse_from_node(record.event.get(), tenant)?;
        let telemetry = envelope.telemetry()?.context("not telemetry")?;
        Ok(Reading {
            envelope,
            telemetry,
            node: message.node.clone(),
            epoch: batch.epoch.uuid(),
            seq: i64::try_from(record.seq)?,
            received_at: Timestamp::now(),
        })
    });
    read.collect()
}

/// Lets a node in. Nobody will log in with its secret.
async fn enrol(client: &Client, node: &NodeId, tenant: TenantId) -> Result<()> {
    client
        .execute(
            "INSERT INTO nodes (node_id, tenant_id, device_id, secret_hash, broker_hash)
             VALUES ($1, $2, $3, sha256(convert_to($1, 'UTF8')), '')",
            &[&node.as_str(), &tenant.uuid(), &DeviceId::mint().uuid()],
        )
        .await?;
    Ok(())
}
