//! The steps that make hours, one at a time, on one replica at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use pg::About;
use tokio_util::sync::CancellationToken;

use crate::historian::metrics::Metrics;

/// How often it is looked whether there is something to do.
const EVERY: Duration = Duration::from_secs(1);
/// The shortest pause between two steps that did something; else it is as long as the step was, so that half of a core at most goes into them.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Hours that could not be made are left alone until the historian starts again, or until there are more than these.
const MAX_REFUSED: usize = 1_000;
/// Hours that one step of a search finds.
const SEARCH_STEP: i32 = 100;
/// One replica at a time. An older result must never be written over a newer one.
const LOCK: i64 = 0x686f_7572;

/// An hour of a very large plant takes longer than any query may. The newest rows are in no statistics yet, so the planner takes an hour of a million rows for an
/// hour of two: an index and a hash table are right for it, whatever it believes.
const SETTINGS: &str = "SET LOCAL statement_timeout = '10min'; SET LOCAL jit = off;
    SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL work_mem = '32MB'";

/// One row of each hour is enough.
const THIN_OUT: &str = "DELETE FROM telemetry_changes c
    USING (SELECT hour, max(ctid) AS kept FROM telemetry_changes GROUP BY hour HAVING count(*) > 1) AS many
    WHERE c.hour = many.hour AND c.ctid <> many.kept";

/// How many hours wait, the one that is next, whether all hours changed, and whether a search is under way. An hour that changes all the time is made every five minutes.
const LOOK: &str = "SELECT count(*),
        max(c.hour) FILTER (WHERE (h.rolled_at IS NULL OR h.rolled_at < now() - interval '5 minutes')
            AND c.hour <> ALL ($1::timestamptz[])),
        EXISTS (SELECT FROM telemetry_changes WHERE hour = '-infinity'),
        EXISTS (SELECT FROM telemetry_search)
    FROM (SELECT DISTINCT hour FROM telemetry_changes
          WHERE hour > '-infinity' AND hour <= now() - interval '61 minutes') AS c
    LEFT JOIN telemetry_hours h ON h.hour = c.hour";

/// The change goes first: whoever stores in between leaves another one.
const FORGET: &str = "DELETE FROM telemetry_changes WHERE hour = '-infinity';
    DELETE FROM telemetry_hours;
    INSERT INTO telemetry_search (before) VALUES ('infinity')
        ON CONFLICT (one) DO UPDATE SET before = excluded.before";

/// The plants, each found with one look into the index on (plant, timestamp): nothing leads from a time to its rows but that.
macro_rules! plants {
    () => {
        "WITH RECURSIVE plants AS (
            (SELECT plant FROM telemetry ORDER BY plant LIMIT 1)
            UNION ALL
            SELECT (SELECT t.plant FROM telemetry t WHERE t.plant > p.plant ORDER BY t.plant LIMIT 1)
            FROM plants p WHERE p.plant IS NOT NULL
        )"
    };
}

/// The hour before the last that was found, again and again; a null says that there is none.
const SEARCH: &str = concat!(
    plants!(),
    ", found (hour, place) AS (
        SELECT before, 0 FROM telemetry_search
        UNION ALL
        SELECT (SELECT date_bin('1 hour', max(n.at), '2000-01-01 00:00:00+00') FROM plants p
                CROSS JOIN LATERAL (SELECT t.timestamp AS at FROM telemetry t
                    WHERE t.plant = p.plant AND t.timestamp < f.hour
                    ORDER BY t.timestamp DESC LIMIT 1) AS n), f.place + 1
        FROM found f WHERE f.hour IS NOT NULL AND f.place < $1::int4
    ), noted AS (
        INSERT INTO telemetry_changes (hour) SELECT f.hour FROM found f
        WHERE f.place > 0 AND f.hour IS NOT NULL
            AND NOT EXISTS (SELECT FROM telemetry_hours h WHERE h.hour = f.hour)
    ), ended AS (
        DELETE FROM telemetry_search WHERE EXISTS (SELECT FROM found WHERE hour IS NULL)
    )
    UPDATE telemetry_search SET before = (SELECT min(hour) FROM found)
    WHERE NOT EXISTS (SELECT FROM found WHERE hour IS NULL)"
);

/// Of an hour that is marked only further rows can have come; what is there of any other may be of rows that are gone. The first condition has an index, the others say which month.
const CLEAR: &str = "DELETE FROM telemetry_minutes
    WHERE date_bin('1 hour', minute, '2000-01-01 00:00:00+00') = $1::timestamptz
        AND minute >= $1::timestamptz AND minute < $1::timestamptz + interval '1 hour'
        AND NOT EXISTS (SELECT FROM telemetry_hours WHERE hour = $1::timestamptz)";

