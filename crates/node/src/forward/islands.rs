//! What the edge holds above `acked`, as its acks told.

use event::ledger::RangeSet;

/// Acks name at most 64 islands each; several acks may name more. Beyond this the newest ack alone is kept:
/// forgetting an island only costs a re-send.
const MAX_ISLANDS: usize = 256;

/// Ranges that the edge has and that are not contiguous with `acked`.
#[derive(Debug, Default)]
pub(crate) struct Islands {
    held: RangeSet,
}

impl Islands {
    /// Adds what an ack names and forgets what `acked` has swallowed.
    pub(crate) fn learn(&mut self, ranges: &[(u64, u64)], acked: u64) {
        if self.held.len() + ranges.len() > MAX_ISLANDS {
            self.held = RangeSet::default();
        }
        for (from, to) in ranges {
            self.held.insert(*from, *to);
        }
        if acked > 0 {
            self.held.remove(1, acked);
        }
    }

    /// The edge does not hold these any more.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        self.held.remove(from, to);
    }

    /// Whether every seq of the range is held; an empty range is.
    pub(crate) fn cover(&self, from: u64, to: u64) -> bool {
        from > to || self.ranges().any(|(start, end)| start <= from && to <= end)
    }

    /// The holes between them in a range.
    pub(crate) fn missing(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.held.missing(from, to)
    }

    /// The islands, ascending.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.held.ranges().iter().copied()
    }

    /// How many records they hold.
    pub(crate) fn count(&self) -> u64 {
        self.held.count()
    }
}
