//! Dead letters and images: what the object store has to do with it, and what a kill leaves.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use edge::config::UntilCopied;
use edge::retention::{Error, Fate, Job, Retention};
use event::id::EventId;
use objects::Bucket;
use serde_json::Value;
use testkit::{EmbeddedStore, Tmpfs};
use uuid::Uuid;

use crate::retention_ground::{
    TestStore, aggregated, away, days_ago, delivering, embedded, fill, keys, set_state, stores,
    take_turn, turn,
};
use crate::site::Site;

/// A site with ten dead letters whose time is over, five of them given up by an operator.
async fn with_dead_letters(name: &str) -> Site {
    let site = Site::new(name).await;
    let node = site.enroll("barn-1").await;
    fill(&site, &node, 1..=30, days_ago(2)).await;
    set_state(&site, "dlq", 40, "seq BETWEEN 11 AND 15").await;
    set_state(&site, "failed", 40, "seq BETWEEN 16 AND 20").await;
    set_state(&site, "dlq", 3, "seq = 21").await;
    site
}

/// Every dead letter is in the outbox, or in the archive and declared; and never twice in an outbox.
async fn whole(site: &Site, store: &Bucket) {
    assert_eq!(
        site.number(
            "SELECT (SELECT count(*) FROM sync_outbox) + (SELECT count(*) FROM outbox_archive)"
        )
        .await,
        30
    );
    let both = "SELECT count(*) FROM outbox_archive JOIN sync_outbox USING (id)";
    assert_eq!(site.number(both).await, 0);
    let undeclared =
        "SELECT count(*) FROM outbox_archive a WHERE NOT EXISTS (SELECT FROM ledger_tombstone t
        WHERE t.stream = a.stream AND t.epoch = a.epoch AND a.seq BETWEEN t.from_seq AND t.to_seq
            AND t.reason = 'expired' AND t.origin = 'edge')";
    assert_eq!(site.number(undeclared).await, 0);
    let client = site.client().await;
    let rows = client.query("SELECT id, object_key FROM outbox_archive", &[]).await.unwrap();
    for row in rows {
        let (id, key): (Uuid, String) = (row.get(0), row.get(1));
        let lines = zstd::decode_all(&store.get(&key, 1 << 20).await.unwrap()[..]).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        let found = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut found = found.filter(|line| line["id"] == id.to_string());
        let line = found.next().unwrap();
        assert_eq!(line["payload_json"]["metric_value"], 26.4, "{line}");
    }
}

#[tokio::test]
async fn dead_letters_are_archived_declared_and_then_gone() {
    for store in stores().await {
        archived(&store.bucket).await;
    }
}

async fn archived(store: &Bucket) {
    let site = with_dead_letters("retain_dead").await;
    let mut config = delivering(&site);
    config.retention.batch_rows = 4;
    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 10, "{report:?}");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 20);
    let archives = keys(store).await;
    assert_eq!(archives.len(), 3, "four, four, two: {archives:?}");
    whole(&site, store).await;
    let ranges =
        "SELECT string_agg(from_seq || '-' || to_seq, ' ' ORDER BY from_seq) FROM ledger_tombstone";
    let ranges = site.text(ranges).await;
    assert!(ranges.starts_with("11-") && ranges.ends_with("-20"), "{ranges}");
    assert_eq!(site.number("SELECT lost_count FROM ledger_frontier").await, 0, "the edge has them");
}

#[tokio::test]
async fn a_store_that_is_away_or_lies_holds_dead_letters() {
    let site = with_dead_letters("retain_store").await;
    let store = TestStore::start().await;
    let config = delivering(&site);
    store.away(true);
    let report = turn(&config, Some(&store.bucket)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Held), 10, "{report:?}");
    store.away(false);
    store.corrupts(true);
    let report = turn(&config, Some(&store.bucket)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Held), 10, "{report:?}");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 30);
    store.corrupts(false);
    let report = turn(&config, Some(&store.bucket)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 10, "{report:?}");
    whole(&site, &store.bucket).await;
}

