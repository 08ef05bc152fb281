//! What waits for a group, and whether somebody is there to take it.

use std::sync::Arc;

use bus::rabbitmq::{
    Address, DepthProbe, PublisherOptions, RabbitPublisher, TopologyError, declare,
};
use bus::{Binding, Consumer, Depth, Publisher, inline};

use crate::world::{INGEST, KPI, Kept, LONG, TELEMETRY, message, topology};

fn depth(name: &str, waiting: u64, consumers: u64) -> Depth {
    Depth { name: name.to_owned(), waiting, consumers: Some(consumers) }
}

#[tokio::test]
async fn the_inline_bus_counts_what_a_group_has_not_settled() {
    let mut bus = inline::Bus::new(inline::Options::default(), Arc::new(Kept::default()));
    let mut group = bus.group("store", vec![Binding::new(TELEMETRY, "#")]);
    let bus = Arc::new(bus);
    assert_eq!(bus.depths(), [depth("store", 0, 1)]);
    let publishing = Arc::clone(&bus);
    let published =
        tokio::spawn(async move { publishing.publish((0..3).map(message).collect()).await });
    let there = async || bus.depths() == [depth("store", 3, 1)];
    testkit::eventually(LONG, "three wait", there).await.unwrap();
    let batch = group.next().await.unwrap();
    assert_eq!(bus.depths(), [depth("store", 3, 1)], "what is in hand is not settled");
    batch.commit().await.unwrap();
    assert!(published.await.unwrap().iter().all(Result::is_ok));
    assert_eq!(bus.depths(), [depth("store", 0, 1)]);
    drop(group);
    assert_eq!(bus.depths(), [depth("store", 0, 0)], "nobody is there");
}

#[tokio::test]
async fn a_broker_says_what_waits_in_each_queue_and_who_consumes_it() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let address = Address::parse(vhost.url()).unwrap();
    let queues = vec![INGEST.to_owned(), KPI.to_owned()];
    let mut probe = DepthProbe::new(address.clone(), queues);
    let missing = probe.look().await;
    assert!(matches!(missing, Err(TopologyError::Refused { .. })), "{missing:?}");
    declare(&address, &topology()).await.unwrap();
    assert_eq!(probe.look().await.unwrap(), [depth(INGEST, 0, 0), depth(KPI, 0, 0)]);
    let publisher = Arc::new(RabbitPublisher::new(address.clone(), PublisherOptions::default()));
    let sent = publisher.publish((0..5).map(message).collect()).await;
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    assert_eq!(probe.look().await.unwrap(), [depth(INGEST, 5, 0), depth(KPI, 5, 0)]);
    let queue = topology().queues.swap_remove(0);
    let options = bus::rabbitmq::ConsumerOptions::default();
    let mut consumer = bus::rabbitmq::RabbitConsumer::new(address, queue, publisher, options);
    consumer.next().await.unwrap().commit().await.unwrap();
    let expected = [depth(INGEST, 0, 1), depth(KPI, 5, 0)];
    let looked = async || probe.look().await.unwrap() == expected;
    testkit::eventually(LONG, "one group has taken its part", looked).await.unwrap();
}
