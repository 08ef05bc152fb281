//! Partitions whose time is over: dropped whole, when everything in them was delivered.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use pg::About;
use tokio_postgres::error::SqlState;

use super::report::{Fate, Job, Line};
use super::{Disk, Error, Turn, count, forced_kept};
use crate::maintenance::DAYS_BACK;

/// How long ingest waits behind us for a lock at the most.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '300ms'";
/// How long the partition may be locked against late writers while the outbox is searched.
const SEARCH_TIMEOUT: &str = "SET LOCAL statement_timeout = '5s'";
/// How often a lock is tried for.
const ATTEMPTS: usize = 10;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);
const FORCED: &str = "the disk limit is reached; the cloud has them";
/// Undelivered rows are counted up to this many: the number is for people.
const COUNTED: i64 = 10_000;

// A partition with more rows than a count should read is reported with the planner's estimate.
const EXPIRED: &str = "SELECT format('%I.%I', n.nspname, c.relname), c.relname::text, b.since, b.until,
    pg_total_relation_size(c.oid), c.reltuples::float8,
    b.until > now() - make_interval(days => $3) AS remade
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''([^'']+)''\\)'))[1]::timestamptz AS since,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''([^'']+)''\\)'))[1]::timestamptz AS until) b
WHERE i.inhparent = to_regclass($1::text) AND b.since IS NOT NULL
    AND b.until <= now() - make_interval(days => $2) ORDER BY b.until";

// Waiting telemetry is in sync_outbox_lane_bulk by device and time. So the devices are walked, and of each only the month is
// read: a backlog of any size costs a few reads a device.
const UNDELIVERED: &str = "WITH RECURSIVE lanes AS (
    (SELECT tenant_id AS tenant, (-priority) AS rank, coalesce(device_id, id) AS device FROM sync_outbox
        WHERE NOT finished AND priority <= 0
        ORDER BY tenant_id, (-priority), (coalesce(device_id, id)) LIMIT 1)
    UNION ALL
    SELECT n.* FROM lanes l CROSS JOIN LATERAL (
        SELECT tenant_id, (-priority), coalesce(device_id, id) FROM sync_outbox
        WHERE NOT finished AND priority <= 0
            AND (tenant_id, (-priority), (coalesce(device_id, id))) > (l.tenant, l.rank, l.device)
        ORDER BY tenant_id, (-priority), (coalesce(device_id, id)) LIMIT 1) n)
SELECT
    (SELECT count(*) FROM (SELECT FROM lanes l CROSS JOIN LATERAL (SELECT FROM sync_outbox o
        WHERE NOT o.finished AND o.priority <= 0 AND o.event_type LIKE 'telemetry.%'
            AND o.tenant_id = l.tenant AND (-o.priority) = l.rank AND coalesce(o.device_id, o.id) = l.device
            AND coalesce(o.occurred_at, o.created_at) >= $1 AND coalesce(o.occurred_at, o.created_at) < $2
            AND o.occurred_at IS NOT NULL LIMIT $3) r LIMIT $3) w),
    (SELECT count(*) FROM (SELECT FROM sync_outbox WHERE failed_at IS NOT NULL AND status IN ('dlq', 'failed')
        AND event_type LIKE 'telemetry.%' AND occurred_at >= $1 AND occurred_at < $2 LIMIT $3) d),
    (SELECT count(*) FROM (SELECT FROM telemetry_dirty
        WHERE bucket_start_at >= $1 AND bucket_start_at < $2 LIMIT $3) m)";

/// Readings that were never to leave the site (`edge.sync.telemetry = "aggregates"`): those that a tombstone `kept_at_site` tells of, or
/// will. One look at an index for each, where there are any at all.
pub(super) const KEPT: &str = "(SELECT EXISTS (SELECT FROM ledger_tombstone WHERE reason = 'kept_at_site')
        OR EXISTS (SELECT FROM ledger_frontier WHERE kept <> '{}'))
    AND t.stream IS NOT NULL AND (t.seq <= (SELECT k.to_seq FROM ledger_tombstone k
            WHERE k.stream = t.stream AND k.epoch = t.epoch AND k.from_seq <= t.seq AND k.reason = 'kept_at_site'
            ORDER BY k.from_seq DESC LIMIT 1)
        OR EXISTS (SELECT FROM ledger_frontier f CROSS JOIN LATERAL generate_series(1, cardinality(f.kept), 2) AS i
            WHERE f.stream = t.stream AND f.epoch = t.epoch AND t.seq BETWEEN f.kept[i] AND f.kept[i + 1]))";

/// What raw readings may be needed for beside their aggregates, which must be made in any case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// They have to reach the cloud.
    pub(super) delivery: bool,
    /// Those that never leave the site have to stay.
    pub(super) kept: bool,
}

