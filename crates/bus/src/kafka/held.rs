//! Settling a batch: what is done, what comes again, what becomes a dead letter, and then the offsets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use rdkafka::consumer::{CommitMode, Consumer as _};

use super::cluster::words;
use super::consumer::{Offsets, Shared};
use super::partitions::Ticket;
use super::rebalance::list_of;
use super::record::{Outgoing, Own, Received, letter};
use crate::batch::{Mark, Settle};
use crate::retry::Verdict;
use crate::{Cause, Committed, ConsumeError, Delivery, PublishError};

/// Between two tries to publish a dead letter.
const COPY_PAUSE: Duration = Duration::from_millis(500);

/// The messages behind a batch.
pub(crate) struct HeldBatch {
    held: Vec<(Ticket, Own)>,
    /// Those that are on their way to the dead letters. What is left here when this is dropped comes again.
    letters: Vec<Letter>,
    /// Messages that are in the dead letters already.
    buried: BTreeSet<usize>,
    shared: Arc<Shared>,
}

struct Letter {
    ticket: Ticket,
    message: Received,
    attempts: u32,
    cause: Cause,
}

impl HeldBatch {
    pub(crate) fn new(held: Vec<(Ticket, Own)>, shared: Arc<Shared>) -> HeldBatch {
        HeldBatch { held, letters: Vec::new(), buried: BTreeSet::new(), shared }
    }

    async fn finish(
        mut self: Box<Self>,
        lost: bool,
        mut committed: Committed,
    ) -> Result<Committed, ConsumeError> {
        if !self.letters.is_empty() {
            self.bury(&mut committed).await;
            self.shared.tell();
        }
        commit_offsets(&self.shared).await;
        self.shared.metrics.settled(&committed);
        if lost { Err(ConsumeError::Lost) } else { Ok(committed) }
    }

    /// Does at once what can be done at once. True when partitions of the batch were taken from us.
    fn mark(
        &mut self,
        deliveries: Vec<Delivery>,
        marks: Vec<Mark>,
        committed: &mut Committed,
    ) -> bool {
        let mut lost = false;
        let now = Instant::now();
        let held = std::mem::take(&mut self.held);
        let mut state = self.shared.state();
        let all = held.into_iter().zip(deliveries).zip(marks).enumerate();
        for (at, (((ticket, own), delivery), mark)) in all {
            if !state.partitions.is_current(&ticket) {
                lost = true;
                continue;
            }
            match self.shared.group.retry.decide(mark, delivery.attempts) {
                Verdict::Done => {
                    committed.done += 1;
                    state.partitions.settle(&ticket);
                }
                Verdict::Again { delay, attempts, cause } => {
                    match cause {
                        Some(_) => committed.retried += 1,
                        None => committed.deferred += 1,
                    }
                    let delivery = Delivery { attempts, ..delivery };
                    state.partitions.again(&ticket, Received { delivery, own }, now + delay);
                }
                Verdict::GiveUp { .. } if self.buried.contains(&at) => {
                    committed.dead_lettered += 1;
                    state.partitions.settle(&ticket);
                }
                Verdict::GiveUp { attempts, cause } => {
                    let message = Received { delivery, own };
                    self.letters.push(Letter { ticket, message, attempts, cause });
                }
            }
        }
        lost
    }

    /// Publishes dead letters, trying again for a while.
    async fn bury(&mut self, committed: &mut Committed) {
        let topic: Arc<str> = self.shared.group.dead_letter_topic.as_str().into();
        let group = self.shared.group.name.clone();
        let deadline = Instant::now() + self.shared.copy_within;
        let at = Timestamp::now();
        loop {
            let record =
                |one: &Letter| letter(&one.message, &topic, &group, one.attempts, &one.cause, at);
            let copies: Vec<Outgoing> = self.letters.iter().map(record).collect();
            let results = self.shared.copies.send(&copies).await;
            let failure = self.count_buried(results, committed);
            let Some(error) = failure else { return };
            tracing::warn!(%group, letters = self.letters.len(), %error, "dead letters not confirmed");
            if Instant::now() + COPY_PAUSE >= deadline {
                break;
            }
            tokio::time::sleep(COPY_PAUSE).await;
        }
        committed.returned += self.letters.len() as u64;
        self.give_back_letters();
    }

