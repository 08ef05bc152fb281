//! Whether the historian has what a node has sent, and where one event is.
//!
//! [`compare`] goes hour by hour of the events' own time: count and a hash of the ids first, so that hours that agree cost no ids; of the
//! others every id is looked for. [`send_again`] makes rows `PENDING` that were sent and are missing. [`in_outbox`] and [`in_historian`] look
//! for one event. docs/spec/historian.md, *Verify*, is the contract.
//!
//! It must not know who asks. It fails with the database's error; what was made `PENDING` until then stays so, and is in the audit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::audit::{self, Actor};

/// Ids that are looked for at once, and rows that are changed by one transaction.
const STEP: usize = 5_000;

/// By md5, which is the same on every server; hash and count of a set do not depend on its order.
const SENT: &str = "SELECT hour, plant, node_id, count(*),
        sum(('x' || left(md5(id::text), 15))::bit(60)::int8::numeric)::text
    FROM (SELECT id, date_trunc('hour', (payload->>'timestamp')::timestamptz, 'UTC') AS hour,
              payload->'asset'->>'plant' AS plant, (payload->>'nodeId')::int4 AS node_id
          FROM outbox_events
          WHERE sent_at IS NOT NULL AND status = 'SENT' AND sent_at >= $1 AND sent_at < $2) AS sent
    GROUP BY hour, plant, node_id ORDER BY hour, plant, node_id";

const SENT_IDS: &str = "SELECT id FROM outbox_events
    WHERE sent_at IS NOT NULL AND status = 'SENT' AND sent_at >= $1 AND sent_at < $2
        AND date_trunc('hour', (payload->>'timestamp')::timestamptz, 'UTC') = $3
        AND payload->'asset'->>'plant' = $4 AND (payload->>'nodeId')::int4 = $5
    ORDER BY id";

const STORED: &str = "SELECT count(*), sum(('x' || left(md5(event_id::text), 15))::bit(60)::int8::numeric)::text
    FROM (SELECT event_id FROM telemetry
              WHERE plant = $1 AND node_id = $2 AND timestamp >= $3 AND timestamp < $3 + interval '1 hour'
          UNION ALL SELECT event_id FROM events
              WHERE plant = $1 AND node_id = $2 AND timestamp >= $3 AND timestamp < $3 + interval '1 hour'
          UNION ALL SELECT event_id FROM alarms
              WHERE plant = $1 AND node_id = $2 AND timestamp >= $3 AND timestamp < $3 + interval '1 hour') AS stored";

/// A finer time than the database keeps may be rounded into the neighbouring hour.
const KNOWN: &str = "SELECT event_id FROM telemetry WHERE event_id = ANY($1)
        AND timestamp >= $2::timestamptz - interval '1 second' AND timestamp < $2 + interval '3601 seconds'
    UNION ALL SELECT event_id FROM events WHERE event_id = ANY($1)
        AND timestamp >= $2::timestamptz - interval '1 second' AND timestamp < $2 + interval '3601 seconds'
    UNION ALL SELECT event_id FROM alarms WHERE event_id = ANY($1)
        AND timestamp >= $2::timestamptz - interval '1 second' AND timestamp < $2 + interval '3601 seconds'";

const DEAD: &str = "SELECT message_id FROM historian_dead_letters WHERE message_id = ANY($1)";

/// Their lanes look again at them before anything newer.
const AGAIN: &str = "UPDATE outbox_events SET status = 'PENDING', retry_count = 0, available_at = now(), sent_at = NULL
    WHERE id = ANY($1) AND status = 'SENT' RETURNING id";

/// Which of what was sent is compared: by when it was sent.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// From this time.
    pub since: Timestamp,
    /// Until so long ago: what was sent later may be on its way.
    pub grace: Duration,
}

/// An hour of one node whose events differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hour {
    /// When it begins, by the events' own time.
    pub hour: Timestamp,
    /// The plant.
    pub plant: String,
    /// The node's number.
    pub node_id: i32,
    /// Events that the outbox has as sent.
    pub sent: i64,
    /// Events of this node that the historian has in this hour; more than were sent when the outbox was pruned since.
    pub stored: i64,
    /// Sent, and not in the historian.
    pub missing: Vec<Uuid>,
    /// Sent, and among the dead letters of the historian's own table.
    pub dead_letters: Vec<Uuid>,
}

/// What a comparison came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Events that were compared.
    pub events: i64,
    /// Hours of a node that were compared.
    pub hours: u64,
    /// Those of which something is missing or given up.
    pub wrong: Vec<Hour>,
}

impl Compared {
    /// Every event that is missing.
    pub fn missing(&self) -> Vec<Uuid> {
        self.wrong.iter().flat_map(|hour| &hour.missing).copied().collect()
    }
}

