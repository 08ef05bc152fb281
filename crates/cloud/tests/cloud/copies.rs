//! Copies of images: several at once and no more, what a stop leaves, those that failed, and what sites hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use cloud::consume::Options;
use cloud::consume::media::Stores;
use cloud::copies::{self, Selection};
use cloud::dead_letters::audit::{self, Actor};
use cloud::tokens::{Role, Tenants};
use event::id::TenantId;
use objects::{Address, Style};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{EmbeddedStore, eventually};
use tokio::sync::watch;

use crate::consume_media::image;
use crate::consume_world::{Barn, Replica, database, options};
use crate::operate::Asker;
use crate::site::{LONG, Site, number};

/// A store that gives every object only after its door is open, and counts who waits.
struct SlowStore {
    address: Address,
    waiting: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    door: watch::Sender<bool>,
}

#[derive(Clone)]
struct Inside {
    waiting: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    door: watch::Receiver<bool>,
}

impl SlowStore {
    async fn start() -> SlowStore {
        let (door, opened) = watch::channel(false);
        let inside = Inside { waiting: Arc::default(), most: Arc::default(), door: opened };
        let (waiting, most) = (Arc::clone(&inside.waiting), Arc::clone(&inside.most));
        let router = axum::Router::new().route("/media/{*key}", any(give)).with_state(inside);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let address = Address {
            url: url.parse().unwrap(),
            bucket: "media".to_owned(),
            region: "us-east-1".to_owned(),
            access_key: "access".to_owned(),
            secret_key: "canary".to_owned(),
            style: Style::Path,
        };
        SlowStore { address, waiting, most, door }
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

async fn give(State(mut inside): State<Inside>, Path(key): Path<String>) -> Response {
    if key.ends_with("absent.jpg") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let _place = Place::take(&inside);
    assert!(inside.door.wait_for(|open| *open).await.is_ok());
    vec![7u8; 10].into_response()
}

/// Counts a request as long as it waits; one whose sender has gone is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(inside: &Inside) -> Place {
        let waiting = inside.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        inside.most.fetch_max(waiting, Ordering::SeqCst);
        Place(Arc::clone(&inside.waiting))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn as_many_objects_are_copied_at_once_as_configured_and_a_stop_gives_them_back() {
    let (source, target) = (SlowStore::start().await, EmbeddedStore::start().await.unwrap());
    let database = database("copies_at_once").await;
    let client = database.connect().await.unwrap();
    let barn = Barn::new(TenantId::mint());
    let stores = Stores::new(source.address.clone(), target.address().clone());
    let told = Options { stores: Some(stores), copies: 3, ..options() };
    let replica = Replica::start(&database, told.clone());
    let prefix = format!("tenants/{}/farms/f", barn.tenant);
    let images: Vec<_> = (0..8).map(|n| image(&barn, &format!("{prefix}/{n}.jpg"), 10)).collect();
    replica.deliver(&images).await;
    eventually(LONG, "three are asked for", async || source.waiting() == 3).await.unwrap();
    let under_way = "SELECT count(*) FROM media_object WHERE copy_status = 'copying'";
    assert_eq!(number(&client, under_way).await, 3);
    replica.stop().await;
    let back = "SELECT count(*) FROM media_object WHERE copy_status = 'pending'
        AND copy_attempts = 0 AND copy_lease_token IS NULL";
    assert_eq!(number(&client, back).await, 8, "a stop gives back what is under way");

    eventually(LONG, "nobody waits any more", async || source.waiting() == 0).await.unwrap();
    let replica = Replica::start(&database, told);
    eventually(LONG, "three are asked for again", async || source.waiting() == 3).await.unwrap();
    source.door.send_replace(true);
    eventually(LONG, "all are copied", async || {
        number(&client, "SELECT count(*) FROM media_object WHERE copy_status = 'copied'").await == 8
    })
    .await
    .unwrap();
    replica.stop().await;
    assert_eq!(source.most.load(Ordering::SeqCst), 3, "never more than it was told");
}

#[tokio::test]
async fn failed_copies_are_listed_and_tried_again_on_record() {
    let (source, target) = (SlowStore::start().await, EmbeddedStore::start().await.unwrap());
    source.door.send_replace(true);
    let database = database("copies_failed").await;
    let client = database.connect().await.unwrap();
    let (one, two) = (Barn::new(TenantId::mint()), Barn::new(TenantId::mint()));
    let path = |barn: &Barn, name: &str| format!("tenants/{}/{name}", barn.tenant);
    let stores = Stores::new(source.address.clone(), target.address().clone());
    let replica = Replica::start(&database, Options { stores: Some(stores), ..options() });
    replica
        .deliver(&[
            image(&one, &path(&one, "absent.jpg"), 10),
            image(&one, &path(&one, "short.jpg"), 11),
            image(&two, &path(&two, "absent.jpg"), 10),
        ])
        .await;
    // Each attempt but the last is far away; the clock is the row's.
    eventually(LONG, "all have been given up", async || {
        let hurry = "UPDATE media_object SET copy_next_at = now(), copy_attempts = 9 WHERE copy_status = 'pending'";
        client.execute(hurry, &[]).await.unwrap();
        number(&client, "SELECT count(*) FROM media_object WHERE copy_status = 'failed'").await == 3
    })
    .await
    .unwrap();
    replica.stop().await;

    let all = copies::failed(&client, &Selection::default(), 10).await.unwrap();
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|copy| copy.attempts == 10), "{all:?}");
    let absent = Selection { code: Some("not_found".to_owned()), ..Selection::default() };
    assert_eq!(copies::failed(&client, &absent, 10).await.unwrap().len(), 2);
    let ours = Selection { tenants: Some(vec![one.tenant.uuid()]), ..absent.clone() };
    let actor = Actor::User("operator".to_owned());
    let dry = copies::retry(&client, &actor, &ours, 10, true).await.unwrap();
    assert_eq!((dry.matched, dry.changed), (1, 0));
    let done = copies::retry(&client, &actor, &ours, 10, false).await.unwrap();
    assert_eq!((done.matched, done.changed), (1, 1));
    let again =
        "SELECT count(*) FROM media_object WHERE copy_status = 'pending' AND copy_attempts = 0
        AND copy_failed_at IS NULL AND copy_error_code IS NULL AND copy_next_at <= now()";
    assert_eq!(number(&client, again).await, 1);
    assert_eq!(copies::failed(&client, &Selection::default(), 10).await.unwrap().len(), 2);
    let records = audit::latest(&client, 10).await.unwrap();
    let seen: Vec<_> =
        records.iter().map(|one| (one.action.as_str(), one.dry_run, one.changed)).collect();
    assert_eq!(seen, [("media.retry", false, Some(1)), ("media.retry", true, Some(0))]);
}

