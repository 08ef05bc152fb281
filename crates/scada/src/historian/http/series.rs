//! One tag over time, in a bounded number of points.
//!
//! When the samples fit they are shown as they are; else the time is cut into buckets of equal length, and each shows its lowest, highest
//! and average value and how many it has. A spike is in `max` or `min` however long the time, which an average would hide. Buckets of whole
//! minutes are made of `telemetry_minutes` as far as that counts, and are what the samples would give.

use api::Refused;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::query::{Parameters, wrong};
use super::{Bearer, Http, may_read, unavailable};
use crate::historian::rollup::floor_second;

const POINTS: i64 = 500;
const MAX_POINTS: i64 = 2_000;
const KNOWN: [&str; 7] = ["plant", "area", "unit_name", "tag", "from", "to", "points"];

const SAMPLES: &str = "SELECT timestamp, value, quality FROM telemetry
    WHERE tag = $1 AND timestamp >= $2 AND timestamp < $3 AND plant = $4 AND area = $5 AND unit_name = $6
    ORDER BY timestamp, event_id LIMIT $7";

/// The last instant of the range is in the last bucket, whatever the rounding.
const SHORT_BUCKETS: &str = "SELECT least(floor(extract(epoch FROM timestamp - $2::timestamptz)::float8 / $7::float8)::int8, $8::int8 - 1) AS bucket,
        min(value), max(value), avg(value), count(*)
    FROM telemetry
    WHERE tag = $1 AND timestamp >= $2 AND timestamp < $3 AND plant = $4 AND area = $5 AND unit_name = $6
    GROUP BY 1 ORDER BY 1";

/// Minutes where an hour counts, samples everywhere else: `runs` are hours that count and follow one another, from the first whole minute of the range ($9) to the last
/// ($10), and `rest` is what lies before, between and after them. One statement, so that all of it is of one snapshot. OFFSET keeps each run a look of its own into
/// the index, whatever the planner believes about the tables.
const BUCKETS: &str = "WITH rolled AS MATERIALIZED (
        SELECT h.hour FROM telemetry_hours h
        WHERE h.hour > $9::timestamptz - interval '1 hour' AND h.hour < $10::timestamptz
            AND NOT EXISTS (SELECT FROM telemetry_changes c WHERE c.hour = h.hour)
            AND NOT EXISTS (SELECT FROM telemetry_changes c WHERE c.hour = '-infinity')
    ), runs AS MATERIALIZED (
        SELECT greatest(min(hour), $9) AS since, least(max(hour) + interval '1 hour', $10) AS until
        FROM (SELECT hour, hour - row_number() OVER (ORDER BY hour) * interval '1 hour' AS run FROM rolled) AS r
        WHERE $9 < $10 GROUP BY run
    ), rest AS MATERIALIZED (
        SELECT since, until
        FROM (SELECT lag(until, 1, $2::timestamptz) OVER (ORDER BY since) AS since, since AS until
              FROM (SELECT since, until FROM runs UNION ALL SELECT $3::timestamptz, NULL) AS edges) AS gaps
        WHERE since < until
    )
    SELECT date_bin($7::float8 * interval '1 second', at, $8::timestamptz) AS bucket,
        min(p.min), max(p.max), sum(p.sum) / sum(p.count), sum(p.count)
    FROM (
        SELECT m.* FROM runs CROSS JOIN LATERAL (
            SELECT minute AS at, min, max, sum, count FROM telemetry_minutes
            WHERE tag = $1 AND plant = $4 AND area = $5 AND unit_name = $6
                AND minute >= runs.since AND minute < runs.until OFFSET 0) AS m
        UNION ALL
        SELECT t.* FROM rest CROSS JOIN LATERAL (
            SELECT timestamp, value, value, value, 1 FROM telemetry
            WHERE tag = $1 AND timestamp >= rest.since AND timestamp < rest.until
                AND plant = $4 AND area = $5 AND unit_name = $6 OFFSET 0) AS t
    ) AS p GROUP BY 1 ORDER BY 1";

/// Buckets shorter than this are not worth being rounded to whole minutes.
const SHORTEST_SECONDS: f64 = 30.0;
const MINUTE_SECONDS: i64 = 60;

