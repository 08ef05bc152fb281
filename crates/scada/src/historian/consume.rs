//! The loop: take a batch, judge it, store it, acknowledge; and while one is stored, take and judge the next.
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

/// A batch, and what there is to do with its messages.
struct Judged {
    batch: Batch,
    records: Vec<Record>,
    /// Where in the batch each record is.
    places: Vec<usize>,
    dead: Vec<(usize, Cause)>,
    moved: Moved,
    redelivered: bool,
}

/// What the loop works with.
pub(super) struct Work<'a> {
    pub(super) writer: &'a Writer,
    pub(super) progress: &'a Progress,
    pub(super) stop: &'a CancellationToken,
}

impl Work<'_> {
    /// Works until told to stop, or until the consumer is closed; then other replicas get its part.
    pub(super) async fn off(&self, mut consumer: Box<dyn Consumer>) {
        self.take_batches(&mut *consumer).await;
        consumer.leave().await;
    }

    async fn take_batches(&self, consumer: &mut dyn Consumer) {
        let mut pause = PAUSE_FIRST;
        let mut taken = self.take(consumer).await;
        loop {
            let judged = match taken {
                Ok(Some(judged)) => judged,
                Ok(None) | Err(ConsumeError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "no batch could be taken");
                    if self.wait(&mut pause).await.is_none() {
                        return;
                    }
                    taken = self.take(consumer).await;
                    continue;
                }
            };
            pause = PAUSE_FIRST;
            // While the database works on one batch, the next one is read.
            let handled = async {
                self.handle(judged).await;
                self.progress.holds(None);
            };
            ((), taken) = tokio::join!(handled, self.take(consumer));
        }
    }

    /// Takes a batch and judges its messages. `None` when told to stop.
    async fn take(&self, consumer: &mut dyn Consumer) -> Result<Option<Judged>, ConsumeError> {
        let batch = tokio::select! {
            () = self.stop.cancelled() => return Ok(None),
            next = consumer.next() => next?,
        };
        self.progress.came(Instant::now());
        // On a thread of its own: reading some thousand messages would keep the batch before waiting.
        match tokio::task::spawn_blocking(move || judge(batch)).await {
            Ok(judged) => Ok(Some(judged)),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime goes down.
                Err(_) => Ok(None),
            },
        }
    }

    async fn handle(&self, judged: Judged) {
        let Judged { mut batch, records, places, dead, moved, redelivered } = judged;
        if self.bury(&mut batch, dead).await.is_none() {
            return;
        }
        let way = Way { redelivered, federated: false };
        let refused = match self.hold(&records, &moved, way).await {
            Some(Outcome::Stored) => Vec::new(),
            Some(Outcome::Refused) => match self.find_refused(&records, &places, way).await {
                Some(refused) => refused,
                None => return,
            },
            // The whole batch comes again.
            None => return,
        };
        if !refused.is_empty() {
            // What Postgres takes is stored by now. The offsets follow once the rest is with the dead letters.
            if self.bury(&mut batch, refused).await.is_none()
                || self.hold(&[], &moved, way).await.is_none()
            {
                return;
            }
        }
        if let Err(error) = batch.commit().await {
            tracing::warn!(%error, "a batch could not be acknowledged");
        }
    }

    /// Marks dead letters and, where a stored offset is about to pass them, waits until they are durable. `None` when told to stop.
    async fn bury(&self, batch: &mut Batch, dead: Vec<(usize, Cause)>) -> Option<()> {
        if dead.is_empty() {
            return Some(());
        }
        for (index, cause) in dead {
            let id = &batch.deliveries()[index].message.message_id;
            tracing::warn!(message_id = id, code = cause.code, "message refused");
            self.writer.metrics().refused(&cause.code);
            batch.dead_letter(index, cause);
        }
        let mut pause = PAUSE_FIRST;
        while let Err(error) = batch.bury().await {
            tracing::warn!(%error, "dead letters cannot be kept now; the batch waits");
            self.progress.holds(Some(Instant::now()));
            self.wait(&mut pause).await?;
        }
        Some(())
    }

    /// Stores what Postgres takes, in halves without offsets, and returns what it refuses. `None` when told to stop.
    async fn find_refused(
        &self,
        records: &[Record],
        places: &[usize],
        way: Way,
    ) -> Option<Vec<(usize, Cause)>> {
        let mut refused = Vec::new();
        // Parts that are still to be stored, the first one last. The whole was refused just now.
        let mut left = halves(records, places).to_vec();
        while let Some((part, at)) = left.pop() {
            if part.is_empty() {
                continue;
            }
            match self.hold(part, &Moved::default(), way).await? {
                Outcome::Stored => {}
                Outcome::Refused if part.len() > 1 => left.extend(halves(part, at)),
                Outcome::Refused => {
                    let words = "Postgres refuses the values of this event";
                    refused.extend(at.iter().map(|one| (*one, Cause::new(REFUSED, words))));
                }
            }
        }
        Some(refused)
    }

    /// Stores, however long the database is away. `None` when told to stop.
    async fn hold(&self, records: &[Record], moves: &Moved, way: Way) -> Option<Outcome> {
        let mut pause = PAUSE_FIRST;
        loop {
            let Err(error) = self.writer.store_moving(records, moves, way).await else {
                self.progress.holds(None);
                return Some(Outcome::Stored);
            };
            if error.about() == About::Data {
                return Some(Outcome::Refused);
            }
            self.held(&error, &mut pause).await?;
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

/// Judges a batch's messages.
fn judge(batch: Batch) -> Judged {
    let mut judged = Judged {
        records: Vec::with_capacity(batch.len()),
        places: Vec::with_capacity(batch.len()),
        dead: Vec::new(),
        moved: Moved::default(),
        redelivered: false,
        batch,
    };
    let deliveries = judged.batch.deliveries();
    let read = Record::read_each(deliveries.iter().map(|delivery| &delivery.message));
    for (index, (delivery, read)) in deliveries.iter().zip(read).enumerate() {
        judged.redelivered |= delivery.redelivered;
        if let Some(position) = &delivery.position {
            let at = read.as_ref().ok().map(|record| record.envelope.timestamp);
            judged.moved.note(position, at);
        }
        match read {
            Ok(record) => {
                judged.records.push(record);
                judged.places.push(index);
            }
            Err(cause) => judged.dead.push((index, cause)),
        }
    }
    judged
}

/// The second half and the first, in the order in which a stack gives them back.
fn halves<'a>(part: &'a [Record], at: &'a [usize]) -> [(&'a [Record], &'a [usize]); 2] {
    let middle = part.len() / 2;
    let (front, back) = (part.split_at(middle), at.split_at(middle));
    [(front.1, back.1), (front.0, back.0)]
}

enum Outcome {
    Stored,
    Refused,
}
