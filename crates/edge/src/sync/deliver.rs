//! A claimed batch on its way: cut to size, sent, split where the cloud asks for it, judged row by row.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event::id::TenantId;
use lease::{Batch, Handler, Outcome, Verdict};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::cloud::{Answer, Body, Reply, Status};
use super::line::{Line, Met};
use super::outbox::{Outgoing, Part};
use super::store::{Sent, Tally};

/// JSON in one request before compression: as much as the cloud takes as it travels, so that a body
/// that does not compress still passes.
const BODY_BYTES: usize = 8 << 20;
/// Room for the frame around the events.
const FRAME_BYTES: usize = 4 << 10;
/// The longest rest after a backlog batch.
const MAX_REST: Duration = Duration::from_secs(30);

/// The dead-letter reason of an event that the cloud cannot read.
const MALFORMED: &str = "malformed";

/// When the first so many events of a batch are all malformed, the rest is not tried.
const MALFORMED_IN_A_ROW: usize = 8;

/// Sends the rows of one part of the outbox.
pub(super) struct Sender {
    pub(super) line: Arc<Line>,
    pub(super) part: Part,
    pub(super) backlog_after: Duration,
    pub(super) backlog_share: f64,
    /// A backlog batch has one of these from its start to the end of its rest. Closed at a stop.
    pub(super) places: Arc<Semaphore>,
}

impl Handler<Outgoing> for Sender {
    async fn handle(&self, batch: Batch<Outgoing>) -> Verdict {
        let rows: Vec<Outgoing> = batch.items.into_iter().map(|item| item.row).collect();
        let old = |row: &Outgoing| row.age_seconds > self.backlog_after.as_secs_f64();
        if self.part == Part::Live || !rows.iter().any(old) {
            return self.deliver(&rows).await;
        }
        // At a stop there are no places any more; what is held goes out without a rest.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let began = Instant::now();
        let verdict = self.deliver(&rows).await;
        if let Some(place) = place {
            let rest = rest(began.elapsed(), self.backlog_share);
            tokio::spawn(async move {
                tokio::time::sleep(rest).await;
                drop(place);
            });
        }
        verdict
    }
}

impl Sender {
    async fn deliver(&self, rows: &[Outgoing]) -> Verdict {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(rows.len());
        // A stack: the next range to send is the last.
        let mut ranges = cut(rows);
        ranges.reverse();
        while let Some(range) = ranges.pop() {
            if outcomes.len() >= MALFORMED_IN_A_ROW && outcomes.iter().all(is_malformed) {
                break;
            }
            let part = rows.get(range.clone()).unwrap_or_default();
            let body = Body::new(&self.line.cluster_id, part, &[]);
            let (answer, trace, answered_at) = match self.line.request(&body, &tenants(part)).await
            {
                Met::Answer(answer, trace, answered_at) => (answer, trace, answered_at),
                Met::Down(down) => {
                    let down = lease::Down { why: down.why, retry_after: Some(down.pause) };
                    return Verdict { outcomes, down: Some(down) };
                }
            };
            match answer {
                Answer::Reply(reply) => {
                    let sent = Sent {
                        batch_id: &body.batch_id,
                        cluster_id: &self.line.cluster_id,
                        trace_id: trace.trace_id(),
                        sent_at: body.sent_at,
                        answered_at,
                        tenants: tally(part, &reply),
                    };
                    if let Err(error) = self.line.store.sent(&sent).await {
                        tracing::warn!(%error, "sync_state could not be written");
                    }
                    outcomes.extend(self.judge(reply));
                }
                _ if range.len() > 1 => {
                    let middle = range.start + range.len() / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
                Answer::Malformed(message) => {
                    outcomes.push(self.unsendable(MALFORMED, "HTTP_400", message));
                }
                Answer::TooLarge(message) => {
                    let message = message.unwrap_or_default();
                    outcomes.push(self.unsendable("too_large", "HTTP_413", message));
                }
                // The line has told of it already.
                Answer::Down { .. } => outcomes.push(Outcome::NotTried),
            }
        }
        if rows.len() > 1 && outcomes.iter().all(is_malformed) {
            let why = "the cloud refuses every event of a batch as malformed";
            let down = self.line.distrust(why, &tenants(rows)).await;
            return Verdict::down(down.why, Some(down.pause));
        }
        Verdict::each(outcomes)
    }

    fn judge(&self, reply: Reply) -> Vec<Outcome> {
        let meter = &self.line.metrics.sync;
        let each = reply.results.into_iter().map(|result| match result.status {
            Status::Accepted => {
                meter.event("accepted", 1);
                Outcome::Done
            }
            Status::Duplicate => {
                meter.event("duplicate", 1);
                Outcome::Done
            }
            Status::Rejected => {
                meter.event("rejected", 1);
                Outcome::Bury {
                    reason: result.code.unwrap_or_else(|| "rejected".to_owned()),
                    code: "REJECTED".to_owned(),
                    message: result.message.unwrap_or_default(),
                }
            }
        });
        each.collect()
    }

    fn unsendable(&self, reason: &str, code: &str, message: String) -> Outcome {
        self.line.metrics.sync.event("unsendable", 1);
        Outcome::Bury { reason: reason.to_owned(), code: code.to_owned(), message }
    }
}

fn is_malformed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Bury { reason, code, .. } if reason == MALFORMED && code == "HTTP_400")
}

