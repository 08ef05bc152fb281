//! Large backlogs over HTTP.

use crate::site::{BulkEdge, LONG, SECRET, Site};
use axum::http::StatusCode;
use testkit::eventually;
use testkit::rig::Mode;

fn keys(bulk: &BulkEdge) -> String {
    format!(
        "http.address = \"{}\"\nhttp.secret = \"{SECRET}\"\nhttp.threshold = 100\nhttp.batch_records = 200",
        bulk.url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_backlog_goes_over_http_even_without_a_broker() {
    let bulk = BulkEdge::start().await;
    let mut site = Site::new(&keys(&bulk)).await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(2_000);
    let few = eventually(LONG, "the backlog to shrink", async || {
        site.status().map(|status| status.report.backlog <= 100)
    });
    few.await.unwrap();
    let status = site.status().unwrap();
    assert!(status.report.acked >= 1_900);
    {
        let served = bulk.served();
        let frontier = served.memory.frontiers.values().next().unwrap();
        assert!(frontier.acked() >= 1_900);
        assert_eq!(served.memory.duplicates, 0);
        assert!(served.posts >= 9, "{} posts", served.posts);
    }
    // What is left is too little for it and waits for the broker.
    let edge = site.edge().await;
    {
        let served = bulk.served();
        edge.seen().frontiers.clone_from(&served.memory.frontiers);
    }
    site.link.set(Mode::Pass);
    edge.has_all(2_000).await;
    site.drained().await;
    assert!(!site.log().contains(SECRET), "the log shows the secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_or_a_refusal_of_http_sends_the_backlog_over_mqtt() {
    let bulk = BulkEdge::start().await;
    bulk.served().refusals.extend([
        StatusCode::BAD_REQUEST,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::TOO_MANY_REQUESTS,
    ]);
    let mut site = Site::new(&keys(&bulk)).await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(2_000);
    let refused = eventually(LONG, "a refusal", async || bulk.served().posts >= 1);
    refused.await.unwrap();
    let edge = site.edge().await;
    site.link.set(Mode::Pass);
    let status = site.drained().await;
    assert_eq!(status.report.acked, 2_000);
    // Between the two of them they have everything.
    let mut all: Vec<u64> = edge.seen().arrivals.keys().copied().collect();
    all.extend(bulk.served().memory.arrivals.keys());
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..=2_000).collect::<Vec<u64>>());
    assert!(!edge.seen().arrivals.is_empty(), "nothing went over MQTT");
}
