//! The historian as a whole: what starts, in which order, and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::serve::Listener;
use bus::Consumer;
use bus::letterbox::{Desk, Letterbox};
use bus::rabbitmq::{
    Address, ConsumerOptions, PublisherOptions, RabbitConsumer, RabbitPublisher, declare,
};
use jiff::Timestamp;
use pg::About;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::config::{Bus, Config};
use super::consume::Work;
use super::dead_letters::{self, TableLetterbox};
use super::federation::Remote;
use super::http::{Http, Service};
use super::metrics::Metrics;
#[cfg(feature = "kafka")]
use super::presence::Presence;
use super::progress::Progress;
use super::topology::topology;
use super::write::{Writer, announce};
use super::{alarms, partitions, rollup};
use crate::migration::migrate_historian;
use crate::outbox::{Dispatcher, Settings, federation_queue};

const RETRY_BASE: Duration = Duration::from_millis(200);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// Requests that are under way when the historian stops get this long.
const GOODBYE: Duration = Duration::from_secs(5);
/// Between two tries to declare, or to start a consumer that has ended.
const PAUSE: Duration = Duration::from_secs(2);
/// How often months are made and histograms drained.
const MONTHS_EVERY: Duration = Duration::from_secs(6 * 3600);
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Why the historian cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be used, or its schema not be brought up to date.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The HTTP address cannot be used.
    #[error("historian.{0}")]
    Listen(#[from] api::serve::Error),
    /// Nothing brings messages.
    #[error(
        "historian.bus is inline, which only a process that runs nodes too can use: name a broker"
    )]
    Inline,
    /// The second historian cannot be sent to.
    #[error("federation cannot start: {0}")]
    Federation(String),
}

/// A running historian.
#[derive(Debug)]
pub struct Historian {
    http: SocketAddr,
    metrics: Arc<Metrics>,
    writer: Arc<Writer>,
    stop: CancellationToken,
    stop_grace: Duration,
    tasks: JoinSet<()>,
    federation: Option<Dispatcher>,
}

/// Makes a consumer; a second time after the first one has ended, where the bus can.
type Make = Box<dyn FnMut() -> Option<Box<dyn Consumer>> + Send>;

impl Historian {
    /// Brings the schema up to date, waiting for the database if need be, and consumes from the configured broker.
    pub async fn start(config: Config) -> Result<Historian, Error> {
        let (bus, batch) = (config.bus.clone(), config.batch);
        #[cfg(feature = "kafka")]
        let (group, database) = (config.group.clone(), config.database.clone());
        if matches!(bus, Bus::Inline) {
            return Err(Error::Inline);
        }
        let (mut historian, progress) = Historian::prepare(config).await?;
        let (stop, metrics) = (historian.stop.clone(), Arc::clone(&historian.metrics));
        let writer = Arc::clone(&historian.writer);
        historian.tasks.spawn(async move {
            let make: Make = match bus {
                Bus::Inline => return,
                Bus::RabbitMq { address, declare } => tokio::select! {
                    () = stop.cancelled() => return,
                    make = rabbitmq(address, declare, batch, &metrics, &progress) => make,
                },
                #[cfg(feature = "kafka")]
                Bus::Kafka(bus) => {
                    // Before offsets are read, and until the last of them is written.
                    let mut presence = tokio::select! {
                        () = stop.cancelled() => return,
                        presence = Presence::announce(&database, &group) => presence,
                    };
                    let pool = writer.pool().clone();
                    let make = super::kafka::consumers(bus, group, batch, pool, &metrics);
                    tokio::select! {
                        () = consume(Box::new(make), &writer, &progress, &stop) => {}
                        () = presence.keep() => {}
                    }
                    presence.end().await;
                    return;
                }
            };
            consume(make, &writer, &progress, &stop).await;
        });
        Ok(historian)
    }

    /// The same with consumers that the caller has, each of which may end once.
    pub async fn start_with(
        config: Config,
        consumers: Vec<Box<dyn Consumer>>,
    ) -> Result<Historian, Error> {
        let (mut historian, progress) = Historian::prepare(config).await?;
        for consumer in consumers {
            let (writer, stop) = (Arc::clone(&historian.writer), historian.stop.clone());
            let progress = Arc::clone(&progress);
            let mut once = Some(consumer);
            historian.tasks.spawn(async move {
                consume(Box::new(move || once.take()), &writer, &progress, &stop).await;
            });
        }
        Ok(historian)
    }

    async fn prepare(config: Config) -> Result<(Historian, Arc<Progress>), Error> {
        migrate(&config.database).await?;
        let pool = pg::Pool::new(&config.database)?;
        partitions::make(&pool).await;
        let metrics = Arc::new(Metrics::new());
        let progress = Arc::new(Progress::new(Instant::now()));
        let writer = Arc::new(Writer::of(&config, pool.clone(), Arc::clone(&metrics)));
        let federation = metrics.counting(|| federation(&config))?;
        let listener = metrics.counting(|| Listener::bind(config.listen, config.tls.as_ref()))?;
        let http = listener.address();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let letterbox: Arc<dyn Letterbox> = match dead_letters::broker(&config.bus) {
            Some(broker) => Arc::new(broker),
            None => Arc::new(TableLetterbox::new(pool.clone(), Arc::clone(&writer))),
        };
        let service = Http::new(Service {
            tokens: api::tokens::Tokens::new(pool.clone()),
            pool: pool.clone(),
            writer: Arc::clone(&writer),
            metrics: Arc::clone(&metrics),
            progress: Arc::clone(&progress),
            letters: Desk::new(letterbox, |_| ()),
            config: config.clone(),
        });
        tasks.spawn(listener.serve(service.router(), stop.clone().cancelled_owned(), GOODBYE));
        let rolling = rollup::run(&config.database, Arc::clone(&metrics), stop.clone())?;
        tasks.spawn(rolling);
        tasks.spawn(upkeep(pool, config.clone(), Arc::clone(&metrics), stop.clone()));
        tracing::info!(%http, group = config.group, "historian started");
        let stop_grace = config.stop_grace;
        let historian = Historian { http, metrics, writer, stop, stop_grace, tasks, federation };
        Ok((historian, progress))
    }

