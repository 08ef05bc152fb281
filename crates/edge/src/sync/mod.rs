//! The sync forwarder: from `sync_outbox` to the cloud.
//!
//! Promises: an event is `acked` only after the cloud has said that it is durable there; an outage of
//! any length changes no row; one bad event does not hold up its neighbours; rows of a device leave
//! in order; alarms and events never wait behind a backlog of telemetry. docs/spec/sync-forwarder.md
//! is the contract.
//!
//! It must not know the cloud's insides, only docs/spec/edge-cloud.md. It fails at start for what can
//! never work; after that the cloud and the database may come and go. Neither the token nor a payload
//! is in any log, error or metric.

pub mod admin;
mod cloud;
mod copies;
mod deliver;
mod drain;
mod line;
mod link;
mod meter;
mod outbox;
pub mod probe;
mod store;
mod tombstones;

use std::sync::Arc;
use std::time::Duration;

use event::id::NodeId;
use lease::backoff::Backoff;
use lease::{Counts, Options, Worker};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::config::Sync;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::signal::{Sayer, Signal, signal};
use cloud::Cloud;
use deliver::Sender;
use drain::Drain;
use line::Line;
use link::Link;
pub(crate) use meter::Meter;
use outbox::Part;
use store::Store;

/// Added to every pause, so that sites do not come back all at once.
const JITTER: Duration = Duration::from_secs(1);
/// How often the backlog is counted, at the most.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// Connections beside those of the workers: tombstones, copies of images, and the watch.
const MORE_CONNECTIONS: usize = 3;

/// Why the forwarder cannot start.
#[derive(Debug, thiserror::Error)]
#[error("edge.{key}: {problem}")]
pub struct Error {
    /// The key that cannot work.
    key: &'static str,
    /// Why.
    problem: String,
}

/// A running forwarder. Dropping it is like a crash: what it holds is taken over when its lease ends.
pub struct Forwarder {
    line: Arc<Line>,
    workers: Vec<Worker>,
    places: Arc<Semaphore>,
    stop: Sayer,
    tasks: JoinSet<()>,
    stall_after: Duration,
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Starts a forwarder. Neither the database nor the cloud need be there yet.
    pub fn start(
        database: &pg::Options,
        config: &Sync,
        replica: &NodeId,
        metrics: Arc<Metrics>,
    ) -> Result<Forwarder, Error> {
        let refuse = |error: &dyn std::fmt::Display| Error {
            key: "database.url",
            problem: error.to_string(),
        };
        let database = pg::Options {
            max_connections: Part::ALL.len() * config.workers + MORE_CONNECTIONS,
            application_name: "holdfast-sync".to_owned(),
            ..database.clone()
        };
        let pool = pg::Pool::new(&database).map_err(|error| refuse(&error))?;
        let backoff = Backoff::Exponential {
            base: config.backoff_base,
            cap: config.backoff_cap,
            jitter: JITTER.min(config.backoff_cap),
        };
        let line = Arc::new(Line::new(
            Cloud::new(config)?,
            Store { pool: pool.clone() },
            metrics,
            config.cluster_id.clone(),
            Link::new(backoff.clone()),
        ));
        let places = Arc::new(Semaphore::new(config.workers));
        let mut workers = Vec::new();
        for part in Part::ALL {
            let options = Options {
                batch: config.batch_events,
                slots: config.workers,
                lease: config.lease,
                max_attempts: config.max_attempts,
                backoff: backoff.clone(),
                // The link says how long to wait, for all workers alike.
                breaker: Backoff::Schedule(Vec::new()),
                ..Options::new(format!("{replica}/{}", part.as_str()))
            };
            let sender = Sender {
                line: Arc::clone(&line),
                part,
                backlog_after: config.backlog_after,
                backlog_share: config.backlog_share,
                places: Arc::clone(&places),
            };
            let start = || Worker::start(&database, part.queue(), sender, options);
            let worker = line.metrics.counting(start).map_err(|error| refuse(&error))?;
            workers.push(worker);
        }
        let (stop, stopping) = signal();
        let mut tasks = JoinSet::new();
        tasks.spawn(tombstones::run(Arc::clone(&line), stopping.clone()));
        tasks.spawn(copies::run(Arc::clone(&line), config.media_every, stopping));
        tracing::info!(cloud = config.cloud_url, "forwarder started");
        let stall_after = config.stall_after;
        Ok(Forwarder { line, workers, places, stop, tasks, stall_after })
    }

    /// What it has done so far, in rows.
    pub fn counts(&self) -> Counts {
        self.workers.iter().map(Worker::counts).fold(Counts::default(), |sum, counts| Counts {
            claimed: sum.claimed + counts.claimed,
            reclaimed: sum.reclaimed + counts.reclaimed,
            done: sum.done + counts.done,
            retried: sum.retried + counts.retried,
            buried: sum.buried + counts.buried,
            released: sum.released + counts.released,
            fenced: sum.fenced + counts.fenced,
        })
    }

    /// Stops: what is under way is finished or given back.
    pub async fn stop(mut self) {
        self.stop.say();
        self.places.close();
        let mut stopping = JoinSet::new();
        for worker in self.workers.drain(..) {
            stopping.spawn(worker.stop());
        }
        while stopping.join_next().await.is_some() {}
        while self.tasks.join_next().await.is_some() {}
    }

    /// Runs until told to stop, and watches the backlog meanwhile.
    pub(crate) async fn run(self, mut stop: Signal, health: Arc<Health>) {
        let mut drain = Drain::new(self.stall_after);
        let mut watch = tokio::time::interval(WATCH_EVERY.min(self.stall_after / 4));
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.heard() => break,
                _ = watch.tick() => self.watch(&mut drain, &health).await,
            }
        }
        self.stop().await;
    }

    async fn watch(&self, drain: &mut Drain, health: &Health) {
        let meter = &self.line.metrics.sync;
        meter.work(&self.counts());
        let backlog = match self.line.store.backlog().await {
            Ok(backlog) => backlog,
            Err(error) => {
                tracing::warn!(%error, "the backlog could not be counted");
                return;
            }
        };
        let rows = backlog.live + backlog.bulk;
        let reading = drain.observe(self.line.now(), &backlog, self.line.up_since());
        meter.live_rows.set(drain::number(backlog.live));
        meter.bulk_rows.set(drain::number(backlog.bulk));
        meter.oldest.set(backlog.oldest.as_secs_f64());
        meter.drain.set(reading.drain_seconds);
        meter.not_shrinking.set(f64::from(u8::from(reading.not_shrinking)));
        meter.not_draining.set(f64::from(u8::from(reading.not_draining)));
        let oldest = backlog.oldest;
        if reading.not_draining {
            tracing::error!(
                rows,
                ?oldest,
                "not draining: the cloud is there, rows are due, and none was acked for long; \
                 see holdfast outbox stats"
            );
        } else if reading.not_shrinking {
            tracing::warn!(rows, ?oldest, "the link is up and the backlog does not shrink");
        }
        health.set_not_draining(reading.not_draining.then(|| {
            let stalled = self.stall_after.as_secs();
            format!("not draining: nothing was acked by the cloud for {stalled} s")
        }));
    }
}
