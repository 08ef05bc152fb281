//! A worker process of a queue: its options, its start and its stop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pg::Pool;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::backoff::Backoff;
use crate::breaker::{Breaker, State};
use crate::clock::Clock;
use crate::error::Error;
use crate::lanes::Lanes;
use crate::meter::Meter;
use crate::queue::{Handler, Queue};
use crate::{discover, listen, slot};

/// How a worker works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who holds the rows, as an operator sees it. Each process has its own name.
    pub worker: String,
    /// The most rows of a claim.
    pub batch: u32,
    /// How many batches are under way at once.
    pub slots: usize,
    /// How long a claim holds rows before others may take them; renewed at 60 % of it.
    pub lease: Duration,
    /// How many failures bury a row.
    pub max_attempts: u32,
    /// How long a row waits after a failure.
    pub backoff: Backoff,
    /// How long a destination is left alone after it was down.
    pub breaker: Backoff,
    /// How often the table is looked at without a nudge.
    pub poll: Duration,
    /// How often all lanes are looked for, whatever is known.
    pub sweep: Duration,
    /// How long a stop waits for batches under way before it gives their rows back.
    pub stop_grace: Duration,
    /// The most lanes noted in memory.
    pub max_lanes: usize,
    /// The clock of the breakers.
    pub clock: Clock,
}

impl Options {
    /// The site's defaults, for a worker of this name.
    pub fn new(worker: impl Into<String>) -> Options {
        Options {
            worker: worker.into(),
            batch: 500,
            slots: 2,
            lease: Duration::from_secs(60),
            max_attempts: 10,
            backoff: Backoff::site(),
            breaker: Backoff::site(),
            poll: Duration::from_secs(1),
            sweep: Duration::from_secs(10),
            stop_grace: Duration::from_secs(10),
            max_lanes: 50_000,
            clock: Clock::real(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refuse =
            |what, problem: &str| Err(Error::Setting { what, problem: problem.to_owned() });
        if self.worker.is_empty() {
            return refuse("the worker's name", "it is empty");
        }
        if self.batch == 0 || self.slots == 0 || self.max_attempts == 0 || self.max_lanes == 0 {
            return refuse("a worker", "batch, slots, max_attempts and max_lanes start at 1");
        }
        if self.lease < Duration::from_millis(10) {
            return refuse("a lease", "it is shorter than 10 ms");
        }
        Ok(())
    }
}

/// What a worker has done since it started, in rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Claimed.
    pub claimed: u64,
    /// Of these, taken over from a lost lease.
    pub reclaimed: u64,
    /// Delivered.
    pub done: u64,
    /// Put back after a failure.
    pub retried: u64,
    /// Buried.
    pub buried: u64,
    /// Given back untouched.
    pub released: u64,
    /// Outcomes that changed nothing, because another had taken the row over.
    pub fenced: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) claimed: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) buried: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) fenced: AtomicU64,
}

/// A breaker as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerView {
    /// Whose breaker.
    pub destination: Arc<str>,
    /// Where it stands; its times are those of [`Options::clock`].
    pub state: State,
    /// How many batches or probes in a row found the destination down.
    pub failures: u32,
    /// How long until a probe may go out, when it is open.
    pub probe_in: Option<Duration>,
}

/// What the tasks of a worker share.
pub(crate) struct Shared<T, H> {
    pub(crate) queue: Queue<T>,
    pub(crate) handler: Arc<H>,
    pub(crate) pool: Pool,
    pub(crate) options: Options,
    pub(crate) meter: Meter,
    pub(crate) desk: Arc<Desk>,
    pub(crate) started: Instant,
}

/// The part of it that does not depend on the row type.
pub(crate) struct Desk {
    pub(crate) lanes: Mutex<Lanes>,
    pub(crate) breakers: Mutex<HashMap<Arc<str>, Breaker>>,
    /// Said to all slots when a lane became ready or a breaker moved.
    pub(crate) work: Notify,
    /// Said to the discoverer; it keeps one nudge for later.
    pub(crate) look: Notify,
    pub(crate) tally: Tally,
    clock: Clock,
}

/// A lock that a panic elsewhere does not take away: each critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns when a stop was said, or whoever could say it is gone.
pub(crate) async fn said(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// How the engine's statements are planned. A queue's statistics are never up to date: after a quiet
/// time they say that nothing waits, and with nothing waiting every way to find the first row looks
/// alike, also the one that reads all rows and sorts them. The lane index has them in order, so
/// sorting is never the better way. Nor is compiling a statement that runs for a millisecond.
pub const PLANNER: &[(&str, &str)] =
    &[("enable_sort", "off"), ("enable_incremental_sort", "off"), ("jit", "off")];

/// A running worker. Dropping it is like a crash: what it holds is taken over when its lease ends.
pub struct Worker {
    desk: Arc<Desk>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Worker {
    /// Starts a worker. `address` says how to reach the database; the worker takes up to one
    /// connection for each slot, one more for looking, and one for listening.
    ///
    /// The database need not be there yet.
    pub fn start<T, H>(
        address: &pg::Options,
        queue: Queue<T>,
        handler: H,
        options: Options,
    ) -> Result<Worker, Error>
    where
        T: Send + 'static,
        H: Handler<T>,
    {
        options.check()?;
        let pool = Pool::new(&pg::Options {
            max_connections: options.slots + 1,
            settings: PLANNER,
            ..address.clone()
        })?;
        let desk = Arc::new(Desk {
            lanes: Mutex::new(Lanes::new(options.max_lanes, options.slots)),
            breakers: Mutex::default(),
            work: Notify::new(),
            look: Notify::new(),
            tally: Tally::default(),
            clock: options.clock,
        });
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        if let Some(channel) = queue.channel {
            let (address, desk, stopped) = (address.clone(), desk.clone(), stopped.clone());
            tasks.spawn(async move {
                listen::listen(&address, channel, stopped, || desk.look.notify_one()).await;
            });
        }
        let slots = options.slots;
        let shared = Arc::new(Shared {
            meter: Meter::new(queue.name),
            queue,
            handler: Arc::new(handler),
            pool,
            options,
            desk: desk.clone(),
            started: Instant::now(),
        });
        tasks.spawn(discover::run(shared.clone(), stopped.clone()));
        for _ in 0..slots {
            tasks.spawn(slot::run(shared.clone(), stopped.clone()));
        }
        Ok(Worker { desk, stop, tasks })
    }

    /// Stops: no more claims; batches under way are finished or, after the grace, given back. When
    /// this returns the worker holds nothing, unless the database could not be told.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of a worker failed");
            }
        }
    }

    /// Looks at the table now, as a notification would make it.
    pub fn nudge(&self) {
        self.desk.look.notify_one();
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let tally = &self.desk.tally;
        Counts {
            claimed: read(&tally.claimed),
            reclaimed: read(&tally.reclaimed),
            done: read(&tally.done),
            retried: read(&tally.retried),
            buried: read(&tally.buried),
            released: read(&tally.released),
            fenced: read(&tally.fenced),
        }
    }

    /// The breakers of all destinations met so far.
    pub fn breakers(&self) -> Vec<BreakerView> {
        let now = self.desk.clock.now();
        let breakers = lock(&self.desk.breakers);
        let view = |(destination, breaker): (&Arc<str>, &Breaker)| BreakerView {
            destination: destination.clone(),
            state: breaker.state(),
            failures: breaker.failures(),
            probe_in: match breaker.state() {
                State::Open { until } => Some(until.saturating_sub(now)),
                State::Closed | State::HalfOpen => None,
            },
        };
        breakers.iter().map(view).collect()
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
