//! The real node draining a backlog, against a bare client loop that publishes the very same bodies, in the same window, to the
//! same broker and subscriber. Node and loop are processes of their own, each with one thread. Records a second from the first message at the subscriber to the last. The subscriber answers with the
//! edge's acks.
//!
//! Three loops, because the bodies cost more than their publishing:
//! - `batches_beside_ready_bodies`: the loop finds its compressed batches ready in memory. The node reads its spool, checks every
//!   record, builds and compresses the batches, tracks what is acked. No bar: this is what making a body costs, not publishing it.
//! - `batches_beside_made_bodies`: the loop has the records in memory, and builds and compresses the batches. No bar either: what is
//!   left is reading the spool and checking every record's checksum, which no loop over memory does.
//! - `single_records_beside_ready_bodies`: a message for every record, too small to be compressed. This is publishing and little else, and has the bar.

pub(crate) mod bare;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use event::id::{Epoch, NodeId, TenantId};
use event::names::Topic;
use event::wire::{self, Ack, Batch, Limits};
use mqtt::rumqttc::{AsyncClient, Event, EventLoop, Packet, PublishOptions, QoS};
use rig::{Mosquitto, MosquittoOptions, Process};
use spool::{Spool, SyncPolicy};
use tokio::runtime::Runtime;

use crate::measure::{interleaved, per_second};
use crate::place::Place;
use crate::readings::Device;
use crate::row::Row;
use crate::spool_append::submit;

const ROUNDS: usize = 5;
const BAR: f64 = 0.8;
/// The node's default.
const WINDOW: u16 = 20;
/// The node's default of `forward.batch_records`.
const BATCH_RECORDS: usize = 1_000;
const COMPRESSION_LEVEL: i32 = 1;
/// The edge commits some messages at once, and then acks.
const MESSAGES_AN_ACK: usize = 8;
const ALL_WITHIN: Duration = Duration::from_secs(60);
const STOPS_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    let folder = place.folder()?;
    let runtime = Runtime::new()?;
    let options = MosquittoOptions::default();
    let mut mosquitto =
        runtime.block_on(Mosquitto::start(&folder.path().join("broker"), options))?;
    let broker = mqtt::Broker {
        address: mosquitto.url().parse()?,
        tls: mqtt::Tls::default(),
        credentials: None,
    };
    let mut rows = Vec::new();
    for (name, records, batch_records, made) in [
        ("batches_beside_ready_bodies", 200_000, BATCH_RECORDS, false),
        ("batches_beside_made_bodies", 200_000, BATCH_RECORDS, true),
        ("single_records_beside_ready_bodies", 20_000, 1, false),
    ] {
        place.say("node_publisher", name);
        let program = place.program("holdfast-node")?;
        let home = folder.path().join(name);
        let backlog = Backlog::fill(&home.join("backlog"), records)?;
        let stage = Stage { program, home, backlog, broker: broker.clone(), batch_records, made };
        let (ours, theirs) = measure(&runtime, &stage)?;
        let row = Row::more(format!("node_publisher/{name}"), "records/s", ours, theirs);
        rows.push(if batch_records == 1 { row.bar(BAR) } else { row });
    }
    runtime.block_on(mosquitto.stop())?;
    Ok(rows)
}

fn measure(runtime: &Runtime, stage: &Stage) -> Result<(f64, f64)> {
    // The first run shows what the node sends.
    let mut known = Known::default();
    runtime.block_on(stage.by_node("first", &mut known))?;
    let plain: Vec<_> = known.order.clone();
    let mut known_to_loop = known.clone();
    let (mut node_runs, mut loop_runs) = (0, 0);
    let medians = interleaved(
        ROUNDS,
        || {
            node_runs += 1;
            runtime.block_on(stage.by_node(&format!("node-{node_runs}"), &mut known))
        },
        || {
            loop_runs += 1;
            runtime.block_on(stage.by_loop(
                &format!("loop-{loop_runs}"),
                &plain,
                &mut known_to_loop,
            ))
        },
    )?;
    let same = known.order.len() == plain.len() && known_to_loop.order.len() == plain.len();
    ensure!(same, "the messages were not the same in all runs");
    Ok(medians)
}

