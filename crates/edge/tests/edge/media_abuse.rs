//! Uploads that are not what was announced, and stores that cannot take them.

use event::id::TenantId;
use objects::Bucket;
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::rig::{Link, Mode};
use testkit::{EmbeddedStore, Tmpfs, eventually};

use crate::media_world::{Camera, Place, image, put};
use crate::site::{LONG, http};

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
async fn the_address_of_a_part_is_good_for_nothing_but_that_part() {
    let settings = [("MEDIA_MULTIPART_ABOVE", "5MiB")];
    for place in [Place::embedded(&settings).await, Place::foreign(&settings).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let bytes = image((8 << 20) + 100);
        let (first, last) = bytes.split_at(8 << 20);
        let (promised, other) = (camera.place(&bytes).await, camera.place(&bytes).await);
        let parts = promised["upload"]["parts"].as_array().unwrap();
        let upload_id = |media: &Value| {
            let url: reqwest::Url =
                media["upload"]["parts"][1]["url"].as_str().unwrap().parse().unwrap();
            let id = url.query_pairs().find(|(name, _)| name == "uploadId").unwrap().1.into_owned();
            // As it stands in the address.
            reqwest::Url::parse_with_params("http://x", [("uploadId", id)])
                .unwrap()
                .query()
                .unwrap()
                .to_owned()
        };
        let id = promised["media_id"].as_str().unwrap();
        for (what, request) in [
            ("another number", altered(&parts[1], "partNumber=2", "partNumber=1")),
            ("a number beyond the last", altered(&parts[1], "partNumber=2", "partNumber=3")),
            ("another upload", altered(&parts[1], &upload_id(&promised), &upload_id(&other))),
            ("an upload of nobody", altered(&parts[1], &upload_id(&promised), "uploadId=0")),
            ("another key", altered(&parts[1], id, &TenantId::mint().to_string())),
            ("the other image", altered(&parts[1], id, other["media_id"].as_str().unwrap())),
            ("a longer time", altered(&parts[1], "X-Amz-Expires=900", "X-Amz-Expires=90000")),
        ] {
            let status = put(&request, last).await.unwrap();
            assert_eq!(status, StatusCode::FORBIDDEN, "{}: {what}", place.name);
        }
        for size in [0, 99, 101, 100_000] {
            let sent = put(&parts[1], &image(size)).await;
            let status = sent.unwrap_or(StatusCode::BAD_REQUEST);
            assert!(status.is_client_error(), "{}: {size} bytes: {status}", place.name);
        }
        let url = parts[1]["url"].as_str().unwrap();
        for request in [http().get(url), http().delete(url), http().post(url)] {
            let status = request.send().await.unwrap().status();
            assert_eq!(status, StatusCode::FORBIDDEN, "{}: another method", place.name);
        }
        for media in [&promised, &other] {
            let (status, said) = camera.complete(media).await;
            assert_eq!((status.as_u16(), &said["error"]["code"]), (409, &json!("not_uploaded")));
        }
        assert_eq!(place.keys().await, Vec::<String>::new(), "{}", place.name);

        // Bytes of the right length that are not those which were announced never become media.
        assert!(put(&parts[0], &vec![7; 8 << 20]).await.unwrap().is_success());
        assert!(put(&parts[1], last).await.unwrap().is_success());
        let (status, said) = camera.complete(&promised).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (422, &json!("hash_differs")));

        // What was meant works, and its addresses change nothing afterwards. (A store may take a part of an upload that
        // is over, and forget it.)
        let parts = other["upload"]["parts"].as_array().unwrap();
        assert!(put(&parts[0], first).await.unwrap().is_success());
        assert!(put(&parts[1], last).await.unwrap().is_success());
        let (status, said) = camera.complete(&other).await;
        assert_eq!(status, 200, "{}: {said}", place.name);
        let late = put(&parts[1], &image(100)).await.unwrap();
        assert!(late.is_client_error() || place.name == "foreign", "{}: {late}", place.name);
        assert_eq!(camera.complete(&other).await.0, 200, "{}", place.name);
        let key = other["object_key"].as_str().unwrap();
        assert!(place.bucket.get(key, 1 << 30).await.unwrap() == bytes, "{}", place.name);
        edge.stop().await;
    }
}

#[tokio::test]
async fn the_address_of_a_part_expires() {
    let settings = [("MEDIA_MULTIPART_ABOVE", "5MiB"), ("MEDIA_PRESIGN_TTL", "1s")];
    for place in [Place::embedded(&settings).await, Place::foreign(&settings).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let bytes = image((8 << 20) + 1);
        let promised = camera.place(&bytes).await;
        let parts = promised["upload"]["parts"].as_array().unwrap();
        eventually(LONG, "the last part's address expires", async || {
            put(&parts[1], &bytes[8 << 20..]).await.unwrap() == StatusCode::FORBIDDEN
        })
        .await
        .unwrap();
        // The first one was signed before it.
        let status = put(&parts[0], &bytes[..8 << 20]).await;
        let status = status.unwrap_or(StatusCode::FORBIDDEN);
        assert_eq!(status, StatusCode::FORBIDDEN, "{}", place.name);
        let (status, said) = camera.complete(&promised).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (409, &json!("not_uploaded")));
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
async fn without_a_hash_the_size_and_type_are_checked_and_the_hash_is_computed() {
    for place in [Place::embedded(&[]).await, Place::foreign(&[]).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let mut wish = camera.announce(&image(100));
        wish["sha256"] = Value::Null;
        let (status, promised) = camera.post("/media", wish).await;
        assert_eq!(status, 201);
        assert!(put(&promised["upload"], &[7; 100]).await.unwrap().is_success());
        let (status, stored) = camera.complete(&promised).await;
        let hash = camera.announce(&[7; 100])["sha256"].clone();
        assert_eq!((status.as_u16(), &stored["sha256"]), (200, &hash), "{}", place.name);
        edge.stop().await;
    }
}

#[tokio::test]
async fn a_tenant_that_asks_for_everything_locks_out_itself_alone() {
    let place = Place::embedded(&[]).await;
    let edge = place.start().await;
    let (greedy, other) = (Camera::new(&place, &edge).await, Camera::new(&place, &edge).await);
    let client = place.site.client().await;
    let ask_for = async |tenant: TenantId, many: i32| {
        let fill = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket,
                object_key, mime_type, size_bytes, captured_at, expires_at)
            SELECT gen_random_uuid(), $1, $1, $1, $1, 'media', gen_random_uuid()::text,
                'image/jpeg', 1, now(), now() + interval '1 h' FROM generate_series(1, $2)";
        client.execute(fill, &[&tenant.uuid(), &many]).await.unwrap();
    };
    let asked =
        async |camera: &Camera| camera.post("/media", camera.announce(&image(10))).await.0.as_u16();
    ask_for(greedy.tenant, 9_999).await;
    assert_eq!(asked(&greedy).await, 201);
    assert_eq!((asked(&greedy).await, asked(&other).await), (429, 201));
    for _ in 0..3 {
        ask_for(TenantId::mint(), 9_999).await;
    }
    assert_eq!(asked(&other).await, 201);
    ask_for(TenantId::mint(), 1).await;
    assert_eq!(asked(&other).await, 429, "all together have a limit too");
    edge.stop().await;
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
