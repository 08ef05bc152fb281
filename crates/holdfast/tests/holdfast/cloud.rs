//! The cloud as a process: one request is followed from HTTP to the consumer by its trace, and what is secret stays secret.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use event::id::{DeviceId, EventId, TenantId};
use rig::Process;
use serde_json::{Value, json};
use testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SOON: Duration = Duration::from_secs(120);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PAYLOAD: &str = "canary-payload-51ab";
const DATABASE_PASSWORD: &str = "canary-database-77d0";

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Vec<u8>>>>);

impl Collector {
    async fn start(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let kept = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(kept.clone().serve(stream));
            }
        });
        port
    }

    /// Requests of one connection, one after the other.
    async fn serve(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        while let Ok(1..) = stream.read_buf(&mut bytes).await {
            let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let end = head + 4 + length.unwrap().parse::<usize>().unwrap();
            if bytes.len() >= end {
                let rest = bytes.split_off(end);
                self.0.lock().unwrap().push(std::mem::replace(&mut bytes, rest));
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        }
    }

    fn all(&self) -> Vec<u8> {
        self.0.lock().unwrap().concat()
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn holdfast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// One reading, with the canary in it.
fn body(tenant: TenantId) -> (EventId, String) {
    let id = EventId::mint();
    let event = json!({
        "event_id": id, "event_type": "telemetry.ingested", "tenant_id": tenant,
        "farm_id": null, "barn_id": null, "device_id": DeviceId::mint(), "session_id": null,
        "occurred_at": "2026-02-01T10:00:00Z", "trace_id": TRACE,
        "payload": {"metric_type": "temperature", "metric_value": 26.4, "unit": "C", "note": PAYLOAD}
    });
    let poison = json!({
        "event_id": EventId::mint(), "event_type": "nobody.wants", "tenant_id": tenant,
        "farm_id": null, "barn_id": null, "device_id": null, "session_id": null,
        "occurred_at": "2026-02-01T10:00:00Z", "trace_id": TRACE, "payload": {"note": PAYLOAD}
    });
    let batch = json!({
        "v": 1, "batch_id": "batch-canary", "edge_cluster_id": "edge-1",
        "sent_at": "2026-02-01T10:00:00Z", "events": [{"event": event}, {"event": poison}]
    });
    (id, batch.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_reaches_the_consumer_and_the_collector_and_no_secret_gets_out() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let vhost = testkit::rabbitmq().await.unwrap();
    let broker_password = vhost.url().split_once('@').unwrap().0.rsplit_once(':').unwrap().1;
    assert!(broker_password.len() > 4, "a password that would be seen");
    let database = testkit::Database::empty("cloud_process").await.unwrap();
    let url = format!("{}&password={DATABASE_PASSWORD}", database.url());
    let tenant = TenantId::mint();
    let made = holdfast()
        .args(["token", "create", "site", "--role", "edge", "--tenant", &tenant.to_string()])
        .env("CLOUD_DATABASE_URL", &url)
        .output()
        .unwrap();
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(token.starts_with("hf_"), "{}", String::from_utf8_lossy(&made.stderr));

    let collector = Collector::default();
    let port = collector.start().await;
    let listen = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("cloud.log");
    let mut command = holdfast();
    command
        .args(["--log", "json", "cloud", "run"])
        .env("HOLDFAST_LOG", "debug")
        .env("CLOUD_DATABASE_URL", &url)
        .env("HOLDFAST_CLOUD_HTTP_LISTEN", listen.to_string())
        .env("HOLDFAST_CLOUD_BUS", "rabbitmq")
        .env("RABBITMQ_URL", vhost.url())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"))
        .env("OTEL_BSP_SCHEDULE_DELAY", "100");
    let mut process = Process::spawn(command, Some(&log)).unwrap();
    let client = reqwest::Client::new();
    let get = async |path: &str| {
        let answer = client.get(format!("http://{listen}{path}")).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        Ok::<_, String>((status, answer.text().await.map_err(|error| error.to_string())?))
    };
    eventually(SOON, "the cloud is ready", async || match get("/readyz").await? {
        (200, _) => Ok(()),
        (_, text) => Err(text),
    })
    .await
    .unwrap();

    let (id, body) = body(tenant);
    let answer = client
        .post(format!("http://{listen}/api/v1/sync/batches"))
        .bearer_auth(&token)
        .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let parent = answer.headers()["traceparent"].to_str().unwrap().to_owned();
    assert!(parent.contains(TRACE) && !parent.contains("00f067aa0ba902b7"), "{parent}");
    let mut shown = answer.text().await.unwrap();
    assert!(shown.contains(&id.to_string()) || shown.contains("accepted"), "{shown}");

    let raw: Vec<u8> = (0..TRACE.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&TRACE[at..at + 2], 16).unwrap())
        .collect();
    eventually(SOON, "the collector has the whole way", async || {
        let bytes = collector.all();
        let missing: Vec<&str> = ["ingest_batch", "relay_publish", "consume_batch"]
            .into_iter()
            .filter(|name| !holds(&bytes, name.as_bytes()))
            .collect();
        if missing.is_empty() && holds(&bytes, &raw) { Ok(()) } else { Err(missing.join(", ")) }
    })
    .await
    .unwrap();
    eventually(SOON, "the dead letter shows", async || {
        let (_, text) = get("/readyz").await?;
        if text.contains("1 dead letters") { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    for path in ["/metrics", "/readyz", "/api/v1/sync/batches", "/nothing"] {
        shown += &get(path).await.unwrap().1;
    }
    assert!(shown.contains("holdfast_relay_rows_total{what=\"done\"}"), "the relay is counted");
    for name in ["claimed_total", "claim_seconds_bucket", "breakers_open"] {
        let name = format!("holdfast_lease_{name}{{queue=");
        assert!(shown.contains(&name), "the engine counts on the relay's page: {name}");
    }
    process.term(SOON).await.unwrap();

    let log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let traced = |name: &str| {
        lines.iter().any(|line| line["span"]["name"] == name && line["span"]["trace_id"] == TRACE)
    };
    assert!(traced("ingest_batch") && traced("relay_publish"), "JSON lines carry the trace");
    assert!(log.contains("cloud stopped"), "it stopped in order");
    let exported = String::from_utf8_lossy(&collector.all()).into_owned();
    for (name, text) in [("log", &log), ("answers", &shown), ("spans", &exported)] {
        for secret in [&token[3..], DATABASE_PASSWORD, broker_password, PAYLOAD] {
            assert!(!text.contains(secret), "{secret} is in the {name}");
        }
    }
}
