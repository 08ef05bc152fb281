//! What goes, when, and what is said first.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use spool::{Config, GapReason, Spool};

use crate::double::{Fault, Outcome, TestDisk};
use crate::ledger::{Ledger, START_MS, gaps, open, payload, read_from, records, small};

#[test]
fn acked_segments_go_and_the_head_is_never_forgotten() {
    let disk = TestDisk::default();
    let config = Config { cursor_every: Duration::ZERO, idle_seal: Duration::ZERO, ..small() };
    let spool = open(config.clone(), &disk).unwrap();
    for n in 1..=30 {
        spool.append(0, &payload(n)).unwrap();
    }
    let before = disk.segment_names();
    let second: u64 = before[1][..20].parse().unwrap();
    spool.ack(second - 2).unwrap();
    spool.maintain(START_MS).unwrap();
    assert_eq!(disk.segment_names(), before, "the first segment has one record that is not acked");
    spool.ack(second - 1).unwrap();
    spool.maintain(START_MS).unwrap();
    assert_eq!(disk.segment_names(), before[1..], "now it goes");
    spool.ack(30).unwrap();
    spool.maintain(START_MS).unwrap();
    assert_eq!(disk.segment_names(), [""; 0], "the idle open segment was sealed and went too");
    assert_eq!(spool.stats().oldest, 31);
    for outcome in [Outcome::Lost, Outcome::Kept] {
        let spool = open(config.clone(), &disk.after_crash(outcome)).unwrap();
        assert_eq!((spool.synced(), spool.acked()), (30, 30));
        assert_eq!(spool.append(0, b"next").unwrap(), 31);
    }
}

#[test]
fn an_idle_segment_that_is_not_acked_stays_open() {
    let disk = TestDisk::default();
    let config = Config { idle_seal: Duration::ZERO, ..small() };
    let spool = open(config, &disk).unwrap();
    spool.append(0, b"not acked").unwrap();
    spool.maintain(START_MS).unwrap();
    assert_eq!(disk.segment_names(), ["00000000000000000001.open"]);
}

