//! Images whose time is over: the row is marked first, then the object goes, then the row says so.
//!
//! Marked first, because a row that says `stored` promises an object; a kill in between leaves rows that are marked and not
//! purged, which every turn begins with.

use std::time::Instant;

use objects::Bucket;
use uuid::Uuid;

use super::report::{Fate, Job};
use super::{Error, Turn, count};
use crate::config::UntilCopied;

const WHAT: &str = "media_objects";

const EXPIRED: &str = "m.status = 'stored' AND m.captured_at < now() - make_interval(days => $1)";
pub(super) const OPEN: &str = "m.session_id IS NOT NULL AND EXISTS (SELECT FROM weight_sessions s
    WHERE s.id = m.session_id AND s.status NOT IN ('finalized', 'cancelled'))";
// An event that was archived as a dead letter never reached the cloud; one that is not there any more did.
pub(super) const UNDELIVERED: &str = "(m.id IN (SELECT (o.payload_json->>'media_id')::uuid FROM sync_outbox o
        WHERE NOT o.finished AND o.priority > 0 AND o.event_type = 'media.stored')
    OR m.id IN (SELECT (o.payload_json->>'media_id')::uuid FROM sync_outbox o
        WHERE o.failed_at IS NOT NULL AND o.event_type = 'media.stored' AND o.status IN ('dlq', 'failed'))
    OR EXISTS (SELECT FROM outbox_archive a WHERE a.media_id = m.id))";

/// The cloud has no copy, and makes some as far as is known.
const UNCOPIED: &str =
    "(m.cloud_copied_at IS NULL AND coalesce((SELECT copies FROM cloud_copying), true))";

