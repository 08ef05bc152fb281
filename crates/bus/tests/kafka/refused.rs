//! Messages and topics that a broker refuses, and what an operator sees.

use bus::kafka::{
    ConsumerOptions, DeadLetterTopic, KafkaConsumer, KafkaPublisher, PublisherOptions, admin,
};
use bus::{About, Cause, Consumer as _, Filter, Message, Metrics, PublishError, Publisher as _};
use metrics_exporter_prometheus::PrometheusBuilder;
use std::sync::Arc;

use crate::world::{LONG, Site, next, publish_all};

#[tokio::test]
async fn a_message_that_is_too_large_is_to_blame_alone() {
    let Some(site) = Site::shared(1).await else { return };
    let small =
        [admin::TopicSpec::new(&site.topic, 1, 1).set("max.message.bytes", "20000".to_owned())];
    admin::apply(&site.cluster, &small).await.unwrap();
    let publisher = site.publisher();
    let sized =
        |n: usize, bytes: usize| Message { body: vec![b'x'; bytes].into(), ..site.message(n, 1) };
    // Together they are more than the topic takes in one request, and one is more by itself; one is more than we take.
    let mut batch: Vec<Message> = (0..40).map(|n| sized(n, 1000)).collect();
    batch.insert(20, sized(100, 30_000));
    batch.insert(30, sized(101, 1 << 20));
    let results = publisher.publish(batch).await;
    for (at, result) in results.iter().enumerate() {
        match at {
            20 => assert!(
                matches!(result, Err(PublishError::Rejected { what: "body", .. })),
                "{result:?}"
            ),
            30 => assert!(matches!(result, Err(PublishError::TooLarge { .. })), "{result:?}"),
            _ => assert_eq!(*result, Ok(()), "{at}"),
        }
    }
    assert_eq!(results[20].clone().unwrap_err().about(), About::Message);
}

#[tokio::test]
async fn a_topic_that_is_not_there_is_our_fault() {
    let Some(site) = Site::shared(1).await else { return };
    let publisher = site.publisher();
    let elsewhere = Message { exchange: format!("{}-nowhere", site.topic), ..site.message(1, 1) };
    let no_name = Message { exchange: "no topic".to_owned(), ..site.message(2, 1) };
    let results = publisher.publish(vec![site.message(0, 1), elsewhere, no_name]).await;
    assert_eq!(results[0], Ok(()));
    assert!(
        matches!(&results[1], Err(PublishError::NoTopic(topic)) if topic.contains("nowhere")),
        "{results:?}"
    );
    assert_eq!(results[1].clone().unwrap_err().about(), About::Us);
    assert_eq!(results[2].clone().unwrap_err().about(), About::Message);
    let lost = Site { topic: format!("{}-nowhere", site.topic), ..site.clone() };
    let mut consumer = lost.consumer();
    let error = tokio::time::timeout(LONG, consumer.next()).await.unwrap().unwrap_err();
    assert_eq!(error.about(), About::Us, "{error}");
}

#[tokio::test]
async fn a_dead_letter_tells_where_its_original_is_and_everything_is_counted() {
    let Some(site) = Site::shared(1).await else { return };
    let recorder = PrometheusBuilder::new().build_recorder();
    let (metrics, handle) = (Metrics::new(&recorder), recorder.handle());
    let options = PublisherOptions { metrics: metrics.clone(), ..Default::default() };
    let publisher = Arc::new(KafkaPublisher::new(site.cluster.clone(), options));
    publish_all(&publisher, (0..3).map(|n| site.message(n, 1))).await;
    let options = ConsumerOptions { metrics, ..Default::default() };
    let mut consumer = KafkaConsumer::new(&site.cluster, site.group(), publisher, options);
    let mut settled = 0;
    while settled < 3 {
        let mut batch = next(&mut consumer).await;
        for at in 0..batch.len() {
            match (
                batch.deliveries()[at].message.message_id.as_str(),
                batch.deliveries()[at].attempts,
            ) {
                ("id-0", 0) => batch.retry(at, Cause::new("not_yet", "once more")),
                ("id-1", _) => batch.dead_letter(at, Cause::new("invalid", "never")),
                _ => {}
            }
        }
        let committed = batch.commit().await.unwrap();
        settled += committed.done + committed.dead_lettered;
    }
    let letters = DeadLetterTopic::new(site.cluster.clone(), &site.dlq);
    let mut listed = letters.list(&Filter::default(), 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    let (letter, position) = listed.pop().unwrap();
    let position = position.unwrap();
    assert_eq!(
        (&*position.topic, position.partition, position.offset),
        (site.topic.as_str(), 0, 1)
    );
    assert_eq!(letter.message, site.message(1, 1));
    assert_eq!((letter.cause, letter.attempts), (Cause::new("invalid", "never"), 1));
    assert_eq!(letter.queue, Some(site.group.clone()));
    let other = Filter { cause_code: Some("other".to_owned()), ..Filter::default() };
    assert!(letters.list(&other, 10).await.unwrap().is_empty());
    let text = handle.render();
    for line in [
        "holdfast_bus_published_total{outcome=\"confirmed\"} 3",
        "holdfast_bus_consumed_total 4",
        "holdfast_bus_settled_total{outcome=\"done\"} 2",
        "holdfast_bus_settled_total{outcome=\"retried\"} 1",
        "holdfast_bus_settled_total{outcome=\"dead_lettered\"} 1",
        "holdfast_bus_in_flight 0",
    ] {
        assert!(text.lines().any(|said| said == line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn without_a_dead_letter_topic_a_message_is_kept_and_comes_again() {
    let Some(site) = Site::shared(1).await else { return };
    publish_all(&site.publisher(), [site.message(0, 1)]).await;
    let mut group = site.group();
    group.dead_letter_topic = format!("{}-nowhere", site.dlq);
    let options = ConsumerOptions { copy_within: std::time::Duration::ZERO, ..Default::default() };
    let mut consumer = KafkaConsumer::new(&site.cluster, group, site.publisher(), options);
    let mut batch = next(&mut consumer).await;
    batch.dead_letter(0, Cause::new("invalid", "never"));
    let committed = batch.commit().await.unwrap();
    assert_eq!((committed.returned, committed.dead_lettered), (1, 0));
    let again = next(&mut consumer).await;
    assert!(again.deliveries()[0].redelivered);
    assert_eq!((again.deliveries()[0].attempts, again.commit().await.unwrap().done), (0, 1));
}
