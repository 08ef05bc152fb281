//! The line behind ingestion: the bus, the relay before it and the consumers after it.
//!
//! Promises: nothing is published or consumed before the topology is declared, where that is our
//! part; a consumer that ends is started again; at a stop the relay goes first and the consumers
//! after it, each within its grace. The broker may come and go.

#[cfg(feature = "kafka")]
mod kafka;

use std::sync::Arc;
use std::time::Duration;

use bus::rabbitmq::{
    Address, ConsumerOptions, DepthProbe, PublisherOptions, RabbitConsumer, RabbitPublisher,
    Topology, TopologyError, declare,
};
use bus::{Consumer, Publisher, inline};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::work::{self, Work};
use crate::behind::{Ask, Behind};
use crate::config::{Bus, Config, Role};
use crate::dead_letters;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::relay::{Parts, Relay};

/// How often the link to the broker is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two tries to declare, or to start a consumer that has ended.
const PAUSE: Duration = Duration::from_secs(2);
/// The parts of [`Readiness`] that the line reports.
const BUS: &str = "bus";
const CONSUMERS: &str = "consumers";

/// What the line is made of.
pub(super) struct Line {
    pub(super) config: Config,
    pub(super) works: Vec<Work>,
    pub(super) topology: Topology,
    pub(super) pool: pg::Pool,
    pub(super) metrics: Arc<Metrics>,
    pub(super) readiness: Readiness,
    pub(super) behind: Behind,
}

/// Makes a group's consumer; a second time after the first one has ended, where the bus can.
type Make = Box<dyn FnMut() -> Option<Box<dyn Consumer>> + Send>;

impl Line {
    /// Runs until told to stop, then stops the relay and after it the consumers.
    pub(super) async fn run(self, stop: CancellationToken) {
        match self.config.bus.clone() {
            Bus::Inline => self.run_inline(stop).await,
            Bus::RabbitMq { address, declare } => self.run_rabbitmq(address, declare, stop).await,
            #[cfg(feature = "kafka")]
            Bus::Kafka(bus) => self.run_kafka(bus, stop).await,
        }
    }

    async fn run_inline(self, stop: CancellationToken) {
        // A process that only ingests has no bus: the configuration keeps the others together.
        if !self.config.roles.contains(&Role::Relay) {
            self.behind.cannot_know("the bus is inside the process with the role relay");
            return;
        }
        let dead_letters = Arc::new(dead_letters::Store::new(self.pool.clone()));
        let options = inline::Options { metrics: self.metrics.bus.clone(), ..Default::default() };
        let mut bus = inline::Bus::new(options, dead_letters);
        let mut groups: Vec<(Work, Make)> = Vec::new();
        for work in &self.works {
            let group = bus.group(work.group.queue.clone(), work.group.bindings.clone());
            let mut once: Option<Box<dyn Consumer>> = Some(Box::new(group));
            groups.push((work.clone(), Box::new(move || once.take())));
        }
        let bus = Arc::new(bus);
        let (database, replayed) = (self.config.database.clone(), Arc::clone(&bus));
        let stopping = stop.clone();
        let replay = tokio::spawn(async move {
            dead_letters::replay::run(database, &replayed, stopping.cancelled()).await;
        });
        // Weak, so that the bus goes with its last publisher.
        let asked = Arc::downgrade(&bus);
        let ask: Ask = Box::new(move || {
            let depths = asked.upgrade().map(|bus| bus.depths());
            Box::pin(std::future::ready(depths.ok_or_else(|| "the bus has ended".to_owned())))
        });
        self.carry(bus, groups, ask, stop).await;
        let _ = replay.await;
    }

    async fn run_rabbitmq(self, address: Address, declared: bool, stop: CancellationToken) {
        self.readiness.report(BUS, Err("has not been reached yet".to_owned()));
        let publisher = Arc::new(RabbitPublisher::new(
            address.clone(),
            PublisherOptions {
                name: "holdfast relay".to_owned(),
                lanes: self.config.relay.slots,
                metrics: self.metrics.bus.clone(),
                ..Default::default()
            },
        ));
        if declared {
            tokio::select! {
                () = self.declare(&address) => {}
                () = stop.cancelled() => return,
            }
        }
        let looked = Arc::clone(&publisher);
        let look = tokio::spawn(look(self.readiness.clone(), move || {
            let looked = Arc::clone(&looked);
            async move { looked.ready().await.is_ok() }
        }));
        let mut groups: Vec<(Work, Make)> = Vec::new();
        for work in self.own_works() {
            let Some(queue) =
                self.topology.queues.iter().find(|queue| queue.name == work.group.queue)
            else {
                continue;
            };
            let (address, queue) = (address.clone(), queue.clone());
            let (copies, metrics) = (Arc::clone(&publisher), self.metrics.bus.clone());
            let name = format!("holdfast {}", work.group.service);
            groups.push((
                work.clone(),
                Box::new(move || {
                    let options = ConsumerOptions {
                        name: name.clone(),
                        metrics: metrics.clone(),
                        ..Default::default()
                    };
                    let (address, queue) = (address.clone(), queue.clone());
                    let consumer =
                        RabbitConsumer::new(address, queue, Arc::clone(&copies), options);
                    Some(Box::new(consumer))
                }),
            ));
        }
        let queues = self.topology.queues.iter().map(|queue| queue.name.clone()).collect();
        let probe = Arc::new(Mutex::new(DepthProbe::new(address, queues)));
        let ask: Ask = Box::new(move || {
            let probe = Arc::clone(&probe);
            Box::pin(
                async move { probe.lock().await.look().await.map_err(|error| error.to_string()) },
            )
        });
        self.carry(publisher, groups, ask, stop).await;
        look.abort();
    }

