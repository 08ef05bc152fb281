//! Walking the frames of one segment, through damage.
//!
//! A flipped bit in a payload costs one record, because the header that says where the next frame begins has its own
//! checksum. A flipped bit in a header is overcome by searching for the next header that is valid *and* plausible: not
//! below the expected sequence, below the segment's bound, and not further ahead than frames fit into the bytes between.
//!
//! The scanner holds one window of 64 KiB, or one frame if that is larger. It always moves forward, so a segment
//! costs time linear in its size whatever its bytes are. Read errors are returned, never taken for damage.

use std::io;

use crate::disk::{DiskFile, read_full};
use crate::frame::{HEADER_BYTES, Header, MARKER, OVERHEAD_BYTES, Salt, TRAILER_BYTES};
use crate::segment::FOOTER_MAGIC;

const WINDOW_BYTES: usize = 64 << 10;

/// Records that were there and are not readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The first damaged sequence.
    pub from_seq: u64,
    /// The last damaged sequence.
    pub to_seq: u64,
}

/// What stands after the last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing, or nothing that belongs to the segment.
    Clean,
    /// A write that did not finish: an incomplete frame, zeros, or the beginning of a footer.
    Torn,
    /// Bytes that may have been an acknowledged record.
    Junk,
}

/// One step of a scan over bytes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A whole record.
    Frame {
        /// Its header.
        header: Header,
        /// Its bytes.
        payload: &'a [u8],
    },
    /// Records that are lost to damage.
    Damage(Damage),
    /// No frame follows.
    End(Tail),
}

/// Walks the frames in `bytes`, which begin where a segment's frames begin (after its header), `base` being the first sequence.
///
/// Never panics, and needs no more memory than one window, whatever the bytes are. The last step is [`Step::End`].
pub fn scan(bytes: &[u8], salt: Salt, base: u64) -> Scan<'_> {
    Scan { bytes, scanner: Some(Scanner::new(bytes, salt, base, 0, bytes.len() as u64)) }
}

/// The iterator that [`scan`] returns.
#[derive(Debug)]
pub struct Scan<'a> {
    bytes: &'a [u8],
    scanner: Option<Scanner<&'a [u8]>>,
}

impl<'a> Iterator for Scan<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        let scanner = self.scanner.as_mut()?;
        match scanner.step(0) {
            Ok(Found::Frame(header)) => {
                let start = to_usize(scanner.frame_at) + HEADER_BYTES;
                let payload = self.bytes.get(start..start + to_usize(header.payload_len.into()))?;
                Some(Step::Frame { header, payload })
            }
            Ok(Found::Damage(damage)) => Some(Step::Damage(damage)),
            Ok(Found::End(tail)) => {
                self.scanner = None;
                Some(Step::End(tail))
            }
            // Reading from memory does not fail.
            Err(_) => None,
        }
    }
}

/// Where a scanner reads from: a file, or bytes in memory.
pub(crate) trait Source {
    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for &[u8] {
    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.get(to_usize(offset)..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl Source for Box<dyn DiskFile> {
    fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_full(self.as_ref(), buf, offset)
    }
}

/// What the scanner met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A frame; its payload is in [`Scanner::payload`] unless it was skipped.
    Frame(Header),
    Damage(Damage),
    End(Tail),
}

/// The position in one segment. `expected` is the sequence that should come next.
#[derive(Debug)]
pub(crate) struct Scanner<S> {
    source: S,
    salt: Salt,
    window: Vec<u8>,
    window_at: u64,
    /// Where the next frame should begin.
    pub(crate) offset: u64,
    /// The sequence that should come next.
    pub(crate) expected: u64,
    /// Where the last frame that was returned begins.
    pub(crate) frame_at: u64,
    /// The offset after the last whole frame.
    pub(crate) good_end: u64,
    /// The offset at which frames end.
    pub(crate) end: u64,
    /// The first sequence that is no longer of this segment.
    pub(crate) bound: u64,
}

impl<S: Source> Scanner<S> {
    pub(crate) fn new(source: S, salt: Salt, base: u64, offset: u64, end: u64) -> Self {
        Self {
            source,
            salt,
            window: Vec::new(),
            window_at: 0,
            offset,
            expected: base,
            frame_at: offset,
            good_end: offset,
            end,
            bound: u64::MAX,
        }
    }

    /// The payload of the frame that the last step returned. Empty if that frame was skipped.
    pub(crate) fn payload(&self, header: &Header) -> &[u8] {
        let start = to_usize(self.frame_at.saturating_sub(self.window_at)) + HEADER_BYTES;
        self.window.get(start..start + to_usize(header.payload_len.into())).unwrap_or_default()
    }

    /// Whether the header of the next frame can be had without reading.
    pub(crate) fn holds_header(&self) -> bool {
        let skip = self.offset.checked_sub(self.window_at).map(to_usize);
        skip.is_some_and(|skip| skip.saturating_add(HEADER_BYTES) <= self.window.len())
    }

    /// Goes back before the frame that the last step returned.
    pub(crate) fn step_back(&mut self, header: &Header) {
        self.offset = self.frame_at;
        self.expected = header.seq;
    }

