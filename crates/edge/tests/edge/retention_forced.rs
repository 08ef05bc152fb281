//! What the disk limit takes: declared to the last sequence, in order, and no more than it must.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use edge::retention::{Error, Fate, Job, Retention};
use testkit::Tmpfs;

use crate::retention_ground::{days_ago, delivering, event, fill, set_state, take_turn, turn};
use crate::site::{Site, config};

const DATABASE: &str = "SELECT pg_database_size(current_database())";
const LEFT: &str = "SELECT count(*) FROM sync_outbox WHERE seq IS NOT NULL";

/// What the rows take that a drop removes: events and their readings, with their indexes.
const TAKEN: &str =
    "SELECT (pg_total_relation_size('sync_outbox') + (SELECT sum(pg_total_relation_size(inhrelid))
    FROM pg_inherits WHERE inhparent = 'telemetry_raw'::regclass))::int8";

/// Produced = stored + declared lost, in the frontier, in the tombstones, in the blocks and in the tables.
async fn conserved(site: &Site, produced: i64) -> i64 {
    let stored = site.number(LEFT).await;
    let sums = "SELECT sum(stored_count + lost_count)::int8 FROM ledger_frontier";
    assert_eq!(site.number(sums).await, produced, "produced = stored + lost");
    let lost = site.number("SELECT sum(lost_count)::int8 FROM ledger_frontier").await;
    assert_eq!(stored + lost, produced);
    let declared = "SELECT coalesce(sum(count), 0)::int8 FROM ledger_tombstone
        WHERE origin = 'edge' AND reason = 'drop_oldest' AND sent_at IS NULL";
    assert_eq!(site.number(declared).await, lost, "tombstones say the same");
    let logged = "SELECT coalesce(sum(rows - unplaced), 0)::int8 FROM retention_log";
    assert_eq!(site.number(logged).await, lost, "and so does the log");
    let blocks = "SELECT coalesce(sum(count), 0)::int8 FROM ledger_block";
    assert_eq!(site.number(blocks).await, stored, "and the blocks hold what is stored");
    assert_eq!(site.number("SELECT sum(acked)::int8 FROM ledger_frontier").await, produced);
    lost
}

#[tokio::test]
async fn undelivered_telemetry_goes_oldest_first_and_no_more_than_it_must() {
    let site = Site::new("forced_some").await;
    let (one, two) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    for part in 0..4 {
        for node in [&one, &two] {
            fill(&site, node, part * 1_500 + 1..=(part + 1) * 1_500, days_ago(3)).await;
        }
    }
    let mut config = delivering(&site);
    let size = site.number(DATABASE).await.unsigned_abs();
    config.retention.max_database_bytes = Some(size + (1 << 20));
    assert_eq!(turn(&config, None).await.lines, [], "below the limit nothing goes");
    config.retention.max_database_bytes = Some(size - (4 << 20));
    config.retention.batch_rows = 250;
    let taken = site.number(TAKEN).await;
    let report = turn(&config, None).await;
    let lost = conserved(&site, 12_000).await;
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), lost.unsigned_abs(), "{report:?}");
    assert!((500..11_000).contains(&lost), "some, not all: {lost}; {report:?}");
    let must = (4 << 20) * 12_000 / taken;
    assert!((must * 3 / 4..must * 5 / 4).contains(&lost), "{lost} of {must}; {report:?}");
    assert_eq!(report.disk.unwrap().over, 0, "{report:?}");
    let readings = site.number("SELECT count(*) FROM telemetry_raw").await;
    assert_eq!(readings, 12_000 - lost, "a reading goes with its event");
    let order =
        "SELECT count(*) FROM ledger_frontier WHERE NOT lost[1] = 1 OR cardinality(lost) > 2";
    assert_eq!(site.number(order).await, 0, "the oldest of every stream, in one piece");
    let pieces = site.number("SELECT count(*) FROM ledger_tombstone").await;
    assert_eq!(pieces, 2, "a long drop leaves one tombstone a stream");
    assert_eq!(turn(&config, None).await.lines, [], "what is free inside counts");

    // A node that still has them may send them again.
    site.ingest(&[one.batch(&one.readings(1..=50), &[])]).await;
    let recovered = "SELECT recovered_count FROM nodes WHERE node_id = 'barn-1'";
    assert_eq!(site.number(recovered).await, 50);
    let sums = "SELECT sum(stored_count + lost_count)::int8 FROM ledger_frontier";
    assert_eq!(site.number(sums).await, 12_000);
}

