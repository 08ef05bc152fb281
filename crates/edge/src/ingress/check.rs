//! Reading a message and judging each of its records. Pure.
//!
//! Promises: never panics, whatever the bytes; a message is read whole or refused whole, but a bad
//! event fails alone; no limit is found out by allocating beyond it. It must not know sequences
//! seen before, or SQL.

use std::sync::Arc;

use bytes::Bytes;
use event::farm::{Envelope, Telemetry};
use event::id::{Epoch, EventId, NodeId, TenantId};
use event::names::Topic;
use event::wire::{Batch, Gap, Limits, Status, WireError, decode};
use event::{Invalid, InvalidKind};
use jiff::Timestamp;
use serde::Deserialize;

use super::{Incoming, Reason, Refusal, Source};
use crate::registry::{EDGE_USER, Entry};

/// How much of a refused message is kept for a person to look at: the node still has it.
pub(crate) const MESSAGE_BODY_KEPT: usize = 64 * 1024;
/// How much of a refused record is kept: all of it, because it is the copy.
pub(crate) const RECORD_BODY_KEPT: usize = 1024 * 1024;

/// Where readings come in by token.
pub(crate) const READINGS_ROUTE: &str = "/api/v1/telemetry/readings";

/// A message that was read and judged.
#[derive(Debug, Clone)]
pub struct Checked {
    pub(crate) source: Source,
    pub(crate) topic: String,
    pub(crate) retained: bool,
    pub(crate) received_at: Timestamp,
    pub(crate) node_id: Option<NodeId>,
    pub(crate) entry: Option<Arc<Entry>>,
    pub(crate) content: Content,
}

/// What is in a message.
#[derive(Debug, Clone)]
pub enum Content {
    /// Records and gaps of a node's spool.
    Batch {
        /// The spool's life.
        epoch: Epoch,
        /// The records, ascending.
        records: Vec<Record>,
        /// What the node gave up.
        gaps: Vec<Gap>,
    },
    /// One event of a device without a spool.
    Event(Item),
    /// How the node is.
    Status(Status),
    /// Nothing that could be used.
    Refused(Refused),
}

/// One record of a batch.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its sequence.
    pub seq: u64,
    /// Its event.
    pub item: Item,
}

/// An event, judged.
#[derive(Debug, Clone)]
pub enum Item {
    /// It keeps every rule.
    Valid(Box<Event>),
    /// It does not, and goes to quarantine.
    Bad(Box<BadEvent>),
}

/// An event that keeps every rule, with what it lacked filled in from the node's registration.
#[derive(Debug, Clone)]
pub struct Event {
    /// The event.
    pub envelope: Envelope,
    /// Its reading, if it is telemetry.
    pub telemetry: Option<Telemetry>,
}

/// An event that breaks a rule.
#[derive(Debug, Clone)]
pub struct BadEvent {
    /// Which.
    pub refusal: Refusal,
    /// Its id, if that could be read.
    pub event_id: Option<EventId>,
    /// What came, clipped.
    pub body: Bytes,
    /// How large it was.
    pub body_bytes: usize,
}

/// A message that is refused whole.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// What came, clipped.
    pub body: Bytes,
    /// How large it was.
    pub body_bytes: usize,
    /// Whether nobody will send it again: it was a bare event.
    pub only_copy: bool,
}

/// Reads a message and judges its records. `entry` is the registration of the topic's node, if it
/// has one.
pub fn check(incoming: &Incoming, entry: Option<&Arc<Entry>>) -> Checked {
    let topic = Topic::parse(&incoming.topic);
    let limits = incoming.source.limits();
    let content = match &topic {
        Err(invalid) => Err(Refusal::new(Reason::Topic, invalid.to_string())),
        Ok(_) if incoming.body_bytes > limits.wire_bytes => {
            let detail = format!("the body is more than the limit of {} bytes", limits.wire_bytes);
            Err(Refusal::new(Reason::TooLarge, detail))
        }
        Ok(topic) => parse_message(topic, &incoming.body, &limits, entry.map(Arc::as_ref)),
    };
    let bare = matches!(topic, Ok(Topic::Event(_)));
    let content = content.unwrap_or_else(|refusal| {
        // A bare event is kept whole even when its node may not send: nobody will send it again.
        let kept = if bare { RECORD_BODY_KEPT } else { MESSAGE_BODY_KEPT };
        Content::Refused(Refused {
            refusal,
            body: incoming.body.slice(..incoming.body.len().min(kept)),
            body_bytes: incoming.body_bytes,
            only_copy: bare,
        })
    });
    Checked {
        source: incoming.source,
        topic: clip(&incoming.topic),
        retained: incoming.retained,
        received_at: incoming.received_at,
        node_id: topic.ok().map(|topic| topic.node().clone()),
        entry: entry.cloned(),
        content,
    }
}

