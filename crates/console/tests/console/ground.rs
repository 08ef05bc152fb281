//! A console before real tiers: an edge that forwards to a cloud, and a historian, each on its own database.

use std::time::Duration;

use api::tokens::{NewToken, Role, Tenants};
use bytes::Bytes;
use console::Console;
use edge::ingress::{Incoming, Source, Writer};
use edge::registry::{self, Enrolled, Enrolment};
use event::id::{Epoch, EventId, TenantId};
use event::wire::{Gap, Report, Status, encode};
use jiff::{SignedDuration, Timestamp};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use testkit::Database;

/// How long anything may take on a busy machine before a test says that it does not happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Everything.
pub(crate) struct Ground {
    pub(crate) edge: edge::Edge,
    pub(crate) edge_config: edge::Config,
    pub(crate) edge_database: Database,
    pub(crate) cloud: cloud::Cloud,
    pub(crate) cloud_database: Database,
    pub(crate) historian: scada::historian::Historian,
    pub(crate) historian_database: Database,
    pub(crate) console: Console,
    pub(crate) barn: Node,
    pub(crate) hill: Node,
    /// What the console was started with.
    settings: Vec<(&'static str, String)>,
    _folder: tempfile::TempDir,
}

/// A node that was enrolled.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) tenant: TenantId,
    pub(crate) epoch: Epoch,
    pub(crate) enrolled: Enrolled,
}

/// Starts a console with these settings, and with others besides or instead.
async fn console(settings: &[(&'static str, String)], besides: &[(&str, &str)]) -> Console {
    let mut pairs: Vec<(&str, String)> = settings.to_vec();
    for (key, value) in besides {
        pairs.retain(|(known, _)| known != key);
        pairs.push((key, (*value).to_owned()));
    }
    let config = console::Config::load(None, variables("HOLDFAST_CONSOLE_", &pairs)).unwrap();
    Console::start(config).await.unwrap()
}

/// Somebody with a browser.
#[derive(Clone)]
pub(crate) struct Browser {
    client: reqwest::Client,
    base: String,
    cookie: Option<String>,
}

pub(crate) async fn token(database: &Database, name: &str, role: Role, tenants: Tenants) -> String {
    let client = database.connect().await.unwrap();
    let new = NewToken { name: name.to_owned(), role, tenants, expires_at: None };
    api::tokens::create(&client, &new).await.unwrap().1.expose().to_owned()
}

pub(crate) fn variables<'a>(
    prefix: &'a str,
    pairs: &'a [(&'a str, String)],
) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| {
        let key = name.strip_prefix(prefix)?;
        pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| value.clone())
    }
}

/// A cloud's settings on a database, with these besides.
pub(crate) fn cloud_config(database: &Database, besides: &[(&str, &str)]) -> cloud::Config {
    let mut pairs = vec![
        ("DATABASE_URL", database.url().to_owned()),
        ("HTTP_LISTEN", "127.0.0.1:0".to_owned()),
        ("BUS", "inline".to_owned()),
        ("RATE_REQUESTS_PER_SECOND", "10000".to_owned()),
        ("LIMITS_REQUESTS_PER_TOKEN", "100".to_owned()),
    ];
    for (key, value) in besides {
        pairs.retain(|(known, _)| known != key);
        pairs.push((key, (*value).to_owned()));
    }
    cloud::Config::load(None, variables("HOLDFAST_CLOUD_", &pairs)).unwrap()
}

impl Ground {
    pub(crate) async fn new(name: &str) -> Ground {
        Ground::with(name, &[]).await
    }

    /// With these settings of the console besides.
    pub(crate) async fn with(name: &str, settings: &[(&str, &str)]) -> Ground {
        Ground::laid(name, settings, &[]).await
    }

