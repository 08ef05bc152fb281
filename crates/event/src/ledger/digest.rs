//! Whether two tiers hold the same events.

use std::ops::RangeInclusive;

use sha2::{Digest as _, Sha256};

use crate::id::EventId;

/// How many sequences a block of the ledger covers.
pub const BLOCK_LEN: u64 = 1024;

/// The block that a sequence belongs to.
pub fn block_of(seq: u64) -> u64 {
    seq / BLOCK_LEN
}

/// The sequences of a block.
pub fn block_range(block: u64) -> RangeInclusive<u64> {
    let first = block.saturating_mul(BLOCK_LEN);
    first..=first.saturating_add(BLOCK_LEN - 1)
}

/// A count and a hash over a set of events, whatever order they came in.
///
/// The hash is the sum, modulo 2^128, of the first 16 bytes (big-endian) of SHA-256 over the sequence
/// (8 bytes, big-endian) and the event id (16 bytes). Two disjoint sets combine by addition. It shows
/// loss, duplication and mix-ups; it is no protection from someone who chooses event ids to collide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest {
    /// How many events were added.
    pub count: u64,
    /// The sum of their hashes.
    pub hash: u128,
}

impl Digest {
    /// Of no events.
    pub fn new() -> Digest {
        Digest::default()
    }

    /// Adds one event.
    pub fn add(&mut self, seq: u64, event_id: EventId) {
        let mut input = [0u8; 24];
        input[..8].copy_from_slice(&seq.to_be_bytes());
        input[8..].copy_from_slice(event_id.uuid().as_bytes());
        let output: [u8; 32] = Sha256::digest(input).into();
        let mut first = [0u8; 16];
        first.copy_from_slice(&output[..16]);
        self.combine(Digest { count: 1, hash: u128::from_be_bytes(first) });
    }

    /// Adds the events of another digest.
    pub fn combine(&mut self, other: Digest) {
        self.count = self.count.wrapping_add(other.count);
        self.hash = self.hash.wrapping_add(other.hash);
    }

    /// The hash as 16 bytes, big-endian, as a column holds it.
    pub fn hash_bytes(self) -> [u8; 16] {
        self.hash.to_be_bytes()
    }

    /// Of a digest of one event: 8 bytes by which a sequence and its event are known. Never zero.
    pub fn mark(self) -> u64 {
        let [_, _, _, _, _, _, _, _, low @ ..] = self.hash_bytes();
        u64::from_be_bytes(low).max(1)
    }

    /// The hash as a text of 32 hexadecimal digits.
    pub fn hash_text(self) -> String {
        format!("{:032x}", self.hash)
    }

    /// A digest from its stored count and hash.
    pub fn from_parts(count: u64, hash_bytes: [u8; 16]) -> Digest {
        Digest { count, hash: u128::from_be_bytes(hash_bytes) }
    }
}
