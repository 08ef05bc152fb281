//! Cut links and consumers that die.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::rabbitmq::{
    Address, ConsumerOptions, DeadLetterQueue, PublisherOptions, RabbitConsumer, RabbitPublisher,
    declare,
};
use bus::{About, ConsumeError, Consumer, Filter, PublishError, Publisher};
use testkit::rig::{Link, Mode};
use tokio::time::timeout;

use crate::world::{INGEST, LONG, TELEMETRY_DLQ, drain, message, next, topology};

/// A declared virtual host, reached directly and by a link that can be cut.
pub(crate) struct Site {
    pub(crate) direct: Address,
    pub(crate) linked: Address,
    pub(crate) link: Link,
    vhost: testkit::Vhost,
}

impl Site {
    pub(crate) async fn delete_queue(&self, name: &str) {
        self.vhost.ctl(&["delete_queue", "-p", self.vhost.name(), name]).await.unwrap();
    }
}

pub(crate) async fn site() -> Site {
    let vhost = testkit::rabbitmq().await.unwrap();
    let direct = Address::parse(vhost.url()).unwrap();
    declare(&direct, &topology()).await.unwrap();
    let (credentials, rest) = vhost.url().split_once('@').unwrap();
    let (addr, name) = rest.split_once('/').unwrap();
    let link = Link::start(addr.parse().unwrap()).await.unwrap();
    let linked = Address::parse(&format!("{credentials}@{}/{name}", link.addr())).unwrap();
    Site { direct, linked, link, vhost }
}

pub(crate) fn publisher(address: &Address) -> Arc<RabbitPublisher> {
    let options = PublisherOptions {
        confirm_within: Duration::from_secs(2),
        window: 50,
        ..PublisherOptions::default()
    };
    Arc::new(RabbitPublisher::new(address.clone(), options))
}

pub(crate) fn consumer(address: &Address, copies: &Arc<RabbitPublisher>) -> Box<dyn Consumer> {
    let queue = topology().queues.swap_remove(0);
    let options = ConsumerOptions { batch: 50, prefetch: 100, ..ConsumerOptions::default() };
    Box::new(RabbitConsumer::new(address.clone(), queue, Arc::clone(copies), options))
}

/// Publishes message `n` for each in `numbers`, in batches, as the relay does: what failed for a reason of the
/// destination is published again. Returns how many were reported as failed on the way.
pub(crate) async fn publish_all(
    publisher: &RabbitPublisher,
    numbers: impl IntoIterator<Item = usize>,
) -> usize {
    let mut left: Vec<usize> = numbers.into_iter().collect();
    let mut failures = 0;
    while !left.is_empty() {
        let batch: Vec<usize> = left.drain(..left.len().min(100)).collect();
        let results = timeout(LONG, publisher.publish(batch.iter().map(|n| message(*n)).collect()));
        for (n, result) in batch.into_iter().zip(results.await.expect("results in time")) {
            if let Err(error) = result {
                assert_eq!(error.about(), About::Destination, "{error}");
                failures += 1;
                left.push(n);
            }
        }
        if failures > 0 {
            tokio::task::yield_now().await;
        }
    }
    failures
}

