//! Lists, a page at a time, in the order of keys.

use objects::Bucket;

use crate::both::both;

const KEYS: [&str; 9] = ["a", "a-b", "a/b", "a/b/c", "a/b/d", "a/c", "a0", "b/x", "é/z"];

async fn all(bucket: &Bucket, prefix: &str, limit: usize) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), None);
    // Twice as often as needed, so that a list that does not end is seen.
    for _ in 0..2 * KEYS.len() + 2 {
        let page = bucket.list(prefix, after.as_deref(), limit).await.unwrap();
        assert!(page.objects.len() <= limit);
        keys.extend(page.objects.into_iter().map(|object| object.key));
        match page.next {
            Some(next) => after = Some(next),
            None => return keys,
        }
    }
    panic!("the list does not end");
}

#[tokio::test]
async fn pages_of_any_size_tell_every_key_once() {
    for place in both().await {
        let bucket = &place.bucket;
        // A store over plain files cannot have an object below another.
        let plain = |key: &&str| place.name == "embedded" || !["a", "a/b"].contains(key);
        let keys: Vec<&str> = KEYS.into_iter().filter(plain).collect();
        for key in &keys {
            let key = *key;
            bucket.put(key, "text/plain", key.to_owned().into()).await.unwrap();
        }
        for prefix in ["", "a", "a/", "a/b", "a/b/", "b", "nothing", "é/"] {
            let wanted: Vec<&str> =
                keys.iter().copied().filter(|key| key.starts_with(prefix)).collect();
            for limit in [1, 2, 3, 1000] {
                let found = all(bucket, prefix, limit).await;
                assert_eq!(found, wanted, "{} {prefix:?} by {limit}", place.name);
            }
        }
        let page = bucket.list("b/", None, 10).await.unwrap();
        assert_eq!((page.objects[0].size, page.next), (3, None));
        assert!(page.objects[0].modified.is_some());
        // A cursor need not be a key that is there.
        let page = bucket.list("", Some("a/bb"), 10).await.unwrap();
        assert_eq!(page.objects[0].key, "a/c", "{}", place.name);
    }
}
