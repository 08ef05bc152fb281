//! W3C trace context: which trace a request, a row and a message belong to.
//!
//! A `traceparent` that is absent or breaks the grammar starts a new trace, as the standard asks;
//! nothing is ever refused for it.
//!
//! The spans made here carry their ids as the fields `trace_id`, `span_id` and `parent_span_id`: what
//! the log shows, what the headers carry and what is exported are the same ids. It must not know who
//! exports.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rand::RngExt as _;
use tracing::Span;

/// A batch of very many traces has a span in so many of them; messages of the others keep the parent
/// they came with.
const MAX_SPANS: usize = 64;
/// The flag of a `traceparent` that says that the trace is recorded.
const SAMPLED: u8 = 1;

/// A `traceparent`: the trace, the span that is the parent of what follows, and the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traceparent {
    trace: u128,
    span: u64,
    flags: u8,
}

/// The text is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 00-(32 hexadecimal digits)-(16)-(2), neither id all zero")]
pub struct NotATraceparent;

impl Traceparent {
    /// A new trace.
    pub fn mint() -> Traceparent {
        let mut rng = rand::rng();
        // All zero means "none"; the odds are the same as for any other number, and it is cheap.
        Traceparent {
            trace: rng.random::<u128>().max(1),
            span: rng.random::<u64>().max(1),
            flags: SAMPLED,
        }
    }

    /// A new span of the same trace.
    pub fn child(self) -> Traceparent {
        Traceparent { span: rand::rng().random::<u64>().max(1), ..self }
    }

    /// Whether whoever began the trace wants it recorded.
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The trace as 32 hexadecimal digits, for logs.
    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }

    /// The span as 16 hexadecimal digits, for logs.
    pub fn span_id(self) -> String {
        format!("{:016x}", self.span)
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

impl FromStr for Traceparent {
    type Err = NotATraceparent;

    fn from_str(text: &str) -> Result<Traceparent, NotATraceparent> {
        let mut parts = text.split('-');
        let mut next = |digits: usize| {
            let part = parts.next().ok_or(NotATraceparent)?;
            let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            let sound = part.len() == digits && part.bytes().all(lower_hex);
            if sound { Ok(part) } else { Err(NotATraceparent) }
        };
        let version = next(2)?;
        let trace = u128::from_str_radix(next(32)?, 16).map_err(|_| NotATraceparent)?;
        let span = u64::from_str_radix(next(16)?, 16).map_err(|_| NotATraceparent)?;
        let flags = u8::from_str_radix(next(2)?, 16).map_err(|_| NotATraceparent)?;
        // A later version may have more parts; ff is never a version.
        let whole = parts.next().is_none() || version != "00";
        if version == "ff" || trace == 0 || span == 0 || !whole {
            return Err(NotATraceparent);
        }
        Ok(Traceparent { trace, span, flags })
    }
}

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
    fn the_standards_example_round_trips_and_a_child_keeps_the_trace() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: Traceparent = text.parse().unwrap();
        assert_eq!(parent.to_string(), text);
        assert_eq!(parent.child().trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_ne!(parent.child().span_id(), parent.span_id());
        let minted = Traceparent::mint();
        assert_eq!(minted.to_string().parse(), Ok(minted));
    }

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

    #[test]
    fn what_breaks_the_grammar_is_refused() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<Traceparent>(), Err(NotATraceparent), "{text:?}");
        }
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert!(later.parse::<Traceparent>().is_ok());
    }
}
