//! What the historian gave up: kept as rows of `historian_dead_letters` on the inline bus, and by the broker on any other; and how it is sent back.
//!
//! [`DeadLetters`] is where the inline bus puts them, [`TableLetterbox`] is where they are then; [`broker`] is that of a broker; [`Replay`] is the record of sending
//! them back.

mod replay;
mod table;

use std::collections::BTreeMap;

use bus::DeadLetter;
use bus::letterbox::BrokerLetterbox;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio_postgres::types::Json;

use super::config::Bus;
use super::topology::topology;

pub use replay::{REPLAYS, Replay};
pub use table::TableLetterbox;

/// The dead letters that a broker keeps; `None` on the inline bus.
pub fn broker(bus: &Bus) -> Option<BrokerLetterbox> {
    let names = topology().queues.into_iter().map(|queue| queue.dead_letter_queue).collect();
    match bus {
        Bus::Inline => None,
        Bus::RabbitMq { address, .. } => Some(BrokerLetterbox::rabbitmq(address.clone(), names)),
        #[cfg(feature = "kafka")]
        Bus::Kafka(kafka) => {
            let cluster = kafka.operator.as_ref().unwrap_or(&kafka.cluster);
            Some(BrokerLetterbox::kafka(cluster.clone(), names))
        }
    }
}

const KEEP: &str =
    "INSERT INTO historian_dead_letters (consumer_group, message_id, topic, routing_key,
        message_key, headers, body, cause_code, cause_message, attempts, dead_lettered_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    ON CONFLICT (consumer_group, message_id) DO UPDATE SET cause_code = excluded.cause_code,
        cause_message = excluded.cause_message, attempts = excluded.attempts,
        dead_lettered_at = excluded.dead_lettered_at";

/// Keeps dead letters in the historian's database.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    pool: pg::Pool,
}

impl DeadLetters {
    /// In the database of this pool.
    pub fn new(pool: pg::Pool) -> DeadLetters {
        DeadLetters { pool }
    }

    async fn keep(&self, letter: &DeadLetter) -> Result<(), pg::Error> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(KEEP).await?;
        let DeadLetter { message, cause, .. } = letter;
        let headers: BTreeMap<String, String> =
            message.headers.iter().map(|(name, value)| (text(name), text(value))).collect();
        client
            .execute(
                &statement,
                &[
                    &letter.queue.as_deref().unwrap_or_default(),
                    &text(&message.message_id),
                    &text(&message.exchange),
                    &text(&message.routing_key),
                    &message.key.as_deref().map(text),
                    &Json(headers),
                    &message.body.as_ref(),
                    &cause.code,
                    &text(&cause.message),
                    &i32::try_from(letter.attempts).unwrap_or(i32::MAX),
                    &letter.dead_lettered_at.unwrap_or_else(Timestamp::now),
                ],
            )
            .await?;
        Ok(())
    }
}

impl bus::DeadLetters for DeadLetters {
    fn store(&self, letter: DeadLetter) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { self.keep(&letter).await.map_err(|error| error.to_string()) })
    }
}

/// Postgres keeps no NUL in text; nobody misses it here, and the body is kept whole.
fn text(value: &str) -> String {
    value.replace('\0', "")
}
