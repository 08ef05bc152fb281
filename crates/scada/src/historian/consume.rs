//! The loop: take a batch, judge it, store it, acknowledge.
//!
//! Promises: the acknowledgement follows the commit. An outage of the database holds the batch, with a pause that grows, and costs no
//! message an attempt. When Postgres refuses values the batch is halved until the one event is found; that one becomes a dead letter.
//! A stored offset passes a dead letter only after the bus has it.

use std::time::{Duration, Instant};

use bus::{Batch, Cause, ConsumeError, Consumer};
use pg::About;
use rand::RngExt as _;
use tokio_util::sync::CancellationToken;

use super::offsets::Moved;
use super::progress::Progress;
use super::record::{REFUSED, Record};
use super::write::{Way, Writer};

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

/// What the loop works with.
pub(super) struct Work<'a> {
    pub(super) writer: &'a Writer,
    pub(super) progress: &'a Progress,
    pub(super) stop: &'a CancellationToken,
}

impl Work<'_> {
    /// Works until told to stop, or until the consumer is closed.
    pub(super) async fn off(&self, mut consumer: Box<dyn Consumer>) {
        let mut pause = PAUSE_FIRST;
        loop {
            let next = tokio::select! {
                () = self.stop.cancelled() => return,
                next = consumer.next() => next,
            };
            match next {
                Ok(batch) => {
                    pause = PAUSE_FIRST;
                    self.progress.came(Instant::now());
                    self.handle(batch).await;
                    self.progress.holds(None);
                }
                Err(ConsumeError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "no batch could be taken");
                    if self.wait(&mut pause).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    async fn handle(&self, mut batch: Batch) {
        let mut records = Vec::with_capacity(batch.len());
        let mut places = Vec::with_capacity(batch.len());
        let mut dead: Vec<(usize, Cause)> = Vec::new();
        let (mut moved, mut redelivered) = (Moved::default(), false);
        for (index, delivery) in batch.deliveries().iter().enumerate() {
            redelivered |= delivery.redelivered;
            let read = Record::read(&delivery.message);
            if let Some(position) = &delivery.position {
                moved.note(position, read.as_ref().ok().map(|record| record.envelope.timestamp));
            }
            match read {
                Ok(record) => {
                    records.push(record);
                    places.push(index);
                }
                Err(cause) => dead.push((index, cause)),
            }
        }
        let mut safe = moved.clone();
        let positions = |batch: &Batch, index: usize| batch.deliveries()[index].position.clone();
        for position in dead.iter().filter_map(|(index, _)| positions(&batch, *index)) {
            safe.not_beyond(&position);
        }
        let way = Way { redelivered, federated: false };
        // Parts that are still to be stored, the first one last. Only the whole moves offsets: parts are stored apart.
        let mut left: Vec<(&[Record], &[usize], Moved)> = vec![(&records, &places, safe)];
        while let Some((part, at, moves)) = left.pop() {
            if part.is_empty() && moves == Moved::default() {
                continue;
            }
            match self.hold(part, &moves, way).await {
                Outcome::Stored => {}
                Outcome::Refused if part.len() > 1 => {
                    let middle = part.len() / 2;
                    let (front, back) = (part.split_at(middle), at.split_at(middle));
                    left.push((front.1, back.1, Moved::default()));
                    left.push((front.0, back.0, Moved::default()));
                }
                Outcome::Refused => {
                    let words = "Postgres refuses the values of this event";
                    dead.extend(at.iter().map(|index| (*index, Cause::new(REFUSED, words))));
                }
                // What is stored is stored; the whole batch comes again and finds it there.
                Outcome::Stopped => return,
            }
        }
        let apart = !dead.is_empty();
        for (index, cause) in dead {
            let id = &batch.deliveries()[index].message.message_id;
            tracing::warn!(message_id = id, code = cause.code, "message refused");
            self.writer.metrics().refused(&cause.code);
            batch.dead_letter(index, cause);
        }
        match batch.commit().await {
            Ok(committed) if apart && committed.returned == 0 => self.move_on(&moved).await,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a batch could not be acknowledged"),
        }
    }

    /// Stores, however long the database is away.
    async fn hold(&self, records: &[Record], moves: &Moved, way: Way) -> Outcome {
        let mut pause = PAUSE_FIRST;
        loop {
            let Err(error) = self.writer.store_moving(records, moves, way).await else {
                self.progress.holds(None);
                return Outcome::Stored;
            };
            if error.about() == About::Data {
                return Outcome::Refused;
            }
            if self.held(&error, &mut pause).await.is_none() {
                return Outcome::Stopped;
            }
        }
    }

    /// Moves offsets past what the bus has taken as dead letters.
    async fn move_on(&self, moved: &Moved) {
        let mut pause = PAUSE_FIRST;
        while let Err(error) = self.writer.move_on(moved).await {
            if error.about() == About::Data || self.held(&error, &mut pause).await.is_none() {
                return;
            }
        }
    }

    async fn held(&self, error: &pg::Error, pause: &mut Duration) -> Option<()> {
        self.progress.holds(Some(Instant::now()));
        self.writer.metrics().held();
        match error.about() {
            // A person has to act, and until then the events wait where they are.
            About::Us => tracing::error!(%error, "a batch cannot be stored"),
            _ => tracing::warn!(%error, "a batch waits for the database"),
        }
        self.wait(pause).await
    }

    /// Waits, longer each time, spread so that replicas do not come back all at once. `None` when told to stop.
    async fn wait(&self, pause: &mut Duration) -> Option<()> {
        let spread = pause.mul_f64(rand::rng().random_range(0.75..1.25));
        *pause = (*pause * 2).min(PAUSE_LONGEST);
        tokio::select! {
            () = self.stop.cancelled() => None,
            () = tokio::time::sleep(spread) => Some(()),
        }
    }
}

enum Outcome {
    Stored,
    Refused,
    Stopped,
}
