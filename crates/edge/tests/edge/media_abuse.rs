//! Uploads that are not what was announced, and stores that cannot take them.

use event::id::TenantId;
use objects::Bucket;
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::rig::{Link, Mode};
use testkit::{EmbeddedStore, Tmpfs};

use crate::media_world::{Camera, Place, image, put};
use crate::site::http;

/// The same request with something in it replaced.
fn altered(request: &Value, from: &str, to: &str) -> Value {
    let mut other = request.clone();
    let url = request["url"].as_str().unwrap();
    assert!(url.contains(from), "{from}");
    other["url"] = json!(url.replace(from, to));
    other
}

#[tokio::test]
async fn an_address_is_good_for_nothing_but_its_image() {
    for place in [Place::embedded(&[]).await, Place::foreign(&[]).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let bytes = image(4_000);
        let promised = camera.place(&bytes).await;
        let upload = &promised["upload"];
        let id = promised["media_id"].as_str().unwrap();
        let tenant = camera.tenant.to_string();
        for (what, request) in [
            ("another key", altered(upload, id, &TenantId::mint().to_string())),
            ("another tenant", altered(upload, &tenant, &TenantId::mint().to_string())),
            ("another kind", altered(upload, ".jpg", ".html")),
            ("a way out", altered(upload, "/images/", "/images/../../x/")),
            ("a longer time", altered(upload, "X-Amz-Expires=900", "X-Amz-Expires=90000")),
        ] {
            let status = put(&request, &bytes).await.unwrap();
            assert_eq!(status, StatusCode::FORBIDDEN, "{}: {what}", place.name);
        }
        for size in [0, 3_999, 4_001, 100_000] {
            let status = put(upload, &image(size)).await.map_or(StatusCode::BAD_REQUEST, |s| s);
            assert!(status.is_client_error(), "{}: {size} bytes: {status}", place.name);
        }
        for (name, value) in [("content-type", "text/html"), ("if-none-match", "x")] {
            let mut request = upload.clone();
            request["headers"][name] = json!(value);
            let status = put(&request, &bytes).await.unwrap();
            assert!(status.is_client_error(), "{}: {name}: {status}", place.name);
        }
        let status = http().delete(upload["url"].as_str().unwrap()).send().await.unwrap().status();
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert_eq!(place.keys().await, Vec::<String>::new(), "{}", place.name);
        edge.stop().await;
    }
}

#[tokio::test]
async fn an_object_that_is_not_as_announced_never_becomes_media() {
    for place in [Place::embedded(&[]).await, Place::foreign(&[]).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        // Whoever has the store's own keys can put anything anywhere; completion looks.
        for (mime, bytes, code) in [
            ("image/jpeg", image(999), "size_differs"),
            ("text/html", image(1_000), "type_differs"),
            ("image/jpeg", vec![7; 1_000], "hash_differs"),
        ] {
            let promised = camera.place(&image(1_000)).await;
            let key = promised["object_key"].as_str().unwrap();
            place.bucket.put(key, mime, bytes.into()).await.unwrap();
            let (status, said) = camera.complete(&promised).await;
            assert_eq!((status.as_u16(), &said["error"]["code"]), (422, &json!(code)), "{said}");
        }
        let stored = "SELECT count(*) FROM media_objects WHERE status <> 'pending'";
        assert_eq!(place.number(stored).await, 0);
        assert_eq!(place.number("SELECT count(*) FROM sync_outbox").await, 0);
        let counted = edge.metrics().render();
        assert!(
            counted.contains("holdfast_media_uploads_total{outcome=\"refused\"} 3"),
            "{counted}"
        );
        edge.stop().await;
    }
}

#[tokio::test]
async fn without_a_hash_the_size_and_type_are_checked() {
    for place in [Place::embedded(&[]).await, Place::foreign(&[]).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let mut wish = camera.announce(&image(100));
        wish["sha256"] = Value::Null;
        let (status, promised) = camera.post("/media", wish).await;
        assert_eq!(status, 201);
        assert!(put(&promised["upload"], &[7; 100]).await.unwrap().is_success());
        assert_eq!(camera.complete(&promised).await.0, 200);
        edge.stop().await;
    }
}

#[tokio::test]
async fn many_completions_at_once_make_one_event() {
    let place = Place::embedded(&[]).await;
    let (one, two) = (place.start().await, place.start().await);
    let camera = Camera::new(&place, &one).await;
    let other = Camera::with(&two.http().to_string(), camera.token.clone(), camera.tenant);
    let promised = camera.upload(&image(1_000)).await;
    let mut asking = tokio::task::JoinSet::new();
    for at in 0..16 {
        let (camera, promised) =
            (if at % 2 == 0 { camera.clone() } else { other.clone() }, promised.clone());
        asking.spawn(async move { camera.complete(&promised).await });
    }
    for (status, said) in asking.join_all().await {
        assert_eq!((status.as_u16(), &said["status"]), (200, &json!("stored")), "{said}");
    }
    let events = "SELECT count(*) FROM sync_outbox WHERE event_type = 'media.stored'";
    assert_eq!(place.number(events).await, 1);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_store_that_is_away_is_no_verdict() {
    let store = EmbeddedStore::start().await.unwrap();
    let host = format!("127.0.0.1:{}", store.address().url.port().unwrap());
    let link = Link::start(host.parse().unwrap()).await.unwrap();
    let url = format!("http://{}/", link.addr());
    let place = Place::at("behind a link", store.address(), &[("MEDIA_S3_ENDPOINT", &url)]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let promised = camera.upload(&image(1_000)).await;
    let stored = camera.upload(&image(1_000)).await;
    assert_eq!(camera.complete(&stored).await.0, 200);
    link.set(Mode::Cut);
    let (status, said) = camera.complete(&promised).await;
    assert_eq!((status.as_u16(), &said["error"]["code"]), (503, &json!("store_unavailable")));
    assert!(!said.to_string().contains("canary"), "{said}");
    assert!(edge::media::sweep::once(&place.config, false).await.is_err());
    let states = "SELECT string_agg(status, ' ' ORDER BY created_at) FROM media_objects";
    assert_eq!(
        place.site.text(states).await,
        "pending stored",
        "nothing is missing, nothing removed"
    );
    link.set(Mode::Pass);
    assert_eq!(camera.complete(&promised).await.0, 200);
    edge.stop().await;
}

#[tokio::test]
async fn a_full_store_costs_nothing_that_is_there() {
    let Some(small) = Tmpfs::mount_or_say(2_048) else { return };
    let store = EmbeddedStore::over(&small.path().join("store")).await.unwrap();
    let place = Place::at("small", store.address(), &[]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let bytes = image(300_000);
    let mut stored = Vec::new();
    let late = loop {
        let promised = camera.place(&bytes).await;
        if put(&promised["upload"], &bytes).await.unwrap() == StatusCode::INSUFFICIENT_STORAGE {
            break promised;
        }
        assert_eq!(camera.complete(&promised).await.0, 200);
        stored.push(promised);
        assert!(stored.len() < 10, "the disk does not fill");
    };
    assert_eq!(camera.complete(&late).await.0, 409);
    let bucket = Bucket::new(store.address()).unwrap();
    for media in &stored {
        let key = media["object_key"].as_str().unwrap();
        assert!(bucket.get(key, 1 << 20).await.unwrap() == bytes);
    }
    // The same address works when there is room again.
    bucket.delete(stored[0]["object_key"].as_str().unwrap()).await.unwrap();
    assert!(put(&late["upload"], &bytes).await.unwrap().is_success());
    assert_eq!(camera.complete(&late).await.0, 200);
    edge.stop().await;
}
