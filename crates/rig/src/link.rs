//! A TCP link that can be cut, stalled, delayed, or made deaf in one direction.
//!
//! A client connects to the link's address and is joined to the target. The mode can be changed at
//! any moment and holds for open connections as for new ones. *Up* is from the client to the target.
//!
//! Each direction of a connection is a reader, a bounded queue and a writer: when the far side does
//! not take bytes, the near side is not read either, as on a real link.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::Error;

const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const CHUNK_BYTES: usize = 16 * 1024;
/// The most chunks under way in one direction of one connection.
const MAX_CHUNKS: usize = 64;

/// What a link does with bytes and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Carries everything.
    Pass,
    /// Closes every connection; a new one is closed as soon as it is made. Bytes under way are lost.
    Cut,
    /// Keeps connections open and carries nothing. What was under way is carried later.
    Stall,
    /// Carries everything, this much later.
    Delay(Duration),
    /// Loses what the client sends and carries what the target sends.
    DropUp,
    /// Loses what the target sends and carries what the client sends.
    DropDown,
}

/// What all connections of a link watch. The number of cuts is there because a cut that is mended
/// at once must still close what was open.
#[derive(Debug, Clone, Copy)]
struct State {
    mode: Mode,
    cuts: u64,
}

/// What a link has carried so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Connections made to the link.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// Bytes delivered to the target.
    pub up_bytes: u64,
    /// Bytes delivered to clients.
    pub down_bytes: u64,
    /// Bytes lost in either direction by [`Mode::DropUp`] and [`Mode::DropDown`].
    pub lost_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    open: AtomicU64,
    up_bytes: AtomicU64,
    down_bytes: AtomicU64,
    lost_bytes: AtomicU64,
}

/// A link on a loopback port. It goes, with its connections, when this is dropped.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    target: watch::Sender<SocketAddr>,
    counters: Arc<Counters>,
    accepting: JoinHandle<()>,
}

impl Link {
    /// Opens a link to `target` on a free port.
    pub async fn start(target: SocketAddr) -> Result<Link, Error> {
        Link::start_on(crate::free_port()?, target).await
    }

