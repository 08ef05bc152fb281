//! One tombstone of a batch.

use event::id::{Epoch, NodeId, TenantId};
use event::ledger::GapReason;
use event::rfc3339;
use event::wire::Gap;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{parse_id, parse_seq};
use super::{Code, Refusal};
use crate::tokens::Tenants;

/// A range of a stream that a tier gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// Whose stream it is.
    pub tenant_id: TenantId,
    /// The stream.
    pub stream: NodeId,
    /// The life of the spool.
    pub epoch: Epoch,
    /// The range, and why.
    pub gap: Gap,
    /// Who gave it up.
    pub origin: Origin,
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
    let reason: GapReason =
        element.reason.and_then(parse_id).ok_or_else(|| wrong("reason", "a known reason"))?;
    let (from, to) = (seq(element.from_seq, "from_seq")?, seq(element.to_seq, "to_seq")?);
    let (first, last) = (at(element.first_at, "first_at")?, at(element.last_at, "last_at")?);
    let gap = Gap::new(from, to, first, last, reason)
        .ok_or_else(|| wrong("to_seq", "at or after from_seq"))?;
    if element.count.is_some_and(|raw| raw.get() != gap.count.to_string()) {
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
        gap,
        origin,
    })
}
