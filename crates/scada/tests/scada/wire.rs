//! A cable between a node and its Postgres that can be cut: the server listens on a socket file, so a bridge from TCP stands before it.

use std::net::SocketAddr;
use std::path::PathBuf;

use testkit::Database;
use testkit::rig::Link;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinSet;

pub(crate) struct Wire {
    pub(crate) link: Link,
    pub(crate) url: String,
    _bridge: JoinSet<()>,
}

impl Wire {
    /// A cable to a database of the shared server.
    pub(crate) async fn to(database: &Database) -> Wire {
        let (_, query) = database.url().split_once('?').unwrap();
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next().unwrap()
        };
        let socket = PathBuf::from(value("host")).join(".s.PGSQL.5432");
        assert!(socket.exists(), "{}", socket.display());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut bridge = JoinSet::new();
        bridge.spawn(serve(listener, socket));
        let link = Link::start(address).await.unwrap();
        let url = url(link.addr(), &value("user"), database.name());
        Wire { link, url, _bridge: bridge }
    }
}

fn url(address: SocketAddr, user: &str, name: &str) -> String {
    format!("postgres://{user}@{address}/{name}")
}

async fn serve(listener: TcpListener, socket: PathBuf) {
    let mut joined = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let Ok(mut far) = UnixStream::connect(&socket).await else { continue };
        joined.spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
    }
}
