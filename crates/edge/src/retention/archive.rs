//! Dead letters are data: one leaves the outbox only after it is in the object store, and is declared.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;
use objects::Bucket;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Row;
use uuid::Uuid;

use super::forced_notice::{self, Gone};
use super::ledger::{Place, declare};
use super::report::{Fate, Job};
use super::{Error, Turn, count};

/// Rows in one archive. With payloads at their limit it takes about 50 MB of memory.
const ROWS: u32 = 200;
/// An archive that is larger was not written by us.
const MAX_ARCHIVE_BYTES: u64 = 64 << 20;
const COMPRESSION_LEVEL: i32 = 6;
const MIME: &str = "application/zstd";
/// The age limit, as the ledger says it.
const REASON: &str = "expired";

const DEAD: &str = "failed_at IS NOT NULL AND status IN ('dlq', 'failed')
    AND updated_at < now() - make_interval(days => $1)";

/// The day of the archive's name, and the rows; in an order that a second try meets again.
fn select() -> String {
    format!(
        "SELECT id, updated_at, to_jsonb(o)::text, to_char(now() AT TIME ZONE 'UTC', 'YYYY/MM/DD')
         FROM sync_outbox o WHERE {DEAD} ORDER BY tenant_id, failed_at DESC, id LIMIT $2"
    )
}

// A row that was redriven since it was read is not the one in the archive.
const LOCK: &str =
    "SELECT o.id, o.tenant_id, o.stream, o.epoch, o.seq, coalesce(o.occurred_at, o.created_at), o.event_type
FROM unnest($1::uuid[], $2::timestamptz[]) AS u (id, updated_at)
JOIN sync_outbox o ON o.id = u.id AND o.updated_at = u.updated_at AND o.status IN ('dlq', 'failed')
ORDER BY o.id FOR UPDATE OF o";

// The image of an event that did not arrive, unless another told of it.
const NOTE: &str = "INSERT INTO outbox_archive (id, tenant_id, event_type, occurred_at, status, dlq_reason, media_id,
    stream, epoch, seq, bucket, object_key, sha256)
SELECT id, tenant_id, event_type, occurred_at, status, dlq_reason,
    CASE WHEN event_type = 'media.stored' AND NOT EXISTS (SELECT FROM sync_outbox o WHERE o.event_type = 'media.stored'
            AND lower(o.payload_json->>'media_id') = lower(d.payload_json->>'media_id') AND o.status = 'acked')
        THEN (substring(payload_json->>'media_id' FROM '^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'))::uuid END,
    stream, epoch, seq, $2, $3, $4
FROM sync_outbox d WHERE id = ANY($1) ON CONFLICT (id) DO NOTHING";

