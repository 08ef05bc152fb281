//! Batches over HTTP into the cloud, against the same rows written by hand: bare SQL with its rows ready, on the same durable
//! Postgres, with as many connections and events a transaction. HTTP is the whole service: zstd, JSON, tokens, checks, ledger. Only
//! the ingestion runs, so that nothing drains what it writes.

use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::time::Instant;

use anyhow::Result;
use cloud::ingest::Batch;
use cloud::ingest::request::{Item, parse};
use cloud::tokens::{self, NewToken, Role, Tenants};
use cloud::trace::Traceparent;
use cloud::{Cloud, Config};
use event::id::{DeviceId, Epoch, EventId, TenantId};
use event::wire::{Limits, compress};
use rig::{Postgres, PostgresOptions};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::measure::{interleaved, per_second};
use crate::place::Place;
use crate::row::Row;

const ROUNDS: usize = 5;
const SENDERS: usize = 4;
const BATCHES: usize = 25;
const EVENTS: usize = 1_000;
const STREAMS: usize = 20;
const BAR: f64 = 0.8;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("http_ingest", "starting Postgres");
    mqtt::install_crypto();
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let mut server =
        runtime.block_on(Postgres::start(folder.path(), PostgresOptions::default()))?;
    let rows = measure(place, &runtime, &server.url("postgres"));
    runtime.block_on(server.stop())?;
    rows
}

fn measure(place: &Place, runtime: &Runtime, url: &str) -> Result<Vec<Row>> {
    let config = Config::load(None, |name| match name {
        "HOLDFAST_CLOUD_DATABASE_URL" => Some(url.to_owned()),
        "HOLDFAST_CLOUD_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
        "HOLDFAST_CLOUD_ROLES" => Some("ingestion".to_owned()),
        "HOLDFAST_CLOUD_RATE_EVENTS_PER_SECOND" => Some("10000000".to_owned()),
        "HOLDFAST_CLOUD_RATE_REQUESTS_PER_SECOND" => Some("100000".to_owned()),
        _ => None,
    })?;
    let cloud = runtime.block_on(Cloud::start(config.clone()))?;
    let client = runtime.block_on(pg::connect(&config.database))?;
    let new = NewToken {
        name: "bench".to_owned(),
        role: Role::Edge,
        tenants: Tenants::All,
        expires_at: None,
    };
    let (_, token) = runtime.block_on(tokens::create(&client, &new))?;
    let tenant = TenantId::mint();
    let loads = || (0..SENDERS).map(|sender| load(tenant, sender)).collect::<Result<Vec<_>>>();
    // The first round of each fills caches and prepares statements.
    runtime.block_on(over_http(&cloud, token.expose(), loads()?))?;
    runtime.block_on(by_hand(&config.database, loads()?))?;
    place.say("http_ingest", "writing");
    let rates = interleaved(
        ROUNDS,
        || {
            let loads = loads()?;
            runtime.block_on(client.batch_execute("CHECKPOINT"))?;
            runtime.block_on(over_http(&cloud, token.expose(), loads))
        },
        || {
            let loads = loads()?;
            runtime.block_on(client.batch_execute("CHECKPOINT"))?;
            runtime.block_on(by_hand(&config.database, loads))
        },
    );
    runtime.block_on(cloud.stop());
    let (ours, theirs) = rates?;
    Ok(vec![Row::more("http_ingest/beside_direct_sql", "events/s", ours, theirs).bar(BAR)])
}

/// One sender's batches: bodies, and the same read already.
struct Load {
    bodies: Vec<Vec<u8>>,
    batches: Vec<Batch>,
}

fn load(tenant: TenantId, sender: usize) -> Result<Load> {
    let epoch = Epoch::mint();
    let devices: Vec<DeviceId> = (0..STREAMS).map(|_| DeviceId::mint()).collect();
    let mut load = Load { bodies: Vec::new(), batches: Vec::new() };
    for batch in 0..BATCHES {
        let events = (0..EVENTS).map(|n| {
            let index = batch * EVENTS + n;
            json!({
                "event": {
                    "event_id": EventId::mint(), "event_type": "telemetry.ingested",
                    "tenant_id": tenant, "farm_id": null, "barn_id": null,
                    "device_id": devices[index % STREAMS], "session_id": null,
                    "occurred_at": "2026-02-01T10:00:00Z", "trace_id": "trace-id-123",
                    "payload": {"metric_type": "temperature", "metric_value": 26.4, "unit": "C"}
                },
                "stream": format!("node-{sender}-{}", index % STREAMS), "epoch": epoch,
                "seq": index / STREAMS + 1
            })
        });
        let body = json!({
            "v": 1, "batch_id": format!("batch-{sender}-{batch}"), "edge_cluster_id": "edge-1",
            "events": events.collect::<Vec<_>>()
        });
        let body = body.to_string().into_bytes();
        load.batches.push(parse(&body, &Limits::HTTP, &Tenants::All)?);
        load.bodies.push(compress(&body, 3)?);
    }
    Ok(load)
}