/// The changes that are taken away, the rows and the mark are of one snapshot because it is one statement.
const ROLL: &str = concat!(
    plants!(),
    ", made AS (
        SELECT p.plant, m.* FROM plants p CROSS JOIN LATERAL (
            SELECT t.area, t.unit_name, t.tag, date_bin('1 minute', t.timestamp, $1::timestamptz) AS minute,
                min(t.value) AS min, max(t.value) AS max, sum(t.value) AS sum, count(*)::int4 AS count
            FROM telemetry t
            WHERE t.plant = p.plant AND t.timestamp >= $1::timestamptz
                AND t.timestamp < $1::timestamptz + interval '1 hour'
            GROUP BY 1, 2, 3, 4) AS m
    ), taken AS (
        DELETE FROM telemetry_changes WHERE hour = $1::timestamptz
    ), marked AS (
        INSERT INTO telemetry_hours (hour, rolled_at) VALUES ($1::timestamptz, now())
        ON CONFLICT (hour) DO UPDATE SET rolled_at = excluded.rolled_at
    )
    INSERT INTO telemetry_minutes AS m (minute, min, max, sum, count, plant, area, unit_name, tag)
    SELECT minute, min, max, sum, count, plant, area, unit_name, tag FROM made
    ORDER BY tag, plant, area, unit_name, minute
    ON CONFLICT (tag, plant, area, unit_name, minute)
        DO UPDATE SET min = excluded.min, max = excluded.max, sum = excluded.sum, count = excluded.count
        WHERE (m.min, m.max, m.sum, m.count)
            IS DISTINCT FROM (excluded.min, excluded.max, excluded.sum, excluded.count)"
);

/// Makes hours until it is told to stop. What is under way then is undone. The connection is one of its own: a long hour must not keep a batch waiting for one.
pub(crate) fn run(
    database: &pg::Options,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send + use<>, pg::Error> {
    let pool = pg::Pool::new(&pg::Options { max_connections: 1, ..database.clone() })?;
    Ok(steps(Roller { pool, metrics, refused: BTreeSet::new() }, stop))
}

async fn steps(mut roller: Roller, stop: CancellationToken) {
    loop {
        let started = Instant::now();
        let step = tokio::select! {
            () = stop.cancelled() => return,
            step = roller.step() => step,
        };
        let pause = match step {
            Ok(true) => started.elapsed().max(SHORTEST_PAUSE),
            Ok(false) => EVERY,
            Err(error) => {
                tracing::warn!(%error, "minutes of telemetry could not be made");
                EVERY
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

struct Roller {
    pool: pg::Pool,
    metrics: Arc<Metrics>,
    refused: BTreeSet<Timestamp>,
}

impl Roller {
    /// One step; whether there may be another at once.
    async fn step(&mut self) -> Result<bool, pg::Error> {
        let mut client = self.pool.get().await?;
        // Every statement has a snapshot of its own, so that what follows the lock sees what its last holder did.
        let transaction = client.transaction().await?;
        let lock = "SELECT pg_try_advisory_xact_lock($1)";
        let mine: bool = transaction.query_one(lock, &[&LOCK]).await?.get(0);
        if mine {
            transaction.execute(THIN_OUT, &[]).await?;
        }
        let refused: Vec<Timestamp> = self.refused.iter().copied().collect();
        let look = transaction.query_one(LOOK, &[&refused]).await?;
        self.metrics.hours_waiting(look.get(0));
        let (next, all, search): (Option<Timestamp>, bool, bool) =
            (look.get(1), look.get(2), look.get(3));
        if !mine {
            return Ok(false);
        }
        if all {
            // Whoever stores so will do it again soon: it is not worth beginning at once.
            transaction.batch_execute(FORGET).await?;
            transaction.commit().await?;
            tracing::info!("all hours of telemetry may have changed and are made again");
            return Ok(false);
        }
        if next.is_some() || search {
            transaction.batch_execute(SETTINGS).await?;
            for table in ["telemetry", "telemetry_minutes"] {
                pg::partitions::hold(&transaction, table).await?;
            }
        }
        if let Some(hour) = next {
            let made = async {
                transaction.execute(CLEAR, &[&hour]).await?;
                transaction.execute(ROLL, &[&hour]).await?;
                transaction.commit().await
            };
            match made.await.map_err(pg::Error::from) {
                Ok(()) => self.metrics.hour_rolled(),
                Err(error) if error.about() == About::Data => self.refuse(hour, &error),
                Err(error) => return Err(error),
            }
            return Ok(true);
        }
        if search {
            transaction.execute(SEARCH, &[&SEARCH_STEP]).await?;
        }
        transaction.commit().await?;
        Ok(search)
    }

    fn refuse(&mut self, hour: Timestamp, error: &pg::Error) {
        tracing::warn!(%hour, %error, "an hour of telemetry cannot be added up and is read by its samples");
        if self.refused.len() >= MAX_REFUSED {
            self.refused.clear();
        }
        self.refused.insert(hour);
    }
}
