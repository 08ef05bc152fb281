//! The words in which the replay core and its driver speak.

use std::time::{Duration, Instant};

/// Names a batch that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(u64);

impl BatchId {
    pub(super) fn new(number: u64) -> BatchId {
        BatchId(number)
    }
}

/// Which of the two lanes a batch travels in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Written while the link was up; goes first.
    Live,
    /// Everything else.
    Backfill,
}

/// How a batch travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// As an MQTT message.
    Mqtt,
    /// As an HTTP post.
    Http,
}

/// A batch to be read and sent: at least `from`, at most up to `to`. A gap may reach beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Its lane.
    pub lane: Lane,
    /// Its route.
    pub route: Route,
    /// The first seq.
    pub from: u64,
    /// The last seq it may hold as a record.
    pub to: u64,
}

/// What the driver does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read and send this, then ask again.
    Send(Plan),
    /// The broker takes nothing although the link is up: break it and connect again.
    Reconnect,
    /// Wait for something to happen, or until then.
    Wait(Option<Instant>),
}

/// The bounds of the HTTP route.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// The backlog that switches it on.
    pub threshold: u64,
    /// Records in one post.
    pub batch_records: u64,
}

/// The bounds of the replay.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Batches that may wait for their PUBACK.
    pub window: usize,
    /// Slots of the window that live never takes.
    pub backfill_slots: usize,
    /// Batches that may wait for their ack.
    pub unacked: usize,
    /// Records in one message.
    pub batch_records: u64,
    /// How long live records gather.
    pub live_linger: Duration,
    /// How far the live lane may lag, in records, before it starts over at head.
    pub live_lag: u64,
    /// Sent and not acked for this long: sent again.
    pub resend_after: Duration,
    /// No PUBACK for this long while some are due: the link is given up.
    pub puback_after: Duration,
    /// Backfill records a second; 0 is no limit.
    pub backfill_rate: u64,
    /// HTTP, if configured.
    pub http: Option<HttpLimits>,
}

impl Limits {
    /// The bounds that follow from a configuration.
    pub fn from_config(config: &crate::Config) -> Limits {
        let window = usize::from(config.window.max(2)) + READY;
        let batch_records = config.forward.batch_records as u64;
        Limits {
            window,
            backfill_slots: share_of(window, config.forward.backfill_share),
            unacked: window * UNACKED_WINDOWS,
            batch_records,
            live_linger: config.forward.live_linger,
            live_lag: batch_records * window as u64,
            resend_after: config.forward.resend_after,
            // A dead link shows within twice the keepalive; a live one that takes nothing should not take much longer.
            puback_after: (config.keepalive * 2).max(config.forward.resend_after),
            backfill_rate: config.forward.backfill_rate,
            http: config.http.as_ref().map(|http| HttpLimits {
                threshold: http.threshold,
                batch_records: http.batch_records as u64,
            }),
        }
    }
}

/// Batches that are handed to the client beyond those under way, so that the next one is ready when a PUBACK comes. Not many: a live
/// record waits behind them on a slow link.
const READY: usize = 2;

/// Batches that may wait for their ack, in windows. The edge gathers messages for one transaction, so more
/// than one window must be under way; and the broker holds them all if the edge is away, so not many more.
const UNACKED_WINDOWS: usize = 8;

/// At least one slot is left for backfill, and at least one for live.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a window has at most a hundred slots and a share is between 0 and 1"
)]
fn share_of(window: usize, share: f64) -> usize {
    ((window as f64 * share).ceil() as usize).clamp(1, window - 1)
}
