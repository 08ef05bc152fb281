//! The spool against an outbox table in SQLite, which is what one would pick instead: WAL, `synchronous=FULL`, one transaction a
//! group, and records that were acked are deleted.
//!
//! The delete rides in an insert's transaction, which spares SQLite a sync that a real uplink would cost it. Bytes are what this
//! process dirtied in the page cache (`write_bytes` of `/proc/self/io`), up to and including the close with its last checkpoint;
//! the file system's own journal is not in it.

use std::time::Instant;

use anyhow::{Context as _, Result};
use rusqlite::Connection;
use spool::Spool;

use crate::measure::{interleaved, median, per_second};
use crate::place::Place;
use crate::row::Row;
use crate::spool_append::{group, submit};

const ROUNDS: usize = 5;
const RECORD_BYTES: usize = 256;
/// The uplink acks this many groups at once.
const GROUPS_ACKED: usize = 16;
/// And is this many groups behind.
const GROUPS_BEHIND: usize = 64;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (group_records, groups) in [(1, 2_000), (16, 1_500), (256, 600)] {
        let records = group_records * groups;
        place.say("spool_sqlite", &format!("groups of {group_records}"));
        let (mut our_bytes, mut their_bytes) = (Vec::new(), Vec::new());
        let each = |bytes: u64| bytes as f64 / records as f64;
        let (ours, theirs) = interleaved(
            ROUNDS,
            || {
                let (rate, bytes) = with_bytes(|| spooled(place, group_records, groups))?;
                our_bytes.push(each(bytes));
                Ok(rate)
            },
            || {
                let (rate, bytes) = with_bytes(|| inserted(place, group_records, groups))?;
                their_bytes.push(each(bytes));
                Ok(rate)
            },
        )?;
        let name = |what| format!("spool_sqlite/{what}_groups_of_{group_records}");
        rows.push(Row::more(name("records"), "records/s", ours, theirs));
        let (ours, theirs) = (median(our_bytes), median(their_bytes));
        rows.push(Row::less(name("bytes"), "B written/record", ours, theirs));
    }
    Ok(rows)
}

/// Records a second.
fn spooled(place: &Place, group_records: usize, groups: usize) -> Result<f64> {
    let folder = place.folder()?;
    let spool = Spool::open(spool::Config::new(folder.path()))?;
    let prepared: Vec<_> = (0..groups).map(|_| group(group_records, RECORD_BYTES)).collect();
    let start = Instant::now();
    for (index, records) in prepared.into_iter().enumerate() {
        let head = submit(&spool, records)?;
        if let Some(behind) = behind(index, group_records) {
            spool.ack(head.saturating_sub(behind))?;
        }
    }
    Ok(per_second(group_records * groups, start))
}

/// Records a second.
fn inserted(place: &Place, group_records: usize, groups: usize) -> Result<f64> {
    let folder = place.folder()?;
    let mut sqlite = Connection::open(folder.path().join("outbox.db"))?;
    sqlite.pragma_update(None, "journal_mode", "wal")?;
    sqlite.pragma_update(None, "synchronous", "full")?;
    sqlite.execute(
        "CREATE TABLE outbox (seq INTEGER PRIMARY KEY, written_at INTEGER NOT NULL,
             class INTEGER NOT NULL, payload BLOB NOT NULL)",
        [],
    )?;
    let records = group(group_records, RECORD_BYTES);
    let written_at = jiff::Timestamp::now().as_millisecond();
    let start = Instant::now();
    for index in 0..groups {
        let transaction = sqlite.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO outbox (written_at, class, payload) VALUES (?1, ?2, ?3)",
            )?;
            for (class, payload) in &records {
                insert.execute((written_at, class, payload))?;
            }
        }
        if let Some(behind) = behind(index, group_records) {
            let acked = transaction.last_insert_rowid().saturating_sub_unsigned(behind);
            transaction.prepare_cached("DELETE FROM outbox WHERE seq <= ?1")?.execute([acked])?;
        }
        transaction.commit()?;
    }
    Ok(per_second(group_records * groups, start))
}

/// After this group comes an ack: of how many records below the head.
fn behind(index: usize, group_records: usize) -> Option<u64> {
    let due = index >= GROUPS_BEHIND && (index + 1).is_multiple_of(GROUPS_ACKED);
    due.then_some((GROUPS_BEHIND * group_records) as u64)
}

/// What `work` returns, and the bytes it caused to be written.
fn with_bytes(work: impl FnOnce() -> Result<f64>) -> Result<(f64, u64)> {
    let before = written_bytes()?;
    let rate = work()?;
    Ok((rate, written_bytes()? - before))
}

fn written_bytes() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io").context("read /proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.context("/proc/self/io has no write_bytes")?.trim().parse().context("write_bytes")
}
