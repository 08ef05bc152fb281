//! What the disk limit forces: undelivered events are given up, the least precious and longest waiting first, and declared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Transaction;
use uuid::Uuid;

use super::forced_notice::{self, Gone};
use super::ledger::{Place, Stream, give_up, lock};
use super::report::{Fate, Job};
use super::{Disk, Error, Turn, bytes, count};

/// The size limit: the oldest went first. As the ledger says it, and the cloud understands it.
pub(super) const REASON: &str = "drop_oldest";
/// How often the disk is measured again in one turn. What is still too much then is the next turn's.
const ROUNDS: usize = 8;

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

    /// Its priorities in the outbox, both ends included. Notices of what was dropped are above all classes: nothing drops them.
    fn priorities(self) -> (i32, i32) {
        let alarm = crate::outbox::priority(event::Class::Alarm);
        match self {
            Class::Telemetry => (i32::MIN, 0),
            Class::Event => (1, alarm - 1),
            Class::Alarm => (alarm, crate::outbox::NOTICE - 1),
        }
    }
}

// In the order of sync_outbox_work. A row that has not been tried is due since it was written.
const OLDEST: &str = "SELECT id, stream, epoch, seq, next_attempt_at
FROM sync_outbox WHERE NOT finished AND status = 'pending' AND priority BETWEEN $1 AND $2
    AND next_attempt_at >= $3 AND NOT (coalesce(stream, '') = ANY($4))
ORDER BY next_attempt_at, occurred_at LIMIT $5";

// Rows that a forwarder takes at this moment are passed over.
const REMOVE: &str = "DELETE FROM sync_outbox WHERE id = ANY(ARRAY(
    SELECT id FROM sync_outbox WHERE id = ANY($1) AND status = 'pending' FOR UPDATE SKIP LOCKED))
RETURNING id, stream, epoch, seq, coalesce(occurred_at, created_at), octet_length(payload_json::text)::int8,
    occurred_at, tenant_id, event_type";

const READINGS: &str =
    "DELETE FROM telemetry_raw t USING unnest($1::uuid[], $2::timestamptz[]) AS u (id, at)
WHERE t.id = u.id AND t.occurred_at = u.at";

const LOG: &str = "INSERT INTO retention_log (class, rows, unplaced, bytes, first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6)";

/// A batch that went.
#[derive(Debug, Default)]
struct Batch {
    rows: u64,
    bytes: u64,
    /// Where the next batch begins.
    cursor: Option<Timestamp>,
}

/// What a turn has given up so far, and where it stands.
struct Drop<'a> {
    class: Class,
    cursor: Timestamp,
    /// Streams whose ledger has no room for more holes.
    passed_over: &'a mut BTreeSet<String>,
}

