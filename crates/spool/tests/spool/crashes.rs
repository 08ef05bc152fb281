//! The power goes, or one operation fails, at every operation of a workload that does everything a spool does.

use std::io::ErrorKind;
use std::time::Duration;

use spool::{Config, OnFull, Spool, SyncPolicy};

use crate::double::{Fault, Outcome, TestDisk};
use crate::ledger::{Ledger, START_MS, open, payload, small};

const OUTCOMES: [Outcome; 8] = [
    Outcome::Lost,
    Outcome::Kept,
    Outcome::Torn(1),
    Outcome::Torn(2),
    Outcome::Torn(3),
    Outcome::Scattered(1),
    Outcome::Scattered(2),
    Outcome::Scattered(3),
];

/// Six segments fit; every round of housekeeping saves the cursor and seals what is acked.
fn config() -> Config {
    Config {
        max_spool_bytes: 6 * 1024,
        cursor_every: Duration::ZERO,
        idle_seal: Duration::ZERO,
        on_full: OnFull::DropOldest,
        ..small()
    }
}

/// Appends, groups, rotation, reading, acks, idle seals, retention, gaps. Goes on whatever fails.
fn workload(spool: &Spool, ledger: &mut Ledger) {
    for step in 0..40_u64 {
        let class = u8::from(step % 9 == 0) + u8::from(step % 18 == 0);
        let _ = ledger.append(spool, class);
        match step {
            5 => group(spool, ledger),
            8 => ledger.ack(spool, 4),
            12 | 15 | 35 => drop(spool.maintain(START_MS)),
            14 => {
                ledger.ack(spool, spool.synced());
                // Everything is acked and idle: the open segment is sealed and goes.
                drop(spool.maintain(START_MS));
                drop(spool.maintain(START_MS));
            }
            33 => ledger.ack(spool, 20),
            7 | 20 | 38 => ledger.peek(spool),
            _ => {}
        }
    }
}

fn group(spool: &Spool, ledger: &mut Ledger) {
    let batch: Vec<Vec<u8>> = (900..904).map(payload).collect();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let records = batch.iter().map(|bytes| (0, bytes.clone())).collect();
    let submitted = spool.submit(records, Box::new(move |result| tell.send(result).unwrap()));
    if let (Ok(()), Ok(Ok(range))) = (submitted, told.recv()) {
        range.zip(batch).for_each(|(seq, bytes)| ledger.remember(seq, bytes));
    }
}

/// Opens what a crash left, checks it, goes on with it, and checks it again after a clean restart.
fn goes_on(disk: &TestDisk, mut ledger: Ledger) {
    let spool = open(config(), disk).unwrap();
    ledger.check(&spool);
    for _ in 0..8 {
        ledger.append(&spool, 0).unwrap();
    }
    ledger.check(&spool);
    drop(spool);
    let spool = open(config(), disk).unwrap();
    assert!(spool.recovery().new_gaps.is_empty(), "a clean restart finds nothing new");
    ledger.check(&spool);
    assert_eq!(disk.violations(), [""; 0]);
}

#[test]
fn a_power_cut_at_every_operation() {
    let mut operations = 0;
    loop {
        let disk = TestDisk::default();
        disk.fail_at(operations, Fault::Crash);
        let mut ledger = Ledger::default();
        if let Ok(spool) = open(config(), &disk) {
            workload(&spool, &mut ledger);
            if !disk.fault_happened() {
                ledger.check(&spool);
            }
        }
        if !disk.fault_happened() {
            break;
        }
        for outcome in OUTCOMES {
            let context = format!("operation {operations}, {outcome:?}");
            let after = disk.after_crash(outcome);
            let ledger = ledger.clone();
            let ran = std::panic::catch_unwind(move || goes_on(&after, ledger));
            assert!(ran.is_ok(), "{context}");
        }
        operations += 1;
    }
    assert!(operations > 150, "the workload has only {operations} operations");
}

#[test]
fn what_a_killed_process_left_in_the_cache_is_synced_before_it_is_served() {
    for operations in (0..150).step_by(3) {
        let disk = TestDisk::default();
        disk.fail_at(operations, Fault::Crash);
        let mut ledger = Ledger::default();
        if let Ok(spool) = open(config(), &disk) {
            workload(&spool, &mut ledger);
        }
        let disk = disk.after_kill();
        let spool = open(config(), &disk).unwrap();
        // An uplink reads it all; then the power goes as well.
        ledger.check(&spool);
        let disk = disk.after_crash(Outcome::Lost);
        drop(spool);
        let ran = std::panic::catch_unwind(|| goes_on(&disk, ledger));
        assert!(ran.is_ok(), "operation {operations}");
    }
}

#[test]
fn what_a_failed_sync_left_in_the_cache_is_not_taken_for_a_record() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let mut ledger = Ledger::default();
    ledger.append(&spool, 0).unwrap();
    disk.fail_at(1, Fault::Fail(ErrorKind::Other));
    assert!(spool.append(0, b"its sync fails").is_err());
    // The process dies before it has written anything else; the kernel still has the page, and thinks it is clean.
    let disk = disk.after_kill();
    drop(spool);
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.synced(), 1);
    ledger.check(&spool);
}

