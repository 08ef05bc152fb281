//! A node from start to stop.
//!
//! Two threads beside the spool's writer: this one serves samplers, a second one forwards. Reading and compressing a batch
//! takes milliseconds on a small computer, and a sampler shall not wait for that.

use crate::config::Config;
use crate::forward::Forwarder;
use crate::metrics;
use crate::socket::{self, ListenError, Samplers};
use crate::vitals::Vitals;
use event::id::{Epoch, IdError};
use spool::Spool;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

/// How long samplers may take to read their last replies.
const LAST_REPLIES: Duration = Duration::from_secs(5);

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The spool.
    #[error(transparent)]
    Spool(#[from] spool::Error),
    /// The sampler socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The address of the metrics.
    #[error("node.metrics.listen {address}: {source}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why it cannot be used.
        source: io::Error,
    },
    /// The broker's configuration.
    #[error(transparent)]
    Broker(#[from] mqtt::Error),
    /// The spool's identity is not one.
    #[error("the spool's epoch {0}")]
    Epoch(#[from] IdError),
    /// A thread or its runtime.
    #[error("cannot start the forwarder: {0}")]
    Thread(#[from] io::Error),
    /// The forwarder died; that is a defect.
    #[error("the forwarder ended by itself")]
    ForwarderDied,
}

/// Runs a node until `stop` is ready, then stops in order: no new samplers, pending replies, goodbye to the broker,
/// cursor. Needs a tokio runtime; one thread is enough.
pub async fn serve(config: Config, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    // The socket first: it tells whether another node lives here, before anything is touched.
    let listener = socket::bind(&config.socket)?;
    let outcome = serve_on(listener, &config, stop).await;
    remove_socket(&config.socket);
    outcome
}

async fn serve_on(
    listener: tokio::net::UnixListener,
    config: &Config,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let metrics = match config.metrics {
        Some(address) => {
            let bound = TcpListener::bind(address).await;
            Some(bound.map_err(|source| RunError::Metrics { address, source })?)
        }
        None => None,
    };
    let spool = Spool::open(config.spool.clone())?;
    log_recovery(&spool);
    let epoch = Epoch::from_uuid(spool.epoch())?;
    let vitals = Arc::new(Vitals::new(config.clone(), spool.clone(), epoch));
    let (stop_sender, stopping) = watch::channel(false);
    let mut forwarder = start_forwarder(
        config.clone(),
        spool.clone(),
        epoch,
        Arc::clone(&vitals),
        stopping.clone(),
    )
    .await?;
    if let Some(listener) = metrics {
        tokio::spawn(metrics::serve(listener, Arc::clone(&vitals), stopping.clone()));
    }
    let identity = config.identity.clone();
    let samplers = Samplers::new(identity, vitals, spool.clone(), config.socket_connections);
    let mut accepting = tokio::spawn(samplers.serve(listener, stopping));
    tracing::info!(
        node = %config.identity.node_id, epoch = %epoch, head = spool.synced(), acked = spool.acked(),
        socket = %config.socket.display(), "running"
    );
    let died = tokio::select! {
        () = stop => false,
        _ = &mut forwarder.ended => true,
    };
    tracing::info!("stopping");
    stop_sender.send_replace(true);
    if tokio::time::timeout(LAST_REPLIES, &mut accepting).await.is_err() {
        tracing::warn!("a sampler does not read its replies; leaving without it");
        accepting.abort();
    }
    if !died {
        let _ = forwarder.ended.await;
    }
    let joined = tokio::task::spawn_blocking(|| forwarder.thread.join()).await;
    if died || !matches!(joined, Ok(Ok(()))) {
        return Err(RunError::ForwarderDied);
    }
    tracing::info!(head = spool.synced(), acked = spool.acked(), "stopped");
    // Dropping the last handle writes what is queued and saves the cursor.
    drop(spool);
    Ok(())
}

struct Running {
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

async fn start_forwarder(
    config: Config,
    spool: Spool,
    epoch: Epoch,
    vitals: Arc<Vitals>,
    stopping: watch::Receiver<bool>,
) -> Result<Running, RunError> {
    let (head_sender, head) = watch::channel(spool.synced());
    spool.on_synced(Box::new(move |seq| {
        head_sender.send_replace(seq);
    }));
    let (started, has_started) = oneshot::channel();
    let (ending, ended) = oneshot::channel();
    // One thread reads, compresses, decides and speaks to the broker: handing every message from one thread to another and every
    // PUBACK back costs more than what they could do at the same time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let forward = move || {
        runtime.block_on(async move {
            match Forwarder::start(config, spool, epoch, vitals) {
                Err(error) => drop(started.send(Err(error))),
                Ok(forwarder) => {
                    let _ = started.send(Ok(()));
                    forwarder.run(head, stopping).await;
                }
            }
        });
        let _ = ending.send(());
    };
    let thread = std::thread::Builder::new().name("forward".to_owned()).spawn(forward)?;
    match has_started.await {
        Ok(Ok(())) => Ok(Running { thread, ended }),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(RunError::ForwarderDied),
    }
}

fn log_recovery(spool: &Spool) {
    let recovery = spool.recovery();
    let took_ms = recovery.took.as_millis();
    tracing::info!(segments = recovery.segments, took_ms, "spool open");
    if recovery.truncated_bytes > 0 {
        tracing::warn!(bytes = recovery.truncated_bytes, "an unfinished write was cut off");
    }
    if recovery.epoch_renewed {
        tracing::warn!("the spool's head was unknown; it has a new epoch");
    }
    for gap in &recovery.new_gaps {
        let reason = gap.reason.as_str();
        tracing::warn!(from_seq = gap.from_seq, to_seq = gap.to_seq, reason, "records are lost");
    }
    for note in &recovery.notes {
        tracing::warn!(%note, "spool");
    }
}

fn remove_socket(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(%error, socket = %path.display(), "cannot remove the sampler socket");
    }
}
