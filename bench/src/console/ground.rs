//! What the console's benchmarks look at: an edge with a thousand nodes and a historian with a million points, on a private Postgres, and a console that asks them
//! over HTTP. All of it is real and in this process.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::tokens::{NewToken, Role, Tenants};
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{COOKIE, SET_COOKIE};
use rig::{Postgres, PostgresOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use crate::place::Place;

pub(super) const NODES: i32 = 1_000;
const POINTS: i32 = 1_000_000;
const WIDTH: usize = 1_000;
/// Pictures of one round.
const PICTURES: usize = 50;
/// How long the console may take to have seen every node.
const SEEN_WITHIN: Duration = Duration::from_secs(60);
/// And the historian, to have made the minutes.
const ROLLED_WITHIN: Duration = Duration::from_secs(300);

const FILL_NODES: &str = "INSERT INTO nodes (node_id, tenant_id, device_id, secret_hash, broker_hash, last_rx_at)
    SELECT 'bench-' || n, '018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002', gen_random_uuid(), sha256(n::text::bytea), '', now()
    FROM generate_series(1, $1::int4) AS n";
/// A point a second, up to now.
const FILL_POINTS: &str = "INSERT INTO telemetry
        (event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id)
    SELECT gen_random_uuid(), $2::timestamptz - n * interval '1 s', 'PLANT01', 'AREA01', 'UNIT_01', 'TEMP',
        20 + sin(n / 3600.0), 'C', 'GOOD', 1
    FROM generate_series(1, $1::int4) AS n";
/// Whether nothing is left to be made but the hour that is not over and the one that was just over.
const ROLLED: &str = "SELECT (SELECT count(*) FROM telemetry_hours) >= $1::int8 AND NOT EXISTS (SELECT FROM telemetry_search)
    AND NOT EXISTS (SELECT FROM telemetry_changes WHERE hour < now() - interval '2 hours')";
/// How the nodes are, as a person would count it.
const NODES_BY_HAND: &str = "SELECT count(*), count(*) FILTER (WHERE last_rx_at > now() - interval '60 s'),
        count(*) FILTER (WHERE last_rx_at <= now() - interval '60 s'), count(*) FILTER (WHERE last_rx_at IS NULL),
        count(*) FILTER (WHERE flagged_at IS NOT NULL)
    FROM nodes";
const POINTS_BY_HAND: &str = "SELECT timestamp, value FROM telemetry
    WHERE plant = 'PLANT01' AND area = 'AREA01' AND unit_name = 'UNIT_01' AND tag = 'TEMP'
        AND timestamp >= $1 AND timestamp < $2 ORDER BY timestamp";
const BUCKETS_BY_HAND: &str =
    "SELECT date_bin($3::text::interval, timestamp, $1) AS bucket, min(value), max(value), count(*)
    FROM telemetry
    WHERE plant = 'PLANT01' AND area = 'AREA01' AND unit_name = 'UNIT_01' AND tag = 'TEMP'
        AND timestamp >= $1 AND timestamp < $2 GROUP BY 1 ORDER BY 1";

/// Lays the ground, measures on it, and clears it away.
pub(super) fn on<T>(
    place: &Place,
    name: &str,
    measure: impl FnOnce(&Runtime, &Ground) -> Result<T>,
) -> Result<T> {
    place.say(name, "starting Postgres");
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let mut server =
        runtime.block_on(Postgres::start(folder.path(), PostgresOptions::default()))?;
    place.say(name, "a thousand nodes and a million points");
    let measured = runtime.block_on(Ground::lay(&server, folder.path())).and_then(|ground| {
        let measured = measure(&runtime, &ground);
        runtime.block_on(ground.leave());
        measured
    });
    runtime.block_on(server.stop())?;
    measured
}

/// Everything that runs.
pub(super) struct Ground {
    edge: edge::Edge,
    historian: scada::historian::Historian,
    console: console::Console,
    at_edge: Client,
    at_historian: Client,
    http: reqwest::Client,
    base: String,
    cookie: String,
    from: Timestamp,
    to: Timestamp,
}

async fn token(client: &Client, role: Role) -> Result<String> {
    let new = NewToken { name: "bench".to_owned(), role, tenants: Tenants::All, expires_at: None };
    Ok(api::tokens::create(client, &new).await?.1.expose().to_owned())
}

fn variables<'a>(
    prefix: &'a str,
    pairs: &'a [(&'a str, String)],
) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| {
        let key = name.strip_prefix(prefix)?;
        pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| value.clone())
    }
}

