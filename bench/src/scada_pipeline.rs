//! SCADA from a node's outbox through Kafka to the historian's tables: the real dispatchers, broker, historian and a durable Postgres on
//! one machine.
//!
//! - `throughput_…`: a backlog in the outbox; events a second until the last is in the historian, beside a plain loop
//!   (50 rows every 500 ms, one publish a row, one update a row) on the same outbox, broker and historian.
//! - `…_beside_the_whole`: each stage alone, beside all of it. The slower one is where the time goes.
//! - `latency_…`: 310 events a second, as a hundred nodes make them; from the write to the outbox to the row at the historian, beside the
//!   plain loop. That one holds 100 a second at most, and is given 62. The historian is asked every few milliseconds, so that much
//!   is in both.
//! - `held_for_a_minute…`: the highest rate that was found at which, written to the outbox for a minute, the backlog between outbox and
//!   historian stays flat; beside the plain loop, and beside what is aimed at, a hundred times a load of 310 a second.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bus::kafka::{Cluster, KafkaPublisher, PublisherOptions, admin};
use bus::{Message, Publisher};
use event::names::kafka::Profile;
use event::scada::{Category, Envelope};
use jiff::Timestamp;
use rig::{Kafka, KafkaOptions, Postgres, PostgresOptions};
use scada::generate::Node;
use scada::historian::{Config, Historian};
use scada::outbox::{Dispatcher, Headers, Outbox, Settings};
use tokio::runtime::Runtime;
use tokio_postgres::Client;
use tokio_postgres::types::Json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::measure::quantile;
use crate::place::Place;
use crate::row::Row;

const BACKLOG: usize = 60_000;
const NODES: u16 = 100;
const OUR_BATCH: u32 = 1_000;
const PLAIN_BATCH: i64 = 50;
const PLAIN_POLL: Duration = Duration::from_millis(500);
/// How long the plain loop is measured; its rate does not change with the backlog.
const PLAIN_FOR: Duration = Duration::from_secs(5);
/// 310 events a second, and what the plain loop is given.
const WRITES: usize = 100;
const OUR_EVENTS_A_WRITE: usize = 31;
const PLAIN_EVENTS_A_WRITE: usize = 6;
const WRITE_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(3);
const ALL_WITHIN: Duration = Duration::from_secs(120);
/// What is aimed at: a hundred times the load of a hundred nodes.
const AIM: f64 = 31_000.0;
/// How many rates are tried, between none and the throughput of a backlog: writing costs as well, so that that one is never held.
const TRIES: u32 = 4;
const HOLD_FOR: Duration = Duration::from_secs(60);

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("scada_pipeline", "starting the servers");
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    runtime.block_on(measure(place, folder.path()))
}

async fn measure(place: &Place, folder: &Path) -> Result<Vec<Row>> {
    let mut postgres =
        Postgres::start(&folder.join("postgres"), PostgresOptions::default()).await?;
    let options = KafkaOptions { heap_mb: 512, java: Vec::new(), ..KafkaOptions::default() };
    let mut kafka = Kafka::start(&folder.join("kafka"), options).await?;
    let line = Line::start(&postgres, &kafka).await?;
    // What is first meets a broker that has not compiled its code yet, and a group without partitions.
    line.whole(BACKLOG / 6).await?;
    place.say("scada_pipeline", "throughput");
    let (to_kafka, to_historian) = line.stages(BACKLOG).await?;
    let whole = line.whole(BACKLOG).await?;
    let plain = line.plain_rate().await?;
    place.say("scada_pipeline", "latency");
    let ours = line.latency(OUR_EVENTS_A_WRITE, false).await?;
    let theirs = line.latency(PLAIN_EVENTS_A_WRITE, true).await?;
    place.say("scada_pipeline", "the highest rate that is held for a minute");
    let held = line.held(place, whole).await?;
    line.check().await?;
    kafka.stop().await?;
    postgres.stop().await?;
    let mut rows = vec![
        Row::more("scada_pipeline/throughput_beside_a_plain_loop", "events/s", whole, plain),
        Row::more("scada_pipeline/outbox_to_kafka_beside_the_whole", "events/s", to_kafka, whole),
        Row::more(
            "scada_pipeline/kafka_to_historian_beside_the_whole",
            "events/s",
            to_historian,
            whole,
        ),
        Row::more("scada_pipeline/held_for_a_minute_beside_a_plain_loop", "events/s", held, plain),
        Row::more("scada_pipeline/held_for_a_minute_beside_the_aim", "events/s", held, AIM)
            .bar(1.0),
    ];
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        rows.push(Row::less(
            format!("scada_pipeline/latency_{name}_at_310_a_second_beside_a_plain_loop"),
            "ms",
            quantile(&ours, share),
            quantile(&theirs, share),
        ));
    }
    Ok(rows)
}

