//! One tag over time, in a bounded number of points.
//!
//! When the samples fit they are shown as they are; else the time is cut into buckets of equal length, and each shows its lowest, highest
//! and average value and how many it has. A spike is in `max` or `min` however long the time, which an average would hide.

use api::Refused;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::{Parameters, wrong};
use super::{Bearer, Http, may_read, unavailable};

const POINTS: i64 = 500;
const MAX_POINTS: i64 = 2_000;
const KNOWN: [&str; 7] = ["plant", "area", "unit_name", "tag", "from", "to", "points"];

const SAMPLES: &str = "SELECT timestamp, value, quality FROM telemetry
    WHERE tag = $1 AND timestamp >= $2 AND timestamp < $3 AND plant = $4 AND area = $5 AND unit_name = $6
    ORDER BY timestamp, event_id LIMIT $7";

/// The last instant of the range is in the last bucket, whatever the rounding.
const BUCKETS: &str = "SELECT least(floor(extract(epoch FROM timestamp - $2::timestamptz)::float8 / $7::float8)::int8, $8::int8 - 1) AS bucket,
        min(value), max(value), avg(value), count(*)
    FROM telemetry
    WHERE tag = $1 AND timestamp >= $2 AND timestamp < $3 AND plant = $4 AND area = $5 AND unit_name = $6
    GROUP BY 1 ORDER BY 1";

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
    let parameters = Parameters::read(query, &KNOWN)?;
    let name = |name: &str| -> Result<String, Refused> {
        let text = parameters.needed(name)?;
        let name: event::scada::Tag =
            text.parse().map_err(|_| wrong(name, "1 to 128 of A-Z, 0-9 and underscore"))?;
        Ok(name.to_string())
    };
    let (plant, area, unit, tag) =
        (name("plant")?, name("area")?, name("unit_name")?, name("tag")?);
    let time = |name: &str| -> Result<Timestamp, Refused> {
        parameters.time(name)?.ok_or_else(|| wrong(name, "it to be there"))
    };
    let (from, to) = (time("from")?, time("to")?);
    if to <= from {
        return Err(wrong("to", "a time after from"));
    }
    let points = parameters.number("points", (1, MAX_POINTS), POINTS)?;
    let (_place, client) = http.query().await?;
    let failed = |error: tokio_postgres::Error| unavailable(&error.into());
    let rows = client
        .query(SAMPLES, &[&tag, &from, &to, &plant, &area, &unit, &(points + 1)])
        .await
        .map_err(failed)?;
    if i64::try_from(rows.len()).unwrap_or(i64::MAX) <= points {
        let samples: Vec<Value> = rows
            .iter()
            .map(|row| {
                let (at, value): (Timestamp, f64) = (row.get(0), row.get(1));
                json!({"at": at, "value": value, "quality": row.get::<_, &str>(2)})
            })
            .collect();
        return Ok(json!({"raw": true, "points": samples}));
    }
    let seconds = to.duration_since(from).as_secs_f64();
    let width = seconds / f64::from(i32::try_from(points).unwrap_or(i32::MAX));
    let rows = client
        .query(BUCKETS, &[&tag, &from, &to, &plant, &area, &unit, &width, &points])
        .await
        .map_err(failed)?;
    let buckets: Result<Vec<Value>, Refused> = rows
        .iter()
        .map(|row| {
            let bucket = i32::try_from(row.get::<_, i64>(0)).unwrap_or(0);
            let after = jiff::SignedDuration::from_secs_f64(width * f64::from(bucket));
            let (min, max, avg): (f64, f64, f64) = (row.get(1), row.get(2), row.get(3));
            let count: i64 = row.get(4);
            Ok(json!({"at": from + after, "min": min, "max": max, "avg": avg, "count": count}))
        })
        .collect();
    Ok(json!({"raw": false, "bucket_seconds": width, "points": buckets?}))
}
