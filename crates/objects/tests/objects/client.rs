//! Objects put, got, described and removed.

use objects::{About, Address, Bucket, Error};
use sha2::{Digest as _, Sha256};

use crate::both::{both, bytes};

#[tokio::test]
async fn an_object_comes_back_as_it_went() {
    for place in both().await {
        let (name, bucket) = (place.name, &place.bucket);
        let body = bytes(200_000);
        // A store over plain files cannot have an object below another.
        let below = if name == "embedded" { "a.jpg/b" } else { "a.jpg-b" };
        for key in ["a.jpg", below, "tenants/é 1/+%2f?x=&y#z/b c.png", "deep/er/and/deeper"] {
            bucket.put(key, "image/jpeg", body.clone().into()).await.unwrap();
            assert_eq!(bucket.get(key, 200_000).await.unwrap(), body, "{name} {key}");
            let head = bucket.head(key).await.unwrap();
            assert_eq!((head.size, head.mime_type.as_deref()), (200_000, Some("image/jpeg")));
            assert!(head.etag.is_some() && head.modified.is_some(), "{name}: {head:?}");
        }
        bucket.put("empty", "text/plain", Vec::new().into()).await.unwrap();
        assert_eq!(bucket.get("empty", 0).await.unwrap(), b"", "{name}");
        bucket.delete("a.jpg").await.unwrap();
        bucket.delete("a.jpg").await.unwrap();
        assert!(matches!(bucket.get("a.jpg", 1).await, Err(Error::NotFound)), "{name}");
        assert!(matches!(bucket.head("a.jpg").await, Err(Error::NotFound)), "{name}");
        assert_eq!(bucket.head(below).await.unwrap().size, 200_000, "{name}: the other stays");
    }
}

#[tokio::test]
async fn put_never_overwrites_and_replace_does() {
    for place in both().await {
        let (name, bucket) = (place.name, &place.bucket);
        bucket.put("one", "text/plain", "first".into()).await.unwrap();
        let again = bucket.put("one", "text/plain", "second".into()).await.unwrap_err();
        assert!(matches!(again, Error::AlreadyThere), "{name}: {again}");
        assert_eq!(again.about(), About::Object);
        assert_eq!(bucket.get("one", 100).await.unwrap(), b"first", "{name}");
        bucket.replace("one", "text/plain", "third".into()).await.unwrap();
        assert_eq!(bucket.get("one", 100).await.unwrap(), b"third", "{name}");
    }
}

#[tokio::test]
async fn of_many_writers_one_makes_the_object() {
    let place = crate::both::embedded().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16_u8 {
        let bucket = place.bucket.clone();
        writers.spawn(async move {
            let done = bucket.put("contested", "text/plain", vec![writer; 50_000].into()).await;
            match done {
                Ok(()) => Some(writer),
                Err(Error::AlreadyThere) => None,
                Err(error) => panic!("{error}"),
            }
        });
    }
    let winners: Vec<u8> = writers.join_all().await.into_iter().flatten().collect();
    let kept = place.bucket.get("contested", 50_000).await.unwrap();
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(kept, vec![winners[0]; 50_000]);
}

#[tokio::test]
async fn what_is_read_is_bounded() {
    for place in both().await {
        let bucket = &place.bucket;
        bucket.put("big", "image/png", bytes(10_000).into()).await.unwrap();
        let error = bucket.get("big", 9_999).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit: 9_999 }), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("big");
        assert!(bucket.get_to_file("big", &file, 9_999).await.is_err());
        assert!(!file.exists(), "a file that could not be finished is removed");
        let (size, hash) = bucket.get_to_file("big", &file, 10_000).await.unwrap();
        assert_eq!((size, hash), (10_000, Sha256::digest(bytes(10_000)).into()));
        assert_eq!(std::fs::read(&file).unwrap(), bytes(10_000));
        assert!(bucket.get_to_file("big", &file, 10_000).await.is_err(), "a file that is there");
    }
}

#[tokio::test]
async fn keys_that_could_mean_something_else_never_leave() {
    for place in both().await {
        for key in ["", "/", "../x", "a/../b", "a//b", "a/", ".", "a\\b", "a\0b"] {
            let bucket = &place.bucket;
            let refused = [
                bucket.put(key, "text/plain", "x".into()).await.unwrap_err(),
                bucket.get(key, 1).await.unwrap_err(),
                bucket.head(key).await.unwrap_err(),
                bucket.delete(key).await.unwrap_err(),
                bucket.create_upload(key, "text/plain").await.unwrap_err(),
                bucket.presign_get(key, std::time::Duration::from_secs(9)).unwrap_err(),
            ];
            assert!(refused.iter().all(|error| matches!(error, Error::Key)), "{key:?}");
        }
    }
}

#[tokio::test]
async fn failures_say_what_they_are_about() {
    for place in both().await {
        let name = place.name;
        let with = |change: fn(&mut Address)| {
            let mut address = place.address.clone();
            change(&mut address);
            Bucket::new(&address).unwrap()
        };
        let wrong_secret = with(|address| address.secret_key = "canary-other".to_owned());
        let error = wrong_secret.head("x").await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{name}: {error}");
        assert_eq!(error.about(), About::Destination);
        let wrong_user = with(|address| address.access_key = "nobody".to_owned());
        let error = wrong_user.put("x", "text/plain", "x".into()).await.unwrap_err();
        assert_eq!(error.about(), About::Destination, "{name}: {error}");
        let no_bucket = with(|address| address.bucket = "not-there".to_owned());
        let error = no_bucket.get("x", 1).await.unwrap_err();
        assert_eq!(error.about(), About::Destination, "{name}: {error}");
        for said in [format!("{error:?} {error}"), format!("{wrong_secret:?} {:?}", place.address)]
        {
            assert!(!said.contains("canary") && !said.contains("Signature"), "{said}");
        }
    }
    let nobody = Address { url: "http://127.0.0.1:9".parse().unwrap(), ..sample() };
    let error = Bucket::new(&nobody).unwrap().head("x").await.unwrap_err();
    assert!(matches!(error, Error::Away(_)), "{error}");
    for address in [
        Address { bucket: "../x".to_owned(), ..sample() },
        Address { url: "ftp://127.0.0.1".parse().unwrap(), ..sample() },
        Address { style: objects::Style::VirtualHost, ..sample() },
    ] {
        let error = Bucket::new(&address).unwrap_err();
        assert_eq!(error.about(), About::Us, "{address:?}: {error}");
    }
    let named = Address { url: "https://s3.example.com".parse().unwrap(), ..sample() };
    let named = Address { style: objects::Style::VirtualHost, ..named };
    let ttl = std::time::Duration::from_secs(60);
    let signed = Bucket::new(&named).unwrap().presign_get("a/b", ttl).unwrap();
    assert_eq!(signed.url.host_str(), Some("media.s3.example.com"));
}

fn sample() -> Address {
    Address {
        url: "http://127.0.0.1:9000".parse().unwrap(),
        bucket: "media".to_owned(),
        region: "us-east-1".to_owned(),
        access_key: "key".to_owned(),
        secret_key: "canary-secret".to_owned(),
        style: objects::Style::Path,
    }
}
