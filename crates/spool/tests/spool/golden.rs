//! The bytes of `docs/spec/spool-format.md`. If one of these tests fails, the format has changed, and cards in the field could
//! not be read. The constants were made from that page by another program than this one.

use spool::frame::{Salt, Step, Tail, scan};
use spool::{GapReason, Item};
use uuid::Uuid;

use crate::double::TestDisk;
use crate::ledger::{START_MS, open, read_from, small};

const EPOCH: Uuid = Uuid::from_u128(0x0194_bdd1_2c00_7abc_8def_0123_4567_89ab);

/// The identity.
const EPOCH_FILE: &str = "
    4846 4550 4f43 4831 0194 bdd1 2c00 7abc 8def 0123 4567 89ab b895 7650
";

/// One copy of the cursor of a new spool.
const CURSOR_COPY: &str = "
    4846 4355 5253 5231 0194 bdd1 2c00 7abc 8def 0123 4567 89ab 0000 0000 0000 0000
    0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 0000 7027 608d
";

/// Telemetry `one`, an empty event, the alarm `three`; sealed.
const SEGMENT: &str = "
    4846 5350 4f4f 4c31 0100 4000 0000 0000 0194 bdd1 2c00 7abc 8def 0123 4567 89ab
    0100 0000 0000 0000 00cc 7f16 9c01 0000 0000 0000 0000 0000 0000 0000 f3b9 c959
    f548 4601 0300 0000 0100 0000 0000 0000 00cc 7f16 9c01 0000 0000 0000 b174 d993
    6f6e 65e5 5ea6 cff5 4846 0100 0000 0002 0000 0000 0000 0000 cc7f 169c 0100 0001
    0000 00ad f764 dcad f764 dcf5 4846 0105 0000 0003 0000 0000 0000 0000 cc7f 169c
    0100 0002 0000 007d acad d174 6872 6565 476b 51eb 4846 464f 4f54 3031 0194 bdd1
    2c00 7abc 8def 0123 4567 89ab 0100 0000 0000 0000 0300 0000 0000 0000 0300 0000
    0000 0000 00cc 7f16 9c01 0000 00cc 7f16 9c01 0000 b400 0000 0000 0000 0100 0000
    0100 0000 0100 0000 0000 0000 0200 0000 50ce e5b0
";

/// Two gaps: 1 to 3 dropped by size with its times, 4 corrupt without.
const GAPS_FILE: &str = "
    4846 4741 5053 3031 0194 bdd1 2c00 7abc 8def 0123 4567 89ab 0200 0000 681d bf46
    0100 0000 0000 0000 0300 0000 0000 0000 00cc 7f16 9c01 0000 00cc 7f16 9c01 0000
    0103 0000 1fbf d95d 0400 0000 0000 0000 0400 0000 0000 0000 0000 0000 0000 0000
    0000 0000 0000 0000 0400 0000 8439 7dc7
";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn cursor() -> Vec<u8> {
    let mut file = bytes(CURSOR_COPY);
    file.resize(512, 0);
    file.extend(bytes(CURSOR_COPY));
    file
}

fn young_disk() -> TestDisk {
    let disk = TestDisk::default();
    disk.put("epoch", &bytes(EPOCH_FILE));
    disk.put("cursor", &cursor());
    disk
}

#[test]
fn a_segment_is_written_as_the_page_says() {
    let disk = young_disk();
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.epoch(), EPOCH);
    spool.append(0, b"one").unwrap();
    spool.append(1, b"").unwrap();
    spool.append(2, b"three").unwrap();
    // Does not fit any more, so that the first three are sealed.
    spool.append(0, &[0; 1000]).unwrap();
    assert_eq!(disk.bytes_of("00000000000000000001.seg"), bytes(SEGMENT));
    assert_eq!(disk.bytes_of("epoch"), bytes(EPOCH_FILE));
    assert_eq!(disk.bytes_of("cursor"), cursor());
}

#[test]
fn a_segment_is_read_as_the_page_says() {
    let disk = young_disk();
    disk.put("00000000000000000001.seg", &bytes(SEGMENT));
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.synced(), 3);
    let record = |seq, class, text: &str| Item::Record {
        seq,
        written_at_ms: START_MS,
        class,
        bytes: text.as_bytes().to_vec(),
    };
    assert_eq!(
        read_from(&spool, 1),
        [record(1, 0, "one"), record(2, 1, ""), record(3, 2, "three")]
    );
}

#[test]
fn gaps_are_kept_as_the_page_says() {
    let disk = young_disk();
    disk.put("gaps", &bytes(GAPS_FILE));
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.synced(), 4);
    let [dropped, corrupt] = spool.gaps()[..] else { panic!("{:?}", spool.gaps()) };
    assert_eq!((dropped.from_seq, dropped.to_seq, dropped.count()), (1, 3, 3));
    assert_eq!((dropped.first_at_ms, dropped.last_at_ms), (Some(START_MS), Some(START_MS)));
    assert_eq!(dropped.reason, GapReason::DropOldest);
    assert_eq!((corrupt.from_seq, corrupt.to_seq, corrupt.first_at_ms), (4, 4, None));
    assert_eq!(corrupt.reason, GapReason::Corrupt);
}

#[test]
fn gaps_are_written_as_the_page_says() {
    let disk = young_disk();
    // The only record's payload is damaged, and nothing follows: its sequence is consumed and declared.
    let mut open_segment = bytes(SEGMENT)[..64 + 39].to_vec();
    open_segment[64 + 32] ^= 1;
    disk.put("00000000000000000001.open", &open_segment);
    let spool = open(small(), &disk).unwrap();
    assert_eq!(spool.synced(), 1);
    let file = disk.bytes_of("gaps");
    assert_eq!(file.len(), 32 + 40);
    assert_eq!(file[..24], bytes(GAPS_FILE)[..24], "magic and epoch");
    assert_eq!(file[24..28], [1, 0, 0, 0], "one gap");
    assert_eq!(file[32..40], 1_u64.to_le_bytes());
    assert_eq!(file[40..48], 1_u64.to_le_bytes());
    assert_eq!(file[64..68], [4, 0, 0, 0], "corrupt, times unknown");
}

#[test]
fn the_decoder_of_bytes_in_memory_agrees() {
    let segment = bytes(SEGMENT);
    let steps: Vec<Step<'_>> = scan(&segment[64..], Salt::new(EPOCH, 1), 1).collect();
    let payloads: Vec<&[u8]> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Frame { payload, .. } => Some(*payload),
            _ => None,
        })
        .collect();
    assert_eq!(payloads, [&b"one"[..], b"", b"three"]);
    assert_eq!(steps.last(), Some(&Step::End(Tail::Torn)), "a footer is not a frame");
}
