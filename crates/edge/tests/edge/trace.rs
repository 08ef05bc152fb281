//! Traces: every answer names one, events get it, and what is refused is found by it in the log.

use api::tokens::{Role, Tenants};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::heard::Heard;
use crate::site::{Site, config, http, start};
use crate::sync_admin::Asker;
use crate::weighing::Barn;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).unwrap().to_str().unwrap()
}

/// The trace that an answer names.
fn trace(answer: &Response) -> String {
    let parts: Vec<&str> = header(answer, "traceparent").split('-').collect();
    assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2]);
    parts[1].to_owned()
}

#[tokio::test]
async fn every_answer_names_its_trace_and_its_request() {
    let site = Site::new("trace_answers").await;
    let edge = start(&config(site.database.url(), &[])).await;
    let base = format!("http://{}", edge.http());
    for (path, status) in [
        ("/healthz", StatusCode::OK),
        ("/api/v1/sync/stats", StatusCode::UNAUTHORIZED),
        ("/api/v1/nothing", StatusCode::UNAUTHORIZED),
        ("/api/v1/nodes/barn-1/backfill", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let ask = || http().get(format!("{base}{path}"));
        let (one, two) = (ask().send().await.unwrap(), ask().send().await.unwrap());
        assert_eq!(one.status(), status, "{path}");
        assert_ne!(trace(&one), trace(&two), "each begins its own");
        assert_ne!(header(&one, "x-request-id"), header(&two, "x-request-id"));
        let within = ask().header("traceparent", PARENT).header("x-request-id", "job-7");
        let within = within.send().await.unwrap();
        assert_eq!((trace(&within).as_str(), header(&within, "x-request-id")), (TRACE, "job-7"));
        assert_ne!(header(&within, "traceparent"), PARENT, "the span is the request's own");
        let odd = ask().header("traceparent", "00-what").header("x-request-id", "two words");
        let odd = odd.send().await.unwrap();
        assert_eq!(odd.status(), status, "{path}: nothing is refused for it");
        assert_ne!(header(&odd, "x-request-id"), "two words");
    }
    edge.stop().await;
}

#[tokio::test]
async fn an_event_that_names_no_trace_gets_the_one_of_its_request() {
    let site = Site::new("trace_events").await;
    let barn = Barn::new();
    let edge = start(&config(site.database.url(), &[])).await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::Only(vec![barn.tenant])).await;
    let within = |path: &str, body: Value| {
        let request = operator.request(Method::POST, path).header("traceparent", PARENT);
        request.header("Idempotency-Key", event::id::EventId::mint().to_string()).json(&body).send()
    };
    let mut session = barn.session();
    session.as_object_mut().unwrap().remove("trace_id");
    assert_eq!(within("/api/v1/sessions", session).await.unwrap().status(), 201);
    let reading = |trace: Option<&str>| {
        json!({"event_id": event::id::EventId::mint(), "event_type": "telemetry.ingested", "tenant_id": barn.tenant,
            "device_id": barn.scale, "occurred_at": "2026-02-01T10:00:00Z", "trace_id": trace,
            "payload": {"metric_type": "temperature", "metric_value": 26.4, "unit": "C"}})
    };
    let body = json!({"readings": [reading(None), reading(Some("their-own"))]});
    let taken = within("/api/v1/telemetry/readings", body).await.unwrap();
    assert_eq!(taken.status(), 200, "{:?}", taken.text().await);
    let traces =
        "SELECT string_agg(event_type || ' ' || trace_id, ', ' ORDER BY event_type, trace_id)
        FROM sync_outbox WHERE tenant_id IS NOT NULL";
    let expected = format!(
        "telemetry.ingested {TRACE}, telemetry.ingested their-own, weighvision.session.created {TRACE}"
    );
    assert_eq!(site.text(traces).await, expected);
    edge.stop().await;
}

#[tokio::test]
async fn what_is_refused_is_in_the_log_with_its_trace() {
    let heard = Heard::here();
    let site = Site::new("trace_refused").await;
    let node = site.enroll("barn-1").await;
    let edge = start(&config(site.database.url(), &[])).await;
    let mut bad = node.reading();
    bad["trace_id"] = json!("trace-of-the-bad-one");
    bad["payload"] = json!({"metric_type": "temperature", "note": "canary-payload"});
    let body = node.body(&[(1, node.reading().to_string()), (2, bad.to_string())], &[]);
    let url = format!("http://{}/api/v1/nodes/barn-1/backfill", edge.http());
    let request = http().post(url).bearer_auth(node.enrolled.secret.expose());
    let answer = request.header("traceparent", PARENT).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);

    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::Only(vec![node.tenant])).await;
    let mut reading = node.reading();
    reading["trace_id"] = json!("trace-of-a-reading");
    reading["occurred_at"] = json!("yesterday");
    let (status, said) =
        operator.post("/api/v1/telemetry/readings", json!({"readings": [reading]})).await;
    assert_eq!(
        (status, &said["error"]["field"]),
        (StatusCode::BAD_REQUEST, &json!("readings[0].occurred_at"))
    );
    edge.stop().await;

    let log = heard.text();
    let line = |words: &str| log.lines().find(|line| line.contains(words)).unwrap().to_owned();
    let line_of_record = line("an event went to quarantine");
    for part in
        ["trace-of-the-bad-one", "reason=\"invalid_event\"", "node=\"barn-1\"", "seq=2", TRACE]
    {
        assert!(line_of_record.contains(part), "{part}: {line_of_record}");
    }
    assert!(line("a reading is refused").contains("trace-of-a-reading"), "{log}");
    assert!(!log.contains("canary-payload"));
}