#[tokio::test]
async fn whether_copies_are_made_follows_the_role_that_makes_them() {
    let (source, target) = (SlowStore::start().await, EmbeddedStore::start().await.unwrap());
    let database = database("copies_declared").await;
    let client = database.connect().await.unwrap();
    let pool = pg::Pool::new(&pg::Options::new(database.url())).unwrap();
    let stores = Stores::new(source.address.clone(), target.address().clone());
    let rows = "SELECT count(*) FROM media_copying";
    for (stores, declared) in [(Some(stores), 1), (None, 0)] {
        let replica = Replica::start(&database, Options { stores, ..options() });
        eventually(LONG, "it is declared", async || number(&client, rows).await == declared)
            .await
            .unwrap();
        let said = copies::held(&pool, &[], false).await.unwrap();
        assert_eq!(said.copies, declared == 1);
        replica.stop().await;
    }
    assert!(copies::held(&pool, &[], true).await.unwrap().copies, "as this very process is told");
}

const GIVE_UP: &str =
    "INSERT INTO media_object (tenant_id, media_id, event_id, farm_id, barn_id, device_id, occurred_at, path,
        mime_type, size_bytes, copy_status, copy_attempts, copy_failed_at, copy_error_code, copy_error_message)
    SELECT $1, gen_random_uuid(), gen_random_uuid(), $1, $1, $1, now(), 'p', 'image/jpeg', 1, 'failed', 10,
        now() - n * interval '1 min', $3, 'it is not there'
    FROM generate_series(1, $2::int8) AS n";

