//! An upgrade while the old binary still runs: additive first, so that its SQL goes on working.
//!
//! The statements are those of the version before, as text: the code that made them has moved on.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use event::id::{EventId, TenantId};
use jiff::Timestamp;
use serde_json::json;
use testkit::{Database, eventually};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use crate::site::{LONG, number};

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The first migration after which these statements work; every later one is tried as a start.
const OLDEST: i32 = 7;
const HISTORY: &str = "edge_migrations";

const MAKE_FRONTIER: &str = "INSERT INTO ledger_frontier (stream, epoch, tenant_id)
             SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[])
             ON CONFLICT DO NOTHING";
const LOCK_FRONTIER: &str =
    "SELECT f.received, f.lost, f.stored_count, f.quarantined_count, (u.place - 1)::int
             FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS u (stream, epoch, place)
             JOIN ledger_frontier f USING (stream, epoch)
             ORDER BY u.place FOR UPDATE OF f";
const WRITE_FRONTIER: &str =
    "UPDATE ledger_frontier SET acked = $3, received = $4, lost = $5, received_count = $6,
                 lost_count = $7, stored_count = $8, quarantined_count = $9, updated_at = now()
             WHERE stream = $1 AND epoch = $2";
const DEDUPE: &str = "INSERT INTO ingress_dedupe (tenant_id, event_id)
             SELECT * FROM unnest($1::uuid[], $2::uuid[])
             ON CONFLICT DO NOTHING RETURNING tenant_id, event_id";
const OUTBOX: &str = "COPY sync_outbox (id, tenant_id, farm_id, barn_id, device_id, session_id,
    event_type, occurred_at, trace_id, payload_json, payload_size_bytes, priority, stream, epoch, seq)
    FROM STDIN BINARY";
const OUTBOX_TYPES: [Type; 15] = [
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::JSONB,
    Type::INT4,
    Type::INT4,
    Type::TEXT,
    Type::UUID,
    Type::INT8,
];
const TELEMETRY: &str = "COPY telemetry_raw (id, tenant_id, farm_id, barn_id, device_id,
    occurred_at, metric_type, metric_value, unit, ingested_at, quality, stream, epoch, seq)
    FROM STDIN BINARY";
