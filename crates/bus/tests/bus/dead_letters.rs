//! The dead-letter queue as an operator works with it.

use std::time::Duration;

use bus::rabbitmq::{DeadLetterQueue, ReplayOptions, TopologyError};
use bus::{Cause, Filter, by_cause, export_line};
use tokio::time::Instant;

use crate::recovery::{Site, consumer, publish_all, publisher, site};
use crate::world::{ATTEMPTS, INGEST, TELEMETRY_DLQ, body, drain, message, next};

/// Ten messages, of which every third is invalid and number 5 is poison.
async fn with_dead_letters() -> (Site, DeadLetterQueue) {
    let site = site().await;
    let publisher = publisher(&site.direct);
    publish_all(&publisher, 0..10).await;
    let mut consumer = consumer(&site.direct, &publisher);
    drain(&mut consumer, 10, |batch, at| {
        let id = batch.deliveries()[at].message.message_id.clone();
        let n: usize = id.strip_prefix("id-").unwrap().parse().unwrap();
        if n.is_multiple_of(3) {
            batch.dead_letter(at, Cause::new("invalid", "no unit"));
        } else if n == 5 {
            batch.retry(at, Cause::new("poison", "it always fails"));
        }
    })
    .await;
    let queue = DeadLetterQueue::new(site.direct.clone(), TELEMETRY_DLQ);
    (site, queue)
}

fn by_code(code: &str) -> Filter {
    Filter { cause_code: Some(code.to_owned()), ..Filter::default() }
}

#[tokio::test]
async fn looking_takes_nothing_away_and_groups_by_cause() {
    let (_site, queue) = with_dead_letters().await;
    let listing = queue.list(&Filter::default(), 100).await.unwrap();
    assert_eq!((listing.scanned, listing.total), (5, 5));
    let ids = |listing: &bus::rabbitmq::Listing| {
        listing.letters.iter().map(|l| l.message.message_id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&listing), ["id-0", "id-3", "id-6", "id-9", "id-5"]);
    // Far more often than a default delivery limit would bear.
    for _ in 0..25 {
        assert_eq!(queue.list(&Filter::default(), 3).await.unwrap().letters.len(), 3);
    }
    let again = queue.list(&Filter::default(), 100).await.unwrap();
    let (mut before, mut after) = (ids(&listing), ids(&again));
    before.sort_unstable();
    after.sort_unstable();
    assert_eq!(before, after);

    let groups: Vec<_> = by_cause(&again.letters)
        .into_iter()
        .map(|group| (group.cause_code, group.count, group.queue))
        .collect();
    let ingest = Some(INGEST.to_owned());
    assert_eq!(
        groups,
        [("invalid".to_owned(), 4, ingest.clone()), ("poison".to_owned(), 1, ingest)]
    );
    let poison = queue.show("id-5").await.unwrap().unwrap();
    assert_eq!(poison.message, message(5));
    assert_eq!(poison.attempts, ATTEMPTS);
    // The broker's own record: one pass through each of the two retry queues.
    let mut deaths: Vec<_> = poison
        .deaths
        .iter()
        .map(|death| (death.queue.as_str(), death.reason.as_str(), death.count))
        .collect();
    deaths.sort_unstable();
    assert_eq!(
        deaths,
        [
            ("farmiq.cloud-telemetry-service.ingest-retry-150ms.queue", "expired", 1),
            ("farmiq.cloud-telemetry-service.ingest-retry-50ms.queue", "expired", 1),
        ]
    );
    assert_eq!(queue.show("id-1").await.unwrap(), None);
    let line: serde_json::Value = serde_json::from_str(&export_line(&poison).unwrap()).unwrap();
    assert_eq!(
        (line["body"].as_str(), line["attempts"].as_u64()),
        (Some(body(5).as_str()), Some(3))
    );
}

