//! From held messages to acknowledged ones.
//!
//! Two tasks, so that reading the next messages overlaps with committing the last: [`Pipeline::gather`]
//! checks messages as they come and closes a group when it is old or full enough and the committer
//! is free; [`Pipeline::commit`] writes one group after the other, then acknowledges. Order stays as
//! received.
//!
//! Promise: while the database is away nothing is acknowledged, and nothing is dropped: both tasks
//! wait and try again, and the bound on held messages stops the reading.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqtt::Backoff;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use super::acknowledge::{Puback, Uplink};
use super::check::Checked;
use super::mqtt::Held;
use super::write::{Error, Writer};
use crate::config::Ingress;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::signal::Signal;

const RETRY_BASE: Duration = Duration::from_millis(50);
const RETRY_CAP: Duration = Duration::from_secs(2);
/// How long a stopping edge goes on trying to commit what it has; then it leaves it unacknowledged,
/// to come again.
const LAST_TRIES: Duration = Duration::from_secs(5);

/// Messages that share a transaction.
#[derive(Debug, Default)]
pub(crate) struct Group {
    checked: Vec<Checked>,
    held: Vec<Held>,
    records: usize,
}

/// What both tasks share.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    pub(crate) writer: Writer,
    pub(crate) limits: Ingress,
    pub(crate) health: Arc<Health>,
    pub(crate) uplink: Arc<Uplink>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop: Signal,
}

impl Pipeline {
    /// Until no more messages can come.
    pub(crate) async fn gather(self, mut from: mpsc::Receiver<Held>, to: mpsc::Sender<Group>) {
        while let Some(first) = from.recv().await {
            let deadline = tokio::time::Instant::now() + self.limits.gather;
            let mut group = Group::default();
            let mut next = Some(first);
            let mut old = false;
            loop {
                if let Some(held) = next.take() {
                    let Some(checked) = self.check(&held).await else {
                        return;
                    };
                    group.records += checked.weight();
                    group.checked.push(checked);
                    group.held.push(held);
                }
                let full = group.records >= self.limits.max_records;
                tokio::select! {
                    // A group that is old enough still grows while the committer is busy.
                    permit = to.reserve(), if old || full => {
                        let Ok(permit) = permit else { return };
                        permit.send(std::mem::take(&mut group));
                        break;
                    }
                    more = from.recv(), if !full => match more {
                        Some(held) => next = Some(held),
                        None => {
                            let _ = to.send(std::mem::take(&mut group)).await;
                            return;
                        }
                    },
                    () = sleep_until(deadline), if !old => old = true,
                }
            }
        }
    }

    async fn check(&self, held: &Held) -> Option<Checked> {
        self.metrics.message(kind(&held.incoming.topic));
        self.until_done("check", || self.writer.check(&held.incoming)).await
    }

    /// Until no more groups can come.
    pub(crate) async fn commit(self, mut from: mpsc::Receiver<Group>) {
        while let Some(group) = from.recv().await {
            let Group { checked, held, .. } = group;
            let done = self.until_done("commit", || self.writer.commit(&checked)).await;
            let Some(committed) = done else { return };
            // The room goes back first: a full house must not keep the connection from taking the
            // PUBACKs.
            let messages = held.len();
            let pubacks: Vec<Puback> = held.into_iter().filter_map(|held| held.puback).collect();
            self.health.committed(messages, Instant::now());
            for puback in pubacks {
                puback.send().await;
            }
            self.uplink.publish(&committed.acks);
        }
    }

    /// Tries until it works. `None` when the edge stops and it still does not.
    async fn until_done<T, F>(&self, what: &'static str, mut work: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut backoff = Backoff::new(RETRY_BASE, RETRY_CAP);
        let mut stop = self.stop.clone();
        let mut give_up: Option<tokio::time::Instant> = None;
        loop {
            let error = match work().await {
                Ok(done) => return Some(done),
                Err(error) => error,
            };
            self.metrics.db_retry();
            let pause = backoff.next(&mut rand::rng());
            tracing::warn!(what, %error, ?pause, "ingress waits for the database");
            if stop.is_said() {
                let now = tokio::time::Instant::now();
                if now >= *give_up.get_or_insert(now + LAST_TRIES) {
                    return None;
                }
                sleep(pause.min(LAST_TRIES / 10)).await;
            } else {
                tokio::select! {
                    () = sleep(pause) => {}
                    () = stop.heard() => {}
                }
            }
        }
    }
}

/// The last level of the topic if it is one of ours; the metrics know no others.
fn kind(topic: &str) -> &str {
    let level = topic.rsplit('/').next().unwrap_or_default();
    match level {
        "live" | "backfill" | "event" | "status" => level,
        _ => "other",
    }
}
