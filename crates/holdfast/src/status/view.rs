//! What is seen in one look, as `--json` has it. `None` means that whoever knows was not asked or did not answer.

use jiff::Timestamp;
use serde::Serialize;

/// One look at everything.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) at: Timestamp,
    /// What a person should do something about.
    pub(super) needs: Vec<Need>,
    /// Roles, databases, nodes and brokers: whether each answers.
    pub(super) parts: Vec<Part>,
    pub(super) nodes: Vec<Node>,
    pub(super) outbox: Option<Outbox>,
    pub(super) relay: Option<Relay>,
    pub(super) dead_letters: DeadLetters,
    pub(super) plant: Option<Plant>,
    pub(super) historian: Option<Historian>,
    pub(super) schedules: Option<Schedules>,
    pub(super) disks: Vec<Disk>,
}

impl View {
    pub(super) fn new(at: Timestamp) -> View {
        View {
            at,
            needs: Vec::new(),
            parts: Vec::new(),
            nodes: Vec::new(),
            outbox: None,
            relay: None,
            dead_letters: DeadLetters::default(),
            plant: None,
            historian: None,
            schedules: None,
            disks: Vec::new(),
        }
    }
}

/// Something for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Need {
    /// What it is.
    pub(super) what: String,
    /// What to do next.
    pub(super) next: String,
}

/// Something that can be asked.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Part {
    pub(crate) part: String,
    /// Where it was asked; never with a secret.
    pub(crate) place: String,
    pub(crate) answers: bool,
    /// What it says is wrong with itself, or why it does not answer.
    pub(crate) problems: Vec<String>,
    /// What else it says.
    pub(crate) notes: Vec<String>,
    /// Since when it is away, where that is known.
    pub(crate) away_since: Option<Timestamp>,
    /// What to do when it is away or not well.
    pub(crate) next: String,
}

impl Part {
    pub(crate) fn is_well(&self) -> bool {
        self.answers && self.problems.is_empty()
    }
}

/// How a node is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Heard {
    Silent,
    Late,
    /// Enrolled, and never heard.
    Never,
    Live,
    /// Shut out by an operator.
    Disabled,
    /// The edge does not know it, or was not asked.
    Unknown,
}

impl Heard {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Heard::Silent => "silent",
            Heard::Late => "late",
            Heard::Never => "never heard",
            Heard::Live => "live",
            Heard::Disabled => "shut out",
            Heard::Unknown => "unknown",
        }
    }
}

/// A field node.
#[derive(Debug, Serialize)]
pub(super) struct Node {
    pub(super) node_id: String,
    pub(super) state: Heard,
    pub(super) heard_at: Option<Timestamp>,
    /// What it holds back, by its own last words.
    pub(super) backlog: Option<i64>,
    pub(super) stored: Option<i64>,
    pub(super) lost: Option<i64>,
    pub(super) quarantined: Option<i64>,
    pub(super) free_bytes: Option<i64>,
    pub(super) flag: Option<String>,
}

/// What waits at the site for the cloud.
#[derive(Debug, Serialize)]
pub(super) struct Outbox {
    pub(super) waiting: i64,
    pub(super) oldest_at: Option<Timestamp>,
    pub(super) dead_letters: i64,
    pub(super) stuck: i64,
    /// `closed`, `half_open` or `open`, of the breaker before the cloud.
    pub(super) breaker: &'static str,
    pub(super) paused_until: Option<Timestamp>,
    /// Why the link went down.
    pub(super) failures: Vec<String>,
    pub(super) last_acked_at: Option<Timestamp>,
    pub(super) acked_per_second: f64,
    /// How long the backlog lasts at this pace; absent when it does not shrink.
    pub(super) drain_seconds: Option<f64>,
    /// Whether there is a cloud to send to.
    pub(super) has_cloud: bool,
    /// What commands about it are followed by.
    #[serde(skip)]
    pub(super) option: String,
}

/// What the cloud has and the bus has not.
#[derive(Debug, Serialize)]
pub(super) struct Relay {
    /// Counted up to a limit.
    pub(super) waiting: i64,
    pub(super) oldest_seconds: Option<f64>,
    pub(super) dead_letters: i64,
    #[serde(skip)]
    pub(super) option: String,
}

/// What was given up, by who gave it up.
#[derive(Debug, Default, Serialize)]
pub(super) struct DeadLetters {
    pub(super) edge: Option<i64>,
    pub(super) relay: Option<i64>,
    /// In the cloud's table and, where the bus is a broker, in its queues or topics.
    pub(super) consumers: Option<i64>,
    pub(super) plant: Option<i64>,
    pub(super) historian: Option<i64>,
}

/// The plant's nodes.
#[derive(Debug, Serialize)]
pub(super) struct Plant {
    pub(super) pending: Option<i64>,
    pub(super) failed: Option<i64>,
    pub(super) oldest_seconds: Option<i64>,
    pub(super) spooled_cycles: Option<i64>,
    /// Thresholds that are passed, each with whether it is critical.
    pub(super) warnings: Vec<(bool, String)>,
    #[serde(skip)]
    pub(super) option: String,
}

/// The plant's central store.
#[derive(Debug, Serialize)]
pub(super) struct Historian {
    pub(super) active_alarms: i64,
    pub(super) unacknowledged_alarms: i64,
    /// In its table and, where the bus is a broker, there.
    pub(super) dead_letters: Option<i64>,
    #[serde(skip)]
    pub(super) option: String,
}

/// Captured schedules.
#[derive(Debug, Serialize)]
pub(super) struct Schedules {
    pub(super) captures_waiting: i64,
    /// In the last day.
    pub(super) captures_failed: i64,
    pub(super) messages_waiting: i64,
    /// In the last day.
    pub(super) messages_failed: i64,
    pub(super) oldest_seconds: Option<f64>,
    #[serde(skip)]
    pub(super) option: String,
}

/// A disk that something writes to.
#[derive(Debug, Serialize)]
pub(super) struct Disk {
    pub(super) what: String,
    pub(super) path: String,
    pub(super) free_bytes: u64,
    pub(super) total_bytes: u64,
}
