//! Kafka through the bus, against Kafka's own performance tools, on one broker: bodies of one size, acks=all, the same linger and
//! batch size, the same topic.
//!
//! Produce: four calls at a time, each with a batch of an outbox, each waiting for its confirms. The tool streams and reads its
//! reports as they come. Our records carry the bus's headers as well; the tool's carry none.
//!
//! Consume: whole batches, committed one by one, against the tool, which parses nothing and commits by the clock.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bus::kafka::{
    Cluster, ConsumerOptions, Group, KafkaConsumer, KafkaPublisher, PublisherOptions, admin,
};
use bus::{Binding, Consumer as _, Message, Publisher as _, Retry};
use rig::{Kafka, KafkaOptions};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::measure::{interleaved, per_second};
use crate::place::Place;
use crate::row::Row;

const BAR: f64 = 0.7;
const ROUNDS: usize = 3;
const TOTAL: usize = 200_000;
const BATCH: usize = 1000;
const LANES: usize = 4;
const PARTITIONS: usize = 12;
/// An envelope of SCADA.
const BODY_BYTES: usize = 350;
const HEAP_MB: u32 = 512;
const PRODUCE_TOPIC: &str = "bench.produce";
const CONSUME_TOPIC: &str = "bench.consume";
const DEAD_LETTERS: &str = "bench.dlq";
const PRODUCER_TOOL: &str = "org.apache.kafka.tools.ProducerPerformance";
const CONSUMER_TOOL: &str = "org.apache.kafka.tools.ConsumerPerformance";

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("bus_kafka", "starting Kafka");
    let runtime = Runtime::new()?;
    let folder = place.folder()?;
    // With its full compiler: the broker is what both are measured on.
    let options = KafkaOptions { heap_mb: HEAP_MB, java: Vec::new(), ..KafkaOptions::default() };
    let mut kafka = runtime.block_on(Kafka::start(folder.path(), options))?;
    let rows = measure(place, &runtime, &kafka);
    runtime.block_on(kafka.stop())?;
    rows
}

fn measure(place: &Place, runtime: &Runtime, kafka: &Kafka) -> Result<Vec<Row>> {
    let cluster = Cluster::parse(&kafka.servers())?;
    let topics = [
        admin::TopicSpec::new(PRODUCE_TOPIC, PARTITIONS, 1),
        admin::TopicSpec::new(CONSUME_TOPIC, PARTITIONS, 1),
        admin::TopicSpec::new(DEAD_LETTERS, 1, 1),
    ];
    runtime.block_on(admin::apply(&cluster, &topics))?;
    let publisher = Arc::new(KafkaPublisher::new(cluster.clone(), PublisherOptions::default()));
    let messages = |topic: &str| (0..TOTAL).map(|n| message(topic, n)).collect::<Vec<Message>>();
    place.say("bus_kafka", "producing");
    let to_produce = messages(PRODUCE_TOPIC);
    let by_bus = || runtime.block_on(publish(&publisher, to_produce.clone()));
    let by_tool = || produce_by_tool(kafka);
    // The first of each meets a broker that has not compiled its code yet.
    by_bus()?;
    by_tool()?;
    let (ours, theirs) = interleaved(ROUNDS, by_bus, by_tool)?;
    let produce = Row::more("bus_kafka/produce", "messages/s", ours, theirs).bar(BAR);

    place.say("bus_kafka", "consuming");
    runtime.block_on(publish(&publisher, messages(CONSUME_TOPIC)))?;
    let by_bus = || runtime.block_on(consume(&cluster, &publisher));
    let (ours, theirs) = interleaved(ROUNDS, by_bus, || consume_by_tool(kafka))?;
    Ok(vec![produce, Row::more("bus_kafka/consume", "messages/s", ours, theirs)])
}

fn message(topic: &str, n: usize) -> Message {
    let body = format!("{n:06}{}", "x".repeat(BODY_BYTES - 6));
    let mut message = Message::json(topic, topic, Uuid::now_v7().to_string(), body);
    message.key = Some(format!("PLANT01.AREA02.UNIT_{:02}.FLOW_RATE", n % 100));
    message
}

