//! A real private RabbitMQ: started, killed, and started again on its port and data.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use rig::{Error, RabbitMq};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// True when the broker answers as an AMQP server does.
async fn speaks_amqp(broker: &RabbitMq) -> bool {
    let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
    stream.write_all(b"AMQP\x00\x00\x09\x01").await.unwrap();
    let mut head = [0; 11];
    stream.read_exact(&mut head).await.unwrap();
    // A method frame on channel 0: connection.start.
    head[..3] == [1, 0, 0] && head[7..] == [0, 10, 0, 10]
}

#[tokio::test]
async fn it_comes_back_on_its_port_with_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = RabbitMq::start(folder.path()).await.unwrap();
    let port = broker.port();
    assert!(speaks_amqp(&broker).await);
    assert!(broker.url("a/b").ends_with(&format!("@127.0.0.1:{port}/a%2fb")));
    broker.add_vhost("orders").await.unwrap();
    let pid = broker.process().unwrap().pid();

    broker.kill().await.unwrap();
    assert!(TcpStream::connect(broker.addr()).await.is_err());
    broker.restart().await.unwrap();
    assert_eq!(broker.port(), port);
    assert_ne!(broker.process().unwrap().pid(), pid);
    assert!(broker.ctl(&["list_vhosts"]).await.unwrap().lines().any(|line| line == "orders"));
    let refused = broker.ctl(&["add_vhost", "orders", "extra", "words"]).await.unwrap_err();
    assert!(matches!(refused, Error::Failed { .. }), "{refused}");

    assert!(broker.add_vhost("a/b").await.is_err(), "a name that is no name");

    broker.stop().await.unwrap();
    assert!(TcpStream::connect(broker.addr()).await.is_err());
    // A tool that finds the broker gone leaves no name service behind.
    assert!(broker.ctl(&["list_vhosts"]).await.is_err());
    assert!(TcpStream::connect(("127.0.0.1", broker.epmd_port())).await.is_err());
}
