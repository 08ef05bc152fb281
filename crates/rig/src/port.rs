//! Ports for servers.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

use crate::Error;

/// Ports below the range from which the kernel takes the near end of outgoing connections. A port
/// from that range could be taken by any connection while its server is down for a restart, and a
/// client knocking on it could even end up connected to itself.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
const ATTEMPTS: usize = 200;

/// What this process holds: each an open file with a lock on it, which the kernel takes away when the process ends.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A loopback port on which nothing listens. As long as this process runs nobody is given the same one here, whatever
/// process asks: seconds may go by before its server listens. Somebody who does not ask may still take it.
pub fn free_port() -> Result<u16, Error> {
    let mut last = std::io::Error::other("no port was tried");
    for _ in 0..ATTEMPTS {
        let span = u64::from(PORTS.end - PORTS.start);
        let offset = RandomState::new().hash_one(0u8) % span;
        let port = PORTS.start + u16::try_from(offset).unwrap_or_default();
        match try_bind(port).and_then(|()| hold(port)) {
            Ok(()) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(Error::Network { action: "find a free port".to_owned(), source: last })
}

/// Binds without listening. A process being started elsewhere in this one holds a copy of every open
/// socket for an instant; a listening copy would keep the port from whoever asked for it.
fn try_bind(port: u16) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// Fails when the port was given to somebody who still runs.
fn hold(port: u16) -> std::io::Result<()> {
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    let file = File::options().create(true).append(true).open(folder.join(port.to_string()))?;
    file.try_lock()?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    Ok(())
}

/// One for each user, as others may not write there.
fn folder() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("holdfast-ports-{user}"))
}
