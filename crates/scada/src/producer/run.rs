//! A node as a whole: what starts, in which order, and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::serve::Listener;
use bus::Publisher;
use bus::rabbitmq::{Address, PublisherOptions, RabbitPublisher, declare};
use jiff::Timestamp;
use lease::Counts;
use pg::About;
use spool::Spool;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::config::{Bus, Config};
use super::http::{GOODBYE, Http};
use super::metrics::Metrics;
use super::source::Source;
use super::store::Store;
use super::vitals::Vitals;
use super::{drain, watch};
use crate::analytics::{Reduced, Reducer};
use crate::inputs;
use crate::migration::migrate_producer;
use crate::outbox::{Dispatcher, Pruner, Settings};

const RETRY_BASE: Duration = Duration::from_millis(200);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// So long the first cycle waits for the database.
const START_PATIENCE: Duration = Duration::from_secs(3);
/// Between two tries to declare.
const PAUSE: Duration = Duration::from_secs(2);
/// How often what the dispatchers have done is noted.
const TALLY_EVERY: Duration = Duration::from_secs(1);

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refuses us, or its schema cannot be brought up to date.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The spool cannot be used.
    #[error("producer.spool.dir: {0}")]
    Spool(#[from] spool::Error),
    /// The HTTP address cannot be used.
    #[error("producer.{0}")]
    Listen(#[from] api::serve::Error),
    /// A node cannot be simulated.
    #[error("producer.nodes: {0}")]
    Nodes(#[from] event::Invalid),
    /// Nothing takes messages.
    #[error(
        "producer.bus is inline, which only a process that runs the historian too can use: name a broker"
    )]
    Inline,
}

/// A running node.
#[derive(Debug)]
pub struct Producer {
    http: SocketAddr,
    metrics: Arc<Metrics>,
    seed: u64,
    stop_grace: Duration,
    /// Ends the loop.
    stop: CancellationToken,
    sampling: JoinHandle<()>,
    /// Ends everything else, after the loop.
    stop_rest: CancellationToken,
    rest: JoinSet<()>,
}

/// What publishes, and what must be there before it can.
struct Outlet {
    publisher: Arc<dyn Publisher>,
    declare: Option<Address>,
}

impl Producer {
    /// Starts a node that publishes to the configured broker. Neither database nor broker need be there yet.
    pub async fn start(config: Config) -> Result<Producer, Error> {
        let metrics = Arc::new(Metrics::new(config.outbox.batch));
        let outlet = match &config.bus {
            Bus::Inline => return Err(Error::Inline),
            Bus::RabbitMq { address, declare } => {
                let options = PublisherOptions {
                    name: "holdfast scada producer".to_owned(),
                    lanes: config.dispatchers * config.outbox.slots,
                    metrics: metrics.bus.clone(),
                    ..Default::default()
                };
                Outlet {
                    publisher: Arc::new(RabbitPublisher::new(address.clone(), options)),
                    declare: declare.then(|| address.clone()),
                }
            }
            #[cfg(feature = "kafka")]
            Bus::Kafka(cluster) => {
                let options = bus::kafka::PublisherOptions {
                    name: "holdfast-scada-producer".to_owned(),
                    metrics: metrics.bus.clone(),
                    ..Default::default()
                };
                let publisher = bus::kafka::KafkaPublisher::new(cluster.clone(), options);
                Outlet { publisher: Arc::new(publisher), declare: None }
            }
        };
        Producer::start_on(config, metrics, outlet).await
    }

    /// The same with a publisher that the caller has.
    pub async fn start_with(
        config: Config,
        publisher: Arc<dyn Publisher>,
    ) -> Result<Producer, Error> {
        let metrics = Arc::new(Metrics::new(config.outbox.batch));
        Producer::start_on(config, metrics, Outlet { publisher, declare: None }).await
    }

