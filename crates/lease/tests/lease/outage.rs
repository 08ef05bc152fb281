//! The destination is away: nothing is counted, nothing is lost, and it is left alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lease::backoff::Backoff;
use lease::breaker::State;
use lease::{Clock, Outcome, Verdict};
use testkit::eventually;

use crate::site::{Delivered, LONG, Mode, Site, script};

async fn two_days_of_outage_burn_no_attempt(mode: Mode) {
    let site = Site::new(mode, "outage").await;
    for device in 0..5 {
        site.add("t", &format!("d{device}"), 0..100).await;
    }
    let (up, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let delivered = Delivered::default();
    let (switch, counted, to) = (up.clone(), calls.clone(), delivered.clone());
    let mut options = site.options("w");
    // The breaker's real policy, on a clock on which two days take some seconds.
    options.breaker = Backoff::site();
    options.clock = Clock::faster(30_000);
    let clock = options.clock;
    let worker = site.start(
        script(move |batch| {
            let verdict = if switch.load(Ordering::Relaxed) {
                to.add(&batch);
                Verdict::all_done(&batch)
            } else {
                counted.fetch_add(1, Ordering::Relaxed);
                Verdict::down("connection refused", None)
            };
            async move { verdict }
        }),
        options,
    );
    let two_days = Duration::from_secs(48 * 3600);
    eventually(LONG, "two days", async || clock.now() > two_days).await.unwrap();
    eventually(LONG, "an open breaker", async || {
        worker
            .breakers()
            .iter()
            .any(|breaker| matches!(breaker.state, State::Open { .. }) && breaker.failures > 3)
    })
    .await
    .unwrap();
    assert_eq!(worker.counts().retried + worker.counts().buried, 0);
    assert!(calls.load(Ordering::Relaxed) < 700, "{calls:?} probes in two days");
    let untouched =
        "SELECT count(*) FROM sync_outbox WHERE attempt_count = 0 AND last_attempt_at IS NULL
        AND last_error_code IS NULL AND status IN ('pending', 'claimed')";
    assert_eq!(site.number(untouched).await, 500);
    up.store(true, Ordering::Relaxed);
    site.until_acked(500).await;
    assert_eq!(site.number("SELECT sum(attempt_count) FROM sync_outbox").await, 0);
    crate::order::assert_in_order(&delivered.list());
    worker.stop().await;
}

async fn one_destination_down_does_not_stop_another(mode: Mode) {
    let site = Site::new(mode, "two_ways").await;
    site.add("down", "d", 0..50).await;
    site.add("up", "d", 0..50).await;
    let down = crate::site::name("down");
    let probes = Arc::new(AtomicUsize::new(0));
    let counted = probes.clone();
    let queue = crate::outbox::queue(mode, "test").destination(|lane| lane.tenant.to_string());
    let handler = script(move |batch| {
        let away = *batch.destination == *down.to_string();
        assert!(
            batch.items.iter().all(|item| (item.row.tenant == down) == away),
            "one destination a batch"
        );
        if away {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        async move {
            // What it asks for is heeded: there is no probe within this test.
            let hour = Some(Duration::from_secs(3600));
            if away { Verdict::down("503", hour) } else { Verdict::all_done(&batch) }
        }
    });
    let mut options = site.options("w");
    options.slots = 1;
    let worker = lease::Worker::start(&site.address, queue, handler, options).unwrap();
    site.until_acked(50).await;
    site.until("SELECT count(*) FROM sync_outbox WHERE status = 'pending'", 50).await;
    assert_eq!(probes.load(Ordering::Relaxed), 1);
    worker.stop().await;
}

async fn what_was_sent_before_the_link_went_is_kept(mode: Mode) {
    let site = Site::new(mode, "half").await;
    site.add("t", "d", 0..10).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let delivered = Delivered::default();
    let (counted, to) = (calls.clone(), delivered.clone());
    let mut options = site.options("w");
    options.batch = 10;
    let worker = site.start(
        script(move |mut batch| {
            let mut verdict = Verdict::all_done(&batch);
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                batch.items.truncate(4);
                verdict = Verdict::down("reset", None);
                verdict.outcomes = vec![Outcome::Done; 4];
            }
            to.add(&batch);
            async move { verdict }
        }),
        options,
    );
    site.until_acked(10).await;
    let order: Vec<i64> = delivered.list().iter().map(|(_, event)| event.seq).collect();
    assert_eq!(order, (0..10).collect::<Vec<i64>>());
    worker.stop().await;
}

crate::both! {
    two_days_of_outage_burn_no_attempt,
    one_destination_down_does_not_stop_another,
    what_was_sent_before_the_link_went_is_kept,
}
