//! The nodes as an operator sees them: who is there, how fresh, what they hold back, what went
//! wrong.

use api::tokens::Tenants;
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{Error, State};
use crate::config::Liveness;
use crate::sync::admin::scope;

/// One node, with what its stream's newest epoch shows. Times are receipt times unless they say
/// sample.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
    /// Its id, which is also its stream.
    pub node_id: String,
    /// Whose data it sends.
    pub tenant_id: Uuid,
    /// The farm it stands on.
    pub farm_id: Option<Uuid>,
    /// The barn it stands in.
    pub barn_id: Option<Uuid>,
    /// The device of samples that name none.
    pub device_id: Uuid,
    /// A name for people.
    pub label: String,
    /// Whether it is there.
    pub state: State,
    /// When something of it was last received.
    pub last_rx_at: Option<Timestamp>,
    /// The newest sample.
    pub last_sample_ts: Option<Timestamp>,
    /// When it was let in.
    pub enrolled_at: Timestamp,
    /// Since when it is shut out.
    pub disabled_at: Option<Timestamp>,
    /// Since when it is suspected, of what.
    pub flagged_at: Option<Timestamp>,
    /// Why.
    pub flag_reason: Option<String>,
    /// Its own last words about itself, as `node-edge.md` has them.
    pub status: Option<serde_json::Value>,
    /// When they were received.
    pub status_at: Option<Timestamp>,
    /// Events stored from it, over all epochs.
    pub stored: i64,
    /// Events stored after they had been declared lost.
    pub recovered: i64,
    /// Events stored under a sequence that was taken: a cloned card.
    pub cloned: i64,
    /// Records and messages in quarantine.
    pub quarantined: i64,
    /// Epochs seen: 1 unless the card was re-imaged.
    pub epochs: i64,
    /// The newest epoch.
    pub epoch: Option<Uuid>,
    /// The newest epoch's highest sequence up to which nothing is missing.
    pub acked: i64,
    /// Sequences received in the newest epoch.
    pub received: i64,
    /// Sequences declared lost in the newest epoch.
    pub lost: i64,
    /// The same as ranges, both ends included.
    pub lost_ranges: Vec<(i64, i64)>,
    /// The highest sequences known of all earlier epochs, added up: what the node made before its card was re-imaged.
    pub produced_before: i64,
    /// Sequences declared lost in all earlier epochs.
    pub lost_before: i64,
}

const QUERY: &str = "
SELECT n.node_id, n.tenant_id, n.farm_id, n.barn_id, n.device_id, n.label,
       n.last_rx_at, n.last_sample_ts, n.enrolled_at, n.disabled_at, n.flagged_at, n.flag_reason,
       n.status, n.status_at, n.stored_count, n.recovered_count, n.cloned_count,
       (SELECT count(*) FROM ingress_quarantine q WHERE q.node_id = n.node_id),
       e.epochs,
       f.epoch, coalesce(f.acked, 0), coalesce(f.received_count, 0), coalesce(f.lost_count, 0),
       coalesce(f.lost, '{}'), e.produced - coalesce(f.highest, 0), e.lost - coalesce(f.lost_count, 0)
FROM nodes n
LEFT JOIN LATERAL (SELECT l.*, greatest(l.acked, l.received[cardinality(l.received)], l.lost[cardinality(l.lost)]) AS highest FROM ledger_frontier l WHERE l.stream = n.node_id
                   ORDER BY l.epoch DESC LIMIT 1) f ON true
CROSS JOIN LATERAL (SELECT count(*) AS epochs, coalesce(sum(l.lost_count), 0)::int8 AS lost,
                           coalesce(sum(greatest(l.acked, l.received[cardinality(l.received)], l.lost[cardinality(l.lost)])), 0)::int8 AS produced
                    FROM ledger_frontier l WHERE l.stream = n.node_id) e
WHERE $1::uuid[] IS NULL OR n.tenant_id = ANY($1)
ORDER BY n.node_id";

/// Every node, in the order of their ids.
pub async fn list(
    client: &Client,
    now: Timestamp,
    thresholds: &Liveness,
) -> Result<Vec<Node>, Error> {
    list_of(client, &Tenants::All, now, thresholds).await
}

/// Every node of these tenants, in the order of their ids.
pub(super) async fn list_of(
    client: &Client,
    tenants: &Tenants,
    now: Timestamp,
    thresholds: &Liveness,
) -> Result<Vec<Node>, Error> {
    let rows = client.query(QUERY, &[&scope(tenants)]).await?;
    Ok(rows.iter().map(|row| node(row, now, thresholds)).collect())
}

fn node(row: &Row, now: Timestamp, thresholds: &Liveness) -> Node {
    let last_rx_at = row.get(6);
    let lost: Vec<i64> = row.get(23);
    Node {
        node_id: row.get(0),
        tenant_id: row.get(1),
        farm_id: row.get(2),
        barn_id: row.get(3),
        device_id: row.get(4),
        label: row.get(5),
        state: State::judge(last_rx_at, now, thresholds),
        last_rx_at,
        last_sample_ts: row.get(7),
        enrolled_at: row.get(8),
        disabled_at: row.get(9),
        flagged_at: row.get(10),
        flag_reason: row.get(11),
        status: row.get(12),
        status_at: row.get(13),
        stored: row.get(14),
        recovered: row.get(15),
        cloned: row.get(16),
        quarantined: row.get(17),
        epochs: row.get(18),
        epoch: row.get(19),
        acked: row.get(20),
        received: row.get(21),
        lost: row.get(22),
        lost_ranges: lost.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
        produced_before: row.get(24),
        lost_before: row.get(25),
    }
}
