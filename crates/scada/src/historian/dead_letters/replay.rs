//! The record of a replay: `operator_audit`, where any replica finds how far it is.
//!
//! Promise: one replay at a time, over all replicas and commands, by a lock of the database that goes with the process that has it.

use bus::Progress;
use bus::letterbox::Record;
use futures_util::future::BoxFuture;
use pg::Turn;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::audit::{self, Actor};

/// The kind of [`Turn`] that replays have.
pub const REPLAYS: i32 = 0x6868_6c72;
/// The deed, as it is recorded.
const ACTION: &str = "dlq.replay";

/// A replay that has its turn and its record.
#[derive(Debug)]
pub struct Replay(Turn);

impl Replay {
    /// Takes the turn and records that the deed begins; `None` when another replay runs.
    pub async fn begin(
        database: &pg::Options,
        actor: &Actor,
        parameters: Value,
    ) -> Result<Option<Replay>, pg::Error> {
        let Some(turn) = Turn::take(database, REPLAYS).await? else { return Ok(None) };
        let id = audit::begin(turn.client(), actor, ACTION, parameters).await?;
        Ok(Some(Replay(turn.now_for(id).await?)))
    }

    /// The number of the record.
    pub fn id(&self) -> i64 {
        self.0.deed()
    }

    /// How the replay of this record stands; `None` when it is no replay's. One that nobody works on any more was cut off.
    pub async fn show(client: &Client, id: i64) -> Result<Option<Value>, pg::Error> {
        // Before the record is read: one that ends in between has said so there, and was not cut off.
        let runs = Turn::is_for(client, REPLAYS, id).await?;
        let query = "SELECT parameters, changed FROM operator_audit WHERE id = $1 AND action = $2";
        let Some(row) = client.query_opt(query, &[&id, &ACTION]).await? else { return Ok(None) };
        let (said, changed): (Value, i64) = (row.get(0), row.get(1));
        let number = |name: &str| said[name].as_u64().unwrap_or_default();
        let (total, seen) = (number("total"), number("seen"));
        let state = match said["outcome"].as_str() {
            Some("started") if runs => "running",
            Some("started") => "cut_off",
            Some("done") => "done",
            _ => "failed",
        };
        let left = if state == "done" { 0 } else { total.saturating_sub(seen) };
        Ok(Some(json!({
            "replay_id": id, "state": state, "dry_run": said["dry_run"], "matched": said["matched"],
            "changed": changed, "left": left, "total": total, "error": said["error"],
        })))
    }

    async fn write(&self, progress: Progress, end: Option<Value>) {
        let Progress { seen, total, matched, changed } = progress;
        let mut more = json!({"seen": seen, "total": total, "matched": matched});
        if let (Some(more), Some(Value::Object(mut end))) = (more.as_object_mut(), end) {
            more.append(&mut end);
        }
        if let Err(error) = audit::finish(self.0.client(), self.id(), changed, more).await {
            tracing::warn!(%error, id = self.id(), "how far a replay is could not be recorded");
        }
    }
}

impl Record for Replay {
    fn note(&self, progress: Progress) -> BoxFuture<'_, ()> {
        Box::pin(self.write(progress, None))
    }

    fn finish(
        self: Box<Self>,
        progress: Progress,
        failed: Option<String>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let end = match failed {
                None => json!({"outcome": "done"}),
                Some(error) => json!({"outcome": "failed", "error": error}),
            };
            self.write(progress, Some(end)).await;
        })
    }
}
