//! The relay: from `relay_outbox` to the bus.
//!
//! Promises: a row leaves the outbox only after the bus has confirmed its message; an outage of the
//! bus changes no row; one message that can never be published does not hold up its neighbours; rows
//! of a key leave in order with any number of relays. docs/spec/relay.md is the contract.
//!
//! It must not know what an event means, nor which bus it has. It fails at start for what can never
//! work; after that the bus and the database may come and go. Payloads are in no log, error or metric.

mod deliver;
mod meter;
mod outbox;
mod redrive;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::Publisher;
use lease::backoff::Backoff;
use lease::{Counts, Options, Worker};
use rand::RngExt as _;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::behind::Breaker;
use crate::config;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use deliver::{Deliver, Trouble};
pub(crate) use meter::Meter;
use watch::Drain;

pub use deliver::Routes;
pub use outbox::table;
pub use redrive::{DeadLetter, MAX_REDRIVE, Selection, dead_letters, redrive};
pub use watch::{Glance, glance};

/// How often the table is looked at, at the least.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Connections of the look; the engine has its own.
const LOOK_CONNECTIONS: usize = 2;
/// What a stop may take beyond the grace, to write what became of the last rows.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A running relay. Dropping it is like a crash: what it holds is taken over when its lease ends.
pub struct Relay {
    worker: Arc<Worker>,
    look: JoinHandle<()>,
    metrics: Arc<Metrics>,
    stop_within: Duration,
}

/// What a relay works with.
pub struct Parts {
    /// The database; the relay has connections of its own.
    pub database: pg::Options,
    /// The settings.
    pub config: config::Relay,
    /// How long a stop waits for batches under way.
    pub stop_grace: Duration,
    /// The bus.
    pub publisher: Arc<dyn Publisher>,
    /// What the bus's topology has.
    pub routes: Routes,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// Where it says whether it works.
    pub readiness: Readiness,
}

impl Relay {
    /// Starts a relay. Neither the database nor the bus need be there yet.
    pub fn start(parts: Parts) -> Result<Relay, lease::Error> {
        let Parts { database, config, stop_grace, publisher, routes, metrics, readiness } = parts;
        let database = pg::Options {
            max_connections: LOOK_CONNECTIONS,
            application_name: "holdfast-relay".to_owned(),
            ..database
        };
        let pool = pg::Pool::new(&database)?;
        let trouble = Trouble::new(readiness.clone());
        let options = Options {
            batch: config.batch,
            slots: config.slots,
            lease: config.lease,
            breaker: Backoff::Exponential {
                base: Duration::from_millis(500),
                cap: Duration::from_secs(15),
                jitter: Duration::from_millis(500),
            },
            stop_grace,
            ..Options::new(name())
        };
        let deliver = Deliver { publisher, routes, trouble: trouble.clone() };
        let start = || Worker::start(&database, outbox::queue(), deliver, options);
        let worker = metrics.counting(start)?;
        let worker = Arc::new(worker);
        let looker = Looker {
            worker: Arc::clone(&worker),
            pool,
            drain: Drain::new(config.stalled_after),
            every: LOOK_EVERY.min(config.stalled_after / 4),
            metrics: Arc::clone(&metrics),
            trouble,
            readiness,
        };
        let look = tokio::spawn(looker.run());
        tracing::info!("relay started");
        Ok(Relay { worker, look, metrics, stop_within: stop_grace + LAST_WORDS })
    }

    /// What it has done so far, in rows.
    pub fn counts(&self) -> Counts {
        self.worker.counts()
    }

    /// Whether it leaves the bus alone; the worst of its breakers.
    pub(crate) fn breaker(&self) -> Breaker {
        let states = self.worker.breakers().into_iter().map(|view| view.state.into());
        states.max().unwrap_or(Breaker::Closed)
    }

    /// Stops: nothing more is claimed; what is under way is finished or given back.
    pub async fn stop(self) {
        self.look.abort();
        // The task is gone when this returns, and with it the other handle on the worker.
        let _ = self.look.await;
        let Some(worker) = Arc::into_inner(self.worker) else { return };
        let counts = worker.counts();
        if tokio::time::timeout(self.stop_within, worker.stop()).await.is_err() {
            tracing::warn!("the relay was cut off; what it held is taken over when its lease ends");
        }
        self.metrics.relay.work(&counts);
        tracing::info!(published = counts.done, "relay stopped");
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Who holds a row, as an operator sees it: one name for each process and start.
fn name() -> String {
    format!("relay-{}-{:08x}", std::process::id(), rand::rng().random::<u32>())
}

/// Looks at the table from time to time.
struct Looker {
    worker: Arc<Worker>,
    pool: pg::Pool,
    drain: Drain,
    every: Duration,
    metrics: Arc<Metrics>,
    trouble: Trouble,
    readiness: Readiness,
}

impl Looker {
    async fn run(mut self) {
        let started = Instant::now();
        let mut turn = tokio::time::interval(self.every);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let counts = self.worker.counts();
            self.metrics.relay.work(&counts);
            let glance = match watch::glance(&self.pool).await {
                Ok(glance) => glance,
                Err(error) => {
                    // Readiness asks the database itself.
                    tracing::warn!(%error, "the relay outbox could not be looked at");
                    continue;
                }
            };
            let progress = counts.done + counts.buried;
            let oldest = glance.oldest.map(|(id, _)| id);
            let stalled = self.drain.observe(started.elapsed(), progress, oldest);
            if stalled {
                let seconds = glance.oldest.map(|(_, age)| age);
                tracing::error!(
                    rows = glance.rows,
                    seconds,
                    "events are due and none is published"
                );
            }
            glance.show(stalled, &self.metrics.relay);
            self.trouble.looked(oldest.is_some(), stalled);
            let dead = (glance.dead > 0).then(|| format!("{} dead letters", glance.dead));
            self.readiness.note(deliver::PART, dead);
        }
    }
}
