//! Feeding the file to the edge, over HTTP backfill, with its epoch and sequences: the ledger and the dedupe
//! recognise what the edge already has, so importing twice changes nothing.

use super::{GapLine, Header, MAX_LINE_BYTES, RecordLine, Trailer, VERSION};
use crate::forward::{PostError, Poster};
use event::wire::{self, Ack, BatchWriter, Gap, Limits};
use std::io::{self, BufRead, Read};
use std::time::Duration;

/// A post before compression. It keeps the importing machine's memory small and the edge's transactions short.
const BATCH_BYTES: usize = 512 * 1024;
const BATCH_RECORDS: usize = 4_000;
const COMPRESSION_LEVEL: i32 = 3;

/// Why an import stopped. What was sent before is at the edge; importing the file again is safe.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read the export: {0}")]
    Io(#[from] io::Error),
    /// The file is not an export, or damaged.
    #[error("line {line}: {problem}")]
    Form {
        /// The line, counted from one.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// The file has no end.
    #[error("the export was cut short after line {line}: everything before it was sent")]
    CutShort {
        /// The last line that is there.
        line: u64,
    },
    /// The edge did not take a batch, and asking again did not help.
    #[error("{0}; everything up to seq {1} was sent; importing again is safe")]
    Edge(PostError, u64),
    /// The edge took everything and still misses some of it.
    #[error("the edge took the export but does not acknowledge seq {0}")]
    NotAcknowledged(u64),
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The file's header.
    pub header: Header,
    /// Records sent.
    pub records: u64,
    /// Gaps sent.
    pub gaps: u64,
    /// The edge's last word.
    pub ack: Option<Ack>,
}

/// How far an import is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The last seq the edge has taken.
    pub seq: u64,
    /// The last seq of the file.
    pub to_seq: u64,
}

enum Line {
    Record { seq: u64, event: Vec<u8> },
    Gap(Gap),
    End(Trailer),
}

/// Reads the header, asks `poster` for a client for that node, and posts everything. A batch that meets an outage is
/// tried again after each of `pauses`.
pub async fn import(
    input: &mut dyn BufRead,
    poster: impl FnOnce(&Header) -> Result<Poster, PostError>,
    pauses: &[Duration],
    mut progress: impl FnMut(Progress),
) -> Result<Imported, ImportError> {
    let mut lines = Lines { input, line: 0, text: Vec::new() };
    let header = lines.header()?;
    let poster = poster(&header).map_err(|error| ImportError::Edge(error, 0))?;
    let to_seq = header.to_seq;
    let mut done = Imported { header, records: 0, gaps: 0, ack: None };
    let mut writer = BatchWriter::new(done.header.epoch);
    let mut seq = 0;
    loop {
        let line = lines.next()?;
        let full = match &line {
            Line::End(_) => true,
            Line::Record { event, .. } => {
                writer.records() >= BATCH_RECORDS
                    || writer.json_bytes() + event.len() + BatchWriter::RECORD_OVERHEAD
                        > BATCH_BYTES
            }
            Line::Gap(_) => writer.gaps() >= Limits::HTTP.gaps,
        };
        if full && !writer.is_empty() {
            let next = BatchWriter::new(done.header.epoch);
            let batch = std::mem::replace(&mut writer, next).finish();
            done.ack = Some(send(&poster, &batch, pauses, seq).await?);
            progress(Progress { seq, to_seq });
        }
        match line {
            Line::Record { seq: at, event } => {
                writer.push_record(at, &event);
                done.records += 1;
                seq = at;
            }
            Line::Gap(gap) => {
                writer.push_gap(&gap);
                done.gaps += 1;
                seq = gap.to_seq;
            }
            Line::End(trailer) if (trailer.records, trailer.gaps) == (done.records, done.gaps) => {
                break;
            }
            Line::End(_) => return Err(lines.wrong("the counts at the end do not match the lines")),
        }
    }
    match &done.ack {
        Some(ack) if seq > 0 && !ack.covers(seq) => Err(ImportError::NotAcknowledged(seq)),
        _ => Ok(done),
    }
}

async fn send(
    poster: &Poster,
    batch: &[u8],
    pauses: &[Duration],
    seq: u64,
) -> Result<Ack, ImportError> {
    let fault =
        |error: wire::WireError| ImportError::Edge(PostError::OurFault(error.to_string()), seq);
    let body = wire::compress(batch, COMPRESSION_LEVEL).map_err(fault)?;
    let mut pauses = pauses.iter();
    loop {
        let error = match poster.post(body.clone()).await {
            Ok(ack) => return Ok(ack),
            Err(error) => error,
        };
        let asked = match &error {
            PostError::Outage { retry_after, .. } => retry_after.unwrap_or_default(),
            // Asking again would not help.
            _ => return Err(ImportError::Edge(error, seq)),
        };
        match pauses.next() {
            Some(pause) => tokio::time::sleep(asked.max(*pause)).await,
            None => return Err(ImportError::Edge(error, seq)),
        }
    }
}

struct Lines<'a> {
    input: &'a mut dyn BufRead,
    line: u64,
    text: Vec<u8>,
}

impl Lines<'_> {
    fn header(&mut self) -> Result<Header, ImportError> {
        self.read()?;
        let header: Header = serde_json::from_slice(&self.text)
            .map_err(|error| self.wrong(&format!("not the header of an export: {error}")))?;
        if header.holdfast_export != VERSION {
            let problem = format!("an export of version {}", header.holdfast_export);
            return Err(self.wrong(&format!("{problem}: this program reads version {VERSION}")));
        }
        Ok(header)
    }

    fn next(&mut self) -> Result<Line, ImportError> {
        self.read()?;
        if let Ok(record) = serde_json::from_slice::<RecordLine<'_>>(&self.text) {
            let event = record.event.get().as_bytes().to_vec();
            return Ok(Line::Record { seq: record.seq, event });
        }
        if let Ok(GapLine { gap }) = serde_json::from_slice::<GapLine>(&self.text) {
            let (first, last) = (gap.first_at, gap.last_at);
            return Gap::new(gap.from_seq, gap.to_seq, first, last, gap.reason)
                .map(Line::Gap)
                .ok_or_else(|| self.wrong("a gap whose range is not one"));
        }
        serde_json::from_slice::<Trailer>(&self.text)
            .map(Line::End)
            .map_err(|_| self.wrong("neither a record nor a gap nor the end"))
    }

    fn read(&mut self) -> Result<(), ImportError> {
        self.text.clear();
        let limit = MAX_LINE_BYTES as u64;
        let read = (&mut *self.input).take(limit).read_until(b'\n', &mut self.text)?;
        if self.text.last() != Some(&b'\n') {
            return Err(match read >= MAX_LINE_BYTES {
                true => self.wrong("longer than any line of an export"),
                false => ImportError::CutShort { line: self.line },
            });
        }
        self.line += 1;
        Ok(())
    }

    fn wrong(&self, problem: &str) -> ImportError {
        ImportError::Form { line: self.line, problem: problem.to_owned() }
    }
}
