//! The cloud of the test: two replicas of all roles on the inline bus, each behind the uplink of one edge; and what must be in its
//! stores in the end.

use std::path::Path;
use std::time::Duration;

use cloud::tokens::{NewToken, Role as TokenRole, Tenants};
use event::id::TenantId;
use rig::{Link, Postgres};
use testkit::eventually;
use tokio_postgres::Client;

use super::site::{Role, text};

const DATABASE: &str = "cloud";

/// The cloud's side of one edge.
pub(crate) struct Uplink {
    /// Between the edge and its replica of the cloud.
    pub(crate) link: Link,
    pub(crate) cloud: Role,
}

pub(crate) struct Cloud {
    pub(crate) uplinks: Vec<Uplink>,
    pub(crate) token: String,
    database: pg::Options,
}

impl Cloud {
    pub(crate) async fn prepare(
        folder: &Path,
        postgres: &Postgres,
        tenant: TenantId,
        replicas: usize,
    ) -> anyhow::Result<Cloud> {
        let admin = pg::connect(&pg::Options::new(postgres.url("postgres"))).await?;
        admin.batch_execute(&format!("CREATE DATABASE {DATABASE}")).await?;
        let database = pg::Options::new(postgres.url(DATABASE));
        cloud::migrate(&database).await?;
        let new = NewToken {
            name: "the edges".to_owned(),
            role: TokenRole::Edge,
            tenants: Tenants::Only(vec![tenant]),
            expires_at: None,
        };
        let (_, secret) = cloud::tokens::create(&pg::connect(&database).await?, &new).await?;
        let mut uplinks = Vec::new();
        for number in 0..replicas {
            let port = rig::free_port()?;
            let file = folder.join(format!("cloud-{number}.toml"));
            let config = format!(
                "[cloud]\ndatabase.url = {:?}\nhttp.listen = \"127.0.0.1:{port}\"\nrelay.lease = \"3s\"\n\
                 rate.requests_per_second = 1000\nrate.events_per_second = 1000000\n",
                database.url
            );
            std::fs::write(&file, config)?;
            uplinks.push(Uplink {
                link: Link::start(([127, 0, 0, 1], port).into()).await?,
                cloud: Role::new(
                    testkit::bin("holdfast")?,
                    ["cloud", "run", "--config"]
                        .map(str::to_owned)
                        .into_iter()
                        .chain([text(&file)]),
                    folder.join(format!("cloud-{number}.log")),
                ),
            });
        }
        Ok(Cloud { uplinks, token: secret.expose().to_owned(), database })
    }

    pub(crate) async fn database(&self) -> anyhow::Result<Client> {
        Ok(pg::connect(&self.database).await?)
    }

    /// Waits until the edge has handed over everything, and the relay too.
    pub(crate) async fn wait_until_settled(&self, edge: &Client) -> anyhow::Result<()> {
        let cloud = self.database().await?;
        let number = async |client: &Client, sql: &str| match client.query_one(sql, &[]).await {
            Ok(row) => Ok(row.get::<_, i64>(0)),
            Err(error) => Err(error.to_string()),
        };
        let waited = eventually(Duration::from_secs(180), "the cloud has everything", async || {
            let waiting = number(edge, "SELECT count(*) FROM sync_outbox WHERE status IN ('pending', 'claimed', 'sending')").await?;
            let gaps =
                number(edge, "SELECT count(*) FROM ledger_tombstone WHERE sent_at IS NULL").await?;
            let relayed = number(&cloud, "SELECT count(*) FROM relay_outbox").await?;
            match (waiting, gaps, relayed) {
                (0, 0, 0) => Ok(true),
                _ => Err(format!(
                    "{waiting} events and {gaps} gaps wait at the edge, {relayed} in the relay"
                )),
            }
        });
        waited.await.map_err(|error| {
            let logs: Vec<_> = self.uplinks.iter().map(|uplink| uplink.cloud.log_tail()).collect();
            error.context(logs.join("\n---\n"))
        })?;
        Ok(())
    }

    /// Every event of the edge is in the consumers' stores exactly once, and the two ledgers say the same.
    pub(crate) async fn check(&self, edge: &Client) {
        let cloud = self.database().await.unwrap();
        let number = async |client: &Client, sql: &str| {
            client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0)
        };
        let dead = "SELECT count(*) FROM sync_outbox WHERE status IN ('dlq', 'failed')";
        assert_eq!(number(edge, dead).await, 0, "dead letters at the edge");
        for table in ["relay_outbox", "bus_dead_letter", "ingest_rejected"] {
            let left = number(&cloud, &format!("SELECT count(*) FROM {table}")).await;
            assert_eq!(left, 0, "rows in {table}");
        }
        // A key forbids a second copy of an id at the same time; an id at two times would show here.
        let copies = "SELECT count(*) - count(DISTINCT event_id) FROM telemetry_reading";
        assert_eq!(number(&cloud, copies).await, 0, "events that are stored twice");
        assert_eq!(
            digest(&cloud, "telemetry_reading", "event_id").await,
            digest(edge, "telemetry_raw", "id").await,
            "the cloud's store has exactly the edge's readings"
        );
        // The services of the cloud count for themselves.
        let counted = "SELECT coalesce(sum(sample_count), 0)::int8 FROM kpi_minute";
        let readings = number(edge, "SELECT count(*) FROM telemetry_raw").await;
        assert_eq!(number(&cloud, counted).await, readings, "the analytics service's readings");
        let frontier =
            "SELECT concat_ws(' ', stream, epoch, acked, received, lost) FROM ledger_frontier
                        WHERE acked > 0 ORDER BY stream, epoch";
        let read = async |client: &Client| -> Vec<String> {
            let rows = client.query(frontier, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        assert_eq!(read(&cloud).await, read(edge).await, "the ledgers of edge and cloud");
        println!("cloud: {readings} readings in both stores, and the same ledger");
    }
}

/// Count and a digest of the ids of a table.
async fn digest(client: &Client, table: &str, id: &str) -> (i64, Option<String>) {
    let sql =
        format!("SELECT count(*), md5(string_agg({id}::text, ',' ORDER BY {id})) FROM {table}");
    let row = client.query_one(&sql, &[]).await.unwrap();
    (row.get(0), row.get(1))
}
