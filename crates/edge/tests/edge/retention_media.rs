//! Images and their copies in the cloud: the only one is never removed by age, and by the limit only when it is declared.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::tokens::Tenants;
use edge::config::UntilCopied;
use edge::retention::{Error, Fate, Job, Retention};
use event::id::{MediaId, TenantId};
use objects::Bucket;
use testkit::{EmbeddedStore, eventually};
use uuid::Uuid;

use crate::retention_archive::{image, left, media_event};
use crate::retention_ground::{TestStore, delivering, stores, take_turn, turn};
use crate::site::{LONG, Site};
use crate::sync_cloud::{Say, TestCloud, forward, sync_config};
use crate::sync_real::RealCloud;

/// Forgets that the cloud has these images.
async fn uncopied(site: &Site, ids: &[Uuid], word: Option<&str>) {
    let text =
        "UPDATE media_objects SET cloud_copied_at = NULL, cloud_copy = $2 WHERE id = ANY($1)";
    site.client().await.execute(text, &[&ids, &word]).await.unwrap();
}

async fn cloud_says(site: &Site, copies: bool) {
    let text = "INSERT INTO cloud_copying (copies) VALUES ($1)
        ON CONFLICT (id) DO UPDATE SET copies = excluded.copies";
    site.client().await.execute(text, &[&copies]).await.unwrap();
}

#[tokio::test]
async fn an_image_stays_until_the_cloud_has_a_copy() {
    for store in stores().await {
        stays_until_copied(&store.bucket).await;
    }
}

async fn stays_until_copied(store: &Bucket) {
    let site = Site::new("retain_copies").await;
    let mut config = delivering(&site);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(image(&site, store, 100, None).await);
        media_event(&site, *ids.last().unwrap(), "acked", 1).await;
    }
    uncopied(&site, &ids[1..2], None).await;
    uncopied(&site, &ids[2..3], Some("pending")).await;
    uncopied(&site, &ids[3..], Some("failed")).await;
    // A cloud that has said nothing may be one that copies.
    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 1, "{report:?}");
    let why = |text: &str| report.lines.iter().any(|line| line.why.contains(text));
    assert!(why("no copy of them yet") && why("media copies list"), "{report:?}");
    assert_eq!(left(store).await.len(), 3);
    cloud_says(&site, true).await;
    assert_eq!(turn(&config, Some(store)).await.rows(Job::Media, Fate::Held), 3);
    // A site that does not wait, and a cloud that makes no copies.
    config.retention.media_until_copied = UntilCopied::Never;
    let looked = Retention::new(&config, Some(store.clone())).look().await.unwrap();
    assert_eq!(looked.rows(Job::Media, Fate::WouldGo), 3);
    cloud_says(&site, false).await;
    config.retention.media_until_copied = UntilCopied::Always;
    assert_eq!(turn(&config, Some(store)).await.rows(Job::Media, Fate::Held), 3);
    config.retention.media_until_copied = UntilCopied::Auto;
    assert_eq!(turn(&config, Some(store)).await.rows(Job::Media, Fate::Gone), 3);
    assert!(left(store).await.is_empty());
    let declared = "SELECT count(*) FROM media_objects WHERE drop_reason IS NOT NULL";
    assert_eq!(site.number(declared).await, 0, "none was dropped");
}

#[tokio::test]
async fn the_limit_takes_copied_images_first_and_declares_each_of_the_others() {
    for store in stores().await {
        copied_go_first(&store.bucket).await;
    }
}

