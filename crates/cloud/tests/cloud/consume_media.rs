//! Copies of objects, between two stores that answer as S3 does to signed requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use cloud::consume::Options;
use cloud::consume::media::bucket::{Address, Stores};
use event::id::{MediaId, SessionId, TenantId};
use serde_json::{Value, json};
use testkit::eventually;

use crate::consume_world::{Barn, Replica, database, options};
use crate::site::{LONG, http, number};

/// Objects by path, and how often to answer that the store is down.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    down: u32,
    asked: u32,
}

type Shared = Arc<Mutex<Bucket>>;

async fn answer(
    State(bucket): State<Shared>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, Vec<u8>) {
    let mut bucket = bucket.lock().unwrap();
    bucket.asked += 1;
    let query = uri.query().unwrap_or_default();
    let signed = ["X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Credential=", "X-Amz-Signature="];
    if !signed.iter().all(|part| query.contains(part)) {
        return (StatusCode::FORBIDDEN, Vec::new());
    }
    if bucket.down > 0 {
        bucket.down -= 1;
        return (StatusCode::SERVICE_UNAVAILABLE, Vec::new());
    }
    let path = uri.path().to_owned();
    match method {
        Method::PUT => {
            bucket.objects.insert(path, body.to_vec());
            (StatusCode::OK, Vec::new())
        }
        Method::GET => match bucket.objects.get(&path) {
            Some(object) => (StatusCode::OK, object.clone()),
            None => (StatusCode::NOT_FOUND, Vec::new()),
        },
        _ => (StatusCode::METHOD_NOT_ALLOWED, Vec::new()),
    }
}

async fn store() -> (Shared, Address) {
    let shared = Shared::default();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let address = Address {
        url,
        bucket: "media".to_owned(),
        region: "us-east-1".to_owned(),
        access_key: "key".to_owned(),
        secret_key: "canary-secret".to_owned(),
    };
    assert!(!format!("{address:?}").contains("canary"));
    (shared, address)
}

fn image(barn: &Barn, path: &str, size: usize) -> Value {
    let mut event = barn.media(SessionId::mint(), "2026-02-01T10:00:00Z");
    event["payload"] = json!({"media_id": MediaId::mint(), "path": path,
        "mime_type": "image/jpeg", "size_bytes": size});
    event
}

#[tokio::test]
async fn objects_are_copied_and_an_outage_costs_no_attempt() {
    let _ = http();
    let ((source, from), (target, to)) = (store().await, store().await);
    let database = database("copies").await;
    let barn = Barn::new(TenantId::mint());
    let prefix = format!("tenants/{}/farms/f", barn.tenant);
    let other = format!("tenants/{}/farms/f/secret.jpg", TenantId::mint());
    {
        let mut source = source.lock().unwrap();
        for name in [format!("{prefix}/a.jpg"), format!("{prefix}/b.jpg"), other.clone()] {
            source.objects.insert(format!("/media/{name}"), vec![7; 1_000]);
        }
        source.down = 2;
    }
    target.lock().unwrap().down = 2;
    let stores = Some(Stores { source: from, store: to });
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
    {
        let target = target.lock().unwrap();
        let names: Vec<&String> = target.objects.keys().collect();
        assert_eq!(names, [&format!("/media/{prefix}/a.jpg")], "and nothing of another tenant");
        assert_eq!(target.objects.values().next().unwrap(), &vec![7; 1_000]);
    }
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
