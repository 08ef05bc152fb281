//! `holdfast up` as a new user meets it: it runs, a plug is pulled and put back, it is stopped and killed, and goes on.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::Process;
use testkit::{Logs, eventually};

const SOON: Duration = Duration::from_secs(120);
/// A private Kafka takes its time on a busy machine.
const STARTED: Duration = Duration::from_secs(180);

struct Up {
    data: PathBuf,
    process: Process,
    _logs: Logs,
}

/// One that a failed test leaves would leave its roles behind, at work for ever.
impl Drop for Up {
    #[expect(clippy::disallowed_methods, reason = "a drop cannot await, and its test has failed")]
    fn drop(&mut self) {
        if std::thread::panicking() && self.process.is_running() {
            let _ = Command::new("kill").arg(self.process.pid().to_string()).status();
            let began = std::time::Instant::now();
            while self.process.is_running() && began.elapsed() < SOON {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

impl Up {
    fn start(data: &Path) -> Up {
        Up::start_with(data, &[])
    }

    fn start_with(data: &Path, more: &[&str]) -> Up {
        let mut command = holdfast();
        command.args(["up", "--nodes", "2", "--every", "50ms", "--data"]).arg(data).args(more);
        Up {
            data: data.to_owned(),
            process: Process::spawn(command, Some(&data.join("up.log"))).unwrap(),
            _logs: Logs::below(data),
        }
    }

    /// What the edge has of a node: stored and lost.
    fn stored(&self, node: &str) -> Option<(i64, i64)> {
        let mut command = holdfast();
        command.args(["edge", "nodes", "--json", "--config"]).arg(self.data.join("edge/edge.toml"));
        let out = command.output().unwrap();
        let nodes: serde_json::Value = serde_json::from_slice(&out.stdout).ok()?;
        let known = nodes.as_array()?.iter().find(|known| known["node_id"] == node)?;
        Some((known["stored"].as_i64()?, known["lost"].as_i64()?))
    }

    async fn status(&self, node: &str) -> Option<node::NodeStatus> {
        let socket = self.data.join("nodes").join(node).join("sampler.sock");
        tokio::task::spawn_blocking(move || node::socket::query_status(&socket).ok()).await.unwrap()
    }

    async fn wait_stored(&self, node: &str, at_least: i64) {
        let what = format!("{node} has {at_least} stored");
        eventually(SOON, &what, async || {
            let (stored, _) = self.stored(node).ok_or("no answer yet".to_owned())?;
            if stored >= at_least { Ok(true) } else { Err(format!("{stored} stored")) }
        })
        .await
        .unwrap();
    }

    async fn wait_held(&self, node: &str, holds: impl Fn(u64) -> bool) {
        eventually(SOON, &format!("the backlog of {node} changes"), async || {
            let report = self.status(node).await.ok_or("no answer yet".to_owned())?.report;
            if holds(report.backlog) { Ok(true) } else { Err(format!("{report:?}")) }
        })
        .await
        .unwrap();
    }

    async fn cloud(&self) -> tokio_postgres::Client {
        let config = cloud::Config::load(Some(&self.data.join("cloud/cloud.toml")), |_| None);
        pg::connect(&config.unwrap().database).await.unwrap()
    }

    /// Waits until the cloud has a weighing with its images and what the model said of them.
    async fn wait_weighed(&self) {
        let client = self.cloud().await;
        let query = "SELECT count(*) FROM weighvision_session s
            JOIN media_object m USING (tenant_id, session_id)
            JOIN inference_result r USING (tenant_id, session_id)
            WHERE s.status = 'finalized' AND s.image_count = 2";
        eventually(SOON, "an animal is weighed", async || {
            client.query_one(query, &[]).await.map_or(0, |row| row.get::<_, i64>(0)) >= 4
        })
        .await
        .unwrap();
    }

    /// Waits until the cloud's telemetry store has grown by so much.
    async fn wait_in_cloud(&self, more: i64) {
        let client = self.cloud().await;
        let count = async || {
            let row = client.query_one("SELECT count(*) FROM telemetry_reading", &[]).await;
            row.map_or(0, |row| row.get::<_, i64>(0))
        };
        let before = count().await;
        eventually(SOON, "the cloud's store grows", async || count().await >= before + more)
            .await
            .unwrap();
    }

    async fn historian(&self) -> tokio_postgres::Client {
        let config = self.data.join("scada/scada.toml");
        let config = scada::historian::Config::load(Some(&config), |_| None);
        pg::connect(&config.unwrap().database).await.unwrap()
    }

    /// Waits until the plant's historian has so many measurements of each of its nodes.
    async fn wait_in_historian(&self, at_least: i64) {
        let client = self.historian().await;
        let query = "SELECT count(*) FROM (SELECT node_id FROM telemetry GROUP BY node_id HAVING count(*) >= $1) n";
        eventually(SOON, &format!("the historian has {at_least} of each node"), async || {
            let row = client.query_one(query, &[&at_least]).await;
            row.map_or(0, |row| row.get::<_, i64>(0)) == 3
        })
        .await
        .unwrap();
    }

    /// How many measurements the historian has of each of them.
    async fn in_historian(&self) -> i64 {
        let query = "SELECT count(*) FROM telemetry";
        self.historian().await.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Waits until every day of everybody's week has a version and somebody was told of it, by a message that was sent.
    async fn wait_told(&self, more: i64) {
        let config = self.data.join("schedule/schedule.toml");
        let config = schedule::Config::load(Some(&config), |_| None).unwrap();
        let client = pg::connect(&config.database).await.unwrap();
        let query = "SELECT (SELECT count(*) FROM schedule_ingest.day_schedule), count(*)
            FROM schedule_ingest.schedule_notification WHERE status = 'sent'";
        eventually(SOON, "people are told of their weeks", async || {
            let row = client.query_one(query, &[]).await.map_err(|error| error.to_string())?;
            let (days, sent): (i64, i64) = (row.get(0), row.get(1));
            if days == 21 && sent >= days + more { Ok(()) } else { Err(format!("{days}, {sent}")) }
        })
        .await
        .unwrap();
    }

    fn link(&self, set: &str, node: &str) -> std::process::Output {
        holdfast().args(["link", set, node, "--data"]).arg(&self.data).output().unwrap()
    }
}

fn holdfast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// A folder that the server's own user may enter.
fn folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[tokio::test]
async fn a_cut_link_fills_the_spool_and_a_restored_one_drains_it_through_stop_and_kill() {
    testkit::bin("holdfast-node").unwrap();
    let folder = folder();
    let mut up = Up::start(folder.path());
    up.wait_stored("barn-1", 20).await;
    up.wait_stored("barn-2", 20).await;

    // From the site to the cloud's stores, and again after the site's own link was cut.
    up.wait_in_cloud(40).await;
    up.wait_weighed().await;
    assert!(up.link("cut", "cloud").status.success());
    up.wait_stored("barn-2", up.stored("barn-2").unwrap().0 + 40).await;
    assert!(up.link("restore", "cloud").status.success());
    up.wait_in_cloud(40).await;

    // The plant's nodes and its historian, on the same bus.
    up.wait_in_historian(9).await;
    up.wait_told(0).await;

    // A second one on the same folder is refused, and says what to do.
    let second = holdfast().args(["up", "--data"]).arg(folder.path()).output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("another `up` runs"));

    let done = up.link("cut", "barn-1");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "barn-1: cut\n");
    let mut again = holdfast();
    again.args(["link", "cut", "barn-1", "--json", "--data"]).arg(folder.path());
    let told: serde_json::Value = serde_json::from_slice(&again.output().unwrap().stdout).unwrap();
    assert_eq!(told, serde_json::json!({"set": "cut", "links": ["barn-1"]}));
    up.wait_held("barn-1", |held| held > 100).await;
    let wrong = up.link("cut", "barn-9");
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("there are barn-1, barn-2"),
        "{wrong:?}"
    );

    // Stopped with the backlog in the spool; links are whole again at the next start.
    assert!(up.process.term(SOON).await.unwrap().success());
    let mut up = Up::start(folder.path());
    up.wait_held("barn-1", |held| held < 60).await;

    // Killed: its children outlive it, and the next one deals with them.
    let before = up.stored("barn-1").unwrap().0;
    up.process.kill().await.unwrap();
    let mut up = Up::start(folder.path());
    up.wait_stored("barn-1", before + 100).await;
    up.wait_in_historian(up.in_historian().await / 3 + 9).await;
    up.wait_told(2).await;

    assert!(up.process.term(SOON).await.unwrap().success());
    let log = std::fs::read_to_string(folder.path().join("up.log")).unwrap();
    assert!(!log.contains("died"), "{log}");
    assert!(log.contains("The plant's historian: http://127.0.0.1:"), "{log}");
    assert!(log.contains("plant of 3 nodes: in the outbox"), "{log}");
    assert!(log.contains("schedules of 3 people: days 21"), "{log}");
    let sealed = folder.path().join("minted.json");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(sealed).unwrap().permissions().mode() & 0o077,
        0,
        "secrets are private"
    );
}

#[tokio::test]
async fn on_kafka_farm_and_plant_arrive_too() {
    if std::env::var_os("HOLDFAST_NO_KAFKA").is_some() {
        return;
    }
    testkit::bin("holdfast-node").unwrap();
    let folder = folder();
    let mut up = Up::start_with(folder.path(), &["--bus", "kafka"]);
    eventually(STARTED, "Kafka and the plant are there", async || {
        let log = std::fs::read_to_string(folder.path().join("up.log")).unwrap();
        if log.contains("The plant's historian: http://127.0.0.1:") { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
    up.wait_in_historian(9).await;
    up.wait_stored("barn-1", 20).await;
    up.wait_in_cloud(20).await;
    let stored = up.historian().await;
    let offsets: i64 =
        stored.query_one("SELECT count(*) FROM bus_offsets", &[]).await.unwrap().get(0);
    assert!(offsets > 0, "it came by Kafka");
    drop(stored);
    assert!(up.process.term(SOON).await.unwrap().success());
}

#[tokio::test]
async fn on_rabbitmq_farm_and_plant_arrive_too() {
    testkit::bin("holdfast-node").unwrap();
    let folder = folder();
    let mut up = Up::start_with(folder.path(), &["--bus", "rabbitmq"]);
    eventually(STARTED, "RabbitMQ and the plant are there", async || {
        let log = std::fs::read_to_string(folder.path().join("up.log")).unwrap();
        if log.contains("The plant's historian: http://127.0.0.1:") { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
    up.wait_in_historian(9).await;
    up.wait_stored("barn-1", 20).await;
    up.wait_in_cloud(20).await;
    // The plant's queues are at that broker, and nothing was given up.
    let mut command = holdfast();
    command.args(["dlq", "list", "--scada", "--json", "--config"]);
    let out = command.arg(folder.path().join("scada/scada.toml")).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let listed: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(listed["total"], 0, "{listed}");
    assert!(folder.path().join("rabbitmq").is_dir());
    assert!(up.process.term(SOON).await.unwrap().success());
}

#[test]
fn link_without_up_says_what_to_do() {
    let folder = folder();
    let out =
        holdfast().args(["link", "cut", "barn-1", "--data"]).arg(folder.path()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("start it, or name its folder"));
}