    /// Where HTTP is served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// What it has counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Stops: takes no further batch and no further request, and finishes what is under way.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(federation) = self.federation.take() {
            federation.stop().await;
        }
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(self.stop_grace, ended).await.is_err() {
            tracing::warn!("the historian was cut off; what it held is delivered again");
        }
        tracing::info!("historian stopped");
    }
}

/// After a power cut the database may start later than the historian, so it is waited for.
async fn migrate(database: &pg::Options) -> Result<(), pg::Error> {
    let mut pause = RETRY_BASE;
    loop {
        let error = match migrate_historian(database).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.about() {
            About::Destination | About::Conflict => {
                tracing::warn!(%error, ?pause, "the historian waits for the database");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_CAP);
            }
            About::Data | About::Us => return Err(error),
        }
    }
}

fn federation(config: &Config) -> Result<Option<Dispatcher>, Error> {
    let Some(second) = &config.federation else { return Ok(None) };
    let refuse = |words: String| Error::Federation(words);
    let remote = Remote::new(&second.url, second.token.clone(), &second.trust).map_err(refuse)?;
    let settings = Settings { batch: 500, ..Settings::new(format!("{}-federation", config.group)) };
    let queue = federation_queue();
    let dispatcher = Dispatcher::start_on(&config.database, &settings, Arc::new(remote), queue);
    Ok(Some(dispatcher.map_err(|error| refuse(error.to_string()))?))
}

async fn rabbitmq(
    address: Address,
    declared: bool,
    batch: usize,
    metrics: &Metrics,
    progress: &Progress,
) -> Make {
    let topology = topology();
    if declared {
        while let Err(error) = declare(&address, &topology).await {
            tracing::warn!(%error, pause = ?PAUSE, "the topology could not be declared");
            progress.bus(Some("the topology could not be declared"));
            tokio::time::sleep(PAUSE).await;
        }
    }
    progress.bus(None);
    let copies = Arc::new(RabbitPublisher::new(
        address.clone(),
        PublisherOptions {
            name: "holdfast historian".to_owned(),
            metrics: metrics.bus.clone(),
            ..Default::default()
        },
    ));
    let metrics = metrics.bus.clone();
    Box::new(move || {
        let options = ConsumerOptions {
            name: "holdfast historian".to_owned(),
            prefetch: u16::try_from(batch.saturating_mul(2)).unwrap_or(u16::MAX),
            batch,
            metrics: metrics.clone(),
            ..Default::default()
        };
        let queue = topology.queues.first()?.clone();
        let consumer = RabbitConsumer::new(address.clone(), queue, Arc::clone(&copies), options);
        Some(Box::new(consumer) as Box<dyn Consumer>)
    })
}

/// Runs one consumer. One that ends without being told to, or panics, is started again where the bus can.
async fn consume(
    mut make: Make,
    writer: &Arc<Writer>,
    progress: &Arc<Progress>,
    stop: &CancellationToken,
) {
    while let Some(consumer) = make() {
        progress.ended(false);
        let (writer, progress, stopped) = (Arc::clone(writer), Arc::clone(progress), stop.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            Work { writer: &writer, progress: &progress, stop: &stopped }.off(consumer).await;
        });
        let ended = task.join_next().await;
        if stop.is_cancelled() {
            return;
        }
        let failed = ended.is_some_and(|ended| ended.is_err());
        tracing::error!(failed, "the consumer has ended");
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => return,
        }
    }
    progress.ended(true);
}

/// What is done on the side: months, alarms that time changes, histograms.
async fn upkeep(pool: pg::Pool, config: Config, metrics: Arc<Metrics>, stop: CancellationToken) {
    let mut months = tokio::time::interval(MONTHS_EVERY);
    let mut drain = tokio::time::interval(UPKEEP_EVERY);
    let mut sweep = tokio::time::interval(config.sweep);
    for timer in [&mut months, &mut drain, &mut sweep] {
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    // They were made at the start.
    months.tick().await;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = months.tick() => partitions::make(&pool).await,
            _ = drain.tick() => metrics.upkeep(),
            _ = sweep.tick() => {
                let swept = async {
                    let mut client = pool.get().await?;
                    let (now, rules) = (Timestamp::now(), &config.rules);
                    let told = alarms::sweep(&mut client, now, rules, config.position).await?;
                    // Every replica shows them, whichever of them swept.
                    metrics.floods(alarms::floods(&client).await?);
                    Ok::<_, pg::Error>(told)
                };
                match swept.await {
                    Ok(told) => announce(&metrics, &told.unwrap_or_default()),
                    Err(error) => tracing::warn!(%error, "alarms could not be swept"),
                }
            }
        }
    }
}
