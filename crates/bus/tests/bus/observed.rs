//! What an operator sees of the bus: its metrics, and a log that holds no body.

use std::io::Write;
use std::sync::{Arc, Mutex};

use bus::rabbitmq::{
    Address, ConsumerOptions, LOG_DIRECTIVE, PublisherOptions, RabbitConsumer, RabbitPublisher,
    declare,
};
use bus::{Cause, Consumer, DeadLetters, Message, Metrics, PublishError, Publisher, inline};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::world::{INGEST, Kept, drain, message, retry, topology};

fn counting() -> (Metrics, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    (Metrics::new(&recorder), recorder.handle())
}

/// Three that are wanted, of which one is retried once and one is given up, and one that nobody wants.
async fn work(publisher: Arc<dyn Publisher>, mut consumer: Box<dyn Consumer>) {
    let mut batch: Vec<Message> = (0..3).map(message).collect();
    batch.push(Message { routing_key: "nobody.wants.it".to_owned(), ..message(3) });
    let publishing = tokio::spawn(async move { publisher.publish(batch).await });
    drain(&mut consumer, 3, |batch, at| {
        let delivery = &batch.deliveries()[at];
        match (delivery.message.message_id.as_str(), delivery.attempts) {
            ("id-0", 0) => batch.retry(at, Cause::new("not_yet", "once more")),
            ("id-1", _) => batch.dead_letter(at, Cause::new("invalid", "never")),
            _ => {}
        }
    })
    .await;
    let results = publishing.await.unwrap();
    assert!(matches!(results[3], Err(PublishError::Unroutable { .. })));
}

fn assert_counted(handle: &PrometheusHandle, more: &[&str]) {
    let text = handle.render();
    let expected = [
        "holdfast_bus_published_total{outcome=\"confirmed\"} 3",
        "holdfast_bus_published_total{outcome=\"unroutable\"} 1",
        "holdfast_bus_published_total{outcome=\"unconfirmed\"} 0",
        "holdfast_bus_consumed_total 4",
        "holdfast_bus_settled_total{outcome=\"done\"} 2",
        "holdfast_bus_settled_total{outcome=\"retried\"} 1",
        "holdfast_bus_settled_total{outcome=\"dead_lettered\"} 1",
        "holdfast_bus_settled_total{outcome=\"returned\"} 0",
        "holdfast_bus_publish_seconds_count 1",
    ];
    for line in expected.iter().chain(more) {
        assert!(text.lines().any(|said| said == *line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn the_inline_bus_counts_what_happens() {
    let (metrics, handle) = counting();
    let options = inline::Options { retry: retry(), metrics, ..Default::default() };
    let kept = Arc::new(Kept::default()) as Arc<dyn DeadLetters>;
    let mut bus = inline::Bus::new(options, kept);
    let ingest = topology().queues.swap_remove(0);
    let consumer = bus.group(ingest.name, ingest.bindings);
    work(Arc::new(bus), Box::new(consumer)).await;
    assert_counted(&handle, &["holdfast_bus_redelivered_total 1"]);
}

#[tokio::test]
async fn the_broker_s_bus_counts_what_happens() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let address = Address::parse(vhost.url()).unwrap();
    let mut topology = topology();
    topology.queues.truncate(1);
    declare(&address, &topology).await.unwrap();
    let (metrics, handle) = counting();
    let options = PublisherOptions { metrics: metrics.clone(), ..Default::default() };
    let publisher = Arc::new(RabbitPublisher::new(address.clone(), options));
    let options = ConsumerOptions { metrics, ..Default::default() };
    let queue = topology.queues.remove(0);
    assert_eq!(queue.name, INGEST);
    let consumer = RabbitConsumer::new(address, queue, Arc::clone(&publisher), options);
    work(publisher, Box::new(consumer)).await;
    // One connection publishes, the other consumes.
    let more =
        ["holdfast_bus_connects_total 2", "holdfast_bus_in_flight 0", "holdfast_bus_blocked 0"];
    assert_counted(&handle, &more);
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// True when the body is there, as text or as the list of numbers that a debug print makes of bytes.
    fn has(&self, body: &str) -> bool {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        let numbers = format!("{:?}", body.as_bytes());
        text.contains(body) || text.contains(numbers.trim_matches(['[', ']']))
    }
}

#[tokio::test]
async fn a_returned_body_is_in_no_log_that_keeps_to_the_directive() {
    let (kept_to, not_kept_to) = (Lines::default(), Lines::default());
    let layer = |lines: &Lines, filter: EnvFilter| {
        let lines = lines.clone();
        tracing_subscriber::fmt::layer().with_writer(move || lines.clone()).with_filter(filter)
    };
    let directive = LOG_DIRECTIVE.parse().unwrap();
    let layers = vec![
        layer(&kept_to, EnvFilter::new("debug").add_directive(directive)),
        layer(&not_kept_to, EnvFilter::new("warn")),
    ];
    let subscriber = tracing_subscriber::registry().with(layers);
    // For the whole process: the client library logs from threads of its own.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let vhost = testkit::rabbitmq().await.unwrap();
    let address = Address::parse(vhost.url()).unwrap();
    declare(&address, &topology()).await.unwrap();
    let canary = "canary-7b1f0c";
    let nobody =
        Message { routing_key: "nobody.wants.it".to_owned(), body: canary.into(), ..message(0) };
    let publisher = RabbitPublisher::new(address, PublisherOptions::default());
    let results = publisher.publish(vec![nobody]).await;
    assert!(matches!(results[..], [Err(PublishError::Unroutable { .. })]), "{results:?}");
    assert!(!format!("{results:?}").contains(canary));
    assert!(not_kept_to.has(canary), "the library no longer logs bodies: the directive can go");
    assert!(!kept_to.has(canary));
}
