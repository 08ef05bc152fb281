//! The edge killed while cameras upload: what was answered stays, and the sweep settles the rest.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api::tokens::{Role, Tenants};
use edge::{Config, Edge};
use event::id::TenantId;
use objects::Address;
use reqwest::Method;
use serde_json::Value;
use testkit::eventually;

use crate::media_world::{Camera, Place, image, put, settings};
use crate::site::LONG;

const DATABASE: &str = "HOLDFAST_EDGE_DATABASE_URL";
/// Names the file that says where a process of its own serves.
const SAYS: &str = "HOLDFAST_TEST_EDGE_SAYS";

/// The process that the other test kills: this executable, with an edge to run.
#[tokio::test]
async fn runs_when_another_test_asks() {
    let Some(says) = std::env::var_os(SAYS) else { return };
    let config = Config::load(None, |name| std::env::var(name).ok()).unwrap();
    let edge = Edge::start(config).await.unwrap();
    let written = std::path::Path::new(&says).with_extension("new");
    tokio::fs::write(&written, edge.http().to_string()).await.unwrap();
    tokio::fs::rename(&written, &says).await.unwrap();
    std::future::pending::<()>().await;
}

/// An edge of its own process; dropped, it is killed.
pub(crate) struct Killed {
    child: Child,
    pub(crate) address: String,
}

impl Killed {
    pub(crate) async fn start(place: &Place, store: &Address, folder: &std::path::Path) -> Killed {
        let says = folder.join("address");
        let _ = std::fs::remove_file(&says);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "media_crash::runs_when_another_test_asks"]);
        for (key, value) in settings(store, &[("MEDIA_MULTIPART_ABOVE", "5MiB")]) {
            command.env(format!("HOLDFAST_EDGE_{key}"), value);
        }
        let child = command
            .env(SAYS, &says)
            .env(DATABASE, place.site.database.url())
            .env("HOLDFAST_EDGE_HTTP_LISTEN", "127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut killed = Killed { child, address: String::new() };
        eventually(LONG, "the edge says where it is", async || says.exists()).await.unwrap();
        killed.address = std::fs::read_to_string(&says).unwrap();
        killed
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One camera: images of both kinds, until its edge is gone. Returns what was answered as stored.
async fn shoot(camera: Camera, round: usize) -> Vec<String> {
    let mut stored = Vec::new();
    for at in 0..200_usize {
        let bytes =
            if at % 5 == 4 { image((8 << 20) + at) } else { image(1_000 + round * 200 + at) };
        let asked = camera.try_ask(Method::POST, "/media", camera.announce(&bytes)).await;
        let Ok((status, promised)) = asked else { break };
        if status != 201 {
            break;
        }
        match promised["upload"]["parts"].as_array() {
            Some(parts) => {
                for (part, bytes) in parts.iter().zip(bytes.chunks(8 << 20)) {
                    let _ = put(part, bytes).await;
                }
            }
            None => {
                let _ = put(&promised["upload"], &bytes).await;
            }
        }
        let id = promised["media_id"].as_str().unwrap().to_owned();
        let done =
            camera.try_ask(Method::POST, &format!("/media/{id}/complete"), Value::Null).await;
        match done {
            Ok((status, _)) if status == 200 => stored.push(id),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    stored
}

#[tokio::test]
async fn killed_at_any_moment_rows_objects_and_events_agree() {
    let place =
        Place::embedded(&[("MEDIA_MULTIPART_ABOVE", "5MiB"), ("MEDIA_ORPHAN_GRACE", "0s")]).await;
    let folder = tempfile::tempdir().unwrap();
    let tenant = TenantId::mint();
    let token = place.token(Role::Edge, Tenants::Only(vec![tenant])).await;
    let mut random = testkit::seed().unwrap();
    let mut stored = Vec::new();
    for round in 0..5 {
        let store = place.embedded.as_ref().unwrap().address();
        let killed = Killed::start(&place, store, folder.path()).await;
        let mut cameras = tokio::task::JoinSet::new();
        for _ in 0..3 {
            cameras.spawn(shoot(Camera::with(&killed.address, token.clone(), tenant), round));
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let some = place.number("SELECT count(*) FROM media_objects").await
            + 1
            + i64::try_from((random >> 33) % 12).unwrap();
        eventually(LONG, "some images are on their way", async || {
            place.number("SELECT count(*) FROM media_objects").await >= some
        })
        .await
        .unwrap();
        // Not at a row's birth only: anywhere in the next moments.
        tokio::time::sleep(Duration::from_micros(random >> 50)).await;
        drop(killed);
        stored.extend(cameras.join_all().await.into_iter().flatten());
    }
    let rows =
        |status: &str| format!("SELECT count(*) FROM media_objects WHERE status = '{status}'");
    let expire =
        "UPDATE media_objects SET expires_at = now() - interval '1 s' WHERE status = 'pending'";
    place.site.client().await.execute(expire, &[]).await.unwrap();
    place.sweep(false).await;

    assert!(!stored.is_empty());
    let client = place.site.client().await;
    for id in &stored {
        let query =
            "SELECT count(*) FROM media_objects WHERE id = $1::text::uuid AND status = 'stored'";
        let found: i64 = client.query_one(query, &[id]).await.unwrap().get(0);
        assert_eq!(found, 1, "{id} was answered as stored");
    }
    let kept = place.number(&rows("stored")).await;
    assert_eq!(place.number("SELECT count(*) FROM media_objects").await, kept, "all is settled");
    assert_eq!(place.keys().await.len(), usize::try_from(kept).unwrap(), "objects and rows agree");
    assert_eq!(place.bucket.open_uploads("").await.unwrap(), []);
    let once = "SELECT count(*) FROM (SELECT payload_json->>'media_id' AS media FROM sync_outbox
        WHERE event_type = 'media.stored' GROUP BY 1 HAVING count(*) = 1) AS told
        JOIN media_objects ON id = media::uuid";
    assert_eq!(place.number(once).await, kept, "and each is told once");
    for row in client.query("SELECT object_key, size_bytes FROM media_objects", &[]).await.unwrap()
    {
        let (key, size): (String, i64) = (row.get(0), row.get(1));
        assert_eq!(place.bucket.head(&key).await.unwrap().size, u64::try_from(size).unwrap());
    }
}
