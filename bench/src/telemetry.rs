//! Telemetry at the edge: a 48-hour backfill of 100 nodes with the aggregator at work beside it, and a month of one series by the edge's query against
//! the plain SQL that a person would write.
//!
//! The backfill is scaled: a node has a reading every two minutes, so every reading is a bucket of its own, which is the worst case for aggregates. Its rate is compared with
//! the same backfill without an aggregator. At its end every aggregate is held against the readings, and a run whose aggregates are not right fails.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use edge::config::{Telemetry, TelemetrySync};
use edge::ingress::{Incoming, Source, Writer};
use edge::metrics::Metrics;
use edge::telemetry::Aggregator;
use edge::telemetry::query::{self, MAX_PAGE, Point, Range, Resolution};
use event::Window;
use event::id::{DeviceId, Epoch, EventId, NodeId, TenantId};
use event::names::Topic;
use event::wire;
use jiff::{SignedDuration, Timestamp};
use rig::{Postgres, PostgresOptions};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::measure::{interleaved, median, per_second};
use crate::place::Place;
use crate::row::Row;

const NODES: usize = 100;
const HOURS: usize = 48;
/// Readings of a node, one every two minutes.
const READINGS: usize = HOURS * 30;
const TOTAL: usize = NODES * READINGS;
/// Readings of a message, and messages of a transaction: the edge's defaults.
const RECORDS: usize = 480;
const MESSAGES_A_TRANSACTION: usize = 8;
const BACKFILLS: usize = 2;
const QUERIES: usize = 7;
const DAYS: i32 = 30;
/// A reading of the queried series every ten seconds.
const MONTH: usize = 30 * 86_400 / 10;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("telemetry", "starting Postgres");
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let mut server =
        runtime.block_on(Postgres::start(folder.path(), PostgresOptions::default()))?;
    let rows = runtime.block_on(Site::prepare(&server)).and_then(|site| {
        place.say("telemetry", "backfilling");
        let mut rows = backfill(&runtime, &site)?;
        place.say("telemetry", "filling a month");
        runtime.block_on(site.fill_month())?;
        place.say("telemetry", "asking");
        rows.extend(queries(&runtime, &site)?);
        Ok(rows)
    });
    runtime.block_on(server.stop())?;
    rows
}

fn backfill(runtime: &Runtime, site: &Site) -> Result<Vec<Row>> {
    let (mut after, mut took) = (Vec::new(), Vec::new());
    let (ours, theirs) = interleaved(
        BACKFILLS,
        || {
            let (rate, late) = runtime.block_on(site.backfill_aggregated())?;
            after.push(late.as_secs_f64());
            took.push(TOTAL as f64 / rate);
            Ok(rate)
        },
        || {
            runtime.block_on(async {
                site.empty().await?;
                site.backfill().await
            })
        },
    )?;
    Ok(vec![
        Row::more("telemetry/edge_backfill", "records/s", ours, theirs),
        Row::less("telemetry/edge_backfill_right_after", "s", median(after), median(took)),
    ])
}

fn queries(runtime: &Runtime, site: &Site) -> Result<Vec<Row>> {
    let hours = interleaved(
        QUERIES,
        || runtime.block_on(site.ask(Resolution::Of(Window::Hour), 24 * 30)),
        || runtime.block_on(site.by_hand(HOURS_BY_HAND, 24 * 30)),
    )?;
    let raw = interleaved(
        QUERIES,
        || runtime.block_on(site.ask(Resolution::Raw, MONTH)),
        || runtime.block_on(site.by_hand(RAW_BY_HAND, MONTH)),
    )?;
    Ok(vec![
        Row::less("telemetry/range_query_1h", "ms", hours.0, hours.1),
        Row::less("telemetry/range_query_raw", "ms", raw.0, raw.1),
    ])
}

/// What a person would write.
const HOURS_BY_HAND: &str = "SELECT date_trunc('hour', occurred_at) AS hour, avg(metric_value),
        min(metric_value), max(metric_value), count(*)
    FROM telemetry_raw
    WHERE tenant_id = $1 AND device_id = $2 AND metric_type = 'temperature'
        AND occurred_at >= $3 AND occurred_at < $4
    GROUP BY 1 ORDER BY 1";
const RAW_BY_HAND: &str = "SELECT occurred_at, metric_value, unit, quality, id FROM telemetry_raw
    WHERE tenant_id = $1 AND device_id = $2 AND metric_type = 'temperature'
        AND occurred_at >= $3 AND occurred_at < $4
    ORDER BY occurred_at";

