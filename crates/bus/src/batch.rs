//! A batch in a handler's hands.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{Cause, ConsumeError, Message, PublishError};

/// Where a message is in Kafka.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset. A caller that keeps offsets itself stores the one after it.
    pub offset: i64,
}

/// A message as a consumer gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message, as it was published.
    pub message: Message,
    /// How often it has failed before.
    pub attempts: u32,
    /// True when it was delivered before without a verdict, as far as is known: perhaps it is stored
    /// already.
    pub redelivered: bool,
    /// Where it is; known on Kafka only.
    pub position: Option<Position>,
}

/// The handler's mark on a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    Done,
    Retry(Cause),
    DeadLetter(Cause),
    Defer,
}

/// What a commit did, by number of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Committed {
    /// Acknowledged.
    pub done: u64,
    /// To come again after a failure.
    pub retried: u64,
    /// To come again without one.
    pub deferred: u64,
    /// Now a dead letter.
    pub dead_lettered: u64,
    /// Given back to be delivered again at once, because the copy for a retry or for the dead letters could
    /// not be confirmed.
    pub returned: u64,
}

/// How an implementation settles a batch.
pub(crate) trait Settle: Send {
    fn settle(
        self: Box<Self>,
        deliveries: Vec<Delivery>,
        marks: Vec<Mark>,
    ) -> BoxFuture<'static, Result<Committed, ConsumeError>>;

    /// Makes the dead letters among the messages durable before the commit, which then does not do it again. Where a commit
    /// is the only acknowledgement there is nothing to do before it.
    fn bury<'a>(
        &'a mut self,
        _deliveries: &'a [Delivery],
        _marks: &'a [Mark],
    ) -> BoxFuture<'a, Result<(), PublishError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The batch was dropped: everything in it is to be delivered again.
    fn abandon(self: Box<Self>, deliveries: Vec<Delivery>);
}

/// Messages that were delivered and are not acknowledged yet.
///
/// The handler stores them, marks those that failed, and commits. A batch that is dropped is
/// delivered again.
#[must_use = "a batch that is not committed is delivered again"]
pub struct Batch {
    deliveries: Vec<Delivery>,
    marks: Vec<Mark>,
    settle: Option<Box<dyn Settle>>,
}

impl Batch {
    pub(crate) fn new(deliveries: Vec<Delivery>, settle: Box<dyn Settle>) -> Batch {
        let marks = vec![Mark::Done; deliveries.len()];
        Batch { deliveries, marks, settle: Some(settle) }
    }

    /// The messages, in order.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// False: a batch has at least one message.
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// Message `index` failed and may work later. Panics, as an index does, when there is none.
    pub fn retry(&mut self, index: usize, cause: Cause) {
        self.marks[index] = Mark::Retry(cause);
    }

    /// Message `index` can never work. Panics, as an index does, when there is none.
    pub fn dead_letter(&mut self, index: usize, cause: Cause) {
        self.marks[index] = Mark::DeadLetter(cause);
    }

    /// Message `index` could not be tried, for a reason that is not its own: it comes again later,
    /// without an attempt. Panics, as an index does, when there is none.
    pub fn defer(&mut self, index: usize) {
        self.marks[index] = Mark::Defer;
    }

    /// Defers every message that has no other mark: the handler's store is down.
    pub fn defer_all(&mut self) {
        for mark in &mut self.marks {
            if *mark == Mark::Done {
                *mark = Mark::Defer;
            }
        }
    }

    /// For a handler that keeps offsets in its own transaction: sends what is marked to be given up to the dead letters now, and
    /// returns when it is durable there. Without it a crash after that transaction would lose them, because the offset has moved.
    ///
    /// After an error drop the batch, or try again.
    pub async fn bury(&mut self) -> Result<(), PublishError> {
        match &mut self.settle {
            Some(settle) => settle.bury(&self.deliveries, &self.marks).await,
            None => Ok(()),
        }
    }

    /// For the same handler: at which offset each partition of the batch goes on once the batch is stored. That is after its
    /// last message, or at the first that is marked to come again. Empty elsewhere than on Kafka.
    pub fn next_offsets(&self) -> BTreeMap<(Arc<str>, i32), i64> {
        let mut next: BTreeMap<_, (i64, bool)> = BTreeMap::new();
        for (delivery, mark) in self.deliveries.iter().zip(&self.marks) {
            let Some(position) = &delivery.position else { continue };
            let again = matches!(mark, Mark::Retry(_) | Mark::Defer);
            let id = (Arc::clone(&position.topic), position.partition);
            let (offset, held) = next.entry(id).or_insert((position.offset, false));
            if !*held {
                *held = again;
                *offset = if again { position.offset } else { position.offset + 1 };
            }
        }
        next.into_iter().map(|(id, (offset, _))| (id, offset)).collect()
    }

    /// Acknowledges the batch: marked messages go where their mark says, the rest is done. Call it
    /// after the store's own commit.
    ///
    /// An error means that messages of the batch are delivered again, all of them or some.
    pub async fn commit(mut self) -> Result<Committed, ConsumeError> {
        let deliveries = std::mem::take(&mut self.deliveries);
        let marks = std::mem::take(&mut self.marks);
        match self.settle.take() {
            Some(settle) => settle.settle(deliveries, marks).await,
            None => Ok(Committed::default()),
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(settle) = self.settle.take() {
            settle.abandon(std::mem::take(&mut self.deliveries));
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("deliveries", &self.deliveries).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Settle for Nothing {
        fn settle(
            self: Box<Self>,
            _deliveries: Vec<Delivery>,
            _marks: Vec<Mark>,
        ) -> BoxFuture<'static, Result<Committed, ConsumeError>> {
            Box::pin(std::future::ready(Ok(Committed::default())))
        }

        fn abandon(self: Box<Self>, _deliveries: Vec<Delivery>) {}
    }

    #[test]
    fn offsets_stop_at_the_first_that_comes_again() {
        let at = |partition, offset| Delivery {
            message: Message::json("t", "k", "id", ""),
            attempts: 0,
            redelivered: false,
            position: Some(Position { topic: "t".into(), partition, offset }),
        };
        let deliveries = vec![at(0, 4), at(0, 5), at(1, 7), at(1, 8), at(1, 9), at(2, 3)];
        let mut batch = Batch::new(deliveries, Box::new(Nothing));
        batch.dead_letter(1, Cause::new("c", "m"));
        batch.defer(3);
        batch.retry(5, Cause::new("c", "m"));
        let next: Vec<_> = batch
            .next_offsets()
            .into_iter()
            .map(|((_, partition), next)| (partition, next))
            .collect();
        assert_eq!(next, [(0, 6), (1, 8), (2, 3)]);
    }
}
