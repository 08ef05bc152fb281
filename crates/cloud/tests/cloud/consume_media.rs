//! Copies of objects, between two real stores: one that is not ours, and the embedded one.

use cloud::consume::Options;
use cloud::consume::media::Stores;
use event::id::{EventId, MediaId, SessionId, TenantId};
use objects::{Address, Bucket};
use serde_json::{Value, json};
use testkit::rig::{Link, Mode};
use testkit::{EmbeddedStore, eventually};

use crate::consume_world::{Barn, Replica, database, options};
use crate::site::{LONG, number};

/// The same bucket, over a link that can be cut.
async fn over_link(address: &Address) -> (Link, Address) {
    let host = format!("127.0.0.1:{}", address.url.port().unwrap());
    let link = Link::start(host.parse().unwrap()).await.unwrap();
    let url = format!("http://{}", link.addr()).parse().unwrap();
    (link, Address { url, ..address.clone() })
}

pub(crate) fn image(barn: &Barn, path: &str, size: usize) -> Value {
    let mut event = barn.media(SessionId::mint(), "2026-02-01T10:00:00Z");
    event["payload"] = json!({"media_id": MediaId::mint(), "path": path,
        "mime_type": "image/jpeg", "size_bytes": size});
    event
}

#[tokio::test]
async fn objects_are_copied_and_an_outage_costs_no_attempt() {
    let embedded = EmbeddedStore::start().await.unwrap();
    let foreign = testkit::foreign_bucket().await.unwrap();
    let (source, target) =
        (Bucket::new(&foreign).unwrap(), Bucket::new(embedded.address()).unwrap());
    let ((from_link, from), (to_link, to)) =
        (over_link(&foreign).await, over_link(embedded.address()).await);
    from_link.set(Mode::Cut);
    to_link.set(Mode::Cut);
    let database = database("copies").await;
    let barn = Barn::new(TenantId::mint());
    let prefix = format!("tenants/{}/farms/f", barn.tenant);
    let other = format!("tenants/{}/farms/f/secret.jpg", TenantId::mint());
    for name in [format!("{prefix}/a.jpg"), format!("{prefix}/b.jpg"), other.clone()] {
        source.put(&name, "image/jpeg", vec![7; 1_000].into()).await.unwrap();
    }
    let stores = Some(Stores::new(from, to));
    let replica = Replica::start(&database, Options { stores, ..options() });
    let client = database.connect().await.unwrap();
    replica
        .deliver(&[
            image(&barn, &format!("/{prefix}/a.jpg"), 1_000),
            image(&barn, &format!("{prefix}/b.jpg"), 999),
            image(&barn, &format!("{prefix}/missing.jpg"), 10),
            image(&barn, &other, 1_000),
        ])
        .await;
    // First one store is away and then the other; neither costs an attempt.
    for link in [&from_link, &to_link] {
        let before = link.stats().connections;
        eventually(LONG, "the copier knocks in vain", async || link.stats().connections > before)
            .await
            .unwrap();
        link.set(Mode::Pass);
    }
    eventually(LONG, "each object is copied or has failed once", async || {
        let tried = "SELECT count(*) FROM media_object
            WHERE copy_status = 'copied' OR copy_error_code IS NOT NULL";
        number(&client, tried).await == 4
    })
    .await
    .unwrap();
    let rows = client
        .query(
            "SELECT path, copy_status, copy_error_code, copy_attempts,
                 encode(copied_sha256, 'hex') FROM media_object",
            &[],
        )
        .await
        .unwrap();
    for row in rows {
        let path: String = row.get(0);
        let state: (&str, Option<&str>, i32) = (row.get(1), row.get(2), row.get(3));
        let expected = match path.rsplit('/').next().unwrap() {
            "a.jpg" => ("copied", None, 0),
            "b.jpg" => ("pending", Some("size_differs"), 1),
            "missing.jpg" => ("pending", Some("not_found"), 1),
            _ => ("pending", Some("foreign_path"), 1),
        };
        assert_eq!(state, expected, "{path}");
    }
    let copied = target.list("", None, 10).await.unwrap().objects;
    let names: Vec<&str> = copied.iter().map(|object| object.key.as_str()).collect();
    assert_eq!(names, [format!("{prefix}/a.jpg")], "and nothing of another tenant");
    assert_eq!(target.get(names[0], 1_000).await.unwrap(), vec![7; 1_000]);
    let others = "SELECT count(*) FROM media_object WHERE copy_lease_token IS NOT NULL";
    assert_eq!(number(&client, others).await, 0);

    // A copier that died holds a lease; when it has expired the object is copied, and the death
    // counted.
    client
        .batch_execute(
            "UPDATE media_object SET copy_status = 'copying', copy_lease_token = gen_random_uuid(),
                 copy_lease_until = now() - interval '1 second', copied_at = NULL,
                 copied_sha256 = NULL WHERE copy_status = 'copied'",
        )
        .await
        .unwrap();
    eventually(LONG, "the object is claimed again", async || {
        let again = "SELECT count(*) FROM media_object
            WHERE copy_status = 'copied' AND copy_attempts = 1";
        number(&client, again).await == 1
    })
    .await
    .unwrap();
    replica.stop().await;
}

