//! A full disk: an answer, and nothing lost.

use objects::{About, Error};
use testkit::{EmbeddedStore, Tmpfs};

use crate::both::bytes;

#[tokio::test]
async fn a_full_store_says_so_and_loses_nothing() {
    let Some(small) = Tmpfs::mount_or_say(2_048) else { return };
    let store = EmbeddedStore::over(&small.path().join("store")).await.unwrap();
    let bucket = objects::Bucket::new(store.address()).unwrap();
    let mut kept = Vec::new();
    let full = loop {
        let key = format!("images/{}", kept.len());
        match bucket.put(&key, "image/jpeg", bytes(300_000).into()).await {
            Ok(()) => kept.push(key),
            Err(error) => break error,
        }
        assert!(kept.len() < 10, "the disk does not fill");
    };
    assert!(matches!(full, Error::Full), "{full}");
    assert_eq!(full.about(), About::Destination);
    assert!(kept.len() >= 4, "{kept:?}");
    let staged = store.folder().join("staging").read_dir().unwrap().count();
    assert_eq!(staged, 0, "what was begun leaves no trace");
    // A replacement that does not fit leaves the old one.
    let error = bucket.replace(&kept[0], "image/jpeg", bytes(900_000).into()).await.unwrap_err();
    assert!(matches!(error, Error::Full), "{error}");
    for key in &kept {
        assert_eq!(bucket.get(key, 1 << 20).await.unwrap(), bytes(300_000), "{key}");
    }
    // Room made is room to use.
    bucket.delete(&kept[1]).await.unwrap();
    bucket.put("images/late", "image/jpeg", bytes(250_000).into()).await.unwrap();
    assert_eq!(bucket.get("images/late", 1 << 20).await.unwrap(), bytes(250_000));
    store.stop().await.unwrap();
}
