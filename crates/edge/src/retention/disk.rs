//! How much of the disk is in use, and how much of that is too much.

use serde::Serialize;

use super::{Error, Turn, count};

/// The disk as retention sees it, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// The database's files.
    pub database: u64,
    /// What is free inside them, as far as it was looked at: only when they are too large.
    pub reusable: u64,
    /// What the database may use.
    pub max_database: Option<u64>,
    /// What is free on the file system, where it is watched.
    pub free: Option<u64>,
    /// What must be free there.
    pub min_free: Option<u64>,
    /// What is too much.
    pub over: u64,
    /// The stored images, where they have a limit.
    pub media: Option<u64>,
    /// What they may take.
    pub max_media: Option<u64>,
    /// What of them is too much.
    pub media_over: u64,
}

impl Disk {
    /// Whether something must be given up.
    pub fn is_over(&self) -> bool {
        self.over > 0 || self.media_over > 0
    }

    /// How much there is below the limits; without one, more than anything takes.
    pub(super) fn room(&self) -> u64 {
        let used = self.database.saturating_sub(self.reusable);
        let database = self.max_database.map_or(u64::MAX, |most| most.saturating_sub(used));
        let file_system = match (self.free, self.min_free) {
            (Some(free), Some(least)) => free.saturating_add(self.reusable).saturating_sub(least),
            _ => u64::MAX,
        };
        database.min(file_system)
    }

    fn judge(mut self) -> Disk {
        let used = self.database.saturating_sub(self.reusable);
        let too_large = self.max_database.map_or(0, |most| used.saturating_sub(most));
        let too_full = match (self.free, self.min_free) {
            (Some(free), Some(least)) => least.saturating_sub(free.saturating_add(self.reusable)),
            _ => 0,
        };
        self.over = too_large.max(too_full);
        let media = self.media.zip(self.max_media);
        self.media_over = media.map_or(0, |(held, most)| held.saturating_sub(most));
        self
    }
}

// How full the pages of the outbox and of the raw partitions are: rows a page now, against rows of that width on a full page.
// 32 bytes are a row's header and its pointer, 24 of a page its header. The number by itself is good to a quarter. What is free
// is known better against the same number of a time when nothing was.
const FILL: &str = "SELECT c.oid::regclass::text AS name, pg_total_relation_size(c.oid)::float8 AS bytes,
    c.reltuples * (w.width + 32) / (c.relpages * (current_setting('block_size')::float8 - 24) * o.fill) AS fill, k.fill AS full
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT coalesce(sum(s.avg_width * (1 - s.null_frac)), 0) AS width FROM pg_stats s
    WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND NOT s.inherited) w
CROSS JOIN LATERAL (SELECT coalesce(max(option_value::float8), 100) / 100 AS fill
    FROM pg_options_to_table(c.reloptions) WHERE option_name = 'fillfactor') o
LEFT JOIN retention_fill k ON k.table_name = c.oid::regclass::text
WHERE c.relpages > 0 AND c.reltuples >= 0 AND (w.width > 0 OR c.reltuples = 0)
    AND (c.oid = to_regclass('sync_outbox') OR c.oid IN
        (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('telemetry_raw')))";

// Where nothing is remembered, less than a quarter is within the error.
const REUSABLE: &str =
    "SELECT coalesce(sum(bytes * CASE WHEN f.full IS NOT NULL THEN greatest(0, 1 - fill / f.full)
    WHEN fill <= 0.75 THEN 1 - fill ELSE 0 END), 0)::float8";

// A table that was believed to be full is full at what it has now. It is noted anew only when it is fuller: a note that followed
// it down would forget what was freed since, and the same would be given up twice.
const NOTE: &str = "INSERT INTO retention_fill AS k (table_name, fill)
SELECT name, CASE WHEN f.full IS NULL AND fill <= 0.75 THEN 1 ELSE fill END";
const NOTED: &str = "WHERE f.full IS NULL OR fill > f.full
ON CONFLICT (table_name) DO UPDATE SET fill = excluded.fill, noted_at = now()";

const MEDIA: &str = "SELECT coalesce(sum(size_bytes), 0)::int8 FROM media_objects
WHERE status = 'stored' AND bucket = $1";

impl Turn<'_> {
    /// Looks at the disk. What is free inside the files is estimated only if it matters; `fresh` brings the statistics
    /// that the estimate rests on up to date.
    pub(super) async fn measure(&self, fresh: bool) -> Result<Disk, Error> {
        let config = self.config();
        let size = "SELECT pg_database_size(current_database())";
        let mut disk = Disk {
            database: count(self.client.query_one(size, &[]).await?.try_get(0)?),
            max_database: config.max_database_bytes,
            min_free: config.min_free.as_ref().map(|min| min.bytes),
            max_media: config.max_media_bytes,
            ..Disk::default()
        };
        if let Some(min) = &config.min_free {
            let stat = rustix::fs::statvfs(&min.path).map_err(|error| Error::Disk(error.into()))?;
            disk.free = Some(stat.f_bavail.saturating_mul(stat.f_frsize));
        }
        if let Some(store) = self.retention.store.as_ref().filter(|_| disk.max_media.is_some()) {
            let row = self.client.query_one(MEDIA, &[&store.name()]).await?;
            disk.media = Some(count(row.try_get(0)?));
        }
        disk = disk.judge();
        // Readings go with their events, so their pages matter once events have to go.
        for table in ["sync_outbox", "telemetry_raw"] {
            if disk.over == 0 {
                break;
            }
            if fresh {
                self.client.batch_execute(&format!("ANALYZE {table}")).await?;
            }
            let text = format!("{REUSABLE} FROM ({FILL}) f");
            let found: f64 = self.client.query_one(&text, &[]).await?.try_get(0)?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate of bytes"
            )]
            let reusable = found.max(0.0) as u64;
            disk = Disk { reusable, ..disk }.judge();
        }
        Ok(disk)
    }

    /// Remembers how full the tables are, before something is taken out of them.
    pub(super) async fn note_fill(&self) -> Result<(), Error> {
        let gone = "DELETE FROM retention_fill WHERE to_regclass(table_name) IS NULL";
        self.client.execute(gone, &[]).await?;
        self.client.execute(&format!("{NOTE} FROM ({FILL}) f {NOTED}"), &[]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_inside_counts_as_free() {
        let disk = Disk { database: 100, max_database: Some(80), ..Disk::default() };
        assert_eq!(disk.judge().over, 20);
        assert_eq!(Disk { reusable: 30, ..disk }.judge().over, 0);
        let full = Disk { free: Some(5), min_free: Some(25), ..Disk::default() };
        assert_eq!(full.judge().over, 20);
        assert_eq!(Disk { reusable: 15, ..full }.judge().over, 5);
        assert_eq!(Disk { database: 100, ..Disk::default() }.judge().over, 0, "no limit");
        let images = Disk { media: Some(9), max_media: Some(5), ..Disk::default() }.judge();
        assert_eq!((images.over, images.media_over, images.is_over()), (0, 4, true));
    }
}
