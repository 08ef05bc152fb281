//! Canaries: what is secret at a site appears in no log, error or metric.

use api::tokens::{Role, Tenants};
use event::id::EventId;
use serde_json::{Value, json};
use testkit::EmbeddedStore;

use crate::heard::Heard;
use crate::media_world::{Camera, image, put, settings};
use crate::site::{Site, config, http, start};
use crate::sync_admin::Asker;

/// The signature in a presigned address.
fn signature(address: &Value) -> String {
    let url = address["url"].as_str().unwrap();
    let (_, rest) = url.split_once("X-Amz-Signature=").unwrap();
    rest.split('&').next().unwrap().to_owned()
}

// On one thread, so that everything is heard.
#[tokio::test]
async fn secrets_and_payloads_stay_out_of_logs_errors_and_metrics() {
    let heard = Heard::here();
    let store = EmbeddedStore::start().await.unwrap();
    let site = Site::new("canaries").await;
    let node = site.enroll("barn-1").await;
    let pairs = settings(store.address(), &[]);
    let pairs: Vec<(&str, &str)> = pairs
        .iter()
        .filter(|(key, _)| *key != "ROLES")
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let config = config(site.database.url(), &pairs);
    let edge = start(&config).await;
    let base = format!("http://{}", edge.http());
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::Only(vec![node.tenant])).await;
    let payload = "canary-payload-7c1f";
    let mut errors = String::new();

    // A node, with its secret and with one that nobody has; a record that is put aside.
    let mut bad = node.reading();
    bad["payload"] = json!({"metric_type": "temperature", "note": payload});
    let body = node.body(&[(1, node.reading().to_string()), (2, bad.to_string())], &[]);
    let secret = node.enrolled.secret.expose().to_owned();
    let unknown = "5ec2e7".repeat(10) + "beef";
    for key in [secret.as_str(), unknown.as_str()] {
        let request = http().post(format!("{base}/api/v1/nodes/barn-1/backfill")).bearer_auth(key);
        errors += &request.body(body.clone()).send().await.unwrap().text().await.unwrap();
    }
    // An operator, with a token, with one that nobody has, and with bodies that cannot be read.
    let guess = format!("hf_{unknown}");
    let guessed = http().get(format!("{base}/api/v1/sync/stats")).bearer_auth(&guess);
    errors += &guessed.send().await.unwrap().text().await.unwrap();
    for (path, body) in [
        ("/api/v1/telemetry/readings", json!({"readings": [bad]})),
        ("/api/v1/sessions", json!({"note": payload})),
    ] {
        errors += &operator.post(path, body).await.1.to_string();
    }
    // An image by a presigned address, and one whose store is gone.
    let camera = Camera::with(&edge.http().to_string(), operator.token().to_owned(), node.tenant);
    let bytes = image(2_000);
    let (promised, late) = (camera.upload(&bytes).await, camera.upload(&bytes).await);
    assert_eq!(camera.complete(&promised).await.0, 200);
    let id = promised["media_id"].as_str().unwrap();
    let (status, address) = camera.get(&format!("/media/{id}/url")).await;
    assert_eq!(status, 200, "{address}");
    let signatures =
        [signature(&promised["upload"]), signature(&late["upload"]), signature(&address)];
    let wrong = put(&json!({"url": promised["upload"]["url"], "headers": {}}), b"other").await;
    assert!(!wrong.unwrap().is_success());
    store.stop().await.unwrap();
    let (status, said) = camera.complete(&late).await;
    assert!(status.is_server_error(), "{status} {said}");
    errors += &said.to_string();
    // The database refuses, and then a fault of ours: its words must not carry a row's values to the log.
    let refuse = "ALTER TABLE ingress_dedupe ADD CONSTRAINT never CHECK (false) NOT VALID";
    site.client().await.batch_execute(refuse).await.unwrap();
    let mut noted = node.reading();
    noted["payload"]["note"] = json!(payload);
    noted["event_id"] = json!(EventId::mint());
    let body = node.body(&[(3, noted.to_string())], &[]);
    let upload =
        || http().post(format!("{base}/api/v1/nodes/barn-1/backfill")).bearer_auth(&secret);
    errors += &upload().body(body.clone()).send().await.unwrap().text().await.unwrap();
    site.client().await.batch_execute("ALTER TABLE ingress_dedupe RENAME TO away").await.unwrap();
    let body = node.body(&[(4, noted.to_string())], &[]);
    errors += &upload().body(body).send().await.unwrap().text().await.unwrap();
    let metrics = http().get(format!("{base}/metrics")).send().await.unwrap().text().await.unwrap();
    edge.stop().await;

    let (log, shown) = (heard.text(), format!("{config:?}"));
    for said in ["an event went to quarantine", "backfill could not be stored", "http_request"] {
        assert!(log.contains(said), "the log was heard: {said}");
    }
    assert!(metrics.contains("holdfast_edge_"), "{metrics}");
    let store_secret = store_secret(&pairs);
    let mut secrets =
        vec![store_secret.as_str(), &secret, &operator.token()[3..], &unknown, payload];
    secrets.extend(signatures.iter().map(String::as_str));
    for (name, text) in
        [("log", &log), ("errors", &errors), ("metrics", &metrics), ("config", &shown)]
    {
        for secret in &secrets {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "a secret is in the {name}");
        }
    }
}

fn store_secret(pairs: &[(&str, &str)]) -> String {
    let found = pairs.iter().find(|(key, _)| *key == "MEDIA_S3_SECRET_KEY");
    let secret = found.unwrap().1.to_owned();
    assert!(secret.len() >= 8, "long enough to be told from other text: {secret:?}");
    secret
}
