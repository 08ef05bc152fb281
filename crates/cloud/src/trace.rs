//! W3C trace context: which trace a request, a row and a message belong to.
//!
//! A `traceparent` that is absent or breaks the grammar starts a new trace, as the standard asks;
//! nothing is ever refused for it.
//!
//! The spans made here carry their ids as the fields `trace_id`, `span_id` and `parent_span_id`: what
//! the log shows, what the headers carry and what is exported are the same ids. It must not know who
//! exports.

use std::collections::BTreeMap;

pub use api::trace::{NotATraceparent, Traceparent};
use tracing::Span;

/// A batch of very many traces has a span in so many of them; messages of the others keep the parent
/// they came with.
const MAX_SPANS: usize = 64;

/// The span of a request that brings a batch; `parent` is absent where the request named none.
pub(crate) fn ingest_batch(own: Traceparent, parent: Option<Traceparent>) -> Span {
    let span = tracing::info_span!(
        "ingest_batch",
        trace_id = own.trace_id(),
        span_id = own.span_id(),
        parent_span_id = tracing::field::Empty,
        sampled = own.is_sampled(),
        token = tracing::field::Empty,
        batch_id = tracing::field::Empty,
    );
    if let Some(parent) = parent {
        span.record("parent_span_id", parent.span_id());
    }
    span
}

/// The spans of one batch: one in each trace that it holds messages of. They end when this is dropped.
#[derive(Debug)]
pub struct Spans {
    first: Span,
    by_parent: BTreeMap<Traceparent, (Traceparent, Span)>,
}

impl Spans {
    /// The spans of a batch of messages in a consumer's hands.
    pub fn consume_batch(service: &str, batch: &bus::Batch) -> Spans {
        let parents = batch.deliveries().iter().filter_map(|delivery| {
            delivery.message.headers.get("traceparent").and_then(|text| text.parse().ok())
        });
        let messages = batch.len();
        Spans::new(parents, |own, parent| {
            tracing::info_span!(
                "consume_batch",
                trace_id = own.trace_id(),
                span_id = own.span_id(),
                parent_span_id = parent.span_id(),
                sampled = own.is_sampled(),
                service,
                messages,
            )
        })
    }

    /// The spans of a batch that the relay publishes.
    pub(crate) fn relay_publish(parents: impl Iterator<Item = Traceparent>) -> Spans {
        Spans::new(parents, |own, parent| {
            tracing::info_span!(
                "relay_publish",
                trace_id = own.trace_id(),
                span_id = own.span_id(),
                parent_span_id = parent.span_id(),
                sampled = own.is_sampled(),
            )
        })
    }

    fn new(
        parents: impl Iterator<Item = Traceparent>,
        make: impl Fn(Traceparent, Traceparent) -> Span,
    ) -> Spans {
        let (mut first, mut by_parent) = (None, BTreeMap::new());
        for parent in parents {
            if by_parent.len() == MAX_SPANS {
                break;
            }
            by_parent.entry(parent).or_insert_with(|| {
                let own = parent.child();
                let span = make(own, parent);
                first.get_or_insert_with(|| span.clone());
                (own, span)
            });
        }
        Spans { first: first.unwrap_or_else(Span::none), by_parent }
    }

    /// The one to work in: the span in the trace of the first message.
    pub fn first(&self) -> Span {
        self.first.clone()
    }

    /// What messages of this parent carry on.
    pub fn of(&self, parent: Traceparent) -> Traceparent {
        self.by_parent.get(&parent).map_or(parent, |(own, _)| *own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_a_span_in_each_trace_up_to_a_limit() {
        let parents: Vec<Traceparent> = (0..100).map(|_| Traceparent::mint()).collect();
        let twice = parents.iter().chain(&parents).copied();
        let spans = Spans::relay_publish(twice);
        let own = parents.iter().filter(|parent| spans.of(**parent) != **parent).count();
        assert_eq!(own, MAX_SPANS);
        for parent in &parents {
            assert_eq!(spans.of(*parent).trace_id(), parent.trace_id());
        }
    }
}
