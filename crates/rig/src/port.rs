//! Ports for servers.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

use crate::Error;

/// Ports below the range from which the kernel takes the near end of outgoing connections. A port
/// from that range could be taken by any connection while its server is down for a restart, and a
/// client knocking on it could even end up connected to itself.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
const ATTEMPTS: usize = 200;

/// A loopback port on which nothing listens. It is not reserved: whoever gets it should be ready to
/// ask for another one.
pub fn free_port() -> Result<u16, Error> {
    let mut last = std::io::Error::other("no port was tried");
    for _ in 0..ATTEMPTS {
        let span = u64::from(PORTS.end - PORTS.start);
        let offset = RandomState::new().hash_one(0u8) % span;
        let port = PORTS.start + u16::try_from(offset).unwrap_or_default();
        match try_bind(port) {
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
