//! The cloud as a whole: what starts, in which order, and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pg::About;
use rand::RngExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::http::{Http, Service};
use crate::ingest::Writer;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::tokens::Tokens;
use crate::{maintenance, migration};

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
    #[error("cloud.http.listen {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// A running cloud.
#[derive(Debug)]
pub struct Cloud {
    http: SocketAddr,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    stop: watch::Sender<bool>,
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
        prepare(&config.database).await?;
        let metrics = Arc::new(Metrics::new());
        let readiness = Readiness::default();
        let pool = pg::Pool::new(&config.database)?;
        let address = config.listen;
        let refuse = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        let http = listener.local_addr().map_err(refuse)?;

        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(maintenance::run(
            config.database.clone(),
            pool.clone(),
            (config.dedupe_ttl, config.dedupe_sweep_every),
            Arc::clone(&metrics),
            stopping.clone(),
        ));
        let service = Http::new(Service {
            writer: Writer::new(pool.clone(), Arc::clone(&metrics)),
            tokens: Tokens::new(pool.clone()),
            pool,
            metrics: Arc::clone(&metrics),
            readiness: readiness.clone(),
            limits: config.limits,
        });
        tasks.spawn(serve(listener, service, stopping));
        tracing::info!(%http, "cloud started");
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

    /// Takes no further requests, answers those that are under way, and stops.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
        tracing::info!("cloud stopped");
    }
}

async fn serve(listener: TcpListener, http: Http, stop: watch::Receiver<bool>) {
    let (mut graceful, mut hurry) = (stop.clone(), stop);
    let service = http.router().into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move {
        let _ = graceful.wait_for(|said| *said).await;
    });
    tokio::select! {
        ended = server => if let Err(error) = ended {
            tracing::error!(%error, "HTTP ended");
        },
        () = async {
            let _ = hurry.wait_for(|said| *said).await;
            tokio::time::sleep(GOODBYE).await;
        } => tracing::warn!("HTTP requests were cut off"),
    }
}
