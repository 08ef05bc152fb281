//! Rows found by reading a table's pages in order: delivered rows of the outbox, and readings without a month.
//!
//! No index is needed, so that claims and completions pay for none; each page is read once a turn. A batch is a range of
//! pages and one transaction. What it deletes is final: nobody changes such a row any more.

use std::time::Instant;

use super::report::{Fate, Job};
use super::{Error, Turn, bytes, count};

const PAGES: &str =
    "SELECT pg_relation_size(to_regclass($1::text)) / current_setting('block_size')::int8";

const RANGE: &str = "ctid >= $1::text::tid AND ctid < $2::text::tid";
const ACKED: &str = "status = 'acked' AND updated_at < now() - make_interval(days => $3)";
// Their clocks were never set or are far off, so the time of receipt counts.
const OLD: &str = "ingested_at < now() - make_interval(days => $3)";
const DELIVERED: &str =
    "NOT EXISTS (SELECT FROM sync_outbox o WHERE o.id = t.id AND o.status <> 'acked')";

// Of any age, with what they take.
const ANY_ACKED: &str =
    "WITH gone AS (DELETE FROM sync_outbox WHERE ctid >= $1::text::tid AND ctid < $2::text::tid
    AND status = 'acked' RETURNING coalesce(payload_size_bytes, 0) AS payload)
SELECT count(*), coalesce(sum(payload), 0)::int8 FROM gone";

/// Delivered rows that went before their time.
#[derive(Default)]
pub(super) struct Acked {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// Where the pages begin that were not read.
    pub(super) next_page: u64,
}

impl Turn<'_> {
    /// Delivered rows of the outbox.
    pub(super) async fn acked(&mut self) -> Result<(), Error> {
        let days = self.config().outbox_days;
        let rows = self.walk("sync_outbox", ACKED, days, "acked.batch").await?;
        let why = format!("acked more than {days} days ago");
        self.report.add(Job::Acked, "sync_outbox", self.report.leaving(), (rows, None), why);
        Ok(())
    }

    /// Readings of the default partition.
    pub(super) async fn default_rows(&mut self, days: u32) -> Result<(), Error> {
        let table = "telemetry_raw_default";
        let delivers = self.delivers;
        let may_go = if delivers { format!("{OLD} AND {DELIVERED}") } else { OLD.to_owned() };
        let rows = self.walk(table, &may_go, days, "default.batch").await?;
        let why = format!("received more than {days} days ago");
        self.report.add(Job::Raw, table, self.report.leaving(), (rows, None), why);
        if delivers {
            let held = format!(
                "SELECT count(*) FROM {table} t WHERE
                ingested_at < now() - make_interval(days => $1) AND NOT {DELIVERED}"
            );
            let days = i32::try_from(days).unwrap_or(i32::MAX);
            let held = count(self.client.query_one(&held, &[&days]).await?.try_get(0)?);
            let why = "not in the cloud yet";
            self.report.add(Job::Raw, table, Fate::Held, (held, None), why);
        }
        Ok(())
    }

    /// Aggregates of the default partition. Their clocks were off too, so the time at which they were made counts.
    pub(super) async fn default_aggregates(&mut self, days: u32) -> Result<(), Error> {
        let table = "telemetry_agg_default";
        let old = "updated_at < now() - make_interval(days => $3)";
        let rows = self.walk(table, old, days, "aggregates.batch").await?;
        let why = format!("made more than {days} days ago");
        self.report.add(Job::Aggregates, table, self.report.leaving(), (rows, None), why);
        Ok(())
    }

    /// Deletes delivered rows of any age, from this page on, until they make about `wanted` bytes.
    pub(super) async fn acked_from(&mut self, page: u64, wanted: u64) -> Result<Acked, Error> {
        let pages: Option<i64> =
            self.client.query_one(PAGES, &[&"sync_outbox"]).await?.try_get(0)?;
        let pages = count(pages.unwrap_or_default());
        let statement = self.client.prepare(ANY_ACKED).await?;
        let mut gone = Acked { next_page: page, ..Acked::default() };
        while gone.next_page < pages && gone.bytes < wanted {
            let to = gone.next_page + u64::from(self.config().batch_pages);
            let began = Instant::now();
            let (first, last) = (format!("({},0)", gone.next_page), format!("({to},0)"));
            let row = self.client.query_one(&statement, &[&first, &last]).await?;
            let (rows, payload) = (count(row.try_get(0)?), count(row.try_get(1)?));
            gone.rows += rows;
            gone.bytes +=
                rows * bytes::acked_row(0) + (bytes::acked_row(payload) - bytes::acked_row(0));
            gone.next_page = to;
            self.step("forced.acked")?;
            self.rest(began).await;
        }
        Ok(gone)
    }

    /// Deletes, or counts, the rows of `table` that `may_go`. Returns how many.
    async fn walk(
        &mut self,
        table: &'static str,
        may_go: &str,
        days: u32,
        step: &'static str,
    ) -> Result<u64, Error> {
        let pages: Option<i64> = self.client.query_one(PAGES, &[&table]).await?.try_get(0)?;
        let pages = count(pages.unwrap_or_default());
        let days = i32::try_from(days).unwrap_or(i32::MAX);
        let text = match self.report.dry_run {
            true => format!("SELECT count(*) FROM {table} t WHERE {RANGE} AND {may_go}"),
            false => format!(
                "WITH gone AS (DELETE FROM {table} t WHERE {RANGE} AND {may_go} RETURNING 1)
                 SELECT count(*) FROM gone"
            ),
        };
        let statement = self.client.prepare(&text).await?;
        let (mut rows, mut from) = (0, 0);
        // Pages that are added meanwhile hold new rows only.
        while from < pages {
            let to = from + u64::from(self.config().batch_pages);
            let began = Instant::now();
            let (first, last) = (format!("({from},0)"), format!("({to},0)"));
            let row = self.client.query_one(&statement, &[&first, &last, &days]).await?;
            rows += count(row.try_get(0)?);
            from = to;
            self.step(step)?;
            if !self.report.dry_run {
                self.rest(began).await;
            }
        }
        Ok(rows)
    }
}
