//! The real cloud, for tests of the forwarder: ingestion on a database of its own.

use api::tokens::{self, NewToken, Role, Tenants};
use cloud::Cloud;
use testkit::Database;

use crate::site::number;

/// Ingestion, one replica or several, on one database.
pub(crate) struct RealCloud {
    pub(crate) database: Database,
    pub(crate) replicas: Vec<Cloud>,
}

async fn migrate(url: String) -> Result<(), pg::Error> {
    cloud::migrate(&pg::Options::new(url)).await
}

/// The configuration of a cloud, from the variables that an operator would set.
pub(crate) fn cloud_config(url: &str, pairs: &[(&str, &str)]) -> cloud::Config {
    cloud::Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_CLOUD_")?;
        let given = pairs.iter().find(|(k, _)| *k == key).map(|(_, value)| (*value).to_owned());
        given.or(match key {
            "DATABASE_URL" => Some(url.to_owned()),
            "HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
            _ => None,
        })
    })
    .unwrap()
}

impl RealCloud {
    pub(crate) async fn start(name: &str, pairs: &[(&str, &str)]) -> RealCloud {
        let database = testkit::database(name, "cloud", migrate).await.unwrap();
        let replicas = vec![Cloud::start(cloud_config(database.url(), pairs)).await.unwrap()];
        RealCloud { database, replicas }
    }

    pub(crate) async fn add_replica(&mut self) {
        let config = cloud_config(self.database.url(), &[]);
        self.replicas.push(Cloud::start(config).await.unwrap());
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.replicas[0].http())
    }

    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        self.database.connect().await.unwrap()
    }

    /// A token for a site.
    pub(crate) async fn token(&self, tenants: Tenants) -> String {
        token(&self.client().await, tenants).await
    }

    /// So many events with a place in the ledger are here, each once.
    pub(crate) async fn has_once(&self, events: i64) {
        has_once(&self.client().await, events).await;
    }

    pub(crate) async fn stop(self) {
        for replica in self.replicas {
            replica.stop().await;
        }
    }
}

pub(crate) async fn token(client: &tokio_postgres::Client, tenants: Tenants) -> String {
    let new = NewToken { name: "site".to_owned(), role: Role::Edge, tenants, expires_at: None };
    tokens::create(client, &new).await.unwrap().1.expose().to_owned()
}

pub(crate) async fn has_once(client: &tokio_postgres::Client, events: i64) {
    let accepted = "SELECT coalesce(sum(accepted_count), 0)::bigint FROM ledger_frontier";
    let received = "SELECT coalesce(sum(count), 0)::bigint FROM ledger_block";
    assert_eq!(number(client, accepted).await, events, "accepted");
    assert_eq!(number(client, received).await, events, "each under its own sequence");
}
