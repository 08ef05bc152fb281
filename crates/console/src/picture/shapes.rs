//! The shapes of the picture, as docs/spec/console.md has them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Whether something upstream answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Presence {
    Here,
    Away,
    /// It has not answered since the console started.
    Asking,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UpstreamKind {
    Site,
    Cloud,
    Historian,
    /// A SCADA node.
    Producer,
    Schedule,
    Up,
}

/// One of those that are asked.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Upstream {
    pub(crate) id: String,
    pub(crate) kind: UpstreamKind,
    pub(crate) name: String,
    pub(crate) state: Presence,
    pub(crate) since: Timestamp,
    pub(crate) error: Option<String>,
    pub(crate) took_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StageKind {
    Node,
    Edge,
    Cloud,
    Bus,
    Store,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StageState {
    Ok,
    Waiting,
    Broken,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkState {
    Up,
    Down,
    Degraded,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Breaker {
    Closed,
    HalfOpen,
    Open,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LaneKind {
    Site,
    Plant,
}

/// What stands beside the shared stages.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Lane {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) kind: LaneKind,
}

/// A place where events are.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Stage {
    pub(crate) id: String,
    pub(crate) kind: StageKind,
    pub(crate) lane: Option<String>,
    pub(crate) name: String,
    pub(crate) state: StageState,
    /// What comes in here.
    pub(crate) rate_per_s: Option<f64>,
    /// What waits here for the next stage.
    pub(crate) held: Option<u64>,
    pub(crate) oldest_age_s: Option<f64>,
    pub(crate) detail: String,
}

/// A way from one place to the next.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Link {
    pub(crate) id: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) state: LinkState,
    pub(crate) rate_per_s: Option<f64>,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) held: Option<u64>,
    /// Null: nothing waits, or it does not shrink.
    pub(crate) drain_estimate_s: Option<f64>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) cuttable: bool,
    pub(crate) cut: bool,
}

/// The path of an event.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Flow {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) links: Vec<Link>,
}

/// Where everything is, added up. Null: whoever knows is away.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Totals {
    pub(crate) produced: Option<u64>,
    pub(crate) at_nodes: Option<u64>,
    pub(crate) at_edges: Option<u64>,
    pub(crate) in_cloud: Option<u64>,
    pub(crate) in_relay: Option<u64>,
    pub(crate) lost: Option<u64>,
    pub(crate) quarantined: Option<u64>,
    pub(crate) dead_letters: Option<u64>,
}

/// How many nodes are how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct NodeCounts {
    pub(crate) total: u64,
    pub(crate) online: u64,
    pub(crate) late: u64,
    pub(crate) offline: u64,
    pub(crate) never: u64,
    pub(crate) unknown: u64,
    pub(crate) with_backlog: u64,
    pub(crate) clock_unset: u64,
    pub(crate) flagged: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Liveness {
    Online,
    Late,
    Offline,
    Never,
    /// The site is away.
    Unknown,
}

/// A node in a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct NodeRow {
    pub(crate) site: String,
    pub(crate) node_id: String,
    pub(crate) label: String,
    pub(crate) tenant_id: Uuid,
    pub(crate) farm_id: Option<Uuid>,
    pub(crate) barn_id: Option<Uuid>,
    pub(crate) device_id: Uuid,
    /// By receipt.
    pub(crate) liveness: Liveness,
    pub(crate) last_rx_at: Option<Timestamp>,
    pub(crate) rx_age_s: Option<f64>,
    /// Freshness.
    pub(crate) last_sample_at: Option<Timestamp>,
    pub(crate) sample_age_s: Option<f64>,
    pub(crate) backlog: Option<u64>,
    /// For how long its oldest record waits; null when nothing does, or when the node does not say.
    pub(crate) oldest_age_s: Option<f64>,
    pub(crate) spool_bytes: Option<u64>,
    pub(crate) disk_free_bytes: Option<u64>,
    #[schema(pattern = "^(set|unset)$")]
    pub(crate) clock: Option<String>,
    pub(crate) drops: Option<u64>,
    pub(crate) stored: u64,
    pub(crate) lost: u64,
    pub(crate) quarantined: u64,
    pub(crate) rate_per_s: Option<f64>,
    pub(crate) version: Option<String>,
    pub(crate) disabled: bool,
    /// Why it is suspected.
    pub(crate) flagged: Option<String>,
    pub(crate) cuttable: bool,
    pub(crate) cut: bool,
}

/// A page of nodes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeList {
    pub(crate) total: usize,
    pub(crate) offset: usize,
    pub(crate) items: Vec<NodeRow>,
}

/// The last minutes of a node.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct NodeHistory {
    pub(crate) step_s: u64,
    pub(crate) at: Vec<Timestamp>,
    pub(crate) backlog: Vec<Option<u64>>,
    pub(crate) rate_per_s: Vec<Option<f64>>,
    pub(crate) sample_age_s: Vec<Option<f64>>,
}

/// Everything about one node.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodePage {
    pub(crate) node: NodeRow,
    pub(crate) enrolled_at: Timestamp,
    pub(crate) disabled_at: Option<Timestamp>,
    pub(crate) flagged_at: Option<Timestamp>,
    pub(crate) status_at: Option<Timestamp>,
    pub(crate) epoch: Option<Uuid>,
    pub(crate) epochs: u64,
    /// The node's highest sequence, where it was heard in this life of its spool.
    pub(crate) head: Option<u64>,
    pub(crate) acked: u64,
    pub(crate) received: u64,
    pub(crate) recovered: u64,
    pub(crate) cloned: u64,
    #[schema(value_type = Vec<Vec<u64>>)]
    pub(crate) lost_ranges: Vec<(u64, u64)>,
    pub(crate) history: NodeHistory,
}

/// What changed about nodes since the last tick.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NodeChanges {
    pub(crate) at: Timestamp,
    pub(crate) changed: Vec<NodeRow>,
    /// `SITE/NODE`.
    pub(crate) removed: Vec<String>,
    /// Changes beyond the first 200: ask for the list again.
    pub(crate) more: usize,
}

#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct AlertCounts {
    pub(crate) critical: usize,
    pub(crate) warning: usize,
}

/// How many alarms of the plant are how.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub(crate) struct AlarmCounts {
    pub(crate) active_unacknowledged: u64,
    pub(crate) active_acknowledged: u64,
    pub(crate) cleared_unacknowledged: u64,
    pub(crate) shelved: u64,
    pub(crate) flood: bool,
}

/// The picture at one moment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Picture {
    pub(crate) tick: u64,
    pub(crate) at: Timestamp,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) flow: Flow,
    pub(crate) totals: Totals,
    pub(crate) nodes: NodeCounts,
    pub(crate) alerts: AlertCounts,
    pub(crate) alarms: Option<AlarmCounts>,
}

/// Rate and holdings of a stage or link over time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowSeries {
    pub(crate) id: String,
    pub(crate) rate_per_s: Vec<Option<f64>>,
    pub(crate) held: Vec<Option<u64>>,
}

/// The last ten minutes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowHistory {
    pub(crate) step_s: u64,
    /// Oldest first.
    pub(crate) at: Vec<Timestamp>,
    pub(crate) series: Vec<FlowSeries>,
}

/// Cables that were cut or restored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Changed {
    pub(crate) changed: Vec<String>,
}
