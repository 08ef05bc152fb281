//! Uploads in parts.

use std::time::Duration;

use objects::{Error, MIN_PART_BYTES};
use sha2::{Digest as _, Sha256};

use crate::both::{both, bytes, http};

#[tokio::test]
async fn parts_become_one_object_and_then_are_gone() {
    for place in both().await {
        let (name, bucket) = (place.name, &place.bucket);
        let part = usize::try_from(MIN_PART_BYTES).unwrap();
        let whole = bytes(part + 1_000);
        let id = bucket.create_upload("large.png", "image/png").await.unwrap();
        let open = bucket.open_uploads("").await.unwrap();
        assert_eq!(open.iter().map(|open| &open.upload_id).collect::<Vec<_>>(), [&id], "{name}");
        for (number, part) in [(1, &whole[..part]), (2, &whole[part..])] {
            let ttl = Duration::from_secs(60);
            let signed = bucket.presign_part("large.png", &id, number, part.len() as u64, ttl);
            let sent = http().put(signed.unwrap().url).body(part.to_vec()).send().await.unwrap();
            assert!(sent.status().is_success(), "{name}: {}", sent.status());
        }
        assert!(matches!(bucket.head("large.png").await, Err(Error::NotFound)), "{name}");
        let parts = bucket.parts("large.png", &id).await.unwrap();
        let sizes: Vec<(u16, u64)> = parts.iter().map(|part| (part.0, part.2)).collect();
        assert_eq!(sizes, [(1, MIN_PART_BYTES), (2, 1_000)], "{name}");
        let etags: Vec<String> = parts.into_iter().map(|part| part.1).collect();
        bucket.complete_upload("large.png", &id, &etags).await.unwrap();
        let (size, hash) = bucket.hash("large.png", 1 << 30).await.unwrap();
        assert_eq!((size, hash), (whole.len() as u64, Sha256::digest(&whole).into()), "{name}");
        assert_eq!(bucket.head("large.png").await.unwrap().mime_type.as_deref(), Some("image/png"));
        assert_eq!(bucket.open_uploads("").await.unwrap(), [], "{name}");
    }
}

#[tokio::test]
async fn an_upload_given_up_leaves_nothing() {
    for place in both().await {
        let (name, bucket) = (place.name, &place.bucket);
        let id = bucket.create_upload("a/large.png", "image/png").await.unwrap();
        bucket.put_part("a/large.png", &id, 1, bytes(10).into()).await.unwrap();
        bucket.abort_upload("a/large.png", &id).await.unwrap();
        bucket.abort_upload("a/large.png", &id).await.unwrap();
        assert_eq!(bucket.open_uploads("").await.unwrap(), [], "{name}");
        let etag = ["\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned()];
        assert!(bucket.complete_upload("a/large.png", &id, &etag).await.is_err(), "{name}");
        assert!(matches!(bucket.head("a/large.png").await, Err(Error::NotFound)), "{name}");
    }
}

#[tokio::test]
async fn a_completed_upload_does_not_overwrite() {
    for place in both().await {
        let (name, bucket) = (place.name, &place.bucket);
        let id = bucket.create_upload("x.png", "image/png").await.unwrap();
        let etag = bucket.put_part("x.png", &id, 1, "parts".into()).await.unwrap();
        bucket.put("x.png", "image/png", "first".into()).await.unwrap();
        let done = bucket.complete_upload("x.png", &id, &[etag]).await;
        // Not every store knows the condition here. One that does not says so by its answer: whoever is told that the
        // object was there already finds it as it was.
        match done {
            Ok(()) => {
                assert_eq!(name, "foreign");
                assert_eq!(bucket.get("x.png", 10).await.unwrap(), b"parts");
            }
            Err(error) => {
                assert!(matches!(error, Error::AlreadyThere), "{name}: {error}");
                assert_eq!(bucket.get("x.png", 10).await.unwrap(), b"first", "{name}");
            }
        }
    }
}

#[tokio::test]
async fn files_of_any_size_go_and_come_back() {
    for place in both().await {
        let folder = tempfile::tempdir().unwrap();
        // At the size of a part, and beyond it.
        for (name, size) in [("small", 1_000), ("large", (16 << 20) + 5)] {
            let (from, to) = (folder.path().join(name), folder.path().join(format!("{name}-back")));
            std::fs::write(&from, bytes(size)).unwrap();
            let sent = place.bucket.put_file(name, "image/png", &from).await.unwrap();
            let back = place.bucket.get_to_file(name, &to, 1 << 30).await.unwrap();
            assert_eq!(sent, back, "{}", place.name);
            assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        }
        assert_eq!(place.bucket.open_uploads("").await.unwrap(), [], "{}", place.name);
    }
}

#[tokio::test]
async fn parts_that_are_not_there_too_small_or_out_of_order_are_refused() {
    let place = crate::both::embedded().await;
    let bucket = &place.bucket;
    let id = bucket.create_upload("x", "image/png").await.unwrap();
    let first = bucket.put_part("x", &id, 1, "small".into()).await.unwrap();
    let second = bucket.put_part("x", &id, 2, "last".into()).await.unwrap();
    for etags in [vec![second.clone()], vec![first.clone(), second], vec!["\"00\"".to_owned()]] {
        let error = bucket.complete_upload("x", &id, &etags).await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
    for other in ["../../x", "0", "", &uuid::Uuid::new_v4().to_string()] {
        let error = bucket.put_part("x", other, 1, "x".into()).await.unwrap_err();
        assert!(!matches!(error, Error::Away(_)), "{other}: {error}");
    }
    let elsewhere = bucket.put_part("y", &id, 1, "x".into()).await.unwrap_err();
    assert!(matches!(elsewhere, Error::NotFound), "another key's upload: {elsewhere}");
    bucket.complete_upload("x", &id, &[first]).await.unwrap();
    assert_eq!(bucket.get("x", 10).await.unwrap(), b"small");
}
