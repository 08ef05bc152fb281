//! Tombstones: the sequences that the spool gave up, why, and the file that remembers them.
//!
//! A [`GapSet`] is ascending and disjoint, holds at most [`MAX_GAPS`], and never forgets a gap that is not acked: a gap that
//! finds no place is refused, and what it would have allowed does not happen.

use uuid::Uuid;

use crate::frame::{i64_at, u32_at, u64_at};
use crate::segment::{is_sealed, seal, uuid_at};

/// The bound on outstanding gaps.
pub const MAX_GAPS: usize = 4096;
pub(crate) const GAPS_FILE: &str = "gaps";
pub(crate) const MAX_FILE_BYTES: usize = HEADER_BYTES + MAX_GAPS * ENTRY_BYTES;
const MAGIC: [u8; 8] = *b"HFGAPS01";
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 40;

/// Why records are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// `max_spool_bytes` was met.
    DropOldest,
    /// `max_spool_age` was met.
    Expired,
    /// The disk was full and the spool was told to drop.
    DiskFull,
    /// Bytes were damaged.
    Corrupt,
    /// A segment is missing.
    Lost,
}

impl GapReason {
    /// The word that travels downstream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DropOldest => "drop_oldest",
            Self::Expired => "expired",
            Self::DiskFull => "disk_full",
            Self::Corrupt => "corrupt",
            Self::Lost => "lost",
        }
    }

    /// Whether the spool chose to give the records up, rather than found them missing.
    pub(crate) fn is_drop(self) -> bool {
        matches!(self, Self::DropOldest | Self::Expired | Self::DiskFull)
    }

    fn code(self) -> u8 {
        match self {
            Self::DropOldest => 1,
            Self::Expired => 2,
            Self::DiskFull => 3,
            Self::Corrupt => 4,
            Self::Lost => 5,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::DropOldest, Self::Expired, Self::DiskFull, Self::Corrupt, Self::Lost]
            .into_iter()
            .find(|reason| reason.code() == code)
    }
}

/// A range of sequences that is not there and never will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub from_seq: u64,
    /// The last of them, inclusive.
    pub to_seq: u64,
    /// When the first was written (ms since 1970), if that is known.
    pub first_at_ms: Option<i64>,
    /// When the last was written, if that is known.
    pub last_at_ms: Option<i64>,
    /// Why.
    pub reason: GapReason,
}

impl Gap {
    pub(crate) fn untimed(from_seq: u64, to_seq: u64, reason: GapReason) -> Self {
        Self { from_seq, to_seq, first_at_ms: None, last_at_ms: None, reason }
    }

    /// How many records are gone.
    pub fn count(&self) -> u64 {
        (self.to_seq - self.from_seq).saturating_add(1)
    }
}

/// The outstanding gaps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GapSet {
    gaps: Vec<Gap>,
}

impl GapSet {
    pub(crate) fn as_slice(&self) -> &[Gap] {
        &self.gaps
    }

    pub(crate) fn highest(&self) -> u64 {
        self.gaps.last().map_or(0, |gap| gap.to_seq)
    }

    /// The first gap that ends at or after `seq`: the one that holds `seq`, or the next one.
    pub(crate) fn at_or_after(&self, seq: u64) -> Option<Gap> {
        self.gaps.get(self.gaps.partition_point(|gap| gap.to_seq < seq)).copied()
    }

    /// Whether gaps cover all of `from..=to`.
    pub(crate) fn covers(&self, from: u64, to: u64) -> bool {
        let mut seq = from;
        while let Some(gap) = self.at_or_after(seq).filter(|g| g.from_seq <= seq) {
            if gap.to_seq >= to {
                return true;
            }
            seq = gap.to_seq + 1;
        }
        false
    }

