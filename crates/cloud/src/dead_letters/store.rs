//! Where the inline bus keeps what a group gave up.

use std::collections::BTreeMap;

use bus::DeadLetter;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio_postgres::types::Json;
use uuid::Uuid;

/// Keeps dead letters in `bus_dead_letter`.
#[derive(Debug, Clone)]
pub struct Store {
    pool: pg::Pool,
}

impl Store {
    /// A store on this pool.
    pub fn new(pool: pg::Pool) -> Store {
        Store { pool }
    }

    async fn keep(&self, letter: &DeadLetter) -> Result<(), pg::Error> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(KEEP).await?;
        let DeadLetter { message, cause, .. } = letter;
        let deaths: Vec<_> = letter
            .deaths
            .iter()
            .map(
                |death| json!({"queue": death.queue, "reason": death.reason, "count": death.count}),
            )
            .collect();
        client
            .execute(
                &statement,
                &[
                    &letter.queue.as_deref().unwrap_or_default(),
                    &message.message_id,
                    &tenant_of(&message.body),
                    &message.exchange,
                    &message.routing_key,
                    &message.key,
                    &message.content_type,
                    &Json(headers(&message.headers)),
                    &message.body.as_ref(),
                    &cause.code,
                    &text(&cause.message),
                    &count(letter.attempts),
                    &count(letter.replayed),
                    &Json(deaths),
                    &letter.dead_lettered_at.unwrap_or_else(Timestamp::now),
                ],
            )
            .await?;
        Ok(())
    }
}

/// The same message given up again is the same row, with the latest cause. A replay that was asked for is settled by a
/// letter that was replayed more often than the row says; any other letter leaves the wish as it is.
const KEEP: &str = "
    INSERT INTO bus_dead_letter AS kept
        (queue, message_id, tenant_id, exchange, routing_key, message_key, content_type, headers, body,
         cause_code, cause_message, attempts, replayed, deaths, first_dead_lettered_at, dead_lettered_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15)
    ON CONFLICT (queue, message_id) DO UPDATE SET
        cause_code = excluded.cause_code,
        cause_message = excluded.cause_message,
        attempts = excluded.attempts,
        deaths = excluded.deaths,
        dead_lettered_at = greatest(kept.dead_lettered_at, excluded.dead_lettered_at),
        replay_at = CASE WHEN excluded.replayed > kept.replayed THEN NULL ELSE kept.replay_at END,
        replay_audit_id =
            CASE WHEN excluded.replayed > kept.replayed THEN NULL ELSE kept.replay_audit_id END,
        replayed = greatest(kept.replayed, excluded.replayed)";

impl bus::DeadLetters for Store {
    fn store(&self, letter: DeadLetter) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.keep(&letter).await.map_err(|error| error.to_string()) })
    }
}

/// The tenant of an envelope, if the bytes are one.
pub fn tenant_of(body: &[u8]) -> Option<Uuid> {
    #[derive(Deserialize)]
    struct Envelope {
        tenant_id: Uuid,
    }
    serde_json::from_slice(body).ok().map(|Envelope { tenant_id }| tenant_id)
}

/// Postgres keeps no NUL in text; nobody misses it in an explanation.
fn text(value: &str) -> String {
    value.replace('\0', "")
}

fn headers(headers: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    headers.iter().map(|(name, value)| (text(name), text(value))).collect()
}

fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
