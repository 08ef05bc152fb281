//! How long opening takes, of 2 GB against 10 MB. The ratio is flatness: 1 is the same time for both, and the bar of 0.2 lets a spool
//! that is two hundred times as large take at most five times as long. One that read all of itself would be near 0.005.
//!
//! Both have the same open segment at their end, of ordinary records, because that is what opening reads; it lacks its last
//! bytes each time, as after a power cut.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use spool::{Spool, SyncPolicy};

use crate::measure::interleaved;
use crate::place::Place;
use crate::row::Row;
use crate::spool_append::{group, submit};

const ROUNDS: usize = 9;
/// Half of the default, so that 10 MB are a full segment and an open one.
const SEGMENT_BYTES: u64 = 8 << 20;
/// Eight of these fill such a segment.
const LARGE_RECORD_BYTES: usize = (1 << 20) - 1024;
const LARGE_RECORDS_A_SEGMENT: usize = 8;
const TAIL_BYTES: usize = 2 << 20;
const TAIL_RECORD_BYTES: usize = 512;
const BAR: f64 = 0.2;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    let folder = place.folder()?;
    let (small, large) = (folder.path().join("small"), folder.path().join("large"));
    place.say("spool_recovery", "making 2 GB");
    fill(&small, 1)?;
    fill(&large, 238)?;
    place.say("spool_recovery", "opening");
    let (ours, theirs) = interleaved(ROUNDS, || open(&large), || open(&small))?;
    Ok(vec![Row::less("spool_recovery/open_2gb_beside_10mb", "ms", ours, theirs).bar(BAR)])
}

/// Makes a spool of so many full segments and an open one. Large records and rare syncs make it quick.
fn fill(dir: &Path, segments: usize) -> Result<()> {
    let mut config = spool::Config::new(dir);
    config.segment_bytes = SEGMENT_BYTES;
    config.sync = SyncPolicy::Interval(Duration::from_secs(5));
    let spool = Spool::open(config)?;
    for _ in 0..segments * LARGE_RECORDS_A_SEGMENT {
        submit(&spool, group(1, LARGE_RECORD_BYTES))?;
    }
    submit(&spool, group(TAIL_BYTES / TAIL_RECORD_BYTES, TAIL_RECORD_BYTES))?;
    let segments_made = spool.stats().segments;
    ensure!(segments_made == segments + 1, "made {segments_made} segments");
    Ok(())
}

/// Milliseconds.
fn open(dir: &Path) -> Result<f64> {
    tear(dir)?;
    let start = Instant::now();
    let spool = Spool::open(spool::Config::new(dir))?;
    let took = start.elapsed();
    ensure!(spool.recovery().truncated_bytes > 0, "there was nothing to repair");
    Ok(took.as_secs_f64() * 1e3)
}

/// Cuts the last bytes off the open segment.
fn tear(dir: &Path) -> Result<()> {
    let file = File::options().write(true).open(open_segment(dir)?)?;
    file.set_len(file.metadata()?.len().saturating_sub(10))?;
    Ok(())
}

fn open_segment(dir: &Path) -> Result<PathBuf> {
    let mut found = std::fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "open"))
        .collect::<Vec<_>>();
    found.sort();
    found.pop().context("the spool has no open segment")
}