#[tokio::test]
async fn a_row_that_is_redriven_meanwhile_stays() {
    for store in stores().await {
        redriven(&store.bucket).await;
    }
}

async fn redriven(store: &Bucket) {
    let site = Arc::new(with_dead_letters("retain_redriven").await);
    let config = delivering(&site);
    let database = site.config.database.clone();
    let redrive = move |step: &str| {
        if step == "archive.checked" {
            let database = database.clone();
            let redriven = std::thread::spawn(move || {
                tokio::runtime::Runtime::new().unwrap().block_on(async {
                    let client = pg::connect(&database).await.unwrap();
                    let text = "UPDATE sync_outbox SET status = 'pending', failed_at = NULL, dlq_reason = NULL WHERE seq = 12";
                    client.execute(text, &[]).await.unwrap()
                })
            });
            assert_eq!(redriven.join().unwrap(), 1);
        }
        true
    };
    let retention = Retention::new(&config, Some(store.clone())).watched(Arc::new(redrive));
    let report = take_turn(&retention).await.unwrap();
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 9, "{report:?}");
    assert_eq!(site.text("SELECT status FROM sync_outbox WHERE seq = 12").await, "pending");
    whole(&site, store).await;
}

/// Every step of a turn that is not above its limits.
const STEPS: [&str; 15] = [
    "acked.batch",
    "aggregates.batch",
    "archive.checked",
    "archive.committed",
    "archive.read",
    "archive.written",
    "dedupe.batch",
    "default.batch",
    "media.deleted",
    "media.marked",
    "media.purged",
    "partition.committed",
    "partition.dropped",
    "partition.locked",
    "partition.seen",
];

/// Ends the turn after its nth step, for every n: what is left is whole, and the next turn finishes.
#[tokio::test]
async fn a_kill_after_any_step_leaves_nothing_undeclared() {
    for store in stores().await {
        killed_anywhere(&store.bucket).await;
    }
}

async fn killed_anywhere(store: &Bucket) {
    let mut met = BTreeSet::new();
    for kill_at in 1.. {
        let site = with_dead_letters("retain_kill").await;
        with_expired_readings(&site).await;
        let image = image(&site, store, 100, None).await;
        set_state(&site, "acked", 40, "seq <= 5").await;
        let mut config = delivering(&site);
        (config.retention.batch_rows, config.retention.batch_pages) = (6, 1);
        let steps = Arc::new(Mutex::new(Vec::new()));
        let made = Arc::clone(&steps);
        let killed = Retention::new(&config, Some(store.clone())).watched(Arc::new(move |step| {
            let mut made = made.lock().unwrap();
            made.push(step);
            made.len() < kill_at
        }));
        let ended = killed.turn().await;
        whole_but_acked(&site, store).await;
        turn(&config, Some(store)).await;
        whole_but_acked(&site, store).await;
        assert_eq!(site.number("SELECT count(*) FROM sync_outbox WHERE seq <= 30").await, 15);
        assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 31, "of 44");
        let purged = "SELECT count(*) FROM media_objects WHERE purged_at IS NOT NULL";
        assert_eq!(site.number(purged).await, 1);
        assert!(store.head(&format!("tenants/t/images/{image}.jpg")).await.is_err());
        met.extend(steps.lock().unwrap().iter().copied());
        if matches!(ended, Ok(Some(_))) {
            break;
        }
        assert!(matches!(ended, Err(Error::Ended(_))), "{ended:?}");
    }
    assert_eq!(met.into_iter().collect::<Vec<_>>(), STEPS);
}

/// Beside the thirty of today: a month whose time is over and that was delivered (31 to 40), and readings of clocks that were
/// never set, all of them received long ago, of which one is not in the cloud (41 to 44).
async fn with_expired_readings(site: &Site) {
    let node = site.enroll("barn-2").await;
    fill(site, &node, 31..=40, days_ago(150)).await;
    fill(site, &node, 41..=44, "1970-01-01T00:10:00Z".parse().unwrap()).await;
    aggregated(site).await;
    set_state(site, "acked", 1, "seq BETWEEN 31 AND 43").await;
    let old = "UPDATE telemetry_raw SET ingested_at = now() - interval '91 days' WHERE occurred_at < '1971-01-01';
        UPDATE ingress_dedupe SET first_seen_at = now() - interval '73 hours';
        INSERT INTO telemetry_agg (id, tenant_id, device_id, \"window\", bucket_start_at, bucket_end_at, metric_type,
            avg_value, min_value, max_value, count, sum_value, unit, readings)
        VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '1h', '1970-01-01', '1970-01-02', 'temperature',
            1, 1, 1, 1, 1, 'C', 1)";
    site.client().await.batch_execute(old).await.unwrap();
}

