//! A link's faults, on open connections.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::time::Duration;

use rig::{Link, Mode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);
/// Long enough for bytes to cross if nothing held them. A test that waits this long for silence can
/// pass wrongly on a very slow machine, and never fail wrongly.
const QUIET: Duration = Duration::from_millis(150);

struct Ends {
    link: Link,
    client: TcpStream,
    server: TcpStream,
    listener: TcpListener,
}

async fn join() -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = Link::start(listener.local_addr().unwrap()).await.unwrap();
    let client = TcpStream::connect(link.addr()).await.unwrap();
    let (server, _) = timeout(LONG, listener.accept()).await.unwrap().unwrap();
    Ends { link, client, server, listener }
}

async fn crosses(from: &mut TcpStream, to: &mut TcpStream, text: &str) {
    from.write_all(text.as_bytes()).await.unwrap();
    expect(to, text).await;
}

async fn expect(to: &mut TcpStream, text: &str) {
    let mut got = vec![0; text.len()];
    timeout(LONG, to.read_exact(&mut got)).await.expect("bytes in time").unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), text);
}

async fn silent(stream: &mut TcpStream) {
    let mut one = [0; 1];
    let answer = timeout(QUIET, stream.read(&mut one)).await;
    assert!(answer.is_err(), "something came: {answer:?} {one:?}");
}

async fn closed(stream: &mut TcpStream) {
    let mut one = [0; 1];
    let answer = timeout(LONG, stream.read(&mut one)).await.expect("an end in time");
    assert!(matches!(answer, Ok(0) | Err(_)), "{answer:?}");
}

#[tokio::test]
async fn passes_both_ways_and_counts() {
    let mut ends = join().await;
    crosses(&mut ends.client, &mut ends.server, "hello").await;
    crosses(&mut ends.server, &mut ends.client, "hi").await;
    let stats = ends.link.stats();
    assert_eq!((stats.connections, stats.open), (1, 1));
    assert_eq!((stats.up_bytes, stats.down_bytes, stats.lost_bytes), (5, 2, 0));
}

#[tokio::test]
async fn a_large_transfer_arrives_whole_through_delay() {
    let mut ends = join().await;
    ends.link.set(Mode::Delay(Duration::from_millis(20)));
    let sent: Vec<u8> = (0..4_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let expected = sent.clone();
    let sending = tokio::spawn(async move {
        ends.client.write_all(&sent).await.unwrap();
        ends.client.shutdown().await.unwrap();
        ends.client
    });
    let mut got = Vec::new();
    timeout(LONG, ends.server.read_to_end(&mut got)).await.expect("the end in time").unwrap();
    assert!(got == expected);
    let mut client = sending.await.unwrap();
    crosses(&mut ends.server, &mut client, "still open this way").await;
}

#[tokio::test]
async fn a_cut_closes_what_is_open_and_what_comes() {
    let mut ends = join().await;
    ends.link.set(Mode::Cut);
    closed(&mut ends.client).await;
    closed(&mut ends.server).await;
    let mut late = TcpStream::connect(ends.link.addr()).await.unwrap();
    closed(&mut late).await;
    ends.link.set(Mode::Pass);
    let mut again = TcpStream::connect(ends.link.addr()).await.unwrap();
    let (mut server, _) = timeout(LONG, ends.listener.accept()).await.unwrap().unwrap();
    crosses(&mut again, &mut server, "mended").await;
    assert_eq!(ends.link.stats().connections, 3);
}

#[tokio::test]
async fn a_cut_that_is_mended_at_once_still_cuts() {
    let mut ends = join().await;
    ends.link.set(Mode::Cut);
    ends.link.set(Mode::Pass);
    closed(&mut ends.client).await;
    closed(&mut ends.server).await;
}

#[tokio::test]
async fn a_stall_holds_bytes_and_gives_them_later() {
    let mut ends = join().await;
    ends.link.set(Mode::Stall);
    ends.client.write_all(b"up").await.unwrap();
    ends.server.write_all(b"down").await.unwrap();
    silent(&mut ends.server).await;
    silent(&mut ends.client).await;
    ends.link.set(Mode::Pass);
    expect(&mut ends.server, "up").await;
    expect(&mut ends.client, "down").await;
}

#[tokio::test]
async fn a_stalled_link_takes_a_bounded_amount() {
    let mut ends = join().await;
    ends.link.set(Mode::Stall);
    let block = vec![0; 1 << 20];
    let mut taken = 0;
    // The buffers of the two sockets and of the link fill up, and then nothing more is taken.
    while taken < 256 << 20 {
        match timeout(QUIET, ends.client.write(&block)).await {
            Ok(written) => taken += written.unwrap(),
            Err(_) => return,
        }
    }
    panic!("{taken} bytes were taken by a link that moves none");
}

#[tokio::test]
async fn one_direction_can_be_lost() {
    let mut ends = join().await;
    ends.link.set(Mode::DropUp);
    ends.client.write_all(b"lost").await.unwrap();
    crosses(&mut ends.server, &mut ends.client, "heard").await;
    silent(&mut ends.server).await;
    ends.link.set(Mode::DropDown);
    ends.server.write_all(b"lost too").await.unwrap();
    crosses(&mut ends.client, &mut ends.server, "heard as well").await;
    silent(&mut ends.client).await;
    assert_eq!(ends.link.stats().lost_bytes, 12);
    ends.link.set(Mode::Pass);
    crosses(&mut ends.client, &mut ends.server, "both").await;
    crosses(&mut ends.server, &mut ends.client, "ways").await;
}

#[tokio::test]
async fn a_deaf_link_does_not_tell_that_the_client_left() {
    let mut ends = join().await;
    ends.link.set(Mode::DropUp);
    drop(ends.client);
    silent(&mut ends.server).await;
    ends.link.set(Mode::Pass);
    closed(&mut ends.server).await;
}

#[tokio::test]
async fn the_target_can_change_and_a_dead_target_closes() {
    let ends = join().await;
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    ends.link.set_target(other.local_addr().unwrap());
    let mut client = TcpStream::connect(ends.link.addr()).await.unwrap();
    let (mut server, _) = timeout(LONG, other.accept()).await.unwrap().unwrap();
    crosses(&mut client, &mut server, "elsewhere").await;
    drop(other);
    let mut client = TcpStream::connect(ends.link.addr()).await.unwrap();
    closed(&mut client).await;
}

#[tokio::test]
async fn a_dropped_link_takes_its_connections_along() {
    let mut ends = join().await;
    let address = ends.link.addr();
    drop(ends.link);
    closed(&mut ends.client).await;
    closed(&mut ends.server).await;
    // The port can be had again.
    Link::start_on(address.port(), ends.listener.local_addr().unwrap()).await.unwrap();
}
