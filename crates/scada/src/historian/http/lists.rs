//! Lists: rows of a table, page by page in the order of a key, so that rows which come in between never shift a page.

use api::Refused;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::{Conditions, Filter, Parameters, wrong};
use super::{Bearer, Http, may_read, unavailable};

/// Rows of a page when nothing else is said, and at most.
const LIMIT: i64 = 100;
const MAX_LIMIT: i64 = 1_000;

const QUALITIES: &[&str] = &["GOOD", "BAD", "UNCERTAIN", "OOR"];
const SEVERITIES: &[&str] = &["LOW", "MEDIUM", "HIGH", "CRITICAL"];
const STATES: &[&str] =
    &["normal", "active_unacknowledged", "active_acknowledged", "cleared_unacknowledged"];
const ACTIONS: &[&str] =
    &["raised", "cleared", "acknowledged", "shelved", "unshelved", "chattering"];

/// What somebody still has to look at: neither returned and acknowledged, nor on the shelf.
const OPEN: &str = "state <> 'normal' AND shelved_until IS NULL";

/// A list; rows are ordered by a time and a second column, the newest first.
struct List {
    path: &'static str,
    columns: &'static str,
    table: &'static str,
    filters: &'static [Filter],
    at: &'static str,
    then: &'static str,
    /// The type of `then`.
    kind: &'static str,
}

const ROW: &str = "event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id, extra, created_at";

const MEASURED: &[Filter] = &[
    Filter::Name("plant"),
    Filter::Name("area"),
    Filter::Name("unit_name"),
    Filter::Name("tag"),
    Filter::Word("quality", QUALITIES),
    Filter::Node,
    Filter::Range("timestamp"),
];

static LISTS: [List; 6] = [
    List {
        path: "/api/v1/telemetry",
        columns: ROW,
        table: "telemetry",
        filters: MEASURED,
        at: "timestamp",
        then: "event_id",
        kind: "uuid",
    },
    List {
        path: "/api/v1/events",
        columns: ROW,
        table: "events",
        filters: MEASURED,
        at: "timestamp",
        then: "event_id",
        kind: "uuid",
    },
    List {
        path: "/api/v1/alarms",
        columns: "event_id, timestamp, plant, area, unit_name, tag, severity, value, unit, quality, node_id, extra, created_at",
        table: "alarms",
        filters: &[
            Filter::Name("plant"),
            Filter::Name("area"),
            Filter::Name("unit_name"),
            Filter::Name("tag"),
            Filter::Word("quality", QUALITIES),
            Filter::Word("severity", SEVERITIES),
            Filter::Node,
            Filter::Range("timestamp"),
        ],
        at: "timestamp",
        then: "event_id",
        kind: "uuid",
    },
    List {
        path: "/api/v1/alarm-states",
        columns: STATE,
        table: "alarm_state",
        filters: &[
            Filter::Word("state", STATES),
            Filter::Name("plant"),
            Filter::Name("area"),
            Filter::Name("unit_name"),
            Filter::Name("tag"),
            Filter::Word("severity", SEVERITIES),
            Filter::Flag("shelved", "shelved_until IS NOT NULL"),
            Filter::Flag("open", OPEN),
        ],
        at: "coalesce(last_raised_at, to_timestamp(0))",
        then: "(plant || '.' || area || '.' || unit_name || '.' || tag)",
        kind: "text",
    },
    List {
        path: "/api/v1/alarm-journal",
        columns: "id, plant, area, unit_name, tag, at, recorded_at, action, from_state, to_state, actor_kind, actor, acting_for, reason, event_id, severity, late, announced",
        table: "alarm_journal",
        filters: &[
            Filter::Name("plant"),
            Filter::Name("area"),
            Filter::Name("unit_name"),
            Filter::Name("tag"),
            Filter::Word("action", ACTIONS),
            Filter::Flag("announced", "announced"),
            Filter::Range("at"),
        ],
        at: "at",
        then: "id",
        kind: "bigint",
    },
    List {
        path: "/api/v1/alarm-floods",
        columns: "id, position, started_at, ended_at, peak",
        table: "alarm_floods",
        filters: &[Filter::Range("started_at")],
        at: "started_at",
        then: "id",
        kind: "bigint",
    },
];