/// A node's database, and what stands behind it.
struct Line {
    node: pg::Options,
    at_node: Client,
    at_historian: Client,
    outbox: Outbox,
    publisher: Arc<KafkaPublisher>,
    config: Config,
}

impl Line {
    async fn start(postgres: &Postgres, kafka: &Kafka) -> Result<Line> {
        let server = pg::connect(&pg::Options::new(postgres.url("postgres"))).await?;
        server.batch_execute("CREATE DATABASE node").await?;
        server.batch_execute("CREATE DATABASE historian").await?;
        let node = pg::Options::new(postgres.url("node"));
        scada::migrate_producer(&node).await?;
        let url = postgres.url("historian");
        scada::migrate_historian(&pg::Options::new(&url)).await?;
        let config = Config::load(None, |name| match name {
            "HOLDFAST_HISTORIAN_DATABASE_URL" => Some(url.clone()),
            "HOLDFAST_HISTORIAN_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
            "HOLDFAST_HISTORIAN_BUS" => Some("kafka".to_owned()),
            "HOLDFAST_HISTORIAN_KAFKA_BROKERS" => Some(kafka.servers()),
            _ => None,
        })?;
        let cluster = Cluster::parse(&kafka.servers())?;
        admin::apply(&cluster, &scada::kafka::topics(Profile::Dev)).await?;
        Ok(Line {
            at_node: pg::connect(&node).await?,
            at_historian: pg::connect(&config.database).await?,
            outbox: Outbox::new(pg::Pool::new(&node)?),
            publisher: Arc::new(KafkaPublisher::new(cluster, PublisherOptions::default())),
            node,
            config,
        })
    }

    fn dispatch(&self, name: &str) -> Result<Dispatcher> {
        let settings = Settings { batch: OUR_BATCH, ..Settings::new(name) };
        let publisher: Arc<dyn Publisher> = Arc::clone(&self.publisher) as _;
        Ok(Dispatcher::start(&self.node, &settings, publisher)?)
    }

    /// Writes a backlog, and returns how many events it has.
    async fn fill(&self, events: usize) -> Result<usize> {
        let made = made(events)?;
        for part in made.chunks(2_000) {
            self.outbox.write_batch(part).await?;
        }
        Ok(made.len())
    }

    /// How many are stored, by the offsets of the same transactions: counting rows would cost what is measured.
    async fn stored(&self) -> Result<usize> {
        let query = "SELECT coalesce(sum(next_offset), 0)::int8 FROM bus_offsets";
        let all: i64 = self.at_historian.query_one(query, &[]).await?.get(0);
        Ok(usize::try_from(all)?)
    }

    /// That the rows are as many as the offsets say.
    async fn check(&self) -> Result<()> {
        let query = "SELECT (SELECT count(*) FROM telemetry) + (SELECT count(*) FROM events)
                     + (SELECT count(*) FROM alarms)";
        let rows: i64 = self.at_historian.query_one(query, &[]).await?.get(0);
        let stored = self.stored().await?;
        ensure!(usize::try_from(rows)? == stored, "{rows} rows of {stored} events");
        Ok(())
    }