/// Compares what a node's outbox has as sent with what the historian has.
pub async fn compare(
    outbox: &Client,
    historian: &Client,
    span: Span,
) -> Result<Compared, pg::Error> {
    let (since, until) = (span.since, until(span.grace));
    let mut compared = Compared::default();
    for row in outbox.query(SENT, &[&since, &until]).await? {
        let hour: Timestamp = row.get(0);
        let (plant, node_id): (String, i32) = (row.get(1), row.get(2));
        let (sent, hash): (i64, String) = (row.get(3), row.get(4));
        compared.events += sent;
        compared.hours += 1;
        let there = historian.query_one(STORED, &[&plant, &node_id, &hour]).await?;
        let (stored, theirs): (i64, Option<String>) = (there.get(0), there.get(1));
        if (sent, Some(&hash)) == (stored, theirs.as_ref()) {
            continue;
        }
        let ids = outbox.query(SENT_IDS, &[&since, &until, &hour, &plant, &node_id]).await?;
        let ids: Vec<Uuid> = ids.iter().map(|row| row.get(0)).collect();
        let (mut missing, mut dead_letters) = (Vec::new(), Vec::new());
        for part in ids.chunks(STEP) {
            let absent = absent(historian, part, hour).await?;
            let names: Vec<String> = absent.iter().map(Uuid::to_string).collect();
            let given_up = historian.query(DEAD, &[&names]).await?;
            let given_up: BTreeSet<String> = given_up.iter().map(|row| row.get(0)).collect();
            for id in absent {
                match given_up.contains(&id.to_string()) {
                    true => dead_letters.push(id),
                    false => missing.push(id),
                }
            }
        }
        if !missing.is_empty() || !dead_letters.is_empty() {
            compared.wrong.push(Hour { hour, plant, node_id, sent, stored, missing, dead_letters });
        }
    }
    Ok(compared)
}

fn until(grace: Duration) -> Timestamp {
    let now = Timestamp::now();
    now.checked_sub(grace).unwrap_or(now)
}

async fn absent(historian: &Client, ids: &[Uuid], hour: Timestamp) -> Result<Vec<Uuid>, pg::Error> {
    let known = historian.query(KNOWN, &[&ids, &hour]).await?;
    let known: BTreeSet<Uuid> = known.iter().map(|row| row.get(0)).collect();
    Ok(ids.iter().filter(|id| !known.contains(id)).copied().collect())
}

/// Makes rows `PENDING` that are `SENT`. Returns how many it were; each step of them is audited in its own transaction.
pub async fn send_again(
    outbox: &mut Client,
    actor: &Actor,
    ids: &[Uuid],
) -> Result<u64, pg::Error> {
    let mut changed = 0;
    for part in ids.chunks(STEP) {
        let transaction = outbox.transaction().await?;
        let rows = transaction.query(AGAIN, &[&part]).await?.len();
        let parameters = json!({"ids": part});
        let many = i64::try_from(rows).unwrap_or(i64::MAX);
        audit::record(&transaction, actor, "producer.repair", parameters, many).await?;
        transaction.batch_execute("NOTIFY outbox_events").await?;
        transaction.commit().await?;
        changed += u64::try_from(rows).unwrap_or(u64::MAX);
    }
    Ok(changed)
}

/// What a node's outbox knows of an event: status, times, attempts, the last error.
pub async fn in_outbox(client: &Client, id: Uuid) -> Result<Option<Value>, pg::Error> {
    let query = "SELECT jsonb_build_object('status', status, 'aggregate_id', aggregate_id, 'topic', headers->>'topic',
            'created_at', created_at, 'sent_at', sent_at, 'available_at', available_at, 'locked_by', locked_by,
            'locked_at', locked_at, 'retry_count', retry_count, 'last_error_code', last_error_code,
            'last_error_message', last_error_message, 'failed_at', failed_at, 'failed_reason', failed_reason)
        FROM outbox_events WHERE id = $1";
    Ok(client.query_opt(query, &[&id]).await?.map(|row| row.get(0)))
}

/// What the historian knows of an event: the tables that have it, its dead letters, and whether a second historian is to get it.
pub async fn in_historian(client: &Client, id: Uuid) -> Result<Option<Value>, pg::Error> {
    let query = "SELECT 'stored', jsonb_build_object('table', t, 'timestamp', timestamp, 'at', created_at) FROM (
            SELECT 'telemetry' AS t, timestamp, created_at FROM telemetry WHERE event_id = $1
            UNION ALL SELECT 'events', timestamp, created_at FROM events WHERE event_id = $1
            UNION ALL SELECT 'alarms', timestamp, created_at FROM alarms WHERE event_id = $1) AS stored
        UNION ALL SELECT 'dead_letters', jsonb_build_object('queue', consumer_group, 'cause_code', cause_code,
            'cause_message', cause_message, 'attempts', attempts, 'at', dead_lettered_at)
            FROM historian_dead_letters WHERE message_id = $1::uuid::text
        UNION ALL SELECT 'federation', jsonb_build_object('status', status, 'created_at', created_at,
            'last_error_code', last_error_code) FROM federation_outbox WHERE id = $1";
    let rows = client.query(query, &[&id]).await?;
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in &rows {
        found.entry(row.get(0)).or_default().push(row.get(1));
    }
    Ok((!found.is_empty()).then(|| json!(found)))
}
