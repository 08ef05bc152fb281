//! Which stages an event has passed, from what edge and cloud say of it. Pure; `holdfast where` and the page both stand on it.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// One stage of the way.
#[derive(Debug, Clone, Serialize, PartialEq, Eq, ToSchema)]
#[schema(as = TrailStage)]
pub struct Stage {
    /// Its name.
    pub stage: &'static str,
    /// What became of the event there.
    pub state: String,
    /// When, where it is known.
    pub at: Option<String>,
}

/// The stages in their order. `asked` says whether the cloud was asked.
pub fn stages(edge: Option<&Value>, cloud: Option<&Value>, asked: bool) -> Vec<Stage> {
    let mut stages = Vec::new();
    let mut put = |stage, state: String, at: &Value| {
        stages.push(Stage { stage, state, at: at.as_str().map(str::to_owned) });
    };
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let none = Value::Null;
    match edge {
        Some(edge) => at_edge(edge, &mut put),
        None => {
            put("received", "unknown at the edge, or removed after its retention".to_owned(), &none)
        }
    }
    match cloud {
        Some(cloud) => {
            let known = if cloud["accepted_at"].is_null() {
                "longer ago than the cache keeps"
            } else {
                "yes"
            };
            let refused = cloud["rejected"].as_array().into_iter().flatten();
            for one in refused {
                put("accepted", format!("rejected: {}", word(&one["code"])), &one["at"]);
            }
            put("accepted", known.to_owned(), &cloud["accepted_at"]);
            match &cloud["relay"] {
                Value::Null => put("published", "confirmed by the bus".to_owned(), &none),
                relay => put(
                    "published",
                    format!("not yet: {}", word(&relay["status"])),
                    &relay["last_attempt_at"],
                ),
            }
            let stored: Vec<&Value> = cloud["stored"].as_array().into_iter().flatten().collect();
            for one in &stored {
                put("stored", word(&one["table"]), &one["at"]);
            }
            if stored.is_empty() {
                put("stored", "in no consumer's table".to_owned(), &none);
            }
            for one in cloud["dead_letters"].as_array().into_iter().flatten() {
                let what =
                    format!("given up by {}: {}", word(&one["queue"]), word(&one["cause_code"]));
                put("dead letter", what, &one["at"]);
            }
        }
        None if asked => put("accepted", "unknown to the cloud".to_owned(), &none),
        None => put("accepted", "the cloud was not asked".to_owned(), &none),
    }
    stages
}

fn at_edge(edge: &Value, put: &mut impl FnMut(&'static str, String, &Value)) {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    if let (Some(seq), Some(stream)) = (edge["seq"].as_u64(), edge["stream"].as_str()) {
        let node = &edge["node"];
        let own = node["epoch"] == edge["epoch"];
        let state = match (node["acked"].as_u64(), node["oldest"].as_u64()) {
            (Some(_), Some(oldest)) if own && seq >= oldest => "still in the node's spool",
            (Some(_), Some(_)) if own => "acknowledged, and gone from the node's spool",
            _ => "from another life of the node's spool, or the node was not heard",
        };
        put("spooled", format!("{stream} seq {seq}: {state}"), &Value::Null);
    }
    for one in edge["quarantined"].as_array().into_iter().flatten() {
        put("received", format!("in quarantine: {}", word(&one["reason"])), &one["received_at"]);
    }
    if !edge["received_at"].is_null() {
        let what = if edge["stored"] == true { "stored at the edge" } else { "at the edge" };
        put("received", what.to_owned(), &edge["received_at"]);
    }
    match &edge["outbox"] {
        Value::Null => put("sent", "no outbox row any more".to_owned(), &Value::Null),
        row => {
            let status = word(&row["status"]);
            let why = row["dlq_reason"].as_str().or(row["last_error_code"].as_str());
            let why = why.map(|why| format!(", {why}")).unwrap_or_default();
            let at = if status == "pending" { &row["created_at"] } else { &row["updated_at"] };
            put("sent", format!("{status}{why}"), at);
        }
    }
}
