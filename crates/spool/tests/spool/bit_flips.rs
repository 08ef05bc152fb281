//! Every byte of every file flipped.

use spool::frame::{HEADER_BYTES, MARKER, MAX_PAYLOAD_BYTES, Salt, Step, scan};
use spool::{GapReason, Item, Spool};

use crate::double::TestDisk;
use crate::ledger::{gaps, open, payload, read_from, records, small};

const PATTERNS: [u8; 3] = [0x01, 0x80, 0xFF];

fn filled() -> TestDisk {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    for n in 1..=20 {
        spool.append((n % 3) as u8, &payload(n)).unwrap();
    }
    spool.ack(1).unwrap();
    drop(spool);
    disk
}

/// The record that byte `at` of the segment at `base` belongs to, if any.
fn record_at(base: u64, at: usize, last: u64) -> Option<u64> {
    let mut end = 64;
    if at < end {
        return None;
    }
    (base..=last).find(|n| {
        end += 36 + payload(*n).len();
        at < end
    })
}

fn check(spool: &Spool, damaged: Option<u64>, context: &str) {
    let items = read_from(spool, 1);
    let read = records(&items);
    let expected: Vec<u64> = (1..=20).filter(|n| Some(*n) != damaged).collect();
    assert_eq!(read.keys().copied().collect::<Vec<_>>(), expected, "{context}");
    assert!(read.iter().all(|(seq, bytes)| *bytes == payload(*seq)), "{context}");
    let declared: Vec<_> =
        gaps(&items).iter().map(|gap| (gap.from_seq, gap.to_seq, gap.reason)).collect();
    let wanted: Vec<_> = damaged.iter().map(|n| (*n, *n, GapReason::Corrupt)).collect();
    assert_eq!(declared, wanted, "{context}");
    assert_eq!(spool.synced(), 20, "{context}");
    assert_eq!(spool.append(0, b"after").unwrap(), 21, "{context}");
}

#[test]
fn a_flipped_byte_in_a_segment_costs_the_damaged_record_alone() {
    let disk = filled();
    let names = disk.segment_names();
    let bases: Vec<u64> = names.iter().map(|name| name[..20].parse().unwrap()).collect();
    for (i, name) in names.iter().enumerate() {
        let last = bases.get(i + 1).map_or(20, |next| next - 1);
        let bytes = disk.bytes_of(name);
        for at in 0..bytes.len() {
            for pattern in PATTERNS {
                let disk = disk.copy();
                let mut flipped = bytes.clone();
                flipped[at] ^= pattern;
                disk.put(name, &flipped);
                let spool = open(small(), &disk).unwrap();
                let context = format!("{name}, byte {at} ^ {pattern:02x}");
                let damaged = record_at(bases[i], at, last);
                check(&spool, damaged, &context);
                drop(spool);
                // The gap is on the disk: it is there without reading the segment.
                let spool = open(small(), &disk).unwrap();
                let kept: Vec<u64> = spool.gaps().iter().map(|gap| gap.from_seq).collect();
                let wanted: Vec<u64> = damaged.into_iter().filter(|n| *n > 1).collect();
                assert_eq!(kept, wanted, "{context}: what is acked needs no gap");
            }
        }
    }
}

#[test]
fn a_flipped_byte_in_the_small_files_costs_no_record() {
    let disk = filled();
    let spool = open(small(), &disk).unwrap();
    let epoch = spool.epoch();
    drop(spool);
    for name in ["epoch", "cursor", "gaps"] {
        let bytes = disk.bytes_of(name);
        for at in 0..bytes.len() {
            for pattern in PATTERNS {
                let disk = disk.copy();
                let mut flipped = bytes.clone();
                flipped[at] ^= pattern;
                disk.put(name, &flipped);
                let spool = open(small(), &disk).unwrap();
                assert_eq!((spool.epoch(), spool.acked()), (epoch, 1), "{name}, byte {at}");
                check(&spool, None, &format!("{name}, byte {at} ^ {pattern:02x}"));
            }
        }
    }
}

#[test]
fn a_flipped_byte_in_the_gaps_file_costs_a_reason_at_most() {
    let disk = filled();
    let names = disk.segment_names();
    let bases: Vec<u64> = names.iter().map(|name| name[..20].parse().unwrap()).collect();
    disk.delete(&names[1]);
    let spool = open(small(), &disk).unwrap();
    read_from(&spool, 1);
    drop(spool);
    let bytes = disk.bytes_of("gaps");
    assert!(bytes.len() > 32, "a gap is kept");
    for at in 0..bytes.len() {
        let disk = disk.copy();
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        disk.put("gaps", &flipped);
        let spool = open(small(), &disk).unwrap();
        let found = gaps(&read_from(&spool, 1));
        let [gap] = found[..] else { panic!("byte {at}: {found:?}") };
        assert_eq!((gap.from_seq, gap.to_seq), (bases[1], bases[2] - 1), "byte {at}");
    }
}

