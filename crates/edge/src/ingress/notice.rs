//! The log of what ingress would not store: which event, why, and its trace, so that whoever looks for one finds it.
//!
//! Nothing of a payload is logged. A commit logs no more than a few; all of them are in `ingress_quarantine`.

use std::collections::BTreeMap;

use event::id::NodeId;
use serde::Deserialize;

use super::check::Content;
use super::plan::Quarantined;

/// Lines of one commit.
const MAX_LINES: usize = 10;

/// Logs events that went to quarantine.
pub(super) fn log(rows: &BTreeMap<[u8; 32], Quarantined<'_>>) {
    // A refused message is no event, unless it was a bare one.
    let is_event = |row: &&Quarantined<'_>| {
        row.accounted
            || matches!(&row.message.content, Content::Refused(refused) if refused.only_copy)
    };
    let events = || rows.values().filter(is_event);
    for row in events().take(MAX_LINES) {
        tracing::warn!(
            reason = row.refusal.reason.as_str(),
            node = row.message.node_id.as_ref().map(NodeId::as_str),
            event_id = row.event_id.map(tracing::field::display),
            seq = row.place.map(|(_, seq)| seq),
            trace_id = trace_id(&row.body),
            "an event went to quarantine"
        );
    }
    let more = events().count().saturating_sub(MAX_LINES);
    if more > 0 {
        tracing::warn!(more, "further events went to quarantine: see ingress_quarantine");
    }
}

/// The trace that an event names, if it keeps the rule of one.
pub(crate) fn trace_id(event: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        trace_id: String,
    }
    let named = serde_json::from_slice::<Named>(event).ok()?.trace_id;
    event::farm::rules::trace_id("trace_id", &named).is_ok().then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_from_what_is_otherwise_wrong_and_only_a_sound_one() {
        assert_eq!(trace_id(br#"{"event_type":7,"trace_id":"t-1"}"#).as_deref(), Some("t-1"));
        for body in [&br#"{"trace_id":"a\nb"}"#[..], br#"{"trace_id":7}"#, b"{}", b"what"] {
            assert_eq!(trace_id(body), None);
        }
    }
}
