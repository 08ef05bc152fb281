//! Images whose time is over: the row is marked first, then the object goes, then the row says so.
//!
//! Marked first, because a row that says `stored` promises an object; a kill in between leaves rows that are marked and not
//! purged, which every turn begins with.

use std::time::Instant;

use jiff::Timestamp;
use objects::Bucket;
use uuid::Uuid;

use super::report::{Fate, Job};
use super::{Error, Turn, count};
use crate::config::UntilCopied;

const WHAT: &str = "media_objects";

/// By when it was captured. One that was past its time when it came, from a camera whose clock was not set for example, has its
/// time from then on.
const EXPIRED: &str = "m.status = 'stored' AND m.captured_at < now() - make_interval(days => $1)
    AND (m.captured_at >= m.stored_at - make_interval(days => $1) OR m.stored_at < now() - make_interval(days => $1))";
pub(super) const OPEN: &str = "m.session_id IS NOT NULL AND EXISTS (SELECT FROM weight_sessions s
    WHERE s.id = m.session_id AND s.status NOT IN ('finalized', 'cancelled'))";
// An event that was archived as a dead letter, or taken by the disk limit, never reached the cloud; another that is not there any
// more did. What told of the image since, and a copy, outweigh one that did not arrive.
pub(super) const UNDELIVERED: &str = "(m.untold_at IS NOT NULL OR (SELECT coalesce(bool_or(NOT o.finished), false)
        OR (m.cloud_copied_at IS NULL AND NOT coalesce(bool_or(o.status = 'acked'), false)
            AND (count(*) > 0 OR EXISTS (SELECT FROM outbox_archive a WHERE a.media_id = m.id)))
    FROM sync_outbox o WHERE o.event_type = 'media.stored' AND lower(o.payload_json->>'media_id') = m.id::text))";

/// The cloud has no copy, and makes some as far as is known.
const UNCOPIED: &str =
    "(m.cloud_copied_at IS NULL AND coalesce((SELECT copies FROM cloud_copying), true))";

const MARKED: &str = "SELECT id, object_key, deleted_at FROM media_objects
WHERE status = 'deleted' AND purged_at IS NULL AND bucket = $1 AND (deleted_at, id) > ($2, $3)
ORDER BY deleted_at, id LIMIT $4";
/// A store that refuses so many one after the other refuses us.
const REFUSALS_IN_A_ROW: u32 = 20;
const REFUSED: &str = "the store refuses to delete them: see the log; tried again at the next turn";

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
        let mut purge = Purge::default();
        let ended = loop {
            let began = Instant::now();
            // What a turn before this one has marked goes first.
            let purged = match self.purge(&store, &mut purge).await {
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
        self.report.add(Job::Media, "objects", Fate::Held, (purge.refused, None), REFUSED);
        Ok(())
    }

    fn open(&self) -> &'static str {
        if self.config().media_of_open_sessions { "false" } else { OPEN }
    }

    fn undelivered(&self) -> &'static str {
        if self.delivers { UNDELIVERED } else { "false" }
    }

    fn uncopied(&self) -> &'static str {
        match self.config().media_until_copied {
            _ if !self.delivers => "false",
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
    pub(super) async fn purge_all(&mut self, store: &Bucket) -> Result<(), Error> {
        let mut purge = Purge::default();
        loop {
            match self.purge(store, &mut purge).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(Error::Store(error)) => {
                    tracing::error!(%error, "objects of dropped media could not be deleted; tried again at the next turn");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes the objects of the next rows that are marked; returns how many it came to. One that the store refuses to delete is
    /// counted and left for the next turn: the others are not to blame.
    async fn purge(&self, store: &Bucket, purge: &mut Purge) -> Result<u64, Error> {
        let limit = i64::from(self.config().batch_rows);
        let (at, id) = purge.cursor.unwrap_or((Timestamp::UNIX_EPOCH, Uuid::nil()));
        let rows = self.client.query(MARKED, &[&store.name(), &at, &id, &limit]).await?;
        let mut ids: Vec<Uuid> = Vec::with_capacity(rows.len());
        let mut ended = None;
        for row in &rows {
            let (id, key): (Uuid, &str) = (row.try_get(0)?, row.try_get(1)?);
            match store.delete(key).await {
                Ok(()) => {
                    purge.in_a_row = 0;
                    ids.push(id);
                    self.step("media.deleted")?;
                }
                Err(error) if is_away(&error) || purge.in_a_row + 1 >= REFUSALS_IN_A_ROW => {
                    ended = Some(error);
                    break;
                }
                Err(error) => {
                    tracing::warn!(media_id = %id, key, %error, "an object could not be deleted");
                    (purge.refused, purge.in_a_row) = (purge.refused + 1, purge.in_a_row + 1);
                }
            }
            purge.cursor = Some((row.try_get(2)?, id));
        }
        if !ids.is_empty() {
            let text = "UPDATE media_objects SET purged_at = now() WHERE id = ANY($1)";
            self.client.execute(text, &[&ids]).await?;
            self.step("media.purged")?;
        }
        match ended {
            Some(error) => Err(error.into()),
            None => Ok(rows.len() as u64),
        }
    }
}

/// Where a turn stands with the objects of rows that are marked.
#[derive(Default)]
struct Purge {
    /// The last row that was come to: when it was marked, and its id.
    cursor: Option<(Timestamp, Uuid)>,
    /// Objects that the store refused to delete.
    refused: u64,
    in_a_row: u32,
}

/// Whether the store, and not the object, is the matter.
fn is_away(error: &objects::Error) -> bool {
    use objects::Error;
    matches!(error, Error::Away(_) | Error::Full | Error::File(_) | Error::Address(_))
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
