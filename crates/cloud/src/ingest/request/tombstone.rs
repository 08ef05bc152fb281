//! One tombstone of a batch.

use event::id::{Epoch, NodeId, TenantId};
use event::ledger::GapReason;
use event::rfc3339;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{parse_id, parse_seq};
use super::{Code, Refusal};
use crate::tokens::Tenants;

/// A range of a stream of which no event will come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// Whose stream it is.
    pub tenant_id: TenantId,
    /// The stream.
    pub stream: NodeId,
    /// The life of the spool.
    pub epoch: Epoch,
    /// The range, and when its first and last events were, where known.
    pub range: Range,
    /// Why.
    pub reason: Reason,
    /// Who says so.
    pub origin: Origin,
}

/// Sequences, both ends included, and when the first and the last of them were, where known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from_seq: u64,
    /// The last.
    pub to_seq: u64,
    /// When the first was.
    pub first_at: Option<Timestamp>,
    /// When the last was.
    pub last_at: Option<Timestamp>,
}

impl Range {
    /// A range; `None` if it ends before it begins.
    pub fn new(
        from_seq: u64,
        to_seq: u64,
        first_at: Option<Timestamp>,
        last_at: Option<Timestamp>,
    ) -> Option<Range> {
        (from_seq <= to_seq).then_some(Range { from_seq, to_seq, first_at, last_at })
    }

    /// How many sequences.
    pub fn count(&self) -> u64 {
        self.to_seq - self.from_seq + 1
    }
}

/// Why no event will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It was given up: the range is lost.
    Lost(GapReason),
    /// The edge received it and keeps it in quarantine: the range is received.
    Quarantined,
    /// The edge received it as an event that it had under another sequence: the range is received.
    Duplicate,
    /// The edge received readings that stay at the site by configuration: the range is received.
    KeptAtSite,
}

impl Reason {
    /// The word in `ledger_tombstone.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Lost(reason) => reason.as_str(),
            Reason::Quarantined => "quarantined",
            Reason::Duplicate => "duplicate",
            Reason::KeptAtSite => "kept_at_site",
        }
    }
}

impl std::str::FromStr for Reason {
    type Err = <GapReason as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<Reason, Self::Err> {
        match text {
            "quarantined" => Ok(Reason::Quarantined),
            "duplicate" => Ok(Reason::Duplicate),
            "kept_at_site" => Ok(Reason::KeptAtSite),
            other => other.parse().map(Reason::Lost),
        }
    }
}

/// The tier that gave a range up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The node.
    Node,
    /// The edge; also when nothing is said.
    Edge,
}

impl Origin {
    /// The word in `ledger_tombstone.origin`.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Node => "node",
            Origin::Edge => "edge",
        }
    }
}

/// A tombstone that is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadTombstone(pub Refusal);

#[derive(Deserialize)]
struct Element<'a> {
    #[serde(borrow)]
    tenant_id: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    epoch: Option<&'a RawValue>,
    #[serde(borrow)]
    from_seq: Option<&'a RawValue>,
    #[serde(borrow)]
    to_seq: Option<&'a RawValue>,
    #[serde(borrow)]
    count: Option<&'a RawValue>,
    #[serde(borrow)]
    first_at: Option<&'a RawValue>,
    #[serde(borrow)]
    last_at: Option<&'a RawValue>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
    #[serde(borrow)]
    origin: Option<&'a RawValue>,
}

/// Judges one element of `tombstones`.
pub(super) fn judge(raw: &RawValue, tenants: &Tenants) -> Result<Tombstone, BadTombstone> {
    read(raw, tenants).map_err(BadTombstone)
}

fn read(raw: &RawValue, tenants: &Tenants) -> Result<Tombstone, Refusal> {
    let wrong = |field: &str, expected: &str| {
        Refusal::new(Code::Invalid, Some(field), format!("{field} is not {expected}"))
    };
    let element: Element<'_> = serde_json::from_str(raw.get()).map_err(|_| {
        Refusal::new(Code::Invalid, None, "expected an object, each of its fields once")
    })?;
    let seq = |raw: Option<&RawValue>, field| {
        raw.and_then(parse_seq).ok_or_else(|| wrong(field, "an integer from 1 to 2^63 - 1"))
    };
    let at = |raw: Option<&RawValue>, field: &str| -> Result<Option<Timestamp>, Refusal> {
        let Some(raw) = raw else { return Ok(None) };
        let text: String = serde_json::from_str(raw.get()).map_err(|_| wrong(field, "a time"))?;
        Ok(Some(rfc3339(field, &text)?))
    };
    let tenant_id = element
        .tenant_id
        .and_then(parse_id)
        .ok_or_else(|| wrong("tenant_id", "a UUID of version 4 or 7"))?;
    if !tenants.allow(tenant_id) {
        return Err(Refusal::forbidden());
    }
    let reason: Reason =
        element.reason.and_then(parse_id).ok_or_else(|| wrong("reason", "a known reason"))?;
    let (from, to) = (seq(element.from_seq, "from_seq")?, seq(element.to_seq, "to_seq")?);
    let (first, last) = (at(element.first_at, "first_at")?, at(element.last_at, "last_at")?);
    let range =
        Range::new(from, to, first, last).ok_or_else(|| wrong("to_seq", "at or after from_seq"))?;
    if element.count.is_some_and(|raw| raw.get() != range.count().to_string()) {
        return Err(wrong("count", "to_seq - from_seq + 1"));
    }
    let origin = match element.origin.map(RawValue::get) {
        None | Some("\"edge\"") => Origin::Edge,
        Some("\"node\"") => Origin::Node,
        Some(_) => return Err(wrong("origin", "node or edge")),
    };
    Ok(Tombstone {
        tenant_id,
        stream: element
            .stream
            .and_then(parse_id)
            .ok_or_else(|| wrong("stream", "the name of a stream"))?,
        epoch: element
            .epoch
            .and_then(parse_id)
            .ok_or_else(|| wrong("epoch", "a UUID of version 4 or 7"))?,
        range,
        reason,
        origin,
    })
}