async fn copied_go_first(store: &Bucket) {
    let site = Site::new("forced_media").await;
    let mut config = delivering(&site);
    cloud_says(&site, true).await;
    // 8 bytes each: the oldest two are only here, the next two in the cloud, the youngest only here.
    let mut ids = Vec::new();
    for days in [60, 50, 40, 30, 20] {
        ids.push(image(&site, store, days, None).await);
    }
    uncopied(&site, &[ids[0], ids[1], ids[4]], Some("pending")).await;
    config.retention.max_media_bytes = Some(40);
    assert_eq!(turn(&config, Some(store)).await.lines, [], "at the limit nothing goes");
    config.retention.max_media_bytes = Some(30);
    let looked = Retention::new(&config, Some(store.clone())).look().await.unwrap();
    assert_eq!(looked.rows(Job::Media, Fate::WouldGo), 2, "{looked:?}");
    assert_eq!(looked.rows(Job::Disk, Fate::WouldDrop), 0, "{looked:?}");
    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 2, "{report:?}");
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 0, "{report:?}");
    assert_eq!(left(store).await, BTreeSet::from([ids[0], ids[1], ids[4]]));
    let alarms = "SELECT count(*) FROM sync_outbox WHERE event_type = 'alarm.media.dropped'";
    assert_eq!(site.number(alarms).await, 0, "the cloud has what went");

    // A kill before the commit leaves nothing undeclared and nothing gone.
    config.retention.max_media_bytes = Some(10);
    let killed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&killed);
    let watched = Retention::new(&config, Some(store.clone())).watched(Arc::new(move |step| {
        let ends = step == "forced.media.written";
        seen.fetch_or(ends, Ordering::SeqCst);
        !ends
    }));
    assert!(matches!(take_turn(&watched).await, Err(Error::Ended(_))));
    assert!(killed.load(Ordering::SeqCst));
    assert_eq!((site.number(alarms).await, left(store).await.len()), (0, 3));

    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 2, "{report:?}");
    assert_eq!(left(store).await, BTreeSet::from([ids[4]]), "the oldest go first");
    assert_eq!(report.disk.unwrap().media_over, 0);
    let declared = "SELECT count(*) FROM sync_outbox o JOIN media_objects m
            ON m.id = (o.payload_json->>'media_id')::uuid
        WHERE o.event_type = 'alarm.media.dropped' AND o.status = 'pending' AND o.tenant_id = m.tenant_id
            AND o.payload_json->>'reason' = 'drop_oldest' AND m.drop_reason = 'drop_oldest'
            AND m.status = 'deleted' AND m.purged_at IS NOT NULL";
    assert_eq!(site.number(declared).await, 2, "each is declared");
    let logged = "SELECT sum(rows)::int8 FROM retention_log WHERE class = 'media'";
    assert_eq!(site.number(logged).await, 2);
    assert_eq!(turn(&config, Some(store)).await.lines, [], "and once");
}

#[tokio::test]
async fn the_site_hears_from_the_real_cloud_which_images_it_has() {
    let site = Site::new("copies_heard").await;
    let (theirs, ours) =
        (EmbeddedStore::start().await.unwrap(), EmbeddedStore::start().await.unwrap());
    let there = |side: &str, store: &EmbeddedStore| {
        let address = store.address();
        [
            (format!("MEDIA_{side}_URL"), address.url.to_string()),
            (format!("MEDIA_{side}_BUCKET"), address.bucket.clone()),
            (format!("MEDIA_{side}_ACCESS_KEY"), address.access_key.clone()),
            (format!("MEDIA_{side}_SECRET_KEY"), address.secret_key.clone()),
        ]
    };
    let pairs: Vec<_> = there("SOURCE", &ours).into_iter().chain(there("STORE", &theirs)).collect();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let cloud = RealCloud::start("copies_heard_cloud", &pairs).await;
    let tenant = event::id::TenantId::mint();
    let bucket = objects::Bucket::new(ours.address()).unwrap();
    // One that is in the store with the size its row says, and one whose row says another.
    let mut ids = Vec::new();
    for size in [5i64, 6] {
        let id = MediaId::mint().uuid();
        let key = format!("tenants/{tenant}/images/{id}.jpg");
        bucket.put(&key, "image/jpeg", b"bytes".to_vec().into()).await.unwrap();
        let row = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket, object_key, mime_type,
                size_bytes, captured_at, status, stored_at)
            VALUES ($1, $2, $1, $1, $1, 'media', $3, 'image/jpeg', $4, now(), 'stored', now())";
        let client = site.client().await;
        client.execute(row, &[&id, &tenant.uuid(), &key, &size]).await.unwrap();
        let told = "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id, event_type, occurred_at, payload_json, priority)
            VALUES (gen_random_uuid(), $2, $1, $1, $1, 'media.stored', now(), jsonb_build_object('media_id', $1::uuid,
                'path', $3::text, 'mime_type', 'image/jpeg', 'size_bytes', 5), 10)";
        client.execute(told, &[&id, &tenant.uuid(), &key]).await.unwrap();
        ids.push(id);
    }
    let token = cloud.token(Tenants::Only(vec![tenant])).await;
    let config =
        sync_config(&site, &cloud.url(), &[("SYNC_TOKEN", &token), ("SYNC_MEDIA_EVERY", "100ms")]);
    let forwarder = forward(&site, &config, "a");
    eventually(LONG, "both are judged", async || {
        let judged = "SELECT count(*) FROM media_objects WHERE cloud_copy IN ('copied', 'differs')";
        site.number(judged).await == 2
    })
    .await
    .unwrap();
    let word = async |id: Uuid| {
        site.text(&format!("SELECT cloud_copy FROM media_objects WHERE id = '{id}'")).await
    };
    assert_eq!((word(ids[0]).await, word(ids[1]).await), ("copied".into(), "differs".into()));
    assert_eq!(site.number("SELECT count(*) FROM cloud_copying WHERE copies").await, 1);
    forwarder.stop().await;
    cloud.stop().await;
}

