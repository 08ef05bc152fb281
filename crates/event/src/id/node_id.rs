//! The name of a node.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// The name of a node, which is also its user name at the broker, a level of its topics and the name
/// of its stream.
///
/// `[a-z0-9][a-z0-9-]{0,62}`: no wildcard, no level separator and nothing that a path would
/// understand can be in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeId(String);

impl NodeId {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 63;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_sound(text: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        text.len() <= NodeId::MAX_LEN
            && text.bytes().next().is_some_and(plain)
            && text.bytes().all(|byte| plain(byte) || byte == b'-')
    }
}

impl FromStr for NodeId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<NodeId, Invalid> {
        if NodeId::is_sound(text) {
            Ok(NodeId(text.to_owned()))
        } else {
            Err(Invalid::value(
                "node_id",
                text,
                "1 to 63 of a-z, 0-9 and hyphen, not starting with a hyphen",
            ))
        }
    }
}

impl TryFrom<String> for NodeId {
    type Error = Invalid;

    fn try_from(text: String) -> Result<NodeId, Invalid> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> String {
        id.0
    }
}

impl AsRef<str> for NodeId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_its_grammar() {
        for text in ["a", "0", "node-1", "a-", &"a".repeat(63)] {
            assert_eq!(text.parse::<NodeId>().unwrap().as_str(), text);
        }
        for text in [
            "",
            "-a",
            "A",
            "a_b",
            "a.b",
            "a/b",
            "a+b",
            "+",
            "#",
            "a b",
            "é",
            "a\n",
            "a\0",
            "..",
            &"a".repeat(64),
        ] {
            let err = text.parse::<NodeId>().unwrap_err();
            assert_eq!(err.field, "node_id");
            assert!(serde_json::from_value::<NodeId>(text.into()).is_err());
        }
    }
}
