//! How long to wait for an ack before a batch is sent again. Pure.
//!
//! A slow edge is not a lost batch: sending again what still waits in the broker's queue makes the queue longer and the
//! edge slower. So a batch counts as lost only when it is overdue **and** the edge has acknowledged one that was sent
//! later. While the edge is silent, only the oldest batch is sent again, as a probe, ever more rarely.

use super::limits::BatchId;
use std::time::{Duration, Instant};

/// While the edge is silent, the wait between two probes doubles this many times at most.
const MAX_DOUBLINGS: u32 = 4;

/// How long a batch waits at least when a later one was acknowledged before it.
const OVERTAKEN_AFTER: Duration = Duration::from_secs(1);

/// What is known about the edge's pace.
#[derive(Debug)]
pub(super) struct Patience {
    resend_after: Duration,
    /// The longest that acks took lately, from PUBACK to ack.
    slowest: Duration,
    /// The last sent of the batches that the edge has acknowledged. The broker keeps the order of what is sent; the order in which
    /// its PUBACKs are noticed is not kept.
    newest_acked: Option<BatchId>,
    last_ack_at: Option<Instant>,
    last_probe_at: Option<Instant>,
    probes: u32,
}

impl Patience {
    pub(super) fn new(resend_after: Duration) -> Patience {
        Patience {
            resend_after,
            slowest: Duration::ZERO,
            newest_acked: None,
            last_ack_at: None,
            last_probe_at: None,
            probes: 0,
        }
    }

    /// The link is new; whoever was silent may not be any more.
    pub(super) fn reconnected(&mut self) {
        self.probes = 0;
    }

    /// The edge has spoken just now.
    pub(super) fn heard(&mut self, now: Instant) {
        self.last_ack_at = Some(now);
        self.probes = 0;
        // Old slowness is forgotten over some dozens of acks.
        self.slowest = self.slowest * 31 / 32;
    }

    /// The edge has acknowledged a batch that the broker took at `delivered_at`. What was sent twice tells nothing
    /// about the pace: the ack may be for the first copy.
    pub(super) fn acked(
        &mut self,
        id: BatchId,
        delivered_at: Instant,
        sent_once: bool,
        now: Instant,
    ) {
        self.newest_acked = self.newest_acked.max(Some(id));
        if sent_once {
            self.slowest = self.slowest.max(now.saturating_duration_since(delivered_at));
        }
    }

    /// How long an ack may take.
    fn timeout(&self) -> Duration {
        (self.slowest * 2).clamp(self.resend_after, self.resend_after * 2_u32.pow(MAX_DOUBLINGS))
    }

    /// How long an ack may take once a later batch has been acknowledged. What overtook it was not slower, so this needs no
    /// long wait; it only has to outlast one replica of the edge being slower than another.
    fn overtaken_timeout(&self) -> Duration {
        self.timeout().min((self.slowest * 2).max(OVERTAKEN_AFTER))
    }

    /// Whether a batch that the broker took then is lost.
    pub(super) fn is_lost(&self, id: BatchId, delivered_at: Instant, now: Instant) -> bool {
        now >= self.due(delivered_at) && self.newest_acked.is_some_and(|newest| newest > id)
    }

    /// When a batch that the broker took then is overdue, if it was overtaken.
    pub(super) fn due(&self, delivered_at: Instant) -> Instant {
        delivered_at + self.overtaken_timeout()
    }

    /// When the oldest batch, which the broker took then, is sent again as a probe.
    pub(super) fn probe_at(&self, oldest: Instant) -> Instant {
        let quiet_since = [self.last_ack_at, self.last_probe_at];
        let quiet_since = quiet_since.into_iter().flatten().fold(oldest, Instant::max);
        quiet_since + self.timeout() * 2_u32.pow(self.probes)
    }

    /// A probe goes out.
    pub(super) fn probed(&mut self, now: Instant) {
        self.last_probe_at = Some(now);
        self.probes = (self.probes + 1).min(MAX_DOUBLINGS);
    }
}
