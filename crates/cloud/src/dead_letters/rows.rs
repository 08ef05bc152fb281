//! Reading the dead letters, and asking for their replay.

use bus::{Cause, CauseGroup, DeadLetter, Death, Filter, Message, Test};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use tokio_postgres::types::{Json, ToSql};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::tenant_of;

/// Which dead letters are meant. What is absent does not matter; what is there must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// One of these message ids.
    pub message_ids: Option<Vec<String>>,
    /// Given up by this group.
    pub queue: Option<String>,
    /// For this cause.
    pub cause_code: Option<String>,
    /// Given up at this time or later.
    pub since: Option<Timestamp>,
    /// Of this tenant.
    pub tenant: Option<Uuid>,
}

/// A dead letter as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The row.
    pub id: i64,
    /// The letter.
    pub letter: DeadLetter,
    /// The envelope's tenant, where it could be read.
    pub tenant_id: Option<Uuid>,
    /// When its replay is due, if one was asked for.
    pub replay_at: Option<Timestamp>,
}

/// The condition of a [`Wanted`], for its values as `$1` to `$5`.
const MEANT: &str = "($1::text[] IS NULL OR message_id = ANY($1))
    AND ($2::text IS NULL OR queue = $2)
    AND ($3::text IS NULL OR cause_code = $3)
    AND ($4::timestamptz IS NULL OR dead_lettered_at >= $4)
    AND ($5::uuid IS NULL OR tenant_id = $5)";

pub(super) const COLUMNS: &str =
    "id, queue, message_id, tenant_id, exchange, routing_key, message_key, content_type, headers,
     body, cause_code, cause_message, attempts, replayed, deaths, dead_lettered_at, replay_at";

impl Wanted {
    /// The same for dead letters that a broker keeps.
    pub fn filter(&self) -> Filter {
        let of = |tenant| Test::new(move |letter| tenant_of(&letter.message.body) == Some(tenant));
        Filter {
            message_ids: self.message_ids.clone().map(|ids| ids.into_iter().collect()),
            queue: self.queue.clone(),
            cause_code: self.cause_code.clone(),
            since: self.since,
            test: self.tenant.map(of),
            ..Filter::default()
        }
    }

    fn values(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.message_ids, &self.queue, &self.cause_code, &self.since, &self.tenant]
    }
}

/// How many are meant.
pub async fn count(client: &Client, wanted: &Wanted) -> Result<u64, pg::Error> {
    let query = format!("SELECT count(*) FROM bus_dead_letter WHERE {MEANT}");
    Ok(number(client.query_one(&query, &wanted.values()).await?.get(0)))
}

/// Groups them by queue, cause and routing key; the largest group first.
pub async fn groups(client: &Client, wanted: &Wanted) -> Result<Vec<CauseGroup>, pg::Error> {
    let query = format!(
        "SELECT queue, cause_code, routing_key, count(*), min(dead_lettered_at), max(dead_lettered_at),
             (array_agg(message_id ORDER BY id))[1], (array_agg(cause_message ORDER BY id))[1]
         FROM bus_dead_letter WHERE {MEANT}
         GROUP BY queue, cause_code, routing_key ORDER BY 4 DESC, 1, 2, 3"
    );
    let rows = client.query(&query, &wanted.values()).await?;
    let group = |row: &Row| CauseGroup {
        queue: queue(row.get(0)),
        cause_code: row.get(1),
        routing_key: row.get(2),
        count: number(row.get(3)),
        first_at: row.get(4),
        last_at: row.get(5),
        sample_id: row.get(6),
        sample_message: row.get(7),
    };
    Ok(rows.iter().map(group).collect())
}

/// Those that are meant, oldest first, up to `limit`, after the row `after`.
pub async fn list(
    client: &Client,
    wanted: &Wanted,
    after: i64,
    limit: usize,
) -> Result<Vec<Kept>, pg::Error> {
    let query = format!(
        "SELECT {COLUMNS} FROM bus_dead_letter WHERE {MEANT} AND id > $6 ORDER BY id LIMIT $7"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let [a, b, c, d, e] = wanted.values();
    let rows = client.query(&query, &[a, b, c, d, e, &after, &limit]).await?;
    Ok(rows.iter().map(kept).collect())
}

/// Asks for the replay of up to `limit` of them, oldest first, `per_second` falling due each second from now on. Those
/// that are waiting for theirs already keep their time. Returns how many were marked.
pub async fn request_replay(
    client: &Client,
    wanted: &Wanted,
    limit: usize,
    per_second: u32,
    audit_id: i64,
) -> Result<u64, pg::Error> {
    let query = format!(
        "UPDATE bus_dead_letter AS letter
         SET replay_at = now() + make_interval(secs => (chosen.place - 1) / $7::float8),
             replay_audit_id = $8
         FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM bus_dead_letter
               WHERE {MEANT} AND replay_at IS NULL AND queue <> '' ORDER BY id LIMIT $6) AS chosen
         WHERE letter.id = chosen.id AND letter.replay_at IS NULL"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rate = f64::from(per_second.max(1));
    let [a, b, c, d, e] = wanted.values();
    Ok(client.execute(&query, &[a, b, c, d, e, &limit, &rate, &audit_id]).await?)
}

/// How many there are, counted up to `limit`: "so many or more" costs little at any number.
pub async fn count_to(client: &Client, limit: i64) -> Result<i64, pg::Error> {
    let query = "SELECT count(*) FROM (SELECT FROM bus_dead_letter LIMIT $1) AS few";
    Ok(client.query_one(query, &[&limit]).await?.get(0))
}

/// How many of the replays that an entry of the audit asked for are still due.
pub async fn replays_left(client: &Client, audit_id: i64) -> Result<u64, pg::Error> {
    let query = "SELECT count(*) FROM bus_dead_letter
                 WHERE replay_at IS NOT NULL AND replay_audit_id = $1";
    Ok(number(client.query_one(query, &[&audit_id]).await?.get(0)))
}

pub(super) fn kept(row: &Row) -> Kept {
    #[derive(Deserialize)]
    struct Entry {
        queue: String,
        reason: String,
        count: u64,
    }
    let Json(headers) = row.get(8);
    let Json(deaths) = row.get::<_, Json<Vec<Entry>>>(14);
    let message = Message {
        message_id: row.get(2),
        exchange: row.get(4),
        routing_key: row.get(5),
        key: row.get(6),
        content_type: row.get(7),
        headers,
        body: Bytes::from(row.get::<_, Vec<u8>>(9)),
    };
    let letter = DeadLetter {
        message,
        queue: queue(row.get(1)),
        cause: Cause::new(row.get::<_, String>(10), row.get::<_, String>(11)),
        attempts: row.get::<_, i32>(12).unsigned_abs(),
        replayed: row.get::<_, i32>(13).unsigned_abs(),
        dead_lettered_at: row.get(15),
        deaths: deaths
            .into_iter()
            .map(|Entry { queue, reason, count }| Death { queue, reason, count })
            .collect(),
    };
    Kept { id: row.get(0), letter, tenant_id: row.get(3), replay_at: row.get(16) }
}

fn queue(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// A count is never negative.
fn number(value: i64) -> u64 {
    value.unsigned_abs()
}
