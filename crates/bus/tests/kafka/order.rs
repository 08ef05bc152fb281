//! Which partition a key goes to, and order by key.

use std::collections::BTreeMap;

use bus::{Cause, Message, Publisher as _};

use crate::world::{Site, assert_in_order, consume_all, next, publish_all};

/// Keys that are text, with their partition of 12, from what Kafka's Java client computed.
fn vectors() -> Vec<(String, i32)> {
    let text = include_str!("../../../event/tests/murmur2_vectors.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut columns = line.split(' ');
            let hex = columns.next()?;
            let bytes = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
                .collect::<Option<Vec<u8>>>()?;
            Some((String::from_utf8(bytes).ok()?, columns.nth(2)?.parse().ok()?))
        })
        .collect()
}

#[tokio::test]
async fn a_key_goes_to_the_partition_that_java_chooses() {
    let Some(site) = Site::shared(12).await else { return };
    let vectors = vectors();
    assert!(vectors.len() >= 20, "{}", vectors.len());
    let keyed = |(n, (key, _)): (usize, &(String, i32))| Message {
        key: Some(key.clone()),
        ..site.message(n, 1)
    };
    let messages: Vec<Message> = vectors.iter().enumerate().map(keyed).collect();
    assert_eq!(publish_all(&site.publisher(), messages).await, 0);
    let mut consumer = site.consumer();
    let mut seen = BTreeMap::new();
    while seen.len() < vectors.len() {
        let batch = next(&mut consumer).await;
        for one in batch.deliveries() {
            let position = one.position.clone().unwrap();
            assert_eq!(&*position.topic, site.topic);
            seen.insert(one.message.key.clone().unwrap(), position.partition);
        }
        batch.commit().await.unwrap();
    }
    for (key, partition) in vectors {
        assert_eq!(seen[&key], partition, "{key:?}");
    }
}

#[tokio::test]
async fn order_by_key_holds_on_many_partitions_and_through_retries() {
    const COUNT: usize = 2000;
    let Some(site) = Site::shared(6).await else { return };
    let publisher = site.publisher();
    let messages: Vec<Message> = (0..COUNT).map(|n| site.message(n, 40)).collect();
    assert_eq!(publish_all(&publisher, messages).await, 0);
    let mut consumer = site.consumer();
    let mut by_key: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let (mut stored, mut failed) = (0, 0);
    while stored < COUNT {
        let mut batch = next(&mut consumer).await;
        let mut blocked: Vec<Option<String>> = Vec::new();
        for at in 0..batch.len() {
            let delivery = batch.deliveries()[at].clone();
            let n: usize = delivery.message.message_id[3..].parse().unwrap();
            // Every hundredth fails at first. A handler that wants order fails the rest of its key with it.
            if (n % 100 == 7 && delivery.attempts == 0) || blocked.contains(&delivery.message.key) {
                failed += 1;
                blocked.push(delivery.message.key);
                batch.retry(at, Cause::new("not_yet", "once more"));
                continue;
            }
            by_key.entry(delivery.message.key.unwrap()).or_default().push(n);
            stored += 1;
        }
        batch.commit().await.unwrap();
    }
    assert!(failed >= COUNT / 100, "{failed}");
    assert_eq!(by_key.values().map(Vec::len).sum::<usize>(), COUNT);
    assert_in_order(&by_key);
}

#[tokio::test]
async fn what_no_binding_wants_is_passed_over_and_stays_passed() {
    let Some(site) = Site::shared(1).await else { return };
    let publisher = site.publisher();
    let unwanted = |n| Message { routing_key: "other".to_owned(), ..site.message(n, 1) };
    let results = publisher.publish(vec![unwanted(100), site.message(0, 1), unwanted(101)]).await;
    assert_eq!(results, vec![Ok(()); 3]);
    let mut first = site.consumer();
    let batch = next(&mut first).await;
    assert_eq!(crate::world::ids(&batch), ["id-0"]);
    batch.commit().await.unwrap();
    drop(first);
    publish_all(&publisher, [site.message(1, 1)]).await;
    let mut second = site.consumer();
    let batch = next(&mut second).await;
    assert_eq!(crate::world::ids(&batch), ["id-1"], "offsets moved over what was passed");
    batch.commit().await.unwrap();
}

#[tokio::test]
async fn consumers_of_one_group_share_the_work() {
    const COUNT: usize = 1000;
    let Some(site) = Site::shared(8).await else { return };
    let publisher = site.publisher();
    let mut one = site.consumer();
    publish_all(&publisher, (0..COUNT).map(|n| site.message(n, 50))).await;
    let (by_key, deliveries) = consume_all(&mut one, COUNT).await;
    assert_eq!(deliveries, COUNT);
    assert_in_order(&by_key);
    let mut two = site.consumer();
    publish_all(&publisher, (COUNT..2 * COUNT).map(|n| site.message(n, 50))).await;
    // Both must get some before it ends: the second one only after a rebalance.
    let (mut by_one, mut by_two) = (0, 0);
    let mut more = 2 * COUNT;
    while by_two == 0 || by_one + by_two < COUNT {
        tokio::select! {
            batch = next(&mut one) => { by_one += batch.len(); let _ = batch.commit().await; }
            batch = next(&mut two) => { by_two += batch.len(); let _ = batch.commit().await; }
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                publish_all(&publisher, (more..more + 50).map(|n| site.message(n, 50))).await;
                more += 50;
            }
        }
    }
    assert!(by_two > 0);
}

#[tokio::test]
async fn a_handler_that_takes_long_loses_nothing() {
    const COUNT: usize = 1500;
    let Some(site) = Site::shared(3).await else { return };
    publish_all(&site.publisher(), (0..COUNT).map(|n| site.message(n, 10))).await;
    let mut consumer = site.consumer();
    let first = next(&mut consumer).await;
    let mut seen = crate::world::ids(&first);
    // Its room is full, and it pauses its partitions.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    first.commit().await.unwrap();
    while seen.len() < COUNT {
        let batch = next(&mut consumer).await;
        seen.extend(crate::world::ids(&batch));
        batch.commit().await.unwrap();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), COUNT, "each came once");
}
