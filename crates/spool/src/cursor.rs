//! The two small files that say who the spool is and how far it has come: `epoch` and `cursor`.

use uuid::Uuid;

use crate::frame::u64_at;
use crate::segment::{is_sealed, seal, uuid_at};

pub(crate) const EPOCH_FILE: &str = "epoch";
pub(crate) const CURSOR_FILE: &str = "cursor";
pub(crate) const EPOCH_BYTES: usize = 28;
pub(crate) const CURSOR_BYTES: usize = SECOND_COPY + COPY_BYTES;
const EPOCH_MAGIC: [u8; 8] = *b"HFEPOCH1";
const CURSOR_MAGIC: [u8; 8] = *b"HFCURSR1";
const COPY_BYTES: usize = 64;
/// One sector further on, so that no single damaged sector takes both copies.
const SECOND_COPY: usize = 512;

pub(crate) fn encode_epoch(epoch: Uuid) -> [u8; EPOCH_BYTES] {
    let mut bytes = [0; EPOCH_BYTES];
    bytes[..8].copy_from_slice(&EPOCH_MAGIC);
    bytes[8..24].copy_from_slice(epoch.as_bytes());
    seal(&mut bytes);
    bytes
}

pub(crate) fn decode_epoch(bytes: &[u8]) -> Option<Uuid> {
    let bytes: &[u8; EPOCH_BYTES] = bytes.first_chunk()?;
    (bytes[..8] == EPOCH_MAGIC && is_sealed(bytes)).then(|| uuid_at(bytes, 8))
}

/// What is remembered when every segment is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    pub(crate) epoch: Uuid,
    pub(crate) acked: u64,
    pub(crate) head: u64,
    pub(crate) bytes_written: u64,
    pub(crate) lost_records: u64,
}

impl Cursor {
    pub(crate) fn encode(&self) -> [u8; CURSOR_BYTES] {
        let mut copy = [0; COPY_BYTES];
        copy[..8].copy_from_slice(&CURSOR_MAGIC);
        copy[8..24].copy_from_slice(self.epoch.as_bytes());
        copy[24..32].copy_from_slice(&self.acked.to_le_bytes());
        copy[32..40].copy_from_slice(&self.head.to_le_bytes());
        copy[40..48].copy_from_slice(&self.bytes_written.to_le_bytes());
        copy[48..56].copy_from_slice(&self.lost_records.to_le_bytes());
        seal(&mut copy);
        let mut bytes = [0; CURSOR_BYTES];
        bytes[..COPY_BYTES].copy_from_slice(&copy);
        bytes[SECOND_COPY..].copy_from_slice(&copy);
        bytes
    }

    /// The first copy that is whole.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        [0, SECOND_COPY].into_iter().find_map(|at| {
            let copy: &[u8; COPY_BYTES] = bytes.get(at..)?.first_chunk()?;
            let cursor = Self {
                epoch: uuid_at(copy, 8),
                acked: u64_at(copy, 24),
                head: u64_at(copy, 32),
                bytes_written: u64_at(copy, 40),
                lost_records: u64_at(copy, 48),
            };
            (copy[..8] == CURSOR_MAGIC && is_sealed(copy)).then_some(cursor)
        })
    }
}
