//! The frame decoder on frames that were damaged on purpose.
//!
//! The input is split into a few single-byte changes and the payloads of some records. Whatever is changed: the scan ends, its
//! sequences ascend, what it serves is what was written, and a frame that no change touched is served.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use spool::frame::{Salt, Step, encode, scan};

const BASE: u64 = 41;

fuzz_target!(|data: &[u8]| {
    let salt = Salt::new(uuid::Uuid::from_bytes([7; 16]), BASE);

    // Bytes that were never frames: nothing is promised but an end.
    assert!(matches!(scan(data, salt, BASE).last(), Some(Step::End(_))));

    let Some((&count, rest)) = data.split_first() else { return };
    let changes = usize::from(count % 8);
    if rest.len() < changes * 3 {
        return;
    }
    let (changes, payloads) = rest.split_at(changes * 3);
    let payloads: Vec<&[u8]> = payloads.chunks(37).take(40).collect();
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for (payload, seq) in payloads.iter().zip(BASE..) {
        assert!(encode(&mut bytes, salt, seq, 1_700_000_000_000, 0, payload));
        ends.push(bytes.len());
    }
    if bytes.is_empty() {
        return;
    }
    let mut touched = vec![false; payloads.len()];
    for change in changes.chunks(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] ^= change[2];
        if change[2] != 0 {
            touched[ends.partition_point(|end| *end <= at)] = true;
        }
    }

    let mut served = BTreeMap::new();
    let mut last = BASE - 1;
    for step in scan(&bytes, salt, BASE) {
        match step {
            Step::Frame { header, payload } => {
                assert!(header.seq > last, "sequences ascend");
                last = header.seq;
                served.insert(header.seq, payload);
            }
            Step::Damage(damage) => {
                assert!(damage.from_seq > last && damage.to_seq >= damage.from_seq);
                last = damage.to_seq;
            }
            Step::End(_) => {}
        }
    }
    for (index, seq) in (0..payloads.len()).zip(BASE..) {
        match served.get(&seq) {
            // Two changes can undo each other, so a touched frame may be served too, if it is whole.
            Some(payload) => assert_eq!(*payload, payloads[index]),
            None => assert!(touched[index], "frame {seq} was not touched and is not served"),
        }
    }
});
