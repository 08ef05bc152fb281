//! What buckets hold: a minute from its readings, an hour from its minutes, a day from its hours.
//!
//! Promise: the same rows give the same bits, in whichever order they came, because sums are taken in the order of their times.

use std::collections::BTreeMap;

use event::Window;
use jiff::{SignedDuration, Timestamp};
use pg::Transaction;
use tokio_postgres::Row;

use super::dirty::{Bucket, Columns};

/// A sample further ahead than this is a wrong clock, and is not the last of its series.
pub const AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// A reading that its sampler calls BAD or out of range is kept and does not count; nor does one of an absurd size, whose sum could overflow or whose
/// mean underflow and fail the bucket of its neighbours.
const FROM_READINGS: &str = "SELECT (k.place - 1)::int, r.metric_type, r.unit, count(*),
         count(*) FILTER (WHERE r.counts),
         sum(r.metric_value ORDER BY r.occurred_at, r.id) FILTER (WHERE r.counts),
         min(r.metric_value) FILTER (WHERE r.counts), max(r.metric_value) FILTER (WHERE r.counts),
         max(r.occurred_at) FILTER (WHERE r.counts), min(r.occurred_at), max(r.occurred_at)
     FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) WITH ORDINALITY
         AS k (tenant_id, device_id, start_at, place)
     CROSS JOIN LATERAL (
         SELECT id, occurred_at, metric_type, metric_value, unit,
             (quality IS NULL OR quality IN ('GOOD', 'UNCERTAIN'))
                 AND (metric_value = 0 OR abs(metric_value) BETWEEN 1e-250 AND 1e250) AS counts
         FROM telemetry_raw
         WHERE tenant_id = k.tenant_id AND device_id = k.device_id
             AND occurred_at >= k.start_at AND occurred_at < k.start_at + interval '1 minute') r
     GROUP BY 1, 2, 3";

const FROM_SHORTER: &str = "SELECT (k.place - 1)::int, a.metric_type, a.unit,
         sum(a.readings)::bigint, sum(a.count)::bigint, sum(a.sum_value ORDER BY a.bucket_start_at),
         min(a.min_value), max(a.max_value), max(a.bucket_start_at), min(a.bucket_start_at),
         max(a.bucket_start_at)
     FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) WITH ORDINALITY
         AS k (tenant_id, device_id, start_at, place)
     CROSS JOIN LATERAL (
         SELECT * FROM telemetry_agg
         WHERE tenant_id = k.tenant_id AND device_id = k.device_id AND \"window\" = $4
             AND bucket_start_at >= k.start_at
             AND bucket_start_at < k.start_at + make_interval(secs => $5)) a
     GROUP BY 1, 2, 3";

/// What a bucket holds of one metric in one unit.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    unit: String,
    readings: i64,
    count: i64,
    sum: f64,
    min: f64,
    max: f64,
    /// When the last one was that counts; `None` when none does.
    last_counted: Option<Timestamp>,
    first: Timestamp,
    last: Timestamp,
}

/// What a bucket holds of one metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) bucket: Bucket,
    pub(super) metric: String,
    /// Of the last one that counts; of the last one where none does.
    pub(super) unit: String,
    /// Every reading, those that do not count too.
    pub(super) readings: i64,
    /// `None` when nothing counts.
    pub(super) values: Option<Values>,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// The values of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Values {
    pub(super) count: i64,
    pub(super) sum: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// Reads what buckets hold.
pub(super) async fn compute(
    transaction: &Transaction<'_>,
    window: Window,
    buckets: &[Bucket],
) -> Result<Vec<Held>, pg::Error> {
    let Columns { tenants, devices, starts } = Columns::of(buckets);
    let rows = match window.shorter() {
        None => {
            let statement = transaction.prepare_cached(FROM_READINGS).await?;
            transaction.query(&statement, &[&tenants, &devices, &starts]).await?
        }
        Some(shorter) => {
            let statement = transaction.prepare_cached(FROM_SHORTER).await?;
            let span = window.span().as_secs_f64();
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&tenants, &devices, &starts, &shorter.as_str(), &span];
            transaction.query(&statement, &values).await?
        }
    };
    let mut parts: BTreeMap<(usize, String), Vec<Part>> = BTreeMap::new();
    for row in &rows {
        let place = usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX);
        parts.entry((place, row.get(1))).or_default().push(part(row));
    }
    let held = parts.into_iter().filter_map(|((place, metric), parts)| {
        buckets.get(place).and_then(|bucket| hold(*bucket, metric, parts))
    });
    Ok(held.collect())
}

fn part(row: &Row) -> Part {
    let value = |column| row.get::<_, Option<f64>>(column).unwrap_or_default();
    Part {
        unit: row.get(2),
        readings: row.get(3),
        count: row.get(4),
        sum: value(5),
        min: value(6),
        max: value(7),
        last_counted: row.get(8),
        first: row.get(9),
        last: row.get(10),
    }
}

/// A bucket has one unit: that of its latest reading that counts. Two of the same instant are told apart by their units' names, so that the choice
/// does not depend on who came first.
fn hold(bucket: Bucket, metric: String, mut parts: Vec<Part>) -> Option<Held> {
    parts.sort_by(|a, b| (a.last_counted, a.last, &a.unit).cmp(&(b.last_counted, b.last, &b.unit)));
    let readings = parts.iter().map(|part| part.readings).sum();
    let first = parts.iter().map(|part| part.first).min()?;
    let last = parts.iter().map(|part| part.last).max()?;
    let chosen = parts.pop()?;
    let values = (chosen.count > 0).then_some(Values {
        count: chosen.count,
        sum: chosen.sum,
        min: chosen.min,
        max: chosen.max,
    });
    Some(Held { bucket, metric, unit: chosen.unit, readings, values, first, last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn part(unit: &str, count: i64, bad: i64, last: i64) -> Part {
        Part {
            unit: unit.to_owned(),
            readings: count + bad,
            count,
            sum: 1.0,
            min: 1.0,
            max: 1.0,
            last_counted: (count > 0).then(|| at(last)),
            first: at(0),
            last: at(last),
        }
    }

    #[test]
    fn the_latest_that_counts_gives_the_unit_and_every_reading_is_counted_once() {
        let bucket = Bucket { tenant: Uuid::nil(), device: Uuid::nil(), start: at(0) };
        let hold = |parts: Vec<Part>| hold(bucket, "t".to_owned(), parts).unwrap();
        let parts = vec![part("F", 2, 0, 40), part("C", 5, 1, 30), part("K", 0, 3, 50)];
        let mut reversed = parts.clone();
        reversed.reverse();
        let held = hold(parts);
        assert_eq!(held, hold(reversed), "in any order");
        assert_eq!((held.unit.as_str(), held.readings), ("F", 11));
        assert_eq!(held.values.map(|values| values.count), Some(2));
        assert_eq!(held.last, at(50));
        assert_eq!(hold(vec![part("C", 0, 3, 50)]).values, None, "only bad ones");
        let tie = vec![part("C", 1, 0, 10), part("F", 1, 0, 10)];
        assert_eq!(hold(tie).unit, "F");
    }
}