/// How many minutes, hours and days are not what their readings say, or are missing.
const WRONG: &str = "WITH wanted AS (
        SELECT w.name, r.tenant_id, r.device_id, date_trunc(w.unit, r.occurred_at, 'UTC') AS start_at, r.metric_type,
            count(*) AS n, min(r.metric_value) AS lowest, max(r.metric_value) AS highest, avg(r.metric_value) AS mean
        FROM telemetry_raw r, (VALUES ('1m', 'minute'), ('1h', 'hour'), ('1d', 'day')) AS w (name, unit)
        GROUP BY 1, 2, 3, 4, 5)
    SELECT count(*) FROM wanted k FULL JOIN telemetry_agg a
        ON a.\"window\" = k.name AND a.tenant_id = k.tenant_id AND a.device_id = k.device_id
            AND a.bucket_start_at = k.start_at AND a.metric_type = k.metric_type
    WHERE (a.count, a.min_value, a.max_value) IS DISTINCT FROM (k.n, k.lowest, k.highest)
        OR abs(a.avg_value - k.mean) > 1e-9";

struct Site {
    client: Client,
    pool: pg::Pool,
    writer: Writer,
    incoming: Arc<[Incoming]>,
    tenant: TenantId,
    device: Uuid,
    /// When the month ends.
    now: Timestamp,
}

