//! The reply: one result for each event, in the order of the request.

use event::id::EventId;
use event::wire::VERSION;
use serde::Serialize;

use super::request::{Batch, Item, Refusal};
use super::{Committed, Outcome};

/// The body of a 200.
#[derive(Debug, Serialize)]
pub struct Reply<'a> {
    v: u64,
    batch_id: &'a str,
    results: Vec<EventResult<'a>>,
    tombstones_accepted: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tombstones_rejected: Vec<Rejected<'a>>,
}

#[derive(Debug, Serialize)]
struct EventResult<'a> {
    event_id: Option<EventId>,
    status: &'static str,
    #[serde(flatten)]
    rejected: Option<Rejected<'a>>,
}

#[derive(Debug, Serialize)]
struct Rejected<'a> {
    index: usize,
    code: &'static str,
    field: Option<&'a str>,
    message: &'a str,
}

fn rejected(index: usize, refusal: &Refusal) -> Rejected<'_> {
    Rejected {
        index,
        code: refusal.code.on_wire(),
        field: refusal.field.as_deref(),
        message: &refusal.message,
    }
}

impl<'a> Reply<'a> {
    /// What a commit did, told to the sender of the batch.
    pub fn new(batch: &'a Batch, committed: &'a Committed) -> Reply<'a> {
        let results = batch.items.iter().zip(&committed.outcomes).enumerate();
        let results = results.map(|(index, (item, outcome))| {
            let event_id = match item {
                Item::Valid(event) => Some(event.envelope.event_id),
                Item::Bad(bad) => bad.event_id,
            };
            let (status, rejected) = match outcome {
                Outcome::Accepted => ("accepted", None),
                Outcome::Duplicate => ("duplicate", None),
                Outcome::Rejected(refusal) => ("rejected", Some(rejected(index, refusal))),
            };
            EventResult { event_id, status, rejected }
        });
        let refused = committed.tombstones.iter().enumerate();
        let refused = refused.filter_map(|(index, verdict)| Some((index, verdict.as_ref().err()?)));
        Reply {
            v: VERSION,
            batch_id: &batch.batch_id,
            results: results.collect(),
            tombstones_accepted: committed.tombstones.iter().filter(|v| v.is_ok()).count(),
            tombstones_rejected: refused.map(|(index, refusal)| rejected(index, refusal)).collect(),
        }
    }
}
