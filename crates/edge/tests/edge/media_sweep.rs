//! The sweep: what a crash or a hand left on either side is found and mended.

use edge::media::sweep::{self, Report};
use event::id::TenantId;
use serde_json::{Value, json};
use testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::media_world::{Camera, Place, image, put};
use crate::site::LONG;

/// Looks only, and then mends; both must have found the same.
async fn swept(place: &Place) -> Report {
    let looked = place.sweep(true).await;
    let done = place.sweep(false).await;
    assert_eq!(looked.counts(), done.counts(), "a dry run tells what a sweep does");
    let again = place.sweep(false).await;
    let foreign = Report { foreign: done.foreign, ..Report::default() };
    assert_eq!(again.counts(), foreign.counts(), "{}: a sweep leaves nothing to do", place.name);
    done
}

/// Makes every pending row one whose time is over.
async fn expire(place: &Place) {
    let query =
        "UPDATE media_objects SET expires_at = now() - interval '1 s' WHERE status = 'pending'";
    place.site.client().await.execute(query, &[]).await.unwrap();
}

const STORED: &str = "SELECT count(*) FROM sync_outbox WHERE event_type = 'media.stored'";
const STATES: &str =
    "SELECT coalesce(string_agg(status, ' ' ORDER BY created_at), '') FROM media_objects";

#[tokio::test]
async fn an_upload_that_nobody_completed_is_completed() {
    for place in [Place::embedded(&[]).await, Place::foreign(&[]).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        camera.upload(&image(1_000)).await;
        camera.place(&image(1_000)).await;
        let report = swept(&place).await;
        assert_eq!((report.completed, report.waiting, report.expired), (1, 1, 0));
        assert_eq!(place.site.text(STATES).await, "stored pending");
        assert_eq!(place.number(STORED).await, 1);
        expire(&place).await;
        assert_eq!(swept(&place).await.expired, 1);
        assert_eq!(place.site.text(STATES).await, "stored");
        edge.stop().await;
    }
}

