//! Sequences whose readings stay at the site: the cloud is told of them by way of the tombstones.
//!
//! Ingress collects them in `ledger_frontier.kept`; here they become rows of `ledger_tombstone`, one for each contiguous range, seldom enough that
//! the accounting is small beside what it accounts for. One statement, so that a range is in one of the two and never in neither.

use pg::Client;

/// Streams handled by one statement.
const STREAMS: i64 = 500;

/// A stream that ingress holds at the moment has its turn later.
const TELL: &str = "WITH due AS (
         SELECT stream, epoch, tenant_id, kept FROM ledger_frontier WHERE kept <> '{}'
         ORDER BY stream, epoch LIMIT $1 FOR UPDATE SKIP LOCKED),
     told AS (
         INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count, reason, origin)
         SELECT d.tenant_id, d.stream, d.epoch, d.kept[i], d.kept[i + 1],
             d.kept[i + 1] - d.kept[i] + 1, 'kept_at_site', 'edge'
         FROM due d CROSS JOIN LATERAL generate_series(1, cardinality(d.kept), 2) AS i
         ON CONFLICT DO NOTHING)
     UPDATE ledger_frontier f SET kept = '{}' FROM due d
     WHERE f.stream = d.stream AND f.epoch = d.epoch";

/// Turns what was kept until now into tombstones. Returns how many streams had something.
pub(super) async fn tell(client: &Client) -> Result<u64, pg::Error> {
    let statement = client.prepare_cached(TELL).await?;
    Ok(client.execute(&statement, &[&STREAMS]).await?)
}
