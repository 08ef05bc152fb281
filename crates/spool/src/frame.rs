//! One record as bytes: the frame's header, its checksums, and the pure decoder.
//!
//! The layout is in `docs/spec/spool-format.md`. Nothing here does I/O. Decoding never panics and never allocates, whatever
//! the bytes are; a length is believed only under a valid header checksum.

use uuid::Uuid;

pub use crate::scan::{Damage, Scan, Step, Tail, scan};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 32;
/// Bytes after the payload.
pub const TRAILER_BYTES: usize = 4;
/// What a frame costs beyond its payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TRAILER_BYTES;
/// The largest payload that the format allows.
pub const MAX_PAYLOAD_BYTES: u32 = 16 << 20;
/// The first bytes of every frame. `F5` occurs in no UTF-8 text.
pub const MARKER: [u8; 4] = [0xF5, b'H', b'F', 0x01];

/// What makes a segment's checksums its own: the epoch and the base sequence, already run through the CRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Salt(u32);

impl Salt {
    /// The salt of the segment of `epoch` that begins at `base`.
    pub fn new(epoch: Uuid, base: u64) -> Self {
        let crc = crc32c::crc32c(epoch.as_bytes());
        Self(crc32c::crc32c_append(crc, &base.to_le_bytes()))
    }
}

/// A frame's header that passed its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The length of the payload, at most [`MAX_PAYLOAD_BYTES`].
    pub payload_len: u32,
    /// The record's sequence.
    pub seq: u64,
    /// When it was written, in ms since 1970.
    pub written_at_ms: i64,
    /// How precious it is.
    pub class: u8,
    crc: u32,
}

impl Header {
    /// Decodes the first [`HEADER_BYTES`] of `bytes`. `None` unless marker, checksum and length are all right.
    pub fn decode(bytes: &[u8], salt: Salt) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[..4] != MARKER {
            return None;
        }
        let crc = u32_at(bytes, 28);
        if crc32c::crc32c_append(salt.0, &bytes[..28]) != crc {
            return None;
        }
        let payload_len = u32_at(bytes, 4);
        if payload_len > MAX_PAYLOAD_BYTES || bytes[25..28] != [0; 3] {
            return None;
        }
        Some(Self {
            payload_len,
            seq: u64_at(bytes, 8),
            written_at_ms: i64_at(bytes, 16),
            class: bytes[24],
            crc,
        })
    }

    /// The length of the whole frame.
    pub fn frame_len(&self) -> u64 {
        u64::from(self.payload_len) + OVERHEAD_BYTES as u64
    }

    /// Whether `payload`, followed by its trailer, is what was written under this header.
    pub fn matches(&self, payload: &[u8], trailer: [u8; TRAILER_BYTES]) -> bool {
        payload.len() as u64 == u64::from(self.payload_len)
            && crc32c::crc32c_append(self.crc, payload) == u32::from_le_bytes(trailer)
    }
}

/// Appends one frame to `out`. The payload's length has been checked against [`MAX_PAYLOAD_BYTES`] by the caller; a
/// longer one would be cut, so it is refused here by returning `false` and leaving `out` as it was.
pub fn encode(
    out: &mut Vec<u8>,
    salt: Salt,
    seq: u64,
    written_at_ms: i64,
    class: u8,
    payload: &[u8],
) -> bool {
    let start = out.len();
    if !lay_out(out, class, payload) {
        return false;
    }
    number(&mut out[start..], salt, seq, written_at_ms);
    true
}

/// Appends a frame that has no sequence, time and checksums yet: all of it that an appender can do before the writer's turn.
/// Refuses as [`encode`] does.
pub(crate) fn lay_out(out: &mut Vec<u8>, class: u8, payload: &[u8]) -> bool {
    let Some(len) = u32::try_from(payload.len()).ok().filter(|len| *len <= MAX_PAYLOAD_BYTES)
    else {
        return false;
    };
    let mut header = [0_u8; HEADER_BYTES];
    header[..4].copy_from_slice(&MARKER);
    header[4..8].copy_from_slice(&len.to_le_bytes());
    header[24] = class;
    out.reserve(payload.len() + OVERHEAD_BYTES);
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
    out.extend_from_slice(&[0; TRAILER_BYTES]);
    true
}

/// Makes the first frame of `frames`, as [`lay_out`] left it or numbered before, the record `seq`. Returns its class and what is
/// behind it; `None` when there is no frame.
pub(crate) fn number(
    frames: &mut [u8],
    salt: Salt,
    seq: u64,
    written_at_ms: i64,
) -> Option<(u8, &mut [u8])> {
    let (header, rest) = frames.split_first_chunk_mut::<HEADER_BYTES>()?;
    let payload_len = usize::try_from(u32_at(header, 4)).ok()?;
    let (payload, rest) = rest.split_at_mut_checked(payload_len)?;
    let (trailer, rest) = rest.split_first_chunk_mut::<TRAILER_BYTES>()?;
    header[8..16].copy_from_slice(&seq.to_le_bytes());
    header[16..24].copy_from_slice(&written_at_ms.to_le_bytes());
    let crc = crc32c::crc32c_append(salt.0, &header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    *trailer = crc32c::crc32c_append(crc, payload).to_le_bytes();
    Some((header[24], rest))
}

/// The four bytes at `at`; zeros beyond the end, which no valid structure reaches.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

pub(crate) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| i64::from_le_bytes(*b))
}
