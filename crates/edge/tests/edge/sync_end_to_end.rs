//! The forwarder against the real cloud: what the edge has, the cloud has, once.

use cloud::tokens::{self, NewToken, Role, Tenants};
use testkit::eventually;

use crate::site::{LONG, Site, gap, number};
use crate::sync::{alarm, all_are};
use crate::sync_cloud::{forward, sync_config};

async fn migrate(url: String) -> Result<(), pg::Error> {
    cloud::migrate(&pg::Options::new(url)).await
}

fn cloud_config(url: &str) -> cloud::Config {
    cloud::Config::load(None, |name| match name.strip_prefix("HOLDFAST_CLOUD_")? {
        "DATABASE_URL" => Some(url.to_owned()),
        "HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
        _ => None,
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_the_edge_has_the_cloud_has_once() {
    let database = testkit::database("sync_real_cloud", "cloud", migrate).await.unwrap();
    let config = cloud_config(database.url());
    let cloud = cloud::Cloud::start(config).await.unwrap();
    let url = format!("http://{}", cloud.http());
    let store = database.connect().await.unwrap();

    let site = Site::new("sync_real_edge").await;
    let (ours, foreign) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    let new = NewToken {
        name: "site".to_owned(),
        role: Role::Edge,
        tenants: Tenants::Only(vec![ours.tenant]),
        expires_at: None,
    };
    let (_, token) = tokens::create(&store, &new).await.unwrap();
    site.ingest(&[ours.batch(&ours.readings(6..=400), &[gap(1, 5)])]).await;
    let (_, event) = alarm(&ours);
    site.ingest(&[ours.batch(&[(401, event)], &[]), foreign.batch(&foreign.readings([1]), &[])])
        .await;

    // Without a valid token nothing moves, and nothing is lost by it.
    let locked_out = forward(&site, &sync_config(&site, &url, &[]), "edge-1");
    let down = "SELECT count(*) FROM sync_state WHERE consecutive_failures > 0";
    eventually(LONG, "the cloud refuses", async || site.number(down).await > 0).await.unwrap();
    locked_out.stop().await;
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox WHERE status = 'pending'").await, 397);

    let pair = [("SYNC_TOKEN", token.expose()), ("SYNC_BATCH_EVENTS", "100")];
    let sync = sync_config(&site, &url, &pair);
    let forwarders = [forward(&site, &sync, "edge-1"), forward(&site, &sync, "edge-2")];
    all_are(&site, "acked dlq").await;
    let unsent = "SELECT count(*) FROM ledger_tombstone WHERE sent_at IS NULL";
    eventually(LONG, "tombstones are told", async || site.number(unsent).await == 0).await.unwrap();
    for forwarder in forwarders {
        forwarder.stop().await;
    }
    let dead = "SELECT (tenant_id, dlq_reason)::text FROM sync_outbox WHERE status = 'dlq'";
    assert_eq!(site.text(dead).await, format!("({},tenant_forbidden)", foreign.tenant));

    let acked = site.number("SELECT count(*) FROM sync_outbox WHERE status = 'acked'").await;
    let relayed = "SELECT count(*) FROM relay_outbox";
    assert_eq!(number(&store, relayed).await, acked);
    let frontier = "SELECT acked FROM ledger_frontier WHERE stream = 'barn-1'";
    assert_eq!(number(&store, frontier).await, 401, "received and lost make a whole");
    cloud.stop().await;
}
