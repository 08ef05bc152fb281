//! Offsets kept by Kafka and by the caller, through rebalances and kills.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::kafka::{Cluster, Offsets, PartitionId, StoredOffsets};
use bus::{Batch, ConsumeError, Consumer as _};
use futures_util::future::BoxFuture;

use crate::world::{LONG, Site, assert_in_order, ids, next, publish_all};

/// A store whose transactions hold rows and offsets together.
#[derive(Default)]
struct Store {
    tables: Mutex<Tables>,
    /// Set for a database that does not answer.
    away: AtomicBool,
}

#[derive(Default)]
struct Tables {
    rows: BTreeMap<String, u32>,
    by_key: BTreeMap<String, Vec<usize>>,
    offsets: BTreeMap<PartitionId, i64>,
    /// Deliveries that the offsets showed to be stored already.
    replayed: usize,
}

impl Store {
    fn transaction(&self, batch: &Batch) {
        let mut tables = self.tables.lock().unwrap();
        for one in batch.deliveries() {
            let position = one.position.clone().unwrap();
            let id = (Arc::clone(&position.topic), position.partition);
            let next = tables.offsets.entry(id).or_default();
            if position.offset < *next {
                tables.replayed += 1;
                continue;
            }
            *next = position.offset + 1;
            let n = one.message.message_id[3..].parse().unwrap();
            *tables.rows.entry(one.message.message_id.clone()).or_default() += 1;
            tables.by_key.entry(one.message.key.clone().unwrap()).or_default().push(n);
        }
    }

    fn count(&self) -> usize {
        self.tables.lock().unwrap().rows.len()
    }
}

