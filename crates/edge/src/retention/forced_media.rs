//! What the limit of images forces: those that the cloud has a copy of go first, then the others, each declared by an alarm.

use std::time::Instant;

use objects::Bucket;
use tokio_postgres::Transaction;
use uuid::Uuid;

use super::forced::REASON;
use super::media::{OPEN, UNDELIVERED};
use super::report::{Fate, Job};
use super::{Disk, Error, Turn, count};
use crate::media::{self, Row};
use crate::outbox;

const CLASS: &str = "media";
const WHY: &str = "the limit of images is reached";

const LOG: &str = "INSERT INTO retention_log (class, rows, unplaced, bytes, first_at, last_at)
SELECT $1, count(*), count(*), sum(size_bytes)::int8, min(captured_at), max(captured_at)
FROM media_objects WHERE id = ANY($2)";

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The cloud has a copy.
    Copied,
    /// Nobody else has it.
    Only,
}

/// Some images that went.
#[derive(Default)]
struct Batch {
    rows: u64,
    bytes: u64,
}

impl Turn<'_> {
    /// Gives up images for their limit, and no more than it must.
    pub(super) async fn force_media(&mut self, disk: &mut Disk) -> Result<(), Error> {
        let Some(store) = self.retention.store.clone() else { return Ok(()) };
        for step in [Step::Copied, Step::Only] {
            let (mut rows, mut bytes) = (0, 0);
            while disk.media_over > 0 {
                let began = Instant::now();
                let batch = self.media_batch(&store, step, disk.media_over).await?;
                if batch.rows == 0 {
                    break;
                }
                self.step("forced.media")?;
                (rows, bytes) = (rows + batch.rows, bytes + batch.bytes);
                disk.media_over = disk.media_over.saturating_sub(batch.bytes);
                disk.media = disk.media.map(|held| held.saturating_sub(batch.bytes));
                self.rest(began).await;
            }
            if rows > 0 {
                self.tell_media(step, rows, bytes);
            }
        }
        if disk.media_over > 0 {
            tracing::error!(
                over = disk.media_over,
                "images are above their limit and nothing more may be given up: add disk, or end open sessions"
            );
        }
        self.purge_all(&store).await
    }

    fn tell_media(&mut self, step: Step, rows: u64, bytes: u64) {
        let size = (rows, Some(bytes));
        match step {
            Step::Copied => {
                let why = format!("{WHY}; the cloud has them");
                self.report.add(Job::Media, "media_objects", Fate::Gone, size, why);
            }
            Step::Only => {
                tracing::error!(
                    rows,
                    bytes,
                    "the limit of images is reached: some that the cloud has not were dropped, and declared"
                );
                self.report.add(Job::Disk, "undelivered: media", Fate::Dropped, size, WHY);
            }
        }
    }

    /// One transaction: some images of about `wanted` bytes, the oldest first.
    async fn media_batch(
        &mut self,
        store: &Bucket,
        step: Step,
        wanted: u64,
    ) -> Result<Batch, Error> {
        let text = self.choice(step);
        let limit = i64::from(self.config().batch_rows);
        let watch = self.retention.watch.clone();
        let transaction = self.client.transaction().await?;
        let rows = transaction.query(&text, &[&store.name(), &limit]).await?;
        let (mut batch, mut ids, mut alarms) = (Batch::default(), Vec::new(), Vec::new());
        for row in &rows {
            if batch.bytes >= wanted {
                break;
            }
            let row = Row::read(row)?;
            if step == Step::Only {
                match media::dropped(&row, REASON) {
                    Ok(alarm) => alarms.push(alarm),
                    Err(error) => {
                        // What cannot be declared is not ours to drop.
                        tracing::warn!(media_id = %row.id, %error, "an image is passed over");
                        continue;
                    }
                }
            }
            batch.rows += 1;
            batch.bytes += count(row.size_bytes);
            ids.push(row.id);
        }
        if ids.is_empty() {
            return Ok(batch);
        }
        mark(&transaction, &ids, (step == Step::Only).then_some(REASON)).await?;
        if step == Step::Only {
            outbox::add_all_uncached(&transaction, &alarms).await?;
            transaction.execute(LOG, &[&CLASS, &ids]).await?;
        }
        if watch.is_some_and(|watch| !watch("forced.media.written")) {
            return Err(Error::Ended("forced.media.written"));
        }
        transaction.commit().await?;
        Ok(batch)
    }

    /// The statement that picks images of a step.
    fn choice(&self, step: Step) -> String {
        let open = if self.config().media_of_open_sessions { "false" } else { OPEN };
        let copied = format!("(m.cloud_copied_at IS NOT NULL AND NOT {UNDELIVERED})");
        let which = match step {
            Step::Copied => copied,
            Step::Only => format!("NOT {copied}"),
        };
        let columns = media::COLUMNS;
        format!(
            "SELECT {columns} FROM media_objects m
             WHERE m.status = 'stored' AND m.bucket = $1 AND {which} AND NOT ({open})
             ORDER BY m.captured_at, m.id LIMIT $2 FOR UPDATE SKIP LOCKED"
        )
    }

    /// What the limit would take.
    pub(super) async fn would_drop_media(&mut self, disk: &Disk) -> Result<(), Error> {
        let Some(store) = self.retention.store.clone().filter(|_| disk.media_over > 0) else {
            return Ok(());
        };
        let mut wanted = disk.media_over;
        for step in [Step::Copied, Step::Only] {
            // As far as the limit needs it: the sizes of those before each, summed up.
            let text = format!(
                "SELECT count(*), coalesce(sum(size_bytes), 0)::int8 FROM (
                     SELECT size_bytes, coalesce(sum(size_bytes) OVER (ORDER BY captured_at, id
                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
                     FROM ({}) c) s WHERE before < $3::int8",
                self.choice(step).replace("FOR UPDATE SKIP LOCKED", "")
            );
            let most = i64::MAX;
            let row = self
                .client
                .query_one(&text, &[&store.name(), &most, &wanted.cast_signed()])
                .await?;
            let (rows, bytes) = (count(row.try_get(0)?), count(row.try_get(1)?));
            wanted = wanted.saturating_sub(bytes);
            let size = (rows, (rows > 0).then_some(bytes));
            match step {
                Step::Copied => {
                    let why = format!("{WHY}; the cloud has them");
                    self.report.add(Job::Media, "media_objects", Fate::WouldGo, size, why);
                }
                Step::Only => {
                    self.report.add(Job::Disk, "undelivered: media", Fate::WouldDrop, size, WHY);
                }
            }
        }
        Ok(())
    }
}

async fn mark(
    transaction: &Transaction<'_>,
    ids: &[Uuid],
    reason: Option<&str>,
) -> Result<(), Error> {
    let text = "UPDATE media_objects SET status = 'deleted', deleted_at = now(), drop_reason = $2
        WHERE id = ANY($1)";
    transaction.execute(text, &[&ids, &reason]).await?;
    Ok(())
}
