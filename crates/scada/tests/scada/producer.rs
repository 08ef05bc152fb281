//! A node as a whole: its loop against a Postgres that comes and goes. What is in the outbox is compared, value by value, with what the
//! seed makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bus::{PublishError, Publisher};
use event::scada::Envelope;
use jiff::Timestamp;
use scada::producer::{Config, Metrics, Producer, Source, status};
use testkit::rig::Mode;
use testkit::{Certificates, Database, eventually};

use crate::plant::{Bus, LONG, Plant};
use crate::wire::Wire;

const SEED: u64 = 23;

fn config(url: &str, spool: &std::path::Path, pairs: &[(&str, &str)]) -> Config {
    let spool = spool.to_str().unwrap();
    let own = [
        ("DATABASE_URL", url),
        ("SPOOL_DIR", spool),
        ("SPOOL_FREE_SPACE_RESERVE", "0"),
        ("HTTP_LISTEN", "127.0.0.1:0"),
        ("BUS", "inline"),
        ("NODES", "3"),
        ("SEED", "23"),
        ("INTERVAL", "50ms"),
        ("REPORT_EVERY", "50ms"),
        ("OUTBOX_POLL_INTERVAL_MS", "20"),
    ];
    Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_PRODUCER_")?;
        Some(pairs.iter().chain(&own).find(|(name, _)| *name == key)?.1.to_owned())
    })
    .unwrap()
}

/// The whole number of a line of /metrics.
fn number(metrics: &Metrics, line: &str) -> u64 {
    let text = metrics.render();
    let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    found.and_then(|value| value.parse().ok()).unwrap_or(u64::MAX)
}

fn cycles(metrics: &Metrics, to: &str) -> u64 {
    number(metrics, &format!("holdfast_producer_cycles_total{{to=\"{to}\"}}"))
}

/// How many events were made.
fn made(metrics: &Metrics) -> usize {
    let of = |category| format!("holdfast_producer_events_total{{category=\"{category}\"}}");
    let all = ["telemetry", "event", "alarm"].map(|category| number(metrics, &of(category)));
    usize::try_from(all.iter().sum::<u64>()).unwrap()
}

async fn more(metrics: &Metrics, to: &str, by: u64) {
    let before = cycles(metrics, to);
    eventually(LONG, &format!("{by} more cycles to {to}"), async || {
        let now = cycles(metrics, to);
        if now >= before + by { Ok(()) } else { Err(format!("{before} then {now}")) }
    })
    .await
    .unwrap();
}

/// Key and value of the first `count` events that nodes with this seed make.
fn expected(config: &Config, count: usize) -> Vec<(String, f64)> {
    let mut source = Source::generators(&config.nodes, SEED).unwrap();
    let mut all: Vec<Envelope> = Vec::new();
    while all.len() < count {
        all.extend(source.cycle(Timestamp::UNIX_EPOCH).events);
    }
    assert_eq!(all.len(), count, "whole cycles");
    all.iter().map(|event| (event.partition_key(), event.value)).collect()
}

/// Key and value of what is in the outbox, in its order; and how many transactions wrote it.
async fn written(database: &Database) -> (Vec<(String, f64)>, usize) {
    let client = database.connect().await.unwrap();
    let query = "SELECT aggregate_id, (payload->>'value')::float8, headers->>'correlationId' FROM outbox_events
        ORDER BY created_at, id";
    let rows = client.query(query, &[]).await.unwrap();
    let mut causes: Vec<&str> = rows.iter().map(|row| row.get(2)).collect();
    causes.dedup();
    (rows.iter().map(|row| (row.get(0), row.get(1))).collect(), causes.len())
}

/// Each key's values, in order.
fn by_key(all: impl IntoIterator<Item = (String, f64)>) -> BTreeMap<String, Vec<f64>> {
    let mut keys: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (key, value) in all {
        keys.entry(key).or_default().push(value);
    }
    keys
}

