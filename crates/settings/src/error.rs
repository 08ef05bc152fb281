//! What can be wrong with a configuration. Every message names the key and says what would be right.

use std::fmt;
use std::path::PathBuf;

/// One thing that an operator has to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key with its section, like `node.mqtt.keepalive`.
    pub key: String,
    /// Where the value came from, if there was one: `config.toml:12`, `env HOLDFAST_NODE_…`.
    pub origin: Option<String>,
    /// What is wrong and what would be right, in a sentence.
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{} ({origin}): {}", self.key, self.reason),
            None => write!(f, "{}: {}", self.key, self.reason),
        }
    }
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read configuration {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{path}:{line}: not valid TOML: {message}", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// The parser's words.
        message: String,
    },
    /// Values that cannot work; all of them, so that one round of editing is enough.
    #[error("{}", list(.0))]
    Refused(Vec<Problem>),
    /// The role asked for a key that it did not declare, or declared with another kind: a defect of the role.
    #[error("setting {key}: {reason}")]
    Undeclared {
        /// The key with its section.
        key: String,
        /// What was asked for.
        reason: String,
    },
}

fn list(problems: &[Problem]) -> String {
    let mut text = String::from("the configuration cannot work:");
    for problem in problems {
        text.push_str("\n  ");
        text.push_str(&problem.to_string());
    }
    text
}
