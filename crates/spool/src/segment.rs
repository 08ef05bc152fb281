//! A segment's name, header and footer, and what is known about a segment without reading it.

use uuid::Uuid;

use crate::frame::{i64_at, u32_at, u64_at};

/// Bytes of a segment's header; frames begin here.
pub(crate) const HEADER_BYTES: u64 = 64;
/// Bytes of a sealed segment's footer.
pub(crate) const FOOTER_BYTES: usize = 96;
/// The first bytes of a footer.
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"HFFOOT01";
const HEADER_MAGIC: [u8; 8] = *b"HFSPOOL1";
const VERSION: u16 = 1;

/// The file name of the segment that begins at `base`.
pub(crate) fn file_name(base: u64, sealed: bool) -> String {
    format!("{base:020}.{}", if sealed { "seg" } else { "open" })
}

/// The base and whether it is sealed, if `name` is a segment's.
pub(crate) fn parse_name(name: &str) -> Option<(u64, bool)> {
    let (digits, extension) = name.split_once('.')?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let base = digits.parse().ok().filter(|base| *base >= 1)?;
    match extension {
        "seg" => Some((base, true)),
        "open" => Some((base, false)),
        _ => None,
    }
}

pub(crate) fn encode_header(epoch: Uuid, base: u64, created_at_ms: i64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&HEADER_MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&64_u16.to_le_bytes());
    bytes[16..32].copy_from_slice(epoch.as_bytes());
    bytes[32..40].copy_from_slice(&base.to_le_bytes());
    bytes[40..48].copy_from_slice(&created_at_ms.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// The epoch and the base in a segment's header, if it is whole.
pub(crate) fn decode_header(bytes: &[u8]) -> Option<(Uuid, u64)> {
    let bytes: &[u8; 64] = bytes.first_chunk()?;
    (bytes[..8] == HEADER_MAGIC && is_sealed(bytes))
        .then(|| (uuid_at(bytes, 16), u64_at(bytes, 32)))
}

/// What a sealed segment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Whole records.
    pub records: u64,
    /// When the first of them was written, in ms since 1970.
    pub first_at_ms: i64,
    /// When the last of them was written.
    pub last_at_ms: i64,
    /// How many there are of class 0, 1, 2, and of 3 or higher.
    pub classes: [u32; 4],
    /// The highest class among them.
    pub highest_class: u8,
}

impl Summary {
    pub(crate) fn add(&mut self, class: u8, written_at_ms: i64) {
        if self.records == 0 {
            self.first_at_ms = written_at_ms;
        }
        self.last_at_ms = written_at_ms;
        self.records += 1;
        let slot = &mut self.classes[usize::from(class.min(3))];
        *slot = slot.saturating_add(1);
        self.highest_class = self.highest_class.max(class);
    }
}

/// A sealed segment's footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) epoch: Uuid,
    pub(crate) base: u64,
    pub(crate) last: u64,
    pub(crate) data_len: u64,
    pub(crate) summary: Summary,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        bytes[..8].copy_from_slice(&FOOTER_MAGIC);
        bytes[8..24].copy_from_slice(self.epoch.as_bytes());
        bytes[24..32].copy_from_slice(&self.base.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.last.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.summary.records.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.summary.first_at_ms.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.summary.last_at_ms.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.data_len.to_le_bytes());
        for (slot, count) in bytes[72..88].chunks_exact_mut(4).zip(self.summary.classes) {
            slot.copy_from_slice(&count.to_le_bytes());
        }
        bytes[88] = self.summary.highest_class;
        seal(&mut bytes);
        bytes
    }

    /// The footer in `bytes`, if it is whole and of the segment that begins at `base` and has `file_len` bytes.
    pub(crate) fn decode(bytes: &[u8], base: u64, file_len: u64) -> Option<Self> {
        let bytes: &[u8; FOOTER_BYTES] = bytes.first_chunk()?;
        if bytes[..8] != FOOTER_MAGIC || !is_sealed(bytes) {
            return None;
        }
        let footer = Self {
            epoch: uuid_at(bytes, 8),
            base: u64_at(bytes, 24),
            last: u64_at(bytes, 32),
            data_len: u64_at(bytes, 64),
            summary: Summary {
                records: u64_at(bytes, 40),
                first_at_ms: i64_at(bytes, 48),
                last_at_ms: i64_at(bytes, 56),
                classes: [72, 76, 80, 84].map(|at| u32_at(bytes, at)),
                highest_class: bytes[88],
            },
        };
        let fits = footer.base == base
            && footer.last >= base
            && footer.data_len >= HEADER_BYTES
            && footer.data_len.checked_add(FOOTER_BYTES as u64) == Some(file_len);
        fits.then_some(footer)
    }
}

/// Writes the CRC of all but the last four bytes into the last four.
pub(crate) fn seal(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the last four bytes are the CRC of the others.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    let at = bytes.len() - 4;
    crc32c::crc32c(&bytes[..at]) == u32_at(bytes, at)
}

pub(crate) fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(Uuid::nil(), |b| Uuid::from_bytes(*b))
}
