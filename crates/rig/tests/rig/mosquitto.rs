//! A real private Mosquitto: started, stopped, killed, and started again on its port.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::{Error, Mosquitto, MosquittoOptions, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);
const ACCEPTED: u8 = 0;
const REFUSED: u8 = 5;

fn text(value: &str) -> Vec<u8> {
    let mut bytes = u16::try_from(value.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(value.as_bytes());
    bytes
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, u8::try_from(body.len()).unwrap()];
    assert!(body.len() < 128);
    bytes.extend(body);
    bytes
}

async fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    timeout(LONG, stream.read_exact(&mut bytes)).await.expect("an answer in time").unwrap();
    bytes
}

/// Connects with MQTT 3.1.1 and returns the broker's answer.
async fn connect(broker: &Mosquitto, user: &str) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(broker.addr()).await.unwrap();
    // Clean session, user name, password; keep alive 60 s.
    let mut body = [text("MQTT"), vec![4, 0b1100_0010, 0, 60]].concat();
    for value in ["rig-test", user, "secret"] {
        body.extend(text(value));
    }
    stream.write_all(&packet(0x10, &body)).await.unwrap();
    let answer = read(&mut stream, 4).await;
    assert_eq!(answer[0], 0x20);
    (stream, answer[3])
}

/// Publishes a retained message at QoS 1 and waits for its acknowledgement.
async fn publish(broker: &Mosquitto, payload: &str) {
    let (mut stream, answer) = connect(broker, "any").await;
    assert_eq!(answer, ACCEPTED);
    let body = [text("t"), vec![0, 1], payload.as_bytes().to_vec()].concat();
    stream.write_all(&packet(0x33, &body)).await.unwrap();
    assert_eq!(read(&mut stream, 4).await, [0x40, 2, 0, 1]);
}

/// The retained message.
async fn retained(broker: &Mosquitto) -> String {
    let (mut stream, _) = connect(broker, "any").await;
    stream.write_all(&packet(0x82, &[vec![0, 1], text("t"), vec![0]].concat())).await.unwrap();
    read(&mut stream, 5).await;
    let header = read(&mut stream, 2).await;
    let body = read(&mut stream, header[1].into()).await;
    String::from_utf8(body[3..].to_vec()).unwrap()
}

#[tokio::test]
async fn it_comes_back_on_its_port_with_what_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let options = MosquittoOptions {
        autosave_interval: 1,
        autosave_on_changes: true,
        ..MosquittoOptions::default()
    };
    let mut broker = Mosquitto::start(folder.path(), options.clone()).await.unwrap();
    let port = broker.port();
    publish(&broker, "one").await;
    broker.stop().await.unwrap();
    assert!(TcpStream::connect(broker.addr()).await.is_err());
    broker.restart().await.unwrap();
    assert_eq!((broker.port(), retained(&broker).await.as_str()), (port, "one"));

    publish(&broker, "two").await;
    let saved = folder.path().join("mosquitto.db");
    let deadline = Instant::now() + LONG;
    while !std::fs::read(&saved).unwrap().windows(3).any(|bytes| bytes == b"two") {
        assert!(Instant::now() < deadline, "the broker saves after each change");
        publish(&broker, "two").await;
    }
    // Killed with a connection open, whose remains hold the port for a while.
    let (open, _) = connect(&broker, "any").await;
    broker.kill().await.unwrap();
    broker.restart().await.unwrap();
    drop(open);
    assert_eq!(retained(&broker).await, "two");

    // Whoever started it was killed: the broker still runs when the folder is used again.
    let orphan = broker.process().unwrap().pid();
    std::mem::forget(broker);
    let broker = Mosquitto::start(folder.path(), options).await.unwrap();
    assert_eq!((broker.port(), retained(&broker).await.as_str()), (port, "two"));
    let stat = std::fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z"), "{stat}");
}

fn write_users(path: &Path, users: &[&str]) {
    let lines: String = users.iter().map(|user| format!("{user}:secret\n")).collect();
    std::fs::write(path, lines).unwrap();
    assert!(Command::new("mosquitto_passwd").arg("-U").arg(path).status().unwrap().success());
}

#[tokio::test]
async fn a_reload_reads_the_users_again() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    write_users(&users, &["first"]);
    let options =
        MosquittoOptions { password_file: Some(users.clone()), ..MosquittoOptions::default() };
    let mut broker = Mosquitto::start(&folder.path().join("broker"), options).await.unwrap();
    assert_eq!(connect(&broker, "first").await.1, ACCEPTED);
    assert_eq!(connect(&broker, "second").await.1, REFUSED);
    write_users(&users, &["first", "second"]);
    broker.reload();
    let deadline = Instant::now() + LONG;
    while connect(&broker, "second").await.1 != ACCEPTED {
        assert!(Instant::now() < deadline, "the second user is let in");
    }
}

#[tokio::test]
async fn with_tls_it_shows_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-keyout"])
        .arg(&key_file)
        .arg("-out")
        .arg(&cert_file)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let tls = Tls { cert_file: cert_file.clone(), key_file, client_ca_file: None };
    let options = MosquittoOptions { tls: Some(tls), ..MosquittoOptions::default() };
    let broker = Mosquitto::start(&folder.path().join("broker"), options).await.unwrap();
    assert_eq!(broker.url(), format!("mqtts://localhost:{}", broker.port()));
    let address = broker.addr().to_string();
    let verified = Command::new("openssl")
        .args(["s_client", "-verify_return_error", "-verify_hostname", "localhost"])
        .args(["-connect", &address, "-CAfile"])
        .arg(&cert_file)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let options = MosquittoOptions { password_file: Some(missing), ..MosquittoOptions::default() };
    let error = Mosquitto::start(&folder.path().join("broker"), options).await.unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[tokio::test]
async fn a_stranger_on_the_port_is_not_taken_for_the_broker() {
    let folder = tempfile::tempdir().unwrap();
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stranger.local_addr().unwrap().port();
    std::fs::write(folder.path().join("port"), port.to_string()).unwrap();
    let starting = Mosquitto::start(folder.path(), MosquittoOptions::default());
    tokio::pin!(starting);
    // Not while the stranger is there, and soon after it has left.
    let early = timeout(Duration::from_millis(500), &mut starting).await;
    assert!(early.is_err(), "{early:?}");
    drop(stranger);
    let broker = timeout(LONG, starting).await.unwrap().unwrap();
    assert_eq!((broker.port(), connect(&broker, "any").await.1), (port, ACCEPTED));
}
