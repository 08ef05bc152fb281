//! Points of one series over a range of time: which resolution, and page by page.
//!
//! Promises: every statement begins with tenant and device and is served by an index; pages follow the order of a key, so readings that come in
//! between never shift a page; a page has a largest size. It only reads.

use std::fmt;
use std::str::FromStr;

use event::Window;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio_postgres::Row;
use uuid::Uuid;

/// The longest range that can be asked for.
pub const MAX_RANGE: SignedDuration = SignedDuration::from_hours(3_660 * 24);
/// The most points of a page.
pub const MAX_PAGE: u32 = 10_000;

/// How fine an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Readings as they came.
    Raw,
    /// Aggregates of a window.
    Of(Window),
}

impl Resolution {
    /// The one for a range: few enough points for a chart, and known beforehand.
    pub fn automatic(range: SignedDuration) -> Resolution {
        const RAW: SignedDuration = SignedDuration::from_hours(1);
        const MINUTES: SignedDuration = SignedDuration::from_hours(48);
        const HOURS: SignedDuration = SignedDuration::from_hours(120 * 24);
        match range {
            range if range <= RAW => Resolution::Raw,
            range if range <= MINUTES => Resolution::Of(Window::Minute),
            range if range <= HOURS => Resolution::Of(Window::Hour),
            _ => Resolution::Of(Window::Day),
        }
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Resolution::Raw => "raw",
            Resolution::Of(window) => window.as_str(),
        }
    }
}

impl FromStr for Resolution {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Resolution, Self::Err> {
        match text {
            "raw" => Ok(Resolution::Raw),
            window => window.parse().map(Resolution::Of).map_err(|_| "expected raw, 1m, 1h or 1d"),
        }
    }
}

/// What is asked for: one metric of one device, from a time up to another.
#[derive(Debug, Clone)]
pub struct Range {
    /// Whose.
    pub tenant: Uuid,
    /// The device.
    pub device: Uuid,
    /// What was measured.
    pub metric: String,
    /// The first instant.
    pub from: Timestamp,
    /// The first instant after.
    pub to: Timestamp,
    /// How fine.
    pub resolution: Resolution,
}

/// A place between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Of which resolution the pages are.
    pub resolution: Resolution,
    at: Timestamp,
    /// Readings of one instant are in the order of their ids.
    id: Uuid,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resolution.as_str(), self.at.as_microsecond())?;
        match self.resolution {
            Resolution::Raw => write!(f, ".{}", self.id),
            Resolution::Of(_) => Ok(()),
        }
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Cursor, Self::Err> {
        const EXPECTED: &str = "expected the next of an earlier page";
        let mut parts = text.split('.');
        let resolution: Resolution =
            parts.next().and_then(|part| part.parse().ok()).ok_or(EXPECTED)?;
        let micros: i64 = parts.next().and_then(|part| part.parse().ok()).ok_or(EXPECTED)?;
        let at = Timestamp::from_microsecond(micros).map_err(|_| EXPECTED)?;
        let id = match (resolution, parts.next()) {
            (Resolution::Raw, Some(id)) => Uuid::try_parse(id).map_err(|_| EXPECTED)?,
            (Resolution::Of(_), None) => Uuid::nil(),
            _ => return Err(EXPECTED),
        };
        match parts.next() {
            None => Ok(Cursor { resolution, at, id }),
            Some(_) => Err(EXPECTED),
        }
    }
}

/// One point of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Point {
    /// A reading.
    Reading(Reading),
    /// An aggregate.
    Bucket(Bucket),
}

/// A reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    /// Sample time.
    pub occurred_at: Timestamp,
    /// The value.
    pub metric_value: f64,
    /// Its unit.
    pub unit: String,
    /// How far it can be trusted, where the sampler said so.
    pub quality: Option<String>,
    /// The event.
    pub event_id: Uuid,
}

/// An aggregate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bucket {
    /// When it begins.
    pub bucket_start_at: Timestamp,
    /// When it ends.
    pub bucket_end_at: Timestamp,
    /// The mean of what counts.
    pub avg_value: f64,
    /// The lowest.
    pub min_value: f64,
    /// The highest.
    pub max_value: f64,
    /// How many readings count.
    pub count: i64,
    /// The unit.
    pub unit: String,
    /// Raised with every correction.
    pub version: i64,
}

