//! A broker that is killed, and a cluster that is away for long.

use std::time::Duration;

use scada::outbox::Outbox;
use testkit::eventually;
use testkit::rig::KafkaOptions;

use super::{LONG, Plant, publisher_of};
use crate::pipeline::{dispatch, node};
use crate::station::count;

/// As if a day had passed since everything that the outbox knows.
const A_DAY_LATER: &str = "UPDATE outbox_events SET created_at = created_at - interval '1 day',
    available_at = available_at - interval '1 day' WHERE status <> 'SENT'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_in_a_batch_and_away_for_a_day_costs_nothing() {
    let Some(mut kafka) = testkit::private_kafka(KafkaOptions::default()).await.unwrap() else {
        return;
    };
    let plant = Plant::on("kafka_killed_broker", &kafka.servers(), "group").await;
    let made = plant.events(300);
    let (node, options) = node("kafka_killed_node", &[]).await;
    // The node goes on making events, whatever happens to the bus.
    let writing = {
        let (writer, made) = (Outbox::new(pg::Pool::new(&options).unwrap()), made.clone());
        tokio::spawn(async move {
            for part in made.chunks(20) {
                writer.write_cycle(part).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    let publisher = publisher_of(&plant.cluster);
    let replicas = [plant.historian().await, plant.historian().await];
    let dispatchers =
        [dispatch(&options, "one", &publisher), dispatch(&options, "two", &publisher)];
    let client = plant.client().await;
    let outbox = node.connect().await.unwrap();
    eventually(LONG, "it has begun", async || count(&client, "telemetry").await > 100)
        .await
        .unwrap();
    // In the middle of a batch: the outbox has rows under way.
    eventually(LONG, "a batch is under way", async || {
        count(&outbox, "outbox_events WHERE status = 'IN_PROGRESS'").await > 0
    })
    .await
    .unwrap();
    kafka.kill(0).await.unwrap();
    writing.await.unwrap();
    let released = || dispatchers.iter().map(|one| one.counts().released).sum::<u64>();
    for _ in 0..2 {
        let before = released();
        eventually(LONG, "another try of the cluster", async || released() > before).await.unwrap();
        outbox.batch_execute(A_DAY_LATER).await.unwrap();
    }
    let blamed = "outbox_events WHERE retry_count > 0 OR status = 'FAILED'";
    assert_eq!(count(&outbox, blamed).await, 0, "no attempt is burnt");
    kafka.restart(0).await.unwrap();
    plant.has_stored(&made).await;
    plant.kept_order(&made).await;
    eventually(LONG, "all is sent", async || {
        count(&outbox, "outbox_events WHERE status <> 'SENT'").await == 0
    })
    .await
    .unwrap();
    assert_eq!(count(&outbox, blamed).await, 0);
    plant.is_at_the_end().await;
    for dispatcher in dispatchers {
        tokio::time::timeout(Duration::from_secs(60), dispatcher.stop()).await.unwrap();
    }
    for historian in replicas {
        historian.stop().await;
    }
}