impl Ground {
    async fn lay(server: &Postgres, folder: &Path) -> Result<Ground> {
        let admin = pg::connect(&pg::Options::new(server.url("postgres"))).await?;
        admin.batch_execute("CREATE DATABASE edge").await?;
        admin.batch_execute("CREATE DATABASE historian").await?;
        let (edge_url, historian_url) = (server.url("edge"), server.url("historian"));
        let any = "127.0.0.1:0".to_owned();

        edge::migrate(&pg::Options::new(&edge_url)).await?;
        let at_edge = pg::connect(&pg::Options::new(&edge_url)).await?;
        at_edge.execute(FILL_NODES, &[&NODES]).await?;
        // Nobody listens at the broker's address: nodes are asked about, not heard.
        let pairs = [
            ("DATABASE_URL", edge_url),
            ("HTTP_LISTEN", any.clone()),
            ("MQTT_ADDRESS", "mqtt://127.0.0.1:9".to_owned()),
            ("MQTT_PASSWORD", "the edge's own".to_owned()),
        ];
        let config = edge::Config::load(None, variables("HOLDFAST_EDGE_", &pairs))?;
        let edge = edge::Edge::start(config).await?;

        let options = pg::Options::new(&historian_url);
        scada::migrate_historian(&options).await?;
        let mut at_historian = pg::connect(&options).await?;
        let to = Timestamp::now();
        let from = to - SignedDuration::from_secs(i64::from(POINTS) + 1);
        pg::partitions::ensure_months(&mut at_historian, "telemetry", "timestamp", from, to)
            .await?;
        at_historian.execute(FILL_POINTS, &[&POINTS, &to]).await?;
        at_historian.batch_execute("VACUUM ANALYZE telemetry").await?;
        let pairs = [
            ("DATABASE_URL", historian_url.clone()),
            ("HTTP_LISTEN", any.clone()),
            ("BUS", "inline".to_owned()),
        ];
        let config =
            scada::historian::Config::load(None, variables("HOLDFAST_HISTORIAN_", &pairs))?;
        let historian = scada::historian::Historian::start_with(config, Vec::new()).await?;

        let file = folder.join("edge.token");
        std::fs::write(&file, token(&at_edge, Role::Operator).await?)?;
        let pairs = [
            // People sign in with tokens of whatever database this is.
            ("DATABASE_URL", historian_url),
            ("HTTP_LISTEN", any),
            ("SITES", format!("north=http://{}={}", edge.http(), file.display())),
            ("HISTORIAN_URL", format!("http://{}", historian.http())),
            ("HISTORIAN_TOKEN", token(&at_historian, Role::Operator).await?),
        ];
        let config = console::Config::load(None, variables("HOLDFAST_CONSOLE_", &pairs))?;
        let console = console::Console::start(config).await?;
        let base = format!("http://{}", console.http());
        let http = reqwest::Client::new();
        let signed_in = http
            .post(format!("{base}/api/v1/sign-in"))
            .header("x-holdfast-csrf", "1")
            .header("sec-fetch-site", "same-origin")
            .json(&json!({"token": token(&at_historian, Role::Viewer).await?}))
            .send()
            .await?
            .error_for_status()?;
        let set = signed_in.headers().get(SET_COOKIE).context("no cookie was set")?.to_str()?;
        let cookie = set.split(';').next().unwrap_or_default().to_owned();
        let ground = Ground {
            edge,
            historian,
            console,
            at_edge,
            at_historian,
            http,
            base,
            cookie,
            from,
            to,
        };
        ground.all_nodes_are_seen().await?;
        ground.all_hours_are_rolled().await?;
        Ok(ground)
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let request = self.http.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    async fn all_nodes_are_seen(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let picture = self.get("/api/v1/picture").await?;
            if picture["nodes"]["total"] == NODES {
                return Ok(());
            }
            ensure!(start.elapsed() < SEEN_WITHIN, "the console sees {}", picture["nodes"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn all_hours_are_rolled(&self) -> Result<()> {
        let hours = i64::from(POINTS / 3_600) - 1;
        let start = Instant::now();
        while !self.at_historian.query_one(ROLLED, &[&hours]).await?.get::<_, bool>(0) {
            ensure!(start.elapsed() < ROLLED_WITHIN, "the historian has not made its minutes");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Milliseconds of one picture.
    pub(super) async fn pictures(&self) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..PICTURES {
            let picture = self.get("/api/v1/picture").await?;
            ensure!(picture["nodes"]["total"] == NODES, "a picture lacks nodes");
        }
        Ok(start.elapsed().as_secs_f64() * 1e3 / PICTURES as f64)
    }

    pub(super) async fn nodes_by_hand(&self) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..PICTURES {
            let row = self.at_edge.query_one(NODES_BY_HAND, &[]).await?;
            ensure!(row.get::<_, i64>(0) == i64::from(NODES), "nodes are missing");
        }
        Ok(start.elapsed().as_secs_f64() * 1e3 / PICTURES as f64)
    }

    /// Milliseconds of one plot of everything.
    pub(super) async fn plot(&self) -> Result<f64> {
        let start = Instant::now();
        let path = format!(
            "/api/v1/explore/points?series=historian:PLANT01:AREA01:UNIT_01:TEMP&from={}&to={}&width={WIDTH}",
            self.from, self.to
        );
        let answer = self.get(&path).await?;
        let plot = &answer["series"][0];
        let shown = plot["t"].as_array().map_or(0, Vec::len);
        ensure!(
            plot["error"].is_null() && plot["samples"] == POINTS,
            "the plot is {}",
            plot["error"]
        );
        ensure!((WIDTH / 2..=3 * WIDTH).contains(&shown), "{shown} points are shown");
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    pub(super) async fn points_by_hand(&self) -> Result<f64> {
        let start = Instant::now();
        let rows = self.at_historian.query(POINTS_BY_HAND, &[&self.from, &self.to]).await?;
        ensure!(i32::try_from(rows.len()) == Ok(POINTS), "{} points are there", rows.len());
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    pub(super) async fn buckets_by_hand(&self) -> Result<f64> {
        let start = Instant::now();
        let bucket = format!("{} s", f64::from(POINTS) / WIDTH as f64);
        let rows =
            self.at_historian.query(BUCKETS_BY_HAND, &[&self.from, &self.to, &bucket]).await?;
        ensure!((WIDTH..=WIDTH + 2).contains(&rows.len()), "{} buckets are there", rows.len());
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    /// Where a browser finds the console, and what an operator signs in with.
    pub(super) async fn door(&self) -> Result<(&str, String)> {
        Ok((&self.base, token(&self.at_historian, Role::Operator).await?))
    }

    /// Every node is heard, as it would be of nodes that report.
    pub(super) async fn hear(&self) -> Result<()> {
        self.at_edge.execute("UPDATE nodes SET last_rx_at = now()", &[]).await?;
        Ok(())
    }

    async fn leave(self) {
        self.console.stop().await;
        self.historian.stop().await;
        self.edge.stop().await;
    }
}
