//! What a power cut leaves of writes and names that were not synced.

use std::collections::BTreeMap;

/// What the page cache had brought to the disk when the power went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing that was not synced.
    Lost,
    /// Everything.
    Kept,
    /// Operations in order up to some point, the last one torn.
    Torn(u64),
    /// Any sectors and any names, in no order.
    Scattered(u64),
}

#[derive(Clone)]
pub(crate) enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

#[derive(Clone)]
pub(crate) enum NameChange {
    Link(String, usize),
    Rename(String, String),
    Unlink(String),
}

#[derive(Clone, Default)]
pub(crate) struct Inode {
    pub(crate) cached: Vec<u8>,
    pub(crate) durable: Vec<u8>,
    pub(crate) dirty: Vec<Change>,
    pub(crate) sync_failed: bool,
}

impl NameChange {
    pub(crate) fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link(name, id) => {
                names.insert(name.clone(), *id);
            }
            Self::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
            Self::Unlink(name) => {
                names.remove(name);
            }
        }
    }
}

impl Change {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => bytes.resize(*len as usize, 0),
            Self::Write(at, data) => {
                let end = *at as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at as usize..end].copy_from_slice(data);
            }
        }
    }
}

impl Inode {
    pub(crate) fn after_crash(&self, outcome: Outcome, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        match outcome {
            Outcome::Lost => {}
            Outcome::Kept => self.dirty.iter().for_each(|change| change.apply(&mut bytes)),
            Outcome::Torn(_) => {
                let whole = random.below(self.dirty.len() as u64 + 1) as usize;
                self.dirty[..whole].iter().for_each(|change| change.apply(&mut bytes));
                if let Some(Change::Write(at, data)) = self.dirty.get(whole) {
                    let part = random.below(data.len() as u64 + 1) as usize;
                    Change::Write(*at, data[..part].to_vec()).apply(&mut bytes);
                }
            }
            Outcome::Scattered(_) => {
                for change in &self.dirty {
                    let Change::Write(at, data) = change else {
                        change.apply(&mut bytes);
                        continue;
                    };
                    // The length is there before the data is; each sector comes or does not.
                    Change::SetLen((bytes.len() as u64).max(at + data.len() as u64))
                        .apply(&mut bytes);
                    for (i, byte) in data.chunks(64).enumerate() {
                        if random.below(2) == 0 {
                            Change::Write(at + i as u64 * 64, byte.to_vec()).apply(&mut bytes);
                        }
                    }
                }
            }
        }
        bytes
    }
}

/// A small generator, so that a failure is replayed from its number.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n.max(1)
    }
}
