//! Media from the request for a place to the presigned address for reading.

use api::tokens::{Role, Tenants};
use event::id::{MediaId, SessionId, TenantId};
use reqwest::Method;
use serde_json::{Value, json};

use crate::media_world::{Camera, Place, image, put};
use crate::site::{config, http, start};

const PAGE: &str = include_str!("../../../../docs/spec/edge-tables.md");

#[tokio::test]
async fn an_image_goes_to_the_store_and_its_event_to_the_outbox() {
    for place in [Place::embedded(&[]).await, Place::foreign(&[]).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let session = camera.session().await;
        let bytes = image(50_000);
        let mut wish = camera.announce(&bytes);
        wish["session_id"] = json!(session);
        wish["ext"] = json!("jpeg");
        let (status, promised) = camera.post("/media", wish).await;
        assert_eq!(status, 201, "{promised}");
        let id: MediaId = promised["media_id"].as_str().unwrap().parse().unwrap();
        assert_eq!(id.uuid().get_version_num(), 7);
        let key = format!(
            "tenants/{}/farms/{}/barns/{}/devices/{}/images/2026/02/01/{id}.jpg",
            camera.tenant, camera.farm, camera.barn, camera.device
        );
        assert_eq!(promised["object_key"], key);

        // Nothing is media before it is there.
        let (status, said) = camera.complete(&promised).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (409, &json!("not_uploaded")));
        let (status, said) = camera.get(&format!("/media/{id}/url")).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (409, &json!("wrong_state")));
        assert_eq!(said["error"]["state"], "pending", "{said}");
        let none = "SELECT count(*) FROM sync_outbox WHERE event_type = 'media.stored'";
        assert_eq!(place.number(none).await, 0);

        assert_eq!(put(&promised["upload"], &bytes).await.unwrap(), 200, "{}", place.name);
        let again = put(&promised["upload"], &bytes).await.unwrap();
        assert_eq!(again, 412, "{}: what is there stays", place.name);
        let (status, stored) = camera.complete(&promised).await;
        assert_eq!((status.as_u16(), &stored["status"]), (200, &json!("stored")), "{stored}");
        assert_eq!(stored["sha256"], camera.announce(&bytes)["sha256"]);
        // Again: the same answer, and no second event.
        assert_eq!(camera.complete(&promised).await, (status, stored.clone()));

        let (_, shown) = camera.get(&format!("/media/{id}")).await;
        assert_eq!(shown, stored);
        let (_, address) = camera.get(&format!("/media/{id}/url")).await;
        let read = http().get(address["url"].as_str().unwrap()).send().await.unwrap();
        assert_eq!(read.bytes().await.unwrap(), bytes, "{}", place.name);

        let event = place
            .site
            .text(
                "SELECT string_agg(concat_ws(' ', event_type, session_id, payload_json->>'media_id',
                     payload_json->>'path', payload_json->>'mime_type', payload_json->>'size_bytes',
                     occurred_at AT TIME ZONE 'UTC'), '|')
                 FROM sync_outbox WHERE event_type LIKE 'media.%'",
            )
            .await;
        let wanted =
            format!("media.stored {session} {id} {key} image/jpeg 50000 2026-02-01 10:00:00");
        assert_eq!(event, wanted);
        let jobs = format!("SELECT count(*) FROM inference_jobs WHERE media_id = '{id}'");
        assert_eq!(place.number(&jobs).await, 1, "the model is asked once");
        edge.stop().await;
    }
}

#[tokio::test]
async fn a_large_image_goes_in_parts() {
    for place in [
        Place::embedded(&[("MEDIA_MULTIPART_ABOVE", "5MiB")]).await,
        Place::foreign(&[("MEDIA_MULTIPART_ABOVE", "5MiB")]).await,
    ] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let bytes = image((8 << 20) + 77);
        let promised = camera.place(&bytes).await;
        let parts = promised["upload"]["parts"].as_array().unwrap();
        let sizes: Vec<u64> =
            parts.iter().map(|part| part["size_bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [8 << 20, 77]);
        assert!(put(&parts[0], &bytes[..8 << 20]).await.unwrap().is_success());
        let (status, said) = camera.complete(&promised).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (409, &json!("not_uploaded")));
        assert!(put(&parts[1], &bytes[8 << 20..]).await.unwrap().is_success());
        let (status, stored) = camera.complete(&promised).await;
        assert_eq!((status.as_u16(), &stored["status"]), (200, &json!("stored")), "{stored}");
        let key = promised["object_key"].as_str().unwrap();
        assert!(place.bucket.get(key, 1 << 30).await.unwrap() == bytes);
        assert_eq!(place.number("SELECT count(*) FROM media_uploads").await, 0);
        assert_eq!(place.bucket.open_uploads("").await.unwrap(), []);
        edge.stop().await;
    }
}

