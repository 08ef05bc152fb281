//! The batches that wait for their PUBACK, and for how long the broker has given none. Pure.
//!
//! MQTT sets no time limit on a PUBACK, and a connection whose pings are answered can swallow publishes all the same: a
//! broker that is stuck, a middle box that lost bytes. A full window would then wait for ever, so a window that does not move
//! for too long asks for a new connection, on which the client sends again what was not taken.

use super::limits::{BatchId, Lane};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    slots: Vec<(BatchId, Lane)>,
    puback_after: Duration,
    /// Since when the broker has had something to acknowledge and has not.
    quiet_since: Instant,
}

impl Window {
    pub(super) fn new(size: usize, puback_after: Duration, now: Instant) -> Window {
        Window { size, slots: Vec::new(), puback_after, quiet_since: now }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.slots.len() >= self.size
    }

    pub(super) fn in_lane(&self, lane: Lane) -> usize {
        self.slots.iter().filter(|(_, of)| *of == lane).count()
    }

    pub(super) fn take(&mut self, id: BatchId, lane: Lane, now: Instant) {
        if self.slots.is_empty() {
            self.quiet_since = now;
        }
        self.slots.push((id, lane));
    }

    pub(super) fn free(&mut self, id: BatchId, now: Instant) {
        let before = self.slots.len();
        self.slots.retain(|(slot, _)| *slot != id);
        if self.slots.len() < before {
            self.quiet_since = now;
        }
    }

    /// A new connection: the broker gets the whole time again.
    pub(super) fn reconnected(&mut self, now: Instant) {
        self.quiet_since = now;
    }

    /// When the connection has to be given up, if nothing moves until then.
    pub(super) fn given_up_at(&self) -> Option<Instant> {
        (!self.slots.is_empty()).then(|| self.quiet_since + self.puback_after)
    }
}