async fn whole_but_acked(site: &Site, store: &Bucket) {
    let dead = "SELECT (SELECT count(*) FROM sync_outbox WHERE seq BETWEEN 11 AND 20)
        + (SELECT count(*) FROM outbox_archive WHERE seq BETWEEN 11 AND 20)";
    assert_eq!(site.number(dead).await, 10);
    let unread = "SELECT count(*) FROM sync_outbox o WHERE status = 'pending'
        AND NOT EXISTS (SELECT FROM telemetry_raw t WHERE t.id = o.id)";
    assert_eq!(site.number(unread).await, 0, "what is not in the cloud has its reading");
    let month = "SELECT count(*) FROM telemetry_raw WHERE occurred_at BETWEEN '1971-01-01' AND now() - interval '99 days'";
    assert!([0, 10].contains(&site.number(month).await), "a month is there or is gone");
    let lying = "SELECT count(*) FROM media_objects WHERE status = 'stored'";
    let promised = site.number(lying).await;
    let there = keys(store).await.iter().filter(|key| key.starts_with("tenants/")).count();
    assert!(promised.unsigned_abs() <= there as u64, "a stored row has its object");
    let parts = "SELECT count(*) FROM ledger_tombstone WHERE reason <> 'expired'";
    assert_eq!(site.number(parts).await, 0, "nothing is declared that was not given up");
}

/// An image that was captured some days ago and that the cloud has copied; returns its id.
pub(crate) async fn image(site: &Site, store: &Bucket, days: i64, session: Option<Uuid>) -> Uuid {
    let id = EventId::mint().uuid();
    let key = format!("tenants/t/images/{id}.jpg");
    store.put(&key, "image/jpeg", "an image".into()).await.unwrap();
    let text = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id, bucket, object_key,
            mime_type, size_bytes, captured_at, status, stored_at, cloud_copy, cloud_copied_at)
        VALUES ($1, $1, $1, $1, $1, $2, $5, $3, 'image/jpeg', 8, $4, 'stored', $4, 'copied', now())";
    let client = site.client().await;
    client.execute(text, &[&id, &session, &key, &days_ago(days), &store.name()]).await.unwrap();
    id
}

pub(crate) async fn media_event(site: &Site, media: Uuid, state: &str, days: i32) {
    let text = "INSERT INTO sync_outbox (id, tenant_id, event_type, payload_json, priority, status, updated_at, failed_at, dlq_reason)
        VALUES (gen_random_uuid(), $1, 'media.stored', jsonb_build_object('media_id', $1::uuid), 10, $2,
            now() - make_interval(days => $3), CASE WHEN $2 = 'dlq' THEN now() END, CASE WHEN $2 = 'dlq' THEN 'invalid' END)";
    site.client().await.execute(text, &[&media, &state, &days]).await.unwrap();
}

#[tokio::test]
async fn images_go_when_they_are_delivered_and_their_session_is_over() {
    for store in stores().await {
        delivered_images_go(&store.bucket).await;
    }
}

/// The images whose objects are there.
pub(crate) async fn left(store: &Bucket) -> BTreeSet<Uuid> {
    let keys = keys(store).await.into_iter().filter(|key| key.starts_with("tenants/"));
    keys.map(|key| key[key.len() - 40..key.len() - 4].parse().unwrap()).collect()
}