    /// Adds what of `gap` is not covered yet. Returns how many records that is, or `None`, changing nothing, if there is no place.
    pub(crate) fn insert(&mut self, gap: Gap) -> Option<u64> {
        let mut added = Vec::new();
        let mut from = gap.from_seq;
        while from <= gap.to_seq {
            let known = self.at_or_after(from);
            let to = known.map_or(gap.to_seq, |k| gap.to_seq.min(k.from_seq.saturating_sub(1)));
            if known.is_none_or(|k| k.from_seq > from) {
                added.push(Gap { from_seq: from, to_seq: to, ..gap });
            }
            match known.filter(|k| k.to_seq < gap.to_seq) {
                Some(k) => from = k.to_seq + 1,
                None => break,
            }
        }
        let count = added.iter().map(Gap::count).sum();
        let mut merged = Vec::with_capacity(self.gaps.len() + added.len());
        merged.extend_from_slice(&self.gaps);
        merged.extend(added);
        merged.sort_by_key(|g| g.from_seq);
        merged.dedup_by(|next, last| {
            let joins =
                last.reason == next.reason && last.to_seq.checked_add(1) == Some(next.from_seq);
            if joins {
                last.to_seq = next.to_seq;
                last.first_at_ms = last.first_at_ms.or(next.first_at_ms);
                last.last_at_ms = next.last_at_ms.or(last.last_at_ms);
            }
            joins
        });
        let limit = if gap.reason.is_drop() { MAX_GAPS } else { MAX_GAPS / 2 };
        if merged.len() > limit && merged.len() > self.gaps.len() {
            return None;
        }
        self.gaps = merged;
        Some(count)
    }

    /// Forgets what is wholly acked. Returns whether that was anything.
    pub(crate) fn forget_acked(&mut self, acked: u64) -> bool {
        let before = self.gaps.len();
        self.gaps.retain(|gap| gap.to_seq > acked);
        self.gaps.len() != before
    }

    pub(crate) fn encode(&self, epoch: Uuid) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(epoch.as_bytes());
        let count = u32::try_from(self.gaps.len()).unwrap_or(u32::MAX);
        bytes[24..28].copy_from_slice(&count.to_le_bytes());
        seal(&mut bytes);
        for gap in &self.gaps {
            let mut entry = [0; ENTRY_BYTES];
            entry[..8].copy_from_slice(&gap.from_seq.to_le_bytes());
            entry[8..16].copy_from_slice(&gap.to_seq.to_le_bytes());
            entry[16..24].copy_from_slice(&gap.first_at_ms.unwrap_or(0).to_le_bytes());
            entry[24..32].copy_from_slice(&gap.last_at_ms.unwrap_or(0).to_le_bytes());
            entry[32] = gap.reason.code();
            entry[33] =
                u8::from(gap.first_at_ms.is_some()) | u8::from(gap.last_at_ms.is_some()) << 1;
            let crc = entry_crc(epoch, &entry);
            entry[36..].copy_from_slice(&crc.to_le_bytes());
            bytes.extend_from_slice(&entry);
        }
        bytes
    }

    /// Every whole entry in `bytes`, and how many were damaged.
    pub(crate) fn decode(bytes: &[u8], epoch: Uuid) -> (Self, usize) {
        let mut set = Self::default();
        let mut damaged = usize::from(decode_epoch(bytes) != Some(epoch));
        for entry in bytes.get(HEADER_BYTES..).unwrap_or_default().chunks(ENTRY_BYTES) {
            // The file is written in order and without overlap, so anything else is damage.
            match decode_entry(entry, epoch).filter(|gap| gap.from_seq > set.highest()) {
                Some(gap) if set.gaps.len() < MAX_GAPS => set.gaps.push(gap),
                _ => damaged += 1,
            }
        }
        (set, damaged)
    }
}

/// The epoch in the header of a gaps file, if that is whole.
pub(crate) fn decode_epoch(bytes: &[u8]) -> Option<Uuid> {
    let header = bytes.get(..HEADER_BYTES)?;
    (header[..8] == MAGIC && is_sealed(header)).then(|| uuid_at(header, 8))
}

fn decode_entry(entry: &[u8], epoch: Uuid) -> Option<Gap> {
    let entry: &[u8; ENTRY_BYTES] = entry.first_chunk()?;
    if entry_crc(epoch, entry) != u32_at(entry, 36) {
        return None;
    }
    let gap = Gap {
        from_seq: u64_at(entry, 0),
        to_seq: u64_at(entry, 8),
        first_at_ms: (entry[33] & 1 != 0).then(|| i64_at(entry, 16)),
        last_at_ms: (entry[33] & 2 != 0).then(|| i64_at(entry, 24)),
        reason: GapReason::from_code(entry[32])?,
    };
    (gap.from_seq >= 1 && gap.from_seq <= gap.to_seq).then_some(gap)
}

fn entry_crc(epoch: Uuid, entry: &[u8; ENTRY_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(epoch.as_bytes()), &entry[..36])
}