impl StoredOffsets for Store {
    fn load<'a>(
        &'a self,
        partitions: &'a [PartitionId],
    ) -> BoxFuture<'a, Result<BTreeMap<PartitionId, i64>, String>> {
        Box::pin(async move {
            if self.away.load(Ordering::Acquire) {
                return Err("the store is away".to_owned());
            }
            let tables = self.tables.lock().unwrap();
            let known =
                partitions.iter().filter_map(|id| Some((id.clone(), *tables.offsets.get(id)?)));
            Ok(known.collect())
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebalances_under_load_store_everything_once_and_in_order() {
    const COUNT: usize = 6000;
    let Some(site) = Site::shared(9).await else { return };
    let store = Arc::new(Store::default());
    let publishing = {
        let site = site.clone();
        tokio::spawn(async move {
            let publisher = site.publisher();
            for from in (0..COUNT).step_by(200) {
                publish_all(&publisher, (from..from + 200).map(|n| site.message(n, 60))).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    let consume = |site: &Site| {
        let (store, site) = (Arc::clone(&store), site.clone());
        tokio::spawn(async move {
            let mut consumer = site.consumer_with(Offsets::Stored(Arc::clone(&store) as _));
            loop {
                let batch = next(&mut consumer).await;
                store.transaction(&batch);
                // A replica that is ended between the two lines has stored and not committed.
                tokio::time::sleep(Duration::from_millis(3)).await;
                match batch.commit().await {
                    Ok(_) | Err(ConsumeError::Lost) => {}
                    Err(error) => unreachable!("{error}"),
                }
            }
        })
    };
    let moved = async |more: usize| {
        let before = store.count();
        let enough = || store.count() >= (before + more).min(COUNT);
        testkit::eventually(LONG, "rows", async || enough().then_some(()).ok_or(store.count()))
            .await
            .unwrap();
    };
    // Replicas come and go while messages flow; one is ended without a word.
    let first = consume(&site);
    moved(300).await;
    let second = consume(&site);
    moved(1000).await;
    first.abort();
    moved(500).await;
    let third = consume(&site);
    moved(1000).await;
    second.abort();
    moved(COUNT).await;
    publishing.await.unwrap();
    third.abort();
    let tables = store.tables.lock().unwrap();
    assert_eq!(tables.rows.len(), COUNT);
    assert!(tables.rows.values().all(|times| *times == 1));
    assert_in_order(&tables.by_key);
    assert_eq!(tables.offsets.values().sum::<i64>(), i64::try_from(COUNT).unwrap());
}

#[tokio::test]
async fn a_replay_changes_nothing_and_starts_where_the_store_says() {
    let Some(site) = Site::shared(2).await else { return };
    let store = Arc::new(Store::default());
    publish_all(&site.publisher(), (0..40).map(|n| site.message(n, 8))).await;
    let stored = || Offsets::Stored(Arc::clone(&store) as _);
    let mut consumer = site.consumer_with(stored());
    while store.count() < 40 {
        let batch = next(&mut consumer).await;
        store.transaction(&batch);
        batch.commit().await.unwrap();
    }
    drop(consumer);
    let before = store.tables.lock().unwrap().rows.clone();
    // Kafka's own offsets say that all is read. The store says otherwise, and that counts; while it is away nothing is delivered.
    let offsets = std::mem::take(&mut store.tables.lock().unwrap().offsets);
    store.away.store(true, Ordering::Release);
    let mut consumer = site.consumer_with(stored());
    let early = tokio::time::timeout(Duration::from_secs(2), consumer.next()).await;
    assert!(early.is_err(), "{early:?}");
    store.away.store(false, Ordering::Release);
    let mut again = 0;
    while again < 40 {
        let batch = next(&mut consumer).await;
        // Idempotent by id, as a store's key makes it.
        again += batch
            .deliveries()
            .iter()
            .filter(|one| before.contains_key(&one.message.message_id))
            .count();
        batch.commit().await.unwrap();
    }
    drop(consumer);
    // From an offset in the middle.
    let (id, end) = offsets.iter().max_by_key(|(_, end)| **end).unwrap();
    let mut from = offsets.clone();
    from.insert(id.clone(), end - 3);
    store.tables.lock().unwrap().offsets = from;
    let mut consumer = site.consumer_with(stored());
    let batch = next(&mut consumer).await;
    let positions: Vec<_> =
        batch.deliveries().iter().map(|one| one.position.clone().unwrap()).collect();
    assert_eq!(
        positions.iter().map(|one| one.offset).collect::<Vec<_>>(),
        [end - 3, end - 2, end - 1]
    );
    assert!(positions.iter().all(|one| one.partition == id.1));
    store.transaction(&batch);
    batch.commit().await.unwrap();
    assert_eq!(store.tables.lock().unwrap().offsets, offsets);
}

#[tokio::test]
async fn a_dead_letter_is_there_before_the_callers_transaction() {
    let Some(site) = Site::shared(1).await else { return };
    let store = Arc::new(Store::default());
    publish_all(&site.publisher(), (0..4).map(|n| site.message(n, 1))).await;
    let mut consumer = site.consumer_with(Offsets::Stored(Arc::clone(&store) as _));
    let letters = bus::kafka::DeadLetterTopic::new(site.cluster.clone(), &site.dlq);
    let listed = async || {
        let listed = letters.list(&bus::Filter::default(), 10).await.unwrap();
        listed.into_iter().map(|(letter, _)| letter.message.message_id).collect::<Vec<_>>()
    };
    let (mut seen, mut buried) = (0, 0);
    while seen < 4 {
        let mut batch = next(&mut consumer).await;
        let at = batch.deliveries().iter().position(|one| one.message.message_id == "id-2");
        if let Some(at) = at {
            batch.dead_letter(at, bus::Cause::new("invalid", "never"));
            batch.bury().await.unwrap();
            assert_eq!(listed().await, ["id-2"], "before anything is stored");
            // Asked again, it is not there twice.
            batch.bury().await.unwrap();
        }
        store.transaction(&batch);
        let stored = store.tables.lock().unwrap().offsets.clone();
        assert_eq!(batch.next_offsets(), stored);
        seen += batch.len();
        buried += batch.commit().await.unwrap().dead_lettered;
    }
    assert_eq!((buried, listed().await), (1, vec!["id-2".to_owned()]));
}

/// Set for a process that plays a part in another test: servers, topic, group, file.
const PART: &str = "BUS_KAFKA_PART";

/// Stores a batch in a file and never commits, when the environment says so.
#[tokio::test]
async fn part() {
    let Ok(part) = std::env::var(PART) else { return };
    let [servers, topic, group, file] = part.split('|').collect::<Vec<_>>().try_into().unwrap();
    let site = Site {
        cluster: Cluster::parse(servers).unwrap(),
        topic: topic.to_owned(),
        dlq: format!("{topic}-dlq"),
        group: group.to_owned(),
    };
    let mut consumer = site.consumer();
    let batch = next(&mut consumer).await;
    let mut stored = std::fs::File::create(file).unwrap();
    stored.write_all(format!("{}\n", ids(&batch).join("\n")).as_bytes()).unwrap();
    stored.sync_all().unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_consumer_killed_between_store_and_commit_leaves_its_messages() {
    let Some(kafka) = testkit::kafka().await.unwrap() else { return };
    let Some(site) = Site::shared(1).await else { return };
    publish_all(&site.publisher(), (0..10).map(|n| site.message(n, 3))).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stored");
    let part = [kafka.servers(), &site.topic, &site.group, file.to_str().unwrap()].join("|");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["offsets::part", "--exact"])
        .env(PART, part)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let stored = testkit::eventually(LONG, "a stored batch", async || {
        std::fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n'))
    })
    .await;
    child.kill().unwrap();
    child.wait().unwrap();
    let stored: Vec<String> = stored.unwrap().lines().map(str::to_owned).collect();
    assert_eq!(stored[0], "id-0");
    let mut other = site.consumer();
    let mut again = Vec::new();
    while again.len() < 10 {
        let batch = next(&mut other).await;
        again.extend(ids(&batch));
        batch.commit().await.unwrap();
    }
    assert_eq!(again, (0..10).map(|n| format!("id-{n}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_committed_does_not_come_again() {
    let Some(site) = Site::shared(3).await else { return };
    let publisher = site.publisher();
    publish_all(&publisher, (0..30).map(|n| site.message(n, 9))).await;
    let mut first = site.consumer();
    let mut done = Vec::new();
    while done.len() < 30 {
        let batch = next(&mut first).await;
        done.extend(ids(&batch));
        batch.commit().await.unwrap();
    }
    // It stays a member of the group and does not say anything: the other one gets some of its partitions, and starts at what Kafka knows.
    std::mem::forget(first);
    publish_all(&publisher, (30..60).map(|n| site.message(n, 9))).await;
    let mut second = site.consumer();
    let mut more = Vec::new();
    while more.is_empty() {
        let batch = next(&mut second).await;
        more.extend(ids(&batch));
        batch.commit().await.unwrap();
    }
    assert!(more.iter().all(|id| !done.contains(id)), "{more:?}");
}
