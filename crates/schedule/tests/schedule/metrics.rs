//! What a worker and intake tell Prometheus: docs/reference/metrics.md.

use reqwest::{Method, StatusCode};
use schedule::metrics::{Metrics, serve};
use schedule::worker::Worker;
use serde_json::json;
use tokio::net::TcpListener;

use crate::intake::{Gate, picture};
use crate::rota::{LONG, Rota, day, settings};
use crate::site::{Site, USER};

#[tokio::test]
async fn sessions_are_seen_to_wait_and_to_be_processed_or_failed() {
    let site = Site::new("metrics").await;
    let rota = Rota::default();
    let (good, bad) = (site.session(USER).await, site.session(USER).await);
    rota.show(good, day(&[("8-16", "Nurse", "Ward 3")]));
    let metrics = Metrics::new(&site.address).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let serving = tokio::spawn(serve(listener, metrics.clone()));
    let scrape = async || reqwest::get(&url).await.unwrap().text().await.unwrap();
    let text = scrape().await;
    assert!(text.contains("holdfast_schedule_sessions{state=\"collecting\"} 2"), "{text}");
    assert!(text.contains("holdfast_schedule_database_up 1"), "{text}");

    let worker = || Worker::start(&site.address, &settings("one"), rota.clone());
    let worker = metrics.counting(worker).unwrap();
    for (session, state) in [(good, "done"), (bad, "failed")] {
        testkit::eventually(LONG, state, async || site.state(session).await.0 == state)
            .await
            .unwrap();
    }
    let expected = [
        "holdfast_lease_done_total{queue=\"schedule_capture\"} 1",
        "holdfast_lease_buried_total{queue=\"schedule_capture\"} 1",
        "holdfast_schedule_sessions{state=\"waiting\"} 0",
        "holdfast_schedule_messages_waiting 1",
        "holdfast_schedule_complete_total 2",
    ];
    testkit::eventually(LONG, "all counted", async || {
        let text = scrape().await;
        if expected.iter().all(|line| text.contains(line)) { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    let text = scrape().await;
    assert!(!text.contains(&USER.to_string()), "no user is told: {text}");
    worker.stop().await;
    serving.abort();
}

#[tokio::test]
async fn intake_counts_requests_sessions_images_and_sweeps() {
    let gate = Gate::open("metrics_intake").await;
    let url = format!("http://{}/metrics", gate.address);
    let http = reqwest::Client::new();
    let scrape = async || http.get(&url).send().await.unwrap().text().await.unwrap();
    let ask =
        async |path: &str, body| gate.ask(Method::POST, path, &gate.sender, &[], Some(body)).await;
    let (_, opened) = ask("/api/v1/sessions", json!({"user_id": USER})).await;
    let images = format!("/api/v1/sessions/{}/images", opened["session_id"].as_str().unwrap());
    let (_, place) = ask(&images, picture(1)).await;
    // The same place again is no second one.
    assert_eq!(ask(&images, picture(1)).await.0, StatusCode::OK);
    assert_eq!(ask(&images, picture(99)).await.0, StatusCode::BAD_REQUEST);
    let complete = format!("{images}/1/complete");
    assert_eq!(ask(&complete, json!({})).await.0, StatusCode::CONFLICT);
    assert!(gate.put(&place, crate::intake::PICTURE).await.is_success());
    for _ in 0..2 {
        assert_eq!(ask(&complete, json!({})).await.0, StatusCode::OK);
    }
    let unknown = http.get(format!("http://{}/api/v1/secrets", gate.address)).send();
    assert_eq!(unknown.await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let expected = [
        "holdfast_schedule_opened_total 1",
        "holdfast_schedule_images_total{what=\"promised\"} 1",
        "holdfast_schedule_images_total{what=\"joined\"} 1",
        "holdfast_schedule_requests_total{route=\"open\",outcome=\"ok\"} 1",
        "holdfast_schedule_requests_total{route=\"place\",outcome=\"ok\"} 2",
        "holdfast_schedule_requests_total{route=\"place\",outcome=\"refused\"} 1",
        "holdfast_schedule_requests_total{route=\"complete\",outcome=\"ok\"} 2",
        "holdfast_schedule_requests_total{route=\"complete\",outcome=\"refused\"} 1",
        "holdfast_schedule_requests_total{route=\"other\",outcome=\"unauthorized\"} 1",
        "holdfast_schedule_requests_total{route=\"week\",outcome=\"ok\"} 0",
        "holdfast_schedule_sweeps_total{result=\"done\"} 1",
        "holdfast_schedule_sweeps_total{result=\"failed\"} 0",
        "holdfast_schedule_swept_total{what=\"unused\"} 0",
        "holdfast_schedule_sessions{state=\"collecting\"} 1",
        "holdfast_http_handshakes_failed_total 0",
    ];
    // Intake sweeps when it starts, and that may end after the rest.
    testkit::eventually(LONG, "all counted", async || {
        let text = scrape().await;
        let missing = expected.iter().find(|line| !text.contains(**line));
        missing.map_or(Ok(()), |line| Err(format!("{line} is not in {text}")))
    })
    .await
    .unwrap();
    assert!(!scrape().await.contains(&USER.to_string()), "no user is told");
    // A proxy brings requests from elsewhere: without a token there is nothing to see.
    let through = http.get(&url).header("x-forwarded-for", "192.0.2.1").send().await.unwrap();
    assert_eq!(through.status(), StatusCode::UNAUTHORIZED);
    let (status, _) = gate
        .ask(Method::GET, "/metrics", &gate.viewer, &[("x-forwarded-for", "192.0.2.1")], None)
        .await;
    assert_eq!(status, StatusCode::OK);
    gate.store.stop().await.unwrap();
}
