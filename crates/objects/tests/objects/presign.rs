//! A presigned address does what it was made for, once, and nothing else.

use std::time::Duration;

use objects::{Error, Signed, Upload};
use reqwest::{Method, StatusCode};
use sha2::{Digest as _, Sha256};
use testkit::eventually;

use crate::both::{Place, both, bytes, http};

const TTL: Duration = Duration::from_secs(60);

fn upload(body: &[u8]) -> Upload<'static> {
    Upload {
        key: "tenants/a/images/x.jpg",
        mime_type: "image/jpeg",
        size: body.len() as u64,
        sha256: Some(Sha256::digest(body).into()),
    }
}

/// Sends as told, with some headers in place of those.
async fn send(signed: &Signed, body: &[u8], instead: &[(&str, &str)]) -> StatusCode {
    let mut request = http().request(Method::PUT, signed.url.clone()).body(body.to_vec());
    for (name, value) in &signed.headers {
        if *name != "content-length" && !instead.iter().any(|(other, _)| other == name) {
            request = request.header(*name, value);
        }
    }
    for (name, value) in instead.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    request.send().await.map_or(StatusCode::BAD_REQUEST, |answer| answer.status())
}

async fn nothing_there(place: &Place) {
    let page = place.bucket.list("", None, 10).await.unwrap();
    assert_eq!(page.objects, [], "{}", place.name);
}

#[tokio::test]
async fn exactly_what_was_signed_is_taken_once() {
    for place in both().await {
        let name = place.name;
        let body = bytes(5_000);
        let signed = place.bucket.presign_put(&upload(&body), TTL).unwrap();
        assert!(!format!("{signed:?}").contains("X-Amz-Signature"));

        // Another length, type, checksum; headers left out.
        for wrong in [bytes(4_999), bytes(5_001), bytes(0)] {
            let status = send(&signed, &wrong, &[]).await;
            assert!(status.is_client_error(), "{name} {} bytes: {status}", wrong.len());
        }
        for instead in [
            ("content-type", "text/html"),
            ("content-type", ""),
            ("if-none-match", ""),
            ("x-amz-checksum-sha256", ""),
            ("x-amz-checksum-sha256", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="),
        ] {
            let status = send(&signed, &body, &[instead]).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{name} {instead:?}");
        }
        nothing_there(&place).await;

        // Another key, bucket, method, expiry: the signature does not cover it.
        let other = |change: fn(&str) -> String| Signed {
            url: change(signed.url.as_str()).parse().unwrap(),
            headers: signed.headers.clone(),
        };
        for wrong in [
            other(|url| url.replace("x.jpg", "y.jpg")),
            other(|url| url.replace("tenants/a/", "tenants/b/")),
            other(|url| url.replace("tenants/a/images", "tenants/a/../b")),
            other(|url| url.replace("X-Amz-Expires=60", "X-Amz-Expires=600")),
            other(|url| {
                url.replace("X-Amz-SignedHeaders=content-length%3B", "X-Amz-SignedHeaders=")
            }),
            other(|url| url.split('?').next().unwrap().to_owned()),
        ] {
            let status = send(&wrong, &body, &[]).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{name} {}", wrong.url.path());
        }
        let read = http().get(signed.url.clone()).send().await.unwrap().status();
        assert_eq!(read, StatusCode::FORBIDDEN, "{name}: an address for writing does not read");
        nothing_there(&place).await;

        assert_eq!(send(&signed, &body, &[]).await, StatusCode::OK, "{name}");
        let head = place.bucket.head(upload(&body).key).await.unwrap();
        assert_eq!((head.size, head.mime_type.as_deref()), (5_000, Some("image/jpeg")), "{name}");
        if name == "embedded" {
            assert_eq!(head.sha256, upload(&body).sha256);
        }

        // Again, with the same address: what is there stays.
        assert_eq!(send(&signed, &body, &[]).await, StatusCode::PRECONDITION_FAILED, "{name}");
    }
}

#[tokio::test]
async fn other_bytes_of_the_same_length_are_refused_by_the_embedded_store() {
    let place = crate::both::embedded().await;
    let body = bytes(5_000);
    let signed = place.bucket.presign_put(&upload(&body), TTL).unwrap();
    assert_eq!(send(&signed, &[7; 5_000], &[]).await, StatusCode::BAD_REQUEST);
    nothing_there(&place).await;
}

#[tokio::test]
async fn an_address_expires() {
    for place in both().await {
        let body = bytes(100);
        let key = upload(&body).key;
        let second = Duration::from_secs(1);
        let put = place.bucket.presign_put(&upload(&body), second).unwrap();
        place.bucket.put("other", "image/jpeg", body.clone().into()).await.unwrap();
        let get = place.bucket.presign_get("other", second).unwrap();
        eventually(Duration::from_secs(30), "the address for reading expires", async || {
            let status = http().get(get.url.clone()).send().await.unwrap().status();
            status == StatusCode::FORBIDDEN
        })
        .await
        .unwrap();
        // It was signed before the other, so it has expired as well.
        assert_eq!(send(&put, &body, &[]).await, StatusCode::FORBIDDEN, "{}", place.name);
        assert!(matches!(place.bucket.head(key).await, Err(Error::NotFound)), "{}", place.name);
    }
}

#[tokio::test]
async fn an_address_for_reading_reads_that_object_and_parts_of_it() {
    for place in both().await {
        let name = place.name;
        let body = bytes(1_000);
        place.bucket.put("a", "image/jpeg", body.clone().into()).await.unwrap();
        place.bucket.put("b", "image/jpeg", "other".into()).await.unwrap();
        let signed = place.bucket.presign_get("a", TTL).unwrap();
        let answer = http().get(signed.url.clone()).send().await.unwrap();
        assert_eq!(answer.bytes().await.unwrap(), body, "{name}");
        for (range, wanted) in [
            ("bytes=10-19", &body[10..20]),
            ("bytes=990-", &body[990..]),
            ("bytes=-5", &body[995..]),
        ] {
            let answer =
                http().get(signed.url.clone()).header("range", range).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT, "{name} {range}");
            assert_eq!(answer.bytes().await.unwrap(), wanted, "{name} {range}");
        }
        let other: reqwest::Url = signed.url.as_str().replace("/a?", "/b?").parse().unwrap();
        let put = http().put(signed.url.clone()).body("x").send().await.unwrap().status();
        let get = http().get(other).send().await.unwrap().status();
        assert_eq!((put, get), (StatusCode::FORBIDDEN, StatusCode::FORBIDDEN), "{name}");
    }
}
