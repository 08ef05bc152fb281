//! One trace from the request to the consumer.

use cloud::trace::Traceparent;

use crate::relay::ALL;
use crate::site::{Site, bare, batch};
use crate::wiring::{Store, telemetry};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_a_request_reaches_the_consumer_and_comes_back_with_the_answer() {
    let store = Store::default();
    let site = Site::with_works("trace", &[ALL], vec![store.work(telemetry())]).await;
    let sent: Traceparent =
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
    let mut parents = Vec::new();
    // The first names a trace, the second none, the third one that is none.
    for header in [Some(sent.to_string()), None, Some("00-nonsense".to_owned())] {
        let body = batch(vec![bare(site.reading())]).to_string();
        let mut request = site.post().bearer_auth(&site.token).body(body);
        if let Some(header) = header {
            request = request.header("traceparent", header);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let back = answer.headers()["traceparent"].to_str().unwrap();
        parents.push(back.parse::<Traceparent>().unwrap());
        store.has(parents.len()).await;
    }
    assert_eq!(parents[0].trace_id(), sent.trace_id());
    assert_ne!(parents[0].span_id(), sent.span_id(), "the answer names the cloud's own span");
    assert_ne!(parents[1].trace_id(), parents[2].trace_id(), "each without a trace starts one");
    for (message, parent) in store.messages().iter().zip(&parents) {
        let carried: Traceparent = message.headers["traceparent"].parse().unwrap();
        assert_eq!(carried.trace_id(), parent.trace_id());
        assert_ne!(carried.span_id(), parent.span_id(), "the relay's span is between");
    }
    let unauthorized = site.post().header("traceparent", sent.to_string()).send().await.unwrap();
    assert_eq!(unauthorized.status(), 401);
    site.cloud.stop().await;
}
