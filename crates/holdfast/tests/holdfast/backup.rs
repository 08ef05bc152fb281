//! Backups with the images of a site, in a folder and in S3: made, killed, tampered with, restored.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::PathBuf;

use crate::images::{LONG, Site};
use objects::{Address, Bucket};
use serde_json::{Value, json};
use testkit::{Database, EmbeddedStore, Tmpfs, eventually};

/// Where the backups of a test are.
enum Target {
    Folder(PathBuf),
    Bucket(Bucket),
}

impl Target {
    fn bucket(site: &Site, address: &Address) -> Target {
        site.back_up_to(address);
        Target::Bucket(Bucket::new(address).unwrap())
    }

    fn name(&self) -> String {
        match self {
            Target::Folder(path) => path.to_str().unwrap().to_owned(),
            Target::Bucket(_) => "s3".to_owned(),
        }
    }

    async fn write(&self, path: &str, bytes: &[u8]) {
        match self {
            Target::Folder(folder) => {
                let path = folder.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            Target::Bucket(bucket) => {
                let key = format!("sites/north/{path}");
                bucket.replace(&key, "text/plain", bytes.to_vec().into()).await.unwrap();
            }
        }
    }

    async fn read(&self, path: &str) -> Vec<u8> {
        match self {
            Target::Folder(folder) => std::fs::read(folder.join(path)).unwrap(),
            Target::Bucket(bucket) => {
                bucket.get(&format!("sites/north/{path}"), 1 << 20).await.unwrap()
            }
        }
    }

    async fn remove(&self, path: &str) {
        match self {
            Target::Folder(folder) => std::fs::remove_file(folder.join(path)).unwrap(),
            Target::Bucket(bucket) => {
                bucket.delete(&format!("sites/north/{path}")).await.unwrap();
            }
        }
    }
}

fn ids(found: &Value) -> Vec<String> {
    let each = found["backups"].as_array().unwrap().iter();
    each.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn images_are_backed_up_to_a_folder_checked_and_put_back() {
    let site = Site::new("backup_folder").await;
    let target = Target::Folder(site.folder.path().join("backups"));
    whole_life(&site, &target).await;
}

#[tokio::test]
async fn images_are_backed_up_to_the_embedded_store_checked_and_put_back() {
    let site = Site::new("backup_embedded").await;
    let store = EmbeddedStore::start().await.unwrap();
    whole_life(&site, &Target::bucket(&site, store.address())).await;
}

#[tokio::test]
async fn images_are_backed_up_to_a_foreign_store_checked_and_put_back() {
    let site = Site::new("backup_foreign").await;
    let address = testkit::foreign_bucket().await.unwrap();
    whole_life(&site, &Target::bucket(&site, &address)).await;
}

async fn whole_life(site: &Site, target: &Target) {
    let place = target.name();
    let mut keys = Vec::new();
    for bytes in [b"first".as_slice(), b"second", b"third!"] {
        keys.push(site.image(bytes).await);
    }
    let listed = site.json(true, &["backup", "create", "--to", &place, "--json"]).await;
    assert_eq!(
        (&listed["objects"]["mode"], &listed["objects"]["count"]),
        (&json!("list"), &json!(3))
    );
    let old = listed["id"].as_str().unwrap().to_owned();
    let copy = ["backup", "create", "--to", &place, "--objects", "copy", "--json"];
    let made = site.json(true, &copy).await;
    assert_eq!((&made["objects"]["copied"], &made["objects"]["bytes"]), (&json!(3), &json!(17)));
    let id = made["id"].as_str().unwrap();
    assert_eq!(
        ids(&site.json(true, &["backup", "list", "--from", &place, "--json"]).await).len(),
        2
    );
    let verified = site.json(true, &["backup", "verify", id, "--from", &place, "--json"]).await;
    assert_eq!((&verified["backup"], &verified["objects_copied"]), (&json!(id), &json!(3)));
    let drill = site.json(true, &["backup", "drill", id, "--from", &place, "--json"]).await;
    assert_eq!((&drill["passed"], &drill["objects_copied"]), (&json!(true), &json!(3)));

    restored(site, &place, id, &keys).await;

    // A copy that was changed, and one that is gone.
    let first = format!("{id}/objects/{}", keys[0]);
    target.write(&first, b"fIrst").await;
    let said = site.fails(&["backup", "verify", id, "--from", &place]).await;
    assert!(said.contains("was changed"), "{said}");
    site.fails(&["backup", "drill", id, "--from", &place]).await;
    target.remove(&first).await;
    let said = site.fails(&["backup", "verify", id, "--from", &place]).await;
    assert!(said.contains("is missing"), "{said}");

    // An old backup goes, with every file.
    let path = format!("{old}/manifest.json");
    let mut manifest: Value = serde_json::from_slice(&target.read(&path).await).unwrap();
    manifest["finished_at"] = json!("2026-01-01T00:00:00Z");
    target.write(&path, manifest.to_string().as_bytes()).await;
    site.json(false, &copy).await;
    let found = site.json(true, &["backup", "list", "--from", &place, "--json"]).await;
    assert!(!ids(&found).contains(&old) && found["unfinished"] == json!([]), "{found}");
    let left = site.folder.path().join("scratch");
    let left = std::fs::read_dir(left).map_or(0, Iterator::count);
    assert_eq!(left, 0, "the scratch folder is empty");
}

/// The site loses one object, and another is not the one it was: the first comes back, the second is left alone. The copy that is
/// made afterwards tells that it is not what the row says.
async fn restored(site: &Site, place: &str, id: &str, keys: &[String]) {
    let database = Database::empty("restored").await.unwrap();
    site.bucket.delete(&keys[0]).await.unwrap();
    site.bucket.replace(&keys[1], "image/jpeg", b"other".to_vec().into()).await.unwrap();
    let restore = ["backup", "restore", id, "--from", place, "--into", database.url()];
    let said = site.fails(&restore).await;
    assert!(said.contains("left alone") && said.contains(&keys[1]), "{said}");
    // Again for a program: what is put back is there by now.
    let again = site.json(false, &[&restore[..], &["--replace", "--json"]].concat()).await;
    let objects = json!({"put": 0, "there": 2, "others": [keys[1]]});
    assert_eq!((&again["backup"], &again["objects"]), (&json!(id), &objects));
    let client = database.connect().await.unwrap();
    let rows = client.query_one("SELECT count(*) FROM media_objects", &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), 3);
    for (key, expected) in keys.iter().zip([b"first".as_slice(), b"other", b"third!"]) {
        assert_eq!(site.bucket.get(key, 100).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn an_image_that_is_gone_or_changed_is_told_and_the_rest_is_backed_up() {
    let site = Site::new("backup_absent").await;
    let (gone, changed, _) =
        (site.image(b"1").await, site.image(b"22").await, site.image(b"333").await);
    site.bucket.delete(&gone).await.unwrap();
    site.bucket.replace(&changed, "image/jpeg", b"2x".to_vec().into()).await.unwrap();
    let folder = site.folder.path().join("backups");
    let copy =
        ["backup", "create", "--to", folder.to_str().unwrap(), "--objects", "copy", "--json"];
    let made = site.json(false, &copy).await;
    let counts = ["copied", "missing", "differing"].map(|name| made["objects"][name].clone());
    assert_eq!(counts, [json!(1), json!(1), json!(1)]);
    let verified = site.run(&["backup", "verify", "--from", folder.to_str().unwrap()]).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[tokio::test]
async fn an_upload_that_is_killed_before_its_manifest_is_no_backup() {
    let site = Site::new("backup_killed").await;
    let address = testkit::foreign_bucket().await.unwrap();
    let target = Target::bucket(&site, &address);
    let Target::Bucket(bucket) = &target else { unreachable!() };
    for n in 0..150 {
        site.image(format!("image {n}").as_bytes()).await;
    }
    let command = site.command(&["backup", "create", "--to", "s3", "--objects", "copy"]);
    let mut process = testkit::rig::Process::spawn(command, None).unwrap();
    eventually(LONG, "the upload has begun", async || {
        !bucket.list("sites/north/", None, 10).await.unwrap().objects.is_empty()
    })
    .await
    .unwrap();
    process.kill().await.unwrap();
    let list = ["backup", "list", "--from", "s3", "--json"];
    let found = site.json(true, &list).await;
    assert_eq!(
        (&found["backups"], &found["unfinished"][0]["under_way"]),
        (&json!([]), &json!(true))
    );
    assert!(site.fails(&["backup", "verify", "--from", "s3"]).await.contains("no backup yet"));
    // What is as old as no upload is goes with the next backup; what may be under way stays.
    target.write("edge-20260101T000000Z-0000/database/toc.dat", b"x").await;
    target.write("edge-20260101T000000Z-0000/objects/a", b"x").await;
    assert_eq!(site.json(true, &list).await["unfinished"].as_array().unwrap().len(), 2);
    site.json(true, &["backup", "create", "--to", "s3", "--json"]).await;
    let found = site.json(true, &list).await;
    assert_eq!((ids(&found).len(), found["unfinished"].as_array().unwrap().len()), (1, 1));
    let verified = site.run(&["backup", "verify", "--from", "s3"]).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// What a backup that finds no room says and leaves: the older one, whole, and nothing else.
async fn no_room(site: &Site, place: &str) {
    site.json(true, &["backup", "create", "--to", place, "--json"]).await;
    // Random bytes, so that they do not shrink.
    site.client.batch_execute(&format!("CREATE TABLE ballast AS SELECT gen_random_uuid(), n FROM generate_series(1, {BALLAST}) n")).await.unwrap();
    let said = site.fails(&["backup", "create", "--to", place]).await.to_lowercase();
    assert!(["no space", "full"].iter().any(|word| said.contains(word)), "{said}");
    let found = site.json(true, &["backup", "list", "--from", place, "--json"]).await;
    assert_eq!((ids(&found).len(), &found["damaged"]), (1, &json!([])), "{found}");
    let verified = site.run(&["backup", "verify", "--from", place]).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

/// Rows of more bytes than a small disk has, also packed.
const BALLAST: u32 = 200_000;
const SMALL_KIB: u32 = 2_048;

#[tokio::test]
async fn a_backup_to_a_full_folder_says_so_and_leaves_the_older_one() {
    let Some(small) = Tmpfs::mount_or_say(SMALL_KIB) else { return };
    let site = Site::new("backup_full").await;
    let folder = small.path().join("backups");
    no_room(&site, folder.to_str().unwrap()).await;
    let left = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(left, 1, "what was begun leaves no trace");
}

#[tokio::test]
async fn a_backup_to_a_full_bucket_says_so_and_leaves_the_older_one() {
    let Some(small) = Tmpfs::mount_or_say(SMALL_KIB) else { return };
    let site = Site::new("backup_full_bucket").await;
    let store = EmbeddedStore::over(&small.path().join("store")).await.unwrap();
    site.back_up_to(store.address());
    no_room(&site, "s3").await;
}

#[tokio::test]
async fn a_drill_drops_what_an_interrupted_one_left_and_nothing_that_is_in_use() {
    let site = Site::new("drill_leftovers").await;
    let folder = site.folder.path().join("backups");
    let place = folder.to_str().unwrap();
    site.json(true, &["backup", "create", "--to", place, "--json"]).await;
    // Of a time and a number of their own: other tests drill on this server too.
    let number = rand::random::<u32>();
    let [old, used, young] = [
        format!("holdfast_drill_20260101000000_{number:08x}"),
        format!("holdfast_drill_20260102000000_{number:08x}"),
        format!("holdfast_drill_29990101000000_{number:08x}"),
    ];
    for name in [&old, &used, &young] {
        site.client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    }
    let connected = site.connect_to(&used).await;
    site.json(true, &["backup", "drill", "--from", place, "--json"]).await;
    let sql =
        "SELECT array_agg(datname::text ORDER BY datname) FROM pg_database WHERE datname LIKE $1";
    let left =
        site.client.query_one(sql, &[&format!("holdfast_drill_%{number:08x}")]).await.unwrap();
    assert_eq!(left.get::<_, Vec<String>>(0), [used.clone(), young.clone()]);
    drop(connected);
    for name in [used, young] {
        let drop = format!("DROP DATABASE {name} WITH (FORCE)");
        site.client.batch_execute(&drop).await.unwrap();
    }
}
