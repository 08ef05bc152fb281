//! Replicas that come, go and die, with every event stored once.

use std::process::{Command, Stdio};

use bus::Message;
use scada::historian::{Config, Historian};
use testkit::eventually;

use super::{LONG, Plant, publisher_of};
use crate::pipeline::{dispatch, node};
use crate::station::{count, expected, message};

const REPLICA: &str = "SCADA_HISTORIAN_REPLICA";

/// A historian in a process of its own, when the environment says so.
#[tokio::test]
async fn replica() {
    if std::env::var_os(REPLICA).is_none() {
        return;
    }
    let config = Config::load(None, |name| std::env::var(name).ok()).unwrap();
    let _historian = Historian::start(config).await.unwrap();
    std::future::pending::<()>().await;
}

/// Killed when it is dropped.
struct Child(std::process::Child);

impl Child {
    fn start(plant: &Plant) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["kafka::replicas::replica", "--exact"]).env(REPLICA, "1");
        command.env("HOLDFAST_HISTORIAN_HTTP_LISTEN", "127.0.0.1:0").stdout(Stdio::null());
        for (name, value) in plant.pairs() {
            command.env(format!("HOLDFAST_HISTORIAN_{name}"), value);
        }
        Child(command.spawn().unwrap())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_insert_and_commit_nothing_is_lost_or_doubled() {
    let Some(plant) = Plant::shared("kafka_killed").await else { return };
    let made = plant.events(60);
    let child = Child::start(&plant);
    let client = plant.client().await;
    let other = plant.client().await;
    let half = made.len() / 2;
    plant.publish(made[..half].iter().map(message).collect()).await;
    plant.has_stored(&made[..half]).await;
    // Offsets cannot be written, so a batch hangs between its rows and the end of its transaction.
    client.batch_execute("BEGIN; LOCK TABLE bus_offsets IN EXCLUSIVE MODE").await.unwrap();
    plant.publish(made[half..].iter().map(message).collect()).await;
    let waits = "pg_locks l JOIN pg_class c ON c.oid = l.relation
                 WHERE c.relname = 'bus_offsets' AND NOT l.granted";
    eventually(LONG, "a batch hangs", async || count(&other, waits).await > 0).await.unwrap();
    drop(child);
    client.batch_execute("ROLLBACK").await.unwrap();
    let before = plant.stored().await;
    assert!(before.len() < made.len(), "what was not committed is not there");
    // Another replica goes on where the last transaction says.
    let second = plant.historian().await;
    plant.has_stored(&made).await;
    plant.is_at_the_end().await;
    // What the first had stored does not come again: the second began at the offsets. If the group changes hands once more while a
    // batch is being stored, that batch comes a second time and is known by its ids.
    assert!(before.len() >= half, "the first half was there");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_join_leave_and_die_under_load_store_everything_once_and_in_order() {
    let Some(plant) = Plant::shared("kafka_rebalance").await else { return };
    let made = plant.events(250);
    let (node, options) = node("kafka_rebalance_node", &made).await;
    let publisher = publisher_of(&plant.cluster);
    let client = plant.client().await;
    let table = format!("telemetry WHERE plant = '{}'", plant.name);
    let more = async |part: usize| {
        let wanted = i64::try_from(made.len() / 10 * part).unwrap();
        eventually(LONG, "more is stored", async || {
            let seen = count(&client, &table).await;
            if seen >= wanted { Ok(()) } else { Err(seen) }
        })
        .await
        .unwrap();
    };
    let first = plant.historian().await;
    let dispatchers = [
        dispatch(&options, "one", &publisher),
        dispatch(&options, "two", &publisher),
        dispatch(&options, "three", &publisher),
    ];
    more(1).await;
    let child = Child::start(&plant);
    let second = plant.historian().await;
    more(3).await;
    first.stop().await;
    more(4).await;
    drop(child);
    let third = plant.historian().await;
    more(6).await;
    second.stop().await;
    plant.has_stored(&made).await;
    plant.kept_order(&made).await;
    plant.is_at_the_end().await;
    let unsent = "outbox_events WHERE status <> 'SENT' OR retry_count > 0";
    assert_eq!(count(&node.connect().await.unwrap(), unsent).await, 0);
    for dispatcher in dispatchers {
        dispatcher.stop().await;
    }
    third.stop().await;
}

#[tokio::test]
async fn duplicates_and_reordered_deliveries_leave_every_event_once() {
    let Some(plant) = Plant::shared("kafka_twice").await else { return };
    let made = plant.events(50);
    let mut messages: Vec<Message> = made.iter().map(message).collect();
    let historian = plant.historian().await;
    plant.publish(messages[messages.len() / 3..].to_vec()).await;
    messages.reverse();
    plant.publish(messages.clone()).await;
    // Under other keys they come from other partitions, mixed with the first.
    for (at, message) in messages.iter_mut().enumerate() {
        message.key = Some(format!("other-{}", at % 7));
    }
    plant.publish(messages).await;
    plant.has_stored(&made).await;
    plant.is_at_the_end().await;
    assert_eq!(plant.stored().await, expected(&made));
    historian.stop().await;
}
