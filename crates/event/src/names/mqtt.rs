//! Topics between nodes and the edge.

use std::fmt;

use crate::Invalid;
use crate::id::NodeId;

/// A topic of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// `iot/{node_id}/live`: batches of what was just written.
    Live(NodeId),
    /// `iot/{node_id}/backfill`: batches of the backlog.
    Backfill(NodeId),
    /// `iot/{node_id}/event`: one bare envelope of a device without a spool.
    Event(NodeId),
    /// `iot/{node_id}/status`: retained, with a last will.
    Status(NodeId),
    /// `iot/{node_id}/ack`: retained, from the edge.
    Ack(NodeId),
    /// `iot/{node_id}/command`: what the edge asks of the node.
    Command(NodeId),
}

impl Topic {
    /// The filters that together cover everything nodes publish. Acks and commands are not among them.
    pub const FROM_NODES: [&'static str; 4] =
        ["iot/+/live", "iot/+/backfill", "iot/+/event", "iot/+/status"];

    /// Reads a topic that came in. The node's name is checked against its grammar again here: the broker
    /// is not trusted with it.
    pub fn parse(topic: &str) -> Result<Topic, Invalid> {
        let fault = || {
            let expected = "iot/{node_id}/ and one of live, backfill, event, status, ack, command";
            Invalid::value("topic", topic, expected)
        };
        let rest = topic.strip_prefix("iot/").ok_or_else(fault)?;
        let (node, channel) = rest.split_once('/').ok_or_else(fault)?;
        let of: fn(NodeId) -> Topic = match channel {
            "live" => Topic::Live,
            "backfill" => Topic::Backfill,
            "event" => Topic::Event,
            "status" => Topic::Status,
            "ack" => Topic::Ack,
            "command" => Topic::Command,
            _ => return Err(fault()),
        };
        node.parse().map(of).map_err(|_| fault())
    }

    /// The node whose topic it is.
    pub fn node(&self) -> &NodeId {
        match self {
            Topic::Live(node)
            | Topic::Backfill(node)
            | Topic::Event(node)
            | Topic::Status(node)
            | Topic::Ack(node)
            | Topic::Command(node) => node,
        }
    }

    /// The last level of the topic.
    pub fn channel(&self) -> &'static str {
        match self {
            Topic::Live(_) => "live",
            Topic::Backfill(_) => "backfill",
            Topic::Event(_) => "event",
            Topic::Status(_) => "status",
            Topic::Ack(_) => "ack",
            Topic::Command(_) => "command",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iot/{}/{}", self.node(), self.channel())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_round_trip() {
        let node: NodeId = "barn-7".parse().unwrap();
        for (topic, text) in [
            (Topic::Live(node.clone()), "iot/barn-7/live"),
            (Topic::Backfill(node.clone()), "iot/barn-7/backfill"),
            (Topic::Event(node.clone()), "iot/barn-7/event"),
            (Topic::Status(node.clone()), "iot/barn-7/status"),
            (Topic::Ack(node.clone()), "iot/barn-7/ack"),
            (Topic::Command(node.clone()), "iot/barn-7/command"),
        ] {
            assert_eq!(topic.to_string(), text);
            assert_eq!(Topic::parse(text), Ok(topic.clone()));
            assert_eq!(topic.node(), &node);
            let filter = format!("iot/+/{}", topic.channel());
            let from_edge = matches!(topic, Topic::Ack(_) | Topic::Command(_));
            assert_eq!(Topic::FROM_NODES.contains(&&*filter), !from_edge);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "iot",
            "iot/",
            "iot/a",
            "iot/a/",
            "iot//live",
            "iot/a/live/",
            "iot/a/b/live",
            "iot/+/live",
            "iot/#",
            "iot/a/other",
            "/iot/a/live",
            "IOT/a/live",
            "iot/A/live",
            "$share/g/iot/a/live",
            "iot/a/live\0",
            "iot/../live",
        ] {
            assert_eq!(Topic::parse(text).unwrap_err().field, "topic", "{text:?}");
        }
    }
}
