//! Looking at a spool's folder without changing it: which files are there, what they say, and how the last segment ends.
//!
//! Reads `epoch`, `cursor`, `gaps` and the last segment, whatever the size of the spool. Both opening and inspection start here.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::cursor::{CURSOR_BYTES, CURSOR_FILE, Cursor, EPOCH_BYTES, EPOCH_FILE, decode_epoch};
use crate::disk::{Disk, read_full, read_small};
use crate::error::Error;
use crate::frame::Salt;
use crate::gaps::{self, GAPS_FILE, Gap, GapReason, GapSet, MAX_FILE_BYTES};
use crate::scan::{Found, Scanner, Tail};
use crate::segment::{self, Footer, HEADER_BYTES, Summary};
use crate::state::{Segment, State, read_footer};

/// What the folder holds.
#[derive(Debug)]
pub(crate) struct Survey {
    /// The identity, and whether its own file says it.
    pub(crate) epoch: Option<Uuid>,
    pub(crate) epoch_file_is_whole: bool,
    /// The cursor, if one of its copies is whole and of this epoch.
    pub(crate) cursor: Option<Cursor>,
    pub(crate) gaps: GapSet,
    pub(crate) segments: BTreeMap<u64, Segment>,
    pub(crate) leftovers: Vec<String>,
    pub(crate) last: Option<LastSegment>,
    /// Oddities worth telling a person.
    pub(crate) notes: Vec<String>,
}

/// How the segment with the highest base ends.
#[derive(Debug)]
pub(crate) struct LastSegment {
    pub(crate) base: u64,
    pub(crate) footer: Option<Footer>,
    pub(crate) header_is_whole: bool,
    pub(crate) file_len: u64,
    /// The offset after the last whole frame.
    pub(crate) good_end: u64,
    /// Whether damage stands between the last whole frame and the end.
    pub(crate) ends_in_damage: bool,
    pub(crate) tail: Tail,
    /// One past the last sequence that was here, or is taken to have been.
    pub(crate) next: u64,
    pub(crate) summary: Summary,
    pub(crate) damage: Vec<Gap>,
}

impl LastSegment {
    pub(crate) fn is_empty(&self) -> bool {
        self.footer.is_none() && self.next == self.base
    }
}

pub(crate) fn survey(disk: &dyn Disk) -> Result<Survey, Error> {
    let mut segments: BTreeMap<u64, Segment> = BTreeMap::new();
    let mut leftovers = Vec::new();
    let mut notes = Vec::new();
    for (name, file_len) in disk.list().map_err(|e| Error::io("list", ".", e))? {
        if name.ends_with(".tmp") {
            leftovers.push(name);
        } else if let Some((base, sealed)) = segment::parse_name(&name) {
            let found = Segment { sealed, closed: true, file_len, ..Segment::default() };
            match segments.get(&base) {
                Some(other) => {
                    notes.push(format!(
                        "segment {base} is there as .seg and as .open; .seg is read"
                    ));
                    if sealed && !other.sealed {
                        segments.insert(base, found);
                    }
                }
                None => {
                    segments.insert(base, found);
                }
            }
        }
    }
    let small =
        |name: &str, limit| read_small(disk, name, limit).map_err(|e| Error::io("read", name, e));
    let epoch_bytes = small(EPOCH_FILE, EPOCH_BYTES)?;
    let cursor_bytes = small(CURSOR_FILE, CURSOR_BYTES)?;
    let gaps_bytes = small(GAPS_FILE, MAX_FILE_BYTES)?.unwrap_or_default();
    let from_file = epoch_bytes.as_deref().and_then(decode_epoch);
    let any_cursor = cursor_bytes.as_deref().and_then(Cursor::decode);
    let mut epoch = from_file.or(any_cursor.map(|c| c.epoch)).or(gaps::decode_epoch(&gaps_bytes));
    if epoch.is_none() {
        epoch = epoch_of_segments(disk, &segments)?;
    }
    for (what, damaged) in [
        ("epoch", epoch_bytes.is_some() && from_file.is_none()),
        ("cursor", cursor_bytes.is_some() && any_cursor.is_none()),
    ] {
        if damaged {
            notes.push(format!("the {what} file is damaged"));
        }
    }
    let (gaps, last) = match epoch {
        Some(epoch) => {
            let (gaps, damaged) = GapSet::decode(&gaps_bytes, epoch);
            if damaged > 0 && !gaps_bytes.is_empty() {
                notes.push(format!("{damaged} entries of the gaps file are damaged"));
            }
            let last = match segments.last_key_value() {
                Some((base, segment)) => Some(scan_last(disk, epoch, *base, segment.sealed)?),
                None => None,
            };
            (gaps, last)
        }
        None => (GapSet::default(), None),
    };
    Ok(Survey {
        epoch,
        epoch_file_is_whole: from_file.is_some(),
        cursor: any_cursor.filter(|cursor| Some(cursor.epoch) == epoch),
        gaps,
        segments,
        leftovers,
        last,
        notes,
    })
}