/// What the bus took, without what came twice: a confirm that could not be noted is published again.
fn taken(bus: &Bus) -> BTreeMap<String, Vec<f64>> {
    let mut seen = BTreeSet::new();
    let first = bus.taken().into_iter().filter(|one| seen.insert(one.message_id.clone()));
    let events: Vec<_> = first.map(|one| (one.key.unwrap(), one.body)).collect();
    by_key(events.into_iter().map(|(key, body)| (key, Envelope::parse(&body).unwrap().value)))
}

async fn start(config: &Config, bus: &Arc<Bus>) -> Producer {
    Producer::start_with(config.clone(), Arc::clone(bus) as Arc<dyn Publisher>).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn through_cuts_and_lost_answers_every_cycle_is_there_once_and_in_order() {
    let plant = Plant::new("producer_cuts").await;
    let wire = Wire::to(&plant.database).await;
    let folder = tempfile::tempdir().unwrap();
    let bus = Arc::new(Bus::default());
    let pairs =
        [("WRITE_WITHIN", "200ms"), ("DISPATCHERS", "2"), ("OUTBOX_LOCK_TIMEOUT_SECONDS", "1")];
    let config = config(&wire.url, folder.path(), &pairs);
    let producer = start(&config, &bus).await;
    let metrics = Arc::clone(producer.metrics());
    more(&metrics, "outbox", 20).await;
    for away in [Mode::Cut, Mode::DropDown, Mode::DropUp, Mode::Stall] {
        wire.link.set(away);
        more(&metrics, "spool", 20).await;
        // What was open ends with the fault, as it does when somebody pulls the plug and puts it back.
        wire.link.set(Mode::Cut);
        wire.link.set(Mode::Pass);
        more(&metrics, "outbox", 20).await;
    }
    producer.stop().await;
    assert_eq!(cycles(&metrics, "lost"), 0);
    let all = made(&metrics);
    let expected = expected(&config, all);
    let (rows, transactions) = written(&plant.database).await;
    assert_eq!(rows, expected);
    let total = cycles(&metrics, "outbox") + cycles(&metrics, "spool");
    assert_eq!(u64::try_from(transactions).unwrap(), total, "one transaction a cycle");
    // Rows that were held when a link broke are free when their leases end.
    let dispatcher = plant.dispatcher("the rest", &bus);
    plant.settled("SENT", i64::try_from(all).unwrap()).await;
    dispatcher.stop().await;
    assert_eq!(taken(&bus), by_key(expected));
    let cached: i64 = plant
        .client()
        .await
        .query_one("SELECT count(*) FROM local_telemetry", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(u64::try_from(cached).unwrap(), 9 * total, "three tags of three nodes a cycle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_without_its_database_and_makes_the_tables_later() {
    let database = Database::empty("producer_late").await.unwrap();
    let wire = Wire::to(&database).await;
    wire.link.set(Mode::Cut);
    let folder = tempfile::tempdir().unwrap();
    let bus = Arc::new(Bus::default());
    let config = config(&wire.url, folder.path(), &[("STALLED_AFTER", "1s")]);
    let producer = start(&config, &bus).await;
    let metrics = Arc::clone(producer.metrics());
    more(&metrics, "spool", 30).await;
    assert_eq!(cycles(&metrics, "outbox"), 0);
    let address = producer.http();
    let ready = async || {
        let asked = crate::http().get(format!("http://{address}/readyz")).send().await.unwrap();
        (asked.status().as_u16(), asked.text().await.unwrap())
    };
    eventually(LONG, "it says what is away", async || {
        let (code, text) = ready().await;
        (code == 503 && text.contains("database: away")).then_some(()).ok_or(text)
    })
    .await
    .unwrap();

    // Stopped and started without the database having come back: the spool goes on where it was.
    producer.stop().await;
    let first = made(&metrics);
    let told = status(&config).await.unwrap();
    assert!(told.outbox.is_none() && told.spool.unwrap().cycles >= 30);
    let producer = start(&config, &bus).await;
    let metrics = Arc::clone(producer.metrics());
    more(&metrics, "spool", 5).await;
    wire.link.set(Mode::Pass);
    more(&metrics, "outbox", 5).await;
    let address = producer.http();
    let asked = async || {
        let asked = crate::http().get(format!("http://{address}/readyz")).send().await.unwrap();
        let code = asked.status().as_u16();
        (code == 200).then_some(()).ok_or(asked.text().await.unwrap())
    };
    eventually(LONG, "it is ready", asked).await.unwrap();
    producer.stop().await;
    let second = made(&metrics);
    // Each run has begun its walks anew.
    let wanted = [expected(&config, first), expected(&config, second)].concat();
    let (rows, _) = written(&database).await;
    assert_eq!(rows, wanted);
    let told = status(&config).await.unwrap();
    assert_eq!((told.given_up_cycles, told.spool.unwrap().cycles), (Some(0), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_is_away_stops_no_cycle_and_raises_the_documented_alerts() {
    let plant = Plant::new("producer_alerts").await;
    let folder = tempfile::tempdir().unwrap();
    let bus = Arc::new(Bus::default());
    *bus.away.lock().unwrap() = Some(PublishError::Unreachable("cut".into()));
    let config = config(plant.database.url(), folder.path(), &[]);
    let producer = start(&config, &bus).await;
    let metrics = Arc::clone(producer.metrics());
    let alert = |level: &str| {
        let labels = format!("{{metric=\"pendingCount\",level=\"{level}\"}}");
        let holds = number(&metrics, &format!("holdfast_producer_alerts{labels}"));
        (holds, number(&metrics, &format!("holdfast_producer_alerts_total{labels}")))
    };
    eventually(LONG, "it is critical", async || alert("critical") == (1, 1)).await.unwrap();
    assert_eq!(alert("warning").0, 0, "it is the one or the other");
    let address = producer.http();
    let ready = async || {
        let asked = crate::http().get(format!("http://{address}/readyz")).send().await.unwrap();
        (asked.status().as_u16(), asked.text().await.unwrap())
    };
    let (code, text) = ready().await;
    assert_eq!(code, 503);
    assert!(text.contains("critical: pendingCount"), "{text}");
    assert!(number(&metrics, "holdfast_producer_outbox_pending") > 1_000);
    let told = status(&config).await.unwrap();
    assert!(told.warnings.iter().any(|one| one.metric == "pendingCount"));

    *bus.away.lock().unwrap() = None;
    eventually(LONG, "the alert is over", async || alert("critical").0 == 0).await.unwrap();
    eventually(LONG, "it is ready", async || {
        let (code, text) = ready().await;
        (code == 200).then_some(()).ok_or(text)
    })
    .await
    .unwrap();
    producer.stop().await;
    assert_eq!(cycles(&metrics, "spool") + cycles(&metrics, "lost"), 0);
    let retried = "SELECT count(*) FROM outbox_events WHERE retry_count > 0";
    let retried: i64 = plant.client().await.query_one(retried, &[]).await.unwrap().get(0);
    assert_eq!(retried, 0, "an outage burns no attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_spool_gives_up_is_on_record_and_the_rest_is_there() {
    let plant = Plant::new("producer_full").await;
    let wire = Wire::to(&plant.database).await;
    let folder = tempfile::tempdir().unwrap();
    let bus = Arc::new(Bus::default());
    let mut config = config(&wire.url, folder.path(), &[]);
    // Room for some dozens of cycles.
    (config.spool.segment_bytes, config.spool.max_spool_bytes) = (16 << 10, 64 << 10);
    let producer = start(&config, &bus).await;
    let metrics = Arc::clone(producer.metrics());
    more(&metrics, "outbox", 5).await;
    wire.link.set(Mode::Cut);
    more(&metrics, "spool", 150).await;
    wire.link.set(Mode::Pass);
    more(&metrics, "outbox", 5).await;
    producer.stop().await;
    let given_up = number(&metrics, "holdfast_producer_gap_cycles_total");
    let told = status(&config).await.unwrap();
    assert_eq!(told.given_up_cycles, Some(given_up));
    assert!(given_up > 0, "nothing had to be given up");
    let total = cycles(&metrics, "outbox") + cycles(&metrics, "spool");
    let (rows, transactions) = written(&plant.database).await;
    assert_eq!(u64::try_from(transactions).unwrap() + given_up, total, "kept and declared are all");
    // What is there is what was made, in its order, with holes: segments without events and alarms go before those that have some.
    let all = expected(&config, made(&metrics));
    let mut made = all.iter();
    assert!(rows.iter().all(|row| made.any(|one| one == row)), "something is out of order");
}

#[tokio::test]
async fn what_can_never_work_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Arc::new(Bus::default());
    let plant = Plant::new("producer_never").await;
    let nowhere = plant.database.url().replace(plant.database.name(), "nowhere");
    let refused = |config: Config| {
        let bus = Arc::clone(&bus) as Arc<dyn Publisher>;
        async { Producer::start_with(config, bus).await.unwrap_err().to_string() }
    };
    assert!(refused(config(&nowhere, folder.path(), &[])).await.contains("nowhere"));
    let config = config(plant.database.url(), folder.path(), &[]);
    assert!(Producer::start(config.clone()).await.unwrap_err().to_string().contains("inline"));
    let first = start(&config, &bus).await;
    assert!(refused(config.clone()).await.contains("in use"), "a spool has one owner");
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_tells_of_itself_is_served_by_tls_only_and_asks_for_certificates() {
    let mut certificates = Certificates::make().unwrap();
    let plant = Plant::new("producer_tls").await;
    let folder = tempfile::tempdir().unwrap();
    let config = config(plant.database.url(), folder.path(), &certificates.settings());
    let producer = start(&config, &Arc::new(Bus::default())).await;
    // A request from this machine may see the metrics, and by TLS alone.
    certificates.are_asked_for(producer.http(), "/metrics").await.unwrap();
    producer.stop().await;
}

/// A request that came through a proxy counts as from elsewhere, as one from another machine does.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_this_machine_or_for_whoever_bears_the_token_of_the_file() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plant = Plant::new("producer_metrics").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metrics.token");
    let (old, new) = ("the-first-of-two-tokens", "the-second-of-two-tokens");
    std::fs::write(&file, format!("{old}\n")).unwrap();
    let client = reqwest::Client::new();
    let ask = async |producer: &Producer, path: &str, from_here: bool, token: Option<&str>| {
        let mut request = client.get(format!("http://{}{path}", producer.http()));
        if !from_here {
            request = request.header("x-forwarded-for", "192.0.2.7");
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status().as_u16()
    };
    let spool = folder.path().join("closed");
    let closed = config(plant.database.url(), &spool, &[]);
    let producer = start(&closed, &Arc::new(Bus::default())).await;
    assert_eq!(ask(&producer, "/metrics", true, None).await, 200);
    assert_eq!(ask(&producer, "/metrics", false, None).await, 403);
    assert_eq!(ask(&producer, "/metrics", false, Some(old)).await, 403, "no token was given to it");
    producer.stop().await;

    let spool = folder.path().join("open");
    let named = [("HTTP_METRICS_TOKEN_FILE", file.to_str().unwrap())];
    let open = config(plant.database.url(), &spool, &named);
    let producer = start(&open, &Arc::new(Bus::default())).await;
    assert_eq!(ask(&producer, "/metrics", true, None).await, 200, "this machine needs none");
    assert_eq!(ask(&producer, "/healthz", false, None).await, 200);
    for wrong in [None, Some(""), Some(new), Some("the-first-of-two-token")] {
        assert_eq!(ask(&producer, "/metrics", false, wrong).await, 401, "{wrong:?}");
    }
    assert_eq!(ask(&producer, "/metrics", false, Some(old)).await, 200);
    assert_eq!(ask(&producer, "/", false, Some(old)).await, 403, "it opens nothing else");
    // The file changes, and the node goes on.
    std::fs::write(&file, new).unwrap();
    eventually(LONG, "the new token to be let in", async || {
        ask(&producer, "/metrics", false, Some(new)).await == 200
    })
    .await
    .unwrap();
    assert_eq!(ask(&producer, "/metrics", false, Some(old)).await, 401, "the old one has ended");
    producer.stop().await;
}
