//! The cloud as a whole: what starts, in which order, and how it stops.

mod line;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::serve::Listener;
use pg::About;
use rand::RngExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::behind::Behind;
use crate::config::{Config, Role};
use crate::consume::Group;
use crate::http::{Http, Service};
use crate::ingest::Writer;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::tokens::Tokens;
use crate::{copies, dead_letters, maintenance, migration};
use line::Line;

pub use work::{Work, topology};

const RETRY_BASE: Duration = Duration::from_millis(200);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// Requests that are under way when the cloud stops get this long.
const GOODBYE: Duration = Duration::from_secs(5);

/// Why the cloud cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be used, or its schema not be brought up to date.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The HTTP address cannot be used.
    #[error("cloud.{0}")]
    Listen(#[from] api::serve::Error),
    /// A consumer group has a name that cannot be used.
    #[error("a consumer group cannot be used: {0}")]
    Group(#[from] event::Invalid),
}

/// A running cloud.
#[derive(Debug)]
pub struct Cloud {
    http: SocketAddr,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Runs the cloud until `shutdown` is done, then stops it gracefully.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let mut shutdown = std::pin::pin!(shutdown);
    let cloud = tokio::select! {
        cloud = Cloud::start(config) => cloud?,
        () = &mut shutdown => return Ok(()),
    };
    shutdown.await;
    cloud.stop().await;
    Ok(())
}

/// Brings the schema up to date. After a power cut the database may start later than the cloud, so
/// it is waited for.
async fn prepare(database: &pg::Options) -> Result<(), pg::Error> {
    let mut pause = RETRY_BASE;
    loop {
        let error = match migration::migrate(database).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.about() {
            About::Destination | About::Conflict => {
                // Spread, so that replicas do not come back all at once.
                let spread = pause.mul_f64(rand::rng().random_range(0.75..1.25));
                tracing::warn!(%error, pause = ?spread, "the cloud waits for the database");
                tokio::time::sleep(spread).await;
                pause = (pause * 2).min(RETRY_CAP);
            }
            About::Data | About::Us => return Err(error),
        }
    }
}

impl Cloud {
    /// Brings the schema up to date, waiting for the database if need be, and starts everything.
    pub async fn start(config: Config) -> Result<Cloud, Error> {
        let work = Work::all(&config.consume);
        Cloud::start_with(config, work).await
    }

    /// The same with other consumers.
    pub async fn start_with(config: Config, works: Vec<Work>) -> Result<Cloud, Error> {
        let groups: Vec<Group> = works.iter().map(|work| work.group.clone()).collect();
        let topology = topology(&groups)?;
        prepare(&config.database).await?;
        let metrics = Arc::new(Metrics::new());
        let readiness = Readiness::default();
        let pool = pg::Pool::new(&config.database)?;
        let listener = metrics.counting(|| Listener::bind(config.listen, config.tls.as_ref()))?;
        let http = listener.address();

        let behind = Behind::default();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(maintenance::run(
            config.database.clone(),
            pool.clone(),
            (config.dedupe_ttl, config.dedupe_sweep_every),
            Arc::clone(&metrics),
            stop.clone(),
        ));
        let service = Http::new(Service {
            writer: Writer::new(pool.clone(), Arc::clone(&metrics)),
            tokens: Tokens::new(pool.clone()),
            pool: pool.clone(),
            metrics: Arc::clone(&metrics),
            readiness: readiness.clone(),
            limits: config.limits,
            ingests: config.roles.contains(&Role::Ingestion),
            dedupe_ttl: config.dedupe_ttl,
            copies: config.consume.stores.is_some(),
            bus: config.bus.as_str(),
            letters: dead_letters::broker::desk(&config.bus, &topology),
            behind: behind.clone(),
            database: config.database.clone(),
        });
        tasks.spawn(listener.serve(service.router(), stop.clone().cancelled_owned(), GOODBYE));
        if config.roles.contains(&Role::Media) && config.consume.stores.is_some() {
            let gauges = metrics.counting(copies::Gauges::new);
            tasks.spawn(copies::watch(pool.clone(), gauges, stop.clone()));
        }
        let roles: Vec<&str> = config.roles.iter().map(|role| role.as_str()).collect();
        tracing::info!(%http, roles = roles.join(","), "cloud started");
        let line = Line {
            config,
            works,
            topology,
            pool,
            metrics: Arc::clone(&metrics),
            readiness: readiness.clone(),
            behind,
        };
        tasks.spawn(line.run(stop.clone()));
        Ok(Cloud { http, metrics, readiness, stop, tasks })
    }

    /// Where HTTP is served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// What it has counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where parts that run on their own, such as the bus, say whether they work.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Stops: takes no further requests and answers those that are under way; the relay claims no
    /// more and gives back what it holds; then the consumers finish their batch.
    pub async fn stop(mut self) {
        self.readiness.report("cloud", Err("is stopping".to_owned()));
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        tracing::info!("cloud stopped");
    }
}