    /// With these settings of the console and of the cloud besides.
    pub(crate) async fn laid(
        name: &str,
        settings: &[(&str, &str)],
        of_cloud: &[(&str, &str)],
    ) -> Ground {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let any = "127.0.0.1:0".to_owned();
        let [cloud_name, edge_name, historian_name] =
            ["cloud", "edge", "historian"].map(|tier| format!("{name}_{tier}"));
        let cloud_database = testkit::database(&cloud_name, "cloud", async |url| {
            cloud::migrate(&pg::Options::new(url)).await
        });
        let cloud_database = cloud_database.await.unwrap();
        let config = cloud_config(&cloud_database, of_cloud);
        let cloud = cloud::Cloud::start(config).await.unwrap();

        let edge_database = testkit::database(&edge_name, "edge", async |url| {
            edge::migrate(&pg::Options::new(url)).await
        });
        let edge_database = edge_database.await.unwrap();
        let forwarder = token(&cloud_database, "site", Role::Edge, Tenants::All).await;
        // Nobody listens at the broker's address: what nodes send is written as ingress writes it.
        let pairs = [
            ("DATABASE_URL", edge_database.url().to_owned()),
            ("HTTP_LISTEN", any.clone()),
            ("MQTT_ADDRESS", "mqtt://127.0.0.1:9".to_owned()),
            ("MQTT_PASSWORD", "the edge's own".to_owned()),
            ("SYNC_CLOUD_URL", format!("http://{}", cloud.http())),
            ("SYNC_TOKEN", forwarder),
            ("SYNC_CLUSTER_ID", "north".to_owned()),
        ];
        let edge_config = edge::Config::load(None, variables("HOLDFAST_EDGE_", &pairs)).unwrap();
        let edge = edge::Edge::start(edge_config.clone()).await.unwrap();

        let historian_database =
            testkit::database(&historian_name, "scada_historian", async |url| {
                scada::migrate_historian(&pg::Options::new(url)).await
            });
        let historian_database = historian_database.await.unwrap();
        let pairs = [
            ("DATABASE_URL", historian_database.url().to_owned()),
            ("HTTP_LISTEN", any.clone()),
            ("BUS", "inline".to_owned()),
        ];
        let config =
            scada::historian::Config::load(None, variables("HOLDFAST_HISTORIAN_", &pairs)).unwrap();
        let historian = scada::historian::Historian::start_with(config, Vec::new()).await.unwrap();

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("edge.token");
        let asks = token(&edge_database, "console", Role::Operator, Tenants::All).await;
        std::fs::write(&file, asks).unwrap();
        let pairs = vec![
            ("DATABASE_URL", cloud_database.url().to_owned()),
            ("HTTP_LISTEN", any),
            ("SITES", format!("north=http://{}={}", edge.http(), file.display())),
            ("CLOUD_URL", format!("http://{}", cloud.http())),
            ("CLOUD_TOKEN", token(&cloud_database, "console", Role::Operator, Tenants::All).await),
            ("HISTORIAN_URL", format!("http://{}", historian.http())),
            (
                "HISTORIAN_TOKEN",
                token(&historian_database, "console", Role::Operator, Tenants::All).await,
            ),
            ("POLL_EVERY", "100ms".to_owned()),
        ];
        let console = console(&pairs, settings).await;
        let barn = enroll(&edge_config, "barn-1", TenantId::mint()).await;
        let hill = enroll(&edge_config, "hill-1", TenantId::mint()).await;
        Ground {
            edge,
            edge_config,
            edge_database,
            cloud,
            cloud_database,
            historian,
            historian_database,
            console,
            barn,
            hill,
            settings: pairs,
            _folder: folder,
        }
    }

    /// A second console before the same tiers, with these settings besides.
    pub(crate) async fn another(&self, settings: &[(&str, &str)]) -> Console {
        console(&self.settings, settings).await
    }

    /// What the console was started with.
    pub(crate) fn setting(&self, key: &str) -> &str {
        &self.settings.iter().find(|(known, _)| *known == key).unwrap().1
    }

    /// Somebody who is not signed in.
    pub(crate) fn stranger(&self) -> Browser {
        Browser::new(&self.console)
    }

    /// Somebody who signed in with a new token.
    pub(crate) async fn sign_in(&self, role: Role, tenants: Tenants) -> Browser {
        let token = token(&self.cloud_database, "somebody", role, tenants).await;
        self.stranger().sign_in(&token).await
    }

    pub(crate) async fn operator(&self) -> Browser {
        self.sign_in(Role::Operator, Tenants::All).await
    }

