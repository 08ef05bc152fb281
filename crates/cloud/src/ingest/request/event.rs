//! One event of a batch, with its ledger coordinates.

use event::Class;
use event::farm::Envelope;
use event::id::{Epoch, EventId, NodeId, TenantId};
use event::ledger::MAX_SEQ;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Code, Refusal};
use crate::tokens::Tenants;

/// How much of a rejected event is kept for a person to look at: the edge still has it.
const BODY_KEPT: usize = 4 * 1024;

/// Where an event stands in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The stream.
    pub stream: NodeId,
    /// The life of the spool.
    pub epoch: Epoch,
    /// The sequence.
    pub seq: u64,
}

/// An event, judged.
#[derive(Debug, Clone)]
pub enum Item {
    /// It keeps every rule, and its sender may write its tenant.
    Valid(Box<Event>),
    /// It does not.
    Bad(Box<BadEvent>),
}

/// An event that keeps every rule.
#[derive(Debug, Clone)]
pub struct Event {
    /// The event.
    pub envelope: Envelope,
    /// Its coordinates; an event that the edge made itself has none.
    pub place: Option<Place>,
}

/// An event that is rejected.
#[derive(Debug, Clone)]
pub struct BadEvent {
    /// Why.
    pub refusal: Refusal,
    /// Its tenant, if that could be read.
    pub tenant_id: Option<TenantId>,
    /// Its id, if that could be read.
    pub event_id: Option<EventId>,
    /// Its coordinates, if they could be read.
    pub place: Option<Place>,
    /// What came, clipped.
    pub body: Vec<u8>,
    /// How large it was.
    pub body_bytes: usize,
}

impl Event {
    /// Whose it is, and its id.
    pub(crate) fn key(&self) -> (TenantId, EventId) {
        (self.envelope.tenant_id, self.envelope.event_id)
    }

    /// What must leave in order with it; docs/spec/cloud-tables.md has the table.
    pub(crate) fn ordering_key(&self) -> Option<String> {
        let Envelope { device_id, session_id, .. } = &self.envelope;
        match self.envelope.class() {
            Class::Telemetry => device_id.map(|device| format!("telemetry/{device}")),
            Class::Alarm => device_id.map(|device| format!("alarm/{device}")),
            Class::Event => session_id
                .map(|session| format!("session/{session}"))
                .or_else(|| device_id.map(|device| format!("device/{device}"))),
        }
    }

    /// Higher leaves first.
    pub(crate) fn priority(&self) -> i32 {
        match self.envelope.class() {
            Class::Alarm => 20,
            Class::Event => 10,
            Class::Telemetry => 0,
        }
    }

    /// The same event, rejected after all.
    pub(crate) fn reject(&self, refusal: Refusal) -> Item {
        let json = self.envelope.to_json();
        Item::Bad(Box::new(BadEvent {
            refusal,
            tenant_id: Some(self.envelope.tenant_id),
            event_id: Some(self.envelope.event_id),
            place: self.place.clone(),
            body: json.as_bytes()[..json.len().min(BODY_KEPT)].to_vec(),
            body_bytes: json.len(),
        }))
    }
}

#[derive(Deserialize)]
struct Element<'a> {
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    epoch: Option<&'a RawValue>,
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
}

/// Judges one element of `events`.
pub(super) fn judge(raw: &RawValue, tenants: &Tenants) -> Item {
    let (mut found_place, mut event_text) = (None, raw.get());
    let judged = (|| {
        let wrong = |field, message: &str| Refusal::new(Code::Invalid, field, message);
        let element: Element<'_> = serde_json::from_str(raw.get()).map_err(|_| {
            wrong(None, "expected an object with event, stream, epoch and seq, each once")
        })?;
        let event = element.event.ok_or_else(|| wrong(Some("event"), "event is missing"))?;
        event_text = event.get();
        let place = place(&element)?;
        found_place = place.clone();
        let envelope = Envelope::parse(event.get().as_bytes())?;
        if !tenants.allow(envelope.tenant_id) {
            return Err(Refusal::forbidden());
        }
        Ok(Event { envelope, place })
    })();
    match judged {
        Ok(event) => Item::Valid(Box::new(event)),
        Err(refusal) => Item::Bad(Box::new(BadEvent {
            refusal,
            tenant_id: field_of(event_text, "tenant_id"),
            event_id: field_of(event_text, "event_id"),
            place: found_place,
            body: event_text.as_bytes()[..event_text.len().min(BODY_KEPT)].to_vec(),
            body_bytes: event_text.len(),
        })),
    }
}

fn place(element: &Element<'_>) -> Result<Option<Place>, Refusal> {
    let wrong = |field: &str, expected: &str| {
        Refusal::new(Code::Invalid, Some(field), format!("{field} is not {expected}"))
    };
    let (stream, epoch, seq) = match (element.stream, element.epoch, element.seq) {
        (Some(stream), Some(epoch), Some(seq)) => (stream, epoch, seq),
        (None, None, None) => return Ok(None),
        _ => {
            let message = "stream, epoch and seq go together: expected all or none";
            return Err(Refusal::new(Code::Invalid, Some("stream"), message));
        }
    };
    Ok(Some(Place {
        stream: parse_id(stream).ok_or_else(|| wrong("stream", "the name of a stream"))?,
        epoch: parse_id(epoch).ok_or_else(|| wrong("epoch", "a UUID of version 4 or 7"))?,
        seq: parse_seq(seq).ok_or_else(|| wrong("seq", "an integer from 1 to 2^63 - 1"))?,
    }))
}

/// An identifier that is written as text.
pub(super) fn parse_id<T: std::str::FromStr>(raw: &RawValue) -> Option<T> {
    serde_json::from_str::<String>(raw.get()).ok()?.parse().ok()
}

/// A sequence.
pub(super) fn parse_seq(raw: &RawValue) -> Option<u64> {
    raw.get().parse().ok().filter(|seq| (1..=MAX_SEQ).contains(seq))
}

/// A field of an event that is otherwise not valid, so that it can be named.
fn field_of<T: std::str::FromStr>(json: &str, name: &str) -> Option<T> {
    #[derive(Deserialize)]
    struct Ids<'a> {
        #[serde(borrow)]
        event_id: Option<&'a RawValue>,
        #[serde(borrow)]
        tenant_id: Option<&'a RawValue>,
    }
    // An event far beyond its limit is not read a second time.
    if json.len() > 2 * event::MAX_EVENT_BYTES {
        return None;
    }
    let ids: Ids<'_> = serde_json::from_str(json).ok()?;
    parse_id(if name == "event_id" { ids.event_id? } else { ids.tenant_id? })
}