    /// What this process consumes.
    fn own_works(&self) -> impl Iterator<Item = &Work> {
        let own = |work: &&Work| work.role().is_some_and(|role| self.config.roles.contains(&role));
        self.works.iter().filter(own)
    }

    /// Declares the topology, however long the broker is away. One that refuses it is asked again as
    /// well: somebody may mend it.
    async fn declare(&self, address: &Address) {
        while let Err(error) = declare(address, &self.topology).await {
            tracing::warn!(%error, pause = ?PAUSE, "the topology could not be declared");
            let words = match &error {
                TopologyError::Unreachable(_) => "cannot be reached".to_owned(),
                TopologyError::Refused { name, .. } => {
                    format!("refuses {name}: see `holdfast bus check`")
                }
            };
            self.readiness.report(BUS, Err(words));
            tokio::time::sleep(PAUSE).await;
        }
        tracing::info!("the topology is declared");
    }

    /// Runs the relay and the consumers on a bus until told to stop.
    async fn carry(
        self,
        publisher: Arc<dyn Publisher>,
        groups: Vec<(Work, Make)>,
        ask: Ask,
        stop: CancellationToken,
    ) {
        let consumers_stop = CancellationToken::new();
        let mut consumers = JoinSet::new();
        for (work, make) in groups {
            let (pool, readiness) = (self.pool.clone(), self.readiness.clone());
            consumers.spawn(consume(work, make, pool, readiness, consumers_stop.clone()));
        }
        let relay = match self.config.roles.contains(&Role::Relay) {
            true => self.start_relay(Arc::clone(&publisher)),
            false => None,
        };
        let breaker = || relay.as_ref().map(Relay::breaker);
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.behind.watch(ask, breaker, &self.metrics, &self.readiness) => {}
        }
        if let Some(relay) = relay {
            relay.stop().await;
        }
        consumers_stop.cancel();
        let ended = async { while consumers.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.stop_grace, ended).await.is_err() {
            tracing::warn!("consumers were cut off; what they held is delivered again");
        }
        // The inline bus goes with its last publisher, and must outlive its consumers.
        drop(publisher);
    }

    fn start_relay(&self, publisher: Arc<dyn Publisher>) -> Option<Relay> {
        let started = Relay::start(Parts {
            database: self.config.database.clone(),
            config: self.config.relay.clone(),
            stop_grace: self.config.stop_grace,
            publisher,
            routes: work::routes(&self.topology),
            metrics: Arc::clone(&self.metrics),
            readiness: self.readiness.clone(),
        });
        match started {
            Ok(relay) => Some(relay),
            Err(error) => {
                tracing::error!(%error, "the relay cannot start");
                self.readiness.report("relay", Err("cannot start".to_owned()));
                None
            }
        }
    }
}

/// Says whether the broker is there, also while there is nothing to publish.
async fn look<Answer: Future<Output = bool>>(readiness: Readiness, ask: impl Fn() -> Answer) {
    let mut turn = tokio::time::interval(LOOK_EVERY);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        // The publisher has logged why.
        let state = if ask().await { Ok(()) } else { Err("cannot be reached".to_owned()) };
        readiness.report(BUS, state);
    }
}

/// Runs one group. One that ends without being told to, or panics, is started again.
async fn consume(
    work: Work,
    mut make: Make,
    pool: pg::Pool,
    readiness: Readiness,
    stop: CancellationToken,
) {
    while let Some(consumer) = make() {
        let mut task = JoinSet::new();
        task.spawn(work.run(consumer, pool.clone(), stop.clone()));
        let ended = task.join_next().await;
        if stop.is_cancelled() {
            return;
        }
        let failed = ended.is_some_and(|ended| ended.is_err());
        tracing::error!(queue = work.group.queue, failed, "a consumer has ended");
        readiness.report(CONSUMERS, Err(format!("{} has ended", work.group.service)));
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => return,
        }
        readiness.report(CONSUMERS, Ok(()));
    }
    readiness.report(CONSUMERS, Err(format!("{} has ended", work.group.service)));
}