#[tokio::test]
async fn without_a_store_every_route_says_so() {
    let site = crate::site::Site::new("no_store").await;
    let edge = start(&config(site.database.url(), &[("ROLES", "media")])).await;
    let place = Place { config: site.config.clone(), site, ..Place::embedded(&[]).await };
    let camera = Camera::new(&place, &edge).await;
    let id = MediaId::mint();
    for (method, path) in [
        (Method::POST, "/media".to_owned()),
        (Method::GET, "/media".to_owned()),
        (Method::GET, format!("/media/{id}")),
        (Method::POST, format!("/media/{id}/complete")),
        (Method::GET, format!("/media/{id}/url")),
    ] {
        let (status, said) = camera.ask(method, &path, Value::Null).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (503, &json!("no_object_store")));
    }
    edge.stop().await;
}

#[tokio::test]
async fn what_cannot_be_media_is_refused_with_its_field() {
    let place = Place::embedded(&[("MEDIA_MAX_SIZE", "1MiB")]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let sound = camera.announce(&image(10));
    for (field, value) in [
        ("farm_id", json!("../../etc")),
        ("barn_id", json!(null)),
        ("device_id", json!("018f1a84-bb0e-7d3f-b2e4-9e8b5f8e000/")),
        ("session_id", json!("..")),
        ("tenant_id", json!("*")),
        ("mime_type", json!("text/html")),
        ("mime_type", json!("image/svg+xml")),
        ("mime_type", json!("image/jpeg; charset=x")),
        ("ext", json!("png")),
        ("ext", json!("../jpg")),
        ("size_bytes", json!(0)),
        ("size_bytes", json!(-1)),
        ("size_bytes", json!(1.5)),
        ("size_bytes", json!((1 << 20) + 1)),
        ("sha256", json!("00")),
        ("captured_at", json!("yesterday")),
        ("captured_at", json!("2226-01-01T00:00:00Z")),
        ("bucket", json!("other")),
    ] {
        let mut wish = sound.clone();
        wish[field] = value.clone();
        let (status, said) = camera.post("/media", wish).await;
        assert_eq!(
            (status.as_u16(), &said["error"]["field"]),
            (400, &json!(field)),
            "{value}: {said}"
        );
    }
    assert_eq!(place.number("SELECT count(*) FROM media_objects").await, 0);
    for id in ["..", "%2e%2e", "a%2Fb", "..%2f..%2fetc", "0", &"a".repeat(5_000)] {
        for (method, rest) in
            [(Method::GET, ""), (Method::GET, "/url"), (Method::POST, "/complete")]
        {
            let (status, _) = camera.ask(method, &format!("/media/{id}{rest}"), Value::Null).await;
            assert!([404, 405, 414].contains(&status.as_u16()), "{id} {rest}: {status}");
        }
    }
    edge.stop().await;
}

#[tokio::test]
async fn a_session_must_be_the_tenants_and_open() {
    let place = Place::embedded(&[]).await;
    let edge = place.start().await;
    let (ours, theirs) = (Camera::new(&place, &edge).await, Camera::new(&place, &edge).await);
    let with = |session: SessionId| {
        let mut wish = ours.announce(&image(10));
        wish["session_id"] = json!(session);
        wish
    };
    for session in [SessionId::mint(), theirs.session().await] {
        let (status, said) = ours.post("/media", with(session)).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (404, &json!("unknown_session")));
    }
    let session = ours.session().await;
    assert_eq!(ours.post("/media", with(session)).await.0, 201);
    let cancel = format!("/sessions/{session}/cancel");
    assert_eq!(ours.post(&cancel, Value::Null).await.0, 200);
    let (status, said) = ours.post("/media", with(session)).await;
    assert_eq!((status.as_u16(), &said["error"]["code"]), (409, &json!("session_ended")));
    assert_eq!(said["error"]["state"], "cancelled", "{said}");
    edge.stop().await;
}

