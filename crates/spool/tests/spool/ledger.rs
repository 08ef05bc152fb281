//! What the spool has promised so far, and the check that it kept it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spool::{Config, Gap, Item, Spool};

use crate::double::TestDisk;

/// 2026-02-01: the time at which tests begin.
pub(crate) const START_MS: i64 = 1_769_904_000_000;

/// Segments of about a kilobyte, housekeeping only when it is asked for.
pub(crate) fn small() -> Config {
    Config {
        segment_bytes: 1024,
        max_spool_bytes: 1 << 30,
        free_space_reserve: 0,
        idle_seal: Duration::from_secs(3600),
        cursor_every: Duration::from_secs(3600),
        ..Config::new("in-memory")
    }
}

pub(crate) fn open(config: Config, disk: &TestDisk) -> Result<Spool, spool::Error> {
    Spool::open_on(config, Arc::new(disk.clone()), Arc::new(|| START_MS))
}

/// The bytes of record `n` of a test: of varying length, and different from every other.
pub(crate) fn payload(n: u64) -> Vec<u8> {
    let mut bytes = format!("record {n:05} ").into_bytes();
    bytes.resize(bytes.len() + (n as usize * 37) % 150, b'a' + (n % 26) as u8);
    bytes
}

/// Everything readable from `from` on.
pub(crate) fn read_from(spool: &Spool, from: u64) -> Vec<Item> {
    let mut reader = spool.reader(from);
    let mut items = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        items.push(item);
    }
    items
}

/// The records among `items`.
pub(crate) fn records(items: &[Item]) -> BTreeMap<u64, Vec<u8>> {
    let record = |item: &Item| match item {
        Item::Record { seq, bytes, .. } => Some((*seq, bytes.clone())),
        Item::Gap(_) => None,
    };
    items.iter().filter_map(record).collect()
}

/// The gaps among `items`.
pub(crate) fn gaps(items: &[Item]) -> Vec<Gap> {
    let gap = |item: &Item| match item {
        Item::Gap(gap) => Some(*gap),
        Item::Record { .. } => None,
    };
    items.iter().filter_map(gap).collect()
}

/// What callers and readers were told.
#[derive(Default, Clone)]
pub(crate) struct Ledger {
    /// Acknowledged by the spool.
    pub(crate) told: BTreeMap<u64, Vec<u8>>,
    /// Seen by a reader.
    pub(crate) seen: BTreeMap<u64, Vec<u8>>,
    /// The highest ack given to the spool.
    pub(crate) acked: u64,
    count: u64,
}

impl Ledger {
    /// Appends the next record of the test and remembers what came back.
    pub(crate) fn append(&mut self, spool: &Spool, class: u8) -> Result<u64, spool::Error> {
        self.count += 1;
        let bytes = payload(self.count);
        let seq = spool.append(class, &bytes)?;
        self.remember(seq, bytes);
        Ok(seq)
    }

    pub(crate) fn remember(&mut self, seq: u64, bytes: Vec<u8>) {
        assert!(!self.told.contains_key(&seq), "sequence {seq} was given twice");
        if let Some(seen) = self.seen.get(&seq) {
            assert_eq!(seen, &bytes, "sequence {seq} was read, and then given to another record");
        }
        self.told.insert(seq, bytes);
    }

    pub(crate) fn ack(&mut self, spool: &Spool, seq: u64) {
        if spool.ack(seq).is_ok() {
            self.acked = self.acked.max(seq);
        }
    }

    /// Reads as far as the disk lets it, and remembers what it saw: an uplink would have sent it.
    pub(crate) fn peek(&mut self, spool: &Spool) {
        let mut reader = spool.reader(1);
        while let Ok(Some(item)) = reader.next() {
            if let Item::Record { seq, bytes, .. } = item {
                let seen = self.seen.entry(seq).or_insert_with(|| bytes.clone());
                assert_eq!(*seen, bytes, "record {seq} has changed");
            }
        }
    }

    /// Reads everything, and checks it against everything said before.
    pub(crate) fn check(&mut self, spool: &Spool) {
        let items = read_from(spool, spool.acked() + 1);
        let mut next = spool.acked() + 1;
        for item in &items {
            let (from, to) = match item {
                Item::Record { seq, .. } => (*seq, *seq),
                Item::Gap(gap) => (gap.from_seq, gap.to_seq),
            };
            assert_eq!(from, next, "items follow each other without holes or overlaps");
            next = to + 1;
        }
        assert_eq!(next, spool.synced() + 1, "the items reach the head");
        assert!(spool.acked() <= self.acked, "the spool acked something by itself");
        let readable = records(&items);
        let gaps = gaps(&items);
        for (seq, bytes) in self.told.range(spool.acked() + 1..) {
            let declared = gaps.iter().any(|gap| (gap.from_seq..=gap.to_seq).contains(seq));
            match readable.get(seq) {
                Some(read) => assert_eq!(read, bytes, "record {seq} has other bytes"),
                None => assert!(declared, "record {seq} is neither readable nor in a gap"),
            }
        }
        for (seq, bytes) in &readable {
            let seen = self.seen.entry(*seq).or_insert_with(|| bytes.clone());
            assert_eq!(seen, bytes, "record {seq} has other bytes than when it was first read");
        }
    }
}
