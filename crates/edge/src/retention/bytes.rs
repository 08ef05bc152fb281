//! What a row takes on disk: one place for the numbers, held against real tables by a test.
//!
//! A row of a reading with its indexes, as ingress writes it, with a page's overhead and the room that the table keeps free.
//! They serve the estimate of a forced drop and `holdfast size`; an answer of either is good to about a quarter.

/// A reading in `telemetry_raw`.
pub const RAW_ROW: u64 = 440;
/// A row of `telemetry_agg`.
pub const AGG_ROW: u64 = 410;
/// An id in `ingress_dedupe`.
pub const DEDUPE_ROW: u64 = 150;
/// A row of `media_objects`.
pub const MEDIA_ROW: u64 = 1_190;
/// The frame of a record in a node's spool; spool-format.md has it.
pub const SPOOL_FRAME: u64 = 36;

/// A row of `sync_outbox` that waits, with a payload of this many bytes: its pages are filled to 45 %.
pub fn outbox_row(payload: u64) -> u64 {
    890 + payload.saturating_mul(22) / 10
}

/// A row of `sync_outbox` that was delivered: its page has taken other rows since.
pub fn acked_row(payload: u64) -> u64 {
    950 + payload.saturating_mul(22) / 10
}

/// A row of the cloud's `relay_outbox`, with an envelope of this many bytes.
pub fn relay_row(envelope: u64) -> u64 {
    560 + envelope.saturating_mul(11) / 10
}