/// What may go before its time is over: the cloud has all of it.
const DELIVERED: Needs = Needs { delivery: true, kept: true };

/// A partition whose time is over.
pub(super) struct Partition {
    /// Quoted by the database itself.
    pub(super) name: String,
    /// As a person knows it.
    pub(super) short: String,
    since: Timestamp,
    until: Timestamp,
    pub(super) bytes: u64,
    rows: u64,
}

enum Dropped {
    Yes,
    Needed(String),
    InTheWay,
}

impl Turn<'_> {
    /// Drops the partitions of `table` that ended `days` ago.
    pub(super) async fn partitions(
        &mut self,
        job: Job,
        table: &'static str,
        days: u32,
    ) -> Result<(), Error> {
        // Only raw telemetry waits: for the cloud, where there is one, and for its aggregates. These have their events already.
        let waits = (job == Job::Raw).then_some(Needs { delivery: self.delivers, kept: false });
        for partition in self.expired_partitions(table, days).await? {
            let size = (partition.rows, Some(partition.bytes));
            let why = format!("ended more than {days} days ago");
            let fate = self.report.leaving();
            // The first look takes no lock, so that a month that is held costs nobody anything.
            if let Some(needs) = waits
                && let Some(held) = needed(&self.client, &partition, needs).await?
            {
                self.report.add(job, partition.short, Fate::Held, size, held);
                continue;
            }
            self.step("partition.seen")?;
            if self.report.dry_run {
                self.report.add(job, partition.short, fate, size, why);
                continue;
            }
            let began = Instant::now();
            match self.drop_partition(table, &partition, waits).await? {
                Dropped::Yes => self.report.add(job, partition.short, fate, size, why),
                Dropped::Needed(held) => {
                    self.report.add(job, partition.short, Fate::Held, size, held);
                }
                Dropped::InTheWay => {
                    let held = "others use the table, or the search took too long; tried again at the next turn";
                    self.report.add(job, partition.short, Fate::Held, size, held);
                }
            }
            self.rest(began).await;
        }
        Ok(())
    }

    /// Drops raw months that are over and that the cloud has all of, the oldest first, until the disk is below its limits.
    pub(super) async fn force_months(&mut self, disk: &mut Disk) -> Result<(), Error> {
        for partition in self.months_to_force(false).await? {
            if disk.over == 0 {
                break;
            }
            if self.drop_delivered(&partition).await? {
                let size = (partition.rows, Some(partition.bytes));
                self.report.add(Job::Raw, partition.short, Fate::Gone, size, FORCED);
            }
            *disk = self.measure(true).await?;
        }
        Ok(())
    }

    /// Drops a raw month that the cloud has all of; false when it has not, or others are in the way.
    pub(super) async fn drop_delivered(&mut self, partition: &Partition) -> Result<bool, Error> {
        let dropped = self.drop_partition("telemetry_raw", partition, Some(DELIVERED)).await?;
        Ok(matches!(dropped, Dropped::Yes))
    }

    /// The same for a look; returns how many bytes would go.
    pub(super) async fn would_force_months(&mut self, wanted: u64) -> Result<u64, Error> {
        let mut freed = 0;
        for kept in [false, true] {
            for partition in self.months_to_force(kept).await? {
                let told = |line: &Line| line.job == Job::Raw && line.what == partition.short;
                if freed >= wanted || self.report.lines.iter().any(told) {
                    continue;
                }
                freed += partition.bytes;
                let size = (partition.rows, Some(partition.bytes));
                if kept {
                    let what = forced_kept::named(&partition);
                    self.report.add(Job::Disk, what, Fate::WouldDrop, size, forced_kept::WHY);
                } else {
                    self.report.add(Job::Raw, partition.short, Fate::WouldGo, size, FORCED);
                }
            }
        }
        Ok(freed)
    }

    /// Raw months that are over and of which nothing is to be delivered any more, those where all was delivered or those with readings that
    /// were kept here. Without a cloud nothing was delivered. What was held in this turn is not looked at again.
    pub(super) async fn months_to_force(&mut self, kept: bool) -> Result<Vec<Partition>, Error> {
        let delivery = Needs { delivery: true, kept: false };
        let mut months = Vec::new();
        for partition in self.expired_partitions("telemetry_raw", 0).await? {
            let held = |line: &Line| line.what == partition.short && line.fate == Fate::Held;
            if self.delivers
                && partition.rows > 0
                && !self.report.lines.iter().any(held)
                && needed(&self.client, &partition, delivery).await?.is_none()
                && needed(&self.client, &partition, DELIVERED).await?.is_some() == kept
            {
                months.push(partition);
            }
        }
        Ok(months)
    }

    async fn expired_partitions(&self, table: &str, days: u32) -> Result<Vec<Partition>, Error> {
        let days = i32::try_from(days).unwrap_or(i32::MAX);
        let found = self.client.query(EXPIRED, &[&table, &days, &DAYS_BACK]).await?;
        let mut partitions = Vec::new();
        for row in &found {
            let name: String = row.try_get(0)?;
            let estimate: f64 = row.try_get(5)?;
            let rows = if estimate > 1e6 {
                #[expect(clippy::cast_possible_truncation, reason = "an estimate of rows")]
                count(estimate as i64)
            } else {
                let counted =
                    self.client.query_one(&format!("SELECT count(*) FROM {name}"), &[]).await?;
                count(counted.try_get(0)?)
            };
            // An empty month that ingress would make again is left for late backfills.
            if rows == 0 && row.try_get(6)? {
                continue;
            }
            partitions.push(Partition {
                name,
                short: row.try_get(1)?,
                since: row.try_get(2)?,
                until: row.try_get(3)?,
                bytes: count(row.try_get(4)?),
                rows,
            });
        }
        Ok(partitions)
    }

    async fn drop_partition(
        &mut self,
        table: &str,
        partition: &Partition,
        waits: Option<Needs>,
    ) -> Result<Dropped, Error> {
        for _ in 0..ATTEMPTS {
            match self.try_drop(table, partition, waits).await {
                Err(Error::Database(error)) if error.about() == About::Conflict => {
                    tokio::time::sleep(BETWEEN_ATTEMPTS).await;
                }
                // Late writers have waited long enough: the search is not tried again before the next turn.
                Err(Error::Database(error)) if is_cancelled(&error) => break,
                outcome => return outcome,
            }
        }
        Ok(Dropped::InTheWay)
    }

    async fn try_drop(
        &mut self,
        table: &str,
        partition: &Partition,
        waits: Option<Needs>,
    ) -> Result<Dropped, Error> {
        let watch = self.retention.watch.clone();
        let step = |name| match &watch {
            Some(watch) if !watch(name) => Err(Error::Ended(name)),
            _ => Ok(()),
        };
        let name = &partition.name;
        let transaction = self.client.transaction().await?;
        transaction.batch_execute(LOCK_TIMEOUT).await?;
        transaction.batch_execute(SEARCH_TIMEOUT).await?;
        // Late readings of this month wait from here on, and so does nobody else. Whoever wrote one before us
        // has committed, and its outbox row is seen.
        transaction.batch_execute(&format!("LOCK TABLE ONLY {name} IN SHARE MODE")).await?;
        step("partition.locked")?;
        if let Some(needs) = waits
            && let Some(held) = needed(&transaction, partition, needs).await?
        {
            return Ok(Dropped::Needed(held));
        }
        // A late writer that waits for the month holds the parent: one of us gives way, and it is we, by the timeout.
        transaction
            .batch_execute(&format!(
                "LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE; DROP TABLE {name}"
            ))
            .await?;
        step("partition.dropped")?;
        transaction.commit().await?;
        step("partition.committed")?;
        Ok(Dropped::Yes)
    }
}

