//! What a node tells Prometheus, where it was told to: a few numbers over the smallest HTTP that does.
//!
//! Promises: without `metrics.listen` there is no port. With it, only this machine reaches it, and whoever asks gets numbers and nothing else, within
//! a bound of connections, bytes and time. Looking never waits for the uplink, and samplers never wait for a look.
//!
//! A node is small and has no HTTP server of its own, so this is by hand: one request a connection, `GET /metrics`, and goodbye.

use crate::vitals::{Reading, Vitals};
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections at one time; Prometheus needs one.
const MAX_CONNECTIONS: usize = 4;
/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 4096;
/// How long a connection may take altogether.
const WITHIN: Duration = Duration::from_secs(5);
/// How long nothing is accepted after accepting has failed: there are no more files to open, say.
const PAUSE: Duration = Duration::from_millis(200);

type Value = fn(&Reading) -> f64;

/// Every metric: its name, its type, what it means, and where it comes from.
const METRICS: [(&str, &str, &str, Value); 12] = [
    ("holdfast_node_spool_bytes", "gauge", "The size of the spool.", |r| number(r.bytes)),
    ("holdfast_node_spool_records", "gauge", "Records that the edge has not acknowledged.", |r| {
        number(r.backlog)
    }),
    ("holdfast_node_oldest_seconds", "gauge", "The age of the oldest of them.", |r| {
        r.oldest_seconds
    }),
    ("holdfast_node_records_total", "counter", "Records taken in the life of the spool.", |r| {
        number(r.head)
    }),
    ("holdfast_node_acked_total", "counter", "Sequences that the edge has acknowledged.", |r| {
        number(r.acked)
    }),
    ("holdfast_node_sent_total", "counter", "Sequences sent, those sent again too.", |r| {
        number(r.sent)
    }),
    ("holdfast_node_dropped_total", "counter", "Records given up in the life of the spool.", |r| {
        number(r.drops)
    }),
    ("holdfast_node_gaps", "gauge", "Gaps that the edge has not acknowledged.", |r| number(r.gaps)),
    ("holdfast_node_connected", "gauge", "1 while the link to the broker is up.", |r| {
        f64::from(u8::from(r.connected))
    }),
    ("holdfast_node_clock_set", "gauge", "1 when the clock is known to be right.", |r| {
        f64::from(u8::from(r.clock_set))
    }),
    ("holdfast_node_disk_free_bytes", "gauge", "What the disk would still take.", |r| {
        number(r.free_bytes)
    }),
    ("holdfast_node_samplers", "gauge", "Samplers that are connected.", |r| number(r.samplers)),
];

#[expect(clippy::cast_precision_loss, reason = "a metric is a float; beyond 2^53 it is rounded")]
fn number(value: u64) -> f64 {
    value as f64
}

/// The text that Prometheus reads.
fn render(reading: &Reading) -> String {
    let mut text = String::with_capacity(2048);
    for (name, kind, help, value) in METRICS {
        // Writing into a string cannot fail.
        let _ =
            write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {}\n", value(reading));
    }
    text
}

/// Serves until `stop` turns true.
pub(crate) async fn serve(
    listener: TcpListener,
    vitals: Arc<Vitals>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the metrics cannot be asked for");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // One too many is closed at once; it asks again.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let vitals = Arc::clone(&vitals);
        tokio::spawn(async move {
            let _place = place;
            // Who hangs up or dawdles gets no answer, and that is theirs.
            let _ = tokio::time::timeout(WITHIN, answer(stream, vitals)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, vitals: Arc<Vitals>) -> io::Result<()> {
    let (status, body) = match ask(&mut stream).await? {
        Asked::Metrics => {
            // It reads a record from the disk, for its age.
            let reading = tokio::task::spawn_blocking(move || vitals.reading()).await;
            ("200 OK", render(&reading.map_err(io::Error::other)?))
        }
        Asked::Other => ("404 Not Found", "there is only /metrics\n".to_owned()),
        Asked::Wrong => ("400 Bad Request", "expected GET /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Other,
    Wrong,
}

/// Reads the head of a request to its end.
async fn ask(stream: &mut TcpStream) -> io::Result<Asked> {
    let mut head = Vec::with_capacity(512);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() >= MAX_HEAD_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(Asked::Wrong);
        }
    }
    Ok(asked(&head))
}

fn asked(head: &[u8]) -> Asked {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(b"GET"), Some(path), Some(version), None) if version.starts_with(b"HTTP/1.") => {
            let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            if path == b"/metrics" { Asked::Metrics } else { Asked::Other }
        }
        _ => Asked::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_there_to_be_got() {
        for (head, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Asked::Metrics),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Asked::Metrics),
            ("GET / HTTP/1.1\r\n\r\n", Asked::Other),
            ("GET /metrics/../etc HTTP/1.1\r\n\r\n", Asked::Other),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asked::Wrong),
            ("GET /metrics\r\n\r\n", Asked::Wrong),
            ("\r\n\r\n", Asked::Wrong),
        ] {
            assert_eq!(asked(head.as_bytes()), expected, "{head:?}");
        }
    }
}
