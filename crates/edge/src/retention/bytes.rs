//! What a row takes on disk: one place for the numbers, held against real tables by a test.
//!
//! A row of a reading with its indexes, as ingress writes it, with a page's overhead and the room that the table keeps free.
//! They serve the estimate of a forced drop and `holdfast size`; an answer of either is good to about a quarter.

/// A reading in `telemetry_raw`.
pub const RAW_ROW: u64 = 460;
/// A row of `telemetry_agg`.
pub const AGG_ROW: u64 = 330;
/// A row of `sync_outbox`, without its payload.
pub const OUTBOX_ROW: u64 = 1_150;
/// A byte of payload in `sync_outbox`: its pages are filled to 45 %.
pub const OUTBOX_PAYLOAD_FACTOR: f64 = 2.2;
/// An id in `ingress_dedupe`.
pub const DEDUPE_ROW: u64 = 210;
/// A row of `media_objects`.
pub const MEDIA_ROW: u64 = 700;

/// A waiting row of the outbox with a payload of this many bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an estimate")]
pub fn outbox_row(payload: u64) -> u64 {
    OUTBOX_ROW + (payload as f64 * OUTBOX_PAYLOAD_FACTOR) as u64
}
