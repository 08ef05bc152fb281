//! A simulated weighing station: a scale with a camera that speaks to an edge over HTTP, as a real one would. It opens a session, uploads pictures
//! through presigned addresses, waits for what the model says, and finalizes.
//!
//! What fails is left where it is, said once, and the next animal is weighed: the edge's sweep mends half an upload, and a session that got
//! stuck is cancelled.

use std::time::Duration;

use anyhow::{Context, ensure};
use event::id::{BarnId, DeviceId, FarmId, TenantId};
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::picture;

/// Pictures of an animal.
const PICTURES: usize = 2;
/// How long the model may take before the session ends without it.
const MODEL_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Where a scale stands, and whom it speaks to.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The edge, as `http://host:port`.
    pub(crate) edge: String,
    /// A token of the role operator.
    pub(crate) token: String,
    pub(crate) tenant_id: TenantId,
    pub(crate) farm_id: FarmId,
    pub(crate) barn_id: BarnId,
    pub(crate) device_id: DeviceId,
}

/// A scale that weighs one animal after the other.
#[derive(Debug)]
pub(crate) struct Scale {
    place: Place,
    every: Duration,
    client: Client,
    rng: StdRng,
}

impl Scale {
    pub(crate) fn new(place: Place, every: Duration, seed: u64) -> anyhow::Result<Scale> {
        let client = Client::builder().timeout(ANSWER_WITHIN).build()?;
        Ok(Scale { place, every, client, rng: StdRng::seed_from_u64(seed) })
    }

    /// Weighs until `animals` were weighed (`None`: for ever). Returns how many sessions were finalized.
    pub(crate) async fn run(mut self, animals: Option<u64>) -> u64 {
        let mut turn = tokio::time::interval(self.every);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Until the edge has answered once it may still be starting: that is not worth a warning.
        let (mut tried, mut finalized, mut failing) = (0, 0, true);
        while animals.is_none_or(|animals| tried < animals) {
            turn.tick().await;
            tried += 1;
            match self.weigh().await {
                Ok(()) => {
                    finalized += 1;
                    failing = false;
                }
                Err(error) if failing => tracing::debug!(%error, "an animal was not weighed"),
                Err(error) => {
                    failing = true;
                    tracing::warn!(error = %format!("{error:#}"), "an animal was not weighed");
                }
            }
        }
        finalized
    }

    /// One animal: a session from beginning to end.
    async fn weigh(&mut self) -> anyhow::Result<()> {
        let weight = self.rng.random_range(0.8..3.2);
        let session = self.open(weight).await.context("opening a session")?;
        let done = self.fill(&session, weight).await;
        if done.is_err() {
            let reason = json!({ "reason": "the scale could not finish" });
            // The session may be beyond that; then it stays as it is.
            let _ = self.ask(Method::POST, &format!("sessions/{session}/cancel"), &reason).await;
        }
        done
    }

    async fn open(&self, weight: f64) -> anyhow::Result<String> {
        let Place { tenant_id, farm_id, barn_id, device_id, .. } = &self.place;
        let body = json!({
            "tenant_id": tenant_id, "farm_id": farm_id, "barn_id": barn_id,
            "device_id": device_id, "initial_weight_kg": rounded(weight),
        });
        let answer = self.ask(Method::POST, "sessions", &body).await?;
        text(&answer, "session_id").or_else(|_| text(&answer, "id"))
    }

    async fn fill(&mut self, session: &str, weight: f64) -> anyhow::Result<()> {
        for _ in 0..PICTURES {
            let picture = picture::draw(weight, &mut self.rng)?;
            self.upload(session, picture).await.context("uploading a picture")?;
        }
        self.wait_for_model(session).await;
        let measured = rounded(weight * self.rng.random_range(0.995..1.005));
        let body = json!({ "final_weight_kg": measured });
        let path = format!("sessions/{session}/finalize");
        self.ask(Method::POST, &path, &body).await.context("finalizing")?;
        Ok(())
    }

    async fn upload(&self, session: &str, picture: Vec<u8>) -> anyhow::Result<()> {
        let Place { tenant_id, farm_id, barn_id, device_id, .. } = &self.place;
        let hash: String =
            Sha256::digest(&picture).iter().map(|byte| format!("{byte:02x}")).collect();
        let body = json!({
            "tenant_id": tenant_id, "farm_id": farm_id, "barn_id": barn_id,
            "device_id": device_id, "session_id": session, "mime_type": "image/png",
            "size_bytes": picture.len(), "sha256": hash, "captured_at": Timestamp::now(),
        });
        let promised = self.ask(Method::POST, "media", &body).await?;
        let upload = &promised["upload"];
        let method: Method = text(upload, "method")?.parse()?;
        let mut request = self.client.request(method, text(upload, "url")?).body(picture);
        for (name, value) in upload["headers"].as_object().into_iter().flatten() {
            request = request.header(name, value.as_str().unwrap_or_default());
        }
        let stored = request.send().await?;
        ensure!(stored.status().is_success(), "the store answered {}", stored.status());
        let media = text(&promised, "media_id")?;
        self.ask(Method::POST, &format!("media/{media}/complete"), &json!({})).await?;
        Ok(())
    }

    /// Waits until every picture has its result, but not for ever: without a model there are none.
    async fn wait_for_model(&self, session: &str) {
        let Place { tenant_id, .. } = &self.place;
        let path = format!("inference/results?tenant_id={tenant_id}&session_id={session}");
        let all_there = async {
            loop {
                let answer = self.ask(Method::GET, &path, &Value::Null).await;
                let rows = answer.as_ref().ok().and_then(|answer| answer["rows"].as_array());
                if rows.is_some_and(|rows| rows.len() >= PICTURES) {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(MODEL_WITHIN, all_there).await;
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let url = format!("{}/api/v1/{path}", self.place.edge);
        let mut request = self.client.request(method.clone(), url).bearer_auth(&self.place.token);
        if method == Method::POST {
            let key = uuid::Uuid::now_v7().to_string();
            request = request.json(body).header("idempotency-key", key);
        }
        let answer = request.send().await?;
        let status = answer.status();
        let answer: Value = answer.json().await.unwrap_or_default();
        let why = answer["error"]["message"].as_str().unwrap_or("without saying why");
        ensure!(status.is_success(), "{status}: {why}");
        Ok(answer)
    }
}

fn text(value: &Value, name: &str) -> anyhow::Result<String> {
    let text = value[name].as_str().with_context(|| format!("the answer has no {name}"))?;
    Ok(text.to_owned())
}

fn rounded(weight: f64) -> f64 {
    (weight * 1000.0).round() / 1000.0
}
