//! The counts in the node's Postgres, written in the transaction of what they count.

use super::counts::{Counts, SeriesDay, Tally};

/// The id of the counts, if it is new. A few old ones go each time: the table stays as long as it must, and no sweep is needed.
const REMEMBER: &str = "WITH gone AS (
    DELETE FROM analytics_batch WHERE id IN (
        SELECT id FROM analytics_batch WHERE counted_at < now() - interval '30 days'
        ORDER BY counted_at LIMIT 10)
)
INSERT INTO analytics_batch (id) VALUES ($1) ON CONFLICT DO NOTHING";

/// Ordered by the key, so that two writers take their row locks in one order.
const COUNT: &str = "INSERT INTO analytics_ledger AS l
    (node_id, plant, area, unit_name, tag, day, readings, kept, reduced, derived)
SELECT * FROM unnest($1::int4[], $2::text[], $3::text[], $4::text[], $5::text[], $6::date[],
    $7::int8[], $8::int8[], $9::int8[], $10::int8[])
    AS n(node_id, plant, area, unit_name, tag, day, readings, kept, reduced, derived)
ORDER BY 1, 2, 3, 4, 5, 6
ON CONFLICT (node_id, plant, area, unit_name, tag, day) DO UPDATE SET
    readings = l.readings + excluded.readings,
    kept = l.kept + excluded.kept,
    reduced = l.reduced + excluded.reduced,
    derived = l.derived + excluded.derived,
    updated_at = now()";

/// Adds the counts to the ledger, in the caller's transaction. Counts that are there already change nothing. Returns whether they
/// were new.
pub async fn count(transaction: &pg::Transaction<'_>, counts: &Counts) -> Result<bool, pg::Error> {
    if counts.is_empty() {
        return Ok(false);
    }
    let remember = transaction.prepare_cached(REMEMBER).await?;
    if transaction.execute(&remember, &[&counts.id]).await? == 0 {
        return Ok(false);
    }
    let add = transaction.prepare_cached(COUNT).await?;
    let nodes: Vec<i32> = counts.iter().map(|(series, _)| i32::from(series.node_id)).collect();
    let words = |word: fn(&SeriesDay) -> &str| -> Vec<&str> {
        counts.iter().map(|(series, _)| word(series)).collect()
    };
    let numbers = |number: fn(&Tally) -> i64| -> Vec<i64> {
        counts.iter().map(|(_, tally)| number(tally)).collect()
    };
    let days: Vec<_> = counts.iter().map(|(series, _)| series.day).collect();
    transaction
        .execute(
            &add,
            &[
                &nodes,
                &words(|series| &series.plant),
                &words(|series| &series.area),
                &words(|series| &series.unit),
                &words(|series| &series.tag),
                &days,
                &numbers(|tally| tally.readings),
                &numbers(|tally| tally.kept),
                &numbers(|tally| tally.reduced),
                &numbers(|tally| tally.derived),
            ],
        )
        .await?;
    Ok(true)
}
