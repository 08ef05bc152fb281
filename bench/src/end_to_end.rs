//! From a sampler's line on the node's socket to a row in the cloud's telemetry store: the real node, broker, edge, cloud and a durable
//! Postgres on one machine, on the inline bus.
//!
//! - `throughput`: as many readings as the socket takes; readings a second until the last is in the cloud's store, beside the same
//!   readings until the last is in the edge's.
//! - `latency_…`: a reading at a time, some a second; from its line to its row in the cloud's store, beside its row in the edge's. Both
//!   stores are asked every few milliseconds, so that much is in both.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cloud::Cloud;
use cloud::tokens::{NewToken, Role, Tenants};
use edge::Edge;
use edge::registry::Enrolment;
use event::id::{BarnId, DeviceId, EventId, FarmId, TenantId};
use rig::{Mosquitto, MosquittoOptions, Postgres, PostgresOptions, Process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::measure::quantile;
use crate::place::Place;
use crate::row::Row;

const READINGS: usize = 50_000;
/// Lines that the sampler writes before it reads their receipts.
const PIPELINE: usize = 500;
const PROBES: usize = 400;
const PROBE_EVERY: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(3);
const ALL_WITHIN: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("end_to_end", "starting the servers");
    mqtt::install_crypto();
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    runtime.block_on(measure(place, folder.path()))
}

async fn measure(place: &Place, folder: &Path) -> Result<Vec<Row>> {
    let mut postgres =
        Postgres::start(&folder.join("postgres"), PostgresOptions::default()).await?;
    let line = Line::start(place, folder, &postgres).await?;
    place.say("end_to_end", "throughput");
    let (to_cloud, to_edge) = line.throughput().await?;
    place.say("end_to_end", "latency");
    let (cloud, edge) = line.latency().await?;
    line.stop().await?;
    postgres.stop().await?;
    let mut rows =
        vec![Row::more("end_to_end/throughput_beside_the_edge", "readings/s", to_cloud, to_edge)];
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let (value, beside) = (quantile(&cloud, share), quantile(&edge, share));
        rows.push(Row::less(
            format!("end_to_end/latency_{name}_beside_the_edge"),
            "ms",
            value,
            beside,
        ));
    }
    Ok(rows)
}

/// Everything between a sampler and the store.
struct Line {
    node: Process,
    socket: PathBuf,
    edge: Edge,
    cloud: Cloud,
    broker: Mosquitto,
    at_edge: Client,
    at_cloud: Client,
}