impl Turn<'_> {
    /// Removes images whose time is over.
    pub(super) async fn media(&mut self) -> Result<(), Error> {
        let days = self.config().media_days;
        let why = format!("captured more than {days} days ago");
        let window = i32::try_from(days).unwrap_or(i32::MAX);
        let held = self.count_media(window).await?;
        let Some(store) = self.retention.store.clone() else {
            let none = "no object store is configured: set edge.media.s3_endpoint";
            self.report.add(Job::Media, WHAT, Fate::Held, (held.expired, None), none);
            return Ok(());
        };
        for (rows, reason) in [
            (held.undelivered, "not in the cloud yet"),
            (held.uncopied, "the cloud has no copy of them yet"),
            (held.refused, "the cloud cannot copy them: see holdfast media copies list there"),
            (held.open, "their session is open"),
            (held.elsewhere, "they lie in another bucket"),
        ] {
            self.report.add(Job::Media, WHAT, Fate::Held, (rows, None), reason);
        }
        if self.report.dry_run {
            let size = (held.free, (held.free > 0).then_some(held.free_bytes));
            self.report.add(Job::Media, WHAT, Fate::WouldGo, size, why);
            return Ok(());
        }
        let (mut gone, mut bytes) = (0, 0);
        let ended = loop {
            let began = Instant::now();
            // What a turn before this one has marked goes first.
            let purged = match self.purge(&store).await {
                Ok(purged) => purged,
                Err(Error::Store(error)) => break Some(error),
                Err(error) => return Err(error),
            };
            let (marked, of) = self.mark(&store, window).await?;
            (gone, bytes) = (gone + marked, bytes + of);
            if purged + marked == 0 {
                break None;
            }
            self.rest(began).await;
        };
        self.report.add(Job::Media, WHAT, Fate::Gone, (gone, (gone > 0).then_some(bytes)), why);
        if let Some(error) = ended {
            tracing::error!(%error, "objects of expired media could not be deleted; tried again at the next turn");
            self.report.add(Job::Media, "objects", Fate::Held, (1, None), error.to_string());
        }
        Ok(())
    }

    fn open(&self) -> &'static str {
        if self.config().media_of_open_sessions { "false" } else { OPEN }
    }

    fn undelivered(&self) -> &'static str {
        if self.retention.delivers { UNDELIVERED } else { "false" }
    }

    fn uncopied(&self) -> &'static str {
        match self.config().media_until_copied {
            _ if !self.retention.delivers => "false",
            UntilCopied::Never => "false",
            UntilCopied::Always => "(m.cloud_copied_at IS NULL)",
            UntilCopied::Auto => UNCOPIED,
        }
    }

    async fn count_media(&self, days: i32) -> Result<Held, Error> {
        let (open, undelivered, uncopied) = (self.open(), self.undelivered(), self.uncopied());
        let bucket = self.retention.store.as_ref().map_or("", Bucket::name);
        let text = format!(
            "SELECT count(*), count(*) FILTER (WHERE undelivered),
                count(*) FILTER (WHERE uncopied AND NOT undelivered AND NOT refused),
                count(*) FILTER (WHERE uncopied AND NOT undelivered AND refused),
                count(*) FILTER (WHERE open AND NOT uncopied AND NOT undelivered),
                count(*) FILTER (WHERE elsewhere AND NOT open AND NOT uncopied AND NOT undelivered),
                count(*) FILTER (WHERE free),
                coalesce(sum(size_bytes) FILTER (WHERE free), 0)::int8
             FROM (SELECT *, NOT (elsewhere OR open OR uncopied OR undelivered) AS free
                 FROM (SELECT m.size_bytes, {open} AS open, {undelivered} AS undelivered,
                     {uncopied} AS uncopied, coalesce(m.cloud_copy IN ('failed', 'differs'), false) AS refused,
                     m.bucket <> $2 AS elsewhere FROM media_objects m WHERE {EXPIRED}) c) e"
        );
        let row = self.client.query_one(&text, &[&days, &bucket]).await?;
        let number = |n: usize| Ok::<_, Error>(count(row.try_get(n)?));
        Ok(Held {
            expired: number(0)?,
            undelivered: number(1)?,
            uncopied: number(2)?,
            refused: number(3)?,
            open: number(4)?,
            elsewhere: number(5)?,
            free: number(6)?,
            free_bytes: number(7)?,
        })
    }

    /// Marks some rows as deleted; returns how many, and their bytes.
    async fn mark(&self, store: &Bucket, days: i32) -> Result<(u64, u64), Error> {
        let (open, undelivered, uncopied) = (self.open(), self.undelivered(), self.uncopied());
        let text = format!(
            "WITH marked AS (UPDATE media_objects SET status = 'deleted', deleted_at = now()
                WHERE status = 'stored' AND id = ANY(ARRAY(SELECT m.id FROM media_objects m
                    WHERE {EXPIRED} AND m.bucket = $2 AND NOT {undelivered} AND NOT {uncopied} AND NOT ({open})
                    ORDER BY m.captured_at LIMIT $3 FOR UPDATE SKIP LOCKED))
                RETURNING size_bytes)
             SELECT count(*), coalesce(sum(size_bytes), 0)::int8 FROM marked"
        );
        let limit = i64::from(self.config().batch_rows);
        let row = self.client.query_one(&text, &[&days, &store.name(), &limit]).await?;
        self.step("media.marked")?;
        Ok((count(row.try_get(0)?), count(row.try_get(1)?)))
    }

    /// Deletes the objects of all rows that are marked. A store that is away is asked again at the next turn.
    pub(super) async fn purge_all(&self, store: &Bucket) -> Result<(), Error> {
        loop {
            match self.purge(store).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(Error::Store(error)) => {
                    tracing::error!(%error, "objects of dropped media could not be deleted; tried again at the next turn");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the objects of some rows that are marked; returns how many.
    async fn purge(&self, store: &Bucket) -> Result<u64, Error> {
        let limit = i64::from(self.config().batch_rows);
        let rows = self
            .client
            .query(
                "SELECT id, object_key FROM media_objects WHERE status = 'deleted' AND purged_at IS NULL
                     AND bucket = $1 ORDER BY deleted_at LIMIT $2",
                &[&store.name(), &limit],
            )
            .await?;
        let mut ids: Vec<Uuid> = Vec::with_capacity(rows.len());
        for row in &rows {
            store.delete(row.try_get(1)?).await?;
            self.step("media.deleted")?;
            ids.push(row.try_get(0)?);
        }
        if ids.is_empty() {
            return Ok(0);
        }
        let text = "UPDATE media_objects SET purged_at = now() WHERE id = ANY($1)";
        let purged = self.client.execute(text, &[&ids]).await?;
        self.step("media.purged")?;
        Ok(purged)
    }
}

/// How expired media stand.
struct Held {
    expired: u64,
    undelivered: u64,
    /// Without a copy in the cloud, which is still to come.
    uncopied: u64,
    /// Without one, and the cloud has given up.
    refused: u64,
    open: u64,
    elsewhere: u64,
    free: u64,
    free_bytes: u64,
}
