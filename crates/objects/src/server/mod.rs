//! An S3 endpoint of our own, over files that survive a power cut. docs/spec/object-store.md says what it
//! answers and how its folder looks.
//!
//! Promises: what was answered with 200 is on the disk; an object is whole or absent; every request is
//! signed; a full disk is an answer and costs nothing that is stored. It fails at start when the folder
//! cannot be used or another process serves it; after that each request has its own answer.

mod disk;
mod fault;
mod multipart;
mod receive;
mod record;
mod service;
mod store;
mod uploads;
mod walk;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use service::Service;
use store::Store;

/// Connections at once; a further one waits.
const MAX_CONNECTIONS: usize = 256;
/// How long the head of a request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Requests that are under way when the endpoint stops get this long.
const GOODBYE: Duration = Duration::from_secs(5);
/// The pause after a connection could not be taken, so that a lack of files does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who may ask: one pair of keys.
#[derive(Clone)]
pub struct Credentials {
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Serves the store in `folder` until told to stop. It is opened before the first connection is taken.
pub async fn serve(
    folder: &Path,
    listener: TcpListener,
    credentials: Credentials,
    stop: CancellationToken,
) -> io::Result<()> {
    let at = folder.to_owned();
    let store = tokio::task::spawn_blocking(move || Store::open(&at)).await??;
    let mut builder = S3ServiceBuilder::new(Service { store: Arc::new(store) });
    builder.set_auth(SimpleAuth::from_single(credentials.access_key, credentials.secret_key));
    let service = builder.build();
    let mut server = auto::Builder::new(hyper_util::rt::TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((listener.accept().await?.0, place))
        };
        let (connection, place) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "the object store could not take a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let serving = server.serve_connection(TokioIo::new(connection), service.clone());
        let serving = graceful.watch(serving.into_owned());
        tokio::spawn(async move {
            // A connection that ends badly is its client's affair.
            let _ = serving.await;
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(GOODBYE, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests to the object store were cut off");
    }
    Ok(())
}
