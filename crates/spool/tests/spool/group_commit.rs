//! Many appenders, one sync.

use std::io::ErrorKind;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier};

use spool::{Config, Error, QUEUE_BYTES};

use crate::double::{Fault, TestDisk};
use crate::ledger::{open, payload, read_from, records, small};

/// A spool whose writer is stopped in a callback until the returned sender speaks.
fn stopped(disk: &TestDisk) -> (spool::Spool, std::sync::mpsc::SyncSender<()>) {
    let config = Config { segment_bytes: 1 << 20, ..small() };
    let spool = open(config, disk).unwrap();
    let (go, wait) = sync_channel::<()>(0);
    let (tell, told) = sync_channel(1);
    let done = move |_| {
        tell.send(()).unwrap();
        let _ = wait.recv();
    };
    spool.submit(vec![(0, b"first".to_vec())], Box::new(done)).unwrap();
    told.recv().unwrap();
    (spool, go)
}

#[test]
fn what_waits_together_is_synced_together() {
    let disk = TestDisk::default();
    let (spool, go) = stopped(&disk);
    let before = disk.syncs();
    let (tell, told) = sync_channel(100);
    for n in 0..100 {
        let tell = tell.clone();
        let done = move |result| tell.send(result).unwrap();
        spool.submit(vec![(0, payload(n))], Box::new(done)).unwrap();
    }
    go.send(()).unwrap();
    let given: Vec<u64> = (0..100).map(|_| *told.recv().unwrap().unwrap().start()).collect();
    assert_eq!(given, (2..=101).collect::<Vec<_>>());
    assert_eq!(disk.syncs() - before, 1, "a hundred records, one sync");
    let read = records(&read_from(&spool, 2));
    assert!((0..100).all(|n| read[&(n + 2)] == payload(n)));
}

#[test]
fn appenders_on_many_threads_each_get_their_own_sequence() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8_u64)
        .map(|thread| {
            let (spool, barrier) = (spool.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                let append =
                    |n| (spool.append(0, &payload(thread * 1000 + n)).unwrap(), thread * 1000 + n);
                (0..50).map(append).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut given: Vec<(u64, u64)> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    given.sort_unstable();
    assert_eq!(
        given.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (1..=400).collect::<Vec<_>>()
    );
    let read = records(&read_from(&spool, 1));
    assert!(given.iter().all(|(seq, n)| read[seq] == payload(*n)));
}

#[test]
fn everybody_in_a_group_whose_sync_fails_is_told() {
    let disk = TestDisk::default();
    let (spool, go) = stopped(&disk);
    let (tell, told) = sync_channel(10);
    for n in 0..10 {
        let tell = tell.clone();
        let done = move |result| tell.send(result).unwrap();
        spool.submit(vec![(0, payload(n))], Box::new(done)).unwrap();
    }
    disk.fail_at(1, Fault::Fail(ErrorKind::Other));
    go.send(()).unwrap();
    for _ in 0..10 {
        assert!(matches!(told.recv().unwrap(), Err(Error::Io { op: "sync", .. })));
    }
    assert_eq!(spool.synced(), 1);
    assert_eq!(spool.append(0, b"goes on").unwrap(), 2);
}

#[test]
fn the_queue_is_bounded_by_bytes() {
    let disk = TestDisk::default();
    let (spool, go) = stopped(&disk);
    let record = || vec![(0, vec![0; 1 << 20])];
    for _ in 0..QUEUE_BYTES >> 20 {
        spool.try_submit(record(), Box::new(|_| {})).unwrap();
    }
    assert!(matches!(spool.try_submit(record(), Box::new(|_| {})), Err(Error::Busy)));
    // One that may wait gets in once the writer goes on.
    let waiting = {
        let spool = spool.clone();
        std::thread::spawn(move || spool.append(0, &[0; 1 << 20]).unwrap())
    };
    go.send(()).unwrap();
    assert_eq!(waiting.join().unwrap(), 2 + (QUEUE_BYTES >> 20) as u64);
    let too_much = (0..5).map(|_| (0, vec![0; 1 << 20])).collect();
    let refused = spool.submit(too_much, Box::new(|_| {}));
    assert!(matches!(refused, Err(Error::BatchTooLarge { .. })));
}

#[test]
fn what_is_queued_when_the_spool_closes_is_written() {
    let disk = TestDisk::default();
    let (spool, go) = stopped(&disk);
    let (tell, told) = sync_channel(1);
    spool.submit(vec![(0, b"last".to_vec())], Box::new(move |r| tell.send(r).unwrap())).unwrap();
    let closing = std::thread::spawn(move || drop(spool));
    go.send(()).unwrap();
    assert_eq!(told.recv().unwrap().unwrap(), 2..=2);
    closing.join().unwrap();
    let spool = open(small(), &disk).unwrap();
    assert_eq!(records(&read_from(&spool, 1))[&2], b"last");
}