pub(super) async fn series(
    State(http): State<Http>,
    Extension(token): Bearer,
    RawQuery(query): RawQuery,
) -> Response {
    match answer(&http, &token, query.as_deref()).await {
        Ok(value) => Json(value).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn answer(
    http: &Http,
    token: &api::tokens::Token,
    query: Option<&str>,
) -> Result<Value, Refused> {
    may_read(token)?;
    let question = Question::read(query)?;
    let (_place, client) = http.query().await?;
    question.answer(&client).await.map_err(|error| unavailable(&error.into()))
}

/// What is asked for.
struct Question {
    tag: String,
    from: Timestamp,
    to: Timestamp,
    plant: String,
    area: String,
    unit: String,
    points: i64,
}

impl Question {
    fn read(query: Option<&str>) -> Result<Question, Refused> {
        let parameters = Parameters::read(query, &KNOWN)?;
        let name = |name: &str| -> Result<String, Refused> {
            let text = parameters.needed(name)?;
            let name: event::scada::Tag =
                text.parse().map_err(|_| wrong(name, "1 to 128 of A-Z, 0-9 and underscore"))?;
            Ok(name.to_string())
        };
        let time = |name: &str| -> Result<Timestamp, Refused> {
            parameters.time(name)?.ok_or_else(|| wrong(name, "it to be there"))
        };
        let question = Question {
            plant: name("plant")?,
            area: name("area")?,
            unit: name("unit_name")?,
            tag: name("tag")?,
            from: time("from")?,
            to: time("to")?,
            points: parameters.number("points", (1, MAX_POINTS), POINTS)?,
        };
        if question.to <= question.from {
            return Err(wrong("to", "a time after from"));
        }
        Ok(question)
    }

    async fn answer(&self, client: &pg::Client) -> Result<Value, tokio_postgres::Error> {
        let Some(grid) = Grid::of(self.from, self.to, self.points) else {
            return match self.samples(client).await? {
                Some(samples) => Ok(samples),
                None => self.short_buckets(client).await,
            };
        };
        // How many samples there are costs little to say by the minute, and much by the samples of a tag that many units have.
        let (count, buckets) = self.buckets(client, &grid).await?;
        if count <= self.points
            && let Some(samples) = self.samples(client).await?
        {
            return Ok(samples);
        }
        Ok(buckets)
    }

    /// The parameters that every statement begins with, and those that follow.
    fn with<'a>(&'a self, more: &[&'a (dyn ToSql + Sync)]) -> Vec<&'a (dyn ToSql + Sync)> {
        let mut all: Vec<&(dyn ToSql + Sync)> =
            vec![&self.tag, &self.from, &self.to, &self.plant, &self.area, &self.unit];
        all.extend(more);
        all
    }

    /// Each sample, if they fit.
    async fn samples(&self, client: &pg::Client) -> Result<Option<Value>, tokio_postgres::Error> {
        let limit = self.points + 1;
        let rows = client.query(SAMPLES, &self.with(&[&limit])).await?;
        if i64::try_from(rows.len()).unwrap_or(i64::MAX) > self.points {
            return Ok(None);
        }
        let sample = |row: &Row| {
            let (at, value): (Timestamp, f64) = (row.get(0), row.get(1));
            json!({"at": at, "value": value, "quality": row.get::<_, &str>(2)})
        };
        let samples: Vec<Value> = rows.iter().map(sample).collect();
        Ok(Some(json!({"raw": true, "points": samples})))
    }

    async fn short_buckets(&self, client: &pg::Client) -> Result<Value, tokio_postgres::Error> {
        let seconds = self.to.duration_since(self.from).as_secs_f64();
        let width = seconds / f64::from(i32::try_from(self.points).unwrap_or(i32::MAX));
        let rows = client.query(SHORT_BUCKETS, &self.with(&[&width, &self.points])).await?;
        let place = |row: &Row| {
            let bucket = i32::try_from(row.get::<_, i64>(0)).unwrap_or(0);
            self.from + jiff::SignedDuration::from_secs_f64(width * f64::from(bucket))
        };
        Ok(shown(width, rows.iter().map(|row| bucket(place(row), row))))
    }

    /// Buckets of whole minutes, and how many samples they stand for.
    async fn buckets(
        &self,
        client: &pg::Client,
        grid: &Grid,
    ) -> Result<(i64, Value), tokio_postgres::Error> {
        let Grid { width, origin, since, until } = grid;
        let rows = client.query(BUCKETS, &self.with(&[width, origin, since, until])).await?;
        let count = rows.iter().map(|row| row.get::<_, i64>(4)).sum();
        Ok((count, shown(*width, rows.iter().map(|row| bucket(row.get(0), row)))))
    }
}

fn bucket(at: Timestamp, row: &Row) -> Value {
    let (min, max, avg): (f64, f64, f64) = (row.get(1), row.get(2), row.get(3));
    json!({"at": at, "min": min, "max": max, "avg": avg, "count": row.get::<_, i64>(4)})
}

fn shown(width: f64, buckets: impl Iterator<Item = Value>) -> Value {
    json!({"raw": false, "bucket_seconds": width, "points": buckets.collect::<Vec<_>>()})
}

/// Where buckets of whole minutes lie.
#[derive(Debug, PartialEq)]
struct Grid {
    /// The length of a bucket in seconds.
    width: f64,
    /// Where the first one begins.
    origin: Timestamp,
    /// The first whole minute of the range, and where the last one ends.
    since: Timestamp,
    until: Timestamp,
}

impl Grid {
    /// The finest of at most so many buckets; none if they would be too short for whole minutes.
    fn of(from: Timestamp, to: Timestamp, points: i64) -> Option<Grid> {
        let points = i32::try_from(points).ok()?;
        if to.duration_since(from).as_secs_f64() < SHORTEST_SECONDS * f64::from(points) {
            return None;
        }
        let down = |at: Timestamp| floor_second(at).div_euclid(MINUTE_SECONDS);
        let up = |at: Timestamp| {
            let whole = at.subsec_nanosecond() == 0 && at.as_second() % MINUTE_SECONDS == 0;
            down(at) + i64::from(!whole)
        };
        let minute = |number: i64| Timestamp::from_second(number * MINUTE_SECONDS).ok();
        let minutes = up(to) - down(from);
        let width = (minutes + i64::from(points) - 1) / i64::from(points);
        Some(Grid {
            width: f64::from(i32::try_from(width).ok()?) * 60.0,
            origin: minute(down(from))?,
            since: minute(up(from))?,
            until: minute(down(to))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_whole_minutes_and_no_more_than_asked_for() {
        let grid = |from: &str, to: &str, points| {
            let at = |text: &str| -> Timestamp { format!("2026-02-01T{text}Z").parse().unwrap() };
            let grid = Grid::of(at(from), at(to), points)?;
            let time = |at: Timestamp| at.to_string()[11..19].to_owned();
            Some((grid.width, time(grid.origin), time(grid.since), time(grid.until)))
        };
        let times = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        let wanted = |width, (origin, since, until): (String, String, String)| {
            Some((width, origin, since, until))
        };
        let whole = times("10:00:00", "10:00:00", "12:00:00");
        assert_eq!(grid("10:00:00", "12:00:00", 120), wanted(60.0, whole.clone()));
        assert_eq!(grid("10:00:00", "12:00:00", 240), wanted(60.0, whole.clone()));
        assert_eq!(grid("10:00:00", "12:00:00", 241), None);
        assert_eq!(grid("10:00:00", "12:00:00", 119), wanted(120.0, whole));
        // A ragged end is one more minute to hold.
        let ragged = times("10:00:00", "10:01:00", "12:00:00");
        assert_eq!(grid("10:00:00.5", "12:00:00.1", 121), wanted(60.0, ragged.clone()));
        assert_eq!(grid("10:00:59", "12:00:01", 120), wanted(120.0, ragged));
        // No whole minute is in it.
        let short = times("10:00:00", "10:01:00", "10:00:00");
        assert_eq!(grid("10:00:10", "10:00:50", 1), wanted(60.0, short));
        assert!(Grid::of(Timestamp::MIN, Timestamp::MAX, 2_000).is_none_or(|all| all.width > 0.0));
    }
}