/// Consumes until every message up to `count` was seen, and returns how many deliveries that took.
pub(crate) async fn consume_all(consumer: &mut Box<dyn Consumer>, count: usize) -> usize {
    let mut seen = BTreeSet::new();
    let mut deliveries = 0;
    let expected: BTreeSet<String> = (0..count).map(|n| format!("id-{n}")).collect();
    while seen.len() < count {
        let missing = || expected.difference(&seen).take(20).collect::<Vec<_>>();
        let batch = timeout(LONG, consumer.next()).await;
        let batch = batch.unwrap_or_else(|_| unreachable!("missing: {:?}", missing())).unwrap();
        let ids: Vec<String> =
            batch.deliveries().iter().map(|one| one.message.message_id.clone()).collect();
        deliveries += ids.len();
        seen.extend(ids);
        // A lost commit means that they come again, which the set does not mind.
        let _ = batch.commit().await;
    }
    assert_eq!(seen, expected);
    deliveries
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_links_lose_nothing() {
    const COUNT: usize = 3000;
    let site = site().await;
    let publisher = publisher(&site.linked);
    let mut consumer = consumer(&site.linked, &publisher);
    let finished = Arc::new(AtomicBool::new(false));
    let publishing = {
        let (publisher, finished) = (Arc::clone(&publisher), Arc::clone(&finished));
        tokio::spawn(async move {
            let failures = publish_all(&publisher, 0..COUNT).await;
            finished.store(true, Ordering::Release);
            failures
        })
    };
    let consuming = tokio::spawn(async move { consume_all(&mut consumer, COUNT).await });
    let mut cuts = 0;
    while !finished.load(Ordering::Acquire) && cuts < 5 {
        let before = site.link.stats().up_bytes;
        // Cut while messages are moving.
        testkit::eventually(LONG, "bytes on the link", async || {
            finished.load(Ordering::Acquire) || site.link.stats().up_bytes > before + 50_000
        })
        .await
        .unwrap();
        site.link.set(Mode::Cut);
        site.link.set(Mode::Pass);
        cuts += 1;
    }
    let failures = publishing.await.unwrap();
    let deliveries = consuming.await.unwrap();
    assert!(cuts > 0 && failures > 0, "{cuts} cuts, {failures} failures: nothing was tried");
    assert!(deliveries >= COUNT);
}

#[tokio::test]
async fn a_lost_confirm_is_reported_and_the_message_is_there() {
    let site = site().await;
    let publisher = publisher(&site.linked);
    assert_eq!(publish_all(&publisher, 0..1).await, 0);
    site.link.set(Mode::DropDown);
    let results = publisher.publish(vec![message(1)]).await;
    assert!(matches!(results[..], [Err(PublishError::Unconfirmed(_))]), "{results:?}");
    site.link.set(Mode::Cut);
    let results = publisher.publish(vec![message(1)]).await;
    assert!(matches!(results[..], [Err(PublishError::Unreachable(_))]), "{results:?}");
    site.link.set(Mode::Pass);
    // Published again by its owner, so it is there twice, and never not at all.
    publish_all(&publisher, 1..2).await;
    let direct = self::publisher(&site.direct);
    let mut consumer = consumer(&site.direct, &direct);
    let mut ids = Vec::new();
    drain(&mut consumer, 3, |batch, at| {
        ids.push(batch.deliveries()[at].message.message_id.clone());
    })
    .await;
    assert_eq!(ids, ["id-0", "id-1", "id-1"]);
}

#[tokio::test]
async fn a_consumer_that_dies_between_store_and_commit_leaves_its_messages() {
    let site = site().await;
    let publisher = publisher(&site.direct);
    publish_all(&publisher, 0..10).await;
    let mut dying = consumer(&site.linked, &publisher);
    let batch = next(&mut dying).await;
    assert!(batch.deliveries().iter().all(|delivery| !delivery.redelivered));
    let stored: Vec<String> =
        batch.deliveries().iter().map(|one| one.message.message_id.clone()).collect();
    // The link dies with the batch in hand: its commit is not believed, and the messages come again.
    site.link.set(Mode::Cut);
    testkit::eventually(LONG, "the cut", async || site.link.stats().open == 0).await.unwrap();
    let mut other = consumer(&site.direct, &publisher);
    let again = next(&mut other).await;
    assert_eq!(again.deliveries()[0].message.message_id, stored[0]);
    assert!(again.deliveries()[0].redelivered);
    assert_eq!(batch.commit().await, Err(ConsumeError::Lost));
    let rest = 10 - again.commit().await.unwrap().done;
    if rest > 0 {
        drain(&mut other, rest, |_, _| {}).await;
    }
}

#[tokio::test]
async fn a_message_that_kills_its_consumer_reaches_the_dead_letters_and_can_be_replayed() {
    let site = site().await;
    let publisher = publisher(&site.direct);
    publish_all(&publisher, 0..1).await;
    let queue = DeadLetterQueue::new(site.direct.clone(), TELEMETRY_DLQ);
    let mut deaths = 0;
    let mut killed = consumer(&site.direct, &publisher);
    let letter = loop {
        // Dropped without a verdict, as by a crash.
        match timeout(Duration::from_secs(2), killed.next()).await {
            Ok(batch) => drop(batch.unwrap()),
            Err(_) => {
                let mut letters = queue.list(&Filter::default(), 10).await.unwrap().letters;
                if let Some(letter) = letters.pop() {
                    break letter;
                }
            }
        }
        deaths += 1;
        assert!(deaths < 60, "it was never given up");
    };
    assert_eq!(letter.cause.code, "delivery_limit");
    assert_eq!(letter.queue.as_deref(), Some(INGEST));
    assert_eq!(letter.message, message(0));
    assert_eq!(letter.deaths[0].reason, "delivery_limit");
    let options = bus::rabbitmq::ReplayOptions { dry_run: false, ..Default::default() };
    let report = queue.replay(&publisher, &options).await.unwrap();
    assert_eq!(report.replayed, ["id-0"]);
    let back = next(&mut killed).await;
    assert_eq!(back.deliveries()[0].message, message(0));
    assert_eq!(back.commit().await.unwrap().done, 1);
}

#[tokio::test]
async fn a_queue_or_exchange_that_is_not_there_is_said_at_once() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let address = Address::parse(vhost.url()).unwrap();
    let publisher = publisher(&address);
    let mut consumer = consumer(&address, &publisher);
    let error = timeout(LONG, consumer.next()).await.unwrap().unwrap_err();
    assert_eq!(error.about(), About::Us);
    assert!(error.to_string().contains(INGEST), "{error}");
    let error = publisher.publish(vec![message(0)]).await.remove(0).unwrap_err();
    assert_eq!(error.about(), About::Us);
    assert!(error.to_string().contains("farmiq.telemetry.exchange"), "{error}");
}
