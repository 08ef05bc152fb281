//! Intake over real HTTP, with a real object store and a real database.

use std::net::SocketAddr;

use api::tokens::{NewToken, Role, Tenants};
use objects::Bucket;
use reqwest::{Client, Method, StatusCode};
use schedule::intake::{Intake, Limits, Swept, serve};
use schedule::metrics::Metrics;
use schedule::worker::{Photographs, Reader, Stored, Worker, finalize};
use serde_json::{Value, json};
use testkit::EmbeddedStore;
use uuid::Uuid;

use crate::rota::{LONG, settings};
use crate::site::{Site, USER};

pub(crate) const PICTURE: &[u8] = b"no picture, but bytes";
const DAY: &str =
    r#"{"schedule_date": "2026-11-16", "entries": [{"start": "8-16", "title": "Nurse"}]}"#;

pub(crate) struct Gate {
    pub(crate) site: Site,
    pub(crate) store: EmbeddedStore,
    intake: Intake,
    pub(crate) address: SocketAddr,
    client: Client,
    pub(crate) sender: String,
    pub(crate) viewer: String,
}

impl Gate {
    pub(crate) async fn open(name: &str) -> Gate {
        Gate::with(name, None).await
    }

    pub(crate) async fn with(name: &str, tls: Option<&api::serve::Tls>) -> Gate {
        let site = Site::new(name).await;
        let store = EmbeddedStore::start().await.unwrap();
        Bucket::new(store.address()).unwrap().ensure().await.unwrap();
        let pool = pg::Pool::new(&site.address).unwrap();
        let limits = Limits { max_image_bytes: 1_000, max_images: 3, ..Limits::default() };
        let intake = Intake::new(pool, store.address(), store.address(), limits).unwrap();
        let gate = intake.clone();
        let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let metrics = Metrics::new(&site.address).unwrap();
        let listener = metrics.counting(|| api::serve::Listener::bind(anywhere, tls)).unwrap();
        let address = listener.address();
        tokio::spawn(serve(listener, intake, metrics, std::future::pending()));
        let sender = token(&site, Role::Edge, Tenants::All).await;
        let viewer = token(&site, Role::Viewer, Tenants::All).await;
        Gate { site, store, intake: gate, address, client: Client::new(), sender, viewer }
    }

    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        token: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let url = format!("http://{}{path}", self.address);
        let mut request = self.client.request(method, url).bearer_auth(token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let status = response.status();
        (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.ask(Method::POST, path, &self.sender, &[], Some(body)).await
    }

    async fn session(&self) -> String {
        let (status, session) = self.post("/api/v1/sessions", json!({"user_id": USER})).await;
        assert_eq!(status, StatusCode::CREATED, "{session}");
        session["session_id"].as_str().unwrap().to_owned()
    }

    async fn show(&self, session: &str) -> Value {
        let path = format!("/api/v1/sessions/{session}");
        let (status, shown) = self.ask(Method::GET, &path, &self.viewer, &[], None).await;
        assert_eq!(status, StatusCode::OK, "{shown}");
        shown
    }

    /// Uses a presigned address.
    pub(crate) async fn put(&self, place: &Value, bytes: &[u8]) -> StatusCode {
        let mut request = self.client.put(place["url"].as_str().unwrap());
        for (name, value) in place["headers"].as_object().unwrap() {
            if name != "content-length" {
                request = request.header(name, value.as_str().unwrap());
            }
        }
        request.body(bytes.to_vec()).send().await.unwrap().status()
    }
}

async fn token(site: &Site, role: Role, tenants: Tenants) -> String {
    let new = NewToken { name: "of a test".to_owned(), role, tenants, expires_at: None };
    let (_, secret) = api::tokens::create(&site.client, &new).await.unwrap();
    secret.expose().to_owned()
}

pub(crate) fn picture(sequence: i32) -> Value {
    json!({"sequence": sequence, "mime_type": "image/png", "size_bytes": PICTURE.len()})
}

pub(crate) fn code(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), answer.1["error"]["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_capture_comes_in_and_becomes_a_version() {
    let gate = Gate::open("intake_whole").await;
    let session = gate.session().await;
    assert_eq!(gate.show(&session).await["phase"], "collecting");
    let new = json!({"sequence": 1, "mime_type": "application/json", "size_bytes": DAY.len()});
    let (status, place) = gate.post(&format!("/api/v1/sessions/{session}/images"), new).await;
    assert_eq!(status, StatusCode::CREATED, "{place}");
    assert_eq!(place["r2_key"], format!("captures/{USER}/{session}/001.json"));
    assert_eq!(gate.show(&session).await["awaited"], json!([1]));

    let complete = format!("/api/v1/sessions/{session}/images/1/complete");
    assert_eq!(code(&gate.post(&complete, json!({})).await), (409, "not_uploaded"));
    assert!(gate.put(&place, DAY.as_bytes()).await.is_success());
    let (status, image) = gate.post(&complete, json!({"telegram_message_id": 7})).await;
    assert_eq!(status, StatusCode::OK, "{image}");
    let (_, again) = gate.post(&complete, json!({})).await;
    assert_eq!(image, again, "completing twice changes nothing");
    let row = "SELECT telegram_message_id FROM schedule_ingest.capture_image WHERE sequence = 1";
    assert_eq!(gate.site.number(row).await, 7);

    let bucket = Bucket::new(gate.store.address()).unwrap();
    let reader = Reader {
        stored: Some(Stored { bucket, noise: Some(7) }),
        photographs: Photographs::Unread,
    };
    let worker = Worker::start(&gate.site.address, &settings("one"), reader).unwrap();
    testkit::eventually(LONG, "done", async || {
        let shown = gate.show(&session).await;
        if shown["phase"] == "done" { Ok(()) } else { Err(shown) }
    })
    .await
    .unwrap();
    worker.stop().await;
    let shown = gate.show(&session).await;
    assert_eq!(shown["result"], json!({"schedule_date": "2026-11-16", "version": 1}));
    assert_eq!((&shown["error"], &shown["images"][0]["sequence"]), (&Value::Null, &json!(1)));
    let late = gate.post(&format!("/api/v1/sessions/{session}/images"), picture(2)).await;
    assert_eq!(code(&late), (409, "session_ended"));
    gate.store.stop().await.unwrap();
}

#[tokio::test]
async fn the_same_key_opens_one_session() {
    let gate = Gate::open("intake_key").await;
    let open = async |user: i64, key: &str| {
        let headers = [("idempotency-key", key)];
        let body = Some(json!({"user_id": user}));
        gate.ask(Method::POST, "/api/v1/sessions", &gate.sender, &headers, body).await
    };
    let (first, second, third) = tokio::join!(open(1, "a"), open(1, "a"), open(1, "a"));
    let ids: Vec<&Value> =
        [&first, &second, &third].iter().map(|(_, body)| &body["session_id"]).collect();
    assert!(ids[0].is_string() && ids[0] == ids[1] && ids[1] == ids[2], "{ids:?}");
    let made = [&first, &second, &third].iter().filter(|a| a.0 == StatusCode::CREATED).count();
    assert_eq!(made, 1);
    assert_ne!(open(1, "b").await.1["session_id"], *ids[0]);
    assert_eq!(code(&open(2, "a").await), (422, "key_reused"));
    assert_eq!(code(&open(2, "two words").await), (400, "malformed"));
    assert_eq!(gate.site.number("SELECT count(*) FROM schedule_ingest.capture_session").await, 2);
    gate.store.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_uploaded_is_what_was_announced() {
    let gate = Gate::open("intake_differs").await;
    let session = gate.session().await;
    let images = format!("/api/v1/sessions/{session}/images");
    let (_, place) = gate.post(&images, picture(1)).await;
    let (status, again) = gate.post(&images, picture(1)).await;
    assert_eq!((status, &again["r2_key"]), (StatusCode::OK, &place["r2_key"]), "the same place");
    let mut other = picture(1);
    other["mime_type"] = json!("image/jpeg");
    assert_eq!(code(&gate.post(&images, other).await), (409, "sequence_taken"));
    assert!(
        !gate.put(&place, b"of another length").await.is_success(),
        "the address is for one length"
    );

    // Somebody with the store's own keys puts something else there.
    let bucket = Bucket::new(gate.store.address()).unwrap();
    let key = place["r2_key"].as_str().unwrap();
    bucket.put(key, "image/png", b"short".as_slice().into()).await.unwrap();
    let complete = format!("{images}/1/complete");
    assert_eq!(code(&gate.post(&complete, json!({})).await), (422, "size_differs"));
    bucket.replace(key, "image/gif", PICTURE.into()).await.unwrap();
    assert_eq!(code(&gate.post(&complete, json!({})).await), (422, "type_differs"));
    let mut hashed = picture(2);
    hashed["sha256"] = json!("00".repeat(32));
    let (_, place) = gate.post(&images, hashed).await;
    bucket.put(place["r2_key"].as_str().unwrap(), "image/png", PICTURE.into()).await.unwrap();
    let complete = format!("{images}/2/complete");
    assert_eq!(code(&gate.post(&complete, json!({})).await), (422, "hash_differs"));
    assert_eq!(gate.site.number("SELECT count(*) FROM schedule_ingest.capture_image").await, 0);
    gate.store.stop().await.unwrap();
}

#[tokio::test]
async fn limits_and_tokens_hold() {
    let gate = Gate::open("intake_limits").await;
    let session = gate.session().await;
    let images = format!("/api/v1/sessions/{session}/images");
    for (field, value) in [
        ("sequence", json!(0)),
        ("sequence", json!(4)),
        ("size_bytes", json!(0)),
        ("size_bytes", json!(1_001)),
        ("mime_type", json!("image/gif")),
        ("sha256", json!("zz")),
        ("extra", json!(1)),
        ("size_bytes", json!("9")),
    ] {
        let mut image = picture(1);
        image[field] = value.clone();
        assert_eq!(code(&gate.post(&images, image).await), (400, "malformed"), "{field} {value}");
    }
    let large = json!({"user_id": 1, "x": "a".repeat(20_000)});
    assert_eq!(code(&gate.post("/api/v1/sessions", large).await), (413, "too_large"));
    let nobody = format!("/api/v1/sessions/{}/images", Uuid::now_v7());
    for path in [nobody.as_str(), "/api/v1/sessions/x/images"] {
        assert_eq!(code(&gate.post(path, picture(1)).await), (404, "not_found"));
    }
    let complete = format!("{images}/1/complete");
    assert_eq!(code(&gate.post(&complete, json!({})).await), (404, "not_found"));

    let open = json!({"user_id": 1});
    let ask = async |token: &str| {
        let body = Some(open.clone());
        gate.ask(Method::POST, "/api/v1/sessions", token, &[], body).await
    };
    assert_eq!(code(&ask("wrong").await), (401, "unauthorized"));
    assert_eq!(code(&ask(&gate.viewer).await), (403, "forbidden"));
    let tenant = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0002".parse().unwrap();
    let bound = token(&gate.site, Role::Admin, Tenants::Only(vec![tenant])).await;
    assert_eq!(code(&ask(&bound).await), (403, "forbidden"));
    for (path, status) in
        [("/healthz", 200), ("/readyz", 200), ("/api/docs", 200), ("/api/v1/openapi.json", 200)]
    {
        let url = format!("http://{}{path}", gate.address);
        assert_eq!(gate.client.get(url).send().await.unwrap().status(), status, "{path}");
    }
    gate.store.stop().await.unwrap();
}

#[tokio::test]
async fn a_place_makes_a_session_collect_again_until_a_worker_has_it() {
    let gate = Gate::open("intake_late").await;
    let session = gate.session().await;
    let images = format!("/api/v1/sessions/{session}/images");
    assert_eq!(finalize(&gate.site.client, std::time::Duration::ZERO).await.unwrap(), 1);
    assert_eq!(gate.show(&session).await["phase"], "complete");
    let (status, place) = gate.post(&images, picture(1)).await;
    assert_eq!(status, StatusCode::CREATED);
    assert_eq!(gate.show(&session).await["phase"], "collecting");
    assert!(gate.put(&place, PICTURE).await.is_success());
    // Another worker is quicker than the completion.
    let claim = "UPDATE schedule_ingest.capture_session
        SET state = 'processing', locked_at = now(), locked_by = 'python' WHERE id = $1";
    gate.site.on(session.parse().unwrap(), claim).await.unwrap();
    let late = gate.post(&format!("{images}/1/complete"), json!({})).await;
    assert_eq!(code(&late), (409, "session_ended"));
    assert_eq!(gate.show(&session).await["images"], json!([]));
    gate.store.stop().await.unwrap();
}

#[tokio::test]
async fn places_that_were_never_used_are_swept_and_images_stay() {
    let gate = Gate::open("intake_sweep").await;
    let bucket = Bucket::new(gate.store.address()).unwrap();
    let (over, open) = (gate.session().await, gate.session().await);
    let mut keys = Vec::new();
    for session in [&over, &open] {
        let images = format!("/api/v1/sessions/{session}/images");
        for sequence in 1..=3 {
            let (_, place) = gate.post(&images, picture(sequence)).await;
            // The second of each is uploaded and never completed, the third not even uploaded.
            if sequence < 3 {
                assert!(gate.put(&place, PICTURE).await.is_success());
            }
            keys.push(place["r2_key"].as_str().unwrap().to_owned());
        }
        let (status, _) = gate.post(&format!("{images}/1/complete"), json!({})).await;
        assert_eq!(status, StatusCode::OK);
    }
    let ends = "UPDATE schedule_ingest.capture_session SET state = 'failed', error = 'a test' WHERE id = $1";
    gate.site.on(over.parse().unwrap(), ends).await.unwrap();
    assert_eq!(gate.intake.sweep().await.unwrap(), Swept::default(), "it is too soon");
    // A day goes by.
    gate.site
        .run(
            "SET session_replication_role = replica;
             UPDATE schedule_ingest.capture_session SET active_at = active_at - interval '25 h';
             SET session_replication_role = origin",
        )
        .await
        .unwrap();
    assert_eq!(gate.intake.sweep().await.unwrap(), Swept { places: 3, unused: 2 });
    assert_eq!(gate.intake.sweep().await.unwrap(), Swept::default());
    let mut there = Vec::new();
    for key in &keys {
        there.push(bucket.head(key).await.is_ok());
    }
    assert_eq!(there, [true, false, false, true, true, false], "what is open, and images, stay");
    assert_eq!(gate.site.number("SELECT count(*) FROM schedule_ingest.capture_upload").await, 3);
    assert_eq!(gate.show(&over).await["awaited"], json!([]));
    // Completing what is swept is what it was: an image that is there, or a session that has ended.
    let complete = |sequence| format!("/api/v1/sessions/{over}/images/{sequence}/complete");
    assert_eq!(gate.post(&complete(1), json!({})).await.0, StatusCode::OK);
    assert_eq!(code(&gate.post(&complete(2), json!({})).await), (404, "not_found"));
    gate.store.stop().await.unwrap();
}