/// Whether a statement took longer than it may.
fn is_cancelled(error: &pg::Error) -> bool {
    matches!(error, pg::Error::Postgres(error) if error.code() == Some(&SqlState::QUERY_CANCELED))
}

/// What a partition is still needed for, in words: readings that have not reached the cloud, if there is one, and aggregates.
async fn needed(
    client: &impl tokio_postgres::GenericClient,
    partition: &Partition,
    needs: Needs,
) -> Result<Option<String>, Error> {
    let row =
        client.query_one(UNDELIVERED, &[&partition.since, &partition.until, &COUNTED]).await?;
    let number = |n: usize| row.try_get::<_, i64>(n);
    let many = |n: i64| if n >= COUNTED { format!("{n} or more") } else { n.to_string() };
    let (waiting, dead, marks) = (number(0)?, number(1)?, number(2)?);
    let delivers = needs.delivery;
    Ok(if delivers && waiting > 0 {
        Some(format!("{} readings are not in the cloud yet", many(waiting)))
    } else if delivers && dead > 0 {
        Some(format!("{} readings are dead letters: see holdfast outbox", many(dead)))
    } else if marks > 0 {
        Some(format!("{} aggregates are not made yet: the role telemetry does", many(marks)))
    } else if needs.kept && has_kept(client, partition).await? {
        Some("readings were kept here, and are nowhere else".to_owned())
    } else {
        None
    })
}

async fn has_kept(
    client: &impl tokio_postgres::GenericClient,
    partition: &Partition,
) -> Result<bool, Error> {
    let text = format!("SELECT 1 FROM {} t WHERE {KEPT} LIMIT 1", partition.name);
    Ok(client.query_opt(&text, &[]).await?.is_some())
}
