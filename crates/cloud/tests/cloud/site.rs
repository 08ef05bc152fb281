//! A cloud for a test: its own database, tokens, and batches as an edge sends them.

use std::time::Duration;

use cloud::tokens::{self, NewToken, Role, Tenants, Token};
use cloud::{Cloud, Config, Work};
use event::id::{DeviceId, Epoch, EventId, TenantId};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use testkit::Database;

/// How long anything may take on a busy machine before a test says that it does not happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) const TABLES: [&str; 8] = [
    "ingest_dedupe",
    "ledger_frontier",
    "ledger_page",
    "ledger_clone",
    "ledger_block",
    "ledger_tombstone",
    "relay_outbox",
    "ingest_rejected",
];

pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) config: Config,
    pub(crate) cloud: Cloud,
    pub(crate) tenant: TenantId,
    /// Of role edge, for `tenant`.
    pub(crate) token: String,
}

pub(crate) async fn migrate(url: String) -> Result<(), pg::Error> {
    cloud::migrate(&pg::Options::new(url)).await
}

/// The configuration of a cloud, from the variables that an operator would set.
pub(crate) fn config(url: &str, pairs: &[(&str, &str)]) -> Config {
    Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_CLOUD_")?;
        let given = pairs.iter().find(|(k, _)| *k == key).map(|(_, value)| (*value).to_owned());
        given.or(match key {
            "DATABASE_URL" => Some(url.to_owned()),
            "HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
            "RATE_REQUESTS_PER_SECOND" => Some("10000".to_owned()),
            // Unless it says so, a test looks at what ingestion wrote, and nobody takes it away.
            "ROLES" => Some("ingestion".to_owned()),
            _ => None,
        })
    })
    .unwrap()
}

pub(crate) async fn token(
    client: &tokio_postgres::Client,
    role: Role,
    tenants: Tenants,
) -> (Token, String) {
    let new = NewToken { name: format!("a {role}"), role, tenants, expires_at: None };
    let (token, secret) = tokens::create(client, &new).await.unwrap();
    (token, secret.expose().to_owned())
}

impl Site {
    pub(crate) async fn new(name: &str) -> Site {
        Site::with(name, &[]).await
    }

    pub(crate) async fn with(name: &str, pairs: &[(&str, &str)]) -> Site {
        Site::with_works(name, pairs, Vec::new()).await
    }

    /// With consumers of the test's own.
    pub(crate) async fn with_works(name: &str, pairs: &[(&str, &str)], works: Vec<Work>) -> Site {
        let database = testkit::database(name, "cloud", migrate).await.unwrap();
        let config = config(database.url(), pairs);
        let cloud = Cloud::start_with(config.clone(), works).await.unwrap();
        let tenant = TenantId::mint();
        let client = database.connect().await.unwrap();
        let (_, token) = token(&client, Role::Edge, Tenants::Only(vec![tenant])).await;
        Site { database, config, cloud, tenant, token }
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

    pub(crate) fn post(&self) -> RequestBuilder {
        post(&self.cloud)
    }

    /// Sends a batch with the site's token.
    pub(crate) async fn send(&self, batch: &Value) -> Response {
        self.post().bearer_auth(&self.token).body(batch.to_string()).send().await.unwrap()
    }

    /// Sends a batch and takes the statuses of its results.
    pub(crate) async fn statuses(&self, batch: &Value) -> Vec<String> {
        let answer = self.send(batch).await;
        assert_eq!(answer.status(), 200);
        statuses(&answer.json().await.unwrap())
    }

    pub(crate) fn reading(&self) -> Value {
        reading(self.tenant)
    }
}

pub(crate) fn post(cloud: &Cloud) -> RequestBuilder {
    let url = format!("http://{}/api/v1/sync/batches", cloud.http());
    http().post(url).header("content-type", "application/json")
}

pub(crate) fn statuses(reply: &Value) -> Vec<String> {
    let results = reply["results"].as_array().unwrap();
    results.iter().map(|result| result["status"].as_str().unwrap().to_owned()).collect()
}

pub(crate) async fn number(client: &tokio_postgres::Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

pub(crate) async fn error(answer: Response) -> (u16, Value) {
    (answer.status().as_u16(), answer.json::<Value>().await.unwrap()["error"].clone())
}

/// A client for HTTP. Its TLS is not used, and wants a provider all the same.
pub(crate) fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

pub(crate) fn reading(tenant: TenantId) -> Value {
    json!({
        "event_id": EventId::mint(),
        "event_type": "telemetry.ingested",
        "tenant_id": tenant,
        "farm_id": null, "barn_id": null,
        "device_id": DeviceId::mint(),
        "session_id": null,
        "occurred_at": "2026-02-01T10:00:00Z",
        "trace_id": "trace-1",
        "payload": {"metric_type": "temperature", "metric_value": 26.4, "unit": "C"}
    })
}

/// An event with its coordinates.
pub(crate) fn placed(event: Value, stream: &str, epoch: Epoch, seq: u64) -> Value {
    json!({"event": event, "stream": stream, "epoch": epoch, "seq": seq})
}

pub(crate) fn bare(event: Value) -> Value {
    json!({"event": event})
}

pub(crate) fn batch(events: Vec<Value>) -> Value {
    json!({
        "v": 1, "batch_id": format!("batch-{}", EventId::mint()), "edge_cluster_id": "edge-1",
        "sent_at": "2026-02-01T10:00:00Z", "events": events
    })
}

pub(crate) fn tombstone(tenant: TenantId, epoch: Epoch, from: u64, to: u64) -> Value {
    json!({
        "tenant_id": tenant, "stream": "barn-7", "epoch": epoch, "from_seq": from, "to_seq": to,
        "count": to - from + 1, "first_at": null, "last_at": null, "reason": "drop_oldest"
    })
}
