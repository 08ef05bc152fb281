//! The loop of every consumer: take a batch, store it, acknowledge.
//!
//! Promises: the acknowledgement follows the commit. An outage of the database holds the batch, with
//! a pause that grows, and counts no attempt. When Postgres refuses values, the batch is halved until
//! the one event is found that it refuses; that one becomes a dead letter, the rest is stored.

use std::time::Duration;

use bus::{Batch, Cause, ConsumeError, Consumer};
use pg::About;
use rand::RngExt as _;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::event::{Event, REFUSED};
use crate::trace::Spans;

const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

/// Stores events of a batch, all or none.
pub(super) trait Store: Send + Sync {
    /// The service, for logs.
    const SERVICE: &'static str;

    /// Stores them in one transaction. An error means that none of them is stored.
    fn store(&self, events: &[Event]) -> impl Future<Output = Result<(), pg::Error>> + Send;
}

/// Works off a queue until told to stop, or until the consumer is closed; then other replicas get its part.
pub(super) async fn work_off<S: Store>(
    mut consumer: Box<dyn Consumer>,
    store: &S,
    stop: &CancellationToken,
) {
    take_batches(&mut *consumer, store, stop).await;
    consumer.leave().await;
}

async fn take_batches<S: Store>(consumer: &mut dyn Consumer, store: &S, stop: &CancellationToken) {
    let mut pause = PAUSE_FIRST;
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => return,
            next = consumer.next() => next,
        };
        match next {
            Ok(batch) => {
                pause = PAUSE_FIRST;
                let spans = Spans::consume_batch(S::SERVICE, &batch);
                handle(batch, store, stop).instrument(spans.first()).await;
            }
            Err(ConsumeError::Closed) => return,
            Err(error) => {
                tracing::warn!(service = S::SERVICE, %error, "no batch could be taken");
                if wait(&mut pause, stop).await.is_none() {
                    return;
                }
            }
        }
    }
}

async fn handle<S: Store>(mut batch: Batch, store: &S, stop: &CancellationToken) {
    let mut events = Vec::with_capacity(batch.len());
    let mut refused = Vec::new();
    for (index, delivery) in batch.deliveries().iter().enumerate() {
        match Event::read(index, delivery) {
            Ok(event) => events.push(event),
            Err(cause) => refused.push((index, cause)),
        }
    }
    for (index, cause) in refused {
        let message = &batch.deliveries()[index].message;
        tracing::warn!(
            service = S::SERVICE,
            message_id = message.message_id,
            trace_id = message.headers.get("trace_id"),
            code = cause.code,
            "message refused"
        );
        batch.dead_letter(index, cause);
    }
    // Halves that are still to be stored, the first one last.
    let mut left: Vec<&[Event]> = vec![&events];
    while let Some(part) = left.pop() {
        if part.is_empty() {
            continue;
        }
        match hold(part, store, stop).await {
            Outcome::Stored => {}
            Outcome::Refused if part.len() > 1 => {
                let (front, back) = part.split_at(part.len() / 2);
                left.extend([back, front]);
            }
            Outcome::Refused => {
                let event = &part[0];
                let trace_id = &event.envelope.trace_id;
                tracing::warn!(
                    service = S::SERVICE, event_id = %event.id(), trace_id, code = REFUSED,
                    "event refused"
                );
                let message = "Postgres refuses the values of this event";
                batch.dead_letter(event.index, Cause::new(REFUSED, message));
            }
            // What is stored is stored; the whole batch comes again and finds it there.
            Outcome::Stopped => return,
        }
    }
    if let Err(error) = batch.commit().await {
        tracing::warn!(service = S::SERVICE, %error, "a batch could not be acknowledged");
    }
}

enum Outcome {
    Stored,
    Refused,
    Stopped,
}

/// Stores, however long the database is away.
async fn hold<S: Store>(events: &[Event], store: &S, stop: &CancellationToken) -> Outcome {
    let mut pause = PAUSE_FIRST;
    loop {
        let error = match store.store(events).await {
            Ok(()) => return Outcome::Stored,
            Err(error) => error,
        };
        match error.about() {
            About::Data => return Outcome::Refused,
            About::Destination | About::Conflict => {
                tracing::warn!(service = S::SERVICE, %error, "a batch waits for the database");
            }
            // A person has to act, and until then the events wait where they are.
            About::Us => {
                tracing::error!(service = S::SERVICE, %error, "a batch cannot be stored");
            }
        }
        if wait(&mut pause, stop).await.is_none() {
            return Outcome::Stopped;
        }
    }
}

/// Waits, longer each time, spread so that replicas do not come back all at once. `None` when told
/// to stop.
pub(super) async fn wait(pause: &mut Duration, stop: &CancellationToken) -> Option<()> {
    let spread = pause.mul_f64(rand::rng().random_range(0.75..1.25));
    *pause = (*pause * 2).min(PAUSE_LONGEST);
    tokio::select! {
        () = stop.cancelled() => None,
        () = tokio::time::sleep(spread) => Some(()),
    }
}