impl Survey {
    /// What the spool knows after this look, with the gaps that follow from it.
    pub(crate) fn state(&self) -> State {
        let cursor = self.cursor.unwrap_or_default();
        let last_seq = self.last.as_ref().map_or(0, |last| last.next - 1);
        let head = cursor.head.max(last_seq).max(self.gaps.highest());
        let acked = cursor.acked.min(head);
        let mut state = State {
            segments: self.segments.clone(),
            gaps: self.gaps.clone(),
            synced: head,
            acked,
            durable_acked: acked,
            bytes_written: cursor.bytes_written,
            lost_records: cursor.lost_records,
            ..State::default()
        };
        if state.gaps.forget_acked(acked) {
            state.gaps_dirty = true;
        }
        if let Some(last) = &self.last {
            for gap in &last.damage {
                state.found(*gap);
            }
            if let Some(segment) = state.segments.get_mut(&last.base) {
                let footer = last.footer;
                segment.summary = Some(footer.map_or(last.summary, |f| f.summary));
                segment.data_end = Some(footer.map_or(last.good_end, |f| f.data_len));
                segment.last = Some(last.next - 1);
            }
        }
        let known = last_seq.max(acked);
        if cursor.head > known {
            state.found(Gap::untimed(known + 1, cursor.head, GapReason::Lost));
        }
        state
    }
}

/// The epoch in the first segment header or footer that is whole.
fn epoch_of_segments(
    disk: &dyn Disk,
    segments: &BTreeMap<u64, Segment>,
) -> Result<Option<Uuid>, Error> {
    for (base, segment) in segments {
        let name = segment::file_name(*base, segment.sealed);
        let read = disk.open_read(&name).and_then(|file| {
            let mut header = [0; 64];
            read_full(file.as_ref(), &mut header, 0)?;
            let mut footer = [0; segment::FOOTER_BYTES];
            if let Some(at) = segment.file_len.checked_sub(footer.len() as u64) {
                read_full(file.as_ref(), &mut footer, at)?;
            }
            Ok((header, footer))
        });
        let (header, footer) = read.map_err(|e| Error::io("read", &name, e))?;
        let from_header =
            segment::decode_header(&header).filter(|(_, b)| b == base).map(|(e, _)| e);
        let from_footer = || Footer::decode(&footer, *base, segment.file_len).map(|f| f.epoch);
        if let Some(epoch) = from_header.or_else(from_footer) {
            return Ok(Some(epoch));
        }
    }
    Ok(None)
}

fn scan_last(disk: &dyn Disk, epoch: Uuid, base: u64, sealed: bool) -> Result<LastSegment, Error> {
    let name = segment::file_name(base, sealed);
    let failed = |e| Error::io("read", &name, e);
    let file = disk.open_read(&name).map_err(failed)?;
    let (footer, file_len) = read_footer(file.as_ref(), epoch, base).map_err(failed)?;
    let mut header = [0; 64];
    read_full(file.as_ref(), &mut header, 0).map_err(failed)?;
    let mut last = LastSegment {
        base,
        footer,
        header_is_whole: segment::decode_header(&header) == Some((epoch, base)),
        file_len,
        good_end: HEADER_BYTES,
        ends_in_damage: false,
        tail: Tail::Clean,
        next: footer.map_or(base, |f| f.last + 1),
        summary: Summary::default(),
        damage: Vec::new(),
    };
    if last.footer.is_some() {
        return Ok(last);
    }
    let mut found = GapSet::default();
    let mut scanner = Scanner::new(file, Salt::new(epoch, base), base, HEADER_BYTES, file_len);
    last.tail = loop {
        match scanner.step(0).map_err(failed)? {
            Found::Frame(header) => last.summary.add(header.class, header.written_at_ms),
            // Beyond the set's bound the damage is left for readers to find again.
            Found::Damage(d) => {
                found.insert(Gap::untimed(d.from_seq, d.to_seq, GapReason::Corrupt));
            }
            Found::End(tail) => break tail,
        }
    };
    last.good_end = scanner.good_end;
    last.ends_in_damage = scanner.offset != scanner.good_end || last.tail == Tail::Junk;
    last.next = scanner.expected;
    if last.tail == Tail::Junk {
        found.insert(Gap::untimed(last.next, last.next, GapReason::Corrupt));
        last.next += 1;
    }
    last.damage = found.as_slice().to_vec();
    Ok(last)
}