async fn over_http(cloud: &Cloud, token: &str, loads: Vec<Load>) -> Result<f64> {
    let client = reqwest::Client::new();
    let url = format!("http://{}/api/v1/sync/batches", cloud.http());
    let started = Instant::now();
    let mut senders: JoinSet<Result<()>> = JoinSet::new();
    for load in loads {
        let (client, url, token) = (client.clone(), url.clone(), token.to_owned());
        senders.spawn(async move {
            for body in load.bodies {
                let request = client.post(&url).bearer_auth(&token).body(body);
                let answer = request.header("content-encoding", "zstd").send().await?;
                answer.error_for_status()?.bytes().await?;
            }
            Ok(())
        });
    }
    while let Some(done) = senders.join_next().await {
        done??;
    }
    Ok(per_second(SENDERS * BATCHES * EVENTS, started))
}

const COPY: &str = "COPY relay_outbox (tenant_id, event_id, event_type, occurred_at, trace_id,
    routing_key, ordering_key, priority, envelope, stream, epoch, seq, traceparent) FROM STDIN BINARY";
const TYPES: [Type; 13] = [
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

struct Ready {
    tenant: Uuid,
    id: Uuid,
    event_type: String,
    at: jiff::Timestamp,
    trace: Option<String>,
    key: String,
    envelope: Vec<u8>,
    stream: String,
    epoch: Uuid,
    seq: i64,
}

fn rows(batch: &Batch) -> Vec<Ready> {
    let rows = batch.items.iter().filter_map(|item| {
        let Item::Valid(event) = item else { return None };
        let (envelope, place) = (&event.envelope, event.place.as_ref()?);
        Some(Ready {
            tenant: envelope.tenant_id.uuid(),
            id: envelope.event_id.uuid(),
            event_type: envelope.event_type.to_string(),
            at: envelope.occurred_at,
            trace: envelope.trace_id.clone(),
            key: format!("telemetry/{}", envelope.device_id?),
            envelope: envelope.to_json().into_bytes(),
            stream: place.stream.to_string(),
            epoch: place.epoch.uuid(),
            seq: i64::try_from(place.seq).ok()?,
        })
    });
    rows.collect()
}

async fn by_hand(options: &pg::Options, loads: Vec<Load>) -> Result<f64> {
    let mut ready = Vec::new();
    for load in loads {
        let rows: Vec<Vec<Ready>> = load.batches.iter().map(rows).collect();
        ready.push((pg::connect(options).await?, rows));
    }
    let started = Instant::now();
    let mut senders: JoinSet<Result<()>> = JoinSet::new();
    for (mut client, batches) in ready {
        senders.spawn(async move {
            let dedupe = client
                .prepare(
                    "INSERT INTO ingest_dedupe (tenant_id, event_id)
                     SELECT * FROM unnest($1::uuid[], $2::uuid[]) ON CONFLICT DO NOTHING",
                )
                .await?;
            let copy = client.prepare(COPY).await?;
            let trace = Traceparent::mint().to_string();
            let frontier = client
                .prepare(
                    "INSERT INTO ledger_frontier (tenant_id, stream, epoch, acked, received_count)
                     SELECT tenant_id, stream, epoch, max(seq), max(seq)
                     FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[])
                         AS u (tenant_id, stream, epoch, seq) GROUP BY 1, 2, 3
                     ON CONFLICT (tenant_id, stream, epoch)
                     DO UPDATE SET acked = excluded.acked, received_count = excluded.acked",
                )
                .await?;
            for rows in &batches {
                let transaction = client.transaction().await?;
                let tenants: Vec<Uuid> = rows.iter().map(|row| row.tenant).collect();
                let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
                let streams: Vec<&str> = rows.iter().map(|row| row.stream.as_str()).collect();
                let epochs: Vec<Uuid> = rows.iter().map(|row| row.epoch).collect();
                let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
                transaction.execute(&dedupe, &[&tenants, &ids]).await?;
                let sink = transaction.copy_in(&copy).await?;
                let mut writer = pin!(BinaryCopyInWriter::new(sink, &TYPES));
                for row in rows {
                    writer
                        .as_mut()
                        .write(&[
                            &row.tenant,
                            &row.id,
                            &row.event_type,
                            &row.at,
                            &row.trace,
                            &row.event_type,
                            &row.key,
                            &0i32,
                            &row.envelope,
                            &row.stream,
                            &row.epoch,
                            &row.seq,
                            &trace,
                        ])
                        .await?;
                }
                writer.finish().await?;
                transaction.execute(&frontier, &[&tenants, &streams, &epochs, &seqs]).await?;
                transaction.commit().await?;
            }
            Ok(())
        });
    }
    while let Some(done) = senders.join_next().await {
        done??;
    }
    Ok(per_second(SENDERS * BATCHES * EVENTS, started))
}
