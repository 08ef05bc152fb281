//! Canaries: what is secret appears in no log, error or metric.

use std::io::Write;
use std::sync::{Arc, Mutex};

use event::id::Epoch;
use serde_json::json;

use crate::site::{Site, bare, batch, http, placed};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn secrets_and_payloads_stay_out_of_logs_errors_and_metrics() {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // For the whole process: one for this thread alone would miss what other threads were first to
    // log. It hears the other tests too, which does no harm.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let site = Site::new("canaries").await;
    let canary = "canary-payload-7c1f";
    let mut answers = String::new();
    let mut good = site.reading();
    good["payload"]["note"] = json!(canary);
    let mut bad = site.reading();
    bad["payload"] = json!({"metric_type": "temperature", "deep": {"note": canary}});
    let epoch = Epoch::mint();
    let stranger = crate::site::reading(event::id::TenantId::mint());
    let mut foreign = stranger.clone();
    foreign["payload"]["note"] = json!(canary);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for body in [
        batch(vec![placed(good, "barn-7", epoch, 1), bare(bad), bare(foreign)]).to_string(),
        format!("{{\"v\":1,\"batch_id\":\"{canary}!\"}}"),
        format!("{{\"v\":1,\"{canary}"),
    ] {
        let request = site.post().bearer_auth(&site.token).header("traceparent", parent);
        answers += &request.body(body).send().await.unwrap().text().await.unwrap();
    }
    let unknown = format!("hf_{}", "5ec2e7".repeat(10) + "beef");
    for secret in [unknown.as_str(), "canary-guess"] {
        answers += &site.post().bearer_auth(secret).send().await.unwrap().text().await.unwrap();
    }
    // The database refuses: its words must not carry a row's values to the log.
    let refuse = "ALTER TABLE ingest_dedupe ADD CONSTRAINT never CHECK (false) NOT VALID";
    site.client().await.batch_execute(refuse).await.unwrap();
    let mut last = site.reading();
    last["payload"]["note"] = json!(canary);
    answers += &site.send(&batch(vec![bare(last.clone())])).await.text().await.unwrap();
    assert!(answers.contains("SQLSTATE 23514, never"), "{answers}");
    // And a fault of ours.
    let rename = "ALTER TABLE ingest_dedupe RENAME TO away";
    site.client().await.batch_execute(rename).await.unwrap();
    answers += &site.send(&batch(vec![bare(last)])).await.text().await.unwrap();
    let metrics = format!("http://{}/metrics", site.cloud.http());
    let metrics = http().get(metrics).send().await.unwrap().text().await.unwrap();
    site.cloud.stop().await;

    let log = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("batch stored"), "the log was heard: {log}");
    assert!(log.contains("could not be stored"), "our own fault is in the log");
    assert!(log.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "the trace is in the log");
    assert!(metrics.contains("holdfast_cloud_rejected_total{code=\"invalid\"} 1"), "{metrics}");
    for (name, text) in [("log", &log), ("answers", &answers), ("metrics", &metrics)] {
        for secret in [&site.token[3..], &unknown[3..], "canary-guess", canary] {
            // What a sender wrote may be named to that sender, in 40 characters; a payload's
            // undocumented fields are not even that.
            assert!(!text.contains(secret), "{secret} is in the {name}");
        }
    }
}
