//! Random operations against a naive model: a map from sequence to bytes, and the highest ack.

use std::time::Duration;

use proptest::prelude::*;
use spool::{Config, OnFull};

use crate::double::{Outcome, TestDisk};
use crate::ledger::{Ledger, START_MS, open, small};

#[derive(Debug, Clone)]
enum Action {
    Append(u8),
    AckTo(u8),
    Maintain,
    Restart,
    PowerCut(Outcome),
    FlipByte(u16, u16),
    Check,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => (0_u8..3).prop_map(Action::Append),
        2 => any::<u8>().prop_map(Action::AckTo),
        2 => Just(Action::Maintain),
        1 => Just(Action::Restart),
        1 => any::<u64>().prop_map(|seed| Action::PowerCut(Outcome::Torn(seed))),
        1 => any::<u64>().prop_map(|seed| Action::PowerCut(Outcome::Scattered(seed))),
        1 => any::<(u16, u16)>().prop_map(|(file, at)| Action::FlipByte(file, at)),
        2 => Just(Action::Check),
    ]
}

/// Flips a bit in a record that is not the last: what a card does to old data.
fn flip(disk: &TestDisk, file: u16, at: u16) {
    let names = disk.segment_names();
    let Some(name) = names.get(usize::from(file) % names.len().max(1)) else {
        return;
    };
    if names.last() == Some(name) {
        return;
    }
    let mut bytes = disk.bytes_of(name);
    let at = usize::from(at) % bytes.len();
    bytes[at] ^= 0x20;
    disk.put(name, &bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_record_is_readable_or_declared(
        actions in proptest::collection::vec(action(), 1..120),
    ) {
        let config = Config {
            max_spool_bytes: 8 * 1024,
            cursor_every: Duration::ZERO,
            idle_seal: Duration::ZERO,
            on_full: OnFull::DropOldest,
            ..small()
        };
        let mut disk = TestDisk::default();
        let mut ledger = Ledger::default();
        let mut spool = open(config.clone(), &disk).unwrap();
        for action in actions {
            match action {
                Action::Append(class) => {
                    ledger.append(&spool, class).unwrap();
                }
                Action::AckTo(part) => {
                    let seq = spool.synced() * u64::from(part) / 255;
                    ledger.ack(&spool, seq);
                }
                Action::Maintain => spool.maintain(START_MS).unwrap(),
                Action::Check => ledger.check(&spool),
                Action::FlipByte(file, at) => {
                    drop(spool);
                    flip(&disk, file, at);
                    spool = open(config.clone(), &disk).unwrap();
                }
                Action::Restart => {
                    drop(spool);
                    spool = open(config.clone(), &disk).unwrap();
                }
                Action::PowerCut(outcome) => {
                    disk = disk.after_crash(outcome);
                    drop(spool);
                    spool = open(config.clone(), &disk).unwrap();
                }
            }
        }
        ledger.check(&spool);
        prop_assert_eq!(disk.violations(), [""; 0]);
    }
}