/// A spool full of readings, and the same readings in memory.
struct Backlog {
    dir: PathBuf,
    records: Vec<Vec<u8>>,
}

impl Backlog {
    fn fill(dir: &Path, count: u64) -> Result<Backlog> {
        let mut config = spool::Config::new(dir);
        config.sync = SyncPolicy::Interval(Duration::from_secs(5));
        let spool = Spool::open(config)?;
        let device = Device::new(TenantId::mint());
        let records: Vec<_> = (0..count).map(|index| device.reading(index).into_bytes()).collect();
        for chunk in records.chunks(1_000) {
            submit(&spool, chunk.iter().map(|record| (0, record.clone())).collect())?;
        }
        Ok(Backlog { dir: dir.to_owned(), records })
    }
}

/// The messages that were seen, in order, and what is in them. Looking a body up spares the subscriber the reading, which would
/// take processor time from whoever is measured.
#[derive(Default, Clone)]
struct Known {
    order: Vec<(Bytes, Content)>,
    by_body: HashMap<Bytes, Content>,
}

#[derive(Clone, Copy)]
struct Content {
    epoch: Epoch,
    first: u64,
    last: u64,
}

impl Known {
    fn content(&mut self, body: Bytes) -> Result<Content> {
        if let Some(content) = self.by_body.get(&body) {
            return Ok(*content);
        }
        let json = wire::decode(&body, &Limits::MQTT)?;
        let batch = Batch::parse(&json, &Limits::MQTT)?;
        let (first, last) = (batch.records.first(), batch.records.last());
        let (first, last) = first.zip(last).context("a batch without records")?;
        let content = Content { epoch: batch.epoch, first: first.seq, last: last.seq };
        self.order.push((body.clone(), content));
        self.by_body.insert(body, content);
        Ok(content)
    }
}

struct Stage {
    program: PathBuf,
    home: PathBuf,
    backlog: Backlog,
    broker: mqtt::Broker,
    batch_records: usize,
    /// Whether the loop makes its bodies or finds them ready.
    made: bool,
}