#[tokio::test]
async fn an_expired_upload_that_is_not_as_announced_goes_with_its_object() {
    let place = Place::embedded(&[]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let promised = camera.place(&image(1_000)).await;
    let key = promised["object_key"].as_str().unwrap();
    place.bucket.put(key, "image/jpeg", vec![7; 1_000].into()).await.unwrap();
    assert_eq!(swept(&place).await.waiting, 1, "while it has time it may be put right");
    expire(&place).await;
    assert_eq!(swept(&place).await.rejected, 1);
    assert_eq!((place.keys().await.len(), place.site.text(STATES).await.as_str()), (0, ""));
    assert_eq!(place.number(STORED).await, 0);
    edge.stop().await;
}

/// The camera is slow: its address expires while the bytes are on their way.
#[tokio::test]
async fn an_upload_that_began_in_time_is_waited_for() {
    let grace = [("MEDIA_UPLOAD_GRACE", "1h")];
    for place in [Place::embedded(&grace).await, Place::foreign(&grace).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let session = camera.session().await;
        let bytes = image(1_000);
        let mut wish = camera.announce(&bytes);
        wish["session_id"] = json!(session);
        let (status, promised) = camera.post("/media", wish).await;
        assert_eq!(status, 201, "{promised}");
        let expired = async |ago: &str| {
            let query = "UPDATE media_objects SET expires_at = now() - ($1::text)::interval
                WHERE status = 'pending'";
            place.site.client().await.execute(query, &[&ago]).await.unwrap();
        };
        let mut sending = begin(&promised["upload"]).await;
        sending.write_all(&bytes[..500]).await.unwrap();
        expired("59 min").await;
        let report = swept(&place).await;
        assert_eq!((report.waiting, report.expired), (1, 0), "{}", place.name);
        sending.write_all(&bytes[500..]).await.unwrap();
        let mut answer = vec![0; 12];
        sending.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 200", "{}", place.name);
        let (status, row) = camera.complete(&promised).await;
        assert_eq!((status.as_u16(), &row["session_id"]), (200, &json!(session)), "{row}");

        camera.place(&bytes).await;
        expired("61 min").await;
        assert_eq!(swept(&place).await.expired, 1, "{}", place.name);
        edge.stop().await;
    }
}

/// Sends the head of an upload.
async fn begin(request: &Value) -> TcpStream {
    let url: reqwest::Url = request["url"].as_str().unwrap().parse().unwrap();
    let host = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut head = format!("PUT {}?{} HTTP/1.1\r\n", url.path(), url.query().unwrap());
    head += &format!("host: {host}\r\n");
    for (name, value) in request["headers"].as_object().unwrap() {
        head += &format!("{name}: {}\r\n", value.as_str().unwrap());
    }
    head += "\r\n";
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn an_object_without_a_row_is_adopted_removed_or_counted() {
    for (mode, states, objects) in [("adopt", "stored", 3), ("delete", "", 2), ("report", "", 3)] {
        let place = Place::embedded(&[("MEDIA_ORPHANS", mode), ("MEDIA_ORPHAN_GRACE", "0s")]).await;
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let promised = camera.upload(&image(1_000)).await;
        let client = place.site.client().await;
        client.execute("DELETE FROM media_objects", &[]).await.unwrap();
        // None of ours: never touched.
        let other = format!("tenants/{}/readme.txt", TenantId::mint());
        place.bucket.put(&other, "text/plain", "x".into()).await.unwrap();
        place.bucket.put("elsewhere/x", "text/plain", "x".into()).await.unwrap();
        let looked = place.sweep(true).await;
        let report = place.sweep(false).await;
        assert_eq!(looked, report, "{mode}");
        let found = (report.adopted, report.removed, report.orphans, report.foreign);
        let wanted = match mode {
            "adopt" => (1, 0, 0, 1),
            "delete" => (0, 1, 0, 1),
            _ => (0, 0, 1, 1),
        };
        assert_eq!(found, wanted, "{mode}");
        assert_eq!(place.keys().await.len(), objects, "{mode}");
        assert_eq!(place.site.text(STATES).await, states, "{mode}");
        if mode == "adopt" {
            let id = promised["media_id"].as_str().unwrap();
            let (status, row) = camera.get(&format!("/media/{id}")).await;
            assert_eq!(status, 200);
            for (field, value) in [
                ("object_key", promised["object_key"].clone()),
                ("size_bytes", json!(1_000)),
                ("mime_type", json!("image/jpeg")),
                ("sha256", camera.announce(&image(1_000))["sha256"].clone()),
                ("device_id", json!(camera.device)),
                ("session_id", Value::Null),
                ("captured_at", json!("2026-02-01T00:00:00Z")),
            ] {
                assert_eq!(row[field], value, "{field}");
            }
            assert_eq!(place.number(STORED).await, 1, "and the cloud hears of it");
        }
        edge.stop().await;
    }
}

#[tokio::test]
async fn an_adopted_image_has_a_hash_whatever_its_store_keeps() {
    for place in [
        Place::embedded(&[("MEDIA_ORPHAN_GRACE", "0s")]).await,
        Place::foreign(&[("MEDIA_ORPHAN_GRACE", "0s")]).await,
    ] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        camera.upload(&image(1_000)).await;
        place.site.client().await.execute("DELETE FROM media_objects", &[]).await.unwrap();
        assert_eq!(place.sweep(false).await.adopted, 1, "{}", place.name);
        let hash = place.site.text("SELECT encode(sha256, 'hex') FROM media_objects").await;
        assert_eq!(camera.announce(&image(1_000))["sha256"], hash, "{}", place.name);
        edge.stop().await;
    }
}

#[tokio::test]
async fn a_young_object_without_a_row_is_left_alone() {
    let place = Place::embedded(&[("MEDIA_ORPHANS", "delete")]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    camera.upload(&image(10)).await;
    place.site.client().await.execute("DELETE FROM media_objects", &[]).await.unwrap();
    assert_eq!(swept(&place).await.orphans, 1);
    assert_eq!(place.keys().await.len(), 1);
    edge.stop().await;
}

#[tokio::test]
async fn a_stored_object_that_is_gone_is_an_alarm_and_one_that_is_back_is_stored() {
    for place in [Place::embedded(&[]).await, Place::foreign(&[]).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let lost = camera.upload(&image(1_000)).await;
        let kept = camera.upload(&image(1_000)).await;
        for media in [&lost, &kept] {
            assert_eq!(camera.complete(media).await.0, 200);
        }
        let key = lost["object_key"].as_str().unwrap();
        place.bucket.delete(key).await.unwrap();
        assert_eq!(swept(&place).await.missing, 1);
        assert_eq!(place.site.text(STATES).await, "missing stored");
        let alarm = "SELECT count(*) FROM sync_outbox WHERE event_type = 'alarm.media.missing'
            AND priority = 20 AND payload_json->>'path' = (SELECT object_key FROM media_objects
                WHERE status = 'missing')";
        assert_eq!(place.number(alarm).await, 1);
        let (status, said) = camera.complete(&lost).await;
        assert_eq!((status.as_u16(), &said["error"]["code"]), (409, &json!("wrong_state")));
        assert_eq!(said["error"]["state"], "missing");
        let id = lost["media_id"].as_str().unwrap();
        assert_eq!(camera.get(&format!("/media/{id}/url")).await.0, 409);
        let mut other = image(1_000);
        other[500] ^= 1;
        place.bucket.put(key, "image/jpeg", other.into()).await.unwrap();
        let found = place.sweep(false).await;
        assert_eq!((found.restored, found.resized), (0, 1), "of the same size, and another");
        assert_eq!(place.site.text(STATES).await, "missing stored");
        place.bucket.delete(key).await.unwrap();
        place.bucket.put(key, "image/jpeg", image(1_000).into()).await.unwrap();
        assert_eq!(swept(&place).await.restored, 1);
        assert_eq!(place.site.text(STATES).await, "stored stored");
        let restored = "SELECT count(*) FROM sync_outbox WHERE event_type = 'media.restored'";
        assert_eq!(place.number(restored).await, 1);
        assert_eq!(place.number(STORED).await, 2, "an image is stored once");
        edge.stop().await;
    }
}

#[tokio::test]
async fn the_object_of_a_deleted_row_goes() {
    let place = Place::embedded(&[("MEDIA_ORPHAN_GRACE", "0s")]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let media = camera.upload(&image(10)).await;
    assert_eq!(camera.complete(&media).await.0, 200);
    let delete = "UPDATE media_objects SET status = 'deleted', deleted_at = now()";
    place.site.client().await.execute(delete, &[]).await.unwrap();
    assert_eq!(swept(&place).await.leftovers, 1);
    assert_eq!(place.keys().await, Vec::<String>::new());
    edge.stop().await;
}

/// Every place at which an upload in parts can be left.
#[tokio::test]
async fn an_upload_in_parts_is_mended_wherever_it_was_left() {
    let settings = [("MEDIA_MULTIPART_ABOVE", "5MiB"), ("MEDIA_ORPHAN_GRACE", "0s")];
    for place in [Place::embedded(&settings).await, Place::foreign(&settings).await] {
        let edge = place.start().await;
        let camera = Camera::new(&place, &edge).await;
        let bytes = image((8 << 20) + 1);
        let (first, last) = bytes.split_at(8 << 20);
        let send = async |media: &Value, number: usize, bytes: &[u8]| {
            let status = put(&media["upload"]["parts"][number], bytes).await.unwrap();
            assert!(status.is_success(), "{status}");
        };
        // All parts are there, nobody completed it.
        let whole = camera.place(&bytes).await;
        send(&whole, 0, first).await;
        send(&whole, 1, last).await;
        // The store has put it together, the row does not know.
        let together = camera.place(&bytes).await;
        send(&together, 0, first).await;
        send(&together, 1, last).await;
        let key = together["object_key"].as_str().unwrap();
        let id: String = place
            .site
            .client()
            .await
            .query_one(
                "SELECT upload_id FROM media_uploads JOIN media_objects ON id = media_id
                 WHERE object_key = $1",
                &[&key],
            )
            .await
            .unwrap()
            .get(0);
        let parts = place.bucket.parts(key, &id).await.unwrap();
        let etags: Vec<String> = parts.into_iter().map(|part| part.1).collect();
        place.bucket.complete_upload(key, &id, &etags).await.unwrap();
        // A part is missing, and one has not begun.
        let torn = camera.place(&bytes).await;
        send(&torn, 0, first).await;
        camera.place(&bytes).await;
        // Opened at the store, and its row never came.
        let unknown = format!("tenants/{}/x", TenantId::mint());
        place.bucket.create_upload(&unknown, "image/jpeg").await.unwrap();

        let report = place.sweep(false).await;
        let found = (report.completed, report.waiting, report.aborted);
        assert_eq!(found, (2, 2, 1), "{}", place.name);
        for media in [&whole, &together] {
            let key = media["object_key"].as_str().unwrap();
            assert!(place.bucket.get(key, 1 << 30).await.unwrap() == bytes, "{}", place.name);
        }
        expire(&place).await;
        assert_eq!(swept(&place).await.expired, 2, "{}", place.name);
        assert_eq!(place.bucket.open_uploads("").await.unwrap(), [], "{}", place.name);
        assert_eq!(place.site.text(STATES).await, "stored stored");
        assert_eq!(place.number("SELECT count(*) FROM media_uploads").await, 0);
        assert_eq!(place.number(STORED).await, 2);
        edge.stop().await;
    }
}

#[tokio::test]
async fn many_rows_and_objects_are_compared_page_by_page() {
    let place = Place::embedded(&[]).await;
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let media = camera.upload(&image(1)).await;
    assert_eq!(camera.complete(&media).await.0, 200);
    // More rows without an object than a page has, before and after the one that has one.
    let copies = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket,
            object_key, mime_type, size_bytes, captured_at, status, stored_at)
        SELECT overlay(gen_random_uuid()::text placing '7' from 15)::uuid, tenant_id, farm_id, barn_id,
            device_id, bucket, replace(object_key, 'tenants/', 'tenants/' || prefix) || n, mime_type,
            size_bytes, captured_at, 'stored', now()
        FROM media_objects, generate_series(1, 1100) n, unnest(ARRAY['-', 'z']) prefix";
    assert_eq!(place.site.client().await.execute(copies, &[]).await.unwrap(), 2_200);
    let report = place.sweep(false).await;
    assert_eq!((report.missing, report.rows, report.objects), (2_200, 2_201, 1));
    assert_eq!(place.number("SELECT count(*) FROM media_objects WHERE status = 'stored'").await, 1);
    edge.stop().await;
}

#[tokio::test]
async fn one_replica_sweeps_at_a_time_and_the_role_sweeps_by_itself() {
    let place = Place::embedded(&[("MEDIA_SWEEP_EVERY", "100ms")]).await;
    let client = place.site.client().await;
    client.execute("SELECT pg_advisory_lock($1)", &[&0x6d65_6469_i64]).await.unwrap();
    assert!(sweep::once(&place.config, false).await.unwrap().is_none());
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    camera.upload(&image(10)).await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&0x6d65_6469_i64]).await.unwrap();
    eventually(LONG, "the upload is completed by the sweep", async || {
        place.number(STORED).await == 1
    })
    .await
    .unwrap();
    eventually(LONG, "and counted", async || {
        edge.metrics().render().contains("holdfast_media_swept_total{found=\"completed\"} 1")
    })
    .await
    .unwrap();
    edge.stop().await;
}
