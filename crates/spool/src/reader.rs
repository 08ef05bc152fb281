//! Reading from any sequence, through gaps and damage, up to what is synced.
//!
//! A reader holds one window of 64 KiB (or one frame) and one open file. It survives segments being sealed, deleted or dropped
//! beneath it: what is gone comes as [`Item::Gap`] if it was not acked. An I/O error is returned and the reader stays where it
//! is; it is never taken for damage. Damage that is found is remembered in `gaps`, so that it is declared once and survives.
//!
//! What a reader has in its window it gives, also if retention drops the segment at that moment: a record that is read is not lost.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::disk::DiskFile;
use crate::error::Error;
use crate::gaps::{Gap, GapReason};
use crate::scan::{Found, Scanner};
use crate::segment;
use crate::state::{Inner, Place, Plan, read_footer};

/// One thing that a reader meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A record.
    Record {
        /// Its sequence.
        seq: u64,
        /// When it was written, in ms since 1970.
        written_at_ms: i64,
        /// The class it was appended with.
        class: u8,
        /// Its bytes, as they were appended.
        bytes: Vec<u8>,
    },
    /// Records that are not there. `from_seq` is never below the reader's position.
    Gap(Gap),
}

/// One thing that a reader meets, in the reader's own memory. The fields are those of [`Item`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'a> {
    /// A record.
    Record {
        /// Its sequence.
        seq: u64,
        /// When it was written, in ms since 1970.
        written_at_ms: i64,
        /// The class it was appended with.
        class: u8,
        /// Its bytes, as they were appended.
        bytes: &'a [u8],
    },
    /// Records that are not there.
    Gap(Gap),
}

impl From<Seen<'_>> for Item {
    fn from(seen: Seen<'_>) -> Item {
        match seen {
            Seen::Record { seq, written_at_ms, class, bytes } => {
                Item::Record { seq, written_at_ms, class, bytes: bytes.to_vec() }
            }
            Seen::Gap(gap) => Item::Gap(gap),
        }
    }
}

/// A position in the spool. Many may be open at once.
pub struct Reader {
    inner: Arc<Inner>,
    next: u64,
    open: Option<OpenFile>,
}

struct OpenFile {
    base: u64,
    scanner: Scanner<Box<dyn DiskFile>>,
    /// Where frames end, if the table of segments does not say it.
    own_end: u64,
    /// What the table of segments said when the window was filled.
    place: Place,
}

/// What became of a look into a segment.
enum Look {
    Taken,
    Refused,
    /// The table of segments has changed.
    PlanAgain,
}

impl Reader {
    pub(crate) fn new(inner: Arc<Inner>, from_seq: u64) -> Self {
        Self { inner, next: from_seq.max(1), open: None }
    }

    /// The sequence that the next item begins with, at the earliest.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Goes to `seq`, forward or back.
    pub fn seek(&mut self, seq: u64) {
        self.next = seq.max(1);
    }

