//! A batch of records and gaps of one epoch.

use std::io::Write as _;

use serde_json::value::RawValue;

use super::{Gap, Limits, VERSION, WireError, check_version};
use crate::id::Epoch;
use crate::ledger::MAX_SEQ;
use crate::{Invalid, json};

/// A batch, as it was read. Borrows the body it was read from.
#[derive(Debug, Clone)]
pub struct Batch<'a> {
    /// The life of the spool the sequences belong to.
    pub epoch: Epoch,
    /// The records: sequences ascending, without repetition.
    pub records: Vec<Record<'a>>,
    /// The gaps, in the order they came.
    pub gaps: Vec<Gap>,
}

/// One record of a batch. Its event is JSON, and nothing more is known about it.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The sequence, at least 1.
    pub seq: u64,
    /// The event; see [`crate::farm::Envelope::parse_from_node`].
    pub event: &'a RawValue,
}

impl<'a> Batch<'a> {
    /// Reads a batch from JSON, which [`super::decode`] gives.
    pub fn parse(body: &'a [u8], limits: &Limits) -> Result<Batch<'a>, WireError> {
        let text = json::utf8("batch", body)?;
        let [v, epoch, records, gaps] =
            json::document("batch", text, &["v", "epoch", "records", "gaps"])?;
        check_version(v)?;
        let epoch = json::id("epoch", epoch)?;
        let records = list("records", records, limits.records, Record::read)?;
        let gaps = list("gaps", gaps, limits.gaps, Gap::read)?;
        if records.is_empty() && gaps.is_empty() {
            let problem = "has neither records nor gaps: expected at least one of either";
            return Err(Invalid::new("batch", problem).into());
        }
        for (index, pair) in records.windows(2).enumerate() {
            if pair[0].seq >= pair[1].seq {
                let problem = format!(
                    "is {} after {}: expected ascending sequences without repetition",
                    pair[1].seq, pair[0].seq
                );
                return Err(Invalid::new(format!("records[{}].seq", index + 1), problem).into());
            }
        }
        Ok(Batch { epoch, records, gaps })
    }
}

impl<'a> Record<'a> {
    fn read(path: &str, raw: &'a RawValue) -> Result<Record<'a>, Invalid> {
        let [seq, event] = json::pick(path, raw, &["seq", "event"])?;
        Ok(Record {
            seq: json::integer(&format!("{path}.seq"), seq, 1, MAX_SEQ)?,
            event: event.ok_or_else(|| Invalid::missing(format!("{path}.event"), "an envelope"))?,
        })
    }
}

fn list<'a, T>(
    name: &'static str,
    raw: Option<&'a RawValue>,
    limit: usize,
    read: impl Fn(&str, &'a RawValue) -> Result<T, Invalid>,
) -> Result<Vec<T>, WireError> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    let elements =
        json::elements(name, raw, limit)?.ok_or(WireError::TooLarge { what: name, limit })?;
    let mut list = Vec::with_capacity(elements.len());
    for (index, element) in elements.into_iter().enumerate() {
        list.push(read(&format!("{name}[{index}]"), element)?);
    }
    Ok(list)
}

/// Puts a batch together piece by piece, so that the sender can stop before a limit.
///
/// It trusts its caller: the events are JSON that this side checked when it took them in, and
/// sequences ascend.
#[derive(Debug, Clone)]
pub struct BatchWriter {
    /// The batch up to its last record.
    json: Vec<u8>,
    gaps: Vec<u8>,
    record_count: usize,
    gap_count: usize,
}

const RECORDS: &str = ",\"records\":[";
const GAPS: &str = "],\"gaps\":[";
const END: &str = "]}";

impl BatchWriter {
    /// An empty batch of an epoch.
    pub fn new(epoch: Epoch) -> BatchWriter {
        BatchWriter::with_capacity(epoch, 0)
    }

    /// An empty batch that will have about so many bytes, so that it need not be moved as it grows.
    pub fn with_capacity(epoch: Epoch, bytes: usize) -> BatchWriter {
        let mut json = Vec::with_capacity(bytes);
        // Writing to memory does not fail.
        let _ = write!(json, "{{\"v\":{VERSION},\"epoch\":\"{epoch}\"{RECORDS}");
        BatchWriter { json, gaps: Vec::new(), record_count: 0, gap_count: 0 }
    }

    /// Adds a record; `event` is its JSON.
    pub fn push_record(&mut self, seq: u64, event: &[u8]) {
        let comma = if self.record_count == 0 { "" } else { "," };
        // Writing to memory does not fail.
        let _ = write!(self.json, "{comma}{{\"seq\":{seq},\"event\":");
        self.json.extend_from_slice(event);
        self.json.push(b'}');
        self.record_count += 1;
    }

    /// Adds a gap.
    pub fn push_gap(&mut self, gap: &Gap) {
        if self.gap_count > 0 {
            self.gaps.push(b',');
        }
        self.gaps.extend_from_slice(json::to_string(gap).as_bytes());
        self.gap_count += 1;
    }

    /// How many records were added.
    pub fn records(&self) -> usize {
        self.record_count
    }

    /// How many gaps were added.
    pub fn gaps(&self) -> usize {
        self.gap_count
    }

    /// Whether nothing was added. An empty batch is not sent: the other side refuses it.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0 && self.gap_count == 0
    }

    /// How many bytes [`BatchWriter::finish`] would give now. One more record adds its event and at
    /// most [`BatchWriter::RECORD_OVERHEAD`].
    pub fn json_bytes(&self) -> usize {
        self.json.len() + GAPS.len() + self.gaps.len() + END.len()
    }

    /// The most bytes that a record adds beside its event.
    pub const RECORD_OVERHEAD: usize = ",{\"seq\":,\"event\":}".len() + 20;

    /// The batch as JSON.
    pub fn finish(self) -> Vec<u8> {
        let mut body = self.json;
        for part in [GAPS.as_bytes(), &self.gaps, END.as_bytes()] {
            body.extend_from_slice(part);
        }
        body
    }
}

/// A batch as JSON, from all its parts at once.
pub fn encode<B: AsRef<[u8]>>(
    epoch: Epoch,
    records: impl IntoIterator<Item = (u64, B)>,
    gaps: &[Gap],
) -> Vec<u8> {
    let mut writer = BatchWriter::new(epoch);
    for (seq, event) in records {
        writer.push_record(seq, event.as_ref());
    }
    for gap in gaps {
        writer.push_gap(gap);
    }
    writer.finish()
}
