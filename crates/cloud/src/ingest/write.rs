//! One transaction for a batch.
//!
//! Promise: after [`Writer::commit`] returns, every event of the batch is durable or rejected, and
//! the outcomes say which; if it fails, nothing may be answered for any of them, and the same batch
//! can come again. Its failures are about the database; an event that the database refuses by its
//! content is found by halving and rejected alone.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use event::id::{EventId, TenantId};
use event::ledger::block_of;
use pg::{About, Transaction};
use uuid::Uuid;

use super::page::page_of;
use super::plan::{self, Outcome, Prepared, State, Stream, Tally, prepare, stream_of, suspicious};
use super::request::{BadTombstone, Batch, Code, Item, Refusal, Tombstone};
use super::rows;
use crate::metrics::Metrics;
use crate::trace::Traceparent;

/// Attempts of one transaction that others get in the way of. Each waits for them, so this is
/// seldom more than two.
const CONFLICT_ATTEMPTS: usize = 5;

/// Events of one batch that the log names one by one.
const NAMED_IN_LOG: usize = 20;

/// A replica that is halted in the middle holds its streams' locks; the server ends it, so that the
/// others can go on. When it wakes, its transaction fails and nothing was answered.
const NO_ZOMBIES: &str = "SET LOCAL idle_in_transaction_session_timeout = '30s'";

/// Why nothing was committed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database, or what it made of a statement.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// A row of the ledger that ingestion did not write.
    #[error("the ledger of stream {stream} in epoch {epoch} is damaged: {problem}")]
    Damaged {
        /// The stream.
        stream: String,
        /// The epoch.
        epoch: Uuid,
        /// What is wrong with it.
        problem: String,
    },
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}

impl Error {
    /// What the error is about.
    pub fn about(&self) -> About {
        match self {
            Error::Database(error) => error.about(),
            Error::Damaged { .. } => About::Us,
        }
    }
}

/// What a commit did.
#[derive(Debug, Default)]
pub struct Committed {
    /// What became of each event, in order.
    pub outcomes: Vec<Outcome>,
    /// What became of each tombstone, in order.
    pub tombstones: Vec<Result<(), Refusal>>,
    /// The same, counted.
    pub tally: Tally,
}

/// Who sent a batch.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// Their token.
    pub token_id: Uuid,
    /// The trace of their request.
    pub trace: Traceparent,
}

/// Writes batches. Cloning it shares its pool.
#[derive(Debug, Clone)]
pub struct Writer {
    pool: pg::Pool,
    metrics: Arc<Metrics>,
}

/// What goes into one transaction.
#[derive(Clone, Copy)]
struct Part<'a> {
    sender: Sender,
    batch_id: &'a str,
    items: &'a [Item],
    tombstones: &'a [&'a Tombstone],
}

impl Writer {
    /// A writer on a pool.
    pub fn new(pool: pg::Pool, metrics: Arc<Metrics>) -> Writer {
        Writer { pool, metrics }
    }

    /// Makes a batch durable.
    pub async fn commit(&self, sender: Sender, batch: &Batch) -> Result<Committed, Error> {
        let started = Instant::now();
        let tombstones: Vec<&Tombstone> =
            batch.tombstones.iter().filter_map(|judged| judged.as_ref().ok()).collect();
        let whole = Part {
            sender,
            batch_id: &batch.batch_id,
            items: &batch.items,
            tombstones: &tombstones,
        };
        let mut committed = match self.transact(whole).await {
            Err(error) if error.about() == About::Data => self.isolate(whole).await?,
            other => other?,
        };
        committed.spread(&batch.tombstones);
        self.metrics.committed(&committed.tally, started.elapsed());
        Ok(committed)
    }

    /// Commits a part of which at least one event makes the transaction fail, by halving it.
    async fn isolate(&self, whole: Part<'_>) -> Result<Committed, Error> {
        let mut total = self.transact(Part { items: &[], ..whole }).await?;
        let mut items = whole.items.to_vec();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        if !items.is_empty() {
            ranges.push(0..items.len());
        }
        // Each step commits, halves or rejects, so this ends; the lower half goes first, so that
        // outcomes and rows keep the order of the request.
        while let Some(range) = ranges.pop() {
            let part = Part { items: &items[range.clone()], tombstones: &[], ..whole };
            let error = match self.transact(part).await {
                Ok(committed) => {
                    total.outcomes.extend(committed.outcomes);
                    total.tally.add(&committed.tally);
                    continue;
                }
                Err(error) if error.about() == About::Data => error,
                Err(error) => return Err(error),
            };
            if range.len() > 1 {
                let middle = range.start + range.len() / 2;
                ranges.push(middle..range.end);
                ranges.push(range.start..middle);
            } else if let Item::Valid(event) = &items[range.start] {
                let (event_id, trace_id) = (event.envelope.event_id, &event.envelope.trace_id);
                tracing::warn!(%event_id, trace_id, "the database refuses an event");
                items[range.start] = event.reject(refused(&error));
                ranges.push(range);
            } else {
                return Err(error);
            }
        }
        Ok(total)
    }

