//! Batches into the historian against a raw COPY of the same rows into the same tables, on one connection each, with as many rows a
//! transaction and its rows ready. Ours is all that happens to a message: its schema version, every rule, the rows, the alarms' states and
//! journal. A third row measures a replay: every event is there already.

use std::os::unix::fs::PermissionsExt as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use bus::Message;
use event::scada::{Category, Envelope, Severity};
use jiff::Timestamp;
use rig::{Postgres, PostgresOptions};
use scada::generate::Node;
use scada::historian::alarms::state::Rules;
use scada::historian::{Metrics, Record, Writer};
use tokio::runtime::Runtime;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use crate::measure::{interleaved, per_second};
use crate::place::Place;
use crate::row::Row;

const ROUNDS: usize = 5;
const NODES: u16 = 100;
const CYCLES: usize = 130;
const BATCH: usize = 2_000;
const BAR: f64 = 0.75;
const EMPTY: &str = "TRUNCATE telemetry, events, alarms, alarm_state, alarm_journal; CHECKPOINT";

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("historian_insert", "starting Postgres");
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
    let options = pg::Options { settings: scada::historian::SESSION, ..pg::Options::new(url) };
    runtime.block_on(scada::migrate_historian(&options))?;
    let pool = pg::Pool::new(&options)?;
    let now = Timestamp::now();
    runtime.block_on(async {
        let mut client = pool.get().await?;
        for table in ["telemetry", "events", "alarms"] {
            pg::partitions::ensure_months(&mut client, table, "timestamp", now, now).await?;
        }
        Ok::<_, pg::Error>(())
    })?;
    let metrics = Arc::new(Metrics::new());
    let writer = Writer::new(pool, "bench", Rules::default(), None, metrics);
    let client = runtime.block_on(pg::connect(&options))?;
    let mut copier = runtime.block_on(pg::connect(&options))?;
    // The first round of each fills caches and prepares statements.
    let made = events(1)?;
    runtime.block_on(store(&writer, &messages(&made)))?;
    runtime.block_on(client.batch_execute(EMPTY))?;
    runtime.block_on(copy(&mut copier, &made))?;
    place.say("historian_insert", "storing");
    let (ours, theirs) = interleaved(
        ROUNDS,
        || {
            let messages = messages(&events(2)?);
            runtime.block_on(client.batch_execute(EMPTY))?;
            runtime.block_on(store(&writer, &messages))
        },
        || {
            let made = events(2)?;
            runtime.block_on(client.batch_execute(EMPTY))?;
            runtime.block_on(copy(&mut copier, &made))
        },
    )?;
    let made = events(3)?;
    let messages = messages(&made);
    runtime.block_on(client.batch_execute(EMPTY))?;
    runtime.block_on(store(&writer, &messages))?;
    let replayed = runtime.block_on(store(&writer, &messages))?;
    let row = runtime.block_on(client.query_one("SELECT count(*) FROM telemetry", &[]))?;
    let wanted = made.iter().filter(|event| event.category == Category::Telemetry).count();
    ensure!(usize::try_from(row.get::<_, i64>(0))? == wanted, "a replay changed the tables");
    Ok(vec![
        Row::more("historian_insert/beside_copy", "events/s", ours, theirs).bar(BAR),
        Row::more("historian_insert/replay_beside_copy", "events/s", replayed, theirs),
    ])
}

fn events(seed: u64) -> Result<Vec<Envelope>> {
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        nodes.push(Node::new("PLANT01".parse()?, number, seed + u64::from(number))?);
    }
    let mut made = Vec::new();
    for _ in 0..CYCLES {
        for node in &mut nodes {
            made.extend(node.cycle(Timestamp::now())?);
        }
    }
    Ok(made)
}

fn messages(events: &[Envelope]) -> Vec<Message> {
    let message = |event: &Envelope| Message {
        headers: [("schema_version".to_owned(), "1.0.0".to_owned())].into(),
        ..Message::json(
            event.topic().name(),
            event.tag.as_str(),
            event.event_id.to_string(),
            event.to_json(),
        )
    };
    events.iter().map(message).collect()
}

/// As the historian does it: while one batch is stored, the next one is read on a thread of its own.
async fn store(writer: &Writer, messages: &[Message]) -> Result<f64> {
    // A bus hands batches over, and takes no time for copies.
    let batches: Vec<Vec<Message>> = messages.chunks(BATCH).map(<[Message]>::to_vec).collect();
    let started = Instant::now();
    let mut batches = batches.into_iter();
    let mut records = judge(batches.next().unwrap_or_default()).await?;
    while !records.is_empty() {
        let (stored, next) =
            tokio::join!(writer.store(&records), judge(batches.next().unwrap_or_default()));
        stored?;
        records = next?;
    }
    Ok(per_second(messages.len(), started))
}

async fn judge(messages: Vec<Message>) -> Result<Vec<Record>> {
    let read = move || {
        let read = Record::read_each(messages.iter());
        read.map(|read| read.map_err(|cause| anyhow::anyhow!(cause.message))).collect()
    };
    tokio::task::spawn_blocking(read).await?
}

const TYPES: [Type; 11] = [
    Type::UUID,
    Type::TIMESTAMPTZ,
    Type::VARCHAR,
    Type::VARCHAR,
    Type::VARCHAR,
    Type::VARCHAR,
    Type::FLOAT8,
    Type::VARCHAR,
    Type::VARCHAR,
    Type::INT4,
    Type::VARCHAR,
];

async fn copy(client: &mut tokio_postgres::Client, events: &[Envelope]) -> Result<f64> {
    let columns = "event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id";
    let mut statements = Vec::new();
    for (category, table, more) in [
        (Category::Telemetry, "telemetry", ""),
        (Category::Event, "events", ""),
        (Category::Alarm, "alarms", ", severity"),
    ] {
        let text = format!("COPY {table} ({columns}{more}) FROM STDIN BINARY");
        statements.push((category, client.prepare(&text).await?));
    }
    let started = Instant::now();
    for part in events.chunks(BATCH) {
        let transaction = client.transaction().await?;
        for (category, statement) in &statements {
            let width = if *category == Category::Alarm { TYPES.len() } else { TYPES.len() - 1 };
            let sink = transaction.copy_in(statement).await?;
            let mut writer = pin!(BinaryCopyInWriter::new(sink, &TYPES[..width]));
            for event in part.iter().filter(|event| event.category == *category) {
                let severity = Severity::of_alarm(&event.tag).unwrap_or(Severity::Medium);
                let values: [&(dyn ToSql + Sync); 11] = [
                    &event.event_id.uuid(),
                    &event.timestamp,
                    &event.asset.plant.as_str(),
                    &event.asset.area.as_str(),
                    &event.asset.unit.as_str(),
                    &event.tag.as_str(),
                    &event.value,
                    &event.unit,
                    &event.quality.as_str(),
                    &i32::from(event.node_id),
                    &severity.as_str(),
                ];
                writer.as_mut().write(&values[..width]).await?;
            }
            writer.finish().await?;
        }
        transaction.commit().await?;
    }
    Ok(per_second(events.len(), started))
}
