//! The one place where a role listens: binds, takes connections in plain or by TLS, and stops gracefully.
//!
//! Promises: the number of connections, a handshake and the head of a request are bounded; a certificate that changes is used without dropping a
//! connection; requests under way at the stop get the time that the role gives them, and no more. It must not know any role's routes. It fails at
//! [`Listener::bind`], with words that name the key of the role's section; after that a connection that ends badly is its client's affair.
//! docs/operations/certificates.md has the rules.

mod files;
mod meter;
mod reload;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

pub use files::{KEYS, Tls};
use meter::Meter;
use reload::Certificates;

/// Connections at once; a further one waits in the system's queue.
const MAX_CONNECTIONS: usize = 4_096;
/// How many wait there.
const BACKLOG: u32 = 1_024;
/// How long a client may take to shake hands.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and so how long a connection may idle. Longer than the 90 seconds that our own clients keep one, so
/// that it is they who close it, and no request meets a closed connection.
const HEAD_WITHIN: Duration = Duration::from_secs(120);
/// The pause after a connection could not be taken, so that a lack of files does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a role cannot listen. The words begin with the key, without the role's section.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("http.listen {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A file of [`Tls`] cannot be used.
    #[error(transparent)]
    Tls(#[from] trust::Error),
}

/// An address that is listened on, and serves once it is told what.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    certificates: Option<Arc<Certificates>>,
    meter: Meter,
}

impl Listener {
    /// Binds, and reads the certificate if there is one. Metrics go to the recorder that is current here. Wants a runtime around it.
    pub fn bind(address: SocketAddr, tls: Option<&Tls>) -> Result<Listener, Error> {
        let meter = Meter::new();
        let certificates = tls.map(|tls| Certificates::read(tls.clone())).transpose()?;
        let refuse = |source| Error::Bind { address, source };
        let tcp = listen(address).map_err(refuse)?;
        let address = tcp.local_addr().map_err(refuse)?;
        Ok(Listener { tcp, address, certificates: certificates.map(Arc::new), meter })
    }

    /// Where it listens; the port is known by now.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done. Requests that are under way then get `goodbye` to end.
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()>, goodbye: Duration) {
        let Listener { tcp, certificates, meter, .. } = self;
        let mut stop = std::pin::pin!(stop);
        let mut make = router.into_make_service_with_connect_info::<SocketAddr>();
        // Dropped at the end, and its task with it.
        let mut aside = JoinSet::new();
        if let Some(certificates) = &certificates {
            aside.spawn(Arc::clone(certificates).keep_fresh());
        }
        let closing = CancellationToken::new();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                Some(ended) = connections.join_next() => {
                    note(ended);
                    continue;
                }
                accepted = tcp.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(service) = service(&mut make, peer).await else { continue };
            let acceptor = certificates.as_ref().map(|held| TlsAcceptor::from(held.in_use()));
            let (closing, meter) = (closing.clone(), meter.clone());
            connections.spawn(async move {
                match acceptor {
                    None => converse(stream, service, &closing).await,
                    Some(acceptor) => {
                        let shaken = tokio::select! {
                            shaken = shake_hands(&acceptor, stream) => shaken,
                            () = closing.cancelled() => return,
                        };
                        match shaken {
                            Some(stream) => converse(stream, service, &closing).await,
                            None => meter.handshakes_failed.increment(1),
                        }
                    }
                }
            });
        }
        drop(tcp);
        closing.cancel();
        let ended = async {
            while let Some(ended) = connections.join_next().await {
                note(ended);
            }
        };
        if tokio::time::timeout(goodbye, ended).await.is_err() {
            tracing::info!(connections = connections.len(), "HTTP requests were cut off");
            connections.shutdown().await;
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A role that starts again need not wait for the connections of its past.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

type Make = IntoMakeServiceWithConnectInfo<Router, SocketAddr>;
type Answering = axum::middleware::AddExtension<Router, axum::extract::ConnectInfo<SocketAddr>>;

/// What answers a peer. It is made at once and cannot fail; the type does not say so.
async fn service(make: &mut Make, peer: SocketAddr) -> Option<Answering> {
    make.call(peer).await.ok()
}

async fn shake_hands(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    match tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a client was not let in");
            None
        }
        Err(_) => {
            tracing::debug!("a client did not finish its handshake");
            None
        }
    }
}

/// Answers one connection until it ends, or, once told to close, until its request is answered.
async fn converse<S>(stream: S, service: Answering, closing: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
    server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let serving = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut serving = std::pin::pin!(serving);
    // How a connection ends is its client's affair.
    tokio::select! {
        _ = &mut serving => return,
        () = closing.cancelled() => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

fn note(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("a request ended in a panic; its connection was closed");
    }
}
