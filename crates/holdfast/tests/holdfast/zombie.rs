//! A forwarder that is stopped past its lease: another finishes its work, and when it wakes it changes nothing.
//!
//! Real processes: two edges, one cloud, and a link that holds back the request of the one that is stopped.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::{Link, Mode, Process};
use testkit::{Database, eventually};

const LONG: Duration = Duration::from_secs(120);
const TENANT: &str = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002";
const ROWS: i64 = 30;

struct Ground {
    folder: tempfile::TempDir,
    site: Database,
    cloud: Database,
}

impl Ground {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn spawn(&self, role: &str, config: &Path) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args([role, "run", "--config"]).arg(config);
        Process::spawn(command, Some(&config.with_extension("log"))).unwrap()
    }

    fn edge(&self, replica: &str, port: u16, cloud: &str, token: &str) -> Process {
        let url = self.site.url();
        let config = self.write(
            &format!("{replica}.toml"),
            &format!(
                "[edge]\nreplica = {replica:?}\ndatabase.url = {url:?}\nhttp.listen = \"127.0.0.1:{port}\"\n\
                 sync.cloud_url = \"http://{cloud}\"\nsync.token = {token:?}\nsync.lease_seconds = 2\n\
                 sync.stall_after = \"2s\"\nsync.workers = 1\n"
            ),
        );
        self.spawn("edge", &config)
    }

    async fn text(&self, query: &str) -> String {
        let row = self.site.connect().await.unwrap().query_one(query, &[]).await.unwrap();
        row.get::<_, Option<String>>(0).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forwarder_that_wakes_after_its_lease_changes_nothing_and_is_counted() {
    let ground = Ground {
        folder: tempfile::tempdir().unwrap(),
        site: Database::empty("zombie_site").await.unwrap(),
        cloud: Database::empty("zombie_cloud").await.unwrap(),
    };
    edge::migrate(&pg::Options::new(ground.site.url())).await.unwrap();
    let fill = "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at, payload_json,
            stream, epoch, seq)
        SELECT ('0190f1a8-7c21-7b3e-9b0e-' || lpad(n::text, 12, '0'))::uuid, $1::text::uuid, $1::text::uuid,
            'telemetry.ingested', now() + n * interval '1 ms',
            '{\"metric_type\": \"temperature\", \"metric_value\": 26.4, \"unit\": \"C\"}',
            'barn-1', '0190f1a8-7c21-7b3e-9b0e-00000000000e', n FROM generate_series(1, $2::bigint) AS n";
    let client = ground.site.connect().await.unwrap();
    client.execute(fill, &[&TENANT, &ROWS]).await.unwrap();

    let cloud_port = rig::free_port().unwrap();
    let url = ground.cloud.url();
    let config = ground.write(
        "cloud.toml",
        &format!("[cloud]\ndatabase.url = {url:?}\nhttp.listen = \"127.0.0.1:{cloud_port}\"\n"),
    );
    let mut cloud = ground.spawn("cloud", &config);
    let made = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["token", "create", "site", "--role", "edge", "--all-tenants", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(token.starts_with("hf_"), "{}", String::from_utf8_lossy(&made.stderr));
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], cloud_port));
    let up = async || tokio::net::TcpStream::connect(address).await.is_ok();
    eventually(LONG, "the cloud is up", up).await.unwrap();

    // The request of the first is held on its way; then the whole process is.
    let link = Link::start(address).await.unwrap();
    link.set(Mode::Stall);
    let port = rig::free_port().unwrap();
    let mut zombie = ground.edge("edge-1", port, &link.addr().to_string(), &token);
    let held = format!(
        "SELECT (count(*) = {ROWS})::text FROM sync_outbox WHERE status = 'claimed' AND claimed_by LIKE 'edge-1/%'"
    );
    let ours = async || ground.text(&held).await == "true" && link.stats().connections > 0;
    eventually(LONG, "it holds the rows and has asked", ours).await.unwrap();
    zombie.stop();
    let port_two = rig::free_port().unwrap();
    let mut other = ground.edge("edge-2", port_two, &address.to_string(), &token);
    let acked = "SELECT string_agg(DISTINCT status, ' ') FROM sync_outbox WHERE stream IS NOT NULL";
    eventually(LONG, "the other has finished", async || {
        let found = ground.text(acked).await;
        if found == "acked" { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
    let rows =
        "SELECT string_agg(o::text, ' ' ORDER BY id) FROM sync_outbox o WHERE stream IS NOT NULL";
    let settled = ground.text(rows).await;

    link.set(Mode::Pass);
    zombie.cont();
    // Its TLS is not used, and wants a provider all the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::new();
    let fenced = format!("holdfast_sync_work_total{{what=\"fenced\"}} {ROWS}");
    eventually(LONG, "it is fenced and counted", async || {
        let url = format!("http://127.0.0.1:{port}/metrics");
        let text = match http.get(url).send().await {
            Ok(answer) => answer.text().await.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        let work: Vec<&str> = text.lines().filter(|line| line.contains("_work_total{")).collect();
        if text.contains(&fenced) { Ok(()) } else { Err(work.join("\n")) }
    })
    .await
    .unwrap();
    assert_eq!(ground.text(rows).await, settled);
    let store = ground.cloud.connect().await.unwrap();
    let accepted = "SELECT sum(accepted_count)::bigint FROM ledger_frontier";
    let accepted: i64 = store.query_one(accepted, &[]).await.unwrap().get(0);
    assert_eq!(accepted, ROWS, "each event once");
    let lost = "SELECT (min(attempt_count) = 1 AND max(attempt_count) = 1)::text FROM sync_outbox WHERE stream IS NOT NULL";
    assert_eq!(ground.text(lost).await, "true", "a lost lease counts one attempt");
    for process in [&mut zombie, &mut other, &mut cloud] {
        process.kill().await.unwrap();
    }
}
