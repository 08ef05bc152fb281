//! A broker that is stopped, killed, and short of memory. It is this test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::rabbitmq::{Address, PublisherOptions, RabbitPublisher};
use bus::{About, PublishError, Publisher};
use tokio::time::timeout;

use crate::recovery::{consume_all, consumer, publisher};
use crate::tls::{Tls, only_the_authority_named_is_trusted};
use crate::world::{LONG, drain, message};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_by_tls_that_is_killed_stopped_and_short_of_memory_loses_nothing() {
    let tls = Tls::make();
    let mut broker = testkit::private_rabbitmq_with(&tls.settings()).await.unwrap();
    let address = Address::parse(&broker.url("/")).unwrap();
    // Declares what the rest needs.
    only_the_authority_named_is_trusted(&broker, &tls).await;
    // The broker writes the registration of a new quorum queue down lazily; killed before that, it would come
    // back with an empty queue of that name (see the page). A stop writes it.
    broker.restart().await.unwrap();
    restarts_lose_nothing(&mut broker, &address).await;
    a_memory_alarm_blocks_publishing_and_not_consuming(&broker, &address).await;
}

async fn restarts_lose_nothing(broker: &mut testkit::PrivateRabbitMq, address: &Address) {
    let publisher = publisher(address);
    let mut consumer = consumer(address, &publisher);
    let confirmed = Arc::new(AtomicUsize::new(0));
    let stopping = Arc::new(tokio::sync::Notify::new());
    let publishing = {
        let (publisher, confirmed) = (Arc::clone(&publisher), Arc::clone(&confirmed));
        let stopping = Arc::clone(&stopping);
        tokio::spawn(async move {
            let (mut first_unsent, mut failures) = (0, 0);
            let mut left: Vec<usize> = Vec::new();
            let mut ending = false;
            // New messages until the broker has been through it all, and then what is left.
            while !ending || !left.is_empty() {
                // What waits is bounded, as an outbox's claim is.
                if !ending && left.len() < 100 {
                    left.extend(first_unsent..first_unsent + 50);
                    first_unsent += 50;
                }
                let batch = left.iter().take(100).map(|n| message(*n)).collect();
                let results = timeout(LONG, publisher.publish(batch)).await.unwrap();
                let tried: Vec<usize> = left.drain(..results.len()).collect();
                for (n, result) in tried.into_iter().zip(results) {
                    match result {
                        Ok(()) => {
                            confirmed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert_eq!(error.about(), About::Destination, "{error}");
                            failures += 1;
                            left.push(n);
                        }
                    }
                }
                let pause = Duration::from_millis(20);
                ending |= timeout(pause, stopping.notified()).await.is_ok();
            }
            (first_unsent, failures)
        })
    };
    let moving = async |more: usize| {
        let before = confirmed.load(Ordering::Relaxed);
        testkit::eventually(LONG, "confirms", async || {
            let seen = confirmed.load(Ordering::Relaxed);
            if publishing.is_finished() || seen >= before + more { Ok(()) } else { Err(seen) }
        })
        .await
        .unwrap();
    };
    moving(200).await;
    broker.kill().await.unwrap();
    broker.restart().await.unwrap();
    moving(200).await;
    broker.restart().await.unwrap();
    moving(200).await;
    stopping.notify_one();
    let (count, failures) = publishing.await.unwrap();
    assert!(failures > 0, "no publish met the broker's absence");
    assert!(count >= 600);
    consume_all(&mut consumer, count).await;
}

async fn a_memory_alarm_blocks_publishing_and_not_consuming(
    broker: &testkit::PrivateRabbitMq,
    address: &Address,
) {
    let options =
        PublisherOptions { blocked_patience: Duration::from_millis(300), ..Default::default() };
    let publisher = Arc::new(RabbitPublisher::new(address.clone(), options));
    let mut consumer = consumer(address, &publisher);
    let before = publisher.publish((0..20).map(message).collect()).await;
    assert!(before.iter().all(Result::is_ok), "{before:?}");
    broker.ctl(&["set_vm_memory_high_watermark", "0.000001"]).await.unwrap();
    // The broker blocks a connection when it publishes: the first one may still be on its way.
    testkit::eventually(LONG, "a blocked publisher", async || {
        let results = timeout(LONG, publisher.publish(vec![message(20)])).await.unwrap();
        match &results[..] {
            [Err(PublishError::Blocked)] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    assert!(publisher.is_blocked().await);
    drain(&mut consumer, 20, |_, _| {}).await;
    broker.ctl(&["set_vm_memory_high_watermark", "0.4"]).await.unwrap();
    testkit::eventually(LONG, "an unblocked publisher", async || {
        publisher.publish(vec![message(21)]).await.pop().unwrap()
    })
    .await
    .unwrap();
    // Those that were sent while it blocked may have arrived as well; this one has.
    let mut seen = Vec::new();
    while !seen.contains(&"id-21".to_owned()) {
        drain(&mut consumer, 1, |batch, at| {
            seen.push(batch.deliveries()[at].message.message_id.clone());
        })
        .await;
    }
    assert!(seen.iter().all(|id| id == "id-20" || id == "id-21"), "{seen:?}");
}
