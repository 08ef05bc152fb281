//! W3C trace context: which trace a request belongs to, read from its headers and told in the answer's.
//!
//! A `traceparent` that is absent or breaks the grammar starts a new trace, as the standard asks;
//! nothing is ever refused for it. It must not know which spans are made of it, nor who exports them.

use std::fmt;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use rand::RngExt as _;

/// The header.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
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
    /// What the sender of a request says; nothing where the header is absent or breaks the grammar.
    pub fn of(headers: &HeaderMap) -> Option<Traceparent> {
        headers.get(TRACEPARENT)?.to_str().ok()?.parse().ok()
    }

    /// Puts it into the headers of an answer.
    pub fn tell(self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::try_from(self.to_string()) {
            headers.insert(TRACEPARENT, value);
        }
    }

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

    #[test]
    fn what_an_answer_is_told_the_next_request_says() {
        let (trace, mut headers) = (Traceparent::mint(), HeaderMap::new());
        assert_eq!(Traceparent::of(&headers), None);
        trace.tell(&mut headers);
        assert_eq!(Traceparent::of(&headers), Some(trace));
        headers.insert(TRACEPARENT, HeaderValue::from_static("00-what"));
        assert_eq!(Traceparent::of(&headers), None);
    }
}
