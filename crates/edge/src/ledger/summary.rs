//! The ledger at one moment, for the manifest of a backup.

use event::ledger::{LedgerSummary, StreamSummary};
use pg::Error;
use tokio_postgres::Transaction;

const STREAMS: &str = "SELECT tenant_id, stream, epoch, acked, received_count, lost_count
FROM ledger_frontier ORDER BY stream, epoch";

const HASH: &str = "SELECT encode(sha256(convert_to(coalesce(string_agg(line, E'\\n' ORDER BY line), ''), 'UTF8')), 'hex')
FROM (SELECT concat_ws(' ', 'frontier', stream, epoch, acked, received, lost) AS line
      FROM ledger_frontier
      UNION ALL
      SELECT concat_ws(' ', 'block', stream, epoch, block, count, encode(hash, 'hex'))
      FROM ledger_block) AS lines";

/// Reads it in a transaction, whose snapshot a dump may share.
pub async fn summary(transaction: &Transaction<'_>) -> Result<LedgerSummary, Error> {
    let rows = transaction.query(STREAMS, &[]).await?;
    let each = rows.iter().map(|row| StreamSummary {
        tenant_id: row.get(0),
        stream: row.get(1),
        epoch: row.get(2),
        acked: row.get(3),
        received_count: row.get(4),
        lost_count: row.get(5),
    });
    let streams = each.collect();
    Ok(LedgerSummary { streams, hash: transaction.query_one(HASH, &[]).await?.try_get(0)? })
}
