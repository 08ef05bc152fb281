//! What holds on a healthy disk.

use std::sync::Arc;
use std::time::Duration;

use spool::{Config, Error, Item, Seen, Spool};

use crate::double::TestDisk;
use crate::ledger::{Ledger, START_MS, open, payload, read_from, records, small};

#[test]
fn what_is_appended_is_read_in_order_with_its_class_and_time() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    for n in 1..=50 {
        assert_eq!(spool.append((n % 3) as u8, &payload(n)).unwrap(), n);
    }
    assert_eq!(spool.synced(), 50);
    for (item, n) in read_from(&spool, 1).into_iter().zip(1_u64..) {
        let class = (n % 3) as u8;
        let bytes = payload(n);
        assert_eq!(item, Item::Record { seq: n, written_at_ms: START_MS, class, bytes });
    }
    assert!(disk.segment_names().len() > 3, "the test is about several segments");
}

#[test]
fn what_a_reader_is_offered_and_refuses_comes_again() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    for n in 1..=50 {
        spool.append(0, &payload(n)).unwrap();
    }
    let mut reader = spool.reader(1);
    for n in 1..=50 {
        // Refused once each, in the middle of a window and at its ends.
        let mut shown = Vec::new();
        for take in [false, true] {
            let moved = reader.offer(|seen| {
                let Seen::Record { seq, bytes, .. } = seen else { panic!("a gap at {n}") };
                shown.push((seq, bytes.to_vec()));
                take
            });
            assert_eq!(moved.unwrap(), take);
            assert_eq!(reader.position(), if take { n + 1 } else { n });
        }
        assert_eq!(shown, [(n, payload(n)), (n, payload(n))]);
    }
    assert!(!reader.offer(|_| true).unwrap(), "everything has been read");
    let read = disk.bytes_read();
    let mut again = spool.reader(1);
    while again.offer(|_| true).unwrap() {}
    assert!(read <= (disk.bytes_read() - read) * 2, "a refusal does not begin the segment anew");
}

#[test]
fn it_is_all_there_after_a_restart_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { segment_bytes: 4096, free_space_reserve: 0, ..Config::new(dir.path()) };
    let spool = Spool::open(config.clone()).unwrap();
    let epoch = spool.epoch();
    for n in 1..=100 {
        spool.append(0, &payload(n)).unwrap();
    }
    drop(spool);
    let spool = Spool::open(config).unwrap();
    assert_eq!(spool.epoch(), epoch);
    assert_eq!(spool.synced(), 100);
    assert!(spool.recovery().new_gaps.is_empty());
    let read = records(&read_from(&spool, 1));
    assert_eq!(read.len(), 100);
    assert!(read.iter().all(|(seq, bytes)| *bytes == payload(*seq)));
    assert_eq!(spool.append(0, b"next").unwrap(), 101);
}

#[test]
fn a_reader_starts_anywhere_and_seeks_both_ways() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    for n in 1..=40 {
        spool.append(0, &payload(n)).unwrap();
    }
    let mut reader = spool.reader(1);
    for seq in [17, 1, 40, 39, 3, 18, 40, 1] {
        reader.seek(seq);
        let Some(Item::Record { seq: got, bytes, .. }) = reader.next().unwrap() else {
            panic!("record {seq} is not readable");
        };
        assert_eq!((got, bytes), (seq, payload(seq)));
    }
    reader.seek(41);
    assert_eq!(reader.next().unwrap(), None);
}

#[test]
fn two_readers_follow_the_live_tail() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let follow = |mut reader: spool::Reader| {
        std::thread::spawn(move || {
            let mut seen = Vec::new();
            while seen.len() < 200 {
                match reader.next().unwrap() {
                    Some(Item::Record { seq, .. }) => seen.push(seq),
                    Some(Item::Gap(gap)) => panic!("{gap:?}"),
                    None => {
                        reader.wait(Duration::from_secs(10));
                    }
                }
            }
            seen
        })
    };
    let (one, two) = (follow(spool.reader(1)), follow(spool.reader(1)));
    for n in 1..=200 {
        spool.append(0, &payload(n)).unwrap();
    }
    let expected: Vec<u64> = (1..=200).collect();
    assert_eq!(one.join().unwrap(), expected);
    assert_eq!(two.join().unwrap(), expected);
}

#[test]
fn acks_that_regress_are_ignored_and_those_beyond_the_head_refused() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let mut ledger = Ledger::default();
    for _ in 0..10 {
        ledger.append(&spool, 0).unwrap();
    }
    ledger.ack(&spool, 7);
    spool.ack(3).unwrap();
    assert_eq!(spool.acked(), 7);
    assert!(matches!(spool.ack(11), Err(Error::AckBeyondHead { seq: 11, head: 10 })));
    assert_eq!(spool.acked(), 7);
    ledger.check(&spool);
}

#[test]
fn a_record_over_the_limit_is_refused_and_takes_no_sequence() {
    let disk = TestDisk::default();
    let config = Config { max_record_bytes: 100, ..small() };
    let spool = open(config, &disk).unwrap();
    let refused = spool.append(0, &[0; 101]);
    assert!(matches!(refused, Err(Error::RecordTooLarge { len: 101, max: 100 })));
    assert!(matches!(spool.submit(vec![], Box::new(|_| {})), Err(Error::EmptyBatch)));
    assert_eq!(spool.append(0, &[0; 100]).unwrap(), 1);
    assert_eq!(spool.append(0, &[]).unwrap(), 2);
}

#[test]
fn a_batch_gets_consecutive_sequences_and_the_hook_hears_the_head() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(8);
    let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hear = heads.clone();
    spool.on_synced(Box::new(move |head| hear.lock().unwrap().push(head)));
    let batch = (1..=5).map(|n| (0, payload(n))).collect();
    spool.submit(batch, Box::new(move |result| tell.send(result).unwrap())).unwrap();
    assert_eq!(told.recv().unwrap().unwrap(), 1..=5);
    drop(spool);
    assert_eq!(*heads.lock().unwrap(), [5]);
}

#[test]
fn a_callback_may_hold_the_last_handle() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let held = spool.clone();
    let done = move |_| {
        drop(held);
        tell.send(()).unwrap();
    };
    spool.submit(vec![(0, b"last".to_vec())], Box::new(done)).unwrap();
    drop(spool);
    told.recv().unwrap();
    // The writer ends by itself and frees the folder.
    let reopened = loop {
        match open(small(), &disk) {
            Err(Error::Locked { .. }) => std::thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    assert_eq!(reopened.synced(), 1);
}
