//! Brokers that are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bus::{About, Message, Publisher as _};
use testkit::rig::KafkaOptions;
use tokio::time::timeout;

use crate::world::{LONG, Site, assert_in_order, consume_all};

/// Publishes until it is told to stop, as an outbox does: what failed goes first the next time.
struct Flow {
    confirmed: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(usize, Vec<String>)>,
}

impl Flow {
    fn start(site: &Site) -> Flow {
        let confirmed = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (site, counted, stopped) = (site.clone(), Arc::clone(&confirmed), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let publisher = site.publisher();
            let (mut sent, mut failures) = (0, Vec::new());
            let mut left: Vec<Message> = Vec::new();
            while !stopped.load(Ordering::Acquire) || !left.is_empty() {
                if left.len() < 100 && !stopped.load(Ordering::Acquire) {
                    left.extend((sent..sent + 50).map(|n| site.message(n, 20)));
                    sent += 50;
                }
                let batch: Vec<Message> = left.clone();
                let results =
                    timeout(LONG, publisher.publish(batch)).await.expect("results in time");
                let mut again = Vec::new();
                for (message, result) in left.drain(..).zip(results) {
                    match result {
                        Ok(()) => {
                            counted.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            assert_eq!(error.about(), About::Destination, "{error}");
                            failures.push(error.to_string());
                            again.push(message);
                        }
                    }
                }
                left = again;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            (sent, failures)
        });
        Flow { confirmed, stop, task }
    }

    async fn moves(&self, more: usize) {
        let before = self.confirmed.load(Ordering::Relaxed);
        testkit::eventually(LONG, "confirms", async || {
            let seen = self.confirmed.load(Ordering::Relaxed);
            if self.task.is_finished() || seen >= before + more { Ok(()) } else { Err(seen) }
        })
        .await
        .unwrap();
    }

    /// How many there were, and what failed.
    async fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Ordering::Release);
        self.task.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_in_the_middle_loses_nothing() {
    let Some(mut kafka) = testkit::private_kafka(KafkaOptions::default()).await.unwrap() else {
        return;
    };
    let site = Site::on(&kafka.servers(), 4, 1).await;
    let mut consumer = site.consumer();
    let flow = Flow::start(&site);
    flow.moves(500).await;
    kafka.kill(0).await.unwrap();
    kafka.restart(0).await.unwrap();
    flow.moves(500).await;
    let (count, _) = flow.end().await;
    let (_, deliveries) = consume_all(&mut consumer, count).await;
    assert!(deliveries >= count);

    // Away for good, a publish says so, and quickly; consuming just waits.
    kafka.kill(0).await.unwrap();
    let publisher = site.publisher();
    for _ in 0..2 {
        let results = publisher.publish(vec![site.message(0, 1)]).await;
        let error = results[0].clone().unwrap_err();
        assert_eq!(error.about(), About::Destination, "{error}");
    }
    assert!(publisher.ready().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_of_three_brokers_lost_confirms_go_on_and_nothing_is_lost() {
    let options = KafkaOptions { brokers: 3, ..KafkaOptions::default() };
    let Some(mut kafka) = testkit::private_kafka(options).await.unwrap() else { return };
    let site = Site::on(&kafka.servers(), 6, 3).await;
    let mut consumer = site.consumer();
    let flow = Flow::start(&site);
    flow.moves(500).await;
    kafka.kill(1).await.unwrap();
    flow.moves(1000).await;
    kafka.restart(1).await.unwrap();
    // Until it has caught up, the loss of another one would be the loss of two.
    let servers = kafka.servers();
    let behind = ["--bootstrap-server", &servers, "--describe", "--under-replicated-partitions"];
    testkit::eventually(LONG, "three copies of everything", async || {
        let said = kafka.tool("org.apache.kafka.tools.TopicCommand", &behind).await.unwrap();
        if said.trim().is_empty() { Ok(()) } else { Err(said) }
    })
    .await
    .unwrap();
    kafka.kill(2).await.unwrap();
    flow.moves(500).await;
    // While a partition gets its new leader a publish may be given back; whoever sent it sends it again.
    let (count, _) = flow.end().await;
    let (by_key, _) = consume_all(&mut consumer, count).await;
    assert_in_order(&by_key);
}
