//! `kpi_metric_day`, computed again for every day that is marked.

use jiff::civil::Date;
use pg::Transaction;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::consume::hold::wait;
use crate::consume::{ANALYTICS_SERVICE, Options};

/// Days computed in one transaction; each reads up to 1440 minutes.
const DAYS: i64 = 100;

const CLAIM: &str = "SELECT tenant_id, farm_id, barn_id, metric_type, unit, day FROM kpi_mark
     WHERE marked_at <= clock_timestamp() - make_interval(secs => $1)
     LIMIT $2 FOR UPDATE SKIP LOCKED";

const UNMARK: &str = "DELETE FROM kpi_mark t
     USING unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::date[])
         AS k (tenant_id, farm_id, barn_id, metric_type, unit, day)
     WHERE t.tenant_id = k.tenant_id AND t.farm_id = k.farm_id AND t.barn_id = k.barn_id
         AND t.metric_type = k.metric_type AND t.unit = k.unit AND t.day = k.day";

/// A minute is in range when its mean is. Time is counted in minutes, so a device that samples often
/// weighs no more than one that does not.
///
/// A site's own aggregates (`e`) are about the same readings as the minutes (`r`), so the two are never added up: of each bucket the
/// fuller of the two counts. Of several windows the finest that was sent for the day is taken, and a bucket stands for all its minutes.
const STORE: &str =
    "INSERT INTO kpi_metric_day AS t (tenant_id, farm_id, barn_id, metric_type, unit,
         day, sample_count, mean_value, min_value, max_value, minutes_observed, minutes_in_range,
         range_low, range_high)
     SELECT k.tenant_id, k.farm_id, k.barn_id, k.metric_type, k.unit, k.day, c.n, c.total / c.n,
         c.lowest, c.highest, c.minutes,
         CASE WHEN k.low IS NOT NULL THEN c.in_range END, k.low, k.high
     FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::date[],
             $7::float8[], $8::float8[])
         AS k (tenant_id, farm_id, barn_id, metric_type, unit, day, low, high)
     CROSS JOIN LATERAL (SELECT k.day::timestamp AT TIME ZONE 'UTC' AS day_start,
         (k.day + 1)::timestamp AT TIME ZONE 'UTC' AS day_end) d
     CROSS JOIN LATERAL (
         SELECT coalesce(min(CASE b.aggregation_window WHEN '1m' THEN 1 WHEN '1h' THEN 60
             ELSE 1440 END), 1) AS width
         FROM kpi_edge_bucket b
         WHERE b.tenant_id = k.tenant_id AND b.farm_id = k.farm_id AND b.barn_id = k.barn_id
             AND b.metric_type = k.metric_type AND b.unit = k.unit
             AND b.bucket_start >= d.day_start AND b.bucket_start < d.day_end) w
     CROSS JOIN LATERAL (
         SELECT sum(x.n)::bigint AS n, sum(x.total) AS total, min(x.lowest) AS lowest,
             max(x.highest) AS highest, sum(x.minutes)::int AS minutes,
             sum(x.in_range)::int AS in_range
         FROM (
             SELECT CASE WHEN e.n > coalesce(r.n, 0) THEN e.n ELSE r.n END AS n,
                 CASE WHEN e.n > coalesce(r.n, 0) THEN e.total ELSE r.total END AS total,
                 CASE WHEN e.n > coalesce(r.n, 0) THEN e.lowest ELSE r.lowest END AS lowest,
                 CASE WHEN e.n > coalesce(r.n, 0) THEN e.highest ELSE r.highest END AS highest,
                 CASE WHEN e.n > coalesce(r.n, 0) THEN w.width ELSE r.minutes END AS minutes,
                 CASE WHEN e.n <= coalesce(r.n, 0) OR e.n IS NULL THEN r.in_range
                      WHEN e.total / e.n BETWEEN k.low AND k.high THEN w.width
                      ELSE 0 END AS in_range
             FROM (
                 SELECT date_bin(make_interval(mins => w.width), m.minute, d.day_start) AS bucket,
                     sum(m.sample_count) AS n, sum(m.sum_value) AS total,
                     min(m.min_value) AS lowest, max(m.max_value) AS highest,
                     count(*) AS minutes,
                     count(*) FILTER (WHERE m.sum_value / m.sample_count
                         BETWEEN k.low AND k.high) AS in_range
                 FROM kpi_minute m
                 WHERE m.tenant_id = k.tenant_id AND m.farm_id = k.farm_id
                     AND m.barn_id = k.barn_id AND m.metric_type = k.metric_type
                     AND m.unit = k.unit
                     AND m.minute >= d.day_start AND m.minute < d.day_end
                 GROUP BY 1) r
             FULL JOIN (
                 SELECT b.bucket_start AS bucket, sum(b.sample_count) AS n,
                     sum(b.sum_value) AS total, min(b.min_value) AS lowest,
                     max(b.max_value) AS highest
                 FROM kpi_edge_bucket b
                 WHERE b.tenant_id = k.tenant_id AND b.farm_id = k.farm_id
                     AND b.barn_id = k.barn_id AND b.metric_type = k.metric_type
                     AND b.unit = k.unit AND b.aggregation_window
                         = CASE w.width WHEN 1 THEN '1m' WHEN 60 THEN '1h' ELSE '1d' END
                     AND b.bucket_start >= d.day_start AND b.bucket_start < d.day_end
                 GROUP BY 1) e ON e.bucket = r.bucket) x) c
     WHERE c.n > 0
     ORDER BY 1, 6, 2, 3, 4, 5
     ON CONFLICT (tenant_id, day, farm_id, barn_id, metric_type, unit) DO UPDATE SET
         sample_count = excluded.sample_count, mean_value = excluded.mean_value,
         min_value = excluded.min_value, max_value = excluded.max_value,
         minutes_observed = excluded.minutes_observed,
         minutes_in_range = excluded.minutes_in_range, range_low = excluded.range_low,
         range_high = excluded.range_high, updated_at = now()";