impl Line {
    async fn start(place: &Place, folder: &Path, postgres: &Postgres) -> Result<Line> {
        let admin = pg::connect(&pg::Options::new(postgres.url("postgres"))).await?;
        admin.batch_execute("CREATE DATABASE edge").await?;
        admin.batch_execute("CREATE DATABASE cloud").await?;
        let (cloud_url, edge_url) = (postgres.url("cloud"), postgres.url("edge"));
        let config = cloud::Config::load(None, |name| match name {
            "HOLDFAST_CLOUD_DATABASE_URL" => Some(cloud_url.clone()),
            "HOLDFAST_CLOUD_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
            _ => None,
        })?;
        let at_cloud = config.database.clone();
        let cloud = Cloud::start(config).await?;
        let at_cloud = pg::connect(&at_cloud).await?;
        let tenant = TenantId::mint();
        let new = NewToken {
            name: "bench".to_owned(),
            role: Role::Edge,
            tenants: Tenants::Only(vec![tenant]),
            expires_at: None,
        };
        let (_, token) = cloud::tokens::create(&at_cloud, &new).await?;
        let broker = Mosquitto::start(&folder.join("broker"), MosquittoOptions::default()).await?;
        let config = edge::Config::load(None, |name| match name {
            "HOLDFAST_EDGE_DATABASE_URL" => Some(edge_url.clone()),
            "HOLDFAST_EDGE_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
            "HOLDFAST_EDGE_MQTT_ADDRESS" => Some(broker.url()),
            "HOLDFAST_EDGE_SYNC_CLOUD_URL" => Some(format!("http://{}", cloud.http())),
            "HOLDFAST_EDGE_SYNC_TOKEN" => Some(token.expose().to_owned()),
            _ => None,
        })?;
        edge::migrate(&config.database).await?;
        let node = folder.join("node");
        std::fs::create_dir_all(&node)?;
        let request = Enrolment {
            node_id: "bench-1".parse()?,
            tenant_id: tenant,
            farm_id: Some(FarmId::mint()),
            barn_id: Some(BarnId::mint()),
            device_id: Some(DeviceId::mint()),
            label: String::new(),
            rotate: false,
        };
        let enrolled = edge::registry::enroll(&config, &request).await?;
        let at_edge = pg::connect(&config.database).await?;
        let edge = Edge::start(config).await?;
        let (file, socket) = (node.join("node.toml"), node.join("sampler.sock"));
        let text = format!(
            "{}socket = {socket:?}\nspool.dir = {:?}\nclock.mode = \"assume-set\"\n",
            enrolled.node_config,
            node.join("spool"),
        );
        std::fs::write(&file, text)?;
        let mut command = std::process::Command::new(place.program("holdfast-node")?);
        command.arg("run").arg("--config").arg(&file);
        let node = Process::spawn(command, Some(&node.join("log")))?;
        let line = Line { node, socket, edge, cloud, broker, at_edge, at_cloud };
        // One reading through all of it, so that everything is connected.
        let started = Instant::now();
        while UnixStream::connect(&line.socket).await.is_err() {
            ensure!(started.elapsed() < ALL_WITHIN, "the node does not listen");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        line.hand_over(1).await?;
        line.arrival(1).await?;
        Ok(line)
    }

    /// Hands readings to the node and waits for its receipts.
    async fn hand_over(&self, readings: usize) -> Result<()> {
        let mut stream = BufReader::new(UnixStream::connect(&self.socket).await?);
        let mut left = readings;
        while left > 0 {
            let lines = left.min(PIPELINE);
            let text: String = (0..lines).map(|_| reading(EventId::mint())).collect();
            stream.write_all(text.as_bytes()).await?;
            for _ in 0..lines {
                let mut receipt = String::new();
                stream.read_line(&mut receipt).await?;
                ensure!(receipt.contains("\"seq\""), "the node refused a reading: {receipt}");
            }
            left -= lines;
        }
        Ok(())
    }

    /// When the edge's store, and when the cloud's, had so many readings.
    async fn arrival(&self, readings: usize) -> Result<(Instant, Instant)> {
        let wanted = i64::try_from(readings)?;
        let started = Instant::now();
        let mut at_edge = None;
        loop {
            ensure!(started.elapsed() < ALL_WITHIN, "{readings} readings did not arrive");
            if at_edge.is_none() && count(&self.at_edge, "telemetry_raw").await? >= wanted {
                at_edge = Some(Instant::now());
            }
            if let Some(at_edge) = at_edge
                && count(&self.at_cloud, "telemetry_reading").await? >= wanted
            {
                return Ok((at_edge, Instant::now()));
            }
            tokio::time::sleep(LOOK_EVERY * 5).await;
        }
    }

    /// Readings a second until all are in the cloud's store, and in the edge's.
    async fn throughput(&self) -> Result<(f64, f64)> {
        let before = usize::try_from(count(&self.at_cloud, "telemetry_reading").await?)?;
        let started = Instant::now();
        let handed = self.hand_over(READINGS);
        let (handed, arrived) = tokio::join!(handed, self.arrival(before + READINGS));
        handed?;
        let (edge, cloud) = arrived?;
        let rate = |at: Instant| READINGS as f64 / at.duration_since(started).as_secs_f64();
        Ok((rate(cloud), rate(edge)))
    }

    /// The milliseconds that each of some readings took to the cloud's store, and to the edge's.
    async fn latency(&self) -> Result<(Vec<f64>, Vec<f64>)> {
        let mut sent: HashMap<Uuid, Instant> = HashMap::new();
        let (mut to_cloud, mut to_edge) = (HashMap::new(), HashMap::new());
        let mut stream = BufReader::new(UnixStream::connect(&self.socket).await?);
        let started = Instant::now();
        while to_cloud.len() < PROBES {
            ensure!(started.elapsed() < ALL_WITHIN, "{} of {PROBES} arrived", to_cloud.len());
            let due = sent.len() < PROBES
                && started.elapsed() >= PROBE_EVERY * u32::try_from(sent.len())?;
            if due {
                let id = EventId::mint();
                sent.insert(id.uuid(), Instant::now());
                stream.write_all(reading(id).as_bytes()).await?;
                stream.read_line(&mut String::new()).await?;
            }
            let raw = "SELECT id FROM telemetry_raw WHERE id = ANY ($1)";
            note(&self.at_edge, raw, &sent, &mut to_edge).await?;
            let reading = "SELECT event_id FROM telemetry_reading WHERE event_id = ANY ($1)
                           AND occurred_at > now() - interval '5 minutes'";
            note(&self.at_cloud, reading, &sent, &mut to_cloud).await?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok((to_cloud.into_values().collect(), to_edge.into_values().collect()))
    }

    async fn stop(mut self) -> Result<()> {
        self.node.term(STOPS_WITHIN).await?;
        self.edge.stop().await;
        self.cloud.stop().await;
        Ok(self.broker.stop().await?)
    }
}

/// Notes the time of what was sent and has arrived since the last look.
async fn note(
    client: &Client,
    sql: &str,
    sent: &HashMap<Uuid, Instant>,
    arrived: &mut HashMap<Uuid, f64>,
) -> Result<()> {
    let waiting: Vec<Uuid> = sent.keys().filter(|id| !arrived.contains_key(*id)).copied().collect();
    if waiting.is_empty() {
        return Ok(());
    }
    for row in client.query(sql, &[&waiting]).await? {
        let id: Uuid = row.get(0);
        let since = sent.get(&id).context("an id that was not sent")?;
        arrived.insert(id, since.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}

async fn count(client: &Client, table: &str) -> Result<i64> {
    Ok(client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await?.get(0))
}

fn reading(id: EventId) -> String {
    let reading =
        json!({"event_id": id, "metric_type": "temperature", "metric_value": 21.5, "unit": "C"});
    format!("{reading}\n")
}