#[tokio::test]
async fn a_cloud_that_does_not_answer_for_images_leaves_them_as_they_are() {
    let site = Site::new("copies_unheard").await;
    let store = TestStore::start().await;
    let id = image(&site, &store.bucket, 1, None).await;
    uncopied(&site, &[id], None).await;
    // This one knows batches only.
    let cloud = TestCloud::start(|_| Say::Store).await;
    let config = sync_config(&site, &cloud.url, &[("SYNC_MEDIA_EVERY", "100ms")]);
    let forwarder = forward(&site, &config, "a");
    media_event(&site, id, "pending", 0).await;
    eventually(LONG, "its event is sent", async || !cloud.stored().is_empty()).await.unwrap();
    forwarder.stop().await;
    let untouched =
        "SELECT count(*) FROM media_objects WHERE cloud_copy IS NULL AND cloud_asked_at IS NULL";
    assert_eq!(site.number(untouched).await, 1);
    assert_eq!(site.number("SELECT count(*) FROM cloud_copying").await, 0);
}

/// The event that tells of an image is dropped: that does not make the image delivered, and it is told of again.
#[tokio::test]
async fn an_image_whose_event_was_dropped_stays_until_it_is_told_of_again() {
    for store in stores().await {
        stays_until_told(&store.bucket).await;
    }
}

async fn stays_until_told(store: &Bucket) {
    let site = Site::new("retain_untold").await;
    let (kept, given_up) =
        (image(&site, store, 100, None).await, image(&site, store, 120, None).await);
    uncopied(&site, &[kept, given_up], None).await;
    for id in [kept, given_up] {
        media_event(&site, id, "pending", 0).await;
    }
    let mut config = delivering(&site);
    config.retention.media_until_copied = UntilCopied::Never;
    config.retention.max_database_bytes = Some(1);
    let told = "SELECT count(*) FROM sync_outbox WHERE event_type = 'media.stored'";
    for _ in 0..3 {
        let report = turn(&config, Some(store)).await;
        assert_eq!(report.rows(Job::Media, Fate::Gone), 0, "{report:?}");
        assert_eq!((site.number(told).await, left(store).await.len()), (0, 2), "{report:?}");
    }
    let untold = "SELECT count(*) FROM media_objects WHERE untold_at IS NOT NULL";
    assert_eq!(site.number(untold).await, 2);

    // The limit of images takes one of them: it was only here, and is declared.
    config.retention.max_media_bytes = Some(8);
    turn(&config, Some(store)).await;
    let declared = "SELECT count(*) FROM sync_outbox WHERE event_type = 'alarm.media.dropped'
        AND payload_json->>'media_id' = $1";
    let client = site.client().await;
    let alarms = client.query_one(declared, &[&given_up.to_string()]).await.unwrap();
    assert_eq!((alarms.get::<_, i64>(0), left(store).await.len()), (1, 1));

    // With room again, the other is told of, and waits for that.
    config.retention.max_database_bytes = Some(1 << 40);
    for _ in 0..2 {
        let report = turn(&config, Some(store)).await;
        assert_eq!(report.rows(Job::Media, Fate::Held), 1, "{report:?}");
    }
    let of = "SELECT payload_json->>'media_id' FROM sync_outbox WHERE event_type = 'media.stored'";
    assert_eq!((site.number(told).await, site.text(of).await), (1, kept.to_string()));
    assert_eq!(left(store).await.len(), 1);
    let acked = "UPDATE sync_outbox SET status = 'acked' WHERE event_type = 'media.stored'";
    assert_eq!(client.execute(acked, &[]).await.unwrap(), 1);
    turn(&config, Some(store)).await;
    assert!(left(store).await.is_empty(), "delivered, and its time is over");
}