impl Point {
    fn cursor(&self, resolution: Resolution) -> Cursor {
        let (at, id) = match self {
            Point::Reading(reading) => (reading.occurred_at, reading.event_id),
            Point::Bucket(bucket) => (bucket.bucket_start_at, Uuid::nil()),
        };
        Cursor { resolution, at, id }
    }
}

/// Some points in the order of time, and where the next ones begin.
#[derive(Debug, Clone)]
pub struct Page {
    /// The points.
    pub points: Vec<Point>,
    /// After which the next page begins; `None` when there is none.
    pub next: Option<Cursor>,
}

const RAW: &str = "SELECT occurred_at, metric_value, unit, quality, id FROM telemetry_raw
     WHERE tenant_id = $1 AND device_id = $2 AND metric_type = $3
         AND occurred_at >= $4 AND occurred_at < $5 AND (occurred_at, id) > ($4, $6)
     ORDER BY occurred_at, id LIMIT $7";

const BUCKETS: &str =
    "SELECT bucket_start_at, bucket_end_at, avg_value, min_value, max_value, count,
         unit, version
     FROM telemetry_agg
     WHERE tenant_id = $1 AND device_id = $2 AND metric_type = $3 AND \"window\" = $6
         AND bucket_start_at >= $4 AND bucket_start_at < $5
     ORDER BY bucket_start_at LIMIT $7";

/// Reads a page of at most `limit` points ([`MAX_PAGE`] at the most), after a cursor of the same resolution if there is one.
pub async fn page(
    client: &pg::Client,
    range: &Range,
    after: Option<Cursor>,
    limit: u32,
) -> Result<Page, pg::Error> {
    let limit = limit.clamp(1, MAX_PAGE);
    // One more says whether there is a next page.
    let most = i64::from(limit) + 1;
    let Range { tenant, device, metric, to, .. } = range;
    // Statements are not kept prepared: the plan should follow the range.
    let mut points: Vec<Point> = match range.resolution {
        Resolution::Raw => {
            let (from, id) = after.map_or((range.from, Uuid::nil()), |after| (after.at, after.id));
            let rows = client.query(RAW, &[tenant, device, metric, &from, to, &id, &most]).await?;
            rows.iter().map(reading).collect()
        }
        Resolution::Of(window) => {
            let next =
                |after: Cursor| after.at.checked_add(window.span()).unwrap_or(Timestamp::MAX);
            let from = after.map_or(range.from, next);
            let name = window.as_str();
            let rows =
                client.query(BUCKETS, &[tenant, device, metric, &from, to, &name, &most]).await?;
            rows.iter().map(bucket).collect()
        }
    };
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = points.len() > shown;
    points.truncate(shown);
    let next = points.last().filter(|_| more).map(|last| last.cursor(range.resolution));
    Ok(Page { points, next })
}

fn reading(row: &Row) -> Point {
    Point::Reading(Reading {
        occurred_at: row.get(0),
        metric_value: row.get(1),
        unit: row.get(2),
        quality: row.get(3),
        event_id: row.get(4),
    })
}

fn bucket(row: &Row) -> Point {
    Point::Bucket(Bucket {
        bucket_start_at: row.get(0),
        bucket_end_at: row.get(1),
        avg_value: row.get(2),
        min_value: row.get(3),
        max_value: row.get(4),
        count: row.get(5),
        unit: row.get(6),
        version: row.get(7),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automatic_resolution_has_the_documented_bounds() {
        let hours = SignedDuration::from_hours;
        let second = SignedDuration::from_secs(1);
        for (range, wanted, points) in [
            (hours(1), "raw", None),
            (hours(1) + second, "1m", None),
            (hours(48), "1m", Some(Window::Minute)),
            (hours(48) + second, "1h", None),
            (hours(120 * 24), "1h", Some(Window::Hour)),
            (hours(120 * 24) + second, "1d", None),
            (MAX_RANGE, "1d", Some(Window::Day)),
        ] {
            assert_eq!(Resolution::automatic(range).as_str(), wanted, "{range:?}");
            if let Some(window) = points {
                assert!(range.as_secs() / window.seconds() <= 3_660);
            }
        }
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let at = "2026-02-01T10:00:00.000001Z".parse().unwrap();
        let raw = Cursor { resolution: Resolution::Raw, at, id: Uuid::now_v7() };
        let day = Cursor { resolution: Resolution::Of(Window::Day), at, id: Uuid::nil() };
        for cursor in [raw, day] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        let long = format!("{raw}.1");
        for text in ["", "raw", "raw.1", "1h.1.2", "1h.x", "2h.1", "1h.9223372036854775807", &long]
        {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