    /// The next frame, damage or end. Frames below `skip_below` are walked over without reading their payload.
    pub(crate) fn step(&mut self, skip_below: u64) -> io::Result<Found> {
        if self.expected >= self.bound || self.offset >= self.end {
            return Ok(Found::End(Tail::Clean));
        }
        let salt = self.salt;
        let header = Header::decode(self.fill(self.offset, HEADER_BYTES)?, salt);
        let Some(header) = header.filter(|h| h.seq >= self.expected) else {
            return self.resync(false);
        };
        if header.seq >= self.bound {
            // Frames of an abandoned file that were written again in the next segment.
            return Ok(Found::End(Tail::Clean));
        }
        if self.offset.saturating_add(header.frame_len()) > self.end {
            return self.resync(true);
        }
        if header.seq > self.expected {
            return Ok(self.lose_up_to(header.seq));
        }
        self.frame_at = self.offset;
        let skipped = header.seq < skip_below;
        let whole = skipped || self.payload_is_whole(&header)?;
        self.offset += header.frame_len();
        self.expected += 1;
        if !whole {
            return Ok(Found::Damage(Damage { from_seq: header.seq, to_seq: header.seq }));
        }
        self.good_end = self.offset;
        Ok(Found::Frame(header))
    }

    fn payload_is_whole(&mut self, header: &Header) -> io::Result<bool> {
        let len = to_usize(header.frame_len());
        let frame = self.fill(self.offset, len)?;
        // The file is shorter than it was said to be: somebody cut it.
        let Some(payload) = frame.get(HEADER_BYTES..len - TRAILER_BYTES) else {
            return Ok(false);
        };
        let Some(trailer) = frame.last_chunk() else {
            return Ok(false);
        };
        Ok(header.matches(payload, *trailer))
    }

    /// Searches the next plausible header after the current offset.
    fn resync(&mut self, header_is_valid: bool) -> io::Result<Found> {
        let (start, salt, expected, bound) = (self.offset, self.salt, self.expected, self.bound);
        let mut at = start + 1;
        while at + (OVERHEAD_BYTES as u64) <= self.end {
            let window = self.fill(at, WINDOW_BYTES)?;
            if window.len() < HEADER_BYTES {
                break;
            }
            let mut from = 0;
            while let Some(hit) = window[from..].iter().position(|b| *b == MARKER[0]) {
                let candidate = from + hit;
                let distance = at + candidate as u64 - start;
                let plausible = Header::decode(&window[candidate..], salt).filter(|h| {
                    h.seq >= expected
                        && h.seq < bound
                        && h.seq - expected <= distance / OVERHEAD_BYTES as u64
                });
                if let Some(header) = plausible {
                    self.offset = at + candidate as u64;
                    if header.seq == expected {
                        return self.step(0);
                    }
                    return Ok(self.lose_up_to(header.seq));
                }
                from = candidate + 1;
            }
            // A header may straddle two windows, so the next one begins before this one's end.
            at += (window.len() - HEADER_BYTES + 1) as u64;
        }
        if header_is_valid {
            return Ok(Found::End(Tail::Torn));
        }
        self.tail().map(Found::End)
    }

    fn lose_up_to(&mut self, seq: u64) -> Found {
        let damage = Damage { from_seq: self.expected, to_seq: seq - 1 };
        self.expected = seq;
        Found::Damage(damage)
    }

    /// Tells a torn write from bytes that may have been a record.
    fn tail(&mut self) -> io::Result<Tail> {
        let start = self.offset;
        let head = self.fill(start, FOOTER_MAGIC.len())?;
        if !head.is_empty() && FOOTER_MAGIC.starts_with(head) {
            return Ok(Tail::Torn);
        }
        let mut at = start;
        let mut last_non_zero = None;
        while at < self.end {
            let window = self.fill(at, WINDOW_BYTES)?;
            if window.is_empty() {
                break;
            }
            if let Some(i) = window.iter().rposition(|b| *b != 0) {
                last_non_zero = Some(at + i as u64);
            }
            at += window.len() as u64;
        }
        let junk = last_non_zero.is_some_and(|last| last + 1 - start >= HEADER_BYTES as u64);
        Ok(if junk { Tail::Junk } else { Tail::Torn })
    }

    /// Up to `want` bytes at `offset`; fewer only where the segment ends.
    fn fill(&mut self, offset: u64, want: usize) -> io::Result<&[u8]> {
        let want = want.min(to_usize(self.end.saturating_sub(offset)));
        let held = offset
            .checked_sub(self.window_at)
            .map(to_usize)
            .filter(|skip| skip.saturating_add(want) <= self.window.len());
        let skip = match held {
            Some(skip) => skip,
            None => {
                let room = to_usize(self.end - offset).min(want.max(WINDOW_BYTES));
                self.window.resize(room, 0);
                self.window_at = offset;
                let got = self.source.read(&mut self.window, offset);
                self.window.truncate(*got.as_ref().unwrap_or(&0));
                got?;
                0
            }
        };
        let end = skip.saturating_add(want).min(self.window.len());
        Ok(&self.window[skip..end])
    }
}

/// Offsets within a segment or a window fit the address space; one that would not is beyond every buffer.
pub(crate) fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
