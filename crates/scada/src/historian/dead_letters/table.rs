//! Dead letters of the inline bus: rows, which are stored again as if they came from the bus.
//!
//! Promises: a row goes only after its event is stored; one that is given up again stays, with its new cause. Killed between the two, the event is there
//! and so is the row, and the next replay finds it stored.

use std::sync::Arc;

use bus::letterbox::{Letterbox, LetterboxError, Tell};
use bus::{Cause, DeadLetter, Filter, Listing, Message, Pace, Progress, ReplayOptions, Replayed};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use pg::About;
use tokio_postgres::Row;
use tokio_postgres::types::Json;

use super::DeadLetters;
use crate::historian::config::Config;
use crate::historian::metrics::Metrics;
use crate::historian::offsets::Moved;
use crate::historian::record::{REFUSED, Record};
use crate::historian::write::{Way, Writer};

/// Rows that are read at a time.
const PAGE: i64 = 500;
/// The most bytes of bodies that one look holds.
const MAX_HELD_BYTES: usize = 64 << 20;

const ENDS: &str = "SELECT count(*), coalesce(max(id), 0) FROM historian_dead_letters";
const ROWS: &str = "SELECT id, consumer_group, message_id, topic, routing_key, message_key, headers, body, cause_code,
        cause_message, attempts, dead_lettered_at
    FROM historian_dead_letters WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3";
const REMOVE: &str = "DELETE FROM historian_dead_letters WHERE id = ANY($1)";

/// The dead letters of the inline bus.
#[derive(Debug, Clone)]
pub struct TableLetterbox {
    pool: pg::Pool,
    writer: Arc<Writer>,
}

/// A letter, and the number of its row.
type Numbered = (i64, DeadLetter);

impl TableLetterbox {
    /// In the database of this pool; what is sent back is stored by this writer.
    pub fn new(pool: pg::Pool, writer: Arc<Writer>) -> TableLetterbox {
        TableLetterbox { pool, writer }
    }

    /// The same for a process that is no historian.
    pub fn of(config: &Config) -> Result<TableLetterbox, pg::Error> {
        let pool = pg::Pool::new(&config.database)?;
        let writer = Writer::of(config, pool.clone(), Arc::new(Metrics::new()));
        Ok(TableLetterbox::new(pool, Arc::new(writer)))
    }

    /// How many there are, and the last.
    async fn ends(&self) -> Result<(u64, i64), pg::Error> {
        let row = self.pool.get().await?.query_one(ENDS, &[]).await?;
        Ok((row.get::<_, i64>(0).unsigned_abs(), row.get(1)))
    }

    async fn page(&self, after: i64, last: i64) -> Result<Vec<Numbered>, pg::Error> {
        let rows = self.pool.get().await?.query(ROWS, &[&after, &last, &PAGE]).await?;
        Ok(rows.iter().map(numbered).collect())
    }

    async fn list_rows(&self, filter: &Filter, limit: usize) -> Result<Listing, pg::Error> {
        let (total, last) = self.ends().await?;
        let mut listing = Listing { total, ..Listing::default() };
        let (mut after, mut bytes) = (0, 0);
        loop {
            let page = self.page(after, last).await?;
            if page.is_empty() {
                return Ok(listing);
            }
            for (id, letter) in page {
                if listing.letters.len() >= limit || bytes > MAX_HELD_BYTES {
                    return Ok(listing);
                }
                after = id;
                listing.scanned += 1;
                if filter.matches(&letter) {
                    bytes += letter.message.body.len();
                    listing.letters.push(letter);
                }
            }
        }
    }

    async fn replay_rows(
        &self,
        options: &ReplayOptions,
        tell: &Tell<'_>,
    ) -> Result<Replayed, pg::Error> {
        let (total, last) = self.ends().await?;
        let mut report = Replayed::default();
        let mut pace = Pace::new(options.per_second);
        let mut after = 0;
        loop {
            let page = self.page(after, last).await?;
            let Some((id, _)) = page.last() else { return Ok(report) };
            after = *id;
            let found = page.len();
            let mut meant: Vec<Numbered> =
                page.into_iter().filter(|(_, letter)| options.filter.matches(letter)).collect();
            report.scanned += (found - meant.len()) as u64;
            while !meant.is_empty() {
                let room = options.limit.saturating_sub(report.replayed.len());
                if room == 0 {
                    return Ok(report);
                }
                let part: Vec<Numbered> =
                    meant.drain(..meant.len().min(room).min(pace.chunk())).collect();
                report.scanned += part.len() as u64;
                if options.dry_run {
                    judge(&part, &mut report);
                } else {
                    pace.turn(part.len()).await;
                    self.store_again(part, &mut report).await?;
                }
                tell(Progress::of(total, &report));
            }
        }
    }