const TELEMETRY_TYPES: [Type; 14] = [
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
const CLAIM: &str = include_str!("previous/claim.sql");
const COMPLETE: &str = include_str!("previous/complete.sql");
const BATCH: i64 = 50;

/// The node that the old binary serves.
#[derive(Clone, Copy)]
struct Node {
    tenant: Uuid,
    device: Uuid,
    epoch: Uuid,
}

/// One ingress transaction of the old binary.
async fn ingest(client: &mut tokio_postgres::Client, node: Node, first: i64) {
    let (stream, none, seqs) = ("barn-1", None::<Uuid>, first..first + BATCH);
    let ids: Vec<Uuid> = seqs.clone().map(|_| EventId::mint().uuid()).collect();
    let tenants = vec![node.tenant; ids.len()];
    let transaction = client.transaction().await.unwrap();
    transaction
        .execute(MAKE_FRONTIER, &[&vec![stream], &vec![node.epoch], &vec![node.tenant]])
        .await
        .unwrap();
    let before =
        transaction.query_one(LOCK_FRONTIER, &[&vec![stream], &vec![node.epoch]]).await.unwrap();
    let stored: i64 = before.get(2);
    assert_eq!(stored, first - 1, "the frontier is as the last transaction left it");
    assert_eq!(transaction.query(DEDUPE, &[&tenants, &ids]).await.unwrap().len(), ids.len());
    let at = Timestamp::now();
    let payload = json!({"metric_type": "temperature", "metric_value": 26.4, "unit": "C"});
    let mut writer =
        pin!(BinaryCopyInWriter::new(transaction.copy_in(OUTBOX).await.unwrap(), &OUTBOX_TYPES));
    for (id, seq) in ids.iter().zip(seqs.clone()) {
        writer
            .as_mut()
            .write(&[
                id,
                &node.tenant,
                &none,
                &none,
                &node.device,
                &none,
                &"telemetry.ingested",
                &at,
                &"trace-1",
                &Json(&payload),
                &60i32,
                &0i32,
                &stream,
                &node.epoch,
                &seq,
            ])
            .await
            .unwrap();
    }
    writer.finish().await.unwrap();
    let mut writer = pin!(BinaryCopyInWriter::new(
        transaction.copy_in(TELEMETRY).await.unwrap(),
        &TELEMETRY_TYPES
    ));
    for (id, seq) in ids.iter().zip(seqs) {
        writer
            .as_mut()
            .write(&[
                id,
                &node.tenant,
                &none,
                &none,
                &node.device,
                &at,
                &"temperature",
                &26.4f64,
                &"C",
                &at,
                &None::<String>,
                &stream,
                &node.epoch,
                &seq,
            ])
            .await
            .unwrap();
    }
    writer.finish().await.unwrap();
    let last = first + BATCH - 1;
    let empty: Vec<i64> = Vec::new();
    transaction
        .execute(
            WRITE_FRONTIER,
            &[&stream, &node.epoch, &last, &vec![1, last], &empty, &last, &0i64, &last, &0i64],
        )
        .await
        .unwrap();
    transaction.commit().await.unwrap();
}

/// One claim and one completion of the old binary; returns how many rows it completed.
async fn forward(
    client: &tokio_postgres::Client,
    [claim, complete]: [&tokio_postgres::Statement; 2],
    node: Node,
) -> i64 {
    let (token, lane) =
        (Uuid::new_v4().to_string(), (node.tenant.to_string(), node.device.to_string()));
    let rows = client
        .query(
            claim,
            &[
                &"old/bulk",
                &token.parse::<Uuid>().unwrap(),
                &60_000i64,
                &10i32,
                &vec![lane.0],
                &vec![0i32],
                &vec![lane.1],
                &vec![None::<Timestamp>],
                &vec![None::<String>],
                &vec![i32::try_from(BATCH).unwrap()],
            ],
        )
        .await
        .unwrap();
    let taken: Vec<String> = rows
        .iter()
        .filter(|row| row.get::<_, Option<bool>>("taken_live") == Some(true))
        .map(|row| row.get::<_, String>(1))
        .collect();
    let done = client.execute(complete, &[&taken, &token.parse::<Uuid>().unwrap()]).await.unwrap();
    assert_eq!(done, taken.len() as u64);
    i64::try_from(done).unwrap()
}

/// A database of an earlier version, migrated once for all tests that ask for it.
pub(crate) async fn database(version: i32) -> Database {
    let migrate = |url: String| async move {
        let runner = embedded::migrations::runner().set_target(refinery::Target::Version(version));
        pg::migrate(&pg::Options::new(url), HISTORY, runner).await.map(drop)
    };
    let name = format!("upgrade_{version}");
    testkit::database(&name, &format!("edge_{version}"), migrate).await.unwrap()
}

/// The versions that an upgrade may begin at, from one on.
pub(crate) fn versions(from: i32) -> impl Iterator<Item = i32> {
    let migrations = embedded::migrations::runner();
    let mut all: Vec<i32> = migrations.get_migrations().iter().map(|one| one.version()).collect();
    all.sort_unstable();
    all.pop();
    all.into_iter().filter(move |version| *version >= from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_old_binary_goes_on_while_the_database_is_upgraded() {
    for version in versions(OLDEST) {
        upgraded(version).await;
    }
}

async fn upgraded(version: i32) {
    let database = database(version).await;
    let options = pg::Options::new(database.url());
    let tenant = TenantId::mint().uuid();
    let node = Node { tenant, device: EventId::mint().uuid(), epoch: EventId::mint().uuid() };
    // A row in every state that is final, as the old binary left them.
    let mut client = database.connect().await.unwrap();
    ingest(&mut client, node, 1).await;
    let finals = "UPDATE sync_outbox SET status = (ARRAY['acked', 'dlq', 'failed'])[1 + seq % 3], failed_at = now(), dlq_reason = 'invalid'
        WHERE seq <= 30";
    assert_eq!(client.execute(finals, &[]).await.unwrap(), 30);

    let stop = Arc::new(AtomicBool::new(false));
    let (written, acked) = (Arc::new(AtomicI64::new(BATCH)), Arc::new(AtomicI64::new(0)));
    let writing = tokio::spawn({
        let (stop, written) = (Arc::clone(&stop), Arc::clone(&written));
        async move {
            while !stop.load(Ordering::SeqCst) {
                let first = written.load(Ordering::SeqCst) + 1;
                ingest(&mut client, node, first).await;
                written.fetch_add(BATCH, Ordering::SeqCst);
            }
        }
    });
    let client = database.connect().await.unwrap();
    let forwarding = tokio::spawn({
        let (stop, acked) = (Arc::clone(&stop), Arc::clone(&acked));
        async move {
            // Prepared once, as a binary that runs for weeks has them.
            let claim = client.prepare(CLAIM).await.unwrap();
            let complete = client.prepare(COMPLETE).await.unwrap();
            while !stop.load(Ordering::SeqCst) {
                acked
                    .fetch_add(forward(&client, [&claim, &complete], node).await, Ordering::SeqCst);
            }
        }
    });
    let moved = async |what: &str| {
        let before = (written.load(Ordering::SeqCst), acked.load(Ordering::SeqCst));
        eventually(LONG, what, async || {
            written.load(Ordering::SeqCst) >= before.0 + 5 * BATCH
                && acked.load(Ordering::SeqCst) >= before.1 + 3 * BATCH
                || writing.is_finished()
                || forwarding.is_finished()
        })
        .await
        .unwrap();
    };
    moved("the old binary works before").await;
    edge::migrate(&options).await.unwrap();
    moved("the old binary works after").await;
    stop.store(true, Ordering::SeqCst);
    writing.await.unwrap();
    forwarding.await.unwrap();

    let client = database.connect().await.unwrap();
    let (written, acked) = (written.load(Ordering::SeqCst), acked.load(Ordering::SeqCst));
    for table in ["sync_outbox", "telemetry_raw", "ingress_dedupe"] {
        assert_eq!(
            number(&client, &format!("SELECT count(*) FROM {table}")).await,
            written,
            "{version}: {table}"
        );
    }
    assert_eq!(number(&client, "SELECT stored_count FROM ledger_frontier").await, written);
    let delivered = "SELECT count(*) FROM sync_outbox WHERE status = 'acked' AND seq > 30";
    assert_eq!(number(&client, delivered).await, acked);
    for (state, rows) in [("dlq", 10), ("failed", 10)] {
        let text = format!("SELECT count(*) FROM sync_outbox WHERE status = '{state}'");
        assert_eq!(number(&client, &text).await, rows, "{state}");
    }
    let newest = "SELECT max(version)::int8 FROM edge_migrations";
    assert!(number(&client, newest).await > i64::from(version), "something was upgraded");
}