#[test]
fn a_failed_write_leaves_nothing_behind() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let mut ledger = Ledger::default();
    ledger.append(&spool, 0).unwrap();
    disk.fail_at(0, Fault::Fail(ErrorKind::Other));
    assert!(spool.append(0, &[0xAB; 600]).is_err(), "half of it is in the file");
    spool.append(0, b"short").unwrap();
    drop(spool);
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.recovery().truncated_bytes, 0);
    assert_eq!((spool.synced(), spool.gaps()), (2, vec![]));
}

#[test]
fn a_second_power_cut_during_recovery() {
    for first in (10..200).step_by(7) {
        for outcome in [Outcome::Torn(9), Outcome::Scattered(9), Outcome::Kept] {
            for second in 0.. {
                let disk = TestDisk::default();
                disk.fail_at(first, Fault::Crash);
                let mut ledger = Ledger::default();
                if let Ok(spool) = open(config(), &disk) {
                    workload(&spool, &mut ledger);
                }
                let disk = disk.after_crash(outcome);
                disk.fail_at(second, Fault::Crash);
                if let Ok(spool) = open(config(), &disk) {
                    let _ = ledger.append(&spool, 0);
                }
                let finished = !disk.fault_happened();
                goes_on(&disk.after_crash(Outcome::Scattered(second)), ledger);
                if finished {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_failure_at_every_operation_is_reported_and_overcome() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        let mut operations = 0;
        loop {
            let disk = TestDisk::default();
            disk.fail_at(operations, Fault::Fail(kind));
            let mut ledger = Ledger::default();
            let spool = match open(config(), &disk) {
                Ok(spool) => spool,
                // The failure has happened; the next try gets through.
                Err(_) => open(config(), &disk).unwrap(),
            };
            workload(&spool, &mut ledger);
            if !disk.fault_happened() {
                break;
            }
            let context = format!("operation {operations}, {kind:?}");
            ledger.append(&spool, 2).unwrap_or_else(|e| panic!("{context}: not overcome: {e}"));
            ledger.check(&spool);
            assert_eq!(disk.violations(), [""; 0], "{context}");
            // And all of it was really on the disk.
            let after = disk.after_crash(Outcome::Lost);
            drop(spool);
            let ran = std::panic::catch_unwind(|| goes_on(&after, ledger));
            assert!(ran.is_ok(), "{context}");
            operations += 1;
        }
        assert!(operations > 150, "the workload has only {operations} operations");
    }
}

#[test]
fn a_failed_sync_is_told_to_its_callers_and_the_file_is_not_trusted_again() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let mut ledger = Ledger::default();
    ledger.append(&spool, 0).unwrap();
    // The next operations are the write and the sync.
    disk.fail_at(1, Fault::Fail(ErrorKind::Other));
    let refused = spool.append(0, b"its sync fails");
    assert!(matches!(refused, Err(spool::Error::Io { op: "sync", .. })), "{refused:?}");
    assert_eq!(spool.synced(), 1, "nothing unsynced is shown");
    assert_eq!(ledger.append(&spool, 0).unwrap(), 2, "nobody was told 2, so it is given again");
    assert_eq!(disk.segment_names().len(), 2, "in a new file");
    ledger.check(&spool);
    assert_eq!(disk.violations(), [""; 0]);
    for outcome in OUTCOMES {
        goes_on(&disk.after_crash(outcome), ledger.clone());
    }
}

#[test]
fn under_an_interval_a_failed_sync_becomes_a_declared_gap() {
    let disk = TestDisk::default();
    let sync = SyncPolicy::Interval(Duration::from_secs(3600));
    let spool = open(Config { sync, ..small() }, &disk).unwrap();
    for n in 1..=3 {
        assert_eq!(spool.append(0, &payload(n)).unwrap(), n);
    }
    assert_eq!(spool.synced(), 0, "acknowledged, and not yet synced: readers see nothing");
    assert_eq!(spool.reader(1).next().unwrap(), None);
    // Filling the segment seals it, and sealing syncs: that sync fails.
    disk.fail_at(0, Fault::Fail(ErrorKind::Other));
    let refused = spool.append(0, &[7; 1000]);
    assert!(refused.is_err());
    assert_eq!(spool.append(0, b"after").unwrap(), 4, "what callers were told is not given again");
    let mut ledger = Ledger::default();
    (1..=3).for_each(|n| ledger.remember(n, payload(n)));
    // A power cut may take 4, which is not synced; that 1 to 3 are gone was on the disk before 4 was told.
    for outcome in OUTCOMES {
        let after = disk.after_crash(outcome);
        let spool = open(small(), &after).unwrap();
        let gap = spool.gaps()[0];
        assert_eq!((gap.from_seq, gap.to_seq, gap.reason), (1, 3, spool::GapReason::Lost));
        ledger.clone().check(&spool);
    }
}
