//! Several replicas at the same moment.

use cloud::Cloud;
use event::id::Epoch;
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::{LONG, Site, bare, batch, placed, post, statuses};

const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
     AND application_name = 'holdfast-cloud' AND datname = current_database()";

async fn send(address: &Cloud, token: &str, body: &Value) -> Vec<String> {
    let answer = post(address).bearer_auth(token).body(body.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    statuses(&answer.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_replicas_with_the_same_batches_accept_every_event_once() {
    let site = Site::new("replicas").await;
    let other = Cloud::start(site.config.clone()).await.unwrap();
    let epoch = Epoch::mint();
    let batches: Vec<Value> = (0..10u64)
        .map(|n| {
            let mut events: Vec<Value> = (0..50)
                .map(|i| {
                    let stream = ["barn-1", "barn-2", "barn-3"][(i % 3) as usize];
                    placed(site.reading(), stream, epoch, n * 50 + i + 1)
                })
                .collect();
            events.extend((0..10).map(|_| bare(site.reading())));
            batch(events)
        })
        .collect();
    // Both get everything, one of them in the other direction.
    let one = async {
        let mut accepted = 0;
        for body in &batches {
            let said = send(&site.cloud, &site.token, body).await;
            accepted += said.iter().filter(|status| *status == "accepted").count();
        }
        accepted
    };
    let two = async {
        let mut accepted = 0;
        for body in batches.iter().rev() {
            let said = send(&other, &site.token, body).await;
            accepted += said.iter().filter(|status| *status == "accepted").count();
        }
        accepted
    };
    let (one, two) = tokio::join!(one, two);
    assert_eq!(one + two, 600);
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 600);
    let distinct = "SELECT count(DISTINCT (tenant_id, event_id)) FROM relay_outbox";
    assert_eq!(site.number(distinct).await, 600);
    let received = "SELECT sum(received_count)::bigint FROM ledger_frontier";
    assert_eq!(site.number(received).await, 500);
    other.stop().await;
    site.cloud.stop().await;
}

/// The first request is held open in its transaction; the second has the same event, and waits.
async fn in_flight(name: &str, body: impl Fn(&Site) -> Value, first_commits: bool) {
    let site = Site::new(name).await;
    let other = Cloud::start(site.config.clone()).await.unwrap();
    let body = body(&site);
    let mut blocker = site.client().await;
    let lock = blocker.transaction().await.unwrap();
    // The first gets as far as its relay rows, which come after dedupe and frontier.
    lock.batch_execute("LOCK TABLE relay_outbox IN EXCLUSIVE MODE").await.unwrap();
    let request = |cloud: &Cloud| {
        let request = post(cloud).bearer_auth(&site.token).body(body.to_string());
        tokio::spawn(async move { request.send().await.unwrap() })
    };
    let first = request(&site.cloud);
    eventually(LONG, "the first is held", async || site.number(WAITING).await == 1).await.unwrap();
    let holder = "SELECT pid::bigint FROM pg_stat_activity WHERE wait_event_type = 'Lock'
         AND application_name = 'holdfast-cloud' AND datname = current_database()";
    let holder = site.number(holder).await;
    let second = request(&other);
    eventually(LONG, "the second waits", async || site.number(WAITING).await == 2).await.unwrap();
    assert!(!second.is_finished(), "nothing is answered before it is durable");
    if first_commits {
        drop(lock);
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!(statuses(&first.json().await.unwrap()), ["accepted"]);
        assert_eq!(statuses(&second.json().await.unwrap()), ["duplicate"]);
    } else {
        // The first dies. Had the second answered duplicate, the event would be lost.
        site.number(&format!("SELECT pg_terminate_backend({holder})::int::bigint")).await;
        assert_eq!(first.await.unwrap().status(), 503);
        eventually(LONG, "the second goes on", async || site.number(WAITING).await == 1)
            .await
            .unwrap();
        assert!(!second.is_finished());
        drop(lock);
        let second = second.await.unwrap();
        assert_eq!(statuses(&second.json().await.unwrap()), ["accepted"]);
    }
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 1);
    other.stop().await;
    site.cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_in_flight_is_waited_for() {
    in_flight("in_flight_bare", |site| batch(vec![bare(site.reading())]), true).await;
    let epoch = Epoch::mint();
    let body = |site: &Site| batch(vec![placed(site.reading(), "barn-7", epoch, 1)]);
    in_flight("in_flight_placed", body, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_whose_first_request_dies_is_accepted_by_the_second() {
    in_flight("in_flight_dies", |site| batch(vec![bare(site.reading())]), false).await;
    let epoch = Epoch::mint();
    let body = |site: &Site| batch(vec![placed(site.reading(), "barn-7", epoch, 1)]);
    in_flight("in_flight_dies_2", body, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sender_that_goes_away_leaves_nothing_behind() {
    let site = Site::new("gone").await;
    let body = batch(vec![bare(site.reading())]);
    let mut blocker = site.client().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE relay_outbox IN EXCLUSIVE MODE").await.unwrap();
    let request = site.post().bearer_auth(&site.token).body(body.to_string());
    let sending = tokio::spawn(request.send());
    eventually(LONG, "it is held", async || site.number(WAITING).await == 1).await.unwrap();
    sending.abort();
    drop(lock);
    // Committed or rolled back, the same batch again ends with one row.
    assert_eq!(site.statuses(&body).await.len(), 1);
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 1);
    assert_eq!(json!(site.statuses(&body).await), json!(["duplicate"]));
    site.cloud.stop().await;
}
