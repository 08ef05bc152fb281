//! What a tier has of one stream and epoch.

use super::RangeSet;

/// The most ranges above the acknowledged sequence, received and lost counted apart.
pub const MAX_ISLANDS: usize = 16_384;

/// The most ranges in all. Below the acknowledged sequence every gap that a node declared splits a
/// range for good; this bounds the memory of a frontier at 4 MiB.
pub const MAX_RANGES: usize = 262_144;

/// What is accounted for: received or declared lost.
///
/// Invariants: the two sets are disjoint; `acked` never regresses; the order of arrival does not
/// change the end state. A call that fails changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    received: RangeSet,
    lost: RangeSet,
    /// The highest contiguous sequence of both sets together, from 1. Kept because every record asks.
    acked: u64,
}

/// What a frontier made of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was not accounted for.
    New,
    /// It had been received before.
    Duplicate,
    /// It had been declared lost, and is received after all.
    Recovered,
}

/// Why a frontier refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrontierError {
    /// There would be more holes than a frontier keeps. Filling the lowest ones makes room.
    #[error("there are more than {MAX_ISLANDS} ranges above the acknowledged sequence")]
    TooManyIslands,
    /// There would be more ranges than a frontier keeps. Only a new epoch helps.
    #[error("there are more than {MAX_RANGES} ranges in this epoch")]
    TooManyRanges,
    /// Sequences start at 1, and a range ends at or after its beginning.
    #[error("{from} to {to} is not a range of sequences: expected 1 <= from <= to")]
    BadRange {
        /// Where the range begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// A sequence is both received and lost.
    #[error("sequence {0} is both received and lost")]
    Overlap(u64),
}

impl Frontier {
    /// Nothing is accounted for.
    pub fn new() -> Frontier {
        Frontier::default()
    }

    /// A frontier from its two sets, as they were stored.
    pub fn from_sets(received: RangeSet, lost: RangeSet) -> Result<Frontier, FrontierError> {
        for set in [&received, &lost] {
            if let Some(&(0, to)) = set.ranges().first() {
                return Err(FrontierError::BadRange { from: 0, to });
            }
        }
        if let Some(&(seq, _)) = received.intersection(&lost).ranges().first() {
            return Err(FrontierError::Overlap(seq));
        }
        let mut frontier = Frontier { received, lost, acked: 0 };
        frontier.advance();
        Ok(frontier)
    }

    /// What was received.
    pub fn received(&self) -> &RangeSet {
        &self.received
    }

    /// What was declared lost.
    pub fn lost(&self) -> &RangeSet {
        &self.lost
    }

    /// The highest sequence for which every sequence up to it is accounted for; 0 if the first is not.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// The highest sequence that is accounted for.
    pub fn highest(&self) -> u64 {
        self.received.last().max(self.lost.last()).unwrap_or(0)
    }

    /// Whether a sequence is accounted for.
    pub fn covers(&self, seq: u64) -> bool {
        (1..=self.acked).contains(&seq) || self.received.contains(seq) || self.lost.contains(seq)
    }

    /// The lowest ranges above [`Frontier::acked`] that are accounted for, at most `max`, ascending.
    pub fn islands(&self, max: usize) -> Vec<(u64, u64)> {
        let (mut received, mut lost) =
            (self.received.above(self.acked), self.lost.above(self.acked));
        let mut islands: Vec<(u64, u64)> = Vec::new();
        loop {
            let (start, end) = match (received, lost) {
                ([a, rest @ ..], []) => {
                    received = rest;
                    *a
                }
                ([a, rest @ ..], [b, ..]) if a < b => {
                    received = rest;
                    *a
                }
                (_, [b, rest @ ..]) => {
                    lost = rest;
                    *b
                }
                ([], []) => return islands,
            };
            // A lost range next to a received one belongs to the same island.
            match islands.last().copied() {
                Some((from, before)) if before.checked_add(1) == Some(start) => {
                    islands.pop();
                    islands.push((from, end));
                }
                _ if islands.len() == max => return islands,
                _ => islands.push((start, end)),
            }
        }
    }