    /// The next record or gap. `None`: everything synced has been read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends; a reader waits and goes on"
    )]
    pub fn next(&mut self) -> Result<Option<Item>, Error> {
        let mut item = None;
        self.offer(|seen| {
            item = Some(seen.into());
            true
        })?;
        Ok(item)
    }

    /// Shows the next record or gap to `take`, without a copy, and moves on if `take` returns true. Returns whether it has moved:
    /// not, if everything synced has been read.
    pub fn offer(&mut self, mut take: impl FnMut(Seen<'_>) -> bool) -> Result<bool, Error> {
        loop {
            let look = if let Some(place) = self.place_in_window() {
                self.look(&place, &mut take)?
            } else {
                let plan = self.inner.state().plan(self.next);
                match plan {
                    Plan::AtHead => return Ok(false),
                    Plan::Skip(seq) => {
                        self.next = seq;
                        Look::PlanAgain
                    }
                    Plan::Gap(gap) => self.offer_gap(gap, &mut take),
                    Plan::Read(place) => self.look(&place, &mut take)?,
                }
            };
            match look {
                Look::Taken => return Ok(true),
                Look::Refused => return Ok(false),
                Look::PlanAgain => {}
            }
        }
    }

    /// The place that is being read, while the next frame begins in memory: asking for a plan costs a lock and three searches.
    fn place_in_window(&self) -> Option<Place> {
        let open = self.open.as_ref()?;
        let within = open.scanner.expected == self.next
            && self.next < open.place.bound.min(open.place.next_gap)
            && open.scanner.holds_header();
        within.then_some(open.place)
    }

    /// Waits until there is something to read, at most `timeout`. Returns whether there is.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.inner.state();
        while state.synced < self.next && !state.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let (guard, _) =
                self.inner.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
        state.synced >= self.next
    }

    fn offer_gap(&mut self, gap: Gap, take: &mut impl FnMut(Seen<'_>) -> bool) -> Look {
        self.inner.state().found(gap);
        if !take(Seen::Gap(gap)) {
            return Look::Refused;
        }
        self.next = gap.to_seq + 1;
        Look::Taken
    }

    /// Reads in one segment.
    fn look(
        &mut self,
        place: &Place,
        take: &mut impl FnMut(Seen<'_>) -> bool,
    ) -> Result<Look, Error> {
        let usable = self
            .open
            .as_ref()
            .is_some_and(|open| open.base == place.base && open.scanner.expected <= self.next);
        if !usable && !self.open_place(place)? {
            return Ok(Look::PlanAgain);
        }
        let Some(open) = self.open.as_mut() else {
            return Ok(Look::PlanAgain);
        };
        open.place = *place;
        open.scanner.bound = place.bound;
        open.scanner.end = place.data_end.unwrap_or(open.own_end);
        let ceiling = place.bound.min(place.next_gap) - 1;
        let gap = loop {
            let found = open
                .scanner
                .step(self.next)
                .map_err(|e| Error::io("read", &segment::file_name(place.base, place.sealed), e))?;
            match found {
                Found::Frame(header) if header.seq < self.next => {}
                Found::Frame(header) => {
                    let taken = take(Seen::Record {
                        seq: header.seq,
                        written_at_ms: header.written_at_ms,
                        class: header.class,
                        bytes: open.scanner.payload(&header),
                    });
                    if !taken {
                        open.scanner.step_back(&header);
                        return Ok(Look::Refused);
                    }
                    self.next = header.seq + 1;
                    return Ok(Look::Taken);
                }
                Found::Damage(damage) if damage.to_seq < self.next => {}
                Found::Damage(damage) => {
                    let to_seq = damage.to_seq.min(ceiling);
                    break Gap::untimed(self.next, to_seq, GapReason::Corrupt);
                }
                Found::End(_) => {
                    // The plan has made sure that `next` is not beyond a last sequence that is known.
                    let to_seq = place.last.unwrap_or(u64::MAX).min(ceiling);
                    break Gap::untimed(self.next, to_seq, GapReason::Corrupt);
                }
            }
        };
        Ok(self.offer_gap(gap, take))
    }

    /// Opens the segment at its first frame. `false`: plan again.
    fn open_place(&mut self, place: &Place) -> Result<bool, Error> {
        self.open = None;
        let inner = &self.inner;
        let Some(file) = inner.open_segment(place.base, place.sealed)? else {
            if let Some(segment) = inner.state().segments.get_mut(&place.base) {
                segment.vanished = true;
            }
            return Ok(false);
        };
        let mut own_end = 0;
        let mut planned = true;
        if place.data_end.is_none() {
            let (footer, len) = read_footer(file.as_ref(), inner.epoch, place.base)
                .map_err(|e| Error::io("read", &segment::file_name(place.base, place.sealed), e))?;
            own_end = len;
            if let Some(footer) = footer {
                let mut state = inner.state();
                if let Some(segment) = state.segments.get_mut(&place.base) {
                    segment.data_end = Some(footer.data_len);
                    segment.last = Some(footer.last);
                    segment.summary = Some(footer.summary);
                    planned = false;
                }
            }
        }
        let salt = inner.salt(place.base);
        let scanner = Scanner::new(file, salt, place.base, segment::HEADER_BYTES, own_end);
        self.open = Some(OpenFile { base: place.base, scanner, own_end, place: *place });
        Ok(planned)
    }
}
