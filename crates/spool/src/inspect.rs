//! Looking at a spool without touching it: what a person runs on a card from a broken node.
//!
//! Writes nothing, takes no lock. If the spool is in use at the same time, segments may be sealed or deleted during the walk; a
//! segment that went is left out of the report.

use std::sync::{Arc, Condvar, Mutex};

use uuid::Uuid;

use crate::config::Config;
use crate::disk::{Disk, read_full};
use crate::error::Error;
use crate::gaps::Gap;
use crate::reader::Reader;
use crate::scan::{Damage, Found, Scanner, Tail};
use crate::segment::{self, HEADER_BYTES, Summary};
use crate::state::{Inner, State, read_footer};
use crate::survey::survey;

/// At most this many places of damage are listed for one segment; all are counted.
pub const MAX_LISTED_DAMAGE: usize = 1000;

/// A spool that is only looked at.
pub struct Inspection {
    inner: Arc<Inner>,
    notes: Vec<String>,
}

/// What a folder holds.
#[derive(Debug, Clone)]
pub struct Report {
    /// The spool's identity.
    pub epoch: Uuid,
    /// The highest sequence.
    pub head: u64,
    /// What the cursor says was acked.
    pub acked: u64,
    /// Bytes written in the spool's life, when the cursor was last saved.
    pub bytes_written_total: u64,
    /// Records given up in the spool's life, when the cursor was last saved.
    pub dropped_records: u64,
    /// Outstanding gaps, with those that this look has found.
    pub gaps: Vec<Gap>,
    /// Every segment, ascending.
    pub segments: Vec<SegmentReport>,
    /// Oddities.
    pub notes: Vec<String>,
}

/// What one segment holds.
#[derive(Debug, Clone)]
pub struct SegmentReport {
    /// Its first sequence.
    pub base: u64,
    /// Its last sequence, damaged ones included; one below the base if it has none.
    pub last: u64,
    /// The size of the file.
    pub bytes: u64,
    /// Whether it has its sealed name.
    pub sealed: bool,
    /// Whether its header is whole. A damaged one costs nothing.
    pub header_is_whole: bool,
    /// Whether it has a whole footer. A missing one costs a scan.
    pub footer_is_whole: bool,
    /// Whether every frame was read, or only the footer.
    pub frames_were_read: bool,
    /// Its records, their times and classes.
    pub summary: Summary,
    /// Damaged sequences that are above the acked ones or not; the first [`MAX_LISTED_DAMAGE`] places.
    pub damage: Vec<Damage>,
    /// How many records are damaged.
    pub damaged_records: u64,
    /// What stands after the last frame.
    pub tail: Tail,
}

impl Inspection {
    /// Looks at the spool on `disk`.
    pub fn open(config: Config, disk: Arc<dyn Disk>) -> Result<Self, Error> {
        let found = survey(disk.as_ref())?;
        let segments = found.segments.len();
        let epoch = found.epoch.ok_or(Error::NoIdentity { segments })?;
        let state = Mutex::new(found.state());
        let (clock, hooks) = (Arc::new(|| 0), Mutex::new(Vec::new()));
        let moved = Condvar::new();
        let inner = Arc::new(Inner { disk, config, epoch, clock, state, moved, hooks });
        Ok(Self { inner, notes: found.notes })
    }

    /// The spool's identity.
    pub fn epoch(&self) -> Uuid {
        self.inner.epoch
    }

    /// The highest sequence.
    pub fn head(&self) -> u64 {
        self.inner.state().synced
    }

    /// What the cursor says was acked.
    pub fn acked(&self) -> u64 {
        self.inner.state().acked
    }

    /// A reader over what was there when this was opened.
    pub fn reader(&self, from_seq: u64) -> Reader {
        Reader::new(self.inner.clone(), from_seq)
    }

    /// The report by footers: quick, and blind to damage within a sealed segment.
    pub fn inspect(&self) -> Result<Report, Error> {
        self.report(false)
    }

    /// The report by reading every frame of every segment.
    pub fn verify(&self) -> Result<Report, Error> {
        self.report(true)
    }

    fn report(&self, read_frames: bool) -> Result<Report, Error> {
        let bases: Vec<(u64, bool, u64)> = {
            let state = self.inner.state();
            let bound = |base: u64| bound_of(&state, base);
            state.segments.iter().map(|(base, s)| (*base, s.sealed, bound(*base))).collect()
        };
        let mut segments = Vec::with_capacity(bases.len());
        for (base, sealed, bound) in bases {
            segments.extend(self.segment(base, sealed, bound, read_frames)?);
        }
        let state = self.inner.state();
        Ok(Report {
            epoch: self.inner.epoch,
            head: state.synced,
            acked: state.acked,
            bytes_written_total: state.bytes_written,
            dropped_records: state.lost_records,
            gaps: state.gaps.as_slice().to_vec(),
            segments,
            notes: self.notes.clone(),
        })
    }

    fn segment(
        &self,
        base: u64,
        sealed: bool,
        bound: u64,
        read_frames: bool,
    ) -> Result<Option<SegmentReport>, Error> {
        let Some(file) = self.inner.open_segment(base, sealed)? else {
            return Ok(None);
        };
        let name = segment::file_name(base, sealed);
        let failed = |e| Error::io("read", &name, e);
        let (footer, bytes) = read_footer(file.as_ref(), self.inner.epoch, base).map_err(failed)?;
        let mut header = [0; 64];
        read_full(file.as_ref(), &mut header, 0).map_err(failed)?;
        let mut report = SegmentReport {
            base,
            last: footer.map_or(base - 1, |f| f.last),
            bytes,
            sealed,
            header_is_whole: segment::decode_header(&header) == Some((self.inner.epoch, base)),
            footer_is_whole: footer.is_some(),
            frames_were_read: read_frames || footer.is_none(),
            summary: footer.map_or_else(Summary::default, |f| f.summary),
            damage: Vec::new(),
            damaged_records: 0,
            tail: Tail::Clean,
        };
        if !report.frames_were_read {
            return Ok(Some(report));
        }
        report.summary = Summary::default();
        let end = footer.map_or(bytes, |f| f.data_len);
        let mut scanner = Scanner::new(file, self.inner.salt(base), base, HEADER_BYTES, end);
        scanner.bound = bound;
        loop {
            match scanner.step(0).map_err(failed)? {
                Found::Frame(header) => report.summary.add(header.class, header.written_at_ms),
                Found::Damage(damage) => report.add_damage(damage),
                Found::End(tail) => {
                    report.tail = tail;
                    break;
                }
            }
        }
        let last = footer.map_or(scanner.expected - 1, |f| f.last.min(bound - 1));
        if last >= scanner.expected {
            report.add_damage(Damage { from_seq: scanner.expected, to_seq: last });
        }
        report.last = last;
        Ok(Some(report))
    }
}

impl SegmentReport {
    fn add_damage(&mut self, damage: Damage) {
        self.damaged_records += damage.to_seq - damage.from_seq + 1;
        if self.damage.len() < MAX_LISTED_DAMAGE {
            self.damage.push(damage);
        }
    }
}

fn bound_of(state: &State, base: u64) -> u64 {
    state.last_of(base).saturating_add(1)
}