/// The excess is a small part of the table: a few turns take it and no more, and take again what comes on top of it.
#[tokio::test]
async fn a_small_excess_costs_few_rows_however_large_the_table_and_however_many_turns() {
    let site = Site::new("forced_little").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=12_000, days_ago(3)).await;
    let mut config = delivering(&site);
    let excess = 1 << 20;
    let limit = site.number(DATABASE).await - excess;
    config.retention.max_database_bytes = Some(limit.unsigned_abs());
    // Statistics and what else a turn notes are no rows that could be given up.
    let others = async || site.number(DATABASE).await - site.number(TAKEN).await;
    let (row, before) = (site.number(TAKEN).await / 12_000, others().await);
    for added in [0, 600, 1_200] {
        for _ in 0..3 {
            turn(&config, None).await;
        }
        let lost = conserved(&site, 12_000 + added).await;
        let must = (excess + others().await - before) / row + added;
        assert!((must * 7 / 8..must * 9 / 8 + 200).contains(&lost), "{added}: {lost} of {must}");
        let next = 12_000 + added.unsigned_abs() + 1;
        fill(&site, &node, next..next + 600, days_ago(3)).await;
    }
}

/// The file system that is watched: what is missing there is given up, what that has freed counts, and what comes back ends it.
#[tokio::test]
async fn a_disk_that_fills_up_is_a_limit_too() {
    let Some(small) = Tmpfs::mount_or_say(24 << 10) else { return };
    let site = Site::new("forced_disk").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=6_000, days_ago(3)).await;
    let path = small.path().to_str().unwrap();
    let pairs = [
        ("SYNC_CLOUD_URL", "http://127.0.0.1:1"),
        ("SYNC_TOKEN", "t"),
        ("RETENTION_MIN_FREE_BYTES", "16MiB"),
        ("RETENTION_DISK_PATH", path),
    ];
    let mut config = config(site.database.url(), &pairs);
    config.retention.share = 1.0;
    let retention = Retention::new(&config, None);
    let report = turn(&config, None).await;
    assert_eq!(report.lines, [], "{report:?}");
    let free = report.disk.unwrap().free.unwrap();
    assert!((20 << 20..=24 << 20).contains(&free), "{free}");
    assert!(!retention.is_over().await.unwrap());
    // This look trusts the statistics; the server's own may be of a moment when the rows were not committed.
    let client = site.client().await;
    client.batch_execute("ANALYZE sync_outbox; ANALYZE telemetry_raw").await.unwrap();

    // Somebody else fills it, up to 1 MiB too much.
    let other = small.path().join("other");
    std::fs::write(&other, vec![7; usize::try_from(free).unwrap() - (15 << 20)]).unwrap();
    assert!(retention.is_over().await.unwrap());
    let looked = retention.look().await.unwrap();
    assert_eq!(looked.disk.unwrap().over, 1 << 20, "{looked:?}");
    assert!(looked.rows(Job::Disk, Fate::WouldDrop) > 0, "{looked:?}");
    let row = site.number(TAKEN).await / 6_000;
    let report = turn(&config, None).await;
    let (lost, must) = (conserved(&site, 6_000).await, (1 << 20) / row);
    assert!((must * 3 / 4..must * 5 / 4 + 200).contains(&lost), "{lost} of {must}: {report:?}");
    assert_eq!(report.disk.unwrap().over, 0, "{report:?}");
    assert_eq!(turn(&config, None).await.lines, [], "what is free inside counts");
    std::fs::remove_file(&other).unwrap();
    let report = turn(&config, None).await;
    assert_eq!((report.disk.unwrap().over, &report.lines[..]), (0, &[][..]));
    assert_eq!(conserved(&site, 6_000).await, lost);

    drop(small);
    let ended = take_turn(&retention).await;
    assert!(matches!(ended, Err(Error::Disk(_))), "a disk that is gone is said: {ended:?}");
}

