//! A site's answers, as far as the console reads them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use super::{Fault, QUICK, Remote};

/// Seconds over which the outbox's pace is asked for: long enough for a batch or two, short enough to see a cut.
const PACE_SECONDS: u32 = 10;

/// What a poll of a site finds.
#[derive(Debug, Clone)]
pub(crate) struct SiteFacts {
    pub(crate) nodes: Vec<NodeFact>,
    /// Absent where the site does not forward.
    pub(crate) outbox: Option<OutboxFacts>,
    /// By how many seconds its clock is ahead of ours, as far as it can be told; less than nothing when it is behind.
    pub(crate) clock_off_s: Option<f64>,
}

/// A node, as `GET /api/v1/nodes` of the edge has it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeFact {
    pub(crate) node_id: String,
    pub(crate) tenant_id: Uuid,
    pub(crate) farm_id: Option<Uuid>,
    pub(crate) barn_id: Option<Uuid>,
    pub(crate) device_id: Uuid,
    pub(crate) label: String,
    pub(crate) state: String,
    pub(crate) last_rx_at: Option<Timestamp>,
    pub(crate) last_sample_ts: Option<Timestamp>,
    pub(crate) enrolled_at: Timestamp,
    pub(crate) disabled_at: Option<Timestamp>,
    pub(crate) flagged_at: Option<Timestamp>,
    pub(crate) flag_reason: Option<String>,
    pub(crate) status: Option<Words>,
    pub(crate) status_at: Option<Timestamp>,
    pub(crate) stored: i64,
    pub(crate) recovered: i64,
    pub(crate) cloned: i64,
    pub(crate) quarantined: i64,
    pub(crate) epochs: i64,
    pub(crate) epoch: Option<Uuid>,
    pub(crate) acked: i64,
    pub(crate) received: i64,
    pub(crate) lost: i64,
    #[serde(default)]
    pub(crate) lost_ranges: Vec<(i64, i64)>,
    /// Of the lives before the newest; a site of the version before does not tell.
    #[serde(default)]
    pub(crate) produced_before: i64,
    #[serde(default)]
    pub(crate) lost_before: i64,
}

/// A node's last words about itself; a last will has none of them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Words {
    pub(crate) epoch: Option<Uuid>,
    pub(crate) head: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) backlog: Option<u64>,
    pub(crate) drops: Option<u64>,
    /// When this was said, by the node's clock.
    pub(crate) at: Option<Timestamp>,
    /// When the oldest record that waits was written, by the same clock.
    pub(crate) oldest_at: Option<Timestamp>,
    pub(crate) clock: Option<String>,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) version: Option<String>,
}

/// How the outbox stands.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OutboxFacts {
    pub(crate) at: Timestamp,
    pub(crate) tenants: Vec<TenantOutbox>,
}

/// The same of one tenant.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TenantOutbox {
    pub(crate) tenant_id: Uuid,
    pub(crate) rows: BTreeMap<String, i64>,
    pub(crate) stuck: i64,
    pub(crate) oldest_at: Option<Timestamp>,
    pub(crate) acked_per_second: f64,
    pub(crate) arriving_per_second: f64,
    pub(crate) last_acked_at: Option<Timestamp>,
    pub(crate) consecutive_failures: i32,
    pub(crate) paused_until: Option<Timestamp>,
    pub(crate) last_failure: Option<String>,
}

/// Dead letters of one reason and type.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DeadGroupFact {
    pub(crate) reason: Option<String>,
    pub(crate) event_type: String,
    pub(crate) tenant_id: Uuid,
    pub(crate) count: u64,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) last_at: Option<Timestamp>,
    pub(crate) sample_id: Option<Uuid>,
    pub(crate) sample_message: Option<String>,
}

/// Polls a site.
pub(crate) async fn poll(site: &Remote) -> Result<SiteFacts, Fault> {
    #[derive(Deserialize)]
    struct Nodes {
        nodes: Vec<NodeFact>,
    }
    let pace = [("pace_seconds", PACE_SECONDS.to_string())];
    let asked = Timestamp::now();
    let (nodes, outbox) = tokio::join!(
        site.get::<Nodes>("/api/v1/nodes", &[], QUICK),
        site.get::<OutboxFacts>("/api/v1/sync/stats", &pace, QUICK),
    );
    let outbox = match outbox {
        Ok(outbox) => Some(outbox),
        // A process without the role has no such route.
        Err(fault) if fault.is_not_found() => None,
        Err(fault) => return Err(fault),
    };
    let answered = Timestamp::now();
    let clock_off_s = outbox.as_ref().map(|outbox| clock_off(asked, outbox.at, answered));
    Ok(SiteFacts { nodes: nodes?.nodes, outbox, clock_off_s })
}

/// How far a clock is off that showed `at` at some time between asking and the answer: what it may be at the least.
fn clock_off(asked: Timestamp, at: Timestamp, answered: Timestamp) -> f64 {
    match at {
        at if at > answered => at.duration_since(answered).as_secs_f64(),
        at if at < asked => at.duration_since(asked).as_secs_f64(),
        _ => 0.0,
    }
}

/// What a site's database or disk is above its limit, in bytes. Without the role that watches it, a site does not say.
pub(crate) async fn disk_over_bytes(site: &Remote) -> Option<f64> {
    let text = site.text("/metrics", QUICK).await.ok()?;
    super::exposition::value(&text, "holdfast_edge_disk_over_bytes")
}

/// The dead letters of a site's outbox.
pub(crate) async fn dead_letters(site: &Remote) -> Result<Vec<DeadGroupFact>, Fault> {
    #[derive(Deserialize)]
    struct Groups {
        groups: Vec<DeadGroupFact>,
    }
    let found: Groups = site.get("/api/v1/sync/dead-letters", &[], QUICK).await?;
    Ok(found.groups)
}