#[test]
fn the_identity_survives_in_any_one_of_its_places() {
    let whole = filled();
    let epoch = open(small(), &whole.copy()).unwrap().epoch();
    for kept in ["epoch", "cursor", "gaps", "segments"] {
        let disk = whole.copy();
        for name in ["epoch", "cursor", "gaps"].into_iter().filter(|name| *name != kept) {
            disk.put(name, &[0x55; 600]);
        }
        let spool = open(small(), &disk).unwrap();
        assert_eq!(spool.epoch(), epoch, "only {kept} is whole");
        assert_eq!(records(&read_from(&spool, 1)).len(), 20);
    }
    let disk = whole.copy();
    for name in disk.segment_names() {
        let mut bytes = disk.bytes_of(&name);
        bytes[..64].fill(0);
        let footer = bytes.len() - 96;
        bytes[footer..].fill(0);
        disk.put(&name, &bytes);
    }
    ["epoch", "cursor", "gaps"].iter().for_each(|name| disk.delete(name));
    let refused = open(small(), &disk);
    assert!(matches!(refused.err(), Some(spool::Error::NoIdentity { .. })));
}

#[test]
fn a_head_that_nobody_knows_gets_a_new_epoch() {
    let disk = filled();
    let epoch = open(small(), &disk).unwrap().epoch();
    disk.segment_names().iter().for_each(|name| disk.delete(name));
    disk.delete("cursor");
    let spool = open(small(), &disk).unwrap();
    assert!(spool.recovery().epoch_renewed);
    assert_ne!(spool.epoch(), epoch);
    assert_eq!(spool.append(0, b"first of its own epoch").unwrap(), 1);
}

#[test]
fn a_cursor_that_is_gone_declares_again_what_was_deleted() {
    let disk = filled();
    let names = disk.segment_names();
    let second: u64 = names[1][..20].parse().unwrap();
    disk.delete(&names[0]);
    disk.delete("cursor");
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.acked(), 0);
    let [gap] = gaps(&read_from(&spool, 1))[..] else { panic!("one gap") };
    assert_eq!((gap.from_seq, gap.to_seq, gap.reason), (1, second - 1, GapReason::Lost));
}

#[test]
fn an_insane_length_neither_allocates_nor_loops() {
    let salt = Salt::new(uuid::Uuid::nil(), 1);
    for len in [MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES + 1, u32::MAX] {
        // A header whose checksum is right, as a forger or a bug would write it, and a good frame after it.
        let mut header = Vec::from(MARKER);
        header.extend(len.to_le_bytes());
        header.extend(1_u64.to_le_bytes());
        header.extend([0; 12]);
        let salted = crc32c::crc32c_append(crc32c::crc32c(&[0; 16]), &1_u64.to_le_bytes());
        header.extend(crc32c::crc32c_append(salted, &header).to_le_bytes());
        assert_eq!(header.len(), HEADER_BYTES);
        header.extend([0xAA; 40]);
        assert!(spool::frame::encode(&mut header, salt, 2, 0, 0, b"good"));
        let steps: Vec<Step<'_>> = scan(&header, salt, 1).collect();
        assert_eq!(steps.len(), 3, "{len}: {steps:?}");
        assert!(matches!(steps[0], Step::Damage(d) if (d.from_seq, d.to_seq) == (1, 1)));
        assert!(matches!(steps[1], Step::Frame { payload: b"good", .. }));
    }
}

#[test]
fn a_frame_inside_a_payload_is_not_taken_for_a_record() {
    let disk = TestDisk::default();
    let spool = open(small(), &disk).unwrap();
    // The forger knows the format and the next sequence, but copies a frame of another segment.
    let mut forged = Vec::new();
    assert!(spool::frame::encode(&mut forged, Salt::new(spool.epoch(), 77), 2, 0, 0, b"forged"));
    spool.append(0, &forged).unwrap();
    spool.append(0, b"true").unwrap();
    drop(spool);
    let name = disk.segment_names().pop().unwrap();
    let mut bytes = disk.bytes_of(&name);
    bytes[64] ^= 1;
    disk.put(&name, &bytes);
    let spool = open(small(), &disk).unwrap();
    let items = read_from(&spool, 1);
    assert!(matches!(items[0], Item::Gap(gap) if (gap.from_seq, gap.to_seq) == (1, 1)));
    assert_eq!(records(&items)[&2], b"true");
}
