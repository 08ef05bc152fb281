//! A barn where animals are weighed: an edge, callers with tokens, images that are there.

use api::tokens::{self, NewToken, Role, Tenants};
use edge::Edge;
use event::id::{BarnId, DeviceId, FarmId, InferenceResultId, MediaId, TenantId};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::site::{Site, config, http, start};

pub(crate) const SESSIONS: &str = "/api/v1/sessions";
pub(crate) const RESULTS: &str = "/api/v1/inference/results";
pub(crate) const JOBS: &str = "/api/v1/inference/jobs";

/// Ids that are none, some of them nasty where they would become part of a path or a statement.
pub(crate) const ODD_IDS: [&str; 10] = [
    "",
    "1",
    "null",
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "018f1a84bb0e7d3fb2e49e8b5f8e0300",
    "{018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0300}",
    "00000000-0000-0000-0000-000000000000",
    "018f1a84-bb0e-1d3f-b2e4-9e8b5f8e0300",
    "' OR 1=1 --",
];

/// A tenant's barn, with a scale and a camera.
#[derive(Clone, Copy)]
pub(crate) struct Barn {
    pub(crate) tenant: TenantId,
    pub(crate) farm: FarmId,
    pub(crate) barn: BarnId,
    pub(crate) scale: DeviceId,
    pub(crate) camera: DeviceId,
}

impl Barn {
    pub(crate) fn new() -> Barn {
        Barn {
            tenant: TenantId::mint(),
            farm: FarmId::mint(),
            barn: BarnId::mint(),
            scale: DeviceId::mint(),
            camera: DeviceId::mint(),
        }
    }

    /// The body of a creation.
    pub(crate) fn session(&self) -> Value {
        json!({
            "tenant_id": self.tenant, "farm_id": self.farm, "barn_id": self.barn,
            "device_id": self.scale, "initial_weight_kg": 120.5,
            "start_at": "2026-02-01T10:05:00Z", "trace_id": "trace-1",
        })
    }

    /// The body of a result for a session.
    pub(crate) fn result(&self, session: &str, confidence: f64) -> Value {
        json!({
            "inference_result_id": InferenceResultId::mint(), "tenant_id": self.tenant,
            "session_id": session, "predicted_weight_kg": 121.3, "confidence": confidence,
            "model_version": "weighvision-v1.2.0", "occurred_at": "2026-02-01T10:06:00Z",
        })
    }
}

/// A site with an edge that runs.
pub(crate) struct Weighing {
    pub(crate) site: Site,
    pub(crate) edge: Edge,
    pub(crate) barn: Barn,
}

impl Weighing {
    pub(crate) async fn new(name: &str) -> Weighing {
        let site = Site::new(name).await;
        // Without ingress, so that no broker is looked for.
        let pairs = [("ROLES", "sessions,inference,sync")];
        let edge = start(&config(site.database.url(), &pairs)).await;
        Weighing { site, edge, barn: Barn::new() }
    }

    pub(crate) async fn caller(&self, role: Role, tenants: Tenants) -> Caller {
        let new = NewToken { name: "anna".to_owned(), role, tenants, expires_at: None };
        let (_, token) = tokens::create(&self.site.client().await, &new).await.unwrap();
        let base = format!("http://{}", self.edge.http());
        Caller { client: http(), base, token: token.expose().to_owned() }
    }

    /// A caller who may do everything with this barn's tenant, and nothing with others.
    pub(crate) async fn operator(&self) -> Caller {
        self.caller(Role::Operator, Tenants::Only(vec![self.barn.tenant])).await
    }

    /// An image that is in the store, as far as its row says.
    pub(crate) async fn image(&self, barn: &Barn, session: Option<&str>, status: &str) -> MediaId {
        image(&self.site, barn, session, status, 3).await
    }

    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.site.number(query).await
    }

    /// Types and payloads of the outbox, in the order in which the forwarder sends them.
    pub(crate) async fn told(&self) -> Vec<(String, Value)> {
        let query = "SELECT event_type, jsonb_set(payload_json, '{session_id}',
                coalesce(to_jsonb(session_id), 'null'))::text
            FROM sync_outbox ORDER BY device_id, occurred_at, id";
        let rows = self.site.client().await.query(query, &[]).await.unwrap();
        let read = |row: &tokio_postgres::Row| {
            (row.get(0), serde_json::from_str(row.get::<_, &str>(1)).unwrap())
        };
        rows.iter().map(read).collect()
    }
}

pub(crate) async fn image(
    site: &Site,
    barn: &Barn,
    session: Option<&str>,
    status: &str,
    size: i64,
) -> MediaId {
    let id = MediaId::mint();
    let query = "INSERT INTO media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id,
             bucket, object_key, mime_type, size_bytes, captured_at, status, expires_at, stored_at,
             missing_at, deleted_at)
         VALUES ($1, $2, $3, $4, $5, $6, 'farm', $7, 'image/jpeg', $8, now(), $9, now(), now(), now(),
             CASE WHEN $9 = 'deleted' THEN now() END)";
    let session: Option<Uuid> = session.map(|id| id.parse().unwrap());
    let key = format!("tenants/{}/images/{id}.jpg", barn.tenant);
    site.client()
        .await
        .execute(
            query,
            &[
                &id.uuid(),
                &barn.tenant.uuid(),
                &barn.farm.uuid(),
                &barn.barn.uuid(),
                &barn.camera.uuid(),
                &session,
                &key,
                &size,
                &status,
            ],
        )
        .await
        .unwrap();
    id
}

/// Someone with a token.
#[derive(Clone)]
pub(crate) struct Caller {
    client: reqwest::Client,
    base: String,
    token: String,
}

impl Caller {
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        body: &Value,
    ) -> (StatusCode, Value) {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        request = request.bearer_auth(&self.token);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.ask(Method::GET, path, None, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.ask(Method::POST, path, None, body).await
    }

    pub(crate) async fn create(&self, key: &str, body: &Value) -> (StatusCode, Value) {
        self.ask(Method::POST, SESSIONS, Some(key), body).await
    }

    /// A new session's id.
    pub(crate) async fn open(&self, barn: &Barn) -> String {
        let key = Uuid::now_v7().to_string();
        let (status, session) = self.create(&key, &barn.session()).await;
        assert_eq!(status, StatusCode::CREATED, "{session}");
        session["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn finalize(&self, id: &str, body: &Value) -> (StatusCode, Value) {
        self.post(&format!("{SESSIONS}/{id}/finalize"), body).await
    }

    pub(crate) async fn cancel(&self, id: &str, body: &Value) -> (StatusCode, Value) {
        self.post(&format!("{SESSIONS}/{id}/cancel"), body).await
    }
}

/// What a refusal says: status, code, field.
pub(crate) fn refusal(answer: &(StatusCode, Value)) -> (u16, &str, Option<&str>) {
    let error = &answer.1["error"];
    (answer.0.as_u16(), error["code"].as_str().unwrap_or_default(), error["field"].as_str())
}
