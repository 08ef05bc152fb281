//! How the historian stands, and which series it has: for the operators' console.

use std::time::{Duration, Instant};

use api::Refused;
use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::Parameters;
use super::{Bearer, Http, may_read, unavailable};
use crate::historian::config::Bus;
use crate::historian::standing::standing;

/// Over how many seconds the rate is taken.
const RATE_SECONDS: f64 = 10.0;
/// Counting of dead letters stops here.
const MAX_DEAD: i64 = 10_000;
/// How old the number of a broker's dead letters may get.
const LOOK_EVERY: Duration = Duration::from_secs(300);
const MAX_FLOODS: i64 = 100;
/// Tags of an answer when nothing else is said, and at most.
const TAGS_SHOWN: i64 = 1_000;
const MAX_TAGS: i64 = 20_000;

/// Plants are few: each is found by one step in the index, and its last seconds by another.
const RATE: &str = "WITH RECURSIVE plants AS (
        (SELECT plant FROM telemetry ORDER BY plant LIMIT 1)
        UNION ALL
        SELECT (SELECT t.plant FROM telemetry t WHERE t.plant > p.plant ORDER BY t.plant LIMIT 1)
        FROM plants p WHERE p.plant IS NOT NULL)
    SELECT coalesce(sum(c.n), 0)::int8, max(c.newest)
    FROM plants CROSS JOIN LATERAL (
        SELECT (SELECT count(*) FROM telemetry r WHERE r.plant = plants.plant
                    AND r.timestamp > now() - $1::float8 * interval '1 s' AND r.timestamp <= now()) AS n,
               (SELECT r.timestamp FROM telemetry r WHERE r.plant = plants.plant
                    ORDER BY r.timestamp DESC LIMIT 1) AS newest) AS c
    WHERE plants.plant IS NOT NULL";

const FLOODS: &str =
    "SELECT position, started_at, peak::int8 FROM alarm_floods WHERE ended_at IS NULL
    ORDER BY started_at LIMIT $1";

/// Tags are found by steps in the index; where each is measured, by the hour before its newest sample.
const TAGS: &str = "WITH RECURSIVE tags AS (
        (SELECT tag FROM telemetry ORDER BY tag LIMIT 1)
        UNION ALL
        SELECT (SELECT t.tag FROM telemetry t WHERE t.tag > g.tag ORDER BY t.tag LIMIT 1)
        FROM tags g WHERE g.tag IS NOT NULL)
    SELECT p.plant, p.area, p.unit_name, tags.tag, p.unit, p.last_at
    FROM tags
    CROSS JOIN LATERAL (SELECT r.timestamp AS newest FROM telemetry r WHERE r.tag = tags.tag
                        ORDER BY r.timestamp DESC LIMIT 1) AS n
    CROSS JOIN LATERAL (SELECT plant, area, unit_name, max(unit) AS unit, max(timestamp) AS last_at
                        FROM telemetry r
                        WHERE r.tag = tags.tag AND r.timestamp > n.newest - interval '1 hour'
                        GROUP BY plant, area, unit_name) AS p
    WHERE tags.tag IS NOT NULL
    ORDER BY 1, 2, 3, 4 LIMIT $1";

pub(super) async fn summary(
    State(http): State<Http>,
    Extension(token): Bearer,
) -> Result<Json<Value>, Refused> {
    may_read(&token)?;
    let (_place, client) = http.query().await?;
    let read = async {
        let rate = client.query_one(RATE, &[&RATE_SECONDS]).await?;
        let standing = standing(&client, MAX_DEAD).await?;
        let floods = client.query(FLOODS, &[&MAX_FLOODS]).await?;
        Ok::<_, pg::Error>((rate, standing, floods))
    };
    let (rate, standing, floods) = read.await.map_err(|error| unavailable(&error))?;
    let config = &http.service.config;
    // A broker is not asked for every summary: the number is that of the last look.
    let letters = &http.service.letters;
    let dead_letters = match config.bus {
        Bus::Inline => standing.dead_letters.unsigned_abs(),
        _ => {
            letters.refresh(LOOK_EVERY);
            letters.last().map_or(0, |look| look.total)
        }
    };
    let problems =
        http.service.progress.problems(Instant::now(), config.stalled_after, config.silent_after);
    let stored = i32::try_from(rate.get::<_, i64>(0)).unwrap_or(i32::MAX);
    let flood = |row: &tokio_postgres::Row| {
        let (position, at): (String, Timestamp) = (row.get(0), row.get(1));
        json!({"position": position, "started_at": at, "peak": row.get::<_, i64>(2)})
    };
    Ok(Json(json!({
        "stored_per_second": f64::from(stored) / RATE_SECONDS,
        "newest_at": rate.get::<_, Option<Timestamp>>(1),
        "dead_letters": dead_letters,
        "problems": problems,
        "alarms": {
            "active_unacknowledged": standing.active_unacknowledged,
            "active_acknowledged": standing.active_acknowledged,
            "cleared_unacknowledged": standing.cleared_unacknowledged,
            "shelved": standing.shelved,
        },
        "floods": floods.iter().map(flood).collect::<Vec<_>>(),
    })))
}

pub(super) async fn tags(
    State(http): State<Http>,
    Extension(token): Bearer,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refused> {
    may_read(&token)?;
    let asked = Parameters::read(query.as_deref(), &["limit"])?;
    let limit = asked.number("limit", (1, MAX_TAGS), TAGS_SHOWN)?;
    let (_place, client) = http.query().await?;
    let rows = client.query(TAGS, &[&(limit + 1)]).await;
    let rows = rows.map_err(|error| unavailable(&error.into()))?;
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let tag = |row: &tokio_postgres::Row| {
        let text = |column: usize| row.get::<_, String>(column);
        json!({
            "plant": text(0), "area": text(1), "unit_name": text(2), "tag": text(3), "unit": text(4),
            "last_at": row.get::<_, Timestamp>(5),
        })
    };
    let items: Vec<Value> = rows.iter().take(shown).map(tag).collect();
    Ok(Json(json!({"items": items, "more": rows.len() > shown})))
}
