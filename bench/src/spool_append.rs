//! Appending to the spool, against writing as many bytes to one file with the same syncs: a group is one `fdatasync` in both.
//!
//! The value with the bar is bytes of frames, as the disk sees them: encoding, checksums, headers, footers and new segments are the
//! spool's cost. One group waits while another is written, as it does with several appenders; each still has a sync of its own. The rows named `…_payload` have the same time
//! and count the records alone, so that the 36 bytes of a frame are in them too. Both sides find their records ready in memory.

use std::fs::File;
use std::io::Write as _;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use anyhow::{Context as _, Result};
use spool::Spool;

use crate::measure::{interleaved, per_second};
use crate::place::Place;
use crate::row::Row;

const ROUNDS: usize = 15;
/// What one side writes before the other has its turn. As large as a segment, so that every turn of the spool has a new one in it.
const TURN_BYTES: usize = 16 << 20;
/// Groups handed over and not yet answered: appenders do not wait for each other.
const AHEAD: usize = 2;
const BAR: f64 = 0.85;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for group_kib in [64, 256] {
        for record_bytes in [256, 1024] {
            let name = format!("spool_append/{group_kib}k_groups_of_{record_bytes}b");
            place.say(
                "spool_append",
                &format!("groups of {group_kib} KiB, records of {record_bytes} B"),
            );
            let folder = place.folder()?;
            let mut config = spool::Config::new(folder.path().join("spool"));
            // Each submission is a group, as each write of the other side is.
            config.group_bytes = 1;
            let spool = Spool::open(config)?;
            let mut file = File::create(folder.path().join("raw"))?;
            let group_bytes = group_kib << 10;
            let (ours, theirs) = interleaved(
                ROUNDS,
                || spooled(&spool, group_bytes, record_bytes),
                || written(&mut file, group_bytes, record_bytes),
            )?;
            let payload = ours * record_bytes as f64 / frame_bytes(record_bytes) as f64;
            rows.push(Row::more(&name, "MB/s", ours, theirs).bar(BAR));
            rows.push(Row::more(format!("{name}_payload"), "MB/s", payload, theirs));
        }
    }
    Ok(rows)
}

/// How many groups a turn has, and how many records a group.
fn turn(group_bytes: usize, record_bytes: usize) -> (usize, usize) {
    (TURN_BYTES / group_bytes, group_bytes / frame_bytes(record_bytes))
}

fn frame_bytes(record_bytes: usize) -> usize {
    record_bytes + spool::frame::OVERHEAD_BYTES
}

/// Megabytes of frames a second.
fn spooled(spool: &Spool, group_bytes: usize, record_bytes: usize) -> Result<f64> {
    let (groups, records) = turn(group_bytes, record_bytes);
    let bytes = groups * records * frame_bytes(record_bytes);
    let groups: Vec<_> = (0..groups).map(|_| group(records, record_bytes)).collect();
    let (tell, told) = sync_channel(AHEAD);
    let start = Instant::now();
    let mut waiting = 0;
    for group in groups {
        if waiting == AHEAD {
            told.recv().context("the spool did not answer")??;
            waiting -= 1;
        }
        let tell = tell.clone();
        spool.submit(group, Box::new(move |result| drop(tell.send(result))))?;
        waiting += 1;
    }
    for _ in 0..waiting {
        told.recv().context("the spool did not answer")??;
    }
    Ok(per_second(bytes, start) / 1e6)
}

/// Megabytes a second: groups of as many bytes as the other side's, so that neither has its writes on the borders of pages.
fn written(file: &mut File, group_bytes: usize, record_bytes: usize) -> Result<f64> {
    let (groups, records) = turn(group_bytes, record_bytes);
    let group_bytes = records * frame_bytes(record_bytes);
    // As much memory as the records of the other side: neither finds its bytes in the processor's cache.
    let turn = vec![b'x'; groups * group_bytes];
    let start = Instant::now();
    for group in turn.chunks(group_bytes) {
        file.write_all(group)?;
        file.sync_data()?;
    }
    Ok(per_second(turn.len(), start) / 1e6)
}

/// Records of class 0.
pub(crate) fn group(records: usize, record_bytes: usize) -> Vec<(u8, Vec<u8>)> {
    vec![(0, vec![b'x'; record_bytes]); records]
}

/// Hands over records and waits until they are durable. Returns the last sequence.
pub(crate) fn submit(spool: &Spool, records: Vec<(u8, Vec<u8>)>) -> Result<u64> {
    let (tell, told) = sync_channel(1);
    spool.submit(records, Box::new(move |result| drop(tell.send(result))))?;
    let seqs = told.recv().context("the spool did not answer")??;
    Ok(*seqs.end())
}
