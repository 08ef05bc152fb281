//! Dead letters and images: what the object store has to do with it, and what a kill leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use edge::retention::{Error, Fate, Job, Retention};
use event::id::EventId;
use serde_json::Value;
use uuid::Uuid;

use crate::retention_ground::{TestStore, days_ago, delivering, fill, set_state, turn};
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
async fn whole(site: &Site, store: &TestStore) {
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
        let lines = zstd::decode_all(&store.get(&key)[..]).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        let found = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut found = found.filter(|line| line["id"] == id.to_string());
        let line = found.next().unwrap();
        assert_eq!(line["payload_json"]["metric_value"], 26.4, "{line}");
    }
}

#[tokio::test]
async fn dead_letters_are_archived_declared_and_then_gone() {
    let site = with_dead_letters("retain_dead").await;
    let store = TestStore::start().await;
    let mut config = delivering(&site);
    config.retention.batch_rows = 4;
    let report = turn(&config, Some(&store)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 10, "{report:?}");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 20);
    assert_eq!(store.keys().len(), 3, "four, four, two: {:?}", store.keys());
    whole(&site, &store).await;
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
    let report = turn(&config, Some(&store)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Held), 10, "{report:?}");
    store.away(false);
    store.corrupts(true);
    let report = turn(&config, Some(&store)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Held), 10, "{report:?}");
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 30);
    store.corrupts(false);
    let report = turn(&config, Some(&store)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 10, "{report:?}");
    whole(&site, &store).await;
}

#[tokio::test]
async fn a_row_that_is_redriven_meanwhile_stays() {
    let site = Arc::new(with_dead_letters("retain_redriven").await);
    let store = TestStore::start().await;
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
    let retention = Retention::new(&config, Some(store.bucket.clone())).watched(Arc::new(redrive));
    let report = retention.turn().await.unwrap().unwrap();
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 9, "{report:?}");
    assert_eq!(site.text("SELECT status FROM sync_outbox WHERE seq = 12").await, "pending");
    whole(&site, &store).await;
}

/// Ends the turn after its nth step, for every n: what is left is whole, and the next turn finishes.
#[tokio::test]
async fn a_kill_after_any_step_leaves_nothing_undeclared() {
    let mut steps = 0;
    for kill_at in 1.. {
        let site = with_dead_letters("retain_kill").await;
        let store = TestStore::start().await;
        image(&site, &store, 100, None).await;
        set_state(&site, "acked", 40, "seq <= 5").await;
        let mut config = delivering(&site);
        (config.retention.batch_rows, config.retention.batch_pages) = (6, 1);
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let killed = Retention::new(&config, Some(store.bucket.clone()))
            .watched(Arc::new(move |_| count.fetch_add(1, Ordering::SeqCst) + 1 < kill_at));
        let ended = killed.turn().await;
        whole_but_acked(&site, &store).await;
        turn(&config, Some(&store)).await;
        whole_but_acked(&site, &store).await;
        assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 15);
        assert_eq!(
            site.number("SELECT count(*) FROM media_objects WHERE purged_at IS NOT NULL").await,
            1
        );
        assert!(store.keys().iter().all(|key| key.starts_with("archive/")), "{:?}", store.keys());
        steps = made.load(Ordering::SeqCst);
        match ended {
            Err(Error::Ended(_)) => {}
            Ok(Some(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(steps >= 10, "every step was met: {steps}");
}

async fn whole_but_acked(site: &Site, store: &TestStore) {
    let dead = "SELECT (SELECT count(*) FROM sync_outbox WHERE seq BETWEEN 11 AND 20)
        + (SELECT count(*) FROM outbox_archive WHERE seq BETWEEN 11 AND 20)";
    assert_eq!(site.number(dead).await, 10);
    let lying = "SELECT count(*) FROM media_objects WHERE status = 'stored'";
    let promised = site.number(lying).await;
    let there = store.keys().iter().filter(|key| key.starts_with("tenants/")).count();
    assert!(promised.unsigned_abs() <= there as u64, "a stored row has its object");
}

/// An image that was captured some days ago and that the cloud has copied; returns its id.
pub(crate) async fn image(
    site: &Site,
    store: &TestStore,
    days: i64,
    session: Option<Uuid>,
) -> Uuid {
    let id = EventId::mint().uuid();
    let key = format!("tenants/t/images/{id}.jpg");
    store.put(&key);
    let text = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id, bucket, object_key,
            mime_type, size_bytes, captured_at, status, stored_at, cloud_copy, cloud_copied_at)
        VALUES ($1, $1, $1, $1, $1, $2, 'media', $3, 'image/jpeg', 8, $4, 'stored', now(), 'copied', now())";
    let client = site.client().await;
    client.execute(text, &[&id, &session, &key, &days_ago(days)]).await.unwrap();
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
    let site = Site::new("retain_media").await;
    let store = TestStore::start().await;
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
    let young = image(&site, &store, 80, None).await;
    let unsent = image(&site, &store, 100, None).await;
    media_event(&site, unsent, "pending", 0).await;
    let refused = image(&site, &store, 100, None).await;
    media_event(&site, refused, "dlq", 40).await;
    let open = image(&site, &store, 100, Some(sessions[0])).await;
    let mut free = vec![image(&site, &store, 100, None).await];
    media_event(&site, free[0], "acked", 1).await;
    free.push(image(&site, &store, 100, Some(sessions[1])).await);
    free.push(image(&site, &store, 100, Some(sessions[2])).await);

    let mut config = delivering(&site);
    let looked = Retention::new(&config, Some(store.bucket.clone())).look().await.unwrap();
    assert_eq!(looked.rows(Job::Media, Fate::WouldGo), 3, "{looked:?}");
    let report = turn(&config, Some(&store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 3, "{report:?}");
    assert_eq!(report.rows(Job::Media, Fate::Held), 3, "{report:?}");
    let has = |id: Uuid| store.keys().iter().any(|key| key.contains(&id.to_string()));
    assert!(free.iter().all(|id| !has(*id)));
    assert!([young, unsent, refused, open].into_iter().all(has));
    let declared = "SELECT count(*) FROM media_objects WHERE status = 'deleted' AND deleted_at IS NOT NULL AND purged_at IS NOT NULL";
    assert_eq!(site.number(declared).await, 3);
    // Its event is in the archive now, which does not make it delivered.
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 1);
    config.retention.media_of_open_sessions = true;
    let report = turn(&config, Some(&store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 1, "{report:?}");
    assert!(!has(open) && has(unsent) && has(refused));

    store.away(true);
    set_state(&site, "acked", 0, "event_type = 'media.stored'").await;
    let report = turn(&config, Some(&store)).await;
    assert!(report.rows(Job::Media, Fate::Held) >= 1, "{report:?}");
    store.away(false);
    turn(&config, Some(&store)).await;
    assert!(!has(unsent), "a store that is back is asked again");
}