    async fn start_on(
        config: Config,
        metrics: Arc<Metrics>,
        outlet: Outlet,
    ) -> Result<Producer, Error> {
        let seed = config.nodes.seed.unwrap_or_else(rand::random);
        let listener = metrics.counting(|| Listener::bind(config.listen, config.tls.as_ref()))?;
        let http = listener.address();
        let spool = open(config.spool.clone()).await?;
        let vitals = Arc::new(Vitals::new(Instant::now()));
        let store = Arc::new(Store::new(
            pg::Pool::new(&config.database)?,
            spool,
            config.write_within,
            Arc::clone(&metrics),
            Arc::clone(&vitals),
        ));
        let there = tokio::time::timeout(START_PATIENCE, migrate(&config.database, true)).await;
        match there {
            Ok(migrated) => {
                migrated?;
                store.migrated();
            }
            Err(_) => {
                store.database(false);
                tracing::warn!("the node starts without its database; cycles go to the spool");
            }
        }

        let (stop, stop_rest) = (CancellationToken::new(), CancellationToken::new());
        let source = match config.inputs.clone() {
            Some(mapping) => Source::Inputs(metrics.counting(|| inputs::start(mapping, &stop))),
            None => Source::generators(&config.nodes, seed)?,
        };
        // Inputs count what their dead bands leave out, with rules or without.
        let counts = config.rules.is_some() || config.inputs.is_some();
        let reducer = counts.then(|| Reducer::new(config.rules.clone().unwrap_or_default()));
        let (kept, every) = (Arc::clone(&store), config.interval);
        let sampling = tokio::spawn(sample(source, reducer, kept, every, stop.clone()));
        let mut rest = JoinSet::new();
        let page = Http {
            metrics: Arc::clone(&metrics),
            vitals,
            metrics_token: config.metrics_token.clone(),
            stalled_after: config.stalled_after,
            interval: config.interval,
        };
        rest.spawn(listener.serve(page.router(), stop_rest.clone().cancelled_owned(), GOODBYE));
        let (kept, ending, database) =
            (Arc::clone(&store), stop_rest.clone(), config.database.clone());
        rest.spawn(async move {
            tokio::select! {
                () = bring_schema(&kept, &database) => {}
                () = ending.cancelled() => return,
            }
            drain::run(&kept, &ending).await;
        });
        let (kept, ending) = (Arc::clone(&store), stop_rest.clone());
        let instance = format!("dispatcher-{}", &Uuid::new_v4().simple().to_string()[..8]);
        let (batch, every, name) =
            (u64::from(config.outbox.batch), config.report_every, instance.clone());
        rest.spawn(async move { watch::run(&kept, &name, batch, every, &ending).await });
        let nodes = config.nodes.count;
        let stop_grace = config.stop_grace;
        rest.spawn(dispatch(config, instance, store, outlet, stop_rest.clone()));
        tracing::info!(%http, nodes, seed, "producer started");
        Ok(Producer { http, metrics, seed, stop_grace, stop, sampling, stop_rest, rest })
    }

    /// Where HTTP is served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// What it has counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What repeats this run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Stops: no further cycle begins, then pruner and dispatchers finish what is under way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(self.stop_grace, &mut self.sampling).await.is_err() {
            self.sampling.abort();
            tracing::warn!("the last cycle was cut off");
        }
        self.stop_rest.cancel();
        let ended = async { while self.rest.join_next().await.is_some() {} };
        if tokio::time::timeout(self.stop_grace, ended).await.is_err() {
            tracing::warn!("the node was cut off; what its dispatchers held goes again later");
        }
        tracing::info!("producer stopped");
    }
}

/// The main loop. It knows the store and no bus.
async fn sample(
    mut source: Source,
    mut reducer: Option<Reducer>,
    store: Arc<Store>,
    every: Duration,
    stop: CancellationToken,
) {
    let mut turn = tokio::time::interval(every);
    // A node has no use for ticks that have passed: its sensors are read now.
    turn.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last: Option<tokio::time::Instant> = None;
    loop {
        let now = tokio::select! {
            now = turn.tick() => now,
            () = stop.cancelled() => break,
        };
        if let Some(last) = last.replace(now) {
            store.metrics.missed(missed(now.duration_since(last), every));
        }
        let at = Timestamp::now();
        let made = source.cycle(at);
        store.metrics.made(&made.events, made.invalid);
        let cycle = match &mut reducer {
            Some(reducer) => reducer.apply_counted(made.events, &made.left_out, at),
            None => Reduced { envelopes: made.events, ..Reduced::default() },
        };
        store.keep(&cycle).await;
        store.vitals.cycled(Instant::now());
    }
    if let Some(reducer) = &mut reducer {
        store.keep(&reducer.flush()).await;
    }
    if let Source::Inputs(inputs) = source {
        inputs.ended().await;
    }
}