impl Stage {
    /// Records a second that a node with a copy of the backlog gets through. Each run has a name of its own, so that the broker
    /// has no session of it.
    async fn by_node(&self, name: &str, known: &mut Known) -> Result<f64> {
        let node = self.name(name)?;
        let home = self.home.join(name);
        copy(&self.backlog.dir, &home.join("spool"))?;
        let config = home.join("node.toml");
        std::fs::write(&config, self.config(&node, &home))?;
        let mut subscriber = self.subscriber(&node).await?;
        let mut command = std::process::Command::new(&self.program);
        command.arg("run").arg("--config").arg(&config);
        let log = home.join("node.log");
        let mut process = Process::spawn(command, Some(&log))?;
        let rate = tokio::select! {
            rate = subscriber.receive(known) => rate,
            ended = process.wait() => Err(anyhow!("the node ended: {}", ended?)),
        };
        let rate = rate.with_context(|| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            format!("the node says:\n{log}")
        });
        process.term(STOPS_WITHIN).await?;
        std::fs::remove_dir_all(&home)?;
        rate
    }

    /// Records a second that a bare loop gets through.
    async fn by_loop(
        &self,
        name: &str,
        ready: &[(Bytes, Content)],
        known: &mut Known,
    ) -> Result<f64> {
        let node = self.name(name)?;
        let mut subscriber = self.subscriber(&node).await?;
        let home = self.home.join(name);
        std::fs::create_dir_all(&home)?;
        let file = home.join("pieces");
        let source = if self.made {
            bare::write_pieces(&file, self.backlog.records.iter().map(Vec::as_slice))?;
            bare::Source::Records(file)
        } else {
            bare::write_pieces(&file, ready.iter().map(|(body, _)| &**body))?;
            bare::Source::Bodies(file)
        };
        let messages =
            ready.iter().map(|(_, content)| (content.epoch, content.first, content.last));
        let address = self.broker.address.to_string();
        let task = bare::Task { address, node, messages: messages.collect(), source };
        let told = home.join("task.json");
        std::fs::write(&told, serde_json::to_vec(&task)?)?;
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.arg(bare::ARGUMENT).arg(&told);
        let mut process = Process::spawn(command, Some(&home.join("loop.log")))?;
        let rate = tokio::select! {
            rate = subscriber.receive(known) => rate,
            ended = process.wait() => Err(anyhow!("the loop ended: {}", ended?)),
        };
        process.kill().await?;
        std::fs::remove_dir_all(&home)?;
        rate
    }

    /// Unique at the broker, which all stages share.
    fn name(&self, run: &str) -> Result<NodeId> {
        let made = if self.made { "made" } else { "ready" };
        Ok(format!("{run}-{made}-{}", self.batch_records).parse()?)
    }

    fn config(&self, node: &NodeId, home: &Path) -> String {
        let (home, address, batch_records) =
            (home.display(), &self.broker.address, self.batch_records);
        format!(
            "[node]\nnode_id = \"{node}\"\nsocket = \"{home}/sampler.sock\"\nspool.dir = \"{home}/spool\"\n\
             mqtt.address = \"{address}\"\nmqtt.window = {WINDOW}\nforward.backfill_rate = 0\n\
             forward.batch_records = {batch_records}\n"
        )
    }

    async fn subscriber(&self, node: &NodeId) -> Result<Subscriber> {
        let session = mqtt::Session {
            client_id: format!("{node}-subscriber"),
            inflight: 100,
            queue: 256,
            ..mqtt::Session::default()
        };
        let (client, mut events) = self.broker.connect(&session)?;
        let topic = Topic::Backfill(node.clone()).to_string();
        client.subscribe(topic, QoS::AtLeastOnce).await?;
        while !matches!(events.poll().await?, Event::Incoming(Packet::SubAck(_))) {}
        let ack_topic = Topic::Ack(node.clone()).to_string();
        Ok(Subscriber { client, events, ack_topic, records: self.backlog.records.len() })
    }
}

/// Takes a node's batches and acks them, as the edge would.
struct Subscriber {
    client: AsyncClient,
    events: EventLoop,
    ack_topic: String,
    records: usize,
}

impl Subscriber {
    /// Records a second, until all are here.
    async fn receive(&mut self, known: &mut Known) -> Result<f64> {
        let all = self.receive_all(known);
        tokio::time::timeout(ALL_WITHIN, all).await.context("the subscriber waited in vain")?
    }

    async fn receive_all(&mut self, known: &mut Known) -> Result<f64> {
        let mut start = None;
        let (mut messages, mut received) = (0, 0);
        loop {
            let Event::Incoming(Packet::Publish(publish)) = self.events.poll().await? else {
                continue;
            };
            let start = *start.get_or_insert_with(Instant::now);
            let content = known.content(publish.payload)?;
            if content.first != received + 1 {
                bail!("a message from {} came after {received}", content.first);
            }
            received = content.last;
            messages += 1;
            let all = received == self.records as u64;
            let rate = per_second(self.records, start);
            if all || messages % MESSAGES_AN_ACK == 0 {
                let ack = Ack { epoch: content.epoch, acked_seq: received, ranges: Vec::new() };
                // Not retained: the next run has the same records.
                let options = PublishOptions::at_least_once();
                self.client.publish(self.ack_topic.clone(), ack.to_json(), options).await?;
            }
            if all {
                return Ok(rate);
            }
        }
    }
}

/// Copies a spool's files and waits until they are on the disk, so that writing them back does not fall into a measurement.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let path = to.join(entry.file_name());
        std::fs::copy(entry.path(), &path)?;
        std::fs::File::open(&path)?.sync_all()?;
    }
    Ok(())
}
