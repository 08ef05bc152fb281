//! An answer as CSV: RFC 4180, streamed page by page, so that memory does not grow with the range and no connection waits for a slow reader.

use std::collections::VecDeque;
use std::fmt::Write as _;

use axum::body::{Body, Bytes};
use futures_util::stream;
use jiff::Timestamp;

use super::gaps::Gap;
use super::query::{self, Cursor, MAX_PAGE, Point, Range, Resolution};

/// The most rows of one answer.
pub(super) const MAX_ROWS: u64 = 5_000_000;

const RAW: &str = "occurred_at,metric_type,metric_value,unit,quality,event_id";
const BUCKETS: &str =
    "bucket_start_at,bucket_end_at,metric_type,avg_value,min_value,max_value,count,unit,version";
/// The columns that say a gap; empty in the row of a point.
const GAPS: &str = ",gap,gap_until,gap_lost";

struct Rest {
    pool: pg::Pool,
    range: Range,
    after: Option<Cursor>,
    /// Rows that may still be sent.
    rows: u64,
    /// Known gaps that are still to be shown, the earliest first and those without a time last; `None` when they are not
    /// asked for.
    gaps: Option<VecDeque<Gap>>,
    begun: bool,
    ended: bool,
}

/// The body. A fault of the database in the middle cuts it off, so that a part is never taken for the whole.
pub(super) fn body(pool: pg::Pool, range: Range, rows: u64, gaps: Option<Vec<Gap>>) -> Body {
    let gaps = gaps.map(|mut gaps| {
        gaps.sort_by_key(|gap| (gap.from.is_none(), gap.from));
        VecDeque::from(gaps)
    });
    let rest = Rest { pool, range, after: None, rows, gaps, begun: false, ended: false };
    Body::from_stream(stream::try_unfold(rest, async |rest| next(rest).await))
}

async fn next(mut rest: Rest) -> Result<Option<(Bytes, Rest)>, pg::Error> {
    if rest.ended {
        return Ok(None);
    }
    let mut text = String::new();
    if !rest.begun {
        rest.begun = true;
        text.push_str(match rest.range.resolution {
            Resolution::Raw => RAW,
            Resolution::Of(_) => BUCKETS,
        });
        text.push_str(if rest.gaps.is_some() { GAPS } else { "" });
        text.push_str("\r\n");
    }
    let limit = u32::try_from(rest.rows).unwrap_or(u32::MAX).min(MAX_PAGE);
    let page = {
        let client = rest.pool.get().await?;
        let page = query::page(&client, &rest.range, rest.after, limit).await;
        page.inspect_err(|error| tracing::warn!(%error, "a CSV answer was cut off"))?
    };
    for point in &page.points {
        if let Some(gaps) = &mut rest.gaps {
            let at = match point {
                Point::Reading(one) => one.occurred_at,
                Point::Bucket(one) => one.bucket_start_at,
            };
            while let Some(gap) = gaps.pop_front_if(|gap| gap.from.is_some_and(|from| from <= at)) {
                write_gap(&mut text, &rest.range, &gap);
            }
        }
        write(&mut text, &rest.range.metric, point);
        text.push_str(if rest.gaps.is_some() { ",,,\r\n" } else { "\r\n" });
    }
    rest.rows -= page.points.len() as u64;
    rest.after = page.next;
    rest.ended = page.next.is_none() || rest.rows == 0;
    if rest.ended {
        for gap in rest.gaps.iter_mut().flat_map(|gaps| gaps.drain(..)) {
            write_gap(&mut text, &rest.range, &gap);
        }
    }
    Ok(Some((text.into(), rest)))
}

fn write(text: &mut String, metric: &str, point: &Point) {
    // Writing to a string cannot fail.
    let _ = match point {
        Point::Reading(one) => write!(
            text,
            "{},{metric},{},{},{},{}",
            one.occurred_at,
            one.metric_value,
            field(&one.unit),
            one.quality.as_deref().unwrap_or_default(),
            one.event_id,
        ),
        Point::Bucket(one) => write!(
            text,
            "{},{},{metric},{},{},{},{},{},{}",
            one.bucket_start_at,
            one.bucket_end_at,
            one.avg_value,
            one.min_value,
            one.max_value,
            one.count,
            field(&one.unit),
            one.version,
        ),
    };
}

/// A gap in the columns of points: its time and the metric, no value.
fn write_gap(text: &mut String, range: &Range, gap: &Gap) {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    let (metric, reason, lost) = (&range.metric, &gap.reason, gap.lost);
    let (from, to) = (time(gap.from), time(gap.to));
    let _ = match range.resolution {
        Resolution::Raw => write!(text, "{from},{metric},,,,,{reason},{to},{lost}\r\n"),
        Resolution::Of(_) => write!(text, "{from},,{metric},,,,,,,{reason},{to},{lost}\r\n"),
    };
}

/// A text, in quotes where it needs them. Control characters are in none: the rules of units forbid them.
fn field(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_quoted_where_it_must_be() {
        assert_eq!(field("°C"), "°C");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("6\""), "\"6\"\"\"");
    }
}
