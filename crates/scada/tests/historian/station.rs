//! A master station for a test: its database, an inline bus before it, and what it has stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::tokens::{NewToken, Role, Tenants};
use bus::{Message, PublishError, Publisher, inline};
use event::scada::Envelope;
use jiff::Timestamp;
use reqwest::StatusCode;
use scada::generate::Node;
use scada::historian::{Config, DeadLetters, GROUP, Historian, bindings};
use scada::outbox::Headers;
use serde_json::Value;
use testkit::Database;
use uuid::Uuid;

/// How long anything may take on a busy machine before a test says that it does not happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);

async fn migrate(url: String) -> Result<(), pg::Error> {
    scada::migrate_historian(&pg::Options::new(url)).await
}

pub(crate) async fn database(name: &str) -> Database {
    testkit::database(name, "scada_historian", migrate).await.unwrap()
}

/// The configuration of a historian on this database, with these keys besides.
pub(crate) fn config(url: &str, pairs: &[(&str, &str)]) -> Config {
    Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_HISTORIAN_")?;
        let own = [
            ("DATABASE_URL", url),
            ("HTTP_LISTEN", "127.0.0.1:0"),
            ("BUS", "inline"),
            ("ALARMS_SWEEP", "50ms"),
        ];
        let found = pairs.iter().chain(&own).find(|(name, _)| *name == key)?;
        Some(found.1.to_owned())
    })
    .unwrap()
}

pub(crate) struct Station {
    pub(crate) database: Database,
    pub(crate) historian: Historian,
    pub(crate) bus: Arc<inline::Bus>,
}

/// Starts a historian with an inline bus before it.
pub(crate) async fn start(config: Config) -> (Historian, Arc<inline::Bus>) {
    let pool = pg::Pool::new(&config.database).unwrap();
    let options = inline::Options { batch: config.batch, ..Default::default() };
    let mut bus = inline::Bus::new(options, Arc::new(DeadLetters::new(pool)));
    let consumer = bus.group(GROUP, bindings());
    let historian = Historian::start_with(config, vec![Box::new(consumer)]).await.unwrap();
    (historian, Arc::new(bus))
}

impl Station {
    pub(crate) async fn new(name: &str) -> Station {
        Station::with(name, &[]).await
    }

    pub(crate) async fn with(name: &str, pairs: &[(&str, &str)]) -> Station {
        let database = database(name).await;
        let (historian, bus) = start(config(database.url(), pairs)).await;
        Station { database, historian, bus }
    }

    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        self.database.connect().await.unwrap()
    }

    /// Publishes and waits until all of them are settled.
    pub(crate) async fn publish(&self, messages: Vec<Message>) {
        let results: Result<Vec<()>, PublishError> =
            self.bus.publish(messages).await.into_iter().collect();
        results.unwrap();
    }

    pub(crate) async fn count(&self, from: &str) -> i64 {
        count(&self.client().await, from).await
    }

    pub(crate) async fn token(&self, role: Role) -> String {
        token(&self.client().await, role).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1{path}", self.historian.http())
    }

    pub(crate) async fn stored(&self) -> BTreeMap<Uuid, f64> {
        stored(&self.client().await).await
    }
}

/// A station, and somebody who may look at it.
pub(crate) struct Viewer {
    pub(crate) station: Station,
    pub(crate) token: String,
}

impl Viewer {
    pub(crate) async fn new(name: &str) -> Viewer {
        let station = Station::new(name).await;
        let token = station.token(Role::Viewer).await;
        Viewer { station, token }
    }

    pub(crate) async fn ask(&self, path: &str) -> (StatusCode, Value) {
        let request = http().get(self.station.url(path)).bearer_auth(&self.token);
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }
}

pub(crate) async fn token(client: &tokio_postgres::Client, role: Role) -> String {
    let name = role.to_string();
    let new = NewToken { name, role, tenants: Tenants::All, expires_at: None };
    let (_, secret) = api::tokens::create(client, &new).await.unwrap();
    secret.expose().to_owned()
}

pub(crate) async fn count(client: &tokio_postgres::Client, from: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {from}"), &[]).await.unwrap().get(0)
}

/// Everything that is stored, by id; an event that is there twice fails.
pub(crate) async fn stored(client: &tokio_postgres::Client) -> BTreeMap<Uuid, f64> {
    stored_of(client, "%").await
}

/// The same of plants that are like this.
pub(crate) async fn stored_of(client: &tokio_postgres::Client, plant: &str) -> BTreeMap<Uuid, f64> {
    let query = "SELECT event_id, value FROM telemetry WHERE plant LIKE $1
                 UNION ALL SELECT event_id, value FROM events WHERE plant LIKE $1
                 UNION ALL SELECT event_id, value FROM alarms WHERE plant LIKE $1";
    let mut all = BTreeMap::new();
    for row in client.query(query, &[&plant]).await.unwrap() {
        assert!(all.insert(row.get(0), row.get(1)).is_none(), "an event is stored twice");
    }
    all
}

pub(crate) fn expected(events: &[Envelope]) -> BTreeMap<Uuid, f64> {
    events.iter().map(|event| (event.event_id.uuid(), event.value)).collect()
}

/// An event as a node's dispatcher publishes it.
pub(crate) fn message(event: &Envelope) -> Message {
    let headers = Headers::of(event, "test");
    let version = ("schema_version".to_owned(), headers.schema_version);
    Message {
        key: Some(headers.partition_key),
        headers: [version].into(),
        ..Message::json(
            headers.topic,
            event.tag.as_str(),
            event.event_id.to_string(),
            event.to_json(),
        )
    }
}

/// So many cycles of one node, now.
pub(crate) fn events(node: u16, cycles: usize) -> Vec<Envelope> {
    events_of("PLANT01", node, cycles)
}

/// The same in another plant.
pub(crate) fn events_of(plant: &str, node: u16, cycles: usize) -> Vec<Envelope> {
    let mut node = Node::new(plant.parse().unwrap(), node, 42).unwrap();
    (0..cycles).flat_map(|_| node.cycle(Timestamp::now()).unwrap()).collect()
}

/// An alarm's message.
pub(crate) fn alarm(tag: &str, value: f64, at: Timestamp) -> Envelope {
    let template = events(7, 1).remove(0);
    Envelope {
        event_id: event::id::EventId::mint(),
        timestamp: at,
        tag: tag.parse().unwrap(),
        value,
        category: event::scada::Category::Alarm,
        ..template
    }
}

pub(crate) fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}
