//! The relay when the database, its consumers or its messages fail, over the inline bus.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use bus::inline;
use cloud::dead_letters::audit::{Actor, Counted};
use cloud::relay::{Parts, Relay, Routes, Selection, redrive};
use cloud::tokens::{Role, Tenants};
use cloud::{Cloud, Work, dead_letters};
use event::id::{DeviceId, Epoch, TenantId};
use serde_json::{Value, json};
use testkit::eventually;
use testkit::rig::{Postgres, PostgresOptions};

use crate::relay::{ALL, HELD, ids, outbox_is_empty, readings_of, ready};
use crate::site::{LONG, Site, bare, batch, config, number, post, token};
use crate::wiring::{Store, TELEMETRY, telemetry};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_terminated_in_the_middle_the_database_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // The server runs as another user when the test runs as root.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut server = Postgres::start(folder.path(), PostgresOptions::default()).await.unwrap();
    let url = server.url("postgres");
    let store = Store::default();
    let settings = config(&url, &[ALL, ("RELAY_BATCH", "20")]);
    let cloud = Cloud::start_with(settings, vec![store.work(telemetry())]).await.unwrap();
    let client = pg::connect(&pg::Options::new(&url)).await.unwrap();
    let (_, secret) = token(&client, Role::Edge, Tenants::All).await;
    let (tenant, epoch) = (TenantId::mint(), Epoch::mint());
    let devices: Vec<DeviceId> = (0..5).map(|_| DeviceId::mint()).collect();
    let events = readings_of(tenant, &devices, epoch, 1, 2_000);
    for part in events.chunks(1_000) {
        let body = batch(part.to_vec()).to_string();
        let answer = post(&cloud).bearer_auth(&secret).body(body).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    for round in 1..=5 {
        let reached = async || store.len() >= round * 100;
        eventually(LONG, "some were relayed", reached).await.unwrap();
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE application_name = 'holdfast-relay'";
        number(&client, kill).await;
    }
    server.kill().await.unwrap();
    assert!(store.len() < 2_000, "it was in the middle");
    server.restart().await.unwrap();
    store.has(2_000).await;
    assert!(store.by_key() == ids(&events), "in order");
    eventually(LONG, "the outbox is empty", async || {
        // Not one dead letter: an outage burns no attempts.
        let client = pg::connect(&pg::Options::new(&url)).await.map_err(|e| e.to_string())?;
        Ok::<_, String>(number(&client, "SELECT count(*) FROM relay_outbox").await == 0)
    })
    .await
    .unwrap();
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_but_not_draining_is_not_ready_and_a_stop_gives_back_what_is_held() {
    // A consumer that takes and never settles.
    let hang = Work::new(telemetry(), |mut consumer, _, stop| async move {
        let held = consumer.next().await;
        stop.cancelled().await;
        drop(held);
    });
    let pairs = [ALL, ("RELAY_STALLED_AFTER", "1s"), ("STOP_GRACE", "200ms")];
    let site = Site::with_works("relay_stall", &pairs, vec![hang]).await;
    assert_eq!(ready(&site.cloud).await.0, 200);
    let events: Vec<Value> = (0..20).map(|_| bare(site.reading())).collect();
    site.statuses(&batch(events)).await;
    eventually(LONG, "readiness says so", async || {
        let (status, text) = ready(&site.cloud).await;
        let told = text.contains("relay: events are due and none is published");
        if status == 503 && told { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    assert!(site.number(HELD).await > 0);
    let Site { database, cloud, .. } = site;
    cloud.stop().await;
    let client = database.connect().await.unwrap();
    let untouched = "SELECT count(*) FROM relay_outbox
         WHERE status = 'pending' AND attempt_count = 0";
    assert_eq!((number(&client, untouched).await, number(&client, HELD).await), (20, 0));

    let store = Store::default();
    let next = config(database.url(), &[ALL]);
    let cloud = Cloud::start_with(next, vec![store.work(telemetry())]).await.unwrap();
    store.has(20).await;
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_is_a_dead_letter_until_it_is_redriven() {
    let site = Site::new("relay_large").await;
    let mut large = site.reading();
    large["payload"]["note"] = json!("x".repeat(4_000));
    let mut events: Vec<Value> = (0..30).map(|_| bare(site.reading())).collect();
    events.insert(10, bare(large.clone()));
    site.statuses(&batch(events)).await;
    let start = |limit: usize| {
        let pool = pg::Pool::new(&site.config.database).unwrap();
        let options = inline::Options { max_body_bytes: limit, ..Default::default() };
        let mut bus = inline::Bus::new(options, Arc::new(dead_letters::Store::new(pool.clone())));
        let group = telemetry();
        let consumer = bus.group(group.queue.clone(), group.bindings.clone());
        let store = Store::default();
        let stop = tokio_util::sync::CancellationToken::new();
        tokio::spawn(store.keep(Box::new(consumer), stop));
        let relay = Relay::start(Parts {
            database: site.config.database.clone(),
            config: site.config.relay.clone(),
            stop_grace: Duration::from_secs(5),
            publisher: Arc::new(bus),
            routes: Routes { exchanges: [TELEMETRY.to_owned()].into(), bindings: group.bindings },
            metrics: Arc::default(),
            readiness: cloud::Readiness::default(),
        })
        .unwrap();
        (relay, store)
    };
    let (relay, store) = start(2_000);
    store.has(30).await;
    outbox_is_empty(&site).await;
    let dead = "SELECT event_id::text || ' ' || dlq_reason FROM relay_outbox";
    let id = large["event_id"].as_str().unwrap();
    assert_eq!(site.text(dead).await, format!("{id} too_large"));
    assert_eq!((relay.counts().done, relay.counts().buried), (30, 1));
    relay.stop().await;

    let client = site.client().await;
    let actor = Actor::User("ada".to_owned());
    let reason = |reason: &str| Selection { reason: Some(reason.to_owned()), ..Default::default() };
    let none = redrive(&client, &actor, &reason("unroutable"), 10, false).await.unwrap();
    assert_eq!(none, Counted { matched: 0, changed: 0 });
    let dry = redrive(&client, &actor, &reason("too_large"), 10, true).await.unwrap();
    assert_eq!(dry, Counted { matched: 1, changed: 0 });
    let done = redrive(&client, &actor, &reason("too_large"), 10, false).await.unwrap();
    assert_eq!(done, Counted { matched: 1, changed: 1 });
    let audit = "SELECT string_agg(concat_ws(' ', actor, dry_run, matched, changed, outcome), ',' ORDER BY id)
         FROM operator_audit WHERE action = 'relay.redrive'";
    assert_eq!(site.text(audit).await, "ada f 0 0 done,ada t 1 0 done,ada f 1 1 done");
    let (relay, store) = start(1 << 20);
    store.has(1).await;
    assert_eq!(store.messages()[0].message_id, id);
    outbox_is_empty(&site).await;
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 0);
    relay.stop().await;
    site.cloud.stop().await;
}
