//! A segment cut at every byte.

use spool::GapReason;

use crate::double::TestDisk;
use crate::ledger::{gaps, open, payload, read_from, records, small};

/// A disk with `sealed` whole segments and one open one, and how many records there are.
fn filled(records: u64) -> TestDisk {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    for n in 1..=records {
        spool.append(0, &payload(n)).unwrap();
    }
    drop(spool);
    disk
}

/// How many whole records the first `len` bytes of the segment at `base` hold.
fn whole_records(base: u64, len: usize) -> u64 {
    let mut end = 64;
    (base..)
        .take_while(|n| {
            end += 36 + payload(*n).len();
            end <= len
        })
        .count() as u64
}

#[test]
fn the_open_segment_cut_at_every_byte_keeps_every_whole_record() {
    let disk = filled(6);
    let name = disk.segment_names().pop().unwrap();
    assert_eq!(name, "00000000000000000001.open");
    let bytes = disk.bytes_of(&name);
    assert_eq!(whole_records(1, bytes.len()), 6);
    for len in 0..bytes.len() {
        let disk = disk.copy();
        disk.put(&name, &bytes[..len]);
        let spool = open(small(), &disk).unwrap();
        let whole = whole_records(1, len);
        assert_eq!(spool.synced(), whole, "cut at {len}");
        assert_eq!(spool.gaps(), [], "a torn tail is not a loss (cut at {len})");
        assert_eq!(spool.append(0, b"after").unwrap(), whole + 1);
        let read = records(&read_from(&spool, 1));
        assert_eq!(read.len() as u64, whole + 1);
        assert!((1..=whole).all(|n| read[&n] == payload(n)), "cut at {len}");
        assert_eq!(read[&(whole + 1)], b"after");
    }
}

#[test]
fn zeros_after_a_cut_are_a_torn_tail_too() {
    let disk = filled(6);
    let name = disk.segment_names().pop().unwrap();
    let bytes = disk.bytes_of(&name);
    // Only cuts between frames: within one, the zeros complete it, and that is a damaged record.
    let mut end = 64;
    for n in 0..6 {
        let mut cut = bytes[..end].to_vec();
        cut.resize(end + 5000, 0);
        let disk = disk.copy();
        disk.put(&name, &cut);
        let spool = open(small(), &disk).unwrap();
        assert_eq!((spool.synced(), spool.gaps().len()), (n, 0));
        assert_eq!(spool.recovery().truncated_bytes, 5000);
        end += 36 + payload(n + 1).len();
    }
}

#[test]
fn a_sealed_segment_cut_at_every_byte_declares_what_is_gone_and_serves_what_follows() {
    let disk = filled(20);
    let names = disk.segment_names();
    assert!(names.len() >= 3 && names[0].ends_with(".seg"), "{names:?}");
    let second: u64 = names[1][..20].parse().unwrap();
    let bytes = disk.bytes_of(&names[0]);
    for len in 0..bytes.len() {
        let disk = disk.copy();
        disk.put(&names[0], &bytes[..len]);
        let spool = open(small(), &disk).unwrap();
        let items = read_from(&spool, 1);
        let whole = whole_records(1, len).min(second - 1);
        let read = records(&items);
        let expected: Vec<u64> = (1..=whole).chain(second..=20).collect();
        assert_eq!(read.keys().copied().collect::<Vec<_>>(), expected, "cut at {len}");
        assert!(read.iter().all(|(seq, bytes)| *bytes == payload(*seq)));
        let declared: Vec<_> =
            gaps(&items).iter().map(|gap| (gap.from_seq, gap.to_seq, gap.reason)).collect();
        if whole < second - 1 {
            assert_eq!(declared, [(whole + 1, second - 1, GapReason::Corrupt)], "cut at {len}");
        } else {
            assert_eq!(declared, []);
        }
        assert_eq!(spool.gaps(), gaps(&items), "what was found is remembered");
    }
}

#[test]
fn a_segment_that_is_gone_is_a_lost_gap_that_survives() {
    let disk = filled(20);
    let names = disk.segment_names();
    let bases: Vec<u64> = names.iter().map(|name| name[..20].parse().unwrap()).collect();
    disk.delete(&names[1]);
    let spool = open(small(), &disk).unwrap();
    let items = read_from(&spool, 1);
    let [gap] = gaps(&items)[..] else { panic!("{items:?}") };
    assert_eq!((gap.from_seq, gap.to_seq), (bases[1], bases[2] - 1));
    assert_eq!(gap.reason, GapReason::Lost);
    assert_eq!(records(&items).len() as u64, 20 - gap.count());
    drop(spool);
    assert_eq!(open(small(), &disk).unwrap().gaps(), [gap]);
}

#[test]
fn a_last_segment_that_is_gone_is_known_by_the_cursor() {
    let disk = filled(20);
    let spool = open(small(), &disk).unwrap();
    spool.ack(1).unwrap();
    drop(spool);
    let name = disk.segment_names().pop().unwrap();
    disk.delete(&name);
    let spool = open(small(), &disk).unwrap();
    let base: u64 = name[..20].parse().unwrap();
    let [gap] = spool.gaps()[..] else { panic!("{:?}", spool.gaps()) };
    assert_eq!((gap.from_seq, gap.to_seq, gap.reason), (base, 20, GapReason::Lost));
    assert_eq!(spool.append(0, b"next").unwrap(), 21);
}

#[test]
fn a_segment_that_vanishes_under_a_reader_is_declared() {
    let disk = filled(20);
    let names = disk.segment_names();
    let spool = open(small(), &disk).unwrap();
    let mut reader = spool.reader(1);
    reader.next().unwrap();
    names[..2].iter().for_each(|name| disk.delete(name));
    let third: u64 = names[2][..20].parse().unwrap();
    let mut seen = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        seen.push(item);
    }
    // The first file is still open in the reader's hand; the second is gone before it came there.
    assert_eq!(gaps(&seen).iter().map(|gap| gap.to_seq).collect::<Vec<_>>(), [third - 1]);
    assert!((third..=20).all(|seq| records(&seen).contains_key(&seq)));
}