    /// The ranges up to `head` that are not accounted for, ascending.
    pub fn missing(&self, head: u64) -> Vec<(u64, u64)> {
        let from = self.acked.saturating_add(1);
        let mut holes = Vec::new();
        for (start, end) in self.received.missing(from, head) {
            holes.extend(self.lost.missing(start, end));
        }
        holes
    }

    /// Takes note that a sequence was received.
    pub fn observe(&mut self, seq: u64) -> Result<Seen, FrontierError> {
        if seq == 0 {
            return Err(FrontierError::BadRange { from: 0, to: 0 });
        }
        if self.received.contains(seq) {
            return Ok(Seen::Duplicate);
        }
        let recovered = self.lost.contains(seq);
        // A sequence next to a received one lengthens a range; any other may make a new one, and
        // one out of the middle of a lost range splits that as well.
        let lengthens = self.received.contains(seq - 1)
            || seq.checked_add(1).is_some_and(|next| self.received.contains(next));
        if recovered || !lengthens {
            self.check_room(seq)?;
        }
        if recovered {
            self.lost.remove(seq, seq);
        }
        self.received.insert(seq, seq);
        self.advance();
        Ok(if recovered { Seen::Recovered } else { Seen::New })
    }

    /// Takes note that a range was received; returns how many sequences are newly received.
    pub fn observe_range(&mut self, from: u64, to: u64) -> Result<u64, FrontierError> {
        if from == 0 || from > to {
            return Err(FrontierError::BadRange { from, to });
        }
        let mut next = self.clone();
        next.lost.remove(from, to);
        let newly_received = next.received.insert(from, to);
        next.advance();
        if next.ranges_held() > self.ranges_held() {
            // It may join ranges as well as split them, so it is judged by its result.
            if next.islands_held() > MAX_ISLANDS {
                return Err(FrontierError::TooManyIslands);
            }
            if next.ranges_held() > MAX_RANGES {
                return Err(FrontierError::TooManyRanges);
            }
        }
        *self = next;
        Ok(newly_received)
    }

    /// Takes note that a range is lost, except what was received; returns how many sequences are newly
    /// lost.
    pub fn declare_lost(&mut self, from: u64, to: u64) -> Result<u64, FrontierError> {
        if from == 0 || from > to {
            return Err(FrontierError::BadRange { from, to });
        }
        let mut lost = self.lost.clone();
        let mut newly_lost = 0u64;
        for (start, end) in self.received.missing(from, to) {
            newly_lost = newly_lost.saturating_add(lost.insert(start, end));
        }
        // It may join ranges as well as split them, so it is judged by its result.
        let before = (std::mem::replace(&mut self.lost, lost), self.acked);
        self.advance();
        let refused = if self.lost.len() <= before.0.len() {
            None
        } else if self.islands_held() > MAX_ISLANDS {
            Some(FrontierError::TooManyIslands)
        } else if self.ranges_held() > MAX_RANGES {
            Some(FrontierError::TooManyRanges)
        } else {
            None
        };
        match refused {
            None => Ok(newly_lost),
            Some(error) => {
                (self.lost, self.acked) = before;
                Err(error)
            }
        }
    }

    fn check_room(&self, seq: u64) -> Result<(), FrontierError> {
        // What follows the acknowledged sequence at once is never an island.
        if seq > self.acked.saturating_add(1) && self.islands_held() >= MAX_ISLANDS {
            return Err(FrontierError::TooManyIslands);
        }
        if self.ranges_held() >= MAX_RANGES {
            return Err(FrontierError::TooManyRanges);
        }
        Ok(())
    }

    fn islands_held(&self) -> usize {
        self.received.above(self.acked).len() + self.lost.above(self.acked).len()
    }

    fn ranges_held(&self) -> usize {
        self.received.len() + self.lost.len()
    }

    fn advance(&mut self) {
        while let Some(next) = self.acked.checked_add(1) {
            let range = self.received.range_of(next).or_else(|| self.lost.range_of(next));
            match range {
                Some((_, end)) => self.acked = end,
                None => return,
            }
        }
    }
}
