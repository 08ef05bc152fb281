//! From the generator to the historian, on real processes: **every event of every node is in the historian once**.
//!
//! A producer of several simulated nodes, two replicas of the historian, a Kafka and a Postgres run as they would, while they are killed
//! and halted at random. Then everything is put right, what waits is sent, and the tables are compared: what the generator made from its
//! seed is in the outbox without a hole, every row of the outbox was sent, the historian has each of them once and nothing else, in the
//! order of its key, and nothing was given up on the way.
//!
//! `HOLDFAST_SEED=n` repeats a run's choices.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bus::Filter;
use bus::kafka::{Cluster, DeadLetterTopic, admin};
use event::names::kafka::{Profile, Topic};
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rig::{Postgres, PostgresOptions, Process};
use scada::producer::Source;
use scada::producer::config::Nodes;
use testkit::rig::KafkaOptions;
use testkit::{Logs, PrivateKafka, eventually};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(120);
/// As many faults, but no longer than this.
const FAULTS: usize = 24;
const FAULTS_WITHIN: Duration = Duration::from_secs(30);
const NODES: u16 = 6;
/// The shortest that Kafka allows.
const SESSION: Duration = Duration::from_secs(6);

/// A process of ours that is started again after each end.
struct Role {
    arguments: Vec<String>,
    log: PathBuf,
    /// What the log had before this process wrote to it.
    logged: usize,
    process: Option<Process>,
}

impl Role {
    fn start(arguments: &[&str], config: &Path) -> Role {
        let mut arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
        arguments.extend(["--config".to_owned(), config.display().to_string()]);
        let log = config.with_extension("log");
        let mut role = Role { arguments, log, logged: 0, process: None };
        role.launch();
        role
    }

    fn launch(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("scada").args(&self.arguments);
        self.logged = std::fs::read(&self.log).map_or(0, |text| text.len());
        self.process = Some(Process::spawn(command, Some(&self.log)).unwrap());
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    async fn kill(&mut self) {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(self.process().is_running(), "it ended by itself:\n{text}");
        self.process().kill().await.unwrap();
    }

    /// Before it has, it does not know what it means to be asked to stop.
    async fn has_started(&self) {
        eventually(LONG, "it has started", async || {
            let text = std::fs::read(&self.log).unwrap_or_default();
            String::from_utf8_lossy(&text[self.logged.min(text.len())..]).contains(" started")
        })
        .await
        .unwrap();
    }

    async fn halt(&mut self, time: Duration) {
        self.process().stop();
        tokio::time::sleep(time).await;
        self.process().cont();
    }
}

struct Site {
    // Dropped in this order: the processes before what they work with.
    producer: Role,
    historians: [Role; 2],
    kafka: PrivateKafka,
    postgres: Postgres,
    _logs: Logs,
    folder: tempfile::TempDir,
    /// Runs of the producer so far; the number is the seed of each.
    runs: u64,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    KillProducer,
    HaltProducer,
    KillHistorian(usize),
    HaltHistorian(usize),
    HaltBroker,
    KillBroker,
    KillPostgres,
}

impl Fault {
    fn draw(rng: &mut StdRng) -> Fault {
        let one = rng.random_range(0..2);
        match rng.random_range(0..16) {
            0..4 => Fault::KillProducer,
            4..6 => Fault::HaltProducer,
            6..9 => Fault::KillHistorian(one),
            9..12 => Fault::HaltHistorian(one),
            12..14 => Fault::HaltBroker,
            14 => Fault::KillBroker,
            _ => Fault::KillPostgres,
        }
    }

    /// Lets it last for a moment, and puts it right again.
    async fn inflict(self, site: &mut Site, rng: &mut StdRng) {
        let moment = Duration::from_millis(rng.random_range(20..600));
        match self {
            Fault::KillProducer => {
                site.producer.kill().await;
                tokio::time::sleep(moment / 4).await;
                site.produce();
            }
            // Longer than a lock holds now and then: the row is another's by then, or its own a second time.
            Fault::HaltProducer => site.producer.halt(moment * 5).await,
            Fault::KillHistorian(one) => {
                site.historians[one].kill().await;
                tokio::time::sleep(moment).await;
                site.historians[one].launch();
            }
            Fault::HaltHistorian(one) => site.historians[one].halt(moment * 3).await,
            Fault::HaltBroker => {
                site.kafka.process(0).unwrap().stop();
                tokio::time::sleep(moment * 3).await;
                site.kafka.process(0).unwrap().cont();
            }
            Fault::KillBroker => {
                site.kafka.kill(0).await.unwrap();
                tokio::time::sleep(moment).await;
                site.kafka.restart(0).await.unwrap();
            }
            Fault::KillPostgres => {
                site.postgres.kill().await.unwrap();
                tokio::time::sleep(moment).await;
                site.postgres.restart().await.unwrap();
            }
        }
        // Time for something to flow between two faults, so that each hits work under way.
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..500))).await;
    }
}

