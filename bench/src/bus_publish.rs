//! Publishing with confirms through the bus's publisher, against a bare loop of the client library, on one RabbitMQ: the same
//! quorum queue with the same arguments, the same messages, as many in a batch and in flight.
//!
//! Both wait for the confirms of a batch before the next, as the relay does. The bare loop has its properties ready and looks at
//! nothing but the confirm.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bus::rabbitmq::{Address, PublisherOptions, RabbitPublisher, Topology, WorkQueue, declare};
use bus::{Binding, Message, Publisher as _, Retry};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueuePurgeOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection};
use rig::RabbitMq;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::measure::{interleaved, per_second};
use crate::place::Place;
use crate::row::Row;

const BAR: f64 = 0.8;
const ROUNDS: usize = 7;
const TOTAL: usize = 20_000;
/// What the relay claims and publishes together.
const BATCH: usize = 500;
/// Not below the batch, so that it holds neither back.
const WINDOW: usize = 1_000;
const BODY_BYTES: usize = 400;
const EXCHANGE: &str = "farmiq.telemetry.exchange";
const ROUTING_KEY: &str = "telemetry.ingested";
const QUEUE: &str = "farmiq.bench.ingest.queue";

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("bus_publish", "starting RabbitMQ");
    let runtime = Runtime::new()?;
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let mut broker = runtime.block_on(RabbitMq::start(folder.path()))?;
    let rows = measure(place, &runtime, &broker);
    runtime.block_on(broker.stop())?;
    rows
}

fn measure(place: &Place, runtime: &Runtime, broker: &RabbitMq) -> Result<Vec<Row>> {
    let url = broker.url("/");
    let address = Address::parse(&url)?;
    let queue = WorkQueue {
        name: QUEUE.to_owned(),
        dead_letter_queue: "farmiq.bench.dlq.queue".to_owned(),
        bindings: vec![Binding::new(EXCHANGE, ROUTING_KEY)],
        retry: Retry::broker(),
    };
    let topology = Topology { exchanges: Vec::new(), queues: vec![queue] };
    runtime.block_on(declare(&address, &topology))?;
    // One lane, because the loop has one channel.
    let options = PublisherOptions { window: WINDOW, lanes: 1, ..PublisherOptions::default() };
    let publisher = RabbitPublisher::new(address, options);
    let bare = runtime.block_on(Bare::connect(&url))?;
    let messages: Vec<Message> = (0..TOTAL).map(message).collect();
    let ready: Vec<_> = messages.iter().map(|one| (properties(one), one.body.clone())).collect();
    place.say("bus_publish", "publishing");
    let by_publisher = || {
        let rate = runtime.block_on(publish(&publisher, &messages))?;
        runtime.block_on(bare.purge())?;
        Ok(rate)
    };
    let by_loop = || {
        let rate = runtime.block_on(bare.publish(&ready))?;
        runtime.block_on(bare.purge())?;
        Ok(rate)
    };
    // The first of each meets a queue that has never been written to.
    by_publisher()?;
    by_loop()?;
    let (ours, theirs) = interleaved(ROUNDS, by_publisher, by_loop)?;
    let name = format!("bus_publish/{BATCH}_a_batch");
    Ok(vec![Row::more(name, "messages/s", ours, theirs).bar(BAR)])
}

fn message(n: usize) -> Message {
    let body = format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(BODY_BYTES));
    let mut message = Message::json(EXCHANGE, ROUTING_KEY, Uuid::now_v7().to_string(), body);
    message.key = Some(format!("device-{}", n % 100));
    message.headers.insert("trace_id".to_owned(), Uuid::now_v7().to_string());
    message
}

/// What the publisher makes of a message.
fn properties(message: &Message) -> BasicProperties {
    let mut headers = FieldTable::default();
    for (name, value) in &message.headers {
        headers.insert(name.as_str().into(), AMQPValue::LongString(value.as_str().into()));
    }
    let key = message.key.as_deref().unwrap_or_default();
    headers.insert("x-key".into(), AMQPValue::LongString(key.into()));
    BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(message.message_id.as_str().into())
        .with_type(ROUTING_KEY.into())
        .with_content_type("application/json".into())
        .with_headers(headers)
}

/// Messages a second by the bus's publisher.
async fn publish(publisher: &RabbitPublisher, messages: &[Message]) -> Result<f64> {
    let batches: Vec<Vec<Message>> = messages.chunks(BATCH).map(<[Message]>::to_vec).collect();
    let start = Instant::now();
    for batch in batches {
        for result in publisher.publish(batch).await {
            result?;
        }
    }
    Ok(per_second(messages.len(), start))
}

struct Bare {
    _connection: Connection,
    channel: Channel,
}

impl Bare {
    async fn connect(url: &str) -> Result<Bare> {
        let connection = Connection::connect(url, lapin::ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Bare { _connection: connection, channel })
    }

    async fn purge(&self) -> Result<()> {
        let purged = self.channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await;
        let purged = purged.context("purge the queue")?;
        ensure!(purged as usize == TOTAL, "the queue had {purged} of {TOTAL} messages");
        Ok(())
    }

    /// Messages a second by the bare loop.
    async fn publish(&self, messages: &[(BasicProperties, bytes::Bytes)]) -> Result<f64> {
        let start = Instant::now();
        for batch in messages.chunks(BATCH) {
            let mut confirms = Vec::with_capacity(BATCH);
            for (properties, body) in batch {
                let options = BasicPublishOptions { mandatory: true, immediate: false };
                let (exchange, key) = (EXCHANGE.into(), ROUTING_KEY.into());
                let sent =
                    self.channel.basic_publish(exchange, key, options, body, properties.clone());
                confirms.push(sent.await?);
            }
            for confirm in confirms {
                ensure!(confirm.await?.is_ack(), "the broker refused a message");
            }
        }
        Ok(per_second(messages.len(), start))
    }
}
