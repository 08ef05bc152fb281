//! What the disk limit forces: undelivered events are given up, the least precious and longest waiting first, and declared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::forced_notice::{self, Gone};
use super::ledger::{Locked, Place, Stream, give_up, lock};
use super::report::{Fate, Job};
use super::{Error, Turn, bytes, count};

/// The size limit: the oldest went first. As the ledger says it, and the cloud understands it.
pub(super) const REASON: &str = "drop_oldest";
/// How precious an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Readings and aggregates, and what the forwarder says of itself.
    Telemetry,
    /// Events.
    Event,
    /// Alarms.
    Alarm,
}

impl Class {
    /// In the order in which they are given up.
    pub const ALL: [Class; 3] = [Class::Telemetry, Class::Event, Class::Alarm];

    /// The class as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Telemetry => "telemetry",
            Class::Event => "event",
            Class::Alarm => "alarm",
        }
    }

    /// What a row of it takes at the least.
    pub(super) fn least_bytes(self) -> u64 {
        let reading = if self == Class::Telemetry { bytes::RAW_ROW } else { 0 };
        bytes::outbox_row(0) + reading
    }

    /// Its priorities in the outbox, both ends included. Notices of what was dropped are above all classes: nothing drops them.
    pub(super) fn priorities(self) -> (i32, i32) {
        let alarm = crate::outbox::priority(event::Class::Alarm);
        match self {
            Class::Telemetry => (i32::MIN, 0),
            Class::Event => (1, alarm - 1),
            Class::Alarm => (alarm, crate::outbox::NOTICE - 1),
        }
    }
}

// In the order of sync_outbox_work. A row that has not been tried is due since it was written. The rows of one transaction are due
// at the same time, so the id makes the place of a row its own.
const OLDEST: &str = "SELECT o.id, o.stream, o.epoch, o.seq, o.next_attempt_at, coalesce(o.occurred_at, 'epoch')
FROM sync_outbox o WHERE NOT o.finished AND o.status = 'pending' AND o.priority BETWEEN $1 AND $2
    AND o.next_attempt_at >= $3 AND (o.next_attempt_at, coalesce(o.occurred_at, 'epoch'), o.id) > ($3, $4, $5)
    AND NOT EXISTS (SELECT FROM unnest($6::text[], $7::uuid[]) AS p (stream, epoch)
        WHERE p.stream = o.stream AND p.epoch = o.epoch)
ORDER BY o.next_attempt_at, coalesce(o.occurred_at, 'epoch'), o.id LIMIT $8";

// Rows that a forwarder takes at this moment are passed over.
const REMOVE: &str = "DELETE FROM sync_outbox WHERE id = ANY(ARRAY(
    SELECT id FROM sync_outbox WHERE id = ANY($1) AND status = 'pending' FOR UPDATE SKIP LOCKED))
RETURNING id, stream, epoch, seq, coalesce(occurred_at, created_at), octet_length(payload_json::text)::int8,
    occurred_at, tenant_id, event_type, CASE WHEN event_type = 'media.stored' THEN (substring(payload_json->>'media_id'
        FROM '^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'))::uuid END";

const READINGS: &str =
    "DELETE FROM telemetry_raw t USING unnest($1::uuid[], $2::timestamptz[]) AS u (id, at)
WHERE t.id = u.id AND t.occurred_at = u.at";

// An image whose event is gone was not told of, though nothing waits for it any more.
const UNTOLD: &str = "UPDATE media_objects SET untold_at = now() WHERE id = ANY($1)";

const LOG: &str = "INSERT INTO retention_log (class, rows, unplaced, bytes, first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6)";

/// A batch that went.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// How many rows were looked at. Some cannot go, and those behind them may.
    pub(super) found: usize,
}

/// From when to when.
type Span = Option<(Timestamp, Timestamp)>;

/// The span with one more time in it.
pub(super) fn widened(span: Span, at: Timestamp) -> Span {
    Some(span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))))
}

/// Whether all of these can be given up.
pub(super) fn has_room(frontier: &Locked, places: &[Place]) -> bool {
    frontier.has_room(places.iter().map(|place| place.seq))
}

/// The place of a row in the order in which they go: when it is due, when it occurred, its id.
type Cursor = (Timestamp, Timestamp, Uuid);

/// Whose turn it is, and where it stands.
struct Drop<'a> {
    class: Class,
    cursor: Cursor,
    /// Streams that nothing can be declared for: their ledger has no room for more holes, or they have none.
    passed_over: &'a mut BTreeSet<Stream>,
}

