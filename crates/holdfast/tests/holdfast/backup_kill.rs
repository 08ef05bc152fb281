//! Backups and restores that are killed at each of their steps. Whatever the step, there is a whole backup afterwards, nothing that is
//! not whole is called one, and the next command puts things right.
//!
//! Steps on disk are met by `strace`, which kills the program as it makes a call, before the call is carried out: each call is the end
//! of the step before. Steps in S3 wait at a door before the store until the program is dead.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use objects::Bucket;
use serde_json::{Value, json};
use testkit::rig::Process;
use testkit::{Database, Held, Knock, StoreDoor, eventually};

use crate::images::{LONG, Site};

/// The calls that change what is found after a kill, and how many of each are tried at most. A removal has one call a file, all alike.
const CALLS: [(&str, u32); 5] =
    [("mkdir", 3), ("rename", 10), ("unlink", 5), ("unlinkat", 4), ("fsync", 30)];
/// How many kills there are at least: fewer would mean that calls are not met.
const AT_LEAST: usize = 15;

/// Runs a command of the product that is killed as it makes a call for the nth time.
async fn killed_at(command: &Command, call: &str, nth: u32) -> ExitStatus {
    let mut traced = tokio::process::Command::new("strace");
    traced.args(["-qq", "-o", "/dev/null", "-e"]);
    traced.arg(format!("inject=?{call}:signal=KILL:when={nth}"));
    traced.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        traced.env(name, value.unwrap());
    }
    let output = traced.kill_on_drop(true).output();
    tokio::time::timeout(LONG, output).await.unwrap().unwrap().status
}

/// What is there once nobody works on it any more: a program that outlives its parent ends by itself.
async fn listed(site: &Site, place: &str) -> Value {
    eventually(LONG, "nobody works on a leftover", async || {
        let found = site.json(true, &["backup", "list", "--from", place, "--json"]).await;
        let mut unfinished = found["unfinished"].as_array().unwrap().iter();
        unfinished.all(|one| one["under_way"] == false).then_some(found)
    })
    .await
    .unwrap()
}