#[tokio::test]
async fn every_role_and_tenant_sees_and_does_what_it_may() {
    let place = Place::embedded(&[]).await;
    let edge = place.start().await;
    let owner = Camera::new(&place, &edge).await;
    let stored = owner.upload(&image(100)).await;
    assert_eq!(owner.complete(&stored).await.0, 200);
    let pending = owner.upload(&image(100)).await;
    let id = stored["media_id"].as_str().unwrap();
    let other = TenantId::mint();
    for (role, writes) in
        [(Role::Admin, true), (Role::Operator, true), (Role::Edge, true), (Role::Viewer, false)]
    {
        for (tenants, sees) in [
            (Tenants::Only(vec![owner.tenant]), true),
            (Tenants::Only(vec![owner.tenant, other]), true),
            (Tenants::All, true),
            (Tenants::Only(vec![other]), false),
        ] {
            let what = format!("{role} {tenants:?}");
            let asker = Camera { token: place.token(role, tenants).await, ..owner.clone() };
            let mut wish = owner.announce(&image(100));
            wish["tenant_id"] = json!(owner.tenant);
            let expected = if writes && sees { 201 } else { 403 };
            assert_eq!(asker.post("/media", wish).await.0, expected, "{what}");
            let expected = match (writes, sees) {
                (false, _) => 403,
                (true, true) => 200,
                (true, false) => 404,
            };
            assert_eq!(asker.complete(&pending).await.0, expected, "{what}");
            let expected = if sees { 200 } else { 404 };
            assert_eq!(asker.get(&format!("/media/{id}")).await.0, expected, "{what}");
            assert_eq!(asker.get(&format!("/media/{id}/url")).await.0, expected, "{what}");
            let (status, page) = asker.get("/media").await;
            assert_eq!(status, 200, "{what}");
            assert_eq!(page["rows"].as_array().unwrap().is_empty(), !sees, "{what}");
            let named = format!("/media?tenant_id={}", owner.tenant);
            assert_eq!(asker.get(&named).await.0, if sees { 200 } else { 403 }, "{what}");
        }
    }
    // A token of several tenants must say which.
    let both = Tenants::Only(vec![owner.tenant, other]);
    let asker = Camera { token: place.token(Role::Edge, both).await, ..owner.clone() };
    let (status, said) = asker.post("/media", owner.announce(&image(1))).await;
    assert_eq!((status.as_u16(), &said["error"]["field"]), (400, &json!("tenant_id")));
    edge.stop().await;
}

#[tokio::test]
async fn pages_show_every_image_once() {
    let place = Place::embedded(&[]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(camera.place(&image(10)).await["media_id"].clone());
    }
    made.reverse();
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..4 {
        let (_, page) = camera.get(&format!("/media?limit=3&status=pending{after}")).await;
        seen.extend(page["rows"].as_array().unwrap().iter().map(|row| row["media_id"].clone()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    for filter in ["status=stored", "since=2026-02-01T10:00:01Z", "until=2026-02-01T10:00:00Z"] {
        let (_, page) = camera.get(&format!("/media?{filter}")).await;
        assert_eq!(page, json!({"rows": [], "next": null}), "{filter}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn the_table_is_as_documented() {
    let site = crate::site::Site::new("media_schema").await;
    let client = site.client().await;
    let documented = "id tenant_id farm_id barn_id device_id session_id bucket object_key etag \
        mime_type size_bytes captured_at created_at";
    for table in ["media_objects", "media_uploads"] {
        let query =
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = $1::text";
        let rows = client.query(query, &[&table]).await.unwrap();
        let columns: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        for column in &columns {
            assert!(PAGE.contains(&format!("`{column}`")), "{table}.{column}");
        }
        if table == "media_objects" {
            for column in documented.split_whitespace() {
                assert!(columns.iter().any(|name| name == column), "{column}");
            }
        }
    }
    let query =
        "SELECT string_agg(indexdef, ' ') FROM pg_indexes WHERE tablename = 'media_objects'";
    let indexes = site.text(query).await;
    for index in ["(tenant_id, session_id)", "(tenant_id, device_id, captured_at DESC)"] {
        assert!(indexes.contains(index), "{index} in {indexes}");
    }
}
