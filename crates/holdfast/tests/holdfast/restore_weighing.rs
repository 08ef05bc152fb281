//! Weighings in the restore drill: a session with an image and a result, as a scale and a camera make one.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::Path;
use std::time::Duration;

use cloud::tokens::{NewToken, Role, Tenants};
use event::id::{BarnId, DeviceId, EventId, FarmId, InferenceResultId, TenantId};
use serde_json::{Value, json};
use testkit::eventually;
use tokio_postgres::Client;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(120);

/// A scale with a camera, and somebody who looks at the cloud.
pub(crate) struct Scale {
    http: reqwest::Client,
    edge: String,
    edge_token: String,
    cloud: String,
    cloud_token: String,
    tenant: TenantId,
    farm: FarmId,
    barn: BarnId,
    device: DeviceId,
}

/// What was weighed.
pub(crate) struct Weighing {
    session: Uuid,
    media: Uuid,
    result: InferenceResultId,
}

impl Scale {
    pub(crate) async fn new(folder: &Path, edge: &Client, central: &Client) -> Scale {
        let tenant = edge.query_one("SELECT tenant_id FROM nodes LIMIT 1", &[]).await.unwrap();
        let tenant = TenantId::from_uuid(tenant.get(0)).unwrap();
        let token = |role| NewToken {
            name: "scale".to_owned(),
            role,
            tenants: Tenants::Only(vec![tenant]),
            expires_at: None,
        };
        let (_, edge_token) = cloud::tokens::create(edge, &token(Role::Edge)).await.unwrap();
        let (_, cloud_token) = cloud::tokens::create(central, &token(Role::Viewer)).await.unwrap();
        let at_edge = edge::Config::load(Some(&folder.join("edge-0.toml")), |_| None).unwrap();
        let in_cloud = cloud::Config::load(Some(&folder.join("cloud-0.toml")), |_| None).unwrap();
        let scale = Scale {
            http: reqwest::Client::new(),
            edge: format!("http://{}/api/v1", at_edge.listen),
            edge_token: edge_token.expose().to_owned(),
            cloud: format!("http://{}/api/v1", in_cloud.listen),
            cloud_token: cloud_token.expose().to_owned(),
            tenant,
            farm: FarmId::mint(),
            barn: BarnId::mint(),
            device: DeviceId::mint(),
        };
        eventually(LONG, "the edge listens", async || {
            let asked = scale.http.get(format!("{}/media", scale.edge));
            asked.bearer_auth(&scale.edge_token).send().await.is_ok_and(|it| it.status() == 200)
        })
        .await
        .unwrap();
        scale
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let asked = self.http.post(format!("{}{path}", self.edge)).bearer_auth(&self.edge_token);
        let asked = asked.header("idempotency-key", EventId::mint().to_string()).json(body);
        let answer = asked.send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }

    /// A whole weighing, to its end.
    pub(crate) async fn weigh(&self) -> Weighing {
        let place = json!({"tenant_id": self.tenant, "farm_id": self.farm, "barn_id": self.barn,
            "device_id": self.device});
        let with = |more: Value| {
            let mut all = place.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let session = self.post("/sessions", &with(json!({"initial_weight_kg": 1.5}))).await;
        let session = session["id"].as_str().or(session["session_id"].as_str()).unwrap().to_owned();
        // By the camera's clock, which is ahead: a site that adopts the image later tells of an earlier time.
        let captured_at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
        let image = with(json!({"session_id": session, "mime_type": "image/jpeg",
            "size_bytes": 500, "captured_at": captured_at}));
        let promised = self.post("/media", &image).await;
        let upload = &promised["upload"];
        let mut sending = self.http.put(upload["url"].as_str().unwrap()).body(vec![7; 500]);
        for (name, value) in upload["headers"].as_object().unwrap() {
            // The client writes the length itself.
            if name != "content-length" {
                sending = sending.header(name, value.as_str().unwrap());
            }
        }
        assert!(sending.send().await.unwrap().status().is_success());
        let media = promised["media_id"].as_str().unwrap();
        self.post(&format!("/media/{media}/complete"), &json!({})).await;
        let result = InferenceResultId::mint();
        let said = json!({"inference_result_id": result, "tenant_id": self.tenant, "media_id": media,
            "session_id": session, "predicted_weight_kg": 80.5, "confidence": 0.9,
            "model_version": "m1"});
        self.post("/inference/results", &said).await;
        let end = json!({"final_weight_kg": 80.0});
        self.post(&format!("/sessions/{session}/finalize"), &end).await;
        Weighing { session: session.parse().unwrap(), media: media.parse().unwrap(), result }
    }

    /// Waits until the cloud says that a session and all that belongs to it is there.
    pub(crate) async fn wait_until_complete(&self, weighing: &Weighing) {
        eventually(LONG, "the cloud has the whole session", async || {
            let asked = self.http.get(format!("{}/sessions?limit=100", self.cloud));
            let answer = asked.bearer_auth(&self.cloud_token).send().await;
            let page: Value = answer.unwrap().json().await.unwrap();
            let session = weighing.session.to_string();
            let found = page["items"].as_array().into_iter().flatten();
            let mut found = found.filter(|one| one["session_id"] == session);
            match found.next() {
                Some(one) if one["complete"] == true && one["media_arrived"] == 1 => Ok(()),
                _ => Err(page),
            }
        })
        .await
        .unwrap();
    }

    /// What the site's own tables have of a weighing.
    pub(crate) async fn at_the_site(&self, edge: &Client, weighing: &Weighing) -> Vec<String> {
        let sql = "SELECT 'created' FROM weight_sessions WHERE id = $1
            UNION ALL SELECT 'finalized' FROM weight_sessions WHERE id = $1 AND status = 'finalized'
            UNION ALL SELECT 'image' FROM media_objects WHERE id = $2 AND status = 'stored'
            UNION ALL SELECT 'result' FROM inference_results WHERE id = $3 ORDER BY 1";
        let Weighing { session, media, result } = weighing;
        let rows = edge.query(sql, &[session, media, &result.uuid()]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}