impl Site {
    async fn prepare(server: &Postgres) -> Result<Site> {
        let options = pg::Options::new(server.url("postgres"));
        edge::migrate(&options).await?;
        let client = pg::connect(&options).await?;
        let tenant = TenantId::mint();
        let now = Window::Hour.start_of(Timestamp::now());
        let mut incoming = Vec::new();
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let node: NodeId = format!("bench-{number}").parse()?;
            let device = DeviceId::mint();
            client
                .execute(
                    "INSERT INTO nodes (node_id, tenant_id, device_id, secret_hash, broker_hash)
                     VALUES ($1, $2, $3, sha256(convert_to($1, 'UTF8')), '')",
                    &[&node.as_str(), &tenant.uuid(), &device.uuid()],
                )
                .await?;
            nodes.push((node, Epoch::mint(), device));
        }
        // Nodes send side by side, each from its oldest on.
        for first in (0..READINGS).step_by(RECORDS) {
            for (node, epoch, device) in &nodes {
                let batch = (first..READINGS.min(first + RECORDS))
                    .map(|index| (index as u64 + 1, reading(*device, now, index)));
                let body = wire::compress(&wire::encode(*epoch, batch, &[]), 1)?;
                let topic = Topic::Backfill(node.clone()).to_string();
                incoming.push(Incoming::new(Source::Mqtt, topic, body.into()));
            }
        }
        let pool = pg::Pool::new(&options)?;
        let writer = Writer::new(pool.clone(), Arc::new(Metrics::new()));
        let device = DeviceId::mint().uuid();
        Ok(Site { client, pool, writer, incoming: incoming.into(), tenant, device, now })
    }

    fn aggregator(&self) -> Aggregator {
        let windows = Window::ALL.into_iter().collect();
        let options =
            Telemetry { settle: Duration::from_secs(1), sync: TelemetrySync::Raw, windows };
        Aggregator::new(self.pool.clone(), options, Arc::new(Metrics::new()))
    }

    async fn empty(&self) -> Result<()> {
        self.client
            .batch_execute(
                "TRUNCATE telemetry_raw, telemetry_agg, telemetry_dirty, telemetry_series, ingress_dedupe,
                 sync_outbox, devices, ledger_frontier, ledger_block",
            )
            .await?;
        Ok(self.client.batch_execute("CHECKPOINT").await?)
    }

    async fn number(&self, query: &str) -> Result<i64> {
        Ok(self.client.query_one(query, &[]).await?.get(0))
    }

    /// Records a second, until the last is committed.
    async fn backfill(&self) -> Result<f64> {
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
        while let Some(checked) = receiver.recv().await {
            self.writer.commit(&checked).await?;
        }
        checking.await??;
        let rate = per_second(TOTAL, start);
        let stored = self.number("SELECT count(*) FROM telemetry_raw").await?;
        ensure!(usize::try_from(stored) == Ok(TOTAL), "{stored} of {TOTAL} readings were stored");
        Ok(rate)
    }

    /// The same with the aggregator at work; and how long after the last record all aggregates were right.
    async fn backfill_aggregated(&self) -> Result<(f64, Duration)> {
        self.empty().await?;
        let ingested = Arc::new(AtomicBool::new(false));
        let working = {
            let (aggregator, ingested) = (self.aggregator(), Arc::clone(&ingested));
            let pool = self.pool.clone();
            tokio::spawn(async move {
                loop {
                    // Asked before the turn: what is marked later is for the next one.
                    let last = ingested.load(Ordering::Acquire);
                    if aggregator.turn().await? > 0 {
                        continue;
                    }
                    let marks = "SELECT count(*) FROM telemetry_dirty";
                    let left: i64 = pool.get().await?.query_one(marks, &[]).await?.get(0);
                    if last && left == 0 {
                        return anyhow::Ok(Instant::now());
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
        };
        let rate = self.backfill().await?;
        let last = Instant::now();
        ingested.store(true, Ordering::Release);
        let right = working.await??;
        let wrong = self.number(WRONG).await?;
        ensure!(wrong == 0, "{wrong} aggregates are not what their readings say");
        Ok((rate, right.saturating_duration_since(last)))
    }

    /// A month of one series beside what the backfill left.
    async fn fill_month(&self) -> Result<()> {
        let fill = "INSERT INTO telemetry_raw (id, tenant_id, device_id, occurred_at, metric_type, metric_value, unit, quality)
            SELECT gen_random_uuid(), $1, $2, at, 'temperature', 20 + random() * 10, 'C', 'GOOD'
            FROM generate_series($3::timestamptz, $4::timestamptz - interval '10 seconds', '10 seconds') at";
        self.client
            .execute(fill, &[&self.tenant.uuid(), &self.device, &self.from(), &self.now])
            .await?;
        let mark = "INSERT INTO telemetry_dirty (tenant_id, device_id, \"window\", bucket_start_at, due_at)
            SELECT DISTINCT tenant_id, device_id, '1m', date_trunc('minute', occurred_at), now() - interval '1 minute'
            FROM telemetry_raw WHERE tenant_id = $1 AND device_id = $2";
        self.client.execute(mark, &[&self.tenant.uuid(), &self.device]).await?;
        let aggregator = self.aggregator();
        loop {
            aggregator.work_off().await?;
            if self.number("SELECT count(*) FROM telemetry_dirty").await? == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Each alone: together they would be one transaction.
        self.client.batch_execute("VACUUM ANALYZE telemetry_raw").await?;
        Ok(self.client.batch_execute("VACUUM ANALYZE telemetry_agg").await?)
    }

    fn from(&self) -> Timestamp {
        self.now - SignedDuration::from_hours(24 * i64::from(DAYS))
    }

    /// Milliseconds for all pages of the month.
    async fn ask(&self, resolution: Resolution, wanted: usize) -> Result<f64> {
        let range = Range {
            tenant: self.tenant.uuid(),
            device: self.device,
            metric: "temperature".to_owned(),
            from: self.from(),
            to: self.now,
            resolution,
        };
        let start = Instant::now();
        let client = self.pool.get().await?;
        let (mut points, mut after): (Vec<Point>, _) = (Vec::new(), None);
        loop {
            let page = query::page(&client, &range, after, MAX_PAGE).await?;
            points.extend(page.points);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let took = start.elapsed().as_secs_f64() * 1e3;
        ensure!(points.len() == wanted, "{} of {wanted} points", points.len());
        Ok(took)
    }

    /// Milliseconds for a statement written by hand, its rows read.
    async fn by_hand(&self, statement: &str, wanted: usize) -> Result<f64> {
        let start = Instant::now();
        let rows = self
            .client
            .query(statement, &[&self.tenant.uuid(), &self.device, &self.from(), &self.now])
            .await?;
        let read: Vec<(Timestamp, f64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let took = start.elapsed().as_secs_f64() * 1e3;
        ensure!(read.len() == wanted, "{} of {wanted} rows", read.len());
        Ok(took)
    }
}

fn reading(device: DeviceId, now: Timestamp, index: usize) -> String {
    let event = EventId::mint();
    let minutes = i64::try_from(2 * (READINGS - index)).unwrap_or_default();
    let at = now - SignedDuration::from_mins(minutes);
    let value = 24.0 + (index * 7_919 % 1_000) as f64 / 100.0;
    format!(
        r#"{{"event_id":"{event}","event_type":"telemetry.ingested","device_id":"{device}","occurred_at":"{at}","payload":{{"metric_type":"temperature","metric_value":{value},"unit":"C","quality":"GOOD"}}}}"#
    )
}
