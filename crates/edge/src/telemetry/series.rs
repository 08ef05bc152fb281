//! Which series there are, and the newest reading of each.

use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// The most series of a page.
pub(super) const MAX_PAGE: u32 = 1_000;

const SERIES: &str = "SELECT s.device_id, s.metric_type, s.unit, s.first_at, s.last_at
     FROM telemetry_series s
     WHERE s.tenant_id = $1 AND ($2::uuid IS NULL OR s.device_id = $2)
         AND ($3::text IS NULL OR s.metric_type = $3) AND (s.device_id, s.metric_type) > ($4, $5)
     ORDER BY s.device_id, s.metric_type LIMIT $6";

/// The series says from where on the newest can be, so that the index is read from there and no further back.
const LATEST: &str = "SELECT s.device_id, s.metric_type, r.unit, r.occurred_at, r.metric_value, r.quality, r.id
     FROM (SELECT * FROM telemetry_series s
           WHERE s.tenant_id = $1 AND ($2::uuid IS NULL OR s.device_id = $2)
               AND ($3::text IS NULL OR s.metric_type = $3) AND (s.device_id, s.metric_type) > ($4, $5)
           ORDER BY s.device_id, s.metric_type LIMIT $6) s
     LEFT JOIN LATERAL (
         SELECT * FROM telemetry_raw r
         WHERE r.tenant_id = s.tenant_id AND r.device_id = s.device_id
             AND r.metric_type = s.metric_type AND r.occurred_at >= s.last_at
             AND r.occurred_at <= now() + interval '1 day'
         ORDER BY r.occurred_at DESC, r.id DESC LIMIT 1) r ON true
     ORDER BY s.device_id, s.metric_type";

/// Which series are asked for.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) tenant: Uuid,
    pub(super) device: Option<Uuid>,
    pub(super) metric: Option<String>,
    pub(super) after: Option<After>,
    pub(super) limit: u32,
}

/// The last series of the page before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct After(Uuid, String);

impl FromStr for After {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<After, Self::Err> {
        const EXPECTED: &str = "expected the next of an earlier page";
        let (device, metric) = text.split_once('.').ok_or(EXPECTED)?;
        let device = Uuid::try_parse(device).map_err(|_| EXPECTED)?;
        event::farm::rules::metric_type("after", metric).map_err(|_| EXPECTED)?;
        Ok(After(device, metric.to_owned()))
    }
}

/// A page.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
}

/// A series.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    device_id: Uuid,
    metric_type: String,
    unit: String,
    first_at: Timestamp,
    last_at: Timestamp,
}

/// The newest reading of a series. Nulls where retention has removed it.
#[derive(Debug, Serialize)]
pub(super) struct Latest {
    device_id: Uuid,
    metric_type: String,
    unit: Option<String>,
    occurred_at: Option<Timestamp>,
    metric_value: Option<f64>,
    quality: Option<String>,
    event_id: Option<Uuid>,
}

/// A page of series.
pub(super) async fn list(client: &pg::Client, ask: &Ask) -> Result<Page<Series>, pg::Error> {
    let rows = rows(client, SERIES, ask).await?;
    Ok(page(&rows, ask, |row| Series {
        device_id: row.get(0),
        metric_type: row.get(1),
        unit: row.get(2),
        first_at: row.get(3),
        last_at: row.get(4),
    }))
}

/// A page of newest readings.
pub(super) async fn latest(client: &pg::Client, ask: &Ask) -> Result<Page<Latest>, pg::Error> {
    let rows = rows(client, LATEST, ask).await?;
    Ok(page(&rows, ask, |row| Latest {
        device_id: row.get(0),
        metric_type: row.get(1),
        unit: row.get(2),
        occurred_at: row.get(3),
        metric_value: row.get(4),
        quality: row.get(5),
        event_id: row.get(6),
    }))
}

async fn rows(
    client: &pg::Client,
    statement: &str,
    ask: &Ask,
) -> Result<Vec<tokio_postgres::Row>, pg::Error> {
    let (device, metric) = match &ask.after {
        Some(After(device, metric)) => (*device, metric.as_str()),
        None => (Uuid::nil(), ""),
    };
    // One more says whether there is a next page.
    let most = i64::from(ask.limit) + 1;
    let values: [&(dyn ToSql + Sync); 6] =
        [&ask.tenant, &ask.device, &ask.metric, &device, &metric, &most];
    Ok(client.query(statement, &values).await?)
}

fn page<T>(
    rows: &[tokio_postgres::Row],
    ask: &Ask,
    read: impl Fn(&tokio_postgres::Row) -> T,
) -> Page<T> {
    let shown = usize::try_from(ask.limit).unwrap_or(usize::MAX);
    let last = rows.get(shown.saturating_sub(1)).filter(|_| rows.len() > shown);
    let next = last.map(|row| format!("{}.{}", row.get::<_, Uuid>(0), row.get::<_, &str>(1)));
    Page { items: rows.iter().take(shown).map(read).collect(), next }
}