    /// Settles the letters that are confirmed, keeps the others, and says why they are not.
    fn count_buried(
        &mut self,
        results: Vec<Result<(), PublishError>>,
        committed: &mut Committed,
    ) -> Option<PublishError> {
        let mut failure = None;
        let letters = std::mem::take(&mut self.letters);
        let mut state = self.shared.state();
        for (one, result) in letters.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    committed.dead_lettered += 1;
                    state.partitions.settle(&one.ticket);
                }
                Err(error) => {
                    failure = Some(error);
                    self.letters.push(one);
                }
            }
        }
        failure
    }

    /// Without this attempt, so that they end in the same verdict.
    fn give_back_letters(&mut self) {
        let due = Instant::now() + self.shared.group.retry.delays()[0];
        let letters = std::mem::take(&mut self.letters);
        let mut state = self.shared.state();
        for Letter { ticket, mut message, .. } in letters {
            message.delivery.redelivered = true;
            state.partitions.again(&ticket, message, due);
        }
    }
}

impl HeldBatch {
    async fn bury_before(
        &mut self,
        deliveries: &[Delivery],
        marks: &[Mark],
    ) -> Result<(), PublishError> {
        let topic: Arc<str> = self.shared.group.dead_letter_topic.as_str().into();
        let (group, at) = (&self.shared.group, Timestamp::now());
        let (mut places, mut copies) = (Vec::new(), Vec::new());
        let all = deliveries.iter().zip(&self.held).zip(marks).enumerate();
        for (place, ((delivery, (_, own)), mark)) in all {
            let verdict = group.retry.decide(mark.clone(), delivery.attempts);
            let Verdict::GiveUp { attempts, cause } = verdict else { continue };
            if self.buried.contains(&place) {
                continue;
            }
            let message = Received { delivery: delivery.clone(), own: own.clone() };
            places.push(place);
            copies.push(letter(&message, &topic, &group.name, attempts, &cause, at));
        }
        if copies.is_empty() {
            return Ok(());
        }
        let results = self.shared.copies.send(&copies).await;
        let mut outcome = Ok(());
        for (place, result) in places.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    self.buried.insert(place);
                }
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

impl Settle for HeldBatch {
    fn bury<'a>(
        &'a mut self,
        deliveries: &'a [Delivery],
        marks: &'a [Mark],
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        Box::pin(self.bury_before(deliveries, marks))
    }

    fn settle(
        mut self: Box<Self>,
        deliveries: Vec<Delivery>,
        marks: Vec<Mark>,
    ) -> BoxFuture<'static, Result<Committed, ConsumeError>> {
        // Before anything is waited for: a future that is dropped leaves no message without a fate.
        let mut committed = Committed::default();
        let lost = self.mark(deliveries, marks, &mut committed);
        self.shared.tell();
        Box::pin(self.finish(lost, committed))
    }

    fn abandon(mut self: Box<Self>, deliveries: Vec<Delivery>) {
        let held = std::mem::take(&mut self.held);
        let now = Instant::now();
        let mut state = self.shared.state();
        for ((ticket, own), mut delivery) in held.into_iter().zip(deliveries) {
            delivery.redelivered = true;
            state.partitions.again(&ticket, Received { delivery, own }, now);
        }
        drop(state);
        self.shared.tell();
    }
}

/// A commit that was dropped in the middle.
impl Drop for HeldBatch {
    fn drop(&mut self) {
        if !self.letters.is_empty() {
            self.give_back_letters();
            self.shared.tell();
        }
    }
}

/// Commits what has moved. What the broker does not take goes with the next commit.
async fn commit_offsets(shared: &Arc<Shared>) {
    let held = shared.committing.lock().await;
    let (client, offsets) = {
        let state = shared.state();
        (state.client.clone(), state.partitions.to_commit(None))
    };
    let Some(client) = client.filter(|_| !offsets.is_empty()) else { return };
    let mode = match shared.offsets {
        Offsets::Group => CommitMode::Sync,
        Offsets::Stored(_) => CommitMode::Async,
    };
    let list = list_of(&offsets);
    let told = match mode {
        CommitMode::Async => client.commit(&list, mode),
        CommitMode::Sync => {
            let waiting = tokio::task::spawn_blocking(move || client.commit(&list, mode));
            // The only failure is that of a runtime that ends.
            waiting.await.unwrap_or(Ok(()))
        }
    };
    match told {
        Ok(()) => shared.state().partitions.committed(&offsets),
        Err(error) => {
            let group = &shared.group.name;
            tracing::warn!(%group, error = %words(&error), "offsets not taken; they go with the next commit");
        }
    }
    drop(held);
}