    /// Takes in readings of a node, a second apart up to now, and returns their events.
    pub(crate) async fn ingest(
        &self,
        node: &Node,
        seqs: std::ops::RangeInclusive<u64>,
    ) -> Vec<EventId> {
        let last = *seqs.end();
        let (mut events, mut records) = (Vec::new(), Vec::new());
        for seq in seqs {
            let event = EventId::mint();
            let ago = SignedDuration::from_secs(i64::try_from(last - seq).unwrap());
            let value = if seq == 7 { 99.5 } else { 20.0 };
            let reading = json!({
                "event_id": event,
                "event_type": "telemetry.ingested",
                "device_id": node.enrolled.device_id,
                "occurred_at": Timestamp::now() - ago,
                "trace_id": "trace-1",
                "payload": {"metric_type": "temperature", "metric_value": value, "unit": "C"}
            });
            events.push(event);
            records.push((seq, reading.to_string()));
        }
        let records = records.iter().map(|(seq, event)| (*seq, event.as_bytes()));
        self.receive(node, "live", encode(node.epoch, records, &[]).into()).await;
        events
    }

    /// A node says that it gave these up.
    pub(crate) async fn declare_lost(&self, node: &Node, gap: Gap) {
        let none: [(u64, &[u8]); 0] = [];
        self.receive(node, "live", encode(node.epoch, none, &[gap]).into()).await;
    }

    /// Takes in what a node says of itself.
    pub(crate) async fn says(&self, node: &Node, report: Report) {
        let status = Status::online(node.epoch, report).to_json();
        self.receive(node, "status", status.into()).await;
    }

    async fn receive(&self, node: &Node, what: &str, body: Bytes) {
        let topic = format!("iot/{}/{what}", node.name);
        let incoming = Incoming::new(Source::Mqtt, topic, body);
        let pool = pg::Pool::new(&self.edge_config.database).unwrap();
        let writer = Writer::new(pool, edge::metrics::Metrics::new().into());
        writer.ingest(&[incoming]).await.unwrap();
    }
}

async fn enroll(config: &edge::Config, name: &'static str, tenant: TenantId) -> Node {
    let request = Enrolment {
        node_id: name.parse().unwrap(),
        tenant_id: tenant,
        farm_id: None,
        barn_id: None,
        device_id: None,
        label: format!("the {name}"),
        rotate: false,
    };
    let enrolled = registry::enroll(config, &request).await.unwrap();
    Node { name, tenant, epoch: Epoch::mint(), enrolled }
}

impl Browser {
    pub(crate) fn new(console: &Console) -> Browser {
        let base = format!("http://{}", console.http());
        Browser { client: reqwest::Client::new(), base, cookie: None }
    }

    /// A request with the cookie that the browser sends along, and nothing that says where it comes from.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.cookie {
            Some(cookie) => request.header("cookie", format!("other=1; {cookie}")),
            None => request,
        }
    }

    /// A request as the page sends it.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.bare(method.clone(), path);
        match method {
            Method::GET => request,
            _ => request.header("x-holdfast-csrf", "1").header("sec-fetch-site", "same-origin"),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    /// The answer, which must be a good one.
    pub(crate) async fn see(&self, path: &str) -> Value {
        let response = self.get(path).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Response {
        self.request(Method::POST, path).json(&body).send().await.unwrap()
    }

    pub(crate) async fn sign_in(self, token: &str) -> Browser {
        let response = self.post("/api/v1/sign-in", json!({"token": token})).await;
        assert_eq!(response.status(), StatusCode::OK);
        let set = response.headers()["set-cookie"].to_str().unwrap();
        let cookie = set.split(';').next().unwrap().to_owned();
        Browser { cookie: Some(cookie), ..self }
    }

    /// A job's end.
    pub(crate) async fn finish(&self, started: Response) -> Value {
        assert_eq!(started.status(), StatusCode::ACCEPTED);
        let id = started.json::<Value>().await.unwrap()["job_id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/jobs/{id}");
        testkit::eventually(LONG, "the job ends", async || {
            let job = self.see(&path).await;
            (job["state"] != "running").then_some(job)
        })
        .await
        .unwrap()
    }
}

/// The code of a refusal.
pub(crate) async fn code(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap_or_default();
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}