/// The newest backup is whole.
async fn verified(site: &Site, place: &str, what: &str) {
    let output = site.run(&["backup", "verify", "--from", place]).await;
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

fn count(found: &Value, name: &str) -> usize {
    found[name].as_array().unwrap().len()
}

/// The manifest of a backup that is too old to keep.
fn expired(manifest: &Value, id: &str) -> Vec<u8> {
    let mut old = manifest.clone();
    old["id"] = json!(id);
    old["finished_at"] = json!("2026-01-01T00:00:00Z");
    old.to_string().into_bytes()
}

fn remove_leftovers(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "partial") {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

#[tokio::test]
async fn a_backup_that_is_killed_at_any_step_is_whole_or_a_leftover_that_the_next_one_removes() {
    let site = Site::new("backup_steps").await;
    site.image(b"first").await;
    site.image(b"second").await;
    let folder = site.folder.path().join("backups");
    let place = folder.to_str().unwrap().to_owned();
    let create = ["backup", "create", "--to", &place, "--objects", "copy", "--json"];
    let manifest = site.json(true, &create).await;
    let mut kills = 0;
    for (call, most) in CALLS {
        for nth in 1..=most {
            // Something to remove, so that this step comes too.
            let id = format!("edge-20260101T000000Z-{kills:04x}");
            let old = folder.join(&id);
            std::fs::create_dir_all(old.join("database")).unwrap();
            std::fs::write(old.join("database/toc.dat"), b"x").unwrap();
            std::fs::write(old.join("manifest.json"), expired(&manifest, &id)).unwrap();
            let status = killed_at(&site.command(&create), call, nth).await;
            if status.signal() != Some(9) {
                assert!(status.success(), "{status} at {call} {nth}");
                break;
            }
            kills += 1;
            let found = listed(&site, &place).await;
            assert_eq!(found["damaged"], json!([]), "at {call} {nth}: {found}");
            verified(&site, &place, &format!("at {call} {nth}")).await;
            // Leftovers of their own are for the removals alone, or those of others would be met first.
            if call != "unlinkat" {
                remove_leftovers(&folder);
            }
        }
    }
    assert!(kills >= AT_LEAST, "{kills} kills");
    site.json(true, &create).await;
    let found = listed(&site, &place).await;
    assert_eq!(found["unfinished"], json!([]), "{found}");
    for backup in found["backups"].as_array().unwrap() {
        let id = backup["id"].as_str().unwrap();
        assert!(!id.contains("-20260101T"), "{id} is still there");
        let output = site.run(&["backup", "verify", id, "--from", &place]).await;
        assert!(output.status.success(), "{id}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A step in S3: where it waits, and whether what was made is a backup by then.
struct Step {
    knock: Knock,
    whole: bool,
    /// Whether the old backup that is to go is still one.
    old: bool,
}

const fn step(
    method: &'static str,
    target: &'static str,
    held: Held,
    whole: bool,
    old: bool,
) -> Step {
    Step { knock: Knock { method, target, held }, whole, old }
}

/// From the first copy of an image to the last file of an old backup.
const STEPS: [Step; 10] = [
    step("PUT", "/objects/tenants/", Held::Request, false, true),
    step("PUT", "/objects/tenants/", Held::Answer, false, true),
    step("PUT", "/database/", Held::Request, false, true),
    step("PUT", "/database/toc.dat", Held::Answer, false, true),
    step("PUT", "/objects.jsonl", Held::Answer, false, true),
    step("PUT", "/manifest.json", Held::Request, false, true),
    step("PUT", "/manifest.json", Held::Answer, true, true),
    step("DELETE", "/manifest.json", Held::Request, true, true),
    step("DELETE", "/manifest.json", Held::Answer, true, false),
    step("DELETE", "/database/toc.dat", Held::Answer, true, false),
];

#[tokio::test]
async fn a_backup_in_a_foreign_store_that_is_killed_at_any_step_is_whole_or_no_backup() {
    let site = Site::new("backup_s3_steps").await;
    site.image(b"first").await;
    let address = testkit::foreign_bucket().await.unwrap();
    let bucket = Bucket::new(&address).unwrap();
    let door = StoreDoor::before(&address).await.unwrap();
    site.back_up_to(door.address());
    let create = ["backup", "create", "--to", "s3", "--objects", "copy", "--json"];
    let manifest = site.json(true, &create).await;
    let mut whole = 1;
    for (n, step) in STEPS.iter().enumerate() {
        let what = format!("{:?}", step.knock);
        let id = format!("edge-20260101T000000Z-{n:04x}");
        let put = async |path: &str, bytes: Vec<u8>| {
            let key = format!("sites/north/{id}/{path}");
            bucket.put(&key, "text/plain", bytes.into()).await.unwrap();
        };
        put("database/toc.dat", b"x".to_vec()).await;
        put("manifest.json", expired(&manifest, &id)).await;
        door.close_for(step.knock);
        let mut process = Process::spawn(site.command(&create), None).unwrap();
        eventually(LONG, &what, async || {
            assert!(process.is_running(), "{what}: it ended without coming to the door");
            door.is_knocked_at()
        })
        .await
        .unwrap();
        process.kill().await.unwrap();
        door.open();

        whole += usize::from(step.whole);
        let found = site.json(true, &["backup", "list", "--from", "s3", "--json"]).await;
        assert_eq!(found["damaged"], json!([]), "{what}: {found}");
        assert_eq!(count(&found, "backups"), whole + usize::from(step.old), "{what}: {found}");
        verified(&site, "s3", &what).await;
        // What is left of it goes here, so that the next step finds its own.
        for path in ["manifest.json", "database/toc.dat"] {
            bucket.delete(&format!("sites/north/{id}/{path}")).await.unwrap();
        }
    }
    site.json(true, &create).await;
    let found = site.json(true, &["backup", "list", "--from", "s3", "--json"]).await;
    assert_eq!(count(&found, "backups"), whole + 1, "{found}");
    let unfinished = found["unfinished"].as_array().unwrap();
    // Those of today may be under way for somebody else; those of January are gone.
    assert!(unfinished.iter().all(|one| one["under_way"] == true), "{found}");
    verified(&site, "s3", "in the end").await;
}

#[tokio::test]
async fn an_upload_whose_files_were_removed_meanwhile_becomes_no_backup() {
    let site = Site::new("backup_removed").await;
    let address = testkit::foreign_bucket().await.unwrap();
    let bucket = Bucket::new(&address).unwrap();
    let door = StoreDoor::before(&address).await.unwrap();
    site.back_up_to(door.address());
    let what = Knock { method: "PUT", target: "/objects.jsonl", held: Held::Answer };
    door.close_for(what);
    let create = tokio::spawn(site.started(&["backup", "create", "--to", "s3"]));
    eventually(LONG, "files are uploaded", async || door.is_knocked_at()).await.unwrap();
    // As another create does with what it takes for a leftover.
    let page = bucket.list("sites/north/", None, 1_000).await.unwrap();
    let toc = page.objects.iter().find(|object| object.key.ends_with("/toc.dat")).unwrap();
    bucket.delete(&toc.key).await.unwrap();
    door.open();
    let output = create.await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("no longer there whole"), "{said}");
    let found = site.json(true, &["backup", "list", "--from", "s3", "--json"]).await;
    assert_eq!(found["backups"], json!([]), "{found}");
}

/// Where a killed restore is met: a table of the dump, by when its rows come.
async fn some_tables(database: &Database) -> i64 {
    let client = database.connect().await.unwrap();
    let sql = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_restore_that_is_killed_is_done_again_once_nobody_is_at_it() {
    let site = Site::new("restore_killed").await;
    site.image(b"first").await;
    let folder: PathBuf = site.folder.path().join("backups");
    let place = folder.to_str().unwrap();
    site.json(true, &["backup", "create", "--to", place, "--json"]).await;
    let database = Database::empty("restore_killed_into").await.unwrap();
    let restore = ["backup", "restore", "--from", place, "--into", database.url()];
    // Its last table cannot be made while this lock is held: pg_restore waits, and outlives who started it.
    let holder = database.connect().await.unwrap();
    let lock = "CREATE FUNCTION door() RETURNS event_trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_advisory_xact_lock_shared(42); END';
        CREATE EVENT TRIGGER door ON ddl_command_start WHEN TAG IN ('CREATE INDEX')
            EXECUTE FUNCTION door();
        SELECT pg_advisory_lock(42)";
    holder.batch_execute(lock).await.unwrap();
    let mut process = Process::spawn(site.command(&restore), None).unwrap();
    eventually(LONG, "pg_restore waits at the door", async || {
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        holder.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0
    })
    .await
    .unwrap();
    process.kill().await.unwrap();
    assert!(some_tables(&database).await > 0);

    // It still works there: nobody may come between, also not with --replace.
    let replace = [&restore[..], &["--replace"]].concat();
    for attempt in [&restore[..], &replace] {
        let said = site.fails(attempt).await;
        assert!(said.contains("is being restored"), "{said}");
    }
    holder.batch_execute("DROP EVENT TRIGGER door; SELECT pg_advisory_unlock_all()").await.unwrap();
    eventually(LONG, "the orphan has ended", async || {
        let said = site.fails(&restore).await;
        if said.contains("is not empty") { Ok(()) } else { Err(said) }
    })
    .await
    .unwrap();
    let output = site.run(&replace).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let client = database.connect().await.unwrap();
    let rows = client.query_one("SELECT count(*) FROM media_objects", &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), 1);
}