impl Turn<'_> {
    /// Gives up about `wanted` bytes; returns how many.
    pub(super) async fn force_some(
        &mut self,
        wanted: u64,
        passed_over: &mut BTreeSet<Stream>,
    ) -> Result<u64, Error> {
        let mut freed = 0;
        for class in Class::ALL {
            let beginning = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH, Uuid::nil());
            let mut drop = Drop { class, cursor: beginning, passed_over };
            let (mut rows, mut bytes) = (0, 0);
            while freed < wanted {
                let began = Instant::now();
                let batch = self.force_batch(&mut drop, wanted - freed).await?;
                if batch.found == 0 {
                    break;
                }
                if batch.rows == 0 {
                    continue;
                }
                self.step("forced.committed")?;
                (rows, bytes, freed) =
                    (rows + batch.rows, bytes + batch.bytes, freed + batch.bytes);
                self.rest(began).await;
            }
            if rows > 0 {
                tracing::error!(
                    class = class.as_str(),
                    rows,
                    bytes,
                    "the disk limit is reached: undelivered events were dropped, and declared"
                );
                let why = "the disk limit is reached";
                let what = format!("undelivered: {}", class.as_str());
                self.report.add(Job::Disk, what, Fate::Dropped, (rows, Some(bytes)), why);
            }
        }
        Ok(freed)
    }

    /// One transaction, of about `wanted` bytes at the most.
    async fn force_batch(&mut self, drop: &mut Drop<'_>, wanted: u64) -> Result<Batch, Error> {
        let enough = wanted / drop.class.least_bytes() + 1;
        let limit = i64::from(self.config().batch_rows).min(enough.cast_signed());
        let (low, high) = drop.class.priorities();
        let watch = self.retention.watch.clone();
        let transaction = self.client.transaction().await?;
        let passed: (Vec<&str>, Vec<Uuid>) =
            drop.passed_over.iter().map(|(stream, epoch)| (stream.as_str(), *epoch)).unzip();
        let (due, at, id) = drop.cursor;
        let values: [&(dyn ToSql + Sync); 8] =
            [&low, &high, &due, &at, &id, &passed.0, &passed.1, &limit];
        let oldest = transaction.query(OLDEST, &values).await?;
        let mut ids: Vec<(Uuid, Option<Stream>)> = Vec::new();
        let mut wanted: BTreeMap<Stream, Vec<u64>> = BTreeMap::new();
        let mut batch = Batch { found: oldest.len(), ..Batch::default() };
        for row in &oldest {
            let stream = row.try_get::<_, Option<String>>(1)?.zip(row.try_get(2)?);
            let seq: Option<i64> = row.try_get(3)?;
            let stream = stream.filter(|_| seq.is_some());
            if let (Some(stream), Some(seq)) = (&stream, seq) {
                wanted.entry(stream.clone()).or_default().push(count(seq));
            }
            ids.push((row.try_get(0)?, stream));
            drop.cursor = (row.try_get(4)?, row.try_get(5)?, row.try_get(0)?);
        }
        let mut locked = lock(&transaction, &wanted.keys().cloned().collect()).await?;
        locked.retain(|stream, frontier| {
            frontier.has_room(wanted.get(stream).into_iter().flatten().copied())
        });
        let undeclarable = wanted.keys().filter(|stream| !locked.contains_key(*stream));
        drop.passed_over.extend(undeclarable.cloned());
        // Coordinates without a frontier cannot be declared; such a row is not ours to drop.
        ids.retain(|(_, stream)| stream.as_ref().is_none_or(|stream| locked.contains_key(stream)));
        let ids: Vec<Uuid> = ids.into_iter().map(|(id, _)| id).collect();
        let removed = transaction.query(REMOVE, &[&ids]).await?;
        let mut places: BTreeMap<Stream, Vec<Place>> = BTreeMap::new();
        let (mut events, mut times) = (Vec::new(), Vec::new());
        let (mut unplaced, mut range) = (Vec::new(), None);
        let mut images: Vec<Uuid> = Vec::new();
        for row in &removed {
            let (id, at): (Uuid, Timestamp) = (row.try_get(0)?, row.try_get(4)?);
            images.extend(row.try_get::<_, Option<Uuid>>(9)?);
            range = widened(range, at);
            batch.bytes += bytes::outbox_row(count(row.try_get(5)?));
            if drop.class == Class::Telemetry && row.try_get::<_, Option<Timestamp>>(6)?.is_some() {
                events.push(id);
                times.push(at);
            }
            let stream = row.try_get::<_, Option<String>>(1)?.zip(row.try_get(2)?);
            match (stream, row.try_get::<_, Option<i64>>(3)?) {
                (Some(stream), Some(seq)) => {
                    let place = Place { seq: count(seq), event_id: id, at };
                    places.entry(stream).or_default().push(place);
                }
                _ => unplaced.push(Gone {
                    id,
                    tenant: row.try_get(7)?,
                    event_type: row.try_get(8)?,
                    at,
                }),
            }
        }
        batch.rows = removed.len() as u64;
        if batch.rows == 0 {
            return Ok(batch);
        }
        for (stream, places) in &places {
            if let Some(frontier) = locked.remove(stream) {
                give_up(&transaction, stream, frontier, places, REASON).await?;
            }
        }
        batch.bytes += bytes::RAW_ROW * transaction.execute(READINGS, &[&events, &times]).await?;
        if !images.is_empty() {
            transaction.execute(UNTOLD, &[&images]).await?;
        }
        let told = forced_notice::tell(&transaction, &unplaced, REASON).await?;
        batch.bytes = batch.bytes.saturating_sub(told);
        note(&transaction, drop.class, &batch, unplaced.len(), range).await?;
        if watch.is_some_and(|watch| !watch("forced.written")) {
            return Err(Error::Ended("forced.written"));
        }
        transaction.commit().await?;
        Ok(batch)
    }
}

/// For whoever asks later what the limit took.
pub(super) async fn note(
    transaction: &Transaction<'_>,
    class: Class,
    batch: &Batch,
    unplaced: usize,
    range: Span,
) -> Result<(), Error> {
    let (rows, bytes) = (batch.rows.cast_signed(), batch.bytes.cast_signed());
    let unplaced = i64::try_from(unplaced).unwrap_or(i64::MAX);
    let (first, last) = (range.map(|range| range.0), range.map(|range| range.1));
    transaction.execute(LOG, &[&class.as_str(), &rows, &unplaced, &bytes, &first, &last]).await?;
    Ok(())
}