#[tokio::test]
async fn a_replay_brings_back_what_is_meant_to_the_queue_that_gave_it_up() {
    let (site, queue) = with_dead_letters().await;
    let publisher = publisher(&site.direct);
    let mut options = ReplayOptions { filter: by_code("invalid"), limit: 3, ..Default::default() };
    let dry = queue.replay(&publisher, &options).await.unwrap();
    assert_eq!(dry.replayed, ["id-0", "id-3", "id-6"]);
    assert_eq!(queue.list(&Filter::default(), 100).await.unwrap().total, 5);

    options.dry_run = false;
    let report = queue.replay(&publisher, &options).await.unwrap();
    assert_eq!(report, dry);
    let mut consumer = consumer(&site.direct, &publisher);
    let mut back = Vec::new();
    drain(&mut consumer, 3, |batch, at| {
        let delivery = &batch.deliveries()[at];
        assert_eq!(delivery.attempts, 0, "its failures are forgotten");
        back.push(delivery.message.clone());
    })
    .await;
    assert_eq!(back, [message(0), message(3), message(6)]);
    let left = queue.list(&Filter::default(), 100).await.unwrap().letters;
    assert_eq!(left.len(), 2);

    // One that fails again says that it was replayed.
    let filter = by_code("poison");
    let options = ReplayOptions { filter: filter.clone(), dry_run: false, ..Default::default() };
    assert_eq!(queue.replay(&publisher, &options).await.unwrap().replayed, ["id-5"]);
    drain(&mut consumer, 1, |batch, at| batch.dead_letter(at, Cause::new("poison", "still"))).await;
    let letter = queue.show("id-5").await.unwrap().unwrap();
    assert_eq!((letter.replayed, letter.attempts), (1, 1));
    assert_eq!(letter.message, message(5));

    // The other group stored all ten when they came, and got none of them again.
    let kpi = crate::world::topology().queues.swap_remove(1);
    let kpi_options = bus::rabbitmq::ConsumerOptions { prefetch: 100, ..Default::default() };
    let mut kpi: Box<dyn bus::Consumer> = Box::new(bus::rabbitmq::RabbitConsumer::new(
        site.direct.clone(),
        kpi,
        std::sync::Arc::clone(&publisher),
        kpi_options,
    ));
    publish_all(&publisher, 10..11).await;
    let mut seen = Vec::new();
    drain(&mut kpi, 11, |batch, at| {
        seen.push(batch.deliveries()[at].message.message_id.clone());
    })
    .await;
    assert_eq!(seen, (0..11).map(|n| format!("id-{n}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_replay_keeps_to_its_rate() {
    let (site, queue) = with_dead_letters().await;
    let publisher = publisher(&site.direct);
    let options =
        ReplayOptions { per_second: 2, dry_run: false, filter: by_code("invalid"), limit: 4 };
    let started = Instant::now();
    let report = queue.replay(&publisher, &options).await.unwrap();
    assert_eq!(report.replayed.len(), 4);
    // A rate is a promise about the least time, which no slow machine can break.
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn what_cannot_go_back_stays() {
    let (site, queue) = with_dead_letters().await;
    let publisher = publisher(&site.direct);
    site.delete_queue(INGEST).await;
    let options = ReplayOptions { dry_run: false, ..Default::default() };
    let report = queue.replay(&publisher, &options).await.unwrap();
    assert_eq!((report.replayed.len(), report.kept.len()), (0, 5));
    assert_eq!(queue.list(&Filter::default(), 100).await.unwrap().total, 5);
    site.delete_queue(TELEMETRY_DLQ).await;
    let gone = queue.list(&Filter::default(), 1).await.unwrap_err();
    assert!(matches!(gone, TopologyError::Refused { .. }), "{gone}");
}

#[tokio::test]
async fn without_a_dead_letter_queue_the_message_stays_in_its_queue() {
    let site = site().await;
    site.delete_queue(TELEMETRY_DLQ).await;
    let publisher = publisher(&site.direct);
    publish_all(&publisher, 0..2).await;
    let queue = crate::world::topology().queues.swap_remove(0);
    let options = bus::rabbitmq::ConsumerOptions {
        copy_within: Duration::from_millis(100),
        ..Default::default()
    };
    let mut consumer: Box<dyn bus::Consumer> = Box::new(bus::rabbitmq::RabbitConsumer::new(
        site.direct.clone(),
        queue,
        std::sync::Arc::clone(&publisher),
        options,
    ));
    let (mut done, mut returned) = (0, 0);
    while done + returned < 2 {
        let mut batch = next(&mut consumer).await;
        for at in 0..batch.len() {
            if batch.deliveries()[at].message.message_id == "id-0" {
                batch.dead_letter(at, Cause::new("invalid", "no unit"));
            }
        }
        let committed = batch.commit().await.unwrap();
        (done, returned) = (done + committed.done, returned + committed.returned);
    }
    assert_eq!((done, returned), (1, 1));
    let again = next(&mut consumer).await;
    assert_eq!(again.deliveries()[0].message, message(0));
    assert!(again.deliveries()[0].redelivered);
}