impl Turn<'_> {
    /// Archives dead letters whose time is over, and removes them.
    pub(super) async fn dead_letters(&mut self) -> Result<(), Error> {
        let days = self.config().outbox_days;
        let why = format!("dead for more than {days} days");
        let what = "dead letters of sync_outbox";
        let dead = format!("SELECT count(*) FROM sync_outbox WHERE {DEAD}");
        let window = i32::try_from(days).unwrap_or(i32::MAX);
        let waiting = count(self.client.query_one(&dead, &[&window]).await?.try_get(0)?);
        let Some(store) = self.retention.store.clone() else {
            let held = "no object store to archive them in: set edge.media.s3_endpoint";
            self.report.add(Job::DeadLetters, what, Fate::Held, (waiting, None), held);
            return Ok(());
        };
        if self.report.dry_run {
            let fate = self.report.leaving();
            self.report.add(
                Job::DeadLetters,
                what,
                fate,
                (waiting, None),
                format!("archived: {why}"),
            );
            return Ok(());
        }
        let mut gone = 0;
        let ended = loop {
            let began = Instant::now();
            match self.archive_some(&store, window).await {
                // Rows that changed under us are not dead for long any more.
                Ok(0) => break None,
                Ok(rows) => gone += rows,
                Err(error @ (Error::Store(_) | Error::Damaged { .. })) => break Some(error),
                Err(error) => return Err(error),
            }
            self.rest(began).await;
        };
        let fate = self.report.leaving();
        self.report.add(Job::DeadLetters, what, fate, (gone, None), format!("archived: {why}"));
        if let Some(error) = ended {
            tracing::error!(%error, "dead letters could not be archived, and stay");
            let left = (waiting.saturating_sub(gone), None);
            self.report.add(Job::DeadLetters, what, Fate::Held, left, error.to_string());
        }
        Ok(())
    }

    /// One archive. Returns how many rows went.
    async fn archive_some(&mut self, store: &Bucket, days: i32) -> Result<u64, Error> {
        let limit = i64::from(ROWS.min(self.config().batch_rows));
        let rows = self.client.query(&select(), &[&days, &limit]).await?;
        let Some(first) = rows.first() else {
            return Ok(0);
        };
        let day: String = first.try_get(3)?;
        self.step("archive.read")?;
        let body = compressed(&rows)?;
        let sha256: [u8; 32] = Sha256::digest(&body).into();
        let key = format!("archive/sync_outbox/{day}/{}.ndjson.zst", hex(&sha256));
        match store.put(&key, MIME, Bytes::from(body)).await {
            // Named by its hash: what is there is the same, or does not read back.
            Ok(()) | Err(objects::Error::AlreadyThere) => {}
            Err(error) => return Err(error.into()),
        }
        self.step("archive.written")?;
        let back = store.get(&key, MAX_ARCHIVE_BYTES).await?;
        if Sha256::digest(&back)[..] != sha256 {
            return Err(Error::Damaged { key });
        }
        self.step("archive.checked")?;
        let gone = self.remove(&rows, store.name(), &key, &sha256).await?;
        self.step("archive.committed")?;
        Ok(gone)
    }

    async fn remove(
        &mut self,
        rows: &[Row],
        bucket: &str,
        key: &str,
        sha256: &[u8; 32],
    ) -> Result<u64, Error> {
        let mut ids: Vec<Uuid> = Vec::with_capacity(rows.len());
        let mut as_read: Vec<Timestamp> = Vec::with_capacity(rows.len());
        for row in rows {
            ids.push(row.try_get(0)?);
            as_read.push(row.try_get(1)?);
        }
        let transaction = self.client.transaction().await?;
        let mut unchanged: Vec<Uuid> = Vec::new();
        let mut places: BTreeMap<(Uuid, String, Uuid), Vec<Place>> = BTreeMap::new();
        let mut unplaced: Vec<Gone> = Vec::new();
        for row in &transaction.query(LOCK, &[&ids, &as_read]).await? {
            let id = row.try_get(0)?;
            unchanged.push(id);
            let place: (Option<String>, Option<Uuid>, Option<i64>) =
                (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
            let (tenant, at, event_type) = (row.try_get(1)?, row.try_get(5)?, row.try_get(6)?);
            if let (Some(stream), Some(epoch), Some(seq)) = place {
                let place = Place { seq: count(seq), event_id: id, at };
                places.entry((tenant, stream, epoch)).or_default().push(place);
            } else if event_type != forced_notice::KIND {
                unplaced.push(Gone { id, tenant, event_type, at });
            }
        }
        transaction.execute(NOTE, &[&unchanged, &bucket, &key, &&sha256[..]]).await?;
        for ((tenant, stream, epoch), places) in &places {
            declare(&transaction, *tenant, stream, *epoch, places, REASON).await?;
        }
        forced_notice::tell(&transaction, &unplaced, REASON).await?;
        let gone = transaction
            .execute("DELETE FROM sync_outbox WHERE id = ANY($1)", &[&unchanged])
            .await?;
        transaction.commit().await?;
        Ok(gone)
    }
}

fn compressed(rows: &[Row]) -> Result<Vec<u8>, Error> {
    let mut lines = String::new();
    for row in rows {
        lines.push_str(row.try_get(2)?);
        lines.push('\n');
    }
    zstd::bulk::compress(lines.as_bytes(), COMPRESSION_LEVEL)
        .map_err(|error| Error::Store(objects::Error::File(error)))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
