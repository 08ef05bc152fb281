//! The edge killed at each step between an image that is announced and one that is stored, on the embedded store and on a foreign one.
//!
//! A step waits at a door: in the database a lock that the test holds, before the store a request or an answer that goes no further.
//! Nothing in the edge knows of it.

use api::tokens::{Role, Tenants};
use event::id::TenantId;
use objects::Address;
use reqwest::Method;
use serde_json::Value;
use testkit::{EmbeddedStore, Held, Knock, StoreDoor, eventually};

use crate::media_crash::Killed;
use crate::media_world::{Camera, Place, image, put};
use crate::site::LONG;

const SETTINGS: [(&str, &str); 2] =
    [("MEDIA_MULTIPART_ABOVE", "5MiB"), ("MEDIA_ORPHAN_GRACE", "0s")];
const PART_BYTES: usize = 8 << 20;

const FUNCTION: &str = "CREATE FUNCTION door() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END'";
const AT_THE_DOOR: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
/// The server ends what the dead asked for last, and only then finds nobody there.
const BUSY: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
/// What became of the image after the first so many.
const NEXT: &str =
    "SELECT coalesce((SELECT status FROM media_objects ORDER BY id OFFSET $1), 'none')";

#[derive(Debug, Clone, Copy)]
enum Door {
    /// A trigger, from its time on.
    Database(&'static str, &'static str),
    Store(&'static str, &'static str, Held),
}

/// The request under which the edge dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum During {
    Announce,
    Complete,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    during: During,
    /// In parts.
    large: bool,
    door: Door,
    /// What is left of the image.
    left: &'static str,
}

const fn announce(large: bool, door: Door, left: &'static str) -> Step {
    Step { during: During::Announce, large, door, left }
}

const fn complete(large: bool, door: Door, left: &'static str) -> Step {
    Step { during: During::Complete, large, door, left }
}

const ROW: &str = "media_objects FOR EACH ROW";
const AT_COMMIT: &str = "media_objects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW";
const STORED: &str = "media_objects FOR EACH ROW WHEN (NEW.status = 'stored')";

/// Every step, in order.
const STEPS: [Step; 14] = [
    announce(false, Door::Database("TRIGGER door BEFORE INSERT", ROW), "none"),
    announce(false, Door::Database("CONSTRAINT TRIGGER door AFTER INSERT", AT_COMMIT), "pending"),
    announce(true, Door::Store("POST", "uploads", Held::Request), "none"),
    announce(true, Door::Store("POST", "uploads", Held::Answer), "none"),
    announce(
        true,
        Door::Database("TRIGGER door BEFORE INSERT", "media_uploads FOR EACH ROW"),
        "none",
    ),
    complete(true, Door::Store("GET", "uploadId=", Held::Request), "pending"),
    complete(true, Door::Store("POST", "uploadId=", Held::Request), "pending"),
    complete(true, Door::Store("POST", "uploadId=", Held::Answer), "pending"),
    complete(true, Door::Store("HEAD", "tenants/", Held::Answer), "pending"),
    complete(false, Door::Store("HEAD", "tenants/", Held::Request), "pending"),
    complete(false, Door::Store("HEAD", "tenants/", Held::Answer), "pending"),
    complete(false, Door::Database("TRIGGER door BEFORE UPDATE", STORED), "pending"),
    complete(
        false,
        Door::Database("TRIGGER door BEFORE INSERT", "sync_outbox FOR EACH ROW"),
        "pending",
    ),
    complete(false, Door::Database("CONSTRAINT TRIGGER door AFTER UPDATE", AT_COMMIT), "stored"),
];

/// A place whose store is behind a door, and the token of a camera.
struct Scene {
    place: Place,
    door: StoreDoor,
    tenant: TenantId,
    token: String,
    folder: tempfile::TempDir,
    holder: tokio_postgres::Client,
}

impl Scene {
    async fn set(name: &'static str, store: &Address) -> Scene {
        let door = StoreDoor::before(store).await.unwrap();
        let place = Place::at(name, door.address(), &SETTINGS).await;
        let tenant = TenantId::mint();
        let token = place.token(Role::Edge, Tenants::Only(vec![tenant])).await;
        let holder = place.site.client().await;
        holder.batch_execute(FUNCTION).await.unwrap();
        Scene { place, door, tenant, token, folder: tempfile::tempdir().unwrap(), holder }
    }

    fn camera(&self, address: &str) -> Camera {
        Camera::with(address, self.token.clone(), self.tenant)
    }

    async fn close(&self, step: &Step) {
        match step.door {
            Door::Database(when, on) => {
                let close = format!(
                    "CREATE {when} ON {on} EXECUTE FUNCTION door(); SELECT pg_advisory_lock(42)"
                );
                self.holder.batch_execute(&close).await.unwrap();
            }
            Door::Store(method, target, held) => {
                self.door.close_for(Knock { method, target, held });
            }
        }
    }

