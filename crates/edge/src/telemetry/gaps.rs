//! Known gaps of a device: what the streams that serve it have lost, with the reason.

use event::ledger::RangeSet;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::query::Range;

/// The most gaps of an answer, the latest declared.
const MOST: i64 = 1_000;

/// Where the times of what was lost are not known, a gap is shown that was declared after the range began. A dead
/// letter that the edge archived (`expired`) never reached the cloud, and its reading is here: it is left out before the
/// limit is counted, because there may be very many of them.
const GAPS: &str = "WITH streams AS (
         SELECT node_id FROM devices WHERE tenant_id = $1 AND device_id = $2
         UNION SELECT node_id FROM nodes WHERE tenant_id = $1 AND device_id = $2)
     SELECT t.stream, t.epoch, t.from_seq, t.to_seq, t.first_at, t.last_at, t.reason, t.origin, f.lost
     FROM streams s JOIN ledger_tombstone t ON t.stream = s.node_id
     LEFT JOIN ledger_frontier f ON f.stream = t.stream AND f.epoch = t.epoch
     WHERE t.tenant_id = $1 AND t.reason NOT IN ('quarantined', 'duplicate', 'kept_at_site')
         AND NOT (t.origin = 'edge' AND t.reason = 'expired')
         AND CASE WHEN t.first_at IS NULL OR t.last_at IS NULL THEN t.recorded_at >= $3
                  ELSE t.last_at >= $3 AND t.first_at < $4 END
     ORDER BY t.recorded_at DESC, t.stream, t.epoch, t.from_seq LIMIT $5";

/// A range of a stream that was lost.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Gap {
    stream: String,
    epoch: Uuid,
    from_seq: i64,
    to_seq: i64,
    /// How many of them are still lost.
    pub(super) lost: u64,
    pub(super) from: Option<Timestamp>,
    pub(super) to: Option<Timestamp>,
    pub(super) reason: String,
    origin: String,
}

/// The gaps in a range.
pub(super) async fn gaps(client: &pg::Client, range: &Range) -> Result<Vec<Gap>, pg::Error> {
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&range.tenant, &range.device, &range.from, &range.to, &MOST];
    let rows = client.query(GAPS, &values).await?;
    let gap = |row: &tokio_postgres::Row| {
        let (from_seq, to_seq): (i64, i64) = (row.get(2), row.get(3));
        let reason: String = row.get(6);
        let (from, to) = (from_seq.unsigned_abs(), to_seq.unsigned_abs());
        // Whoever gave it up, a node or the edge, it may have arrived after all. What a restored edge adopted counts as
        // received, and its readings are in the cloud alone.
        let lost = match reason.as_str() {
            "held_by_cloud" => to - from + 1,
            _ => still_lost(row.get::<_, Option<Vec<i64>>>(8), from, to),
        };
        let times = (row.get::<_, Option<Timestamp>>(4), row.get::<_, Option<Timestamp>>(5));
        let known = times.0.zip(times.1);
        (lost > 0).then(|| Gap {
            stream: row.get(0),
            epoch: row.get(1),
            from_seq,
            to_seq,
            lost,
            from: known.map(|(first, _)| first),
            to: known.map(|(_, last)| last),
            reason,
            origin: row.get(7),
        })
    };
    Ok(rows.iter().filter_map(gap).collect())
}

/// How many sequences of a range are in the frontier's lost ones. A frontier that cannot be read hides no gap.
fn still_lost(lost: Option<Vec<i64>>, from: u64, to: u64) -> u64 {
    let Some(Ok(lost)) = lost.map(|flat| RangeSet::from_flat(&flat)) else {
        return to - from + 1;
    };
    let within = lost.ranges().iter().map(|(first, last)| {
        let (first, last) = ((*first).max(from), (*last).min(to));
        if first <= last { last - first + 1 } else { 0 }
    });
    within.sum()
}

#[cfg(test)]
mod tests {
    use super::still_lost;

    #[test]
    fn what_arrived_after_all_is_no_gap() {
        assert_eq!(still_lost(Some(vec![3, 5, 8, 20]), 4, 10), 2 + 3);
        assert_eq!(still_lost(Some(vec![]), 4, 10), 0);
        assert_eq!(still_lost(None, 4, 10), 7);
        assert_eq!(still_lost(Some(vec![9]), 4, 10), 7, "damaged");
    }
}