/// One object that the store does not delete keeps none of the others.
#[tokio::test]
async fn an_object_that_cannot_be_deleted_is_counted_and_the_others_go() {
    let site = Site::new("retain_refused").await;
    let store = TestStore::start().await;
    let mut ids = Vec::new();
    for days in 0..7 {
        ids.push(image(&site, &store.bucket, 120 - days, None).await);
    }
    for id in &ids[..2] {
        store.keep(&format!("tenants/t/images/{id}.jpg"));
    }
    let mut config = delivering(&site);
    config.retention.batch_rows = 2;
    for turns in 0..2 {
        let report = turn(&config, Some(&store.bucket)).await;
        assert_eq!(report.rows(Job::Media, Fate::Held), 2, "{turns}: {report:?}");
        assert_eq!(store.keys().len(), 2, "{turns}: {report:?}");
    }
    let purged =
        "SELECT count(*) FROM media_objects WHERE status = 'deleted' AND purged_at IS NOT NULL";
    assert_eq!(site.number(purged).await, 5);
    store.keep("");
    let report = turn(&config, Some(&store.bucket)).await;
    assert_eq!((report.rows(Job::Media, Fate::Held), store.keys().len()), (0, 0), "{report:?}");
    assert_eq!(site.number(purged).await, 7);
}

/// Its first event died and was archived; another has told of it since.
#[tokio::test]
async fn an_image_that_was_told_of_again_is_delivered_whatever_became_of_its_first_event() {
    let site = Site::new("retain_told_again").await;
    let stores = stores().await;
    let store = &stores[0].bucket;
    let mut config = delivering(&site);
    config.retention.media_until_copied = UntilCopied::Never;
    let [archived, dead] =
        [image(&site, store, 100, None).await, image(&site, store, 100, None).await];
    for one in [archived, dead] {
        uncopied(&site, &[one], None).await;
        media_event(&site, one, "dlq", 40).await;
    }
    let die_anew =
        "UPDATE sync_outbox SET failed_at = now(), updated_at = now() WHERE tenant_id = $1";
    site.client().await.execute(die_anew, &[&dead]).await.unwrap();
    let report = turn(&config, Some(store)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 1, "{report:?}");
    assert_eq!(left(store).await, BTreeSet::from([archived, dead]));

    let pool = pg::Pool::new(&site.config.database).unwrap();
    let actor = edge::sync::admin::Actor::user("somebody");
    for one in [archived, dead] {
        let (tenant, one) = (TenantId::from_uuid(one).unwrap(), [MediaId::from_uuid(one).unwrap()]);
        let told =
            edge::ledger::media::tell_again(&pool, &actor, tenant, &one, false).await.unwrap();
        assert_eq!(told, 1);
    }
    turn(&config, Some(store)).await;
    assert_eq!(left(store).await.len(), 2, "the new events are on their way");
    let acked = "UPDATE sync_outbox SET status = 'acked' WHERE status = 'pending' AND event_type = 'media.stored'";
    assert_eq!(site.client().await.execute(acked, &[]).await.unwrap(), 2);
    turn(&config, Some(store)).await;
    assert_eq!(left(store).await, BTreeSet::new());
}

/// A camera whose clock was not set sends images of 1970.
#[tokio::test]
async fn an_image_that_was_past_its_time_when_it_came_has_its_time_from_then_on() {
    let site = Site::new("retain_unset_clock").await;
    let stores = stores().await;
    let store = &stores[0].bucket;
    let [came_now, came_long_ago] =
        [image(&site, store, 15_000, None).await, image(&site, store, 15_000, None).await];
    for (one, days) in [(came_now, 10), (came_long_ago, 91)] {
        let text =
            "UPDATE media_objects SET stored_at = now() - make_interval(days => $2) WHERE id = $1";
        site.client().await.execute(text, &[&one, &days]).await.unwrap();
    }
    let report = turn(&delivering(&site), Some(store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 1, "{report:?}");
    assert_eq!(left(store).await, BTreeSet::from([came_now]));
}

/// Rows of other services, which know the documented columns and no more.
#[tokio::test]
async fn events_of_other_services_hold_their_image_and_no_other() {
    let site = Site::new("retain_foreign_events").await;
    let stores = stores().await;
    let store = &stores[0].bucket;
    let [told, other] =
        [image(&site, store, 100, None).await, image(&site, store, 100, None).await];
    let add = "INSERT INTO sync_outbox (id, tenant_id, event_type, payload_json) VALUES (gen_random_uuid(), $1, 'media.stored', $2)";
    for payload in [
        serde_json::json!({"media_id": told.to_string().to_uppercase()}),
        serde_json::json!({"media_id": null}),
        serde_json::json!({"media_id": "no id"}),
        serde_json::json!([]),
    ] {
        site.client().await.execute(add, &[&other, &payload]).await.unwrap();
    }
    let report = turn(&delivering(&site), Some(store)).await;
    assert_eq!(report.rows(Job::Media, Fate::Gone), 1, "{report:?}");
    assert_eq!(left(store).await, BTreeSet::from([told]));
}