    async fn transact(&self, part: Part<'_>) -> Result<Committed, Error> {
        let prepared = prepare(part.items);
        let mut attempt = 1;
        loop {
            match self.attempt(part, &prepared).await {
                Err(error) if error.about() == About::Conflict && attempt < CONFLICT_ATTEMPTS => {
                    tracing::debug!(%error, "the transaction met another");
                    self.metrics.db_retry();
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    async fn attempt(&self, part: Part<'_>, prepared: &[Prepared<'_>]) -> Result<Committed, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let no_zombies = async { Ok(transaction.batch_execute(NO_ZOMBIES).await?) };
        let ((), mut state) =
            tokio::try_join!(biased; no_zombies, read(&transaction, part, prepared))?;
        let mut plan = plan::plan(prepared, part.tombstones, &mut state);
        let again = rows::take_asked_again(&transaction, &plan.known).await?;
        plan.relay.extend(&again);
        rows::copy_relay(&transaction, &plan.relay, part.sender.trace).await?;
        let buried: Vec<&Tombstone> = part
            .tombstones
            .iter()
            .zip(&plan.tombstones)
            .filter(|(_, verdict)| verdict.is_ok())
            .map(|(tombstone, _)| *tombstone)
            .collect();
        let bad: Vec<_> = part
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Bad(bad) => Some(bad.as_ref()),
                Item::Valid(_) => None,
            })
            .collect();
        // Sent one after the other without waiting in between; the server works them off in order.
        tokio::try_join!(
            rows::write_pages(&transaction, &state.pages),
            rows::write_clones(&transaction, &plan.clones),
            rows::write_blocks(&transaction, &state),
            rows::write_tombstones(&transaction, &buried),
            rows::write_frontiers(&transaction, &state.accounts),
            rows::write_rejected(&transaction, part.sender.token_id, part.batch_id, &bad),
            rows::notify(&transaction, !plan.relay.is_empty()),
        )?;
        transaction.commit().await?;
        for event in again.iter().take(NAMED_IN_LOG) {
            let (event_id, trace_id) = (event.envelope.event_id, &event.envelope.trace_id);
            tracing::info!(%event_id, trace_id, "accepted before, and published again as asked for");
        }
        Ok(Committed { outcomes: plan.outcomes, tombstones: plan.tombstones, tally: plan.tally })
    }
}

/// Locks the streams and reads what is known of the events.
async fn read(
    transaction: &Transaction<'_>,
    part: Part<'_>,
    prepared: &[Prepared<'_>],
) -> Result<State, Error> {
    let mut streams: BTreeSet<Stream> = BTreeSet::new();
    let mut ids: BTreeSet<(TenantId, EventId)> = BTreeSet::new();
    let mut places: Vec<(Stream, u64)> = Vec::new();
    for item in part.items {
        if let Item::Valid(event) = item {
            ids.insert(event.key());
            places.extend(stream_of(event));
        }
    }
    streams.extend(places.iter().map(|(stream, _)| stream.clone()));
    streams.extend(part.tombstones.iter().map(|t| (t.tenant_id, t.stream.clone(), t.epoch)));
    let mut accounts = rows::lock_frontiers(transaction, &streams).await?;
    for account in accounts.values_mut().filter(|account| account.behind) {
        rows::catch_up(transaction, account).await?;
    }
    let mut pages: BTreeSet<(i64, u64)> = BTreeSet::new();
    let mut blocks: BTreeSet<(Stream, u64)> = BTreeSet::new();
    for (stream, seq) in places {
        if let Some(account) = accounts.get(&stream) {
            pages.insert((account.id, page_of(seq)));
            blocks.insert((stream, block_of(seq)));
        }
    }
    let (fresh, pages, blocks) = tokio::try_join!(
        rows::insert_dedupe(transaction, &ids),
        rows::read_pages(transaction, &pages),
        rows::read_blocks(transaction, &blocks),
    )?;
    let mut state = State { accounts, pages, blocks, fresh, ..State::default() };
    let suspects = suspicious(prepared, &state);
    if !suspects.is_empty() {
        state.clones = rows::find_clones(transaction, &suspects).await?;
    }
    Ok(state)
}

impl Committed {
    /// Puts the verdicts on tombstones beside those that never came as far as the database.
    fn spread(&mut self, judged: &[Result<Tombstone, BadTombstone>]) {
        let mut verdicts = std::mem::take(&mut self.tombstones).into_iter();
        for judged in judged {
            match judged {
                Ok(_) => self.tombstones.extend(verdicts.next()),
                Err(BadTombstone(refusal)) => {
                    *self.tally.rejected.entry(refusal.code).or_default() += 1;
                    self.tombstones.push(Err(refusal.clone()));
                }
            }
        }
    }
}

/// The state and the constraint alone: the server's message may repeat a value.
fn refused(error: &Error) -> Refusal {
    let answer = match error {
        Error::Database(pg::Error::Postgres(error)) => error.as_db_error(),
        _ => None,
    };
    let message = match answer.map(|answer| (answer.code().code(), answer.constraint())) {
        None => "the database refuses it".to_owned(),
        Some((state, None)) => format!("the database refuses it: SQLSTATE {state}"),
        Some((state, Some(constraint))) => {
            format!("the database refuses it: SQLSTATE {state}, {constraint}")
        }
    };
    Refusal::new(Code::RefusedByDatabase, None, message)
}
