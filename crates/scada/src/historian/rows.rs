//! Events into their tables, each once.
//!
//! The usual batch has nothing that is stored already, so it is COPYed straight into the table, which nothing beats. A row that is there makes
//! Postgres refuse the copy; the transaction is begun anew and the rows are inserted one by one where they are not there. After that
//! the careful way is taken until a batch has met no duplicate, so that a long replay does not pay for both.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use event::scada::{Category, Envelope};
use jiff::Timestamp;
use pg::copy::{NotEncoded, Row};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Json, ToSql, Type};
use uuid::Uuid;

use super::record::{Record, severity};

/// A table, and how rows get into it.
struct Target {
    category: Category,
    copy: &'static str,
    insert: &'static str,
}

macro_rules! target {
    ($category:expr, $table:literal, $more:literal, $array:literal) => {
        Target {
            category: $category,
            copy: concat!(
                "COPY ", $table, " (event_id, timestamp, plant, area, unit_name, tag, value, unit, \
                 quality, node_id, extra", $more, ") FROM STDIN BINARY"
            ),
            insert: concat!(
                "INSERT INTO ", $table, " (event_id, timestamp, plant, area, unit_name, tag, value, unit, \
                 quality, node_id, extra", $more, ")
                 SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], \
                 $6::text[], $7::float8[], $8::text[], $9::text[], $10::int4[], $11::jsonb[]", $array, ")
                 ON CONFLICT DO NOTHING RETURNING event_id"
            ),
        }
    };
}

const TARGETS: [Target; 3] = [
    target!(Category::Telemetry, "telemetry", "", ""),
    target!(Category::Event, "events", "", ""),
    target!(Category::Alarm, "alarms", ", severity", ", $12::text[]"),
];

/// Which way batches go into the tables.
#[derive(Debug, Default)]
pub(super) struct Inserter {
    careful: AtomicBool,
}

impl Inserter {
    /// The quick way: all are new, or `None`, and the transaction is of no use any more. `redelivered` says that some may be there.
    pub(super) async fn copy<'a>(
        &self,
        transaction: &pg::Transaction<'_>,
        records: &'a [Record],
        redelivered: bool,
    ) -> Result<Option<Vec<&'a Record>>, pg::Error> {
        if redelivered || self.careful.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match copy_all(transaction, records).await {
            Ok(()) => Ok(Some(records.iter().collect())),
            Err(pg::Error::Postgres(error))
                if error.code() == Some(&SqlState::UNIQUE_VIOLATION) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Inserts what is not there and returns those that were new, in their order.
    pub(super) async fn insert<'a>(
        &self,
        transaction: &pg::Transaction<'_>,
        records: &'a [Record],
    ) -> Result<Vec<&'a Record>, pg::Error> {
        let new = self.insert_missing(transaction, records).await?;
        self.careful.store(new.len() < records.len(), Ordering::Relaxed);
        Ok(new)
    }

    async fn insert_missing<'a>(
        &self,
        transaction: &pg::Transaction<'_>,
        records: &'a [Record],
    ) -> Result<Vec<&'a Record>, pg::Error> {
        let mut added: HashSet<Uuid> = HashSet::with_capacity(records.len());
        for target in &TARGETS {
            let mut rows: Vec<&Record> = of(records, target.category).collect();
            // Two replicas that meet in the same rows take them in the same order.
            rows.sort_unstable_by_key(|record| record.envelope.event_id.uuid());
            if !rows.is_empty() {
                added.extend(insert(transaction, target, &rows).await?);
            }
        }
        // The same event twice in one batch was new once.
        let is_new = |record: &&Record| added.remove(&record.envelope.event_id.uuid());
        Ok(records.iter().filter(is_new).collect())
    }
}

fn of(records: &[Record], category: Category) -> impl Iterator<Item = &Record> {
    records.iter().filter(move |record| record.is(category))
}

async fn copy_all(transaction: &pg::Transaction<'_>, records: &[Record]) -> Result<(), pg::Error> {
    for target in &TARGETS {
        let mut rows = of(records, target.category).map(Record::row).peekable();
        if rows.peek().is_some() {
            let statement = transaction.prepare_cached(target.copy).await?;
            pg::copy::send(transaction, &statement, rows).await?;
        }
    }
    Ok(())
}

/// The row of an event, in the columns of [`Target::copy`].
pub(super) fn encode(
    envelope: &Envelope,
    extra: Option<&serde_json::Value>,
) -> Result<Row, NotEncoded> {
    let alarms = envelope.category == Category::Alarm;
    let columns: [(&(dyn ToSql + Sync), Type); 12] = [
        (&envelope.event_id.uuid(), Type::UUID),
        (&envelope.timestamp, Type::TIMESTAMPTZ),
        (&envelope.asset.plant.as_str(), Type::VARCHAR),
        (&envelope.asset.area.as_str(), Type::VARCHAR),
        (&envelope.asset.unit.as_str(), Type::VARCHAR),
        (&envelope.tag.as_str(), Type::VARCHAR),
        (&envelope.value, Type::FLOAT8),
        (&envelope.unit, Type::VARCHAR),
        (&envelope.quality.as_str(), Type::VARCHAR),
        (&i32::from(envelope.node_id), Type::INT4),
        (&extra.map(Json), Type::JSONB),
        (&severity(envelope).as_str(), Type::VARCHAR),
    ];
    Row::encode(if alarms { &columns } else { &columns[..columns.len() - 1] })
}

async fn insert(
    transaction: &pg::Transaction<'_>,
    target: &Target,
    rows: &[&Record],
) -> Result<Vec<Uuid>, pg::Error> {
    let statement = transaction.prepare_cached(target.insert).await?;
    let text = |get: fn(&Record) -> &str| rows.iter().map(|row| get(row)).collect::<Vec<_>>();
    let ids: Vec<Uuid> = rows.iter().map(|row| row.envelope.event_id.uuid()).collect();
    let times: Vec<Timestamp> = rows.iter().map(|row| row.envelope.timestamp).collect();
    let values: Vec<f64> = rows.iter().map(|row| row.envelope.value).collect();
    let nodes: Vec<i32> = rows.iter().map(|row| i32::from(row.envelope.node_id)).collect();
    let extras: Vec<Option<Json<&serde_json::Value>>> =
        rows.iter().map(|row| row.extra.as_ref().map(Json)).collect();
    let (plants, areas) = (
        text(|row| row.envelope.asset.plant.as_str()),
        text(|row| row.envelope.asset.area.as_str()),
    );
    let (units, tags) =
        (text(|row| row.envelope.asset.unit.as_str()), text(|row| row.envelope.tag.as_str()));
    let (measures, qualities) =
        (text(|row| &row.envelope.unit), text(|row| row.envelope.quality.as_str()));
    let severities = text(|row| row.severity().as_str());
    let all: [&(dyn ToSql + Sync); 12] = [
        &ids,
        &times,
        &plants,
        &areas,
        &units,
        &tags,
        &values,
        &measures,
        &qualities,
        &nodes,
        &extras,
        &severities,
    ];
    let columns = if target.category == Category::Alarm { all.len() } else { all.len() - 1 };
    let added = transaction.query(&statement, &all[..columns]).await?;
    Ok(added.iter().map(|row| row.get(0)).collect())
}
