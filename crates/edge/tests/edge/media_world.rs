//! A site with an object store, and a camera that uses it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::tokens::{self, NewToken, Role, Tenants};
use edge::media::sweep::{self, Report};
use edge::{Config, Edge};
use event::id::{BarnId, DeviceId, FarmId, SessionId, TenantId};
use objects::{Address, Bucket};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::EmbeddedStore;

use crate::site::{LONG, Site, config, http, start};

/// A store with a bucket, the site's database, and how an edge is told of both.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) site: Site,
    pub(crate) bucket: Bucket,
    pub(crate) config: Config,
    pub(crate) embedded: Option<EmbeddedStore>,
}

impl Place {
    pub(crate) async fn embedded(pairs: &[(&str, &str)]) -> Place {
        let store = EmbeddedStore::start().await.unwrap();
        let address = store.address().clone();
        Place { embedded: Some(store), ..Place::at("embedded", &address, pairs).await }
    }

    pub(crate) async fn foreign(pairs: &[(&str, &str)]) -> Place {
        Place::at("foreign", &testkit::foreign_bucket().await.unwrap(), pairs).await
    }

    pub(crate) async fn at(name: &'static str, store: &Address, pairs: &[(&str, &str)]) -> Place {
        let site = Site::new("media").await;
        let settings = settings(store, pairs);
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let config = config(site.database.url(), &settings);
        Place { name, site, bucket: Bucket::new(store).unwrap(), config, embedded: None }
    }

    pub(crate) async fn start(&self) -> Edge {
        start(&self.config).await
    }

    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.site.number(query).await
    }

    pub(crate) async fn token(&self, role: Role, tenants: Tenants) -> String {
        let new = NewToken { name: "camera".to_owned(), role, tenants, expires_at: None };
        let (_, token) = tokens::create(&self.site.client().await, &new).await.unwrap();
        token.expose().to_owned()
    }

    /// Sweeps once. An edge that starts sweeps too, and only one does at a time, so this waits its turn.
    pub(crate) async fn sweep(&self, dry_run: bool) -> Report {
        let deadline = Instant::now() + LONG;
        loop {
            match sweep::once(&self.config, dry_run).await.unwrap() {
                Some(report) => return report,
                None => assert!(Instant::now() < deadline, "another sweep does not end"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Objects by key.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let page = self.bucket.list("", None, 1000).await.unwrap();
        page.objects.into_iter().map(|object| object.key).collect()
    }
}

/// What an edge is told of a store. It sweeps only when a test asks, unless told otherwise.
pub(crate) fn settings(store: &Address, pairs: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let mut all = BTreeMap::from([
        ("ROLES", "sessions,media,inference".to_owned()),
        ("MEDIA_S3_ENDPOINT", store.url.to_string()),
        ("MEDIA_S3_BUCKET", store.bucket.clone()),
        ("MEDIA_S3_ACCESS_KEY", store.access_key.clone()),
        ("MEDIA_S3_SECRET_KEY", store.secret_key.clone()),
        ("MEDIA_SWEEP_EVERY", "7d".to_owned()),
        ("MEDIA_UPLOAD_GRACE", "0s".to_owned()),
    ]);
    for (key, value) in pairs {
        let known = [
            "MEDIA_PRESIGN_TTL",
            "MEDIA_UPLOAD_GRACE",
            "MEDIA_ORPHAN_GRACE",
            "MEDIA_ORPHANS",
            "MEDIA_MULTIPART_ABOVE",
            "MEDIA_MAX_SIZE",
            "MEDIA_SWEEP_EVERY",
            "MEDIA_S3_ENDPOINT",
            "MEDIA_S3_SECRET_KEY",
        ];
        let key = known.into_iter().find(|name| name == key).unwrap();
        all.insert(key, (*value).to_owned());
    }
    all.into_iter().collect()
}

/// A camera with a token.
#[derive(Clone)]
pub(crate) struct Camera {
    pub(crate) base: String,
    pub(crate) token: String,
    pub(crate) tenant: TenantId,
    pub(crate) farm: FarmId,
    pub(crate) barn: BarnId,
    pub(crate) device: DeviceId,
}

/// What the edge answered.
pub(crate) type Said = (StatusCode, Value);

impl Camera {
    pub(crate) async fn new(place: &Place, edge: &Edge) -> Camera {
        let tenant = TenantId::mint();
        let token = place.token(Role::Edge, Tenants::Only(vec![tenant])).await;
        Camera::with(&edge.http().to_string(), token, tenant)
    }

    pub(crate) fn with(address: &str, token: String, tenant: TenantId) -> Camera {
        let base = format!("http://{address}/api/v1");
        let (farm, barn, device) = (FarmId::mint(), BarnId::mint(), DeviceId::mint());
        Camera { base, token, tenant, farm, barn, device }
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: Value) -> Said {
        self.try_ask(method, path, body).await.unwrap()
    }

    pub(crate) async fn try_ask(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Result<Said, reqwest::Error> {
        let request = http().request(method, format!("{}{path}", self.base));
        let request = request.bearer_auth(&self.token);
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await?;
        let status = answer.status();
        Ok((status, answer.json().await.unwrap_or_default()))
    }

    pub(crate) async fn get(&self, path: &str) -> Said {
        self.ask(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Said {
        self.ask(Method::POST, path, body).await
    }

    /// A request for a place for these bytes.
    pub(crate) fn announce(&self, bytes: &[u8]) -> Value {
        let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        json!({
            "farm_id": self.farm, "barn_id": self.barn, "device_id": self.device,
            "mime_type": "image/jpeg", "size_bytes": bytes.len(), "sha256": hash,
            "captured_at": "2026-02-01T10:00:00Z",
        })
    }

    /// A place for these bytes.
    pub(crate) async fn place(&self, bytes: &[u8]) -> Value {
        let (status, place) = self.post("/media", self.announce(bytes)).await;
        assert_eq!(status, 201, "{place}");
        place
    }

    /// A place, and the bytes in it.
    pub(crate) async fn upload(&self, bytes: &[u8]) -> Value {
        let place = self.place(bytes).await;
        assert!(put(&place["upload"], bytes).await.unwrap().is_success());
        place
    }

    pub(crate) async fn complete(&self, place: &Value) -> Said {
        let id = place["media_id"].as_str().unwrap();
        self.post(&format!("/media/{id}/complete"), Value::Null).await
    }

    /// A session that is open.
    pub(crate) async fn session(&self) -> SessionId {
        let body = json!({"tenant_id": self.tenant, "farm_id": self.farm, "barn_id": self.barn,
            "device_id": self.device, "initial_weight_kg": 1.0});
        let request = http().post(format!("{}/sessions", self.base)).bearer_auth(&self.token);
        let request = request.header("Idempotency-Key", SessionId::mint().to_string()).json(&body);
        let made: Value = request.send().await.unwrap().json().await.unwrap();
        made["session_id"].as_str().or(made["id"].as_str()).unwrap().parse().unwrap()
    }
}

/// Sends bytes as a place asks for.
pub(crate) async fn put(request: &Value, bytes: &[u8]) -> Result<StatusCode, reqwest::Error> {
    let mut sending = http().put(request["url"].as_str().unwrap()).body(bytes.to_vec());
    for (name, value) in request["headers"].as_object().unwrap() {
        // The client writes the length itself.
        if name != "content-length" {
            sending = sending.header(name, value.as_str().unwrap());
        }
    }
    Ok(sending.send().await?.status())
}

/// Bytes that are not all the same.
pub(crate) fn image(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at * 31 + at / 251) % 251).unwrap()).collect()
}
