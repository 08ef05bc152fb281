//! Brokers that are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bus::kafka::{KafkaPublisher, admin};
use bus::{About, Message, Publisher as _};
use testkit::rig::KafkaOptions;
use tokio::time::timeout;

use crate::world::{LONG, Site, assert_in_order, consume_all};

/// Publishes until it is told to stop, as an outbox does: what failed goes first the next time.
struct Flow {
    confirmed: Arc<AtomicUsize>,
    /// Calls of which nothing was confirmed.
    in_vain: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(usize, Vec<String>)>,
}

impl Flow {
    fn start(site: &Site) -> Flow {
        Flow::by(site, site.publisher())
    }

    fn by(site: &Site, publisher: Arc<KafkaPublisher>) -> Flow {
        let confirmed = Arc::new(AtomicUsize::new(0));
        let in_vain = Arc::new(AtomicUsize::new(0));
        let vain = Arc::clone(&in_vain);
        let stop = Arc::new(AtomicBool::new(false));
        let (site, counted, stopped) = (site.clone(), Arc::clone(&confirmed), Arc::clone(&stop));
        let task = tokio::spawn(async move {
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
                if results.iter().all(Result::is_err) {
                    vain.fetch_add(1, Ordering::Relaxed);
                }
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
        Flow { confirmed, in_vain, stop, task }
    }

    /// Waits until a whole call was in vain, beginning after now.
    async fn fails(&self) {
        // One may be under way, begun before.
        let before = self.in_vain.load(Ordering::Relaxed);
        testkit::eventually(LONG, "calls in vain", async || {
            let seen = self.in_vain.load(Ordering::Relaxed) - before;
            if self.task.is_finished() || seen >= 2 { Ok(()) } else { Err(seen) }
        })
        .await
        .unwrap();
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
async fn with_one_of_three_brokers_lost_confirms_go_on_with_two_none_comes_and_nothing_is_lost() {
    let options = KafkaOptions { brokers: 3, ..KafkaOptions::default() };
    let Some(mut kafka) = testkit::private_kafka(options).await.unwrap() else { return };
    let site = Site::on_three(&kafka.servers(), 6).await;
    // Two copies, both of them needed: of these a partition on a lost broker has too few.
    let pair = Site { topic: "pair".to_owned(), ..site.clone() };
    let spec = admin::TopicSpec::new(&pair.topic, 6, 2).min_in_sync(2);
    admin::apply(&site.cluster, &[spec]).await.unwrap();
    let mut consumer = site.consumer();
    let flow = Flow::by(&site, site.impatient());
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
    // One copy is not enough where two are asked for, and that is nobody's fault but the cluster's.
    let publisher = pair.impatient();
    testkit::eventually(LONG, "a partition with one copy refuses", async || {
        let results = publisher.publish((0..60).map(|n| pair.message(n, 60)).collect()).await;
        let refused = results.iter().filter_map(|result| result.as_ref().err());
        let refused: Vec<_> = refused.map(|error| (error.about(), error.to_string())).collect();
        assert!(refused.iter().all(|(about, _)| *about == About::Destination), "{refused:?}");
        let confirmed = results.len() - refused.len();
        if confirmed > 0 && !refused.is_empty() { Ok(()) } else { Err((confirmed, refused)) }
    })
    .await
    .unwrap();

    kafka.kill(1).await.unwrap();
    flow.fails().await;
    let confirmed = flow.confirmed.load(Ordering::Relaxed);
    flow.fails().await;
    assert_eq!(flow.confirmed.load(Ordering::Relaxed), confirmed, "one broker is not enough");
    kafka.restart(1).await.unwrap();
    flow.moves(500).await;
    // While a partition gets its new leader a publish may be given back; whoever sent it sends it again.
    let all = Arc::clone(&flow.confirmed);
    let (count, _) = flow.end().await;
    assert_eq!(all.load(Ordering::Relaxed), count, "each confirmed once");
    let (by_key, _) = consume_all(&mut consumer, count).await;
    assert_in_order(&by_key);
}