    async fn is_at_the_door(&self, step: &Step) -> bool {
        match step.door {
            Door::Database(..) => self.place.number(AT_THE_DOOR).await == 1,
            Door::Store(..) => self.door.is_knocked_at(),
        }
    }

    async fn open(&self, step: &Step) {
        match step.door {
            Door::Database(_, on) => {
                let table = on.split(' ').next().unwrap();
                self.holder.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
                self.settled().await;
                self.holder.batch_execute(&format!("DROP TRIGGER door ON {table}")).await.unwrap();
            }
            Door::Store(..) => {
                self.door.open();
                self.settled().await;
            }
        }
    }

    async fn settled(&self) {
        let gone = async || self.place.number(BUSY).await == 0;
        eventually(LONG, "nobody is at work in the database", gone).await.unwrap();
    }

    /// Dies at the step, and another edge goes on from there.
    async fn die_at(&self, n: usize, step: &Step) {
        let what = format!("{}: step {n}, {step:?}", self.place.name);
        let killed = Killed::start(&self.place, self.door.address(), self.folder.path()).await;
        let camera = self.camera(&killed.address);
        let bytes = image(if step.large { PART_BYTES + 1 + n } else { 1_000 + n });
        let mut promised = Value::Null;
        if step.during == During::Complete {
            promised = camera.place(&bytes).await;
            send(&promised, &bytes).await;
        }
        self.close(step).await;
        let (path, body) = match step.during {
            During::Announce => ("/media".to_owned(), camera.announce(&bytes)),
            During::Complete => (completion(&promised), Value::Null),
        };
        let asked = tokio::spawn(async move { camera.try_ask(Method::POST, &path, body).await });
        eventually(LONG, &what, async || {
            assert!(!asked.is_finished(), "{what}: it was answered");
            self.is_at_the_door(step).await
        })
        .await
        .unwrap();
        drop(killed);
        asked.await.unwrap().unwrap_err();
        self.open(step).await;
        let left = self.holder.query_one(NEXT, &[&i64::try_from(n).unwrap()]).await.unwrap();
        assert_eq!(left.get::<_, String>(0), step.left, "{what}");

        let edge = self.place.start().await;
        let camera = self.camera(&edge.http().to_string());
        if step.during == During::Announce {
            promised = camera.place(&bytes).await;
            send(&promised, &bytes).await;
        }
        let (status, stored) = camera.post(&completion(&promised), Value::Null).await;
        assert_eq!(status, 200, "{what}: {stored}");
        edge.stop().await;
    }
}

fn completion(promised: &Value) -> String {
    format!("/media/{}/complete", promised["media_id"].as_str().unwrap())
}

/// The bytes, as the place asks for them.
async fn send(promised: &Value, bytes: &[u8]) {
    let whole = [promised["upload"].clone()];
    let requests = promised["upload"]["parts"].as_array().map_or(&whole[..], Vec::as_slice);
    for (request, bytes) in requests.iter().zip(bytes.chunks(PART_BYTES)) {
        assert!(put(request, bytes).await.unwrap().is_success());
    }
}

async fn at_each_step(name: &'static str, store: &Address) {
    let scene = Scene::set(name, store).await;
    let place = &scene.place;
    for (n, step) in STEPS.iter().enumerate() {
        scene.die_at(n, step).await;
        scene.holder.execute(EXPIRE, &[]).await.unwrap();
        place.sweep(false).await;
        let rows = place.number("SELECT count(*) FROM media_objects").await;
        let kept = i64::try_from(n + 1).unwrap();
        assert_eq!(rows, kept, "{name}: step {n}: one image a step, and nothing else is left");
        assert_eq!(place.number(TOLD_ONCE).await, kept, "{name}: step {n}: each is told once");
        assert_eq!(place.keys().await.len(), n + 1, "{name}: step {n}: objects and rows agree");
        assert_eq!(place.bucket.open_uploads("").await.unwrap(), [], "{name}: step {n}");
    }
}

const EXPIRE: &str =
    "UPDATE media_objects SET expires_at = now() - interval '1 s' WHERE status = 'pending'";
const TOLD_ONCE: &str =
    "SELECT count(*) FROM (SELECT payload_json->>'media_id' AS media FROM sync_outbox
        WHERE event_type = 'media.stored' GROUP BY 1 HAVING count(*) = 1) AS told
    JOIN media_objects ON id = media::uuid AND status = 'stored'";

#[tokio::test]
async fn an_edge_that_dies_at_any_step_of_an_upload_loses_nothing_on_the_embedded_store() {
    let store = EmbeddedStore::start().await.unwrap();
    at_each_step("embedded", store.address()).await;
}

#[tokio::test]
async fn an_edge_that_dies_at_any_step_of_an_upload_loses_nothing_on_a_foreign_store() {
    at_each_step("foreign", &testkit::foreign_bucket().await.unwrap()).await;
}