impl Turn<'_> {
    /// Gives up what must be given up for the disk's limits.
    pub(super) async fn force(&mut self, mut disk: Disk) -> Result<(), Error> {
        let mut passed_over = BTreeSet::new();
        let mut any = false;
        for _ in 0..ROUNDS {
            if disk.over == 0 {
                break;
            }
            let gone = self.force_some(disk.over, &mut passed_over).await?;
            if gone == 0 {
                break;
            }
            any = true;
            // Pages are free for new rows, and counted as such, after a vacuum.
            for text in [
                "SET statement_timeout = 0",
                "VACUUM (ANALYZE) sync_outbox",
                "ANALYZE telemetry_raw",
            ] {
                self.client.batch_execute(text).await?;
            }
            disk = self.measure(true).await?;
        }
        if disk.over > 0 {
            tracing::error!(
                over = disk.over,
                "the database is above its limit and nothing more may be given up: add disk, or restore the link"
            );
        } else if any {
            tracing::warn!("the database is below its limit again");
        }
        self.force_media(&mut disk).await?;
        self.report.disk = Some(disk);
        Ok(())
    }

    /// Gives up about `wanted` bytes; returns how many.
    async fn force_some(
        &mut self,
        wanted: u64,
        passed_over: &mut BTreeSet<String>,
    ) -> Result<u64, Error> {
        let mut freed = 0;
        for class in Class::ALL {
            let mut drop = Drop { class, cursor: Timestamp::UNIX_EPOCH, passed_over };
            let (mut rows, mut bytes) = (0, 0);
            while freed < wanted {
                let began = Instant::now();
                let batch = self.force_batch(&mut drop).await?;
                if batch.rows == 0 {
                    break;
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

    /// One transaction.
    async fn force_batch(&mut self, drop: &mut Drop<'_>) -> Result<Batch, Error> {
        let limit = i64::from(self.config().batch_rows);
        let (low, high) = drop.class.priorities();
        let watch = self.retention.watch.clone();
        let transaction = self.client.transaction().await?;
        let passed: Vec<&str> = drop.passed_over.iter().map(String::as_str).collect();
        let oldest =
            transaction.query(OLDEST, &[&low, &high, &drop.cursor, &passed, &limit]).await?;
        let mut ids: Vec<(Uuid, Option<Stream>)> = Vec::new();
        let mut wanted: BTreeMap<Stream, Vec<u64>> = BTreeMap::new();
        let mut batch = Batch::default();
        for row in &oldest {
            let stream = row.try_get::<_, Option<String>>(1)?.zip(row.try_get(2)?);
            let seq: Option<i64> = row.try_get(3)?;
            let stream = stream.filter(|_| seq.is_some());
            if let (Some(stream), Some(seq)) = (&stream, seq) {
                wanted.entry(stream.clone()).or_default().push(count(seq));
            }
            ids.push((row.try_get(0)?, stream));
            batch.cursor = Some(row.try_get(4)?);
        }
        let mut locked = lock(&transaction, &wanted.keys().cloned().collect()).await?;
        locked.retain(|stream, frontier| {
            let room = frontier.has_room(wanted.get(stream).into_iter().flatten().copied());
            if !room {
                drop.passed_over.insert(stream.0.clone());
            }
            room
        });
        // Coordinates without a frontier cannot be declared; such a row is not ours to drop.
        ids.retain(|(_, stream)| stream.as_ref().is_none_or(|stream| locked.contains_key(stream)));
        let ids: Vec<Uuid> = ids.into_iter().map(|(id, _)| id).collect();
        let removed = transaction.query(REMOVE, &[&ids]).await?;
        let mut places: BTreeMap<Stream, Vec<Place>> = BTreeMap::new();
        let (mut events, mut times) = (Vec::new(), Vec::new());
        let (mut unplaced, mut range) = (Vec::new(), None::<(Timestamp, Timestamp)>);
        for row in &removed {
            let (id, at): (Uuid, Timestamp) = (row.try_get(0)?, row.try_get(4)?);
            range = Some(range.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
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
        let told = forced_notice::tell(&transaction, &unplaced, REASON).await?;
        batch.bytes = batch.bytes.saturating_sub(told);
        note(&transaction, drop.class, &batch, unplaced.len(), range).await?;
        if watch.is_some_and(|watch| !watch("forced.written")) {
            return Err(Error::Ended("forced.written"));
        }
        transaction.commit().await?;
        drop.cursor = batch.cursor.unwrap_or(drop.cursor);
        Ok(batch)
    }

    /// What the disk limit would take, class by class.
    pub(super) async fn would_drop(&mut self, disk: &Disk) -> Result<(), Error> {
        let mut wanted = disk.over;
        for class in Class::ALL.into_iter().filter(|_| disk.over > 0) {
            let (low, high) = class.priorities();
            let text =
                "SELECT count(*), coalesce(avg(payload_size_bytes), 0)::float8 FROM sync_outbox
                WHERE NOT finished AND status = 'pending' AND priority BETWEEN $1 AND $2";
            let row = self.client.query_one(text, &[&low, &high]).await?;
            let (rows, payload): (i64, f64) = (row.try_get(0)?, row.try_get(1)?);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate of bytes"
            )]
            let each = bytes::outbox_row(payload as u64)
                + if class == Class::Telemetry { bytes::RAW_ROW } else { 0 };
            let rows = count(rows).min(wanted.div_ceil(each));
            wanted = wanted.saturating_sub(rows * each);
            let what = format!("undelivered: {}", class.as_str());
            let why = "the disk limit is reached, and what has expired may not be enough";
            let bytes = (rows > 0).then_some(rows * each);
            self.report.add(Job::Disk, what, Fate::WouldDrop, (rows, bytes), why);
        }
        self.would_drop_media(disk).await
    }
}

async fn note(
    transaction: &Transaction<'_>,
    class: Class,
    batch: &Batch,
    unplaced: usize,
    range: Option<(Timestamp, Timestamp)>,
) -> Result<(), Error> {
    let (rows, bytes) = (batch.rows.cast_signed(), batch.bytes.cast_signed());
    let unplaced = i64::try_from(unplaced).unwrap_or(i64::MAX);
    let (first, last) = (range.map(|range| range.0), range.map(|range| range.1));
    transaction.execute(LOG, &[&class.as_str(), &rows, &unplaced, &bytes, &first, &last]).await?;
    Ok(())
}
