//! What a worker tells Prometheus: docs/reference/metrics.md.

use schedule::metrics::{Metrics, serve};
use schedule::worker::Worker;
use tokio::net::TcpListener;

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