/// Keeps the days right, until told to stop.
pub(super) async fn run(pool: pg::Pool, stop: CancellationToken, options: Options) {
    let mut pause = options.poll;
    while !stop.is_cancelled() {
        match turn(&pool, &options).await {
            Ok(0) => {
                pause = options.poll;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(options.poll) => {}
                }
            }
            Ok(_) => pause = options.poll,
            Err(error) => {
                tracing::warn!(service = ANALYTICS_SERVICE, %error, "KPIs wait");
                let _ = wait(&mut pause, &stop).await;
            }
        }
    }
}

async fn turn(pool: &pg::Pool, options: &Options) -> Result<usize, pg::Error> {
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let done = compute(&transaction, options).await?;
    transaction.commit().await?;
    Ok(done)
}

/// Computes some days. The mark is locked before the minutes are read, in a statement of its own, so
/// that every minute whose mark was there is seen.
async fn compute(transaction: &Transaction<'_>, options: &Options) -> Result<usize, pg::Error> {
    let statement = transaction.prepare_cached(CLAIM).await?;
    let ripe = options.ripen_days.as_secs_f64();
    let claimed = transaction.query(&statement, &[&ripe, &DAYS]).await?;
    if claimed.is_empty() {
        return Ok(0);
    }
    let of = |column: usize| -> Vec<Uuid> { claimed.iter().map(|row| row.get(column)).collect() };
    let (tenants, farms, barns) = (of(0), of(1), of(2));
    let metrics: Vec<String> = claimed.iter().map(|row| row.get(3)).collect();
    let units: Vec<String> = claimed.iter().map(|row| row.get(4)).collect();
    let days: Vec<Date> = claimed.iter().map(|row| row.get(5)).collect();
    let range = metrics.iter().zip(&units).map(|(metric, unit)| options.ranges.of(metric, unit));
    let (low, high): (Vec<Option<f64>>, Vec<Option<f64>>) =
        range.map(|range| (range.map(|r| r.0), range.map(|r| r.1))).unzip();
    let statement = transaction.prepare_cached(STORE).await?;
    transaction
        .execute(&statement, &[&tenants, &farms, &barns, &metrics, &units, &days, &low, &high])
        .await?;
    let statement = transaction.prepare_cached(UNMARK).await?;
    transaction.execute(&statement, &[&tenants, &farms, &barns, &metrics, &units, &days]).await?;
    Ok(claimed.len())
}