    /// Opens a link to `target` on the port given.
    pub async fn start_on(port: u16, target: SocketAddr) -> Result<Link, Error> {
        let failed = |source| Error::Network { action: format!("listen on port {port}"), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (state, state_seen) = watch::channel(State { mode: Mode::Pass, cuts: 0 });
        let (target, target_seen) = watch::channel(target);
        let counters = Arc::new(Counters::default());
        let accepting =
            tokio::spawn(accept(listener, state_seen, target_seen, Arc::clone(&counters)));
        Ok(Link { address, state, target, counters, accepting })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Changes the mode, of open connections too.
    pub fn set(&self, mode: Mode) {
        self.state.send_modify(|state| {
            state.cuts += u64::from(mode == Mode::Cut);
            state.mode = mode;
        });
    }

    /// The mode now.
    pub fn mode(&self) -> Mode {
        self.state.borrow().mode
    }

    /// Leads new connections to another target. Open ones stay where they are.
    pub fn set_target(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    /// What it has carried so far.
    pub fn stats(&self) -> LinkStats {
        let counters = &self.counters;
        LinkStats {
            connections: counters.connections.load(Ordering::Relaxed),
            open: counters.open.load(Ordering::Relaxed),
            up_bytes: counters.up_bytes.load(Ordering::Relaxed),
            down_bytes: counters.down_bytes.load(Ordering::Relaxed),
            lost_bytes: counters.lost_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The connections belong to this task and go with it.
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    state: watch::Receiver<State>,
    target: watch::Receiver<SocketAddr>,
    counters: Arc<Counters>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Out of file descriptors, perhaps; a connection that ends gives some back.
                let Ok((client, _)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                counters.connections.fetch_add(1, Ordering::Relaxed);
                let (state, target) = (state.clone(), *target.borrow());
                let counters = Arc::clone(&counters);
                connections.spawn(async move {
                    let open = Open::new(&counters);
                    // A connection that breaks is closed on both sides; the ends see it.
                    let _ = carry(client, target, state, &counters).await;
                    drop(open);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Counts a connection for as long as it is open, however it ends.
struct Open<'a>(&'a Counters);

impl<'a> Open<'a> {
    fn new(counters: &'a Counters) -> Open<'a> {
        counters.open.fetch_add(1, Ordering::Relaxed);
        Open(counters)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn carry(
    client: TcpStream,
    target: SocketAddr,
    state: watch::Receiver<State>,
    counters: &Counters,
) -> io::Result<()> {
    let cuts_before = state.borrow().cuts;
    let mut cut = state.clone();
    let joined = async {
        let server = TcpStream::connect(target).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let up = Direction {
            state: state.clone(),
            deaf: Mode::DropUp,
            carried: &counters.up_bytes,
            lost: &counters.lost_bytes,
        };
        let down = Direction {
            state,
            deaf: Mode::DropDown,
            carried: &counters.down_bytes,
            lost: &counters.lost_bytes,
        };
        tokio::try_join!(up.run(from_client, to_server), down.run(from_server, to_client))?;
        io::Result::Ok(())
    };
    tokio::select! {
        // Cut comes first: a new connection on a cut link must not reach the target.
        biased;
        _ = cut.wait_for(|now| now.mode == Mode::Cut || now.cuts != cuts_before) => Ok(()),
        ended = joined => ended,
    }
}

/// Some bytes, or the end of the stream, and when they are to arrive.
struct Parcel {
    due: Instant,
    bytes: Option<Vec<u8>>,
}

/// One direction of one connection.
struct Direction<'a> {
    state: watch::Receiver<State>,
    deaf: Mode,
    carried: &'a AtomicU64,
    lost: &'a AtomicU64,
}

impl Direction<'_> {
    async fn run(self, from: OwnedReadHalf, to: OwnedWriteHalf) -> io::Result<()> {
        let (parcels, queue) = mpsc::channel(MAX_CHUNKS);
        let state = self.state.clone();
        tokio::try_join!(read(from, state, parcels), self.write(queue, to))?;
        Ok(())
    }

    async fn write(
        mut self,
        mut queue: mpsc::Receiver<Parcel>,
        mut to: OwnedWriteHalf,
    ) -> io::Result<()> {
        while let Some(parcel) = queue.recv().await {
            tokio::time::sleep_until(parcel.due).await;
            match parcel.bytes {
                Some(bytes) => self.deliver(&bytes, &mut to).await?,
                None => {
                    // A side that cannot be heard cannot be heard leaving either.
                    let deaf = self.deaf;
                    self.settle(|mode| mode != Mode::Stall && mode != deaf).await?;
                    to.shutdown().await?;
                }
            }
        }
        Ok(())
    }

    async fn deliver(&mut self, bytes: &[u8], to: &mut OwnedWriteHalf) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mode = self.settle(|mode| mode != Mode::Stall).await?;
            if mode == self.deaf {
                self.lost.fetch_add(rest.len() as u64, Ordering::Relaxed);
                return Ok(());
            }
            // The mode may change while the far side takes nothing.
            tokio::select! {
                changed = self.state.changed() => changed.map_err(|_| gone())?,
                written = to.write(rest) => {
                    let written = written?;
                    self.carried.fetch_add(written as u64, Ordering::Relaxed);
                    rest = &rest[written..];
                }
            }
        }
        Ok(())
    }

    /// Waits for a mode in which this direction moves.
    async fn settle(&mut self, moves: impl Fn(Mode) -> bool) -> io::Result<Mode> {
        let state = self.state.wait_for(|state| moves(state.mode)).await;
        state.map(|state| state.mode).map_err(|_| gone())
    }
}

async fn read(
    mut from: OwnedReadHalf,
    state: watch::Receiver<State>,
    parcels: mpsc::Sender<Parcel>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        // A reset is an end too, and like one it is not heard across a deaf link.
        let length = from.read(&mut chunk).await.unwrap_or(0);
        let delay = match state.borrow().mode {
            Mode::Delay(delay) => delay,
            _ => Duration::ZERO,
        };
        let bytes = (length > 0).then(|| chunk[..length].to_vec());
        let parcel = Parcel { due: Instant::now() + delay, bytes };
        if parcels.send(parcel).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the link is gone")
}
