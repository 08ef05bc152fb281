//! Opening: one writer, bounded reading, and looking without touching.

use std::sync::Arc;

use spool::{Config, Error, Inspection, Spool};

use crate::double::TestDisk;
use crate::ledger::{open, payload, read_from, records, small};

#[test]
fn a_second_writer_is_refused_until_the_first_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(dir.path());
    let first = Spool::open(config.clone()).unwrap();
    assert!(matches!(Spool::open(config.clone()), Err(Error::Locked { .. })));
    // A reader that outlives the spool does not keep the folder.
    let reader = first.reader(1);
    drop(first);
    Spool::open(config).unwrap();
    assert_eq!(reader.position(), 1);
}

#[test]
fn another_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::open(Config::new(dir.path())).unwrap();
    let lock = dir.path().join("lock");
    let try_lock =
        || std::process::Command::new("flock").arg("-n").arg(&lock).arg("true").status().unwrap();
    assert!(!try_lock().success(), "held by this process");
    drop(spool);
    assert!(try_lock().success(), "free");
}

#[test]
fn values_that_cannot_work_are_refused_by_name() {
    let disk = TestDisk::default();
    for (config, expected) in [
        (Config { max_record_bytes: 0, ..small() }, "max_record_bytes"),
        (Config { max_record_bytes: (16 << 20) + 1, ..small() }, "max_record_bytes"),
        (Config { segment_bytes: 10, ..small() }, "segment_bytes"),
        (Config { max_spool_bytes: 10, ..small() }, "max_spool_bytes"),
    ] {
        let refused = open(config, &disk).err();
        assert!(matches!(refused, Some(Error::Config { key, .. }) if key == expected));
    }
}

/// What opening reads, for a spool of `records` records.
fn read_by_opening(records: u64) -> (u64, usize) {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let batch: Vec<_> = (1..=records).map(|n| (0, payload(n))).collect();
    for part in batch.chunks(6) {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        spool.submit(part.to_vec(), Box::new(move |r| tell.send(r).unwrap())).unwrap();
        told.recv().unwrap().unwrap();
    }
    drop(spool);
    let disk = disk.copy();
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.synced(), records);
    (disk.bytes_read(), disk.segment_names().len())
}

#[test]
fn opening_reads_no_more_when_there_is_more() {
    let (few, few_segments) = read_by_opening(60);
    let (many, many_segments) = read_by_opening(6000);
    assert!(many_segments > 50 * few_segments);
    // The last segment differs a little in size; nothing else may.
    assert!(
        many <= few + 2048,
        "{few} bytes read for {few_segments} segments, {many} for {many_segments}"
    );
}

#[test]
fn an_inspection_tells_what_is_there_and_writes_nothing() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    for n in 1..=20 {
        spool.append((n % 3) as u8, &payload(n)).unwrap();
    }
    spool.ack(2).unwrap();
    drop(spool);
    let names = disk.segment_names();
    let mut bytes = disk.bytes_of(&names[1]);
    bytes[64 + 33] ^= 4;
    disk.put(&names[1], &bytes);
    let damaged: u64 = names[1][..20].parse().unwrap();
    // A torn tail, which opening for writing would cut off.
    let last = names.last().unwrap();
    let mut torn = disk.bytes_of(last);
    torn.extend([9; 20]);
    disk.put(last, &torn);

    let before: Vec<_> = disk.file_names().iter().map(|name| disk.bytes_of(name)).collect();
    let inspection = Inspection::open(small(), Arc::new(disk.clone())).unwrap();
    let quick = inspection.inspect().unwrap();
    assert_eq!((quick.head, quick.acked, quick.segments.len()), (20, 2, names.len()));
    assert_eq!(quick.segments.iter().map(|s| s.summary.records).sum::<u64>(), 20);
    assert!(quick.segments.iter().all(|s| s.damage.is_empty()), "footers do not know of damage");
    let full = inspection.verify().unwrap();
    let segment = &full.segments[1];
    assert_eq!((segment.base, segment.damaged_records), (damaged, 1));
    assert_eq!((segment.damage[0].from_seq, segment.damage[0].to_seq), (damaged, damaged));
    assert_eq!(full.segments.iter().map(|s| s.summary.records).sum::<u64>(), 19);
    assert_eq!(full.segments[0].summary.classes.iter().sum::<u32>() as u64, full.segments[0].last);
    let mut reader = inspection.reader(1);
    let mut items = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        items.push(item);
    }
    assert_eq!(records(&items).len(), 19);
    let after: Vec<_> = disk.file_names().iter().map(|name| disk.bytes_of(name)).collect();
    assert_eq!(before, after);
    // Not even the lock: a writer opens beside it.
    let spool = open(small(), &disk).unwrap();
    assert_eq!(records(&read_from(&spool, 1)).len(), 19);
}

#[test]
fn inspecting_a_folder_that_is_no_spool_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let empty = Spool::open_read_only(dir.path()).err();
    assert!(matches!(empty, Some(Error::NoIdentity { segments: 0 })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let missing = Spool::open_read_only(&dir.path().join("nowhere")).err();
    assert!(matches!(missing, Some(Error::Io { .. })));
}

#[test]
fn a_read_error_is_returned_and_the_reader_stays() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    for n in 1..=3 {
        spool.append(0, &payload(n)).unwrap();
    }
    let mut reader = spool.reader(1);
    disk.fail_reads(true);
    assert!(matches!(reader.next(), Err(Error::Io { op: "read", .. })));
    assert!(matches!(reader.next(), Err(Error::Io { op: "read", .. })), "it does not go away");
    assert_eq!(spool.gaps(), [], "an error is not damage");
    disk.fail_reads(false);
    assert_eq!(reader.position(), 1);
    while reader.next().unwrap().is_some() {}
    assert_eq!(reader.position(), 4);
    disk.fail_reads(true);
    drop(spool);
    assert!(matches!(open(small(), &disk).err(), Some(Error::Io { .. })), "nor while opening");
}