/// How many ticks lie between two that are so far apart.
fn missed(apart: Duration, every: Duration) -> u64 {
    let ticks = apart.as_secs_f64() / every.as_secs_f64().max(f64::MIN_POSITIVE);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small number, not below 0"
    )]
    let ticks = ticks.round() as u64;
    ticks.saturating_sub(1)
}

async fn open(config: spool::Config) -> Result<Spool, spool::Error> {
    let opening = tokio::task::spawn_blocking(move || Spool::open(config));
    let spool = opening.await.unwrap_or(Err(spool::Error::Closed))?;
    let waiting = spool.synced().saturating_sub(spool.acked());
    if waiting > 0 {
        tracing::info!(waiting, "the spool holds cycles from before");
    }
    Ok(spool)
}

/// Brings the schema up to date, however long that takes. At the start what can never work ends it; later somebody may mend it.
async fn migrate(database: &pg::Options, at_start: bool) -> Result<(), pg::Error> {
    let mut pause = RETRY_BASE;
    loop {
        let error = match migrate_producer(database).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if at_start && matches!(error.about(), About::Data | About::Us) {
            return Err(error);
        }
        tracing::warn!(%error, ?pause, "the node waits for its database");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_CAP);
    }
}

async fn bring_schema(store: &Store, database: &pg::Options) {
    if !store.is_migrated() && migrate(database, false).await.is_ok() {
        store.migrated();
    }
}

/// Publishes and prunes until told to stop, as soon as the tables are there and the broker has what it needs.
async fn dispatch(
    config: Config,
    instance: String,
    store: Arc<Store>,
    outlet: Outlet,
    stop: CancellationToken,
) {
    tokio::select! {
        () = store.has_schema() => {}
        () = stop.cancelled() => return,
    }
    let pruner = Pruner::start(store.pool.clone(), config.keep, config.prune_every);
    if let Some(address) = &outlet.declare {
        tokio::select! {
            () = declared(address, &store.vitals) => {}
            () = stop.cancelled() => return,
        }
    }
    let mut dispatchers = Vec::new();
    for number in 1..=config.dispatchers {
        let instance = if number == 1 { instance.clone() } else { format!("{instance}-{number}") };
        let settings = Settings { instance, ..config.outbox.clone() };
        let publisher = Arc::clone(&outlet.publisher);
        let start = || Dispatcher::start(&config.database, &settings, publisher);
        match store.metrics.counting(start) {
            Ok(dispatcher) => dispatchers.push(dispatcher),
            Err(error) => {
                // The settings were checked; what is left is a pool that cannot be made.
                tracing::error!(%error, "a dispatcher cannot start");
                store.vitals.bus(Some("a dispatcher could not start"));
            }
        }
    }
    let mut tally = tokio::time::interval(TALLY_EVERY);
    while tokio::select! { _ = tally.tick() => true, () = stop.cancelled() => false } {
        store.metrics.dispatched(total(&dispatchers));
    }
    drop(pruner);
    for dispatcher in dispatchers {
        dispatcher.stop().await;
    }
}

fn total(dispatchers: &[Dispatcher]) -> Counts {
    dispatchers.iter().map(Dispatcher::counts).fold(Counts::default(), |all, one| Counts {
        claimed: all.claimed + one.claimed,
        reclaimed: all.reclaimed + one.reclaimed,
        done: all.done + one.done,
        retried: all.retried + one.retried,
        buried: all.buried + one.buried,
        released: all.released + one.released,
        fenced: all.fenced + one.fenced,
    })
}

/// Declares what the historian listens to, however long the broker is away.
async fn declared(address: &Address, vitals: &Vitals) {
    while let Err(error) = declare(address, &crate::historian::topology()).await {
        tracing::warn!(%error, pause = ?PAUSE, "the topology could not be declared");
        vitals.bus(Some("the topology could not be declared"));
        tokio::time::sleep(PAUSE).await;
    }
    vitals.bus(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_were_left_out_are_counted() {
        let second = Duration::from_secs(1);
        assert_eq!(missed(second, second), 0);
        assert_eq!(missed(second * 3, second), 2);
        assert_eq!(missed(Duration::from_millis(980), second), 0);
        assert_eq!(missed(Duration::ZERO, second), 0);
    }
}
