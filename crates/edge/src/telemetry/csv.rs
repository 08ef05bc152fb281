//! An answer as CSV: RFC 4180, streamed page by page, so that memory does not grow with the range and no connection waits for a slow reader.

use std::fmt::Write as _;

use axum::body::{Body, Bytes};
use futures_util::stream;

use super::query::{self, Cursor, MAX_PAGE, Point, Range, Resolution};

/// The most rows of one answer.
pub(super) const MAX_ROWS: u64 = 5_000_000;

const RAW: &str = "occurred_at,metric_type,metric_value,unit,quality,event_id\r\n";
const BUCKETS: &str = "bucket_start_at,bucket_end_at,metric_type,avg_value,min_value,max_value,count,unit,version\r\n";

struct Rest {
    pool: pg::Pool,
    range: Range,
    after: Option<Cursor>,
    /// Rows that may still be sent.
    rows: u64,
    begun: bool,
    ended: bool,
}

/// The body. A fault of the database in the middle cuts it off, so that a part is never taken for the whole.
pub(super) fn body(pool: pg::Pool, range: Range, rows: u64) -> Body {
    let rest = Rest { pool, range, after: None, rows, begun: false, ended: false };
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
    }
    let limit = u32::try_from(rest.rows).unwrap_or(u32::MAX).min(MAX_PAGE);
    let page = {
        let client = rest.pool.get().await?;
        let page = query::page(&client, &rest.range, rest.after, limit).await;
        page.inspect_err(|error| tracing::warn!(%error, "a CSV answer was cut off"))?
    };
    for point in &page.points {
        write(&mut text, &rest.range.metric, point);
    }
    rest.rows -= page.points.len() as u64;
    rest.after = page.next;
    rest.ended = page.next.is_none() || rest.rows == 0;
    Ok(Some((text.into(), rest)))
}

fn write(text: &mut String, metric: &str, point: &Point) {
    // Writing to a string cannot fail.
    let _ = match point {
        Point::Reading(one) => write!(
            text,
            "{},{metric},{},{},{},{}\r\n",
            one.occurred_at,
            one.metric_value,
            field(&one.unit),
            one.quality.as_deref().unwrap_or_default(),
            one.event_id,
        ),
        Point::Bucket(one) => write!(
            text,
            "{},{},{metric},{},{},{},{},{},{}\r\n",
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