/// The tenants of some rows, each once, in order.
fn tenants(rows: &[Outgoing]) -> Vec<Uuid> {
    let mut tenants: Vec<Uuid> = rows.iter().map(|row| row.tenant.uuid()).collect();
    tenants.sort_unstable();
    tenants.dedup();
    tenants
}

fn tally(rows: &[Outgoing], reply: &Reply) -> BTreeMap<TenantId, Tally> {
    let mut tenants: BTreeMap<TenantId, Tally> = BTreeMap::new();
    for (row, result) in rows.iter().zip(&reply.results) {
        let tally = tenants.entry(row.tenant).or_default();
        let (acked, counted) = (result.status != Status::Rejected, !row.about_sync);
        tally.sent += u64::from(counted);
        tally.acked += u64::from(counted && acked);
        if acked {
            tally.last_acked = Some(row.event_id);
        }
    }
    tenants
}

/// Cuts rows into runs that each fit a request.
fn cut(rows: &[Outgoing]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (n, row) in rows.iter().enumerate() {
        let size = row.json.get().len() + 1;
        if n > start && bytes + size > BODY_BYTES - FRAME_BYTES {
            ranges.push(start..n);
            (start, bytes) = (n, 0);
        }
        bytes += size;
    }
    ranges.push(start..rows.len());
    ranges
}

/// How long a place rests after a backlog batch that took this long.
fn rest(took: Duration, share: f64) -> Duration {
    let share = share.clamp(0.01, 1.0);
    took.mul_f64((1.0 - share) / share).min(MAX_REST)
}

#[cfg(test)]
mod tests {
    use event::id::EventId;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    fn row(bytes: usize) -> Outgoing {
        let text = format!("\"{}\"", "a".repeat(bytes));
        Outgoing {
            event_id: EventId::mint(),
            tenant: TenantId::mint(),
            about_sync: false,
            age_seconds: 0.0,
            json: RawValue::from_string(text).unwrap(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn every_row_is_in_one_run_and_in_order(
            sizes in proptest::collection::vec(0usize..240 * 1024, 1..200)
        ) {
            let rows: Vec<Outgoing> = sizes.iter().map(|size| row(*size)).collect();
            let ranges = cut(&rows);
            let all: Vec<usize> = ranges.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..rows.len()).collect::<Vec<_>>());
            for range in ranges {
                let bytes: usize = rows[range].iter().map(|row| row.json.get().len() + 1).sum();
                prop_assert!(bytes <= BODY_BYTES);
            }
        }
    }

    #[test]
    fn the_rest_leaves_the_share_and_has_a_bound() {
        let second = Duration::from_secs(1);
        assert_eq!(rest(second, 1.0), Duration::ZERO);
        assert_eq!(rest(second, 0.5), second);
        assert_eq!(rest(second, 0.25), 3 * second);
        assert_eq!(rest(60 * second, 0.05), MAX_REST);
    }
}
