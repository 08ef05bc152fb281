//! A node as a whole that reads a device and applies rules.

use std::sync::Arc;

use bus::{Message, PublishError, Publisher};
use futures_util::future::BoxFuture;
use scada::producer::{Config, Producer};

use crate::ledger::{migrate, sums};
use crate::simulator::{LONG, Simulator};

/// Takes everything.
struct Everything;

impl Publisher for Everything {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Result<(), PublishError>>> {
        Box::pin(std::future::ready(batch.into_iter().map(|_| Ok(())).collect()))
    }
}

/// A node that reads the simulator, every 20 ms.
async fn node(simulator: &Simulator, database: &testkit::Database) -> Producer {
    let path = |name: &str| simulator.folder.path().join(name);
    let device = format!(
        "[node]\nid = 7\nplant = \"PLANT01\"\narea = \"AREA01\"\nunit = \"UNIT_07\"\n\
         [[modbus]]\nname = \"skid\"\naddress = \"127.0.0.1:{}\"\nevery = \"20ms\"\n\
         [[modbus.tag]]\ntag = \"FLOW_RATE\"\nregister = 100\ntype = \"u16\"\n\
         [[modbus.tag]]\ntag = \"PRESSURE\"\ntable = \"input\"\nregister = 8\ntype = \"u16\"\ndead_band = 1\n",
        simulator.port
    );
    std::fs::write(path("inputs.toml"), device).unwrap();
    let rules = "[[rule]]\ntag = \"FLOW_RATE\"\naverage = { readings = 5, every = \"100ms\" }\n\
                 compress = { deviation = 1, max_silence = \"1h\" }\n";
    std::fs::write(path("analytics.toml"), rules).unwrap();
    let text = |name: &str| path(name).display().to_string();
    let settings = [
        ("PRODUCER_DATABASE_URL", database.url().to_owned()),
        ("HOLDFAST_PRODUCER_BUS", "inline".to_owned()),
        ("HOLDFAST_PRODUCER_SPOOL_DIR", text("spool")),
        ("HOLDFAST_PRODUCER_HTTP_LISTEN", "127.0.0.1:0".to_owned()),
        ("HOLDFAST_PRODUCER_INTERVAL", "50ms".to_owned()),
        ("HOLDFAST_PRODUCER_INPUTS_FILE", text("inputs.toml")),
        ("HOLDFAST_PRODUCER_ANALYTICS_FILE", text("analytics.toml")),
    ];
    let config = Config::load(None, |name| {
        settings.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
    })
    .unwrap();
    Producer::start_with(config, Arc::new(Everything)).await.unwrap()
}

#[tokio::test]
async fn readings_of_a_device_are_reduced_counted_and_sent() {
    let simulator = Simulator::start("modbus.py", "").await;
    let database = testkit::database("scada_inputs_node", "scada_producer", migrate).await.unwrap();
    let producer = node(&simulator, &database).await;
    testkit::eventually(LONG, "many readings, most of them reduced", async || {
        let (readings, _, reduced, derived) = sums(&database).await;
        readings > 50 && reduced > 40 && derived > 2
    })
    .await
    .unwrap();
    producer.stop().await;

    let (readings, kept, reduced, derived) = sums(&database).await;
    assert_eq!(readings, kept + reduced);
    let client = database.connect().await.unwrap();
    let count = async |query: &str| -> i64 { client.query_one(query, &[]).await.unwrap().get(0) };
    assert_eq!(count("SELECT count(*) FROM outbox_events").await, kept + derived);
    let flow = "SELECT count(*) FROM outbox_events WHERE event_type = 'FLOW_RATE'";
    assert_eq!(count(flow).await, 2, "the first, and the one that was held at the stop");
    let pressure = "SELECT count(*) FROM outbox_events WHERE event_type = 'PRESSURE'
        AND (payload->>'value')::float8 = 1234";
    assert_eq!(count(pressure).await, 1, "its dead band has left out the rest");
}

#[tokio::test]
async fn a_node_says_of_each_input_how_it_stands() {
    let mut simulator = Simulator::start("modbus.py", "").await;
    let database =
        testkit::database("scada_inputs_stand", "scada_producer", migrate).await.unwrap();
    let producer = node(&simulator, &database).await;
    let metrics = Arc::clone(producer.metrics());
    let value = |name: &str| {
        let start = format!("holdfast_scada_input_{name}{{input=\"skid\"}} ");
        let text = metrics.render();
        let line = text.lines().find_map(|line| line.strip_prefix(&start)).expect(name);
        line.parse::<f64>().unwrap()
    };
    let read = async || value("reads_total") > 20.0 && value("connected") == 1.0;
    testkit::eventually(LONG, "the input is read", read).await.unwrap();
    assert_eq!((value("failures_total"), value("every_seconds")), (0.0, 0.02));
    simulator.kill().await;
    let away = async || value("connected") == 0.0 && value("failures_total") >= 1.0;
    testkit::eventually(LONG, "the input is away", away).await.unwrap();
    let last = value("last_success_timestamp_seconds");
    assert!(last <= jiff::Timestamp::now().as_duration().as_secs_f64());
    simulator.restart().await;
    let back = async || value("connected") == 1.0 && value("last_success_timestamp_seconds") > last;
    testkit::eventually(LONG, "it is back", back).await.unwrap();
    producer.stop().await;
}