    /// Stores what can be stored, and gives up the rest again.
    async fn store_again(
        &self,
        part: Vec<Numbered>,
        report: &mut Replayed,
    ) -> Result<(), pg::Error> {
        let (mut going, mut records) = (Vec::new(), Vec::new());
        for (id, letter) in part {
            match Record::read(&letter.message) {
                Ok(record) => {
                    going.push((id, letter));
                    records.push(record);
                }
                Err(cause) => self.give_up(letter, cause, report).await?,
            }
        }
        match self.store(&records).await {
            Ok(()) => return self.remove(going, report).await,
            Err(error) if error.about() == About::Data => {}
            Err(error) => return Err(error),
        }
        // One of them is to blame; each alone says which.
        for (one, record) in going.into_iter().zip(records) {
            match self.store(std::slice::from_ref(&record)).await {
                Ok(()) => self.remove(vec![one], report).await?,
                Err(error) if error.about() == About::Data => {
                    let cause = Cause::new(REFUSED, "Postgres refuses the values of this event");
                    self.give_up(one.1, cause, report).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn store(&self, records: &[Record]) -> Result<(), pg::Error> {
        let way = Way { redelivered: true, federated: false };
        self.writer.store_moving(records, &Moved::default(), way).await.map(drop)
    }

    async fn remove(&self, stored: Vec<Numbered>, report: &mut Replayed) -> Result<(), pg::Error> {
        let ids: Vec<i64> = stored.iter().map(|(id, _)| *id).collect();
        self.pool.get().await?.execute(REMOVE, &[&ids]).await?;
        for (_, DeadLetter { message, .. }) in stored {
            tracing::info!(message_id = message.message_id, "dead letter stored");
            report.replayed.push(message.message_id);
        }
        Ok(())
    }

    async fn give_up(
        &self,
        letter: DeadLetter,
        cause: Cause,
        report: &mut Replayed,
    ) -> Result<(), pg::Error> {
        report.kept.push((letter.message.message_id.clone(), cause.message.clone()));
        let attempts = letter.attempts.saturating_add(1);
        let dead_lettered_at = Some(Timestamp::now());
        let again = DeadLetter { cause, attempts, dead_lettered_at, ..letter };
        DeadLetters::new(self.pool.clone()).keep(&again).await
    }
}

/// What would be stored, and what would be given up again.
fn judge(part: &[Numbered], report: &mut Replayed) {
    for (_, letter) in part {
        let id = letter.message.message_id.clone();
        match Record::read(&letter.message) {
            Ok(_) => report.replayed.push(id),
            Err(cause) => report.kept.push((id, cause.message)),
        }
    }
}

fn numbered(row: &Row) -> Numbered {
    let Json(headers) = row.get(6);
    let message = Message {
        message_id: row.get(2),
        exchange: row.get(3),
        routing_key: row.get(4),
        key: row.get(5),
        content_type: None,
        headers,
        body: Bytes::from(row.get::<_, Vec<u8>>(7)),
    };
    let letter = DeadLetter {
        message,
        queue: Some(row.get(1)),
        cause: Cause::new(row.get::<_, String>(8), row.get::<_, String>(9)),
        attempts: row.get::<_, i32>(10).unsigned_abs(),
        replayed: 0,
        dead_lettered_at: row.get(11),
        deaths: Vec::new(),
    };
    (row.get(0), letter)
}

fn store_error(error: pg::Error) -> LetterboxError {
    LetterboxError::Store(error.to_string())
}

impl Letterbox for TableLetterbox {
    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Listing, LetterboxError>> {
        Box::pin(async move { self.list_rows(filter, limit).await.map_err(store_error) })
    }

    fn replay<'a>(
        &'a self,
        options: &'a ReplayOptions,
        tell: &'a Tell<'a>,
    ) -> BoxFuture<'a, Result<Replayed, LetterboxError>> {
        Box::pin(async move { self.replay_rows(options, tell).await.map_err(store_error) })
    }
}
