//! Sending dead letters back to the work queue that gave them up.

use std::time::Duration;

use tokio::time::Instant;

use super::dead_letters::{DeadLetterQueue, Reader, Taken};
use super::declare::TopologyError;
use super::publisher::RabbitPublisher;
use crate::{DeadLetter, Filter};

/// The most messages that are published together; fewer when the rate is lower.
const CHUNK: u32 = 100;

/// How a replay goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Which.
    pub filter: Filter,
    /// The most that are replayed.
    pub limit: usize,
    /// The most in a second.
    pub per_second: u32,
    /// Reports what it would do, and does nothing.
    pub dry_run: bool,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions { filter: Filter::default(), limit: 10_000, per_second: 100, dry_run: true }
    }
}

/// What a replay did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How many were looked at.
    pub scanned: u64,
    /// Ids of those that went back to their queue; in a dry run, that would.
    pub replayed: Vec<String>,
    /// Ids of those that stay, and why: the queue is not known, or is gone, or did not confirm.
    pub kept: Vec<(String, String)>,
}

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
        let per_second = options.per_second.max(1);
        let started = Instant::now();
        let mut sent: u32 = 0;
        let mut ended = false;
        while !ended {
            let room = options.limit.saturating_sub(report.replayed.len());
            let most = room.min(per_second.min(CHUNK) as usize);
            let chunk = self.fill(&reader, options, most, &mut report).await?;
            ended = chunk.len() < most || most == 0;
            tell(reader.total, &report);
            if options.dry_run {
                report
                    .replayed
                    .extend(chunk.into_iter().map(|(letter, _)| letter.message.message_id));
                continue;
            }
            sent = sent.saturating_add(u32::try_from(chunk.len()).unwrap_or(u32::MAX));
            self.send_back(publisher, &reader, chunk, &mut report).await;
            tell(reader.total, &report);
            if !ended {
                let pace = Duration::from_secs(1).mul_f64(f64::from(sent) / f64::from(per_second));
                tokio::time::sleep_until(started + pace).await;
            }
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
