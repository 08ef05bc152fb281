//! Sending dead letters back to the group that gave them up.
//!
//! The original is published again to its topic, for that group alone, and when that is confirmed the dead letter gets its mark. A
//! kill between the two replays it once more; consumers are idempotent.

use std::sync::Arc;

use super::admin::AdminError;
use super::cluster::is_topic;
use super::dead_letters::{DeadLetterTopic, Found};
use super::publisher::KafkaPublisher;
use super::record::{Outgoing, replay, settles};
use crate::{Pace, ReplayOptions, Replayed};

const UNKNOWN: &str = "the group that gave it up, or where it was, is not known";

impl DeadLetterTopic {
    /// Replays dead letters, those of one partition in their order, and tells how far it is from time to time: how many there were at
    /// the start, and the report so far.
    ///
    /// A letter that the cluster does not confirm stays, with the reason in the report.
    pub async fn replay(
        &self,
        publisher: &KafkaPublisher,
        options: &ReplayOptions,
        tell: &(dyn Fn(u64, &Replayed) + Send + Sync),
    ) -> Result<Replayed, AdminError> {
        let look = self.look(&options.filter, options.limit, true).await?;
        // Those that go are done with when they have gone.
        let scanned = look.scanned.saturating_sub(look.found.len() as u64);
        let mut report = Replayed { scanned, ..Replayed::default() };
        report.kept.extend(look.unknown.into_iter().map(|id| (id, UNKNOWN.to_owned())));
        let mut pace = Pace::new(options.per_second);
        tell(look.total, &report);
        for chunk in look.found.chunks(pace.chunk()) {
            if !options.dry_run {
                pace.turn(chunk.len()).await;
            }
            self.send_back(publisher, chunk, options.dry_run, &mut report).await;
            report.scanned += chunk.len() as u64;
            tell(look.total, &report);
        }
        Ok(report)
    }

    async fn send_back(
        &self,
        publisher: &KafkaPublisher,
        chunk: &[Found],
        dry_run: bool,
        report: &mut Replayed,
    ) {
        let mut going: Vec<(&Found, Outgoing)> = Vec::with_capacity(chunk.len());
        for found in chunk {
            let id = &found.letter.message.message_id;
            let Some((position, group)) = found.position.as_ref().zip(found.letter.queue.as_ref())
            else {
                report.kept.push((id.clone(), UNKNOWN.to_owned()));
                continue;
            };
            // The place is a header, and anybody who may write here may write any.
            if !is_topic(&position.topic) || position.topic == self.topic {
                report.kept.push((id.clone(), "it names no topic that it could go to".to_owned()));
                continue;
            }
            let raw_key = found.raw_key.as_ref();
            going.push((found, replay(&found.letter, raw_key, &position.topic, group)));
        }
        if dry_run {
            let ids = going.iter().map(|(found, _)| found.letter.message.message_id.clone());
            report.replayed.extend(ids);
            return;
        }
        let (found, records): (Vec<&Found>, Vec<Outgoing>) = going.into_iter().unzip();
        let results = publisher.send(&records).await;
        let mut marks = Vec::new();
        for (found, result) in found.into_iter().zip(results) {
            let letter = &found.letter;
            let id = letter.message.message_id.clone();
            if let Err(error) = result {
                report.kept.push((id, error.to_string()));
                continue;
            }
            tracing::info!(
                message_id = %id, from = %self.topic, to = letter.queue.as_deref(),
                "dead letter replayed"
            );
            marks.extend(found.places.iter().map(|place| settles(&self.topic, *place)));
            report.replayed.push(id);
        }
        self.mark(publisher, &marks).await;
    }

    /// A letter without its mark is replayed once more by the next replay, which does no harm and is said.
    async fn mark(&self, publisher: &KafkaPublisher, marks: &[Outgoing]) {
        let results = publisher.send(marks).await;
        let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        if let Some(error) = failed.first() {
            let (topic, count): (&Arc<str>, usize) = (&self.topic, failed.len());
            tracing::warn!(%topic, count, %error, "replayed dead letters could not be marked");
        }
    }
}