/// What is shown of an alarm.
pub(super) const STATE: &str = "plant, area, unit_name, tag, state, severity, value, unit, last_raised_at,
    last_cleared_at, acknowledged_at, acknowledged_by, shelved_until, shelved_at, shelved_by, shelf_reason,
    coalesce(chattering_until > now(), false) AS chattering, occurrences, updated_at";

/// Adds the routes.
pub(super) fn routes(mut router: Router<Http>) -> Router<Http> {
    for list in &LISTS {
        let handler = async move |State(http): State<Http>,
                                  Extension(token): Bearer,
                                  RawQuery(query): RawQuery| {
            let answer: Response = match list.answer(&http, &token, query.as_deref()).await {
                Ok(page) => Json(page).into_response(),
                Err(refused) => refused.into_response(),
            };
            answer
        };
        router = router.route(list.path, get(handler));
    }
    router
}

impl List {
    async fn answer(
        &self,
        http: &Http,
        token: &api::tokens::Token,
        query: Option<&str>,
    ) -> Result<Value, Refused> {
        may_read(token)?;
        let mut known: Vec<&str> = self.filters.iter().flat_map(|filter| filter.names()).collect();
        known.extend(["limit", "cursor"]);
        let parameters = Parameters::read(query, &known)?;
        let mut conditions = Conditions::default();
        for filter in self.filters {
            filter.apply(&parameters, &mut conditions)?;
        }
        let limit = parameters.number("limit", (1, MAX_LIMIT), LIMIT)?;
        let List { columns, table, at, then, kind, .. } = self;
        if let Some(text) = parameters.get("cursor") {
            let bad = || wrong("cursor", "the next_cursor of an earlier page of this list");
            let (time, rest) = text.split_once('_').ok_or_else(bad)?;
            let time: i64 = time.parse().map_err(|_| bad())?;
            let time = Timestamp::from_microsecond(time).map_err(|_| bad())?;
            let sound = match *kind {
                "uuid" => uuid::Uuid::try_parse(rest).is_ok(),
                "bigint" => rest.parse::<i64>().is_ok(),
                _ => !rest.contains('\0'),
            };
            if !sound {
                return Err(bad());
            }
            conditions.and(&format!("({at}, {then}) < ("), time, ", ");
            conditions.values.push(Box::new(rest.to_owned()));
            conditions.text += &format!("${}::text::{kind})", conditions.values.len());
        }
        // One more says whether there is a next page.
        let statement = format!(
            "SELECT row_to_json(q)::text, floor(extract(epoch FROM key_at) * 1000000)::int8, key_then::text
             FROM (SELECT * FROM (SELECT {columns}, {at} AS key_at, {then} AS key_then FROM {table}
                   WHERE true{}) AS k ORDER BY key_at DESC, key_then DESC LIMIT {}) AS q",
            conditions.text,
            limit + 1
        );
        let (_place, client) = http.query().await?;
        let rows = client.query(&statement, &conditions.values()).await;
        let rows = rows.map_err(|error| unavailable(&error.into()))?;
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut items: Vec<Value> = Vec::with_capacity(rows.len().min(shown));
        for row in rows.iter().take(shown) {
            items.push(item(row.get(0)));
        }
        let next = rows.get(shown.saturating_sub(1)).filter(|_| rows.len() > shown);
        let next =
            next.map(|last| format!("{}_{}", last.get::<_, i64>(1), last.get::<_, String>(2)));
        Ok(json!({"items": items, "next_cursor": next}))
    }
}

/// A row as JSON, without the key that orders it.
fn item(text: &str) -> Value {
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.remove("key_at");
        fields.remove("key_then");
    }
    value
}