#[test]
fn over_the_limit_telemetry_goes_before_events_and_events_before_alarms() {
    let disk = TestDisk::default();
    let config = Config { max_spool_bytes: 6 * 1024, ..small() };
    let spool = open(config, &disk).unwrap();
    // Each record fills a segment.
    let classes = [2, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    for class in classes {
        spool.append(class, &[class; 900]).unwrap();
    }
    let items = read_from(&spool, 1);
    let left: Vec<u64> = records(&items).into_keys().collect();
    assert_eq!(left, [1, 2, 4, 10, 11], "only telemetry went, the oldest first");
    assert!(spool.stats().bytes <= 6 * 1024);
    let dropped = gaps(&items);
    assert!(dropped.iter().all(|gap| gap.reason == GapReason::DropOldest));
    assert!(dropped.iter().all(|gap| gap.first_at_ms == Some(START_MS)));
    assert_eq!(dropped, spool.gaps());
    // With nothing but events and alarms left to drop, the oldest event goes.
    for _ in 0..3 {
        spool.append(2, &[2; 900]).unwrap();
    }
    let left: Vec<u64> = records(&read_from(&spool, 1)).into_keys().collect();
    assert_eq!(left, [1, 4, 12, 13, 14]);
    let dropped = spool.gaps();
    let lost: u64 = dropped.iter().map(spool::Gap::count).sum();
    assert_eq!((lost + left.len() as u64, spool.stats().dropped_records), (14, lost));
}

#[test]
fn acked_segments_make_room_before_anything_is_dropped() {
    let disk = TestDisk::default();
    let spool = open(Config { max_spool_bytes: 5 * 1024, ..small() }, &disk).unwrap();
    for n in 1..=40 {
        spool.append(0, &[1; 900]).unwrap();
        spool.ack(n).unwrap();
    }
    assert_eq!((spool.gaps().len(), spool.stats().dropped_records), (0, 0));
}

#[test]
fn the_only_segment_left_is_sealed_and_dropped_when_it_is_over_the_limit() {
    let disk = TestDisk::default();
    let config = Config { max_spool_bytes: 4096, segment_bytes: 1 << 20, ..small() };
    let spool = open(config, &disk).unwrap();
    for n in 1..=5 {
        assert_eq!(spool.append(0, &[1; 3000]).unwrap(), n);
    }
    let items = read_from(&spool, 1);
    assert_eq!(records(&items).into_keys().collect::<Vec<_>>(), [5]);
    assert_eq!(
        gaps(&items).iter().map(|gap| (gap.from_seq, gap.to_seq)).collect::<Vec<_>>(),
        [(1, 4)]
    );
    assert!(matches!(spool.append(0, &[1; 5000]), Err(spool::Error::Full { .. })));
}

#[test]
fn what_is_too_old_expires_and_an_unset_clock_expires_nothing() {
    let disk = TestDisk::default();
    let clock = Arc::new(AtomicI64::new(5_000));
    let config = Config { max_spool_age: Some(Duration::from_secs(3600)), ..small() };
    let tick = clock.clone();
    let spool = Spool::open_on(
        config,
        Arc::new(disk.clone()),
        Arc::new(move || tick.load(Ordering::SeqCst)),
    )
    .unwrap();
    spool.append(0, &[0; 900]).unwrap();
    clock.store(START_MS, Ordering::SeqCst);
    spool.maintain(START_MS).unwrap();
    assert_eq!(spool.gaps(), [], "a record from 1970 is from a clock that was not set");
    spool.ack(1).unwrap();
    for _ in 2..=4 {
        spool.append(0, &[0; 900]).unwrap();
    }
    clock.store(START_MS + 3_000_000, Ordering::SeqCst);
    spool.append(0, &[0; 900]).unwrap();
    spool.maintain(START_MS + 3_600_000).unwrap();
    assert_eq!(spool.gaps(), [], "exactly at the age nothing goes");
    spool.maintain(START_MS + 3_600_001).unwrap();
    let [gap] = spool.gaps()[..] else { panic!("{:?}", spool.gaps()) };
    assert_eq!((gap.from_seq, gap.to_seq, gap.reason), (2, 4, GapReason::Expired));
    // The open segment too, once its last record is too old.
    spool.maintain(START_MS + 9_000_000).unwrap();
    let [gap] = spool.gaps()[..] else { panic!("{:?}", spool.gaps()) };
    assert_eq!((gap.from_seq, gap.to_seq), (2, 5));
    assert_eq!(disk.segment_names(), ["00000000000000000001.seg"], "its cursor is not due yet");
}

#[test]
fn the_tombstone_is_durable_before_the_segment_goes() {
    for operation in 0.. {
        let disk = TestDisk::default();
        let spool = open(Config { max_spool_bytes: 5 * 1024, ..small() }, &disk).unwrap();
        let mut ledger = Ledger::default();
        while disk.segment_names().len() < 5 && spool.gaps().is_empty() {
            ledger.append(&spool, 0).unwrap();
        }
        disk.fail_at(operation, Fault::Crash);
        while spool.gaps().is_empty() && ledger.append(&spool, 0).is_ok() {}
        let finished = !disk.fault_happened();
        // The unlink gets through, and nothing else that was not synced: the worst order.
        let after = disk.after_crash(Outcome::Lost);
        disk.file_names();
        let missing: Vec<String> =
            after.segment_names().into_iter().filter(|n| !disk.file_names().contains(n)).collect();
        missing.iter().for_each(|name| after.delete(name));
        let spool = open(small(), &after).unwrap();
        ledger.check(&spool);
        if finished {
            assert!(!spool.gaps().is_empty());
            break;
        }
    }
}

#[test]
fn gaps_go_when_they_are_acked_and_neighbours_are_one() {
    let disk = TestDisk::default();
    let config = Config { max_spool_bytes: 4096, cursor_every: Duration::ZERO, ..small() };
    let spool = open(config.clone(), &disk).unwrap();
    for _ in 0..20 {
        spool.append(0, &[0; 900]).unwrap();
    }
    let [gap] = spool.gaps()[..] else { panic!("{:?}", spool.gaps()) };
    spool.ack(gap.to_seq - 1).unwrap();
    spool.maintain(START_MS).unwrap();
    assert_eq!(spool.gaps(), [gap], "partly acked, wholly kept");
    spool.ack(gap.to_seq).unwrap();
    assert_eq!(spool.gaps(), []);
    spool.maintain(START_MS).unwrap();
    spool.maintain(START_MS).unwrap();
    assert_eq!(disk.bytes_of("gaps").len(), 32, "and it is not in the file any more");
    drop(spool);
    assert_eq!(open(config, &disk).unwrap().gaps(), []);
}
