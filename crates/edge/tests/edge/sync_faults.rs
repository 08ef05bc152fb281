//! The forwarder and the real cloud through faults: lost replies, databases that die, limits, poison, replicas.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use api::tokens::Tenants;
use cloud::Cloud;
use edge::ingress::{Incoming, Writer};
use edge::metrics::Metrics;
use edge::sync::Forwarder;
use event::id::TenantId;
use testkit::eventually;
use testkit::rig::{Link, Mode, Postgres, PostgresOptions};

use crate::site::{LONG, Sender, Site, config, enroll, migrate, number};
use crate::sync::all_are;
use crate::sync_cloud::{forward, sync_config};
use crate::sync_real::{RealCloud, cloud_config, has_once, token};

const ATTEMPTS: &str = "SELECT coalesce(sum(attempt_count), 0)::bigint FROM sync_outbox";
const OPEN: &str = "SELECT count(*) FROM sync_outbox WHERE status NOT IN ('acked', 'dlq')";

async fn fill(site: &Site, nodes: u64, rows: u64) {
    for n in 1..=nodes {
        let node = site.enroll(&format!("barn-{n}")).await;
        site.ingest(&[node.batch(&node.readings(1..=rows), &[])]).await;
    }
}

/// A counter of a forwarder.
fn counted(metrics: &Metrics, line: &str) -> u64 {
    let text = metrics.render();
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_lost_on_the_way_stores_the_event_once_and_acks_it_as_a_duplicate() {
    let cloud = RealCloud::start("sync_reply_cloud", &[]).await;
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("sync_reply_edge").await;
    fill(&site, 2, 50).await;
    let link = Link::start(cloud.replicas[0].http()).await.unwrap();
    link.set(Mode::DropDown);
    let url = format!("http://{}", link.addr());
    let pairs = [("SYNC_TOKEN", token.as_str()), ("SYNC_TIMEOUT", "1s")];
    let metrics = Arc::new(Metrics::new());
    let sync = sync_config(&site, &url, &pairs);
    let replica = "edge-1".parse().unwrap();
    let forwarder =
        Forwarder::start(&site.config.database, &sync, &replica, Arc::clone(&metrics)).unwrap();
    let store = cloud.client().await;
    let stored = "SELECT coalesce(sum(accepted_count), 0)::bigint FROM ledger_frontier";
    eventually(LONG, "the cloud has them", async || number(&store, stored).await == 100)
        .await
        .unwrap();
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox WHERE status = 'acked'").await, 0);
    link.set(Mode::Pass);
    all_are(&site, "acked").await;
    cloud.has_once(100).await;
    assert!(counted(&metrics, "holdfast_sync_events_total{outcome=\"duplicate\"}") >= 100);
    assert_eq!(site.number(ATTEMPTS).await, 0, "a lost reply burns no attempt");
    forwarder.stop().await;
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_poison_event_in_a_thousand_is_dead_and_the_others_are_there() {
    let cloud = RealCloud::start("sync_poison_cloud", &[]).await;
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("sync_poison_edge").await;
    fill(&site, 4, 250).await;
    // The edge would not have taken it: another service of the site wrote it.
    let poison =
        "UPDATE sync_outbox SET payload_json = payload_json || '{\"metric_value\": \"warm\"}'
        WHERE stream = 'barn-3' AND seq = 77";
    assert_eq!(site.client().await.execute(poison, &[]).await.unwrap(), 1);
    let forwarder =
        forward(&site, &sync_config(&site, &cloud.url(), &[("SYNC_TOKEN", &token)]), "edge-1");
    all_are(&site, "acked dlq").await;
    forwarder.stop().await;
    cloud.has_once(999).await;
    let dead = "SELECT stream || seq || ' ' || dlq_reason || ' ' || last_error_code || ' ' || attempt_count
        || ' ' || (failed_at IS NOT NULL) || ' ' || last_error_message FROM sync_outbox WHERE status = 'dlq'";
    let said = site.text(dead).await;
    assert!(said.starts_with("barn-377 invalid REJECTED 1 true "), "{said}");
    assert!(said.contains("payload.metric_value"), "{said}");
    assert_eq!(site.number(ATTEMPTS).await, 1, "its neighbours pay nothing");
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clouds_limits_split_the_body_and_slow_the_forwarder_down() {
    let pairs = [("LIMITS_EVENTS", "40"), ("RATE_REQUESTS_PER_SECOND", "4")];
    let cloud = RealCloud::start("sync_limits_cloud", &pairs).await;
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("sync_limits_edge").await;
    fill(&site, 4, 100).await;
    let pairs = [("SYNC_TOKEN", token.as_str()), ("SYNC_BATCH_EVENTS", "400")];
    let sync = sync_config(&site, &cloud.url(), &pairs);
    let (metrics, replica) = (Arc::new(Metrics::new()), "edge-1".parse().unwrap());
    let forwarder =
        Forwarder::start(&site.config.database, &sync, &replica, Arc::clone(&metrics)).unwrap();
    all_are(&site, "acked").await;
    forwarder.stop().await;
    cloud.has_once(400).await;
    for answer in ["too_large", "rate_limited"] {
        let line = format!("holdfast_sync_requests_total{{answer=\"{answer}\"}}");
        assert!(counted(&metrics, &line) > 0, "{answer}");
    }
    assert_eq!(site.number(ATTEMPTS).await, 0);
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_forwarders_and_two_ingestions_with_links_that_break_lose_and_double_nothing() {
    let mut cloud = RealCloud::start("sync_pairs_cloud", &[]).await;
    cloud.add_replica().await;
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("sync_pairs_edge").await;
    fill(&site, 8, 150).await;
    let (mut links, mut forwarders) = (Vec::new(), Vec::new());
    for (n, replica) in cloud.replicas.iter().enumerate() {
        let link = Link::start(replica.http()).await.unwrap();
        let url = format!("http://{}", link.addr());
        let pairs =
            [("SYNC_TOKEN", token.as_str()), ("SYNC_BATCH_EVENTS", "20"), ("SYNC_TIMEOUT", "1s")];
        forwarders.push(forward(&site, &sync_config(&site, &url, &pairs), &format!("edge-{n}")));
        links.push(link);
    }
    for round in 0..6 {
        let link = &links[round % 2];
        let before = link.stats().up_bytes;
        link.set([Mode::Cut, Mode::DropDown, Mode::DropUp][round % 3]);
        let other = &links[(round + 1) % 2];
        other.set(Mode::Pass);
        // Something must have met the fault, or all is done.
        eventually(LONG, "the fault is met", async || {
            let lost = link.stats().lost_bytes > 0 || link.stats().up_bytes > before;
            let cut = round % 3 == 0 && link.stats().connections > 0;
            lost || cut || site.number(OPEN).await == 0
        })
        .await
        .unwrap();
    }
    for link in &links {
        link.set(Mode::Pass);
    }
    all_are(&site, "acked").await;
    cloud.has_once(1_200).await;
    assert_eq!(site.number(ATTEMPTS).await, 0);
    for forwarder in forwarders {
        forwarder.stop().await;
    }
    cloud.stop().await;
}

/// A server that can be killed without harm to other tests.
async fn private() -> (tempfile::TempDir, Postgres) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let options = PostgresOptions { durable: true, ..PostgresOptions::default() };
    let server = Postgres::start(folder.path(), options).await.unwrap();
    (folder, server)
}

async fn connect(url: &str) -> tokio_postgres::Client {
    pg::connect(&pg::Options::new(url)).await.unwrap()
}

/// A site whose server is its own.
struct Private {
    url: String,
    writer: Writer,
    node: Sender,
}

impl Private {
    async fn new(server: &Postgres) -> Private {
        let url = server.url("postgres");
        migrate(url.clone()).await.unwrap();
        let config = config(&url, &[]);
        let node = enroll(&config, "barn-1", TenantId::mint()).await;
        let pool = pg::Pool::new(&config.database).unwrap();
        Private { url, writer: Writer::new(pool, Metrics::new().into()), node }
    }

    async fn ingest(&self, messages: &[Incoming]) {
        self.writer.ingest(messages).await.unwrap();
    }

    async fn acked(&self, at_least: i64) {
        let query =
            "SELECT count(*) FROM sync_outbox WHERE status = 'acked' AND stream IS NOT NULL";
        eventually(LONG, "rows are acked", async || {
            let acked = number(&connect(&self.url).await, query).await;
            if acked >= at_least { Ok(()) } else { Err(acked) }
        })
        .await
        .unwrap();
    }
}

const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND application_name LIKE 'holdfast%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn databases_that_die_in_the_middle_of_a_batch_lose_and_double_nothing() {
    let ((_a, mut here), (_b, mut there)) = tokio::join!(private(), private());
    let site = Private::new(&here).await;
    let there_url = there.url("postgres");
    cloud::migrate(&pg::Options::new(&there_url)).await.unwrap();
    let token = token(&connect(&there_url).await, Tenants::All).await;
    // The token comes from the cloud's configuration of names, so ingestion says who it is in its connections.
    let cloud = Cloud::start(cloud_config(&there_url, &[])).await.unwrap();
    let rows = 1_500;
    for first in (1..=rows).step_by(500) {
        let readings = site.node.readings(first..first + 500);
        site.ingest(&[site.node.batch(&readings, &[])]).await;
    }
    let url = format!("http://{}", cloud.http());
    let pairs = [
        ("SYNC_CLOUD_URL", url.as_str()),
        ("SYNC_TOKEN", token.as_str()),
        ("SYNC_BACKOFF_BASE", "10ms"),
        ("SYNC_BACKOFF_CAP", "200ms"),
        ("SYNC_BATCH_EVENTS", "25"),
        ("SYNC_LEASE_SECONDS", "3"),
        ("SYNC_TIMEOUT", "5s"),
    ];
    let config = config(&site.url, &pairs);
    let (metrics, replica) = (Arc::new(Metrics::new()), "edge-1".parse().unwrap());
    let sync = config.sync.unwrap();
    let forwarder = Forwarder::start(&config.database, &sync, &replica, metrics).unwrap();
    site.acked(50).await;
    here.kill().await.unwrap();
    here.restart().await.unwrap();
    site.acked(300).await;
    there.kill().await.unwrap();
    there.restart().await.unwrap();
    site.acked(600).await;
    for url in [&site.url, &there_url] {
        assert!(number(&connect(url).await, TERMINATE).await > 0, "there was somebody to end");
    }
    site.acked(i64::try_from(rows).unwrap()).await;
    has_once(&connect(&there_url).await, i64::try_from(rows).unwrap()).await;
    let dead = "SELECT count(*) FROM sync_outbox WHERE status IN ('dlq', 'failed')";
    assert_eq!(number(&connect(&site.url).await, dead).await, 0);
    forwarder.stop().await;
    tokio::time::timeout(Duration::from_secs(60), cloud.stop()).await.unwrap();
}