#[tokio::test]
async fn telemetry_goes_before_events_and_events_before_alarms() {
    let site = Site::new("forced_order").await;
    let node = site.enroll("barn-1").await;
    let kinds = ["alarm.raised", "feeding.done", "telemetry.ingested"];
    let records: Vec<_> = (1..=900u64)
        .map(|seq| (seq, event(&node, kinds[usize::try_from(seq % 3).unwrap()], days_ago(2))))
        .collect();
    site.ingest(&[node.batch(&records, &[])]).await;
    set_state(&site, "claimed", 0, "seq <= 30").await;
    set_state(&site, "dlq", 50, "seq BETWEEN 31 AND 60").await;
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    config.retention.batch_rows = 100;
    let left = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&left);
    let database = site.config.database.clone();
    let watch = move |step: &str| {
        if step == "forced.committed" {
            let database = database.clone();
            let counted = std::thread::spawn(move || {
                tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let client = pg::connect(&database).await.unwrap();
                    let text = "SELECT ARRAY[count(*) FILTER (WHERE priority = 0), count(*) FILTER (WHERE priority = 10),
                        count(*) FILTER (WHERE priority = 20)] FROM sync_outbox WHERE status = 'pending'";
                    client.query_one(text, &[]).await.unwrap().get::<_, Vec<i64>>(0)
                })
            });
            seen.lock().unwrap().push(counted.join().unwrap());
        }
        true
    };
    let report = take_turn(&Retention::new(&config, None).watched(Arc::new(watch))).await.unwrap();
    for after in left.lock().unwrap().iter() {
        let [telemetry, events, alarms] = after[..] else { panic!("{after:?}") };
        assert!(telemetry == 0 || events == 280, "{after:?}");
        assert!(events == 0 || alarms == 280, "{after:?}");
    }
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 840, "{report:?}");
    assert!(report.disk.unwrap().over > 0, "and it says that this was not enough");
    let kept = "SELECT count(*) FROM sync_outbox WHERE status IN ('claimed', 'dlq')";
    assert_eq!(site.number(kept).await, 60, "a forwarder's rows and dead letters stay");
    conserved(&site, 900).await;
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_drop_conserves() {
    for kill_at in 1..=6usize {
        let site = Site::new("forced_kill").await;
        let node = site.enroll("barn-1").await;
        fill(&site, &node, 1..=400, days_ago(2)).await;
        let mut config = delivering(&site);
        config.retention.max_database_bytes = Some(1);
        config.retention.batch_rows = 90;
        let made = AtomicUsize::new(0);
        let watch = move |step: &str| {
            !step.starts_with("forced.") || made.fetch_add(1, Ordering::SeqCst) + 1 < kill_at
        };
        let ended = take_turn(&Retention::new(&config, None).watched(Arc::new(watch))).await;
        assert!(matches!(ended, Err(Error::Ended(_))), "{ended:?}");
        conserved(&site, 400).await;
        turn(&config, None).await;
        assert_eq!(conserved(&site, 400).await, 400);
    }
}

/// A server that ends the connection in the middle takes the turn with it, and nothing else.
#[tokio::test]
async fn a_connection_that_dies_conserves() {
    let site = Site::new("forced_cut").await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=400, days_ago(2)).await;
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    config.retention.batch_rows = 90;
    let (database, once) = (site.config.database.clone(), AtomicBool::new(true));
    let watch = move |step: &str| {
        if step == "forced.written" && once.swap(false, Ordering::SeqCst) {
            let database = database.clone();
            let cut = std::thread::spawn(move || {
                tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let client = pg::connect(&database).await.unwrap();
                    let text = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                        WHERE datname = current_database() AND application_name = 'holdfast-retention'";
                    client.query(text, &[]).await.unwrap().len()
                })
            });
            assert_eq!(cut.join().unwrap(), 1);
        }
        true
    };
    let ended = take_turn(&Retention::new(&config, None).watched(Arc::new(watch))).await;
    assert!(matches!(ended, Err(Error::Database(_))), "{ended:?}");
    assert_eq!(conserved(&site, 400).await, 0);
    turn(&config, None).await;
    assert_eq!(conserved(&site, 400).await, 400);
}

/// A site that is fed while it is emptied.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ingest_goes_on_while_the_limit_takes() {
    let site = Arc::new(Site::new("forced_ingest").await);
    let node = Arc::new(site.enroll("barn-1").await);
    fill(&site, &node, 1..=1_000, days_ago(2)).await;
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    config.retention.batch_rows = 50;
    let writing = tokio::spawn({
        let (site, node) = (Arc::clone(&site), Arc::clone(&node));
        async move {
            for part in 10..30u64 {
                fill(&site, &node, part * 100 + 1..=(part + 1) * 100, days_ago(2)).await;
            }
        }
    });
    let mut turns = 0;
    while !writing.is_finished() && turns < 50 {
        turn(&config, None).await;
        turns += 1;
    }
    writing.await.unwrap();
    let lost = conserved(&site, 3_000).await;
    assert!(lost >= 1_000, "{lost}");
}
