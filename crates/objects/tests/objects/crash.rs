//! The embedded store killed in the middle of things: what it answered for is there, the rest is whole or
//! absent.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use objects::server::serve;
use objects::{Address, Bucket, Error, Style};
use testkit::{EmbeddedStore, eventually};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::both::bytes;

const LONG: Duration = Duration::from_secs(30);
/// Names the folder that a process of its own serves.
const FOLDER: &str = "HOLDFAST_TEST_ENDPOINT";

/// The process that the other tests kill: this executable, with a folder to serve.
#[tokio::test]
async fn serves_when_another_test_asks() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let written = folder.with_extension("address.new");
    tokio::fs::write(&written, address).await.unwrap();
    tokio::fs::rename(&written, folder.with_extension("address")).await.unwrap();
    let store = folder.join("store");
    serve(&store, listener, EmbeddedStore::credentials(), CancellationToken::new()).await.unwrap();
}

struct Endpoint {
    child: std::process::Child,
    address: Address,
}

impl Endpoint {
    async fn start(folder: &Path) -> Endpoint {
        let said = folder.with_extension("address");
        let _ = std::fs::remove_file(&said);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::serves_when_another_test_asks"])
            .env(FOLDER, folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually(LONG, "the endpoint says where it is", async || said.exists()).await.unwrap();
        let credentials = EmbeddedStore::credentials();
        let at = std::fs::read_to_string(&said).unwrap();
        let address = Address {
            url: format!("http://{at}").parse().unwrap(),
            bucket: "media".to_owned(),
            region: "us-east-1".to_owned(),
            access_key: credentials.access_key,
            secret_key: credentials.secret_key,
            style: Style::Path,
        };
        Bucket::new(&address).unwrap().ensure().await.unwrap();
        Endpoint { child, address }
    }

    fn bucket(&self) -> Bucket {
        Bucket::new(&self.address).unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder for an endpoint, and its temporary parent.
fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("endpoint");
    std::fs::create_dir(&folder).unwrap();
    (parent, folder)
}

#[tokio::test]
async fn killed_at_any_moment_every_object_is_whole_or_absent() {
    let (_parent, folder) = folder();
    let mut random = testkit::seed().unwrap();
    let size = 200_000;
    let mut answered: Vec<String> = Vec::new();
    for round in 0..6 {
        let mut endpoint = Endpoint::start(&folder).await;
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..3 {
            let bucket = endpoint.bucket();
            writers.spawn(async move {
                let mut done = Vec::new();
                for at in 0..1_000 {
                    let key = format!("r{round}/w{writer}/{at}");
                    if bucket.put(&key, "image/jpeg", bytes(size).into()).await.is_err() {
                        break;
                    }
                    done.push(key);
                }
                done
            });
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let some = 1 + usize::try_from((random >> 33) % 20).unwrap();
        let bucket = endpoint.bucket();
        let prefix = format!("r{round}/");
        eventually(LONG, "some objects are there", async || {
            bucket.list(&prefix, None, 1000).await.is_ok_and(|page| page.objects.len() >= some)
        })
        .await
        .unwrap();
        endpoint.kill();
        answered.extend(writers.join_all().await.into_iter().flatten());
    }
    let endpoint = Endpoint::start(&folder).await;
    let bucket = endpoint.bucket();
    assert!(!answered.is_empty());
    for key in &answered {
        assert!(bucket.get(key, 1 << 20).await.unwrap() == bytes(size), "{key}");
    }
    let mut after = None;
    loop {
        let page = bucket.list("", after.as_deref(), 100).await.unwrap();
        for object in &page.objects {
            assert!(
                bucket.get(&object.key, 1 << 20).await.unwrap() == bytes(size),
                "{}",
                object.key
            );
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(folder.join("store/staging").read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn killed_in_the_middle_of_a_body_there_is_no_object() {
    let (_parent, folder) = folder();
    let mut endpoint = Endpoint::start(&folder).await;
    let upload =
        objects::Upload { key: "a/b.jpg", mime_type: "image/jpeg", size: 100_000, sha256: None };
    let signed = endpoint.bucket().presign_put(&upload, Duration::from_secs(60)).unwrap();
    let host = format!("127.0.0.1:{}", signed.url.port().unwrap());
    let mut connection = TcpStream::connect(&host).await.unwrap();
    let query = signed.url.query().unwrap();
    let mut head = format!("PUT {}?{query} HTTP/1.1\r\nhost: {host}\r\n", signed.url.path());
    for (name, value) in &signed.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    connection.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    connection.write_all(&bytes(60_000)).await.unwrap();
    let staging = folder.join("store/staging");
    eventually(LONG, "some of the body is on the disk", async || {
        let mut files = staging.read_dir().unwrap();
        files.any(|file| file.unwrap().metadata().is_ok_and(|data| data.len() > 0))
    })
    .await
    .unwrap();
    endpoint.kill();
    drop(connection);
    let endpoint = Endpoint::start(&folder).await;
    let bucket = endpoint.bucket();
    assert!(matches!(bucket.head("a/b.jpg").await, Err(Error::NotFound)));
    assert_eq!(staging.read_dir().unwrap().count(), 0, "the next start clears it");
    bucket.put("a/b.jpg", "image/jpeg", bytes(100_000).into()).await.unwrap();
}

#[tokio::test]
async fn uploads_in_parts_outlive_a_kill_and_can_be_completed_or_given_up() {
    let (_parent, folder) = folder();
    let mut endpoint = Endpoint::start(&folder).await;
    let bucket = endpoint.bucket();
    let kept = bucket.create_upload("kept", "image/png").await.unwrap();
    let etag = bucket.put_part("kept", &kept, 1, bytes(50_000).into()).await.unwrap();
    let left = bucket.create_upload("left", "image/png").await.unwrap();
    bucket.put_part("left", &left, 1, bytes(50_000).into()).await.unwrap();
    endpoint.kill();
    // What a kill between opening an upload and naming it leaves.
    std::fs::create_dir(folder.join("store/buckets/media/uploads/torn")).unwrap();
    let endpoint = Endpoint::start(&folder).await;
    let bucket = endpoint.bucket();
    bucket.complete_upload("kept", &kept, &[etag]).await.unwrap();
    assert_eq!(bucket.get("kept", 1 << 20).await.unwrap(), bytes(50_000));
    bucket.abort_upload("left", &left).await.unwrap();
    let uploads = folder.join("store/buckets/media/uploads");
    assert_eq!(uploads.read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn one_process_serves_a_folder() {
    let store = EmbeddedStore::start().await.unwrap();
    let second = EmbeddedStore::over(store.folder()).await;
    assert!(second.is_err());
    store.stop().await.unwrap();
}
