//! From HTTP to a consumer's store over RabbitMQ, while links are cut and the broker restarts.

use cloud::{Cloud, Work, topology};
use event::id::{DeviceId, Epoch};
use serde_json::{Value, json};
use testkit::eventually;
use testkit::rig::{Link, Mode};

use crate::relay::{ids, outbox_is_empty, readings, ready};
use crate::site::{LONG, Site, bare, batch, config, post};
use crate::wiring::{Store, analytics, telemetry};

const RABBITMQ: (&str, &str) = ("BUS", "rabbitmq");

/// A link to a broker, and its address by that link.
async fn linked(url: &str) -> (Link, String) {
    let (credentials, rest) = url.split_once('@').unwrap();
    let (addr, vhost) = rest.split_once('/').unwrap();
    let link = Link::start(addr.parse().unwrap()).await.unwrap();
    let by_link = format!("{credentials}@{}/{vhost}", link.addr());
    (link, by_link)
}

async fn send(cloud: &Cloud, token: &str, events: &[Value]) {
    let body = batch(events.to_vec()).to_string();
    let answer = post(cloud).bearer_auth(token).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_ingestions_two_relays_cut_links_and_lost_confirms_store_each_event_once_in_order() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let (link, by_link) = linked(vhost.url()).await;
    let (store, other) = (Store::default(), Store::default());
    let works = || vec![store.work(telemetry()), other.work(analytics())];
    let pairs =
        |url, roles| [RABBITMQ, ("RABBITMQ_URL", url), ("ROLES", roles), ("RELAY_BATCH", "50")];
    let site = Site::with_works("relay_two", &pairs(&by_link, "ingestion,relay"), works()).await;
    let start = async |url, roles| {
        let config = config(site.database.url(), &pairs(url, roles));
        Cloud::start_with(config, works()).await.unwrap()
    };
    let second = start(&by_link, "ingestion,relay").await;
    let consumers = start(vhost.url(), "telemetry,analytics").await;
    let refused = post(&consumers).bearer_auth(&site.token).send().await.unwrap();
    assert_eq!(refused.status(), 404, "a process without the role takes no batches");

    let devices: Vec<DeviceId> = (0..9).map(|_| DeviceId::mint()).collect();
    let mut events = readings(&site, &devices, Epoch::mint(), 1, 999);
    let expected = ids(&events);
    // The broker returns it: the exchange is there, and no queue wants the type.
    let mut poison = site.reading();
    poison["event_type"] = json!("sync.batch.sent");
    poison["payload"] =
        json!({"batch_id": "batch-1", "event_count": 1, "edge_cluster_id": "edge-1"});
    events.insert(700, bare(poison));
    for (n, part) in events.chunks(125).enumerate() {
        let to = if n % 2 == 0 { &site.cloud } else { &second };
        // The confirms of what is published now are lost, or the messages; then the links are cut.
        let loses = match n {
            2 => Some((Mode::DropDown, 0)),
            4 | 6 => Some((Mode::DropUp, 5_000)),
            _ => None,
        };
        if let Some((mode, least)) = loses {
            outbox_is_empty(&site).await;
            link.set(mode);
            let lost = link.stats().lost_bytes;
            send(to, &site.token, part).await;
            let gone = async || link.stats().lost_bytes > lost + least;
            eventually(LONG, "bytes are lost", gone).await.unwrap();
            link.set(Mode::Cut);
            link.set(Mode::Pass);
            continue;
        }
        let before = link.stats().up_bytes;
        send(to, &site.token, part).await;
        if n % 3 == 1 {
            let moving = async || link.stats().up_bytes > before + 5_000;
            eventually(LONG, "messages are moving", moving).await.unwrap();
            link.set(Mode::Cut);
            link.set(Mode::Pass);
        }
    }
    store.has(999).await;
    other.has(999).await;
    assert!(store.by_key() == expected && other.by_key() == expected, "in order for each key");
    outbox_is_empty(&site).await;
    let dead = "SELECT event_type || ' ' || dlq_reason || ' ' || attempt_count FROM relay_outbox";
    assert_eq!(site.text(dead).await, "sync.batch.sent unroutable 1");
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 1);
    for cloud in [second, consumers, site.cloud] {
        cloud.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_confirm_is_lost_is_published_again_and_stored_once() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let (link, by_link) = linked(vhost.url()).await;
    let store = Store::default();
    let works = || vec![store.work(telemetry())];
    let pairs =
        |url, roles| [RABBITMQ, ("RABBITMQ_URL", url), ("ROLES", roles), ("RELAY_SLOTS", "1")];
    let site =
        Site::with_works("relay_confirm", &pairs(&by_link, "ingestion,relay"), works()).await;
    let config = config(site.database.url(), &pairs(vhost.url(), "telemetry"));
    let consumers = Cloud::start_with(config, works()).await.unwrap();
    // The first one leaves an open channel behind, so that nothing but a confirm can be lost.
    site.statuses(&batch(vec![bare(site.reading())])).await;
    store.has(1).await;
    outbox_is_empty(&site).await;
    link.set(Mode::DropDown);
    site.statuses(&batch(vec![bare(site.reading())])).await;
    store.has(2).await;
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 1, "it has no confirm");
    assert_eq!(site.number(crate::relay::HELD).await, 1);
    link.set(Mode::Cut);
    link.set(Mode::Pass);
    outbox_is_empty(&site).await;
    eventually(LONG, "it came again", async || store.deliveries() == 3).await.unwrap();
    assert_eq!(store.len(), 2);
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 0);
    for cloud in [consumers, site.cloud] {
        cloud.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_broker_restarts_ingestion_goes_on_and_says_that_it_is_not_ready() {
    let mut broker = testkit::private_rabbitmq().await.unwrap();
    let url = broker.url("/");
    let store = Store::default();
    let roles = ("ROLES", "ingestion,relay,telemetry");
    let pairs = [RABBITMQ, ("RABBITMQ_URL", url.as_str()), roles, ("RELAY_BATCH", "20")];
    let site = Site::with_works("relay_restart", &pairs, vec![store.work(telemetry())]).await;
    eventually(LONG, "ready", async || ready(&site.cloud).await.0 == 200).await.unwrap();
    let devices: Vec<DeviceId> = (0..5).map(|_| DeviceId::mint()).collect();
    let events = readings(&site, &devices, Epoch::mint(), 1, 1_500);
    send(&site.cloud, &site.token, &events[..1_000]).await;
    eventually(LONG, "some got through", async || store.len() > 50).await.unwrap();
    broker.stop().await.unwrap();
    eventually(LONG, "it is not ready", async || {
        let (status, text) = ready(&site.cloud).await;
        if status == 503 && text.contains("bus: cannot be reached") { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    // What is sent meanwhile is taken, from whom it may be.
    send(&site.cloud, &site.token, &events[1_000..]).await;
    let stranger = post(&site.cloud).body("{}").send().await.unwrap();
    assert_eq!(stranger.status(), 401);
    broker.restart().await.unwrap();
    store.has(1_500).await;
    assert!(store.by_key() == ids(&events), "in order for each key");
    outbox_is_empty(&site).await;
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 0, "no dead letter");
    eventually(LONG, "ready", async || ready(&site.cloud).await.0 == 200).await.unwrap();
    site.cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_topology_the_relay_holds_and_goes_on_when_it_is_declared() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let store = Store::default();
    let works: Vec<Work> = vec![store.work(telemetry())];
    let roles = ("ROLES", "ingestion,relay,telemetry");
    let pairs = [RABBITMQ, ("RABBITMQ_URL", vhost.url()), roles, ("BUS_DECLARE", "false")];
    let site = Site::with_works("relay_undeclared", &pairs, works).await;
    site.statuses(&batch(vec![bare(site.reading())])).await;
    eventually(LONG, "it says what to do", async || {
        let (status, text) = ready(&site.cloud).await;
        if status == 503 && text.contains("declare the topology") { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    let untouched = "SELECT count(*) FROM relay_outbox WHERE NOT finished AND attempt_count = 0";
    assert_eq!(site.number(untouched).await, 1);
    let address = bus::rabbitmq::Address::parse(vhost.url()).unwrap();
    let topology = topology(&[telemetry()]).unwrap();
    bus::rabbitmq::declare(&address, &topology).await.unwrap();
    store.has(1).await;
    eventually(LONG, "ready", async || ready(&site.cloud).await.0 == 200).await.unwrap();
    site.cloud.stop().await;
}