#[tokio::test]
async fn images_come_from_the_store_of_their_tenant_and_one_that_is_away_holds_up_no_other() {
    let (all, own, away, target) = tokio::join!(
        EmbeddedStore::start(),
        EmbeddedStore::start(),
        EmbeddedStore::start(),
        EmbeddedStore::start()
    );
    let (all, own, away, target) = (all.unwrap(), own.unwrap(), away.unwrap(), target.unwrap());
    let (link, cut_off) = over_link(away.address()).await;
    link.set(Mode::Cut);
    let database = database("copies_sources").await;
    let barns: Vec<Barn> = (0..3).map(|_| Barn::new(TenantId::mint())).collect();
    let mut stores = Stores::new(all.address().clone(), target.address().clone());
    stores.sources.insert(barns[1].tenant.uuid(), own.address().clone());
    stores.sources.insert(barns[2].tenant.uuid(), cut_off);
    let key = |barn: &Barn| format!("tenants/{}/farms/f/a.jpg", barn.tenant);
    // Each store has its own tenant's image, and other bytes under the names of the others.
    for (n, store) in [&all, &own, &away].into_iter().enumerate() {
        let bucket = Bucket::new(store.address()).unwrap();
        for (m, barn) in barns.iter().enumerate() {
            let bytes = if n == m { vec![u8::try_from(n).unwrap(); 100] } else { vec![99; 100] };
            bucket.put(&key(barn), "image/jpeg", bytes.into()).await.unwrap();
        }
    }
    // One copy at a time: what cannot be copied is claimed first.
    let replica =
        Replica::start(&database, Options { stores: Some(stores), copies: 1, ..options() });
    let client = database.connect().await.unwrap();
    for barn in barns.iter().rev() {
        replica.deliver(&[image(barn, &key(barn), 100)]).await;
    }
    let copied = "SELECT count(*) FROM media_object WHERE copy_status = 'copied'";
    let wait = async |count: i64| {
        eventually(LONG, "images are copied", async || number(&client, copied).await == count)
            .await
            .unwrap();
    };
    wait(2).await;
    let attempts = "SELECT sum(copy_attempts)::bigint FROM media_object";
    assert_eq!(number(&client, attempts).await, 0, "a store that is away costs no attempt");
    link.set(Mode::Pass);
    wait(3).await;
    let target = Bucket::new(target.address()).unwrap();
    for (n, barn) in barns.iter().enumerate() {
        let found = target.get(&key(barn), 100).await.unwrap();
        assert_eq!(found, vec![u8::try_from(n).unwrap(); 100]);
    }
    replica.stop().await;
}

#[tokio::test]
async fn an_image_keeps_its_session_though_its_site_adopts_it_later() {
    let database = database("media_session").await;
    let replica = Replica::start(&database, options());
    let client = database.connect().await.unwrap();
    let barn = Barn::new(TenantId::mint());
    // As the camera's completion tells of it, and as the sweep does which knows the key alone: the
    // day begins at midnight, so what it says is always the earlier.
    let told = || {
        let real = image(&barn, &format!("tenants/{}/farms/f/a.jpg", barn.tenant), 10);
        let mut adopted = real.clone();
        adopted["event_id"] = json!(EventId::mint());
        adopted["occurred_at"] = json!("2026-02-01T00:00:00Z");
        adopted["session_id"] = Value::Null;
        (real, adopted)
    };
    let copied = "UPDATE media_object SET copy_status = 'copied', copied_at = now(),
        copied_sha256 = sha256('a') WHERE media_id = ($1::text)::uuid";
    for case in ["real first", "adopted first", "one batch", "one batch, adopted first", "copied"] {
        let (real, adopted) = told();
        let media = real["payload"]["media_id"].as_str().unwrap().to_owned();
        match case {
            "real first" => {
                replica.deliver(std::slice::from_ref(&real)).await;
                replica.deliver(&[adopted]).await;
            }
            "adopted first" => {
                replica.deliver(&[adopted]).await;
                replica.deliver(std::slice::from_ref(&real)).await;
            }
            "one batch" => replica.deliver(&[real.clone(), adopted]).await,
            "one batch, adopted first" => replica.deliver(&[adopted, real.clone()]).await,
            _ => {
                replica.deliver(&[adopted]).await;
                assert_eq!(client.execute(copied, &[&media]).await.unwrap(), 1);
                replica.deliver(std::slice::from_ref(&real)).await;
            }
        }
        let row = client
            .query_one(
                "SELECT session_id::text, event_id::text, copy_status FROM media_object
                 WHERE media_id = ($1::text)::uuid",
                &[&media],
            )
            .await
            .unwrap();
        let (session, event): (Option<&str>, &str) = (row.get(0), row.get(1));
        assert_eq!(session, real["session_id"].as_str(), "{case}");
        // What a copy was made by does not change under it.
        let same = event == real["event_id"].as_str().unwrap();
        assert_eq!(same, row.get::<_, &str>(2) == "pending", "{case}");
    }
    replica.stop().await;
}