/// What is in a message, or why it is refused whole. Never panics, whatever the bytes.
pub fn parse_message(
    topic: &Topic,
    body: &[u8],
    limits: &Limits,
    entry: Option<&Entry>,
) -> Result<Content, Refusal> {
    let entry = entry.ok_or_else(|| {
        Refusal::new(Reason::UnknownNode, format!("{} is not enrolled", topic.node()))
    })?;
    if entry.disabled {
        let detail = format!("{} has been shut out", topic.node());
        return Err(Refusal::new(Reason::DisabledNode, detail));
    }
    match topic {
        Topic::Live(_) | Topic::Backfill(_) => {
            let json = decode(body, limits).map_err(unreadable)?;
            let batch = Batch::parse(&json, limits).map_err(unreadable)?;
            let records = batch
                .records
                .iter()
                .map(|record| Record { seq: record.seq, item: judge(record.event.get(), entry) });
            Ok(Content::Batch { epoch: batch.epoch, records: records.collect(), gaps: batch.gaps })
        }
        Topic::Event(_) => {
            let json = decode(body, limits).map_err(unreadable)?;
            let text = std::str::from_utf8(&json)
                .map_err(|_| Refusal::new(Reason::Unreadable, "the body is not UTF-8"))?;
            Ok(Content::Event(judge(text, entry)))
        }
        Topic::Status(_) => {
            let json = decode(body, limits).map_err(unreadable)?;
            Status::parse(&json).map(Content::Status).map_err(unreadable)
        }
        Topic::Ack(_) | Topic::Command(_) => {
            Err(Refusal::new(Reason::Topic, "acks and commands are the edge's own to write"))
        }
    }
}

/// Reads a reading that came by token, for one tenant; one that names no trace is of this one. Its sender hears at once what is wrong with it, so nothing is kept for a person to look at.
pub(crate) fn check_reading(json: &str, tenant: TenantId, trace: &str) -> Result<Checked, Invalid> {
    let mut envelope = Envelope::parse_from_node(json, tenant)?;
    envelope.trace_id.get_or_insert_with(|| trace.to_owned());
    let telemetry = envelope.telemetry()?;
    if telemetry.is_none() {
        let problem = "is not telemetry.ingested, and nothing else is taken here";
        return Err(Invalid::new("event_type", problem));
    }
    let content = Content::Event(Item::Valid(Box::new(Event { envelope, telemetry })));
    Ok(Checked {
        source: Source::Http,
        topic: READINGS_ROUTE.to_owned(),
        retained: false,
        received_at: Timestamp::now(),
        // A name that no node can have.
        node_id: EDGE_USER.parse().ok(),
        entry: None,
        content,
    })
}

fn unreadable(error: WireError) -> Refusal {
    let reason = match error {
        WireError::TooLarge { .. } => Reason::TooLarge,
        _ => Reason::Unreadable,
    };
    Refusal::new(reason, error.to_string())
}

fn judge(json: &str, entry: &Entry) -> Item {
    let read = Envelope::parse_from_node(json, entry.tenant_id).and_then(|mut envelope| {
        envelope.farm_id = envelope.farm_id.or(entry.farm_id);
        envelope.barn_id = envelope.barn_id.or(entry.barn_id);
        envelope.device_id = envelope.device_id.or(Some(entry.device_id));
        let telemetry = envelope.telemetry()?;
        Ok(Item::Valid(Box::new(Event { envelope, telemetry })))
    });
    read.unwrap_or_else(|invalid| {
        let reason = match invalid.kind {
            InvalidKind::TenantMismatch => Reason::TenantMismatch,
            InvalidKind::TooLarge => Reason::TooLarge,
            _ => Reason::InvalidEvent,
        };
        Item::bad(Refusal::new(reason, invalid.to_string()), event_id_of(json), json.as_bytes())
    })
}

/// The id of an event that is otherwise not valid, so that the ledger can name it.
fn event_id_of(json: &str) -> Option<EventId> {
    #[derive(Deserialize)]
    struct Id {
        event_id: EventId,
    }
    serde_json::from_str::<Id>(json).ok().map(|id| id.event_id)
}

fn clip(topic: &str) -> String {
    const SHOWN_CHARS: usize = 200;
    topic.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
}

impl Item {
    pub(crate) fn bad(refusal: Refusal, event_id: Option<EventId>, body: &[u8]) -> Item {
        let kept = &body[..body.len().min(RECORD_BODY_KEPT)];
        Item::Bad(Box::new(BadEvent {
            refusal,
            event_id,
            body: Bytes::copy_from_slice(kept),
            body_bytes: body.len(),
        }))
    }
}

impl Checked {
    /// How many records it brings; a message without any still counts as one.
    pub(crate) fn weight(&self) -> usize {
        match &self.content {
            Content::Batch { records, gaps, .. } => records.len() + gaps.len(),
            _ => 1,
        }
    }

    /// Why the message as a whole was refused.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.content {
            Content::Refused(refused) => Some(&refused.refusal),
            _ => None,
        }
    }
}
