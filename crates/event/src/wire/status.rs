//! How a node is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{VERSION, WireError, check_version};
use crate::farm::rules;
use crate::id::Epoch;
use crate::{Invalid, json};

/// The largest status.
pub const MAX_STATUS_BYTES: usize = 64 * 1024;

/// The longest version text, in characters.
const MAX_VERSION_CHARS: usize = 64;

/// A node's status, retained at the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Whether the node is there.
    pub state: State,
    /// The life of its spool.
    pub epoch: Epoch,
    /// The rest; the last will has none.
    pub report: Option<Report>,
}

/// Whether a node is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Said by the node itself.
    Online,
    /// Said by its last will.
    Offline,
}

/// Whether a node's clock is known to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// It is.
    Set,
    /// It is not: times may be far off.
    Unset,
}

/// What an online node says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The highest durable sequence.
    pub head: u64,
    /// The highest sequence the edge acknowledged.
    pub acked: u64,
    /// The oldest sequence still in the spool.
    pub oldest: u64,
    /// The size of the spool.
    pub bytes: u64,
    /// Sequences that wait for an ack.
    pub backlog: u64,
    /// Records that were given up.
    pub drops: u64,
    /// Gaps that wait for an ack.
    pub gaps: u64,
    /// Whether the clock is known to be set.
    pub clock: Clock,
    /// When this was said, by the node's clock.
    pub at: Timestamp,
    /// Free space of the spool's disk, where it is known.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// When the oldest record that waits for an ack was written, by the node's clock; none when nothing waits, and of an older node.
    #[serde(default)]
    pub oldest_at: Option<Timestamp>,
    /// The node's version.
    pub version: String,
    /// Bytes written to the card per day, as far as it can be told.
    #[serde(default)]
    pub written_bytes_per_day: Option<u64>,
    /// Acks that were not believed.
    #[serde(default)]
    pub ignored_acks: IgnoredAcks,
    /// Commands that were not obeyed.
    #[serde(default)]
    pub ignored_commands: IgnoredCommands,
}

/// Acks that a node did not believe, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IgnoredAcks {
    /// Lower than what was acknowledged before.
    pub regressed: u64,
    /// Of another epoch.
    pub foreign_epoch: u64,
    /// Beyond the head.
    pub beyond_head: u64,
    /// Not in the form of an ack.
    pub malformed: u64,
}

/// Commands that a node did not obey, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IgnoredCommands {
    /// Of another epoch.
    pub foreign_epoch: u64,
    /// Beyond the head.
    pub beyond_head: u64,
    /// Not in the form of a command.
    pub malformed: u64,
}

impl Status {
    /// The last will, which the broker publishes when the node has gone.
    pub fn offline(epoch: Epoch) -> Status {
        Status { state: State::Offline, epoch, report: None }
    }

    /// What a node says while it runs.
    pub fn online(epoch: Epoch, report: Report) -> Status {
        Status { state: State::Online, epoch, report: Some(report) }
    }

    /// Reads a status.
    pub fn parse(body: &[u8]) -> Result<Status, WireError> {
        if body.len() > MAX_STATUS_BYTES {
            let limit = MAX_STATUS_BYTES;
            return Err(WireError::TooLarge { what: "the status in bytes", limit });
        }
        let text = json::utf8("status", body)?;
        let [v, state, epoch] = json::document("status", text, &["v", "state", "epoch"])?;
        check_version(v)?;
        const STATE: &str = "\"online\" or \"offline\"";
        let epoch = json::id("epoch", epoch)?;
        match &*json::text("state", state, STATE)? {
            "offline" => Ok(Status::offline(epoch)),
            "online" => {
                let report: Report = serde_json::from_str(text)
                    .map_err(|err| Invalid::new("status", format!("cannot be read: {err}")))?;
                let sound = rules::is_label(&report.version, MAX_VERSION_CHARS);
                let expected = "1 to 64 characters, no control characters";
                rules::accept(sound, "version", &report.version, expected)?;
                Ok(Status::online(epoch, report))
            }
            other => Err(Invalid::value("state", other, STATE).into()),
        }
    }

    /// The status as JSON.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            v: u64,
            state: State,
            epoch: Epoch,
            #[serde(flatten)]
            report: Option<&'a Report>,
        }
        json::to_string(&Body {
            v: VERSION,
            state: self.state,
            epoch: self.epoch,
            report: self.report.as_ref(),
        })
    }
}