async fn delivered_images_go(store: &Bucket) {
    let site = Site::new("retain_media").await;
    let client = site.client().await;
    let mut sessions = Vec::new();
    for (status, end, weight, images) in [
        ("created", None, None, None),
        ("finalized", Some(days_ago(95)), Some(3.5f64), Some(1i64)),
        ("cancelled", Some(days_ago(95)), None, None),
    ] {
        let id = EventId::mint().uuid();
        let text = "INSERT INTO weight_sessions (id, tenant_id, farm_id, barn_id, device_id, status, start_at, end_at,
                initial_weight_kg, final_weight_kg, image_count)
            VALUES ($1, $1, $1, $1, $1, $2, $3, $4, 1.0, $5, $6)";
        client.execute(text, &[&id, &status, &days_ago(99), &end, &weight, &images]).await.unwrap();
        sessions.push(id);
    }
    let young = image(&site, store, 80, None).await;
    let unsent = image(&site, store, 100, None).await;
    media_event(&site, unsent, "pending", 0).await;
    let refused = image(&site, store, 100, None).await;
    media_event(&site, refused, "dlq", 40).await;
    let uncopied =
        "UPDATE media_objects SET cloud_copy = NULL, cloud_copied_at = NULL WHERE id = $1";
    client.execute(uncopied, &[&refused]).await.unwrap();
    let open = image(&site, store, 100, Some(sessions[0])).await;
    let mut free = vec![image(&site, store, 100, None).await];
    media_event(&site, free[0], "acked", 1).await;
    free.push(image(&site, store, 100, Some(sessions[1])).await);
    free.push(image(&site, store, 100, Some(sessions[2])).await);

    let mut config = delivering(&site);
    config.retention.media_until_copied = UntilCopied::Never;
    let looked = Retention::new(&config, Some(store.clone())).look().await.unwrap();
    assert_eq!(looked.rows(Job::Media, Fate::WouldGo), 3, "{looked:?}");
    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 3, "{report:?}");
    assert_eq!(report.rows(Job::Media, Fate::Held), 3, "{report:?}");
    assert_eq!(left(store).await, BTreeSet::from([young, unsent, refused, open]));
    let declared = "SELECT count(*) FROM media_objects WHERE status = 'deleted' AND deleted_at IS NOT NULL AND purged_at IS NOT NULL";
    assert_eq!(site.number(declared).await, 3);
    // Its event is in the archive now, which does not make it delivered.
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 1);
    config.retention.media_of_open_sessions = true;
    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 1, "{report:?}");
    assert_eq!(left(store).await, BTreeSet::from([young, unsent, refused]));

    set_state(&site, "acked", 0, "event_type = 'media.stored'").await;
    let report = turn(&config, Some(&away(store))).await;
    assert!(report.rows(Job::Media, Fate::Held) >= 1, "{report:?}");
    assert_eq!(left(store).await.len(), 3);
    turn(&config, Some(store)).await;
    let kept = BTreeSet::from([young, refused]);
    assert_eq!(left(store).await, kept, "a store that is back is asked again");
}

/// A store that has no room for the archive keeps the dead letters where they are.
#[tokio::test]
async fn a_store_that_is_full_holds_dead_letters_and_loses_none() {
    let Some(small) = Tmpfs::mount_or_say(2_048) else { return };
    let store = embedded(EmbeddedStore::over(&small.path().join("store")).await.unwrap());
    let store = &store.bucket;
    let site = with_dead_letters("retain_full").await;
    let config = delivering(&site);
    let (mut bytes, mut number) = (512 << 10, 0);
    while bytes > 0 {
        number += 1;
        match store.put(&format!("other/{number}"), "image/jpeg", vec![7; bytes].into()).await {
            Ok(()) => {}
            Err(objects::Error::Full) => bytes /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    for _ in 0..2 {
        let report = turn(&config, Some(store)).await;
        assert_eq!(report.rows(Job::DeadLetters, Fate::Held), 10, "{report:?}");
        assert!(report.lines.iter().any(|line| line.why.contains("full")), "{report:?}");
        assert_eq!(site.number("SELECT count(*) FROM outbox_archive").await, 0);
        assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 30);
        whole(&site, store).await;
    }
    store.delete("other/1").await.unwrap();
    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 10, "{report:?}");
    whole(&site, store).await;
}
