//! The edge as a whole: what starts, in which order, and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::serve::Listener;
use axum::Router;
use mqtt::Backoff;
use pg::About;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::config::{Config, Role};
use crate::health::{Health, Line};
use crate::http::Http;
use crate::inference::Evaluator;
use crate::ingress::Writer;
use crate::ingress::acknowledge::Uplink;
use crate::ingress::gather::Pipeline;
use crate::ingress::http::Http as Backfill;
use crate::ingress::mqtt::{MAX_HELD_MESSAGES, Receiver, Room};
use crate::media::Media;
use crate::metrics::Metrics;
use crate::retention::{self, Retention};
use crate::signal::{Sayer, Signal, signal};
use crate::sync::Forwarder;
use crate::telemetry::Aggregator;
use crate::{inference, ledger, maintenance, media, migration};

const RETRY_BASE: Duration = Duration::from_millis(200);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// Requests that are under way when the edge stops get this long.
const HTTP_GOODBYE: Duration = Duration::from_secs(5);
/// Operators have connections of their own: neither they nor ingress can take all of the other's.
const OPERATOR_CONNECTIONS: usize = 3;

/// Why the edge cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be used, or its schema not be brought up to date.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The broker can never be reached as configured.
    #[error(transparent)]
    Broker(#[from] mqtt::Error),
    /// The HTTP address cannot be used.
    #[error("edge.{0}")]
    Listen(#[from] api::serve::Error),
    /// The forwarder can never work as configured.
    #[error(transparent)]
    Sync(#[from] crate::sync::Error),
    /// The inference worker can never work as configured.
    #[error(transparent)]
    Inference(#[from] inference::Error),
    /// The object store can never be used as configured.
    #[error(transparent)]
    Objects(#[from] objects::Error),
}

/// A running edge.
#[derive(Debug)]
pub struct Edge {
    http: SocketAddr,
    metrics: Arc<Metrics>,
    stop: Sayer,
    drained: Sayer,
    pipeline: JoinSet<()>,
    others: JoinSet<()>,
}

/// Runs the edge until `shutdown` is done, then stops it gracefully.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let mut shutdown = std::pin::pin!(shutdown);
    let edge = tokio::select! {
        edge = Edge::start(config) => edge?,
        () = &mut shutdown => return Ok(()),
    };
    shutdown.await;
    edge.stop().await;
    Ok(())
}

/// Brings the schema up to date. After a power cut the database may start later than the edge, so
/// it is waited for.
async fn prepare(database: &pg::Options) -> Result<(), pg::Error> {
    let mut backoff = Backoff::new(RETRY_BASE, RETRY_CAP);
    loop {
        let error = match migration::migrate(database).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.about() {
            About::Destination | About::Conflict => {
                let pause = backoff.next(&mut rand::rng());
                tracing::warn!(%error, ?pause, "the edge waits for the database");
                tokio::time::sleep(pause).await;
            }
            About::Data | About::Us => return Err(error),
        }
    }
}

impl Edge {
    /// Brings the schema up to date, waiting for the database if need be, and starts everything.
    /// The broker may come later.
    pub async fn start(config: Config) -> Result<Edge, Error> {
        prepare(&config.database).await?;
        let metrics = Arc::new(Metrics::new());
        let has = |role| config.roles.contains(&role);
        let health = Arc::new(Health::new(Arc::clone(&metrics), has(Role::Ingress)));
        let listener = metrics.counting(|| Listener::bind(config.listen, config.tls.as_ref()))?;
        let http = listener.address();

        let (stop, stopping) = signal();
        let (drained, all_drained) = signal();
        let (mut pipeline, mut others) = (JoinSet::new(), JoinSet::new());
        let backfill = if has(Role::Ingress) {
            let ingress = Ingress {
                config: &config,
                metrics: &metrics,
                health: &health,
                stopping: &stopping,
                all_drained,
            };
            Some(ingress.start(&mut pipeline, &mut others)?)
        } else {
            None
        };
        others.spawn(maintenance::upkeep(Arc::clone(&metrics), stopping.clone()));
        let operators = pg::Pool::new(&pg::Options {
            max_connections: OPERATOR_CONNECTIONS,
            ..config.database.clone()
        })?;
        let stall_after = config.ingress.stall_after;
        let service = Http::new(
            operators.clone(),
            Arc::clone(&health),
            Arc::clone(&metrics),
            stall_after,
            config.liveness,
        )
        .sending(config.telemetry.sync);
        let media = config.media.as_ref().filter(|_| has(Role::Media)).map(Media::new);
        let media = media.transpose()?;
        let service = service.with_media(media.clone()).router(&config.roles, backfill);
        if let Some(media) = media {
            let (database, metrics) = (config.database.clone(), Arc::clone(&metrics));
            others.spawn(media::sweep::run(media, database, metrics, stopping.clone()));
        }
        if let Some(sync) = config.sync.as_ref().filter(|_| has(Role::Sync)) {
            let forwarder =
                Forwarder::start(&config.database, sync, &config.replica, Arc::clone(&metrics))?;
            others.spawn(forwarder.run(stopping.clone(), health));
        }
        match config.inference.as_ref().filter(|_| has(Role::Inference)) {
            Some(inference) => {
                let bucket = config.object_store()?;
                let evaluator = metrics.counting(|| {
                    Evaluator::start(&config.database, inference, bucket, &config.replica)
                })?;
                others.spawn(evaluator.run(stopping.clone()));
            }
            None if has(Role::Inference) => {
                others.spawn(inference::forget_unasked(operators, stopping.clone()));
            }
            None => {}
        }
        if has(Role::Retention) {
            let retention = Retention::new(&config, config.object_store()?);
            others.spawn(retention::run(retention, Arc::clone(&metrics), stopping.clone()));
        }
        if has(Role::Telemetry) {
            let options = pg::Options { max_connections: 1, ..config.database.clone() };
            let aggregator = Aggregator::new(
                pg::Pool::new(&options)?,
                config.telemetry.clone(),
                Arc::clone(&metrics),
            );
            others.spawn(aggregator.run(stopping.clone()));
        }
        let mut stopping = stopping;
        let stop_serving = async move { stopping.heard().await };
        others.spawn(listener.serve(service, stop_serving, HTTP_GOODBYE));
        tracing::info!(%http, replica = %config.replica, "edge started");
        Ok(Edge { http, metrics, stop, drained, pipeline, others })
    }

    /// Where HTTP is served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// What it has counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Stops receiving, commits and acknowledges what was received, and leaves the broker.
    pub async fn stop(mut self) {
        self.stop.say();
        while self.pipeline.join_next().await.is_some() {}
        self.drained.say();
        while self.others.join_next().await.is_some() {}
        tracing::info!("edge stopped");
    }
}

/// What ingress is started with.
struct Ingress<'a> {
    config: &'a Config,
    metrics: &'a Arc<Metrics>,
    health: &'a Arc<Health>,
    stopping: &'a Signal,
    all_drained: Signal,
}

impl Ingress<'_> {
    /// Starts receiving from the broker, and returns the routes of backfill.
    fn start(self, pipeline: &mut JoinSet<()>, others: &mut JoinSet<()>) -> Result<Router, Error> {
        let Ingress { config, metrics, health, stopping, all_drained } = self;
        let uplink = Arc::new(Uplink::new(Arc::clone(metrics)));
        let writer = Writer::new(pg::Pool::new(&config.database)?, Arc::clone(metrics))
            .sending(config.telemetry.sync);
        let receiver = Receiver {
            broker: config.broker.clone(),
            replica: config.replica.to_string(),
            keepalive: config.keepalive,
            room: Room::new(config.ingress.max_held),
            health: Arc::clone(health),
            uplink: Arc::clone(&uplink),
        };
        receiver.check()?;
        let (held, from_receivers) = mpsc::channel(MAX_HELD_MESSAGES);
        // One group waits while another is committed; more would only be older when they are.
        let (groups, from_gather) = mpsc::channel(1);
        let line = Pipeline {
            writer: writer.clone(),
            limits: config.ingress,
            health: Arc::clone(health),
            uplink: Arc::clone(&uplink),
            metrics: Arc::clone(metrics),
            stop: stopping.clone(),
        };
        pipeline.spawn(line.clone().gather(from_receivers, groups));
        pipeline.spawn(line.commit(from_gather));
        for line in [Line::Batches, Line::Events] {
            let (stop, drained) = (stopping.clone(), all_drained.clone());
            others.spawn(receiver.clone().run(line, held.clone(), stop, drained));
        }
        others.spawn(maintenance::run(
            config.database.clone(),
            config.dedupe_ttl,
            config.dedupe_sweep_every,
            Arc::clone(metrics),
            stopping.clone(),
        ));
        let asks = pg::Pool::new(&pg::Options { max_connections: 1, ..config.database.clone() })?;
        others.spawn(ledger::resend::run(asks, Arc::clone(&uplink), stopping.clone()));
        let backfill = Backfill {
            writer,
            uplink,
            metrics: Arc::clone(metrics),
            places: Arc::new(Semaphore::new(config.max_uploads)),
        };
        Ok(backfill.router())
    }
}
