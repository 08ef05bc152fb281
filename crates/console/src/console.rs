//! The console as a whole: what starts, and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::serve::Listener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::alerts::{self, StateError};
use crate::config::Config;
use crate::http::Http;
use crate::metrics::Metrics;
use crate::picture::{self, Board};
use crate::upstream::Upstreams;

/// Requests that are under way when the console stops get this long; streams have no end of their own.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why the console cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database of the tokens cannot be used as configured.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The HTTP address cannot be used.
    #[error("console.{0}")]
    Listen(#[from] api::serve::Error),
    /// The certificates for the upstreams cannot be used.
    #[error("console.{0}")]
    Trust(#[from] api::client::Error),
    /// What the webhook of alerts was told cannot be kept.
    #[error("console.alerts.state_file: {0}")]
    State(#[from] StateError),
    /// No client for the upstreams can be made.
    #[error("no HTTP client can be made: {0}")]
    Client(#[from] reqwest::Error),
}

/// A running console.
#[derive(Debug)]
pub struct Console {
    http: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// Runs a console until `shutdown` is done.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let console = Console::start(config).await?;
    shutdown.await;
    console.stop().await;
    Ok(())
}

impl Console {
    /// Starts to listen and to ask. Neither the database nor any upstream needs to be there yet.
    pub async fn start(config: Config) -> Result<Console, Error> {
        let pool = pg::Pool::new(&config.database)?;
        let metrics = Metrics::new();
        let listener = metrics.counting(|| Listener::bind(config.listen, config.tls.as_ref()))?;
        let http = listener.address();
        let upstreams = Arc::new(Upstreams::new(&config)?);
        let board = Arc::new(Board::new(&upstreams));
        let stop = CancellationToken::new();
        let mut tasks = picture::start(&upstreams, &board, config.poll_every, &stop);
        let telling = match &config.webhook {
            None => None,
            Some(webhook) => {
                let (webhook, client) = (webhook.clone(), upstreams.client.clone());
                Some(alerts::start_webhook(webhook, client, &board, &stop, &mut tasks)?)
            }
        };
        let service = Http::new(&config, pool, upstreams, board, metrics, telling);
        tasks.spawn(listener.serve(service.router(), stop.clone().cancelled_owned(), GOODBYE));
        tracing::info!(%http, sites = config.sites.len(), "console started");
        Ok(Console { http, stop, tasks })
    }

    /// Where HTTP is served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Stops. Sessions end with it.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        tracing::info!("console stopped");
    }
}