    async fn until_stored(&self, events: usize) -> Result<()> {
        let started = Instant::now();
        while self.stored().await? < events {
            ensure!(started.elapsed() < ALL_WITHIN, "{events} events were not stored");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn until_sent(&self, dispatchers: &[Dispatcher], events: usize) -> Result<()> {
        let started = Instant::now();
        let sent = || dispatchers.iter().map(|one| one.counts().done).sum::<u64>();
        while usize::try_from(sent())? < events {
            ensure!(started.elapsed() < ALL_WITHIN, "the outbox was not sent");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Events a second from the outbox to Kafka, and from Kafka to the historian, one after the other.
    async fn stages(&self, events: usize) -> Result<(f64, f64)> {
        let (before, count) = (self.stored().await?, self.fill(events).await?);
        let started = Instant::now();
        let dispatchers = [self.dispatch("one")?, self.dispatch("two")?];
        self.until_sent(&dispatchers, count).await?;
        let sent = started.elapsed();
        for dispatcher in dispatchers {
            dispatcher.stop().await;
        }
        let historian = Historian::start(self.config.clone()).await?;
        // Joining the group is no part of a historian's work.
        self.until_stored(before + 1).await?;
        let (first, started) = (self.stored().await?, Instant::now());
        self.until_stored(before + count).await?;
        let stored = started.elapsed();
        historian.stop().await;
        let left = (before + count).saturating_sub(first);
        Ok((count as f64 / sent.as_secs_f64(), left as f64 / stored.as_secs_f64()))
    }

    /// Events a second through all of it.
    async fn whole(&self, events: usize) -> Result<f64> {
        let historian = Historian::start(self.config.clone()).await?;
        self.warm().await?;
        let (before, count) = (self.stored().await?, self.fill(events).await?);
        let started = Instant::now();
        let dispatchers = [self.dispatch("one")?, self.dispatch("two")?];
        self.until_stored(before + count).await?;
        let rate = count as f64 / started.elapsed().as_secs_f64();
        for dispatcher in dispatchers {
            dispatcher.stop().await;
        }
        historian.stop().await;
        Ok(rate)
    }

    /// One cycle through all of it, so that the historian has its partitions.
    async fn warm(&self) -> Result<()> {
        let (before, count) = (self.stored().await?, self.fill(NODES.into()).await?);
        let dispatcher = self.dispatch("warm")?;
        self.until_stored(before + count).await?;
        dispatcher.stop().await;
        Ok(())
    }

    /// Events a second by the plain loop.
    async fn plain_rate(&self) -> Result<f64> {
        let historian = Historian::start(self.config.clone()).await?;
        self.warm().await?;
        let before = self.stored().await?;
        self.fill(2_000).await?;
        let started = Instant::now();
        let sent = self.plain_loop(&CancellationToken::new(), Some(PLAIN_FOR)).await?;
        self.until_stored(before + sent).await?;
        let rate = sent as f64 / started.elapsed().as_secs_f64();
        self.at_node.batch_execute("TRUNCATE outbox_events").await?;
        historian.stop().await;
        Ok(rate)
    }

    /// The plain loop: rows by status, one publish and one update each. Returns how many it has published.
    async fn plain_loop(
        &self,
        stop: &CancellationToken,
        within: Option<Duration>,
    ) -> Result<usize> {
        let client = pg::connect(&self.node).await?;
        let take = client
            .prepare(
                "UPDATE outbox_events SET status = 'IN_PROGRESS', locked_by = 'plain', locked_at = now(),
                     lock_expires_at = now() + interval '2 min', lease_token = gen_random_uuid()
                 WHERE id IN (SELECT id FROM outbox_events WHERE status = 'PENDING' AND available_at <= now()
                              ORDER BY created_at LIMIT $1 FOR UPDATE SKIP LOCKED)
                 RETURNING id, event_type, payload::text, headers",
            )
            .await?;
        let done = client
            .prepare(
                "UPDATE outbox_events SET status = 'SENT', sent_at = now(), lease_token = NULL WHERE id = $1",
            )
            .await?;
        let (started, mut sent) = (Instant::now(), 0);
        while !stop.is_cancelled() && within.is_none_or(|within| started.elapsed() < within) {
            for row in client.query(&take, &[&PLAIN_BATCH]).await? {
                let id: Uuid = row.get(0);
                let Json(headers): Json<Headers> = row.get(3);
                let (tag, body): (&str, String) = (row.get(1), row.get(2));
                let new = Message::json(headers.topic, tag, id.to_string(), body);
                let message = Message { key: Some(headers.partition_key), ..new };
                for result in self.publisher.publish(vec![message]).await {
                    result?;
                }
                client.execute(&done, &[&id]).await?;
                sent += 1;
            }
            tokio::time::sleep(PLAIN_POLL).await;
        }
        Ok(sent)
    }

    /// The times of measurements from their write to their row, in ms.
    async fn latency(&self, events_a_write: usize, by_plain_loop: bool) -> Result<Vec<f64>> {
        let historian = Historian::start(self.config.clone()).await?;
        self.warm().await?;
        let dispatcher = if by_plain_loop { None } else { Some(self.dispatch("one")?) };
        let stop = CancellationToken::new();
        let measured = async {
            let times = self.probe(events_a_write).await;
            stop.cancel();
            times
        };
        let plain = async {
            if by_plain_loop { self.plain_loop(&stop, None).await.map(drop) } else { Ok(()) }
        };
        let (times, plain) = tokio::join!(measured, plain);
        plain?;
        if let Some(dispatcher) = dispatcher {
            dispatcher.stop().await;
        }
        historian.stop().await;
        times
    }

    /// The highest rate that is held, of those that are tried; 0 if none is.
    async fn held(&self, place: &Place, whole: f64) -> Result<f64> {
        let (mut held, mut too_much) = (0.0, whole);
        for _ in 0..TRIES {
            let rate = held + (too_much - held) / 2.0;
            let holds = self.holds(rate).await?;
            let word = if holds { "held" } else { "not held" };
            place.say("scada_pipeline", &format!("{rate:.0} events a second are {word}"));
            if holds { held = rate } else { too_much = rate }
        }
        Ok(held)
    }

    /// Whether the backlog is at the end of a minute at most a second's worth above what it was after a quarter of it.
    async fn holds(&self, rate: f64) -> Result<bool> {
        self.at_node.batch_execute("TRUNCATE outbox_events").await?;
        let historian = Historian::start(self.config.clone()).await?;
        self.warm().await?;
        let before = self.stored().await?;
        let dispatchers = [self.dispatch("one")?, self.dispatch("two")?];
        let mut plant = Plant::new()?;
        let mut turn = tokio::time::interval(WRITE_EVERY);
        let (started, mut written, mut early) = (Instant::now(), 0, None);
        while started.elapsed() < HOLD_FOR {
            turn.tick().await;
            let due = rate * started.elapsed().as_secs_f64();
            let mut events = Vec::new();
            while ((written + events.len()) as f64) < due {
                events.extend(plant.cycle()?);
            }
            self.outbox.write_batch(&events).await?;
            written += events.len();
            if early.is_none() && started.elapsed() > HOLD_FOR / 4 {
                early = Some((before + written).saturating_sub(self.stored().await?));
            }
        }
        let late = (before + written).saturating_sub(self.stored().await?);
        // What could not be written in time was no load.
        let offered = written as f64 / started.elapsed().as_secs_f64();
        self.until_stored(before + written).await?;
        for dispatcher in dispatchers {
            dispatcher.stop().await;
        }
        historian.stop().await;
        Ok(offered > rate * 0.97 && (late as f64) < early.unwrap_or(0) as f64 + rate)
    }

    async fn probe(&self, events_a_write: usize) -> Result<Vec<f64>> {
        let made = made(WRITES * events_a_write)?;
        let mut writes = made.chunks(events_a_write).take(WRITES);
        let mut due: HashMap<Uuid, Instant> = HashMap::new();
        let mut times = Vec::new();
        let mut next = Instant::now();
        let started = Instant::now();
        let query = "SELECT event_id FROM telemetry WHERE event_id = ANY($1)";
        let query = self.at_historian.prepare(query).await?;
        let mut writing = true;
        while writing || !due.is_empty() {
            ensure!(started.elapsed() < ALL_WITHIN, "{} events did not arrive", due.len());
            if writing && Instant::now() >= next {
                next += WRITE_EVERY;
                match writes.next() {
                    Some(events) => {
                        let at = Instant::now();
                        self.outbox.write_cycle(events).await?;
                        let measured =
                            events.iter().filter(|one| one.category == Category::Telemetry);
                        due.extend(measured.map(|one| (one.event_id.uuid(), at)));
                    }
                    None => writing = false,
                }
            }
            let asked: Vec<Uuid> = due.keys().copied().collect();
            for row in self.at_historian.query(&query, &[&asked]).await? {
                if let Some(at) = due.remove(&row.get::<_, Uuid>(0)) {
                    times.push(at.elapsed().as_secs_f64() * 1e3);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(times)
    }
}

/// A hundred nodes.
struct Plant(Vec<Node>);

impl Plant {
    fn new() -> Result<Plant> {
        let node = |number| Ok(Node::new("PLANT01".parse()?, number, u64::from(number))?);
        Ok(Plant((1..=NODES).map(node).collect::<Result<_>>()?))
    }

    /// What all of them make in a cycle.
    fn cycle(&mut self) -> Result<Vec<Envelope>> {
        let mut made = Vec::new();
        for node in &mut self.0 {
            made.extend(node.cycle(Timestamp::now())?);
        }
        Ok(made)
    }
}

/// So many events, or a few more.
fn made(events: usize) -> Result<Vec<Envelope>> {
    let mut plant = Plant::new()?;
    let mut made = Vec::with_capacity(events + usize::from(NODES));
    while made.len() < events {
        made.extend(plant.cycle()?);
    }
    Ok(made)
}
