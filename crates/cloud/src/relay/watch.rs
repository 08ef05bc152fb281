//! Whether the backlog moves, by looking at the table from time to time.

use std::time::Duration;

use super::meter::Meter;

/// Counting stops here: a gauge that says "this many or more" costs little at any backlog.
const COUNT_LIMIT: i64 = 100_000;

/// The outbox at a glance. Counts end at a hundred thousand.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Glance {
    /// The row that has been due longest, held or not, and for how many seconds.
    pub oldest: Option<(i64, f64)>,
    /// Events that wait or are held.
    pub rows: i64,
    /// Dead letters.
    pub dead: i64,
}

/// Looks.
pub async fn glance(pool: &pg::Pool) -> Result<Glance, pg::Error> {
    let client = pool.get().await?;
    let statement = client
        .prepare_cached(
            "SELECT oldest.id, oldest.age,
                 (SELECT count(*) FROM (
                      SELECT FROM relay_outbox WHERE NOT finished LIMIT $1) AS few),
                 (SELECT count(*) FROM (
                      SELECT FROM relay_outbox WHERE finished AND status = 'dlq' LIMIT $1) AS few)
             FROM (SELECT) AS one LEFT JOIN LATERAL (
                 SELECT id, extract(epoch FROM now() - next_attempt_at)::float8 AS age
                 FROM relay_outbox WHERE NOT finished AND next_attempt_at <= now()
                 ORDER BY next_attempt_at LIMIT 1) AS oldest ON true",
        )
        .await?;
    let row = client.query_one(&statement, &[&COUNT_LIMIT]).await?;
    let (id, age): (Option<i64>, Option<f64>) = (row.get(0), row.get(1));
    Ok(Glance { oldest: id.zip(age), rows: row.get(2), dead: row.get(3) })
}

/// Tells a backlog that moves from one that does not. Pure: time is passed in.
#[derive(Debug)]
pub(super) struct Drain {
    stalled_after: Duration,
    progress: u64,
    oldest: Option<i64>,
    /// When something last moved.
    moved_at: Duration,
}

impl Drain {
    pub(super) fn new(stalled_after: Duration) -> Drain {
        Drain { stalled_after, progress: 0, oldest: None, moved_at: Duration::ZERO }
    }

    /// `progress` counts what this process has finished; `oldest` is the row that has been due
    /// longest, which changes when any relay works. True when rows are due and nothing has moved for
    /// too long.
    pub(super) fn observe(&mut self, now: Duration, progress: u64, oldest: Option<i64>) -> bool {
        if oldest.is_none() || progress != self.progress || oldest != self.oldest {
            self.moved_at = now;
        }
        (self.progress, self.oldest) = (progress, oldest);
        now.saturating_sub(self.moved_at) >= self.stalled_after
    }
}

impl Glance {
    pub(super) fn show(&self, stalled: bool, meter: &Meter) {
        meter.backlog.set(number(self.rows));
        meter.dead.set(number(self.dead));
        meter.oldest.set(self.oldest.map_or(0.0, |(_, age)| age));
        meter.stalled.set(f64::from(u8::from(stalled)));
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts end at 100,000")]
fn number(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_backlog_that_nobody_moves_is_stalled_after_its_time() {
        let mut drain = Drain::new(10 * SECOND);
        assert!(!drain.observe(SECOND, 0, None), "nothing is due");
        assert!(!drain.observe(60 * SECOND, 0, Some(1)), "it became due just now");
        assert!(!drain.observe(69 * SECOND, 0, Some(1)));
        assert!(drain.observe(70 * SECOND, 0, Some(1)));
        assert!(drain.observe(90 * SECOND, 0, Some(1)));
        assert!(!drain.observe(91 * SECOND, 0, Some(7)), "another relay works");
        assert!(!drain.observe(102 * SECOND, 5, Some(7)), "this one works");
        assert!(drain.observe(112 * SECOND, 5, Some(7)));
        assert!(!drain.observe(113 * SECOND, 5, None), "all is drained");
    }
}