impl Site {
    async fn start() -> Option<Site> {
        let kafka = testkit::private_kafka(KafkaOptions::default()).await.unwrap()?;
        let servers = kafka.servers();
        let cluster = Cluster::parse(&servers).unwrap();
        admin::apply(&cluster, &scada::kafka::topics(Profile::Dev)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let options = PostgresOptions::default();
        let postgres = Postgres::start(&folder.path().join("postgres"), options).await.unwrap();
        let client = pg::connect(&pg::Options::new(postgres.url("postgres"))).await.unwrap();
        for name in ["node", "historian"] {
            client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
            let options = pg::Options::new(postgres.url(name));
            match name {
                "node" => scada::migrate_producer(&options).await.unwrap(),
                _ => scada::migrate_historian(&options).await.unwrap(),
            }
        }
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let historian = |name: &str| {
            let text = format!(
                "[historian]\ndatabase.url = {:?}\nbus = \"kafka\"\nkafka.brokers = {servers:?}\nbatch = 100\n\
                 session_timeout = \"{}s\"\nhttp.listen = \"127.0.0.1:0\"\n",
                postgres.url("historian"),
                SESSION.as_secs(),
            );
            Role::start(&["historian", "run"], &write(name, text))
        };
        let historians = ["first.toml", "second.toml"].map(historian);
        let node = |interval: &str| {
            format!(
                "[producer]\ndatabase.url = {:?}\nspool.dir = {:?}\nspool.free_space_reserve = 0\nhttp.listen = \"127.0.0.1:0\"\n\
                 bus = \"kafka\"\nkafka.brokers = {servers:?}\nnodes = {NODES}\ninterval = {interval:?}\ndispatchers = 2\n\
                 outbox.lock_timeout_seconds = 2\noutbox.recovery_interval_ms = 500\n",
                postgres.url("node"),
                folder.path().join("spool"),
            )
        };
        write("quiet.toml", node("60m"));
        let config = write("node.toml", node("50ms"));
        let producer = Role::start(&["producer", "run", "--seed", "1"], &config);
        let logs = Logs::below(folder.path());
        Some(Site { producer, historians, kafka, postgres, _logs: logs, folder, runs: 1 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the producer again, with a seed of its own.
    fn produce(&mut self) {
        self.produce_as("node.toml");
    }

    fn produce_as(&mut self, config: &str) {
        self.runs += 1;
        let seed = self.runs.to_string();
        self.producer = Role::start(&["producer", "run", "--seed", &seed], &self.path(config));
    }

    async fn client(&self, database: &str) -> tokio_postgres::Client {
        pg::connect(&pg::Options::new(self.postgres.url(database))).await.unwrap()
    }

    async fn number(&self, database: &str, query: &str) -> i64 {
        let client = pg::connect(&pg::Options::new(self.postgres.url(database))).await.unwrap();
        client.query_one(query, &[]).await.unwrap().get(0)
    }

    async fn flows(&self, more: i64) {
        let stored = async || self.number("historian", "SELECT count(*) FROM telemetry").await;
        let before = stored().await;
        eventually(LONG, "events arrive", async || {
            let now = stored().await;
            if now >= before + more { Ok(()) } else { Err(now) }
        })
        .await
        .unwrap();
    }

    /// Makes nothing new, and waits until everything there is was sent and stored.
    async fn settle(&mut self) {
        self.producer.has_started().await;
        assert!(self.producer.process().term(LONG).await.unwrap().success());
        self.produce_as("quiet.toml");
        let config = self.path("quiet.toml");
        eventually(LONG, "all of it is sent", async || {
            let mut status = Command::new(env!("CARGO_BIN_EXE_holdfast"));
            status.args(["scada", "producer", "status", "--json", "--config"]).arg(&config);
            let told = status.output().unwrap().stdout;
            let told: serde_json::Value = serde_json::from_slice(&told).unwrap_or_default();
            let count = |part: &str, name: &str| told[part][name].as_i64().unwrap_or(-1);
            let left =
                [("outbox", "pendingCount"), ("outbox", "inProgressCount"), ("spool", "cycles")];
            let left = left.map(|(part, name)| count(part, name));
            if left == [0, 0, 0] { Ok(()) } else { Err(told) }
        })
        .await
        .unwrap();
        let made = self.number("node", "SELECT count(*) FROM outbox_events").await;
        eventually(LONG, &format!("{made} events are stored"), async || {
            let query = "SELECT (SELECT count(*) FROM telemetry) + (SELECT count(*) FROM events)
                + (SELECT count(*) FROM alarms)";
            let stored = self.number("historian", query).await;
            if stored >= made { Ok(()) } else { Err(stored) }
        })
        .await
        .unwrap();
    }
}

/// A row of the outbox.
struct Made {
    id: Uuid,
    key: String,
    value: f64,
    status: String,
    /// When the sensor measured.
    at: Timestamp,
}

/// Takes from `rows` the whole cycles that a run with this seed has begun with.
fn take_run(rows: &mut &[Made], seed: u64) -> usize {
    let plant = "PLANT01".parse().unwrap();
    let nodes = Nodes { plant, first: 1, count: NODES, area: None, unit: None, seed: None };
    let mut source = Source::generators(&nodes, seed).unwrap();
    let mut cycles = 0;
    loop {
        let made = source.cycle(Timestamp::UNIX_EPOCH).events;
        let same = rows.len() >= made.len()
            && made.iter().zip(rows.iter()).all(|(event, row)| {
                event.partition_key() == row.key && event.value.to_bits() == row.value.to_bits()
            });
        if !same {
            return cycles;
        }
        *rows = &rows[made.len()..];
        cycles += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_of_every_node_is_in_the_historian_once() {
    let mut rng = StdRng::seed_from_u64(testkit::seed().unwrap());
    let Some(mut site) = Site::start().await else { return };
    site.flows(200).await;

    // A replica that wakes after the other has taken its partitions is part of every run.
    site.historians[0].halt(SESSION + Duration::from_secs(2)).await;
    let begun = Instant::now();
    for number in 1..=FAULTS {
        if begun.elapsed() > FAULTS_WITHIN {
            break;
        }
        let fault = Fault::draw(&mut rng);
        println!("fault {number}/{FAULTS}: {fault:?}");
        fault.inflict(&mut site, &mut rng).await;
    }
    site.flows(200).await;
    site.settle().await;

    let query =
        "SELECT id, aggregate_id, (payload->>'value')::float8, status, (payload->>'timestamp')
        FROM outbox_events ORDER BY created_at, id";
    let rows = site.client("node").await.query(query, &[]).await.unwrap();
    let made: Vec<Made> = rows
        .iter()
        .map(|row| Made {
            id: row.get(0),
            key: row.get(1),
            value: row.get(2),
            status: row.get(3),
            at: row.get::<_, &str>(4).parse().unwrap(),
        })
        .collect();
    println!("{} events of {} runs", made.len(), site.runs);
    // From the generator to the outbox: run after run, cycle after cycle, without a hole.
    let mut left = made.as_slice();
    let runs: Vec<usize> = (1..=site.runs).map(|seed| take_run(&mut left, seed)).collect();
    assert!(left.is_empty(), "after {runs:?} cycles something else follows: {}", left[0].key);
    let unsent = made.iter().filter(|one| one.status != "SENT").count();
    assert_eq!(unsent, 0, "neither waiting nor given up");
    let gaps = site.number("node", "SELECT count(*) FROM spool_gaps").await;
    assert_eq!(gaps, 0, "the spool gave nothing up");

    // From the outbox to the historian: each once, with its value, and nothing else.
    let query = "SELECT event_id, value, extract(epoch FROM created_at)::float8 FROM telemetry
        UNION ALL SELECT event_id, value, extract(epoch FROM created_at)::float8 FROM events
        UNION ALL SELECT event_id, value, extract(epoch FROM created_at)::float8 FROM alarms";
    let rows = site.client("historian").await.query(query, &[]).await.unwrap();
    let stored: BTreeMap<Uuid, (f64, f64)> =
        rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    assert_eq!(stored.len(), rows.len(), "an event is there twice");
    assert_eq!(stored.len(), made.len(), "something else is there");
    let mut latest: BTreeMap<&str, (Timestamp, f64)> = BTreeMap::new();
    for one in &made {
        let (value, at) = stored.get(&one.id).unwrap_or_else(|| panic!("{} is missing", one.id));
        assert_eq!(value.to_bits(), one.value.to_bits(), "{}", one.id);
        // What comes within one transaction has no order in a table; no later one may be of an earlier transaction.
        let before = latest.insert(&one.key, (one.at, *at)).unwrap_or((one.at, *at));
        assert!(before.0 <= one.at && before.1 <= *at, "{}: {} is out of order", one.key, one.id);
    }
    let cluster = Cluster::parse(&site.kafka.servers()).unwrap();
    let letters = DeadLetterTopic::new(cluster, Topic::Dlq.name());
    let given_up = letters.list(&Filter::default(), 10).await.unwrap();
    assert!(given_up.is_empty(), "{:?}", given_up.iter().map(|(one, _)| one).collect::<Vec<_>>());
}
