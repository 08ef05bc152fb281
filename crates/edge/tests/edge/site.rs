//! A site for a test: its own database, nodes that were enrolled, messages as nodes send them.

use std::time::Duration;

use edge::ingress::{Committed, Incoming, Source, Writer};
use edge::metrics::Metrics;
use edge::registry::{self, Enrolled, Enrolment};
use edge::{Config, Edge};
use event::id::{Epoch, EventId, TenantId};
use event::wire::{Gap, GapReason, encode};
use serde_json::json;
use testkit::Database;

/// How long anything may take on a busy machine before a test says that it does not happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) const TABLES: [&str; 12] = [
    "telemetry_raw",
    "telemetry_agg",
    "telemetry_dirty",
    "telemetry_series",
    "ingress_dedupe",
    "sync_outbox",
    "ledger_frontier",
    "ledger_block",
    "ledger_tombstone",
    "ingress_quarantine",
    "nodes",
    "devices",
];

pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) config: Config,
    pub(crate) writer: Writer,
}

pub(crate) async fn migrate(url: String) -> Result<(), pg::Error> {
    edge::migrate(&pg::Options::new(url)).await
}

/// The configuration of an edge, from the variables that an operator would set.
pub(crate) fn config(url: &str, pairs: &[(&str, &str)]) -> Config {
    Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_EDGE_")?;
        let given = pairs.iter().find(|(k, _)| *k == key).map(|(_, value)| (*value).to_owned());
        given.or(match key {
            "DATABASE_URL" => Some(url.to_owned()),
            "MQTT_PASSWORD" => Some("the edge's own".to_owned()),
            "HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
            _ => None,
        })
    })
    .unwrap()
}

impl Site {
    pub(crate) async fn new(name: &str) -> Site {
        let database = testkit::database(name, "edge", migrate).await.unwrap();
        let config = config(database.url(), &[]);
        let pool = pg::Pool::new(&config.database).unwrap();
        Site { writer: Writer::new(pool, Metrics::new().into()), database, config }
    }

    pub(crate) async fn enroll(&self, node: &str) -> Sender {
        enroll(&self.config, node, TenantId::mint()).await
    }

    pub(crate) async fn ingest(&self, messages: &[Incoming]) -> Committed {
        self.writer.ingest(messages).await.unwrap()
    }

    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        self.database.connect().await.unwrap()
    }

    /// A number from a query.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        number(&self.client().await, query).await
    }

    /// A text from a query.
    pub(crate) async fn text(&self, query: &str) -> String {
        self.client().await.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Everything in every table.
    pub(crate) async fn snapshot(&self) -> Vec<(&'static str, Vec<String>)> {
        let client = self.client().await;
        let mut tables = Vec::new();
        for table in TABLES {
            let query = format!("SELECT t::text FROM {table} t ORDER BY 1");
            let rows = client.query(&query, &[]).await.unwrap();
            tables.push((table, rows.iter().map(|row| row.get(0)).collect()));
        }
        tables
    }
}

pub(crate) async fn number(client: &tokio_postgres::Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

pub(crate) async fn start(config: &Config) -> Edge {
    Edge::start(config.clone()).await.unwrap()
}

pub(crate) async fn enroll(config: &Config, node: &str, tenant: TenantId) -> Sender {
    let request = enrolment(node, tenant);
    let enrolled = registry::enroll(config, &request).await.unwrap();
    Sender { node: node.to_owned(), tenant, epoch: Epoch::mint(), enrolled }
}

pub(crate) fn enrolment(node: &str, tenant: TenantId) -> Enrolment {
    Enrolment {
        node_id: node.parse().unwrap(),
        tenant_id: tenant,
        farm_id: None,
        barn_id: None,
        device_id: None,
        label: String::new(),
        rotate: false,
    }
}

/// An enrolled node, as a sender of messages.
pub(crate) struct Sender {
    pub(crate) node: String,
    pub(crate) tenant: TenantId,
    pub(crate) epoch: Epoch,
    pub(crate) enrolled: Enrolled,
}

impl Sender {
    /// A reading, as the node spools it.
    pub(crate) fn reading(&self) -> serde_json::Value {
        json!({
            "event_id": EventId::mint(),
            "event_type": "telemetry.ingested",
            "device_id": self.enrolled.device_id,
            "occurred_at": "2026-02-01T10:00:00Z",
            "trace_id": "trace-1",
            "payload": {"metric_type": "temperature", "metric_value": 26.4, "unit": "C"}
        })
    }

    /// Readings with their sequences.
    pub(crate) fn readings(&self, seqs: impl IntoIterator<Item = u64>) -> Vec<(u64, String)> {
        seqs.into_iter().map(|seq| (seq, self.reading().to_string())).collect()
    }

    pub(crate) fn body(&self, records: &[(u64, String)], gaps: &[Gap]) -> Vec<u8> {
        encode(self.epoch, records.iter().map(|(seq, event)| (*seq, event.as_bytes())), gaps)
    }

    pub(crate) fn topic(&self, channel: &str) -> String {
        format!("iot/{}/{channel}", self.node)
    }

    pub(crate) fn batch(&self, records: &[(u64, String)], gaps: &[Gap]) -> Incoming {
        self.message("live", self.body(records, gaps))
    }

    pub(crate) fn message(&self, channel: &str, body: impl Into<Vec<u8>>) -> Incoming {
        Incoming::new(Source::Mqtt, self.topic(channel), body.into().into())
    }
}

/// A client for HTTP. Its TLS is not used, and wants a provider all the same.
pub(crate) fn http() -> reqwest::Client {
    mqtt::install_crypto();
    reqwest::Client::new()
}

pub(crate) fn gap(from: u64, to: u64) -> Gap {
    Gap::new(from, to, None, None, GapReason::DropOldest).unwrap()
}
