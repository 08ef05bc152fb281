//! Sending dead letters back to the work queue that gave them up.

use super::dead_letters::{DeadLetterQueue, Reader, Taken};
use super::declare::TopologyError;
use super::publisher::RabbitPublisher;
use crate::{DeadLetter, Pace, ReplayOptions, Replayed};

impl DeadLetterQueue {
    /// Replays dead letters, oldest first. One leaves this queue only after the work queue has confirmed it.
    ///
    /// An error in the middle leaves the rest where it is; what was replayed before is in the log.
    pub async fn replay(
        &self,
        publisher: &RabbitPublisher,
        options: &ReplayOptions,
    ) -> Result<Replayed, TopologyError> {
        self.replay_telling(publisher, options, &|_, _| {}).await
    }

    /// The same, and tells how far it is from time to time: how many dead letters there were at the start, and the
    /// report so far.
    pub async fn replay_telling(
        &self,
        publisher: &RabbitPublisher,
        options: &ReplayOptions,
        tell: &(dyn Fn(u64, &Replayed) + Send + Sync),
    ) -> Result<Replayed, TopologyError> {
        let reader = self.open().await?;
        let mut report = Replayed::default();
        let mut pace = Pace::new(options.per_second);
        let mut ended = false;
        while !ended {
            let room = options.limit.saturating_sub(report.replayed.len());
            let most = room.min(pace.chunk());
            let chunk = self.fill(&reader, options, most, &mut report).await?;
            ended = chunk.len() < most || most == 0;
            tell(reader.total, &report);
            if options.dry_run {
                report
                    .replayed
                    .extend(chunk.into_iter().map(|(letter, _)| letter.message.message_id));
                continue;
            }
            pace.turn(chunk.len()).await;
            self.send_back(publisher, &reader, chunk, &mut report).await;
            tell(reader.total, &report);
        }
        reader.close().await;
        Ok(report)
    }

    /// Reads until `most` are in hand that can be replayed, or no more are there.
    async fn fill(
        &self,
        reader: &Reader,
        options: &ReplayOptions,
        most: usize,
        report: &mut Replayed,
    ) -> Result<Vec<(DeadLetter, Taken)>, TopologyError> {
        let mut chunk = Vec::new();
        while chunk.len() < most && report.scanned < reader.total {
            let Some((letter, taken)) = reader.next().await? else { break };
            report.scanned += 1;
            if !options.filter.matches(&letter) {
                continue;
            }
            if letter.queue.is_none() {
                let why = "the queue that gave it up is not known".to_owned();
                report.kept.push((letter.message.message_id, why));
                continue;
            }
            chunk.push((letter, taken));
        }
        Ok(chunk)
    }

    async fn send_back(
        &self,
        publisher: &RabbitPublisher,
        reader: &Reader,
        chunk: Vec<(DeadLetter, Taken)>,
        report: &mut Replayed,
    ) {
        if chunk.is_empty() {
            return;
        }
        let copies: Vec<_> = chunk
            .iter()
            .map(|(letter, taken)| {
                let queue = letter.queue.as_deref().unwrap_or_default();
                taken.incoming().replay(queue, letter.message.body.clone())
            })
            .collect();
        let results = publisher.send(&copies).await;
        for ((letter, taken), result) in chunk.into_iter().zip(results) {
            let id = letter.message.message_id;
            if let Err(error) = result {
                report.kept.push((id, error.to_string()));
                continue;
            }
            let acknowledged = reader.acknowledge(&taken).await;
            tracing::info!(
                message_id = %id, from = %self.queue, to = letter.queue.as_deref(),
                acknowledged,
                "dead letter replayed"
            );
            report.replayed.push(id);
        }
    }
}
