//! What the disk limit takes that has no sequence: the cloud is told how many, of which types and when, and which.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::tokens::Tenants;
use edge::retention::{Error, Fate, Job, Retention};
use event::id::TenantId;
use serde_json::{Value, json};
use testkit::eventually;

use crate::retention_ground::{days_ago, delivering, fill, stores, take_turn, turn};
use crate::site::{LONG, Site, number};
use crate::sync::all_are;
use crate::sync_cloud::{forward, sync_config};
use crate::sync_real::RealCloud;

/// Rows as the services write them, without a place in a ledger.
async fn add(site: &Site, tenant: TenantId, event_type: &str, priority: i32, rows: i32) {
    let text = "INSERT INTO sync_outbox (id, tenant_id, event_type, occurred_at, payload_json, priority)
        SELECT ('0190f1a8-7c21-7b3e-9b0e-' || substr(md5($1::uuid::text || $2::text || n), 1, 12))::uuid, $1::uuid, $2::text,
            now() - n * interval '1 min', '{}', $3::int FROM generate_series(1, $4::int) AS n";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&tenant.uuid(), &event_type, &priority, &rows];
    site.client().await.execute(text, &values).await.unwrap();
}

async fn notices(site: &Site, tenant: TenantId) -> Vec<Value> {
    let text = "SELECT payload_json FROM sync_outbox WHERE event_type = 'alarm.outbox.dropped'
        AND tenant_id = $1 AND status = 'pending' ORDER BY created_at";
    let rows = site.client().await.query(text, &[&tenant.uuid()]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn ids(site: &Site, tenant: TenantId) -> BTreeSet<String> {
    let text = "SELECT id::text FROM sync_outbox WHERE tenant_id = $1 AND seq IS NULL";
    let rows = site.client().await.query(text, &[&tenant.uuid()]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

const OTHERS: &str = "SELECT count(*) FROM sync_outbox WHERE event_type <> 'alarm.outbox.dropped'";

#[tokio::test]
async fn dropped_events_without_a_sequence_are_told_of_by_tenant_type_time_and_id() {
    let site = Site::new("notice_told").await;
    let (ours, theirs) = (site.enroll("barn-1").await, TenantId::mint());
    fill(&site, &ours, 1..=200, days_ago(2)).await;
    add(&site, ours.tenant, "telemetry.aggregated", 0, 130).await;
    add(&site, ours.tenant, "media.stored", 10, 70).await;
    add(&site, ours.tenant, "alarm.raised", 20, 5).await;
    add(&site, theirs, "weighvision.session.created", 10, 3).await;
    let (our_ids, their_ids) = (ids(&site, ours.tenant).await, ids(&site, theirs).await);
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    config.retention.batch_rows = 40;
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 408, "{report:?}");
    assert_eq!(site.number(OTHERS).await, 0, "everything had to go but the notices");
    let unplaced = "SELECT sum(unplaced)::int8 FROM retention_log";
    assert_eq!(site.number(unplaced).await, 208);

    let found = notices(&site, ours.tenant).await;
    let [notice] = &found[..] else { panic!("one a tenant, however many batches: {found:?}") };
    let by_type = json!({"telemetry.aggregated": 130, "media.stored": 70, "alarm.raised": 5});
    assert_eq!(notice["by_type"], by_type, "those with a sequence have tombstones");
    assert_eq!((&notice["count"], &notice["ids_left_out"]), (&json!(205), &json!(105)));
    assert_eq!(notice["reason"], "drop_oldest");
    let named: BTreeSet<String> = serde_json::from_value(notice["event_ids"].clone()).unwrap();
    assert!(named.len() == 100 && named.is_subset(&our_ids), "{named:?}");
    let at = |name: &str| notice[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(at("last_at").duration_since(at("first_at")).as_mins(), 129);
    let found = notices(&site, theirs).await;
    assert_eq!((found.len(), &found[0]["count"]), (1, &json!(3)));
    let named: BTreeSet<String> = serde_json::from_value(found[0]["event_ids"].clone()).unwrap();
    assert_eq!(named, their_ids, "few are named all");

    // No turn takes a notice, nor tells of one.
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 0, "{report:?}");
    assert!(report.disk.unwrap().over > 0, "though it is still above the limit");
    assert_eq!(notices(&site, ours.tenant).await, std::slice::from_ref(notice));

    // One that may have left is not changed any more: the next has its own.
    let left = "UPDATE sync_outbox SET updated_at = clock_timestamp() WHERE tenant_id = $1";
    site.client().await.execute(left, &[&ours.tenant.uuid()]).await.unwrap();
    add(&site, ours.tenant, "inference.completed", 10, 7).await;
    turn(&config, None).await;
    add(&site, ours.tenant, "media.stored", 10, 2).await;
    turn(&config, None).await;
    let found = notices(&site, ours.tenant).await;
    assert_eq!((found.len(), &found[0]), (2, notice));
    assert_eq!(found[1]["by_type"], json!({"inference.completed": 7, "media.stored": 2}));
}

#[tokio::test]
async fn a_kill_before_the_commit_leaves_the_events_and_no_notice() {
    let site = Site::new("notice_kill").await;
    let tenant = TenantId::mint();
    add(&site, tenant, "media.stored", 10, 50).await;
    let before = ids(&site, tenant).await;
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    let watch = |step: &str| step != "forced.written";
    let ended = take_turn(&Retention::new(&config, None).watched(Arc::new(watch))).await;
    assert!(matches!(ended, Err(Error::Ended("forced.written"))), "{ended:?}");
    assert_eq!(ids(&site, tenant).await, before, "the events are there, and nothing else is");
    turn(&config, None).await;
    let found = notices(&site, tenant).await;
    assert_eq!((found.len(), &found[0]["count"]), (1, &json!(50)));
    assert_eq!(site.number(OTHERS).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cloud_takes_the_notice_and_keeps_it_in_its_journal() {
    let cloud = RealCloud::start("notice_cloud", &[]).await;
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("notice_edge").await;
    let tenant = TenantId::mint();
    add(&site, tenant, "media.stored", 10, 12).await;
    let mut config = delivering(&site);
    config.retention.max_database_bytes = Some(1);
    turn(&config, None).await;
    let told = notices(&site, tenant).await;
    let sync = sync_config(&site, &cloud.url(), &[("SYNC_TOKEN", token.as_str())]);
    let forwarder = forward(&site, &sync, "edge-1");
    all_are(&site, "acked").await;
    let store = cloud.client().await;
    let kept = "SELECT count(*) FROM event_journal WHERE event_type = 'alarm.outbox.dropped'";
    eventually(LONG, "it is stored", async || number(&store, kept).await == 1).await.unwrap();
    let text = "SELECT payload FROM event_journal WHERE event_type = 'alarm.outbox.dropped' AND tenant_id = $1";
    let stored: Value = store.query_one(text, &[&tenant.uuid()]).await.unwrap().get(0);
    assert_eq!([stored], told[..]);
    forwarder.stop().await;
    cloud.stop().await;
}

/// Dead letters that had no sequence: archived, and the cloud is told that they do not come.
#[tokio::test]
async fn archived_dead_letters_without_a_sequence_are_told_of_apart_from_dropped_ones() {
    let site = Site::new("notice_archived").await;
    let tenant = TenantId::mint();
    add(&site, tenant, "weighvision.session.created", 10, 3).await;
    let die = "UPDATE sync_outbox SET status = 'dlq', dlq_reason = 'invalid', failed_at = now() - interval '40 days',
        updated_at = now() - interval '40 days'";
    site.client().await.execute(die, &[]).await.unwrap();
    add(&site, tenant, "media.stored", 10, 2).await;
    let stores = stores().await;
    let mut config = delivering(&site);
    let report = turn(&config, Some(&stores[0].bucket)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 3, "{report:?}");
    config.retention.max_database_bytes = Some(1);
    turn(&config, Some(&stores[0].bucket)).await;
    let found = notices(&site, tenant).await;
    let told: BTreeSet<_> =
        found.iter().map(|one| (one["reason"].as_str(), one["count"].as_u64())).collect();
    assert_eq!(told, BTreeSet::from([(Some("drop_oldest"), Some(2)), (Some("expired"), Some(3))]));
    assert_eq!(site.number(OTHERS).await, 0);

    // A notice that died itself is archived, and nothing is told of it.
    site.client().await.execute(die, &[]).await.unwrap();
    config.retention.max_database_bytes = None;
    let report = turn(&config, Some(&stores[0].bucket)).await;
    assert_eq!(report.rows(Job::DeadLetters, Fate::Gone), 2, "{report:?}");
    assert_eq!(notices(&site, tenant).await, Vec::<Value>::new());
}