/// Messages a second by the bus's publisher, in calls of a batch, some at a time.
async fn publish(publisher: &Arc<KafkaPublisher>, messages: Vec<Message>) -> Result<f64> {
    let count = messages.len();
    let batches: Vec<Vec<Message>> = messages.chunks(BATCH).map(<[Message]>::to_vec).collect();
    let mut lanes: Vec<Vec<Vec<Message>>> = vec![Vec::new(); LANES];
    for (at, batch) in batches.into_iter().enumerate() {
        lanes[at % LANES].push(batch);
    }
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for lane in lanes {
        let publisher = Arc::clone(publisher);
        tasks.spawn(async move {
            for batch in lane {
                for result in publisher.publish(batch).await {
                    result?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(lane) = tasks.join_next().await {
        lane??;
    }
    Ok(per_second(count, start))
}

/// Messages a second by the bus's consumer, from its first batch on.
async fn consume(cluster: &Cluster, publisher: &Arc<KafkaPublisher>) -> Result<f64> {
    let group = Group {
        name: format!("bench-{}", Uuid::now_v7().simple()),
        bindings: vec![Binding::new(CONSUME_TOPIC, "#")],
        dead_letter_topic: DEAD_LETTERS.to_owned(),
        retry: Retry::broker(),
    };
    let options = ConsumerOptions::default();
    let mut consumer = KafkaConsumer::new(cluster, group, Arc::clone(publisher), options);
    let first = consumer.next().await?;
    let start = Instant::now();
    let mut seen = first.len();
    first.commit().await?;
    while seen < TOTAL {
        let batch = consumer.next().await?;
        seen += batch.len();
        batch.commit().await?;
    }
    ensure!(seen == TOTAL, "{seen} of {TOTAL} messages");
    Ok(per_second(seen, start))
}

fn tool(kafka: &Kafka, class: &str, arguments: &[&str]) -> Result<String> {
    let (java, jars) = kafka.java();
    let mut command = Command::new(java);
    command.arg(format!("-Xmx{HEAP_MB}m")).arg("-cp").arg(jars.join("*")).arg(class);
    let output = command.args(arguments).output().with_context(|| format!("run {class}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let trouble = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{class}: {said}{trouble}");
    Ok(said)
}

fn produce_by_tool(kafka: &Kafka) -> Result<f64> {
    let defaults = PublisherOptions::default();
    let servers = format!("bootstrap.servers={}", kafka.servers());
    let linger = format!("linger.ms={}", defaults.linger.as_millis());
    let batch = format!("batch.size={}", defaults.batch_bytes);
    let memory = format!("buffer.memory={}", defaults.queue_kbytes << 10);
    let (count, size) = (TOTAL.to_string(), BODY_BYTES.to_string());
    let said = tool(
        kafka,
        PRODUCER_TOOL,
        &[
            "--topic",
            PRODUCE_TOPIC,
            "--num-records",
            &count,
            "--record-size",
            &size,
            "--throughput",
            "-1",
            "--producer-props",
            &servers,
            &linger,
            &batch,
            &memory,
            "acks=all",
            "enable.idempotence=true",
        ],
    )?;
    // The last line sums up: `200000 records sent, 98765.4 records/sec (…)`.
    let wanted = format!("{TOTAL} records sent, ");
    said.lines()
        .find_map(|line| line.strip_prefix(&wanted)?.split(' ').next()?.parse().ok())
        .with_context(|| format!("no rate in what the tool says: {said}"))
}

fn consume_by_tool(kafka: &Kafka) -> Result<f64> {
    let (servers, count) = (kafka.servers(), TOTAL.to_string());
    let group = format!("bench-tool-{}", Uuid::now_v7().simple());
    let said = tool(
        kafka,
        CONSUMER_TOOL,
        &[
            "--bootstrap-server",
            &servers,
            "--topic",
            CONSUME_TOPIC,
            "--messages",
            &count,
            "--group",
            &group,
            "--timeout",
            "60000",
        ],
    )?;
    // The last column, messages a second without the time to join the group.
    said.lines()
        .rev()
        .find_map(|line| line.rsplit(',').next()?.trim().parse().ok())
        .with_context(|| format!("no rate in what the tool says: {said}"))
}