#[tokio::test]
async fn operators_list_and_retry_their_own_tenants_failed_copies_over_http() {
    let store = EmbeddedStore::start().await.unwrap();
    let url = store.address().url.to_string();
    let keys = [("MEDIA_SOURCE", &store), ("MEDIA_STORE", &store)].map(|(name, store)| {
        let address = store.address();
        [
            (format!("{name}_URL"), url.clone()),
            (format!("{name}_BUCKET"), address.bucket.clone()),
            (format!("{name}_ACCESS_KEY"), address.access_key.clone()),
            (format!("{name}_SECRET_KEY"), address.secret_key.clone()),
        ]
    });
    let mut keys: Vec<(&str, &str)> =
        keys.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    // It has the role, and no consumer runs: what is put back stays where it is.
    keys.push(("ROLES", "ingestion,relay,telemetry,analytics,media"));
    let site = Site::with("copies_http", &keys).await;
    let (ours, theirs) = (site.tenant, TenantId::mint());
    let client = site.client().await;
    for (tenant, count, code) in
        [(ours, 2_i64, "not_found"), (ours, 1, "size_differs"), (theirs, 5, "not_found")]
    {
        client.execute(GIVE_UP, &[&tenant.uuid(), &count, &code]).await.unwrap();
    }
    let viewer = Asker::new(&site, Role::Viewer, Tenants::Only(vec![ours])).await;
    let operator = Asker::new(&site, Role::Operator, Tenants::Only(vec![ours])).await;
    let admin = Asker::new(&site, Role::Admin, Tenants::All).await;
    let machine = Asker::new(&site, Role::Edge, Tenants::All).await;

    let listed = async |asker: &Asker, query: &str| {
        let (status, found) = asker.get(&format!("/media/copies{query}")).await;
        (status, found["items"].as_array().map(Vec::len).unwrap_or_default())
    };
    assert_eq!(listed(&viewer, "").await, (200, 3));
    assert_eq!(listed(&viewer, "?code=not_found&limit=1").await, (200, 1));
    assert_eq!(listed(&viewer, &format!("?tenant_id={theirs}")).await, (403, 0));
    assert_eq!(listed(&admin, "").await, (200, 8));
    assert_eq!(listed(&admin, &format!("?tenant_id={theirs}")).await, (200, 5));
    assert_eq!(listed(&machine, "").await, (403, 0));
    for wrong in ["?limit=0", "?limit=1001", "?limit=x", "?tenant_id=x", "?codes=x"] {
        assert_eq!(listed(&admin, wrong).await, (400, 0), "{wrong}");
    }
    let (_, found) = viewer.get("/media/copies?limit=1").await;
    let newest = &found["items"][0];
    assert_eq!((&newest["tenant_id"], &newest["attempts"]), (&json!(ours), &json!(10)), "{found}");
    let summary = viewer.get("/summary").await.1;
    assert_eq!(summary["tenants"][0]["media_failed"], 3, "{summary}");

    let retry = async |asker: &Asker, body: Value| {
        let (status, done) = asker.ask(Method::POST, "/media/copies/retry", body).await;
        (status, done["matched"].as_u64(), done["changed"].as_u64())
    };
    let mine = json!({"tenant_id": ours, "reason": "not_found", "dry_run": true});
    assert_eq!(retry(&viewer, mine.clone()).await.0, 403);
    assert_eq!(retry(&machine, mine.clone()).await.0, 403);
    assert_eq!(retry(&operator, json!({"all": true})).await.0, 400, "which tenant?");
    assert_eq!(retry(&operator, json!({"tenant_id": theirs})).await.0, 403);
    assert_eq!(retry(&operator, json!({"tenant_id": ours, "ids": ["x"]})).await.0, 400);
    assert_eq!(retry(&operator, mine).await, (200, Some(2), Some(0)));
    let one = json!({"tenant_id": ours, "ids": [newest["media_id"]]});
    assert_eq!(retry(&operator, one).await, (200, Some(1), Some(1)));
    assert_eq!(retry(&operator, json!({"tenant_id": ours})).await, (200, Some(2), Some(2)));
    let untouched = "SELECT count(*) FROM media_object WHERE copy_status = 'failed'";
    assert_eq!(number(&client, untouched).await, 5, "those of the other tenant");
    let audited =
        "SELECT count(*) FROM operator_audit WHERE actor_kind = 'token' AND action = 'media.retry'
        AND outcome = 'done'";
    assert_eq!(number(&client, audited).await, 3);

    eventually(LONG, "the gauges follow", async || {
        let shown = site.cloud.metrics().render();
        let has = |line: &str| shown.lines().any(|found| found == line);
        let all = has("holdfast_cloud_media_copies{state=\"waiting\"} 3")
            && has("holdfast_cloud_media_copies{state=\"failed\"} 5");
        if all { Ok(()) } else { Err(shown) }
    })
    .await
    .unwrap();
    site.cloud.stop().await;
}
